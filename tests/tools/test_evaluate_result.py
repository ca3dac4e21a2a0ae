import json
from typing import Any

import pytest

from fastpath_tools import evaluate, evaluate_document
from fastpath_tools.evaluate_document import EvaluateDocument

_TEXT: dict[str, Any] = {
    "name": "busy",
    "now": "2026-11-20T12:00:00Z",
    "hpa": {
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": "queue"},
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
            ],
        },
    },
    "scale": {"spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "app=web"}},
    "metrics": {"external": [{"metricName": "queue", "value": "3500m"}]},
}


def _read(**changes: object) -> EvaluateDocument:
    return evaluate_document.read_json(json.dumps({**_TEXT, **changes}).encode())


def test_a_result() -> None:
    read = _read()

    shown = json.loads(evaluate.to_json(evaluate.show(read, evaluate.evaluate(read))))

    assert list(shown) == ["name", "desiredReplicas", "rescaled", "status", "events", "trace"]
    assert (shown["name"], shown["desiredReplicas"], shown["rescaled"]) == ("busy", 4, True)
    assert shown["status"] == {
        "currentReplicas": 2,
        "desiredReplicas": 4,
        "currentMetrics": [
            {
                "type": "External",
                "external": {"metric": {"name": "queue"}, "current": {"averageValue": "1750m"}},
            }
        ],
        "conditions": [
            {
                "type": "AbleToScale",
                "status": "True",
                "reason": "SucceededRescale",
                "message": "the HPA controller was able to update the target scale to 4",
            },
            {
                "type": "ScalingActive",
                "status": "True",
                "reason": "ValidMetricFound",
                "message": "the HPA was able to successfully calculate a replica count from external metric "
                "queue(nil)",
            },
            {
                "type": "ScalingLimited",
                "status": "False",
                "reason": "DesiredWithinRange",
                "message": "the desired count is within the acceptable range",
            },
        ],
    }
    assert shown["events"] == [
        {
            "type": "Normal",
            "reason": "SuccessfulRescale",
            "message": "New size: 4; reason: external metric queue(nil) above target",
        }
    ]
    assert shown["trace"][3] == {
        "step": "quotient",
        "text": "3.5 / 1 = 3.5, rounded up to 4",
        "numbers": {"measured": 3500, "target": 1000, "product": 3.5, "replicas": 4},
    }
    assert json.loads(json.dumps(evaluate.to_plain(evaluate.show(read, evaluate.evaluate(read))))) == shown


def test_nothing_that_needs_no_writing() -> None:
    first = _read(metrics={"external": [{"metricName": "queue", "value": "2"}]})
    written = evaluate.evaluate(first).status
    status = {
        "currentReplicas": 2,
        "desiredReplicas": 2,
        "currentMetrics": [
            {
                "type": "External",
                "external": {"metric": {"name": "queue"}, "current": {"averageValue": "1000m"}},
            }
        ],
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in written.conditions or ()
        ],
    }
    again = _read(
        metrics={"external": [{"metricName": "queue", "value": "2"}]},
        hpa={**_TEXT["hpa"], "status": status},
        name=None,
    )

    shown = json.loads(evaluate.to_json(evaluate.show(again, evaluate.evaluate(again))))

    assert shown["status"] is None
    assert "name" not in shown


def test_zero_replicas_are_left_out() -> None:
    read = _read(scale={"spec": {"replicas": 0}, "status": {"selector": "app=web"}})

    shown = json.loads(evaluate.to_json(evaluate.show(read, evaluate.evaluate(read))))

    assert shown["status"]["desiredReplicas"] == 0
    assert shown["status"]["currentMetrics"] == []
    assert "currentReplicas" not in shown["status"]


def test_empty_parts_of_a_selector_and_a_condition_are_left_out() -> None:
    hpa = json.loads(json.dumps(_TEXT["hpa"]))
    hpa["spec"]["metrics"][0]["external"]["metric"]["selector"] = {
        "matchLabels": {},
        "matchExpressions": [{"key": "dead", "operator": "DoesNotExist", "values": []}],
    }
    hpa["status"] = {"conditions": [{"type": "Other", "status": "True"}]}
    read = _read(hpa=hpa)

    status = json.loads(evaluate.to_json(evaluate.show(read, evaluate.evaluate(read))))["status"]

    assert status["currentMetrics"][0]["external"]["metric"] == {
        "name": "queue",
        "selector": {"matchExpressions": [{"key": "dead", "operator": "DoesNotExist"}]},
    }
    assert status["conditions"][1] == {"type": "Other", "status": "True"}

    hpa["spec"]["metrics"][0]["external"]["metric"]["selector"] = {"matchExpressions": []}
    read = _read(hpa=hpa)
    status = json.loads(evaluate.to_json(evaluate.show(read, evaluate.evaluate(read))))["status"]
    assert status["currentMetrics"][0]["external"]["metric"] == {"name": "queue", "selector": {}}


