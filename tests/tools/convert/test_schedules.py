"""`fastpath convert` with the documents of KEDA."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.compose.clock import SystemClock
from fastpath_tools.convert import keda
from scripts.generate import crd_schedules
from tests.support import structural

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "migrate-schedules.md"

NOW = 1_795_435_200
"""2026-11-23T12:00:00Z"""

WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri"]


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


def _hpa(name: str, schedule: str) -> dict[str, Any]:
    source = {
        "describedObject": {"apiVersion": "zalando.org/v1", "kind": "ScalingSchedule", "name": schedule},
        "metric": {"name": schedule},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 50,
            "metrics": [{"type": "Object", "object": source}],
        },
    }


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "wall", lambda _: float(NOW))


def test_two_scaled_objects_of_one_target(convert: Any) -> None:
    """Each once, however many schedules it gives; an HPA of the target is KEDA's own, or none of its."""
    berlin, tokyo = (
        _trigger("0 8 * * *", "0 9 * * *", zone=zone) for zone in ("Europe/Berlin", "Asia/Tokyo")
    )
    first, second = _scaled_object(berlin, tokyo), _scaled_object(berlin)
    second["metadata"] = {"name": "api", "namespace": "shop"}
    third = second | {"metadata": {"name": "api", "namespace": "bank"}}
    found = convert(first, second, third, _hpa("web", "peak"))
    assert (found.status, len(found.schedules)) == (0, 4)
    rivalries = [line for line in found.report if "keep only one" in line]
    assert rivalries == [
        f"ScaledObject {name} scales Deployment web too: keep only one autoscaler for it"
        for name in ("api", "web")
    ]


def test_a_trigger_that_both_read_the_same(convert: Any) -> None:
    found = convert(_scaled_object(_trigger("0 8 * * 1-5", "0 18 * * 1-5")))
    assert found.status == 0
    assert found.schedules == [
        {
            "apiVersion": "fastpath.io/v1alpha1",
            "kind": "FastPathSchedule",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "targets": [{"kind": "FastPathAutoscaler", "name": "web"}],
                "timeZone": "Europe/Berlin",
                "windows": [
                    {"name": "cron-1", "days": WEEKDAYS, "from": "08:00", "to": "18:00", "minReplicas": 5}
                ],
            },
        }
    ]
    assert found.report == [
        "trigger 1 (5 replicas, Europe/Berlin): active 50 h a week, as KEDA is",
        (
            "the files have no autoscaler for Deployment web: make FastPathAutoscaler web with "
            "minReplicas 2 and "
            "maxReplicas 100, and delete the ScaledObject before you apply it. Without a metric "
            "of its own it scales "
            "on cpu at 80 %"
        ),
    ]


def test_a_weekend_that_only_keda_is_active_on(convert: Any) -> None:
    night = _trigger("0 18 * * 1-5", "0 6 * * 1-5")
    found = convert(_scaled_object(_trigger("0 6 * * 1-5", "0 20 * * *"), night))
    first, second = found.schedules[0]["spec"]["windows"]
    assert (first["days"], first["from"], first["to"]) == (WEEKDAYS, "06:00", "20:00")
    assert (second["days"], second["from"], second["to"]) == (WEEKDAYS, "18:00", "06:00")
    assert found.report[:4] == [
        "trigger 1 (5 replicas, Europe/Berlin): KEDA is active 118 h a week, the schedule 70 h",
        (
            "trigger 1 (5 replicas, Europe/Berlin): KEDA is active Fri 20:00 to Sun 20:00 as well "
            "(48 h a week); "
            "the schedule is not"
        ),
        "trigger 2 (5 replicas, Europe/Berlin): KEDA is active 108 h a week, the schedule 60 h",
        (
            "trigger 2 (5 replicas, Europe/Berlin): KEDA is active Sat 06:00 to Mon 06:00 as well "
            "(48 h a week); "
            "the schedule is not"
        ),
    ]


