"""The scripts that make a release, and the workflow that calls them.

Programs that need a registry or an account (docker, helm push, cosign) are stood in for by a script that
records how it was called.
"""

import importlib.metadata
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.chart import charts
from tests.support import tools
from tests.support.answers import answers

ROOT = Path(__file__).parents[2]
DIGEST = f"sha256:{'ab' * 32}"
FIXED = (
    "pyproject.toml",
    "CHANGELOG.md",
    "manifests/base/deployment.yaml",
    "manifests/chart/Chart.yaml",
    "headlamp-plugin/package.json",
)

Finished = subprocess.CompletedProcess[str]


def _load(name: str) -> Any:
    """Return what a script of scripts/ defines."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / name)))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree in which every place says 1.2.3, with the script that checks it."""
    for path, text in {
        "pyproject.toml": '[project]\nversion = "1.2.3"\n',
        "CHANGELOG.md": "## [Unreleased]\n\n## [1.2.3] - 2026-11-23\n\n- b\n\n## [1.2.2] - 2026-01-01\n",
        "manifests/base/deployment.yaml": "spec:\n  - image: fastpath:1.2.3\n",
        "manifests/chart/Chart.yaml": 'apiVersion: v2\nname: fastpath\nversion: 1.2.3\nappVersion: "1.2.3"\n',
        "headlamp-plugin/package.json": '{"version": "1.2.3"}',
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "release-check", tmp_path / "scripts")
    return tmp_path


def _check(tree: Path, *arguments: str) -> Finished:
    return tools.call(sys.executable, tree / "scripts" / "release-check", *arguments)


def test_a_tag_that_the_tree_agrees_with(tree: Path) -> None:
    done = _check(tree, "v1.2.3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "version=1.2.3\n", "")


@pytest.mark.parametrize("path", FIXED)
def test_a_place_that_differs_is_named(tree: Path, path: str) -> None:
    text = (tree / path).read_text().replace("1.2.3", "1.2.4")
    (tree / path).write_text(text)
    done = _check(tree, "v1.2.3")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith(f"scripts/release-check: {path}") for line in lines)
    assert all(line.endswith(": 1.2.4: expected 1.2.3") for line in lines)


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2.03", "v1.2.3-"])
def test_what_is_no_tag_of_a_release(tree: Path, tag: str) -> None:
    done = _check(tree, tag)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tag}: expected a tag such as v1.2.3" in done.stderr


def test_all_places_of_this_tree_say_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = dict(_load("release-check").places(ROOT))
    changelog = said.pop("CHANGELOG.md: the newest dated section")
    assert changelog in {version, ""}, "before the first release no section has a date"
    assert len(said) >= 3
    assert set(said.values()) == {version}


TEXTS = Path(__file__).parent / "release"


def _notes(folder: Path, version: str, environment: Mapping[str, str]) -> Finished:
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "release-notes", folder / "scripts")
    shutil.copy(TEXTS / "changelog.txt", folder / "CHANGELOG.md")
    command = (sys.executable, folder / "scripts" / "release-notes", version)
    return tools.call(*command, env={"PATH": os.environ["PATH"], **environment})


@pytest.mark.parametrize(
    ("environment", "base"),
    [({}, ""), ({"GITHUB_REPOSITORY": "me/it"}, "https://github.com/me/it/blob/v1.2.3/")],
    ids=["here", "on GitHub"],
)
def test_notes_are_the_section_of_the_changelog(
    tmp_path: Path, environment: Mapping[str, str], base: str
) -> None:
    done = _notes(tmp_path, "1.2.3", environment)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        (TEXTS / "notes.txt").read_text().format(base=base),
        "",
    )


def test_the_changes_are_well_formed() -> None:
    """They become notes: each paragraph and item one line, no link left that only a folder resolves."""
    script = _load("release-notes")
    changelog = script.CHANGELOG.read_text()
    newest = "".join(script.section(changelog, version) for version in ("Unreleased", "0.1.0"))
    text = script.link(script.unwrap(newest), "BASE/")
    assert all(line.startswith(("- ", "### ", "  |")) for line in text.splitlines() if line), text
    assert "](docs/" not in text


