"""The bounds of schedules at an instant, and with an autoscaler's own. Their times are in test_reading."""

import pytest

from adapter.bounds.timeline import MOST_LEAD, NO_BOUNDS, Bounds, BoundsTimeline, Lead
from adapter.model.start_ups import StartUps
from tests.bounds.schedule_reading import DAY, utc
from tests.support.answers import answers
from tests.support.schedules import schedule

MINUTE, HOUR = 60, 3600


def always(seconds: int) -> Lead:
    """Return the same lead for raises of any size."""
    return Lead(StartUps.of([seconds]))


SCATTERED = Lead(StartUps.of([40] * 50 + [50] * 49), 2, 60, 2)
"""A lead of 52 s for one pod, and of 10 s more for each tenfold."""


@pytest.mark.parametrize(
    ("before", "after", "lead"),
    [(5, 6, 52), (5, 15, 62), (0, 12, 62), (2, 12, 62), (0, 1, 52), (20, 5, 52), (50, 1000, 62), (2, 60, 70)],
)
def test_the_lead_of_a_raise_is_that_of_its_last_pod(before: int, after: int, lead: int) -> None:
    """The autoscaler has minReplicas 2 and maxReplicas 60: what a minimum asks for beyond adds no pod."""
    assert SCATTERED.of_raise(before, after) == lead


def test_without_known_starts_there_is_no_lead() -> None:
    assert Lead().of_raise(1, 9) == 0


def test_a_lead_has_a_limit() -> None:
    assert always(700).of_raise(0, 1) == MOST_LEAD
    assert Lead(StartUps.of([599]), delay=2).of_raise(0, 1) == MOST_LEAD


@pytest.mark.parametrize(("least", "most", "expected"), answers("bounds/bounds", "limits"))
def test_limits(least: int | None, most: int | None, expected: list[int]) -> None:
    """The autoscaler has minReplicas 2 and maxReplicas 10."""
    assert [*Bounds(least, most, ("shop/office a",)).limits(2, 10)] == expected


def test_limits_without_schedules() -> None:
    assert NO_BOUNDS.limits(2, 10) == (2, 10)
    assert Bounds(0).limits(0, 10) == (0, 10)


def test_names_and_the_end_of_the_floor() -> None:
    found = schedule(
        {"name": "low", "from": "08:00", "to": "18:00", "minReplicas": 2, "maxReplicas": 9},
        {"name": "high", "from": "09:00", "to": "12:00", "minReplicas": 5},
        {"name": "longer", "from": "11:00", "to": "13:00", "minReplicas": 5},
        {"name": "cap", "from": "12:30", "to": "14:00", "maxReplicas": 3},
        zone="UTC",
        ready="ByStart",
    ).schedule
    timeline = BoundsTimeline([found])
    day = utc("2026-11-24")

    def at(hours: float, lead: int = 0) -> Bounds:
        return timeline.at(day + round(hours * HOUR), always(lead))

    def name(*windows: str) -> tuple[str, ...]:
        return tuple(f"shop/office {window}" for window in windows)

    assert at(7.95) == NO_BOUNDS
    assert at(7.95, 10 * MINUTE) == Bounds(2, None, (), name("low"), day + 18 * HOUR)
    assert at(8) == Bounds(2, 9, name("low"), (), day + 18 * HOUR)
    assert at(9) == Bounds(5, 9, name("high", "low"), (), day + 12 * HOUR)
    assert at(11) == Bounds(5, 9, name("high", "longer", "low"), (), day + 13 * HOUR)
    assert at(12.75) == Bounds(5, 5, name("cap", "longer", "low"), (), day + 13 * HOUR)
    assert at(13) == Bounds(2, 3, name("cap", "low"), (), day + 18 * HOUR)
    assert at(12.45, 10 * MINUTE) == at(12.45), "a maximum never begins early"