def test_a_change_of_the_clock(convert: Any) -> None:
    found = convert(_scaled_object(_trigger("30 2 * * *", "0 4 * * *")))
    assert found.report[:2] == [
        "trigger 1 (5 replicas, Europe/Berlin): active 10.5 h a week, as KEDA is",
        # 02:30 does not exist: the next end comes before the next start from Saturday's end on
        (
            "trigger 1 (5 replicas, Europe/Berlin): the clock is set: KEDA is active "
            "Sat 2027-03-27 04:00+01:00 to Sun 2027-03-28 03:00+02:00; the schedule is not"
        ),
    ]


def test_days_of_the_month(convert: Any) -> None:
    found = convert(_scaled_object(_trigger("0 22 28 * *", "0 4 29 * *", zone="UTC")))
    assert found.schedules[0]["spec"]["windows"] == [
        {"name": "cron-1", "cron": "0 22 28 * *", "for": "6h", "minReplicas": 5}
    ]
    # February 2027 has no 29th: KEDA takes the next start first, the one of March
    assert found.report[:2] == [
        "trigger 1 (5 replicas, UTC): KEDA is active 66 h in the next 366 days, the schedule 72 h",
        (
            "trigger 1 (5 replicas, UTC): the schedule is active Sun 2027-02-28 22:00 to Mon "
            "2027-03-01 04:00 as "
            "well; KEDA is not"
        ),
    ]


def test_zones_and_what_a_floor_does_otherwise(convert: Any) -> None:
    found = convert(
        _scaled_object(
            _trigger("0 8 * * *", "0 18 * * *", "88"),
            _trigger("0 22 * * 5", "0 6 * * 1", "11", "America/New_York"),
            {"type": "prometheus", "metadata": {}},
            minReplicaCount=1,
            idleReplicaCount=0,
            cooldownPeriod=60,
        )
    )
    first, second = found.schedules
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("web", "web-america-new-york")
    assert [each["name"] for each in second["spec"]["windows"]] == [
        "cron-2",
        "cron-2-part-2",
        "cron-2-part-3",
    ]
    assert found.report[2:6] == [
        (
            "KEDA leaves 10 replicas at that count where 11 are desired, since its HPA tolerates "
            "10 %; the schedule "
            "raises to 11"
        ),
        (
            "KEDA leaves 80 to 87 replicas at that count where 88 are desired, since its HPA "
            "tolerates 10 %; the "
            "schedule raises to 88"
        ),
        (
            "KEDA scales to 0 60 s after the last trigger ends (cooldownPeriod); with the "
            "schedule the autoscaler's "
            "minReplicas and scale-down rules decide"
        ),
        "left out: trigger prometheus; the autoscaler needs a metric for it",
    ]


def test_the_autoscaler_of_the_target_is_the_one_of_the_files(convert: Any) -> None:
    hpa = _hpa("web", "peak")
    hpa["metadata"]["name"] = "web-hpa"
    found = convert(_scaled_object(_trigger("0 8 * * *", "0 18 * * *")), hpa)
    assert [each["kind"] for each in found.documents] == ["FastPathSchedule", "FastPathAutoscaler"]
    assert found.schedules[0]["spec"]["targets"] == [{"kind": "FastPathAutoscaler", "name": "web-hpa"}]
    assert len(found.report) == 3
    assert found.report[1] == (
        "minReplicaCount is 2 and maxReplicaCount 100: FastPathAutoscaler web-hpa has limits of its own"
    )
    assert found.report[2] == (
        "kube-metrics-adapter serves the metric of ScalingSchedule peak as long as the "
        "HorizontalPodAutoscaler exists: write a FastPathSchedule in its place, and remove the metric; a "
        "metric without a value blocks every scale-down"
    )


