"""`fastpath schedule`: what it prints, to the letter, and what it refuses. The right times: tests/model."""

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

from tests.support.schedules import EXAMPLE, document
from tests.support.simulation import Printed

DAILY = {"from": "08:00", "to": "18:00"}
NIGHT = document(
    {"name": "night", "from": "22:00", "to": "06:00", "minReplicas": 7},
    {"name": "batch", "from": "02:30", "to": "04:00", "minReplicas": 9},
    {"name": "cap", "from": "03:00", "to": "05:00", "maxReplicas": 8},
)


Runner = Callable[..., Printed]


@pytest.fixture
def run(cli: Runner) -> Runner:
    return lambda *arguments, text="": cli("schedule", *arguments, stdin=text)


def span(start: str, end: str) -> tuple[str, str]:
    return f"--from={start}", f"--until={end}"


# -- JSON ----------------------------------------------------------------------------------------------------


def test_the_example_as_json(run: Runner) -> None:
    """The keys in their order; what has no bound is null; pieces are cut to the range."""
    result = run("-", *span("2026-11-27T06:00:00Z", "2026-11-27T20:00:00+01:00"), "-o", "json", text=EXAMPLE)
    assert result == (
        0,
        """\
{
  "boundaries": [
    {
      "at": "2026-11-27T07:00:00Z",
      "local": "2026-11-27T08:00:00+01:00",
      "schedule": "shop/office",
      "window": "business",
      "edge": "begin"
    },
    {
      "at": "2026-11-27T17:30:00Z",
      "local": "2026-11-27T18:30:00+01:00",
      "schedule": "shop/office",
      "window": "business",
      "edge": "end"
    }
  ],
  "levels": [
    {
      "from": "2026-11-27T06:00:00Z",
      "until": "2026-11-27T07:00:00Z",
      "schedule": "shop/office",
      "minReplicas": 60,
      "maxReplicas": null,
      "windows": [
        "sale"
      ]
    },
    {
      "from": "2026-11-27T07:00:00Z",
      "until": "2026-11-27T17:30:00Z",
      "schedule": "shop/office",
      "minReplicas": 60,
      "maxReplicas": 80,
      "windows": [
        "business",
        "sale"
      ]
    },
    {
      "from": "2026-11-27T17:30:00Z",
      "until": "2026-11-27T19:00:00Z",
      "schedule": "shop/office",
      "minReplicas": 60,
      "maxReplicas": null,
      "windows": [
        "sale"
      ]
    }
  ]
}
""",
        "",
    )


def test_several_documents_and_files_are_one_result(run: Runner, tmp_path: Path) -> None:
    """In order of time, then schedule, then window; each local time is that of its schedule."""
    tokyo = document({"name": "z", "from": "16:00", "to": "17:00"}, zone="Asia/Tokyo")
    tokyo["metadata"] = {"name": "tokyo"}
    items = {"apiVersion": "v1", "kind": "List", "items": [tokyo]}
    file = tmp_path / "list.json"
    file.write_text(json.dumps(items))
    both = document({"name": "b"} | DAILY, {"name": "a"} | DAILY)
    text = f"kind: ConfigMap\nmetadata: {{name: x}}\n---\n{json.dumps(both)}\n---\n"
    result = run(
        "-", str(file), *span("2026-11-24T07:00:00Z", "2026-11-24T08:00:00Z"), "-o", "json", text=text
    )
    begin = "2026-11-24T07:00:00Z"
    assert [[*each.values()] for each in result.document["boundaries"]] == [
        [begin, "2026-11-24T16:00:00+09:00", "default/tokyo", "z", "begin"],
        [begin, "2026-11-24T08:00:00+01:00", "shop/office", "a", "begin"],
        [begin, "2026-11-24T08:00:00+01:00", "shop/office", "b", "begin"],
    ]
    end = "2026-11-24T08:00:00Z"
    assert [[*each.values()] for each in result.document["levels"]] == [
        [begin, end, "default/tokyo", 1, None, ["z"]],
        [begin, end, "shop/office", 1, None, ["a", "b"]],
    ]
    assert result.status == 0
    assert result.err == "fastpath schedule: standard input:1: ConfigMap: left out\n"