def test_a_lead_is_that_of_the_raise_at_the_boundary() -> None:
    """From 2 to 12 at 08:00, and from 12 to 22 at 09:00: 62 s. From 22 to 23 at 10:00: 52 s."""
    timeline = BoundsTimeline(
        [
            schedule(
                {"from": "08:00", "to": "18:00", "minReplicas": 12},
                {"from": "09:00", "to": "18:00", "minReplicas": 22},
                {"from": "10:00", "to": "18:00", "minReplicas": 23},
                zone="UTC",
                ready="ByStart",
            ).schedule
        ]
    )
    instant, begin = utc("2026-11-24"), utc("2026-11-24T08:00")
    begins = []
    while instant < begin + 3 * HOUR:
        before, instant = timeline.at(instant, SCATTERED).min, timeline.next_change(instant, SCATTERED)
        if timeline.at(instant, SCATTERED).min != before:
            begins.append(instant - begin)
    assert begins == [-62, HOUR - 62, 2 * HOUR - 52, 10 * HOUR]


def test_a_window_that_begins_meanwhile_does_not_shorten_a_lead() -> None:
    """At 07:59:05 another begins, after which one pod is missing: that would be a lead of 52 s."""
    found = [
        schedule({"from": "08:00", "to": "18:00", "minReplicas": 13}, zone="UTC", ready="ByStart"),
        schedule({"from": "07:59:05", "to": "18:00", "minReplicas": 12}, zone="UTC"),
    ]
    timeline = BoundsTimeline([each.schedule for each in found])
    begin = utc("2026-11-24T08:00")
    minimums = [timeline.at(begin - before, SCATTERED).min for before in (64, 63, 55, 53, 52, 1, 0)]
    assert minimums == [None, 13, 13, 13, 13, 13, 13]


def test_at_start_nothing_begins_early() -> None:
    timeline = BoundsTimeline([schedule({"from": "08:00", "to": "09:00"}, zone="UTC").schedule])
    begin = utc("2026-11-24T08:00")
    assert timeline.at(begin - 1, always(600)) == NO_BOUNDS
    assert timeline.next_change(begin - 1, always(600)) == begin


def test_an_autoscaler_that_gets_no_maximums() -> None:
    bounds = Bounds(2, 9, ("shop/office low",))
    least = bounds.without_max()
    assert least == Bounds(2, None, ("shop/office low",))
    assert least.without_max() is least
    assert Bounds(None, 9, ("shop/office cap",)).without_max() is NO_BOUNDS
    assert Bounds(None, 9, excess="too many").without_max() == Bounds(excess="too many")


@pytest.mark.parametrize(("least", "replicas", "held"), [(None, 7, 7), (2, 7, 7), (7, 7, 7), (9, 7, 9)])
def test_bounds_that_hold_a_count_have_it_as_floor(least: int | None, replicas: int, held: int) -> None:
    bounds = Bounds(least, None, ("shop/office low",), until=DAY)
    found = bounds.holding(replicas)
    assert found.min == held
    if held == least:
        assert found is bounds
    else:
        assert found.until is not None
        assert found.until > utc("9999-01-01T00:00"), "no window ends it"


def test_time_without_windows_is_passed_in_days() -> None:
    single = {"start": "2026-11-30T08:00", "end": "2026-11-30T09:00"}
    timeline = BoundsTimeline([schedule(single, zone="UTC").schedule])
    start = instant = utc("2026-11-24")
    steps = []
    while instant < utc("2026-12-01"):
        instant = timeline.next_change(instant)
        steps.append(instant - start)
    days = [DAY * number for number in range(1, 7)]
    assert steps == [*days, 6 * DAY + 8 * HOUR, 6 * DAY + 9 * HOUR, 7 * DAY]


def test_a_clock_that_was_set_back() -> None:
    """Spans are computed again for an instant before those that are known."""
    timeline = BoundsTimeline([schedule({"from": "08:00", "to": "09:00"}, zone="UTC").schedule])
    day = utc("2026-11-24")
    assert timeline.at(day + 20 * HOUR) == NO_BOUNDS
    assert timeline.at(day + 8 * HOUR) != NO_BOUNDS


def test_a_forecast_stands_beside_the_windows() -> None:
    window = Bounds(5, 20, ("shop/office business",))
    assert NO_BOUNDS.with_forecast(0) is NO_BOUNDS
    alone = NO_BOUNDS.with_forecast(7)
    assert alone == Bounds(forecast=7)
    assert alone.with_forecast(0) == NO_BOUNDS
    both = window.with_forecast(7)
    assert both == Bounds(5, 20, ("shop/office business",), forecast=7)
    assert both.with_forecast(0) == window
    assert (window.lowest, both.lowest) == (5, 7)
    assert window.with_forecast(30).lowest == 20  # never above the maximum
