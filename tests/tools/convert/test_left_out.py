"""What `fastpath convert` does not keep: all of it is named on standard error."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import thorough


def _hpa(*metrics: dict[str, Any], spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 50,
            "metrics": list(metrics),
        }
        | (spec or {}),
    }


def _pods(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "10"}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def _external(name: str, **labels: str) -> dict[str, Any]:
    metric = {"name": name} | ({"selector": {"matchLabels": labels}} if labels else {})
    target = {"type": "AverageValue", "averageValue": "30"}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def _scheduled() -> dict[str, Any]:
    source = {
        "describedObject": {"apiVersion": "zalando.org/v1", "kind": "ScalingSchedule", "name": "peak"},
        "metric": {"name": "peak"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }
    return {"type": "Object", "object": source}


def _scaled_object(**spec: Any) -> dict[str, Any]:
    cron = {"timezone": "UTC", "start": "0 8 * * *", "end": "0 18 * * *", "desiredReplicas": "7"}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "minReplicaCount": 2,
            "triggers": [{"type": "cron", "metadata": cron}],
        }
        | spec,
    }


_TEXT = st.from_regex(r"[a-z]{8}", fullmatch=True)
_COUNT = st.integers(10_000, 99_999)


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for name, below in tree.items():
            yield from _leaves(below, f"{path}.{name}" if path else name)
    elif isinstance(tree, list) and tree:
        for index, below in enumerate(tree):
            yield from _leaves(below, f"{path}[{index}]")
    else:
        yield path, tree


@st.composite
def _documents(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw two HPAs and a ScaledObject with values that occur once."""
    extra = st.dictionaries(_TEXT, _TEXT | _COUNT | st.lists(_COUNT, min_size=1, max_size=2), max_size=2)
    texts = st.dictionaries(_TEXT, _TEXT, max_size=2)

    def meta(own: dict[str, str]) -> dict[str, Any]:
        made = {"labels": draw(texts), "annotations": draw(texts) | own, "finalizers": [draw(_TEXT)]}
        return {name: made[name] for name in draw(st.lists(st.sampled_from(sorted(made)), unique=True))}

    behavior = {"scaleDown": {"policies": [{"type": "Pods", "value": draw(_COUNT), "periodSeconds": 60}]}}
    hpa = _hpa(
        _external(draw(_TEXT), **draw(texts)), spec={"maxReplicas": draw(_COUNT), "behavior": behavior}
    )
    hpa["metadata"] |= meta({"fastpath.io/hold": "45s", "autoscaling.alpha.kubernetes.io/x": draw(_TEXT)})
    hpa["metadata"]["name"] = "other"
    scaled = _scaled_object(
        fallback=draw(extra),
        advanced={"horizontalPodAutoscalerConfig": {"behavior": behavior} | draw(extra)} | draw(extra),
        **draw(extra),
    )
    scaled["metadata"] |= meta({"autoscaling.keda.sh/paused-scale-in": "true"})
    trigger = scaled["spec"]["triggers"][0]
    trigger |= {"name": draw(_TEXT), "authenticationRef": {"name": draw(_TEXT)}}
    trigger["metadata"] |= draw(extra)
    scaled["spec"]["triggers"].append({"type": draw(_TEXT), "metadata": draw(extra)})
    return [hpa, scaled, _hpa(_pods("rps"), _scheduled())]


_MEANT = {"start", "end", "value", "averageValue", "apiVersion", "kind", "type"}
"""Fields that others stand for: a test of their own says which."""


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=1000 if thorough.is_chosen() else 30,
)
@given(_documents())
def test_every_field_is_kept_or_named(convert: Any, trees: list[dict[str, Any]]) -> None:
    found = convert(*trees)
    assert found.status == 0
    said = "\n".join(found.report)
    kept = json.dumps(found.documents)
    for tree in trees:
        for path, value in _leaves(tree):
            if value in ({}, []):
                continue
            steps = path.split(".")
            names = [".".join(steps[:count]) for count in range(2, len(steps) + 1)]
            names += [steps[-1]] if path.startswith("spec.") else []
            is_named = any(f"{name}:" in said or f"{name} " in said for name in names)
            is_named |= "left out: metadata.finalizers" in said and "finalizers" in path
            is_kept = str(value) in kept or (path.startswith("metadata.annotations.") and path[21:] in said)
            last = steps[-1]
            assert is_kept or is_named or str(value) in said or last in _MEANT, (path, value, said)