def test_a_begin_and_an_end_that_coincide_are_left_out(run: Runner) -> None:
    windows = (
        {"name": "all", "from": "00:00", "to": "24:00"},
        {"name": "hour", "cron": "0 * * * *", "for": "1h"},
    )
    range_ = span("2026-11-24T00:00:00Z", "2026-12-24T00:00:00Z")
    result = run(*range_, "-o", "json", text=json.dumps(document(*windows)))
    assert result.document == {
        "boundaries": [],
        "levels": [
            {"from": "2026-11-24T00:00:00Z", "until": "2026-12-24T00:00:00Z", "schedule": "shop/office"}
            | {"minReplicas": 1, "maxReplicas": None, "windows": ["all", "hour"]}
        ],
    }


def test_a_floor_above_a_ceiling_wins(run: Runner) -> None:
    range_ = span("2026-11-24T02:00:00Z", "2026-11-24T03:00:00Z")
    result = run(*range_, "-o", "json", text=json.dumps(NIGHT))
    assert [(each["minReplicas"], each["maxReplicas"]) for each in result.document["levels"]] == [(9, 9)]


def test_the_local_time_of_an_hour_that_comes_twice_has_its_offset(run: Runner) -> None:
    twice = document({"name": "a", "from": "02:10", "to": "02:50"})
    range_ = span("2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z")
    result = run(*range_, "-o", "json", text=json.dumps(twice))
    assert [(each["at"], each["local"]) for each in result.document["boundaries"]] == [
        ("2026-10-25T00:10:00Z", "2026-10-25T02:10:00+02:00"),
        ("2026-10-25T01:50:00Z", "2026-10-25T02:50:00+01:00"),
    ]


def test_nothing_in_the_range(run: Runner) -> None:
    weekend = document(DAILY | {"days": ["Sat"]})
    range_ = span("2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z")
    assert run(*range_, "-o", "json", text=json.dumps(weekend)).document == {"boundaries": [], "levels": []}
    assert run(*range_, text=json.dumps(weekend)).out == (
        "shop/office, Europe/Berlin, from Tue 2026-11-24 01:00 to Wed 2026-11-25 01:00: no window is active\n"
    )


def test_the_range_is_thirty_days_from_now(run: Runner) -> None:
    before = int(datetime.now(UTC).timestamp())  # noqa: TID251 - the command reads the clock
    always = document({"from": "00:00", "to": "24:00"})
    (level,) = run("-o", "json", text=json.dumps(always)).document["levels"]
    after = int(datetime.now(UTC).timestamp())  # noqa: TID251
    start, end = (round(datetime.fromisoformat(level[key]).timestamp()) for key in ("from", "until"))
    assert before <= start <= after
    assert end - start == 30 * 86_400
    (level,) = run("-o", "json", "--from=2026-01-01T00:00:00Z", text=json.dumps(always)).document["levels"]
    assert (level["from"], level["until"]) == ("2026-01-01T00:00:00Z", "2026-01-31T00:00:00Z")


# -- text ----------------------------------------------------------------------------------------------------


def test_the_calendar(run: Runner) -> None:
    result = run("-", *span("2026-11-27T00:00:00Z", "2026-12-01T12:00:00Z"), text=EXAMPLE)
    assert (
        result.out
        == """\
shop/office, Europe/Berlin, from Fri 2026-11-27 01:00 to Tue 2026-12-01 13:00
  Fri 2026-11-27  until 08:00        min 60  (sale)
                  08:00 - 18:30      min 60, max 80  (business, sale)
                  18:30 - Sat 22:00  min 60  (sale)
  Sat 2026-11-28  22:00 - Sun 04:00  min 60  (month-end, sale)
  Sun 2026-11-29  04:00 - 22:00      min 60  (sale)
                  22:00 - Mon 04:00  min 60  (month-end, sale)
  Mon 2026-11-30  04:00 - 08:00      min 60  (sale)
                  08:00 - 18:30      min 60, max 80  (business, sale)
                  18:30 - 22:00      min 60  (sale)
                  22:00 - 24:00      min 60  (month-end, sale)
  Tue 2026-12-01  00:00 - 04:00      min 40  (month-end)
                  from 08:00         min 20, max 80  (business)
  Note: a HorizontalPodAutoscaler gets no ceiling; here: web.
  Note: floors begin earlier by the time that new pods need to be Ready, at most 10 minutes (ByStart).
"""
    )


