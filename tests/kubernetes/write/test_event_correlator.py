"""What becomes of look-alikes: the cases of client-go's correlator, with its numbers."""

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kubernetes.write import events

WEB = events.Regarding("autoscaling/v2", "HorizontalPodAutoscaler", "shop", "web", "uid-1")
START = 1_700_000_000


class Said(NamedTuple):
    message: str
    times: int


class Teller:
    """A correlator that is told events at seconds from the start."""

    def __init__(self) -> None:
        self.correlator = events.Correlator()
        self.nanoseconds = 0

    def tell(
        self,
        message: str,
        at: float = 0.0,
        reason: str = "FailedGetPodsMetric",
        kind: str = "Warning",
        about: events.Regarding = WEB,
    ) -> events.EventRecord | None:
        self.nanoseconds += 1
        stamp = round((START + at) * 1e9) + self.nanoseconds
        return self.correlator.correlate(events.first_record(about, kind, reason, message, stamp))

    def said(
        self, message: str, at: float = 0.0, reason: str = "FailedGetPodsMetric", kind: str = "Warning"
    ) -> Said | None:
        event = self.tell(message, at, reason, kind)
        return Said(event.message, event.count) if event is not None else None


def test_an_event_has_the_recorders_form() -> None:
    event = events.first_record(
        WEB, "Normal", "SuccessfulRescale", "New size: 5; reason: x", 1_700_000_000_123_456_789
    )
    assert event.name == f"web.{1_700_000_000_123_456_789:x}" == "web.17979cfe3d85cd15"
    assert event.first == event.last == pytest.approx(1_700_000_000.123)
    assert event.count == 1
    assert events._document(event)["lastTimestamp"] == "2023-11-14T22:13:20Z"


def test_a_name_of_an_event_is_never_too_long() -> None:
    long = WEB._replace(name="a" * 235 + "." + "b" * 17)
    assert len(events.first_record(long, "Normal", "R", "m", 1_700_000_000_123_456_789).name) <= 253
    assert ".." not in events.first_record(long, "Normal", "R", "m", 1_700_000_000_123_456_789).name


def test_the_same_again_counts_up_under_the_first_name() -> None:
    teller = Teller()
    first = teller.tell("no metrics", 0)
    second = teller.tell("no metrics", 15)
    assert first is not None
    assert second is not None
    assert (second.name, second.count, second.first) == (first.name, 2, first.first)
    assert second.last - second.first == pytest.approx(15, abs=0.001)


def test_another_text_is_another_event() -> None:
    teller = Teller()
    assert teller.said("a") == Said("a", 1)
    assert teller.said("b") == Said("b", 1)
    assert teller.said("a") == Said("a", 2)


def test_the_tenth_text_begins_the_combined_event() -> None:
    teller = Teller()
    for number in range(events.ALIKE - 1):
        assert teller.said(f"took {number}") == Said(f"took {number}", 1)
    assert teller.said("took 9") == Said(f"{events.COMBINED}took 9", 1)
    assert teller.said("took 10") == Said(f"{events.COMBINED}took 10", 2)


def test_ten_minutes_of_quiet_end_the_combining() -> None:
    teller = Teller()
    for number in range(12):
        teller.said(f"took {number}", number)
    assert teller.said("took 12", 11 + 600) == Said(f"{events.COMBINED}took 12", 4)
    assert teller.said("took 13", 11 + 600 + 600.5) == Said("took 13", 1)


@pytest.mark.parametrize(("reason", "kind"), [("Other", "Warning"), ("FailedGetPodsMetric", "Normal")])
def test_events_of_another_reason_or_type_are_not_combined(reason: str, kind: str) -> None:
    teller = Teller()
    for number in range(events.ALIKE - 1):
        teller.said(f"took {number}")
    assert teller.said("took 9", 0.0, reason, kind) == Said("took 9", 1)


def test_twenty_five_go_at_once_then_one_in_five_minutes() -> None:
    teller = Teller()
    passed = [teller.said("again", number * 0.01) for number in range(40)]
    assert [each is not None for each in passed] == [True] * int(events.BURST) + [False] * 15
    assert teller.said("again", 299) is None
    late = teller.said("again", 301)
    assert late is not None
    assert late.times == 42, "what was held back was counted all the same"
    assert teller.said("again", 302) is None


def test_another_object_has_a_limit_of_its_own() -> None:
    teller = Teller()
    for _ in range(40):
        teller.said("again")
    assert teller.tell("again", about=WEB._replace(name="api")) is not None
    assert teller.tell("again", about=WEB._replace(uid="uid-2")) is not None
    assert teller.tell("again", kind="Normal") is not None


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    teller = Teller()
    for _ in range(25):
        teller.said("again", 1000)
    assert teller.said("again", 0) is None
    assert teller.said("again", 900) is not None, "three hundred seconds on"


@given(st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.floats(0, 100)), max_size=120))
def test_names_are_never_used_twice_for_new_events(told: list[tuple[str, float]]) -> None:
    teller = Teller()
    made = [teller.tell(message, at) for message, at in told]
    names = [event.name for event in made if event is not None and event.count == 1]
    assert len(set(names)) == len(names)
    forward = sum(max(0.0, later - sooner) for (_, sooner), (_, later) in itertools.pairwise(told))
    assert sum(event is not None for event in made) <= events.BURST + forward / 300
