"""The pages on FastPathSchedules: examples that work, and the guide's nights."""

import json
import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from adapter.bounds.schedule import documents, windows
from adapter.bounds.schedule.windows import CronWindow, DayWindow, SingleWindow
from adapter.cli import main
from fastpath_tools import yaml_documents
from scripts.generate import crd_schedules
from tests.bounds.schedule_reading import DAY, utc
from tests.manifests import structural
from tests.support.rendered import ROOT
from tests.support.schedules import schedule

EXAMPLE = ROOT / "docs" / "examples" / "schedules" / "office.yaml"
SCHEMA: dict[str, Any] = crd_schedules.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_the_example_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    (read,) = yaml_documents.read_documents(EXAMPLE.read_text(), EXAMPLE.name)
    assert isinstance(read, yaml_documents.YAMLDocument)
    document = read.value
    assert structural.verdict(document, SCHEMA) == []
    assert structural.pruned(document, SCHEMA) == document
    times = {type(window.times) for window in documents.read_document(document).schedule.windows}
    assert times == {DayWindow, CronWindow, SingleWindow}
    assert main.main(["schedule", str(EXAMPLE), "--from", "2026-11-27T00:00:00Z"]) == 0
    assert "min 60, max 80  (business, sale)" in capsys.readouterr().out


GUIDE = (ROOT / "docs" / "guides" / "schedules.md").read_text()
EIGHT = ROOT / "docs" / "examples" / "schedules" / "eight.yaml"


def _block(begin: str) -> str:
    """Return the first indented block that begins so, without its indentation."""
    found = re.search(rf"^   ```({begin}.*?)^   ```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.sub(r"^   ", "", found[1], flags=re.MULTILINE)


def test_the_example_is_the_file() -> None:
    assert _block("yaml\n").removeprefix("yaml\n") == EIGHT.read_text()


def test_the_calendar_is_that_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    flags = re.search(r"`(--from \S+ --until \S+)`", GUIDE)
    assert flags is not None
    assert main.main(["schedule", str(EIGHT), *flags[1].split()]) == 0
    assert capsys.readouterr().out == _block("\n   shop/office").removeprefix("\n")


NIGHTS = {
    "22:00 to 06:00": {"from": "22:00", "to": "06:00"},
    "02:30 to 04:00": {"from": "02:30", "to": "04:00"},
    "01:00 to 02:30": {"from": "01:00", "to": "02:30"},
    "02:10 to 02:50": {"from": "02:10", "to": "02:50"},
    "cron `30 2 * * *`, `for: 1h`": {"cron": "30 2 * * *", "for": "1h"},
}
SAID = {
    "lasts 7 hours": ("22:00", "06:00", 7 * 60),
    "lasts 9 hours": ("22:00", "06:00", 9 * 60),
    "begins at 03:00, as 02:30 is skipped": ("03:00", "04:00", 60),
    "begins at the first 02:30, lasts 2.5 hours": ("02:30", "04:00", 150),
    "ends at 03:00": ("01:00", "03:00", 60),
    "ends at the second 02:30": ("01:00", "02:30", 150),
    "is empty": None,
    "from the first 02:10 to the second 02:50": ("02:10", "02:50", 100),
    "03:00 to 04:00": ("03:00", "04:00", 60),
    "begins at the first 02:30, lasts one hour": ("02:30", "02:30", 60),
}


@pytest.mark.parametrize("window", NIGHTS)
def test_the_table_of_the_nights(window: str) -> None:
    row = next(line for line in GUIDE.splitlines() if line.startswith(f"| {window} |"))
    zone = ZoneInfo("Europe/Berlin")
    for day, cell in zip(("2026-03-29", "2026-10-25"), row.strip("|").split(" | ")[1:], strict=True):
        noon = utc(f"{day}T12:00")
        found = schedule(NIGHTS[window]).schedule
        spans = windows.spans_of(found.windows[0], found, noon - DAY // 2 - 3600, noon)
        shown = [
            (*(f"{datetime.fromtimestamp(at, zone):%H:%M}" for at in span), (span.end - span.begin) // 60)
            for span in spans
            if datetime.fromtimestamp(span.end, zone) > datetime.fromisoformat(day).replace(tzinfo=zone)
        ]
        expected = SAID[cell.strip()]
        assert shown == ([] if expected is None else [expected])


def test_the_pause_of_a_cron_expression_in_the_hour_that_comes_twice() -> None:
    """And the window that the guide advises has no boundary."""
    assert "`*/15 * * * *` with `for: 15m`" in GUIDE
    noon = utc("2026-10-25T12:00")
    often = schedule({"cron": "*/15 * * * *", "for": "15m"}).schedule
    spans = windows.spans_of(often.windows[0], often, noon - DAY, noon)
    assert spans[1].begin - spans[0].end == timedelta(hours=1).total_seconds()
    always = schedule({"from": "00:00", "to": "24:00"}).schedule
    assert windows.boundaries([always], noon - DAY, noon) == []
    assert json.dumps("24:00") in GUIDE
