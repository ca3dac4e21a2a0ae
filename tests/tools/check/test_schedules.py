"""Schedules among the files of `fastpath check`: their faults, conflicts, and ceilings without effect."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.bounds.schedule import windows
from adapter.cli import main
from fastpath_tools.check import schedules
from fastpath_tools.check.schedules import HORIZON, Place
from tests.support.rendered import ROOT
from tests.support.schedules import document, schedule

API = {"kind": "FastPathAutoscaler", "name": "api"}
WEB = {"kind": "HorizontalPodAutoscaler", "name": "web"}
DAILY = {"from": "08:00", "to": "18:00"}
SALE = {"start": "2090-11-27T00:00", "end": "2090-11-30T24:00"}


def checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *trees: dict[str, Any], more: tuple[str, ...] = ()
) -> tuple[int, str, list[str]]:
    """Return status, output and the lines of standard error."""
    path = tmp_path / "schedules.yaml"
    path.write_text("---\n".join(json.dumps(tree, indent=1) + "\n" for tree in trees))
    status = main.main(["check", str(path), *more])
    shown = capsys.readouterr()
    return status, shown.out.replace(str(path), "FILE"), shown.err.replace(str(path), "FILE").splitlines()


def test_a_schedule_alone_needs_no_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = checked(tmp_path, capsys, document(DAILY), more=("--strict",))
    assert (status, err) == (0, [])
    assert out == "0 rules, 0 external rules, 1 schedule, 0 warnings\n"


def test_a_wrong_forecast_of_an_autoscaler_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    forecast = {"mode": "Floor", "history": "3d", "timeZone": "Europe/Bonn"}
    tree = {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 9, "forecast": forecast},
    }
    status, _, err = checked(tmp_path, capsys, tree)
    assert status == 2
    history, zone = (line.split(": ", 2)[2] for line in err)
    assert history.startswith('spec.forecast.history: Invalid value: "3d": must be from 7d to 35d')
    assert zone.startswith('spec.forecast.timeZone: Invalid value: "Europe/Bonn": must be a time zone')


def test_an_invalid_schedule_has_all_its_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = document(DAILY | {"minReplicas": 9, "maxReplicas": 8}, zone="Europe/Bonn", targets=[API, API])
    status, _, err = checked(tmp_path, capsys, tree)
    assert status == 2
    assert [line.split(": ", 2)[2] for line in err] == [
        "spec.targets[1]: FastPathAutoscaler api: expected each target once",
        "spec.timeZone: Europe/Bonn: expected a time zone of the tz database such as Europe/Berlin",
        "spec.windows[0].minReplicas: 9: expected at most maxReplicas, 8",
    ]
    assert all(line.startswith("fastpath check: FILE:") for line in err)


def test_a_floor_above_a_ceiling_names_the_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = document(
        DAILY | {"name": "business", "maxReplicas": 50},
        SALE | {"name": "sale", "minReplicas": 60},
        targets=[API],
    )
    status, out, err = checked(tmp_path, capsys, tree)
    assert (status, err) == (0, [])
    assert out.splitlines()[0].startswith("spec.windows[1].minReplicas  (FILE:")
    assert out.splitlines()[1] == (
        "  warning   60: shop/office: the floor of sale is above the ceiling of business, 50; where both are "
        "active, first at 2090-11-27T08:00:00 Europe/Berlin, the floor holds"
    )
    assert checked(tmp_path, capsys, tree, more=("--strict",))[0] == 2
    _, out, _ = checked(tmp_path, capsys, tree, more=("-o", "json"))
    (warning,) = json.loads(out)["warnings"]
    assert (warning["path"], warning["value"]) == ("spec.windows[1].minReplicas", "60")


@pytest.mark.parametrize(
    ("targets", "namespace", "found"),
    [([API], "shop", True), ([API, WEB], "shop", True), ([API], "other", False), ([WEB], "shop", False)],
)
def test_schedules_of_one_autoscaler(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    targets: list[dict[str, str]],
    namespace: str,
    found: bool,  # noqa: FBT001
) -> None:
    one = document(DAILY | {"name": "business", "maxReplicas": 50}, targets=[API])
    other = document(SALE | {"name": "sale", "minReplicas": 60}, targets=targets)
    other["metadata"] = {"name": "black-friday", "namespace": namespace}
    _, out, _ = checked(tmp_path, capsys, one, other)
    sentence = (
        f"60: {namespace}/black-friday: the floor of sale is above the ceiling of business of shop/office, 50"
    )
    assert (sentence in out) is found


def test_a_ceiling_that_no_target_gets_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = document(DAILY, DAILY | {"minReplicas": 1, "maxReplicas": 8}, targets=[WEB])
    status, _, (line,) = checked(tmp_path, capsys, tree)
    assert status == 2
    assert line.split(": ", 2)[2] == (
        "spec.windows[1].maxReplicas: 8: shop/office: a HorizontalPodAutoscaler gets no ceiling: expected "
        "minReplicas alone, or a FastPathAutoscaler"
    )


def test_a_ceiling_that_some_targets_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = document(DAILY | {"maxReplicas": 8}, targets=[API, WEB])
    status, out, err = checked(tmp_path, capsys, tree)
    assert (status, err) == (0, [])
    assert out.splitlines()[1] == (
        "  warning   HorizontalPodAutoscaler web: shop/office: it gets the floors alone: a ceiling is only "
        "for a FastPathAutoscaler"
    )
    assert "0 warnings" in checked(tmp_path, capsys, document(DAILY, targets=[API, WEB]))[1]


def test_a_schedule_that_is_given_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, (line,) = checked(tmp_path, capsys, document(DAILY), document(DAILY))
    assert status == 2
    assert line.endswith("metadata.name: office: shop/office: expected each schedule once")


def test_schedules_stand_beside_rules_and_autoscalers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = ROOT / "docs" / "examples"
    (tmp_path / "list.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [document(DAILY), {"kind": "Pod"}]})
    )
    files = [
        str(tmp_path),
        str(examples / "http-requests.yaml"),
        str(examples / "autoscalers" / "requests.yaml"),
    ]
    assert main.main(["check", *files]) == 0
    assert ", 1 autoscaler, 1 schedule, " in capsys.readouterr().out


START = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())
FLOOR, CEILING = {"minReplicas": 10}, {"maxReplicas": 5}


def _found(*listed: dict[str, Any], zone: str = "UTC", start: int = START) -> list[tuple[int, int, str]]:
    """Return the numbers of the windows of the floor and of the ceiling, and when they first meet."""
    one = schedule(*listed, zone=zone).schedule
    return [
        (each.floor.window, each.ceiling.window, datetime.fromtimestamp(each.at, UTC).strftime("%F %T"))
        for each in schedules.find([one], start, lambda first, second: first == second)
    ]


@pytest.mark.parametrize(
    ("floor", "ceiling", "at"),
    [
        (DAILY, DAILY, "2026-11-23 08:00:00"),
        (DAILY, {"from": "17:59:59", "to": "20:00"}, "2026-11-23 17:59:59"),
        (DAILY, {"from": "18:00", "to": "20:00"}, ""),
        (DAILY | {"days": ["Mon"]}, DAILY | {"days": ["Tue"]}, ""),
        ({"from": "22:00", "to": "06:00"}, {"from": "05:00", "to": "07:00"}, "2026-11-23 05:00:00"),
        (DAILY, {"cron": "0 17 1 6 *", "for": "2h"}, "2027-06-01 17:00:00"),
        (DAILY, {"cron": "0 18 1 6 *", "for": "2h"}, ""),
        (DAILY, {"start": "2030-01-01T00:00", "end": "2030-01-02T00:00"}, "2030-01-01 08:00:00"),
        (DAILY, {"start": "2026-11-20T00:00", "end": "2026-11-20T24:00"}, ""),
        (
            {"start": "2030-01-01T00:00", "end": "2030-02-01T00:00"},
            {"start": "2030-01-31T23:00", "end": "2030-03-01T00:00"},
            "2030-01-31 23:00:00",
        ),
        ({"cron": "*/2 * * * *", "for": "30s"}, {"cron": "1-59/2 * * * *", "for": "30s"}, ""),
    ],
)
def test_when_windows_meet(floor: dict[str, Any], ceiling: dict[str, Any], at: str) -> None:
    assert _found(floor | FLOOR, ceiling | CEILING) == ([(0, 1, at)] if at else [])
    assert _found(ceiling | CEILING, floor | FLOOR) == ([(1, 0, at)] if at else [])


def test_each_pair_whose_floor_is_above_the_ceiling() -> None:
    found = _found(
        DAILY | {"minReplicas": 10, "maxReplicas": 20},
        DAILY | {"minReplicas": 21},
        DAILY | {"minReplicas": 20},
        DAILY | {"maxReplicas": 9},
    )
    assert [pair[:2] for pair in found] == [(0, 3), (1, 0), (1, 3), (2, 3)]


def test_schedules_meet_only_where_they_share_a_target() -> None:
    pair = [schedule(DAILY | bounds).schedule for bounds in (FLOOR, CEILING)]
    assert list(schedules.find(pair, START, lambda first, second: first == second)) == []
    (found,) = schedules.find(pair, START, lambda first, second: True)
    assert (found.floor, found.ceiling) == (Place(0, 0), Place(1, 0))


_HOURS = st.integers(0, 23).map("{:02d}:00".format)
_WINDOWS = st.one_of(
    st.fixed_dictionaries(
        {"from": _HOURS, "to": _HOURS, "days": st.lists(st.sampled_from(["Mon", "Wed", "Sun"]), min_size=1)}
    ).filter(lambda window: window["from"] != window["to"]),
    st.fixed_dictionaries(
        {
            "cron": st.tuples(st.integers(0, 23), st.integers(1, 31), st.integers(1, 12)).map(
                lambda parts: "0 {} {} {}-12 *".format(*parts)
            ),
            "for": st.integers(1, 100).map("{}h".format),
        }
    ),
)


@settings(deadline=None, max_examples=30)
@given(_WINDOWS, _WINDOWS, st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]))
def test_first_meeting_is_that_of_the_levels(one: dict[str, Any], other: dict[str, Any], zone: str) -> None:
    made = schedule(one | FLOOR, other | CEILING, zone=zone).schedule
    level = next(
        (
            each.begin
            for each in windows.levels(made, START, START + HORIZON)
            if each.windows == ("window-0", "window-1")
        ),
        None,
    )
    (found,) = [*schedules.find([made], START, lambda first, second: True), None][:1]
    assert (None if found is None else found.at) == level
