"""Seeded defects apply to the tree, and a sample of them is found."""

import ast
import os

import pytest

from scripts import seeded_defects as defects
from tests.support import tools
from tests.support.answers import answers

EXAMPLE = """tests: tests/model

== A count is one too high
from: mutation
found: tests/project/test_defects.py::test_each_applies_once
--- adapter/errors.py
-{before}
+{after}
"""


def test_each_applies_once() -> None:
    found = defects.read()
    assert len({(defect.package, defect.name) for defect in found}) == len(found) >= 200
    for defect in found:
        texts = defects.changed(defect, defects.ROOT)
        assert all(path.read_text() != text for path, text in texts.items()), defect.name


def test_each_is_found_by_a_test_of_the_tree() -> None:
    modules: dict[str, set[str]] = {}
    for defect in defects.read():
        assert defect.found_by, f"{defect.package}: {defect.name}: run scripts/defects --unknown --update"
        path, *names = defect.found_by.partition("[")[0].split("::")
        if path not in modules:
            nodes = ast.walk(ast.parse((defects.ROOT / path).read_text()))
            kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            modules[path] = {node.name for node in nodes if isinstance(node, kinds)}
        assert set(names) <= modules[path], f"{defect.package}: {defect.name}: no test {defect.found_by}"


@pytest.mark.parametrize(("text", "fault"), answers("project/defects", "what_is_not_a_defect"))
def test_what_is_not_a_defect(text: str, fault: str) -> None:
    with pytest.raises(defects.DefectError) as raised:
        defects.parse("p", text)
    assert str(raised.value) == fault


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("no such line", "x", "its lines are 0 times in adapter/errors.py, not once"),
        ("", "x", "times in adapter/errors.py, not once"),
    ],
)
def test_lines_that_are_not_there_once(before: str, after: str, fault: str) -> None:
    (defect,) = defects.parse("p", EXAMPLE.format(before=before, after=after))
    with pytest.raises(defects.DefectError, match=fault):
        defects.changed(defect, defects.ROOT)


def head() -> str:
    """Return the commit that is tested, which chooses the sample."""
    return tools.call("git", "rev-parse", "HEAD", cwd=defects.ROOT).stdout.strip()


def sampled() -> list[defects.Defect]:
    return defects.sample(defects.read(), 10, os.environ.get("DEFECTS_SEED") or head())


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_without_a_defect_the_tests_of_the_sample_pass() -> None:
    assert defects.failing_without(sampled()) is None


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", range(10))
def test_a_sample_is_found(number: int) -> None:
    defect = sampled()[number]
    (outcome,) = defects.seed_all([defect], jobs=1, known_only=True)
    assert outcome.found_by, f"no test notices {defect.package}: {defect.name}"
