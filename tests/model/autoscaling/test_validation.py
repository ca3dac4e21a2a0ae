import json
import re
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, decode_scalar
from adapter.model.autoscaling.validation import validate, validate_scale

_TYPES = '"ContainerResource", "External", "Object", "Pods", "Resource"'


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


_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


_REFUSED: list[tuple[Any, ...]] = [
    ("metadata.name", "", "Required value: name or generateName is required"),
    ("metadata.namespace", "", "Required value"),
    ("metadata.namespace", "a.b", 'Invalid value: "a.b": must not contain dots'),
    ("metadata.namespace", "A", f'Invalid value: "A": {_LABEL}'),
    (
        "metadata.namespace",
        "a" * 64,
        f'Invalid value: "{"a" * 64}": must be no more than 63 bytes',
    ),
    ("spec.minReplicas", -1, "Invalid value: -1: must be greater than or equal to 0"),
    (
        "spec.maxReplicas",
        0,
        "Invalid value: 0: must be greater than 0",
        "Invalid value: 0: must be greater than or equal to `minReplicas`",
    ),
    (
        "spec.minReplicas",
        11,
        "spec.maxReplicas: Invalid value: 10: must be greater than or equal to `minReplicas`",
    ),
    ("spec.scaleTargetRef.kind", "", "Required value"),
    ("spec.scaleTargetRef.name", "", "Required value"),
    ("spec.scaleTargetRef.name", "..", "Invalid value: \"..\": may not be '..'"),
    (
        "spec.scaleTargetRef.name",
        "a/b%c",
        "Invalid value: \"a/b%c\": may not contain '/'",
        "Invalid value: \"a/b%c\": may not contain '%'",
    ),
    ("spec.scaleTargetRef.apiVersion", "v1", 'Invalid value: "v1": apiVersion must specify API group'),
    ("spec.scaleTargetRef.apiVersion", "/v1", 'Invalid value: "/v1": apiVersion must specify API group'),
    (
        "spec.scaleTargetRef.apiVersion",
        "a/b/c",
        'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
    ),
    (
        "spec.metrics.0.type",
        "",
        "Required value: must specify a metric source type",
        f'Unsupported value: "": supported values: {_TYPES}',
    ),
    ("spec.metrics.0.type", "Cpu", f'Unsupported value: "Cpu": supported values: {_TYPES}'),
    (
        "spec.metrics.0.resource",
        None,
        "Required value: must populate information for the given metric source",
    ),
    ("spec.metrics.0.pods", _PODS["pods"], "Forbidden: must populate the given metric source only"),
    ("spec.metrics.0.resource.name", "", "Required value: must specify a resource name"),
    (
        "spec.metrics.0.resource.target",
        {"type": "Utilization"},
        ".averageUtilization: Required value: must set either a target raw value or a target utilization",
    ),
    (
        "spec.metrics.0.resource.target.averageValue",
        "1",
        "Forbidden: may not set both a target raw value and a target utilization",
    ),
    ("spec.metrics.0.resource.target.averageUtilization", 0, "Invalid value: 0: must be greater than 0"),
    (
        "spec.metrics.0.resource.target.type",
        "",
        "Required value: must specify a metric target type",
        'Invalid value: "": must be either Utilization, Value, or AverageValue',
    ),
    ("spec.metrics.1.containerResource.name", "", "Required value: must specify a resource name"),
    (
        "spec.metrics.1.containerResource.name",
        "pods",
        'Invalid value: "pods": must be a standard resource for containers',
    ),
    (
        "spec.metrics.1.containerResource.name",
        "requests.nvidia.com/gpu",
        'Invalid value: "requests.nvidia.com/gpu": doesn\'t follow extended resource name standard',
    ),
    ("spec.metrics.1.containerResource.container", "", "Required value: must specify a container"),
    ("spec.metrics.1.containerResource.container", "A", f'Invalid value: "A": {_LABEL}'),
    ("spec.metrics.2.pods.metric.name", "", "Required value: must specify a metric name"),
    ("spec.metrics.2.pods.metric.name", "a/b", "Invalid value: \"a/b\": may not contain '/'"),
    (
        "spec.metrics.2.pods.target.averageValue",
        None,
        "Required value: must specify a positive target averageValue",
    ),
    ("spec.metrics.2.pods.target.averageValue", "0", 'Invalid value: "0": must be positive'),
    (
        "spec.metrics.3.object.describedObject.apiVersion",
        "a/b/c",
        'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
    ),
    (
        "spec.metrics.3.object.target",
        {"type": "Value"},
        ".averageValue: Required value: must set either a target value or averageValue",
    ),
    (
        "spec.metrics.4.external.target",
        {"type": "Value"},
        ".averageValue: Required value: must set either a target value for metric or a per-pod target",
    ),
    (
        "spec.metrics.4.external.target.averageValue",
        "1",
        (
            "spec.metrics[4].external.target.value: Forbidden: may not set both a target value for metric "
            "and a per-pod target"
        ),
    ),
    ("spec.metrics.4.external.target.value", "-1.5", 'Invalid value: "-1500m": must be positive'),
    (
        "spec.behavior.scaleUp.stabilizationWindowSeconds",
        -1,
        "Invalid value: -1: must be greater than or equal to zero",
    ),
    (
        "spec.behavior.scaleDown.stabilizationWindowSeconds",
        3601,
        "Invalid value: 3601: must be less than or equal to 3600",
    ),
    (
        "spec.behavior.scaleUp.selectPolicy",
        "All",
        'Unsupported value: "All": supported values: "Disabled", "Max", "Min"',
    ),
    ("spec.behavior.scaleUp.policies", [], "Required value: must specify at least one Policy"),
    (
        "spec.behavior.scaleUp.tolerance",
        "-100m",
        'Invalid value: "-100m": must be greater than or equal to 0',
    ),
    (
        "spec.behavior.scaleUp.policies.0.type",
        "Nodes",
        'Unsupported value: "Nodes": supported values: "Percent", "Pods"',
    ),
    ("spec.behavior.scaleUp.policies.0.value", 0, "Invalid value: 0: must be greater than zero"),
    ("spec.behavior.scaleUp.policies.0.periodSeconds", 0, "Invalid value: 0: must be greater than zero"),
    (
        "spec.behavior.scaleUp.policies.0.periodSeconds",
        1801,
        "Invalid value: 1801: must be less than or equal to 1800",
    ),
    ("status.currentReplicas", -1, "Invalid value: -1: must be greater than or equal to 0"),
    ("status.desiredReplicas", -1, "Invalid value: -1: must be greater than or equal to 0"),
]
"""A place, a value, and the violations; a path is left out that is the place, or begins with it."""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [(path, value, said) for path, value, *said in _REFUSED],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_says_each_violation_with_its_path(path: str, value: object, said: list[str]) -> None:
    place = re.sub(r"\.(\d+)", r"[\1]", path)

    def whole(line: str) -> str:
        return line if line.startswith("spec.") else place + ("" if line.startswith(".") else ": ") + line

    assert _said(_changed(path, value)) == [whole(line) for line in said]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.minReplicas", 0),
        ("spec.maxReplicas", 2147483647),
        ("spec.scaleTargetRef", {"kind": "ReplicationController", "name": "web", "apiVersion": "v1"}),
        ("spec.metrics.1.containerResource.name", "memory"),
        ("spec.metrics.1.containerResource.name", "hugepages-2Mi"),
        ("spec.metrics.1.containerResource.name", "nvidia.com/gpu"),
        ("spec.metrics.1.containerResource.name", "kubernetes.io/thing"),
        ("spec.metrics.0.resource.target.type", "Value"),
        ("spec.metrics.3.object.describedObject.apiVersion", ""),
        ("spec.metrics.3.object.metric.selector", {"matchExpressions": [{"key": "a", "operator": "Like"}]}),
        ("spec.behavior.scaleUp.policies.0", {"type": "Percent", "value": 100000, "periodSeconds": 1800}),
        ("spec.behavior.scaleUp.selectPolicy", None),
        ("spec.behavior.scaleDown", None),
        ("spec.behavior", None),
        ("spec.minReplicas", None),
        ("status", None),
    ],
    ids=str,
)
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


def test_scale() -> None:
    assert validate_scale(Scale()) == []
    assert [str(each) for each in validate_scale(Scale(spec=ScaleSpec(-1)))] == [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
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
