"""The TARGETS column, in the words of the API server (`TestPrintHorizontalPodAutoscaler` of its printers)."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling import hpa
from adapter.model.autoscaling.status import (
    Conditions,
    describe_targets,
    describe_value,
    holds,
    same_status,
    without_hpa,
)
from adapter.model.timestamps import Instant
from tests.support.answers import answers
from tests.support.scaling import NOW

BEFORE = Instant(5)


def _condition(kind: str, status: str = "True", reason: str = "Old", message: str = "x") -> hpa.Condition:
    return hpa.Condition(kind, status, reason, message, BEFORE)


def test_a_new_condition_goes_to_the_end() -> None:
    conditions = Conditions((_condition("A"),), NOW)

    conditions.set("AbleToScale", holds=True, reason="ReadyForNewScale")

    assert conditions.listed() == (
        _condition("A"),
        hpa.Condition(
            "AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size", NOW
        ),
    )


def test_time_moves_with_the_status_alone() -> None:
    conditions = Conditions((_condition("A"), _condition("B", "False"), _condition("A", "False")), NOW)

    conditions.set("A", holds=True, reason="New", message="y")
    conditions.set("B", holds=True, reason="New", message="y")

    assert conditions.listed() == (
        hpa.Condition("A", "True", "New", "y", BEFORE),
        hpa.Condition("B", "True", "New", "y", NOW),
        _condition("A", "False"),
    )


def test_removes_all_of_a_type() -> None:
    conditions = Conditions((_condition("A"), _condition("B"), _condition("A")), NOW)

    conditions.remove("A")

    assert conditions.listed() == (_condition("B"),)


@pytest.mark.parametrize(("message", "own"), answers("autoscaling/status", "subjects"))
def test_the_subject_of_a_message(message: str, own: str) -> None:
    before = hpa.HorizontalPodAutoscalerStatus(
        current_replicas=2, conditions=(_condition("A", message=message),)
    )

    after = without_hpa(before)

    assert after == hpa.HorizontalPodAutoscalerStatus(
        current_replicas=2, conditions=(_condition("A", message=own),)
    )


def test_a_status_without_conditions_has_no_subject() -> None:
    assert same_status(without_hpa(hpa.HorizontalPodAutoscalerStatus()), hpa.HorizontalPodAutoscalerStatus())


def test_the_first_of_a_type_tells() -> None:
    assert holds((_condition("B", "False"), _condition("A"), _condition("A", "False")), "A")
    assert not holds((_condition("A", "Unknown"),), "A")
    assert not holds((_condition("B"),), "A")
    assert not holds(None, "A")


def _status(document: dict[str, Any]) -> hpa.HorizontalPodAutoscalerStatus:
    return msgspec.convert(document, hpa.HorizontalPodAutoscalerStatus, dec_hook=hpa.decode_scalar)


@pytest.mark.parametrize(("left", "right"), answers("autoscaling/status", "the same"))
def test_says_the_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert same_status(_status(left), _status(right))


@pytest.mark.parametrize(("left", "right"), answers("autoscaling/status", "something else"))
def test_says_something_else(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert not same_status(_status(left), _status(right))
    assert same_status(_status(right), _status(right))


SOURCES: dict[str, Any] = {
    "Pods": {"metric": {"name": "some-metric"}},
    "External": {"metric": {"name": "some-metric"}},
    "Object": {"metric": {"name": "some-metric"}, "describedObject": {"kind": "Service", "name": "s"}},
    "Resource": {"name": "cpu"},
    "ContainerResource": {"name": "cpu", "container": "app"},
}


def spec(kind: str, **target: Any) -> dict[str, Any]:
    return {"type": kind, kind[0].lower() + kind[1:]: SOURCES[kind] | {"target": target}}


def status(kind: str, **current: Any) -> dict[str, Any]:
    return {"type": kind, kind[0].lower() + kind[1:]: {"current": current}}


@pytest.mark.parametrize(("kind", "target", "current", "text"), answers("autoscaling/status", "metric"))
def test_the_text_of_a_metric(kind: str, target: Any, current: Any, text: str) -> None:
    test_the_text_of_metrics([spec(kind, **target)], [status(kind, **current)], text)
    if not current:
        test_the_text_of_metrics([spec(kind, **target)], [], text)
        test_the_text_of_metrics([spec(kind, **target)], [{"type": ""}], text)


@pytest.mark.parametrize(("metrics", "statuses", "text"), answers("autoscaling/status", "metrics"))
def test_the_text_of_metrics(metrics: list[Any], statuses: list[Any], text: str) -> None:
    specs = msgspec.convert(metrics, list[hpa.MetricSpec], dec_hook=hpa.decode_scalar)
    found = msgspec.convert(statuses, list[hpa.MetricStatus], dec_hook=hpa.decode_scalar)
    assert describe_targets(specs, found) == text


@pytest.mark.parametrize(("kind", "target", "current", "value"), answers("autoscaling/status", "value"))
def test_the_value_of_a_metric(kind: str, target: Any, current: Any, value: list[object]) -> None:
    wanted = msgspec.convert(spec(kind, **target), hpa.MetricSpec, dec_hook=hpa.decode_scalar)
    measured = None if current is None else status(kind, **current)
    found = msgspec.convert(measured, hpa.MetricStatus | None, dec_hook=hpa.decode_scalar)
    assert list(describe_value(wanted, found)) == value