def test_the_night_the_clock_is_set_back(run: Runner) -> None:
    """A time that comes twice has its offset; a piece with the change in it has its length."""
    result = run(*span("2026-10-24T12:00:00Z", "2026-10-26T00:00:00Z"), text=json.dumps(NIGHT))
    assert (
        result.out
        == """\
shop/office, Europe/Berlin, from Sat 2026-10-24 14:00 to Mon 2026-10-26 01:00
  Sat 2026-10-24  22:00 - Sun 02:30 (+02:00)  min 7  (night)
  Sun 2026-10-25  02:30 (+02:00) - 03:00      min 9  (batch, night), lasts 1h 30m
                                              the clock is set back from 03:00 to 02:00
                  03:00 - 04:00               min 9, max 9  (batch, cap, night)
                  04:00 - 05:00               min 7, max 8  (cap, night)
                  05:00 - 06:00               min 7  (night)
                  from 22:00                  min 7  (night)
  Note: the floor of batch is above the ceiling of cap; the floor wins.
  Note: a HorizontalPodAutoscaler gets no ceiling; here: web.
"""
    )


@pytest.mark.parametrize(
    ("zone", "day", "row"),
    [
        ("Europe/Berlin", "2026-03-29", "Sun 2026-03-29 the clock is set forward from 02:00 to 03:00"),
        ("Africa/Cairo", "2026-04-24", "Fri 2026-04-24 the clock is set forward from 00:00 to 01:00"),
        ("Africa/Cairo", "2026-10-30", "Thu 2026-10-29 the clock is set back from 24:00 to 23:00"),
        ("America/Havana", "2026-11-01", "Sun 2026-11-01 the clock is set back from 01:00 to 00:00"),
        ("Australia/Lord_Howe", "2026-04-05", "Sun 2026-04-05 the clock is set back from 02:00 to 01:30"),
        ("Africa/Monrovia", "1972-01-07", "Fri 1972-01-07 the clock is set forward from 00:00 to 00:44:30"),
        (
            "Pacific/Apia",
            "2011-12-30",
            "Thu 2011-12-29 the clock is set forward from Fri 2011-12-30 00:00 to Sat 2011-12-31 00:00",
        ),
    ],
)
def test_changes_of_the_clock(run: Runner, zone: str, day: str, row: str) -> None:
    """A window that covers the change and begins as the day before ends: the day is in its row."""
    tree = document({"start": f"{day}T12:00", "end": f"{day}T13:00"}, zone=zone)
    early = {"name": "around", "start": "1971-01-01T00:00", "end": "2030-01-01T00:00"}
    tree["spec"]["windows"].append(early | {"minReplicas": 1})
    middle = datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()
    ends = [datetime.fromtimestamp(middle + hours * 3600, UTC).isoformat() for hours in (-36, 36)]
    lines = run(*span(*ends), text=json.dumps(tree)).out.splitlines()
    place = next(index for index, line in enumerate(lines) if "the clock" in line)
    shown = next(line[2:16] for line in reversed(lines[: place + 1]) if line[2:16].strip())
    assert f"{shown.strip()} {lines[place].split('  ')[-1].strip()}" == row


def test_long_times_and_offsets_behind_utc(run: Runner) -> None:
    tree = document(
        {"name": "days", "start": "2026-10-25T01:30", "end": "2026-11-01T01:30"}, zone="America/New_York"
    )
    lines = run(*span("2026-10-20T00:00:00Z", "2026-11-10T00:00:00Z"), text=json.dumps(tree)).out.splitlines()
    assert lines[1] == "  Sun 2026-10-25  01:30 - Sun 2026-11-01 01:30 (-05:00)  min 1  (days), lasts 7d 1h"


