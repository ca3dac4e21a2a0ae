from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapter.errors import InputError
from adapter.model.autoscaling import documents
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
    PastChange,
    from_hpa,
    full_status,
    native,
    plain_status,
    refused,
    status_to_plain,
    validate,
    with_defaults,
)
from adapter.model.autoscaling.hpa import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    HPAScalingPolicy,
    to_plain,
)
from adapter.model.objects.api_objects import Metadata, ObjectMeta
from adapter.model.timestamps import SECOND, FineInstant, Instant
from fastpath_tools import manifests
from tests.support import scaling
from tests.support.answers import answers


def _document(kind: str = "FastPathAutoscaler", **spec: Any) -> dict[str, Any]:
    meta = {"labels": {"app": "web"}, "uid": "1", "generation": 2}
    return scaling.document((), meta, kind=kind, **{"maxReplicas": 5} | spec)


def _read(**spec: Any) -> FastPathAutoscaler:
    return documents.read_document(_document(**spec))


def test_defaults() -> None:
    spec = _read().spec
    assert (spec.sync_period, spec.mode, spec.fallback) == (SECOND, "Auto", None)
    fallback = _read(fallback={"type": "Hold"}).spec.fallback
    assert fallback is not None
    assert fallback.after == 60 * SECOND


def test_decisions_are_made_with_a_behavior() -> None:
    read = _read(mode="Advise")
    spec = with_defaults(read).spec
    assert with_defaults(read) == replace(read, spec=spec)
    assert (spec.min_replicas, spec.mode) == (1, "Advise")
    assert spec.metrics is not None
    behavior = spec.behavior
    assert behavior is not None
    assert behavior.scale_up is not None
    assert behavior.scale_up.policies == (
        HPAScalingPolicy("Pods", 4, 15),
        HPAScalingPolicy("Percent", 100, 15),
    )
    assert behavior.scale_down is not None
    assert behavior.scale_down.stabilization_window_seconds is None


def test_the_hpa_with_the_same_spec_has_no_field_of_ours() -> None:
    hpa = native(_read(mode="Advise", syncPeriod="5s", minReplicas=2))
    assert type(hpa.spec) is HorizontalPodAutoscalerSpec
    assert (hpa.kind, hpa.metadata.name, hpa.status) == ("HorizontalPodAutoscaler", "web", None)
    assert (hpa.spec.min_replicas, hpa.spec.behavior) == (2, None)


def test_a_status_is_that_of_an_hpa_and_more() -> None:
    status = HorizontalPodAutoscalerStatus(current_replicas=2)
    changes = (PastChange(1, FineInstant(5)),)
    full = full_status(status, changes, "1/2")
    assert (full.current_replicas, full.recent_changes, full.targets) == (2, changes, "1/2")
    assert plain_status(full) == status
    assert type(plain_status(full)) is HorizontalPodAutoscalerStatus


def test_a_behavior_that_is_there_is_kept() -> None:
    behavior = with_defaults(_read(behavior={"scaleDown": {"selectPolicy": "Disabled"}})).spec.behavior
    assert behavior is not None
    assert behavior.scale_down is not None
    assert behavior.scale_down.select_policy == "Disabled"


def test_from_a_hpa() -> None:
    read = documents.read_document(_document("HorizontalPodAutoscaler", minReplicas=2))
    assert read.kind == "FastPathAutoscaler"
    assert read.metadata == Metadata("web", "shop", labels={"app": "web"})
    assert (read.spec.min_replicas, read.spec.sync_period) == (2, SECOND)
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "fastpath.io/mode": "advise"}
    annotations["team"] = "shop"
    hpa = HorizontalPodAutoscaler(metadata=Metadata("web", "shop", "u", "1", 2, None, annotations))
    assert from_hpa(hpa).metadata == Metadata("web", "shop", annotations={"team": "shop"})
    plain = from_hpa(
        HorizontalPodAutoscaler(metadata=ObjectMeta("web", "shop"), status=HorizontalPodAutoscalerStatus())
    )
    assert (plain.metadata, plain.status) == (Metadata("web", "shop"), None)
    assert native(from_hpa(native(read))) == native(read)


