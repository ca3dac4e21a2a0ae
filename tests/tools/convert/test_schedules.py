"""`fastpath convert` with the documents of KEDA."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastpath_tools.convert import keda

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "migrate-schedules.md"

NOW = 1_795_435_200
"""2026-11-23T12:00:00Z"""


def _trigger(start: str, end: str, replicas: str = "5", zone: str = "Europe/Berlin") -> dict[str, Any]:
    meta = {"timezone": zone, "start": start, "end": end, "desiredReplicas": replicas}
    return {"type": "cron", "metadata": meta}


def _scaled_object(*triggers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"name": "web"}, "minReplicaCount": 2, "triggers": [*triggers]} | spec,
    }


@pytest.fixture(autouse=True)
def now(stop_clock: Callable[[float], None]) -> None:
    stop_clock(float(NOW))


CPU, QUEUE = {"type": "cpu", "metadata": {"value": "60"}}, {"type": "kafka"}


@pytest.mark.parametrize(
    ("triggers", "lowest", "advised"),
    [([], 0, 1), ([CPU], 0, 1), ([CPU, QUEUE], 0, 0), ([QUEUE], 0, 0), ([], 3, 3), ([CPU], None, 1)],
    ids=["cron alone", "cpu", "cpu and a queue", "queue", "no zero", "the default of zero"],
)
@pytest.mark.parametrize("periods", [["0 8 * * *"], []], ids=["with cron", "without cron"])
def test_check_takes_the_autoscaler_that_is_advised(
    periods: list[str],
    triggers: list[dict[str, Any]],
    lowest: int | None,
    advised: int,
    convert: Any,
    cli: Any,
) -> None:
    spec = {} if lowest is None else {"minReplicaCount": lowest}
    tree = _scaled_object(
        *(_trigger(start, "0 18 * * *") for start in periods), *triggers, maxReplicaCount=20
    )
    tree["spec"].pop("minReplicaCount")
    found = convert(tree | {"spec": {**tree["spec"], **spec}})
    words = re.search(r"minReplicas (\d+)( .0 needs [^)]+.)? and maxReplicas (\d+)", found.err)
    assert words is not None
    assert (int(words[1]), bool(words[2]), words[3]) == (advised, advised != (lowest or 0), "20")
    assert "refuses" not in found.err
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": _target(averageUtilization=60)}}]
    external = {"metric": {"name": "lag"}, "target": _target(averageValue=10)}
    metrics = [
        *metrics[: CPU in triggers],
        *[{"type": "External", "external": external}][: QUEUE in triggers],
    ]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    advice = {"scaleTargetRef": reference, "minReplicas": advised, "maxReplicas": 20, "metrics": metrics}
    document = {"apiVersion": "fastpath.io/v1alpha1", "kind": "FastPathAutoscaler", "spec": advice}
    printed = cli("check", "-", stdin=json.dumps(document | {"metadata": {"name": "web"}}))
    assert printed.status == 0, printed.err


def _target(**value: int) -> dict[str, Any]:
    return {"type": "Utilization" if "averageUtilization" in value else "AverageValue", **value}


@pytest.mark.parametrize("trigger", [_trigger("0 8 * * *", "0 18 * * *"), QUEUE], ids=["cron", "no cron"])
def test_a_null_is_an_absent_field(trigger: dict[str, Any], convert: Any) -> None:
    tree = _scaled_object(trigger)
    nulls = dict.fromkeys(
        ("minReplicaCount", "maxReplicaCount", "fallback", "advanced", "cooldownPeriod", "idleReplicaCount")
    )
    absent = {key: value for key, value in tree["spec"].items() if key not in nulls}
    assert convert(tree | {"spec": absent | nulls}).err == convert(tree | {"spec": absent}).err


def test_the_example_of_the_guide(convert: Any) -> None:
    text = GUIDE.read_text()
    given, printed = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = convert(given)
    assert found.schedules == [yaml.safe_load(printed)]
    assert [line for line in found.report[:3] if f"\n    {line}\n" in text] == found.report[:3]


def test_the_guide_names_each_field_of_a_scaled_object_that_has_a_note() -> None:
    text = GUIDE.read_text()
    names = {path.rpartition("/" if "/" in path else ".")[2] for path in keda.READ}
    assert [name for name in sorted(names) if name not in text] == []


def test_what_is_printed_is_read_by_schedule(convert: Any) -> None:
    triggers = [_trigger("0 8 * * 1-5", "0 18 * * 1-5"), _trigger("0 22 * * 5", "30 5 * * 1", "3")]
    found = convert(_scaled_object(*triggers, _trigger("30 * * * *", "45 * * * *")))
    printed = [each for each in found.out.split("---\n") if "kind: FastPathSchedule\n" in each]
    shown = convert(*printed, verb=("schedule", "--from", "2026-11-27T21:00:00Z", "--output", "json"))
    assert shown.status == 0
    levels = json.loads(shown.out)["levels"]
    assert levels[0] == {
        "from": "2026-11-27T21:00:00Z",
        "until": "2026-11-27T21:30:00Z",
        "schedule": "shop/web",
        "minReplicas": 3,
        "maxReplicas": None,
        "windows": ["cron-2"],
    }