@pytest.mark.parametrize(
    ("namespace", "target"),
    [
        ("shop", {"kind": "StatefulSet", "name": "web"}),
        ("shop", {"name": "api"}),
        ("staging", {"name": "web"}),
    ],
)
def test_the_autoscaler_of_another_target_is_not_taken(
    convert: Any, namespace: str, target: dict[str, str]
) -> None:
    hpa = _hpa("web", "peak")
    hpa["metadata"] = {"name": "web-hpa", "namespace": namespace}
    found = convert(_scaled_object(_trigger("0 8 * * *", "0 18 * * *"), scaleTargetRef=target), hpa)
    assert found.schedules[0]["spec"]["targets"] == [{"kind": "FastPathAutoscaler", "name": "web"}]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            _scaled_object(_trigger("0 8 * * 7", "0 18 * * *")),
            'spec.triggers[0].metadata.start: "0 8 * * 7": expected a day of the week from 0 to 6, not 7',
        ),
        (
            _scaled_object(_trigger("0 8 * * *", "0 8 * * ?")),
            'spec.triggers[0].metadata.end: "0 8 * * ?": expected another than start',
        ),
        (
            _scaled_object(_trigger("0 8 * * *", "0 18 * * *", zone="Mars/Base")),
            'spec.triggers[0].metadata.timezone: "Mars/Base": expected a time zone',
        ),
        (
            _scaled_object(_trigger("0 8 * * *", "0 18 * * *", "many")),
            'spec.triggers[0].metadata.desiredReplicas: "many": expected an integer',
        ),
        (
            _scaled_object(_trigger("0 8 * * *", "0 18 * * *", "0")),
            "spec.triggers[0].metadata.desiredReplicas: 0: expected 1 or more",
        ),
        (
            _scaled_object(_trigger("0 8 * * *", "0 18 * * *") | {"metricType": "Value"}),
            'spec.triggers[0].metricType: "Value": expected AverageValue',
        ),
        (
            _scaled_object(_trigger("0 */6 * * *", "0 20 * * *")),
            'spec.triggers[0].metadata: "0 */6 * * * to 0 20 * * *": expected windows of one length',
        ),
        (
            _scaled_object(
                _trigger("0 8 * * *", "0 18 * * *"), advanced={"scalingModifiers": {"formula": "a + b"}}
            ),
            'spec.advanced.scalingModifiers.formula: "a + b": expected no formula',
        ),
        (_scaled_object(_trigger("0 8 * * *", "")), 'spec.triggers[0].metadata.end: "": expected a cron'),
    ],
)
def test_what_is_refused(convert: Any, tree: dict[str, Any], said: str) -> None:
    found = convert(tree)
    assert (found.status, found.out) == (2, "")
    assert f"fastpath convert: standard input:1: {said}" in found.err


def test_a_scaled_object_without_cron_is_left_out(convert: Any) -> None:
    found = convert(_scaled_object({"type": "kafka"}, fallback={"replicas": 6}))
    assert found.status == 2
    assert found.err.splitlines() == [
        (
            "fastpath convert: standard input:1: ScaledObject web: left out: it has no cron trigger, so it "
            "has no schedule: make a FastPathAutoscaler with minReplicas 2 and maxReplicas 100, and a "
            "metric for each trigger (kafka); delete the ScaledObject before you apply it"
        ),
        (
            'fastpath convert: standard input:1: ScaledObject web: spec.fallback: {"replicas": 6}: the '
            "autoscaler needs spec.fallback of type Floor with these replicas, and scales nothing down "
            "while a metric is absent"
        ),
        (
            "fastpath convert: expected a HorizontalPodAutoscaler, or a ScaledObject that has a cron trigger "
            "and is not paused; the files have no such object"
        ),
    ]


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


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"maxReplicaCount": 0}, "spec.maxReplicas: Invalid value: 0"),
        ({"minReplicaCount": 9, "maxReplicaCount": 3}, "spec.maxReplicas: Invalid value: 3"),
        ({"fallback": {"failureThreshold": 3, "replicas": 200}}, "spec.fallback.replicas: "),
        ({"fallback": {"failureThreshold": 3, "replicas": 0}}, "spec.fallback.replicas: "),
    ],
)
def test_advice_that_check_refuses_says_so(spec: dict[str, Any], said: str, convert: Any) -> None:
    tree = _scaled_object(_trigger("0 8 * * *", "0 18 * * *"))
    found = convert(tree | {"spec": tree["spec"] | spec})
    assert f"`fastpath check` refuses that autoscaler: {said}" in found.err