def test_it_is_written_as_it_is_read() -> None:
    spec = {
        "syncPeriod": "500ms",
        "mode": "Advise",
        "minReplicas": 0,
        "fallback": {"type": "LastGood", "after": "2m0s", "lastGoodFor": "10m0s"},
    }
    metric = {"name": "queue", "selector": {"matchLabels": {"q": "a"}}}
    source = {"metric": metric, "target": {"type": "Value", "value": "1500m"}}
    read = _read(metrics=[{"type": "External", "external": source}], **spec)
    written = {"apiVersion": read.api_version, "kind": read.kind} | to_plain(read)
    written["spec"]["metrics"] = list(written["spec"]["metrics"])
    assert documents.read_document(written) == read
    assert written["spec"]["fallback"] == spec["fallback"]
    assert written["spec"]["syncPeriod"] == "500ms"


def test_a_status_as_it_is_written() -> None:
    status = HorizontalPodAutoscalerStatus(last_scale_time=Instant(1_700_000_000_999_999_999))
    assert status_to_plain(full_status(status, [])) == {
        "currentReplicas": 0,
        "desiredReplicas": 0,
        "lastScaleTime": "2023-11-14T22:13:20Z",
    }
    changes = [PastChange(-2, FineInstant(1_700_000_000_000_000_001))]
    assert status_to_plain(full_status(HorizontalPodAutoscalerStatus(desired_replicas=3), changes)) == {
        "currentReplicas": 0,
        "desiredReplicas": 3,
        "recentChanges": ({"change": -2, "time": "2023-11-14T22:13:20.000000001Z"},),
    }


def _faults(document: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        documents.read_document(document)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(("spec", "fault"), answers("autoscaling/fastpath_autoscaler", "refused"))
def test_refused_specs(spec: dict[str, Any], fault: str) -> None:
    assert fault in _faults(_document(**spec))


def test_faults_are_told_together() -> None:
    document = _document(maxReplica=3, maxReplicas=0, syncPeriod="0s")
    document["metadata"]["nam"] = "x"
    document["spce"] = {}
    assert [fault.partition(":")[0] for fault in _faults(document)] == [
        "spce",
        "metadata.nam",
        "spec.maxReplica",
        "spec.maxReplicas",
        "spec.maxReplicas",
        "spec.syncPeriod",
    ]


@pytest.mark.parametrize(("document", "fault"), answers("autoscaling/fastpath_autoscaler", "other documents"))
def test_other_documents(document: Any, fault: str) -> None:
    assert _faults(document) == [fault]


def test_null_is_absence_and_status_is_not_read() -> None:
    read = documents.read_document(_document(mode=None, metrics=None, fallback=None) | {"status": {"odd": 1}})
    assert (read.spec.mode, read.spec.metrics, read.status) == ("Auto", None, None)
    nothing = _faults(
        {"apiVersion": "fastpath.io/v1alpha1", "kind": "FastPathAutoscaler", "metadata": None, "spec": None}
    )
    assert "metadata.name: Required value: name or generateName is required" in nothing


def test_a_namespace_of_its_own_wins() -> None:
    bare = _document()
    del bare["metadata"]["namespace"]
    assert documents.read_document(bare, "here").metadata.namespace == "here"
    assert documents.read_document(_document(), "here").metadata.namespace == "shop"


def test_lists() -> None:
    one, other = _document(), _document("HorizontalPodAutoscaler")
    assert list(manifests.documents_in({"kind": "List", "items": [one, other]})) == [
        ("items[0].", one),
        ("items[1].", other),
    ]
    assert list(manifests.documents_in(one)) == [("", one)]
    assert list(manifests.documents_in({"kind": "List"})) == [("", {"kind": "List"})]
    assert documents.kind_of(one) == "FastPathAutoscaler"
    odd: list[object] = [[], {"kind": "Pod"}, {"kind": []}]
    assert [documents.kind_of(tree) for tree in odd] == ["", "", ""]


def test_objects_of_the_api_server() -> None:
    text = b"""{"apiVersion": "fastpath.io/v1alpha1", "kind": "FastPathAutoscaler", "later": 1,
        "metadata": {
          "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "managedFields": []
        },
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"},
          "maxReplicas": 3, "syncPeriod": "2s", "later": {}}}"""
    read = documents.decode_object(text)
    assert read.metadata == Metadata("web", "shop", "u", "7")
    assert (read.spec.sync_period, read.spec.max_replicas) == (2 * SECOND, 3)
    assert validate(read)[0].path == "spec.scaleTargetRef.apiVersion"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"{", "not JSON: Input data was truncated"),
        (b'{"spec": {"maxReplicas": "x"}}', 'spec.maxReplicas: "x": expected an integer, got text'),
        (b'{"spec": {"syncPeriod": "x"}}', 'spec.syncPeriod: "x": time: invalid duration "x"'),
    ],
)
def test_objects_of_another_form(text: bytes, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        documents.decode_object(text)
    assert [str(each) for each in caught.value.faults] == [fault]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)
