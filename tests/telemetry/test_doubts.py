"""What a decision does with each problem that a process can have: none of them may shrink a workload.

A new problem is not in doubts.yaml: decide what a decision does with it, and add it.
"""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2] / "adapter"

DECISIONS: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("doubts.yaml").read_text())
"""What a decision does, and the problems."""


def constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                        yield name.id, str(value.value)


def is_report(call: ast.Call) -> bool:
    """Tell whether a call reports a problem: `report` or `follow`, or one that hands a fault on."""
    function = call.func
    if not isinstance(function, ast.Attribute) or not call.args:
        return False
    if function.attr == "_report_rules" and len(call.args) == 3:
        return True
    owner = ast.unparse(function.value)
    is_problem = owner.endswith("problems") or "Problem" in owner or owner == "self"
    return function.attr in {"report", "follow"} and is_problem


def reported(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    known = dict(constants(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_report(node):
            first = node.args[0]
            if isinstance(first, ast.Constant) and len(node.args) > 1:
                yield str(first.value)
            elif isinstance(first, ast.Name) and first.id in known:
                yield known[first.id]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "StoredKind":
            yield from (str(word.value.value) for word in node.keywords if word.arg == "fault")  # type: ignore[attr-defined]


def test_each_problem_of_a_process_has_a_line_on_what_decisions_do() -> None:
    found = {fault for path in ROOT.rglob("*.py") for fault in reported(path)}
    assert sorted(chain.from_iterable(DECISIONS.values())) == sorted(found)