@pytest.mark.parametrize("trigger", [_trigger("0 8 * * *", "0 18 * * *"), QUEUE], ids=["cron", "no cron"])
def test_a_null_is_an_absent_field(trigger: dict[str, Any], convert: Any) -> None:
    tree = _scaled_object(trigger)
    nulls = dict.fromkeys(
        ("minReplicaCount", "maxReplicaCount", "fallback", "advanced", "cooldownPeriod", "idleReplicaCount")
    )
    absent = {key: value for key, value in tree["spec"].items() if key not in nulls}
    assert convert(tree | {"spec": absent | nulls}).err == convert(tree | {"spec": absent}).err


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"apiVersion": "keda.k8s.io/v1alpha1"},
            'apiVersion: "keda.k8s.io/v1alpha1": expected keda.sh/v1alpha1; this is the API group of KEDA 1',
        ),
        ({"apiVersion": "apps/v1"}, 'apiVersion: "apps/v1": expected keda.sh/v1alpha1; this is not KEDA\'s'),
        ({"apiVersion": None}, "apiVersion: absent: expected keda.sh/v1alpha1; this is not KEDA's"),
    ],
)
def test_the_api_group_of_a_scaled_object(tree: dict[str, Any], said: str, convert: Any) -> None:
    found = convert(_scaled_object(_trigger("0 8 * * *", "0 18 * * *")) | tree)
    assert (found.status, found.out) == (2, "")
    assert said in found.err
    assert "cron trigger" not in found.err


@pytest.mark.parametrize(
    ("formula", "name", "why"),
    [
        ("(a + b)/2", None, "it does not read the cron trigger, which has no effect"),
        ("(a + b)/2", "c", "it does not read the cron trigger, which has no effect"),
        ("max([a, office])", "office", "it computes with the value of the cron trigger"),
        ("office_b", "office", "it does not read the cron trigger, which has no effect"),
    ],
)
def test_a_formula_that_reads_the_cron_trigger_or_not(
    formula: str, name: str | None, why: str, convert: Any
) -> None:
    trigger = _trigger("0 8 * * *", "0 18 * * *") | ({"name": name} if name else {})
    found = convert(_scaled_object(trigger, advanced={"scalingModifiers": {"formula": formula}}))
    assert found.status == 2
    assert why in found.err


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


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": 3},
        {"spec": []},
        {"spec": {"triggers": [3, {"type": "cron", "metadata": []}, {"type": "cron"}]}},
        {"spec": {"triggers": {}}},
    ],
)
def test_a_document_of_another_shape_is_refused(convert: Any, broken: dict[str, Any]) -> None:
    tree, hpa = _scaled_object(_trigger("0 8 * * *", "0 18 * * *")), _hpa("web", "peak")
    found = convert(tree | broken, hpa | broken, {"kind": [], "apiVersion": {}})
    assert (found.status, found.out) == (2, "")


def test_what_is_printed_is_taken_by_the_cluster_and_read_by_schedule(convert: Any) -> None:
    triggers = [_trigger("0 8 * * 1-5", "0 18 * * 1-5"), _trigger("0 22 * * 5", "30 5 * * 1", "3")]
    found = convert(
        _scaled_object(*triggers, _trigger("30 * * * *", "45 * * * *")),
    )
    schema = crd_schedules.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert [structural.verdict(each, schema) for each in found.schedules] == [[]]
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
