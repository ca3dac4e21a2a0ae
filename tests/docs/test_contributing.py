"""Workflows and hooks call scripts that exist, issue forms are valid, and versions agree."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
HOOKS = [
    hook
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repo["hooks"]
]
RELEASE = GITHUB / "workflows" / "release.yml"
"""The workflow that publishes: tests/project/test_release.py looks at its rights."""


def _steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        yield from job.get("steps", [])  # a job that calls a workflow has none


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_only_read_and_end(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    if path != RELEASE:
        assert workflow["permissions"] == {"contents": "read"}
        assert not [name for name, job in workflow["jobs"].items() if "permissions" in job]
    for job in workflow["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] > 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_actions_by_commit(path: Path) -> None:
    used = re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text(), re.MULTILINE)
    assert used
    for action in used:
        here = re.fullmatch(r"\./(\S+)(?: #.*)?", action)
        pinned = re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
        assert pinned or (here and (ROOT / here[1]).is_file()), action


def test_an_action_has_one_commit_in_all_workflows() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in _steps(path) if "uses" in step}
    names = [action.partition("@")[0] for action in used]
    assert sorted(names) == sorted(set(names))


def test_workflows_call_the_scripts_that_people_call() -> None:
    commands = [step["run"] for path in WORKFLOWS for step in _steps(path) if "run" in step]
    assert {"scripts/check", ".ci/run", "scripts/test --thorough", "scripts/audit"} <= set(commands)
    for command in commands:
        program, *arguments = command.split()
        if program == ".venv/bin/python":
            program = arguments[0]
        assert program in {"docker", "gh", "kind"} or (ROOT / program).is_file(), command


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: str(hook["id"]))
def test_hooks_call_programs_that_exist_on_staged_files(hook: dict[str, Any]) -> None:
    paths = [word for word in hook["entry"].split() if "/" in word]
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert hook.get("pass_filenames", True)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_are_valid(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    known = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    assert {field["type"] for field in form["body"]} <= known
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in fields)


def test_patterns_of_codeowners_match_something() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text().splitlines()
    patterns = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    assert [pattern for pattern in patterns[1:] if not (ROOT / pattern.lstrip("/")).exists()] == []


def test_manifests_name_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    texts = [path.read_text() for path in (ROOT / "manifests").rglob("*.yaml")]
    images = {image for text in texts for image in re.findall(r"image: (fastpath\S*)", text)}
    assert images == {f"fastpath:{version}"}


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
