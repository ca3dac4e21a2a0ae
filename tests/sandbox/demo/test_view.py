import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from fastpath_sandbox.demo import view
from fastpath_sandbox.demo.view import Moment, Question, Reaction, Reading
from tests.support.scripts import Recorded

SCREENS = Path(__file__).with_name("screens.txt")
CUSTOM = {
    "kind": "MetricValueList",
    "items": [
        {"describedObject": {"kind": "Pod", "name": "web-0"}, "value": "1500m"},
        {"describedObject": {"kind": "Pod", "name": "web-1"}, "value": "2"},
    ],
}
EXTERNAL = {
    "kind": "ExternalMetricValueList",
    "items": [{"metricLabels": {"queue": "orders"}, "value": "3k"}],
}
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
    ("values", "total"),
    [({"a": "1500m", "b": "2"}, 3.5), ({"a": "3k"}, 3000.0), ({"a": "0"}, 0.0), ({}, None)],
)
def test_totals(values: dict[str, str], total: float | None) -> None:
    assert view.total(Reading(values)) == total


QUEUE = Question("queue_depth", "external, queue=orders", "/b")
MISSING = "the server could not find the metric queue_depth for pods"


def running() -> RenderableType:
    questions = [Question("requests_in_flight", "web-fast, scraped each 1 s", "/a"), *[QUEUE] * 3]
    readings = [Reading({"web-0": "1500m"}), Reading({}, MISSING), Reading({}), Reading({}, MISSING)]
    history: list[list[float | None]] = [[None, 0.75, 1.5], [None] * 3, [], [*[1.0] * 50, None]]
    moments = [*[Moment(2, 2, 2)] * view.WIDTH, Moment(4, 2, 2), Moment(4, 4, 2), Moment(4, 4, 3)]
    reactions = [Reaction("load 18 to 58", 99.9, 12.3, None), Reaction("load 18 to 58", 9.0, 0.5, 29.9)] * 2
    table = view.readings_table(questions, readings, history)
    legend = view.legend("6 (6 ready)", "2 (2 ready)")
    chart = view.chart(moments, 8)
    return view.render("replicas", chart, legend, table, view.faults(readings, history), reactions)


def starting() -> RenderableType:
    table = view.readings_table([QUEUE], [Reading({})], [[]])
    return view.render("replicas", view.chart([], 2), view.legend("2", "2"), table, [], [])


SUMMARIES = {
    "no step": [],
    "one step": [Reaction("load", 11.06, 0.52, None)],
    "two steps": [Reaction("load", 99.0, 0.4, 17.0), Reaction("load", 9.0, 0.6, None)],
    "at once": [Reaction("load", 9.0, 0.03, 0.1)],
}


def test_screens(recorded: Recorded) -> None:
    """They fit a terminal of 24 lines, with one for the cursor."""
    text = ""
    for screen in (starting(), running()):
        console = Console(file=io.StringIO(), width=80)
        console.print(screen)
        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        assert len(lines) <= 23
        assert max(map(len, lines)) <= 80
        text += "\n".join([*map(str.rstrip, lines), "=" * 80, ""])
    for name, reactions in SUMMARIES.items():
        text += "\n".join([f"{name}:", *view.summary(reactions), ""])
    recorded(SCREENS, text)
