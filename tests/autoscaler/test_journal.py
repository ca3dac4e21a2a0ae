"""The journal: bounded as a whole and for each autoscaler, and what it shows as JSON."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.controller.reporter import Journal, JournalEntry
from adapter.autoscaler.decide import observation
from adapter.autoscaler.decide.guards.conflicts import ForeignChange
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.explain import debug
from adapter.autoscaler.explain.debug import moment, show_entry
from adapter.autoscaler.inputs.snapshot import MetricInput
from adapter.autoscaler.interfaces import Key
from adapter.model.autoscaling.view import AutoscalerView
from adapter.model.timestamps import SECOND
from tests.support.controller import Bench, shown_document
from tests.support.scaling import NOW

A, B = Key("shop", "a"), Key("shop", "b")


def entry(key: Key, at: int, *inputs: MetricInput, change: ForeignChange | None = None) -> JournalEntry:
    events = (Event("Normal", "SuccessfulRescale", "New size: 3"),)
    return JournalEntry(key, at, 2, 3, "written", "load", "", 2, inputs, (), events, change, (at,))


def times(journal: Journal, key: Key) -> list[int]:
    return [each.time for each in journal.of(key)]


def test_of_all_together_the_newest_are_kept() -> None:
    journal = Journal(per_autoscaler=3, in_all=4)
    for at in range(3):
        journal.note(entry(A, at))
    for at in range(3, 6):
        journal.note(entry(B, at))
    assert (times(journal, A), times(journal, B)) == ([2], [3, 4, 5])

    journal.note(entry(B, 6))
    assert (times(journal, A), times(journal, B)) == ([2], [4, 5, 6]), (
        "what is kept no more makes no room scarce"
    )
    assert len(journal) == 4

    journal.note(entry(Key("shop", "c"), 7))
    assert (times(journal, A), times(journal, B)) == ([], [4, 5, 6])
    assert not journal.is_news(A, (2,)), "the same again would displace others"
    assert journal.is_news(A, (8,))


@pytest.mark.parametrize("bounds", [{"in_all": 50}, {"room": 150_000}], ids=["by number", "by bytes"])
def test_a_namespace_with_many_autoscalers_displaces_no_other(bounds: dict[str, Any]) -> None:
    journal = Journal(**bounds)
    for at in range(5):
        journal.note(entry(A, at))
    for at in range(5, 1000):
        journal.note(entry(Key("noisy", f"web-{at % 300}"), at))

    assert times(journal, A) == [0, 1, 2, 3, 4]
    assert 40 < len(journal) <= 75
    assert times(journal, Key("noisy", f"web-{999 % 300}")) == [999]


def test_entries_about_many_pods_count_for_more() -> None:
    """Of one autoscaler with thousands of pods a hundred entries would be hundreds of megabytes."""
    many = MetricInput(
        "load", observation.PodsReading({f"web-{number}": 1 for number in range(1000)}, {}), None
    )
    journal = Journal(room=1_000_000)
    for at in range(5):
        journal.note(entry(A, at, many))
    assert times(journal, A) == [3, 4]

    for at in range(5, 100):
        journal.note(entry(B, at))
    assert len(journal.of(A)) == 2, "small entries beside them fit"
    journal.forget(A)
    for at in range(100, 150):
        journal.note(entry(B, at))
    assert len(journal.of(B)) == 100, "what was forgotten weighs nothing"

    journal.note(entry(A, 150, *[many] * 50))
    assert len(journal) == 0, "one that is too large for all is not kept"


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        (
            observation.PodsReading({"web-0": 1500}, {}, "late"),
            {"values": {"web-0": 1500}, "overdue": "late"},
        ),
        (observation.ObjectReading(5000, 3), {"value": 5000, "readyThen": 3, "overdue": ""}),
        (
            observation.PodsReading({"a": 1000}, left_out={"b": 2000}),
            {"values": {"a": 1000}, "overdue": "", "leftOut": {"b": 2000}},
        ),
        (observation.ExternalReading((1, 2)), {"values": [1, 2], "readyThen": None, "overdue": ""}),
        (observation.Unavailable("NoMetrics", "no metrics"), {"unavailable": "no metrics"}),
    ],
)
def test_an_entry_as_json(reading: observation.Reading, shown: dict[str, Any]) -> None:
    given = (MetricInput("queue", reading, NOW - 1_500_000_000), MetricInput("other", reading, None))
    found = show_entry(entry(A, NOW, *given, change=ForeignChange(-2, "kubectl", reverses=True)))

    assert found["inputs"] == [
        {"metric": "queue", **shown, "ageSeconds": 1.5},
        {"metric": "other", **shown, "ageSeconds": None},
    ]
    assert (found["time"], found["currentReplicas"], found["desiredReplicas"]) == (
        "2026-11-20T12:00:00.000Z",
        2,
        3,
    )
    assert found["changeSeen"] == {"replicas": -2, "manager": "kubectl", "reversal": True}
    assert found["events"] == [{"type": "Normal", "reason": "SuccessfulRescale", "message": "New size: 3"}]
    assert "changeSeen" not in show_entry(entry(A, NOW))


def test_moments_have_milliseconds() -> None:
    assert moment(NOW + 7_900_000) == "2026-11-20T12:00:00.007Z"
    assert moment(NOW + SECOND - 1) == "2026-11-20T12:00:00.999Z"


async def test_the_journal_is_left_out_where_it_is_not_asked_for(bench: Bench) -> None:
    await bench.begin_with(6)

    short = debug.show(bench.controller, "default", "web", "", with_journal=False)

    assert msgspec.json.decode(short.body, type=AutoscalerView).journal is msgspec.UNSET
    assert msgspec.convert(shown_document(bench.controller), AutoscalerView).journal