def test_all_the_time(run: Runner) -> None:
    tree = document({"from": "00:00", "to": "24:00"}, zone="UTC")
    lines = run(*span("2026-10-20T00:00:00Z", "2026-11-10T00:00:00Z"), text=json.dumps(tree)).out.splitlines()
    assert lines[1] == "  Tue 2026-10-20  all the time  min 1  (window-0)"


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


# -- what is refused -----------------------------------------------------------------------------------------

PLACE = "fastpath schedule: standard input:"
FIVE = "expected a cron expression of five fields such as 0 22 28-31 * *"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "Europe/Berlin",
            "Europe/Bonn",
            "6: spec.timeZone: Europe/Bonn: expected a time zone of the tz database such as Europe/Berlin",
        ),
        (
            "Tue,",
            "Tues,",
            "10: spec.windows[0].days[1]: Tues: expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun",
        ),
        (
            "minReplicas: 20",
            "minReplicas: 90",
            "13: spec.windows[0].minReplicas: 90: expected at most maxReplicas, 80",
        ),
        (
            "      minReplicas: 40\n",
            "",
            "15: spec.windows[1]: month-end: expected minReplicas, maxReplicas, or both",
        ),
        ("minReplicas: 40", "minReplicas: -1", "18: spec.windows[1].minReplicas: -1: expected 0 or more"),
        (
            "      end: 2026-11-30T24:00\n",
            "",
            "19: spec.windows[2].end: absent: it is required beside start",
        ),
        (
            '"0 22 28-31 * *"',
            '"0 0 22 28-31 * *"',
            '16: spec.windows[1].cron: "0 0 22 28-31 * *": ' + FIVE,
        ),
        (
            "{kind: FastPathAutoscaler, name: api}",
            "{kind: HorizontalPodAutoscaler, name: web}",
            "5: spec.targets[1]: HorizontalPodAutoscaler web: expected each target once",
        ),
        (
            'to: "18:30"',
            'to: "08:00"',
            "12: spec.windows[0].to: 08:00: expected another time than from, 08:00",
        ),
        (
            "kind: FastPathSchedule",
            "kind: FastPathSchedul",
            " expected a FastPathSchedule; the files have no such object",
        ),
        ("v1alpha1", "v1", '2: kind: "FastPathSchedule": expected fastpath.io/v1alpha1 FastPathSchedule'),
        (EXAMPLE, "", " expected a FastPathSchedule; the files have no such object"),
        (EXAMPLE, "- 1", "1: kind: [1]: expected fastpath.io/v1alpha1 FastPathSchedule"),
        (EXAMPLE, EXAMPLE + "---\n" + EXAMPLE, " metadata.name: shop/office: expected each schedule once"),
    ],
)
def test_a_document_that_is_refused(run: Runner, old: str, new: str, said: str) -> None:
    assert old in EXAMPLE
    result = run("-", "-o", "json", text=EXAMPLE.replace(old, new, 1))
    assert (result.status, result.out) == (2, "")
    assert result.err.splitlines()[-1] == f"{PLACE}{said}"


def test_more_than_a_hundred_windows(run: Runner) -> None:
    result = run("-", text=json.dumps(document(*[DAILY] * 101)))
    assert (result.status, result.out) == (2, "")
    assert result.err == f"{PLACE}1: spec.windows: 101: expected at most 100\n"


