"""When KEDA takes a cron trigger as active, and which windows it means."""

import bisect
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import local_time
from fastpath_tools.convert import cron, keda_cron
from fastpath_tools.convert.differences import Compared, sentences, spans_of_windows, union
from fastpath_tools.convert.keda_cron import UTC, WEEK, WEEK_START, KedaCronTrigger
from tests.support.schedules import schedule

BERLIN = ZoneInfo("Europe/Berlin")
NOW = 1_795_435_200
"""2026-11-23T12:00:00Z, a Monday."""

WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri"]


def _trigger(start: str, end: str) -> KedaCronTrigger:
    return KedaCronTrigger(cron.read(start), cron.read(end))


def _week(trigger: KedaCronTrigger) -> list[str]:
    spans = trigger.spans(WEEK_START, WEEK_START + WEEK, UTC)
    return [" - ".join(f"{local_time.local_at(at, UTC):%a %H:%M}" for at in span) for span in spans]


@pytest.mark.parametrize(
    ("start", "end", "active"),
    [
        ("0 8 * * 1-2", "0 18 * * 1-2", ["Mon 08:00 - Mon 18:00", "Tue 08:00 - Tue 18:00"]),
        # the next end after Tuesday's comes before the next start: Wednesday's, Thursday's, ...
        ("0 8 * * 1-2", "0 18 * * *", ["Mon 08:00 - Mon 18:00", "Tue 08:00 - Sun 18:00"]),
        # Tuesday's night has its end on Monday
        (
            "0 20 * * 1-2",
            "0 6 * * 1-2",
            ["Mon 00:00 - Mon 06:00", "Mon 20:00 - Tue 06:00", "Tue 20:00 - Mon 00:00"],
        ),
        # a start before the end supersedes the starts before it
        ("0 8 * * *", "0 18 * * 3", ["Wed 08:00 - Wed 18:00"]),
        ("0 0 * * 1", "0 0 * * 2", ["Mon 00:00 - Tue 00:00"]),
    ],
)
def test_when_keda_is_active(start: str, end: str, active: list[str]) -> None:
    assert _week(_trigger(start, end)) == active


@pytest.mark.parametrize(
    ("start", "end", "windows"),
    [
        ("0 8 * * 1-5", "0 18 * * 1-5", [{"days": WEEKDAYS, "from": "08:00", "to": "18:00"}]),
        ("0 6 * * 1-5", "0 20 * * *", [{"days": WEEKDAYS, "from": "06:00", "to": "20:00"}]),
        ("0 18 * * 1-5", "0 6 * * 1-5", [{"days": WEEKDAYS, "from": "18:00", "to": "06:00"}]),
        ("0 8 * * *", "0 0 * * *", [{"from": "08:00", "to": "24:00"}]),
        ("0 0 * * 1-5", "0 0 * * 2-6", [{"days": WEEKDAYS, "from": "00:00", "to": "24:00"}]),
        ("0 0 * * 1", "0 0 * * 6", [{"days": WEEKDAYS, "from": "00:00", "to": "24:00"}]),
        (
            "0 22 * * 5",
            "30 5 * * 1",
            [
                {"days": ["Fri"], "from": "22:00", "to": "24:00"},
                {"days": ["Sat", "Sun"], "from": "00:00", "to": "24:00"},
                {"days": ["Mon"], "from": "00:00", "to": "05:30"},
            ],
        ),
        (
            "0 8 * * 6",
            "0 8 * * 0",
            [
                {"days": ["Sat"], "from": "08:00", "to": "24:00"},
                {"days": ["Sun"], "from": "00:00", "to": "08:00"},
            ],
        ),
        (
            "0 6,12 * * *",
            "0 10,16 * * *",
            [{"from": "06:00", "to": "10:00"}, {"from": "12:00", "to": "16:00"}],
        ),
        ("30 * * * *", "45 * * * *", [{"cron": "30 * * * *", "for": "15m"}]),
        ("0 22 1 * *", "30 4 2 * *", [{"cron": "0 22 1 * *", "for": "6h30m"}]),
        ("0 0 1 DEC *", "0 0 1 1 ?", [{"cron": "0 0 1 12 *", "for": "744h"}]),
    ],
)
def test_the_windows_that_a_trigger_means(start: str, end: str, windows: list[dict[str, Any]]) -> None:
    assert keda_cron.windows_of(_trigger(start, end)) == windows


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (
            "0 */6 * * *",
            "0 20 * * *",
            "windows of one length; from start to the next end it is 2h, 8h, 14h, 20h",
        ),
        ("0 0 1 12 *", "0 0 1 3 *", "the windows last 90 days; expected at most 31 days"),
        ("0 0 30 2 *", "0 8 * * *", "one of start and end never does"),
        ("* * 1 * *", "0 2 1 * *", "at most 24 starts a day"),
    ],
)
def test_what_no_window_can_say(start: str, end: str, said: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        keda_cron.windows_of(_trigger(start, end))
    assert said in str(caught.value)


# -- properties ----------------------------------------------------------------------------------------------

_FIELDS = st.tuples(st.integers(0, 59), st.integers(0, 23), st.sets(st.integers(0, 6), min_size=1))
_CRONS = _FIELDS.map(lambda found: f"{found[0]} {found[1]} * * {','.join(map(str, sorted(found[2])))}")


def _is_active(trigger: KedaCronTrigger, at: int, starts: list[int], ends: list[int]) -> bool:
    """KEDA's own sentence: the next end is not after the next start."""
    next_start, next_end = (found[bisect.bisect_right(found, at)] for found in (starts, ends))
    return next_end <= next_start


@given(start=_CRONS, end=_CRONS, zone=st.sampled_from([UTC, BERLIN, ZoneInfo("America/St_Johns")]))
def test_the_spans_are_the_comparison_of_next_start_and_next_end(
    start: str, end: str, zone: ZoneInfo
) -> None:
    trigger = _trigger(start, end)
    # 25 to 31 March 2026 in UTC: the clock of Berlin is set forward
    first, last = 1_774_396_800, 1_774_915_200
    starts, ends = (
        cron.fires(each, first, last + 9 * cron.DAY, zone) for each in (trigger.start, trigger.end)
    )
    spans = trigger.spans(first, last, zone)
    for at in range(first, last, 15 * 60):
        is_in = any(span.begin <= at < span.end for span in spans)
        assert is_in == _is_active(trigger, at, starts, ends), at


@given(start=_CRONS, end=_CRONS)
def test_where_the_report_says_the_same_each_minute_of_the_week_is_the_same(start: str, end: str) -> None:
    trigger = _trigger(start, end)
    try:
        windows = keda_cron.windows_of(trigger)
    except ValueError:
        return
    named = [{"name": f"part-{index}", **window} for index, window in enumerate(windows)]
    read = schedule(*named, zone="Europe/Berlin")
    ours = spans_of_windows(read.schedule, [window["name"] for window in named])
    report = list(sentences(Compared("KEDA", trigger.spans, ours, True), BERLIN, NOW))
    # a week without a change of the clock
    same = _minutes(trigger.spans(NOW, NOW + WEEK, BERLIN)) == _minutes(ours(NOW, NOW + WEEK, BERLIN))
    assert same == report[0].endswith("as KEDA is")


def _minutes(spans: Any) -> set[int]:
    return {at for span in union(spans, NOW, NOW + WEEK) for at in range(span.begin, span.end, 60)}
