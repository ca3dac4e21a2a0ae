"""What is installed is pinned by hash, may be passed on, and is listed in the bill of materials."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
_LICENCES = "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 CNRI-Python MIT MIT-0 PSF-2.0 Zlib"
LICENCES = set(_LICENCES.split())
"""What the page names."""

SPELLINGS = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
EXPLAINED = {"certifi": "MPL-2.0", "promql-parser": ""}
"""Those that the page has a word on, and what their metadata says."""


def pinned(path: Path) -> dict[str, str]:
    """Return the versions in a lock file by name."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {name.lower(): version for name, version in found}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_archive_has_its_hash(path: Path) -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9])", path.read_text(), flags=re.MULTILINE)
    without = [block.split()[0] for block in blocks if block[0].isalnum() and "--hash=sha256:" not in block]
    assert without == []
    assert pinned(path)


# pip's names of the platforms whose wheels run on glibc 2.17 and later; the image's Debian 13 has 2.41
_GLIBC = range(17, 42)


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_the_image_can_be_installed_for(processor: str, tmp_path: Path) -> None:
    """Every package has a wheel for the Python and the C library of the image; its hash is in the lock."""
    base = re.search(r"^ARG PYTHON=python:(\d+\.\d+)\.", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    if base[1] != "{}.{}".format(*sys.version_info):
        pytest.skip("pip reads the markers of the lock for the Python that it runs on")
    names = [f"manylinux_2_{minor}_{processor}" for minor in _GLIBC]
    names += [f"manylinux2014_{processor}"]
    for name in ("forecast.txt", "build.txt"):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--only-binary=:all:", "--require-hashes", "--implementation=cp"]
        command += [f"--python-version={base[1]}", *(f"--platform={each}" for each in names)]
        command += [f"--dest={tmp_path}", f"--requirement={ROOT / 'requirements' / name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    built_for = {path.stem.rpartition("-")[2] for path in tmp_path.glob("*.whl")}
    assert any(processor in platform for platform in built_for)
    assert not [each for each in built_for if each != "any" and processor not in each]


def test_no_script_installs_what_is_not_pinned() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    lines = [
        f"{path.name}: {line.strip()}"
        for path in [*scripts, ROOT / "Dockerfile"]
        for line in path.read_text().splitlines()
        if re.search(r"pip install |^\s*pip_install -", line)
        and '"$@"' not in line  # that is a function's body
    ]
    assert len(lines) >= 4
    # without dependencies only Fastpath itself is installed
    assert [line for line in lines if "--require-hashes" not in line and "--no-deps" not in line] == []


def test_the_tools_of_the_scripts_are_locked() -> None:
    assert pinned(ROOT / "requirements" / "setup.txt").keys() == {"uv"}
    assert {"cyclonedx-bom", "pip-audit"} <= pinned(ROOT / "requirements" / "tools.txt").keys()


def _licences(name: str) -> set[str]:
    """Return what the metadata of a package says, by SPDX's names."""
    metadata = importlib.metadata.metadata(name)
    classifiers = metadata.get_all("Classifier") or []
    (stated, *_) = metadata.get_all("License-Expression") or metadata.get_all("License") or [""]
    if not stated or stated in SPELLINGS:
        stated = stated or next((each for each in classifiers if each.startswith("License ::")), "")
        stated = SPELLINGS.get(stated.rpartition(":: ")[2], stated)
    return set(re.split(r" (?:AND|OR) ", stated))


def test_licences_are_those_that_the_page_names() -> None:
    page = (ROOT / "docs" / "contributing" / "dependencies.md").read_text()
    for name in pinned(ROOT / "requirements" / "forecast.txt"):
        found = _licences(name)
        if name in EXPLAINED:
            assert found == {EXPLAINED[name]}
            assert name in page
        else:
            assert found <= LICENCES, f"{name}: {found}"


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_the_bill_of_materials_lists_what_the_image_installs(tmp_path: Path) -> None:
    if (
        not (ROOT / ".venv" / "tools" / "made-from").exists()
        and os.environ.get("FASTPATH_REQUIRE_TOOLS") != "1"
    ):
        pytest.skip("scripts/sbom has not been run here: it would install its tools")
    file = tmp_path / "sbom.json"
    subprocess.run([ROOT / "scripts" / "sbom", str(file)], check=True, capture_output=True)
    document = json.loads(file.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "fastpath-adapter"
    listed = {each["name"]: each["version"] for each in document["components"]}
    assert listed == pinned(ROOT / "requirements" / "runtime.txt")
    hashes = [each["externalReferences"][0]["hashes"] for each in document["components"]]
    assert all(found and {each["alg"] for each in found} == {"SHA-256"} for found in hashes)
