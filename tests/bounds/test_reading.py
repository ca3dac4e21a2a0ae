"""Schedules against a second reading of their definition, minute by minute, in all zones."""

import zoneinfo
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.bounds.schedule import documents, windows
from adapter.bounds.timeline import MOST_LEAD, NO_BOUNDS, Bounds, BoundsTimeline, Lead
from adapter.model.start_ups import StartUps
from tests.bounds.schedule_reading import DAY, Clock, MarkedWindows, utc
from tests.support import thorough
from tests.support.schedules import document, schedule

YEAR = "2028"  # a leap year

CHANGES = {
    "Africa/Cairo": "2026-04-24 2026-10-30",  # forward at midnight
    "Africa/Casablanca": "2026-02-15 2026-03-22",  # back for Ramadan
    "Africa/El_Aaiun": "2028-01-23 2028-03-05",
    "America/Havana": "2026-03-08 2026-11-01",  # at midnight both ways
    "America/Nuuk": "2026-03-29 2026-10-25",  # on the day before
    "America/St_Johns": "2010-03-14 2010-11-07 2026-03-08",  # a minute after midnight
    "Antarctica/Troll": "2026-03-29 2026-10-25",  # by two hours
    "Asia/Beirut": "2026-03-29 2026-10-25",
    "Asia/Gaza": "2026-03-28 2026-10-24",
    "Asia/Pyongyang": "2015-08-15 2018-05-05",  # by half an hour, for good
    "Australia/Lord_Howe": "2026-04-05 2026-10-04",  # by half an hour
    "Europe/Dublin": "2026-03-29 2026-10-25",  # winter time is the exception
    "Europe/Berlin": "2026-03-29 2026-10-25 2028-02-29",
    "Pacific/Apia": "2011-12-30",  # a day that was not
    "Pacific/Kwajalein": "1993-08-21",  # another
    "Pacific/Chatham": "2026-04-05 2026-09-27",  # 45 minutes off the others
    "UTC": "2026-06-01",
}
"""Zones with clocks that are set in their own ways, and days on which that happens."""

TIMES = st.one_of(
    st.sampled_from(["00:00", "00:30", "01:00", "01:59", "02:00", "02:30", "03:00", "23:00", "23:59"]),
    st.builds(lambda minute: f"{minute // 60:02d}:{minute % 60:02d}", st.integers(0, 1439)),
)
ENDS = TIMES | st.just("24:00")
FIELDS = st.sampled_from(["*", "0", "30", "*/15", "*/7", "10-50/20", "0,59", "1-5"])
HOURS = st.sampled_from(["*", "0", "2", "1-3", "*/2", "23", "0,3"])
BOUNDS = st.sampled_from(
    [
        {"minReplicas": 3},
        {"minReplicas": 7},
        {"minReplicas": 2, "maxReplicas": 5},
        {"maxReplicas": 4},
        {"minReplicas": 0, "maxReplicas": 0},
    ]
)


@st.composite
def windows_of(draw: st.DrawFn, day: str) -> dict[str, Any]:
    """Return a window of any of the three forms, a single one on or around a day."""
    form = draw(st.sampled_from(["from", "cron", "start"]))
    bounds = draw(BOUNDS)
    if form == "from":
        begin = draw(TIMES)
        weekdays = {"days": sorted(draw(st.sets(st.sampled_from(["Fri", "Sat", "Sun", "Mon"]), min_size=1)))}
        some = draw(st.sampled_from([{}, weekdays]))
        return {"from": begin, "to": draw(ENDS.filter(lambda end: end != begin))} | some | bounds
    if form == "cron":
        weekday = draw(st.sampled_from(["*", "0", "6,7", "1-5"]))
        days = draw(st.sampled_from(["*", "28-31", "29", "*/2"]))
        length = draw(st.sampled_from(["1m", "10m", "1h", "90m", "24h", "30h"]))
        return {"cron": f"{draw(FIELDS)} {draw(HOURS)} {days} * {weekday}", "for": length} | bounds
    begin, end = draw(TIMES), draw(ENDS)
    after = day if begin < end else str(date.fromisoformat(day) + timedelta(days=1))
    return {"start": f"{day}T{begin}", "end": f"{after}T{end}"} | bounds


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, int, dict[str, Any]]:
    """Return a zone, the middle of the time to look at, and a document."""
    zone = draw(st.sampled_from(sorted(CHANGES)))
    day = draw(st.sampled_from(CHANGES[zone].split()))
    listed = draw(st.lists(windows_of(day), min_size=1, max_size=4))
    excepted = {"except": [day]} if draw(st.booleans()) else {}
    return zone, utc(day), document(*listed, zone=zone, **excepted)


def read(zone: str, middle: int, tree: dict[str, Any], step: int = 60, days: int = 2) -> MarkedWindows:
    """Return the second reading of the days around an instant; clock and marks reach further."""
    start, end = middle - days * DAY, middle + days * DAY
    clock = Clock(zone, start - 3 * DAY, end + 3 * DAY, step)
    return MarkedWindows(tree["spec"], clock, start - DAY, end + DAY)


def compare(tree: dict[str, Any], reading: MarkedWindows, start: int, end: int) -> None:
    found = documents.read_document(tree).schedule
    boundaries = [(each.at, each.window, each.edge) for each in windows.boundaries([found], start, end)]
    assert boundaries == reading.boundaries(start, end)
    assert [each[:5] for each in windows.levels(found, start, end)] == reading.levels(start, end)