# The image, the chart, their signatures.


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder for stand-ins of programs; each call adds its arguments as a line of JSON to `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def _stand_in(folder: Path, name: str, then: str = "") -> None:
    program = folder / name
    record = "import json, sys; open(sys.argv[1], 'a').write(json.dumps(sys.argv[2:]) + chr(10))"
    program.write_text(f'#!/bin/sh\n"{sys.executable}" -c "{record}" "{folder}/calls" {name} "$@"\n{then}\n')
    program.chmod(0o755)


def _calls(folder: Path) -> list[list[str]]:
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _run(folder: Path, *command: str) -> Finished:
    more = {"PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "Me/It"}
    return tools.call(*command, cwd=ROOT, env=os.environ | more)


_BUILT = f"""
while [ "$1" != --metadata-file ]; do shift; done
echo '{{"containerimage.digest": "{DIGEST}"}}' >"$2"
"""


@pytest.mark.parametrize("extra", ["", "forecast"])
def test_the_image_is_built_for_both_processors_and_pushed(recorded: Path, extra: str) -> None:
    _stand_in(recorded, "docker", _BUILT)
    done = _run(recorded, "scripts/image", "ghcr.io/Me/It", "1.2.3", extra)
    assert (done.returncode, done.stdout) == (0, f"image=ghcr.io/me/it\ndigest={DIGEST}\n"), done.stderr
    (call,) = _calls(recorded)
    assert call[:3] == ["docker", "buildx", "build"]
    assert call[call.index("--platform") + 1] == "linux/amd64,linux/arm64"
    assert call[call.index("--tag") + 1] == "ghcr.io/me/it:1.2.3" + ("-forecast" if extra else "")
    assert ("REQUIREMENTS=forecast" in call) == bool(extra)
    assert {"--sbom=true", "--provenance=mode=max", "--push"} <= set(call)
    assert "org.opencontainers.image.version=1.2.3" in call
    assert "org.opencontainers.image.source=https://github.com/Me/It" in call


@pytest.mark.parametrize("sbom", [[], ["sbom.json"]], ids=["chart", "image"])
def test_a_digest_is_signed(recorded: Path, sbom: list[str]) -> None:
    _stand_in(recorded, "cosign")
    assert _run(recorded, "scripts/sign", f"ghcr.io/me/it@{DIGEST}", *sbom).returncode == 0
    signed, *attested = _calls(recorded)
    assert signed == ["cosign", "sign", "--yes", f"ghcr.io/me/it@{DIGEST}"]
    wanted = ["cosign", "attest", "--yes", "--type", "cyclonedx", "--predicate", "sbom.json", signed[-1]]
    assert attested == ([wanted] if sbom else [])


def test_a_tag_is_not_signed(recorded: Path) -> None:
    """It may be moved between the push and the signature."""
    _stand_in(recorded, "cosign")
    assert _run(recorded, "scripts/sign", "ghcr.io/me/it:1.2.3").returncode == 2
    assert _calls(recorded) == []


@pytest.fixture(scope="module")
def helm() -> None:
    charts.start_runtime()


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize(
    "values", answers("project/release", "the_package_names_the_version_and_the_published_image")
)
def test_the_package_names_the_version_and_the_published_image(
    values: dict[str, Any], tmp_path: Path
) -> None:
    file = _load("chart").package(charts.CHART, "1.2.3-rc.1", "ghcr.io/me/it", tmp_path / "dist")
    assert Path(file).name == "fastpath-1.2.3-rc.1.tgz"
    images = {
        container["image"]
        for deployment in charts.render(values, chart=Path(file)).all("Deployment")
        for container in deployment["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"ghcr.io/me/it:1.2.3-rc.1"}
    packaged = yaml.safe_load(tools.call("tar", "-xzOf", file, "fastpath/Chart.yaml").stdout)
    assert packaged.pop("annotations")["artifacthub.io/prerelease"] == "true"
    here = yaml.safe_load((charts.CHART / "Chart.yaml").read_text())
    del here["annotations"]
    assert packaged == {**here, "version": "1.2.3-rc.1", "appVersion": "1.2.3-rc.1"}


_PUSHED = f"echo 'Pushed: ghcr.io/me/it/charts/fastpath:1.2.3' >&2; echo 'Digest: {DIGEST}' >&2"


@pytest.mark.usefixtures("helm")
def test_the_chart_is_pushed_with_helm(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stand_in(recorded, "helm", _PUSHED)
    monkeypatch.setenv("PATH", f"{recorded}:{os.environ['PATH']}")
    script = _load("chart")
    dist = tmp_path / "dist"
    assert script.main(["1.2.3", "ghcr.io/Me/It", str(dist), "oci://ghcr.io/Me/It/charts"]) == 0
    package = str(dist / "fastpath-1.2.3.tgz")
    assert _calls(recorded) == [["helm", "push", package, "oci://ghcr.io/me/it/charts"]]
    said = f"package={package}\nchart=ghcr.io/me/it/charts/fastpath@{DIGEST}\n"
    assert capsys.readouterr().out == said
    _stand_in(recorded, "helm", "echo 'Error: denied' >&2; exit 1")
    assert script.main(["1.2.3", "ghcr.io/me/it", str(dist), "oci://ghcr.io/me/it/charts"]) == 1
    assert capsys.readouterr().err == "scripts/chart: helm push: Error: denied\n"


_LIBRARIES = {
    "OpenSSL": b"OpenSSL ",
    "llhttp": b"llhttp__",
    "libuv": b"uv_run",
    "libyaml": b"yaml_parser",
    "RE2": b"N3re2",
    "Abseil": b"absl",
    "libffi": b"ffi_call",
}


def test_the_page_of_security_names_the_libraries_that_packages_contain() -> None:
    """No bill of materials lists them."""
    page = " ".join((ROOT / "docs/reference/security.md").read_text().split())
    (listed,) = re.findall(r"do not name them: (.*?)\. A fixed library", page)
    named: dict[str, str] = {}
    for entry in listed.split(", "):
        names, package = entry.split(" in ")
        named |= dict.fromkeys(names.split(" and "), package)
    assert named.keys() == _LIBRARIES.keys()
    pinned = (ROOT / "requirements/runtime.txt").read_text().lower()
    for name, package in named.items():
        assert f"\n{package.lower()}==" in pinned, package
        compiled = [path for path in importlib.metadata.files(package) or () if path.suffix == ".so"]
        assert any(_LIBRARIES[name] in path.read_binary() for path in compiled), name


# The workflow.


def _workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    return loaded


def test_each_job_has_the_rights_it_needs_and_no_secret() -> None:
    workflow = _workflow()
    assert workflow["permissions"] == {}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    registry = {"contents": "read", "packages": "write", "id-token": "write"}
    assert rights == {
        "version": {"contents": "read"},
        "test": {"contents": "read"},
        "wheel": {"contents": "read"},
        "plugin": {"contents": "read"},
        "image": {**registry, "attestations": "write"},
        "chart": registry,
        "index": {"id-token": "write"},
        "release": {"contents": "write"},
    }
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    assert workflow["jobs"]["index"]["environment"] == "pypi"
    assert not [step for step in workflow["jobs"]["index"]["steps"] if "run" in step]


def test_nothing_is_published_before_the_tests_and_the_release_comes_last() -> None:
    jobs = _workflow()["jobs"]

    def before(name: str) -> set[str]:
        needs = jobs[name].get("needs", [])
        listed = [needs] if isinstance(needs, str) else needs
        return set(listed).union(*map(before, listed))

    for name in ("wheel", "plugin", "image", "chart", "index", "release"):
        assert {"version", "test"} <= before(name), name
    assert {"image", "chart"} <= before("index"), "what cannot be replaced comes after what can"
    assert before("release") == set(jobs) - {"release"}


def test_a_release_candidate_is_not_the_latest_release() -> None:
    steps = _workflow()["jobs"]["release"]["steps"]
    (step,) = (step for step in steps if "gh release" in step.get("run", ""))
    assert '--prerelease="$PRERELEASE"' in step["run"]
    assert step["env"]["PRERELEASE"] == "${{ contains(needs.version.outputs.version, '-') }}"


def test_outputs_that_jobs_read_are_printed_by_the_scripts() -> None:
    """GitHub takes a misspelt output for an empty text."""
    text = (ROOT / ".github/workflows/release.yml").read_text()
    for script, names in {
        "release-check": {"version": "steps.check"},
        "image": {"image": "steps.push", "digest": "steps.push"},
        "chart": {"chart": "steps.push"},
    }.items():
        written = (ROOT / "scripts" / script).read_text()
        for name, step in names.items():
            assert f"{step}.outputs.{name} " in text
            assert f'"{name}=' in written
