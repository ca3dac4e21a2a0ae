"""The TARGETS column, in the words of the API server (`TestPrintHorizontalPodAutoscaler` of its printers)."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import (
    Condition,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
    MetricStatus,
    decode_scalar,
)
from adapter.model.autoscaling.status import Conditions, describe_targets, holds, same_status, without_hpa
from adapter.model.timestamps import Instant
from tests.support.scaling import NOW

BEFORE = Instant(5)


def _condition(kind: str, status: str = "True", reason: str = "Old", message: str = "x") -> Condition:
    return Condition(kind, status, reason, message, BEFORE)


def test_a_new_condition_goes_to_the_end() -> None:
    conditions = Conditions((_condition("A"),), NOW)

    conditions.set("AbleToScale", holds=True, reason="ReadyForNewScale")

    assert conditions.listed() == (
        _condition("A"),
        Condition("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size", NOW),
    )


def test_time_moves_with_the_status_alone() -> None:
    conditions = Conditions((_condition("A"), _condition("B", "False"), _condition("A", "False")), NOW)

    conditions.set("A", holds=True, reason="New", message="y")
    conditions.set("B", holds=True, reason="New", message="y")

    assert conditions.listed() == (
        Condition("A", "True", "New", "y", BEFORE),
        Condition("B", "True", "New", "y", NOW),
        _condition("A", "False"),
    )


def test_removes_all_of_a_type() -> None:
    conditions = Conditions((_condition("A"), _condition("B"), _condition("A")), NOW)

    conditions.remove("A")

    assert conditions.listed() == (_condition("B"),)


@pytest.mark.parametrize(
    ("message", "own"),
    [
        (
            "the HPA controller was able to update the target scale to 3",
            "the autoscaler was able to update the target scale to 3",
        ),
        (
            "the HPA was unable to compute the replica count: the HPA of web",
            "the autoscaler was unable to compute the replica count: the HPA of web",
        ),
        (
            "the HPA target's scale is missing a selector",
            "the autoscaler target's scale is missing a selector",
        ),
        ("recommended size matches current size", "recommended size matches current size"),
        ("target is also scaled by the HPA web", "target is also scaled by the HPA web"),
        ("the autoscaler scaled the workload to zero", "the autoscaler scaled the workload to zero"),
        ("", ""),
    ],
)
def test_the_subject_of_a_message(message: str, own: str) -> None:
    before = HorizontalPodAutoscalerStatus(current_replicas=2, conditions=(_condition("A", message=message),))

    after = without_hpa(before)

    assert after == HorizontalPodAutoscalerStatus(
        current_replicas=2, conditions=(_condition("A", message=own),)
    )


def test_a_status_without_conditions_has_no_subject() -> None:
    assert same_status(without_hpa(HorizontalPodAutoscalerStatus()), HorizontalPodAutoscalerStatus())


def test_the_first_of_a_type_tells() -> None:
    assert holds((_condition("B", "False"), _condition("A"), _condition("A", "False")), "A")
    assert not holds((_condition("A", "Unknown"),), "A")
    assert not holds((_condition("B"),), "A")
    assert not holds(None, "A")


@dataclass(frozen=True)
class _Pair:
    left: dict[str, Any]
    right: dict[str, Any]


def _status(document: dict[str, Any]) -> HorizontalPodAutoscalerStatus:
    return msgspec.convert(document, HorizontalPodAutoscalerStatus, dec_hook=decode_scalar)


def _metric(kind: str = "pods", **fields: Any) -> dict[str, Any]:
    return {"currentMetrics": [{"type": "Pods", kind: fields}]}


_SELECTOR = {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(_Pair({}, {"conditions": [], "currentMetrics": None}), id="absent and empty lists"),
        pytest.param(
            _Pair(_metric(current={"averageValue": "1"}), _metric(current={"averageValue": "1000m"})),
            id="quantities by number",
        ),
        pytest.param(
            _Pair(_metric(current={"averageValue": "1Ki"}), _metric(current={"averageValue": "1024"})),
            id="however spelled",
        ),
        pytest.param(
            _Pair(
                _metric(metric={"name": "m", "selector": {"matchLabels": {}}}),
                _metric(metric={"name": "m", "selector": {}}),
            ),
            id="selectors of nothing",
        ),
        pytest.param(
            _Pair(
                {"lastScaleTime": "2026-01-01T00:00:00Z"},
                {"lastScaleTime": "2026-01-01T01:00:00+01:00"},
            ),
            id="times by instant",
        ),
    ],
)
def test_says_the_same(pair: _Pair) -> None:
    assert same_status(_status(pair.left), _status(pair.right))


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(_Pair({}, {"currentReplicas": 1}), id="current replicas"),
        pytest.param(_Pair({}, {"desiredReplicas": 1}), id="desired replicas"),
        pytest.param(_Pair({}, {"observedGeneration": 1}), id="a generation that is dropped"),
        pytest.param(_Pair({}, {"lastScaleTime": "2026-01-01T00:00:00Z"}), id="time of scaling"),
        pytest.param(_Pair({}, {"conditions": [{"type": "A", "status": "True"}]}), id="a condition"),
        pytest.param(
            _Pair(
                {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
                {"conditions": [{"type": "B", "status": "True"}, {"type": "A", "status": "True"}]},
            ),
            id="their order",
        ),
        pytest.param(_Pair({}, {"currentMetrics": [{"type": ""}]}), id="a metric that failed"),
        pytest.param(
            _Pair(_metric(current={"averageValue": "1"}), _metric(current={"value": "1"})), id="another value"
        ),
        pytest.param(
            _Pair(_metric(current={"averageValue": "1"}), _metric(current={"averageValue": "1001m"})),
            id="a number",
        ),
        pytest.param(
            _Pair(_metric(current={"averageUtilization": 1}), _metric(current={"averageUtilization": 2})),
            id="utilization",
        ),
        pytest.param(_Pair(_metric(), _metric("external")), id="another source"),
        pytest.param(
            _Pair(_metric(metric={"name": "m"}), _metric(metric={"name": "m", "selector": {}})),
            id="a selector or none",
        ),
        pytest.param(
            _Pair(_metric(metric={"name": "m"}), _metric(metric={"name": "m", "selector": _SELECTOR})),
            id="a selector",
        ),
        pytest.param(
            _Pair(_metric("resource", name="cpu"), _metric("resource", name="memory")), id="a resource"
        ),
        pytest.param(
            _Pair(
                _metric("containerResource", name="cpu", container="a"),
                _metric("containerResource", name="cpu", container="b"),
            ),
            id="a container",
        ),
        pytest.param(
            _Pair(
                _metric("object", describedObject={"name": "a"}),
                _metric("object", describedObject={"name": "b"}),
            ),
            id="an object",
        ),
        pytest.param(
            _Pair(_metric("external", metric={"name": "a"}), _metric("external", metric={"name": "b"})),
            id="a name",
        ),
    ],
)
def test_says_something_else(pair: _Pair) -> None:
    assert not same_status(_status(pair.left), _status(pair.right))
    assert same_status(_status(pair.right), _status(pair.right))


def spec(kind: str, source: dict[str, Any], **target: Any) -> dict[str, Any]:
    field = kind[0].lower() + kind[1:]
    return {"type": kind, field: source | {"target": target}}


def status(kind: str, **current: Any) -> dict[str, Any]:
    return {"type": kind, kind[0].lower() + kind[1:]: {"current": current}}


NOTHING: dict[str, Any] = {"type": ""}
METRIC = {"metric": {"name": "some-metric"}}
CPU = {"name": "cpu"}
DESCRIBED = {**METRIC, "describedObject": {"kind": "Service", "name": "s"}}


@pytest.mark.parametrize(
    ("metrics", "statuses", "text"),
    [
        ([], [], "<none>"),
        ([spec("External", METRIC, averageValue="100")], [], "<unknown>/100 (avg)"),
        (
            [spec("External", METRIC, averageValue="100")],
            [status("External", averageValue="50")],
            "50/100 (avg)",
        ),
        ([spec("External", METRIC, value="100")], [NOTHING], "<unknown>/100"),
        ([spec("External", METRIC, value="100")], [status("External", value="50")], "50/100"),
        ([spec("Pods", METRIC, averageValue="100")], [], "<unknown>/100"),
        ([spec("Pods", METRIC, averageValue="100")], [status("Pods", averageValue="37999m")], "37999m/100"),
        ([spec("Object", DESCRIBED, value="100")], [], "<unknown>/100"),
        ([spec("Object", DESCRIBED, value="100")], [status("Object", value="50")], "50/100"),
        (
            [spec("Object", DESCRIBED, averageValue="100")],
            [status("Object", averageValue="50")],
            "50/100 (avg)",
        ),
        (
            [spec("Resource", CPU, averageValue="100m")],
            [status("Resource", averageValue="50m")],
            "cpu: 50m/100m",
        ),
        ([spec("Resource", CPU, averageUtilization=80)], [NOTHING], "cpu: <unknown>/80%"),
        (
            [spec("Resource", CPU, averageUtilization=80)],
            [status("Resource", averageUtilization=50)],
            "cpu: 50%/80%",
        ),
        ([spec("Resource", CPU)], [], "cpu: <unknown>/<auto>"),
        (
            [spec("ContainerResource", CPU | {"container": "app"}, averageUtilization=80)],
            [status("ContainerResource", averageUtilization=50)],
            "cpu: 50%/80%",
        ),
        ([spec("Pods", METRIC, value="1")], [], "<unknown>/<unknown>"),
        ([{"type": "Strange"}], [], "<unknown type>"),
        (
            [spec("Pods", METRIC, averageValue="10"), spec("Resource", CPU, averageUtilization=80)],
            [status("Pods", averageValue="20"), status("Resource", averageUtilization=50)],
            "20/10, cpu: 50%/80%",
        ),
        (
            [spec("Pods", METRIC, averageValue="10")] * 4,
            [status("Pods", averageValue="20")] * 4,
            "20/10, 20/10 + 2 more...",
        ),
        ([spec("Pods", METRIC, averageValue="10")], [status("External", averageValue="20")], "<unknown>/10"),
    ],
)
def test_the_text(metrics: list[Any], statuses: list[Any], text: str) -> None:
    specs = msgspec.convert(metrics, list[MetricSpec], dec_hook=decode_scalar)
    found = msgspec.convert(statuses, list[MetricStatus], dec_hook=decode_scalar)
    assert describe_targets(specs, found) == text
