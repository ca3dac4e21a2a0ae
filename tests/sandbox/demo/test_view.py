import io
import re

import pytest
from rich.console import Console

from fastpath_sandbox.demo import view
from fastpath_sandbox.demo.view import Moment, Question, Reaction, Reading

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


def test_the_chart() -> None:
    moments = [Moment(2, 2, 2), Moment(4, 2, 2), Moment(4, 4, 2), Moment(4, 4, 3)]
    rows = [line[6:].strip() for line in view.chart(moments, 4).plain.splitlines()]
    assert rows == ["░━━", "░░─", "══─░", "░░░░", "─" * view.WIDTH]


def test_the_chart_shows_the_last_moments() -> None:
    moments = [Moment(1, 1, 2)] * view.WIDTH + [Moment(1, 2, 1)]
    top, bottom, _ = view.chart(moments, 2).plain.splitlines()
    assert top[6:] == "─" * (view.WIDTH - 1) + "━"
    assert bottom[6:] == "━" * (view.WIDTH - 1) + "─"


@pytest.mark.parametrize(
    ("reactions", "lines"),
    [
        pytest.param(
            [], ["The load did not step in this time: let the demo run for 60 s or longer."], id="no step"
        ),
        pytest.param(
            [Reaction("load", 11.06, 0.52, None)],
            [
                "  fast-scaler   0.5 s",
                "  HPA           not yet, 11.1 s after the step; it can take half a minute: --for 60s",
            ],
            id="one step",
        ),
        pytest.param(
            [Reaction("load", 99.0, 0.4, 17.0), Reaction("load", 9.0, 0.6, None)],
            ["  fast-scaler   0.5 s (p50 of 2 steps; at most 0.6 s)", "  HPA           17.0 s"],
            id="two steps",
        ),
        pytest.param(
            [Reaction("load", 9.0, 0.03, 0.1)],
            ["  fast-scaler   under 0.1 s", "  HPA           0.1 s"],
            id="at once",
        ),
    ],
)
def test_the_summary(reactions: list[Reaction], lines: list[str]) -> None:
    assert view.summary(reactions)[-len(lines) :] == lines


def test_the_screen_fits_a_terminal() -> None:
    questions = [
        Question("requests_in_flight", "web-fast, scraped each 1 s", "/a"),
        *[Question("queue_depth", "external, queue=orders", "/b")] * 3,
    ]
    missing = "the server could not find the metric queue_depth for pods"
    readings = [Reading({"web-0": "1500m"}), Reading({}, missing), Reading({}), Reading({}, missing)]
    history: list[list[float | None]] = [[None, 0.75, 1.5], [None] * 3, [], [*[1.0] * 50, None]]
    reactions = [Reaction("load 18 to 58", 99.9, 12.3, None), Reaction("load 18 to 58", 9.0, 0.5, 29.9)] * 2
    console = Console(file=io.StringIO(), width=80, force_terminal=True, no_color=True)
    about = view.legend("6 (6 ready)", "2 (2 ready)")
    table = view.readings_table(questions, readings, history)
    faulty = view.faults(readings, history)
    console.print(
        view.render("replicas", view.chart([Moment(6, 6, 2)] * 99, 8), about, table, faulty, reactions)
    )
    assert isinstance(console.file, io.StringIO)
    screen = re.sub(r"\x1b\[[^m]*m", "", console.file.getvalue())

    for expected in (
        "fast-scaler 6 (6 ready)",
        "1.5",
        "·▄█",
        "not yet",
        "no value now",
        "99 s ago",
        "fast-scaler 0.5 s",
    ):
        assert expected.replace("99 s", "100 s") in screen
    assert screen.count(missing[:40]) == 1, "a metric that has not come yet is no fault"
    assert len(screen.splitlines()) <= 23, "and a line for the cursor"
    assert max(map(len, screen.splitlines())) <= 80


def test_before_the_first_step() -> None:
    console = Console(file=io.StringIO(), width=80)
    table = view.readings_table([], [], [])
    console.print(view.render("replicas", view.chart([], 2), view.legend("2", "2"), table, [], []))
    assert isinstance(console.file, io.StringIO)
    assert "the load steps in a moment" in console.file.getvalue()


def test_before_the_first_values() -> None:
    console = Console(file=io.StringIO(), width=80)
    question = Question("queue_depth", "external, queue=orders", "/b")
    console.print(view.readings_table([question], [Reading({})], [[]]))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[1].split()[-2:] == ["not", "yet"]
