"""Documents of schedules: what they may say, and one sentence for each mistake."""

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.windows import CronWindow, DayWindow, SingleWindow, Window
from adapter.errors import InputError
from fastpath_tools import yaml_documents
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
LOCAL = "expected a local time without offset such as 2026-11-27T00:00"
FIVE = "expected a cron expression of five fields such as 0 22 28-31 * *"


REFUSED_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({}, ": window-0: expected from and to, cron and for, or start and end"),
    (DAILY | {"to": "08:00"}, ".to: 08:00: expected another time than from, 08:00"),
    (DAILY | {"from": "24:00"}, f".from: 24:00: {TIME}"),
    (DAILY | {"from": "8:00"}, f".from: 8:00: {TIME}"),
    (DAILY | {"from": "08:0\u0660"}, f".from: 08:0\u0660: {TIME}"),
    (DAILY | {"to": "24:30"}, ".to: 24:30: expected HH:MM or HH:MM:SS from 00:00 to 24:00"),
    ({"from": "08:00"}, ".to: absent: it is required beside from"),
    ({"to": "08:00"}, ".from: absent: it is required beside to"),
    (DAILY | {"for": "1h"}, '.for: "1h0m0s": has no place beside from'),
    (DAILY | {"days": []}, ".days: []: expected days: Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
    (
        DAILY | {"days": ["Mon", "Friday"]},
        ".days[1]: Friday: expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun",
    ),
    (CRON | {"days": ["Mon"]}, '.days: ["Mon"]: has no place beside cron'),
    (CRON | {"cron": "0 22 * *"}, f'.cron: "0 22 * *": {FIVE}'),
    (CRON | {"cron": "0 0 22 * * *"}, f'.cron: "0 0 22 * * *": {FIVE}'),
    (CRON | {"cron": "0 25 * * *"}, f'.cron: "0 25 * * *": {FIVE}: bad hour'),
    (
        CRON | {"cron": "0 2 * * " + "1" * 20},
        f'.cron: "0 2 * * 11111111111111111111": {FIVE}: bad day-of-week',
    ),
    (CRON | {"for": "0s"}, ".for: 0s: expected whole seconds from 1s to 744h0m0s"),
    (CRON | {"for": "1.5s"}, ".for: 1.5s: expected whole seconds from 1s to 744h0m0s"),
    (SINGLE | {"start": "2026-11-27T00:00Z"}, f".start: 2026-11-27T00:00Z: {LOCAL}"),
    (SINGLE | {"start": "2026-11-27T24:00"}, f".start: 2026-11-27T24:00: {LOCAL}"),
    (SINGLE | {"start": "2026-02-30T00:00"}, f".start: 2026-02-30T00:00: {LOCAL}"),
    ({"start": "2026-11-27T00:00"}, ".end: absent: it is required beside start"),
    (
        SINGLE | {"end": "2026-11-26T00:00"},
        ".end: 2026-11-26T00:00: expected a time after start, 2026-11-27T00:00",
    ),
    (DAILY | {"minReplicas": -1}, ".minReplicas: -1: expected 0 or more"),
    (DAILY | {"maxReplicas": -1}, ".maxReplicas: -1: expected 0 or more"),
    (DAILY | {"minReplicas": 9, "maxReplicas": 8}, ".minReplicas: 9: expected at most maxReplicas, 8"),
    (DAILY | {"minReplicas": None}, ": window-0: expected minReplicas, maxReplicas, or both"),
    (DAILY | {"name": ""}, ".name: absent: it is required"),
    (DAILY | {"minReplica": 1}, ".minReplica: 1: unknown field, did you mean minReplicas?"),
]


@pytest.mark.parametrize(("window", "fault"), REFUSED_WINDOWS)
def test_faults_of_windows(window: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError) as caught:
        schedule(window)
    assert str(caught.value) == f"spec.windows[0]{fault}"


ZONE = "expected a time zone of the tz database such as Europe/Berlin"
REFUSED_SPECS: list[tuple[dict[str, Any], str]] = [
    ({"timeZone": "Europe/Bonn"}, f"spec.timeZone: Europe/Bonn: {ZONE}"),
    ({"timeZone": ""}, f"spec.timeZone: absent: {ZONE}"),
    ({"timeZone": "../etc/passwd"}, f"spec.timeZone: ../etc/passwd: {ZONE}"),
    ({"timeZone": "America"}, f"spec.timeZone: America: {ZONE}"),
    ({"ready": "Soon"}, "spec.ready: Soon: expected AtStart or ByStart"),
    ({"except": ["25.12.2026"]}, "spec.except[0]: 25.12.2026: expected a date such as 2026-12-25"),
    ({"except": ["2026-13-25"]}, "spec.except[0]: 2026-13-25: expected a date such as 2026-12-25"),
    ({"targets": []}, "spec.targets: absent: expected at least one target with kind and name"),
    (
        {"targets": [{"kind": "Deployment", "name": "web"}]},
        "spec.targets[0].kind: Deployment: expected HorizontalPodAutoscaler or FastPathAutoscaler",
    ),
    ({"targets": [{"kind": "FastPathAutoscaler"}]}, "spec.targets[0].name: absent: it is required"),
    (
        {"targets": [{"kind": "FastPathAutoscaler", "name": "web"}] * 2},
        "spec.targets[1]: FastPathAutoscaler web: expected each target once",
    ),
    ({"windows": []}, "spec.windows: absent: expected at least one window"),
    ({"windows": "all"}, 'spec.windows: "all": expected a list or null, got text'),
    ({"zone": "UTC"}, 'spec.zone: "UTC": unknown field'),
]


@pytest.mark.parametrize(("spec", "fault"), REFUSED_SPECS)
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


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ([], "kind: []: expected fastpath.io/v1alpha1 FastPathSchedule"),
        ({"kind": "Pod"}, 'kind: "Pod": expected fastpath.io/v1alpha1 FastPathSchedule'),
        (document(DAILY) | {"metadata": {"label": {}}}, "metadata.name: absent: it is required"),
        (
            document(DAILY) | {"metadata": "office"},
            'metadata: "office": expected an object, got text',
        ),
        (document(DAILY) | {"extra": 1}, "extra: 1: unknown field"),
    ],
)
def test_faults_of_documents(tree: object, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        documents.read_document(tree)
    assert fault in str(caught.value).split("\n")
