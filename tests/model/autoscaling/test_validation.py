import json
import re
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar
from adapter.model.autoscaling.validation import validate
from tests.support.answers import answers

_VALID: dict[str, Any] = yaml.safe_load("""
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
  - type: ContainerResource
    containerResource: {name: cpu, container: app, target: {type: AverageValue, averageValue: "1"}}
  - {type: Pods, pods: {metric: {name: load}, target: {type: AverageValue, averageValue: "1"}}}
  - type: Object
    object:
      metric: {name: hits}
      describedObject: {kind: Ingress, name: main, apiVersion: networking.k8s.io/v1}
      target: {type: Value, value: "10", averageValue: "1"}
  - {type: External, external: {metric: {name: queue}, target: {type: Value, value: "1"}}}
  behavior:
    scaleUp:
      policies: [{type: Pods, value: 4, periodSeconds: 60}]
      stabilizationWindowSeconds: 0
      selectPolicy: Max
      tolerance: "0"
    scaleDown:
      policies: [{type: Pods, value: 4, periodSeconds: 60}]
      stabilizationWindowSeconds: 3600
      selectPolicy: Disabled
status: {currentReplicas: 0, desiredReplicas: 0}
""")
_CPU, _, _PODS, *_ = _VALID["spec"]["metrics"]


def _decode(document: dict[str, Any]) -> HorizontalPodAutoscaler:
    return msgspec.convert(document, HorizontalPodAutoscaler, dec_hook=decode_scalar)


def _changed(path: str, value: Any) -> dict[str, Any]:
    """Return the valid one with another value at a place; None removes what is there."""
    document: dict[str, Any] = json.loads(json.dumps(_VALID))
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    below: Any = document
    for step in way:
        below = below[step]
    if value is None:
        del below[last]
    else:
        below[last] = value
    return document


def _said(document: dict[str, Any], *, stored: bool = False) -> list[str]:
    return [str(violation) for violation in validate(_decode(document), stored=stored)]


def test_a_valid_one_is_valid() -> None:
    assert _said(_VALID) == []


@pytest.mark.parametrize(("path", "value", "said"), answers("autoscaling/validation", "refused"))
def test_says_each_violation_with_its_path(path: str, value: object, said: list[str]) -> None:
    place = re.sub(r"\.(\d+)", r"[\1]", path)

    def whole(line: str) -> str:
        return line if line.startswith("spec.") else place + ("" if line.startswith(".") else ": ") + line

    assert _said(_changed(path, value)) == [whole(line) for line in said]


@pytest.mark.parametrize(("path", "value"), answers("autoscaling/validation", "allowed"))
def test_allows(path: str, value: object) -> None:
    assert _said(_changed(path, value)) == []


def test_a_bad_name_is_told_with_its_rule() -> None:
    said = _said(_changed("metadata.name", "Web"))

    assert len(said) == 1
    assert said[0].startswith(
        'metadata.name: Invalid value: "Web": a lowercase RFC 1123 subdomain must consist of'
    )
    said = _said(_changed("spec.metrics.1.containerResource.name", "-"))
    assert said[0].startswith(
        'spec.metrics[1].containerResource.name: Invalid value: "-": name part must consist of'
    )


def test_only_the_first_of_several_sources_is_looked_into() -> None:
    document = _changed(
        "spec.metrics.0.external", {"metric": {"name": ""}, "target": {"type": "Value", "value": "1"}}
    )

    assert _said(document) == [
        "spec.metrics[0].external.metric.name: Required value: must specify a metric name",
        "spec.metrics[0].external: Forbidden: must populate the given metric source only",
    ]


def test_zero_replicas_need_a_metric_that_can_bring_them_back() -> None:
    document = _changed("spec.metrics", [_CPU])
    document["spec"]["minReplicas"] = 0

    assert _said(document) == [
        (
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling "
            "to zero replicas"
        )
    ]
    assert _said(document, stored=True) == []


def test_what_is_stored_may_name_no_group() -> None:
    assert _said(_changed("spec.scaleTargetRef.apiVersion", ""), stored=True) == []


def test_nothing_at_all_is_told_whole() -> None:
    assert [violation.path for violation in validate(HorizontalPodAutoscaler())] == [
        "metadata.name",
        "metadata.namespace",
        "spec.maxReplicas",
        "spec.scaleTargetRef.kind",
        "spec.scaleTargetRef.name",
        "spec.scaleTargetRef.apiVersion",
    ]


@given(st.data())
def test_any_names_are_judged(data: st.DataObject) -> None:
    document = json.loads(json.dumps(_VALID))
    document["metadata"]["name"] = data.draw(st.text(max_size=8))
    document["spec"]["scaleTargetRef"]["kind"] = data.draw(st.text(max_size=4))
    document["spec"]["metrics"][1]["containerResource"]["name"] = data.draw(st.text(max_size=4))

    for violation in validate(_decode(document)):
        assert violation.path
        assert str(violation).startswith(f"{violation.path}: {violation.problem}")
