"""Documents of schedules: what they may say, and one sentence for each mistake."""

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.windows import CronWindow, DayWindow, SingleWindow, Window
from adapter.errors import InputError
from fastpath_tools import yaml_documents
from tests.support.answers import answers
from tests.support.schedules import EXAMPLE, document, schedule


def test_the_example() -> None:
    (tree,) = yaml_documents.read_documents(EXAMPLE, "office.yaml")
    assert isinstance(tree, yaml_documents.YAMLDocument)
    read = documents.read_document(tree.value)
    hours = timedelta(hours=1)
    assert read.schedule.windows == (
        Window("business", DayWindow(frozenset(range(5)), 8 * hours, 18.5 * hours), 20, 80),
        Window("month-end", CronWindow("0 22 28-31 * *", 6 * 3600), 40, None),
        Window("sale", SingleWindow(datetime(2026, 11, 27), datetime(2026, 12, 1)), 60, None),  # noqa: DTZ001 - local
    )
    assert (read.schedule.name, read.schedule.zone.key) == ("shop/office", "Europe/Berlin")
    assert read.schedule.excepted == {date(2026, 12, 25), date(2026, 12, 26)}
    assert [(each.kind, each.name) for each in read.targets] == [
        ("HorizontalPodAutoscaler", "web"),
        ("FastPathAutoscaler", "api"),
    ]
    assert read.ready == "ByStart"


def test_defaults() -> None:
    read = schedule({"from": "00:00", "to": "24:00"})
    assert read.ready == "AtStart"
    assert read.schedule.windows[0].times == DayWindow(frozenset(range(7)), timedelta(), timedelta(days=1))
    assert documents.read_document({**document({"from": "01:00:30", "to": "02:00"}), "status": {}})


DAILY = {"from": "08:00", "to": "18:00"}
CRON = {"cron": "0 22 * * *", "for": "6h"}
SINGLE = {"start": "2026-11-27T00:00", "end": "2026-11-30T24:00"}
TIME = "expected HH:MM or HH:MM:SS from 00:00 to 23:59:59"
FIVE = "expected a cron expression of five fields such as 0 22 28-31 * *"


@pytest.mark.parametrize(("window", "fault"), answers("bounds/schedule_documents", "refused windows"))
def test_faults_of_windows(window: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError) as caught:
        schedule(window)
    assert str(caught.value) == f"spec.windows[0]{fault}"


@pytest.mark.parametrize(("spec", "fault"), answers("bounds/schedule_documents", "refused specs"))
def test_faults_of_specs(spec: dict[str, Any], fault: str) -> None:
    tree = document(DAILY)
    tree["spec"] |= spec
    with pytest.raises(InputError) as caught:
        documents.read_document(tree)
    assert fault in str(caught.value).split("\n")


def test_a_number_without_end() -> None:
    with pytest.raises(InputError) as caught:
        schedule(CRON | {"cron": f"0 0 * * {'1' * 5000}"})
    assert str(caught.value).startswith('spec.windows[0].cron: "0 0 * * 1111')
    assert str(caught.value).endswith(FIVE)


def test_a_value_is_quoted_where_it_does_not_fit_into_a_line() -> None:
    with pytest.raises(InputError) as caught:
        schedule(DAILY | {"name": "a"}, DAILY | {"from": "8\n"}, zone="Z" * 1000)
    zone, time = str(caught.value).split("\n")
    assert time == f'spec.windows[1].from: "8\\n": {TIME}'
    assert len(zone) < 250


def test_too_many_windows_and_names_twice() -> None:
    with pytest.raises(InputError) as caught:
        schedule(*[DAILY] * 100, DAILY | {"from": "8"})
    assert str(caught.value) == "spec.windows: 101: expected at most 100"
    many = ",".join(map(str, range(60)))
    with pytest.raises(InputError) as caught:
        schedule(*[CRON | {"cron": f"{many} 8 * * *"}] * 60)
    expected = "expected cron expressions of 8192 characters together, at most"
    assert str(caught.value) == f"spec.windows: {60 * len(f'{many} 8 * * *')}: {expected}"
    assert len(schedule(*[CRON] * 100).schedule.windows) == 100
    with pytest.raises(InputError) as caught:
        schedule(DAILY | {"name": "a"}, DAILY | {"name": "a"})
    assert str(caught.value) == "spec.windows[1].name: a: expected another name: a window has it already"


@pytest.mark.parametrize(("tree", "fault"), answers("bounds/schedule_documents", "refused documents"))
def test_faults_of_documents(tree: object, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        documents.read_document(tree)
    assert fault in str(caught.value).split("\n")