_FIELDS = ["scaleTargetRef", "minReplicas", "metrics", "behavior", "syncPeriod", "mode", "fallback"]


@given(_JSON)
def test_any_document_is_read_or_refused(document: Any) -> None:
    with pytest.raises(InputError):
        documents.read_document(document)


@given(
    st.sampled_from(["FastPathAutoscaler", "HorizontalPodAutoscaler"]),
    st.dictionaries(st.sampled_from(_FIELDS), _JSON),
    _JSON,
)
def test_any_field_is_read_or_refused(kind: str, spec: dict[str, Any], meta: Any) -> None:
    document = _document(kind, **spec)
    document["metadata"] = meta or document["metadata"]
    try:
        read = documents.read_document(document)
    except InputError:
        return
    assert validate(read) == []


_HUGE = "9223372036854775808m"
_DESCRIBED = {"apiVersion": "v1", "kind": "Service", "name": "web"}
_SOURCES: dict[str, dict[str, Any]] = {
    "pods": {"metric": {"name": "m"}},
    "object": {"metric": {"name": "m"}, "describedObject": _DESCRIBED},
    "external": {"metric": {"name": "m"}},
    "resource": {"name": "cpu"},
    "containerResource": {"name": "cpu", "container": "main"},
}


@pytest.mark.parametrize("kind", ["FastPathAutoscaler", "HorizontalPodAutoscaler"])
@pytest.mark.parametrize("source", _SOURCES)
def test_a_target_has_thousandths(kind: str, source: str) -> None:
    """The controller decides with what is left of a larger target in 64 bits."""
    name = source[0].upper() + source[1:]

    def document(number: str, field: str = "averageValue") -> dict[str, Any]:
        kept = "Value" if field == "value" else "AverageValue"
        below = _SOURCES[source] | {"target": {"type": kept, field: number}}
        return _document(kind, metrics=[{"type": name, source: below}])

    assert documents.read_document(document("9223372036854775807m")).spec.metrics
    fields = ("averageValue", "value") if source in {"object", "external"} else ("averageValue",)
    for field in fields:
        with pytest.raises(InputError) as caught:
            documents.read_document(document(_HUGE, field))
        detail = "must be at most 9223372036854775807m, as decisions count thousandths in 64 bits"
        path = f"spec.metrics[0].{source}.target.{field}"
        assert [str(each) for each in caught.value.faults] == [f'{path}: Invalid value: "{_HUGE}": {detail}']


def test_a_throughput_has_thousandths() -> None:
    source = {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "3"}}
    queue = {"type": "External", "external": source}
    with pytest.raises(InputError, match=r"podThroughput: .* must be at most 9223372036854775807m$"):
        _read(metrics=[queue], pendingCapacity=[{"metric": "jobs", "podThroughput": _HUGE}])


def test_the_selector_of_a_metric_has_a_longest_text_for_an_hpa_too() -> None:
    values = [f"{number:x<60}" for number in range(250)]
    metric = scaling.external_metric(value="1")
    chosen = {"key": "a", "operator": "In", "values": values}
    metric["external"]["metric"]["selector"] = {"matchExpressions": [chosen, chosen]}
    for kind in ("FastPathAutoscaler", "HorizontalPodAutoscaler"):
        read = replace(scaling.read_spec(FastPathAutoscaler, [metric]), kind=kind)
        (violation,) = validate(read)
        assert str(violation) == (
            "spec.metrics[0].external.metric.selector: Too long: "
            "must have at most 256 labels, conditions and values of one, and 16384 characters"
        )


def test_one_that_is_refused_says_why() -> None:
    kept = refused(scaling.read_spec(FastPathAutoscaler, [scaling.cpu_metric()]), "is too large")
    assert kept.spec.metrics is None
    assert [str(one) for one in validate(kept)] == ["spec: Too long: is too large"]


@pytest.mark.parametrize(("mode", "only"), [("Auto", False), ("Advise", True)])
def test_one_in_mode_advise_writes_no_count(mode: str, only: bool) -> None:  # noqa: FBT001 - a table
    assert FastPathAutoscaler(spec=FastPathAutoscalerSpec(mode=mode)).only_advises is only
