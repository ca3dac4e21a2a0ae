"""The page on FastPathSchedules has every field and its bounds, and the example works."""

import re
from typing import Any

import pytest

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.windows import CronWindow, DayWindow, SingleWindow
from adapter.cli import main
from adapter.config.yaml import documents as yaml_documents
from adapter.model.timestamps import SECOND, read_span
from tests.support import crd_schedules, structural
from tests.support.rendered import ROOT

API = (ROOT / "docs" / "reference" / "api.md").read_text()
EXAMPLE = ROOT / "docs" / "examples" / "schedules" / "office.yaml"
SCHEMA: dict[str, Any] = crd_schedules.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SECTION = API.partition("\n## FastPathSchedule\n")[2].partition("\n## ")[0]
SPEC, _, STATUS = SECTION.partition("| field of the status |")


def _rows(table: str) -> dict[str, str]:
    return dict(re.findall(r"^\| (`[\w.`, ]+) \| (.*)$", table, re.MULTILINE))


ROWS = _rows(SPEC)


def _names(rows: dict[str, str]) -> set[str]:
    return {name for cell in rows for name in re.findall(r"`([\w.]+)`", cell)}


def test_every_field_is_on_the_page() -> None:
    spec = {path.replace("[]", "") for path, _ in structural.nodes(SCHEMA["properties"]["spec"]) if path}
    assert spec == _names(ROWS)
    assert SCHEMA["properties"]["status"]["properties"].keys() == _names(_rows(STATUS))


def test_bounds_and_values_are_on_the_page() -> None:
    assert f"from 1 to {documents.MOST_TARGETS}," in ROWS["`targets`"]
    assert f"from 1 to {documents.MOST_WINDOWS}." in ROWS["`windows`"]
    assert f"Up to {documents.MOST_EXCEPTIONS} " in ROWS["`except`"]
    found = re.search(r"from (\w+) to (\w+) in whole seconds", ROWS["`windows.cron`, `windows.for`"])
    assert found is not None
    assert (read_span(found[1]), read_span(found[2])) == (SECOND, documents.LONGEST_FOR)
    assert ROWS["`ready`"].startswith(f"`{documents.AT_START}` |")
    assert f"`{documents.BY_START}`" in ROWS["`ready`"]
    assert ", ".join(f"`{day}`" for day in documents.DAYS) in ROWS["`windows.days`"]
    for kind in documents.TARGET_KINDS:
        assert f"`{kind}`" in ROWS["`targets.kind`"]


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
