"""What a decision does with each problem that a process can have: none of them may shrink a workload.

A new problem has no line here: decide what a decision does with it, and add it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "adapter"

ABSENT = "a metric has no value: nothing falls (docs: autoscaler/test_fault_table)"
OVERDUE = "values are late or incomplete: they may raise, not lower"
UNDECIDED = "nothing is decided or written for what it concerns"
KEPT = "what was valid last stays in use"
VETO = "no count falls, and no floor is lowered or set"
TEXT = "only a status, an event or a list of series is late: decisions read none of it"
REQUESTS = "only requests to the metrics APIs are refused: an HPA does not scale down on an error"

TABLE = {
    "access-log": TEXT,
    "access-review": REQUESTS,
    "annotation": "the HPA is only advised",
    "api-discovery": KEPT,
    "api-group": UNDECIDED,
    "autoscaler": UNDECIDED,
    "clock": VETO,
    "config": ABSENT,
    "config-reload": KEPT,
    "credentials": ABSENT,
    "discovery": KEPT,
    "discovery-worker": KEPT,
    "event-write": TEXT,
    "floor-read": REQUESTS,
    "floor-write": "the raise is not written",
    "floors": UNDECIDED,
    "forecast-worker": "no forecast: its floor ends, and the stabilization window follows",
    "forecasts": "the verdicts of the last owner are not known: no floor, as after a first start",
    "informer": OVERDUE,
    "installation": UNDECIDED,
    "installation-lock": KEPT,
    "lease": UNDECIDED,
    "list": ABSENT,
    "metric-name": ABSENT,
    "no-series": ABSENT,
    "object": OVERDUE,
    "prometheus": ABSENT,
    "query": ABSENT,
    "query-budget": OVERDUE,
    "ready-times": "the ready times of the last owner are not known: windows begin without a lead",
    "render": ABSENT,
    "schedule": KEPT,
    "schedule-status": TEXT,
    "scrape": OVERDUE,
    "scrape-endpoints": OVERDUE,
    "scrape-files": "each scrape opens a connection of its own, and goes on",
    "scrape-time": OVERDUE,
    "series-name": ABSENT,
    "serving-certificate": REQUESTS,
    "slices": UNDECIDED,
    "status-write": TEXT,
    "token-review": REQUESTS,
    "trust": REQUESTS,
    "trust-ambiguous": REQUESTS,
    "trust-file": REQUESTS,
    "trust-unsupported": REQUESTS,
    "value": ABSENT,
    "watch": OVERDUE,
}


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
    assert found == TABLE.keys()