def test_all_faults_of_all_files_are_named(run: Runner, tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text(json.dumps(document({"from": "25:00", "to": "06:00"}, zone="Mars")))
    result = run(str(file), str(tmp_path / "none.yaml"), "-", text="a: [")
    assert (result.status, result.out) == (2, "")
    zone, time, missing, syntax = result.err.splitlines()
    assert zone.startswith(f"fastpath schedule: {file}:1: spec.timeZone: Mars: expected")
    assert time.startswith(f"fastpath schedule: {file}:1: spec.windows[0].from: 25:00: expected HH:MM")
    assert missing.endswith("none.yaml: expected a readable file: No such file or directory")
    assert syntax.startswith(PLACE)


NEW_YEAR = "2026-01-01T00:00:00Z"
AFTER = f"expected an instant after --from, {NEW_YEAR}, and at most 3660 days later"
INSTANT = "expected an instant such as 2026-11-27T07:00:00Z, from 1900 to 9899"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--from=2026-11-27"], f"--from: 2026-11-27: {INSTANT}"),
        (["--from=2026-11-27T07:00:00"], f"--from: 2026-11-27T07:00:00: {INSTANT}"),
        (["--until=tomorrow"], f"--until: tomorrow: {INSTANT}"),
        (["--from=0001-01-01T00:00:00Z"], f"--from: 0001-01-01T00:00:00Z: {INSTANT}"),
        (["--until=9999-12-31T00:00:00Z"], f"--until: 9999-12-31T00:00:00Z: {INSTANT}"),
        (
            ["--from=2026-01-01T00:00:00Z", "--until=2026-01-01T00:00:00Z"],
            f"--until: 2026-01-01T00:00:00Z: {AFTER}",
        ),
        (
            ["--until=2020-01-01T00:00:00Z"],
            "--until: 2020-01-01T00:00:00Z: expected an instant after now, and at most 3660 days later",
        ),
        (
            ["--from=2026-01-01T00:00:00Z", "--until=2037-01-01T00:00:00Z"],
            f"--until: 2037-01-01T00:00:00Z: {AFTER}",
        ),
        (["-o", "yaml"], '--output: "yaml": expected text, json or ics'),
    ],
)
def test_a_flag_that_is_refused(run: Runner, flags: list[str], said: str) -> None:
    result = run(*flags, text=EXAMPLE)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


@pytest.mark.parametrize("start", ["1900-01-01T00:00:00Z", "9889-12-25T00:00:00Z"])
@pytest.mark.parametrize("format_", ["text", "json", "ics"])
def test_the_first_and_the_last_instants(run: Runner, start: str, format_: str) -> None:
    tree = document(DAILY, {"cron": "0 0 29 2 *", "for": "744h"}, zone="America/St_Johns")
    until = f"{int(start[:4]) + 9}-12-31T23:59:59Z"
    result = run("-o", format_, *span(start, until), text=json.dumps(tree))
    assert (result.status, result.err) == (0, "")


def test_a_terminal_gets_no_control_characters(run: Runner) -> None:
    range_ = span("2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z")
    text = json.dumps(document({"name": "red \x1b[31m\n"} | DAILY))
    assert run(*range_, text=text).out.splitlines()[1:2] == [
        "  Tue 2026-11-24  08:00 - 18:00  min 1  (red \\u001b[31m\\n)"
    ]
    result = run(*range_, text='kind: "\\e[31m"\n---\n' + text)
    assert result.err == f"{PLACE}1: \\u001b[31m: left out\n"


@pytest.mark.parametrize("format_", ["text", "json", "ics"])
def test_a_name_that_no_encoding_has(run: Runner, format_: str) -> None:
    """Half of a pair of surrogates."""
    result = run("-o", format_, text=json.dumps(document({"name": "\ud800"} | DAILY)))
    assert (result.status, result.out) == (2, "")


# -- bounds --------------------------------------------------------------------------------------------------

TEN_YEARS = span("2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z")


def test_windows_of_a_month_that_begin_each_minute_for_ten_years(run: Runner) -> None:
    tree = document({"cron": "* * * * *", "for": "744h"})
    found = run(*TEN_YEARS, "-o", "json", text=json.dumps(tree)).document
    assert (found["boundaries"], len(found["levels"])) == ([], 1)


def test_a_hundred_windows_for_a_year(run: Runner) -> None:
    windows = [{"from": f"08:{number % 60:02d}", "to": "18:00"} for number in range(100)]
    range_ = span("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
    found = run(*range_, "-o", "json", text=json.dumps(document(*windows))).document
    assert len(found["boundaries"]) == 2 * 100 * 365


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
