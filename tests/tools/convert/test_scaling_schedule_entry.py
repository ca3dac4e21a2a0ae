"""When kube-metrics-adapter takes an entry as active, and which window it means."""

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.schedule.windows import ActiveSpan
from adapter.model import local_time
from fastpath_tools.convert.differences import Compared, sentences, spans_of_windows
from fastpath_tools.convert.scaling_schedules import RepeatingEntry, go_date, single_window
from tests.support.schedules import schedule

BERLIN = ZoneInfo("Europe/Berlin")
NOW = 1_795_435_200
"""2026-11-23T12:00:00Z, a Monday."""


def _instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _entry(
    begin: str, end: str | None, duration: int = 0, days: frozenset[int] = frozenset({0})
) -> RepeatingEntry:
    return RepeatingEntry(days, _minutes(begin), None if end is None else _minutes(end), duration)


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)


@pytest.mark.parametrize(
    ("entry", "active", "window"),
    [
        pytest.param(
            _entry("08:00", "18:00"),
            ["Mon 08:00 - Mon 18:00"],
            {"days": ["Mon"], "from": "08:00", "to": "18:00"},
            id="a day",
        ),
        pytest.param(
            _entry("08:00", "18:00", 60, frozenset(range(7))),
            [f"{day} 08:00 - {day} 18:00" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")],
            {"from": "08:00", "to": "18:00"},
            id="the later end counts: endTime",
        ),
        pytest.param(
            _entry("08:00", "09:00", 90),
            ["Mon 08:00 - Mon 09:30"],
            {"cron": "0 8 * * 1", "for": "1h30m"},
            id="the later end counts: durationMinutes",
        ),
        pytest.param(
            _entry("22:00", None, 240),
            ["Mon 22:00 - Tue 00:00"],
            {"cron": "0 22 * * 1", "for": "4h"},
            id="a duration is cut at midnight",
        ),
        pytest.param(
            _entry("22:00", "02:00"),
            [],
            {"days": ["Mon"], "from": "22:00", "to": "02:00"},
            id="an end before the start",
        ),
        pytest.param(
            _entry("22:00", "00:00"),
            [],
            {"days": ["Mon"], "from": "22:00", "to": "24:00"},
            id="an end at midnight",
        ),
        pytest.param(
            _entry("22:00", "02:00", 60, frozenset(range(7))),
            [f"{day} 22:00 - {day} 23:00" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")],
            {"cron": "0 22 * * *", "for": "1h"},
            id="an end before the start, and a duration",
        ),
        pytest.param(_entry("08:00", None), [], None, id="without a length"),
    ],
)
def test_an_entry(entry: RepeatingEntry, active: list[str], window: dict[str, Any] | None) -> None:
    # Monday, 2 November 2026
    start = _instant("2026-11-02T00:00:00+01:00")
    spans = [
        span
        for span in entry.spans(start, start + 7 * 86_400, BERLIN)
        if start <= span.begin < start + 7 * 86_400
    ]
    assert [
        " - ".join(f"{local_time.local_at(at, BERLIN):%a %H:%M}" for at in span) for span in spans
    ] == active
    assert entry.window() == window


@pytest.mark.parametrize(
    ("day", "clock", "zone", "instant"),
    [
        pytest.param(date(2026, 11, 2), "08:00", "Europe/Berlin", "2026-11-02T07:00:00Z", id="plain"),
        # Go's documentation says that one of the two offsets is taken; these follow from its order of steps
        pytest.param(date(2026, 3, 29), "02:30", "Europe/Berlin", "2026-03-29T01:30:00Z", id="gap, east"),
        pytest.param(date(2026, 3, 8), "02:30", "America/New_York", "2026-03-08T06:30:00Z", id="gap, west"),
        pytest.param(date(2026, 10, 25), "02:30", "Europe/Berlin", "2026-10-25T01:30:00Z", id="twice, east"),
        pytest.param(
            date(2026, 11, 1), "01:30", "America/New_York", "2026-11-01T05:30:00Z", id="twice, west"
        ),
    ],
)
def test_a_local_time_as_go_takes_it(day: date, clock: str, zone: str, instant: str) -> None:
    found = go_date(day, _minutes(clock), ZoneInfo(zone))
    assert datetime.fromtimestamp(found, UTC) == datetime.fromisoformat(instant)


def test_a_span_that_local_times_cannot_say() -> None:
    plain = ActiveSpan(_instant("2026-11-27T00:00:00+01:00"), _instant("2026-11-30T12:30:15+01:00"))
    assert single_window(plain, BERLIN) == {"start": "2026-11-27T00:00", "end": "2026-11-30T12:30:15"}
    in_repeated_hour = ActiveSpan(
        _instant("2026-10-25T02:30:00+01:00"), _instant("2026-10-25T04:00:00+01:00")
    )
    assert single_window(in_repeated_hour, BERLIN) is None


_TIMES = st.integers(0, 1439).map(lambda minutes: f"{minutes // 60:02d}:{minutes % 60:02d}")


@given(
    begin=_TIMES,
    end=st.none() | _TIMES,
    duration=st.integers(0, 30) | st.integers(0, 1500),
    days=st.sets(st.integers(0, 6), min_size=1),
)
def test_where_the_report_says_the_same_each_minute_of_the_week_is_the_same(
    begin: str, end: str | None, duration: int, days: set[int]
) -> None:
    entry = _entry(begin, end, duration, frozenset(days))
    window = entry.window()
    if window is None:
        assert entry.spans(NOW, NOW + 7 * 86_400, BERLIN) == []
        return
    ours = spans_of_windows(schedule({"name": "one", **window}).schedule, ["one"])
    report = list(sentences(Compared("it", entry.spans, ours, True), BERLIN, NOW))
    theirs = entry.spans(NOW, NOW + 7 * 86_400, BERLIN)
    converted = ours(NOW, NOW + 7 * 86_400, BERLIN)
    same = all(_in(theirs, at) == _in(converted, at) for at in range(NOW, NOW + 7 * 86_400, 60))
    assert same == report[0].endswith("as it is")


def _in(spans: Any, at: int) -> bool:
    return any(span.begin <= at < span.end for span in spans)
