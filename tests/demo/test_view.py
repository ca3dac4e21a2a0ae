import io

import pytest
from rich.console import Console

from adapter.demo import view
from adapter.demo.view import Question, Reading

CUSTOM = {
    "kind": "MetricValueList",
    "items": [
        {"describedObject": {"kind": "Pod", "name": "web-0"}, "value": "1500m"},
        {"describedObject": {"kind": "Pod", "name": "web-1"}, "value": "2"},
    ],
}
EXTERNAL = {"kind": "ExternalMetricValueList", "items": [{"metricLabels": {"queue": "orders"}, "value": "3k"}]}
STATUS = {"kind": "Status", "message": "the server could not find the metric x for pods"}


@pytest.mark.parametrize(
    ("body", "reading"),
    [
        pytest.param(CUSTOM, Reading({"web-0": "1500m", "web-1": "2"}), id="custom"),
        pytest.param(EXTERNAL, Reading({"orders": "3k"}), id="external"),
        pytest.param(STATUS, Reading({}, "the server could not find the metric x for pods"), id="error"),
    ],
)
def test_readings(body: dict[str, object], reading: Reading) -> None:
    assert view.parse(body) == reading


@pytest.mark.parametrize(
    ("values", "total"), [({"a": "1500m", "b": "2"}, 3.5), ({"a": "3k"}, 3000.0), ({"a": "0"}, 0.0), ({}, None)]
)
def test_totals(values: dict[str, str], total: float | None) -> None:
    assert view.total(Reading(values)) == total


def test_the_screen() -> None:
    questions = [Question("load", "pods", "/a"), Question("depth", "external", "/b")]
    readings = [Reading({"web-0": "1500m"}), Reading({}, "no such metric")]
    console = Console(file=io.StringIO(), width=80)
    console.print(view.render(questions, readings, [[None, 0.75, 1.5], [None, None, None]], {"adapter": "https://x"}))
    assert isinstance(console.file, io.StringIO)
    screen = console.file.getvalue()
    for expected in ("load", "web-0=1500m", "1.5", "·▄█", "no such metric", "···", "adapter     https://x"):
        assert expected in screen
