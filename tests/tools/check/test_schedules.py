"""Schedules among the files of `fastpath check`: their faults, conflicts, and ceilings without effect."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from tests.support.rendered import ROOT
from tests.support.schedules import document

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
