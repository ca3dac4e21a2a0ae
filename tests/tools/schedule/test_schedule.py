"""`fastpath schedule`: its calendar file and its bounds. What it prints: tests/golden/schedule."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icalendar
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.schedules import document
from tests.support.verbs import Printed

DAILY = {"from": "08:00", "to": "18:00"}


Runner = Callable[..., Printed]


@pytest.fixture
def run(cli: Runner) -> Runner:
    return lambda *arguments, text="": cli("schedule", *arguments, stdin=text)


def span(start: str, end: str) -> tuple[str, str]:
    return f"--from={start}", f"--until={end}"


# -- a calendar file -----------------------------------------------------------------------------------------


def test_a_calendar_file(run: Runner) -> None:
    """Another program reads the times, bounds and names; lines are as long as RFC 5545 has them."""
    names = ["büro, früh; \\ 日本語" * 5, "line\nbreak"]
    tree = document(
        {"name": names[0]} | DAILY, {"name": names[1], "from": "10:00", "to": "12:00", "maxReplicas": 4}
    )
    range_ = span("2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z")
    text = run(*range_, "-o", "ics", text=json.dumps(tree)).out
    calendar: Any = icalendar.Calendar.from_ical(text)
    assert (calendar["VERSION"], calendar["PRODID"]) == ("2.0", "-//fastpath//schedule//EN")
    found = [
        (each["DTSTART"].dt, each["DTEND"].dt, str(each["SUMMARY"]), str(each["DESCRIPTION"]))
        for each in calendar.walk("VEVENT")
    ]

    def at(hour: int) -> datetime:
        return datetime(2026, 11, 24, hour, tzinfo=UTC)

    assert found == [
        (at(7), at(9), "shop/office: min 1", names[0]),
        (at(9), at(11), "shop/office: min 1, max 4", f"{names[0]}, line\\nbreak"),
        (at(11), at(17), "shop/office: min 1", names[0]),
    ]
    events = calendar.walk("VEVENT")
    assert len({each["UID"] for each in events}) == 3
    assert {each["DTSTAMP"].dt for each in events} == {at(0)}
    lines = text.encode().split(b"\r\n")
    assert lines.pop() == b""
    assert 70 < max(map(len, lines)) <= 75
    assert not any(b"\n" in line or b"\r" in line for line in lines)


def test_a_calendar_without_icalendar_says_what_to_install(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "icalendar", None)
    range_ = span("2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z")
    assert run(*range_, "-o", "text", text=json.dumps(document(DAILY))).status == 0
    assert run(*range_, "-o", "ics", text=json.dumps(document(DAILY))) == Printed(
        1,
        "",
        "fastpath schedule: needs icalendar, which is not installed: "
        "pip install '.[tools]' in a clone of the repository\n",
    )


PLACE = "fastpath schedule: standard input:"


def test_more_than_a_hundred_windows(run: Runner) -> None:
    result = run("-", text=json.dumps(document(*[DAILY] * 101)))
    assert (result.status, result.out) == (2, "")
    assert result.err == f"{PLACE}1: spec.windows: 101: expected at most 100\n"


@pytest.mark.parametrize("start", ["1900-01-01T00:00:00Z", "9889-12-25T00:00:00Z"])
@pytest.mark.parametrize("format_", ["text", "json", "ics"])
def test_the_first_and_the_last_instants(run: Runner, start: str, format_: str) -> None:
    tree = document(DAILY, {"cron": "0 0 29 2 *", "for": "744h"}, zone="America/St_Johns")
    until = f"{int(start[:4]) + 9}-12-31T23:59:59Z"
    result = run("-o", format_, *span(start, until), text=json.dumps(tree))
    assert (result.status, result.err) == (0, "")


# -- bounds --------------------------------------------------------------------------------------------------

TEN_YEARS = span("2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z")


def test_windows_of_a_month_that_begin_each_minute_for_ten_years(run: Runner) -> None:
    tree = document({"cron": "* * * * *", "for": "744h"})
    found = run(*TEN_YEARS, "-o", "json", text=json.dumps(tree)).document
    assert (found["boundaries"], len(found["levels"])) == ([], 1)


def test_a_hundred_windows_for_two_months(run: Runner) -> None:
    windows = [{"from": f"08:{number % 60:02d}", "to": "18:00"} for number in range(100)]
    range_ = span("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z")
    found = run(*range_, "-o", "json", text=json.dumps(document(*windows))).document
    assert len(found["boundaries"]) == 2 * 100 * 59


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_more_than_can_be_shown_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "dense.json"
    file.write_text(json.dumps(document(*[{"cron": "* * * * *", "for": "59s"}] * 100)))
    command = [sys.executable, "-m", "adapter", "schedule", str(file), *TEN_YEARS]
    limited = ["sh", "-c", 'ulimit -v 600000; exec "$@"', "sh", *command]
    result = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "fastpath schedule: --until: 2036-01-01T00:00:00Z: expected an earlier instant: "
        "up to shop/office more than 100000 windows may begin\n"
    )


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
    st.sampled_from(
        """24:00|2026-02-29T00:00|1970-01-01T00:00|9999-12-31T24:00|* * * * *|0 0 30 2 *|L L L L L
0 0 29 2 1#5|0 0 L * 5L|0 0 LW * *|*/0 * * * *|1-0 * * * *|744h|-1h|1e300h|posix/UTC|Etc/GMT+12|Factory
localtime|/etc/localtime|Europe/|\x00|\ud800""".replace("\n", "|").split("|")
    ),
)


def changed(draw: st.DrawFn, value: Any) -> Any:
    """Return a value with some part of it replaced."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: changed(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], changed(draw, value[place]), *value[place + 1 :]]
    return draw(JUNK)


VALID = document(
    DAILY | {"days": ["Mon", "Tue"], "maxReplicas": 9, "minReplicas": 1},
    {"cron": "*/20 2 28-31 * *", "for": "6h"},
    {"start": "2026-10-25T00:00", "end": "2026-10-25T24:00"},
    **{"except": ["2026-10-25"]},
)


@st.composite
def odd_documents(draw: st.DrawFn) -> str:
    tree: Any = VALID
    for _ in range(draw(st.integers(1, 3))):
        tree = changed(draw, tree)
    return json.dumps(tree)


@settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.one_of(odd_documents(), st.text(max_size=60)), st.sampled_from(["text", "json", "ics"]))
def test_any_document_is_shown_or_refused(run: Runner, text: str, format_: str) -> None:
    """Exit status 0 with output, or 2 with a sentence a line; never anything else."""
    range_ = span("2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z")
    result = run(*range_, "-o", format_, text=text.encode("utf-8", "replace").decode())
    assert (result.status, bool(result.out)) in {(0, True), (2, False)}
    assert all(re.match(r"fastpath schedule: \S", line) for line in result.err.splitlines())
    assert "Traceback" not in result.err
