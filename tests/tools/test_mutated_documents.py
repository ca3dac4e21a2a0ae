"""Documents with a changed value: each verb that reads them answers or refuses, and never fails itself."""

import contextlib
import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapter.cli import main
from tests.support.answers import answers

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

DOCUMENTS = Path(__file__).parents[1] / "data" / "documents"
HPA, FAST, SCHEDULE, SCALED_OBJECT, RULES = (
    (DOCUMENTS / f"{name}.yaml").read_text()
    for name in ("hpa", "fast-path-autoscaler", "schedule", "scaled-object", "rules")
)
MANIFEST = f"{HPA}---\n{SCALED_OBJECT}"

VALUES = answers("tools/mutated_documents", "values")


def _places(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(tree, dict | list):
        listed = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, below in listed:
            yield from _places(below, (*path, name))


def _parent(tree: Any, path: tuple[str | int, ...]) -> Any:
    for step in path[:-1]:
        tree = tree[step]
    return tree


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Draw the documents of a text with one to three changes, as JSON, which is YAML."""
    trees = copy.deepcopy(list(yaml.load_all(text, yaml.BaseLoader)))
    trees = [_typed(tree) for tree in trees]
    for _ in range(draw(st.integers(1, 3))):
        tree = draw(st.sampled_from(trees))
        if not (places := list(_places(tree))):
            continue
        path = draw(st.sampled_from(places))
        parent, name = _parent(tree, path), path[-1]
        way = draw(st.sampled_from(("value", "value", "value", "away", "twice")))
        if way == "value":
            parent[name] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif way == "away":
            del parent[name]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[int(name)]))
        else:
            parent[f"{name}x"] = copy.deepcopy(parent[name])
    return "\n---\n".join(json.dumps(tree) for tree in trees)


def _typed(tree: Any) -> Any:
    """Return a tree of texts with the numbers of fields that are numbers."""
    if isinstance(tree, dict):
        return {name: _typed(below) for name, below in tree.items()}
    if isinstance(tree, list):
        return [_typed(below) for below in tree]
    return int(tree) if tree.isdecimal() and len(tree) < 3 else tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutated")
    (path / "load.csv").write_text("seconds,load\n0,5\n60,50\n90,5\n")
    (path / "web.yaml").write_text(FAST)
    (path / "rules.yaml").write_text(RULES)
    return path


def _answers(folder: Path, text: str, *arguments: str) -> None:
    """Run a verb with a file; with status 2 it names what is wrong, on lines of its own."""
    (folder / "given").write_text(text)
    verb, *rest = (str(folder / each[1:]) if each.startswith("@") else each for each in arguments)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main([verb, *rest])
    assert status in {0, 1, 2, 3}
    if status == 2:
        lines = err.getvalue().splitlines()
        assert lines
        assert all(line.startswith(f"fastpath {verb}: ") for line in lines), lines


RUNS = {
    "convert": (MANIFEST, "convert", "@given"),
    "convert-back": (FAST, "convert", "--back", "@given"),
    "boost": (HPA, "boost", "@given"),
    "boost-object": (HPA, "boost", "--handshake", "object", "-o", "patch", "@given"),
    "boost-remove": (HPA, "boost", "--remove", "@given"),
    "check": (f"{HPA}---\n{FAST}---\n{SCHEDULE}", "check", "@rules.yaml", "@given"),
    "check-rules": (RULES, "check", "@given", "@web.yaml"),
    "schedule": (SCHEDULE, "schedule", "@given", "--from", "2026-11-20T00:00:00Z"),
    "schedule-json": (SCHEDULE, "schedule", "@given", "-o", "json", "--from", "2026-11-20T00:00:00Z"),
    "evaluate": ((EXAMPLES / "evaluate" / "friday.yaml").read_text(), "evaluate", "@given"),
    "explained": ((EXAMPLES / "evaluate" / "friday.yaml").read_text(), "evaluate", "--explain", "@given"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_verb_answers_or_refuses(folder: Path, name: str) -> None:
    text, *arguments = RUNS[name]

    @settings(max_examples=60)
    @given(mutated(text))
    def run(given_text: str) -> None:
        _answers(folder, given_text, *arguments)

    run()


@pytest.mark.parametrize("name", RUNS)
def test_each_word_of_the_api_may_be_unknown(folder: Path, name: str) -> None:
    text, *arguments = RUNS[name]
    trees = [_typed(tree) for tree in yaml.load_all(text, yaml.BaseLoader)]
    for path in _places(trees):
        if path[-1] in {"type", "selectPolicy", "status", "mode", "operator", "kind"}:
            changed = copy.deepcopy(trees)
            _parent(changed, path)[path[-1]] = "Mars"
            _answers(folder, "\n---\n".join(json.dumps(tree) for tree in changed), *arguments)


FEW_METRICS = FAST.replace("External", "Pods").replace("external:", "pods:").replace("pendingCapacity", "x")
PODS = "\n".join(line for line in FEW_METRICS.splitlines() if "  x:" not in line)
HUGE = ("18446744073709551616", "9223372036854776", "9223372036854775", "100E", "8Ei", "1e-9")


@settings(max_examples=60)
@given(mutated(PODS))
@example(PODS.replace('"30"', HUGE[0]))
@example(PODS.replace('"30"', HUGE[1]))
@example(PODS.replace('"30"', HUGE[2]))
def test_a_simulation_answers_or_refuses(folder: Path, text: str) -> None:
    policies = ("--policy", "native", "--policy", "fast", "--policy", "boost")
    load = ("--load", str(folder / "load.csv"))
    _answers(folder, text, "simulate", "--autoscaler", "@given", *load, "--pod-start", "5s", *policies)


@pytest.mark.parametrize("target", HUGE[:-1])
@pytest.mark.parametrize("verb", ["simulate", "forecast"])
def test_a_target_that_is_too_large_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str, target: str
) -> None:
    (folder / "huge").write_text(PODS.replace('"30"', f'"{target}"'))
    load = ("--load", str(folder / "load.csv"), "--pod-start", "5s")
    assert main.main([verb, "--autoscaler", str(folder / "huge"), *load]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "spec.metrics[0]" in printed.err
    assert "expected" in printed.err or "must be at most" in printed.err
