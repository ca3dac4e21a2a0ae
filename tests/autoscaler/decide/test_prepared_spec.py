from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.behavior import Policy, ReplicaLimits, Rules
from adapter.autoscaler.decide.calculator import Proposal
from adapter.autoscaler.decide.observation import Settings, band
from adapter.autoscaler.decide.prepared_spec import PreparedMetric, prepare
from adapter.model.autoscaling.hpa import MetricStatus, encode_scalar
from adapter.model.timestamps import SECOND
from tests.support.scaling import autoscaler, cpu_metric, external_metric, hpa, object_metric, pods_metric

_BOX = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "memory",
        "container": "app",
        "target": {"type": "Utilization", "averageUtilization": 80},
    },
}
_RAW = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
}
_SELECTED = {
    "type": "External",
    "external": {
        "metric": {"name": "queue", "selector": {"matchLabels": {"q": "jobs"}}},
        "target": {"type": "Value", "value": "1"},
    },
}
_Q = "&LabelSelector{MatchLabels:map[string]string{q: jobs,},MatchExpressions:[]LabelSelectorRequirement{},}"


def _metric(document: dict[str, Any]) -> PreparedMetric:
    return autoscaler([document]).metrics[0]


@pytest.mark.parametrize(
    ("document", "description", "failure", "error", "aggregate"),
    [
        pytest.param(
            cpu_metric(),
            "cpu resource utilization (percentage of request)",
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: E",
            "failed to get cpu resource metric value: ",
            id="Resource utilization",
        ),
        pytest.param(
            _RAW,
            "memory resource",
            "FailedGetResourceMetric",
            "failed to get memory usage: unable to get metrics for resource memory: E",
            "failed to get memory resource metric value: ",
            id="Resource average",
        ),
        pytest.param(
            _BOX,
            "memory container resource utilization (percentage of request)",
            "FailedGetContainerResourceMetric",
            "failed to get memory utilization: unable to get metrics for resource memory: E",
            "failed to get app container metric value: ",
            id="ContainerResource",
        ),
        pytest.param(
            pods_metric(),
            "pods metric load",
            "FailedGetPodsMetric",
            "unable to get metric load: E",
            "failed to get pods metric value: ",
            id="Pods",
        ),
        pytest.param(
            object_metric("Value", value="1"),
            "Ingress metric hits",
            "FailedGetObjectMetric",
            "unable to get metric hits: Ingress on default main/E",
            "failed to get object metric value: ",
            id="Object value",
        ),
        pytest.param(
            object_metric("AverageValue", averageValue="1"),
            "external metric hits(nil)",
            "FailedGetObjectMetric",
            "unable to get metric hits: Ingress on default main/E",
            "failed to get object metric value: failed to get hits object metric: ",
            id="Object average",
        ),
        pytest.param(
            _SELECTED,
            f"external metric queue({_Q})",
            "FailedGetExternalMetric",
            f"unable to get external metric default/queue/{_Q}: E",
            "failed to get queue external metric value: failed to get external metric queue: ",
            id="External value",
        ),
        pytest.param(
            external_metric(averageValue="1"),
            "external metric queue(nil)",
            "FailedGetExternalMetric",
            "unable to get external metric default/queue/nil: E",
            "failed to get queue external metric value: failed to get queue external metric: ",
            id="External average",
        ),
    ],
)
def test_texts(document: dict[str, Any], description: str, failure: str, error: str, aggregate: str) -> None:
    metric = _metric(document)

    assert metric.description == description
    assert metric.failure == failure
    assert metric.computing + metric.fetching + "E" == error
    assert metric.aggregate == aggregate
    assert metric.blank == ""


@pytest.mark.parametrize(
    ("document", "blank", "aggregate"),
    [
        pytest.param(
            object_metric("Value", averageValue="1"),
            "invalid object metric source: neither a value target nor an average value target was set",
            "failed to get object metric value: ",
            id="the type asks for the other target",
        ),
        pytest.param(
            object_metric("AverageValue", value="1"),
            "invalid object metric source: neither a value target nor an average value target was set",
            "failed to get object metric value: ",
            id="the other way round",
        ),
        pytest.param(
            object_metric("Utilization", value="1", averageValue="1"),
            "invalid object metric source: neither a value target nor an average value target was set",
            "failed to get object metric value: ",
            id="a type that no object has",
        ),
    ],
)
def test_what_cannot_be_computed_whatever_is_read(
    document: dict[str, Any], blank: str, aggregate: str
) -> None:
    metric = _metric(document)

    assert (metric.blank, metric.aggregate) == (blank, aggregate)


_LIKE = {"matchExpressions": [{"key": "a", "operator": "Like"}]}


