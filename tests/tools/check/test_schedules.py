"""When windows of schedules meet with a floor above a ceiling; `tests/golden/check` has what `check` says."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.bounds.schedule import windows
from fastpath_tools.check import schedules
from fastpath_tools.check.schedules import HORIZON, Place
from tests.support.answers import answers
from tests.support.schedules import schedule

DAILY = {"from": "08:00", "to": "18:00"}
START = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())
FLOOR, CEILING = {"minReplicas": 10}, {"maxReplicas": 5}


def _found(*listed: dict[str, Any], zone: str = "UTC", start: int = START) -> list[tuple[int, int, str]]:
    """Return the numbers of the windows of the floor and of the ceiling, and when they first meet."""
    one = schedule(*listed, zone=zone).schedule
    return [
        (each.floor.window, each.ceiling.window, datetime.fromtimestamp(each.at, UTC).strftime("%F %T"))
        for each in schedules.find([one], start, lambda first, second: first == second)
    ]


@pytest.mark.parametrize(("floor", "ceiling", "at"), answers("check/schedules", "windows"))
def test_when_windows_meet(floor: dict[str, Any], ceiling: dict[str, Any], at: str) -> None:
    assert _found(floor | FLOOR, ceiling | CEILING) == ([(0, 1, at)] if at else [])
    assert _found(ceiling | CEILING, floor | FLOOR) == ([(1, 0, at)] if at else [])


def test_each_pair_whose_floor_is_above_the_ceiling() -> None:
    found = _found(
        DAILY | {"minReplicas": 10, "maxReplicas": 20},
        DAILY | {"minReplicas": 21},
        DAILY | {"minReplicas": 20},
        DAILY | {"maxReplicas": 9},
    )
    assert [pair[:2] for pair in found] == [(0, 3), (1, 0), (1, 3), (2, 3)]


def test_schedules_meet_only_where_they_share_a_target() -> None:
    pair = [schedule(DAILY | bounds).schedule for bounds in (FLOOR, CEILING)]
    assert list(schedules.find(pair, START, lambda first, second: first == second)) == []
    (found,) = schedules.find(pair, START, lambda first, second: True)
    assert (found.floor, found.ceiling) == (Place(0, 0), Place(1, 0))


_HOURS = st.integers(0, 23).map("{:02d}:00".format)
_WINDOWS = st.one_of(
    st.fixed_dictionaries(
        {"from": _HOURS, "to": _HOURS, "days": st.lists(st.sampled_from(["Mon", "Wed", "Sun"]), min_size=1)}
    ).filter(lambda window: window["from"] != window["to"]),
    st.fixed_dictionaries(
        {
            "cron": st.tuples(st.integers(0, 23), st.integers(1, 31), st.integers(1, 12)).map(
                lambda parts: "0 {} {} {}-12 *".format(*parts)
            ),
            "for": st.integers(1, 100).map("{}h".format),
        }
    ),
)


@settings(deadline=None, max_examples=30)
@given(_WINDOWS, _WINDOWS, st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]))
def test_first_meeting_is_that_of_the_levels(one: dict[str, Any], other: dict[str, Any], zone: str) -> None:
    made = schedule(one | FLOOR, other | CEILING, zone=zone).schedule
    level = next(
        (
            each.begin
            for each in windows.levels(made, START, START + HORIZON)
            if each.windows == ("window-0", "window-1")
        ),
        None,
    )
    (found,) = [*schedules.find([made], START, lambda first, second: True), None][:1]
    assert (None if found is None else found.at) == level