def test_an_error() -> None:
    read = _read(metrics={})

    shown = json.loads(evaluate.to_json(evaluate.show(read, evaluate.evaluate(read))))

    assert shown["error"].startswith(
        "failed to compute desired number of replicas based on listed metrics for "
    )
    assert shown["status"]["currentMetrics"] == [{"type": ""}]


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {},
            [
                "busy: scales from 2 to 4",
                "",
                "  Deployment/default/web: spec.replicas 2, status.replicas 2, allowed 1 to 5",
                "  no earlier recommendation: 2 is recorded as the first",
                "  external metric queue: 3.5, target 1 for each of 2 replicas: ratio 1.75",
                "  3.5 / 1 = 3.5, rounded up to 4",
                "  highest proposal: 4, from external metric queue",
                "  stabilization does not change 4",
                "  from 2 to 4: external metric queue(nil) above target",
                "",
                "conditions",
                (
                    "  AbleToScale True (SucceededRescale): the HPA controller was able to update the "
                    "target scale to 4"
                ),
                (
                    "  ScalingActive True (ValidMetricFound): the HPA was able to successfully "
                    "calculate a replica count "
                    "from external metric queue(nil)"
                ),
                (
                    "  ScalingLimited False (DesiredWithinRange): the desired count is within the "
                    "acceptable range"
                ),
                "",
                "events",
                "  Normal SuccessfulRescale: New size: 4; reason: external metric queue(nil) above target",
            ],
        ),
        (
            {"name": None, "scale": {"spec": {"replicas": 2}, "status": {"selector": ""}}},
            [
                "web: stays at 2",
                "",
                "  Deployment/default/web: spec.replicas 2, status.replicas 0, allowed 1 to 5",
                "  no earlier recommendation: 2 is recorded as the first",
                "  the pods cannot be found: selector is required",
                "  stays 2",
                "",
                "conditions",
                (
                    "  AbleToScale True (SucceededGetScale): the HPA controller was able to get the "
                    "target's current scale"
                ),
                "  ScalingActive False (InvalidSelector): the HPA target's scale is missing a selector",
                "",
                "events",
                "  Warning SelectorRequired: selector is required",
                "  Warning FailedComputeMetricsReplicas: selector is required",
                "",
                (
                    "error: failed to compute desired number of replicas based on listed metrics for "
                    "Deployment/default/web: selector is required"
                ),
            ],
        ),
        (
            {"metrics": {"external": [{"metricName": "queue", "value": "2"}]}},
            [
                "busy: stays at 2",
                "",
                "  Deployment/default/web: spec.replicas 2, status.replicas 2, allowed 1 to 5",
                "  no earlier recommendation: 2 is recorded as the first",
                "  external metric queue: 2, target 1 for each of 2 replicas: ratio 1",
                "  ratio 1 is within 0.9 to 1.1: uses status.replicas, 2",
                "  highest proposal: 2, from external metric queue",
                "  stabilization does not change 2",
                "  stays 2",
                "",
                "conditions",
                "  AbleToScale True (ReadyForNewScale): recommended size matches current size",
                (
                    "  ScalingActive True (ValidMetricFound): the HPA was able to successfully "
                    "calculate a replica count "
                    "from external metric queue(nil)"
                ),
                (
                    "  ScalingLimited False (DesiredWithinRange): the desired count is within the "
                    "acceptable range"
                ),
            ],
        ),
    ],
    ids=["a raise", "an error", "no change"],
)
def test_explains(changes: dict[str, object], lines: list[str]) -> None:
    read = _read(**changes)

    assert evaluate.explain(read, evaluate.evaluate(read)).splitlines() == lines


def test_a_remark_is_in_the_result_and_at_the_top_of_the_explanation() -> None:
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"type": "Resource", "resource": {"name": "nvidia.com/gpu", "target": target}}
    hpa = {**_TEXT["hpa"], "spec": {**_TEXT["hpa"]["spec"], "metrics": [metric]}}
    read = _read(hpa=hpa)
    said = "nvidia.com/gpu has no value: the resource metrics are cpu and memory only"
    decision = evaluate.evaluate(read)
    assert evaluate.show(read, decision)["remarks"] == [said]
    assert evaluate.explain(read, decision).splitlines()[:3] == ["busy: stays at 2", said, ""]
    assert "remarks" not in evaluate.show(_read(), evaluate.evaluate(_read()))
