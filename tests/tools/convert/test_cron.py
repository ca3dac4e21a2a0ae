"""Cron expressions as robfig/cron reads them; when KEDA takes a trigger as active, and its windows."""

import bisect
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import local_time
from fastpath_tools.convert import cron
from fastpath_tools.convert.cron import UTC, WEEK, WEEK_START, KedaCronTrigger
from fastpath_tools.convert.differences import Compared, sentences
from tests.support.answers import answers
from tests.support.schedules import schedule

BERLIN = ZoneInfo("Europe/Berlin")


def _instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(("text", "plain"), answers("convert/cron", "expressions"))
def test_an_expression_in_plain_form(text: str, plain: str) -> None:
    assert str(cron.read(text)) == plain
    assert cron.read(plain) == cron.read(text)


def test_a_day_of_the_month_or_of_the_week() -> None:
    # 2026-11-01 is a Sunday
    either, both = cron.read("0 8 1 * 1"), cron.read("0 8 */1 * 1")
    days = [date(2026, 11, day) for day in (1, 2, 3)]
    assert [either.has_day(day) for day in days] == [True, True, False]
    assert [both.has_day(day) for day in days] == [False, True, False]
    # unlike that of Vixie's cron, a star with a step does not count as a star: odd days, and Mondays
    assert cron.read("0 8 */2 * 1").has_day(days[2])


def test_a_skipped_time_never_fires_and_a_repeated_one_twice() -> None:
    at_half_past_two = cron.read("30 2 * * *")
    spring = cron.fires(
        at_half_past_two, _instant("2026-03-28T00:00:00+01:00"), _instant("2026-03-31T00:00:00+02:00"), BERLIN
    )
    assert [f"{local_time.local_at(at, BERLIN):%d %H:%M}" for at in spring] == ["28 02:30", "30 02:30"]
    autumn = cron.fires(
        at_half_past_two, _instant("2026-10-25T00:00:00+02:00"), _instant("2026-10-26T00:00:00+01:00"), BERLIN
    )
    assert autumn == [_instant("2026-10-25T02:30:00+02:00"), _instant("2026-10-25T02:30:00+01:00")]


NOW = 1_795_435_200
"""2026-11-23T12:00:00Z, a Monday."""


def _trigger(start: str, end: str) -> KedaCronTrigger:
    return KedaCronTrigger(cron.read(start), cron.read(end))


def _week(trigger: KedaCronTrigger) -> list[str]:
    spans = trigger.spans(WEEK_START, WEEK_START + WEEK, UTC)
    return [" - ".join(f"{local_time.local_at(at, UTC):%a %H:%M}" for at in span) for span in spans]


@pytest.mark.parametrize(("start", "end", "active"), answers("convert/cron", "activity"))
def test_when_keda_is_active(start: str, end: str, active: list[str]) -> None:
    assert _week(_trigger(start, end)) == active


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
        windows = cron.windows_of(trigger)
    except ValueError:
        return
    named = [{"name": f"part-{index}", **window} for index, window in enumerate(windows)]
    read = schedule(*named, zone="Europe/Berlin")
    compared = Compared(trigger, read.schedule, [window["name"] for window in named])
    report = list(sentences(compared, NOW))
    # a week without a change of the clock
    original, ours = compared.both(NOW, NOW + WEEK, BERLIN)
    same = _minutes(original) == _minutes(ours)
    assert same == report[0].endswith("as KEDA is")


def _minutes(spans: Any) -> set[int]:
    return {at for span in spans for at in range(span.begin, span.end, 60)}
