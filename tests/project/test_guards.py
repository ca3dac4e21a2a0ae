"""Each guard catches its leak and accepts clean tests. The leaking tests run in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import tools

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

INNER = Path(__file__).parent / "inner"
HEAD, CLEAN, LEAKING = ((INNER / f"{name}.txt").read_text() for name in ("head", "clean", "leaking"))

_SAID = re.findall(r"^# (.*)\n(?:@.*\n)?(?:async )?def test_(\w+)", LEAKING, re.MULTILINE)
SAID = {name: said for said, name in _SAID}
PASSING = re.findall(r"^(?:async )?def test_(\w+)", CLEAN, re.MULTILINE)

RUN_IS_OVER = ["the time limit of the run is over", "~~~ task endless"]
# file, arguments, what the process prints at its end
ENDING = [
    (
        "swallows-every-interruption",
        ["--override-ini=timeout_grace=1"],
        ["the time limit of the test is over", "~~~ thread MainThread", "~~~ task endless"],
    ),
    (
        "keeps-the-interpreter-lock",
        ["--override-ini=timeout_grace=1"],
        ["Timeout (0:00:08)!", "in test_endless"],
    ),
    ("takes-longer-than-the-whole-run-may", ["--override-ini=run_timeout=2"], RUN_IS_OVER),
    ("takes-longer-than-the-whole-run-may", ["--override-ini=run_timeout=12", "-n1"], RUN_IS_OVER),
]


def run_inner(
    root: Path, directory: Path, sources: list[str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run tests in a pytest of their own with the project's settings and guards."""
    (directory / "test_inner.py").write_text("\n".join([HEAD, *sources]))
    plugins = ["-p", "tests.support.guards", "-p", "tests.support.timeguard", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", str(root / "pyproject.toml"), *plugins, *arguments]
    path = {"PYTHONPATH": str(root), "PATH": os.environ["PATH"]}
    return tools.call(*command, "test_inner.py", cwd=directory, env=path)


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all cases in one pytest with the project's settings; return the report of each, "" for a pass."""
    directory = tmp_path_factory.mktemp("inner")
    done = run_inner(request.config.rootpath, directory, [CLEAN, LEAKING], "--junit-xml=report.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, str] = {}
    for case in ET.parse(directory / "report.xml").iter("testcase"):
        text = "\n".join(f"{part.get('message', '')}\n{part.text or ''}" for part in case)
        name = case.attrib["name"].removeprefix("test_")
        found[name] = found.get(name, "") + text
    return found


@pytest.mark.parametrize("name", PASSING)
def test_a_clean_test_passes(reports: dict[str, str], name: str) -> None:
    assert reports[name] == ""


@pytest.mark.parametrize("name", SAID)
def test_a_leaking_test_fails(reports: dict[str, str], name: str) -> None:
    assert SAID[name] in reports[name]


@pytest.mark.parametrize(("name", "settings", "expected"), ENDING)
def test_what_cannot_be_interrupted_ends_the_process(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, settings: list[str], expected: list[str]
) -> None:
    source = (INNER / f"{name}.txt").read_text()
    done = run_inner(request.config.rootpath, tmp_path, [source], *settings)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [text for text in expected if text not in done.stderr] == [], done.stderr
    assert " passed" not in done.stdout


def test_every_case_was_run(reports: dict[str, str]) -> None:
    assert sorted(reports) == sorted([*PASSING, *SAID])
