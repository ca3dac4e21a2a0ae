"""What `fastpath convert` does not keep: all of it is named on standard error."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SERVED = "; a metric without a value blocks every scale-down"


def _hpa(*metrics: dict[str, Any], spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"} | meta,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 50,
            "metrics": list(metrics or (_pods("rps"),)),
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


def _scheduled(name: str = "peak") -> dict[str, Any]:
    source = {
        "describedObject": {"apiVersion": "zalando.org/v1", "kind": "ScalingSchedule", "name": name},
        "metric": {"name": name},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }
    return {"type": "Object", "object": source}


def _scaled_object(replicas: str = "5", *, meta: Any = None, **spec: Any) -> dict[str, Any]:
    cron = {"timezone": "UTC", "start": "0 8 * * *", "end": "0 18 * * *", "desiredReplicas": replicas}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"} | (meta or {}),
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "minReplicaCount": 2,
            "triggers": [{"type": "cron", "metadata": cron}],
        }
        | spec,
    }


def _paused(**annotations: str) -> dict[str, Any]:
    named = {f"autoscaling.keda.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return {"annotations": named}


# -- metrics and owners of other projects


def test_the_metric_of_a_scaling_schedule_is_named(convert: Any) -> None:
    found = convert(_hpa(_pods("rps"), _scheduled("other")))
    assert len(found.documents[0]["spec"]["metrics"]) == 2
    assert found.report[0] == (
        "kube-metrics-adapter serves the metric of ScalingSchedule other as long as the "
        "HorizontalPodAutoscaler exists: write a FastPathSchedule in its place, and remove the "
        f"metric{SERVED}"
    )


def test_metrics_that_end_with_the_hpa_are_named(convert: Any) -> None:
    name = "metric-config.pods.rps.json-path/json-key"
    found = convert(_hpa(annotations={name: "$.rps", "team": "shop"}))
    assert found.status == 0
    assert found.documents[0]["metadata"]["annotations"] == {name: "$.rps", "team": "shop"}
    served = f"kube-metrics-adapter serves the metrics of annotation {name} as long as"
    rule = "give each a rule of Fastpath before it is deleted"
    assert found.report == [f"{served} the HorizontalPodAutoscaler exists: {rule}{SERVED}"]


@pytest.mark.parametrize(
    "metric", [_external("s0-prometheus"), _external("queue", **{"scaledobject.keda.sh/name": "web"})]
)
def test_metrics_of_keda_are_named(convert: Any, metric: dict[str, Any]) -> None:
    name = metric["external"]["metric"]["name"]
    rule = "give each a rule of Fastpath before that is deleted"
    said = f"KEDA serves metric {name} as long as its ScaledObject exists: {rule}{SERVED}"
    assert convert(_hpa(metric)).report == [said]


@pytest.mark.parametrize(
    ("meta", "owner"),
    [
        ({"labels": {"scaledobject.keda.sh/name": "web"}}, "the ScaledObject web"),
        (
            {"ownerReferences": [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "a"}]},
            "the ScaledObject a",
        ),
        (
            {"ownerReferences": [{"apiVersion": "x/v1", "kind": "App", "name": "a", "controller": True}]},
            "the App a",
        ),
    ],
)
def test_an_owner_makes_the_hpa_again(convert: Any, meta: dict[str, Any], owner: str) -> None:
    assert convert(_hpa(**meta)).report[-1] == (
        f"it belongs to {owner}, whose controller makes the HorizontalPodAutoscaler again: delete {owner}, "
        "or end its control, before you apply the FastPathAutoscaler"
    )
    boosted = convert(_hpa(**meta), verb=("boost",))
    assert boosted.status == 0
    assert len(boosted.report) == 2, "the last one is about all"
    assert f"it belongs to {owner}, " in boosted.report[0]
    assert convert(_hpa(**meta), verb=("boost", "--remove")).report == []


def test_an_object_that_only_refers_to_another_is_not_owned_by_it(convert: Any) -> None:
    found = convert(_hpa(ownerReferences=[{"apiVersion": "v1", "kind": "App", "name": "a"}, 3]))
    assert found.report == ["left out: metadata.ownerReferences"]
    assert "belongs" not in convert(_hpa(ownerReferences=7), verb=("boost",)).err


# -- boosted HPAs


def test_options_of_boost_become_fields(convert: Any) -> None:
    annotations = {
        "fastpath.io/mode": "boost",
        "fastpath.io/forecast": "mode=Floor,timeZone=Europe/Berlin",
        "fastpath.io/pending-capacity": "jobs=2",
    }
    found = convert(_hpa(_external("jobs"), annotations=annotations))
    spec = found.documents[0]["spec"]
    assert spec["forecast"] == {"mode": "Floor", "timeZone": "Europe/Berlin"}
    assert spec["pendingCapacity"] == [{"metric": "jobs", "podThroughput": "2"}]
    assert found.report == [
        "annotation fastpath.io/pending-capacity becomes spec.pendingCapacity",
        "annotation fastpath.io/forecast becomes spec.forecast",
        "left out: annotation fastpath.io/mode",
    ]


def test_faulty_options_of_boost_are_named(convert: Any) -> None:
    annotations = {
        "fastpath.io/forecast": "mode=Floor,timeZone=Mars/X",
        "fastpath.io/pending-capacity": "x=2",
    }
    found = convert(_hpa(annotations=annotations))
    assert not {"forecast", "pendingCapacity"} & set(found.documents[0]["spec"])
    assert [line.split(": ")[0] for line in found.report] == [
        "annotation fastpath.io/pending-capacity",
        "annotation fastpath.io/forecast",
        "left out",
    ]


# -- ScaledObjects


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (_paused(paused_replicas="3"), "autoscaling.keda.sh/paused-replicas keeps it at 3 replicas"),
        (_paused(paused="true"), "autoscaling.keda.sh/paused keeps its count"),
        (_paused(paused=""), "autoscaling.keda.sh/paused keeps its count"),
    ],
)
def test_a_paused_target_gets_no_floor(convert: Any, meta: dict[str, Any], said: str) -> None:
    found = convert(_scaled_object(meta=meta), _hpa())
    assert [each["kind"] for each in found.documents] == ["FastPathAutoscaler"]
    left = f"left out: {said}, which a floor would change: convert it without the annotation"
    assert (found.status, found.report) == (0, [left])
    assert convert(_scaled_object(meta=meta)).status == 2


def test_a_target_that_is_paused_no_more_gets_a_floor(convert: Any) -> None:
    found = convert(_scaled_object(meta=_paused(paused="false")))
    assert [each["kind"] for each in found.documents] == ["FastPathSchedule"]


def test_what_the_autoscaler_needs_is_named(convert: Any) -> None:
    behavior = {"scaleDown": {"policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]}}
    advanced = {
        "horizontalPodAutoscalerConfig": {"name": "own", "behavior": behavior},
        "restoreToOriginalReplicaCount": True,
    }
    fallback = {"failureThreshold": 3, "replicas": 6}
    found = convert(
        _scaled_object(
            meta=_paused(paused_scale_in="true"),
            advanced=advanced,
            fallback=fallback,
            cooldownPeriod=60,
            pollingInterval=30,
        )
    )
    assert found.report[1] == "cooldownPeriod 60 has no effect: KEDA never scales it to zero"
    assert found.report[3:] == [
        (
            "annotation autoscaling.keda.sh/paused-scale-in: the autoscaler needs "
            "spec.behavior.scaleDown.selectPolicy: Disabled"
        ),
        (
            "spec.advanced.horizontalPodAutoscalerConfig.behavior: the autoscaler needs spec.behavior: "
            f"{json.dumps(behavior)}"
        ),
        (
            f"spec.fallback: {json.dumps(fallback)}: the autoscaler needs spec.fallback of type Floor with "
            "these replicas, and scales nothing down while a metric is absent"
        ),
        (
            "spec.advanced.restoreToOriginalReplicaCount: KEDA sets the count back when it is deleted: set "
            "it to false before that"
        ),
        'left out: spec.advanced.horizontalPodAutoscalerConfig.name: "own", spec.pollingInterval: 30',
    ]


@pytest.mark.parametrize(
    ("desired", "most", "said"),
    [
        ("50", 10, ["50 replicas are desired, and KEDA stops at maxReplicaCount, 10"]),
        (
            "88",
            85,
            [
                "KEDA leaves 80 to 84 replicas at that count where 88 are desired",
                "88 replicas are desired, and KEDA stops at maxReplicaCount, 85",
            ],
        ),
        ("88", 90, ["KEDA leaves 80 to 87 replicas at that count where 88 are desired"]),
    ],
)
def test_keda_stops_at_the_largest_count(convert: Any, desired: str, most: int, said: list[str]) -> None:
    found = convert(_scaled_object(desired, maxReplicaCount=most))
    notes = [line for line in found.report if "are desired" in line]
    assert [line.startswith(begin) for line, begin in zip(notes, said, strict=True)] == [True] * len(said)


# -- all fields

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
        "7",
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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
