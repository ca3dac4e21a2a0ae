"""Windows by hand and around clocks that are set; `test_reading` compares them with their definition."""

import functools
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from time import thread_time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import ActiveSpan, Level
from adapter.model import local_time
from tests.bounds.schedule_reading import utc
from tests.support import thorough
from tests.support.answers import answers
from tests.support.schedules import schedule

HOUR, DAY = 3600, 86_400
YEAR = 2026


def shown(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@functools.cache
def around(zone: str) -> tuple[int, ...]:
    """Return the instants of the year at which the clock is set, and one on a day on which it is not."""
    start, end = utc(f"{YEAR}-01-01"), utc(f"{YEAR + 1}-01-01")
    return (*local_time.transitions(start, end, ZoneInfo(zone)), utc(f"{YEAR}-05-31T12:00:00"))


def spans(window: dict[str, Any], start: str, end: str, **spec: Any) -> list[tuple[str, str]]:
    found = schedule(window, **spec).schedule
    listed = windows.spans_of(found.windows[0], found, utc(start), utc(end))
    return [(shown(span.begin), shown(span.end)) for span in listed]


OFFICE = {"days": ["Mon", "Tue", "Wed", "Thu", "Fri"], "from": "08:00", "to": "18:30"}


def test_a_week_of_office_hours_is_52_and_a_half_hours() -> None:
    """A schedule that misreads its days is active for 126 hours."""
    found = schedule(OFFICE).schedule
    listed = windows.levels(found, utc("2026-11-22T23:00"), utc("2026-11-29T23:00"))
    assert sum(level.end - level.begin for level in listed) == 5 * 10.5 * HOUR


@pytest.mark.parametrize(("window", "expected"), answers("bounds/windows", "nights"))
def test_on_the_nights_the_clocks_change(window: dict[str, Any], expected: list[list[str]]) -> None:
    day = expected[0][1][:10] if expected else "2026-03-29"
    weekday = {"days": ["Sun"]} if "from" in window else {}
    found = spans(window | weekday, f"{day}T00:00", f"{day}T12:00")
    assert [[*each] for each in found if each[1] > f"{day}T00:00"] == expected


def test_month_ends_and_a_leap_day() -> None:
    last = {"cron": "0 22 L * *", "for": "6h"}
    assert spans(last, "2028-02-20T00:00", "2028-04-01T12:00") == [
        ("2028-02-29T21:00:00Z", "2028-03-01T03:00:00Z"),
        ("2028-03-31T20:00:00Z", "2028-04-01T02:00:00Z"),
    ]
    leap = {"start": "2028-02-29T00:00", "end": "2028-02-29T24:00"}
    assert spans(leap, "2028-02-01T00:00", "2028-04-01T00:00") == [
        ("2028-02-28T23:00:00Z", "2028-02-29T23:00:00Z")
    ]


def test_excepted_days_begin_nothing() -> None:
    """The night that began the day before goes on, and single windows have no excepted days."""
    night = {"from": "22:00", "to": "06:00"}
    found = spans(night, "2026-12-24T12:00", "2026-12-27T12:00", **{"except": ["2026-12-25"]})
    assert found == [
        ("2026-12-24T21:00:00Z", "2026-12-25T05:00:00Z"),
        ("2026-12-26T21:00:00Z", "2026-12-27T05:00:00Z"),
    ]
    cron = {"cron": "0 22 * * *", "for": "8h"}
    assert spans(cron, "2026-12-24T12:00", "2026-12-27T12:00", **{"except": ["2026-12-25"]}) == found
    single = {"start": "2026-12-25T10:00", "end": "2026-12-25T11:00"}
    assert spans(single, "2026-12-25T00:00", "2026-12-26T00:00", **{"except": ["2026-12-25"]}) == [
        ("2026-12-25T09:00:00Z", "2026-12-25T10:00:00Z")
    ]


def test_windows_that_touch_or_overlap_are_one() -> None:
    """Their inner ends and beginnings coincide and are no boundaries."""
    day = {"from": "00:00", "to": "24:00", "days": ["Mon", "Tue"]}
    assert spans(day, "2026-11-22T00:00", "2026-11-28T00:00") == [
        ("2026-11-22T23:00:00Z", "2026-11-24T23:00:00Z")
    ]
    hourly = {"cron": "0 * * * *", "for": "2h"}
    found = schedule(hourly).schedule
    assert windows.boundaries([found], utc("2026-11-22T00:00"), utc("2026-11-23T00:00")) == []


def test_levels_have_the_highest_floor_and_the_lowest_ceiling() -> None:
    found = schedule(
        {"name": "b", "from": "08:00", "to": "12:00", "minReplicas": 5, "maxReplicas": 20},
        {"name": "a", "from": "10:00", "to": "14:00", "minReplicas": 8},
        {"name": "c", "from": "11:00", "to": "12:00", "maxReplicas": 6},
        zone="UTC",
    ).schedule
    start = utc("2026-11-24T00:00")
    assert windows.levels(found, start, start + DAY) == [
        Level(start + 8 * HOUR, start + 10 * HOUR, 5, 20, ("b",)),
        Level(start + 10 * HOUR, start + 11 * HOUR, 8, 20, ("a", "b")),
        Level(start + 11 * HOUR, start + 12 * HOUR, 8, 8, ("a", "b", "c"), ("a", "c")),
        Level(start + 12 * HOUR, start + 14 * HOUR, 8, None, ("a",)),
    ]
    assert windows.levels(found, start, start + 1) == []
    assert windows.levels(found, start, start) == []


@given(st.integers(utc("2026-01-01"), utc("2027-01-01")), st.integers(1, 10 * DAY))
def test_levels_agree_with_the_moment(start: int, length: int) -> None:
    found = schedule(
        {"name": "a", "days": ["Sat", "Sun"], "from": "01:30", "to": "02:30", "minReplicas": 2},
        {"name": "b", "from": "22:00", "to": "02:15", "minReplicas": 3, "maxReplicas": 9},
        {"name": "c", "cron": "*/45 1-3 * * *", "for": "20m", "maxReplicas": 4},
    ).schedule
    listed = windows.levels(found, start, start + length)
    for at in (start, start + length // 2, start + length - 1):
        within = [each[2:] for each in listed if each.begin <= at < each.end]
        assert [each[2:] for each in windows.levels(found, at, at + 1)] == within
    for one, other in itertools.pairwise(listed):
        assert one.end <= other.begin
        assert one.end < other.begin or one[2:] != other[2:]


def test_boundaries_are_sorted_and_within() -> None:
    one = schedule(
        {"name": "b", "from": "08:00", "to": "09:00"}, {"name": "a", "from": "09:00", "to": "10:00"}
    ).schedule
    start = utc("2026-11-24T07:00")
    found = windows.boundaries([one], start, start + 2 * HOUR)
    assert [(shown(each.at), each.window, each.edge) for each in found] == [
        ("2026-11-24T07:00:00Z", "b", "begin"),
        ("2026-11-24T08:00:00Z", "a", "begin"),
        ("2026-11-24T08:00:00Z", "b", "end"),
    ]


@pytest.mark.parametrize(("window", "begins", "spans"), answers("bounds/windows", "how often"))
def test_how_often_windows_begin(window: dict[str, Any], begins: int, spans: int) -> None:
    """Windows that touch are one span, but each of them is a begin."""
    assert windows.begins_a_day(schedule(window).schedule) == begins
    assert windows.begins_a_day(schedule(window, window).schedule) == 2 * begins
    assert windows.spans_a_day(schedule(window, window).schedule) == 2 * spans


@given(
    st.sampled_from(
        ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana", "Africa/Cairo"]
    ),
    st.sampled_from(["*", "*/7", "0,59", "*/15", "1-50/9", "30"]),
    st.sampled_from(["*", "0", "0-3", "*/2", "2,23", "1,2,3,23"]),
    st.sampled_from([1, 59, 60, 61, 420, 900, 3600, 3601, 86_400, 40 * 3600]),
    st.integers(-3 * DAY, 3 * DAY),
    st.integers(0, 10),
)
@settings(deadline=None, max_examples=2000 if thorough.is_chosen() else 60)
def test_runs_are_the_begins_one_by_one(
    name: str, minute: str, hour: str, seconds: int, shift: int, pick: int
) -> None:
    """Also around the days on which a clock is set, where the begins that a clock skips are one."""
    zone, changes = ZoneInfo(name), around(name)
    instant = changes[pick % len(changes)] + shift
    window = windows.CronWindow(f"{minute} {hour} * * *", seconds)
    matches = windows.read_cron(window.expression)
    days = [local_time.local_at(instant, zone).date() + timedelta(days=number) for number in range(-4, 4)]
    covered = {
        (begin, begin + seconds)
        for day in days
        for at in matches.hours
        for within in matches.minutes
        for begin in [local_time.first_at(datetime.combine(day, time(at, within)), zone)]
    }
    found = windows.Schedule("a/b", zone, (windows.Window("w", window, 1, None),))
    expected: list[ActiveSpan] = []
    for begin, end in sorted(covered):
        if expected and begin <= expected[-1].end:
            expected[-1] = ActiveSpan(expected[-1].begin, max(end, expected[-1].end))
        else:
            expected.append(ActiveSpan(begin, end))
    listed = windows.spans_of(found.windows[0], found, instant, instant + DAY)
    assert _cut(listed, instant) == _cut(expected, instant)


def _cut(spans: Sequence[ActiveSpan], start: int) -> list[ActiveSpan]:
    """Return what spans have of a day: how far they reach beyond depends on the days that were looked at."""
    cut = [ActiveSpan(max(span.begin, start), min(span.end, start + DAY)) for span in spans]
    return [span for span in cut if span.begin < span.end]


def test_begins_near_a_change_of_the_clock_cost_little() -> None:
    """Local times of the days around it were computed one by one: 100 windows took seconds."""
    window = windows.CronWindow("* * * * *", 744 * HOUR)
    instant, zone = utc("2026-10-27T12:00:00"), ZoneInfo("Europe/Berlin")
    begun = thread_time()
    for _ in range(100):
        assert len(list(window.spans(instant, instant + DAY, zone, frozenset()))) < 60
    assert thread_time() - begun < 0.4
