"""Cron expressions as robfig/cron reads them."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from adapter.model import local_time
from fastpath_tools.convert import cron

BERLIN = ZoneInfo("Europe/Berlin")


def _instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0 8 * * 1-5", "0 8 * * 1-5"),
        ("0 8 ? * MON-fri", "0 8 * * 1-5"),
        ("*/15 0-23 1-31 JAN-DEC *", "0,15,30,45 * * * *"),
        ("5/20 22,6,7 * 2 SUN,6", "5,25,45 6-7,22 * 2 0,6"),
        ("0 8 1,15 * 0-6", "0 8 * * *"),
    ],
)
def test_an_expression_in_plain_form(text: str, plain: str) -> None:
    assert str(cron.read(text)) == plain
    assert cron.read(plain) == cron.read(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a cron expression of five fields"),
        ("@daily", "a cron expression of five fields"),
        ("0 0 8 * * *", "a cron expression of five fields"),
        ("60 8 * * *", "a minute from 0 to 59, not 60"),
        ("0 8 0 * *", "a day of the month from 1 to 31, not 0"),
        ("0 8 L * *", "a day of the month from 1 to 31, not L"),
        ("0 8 * * 7", "a day of the week from 0 to 6, not 7"),
        ("0 8 * * 5-1", "a day of the week from 0 to 6, not 5-1"),
        ("0 8 * FRI *", "a month from 1 to 12, not FRI"),
        ("*/0 8 * * *", "a minute from 0 to 59, not */0"),
    ],
)
def test_what_robfig_cron_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        cron.read(text)
    assert said in str(caught.value)


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
