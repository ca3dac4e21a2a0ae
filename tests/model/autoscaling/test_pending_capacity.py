"""Pending capacity in a spec and in an annotation: what is refused, and the sentences."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InputError
from adapter.model.autoscaling import boost, documents, pending_capacity
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler
from adapter.model.autoscaling.pending_capacity import ANNOTATION, PendingCapacity
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Metadata
from adapter.model.quantity import Quantity, from_milli, read
from tests.support.answers import answers
from tests.support.scaling import cpu_metric, document, external_metric, hpa, object_metric, pods_metric

EXPECTED = "expected metrics and what one Ready pod works off in a second, such as jobs=2,mails=500m"
NEEDS = "pending capacity needs an Object or External metric with averageValue; this one is"
JOBS = external_metric("jobs", averageValue="10")


def _check(listed: list[tuple[str, str]], *metrics: dict[str, Any]) -> list[str]:
    given_ = [PendingCapacity(name, read(throughput)) for name, throughput in listed]
    return [str(each) for each in pending_capacity.check(given_, hpa(metrics).spec.metrics or ())]


@pytest.mark.parametrize(
    "metric", [JOBS, object_metric("AverageValue", averageValue="5")], ids=["External", "Object"]
)
def test_a_target_for_each_pod_is_accepted(metric: dict[str, Any]) -> None:
    name = "jobs" if metric is JOBS else "hits"

    assert _check([(name, "500m")], cpu_metric(), metric) == []


@pytest.mark.parametrize(("name", "metrics", "detail"), answers("autoscaling/pending_capacity", "refused"))
def test_other_metrics_are_refused(name: str, metrics: list[dict[str, Any]], detail: str) -> None:
    assert _check([(name, "1")], *metrics) == [
        f'spec.pendingCapacity[0].metric: Invalid value: "{name}": {detail}'
    ]


def test_a_metric_of_another_kind_with_the_same_name_does_not_matter() -> None:
    assert _check([("jobs", "1")], pods_metric(name="jobs"), JOBS) == []


def test_a_container_resource_has_the_name_of_its_resource() -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    source = {"name": "memory", "container": "app", "target": target}
    metric = {"type": "ContainerResource", "containerResource": source}

    assert _check([("memory", "1")], metric) == [
        f'spec.pendingCapacity[0].metric: Invalid value: "memory": {NEEDS} ContainerResource'
    ]


def test_each_metric_once() -> None:
    assert _check([("jobs", "1"), ("jobs", "2")], JOBS) == [
        'spec.pendingCapacity[1].metric: Duplicate value: "jobs"'
    ]


def test_a_metric_without_a_source_has_no_name() -> None:
    (metric,) = hpa([JOBS]).spec.metrics or ()
    bare = type(metric)("External")

    assert pending_capacity.name_of(bare) == ""
    assert pending_capacity.target_of(bare) is None


@pytest.mark.parametrize(("text", "listed"), answers("autoscaling/pending_capacity", "annotations"))
def test_the_annotation_is_read(text: str, listed: list[tuple[str, str]]) -> None:
    assert pending_capacity.read_annotation(text) == tuple(
        PendingCapacity(name, read(throughput)) for name, throughput in listed
    )


@pytest.mark.parametrize("text", ["", "jobs", "jobs=", "=2", "jobs=2,", "jobs=fast", "jobs:2", "a=1" * 4000])
def test_a_faulty_annotation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected metrics and what") as caught:
        pending_capacity.read_annotation(text)

    assert str(caught.value) == f"{quote(text)}: {EXPECTED}"


_NAMES = st.text("abz_:=.-", min_size=1)
_THROUGHPUTS: st.SearchStrategy[Quantity] = st.integers(1, 10**9).map(from_milli)


@given(st.lists(st.builds(PendingCapacity, _NAMES, _THROUGHPUTS), min_size=1, max_size=5))
def test_a_written_record_is_read_again(listed: list[PendingCapacity]) -> None:
    assert pending_capacity.read_annotation(pending_capacity.write_annotation(listed)) == tuple(listed)


# -- on a boosted HPA ----------------------------------------------------------------------------------------


def _boosted(text: str, *metrics: dict[str, Any]) -> boost.BoostedHPA:
    plain = hpa([*metrics, external_metric("fastpath_replicas", averageValue="1")])
    annotations = {boost.MODE_ANNOTATION: "boost", ANNOTATION: text}
    meta = Metadata(plain.metadata.name, plain.metadata.namespace, annotations=annotations)
    found = boost.read_boosted(HorizontalPodAutoscaler(metadata=meta, spec=plain.spec))
    assert found is not None
    return found


def test_an_annotation_becomes_the_spec_of_decisions() -> None:
    found = _boosted("jobs=2", JOBS)

    assert found.annotations.faults == ()
    assert found.autoscaler.spec.pending_capacity == (PendingCapacity("jobs", read("2")),)


@pytest.mark.parametrize(("text", "fault"), answers("autoscaling/pending_capacity", "faulty annotations"))
def test_a_faulty_annotation_is_a_fault_and_counts_as_absent(text: str, fault: str) -> None:
    found = _boosted(text, JOBS)

    assert len(found.annotations.faults) == 1
    assert found.annotations.faults[0].startswith(fault)
    assert found.autoscaler.spec.pending_capacity is None


def test_a_file_names_the_field_that_is_wrong() -> None:
    queue = {"metric": "job", "podThroughput": "2"}
    with pytest.raises(InputError) as caught:
        documents.read_document(document([JOBS], pendingCapacity=[queue]))

    assert str(caught.value) == (
        'spec.pendingCapacity[0].metric: Invalid value: "job": spec.metrics has no metric of this name'
    )
