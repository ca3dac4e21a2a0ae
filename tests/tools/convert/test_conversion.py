"""Conversion between the two kinds of autoscalers: what is kept, what is left out and named."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InputError
from adapter.model.autoscaling import documents
from adapter.model.autoscaling.fastpath_autoscaler import OWN_FIELDS
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost import boost_patch as patch
from fastpath_tools.boost.boost_patch import Wish
from fastpath_tools.convert import conversion
from fastpath_tools.convert.conversion import Converted

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
PODS: dict[str, Any] = {
    "type": "Pods",
    "pods": {"metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}},
}
EXTERNAL: dict[str, Any] = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "web"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
OBJECT: dict[str, Any] = {
    "type": "Object",
    "object": {
        "describedObject": {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "web"},
        "metric": {"name": "fastpath_replicas"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
MISPLACED: dict[str, Any] = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "fastpath_replicas"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}


def hpa(*metrics: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", **({"annotations": annotations} if annotations else {})},
        "spec": {
            "scaleTargetRef": TARGET,
            "maxReplicas": 5,
            **({"metrics": list(metrics)} if metrics else {}),
            **spec,
        },
    }


def fpa(*metrics: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "fastpath.io/v1alpha1", "kind": "FastPathAutoscaler"}
    return hpa(*metrics, annotations=annotations, **spec) | kind


def names(converted: Converted) -> list[str]:
    """Return the names of the metrics."""
    return [
        (each.get("external") or each.get("object") or each["pods"])["metric"]["name"]
        for each in converted.document["spec"].get("metrics", ())
    ]


@pytest.mark.parametrize("handshake", [EXTERNAL, OBJECT, MISPLACED], ids=["external", "object", "misplaced"])
@pytest.mark.parametrize("made", [hpa, fpa])
def test_the_metric_of_boost_is_left_out_and_named(made: Any, handshake: dict[str, Any]) -> None:
    converted = conversion.to_fastpath(made(PODS, handshake, QUEUE))
    assert names(converted) == ["requests", "queue"]
    assert converted.notes == (
        "left out, only a boosted HorizontalPodAutoscaler has it: metric fastpath_replicas",
    )


def test_the_annotations_of_boost_are_left_out_and_named() -> None:
    annotations = {"team": "shop", "fastpath.io/mode": "boost", "fastpath.io/hold": "45s"}
    converted = conversion.to_fastpath(hpa(PODS, EXTERNAL, annotations=annotations))
    assert converted.document["metadata"] == {"name": "web", "annotations": {"team": "shop"}}
    assert converted.notes[1:] == ("left out: annotation fastpath.io/mode, fastpath.io/hold",)


def test_without_another_metric_the_default_of_the_api_applies() -> None:
    converted = conversion.to_fastpath(hpa(EXTERNAL))
    assert "metrics" not in converted.document["spec"]
    assert converted.notes[1:] == ("it has no other metric, so the API's default applies: cpu at 80 %",)


def test_a_minimum_of_zero_may_not_rest_on_the_metric_of_boost() -> None:
    with pytest.raises(InputError, match="at least one Object or External metric"):
        conversion.to_fastpath(hpa(PODS, EXTERNAL, minReplicas=0))
    with pytest.raises(InputError, match="at least one Object or External metric"):
        conversion.to_native(fpa(PODS, EXTERNAL, minReplicas=0))
    assert names(conversion.to_fastpath(hpa(QUEUE, EXTERNAL, minReplicas=0))) == ["queue"]


@given(
    metrics=st.lists(st.sampled_from([PODS, QUEUE]), min_size=1, max_size=3),
    mode=st.sampled_from(["boost", "advise"]),
    way=st.sampled_from(["external", "object"]),
    behavior=st.booleans(),
)
def test_what_boost_adds_makes_no_difference(
    metrics: list[Any], mode: str, way: str, *, behavior: bool
) -> None:
    """Converting a boosted autoscaler gives what converting it before gave."""
    spec: dict[str, Any] = {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}} if behavior else {}
    plain = hpa(*metrics, **spec)
    planned = patch.plan(plain, Wish(mode, way if mode == "boost" else ""))
    boosted = boost_patch.apply(copy.deepcopy(plain), planned.operations)
    assert boosted != plain
    assert conversion.to_fastpath(boosted).document == conversion.to_fastpath(plain).document


# -- the way back


def test_what_both_kinds_have_is_kept() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}}
    converted = conversion.to_native(fpa(PODS, QUEUE, minReplicas=2, behavior=behavior))
    assert (converted.document["apiVersion"], converted.document["kind"]) == (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
    )
    assert converted.document["spec"].keys() == {
        "scaleTargetRef",
        "minReplicas",
        "maxReplicas",
        "metrics",
        "behavior",
    }
    assert converted.document["metadata"] == {"name": "web"}
    assert converted.notes == ()


def test_each_field_that_only_one_kind_has_is_named() -> None:
    fallback = {"type": "Floor", "replicas": 3}
    converted = conversion.to_native(fpa(PODS, syncPeriod="1s", mode="Auto", fallback=fallback))
    assert converted.document["spec"].keys() == {"scaleTargetRef", "maxReplicas", "metrics"}
    assert converted.notes == (
        (
            'left out, a HorizontalPodAutoscaler does not have it: spec.syncPeriod: "1s", spec.mode: "Auto", '
            'spec.fallback: {"type": "Floor", "replicas": 3}'
        ),
    )


@pytest.mark.parametrize(("mode", "done"), [("Paused", "did nothing"), ("Advise", "only advised")])
def test_one_that_did_not_scale_is_a_warning(mode: str, done: str) -> None:
    notes = conversion.to_native(fpa(PODS, mode=mode)).notes
    assert (
        notes[1]
        == f"the FastPathAutoscaler {done}, and the HorizontalPodAutoscaler scales as soon as it is applied"
    )


def test_what_the_cluster_may_not_accept_is_named() -> None:
    behavior = {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"selectPolicy": "Max"}}
    assert conversion.to_native(fpa(QUEUE, minReplicas=0, behavior=behavior)).notes == (
        "spec.minReplicas 0 needs the feature gate HPAScaleToZero of the cluster",
        (
            "spec.behavior.scaleUp.tolerance needs Kubernetes 1.35, or the feature gate "
            "HPAConfigurableTolerance of the cluster"
        ),
    )


def test_an_annotation_that_would_boost_it_is_left_out_and_named() -> None:
    converted = conversion.to_native(fpa(PODS, EXTERNAL, annotations={"fastpath.io/mode": "boost"}))
    assert names(converted) == ["requests"]
    assert converted.document["metadata"] == {"name": "web"}
    assert converted.notes == (
        "left out, only a boosted HorizontalPodAutoscaler has it: metric fastpath_replicas",
        "left out: annotation fastpath.io/mode",
    )


@pytest.mark.parametrize("convert", [conversion.to_fastpath, conversion.to_native])
def test_what_is_wrong_is_refused(convert: Any) -> None:
    with pytest.raises(InputError, match="maxReplicas"):
        convert(fpa(PODS, maxReplicas=0))


def _reads_as(document: Any) -> Any:
    return documents.read_document(_listed(document), "shop").spec


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(below) for name, below in value.items()}
    return [_listed(below) for below in value] if isinstance(value, tuple | list) else value


@given(
    st.lists(st.sampled_from([PODS, QUEUE]), max_size=3),
    st.dictionaries(st.sampled_from(["minReplicas", "maxReplicas"]), st.integers(1, 9)),
)
def test_there_and_back_is_where_it_began(metrics: list[Any], spec: dict[str, Any]) -> None:
    before = hpa(*metrics, **{"maxReplicas": 9, **spec, "minReplicas": 1})
    there = conversion.to_fastpath(before)
    back = conversion.to_native(_listed(there.document))
    assert (there.notes, back.notes) == ((), ())
    assert back.document["kind"] == "HorizontalPodAutoscaler"
    assert _reads_as(back.document) == _reads_as(before)


def test_the_guide_names_each_field_that_goes_back_to_no_field() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "fast-scaler.md").read_text()
    listed = text.partition("It leaves out ")[2].partition("and Fastpath's annotations")[0]
    assert re.findall("`([a-zA-Z]+)`", listed) == list(OWN_FIELDS)