@pytest.mark.parametrize(
    ("document", "source", "aggregate"),
    [
        (pods_metric(), "pods", "failed to get pods metric value: "),
        (object_metric("Value", value="1"), "object", "failed to get object metric value: "),
        (object_metric("AverageValue", averageValue="1"), "object", "failed to get object metric value: "),
        (object_metric("Value"), "object", "failed to get object metric value: "),
        (
            external_metric(value="1"),
            "external",
            "failed to get queue external metric value: failed to get external metric queue: ",
        ),
    ],
)
def test_a_selector_that_is_none(document: dict[str, Any], source: str, aggregate: str) -> None:
    document[source]["metric"]["selector"] = _LIKE

    metric = _metric(document)

    assert metric.blank == '"Like" is not a valid label selector operator'
    assert metric.aggregate == aggregate


@pytest.mark.parametrize(
    ("document", "proposal", "status"),
    [
        (
            cpu_metric(),
            Proposal(1, (), utilization=70, average=1500),
            (
                b'{"type":"Resource","resource":{"name":"cpu","current":{"averageValue":"1500m",'
                b'"averageUtilization":70}}}'
            ),
        ),
        (
            _RAW,
            Proposal(1, (), average=71_421_952_000),
            b'{"type":"Resource","resource":{"name":"memory","current":{"averageValue":"69748Ki"}}}',
        ),
        (
            _BOX,
            Proposal(1, (), utilization=7, average=71_421_952_333),
            (
                b'{"type":"ContainerResource","containerResource":{"name":"memory","container":"app",'
                b'"current":{"averageValue":"71421952333m","averageUtilization":7}}}'
            ),
        ),
        (
            pods_metric(),
            Proposal(1, (), average=0),
            b'{"type":"Pods","pods":{"metric":{"name":"load"},"current":{"averageValue":"0"}}}',
        ),
        (
            object_metric("Value", value="1"),
            Proposal(1, (), value=10**6),
            (
                b'{"type":"Object","object":{"metric":{"name":"hits"},"current":{"value":"1k"},'
                b'"describedObject":{"kind":"Ingress","name":"main","apiVersion":"networking.k8s.io/v1"}}}'
            ),
        ),
        (
            _SELECTED,
            Proposal(1, (), value=-(2**63)),
            (
                b'{"type":"External","external":{"metric":{"name":"queue",'
                b'"selector":{"matchLabels":{"q":"jobs"}}},'
                b'"current":{"value":"-9223372036854775808m"}}}'
            ),
        ),
    ],
)
def test_reports(document: dict[str, Any], proposal: Proposal, status: bytes) -> None:
    metric = _metric(document)

    reported: MetricStatus = metric.report(metric.current(proposal))

    assert msgspec.json.encode(reported, enc_hook=encode_scalar) == status


def test_limits_target_and_metrics_that_can_come_back_from_zero() -> None:
    plain = autoscaler([cpu_metric(), pods_metric()], minReplicas=2, maxReplicas=9)
    outer = autoscaler([object_metric("Value", value="1")])

    assert (plain.target, plain.limits, plain.has_outer_metric) == (
        "Deployment/default/web",
        ReplicaLimits(2, 9),
        False,
    )
    assert autoscaler([external_metric(value="1")]).has_outer_metric
    assert (outer.has_outer_metric, outer.limits.lowest, outer.up, outer.down) == (True, 1, None, None)


def test_a_minimum_that_was_not_defaulted() -> None:
    made = hpa([pods_metric()])
    bare = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, min_replicas=None))

    assert prepare(bare, Settings()).limits.lowest == 1


def test_rules_in_nanoseconds() -> None:
    settings = Settings(downscale_stabilization=90 * SECOND + SECOND // 2)

    scaler = autoscaler(
        [pods_metric()],
        settings,
        behavior={
            "scaleUp": {
                "stabilizationWindowSeconds": 15,
                "selectPolicy": "Min",
                "policies": [{"type": "Percent", "value": 5, "periodSeconds": 30}],
            }
        },
    )

    assert scaler.up == Rules(15 * SECOND, "Min", (Policy(percent=True, value=5, period=30 * SECOND),))
    assert scaler.down == Rules(90 * SECOND, "Max", (Policy(percent=True, value=100, period=15 * SECOND),))


@pytest.mark.parametrize(
    ("rules", "down", "up"),
    [
        ({}, 0.2, 0.2),
        ({"scaleUp": {"tolerance": "350m"}}, 0.2, 0.35000000000000003),
        ({"scaleDown": {"tolerance": "0"}}, 0.0, 0.2),
        ({"scaleUp": {"tolerance": "0.05"}, "scaleDown": {"tolerance": "1e400"}}, float("inf"), 0.05),
        ({"scaleUp": {"tolerance": "1e400"}}, 0.2, float("inf")),
    ],
)
def test_tolerances(rules: dict[str, Any], down: float, up: float) -> None:
    scaler = autoscaler([pods_metric()], Settings(tolerance=0.2), behavior=rules)

    assert scaler.band == band(down, up)
    assert scaler.band == (1.0 - down, 1.0 + up)


def test_tolerance_without_behavior_is_the_controllers() -> None:
    assert autoscaler([pods_metric()], Settings(tolerance=0.3)).band == (0.7, 1.3)