QUICK = settings(
    deadline=None,
    max_examples=1000 if thorough.is_chosen() else 50,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.timeout(300)
@QUICK
@given(cases())
def test_windows_follow_their_definition(case: tuple[str, int, dict[str, Any]]) -> None:
    zone, middle, tree = case
    compare(tree, read(zone, middle, tree), middle - 2 * DAY, middle + 2 * DAY)


@pytest.mark.timeout(300)
@QUICK
@given(cases(), st.sampled_from([0, 60, 420, MOST_LEAD]))
def test_bounds_over_time_are_those_of_the_windows(
    case: tuple[str, int, dict[str, Any]], seconds: int
) -> None:
    """The floors of the first schedule, which is ByStart, begin earlier; no change is jumped over."""
    zone, middle, tree = case
    lead = Lead(StartUps.of([seconds]))
    reading = read(zone, middle, tree)
    first, *others = tree["spec"]["windows"]
    expected = reading.with_leads([seconds, *(0 for _ in others)])
    spec = {"zone": zone, "except": tree["spec"].get("except", [])}
    schedules = [schedule(first, ready="ByStart", **spec)]
    schedules += [schedule(*others, **spec)] if others else []
    timeline = BoundsTimeline([each.schedule for each in schedules])
    instant = reading.start
    while instant < reading.end:
        bounds = timeline.at(instant, lead)
        change = timeline.next_change(instant, lead)
        assert change > instant
        low, high = ((at - reading.start) // reading.step for at in (instant, change))
        assert set(expected[low:high]) == {None if bounds == NO_BOUNDS else (bounds.min, bounds.max)}
        instant = change


@pytest.mark.timeout(300)
@QUICK
@given(cases(), st.lists(st.integers(0, 700), min_size=1, max_size=9))
def test_a_minimum_that_is_early_stays_until_its_window_begins(
    case: tuple[str, int, dict[str, Any]], seconds: list[int]
) -> None:
    zone, middle, tree = case
    listed = [schedule(window, ready="ByStart", zone=zone) for window in tree["spec"]["windows"]]
    timeline, lead = BoundsTimeline([each.schedule for each in listed]), Lead(StartUps.of(seconds))
    instant, before = middle - DAY, Bounds()
    while instant < middle + DAY:
        bounds = timeline.at(instant, lead)
        assert {*before.early} <= {*bounds.early, *bounds.windows}
        instant, before = timeline.next_change(instant, lead), bounds


SECONDS = {
    "Africa/Monrovia": "1972-01-07",  # by 44 minutes and 30 seconds
    "America/St_Johns": "2010-11-07",
    "Australia/Lord_Howe": "2026-04-05",
    "Pacific/Apia": "2011-12-30",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("zone", SECONDS)
def test_second_by_second(zone: str) -> None:
    middle = utc(SECONDS[zone])
    tree = document(
        {"from": "23:59:59", "to": "00:00:30"},
        {"from": "00:44:29", "to": "00:44:31", "minReplicas": 2},
        {"from": "01:30:01", "to": "01:59:59", "maxReplicas": 9},
        {"cron": "44 0 * * *", "for": "29s", "minReplicas": 3},
        {"cron": "* * * * *", "for": "59s", "maxReplicas": 3},
        {"start": f"{SECONDS[zone]}T00:00:10", "end": f"{SECONDS[zone]}T24:00", "minReplicas": 4},
        zone=zone,
    )
    start, end = middle - DAY // 2, middle + DAY
    clock = Clock(zone, middle - 3 * DAY, middle + 4 * DAY, 1)
    compare(tree, MarkedWindows(tree["spec"], clock, middle - DAY, middle + 2 * DAY), start, end)


ALL_FORMS = document(
    {"from": "08:00", "to": "18:30", "days": ["Mon", "Tue", "Wed", "Thu", "Fri"], "maxReplicas": 80}
    | {"minReplicas": 20},
    {"from": "22:00", "to": "02:30", "minReplicas": 7},
    {"from": "02:00", "to": "03:00", "maxReplicas": 5},
    {"from": "02:10", "to": "02:50", "minReplicas": 9},
    {"from": "00:00", "to": "24:00", "days": ["Sat", "Sun"], "maxReplicas": 12},
    {"from": "23:59", "to": "00:01", "minReplicas": 30},
    {"cron": "0 22 28-31 * *", "for": "6h", "minReplicas": 40},
    {"cron": "30 2 * * *", "for": "1h", "minReplicas": 11},
    {"cron": "*/20 0-3 * * 6,0", "for": "15m", "minReplicas": 3, "maxReplicas": 6},
    {"cron": "15 0 29 2 *", "for": "31h", "maxReplicas": 2},
    {"start": f"{YEAR}-02-29T00:00", "end": f"{YEAR}-02-29T24:00", "minReplicas": 60},
    {"start": f"{YEAR}-03-26T02:30", "end": f"{YEAR}-10-29T02:30", "minReplicas": 1},
    **{"except": [f"{YEAR}-03-26", f"{YEAR}-10-29", f"{YEAR}-12-25"]},
)


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("zone", sorted(zoneinfo.available_timezones() - {"localtime"}))
def test_a_year_in_every_zone(zone: str) -> None:
    """A leap year, minute by minute: all forms, over midnight, in gaps and in hours that come twice."""
    start, end = utc(f"{YEAR}-01-01"), utc(f"{int(YEAR) + 1}-01-01")
    tree = {**ALL_FORMS, "spec": ALL_FORMS["spec"] | {"timeZone": zone}}
    clock = Clock(zone, start - 5 * DAY, end + 5 * DAY)
    compare(tree, MarkedWindows(tree["spec"], clock, start - DAY, end + DAY), start, end)
