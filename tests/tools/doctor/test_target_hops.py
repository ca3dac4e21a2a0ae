"""What keeps a written count from becoming pods of the target, and how that is read of its objects."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerStatus
from adapter.model.autoscaling.hpa import Condition, CrossVersionObjectReference, decode_scalar
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import SECOND, Instant, read_instant, write_instant
from fastpath_tools.doctor import diagnosis
from fastpath_tools.doctor.target_hops import target_hop
from fastpath_tools.live import targets
from fastpath_tools.live.api_objects import ObjectEvent, PodDocument, WorkloadDocument
from fastpath_tools.live.facts import CountWriter, Leader, Leaders, Reversal, TargetFacts, Unread, UnreadyPods
from tests.support.answers import answers
from tests.support.doctor import fast_facts

WEB = CrossVersionObjectReference("Deployment", "web")
SCALED = 1_000_000 * SECOND
TARGET = TargetFacts(4, "app=web", ("a", "b", "c", "d"))


def target(changes: dict[str, Any]) -> TargetFacts:
    """Return the target with what was found; writers come so many seconds after it was scaled."""
    found: dict[str, Any] = dict(changes)
    if "unready" in found:
        found["unready"] = UnreadyPods(**found["unready"])
    for name, kind in (("writer", CountWriter), ("reversal", Reversal)):
        if name in found:
            found[name] = kind(**found[name] | {"at": SCALED + found[name]["at"] * SECOND})
    return TARGET._replace(**found)


@pytest.mark.parametrize(("changes", "state", "text", "change"), answers("doctor/target_hops", "faults"))
def test_what_is_wrong_with_a_target(changes: dict[str, Any], state: str, text: str, change: str) -> None:
    hop = target_hop(target(changes), WEB, SCALED)
    assert hop is not None
    assert hop.change is not None
    assert (hop.state.value, hop.text, hop.change.text, hop.timed) == (state, text, change, False)


@pytest.mark.parametrize("scaled", [SCALED, None])
def test_a_target_without_a_problem_has_no_hop(scaled: int | None) -> None:
    writer = CountWriter("kube-controller-manager", SCALED + (5 * SECOND if scaled else 600 * SECOND))
    assert target_hop(TARGET._replace(writer=writer), WEB, scaled) is None
    assert target_hop(Unread("forbidden"), WEB, scaled) is None


@pytest.mark.parametrize(("changes", "condition", "state", "begin"), answers("doctor/target_hops", "causes"))
def test_a_fast_autoscaler_has_the_same_causes(
    changes: dict[str, Any], condition: str, state: str, begin: str
) -> None:
    status = FastPathAutoscalerStatus(
        last_scale_time=Instant(SCALED), conditions=(Condition("AbleToScale", condition),)
    )
    fpa = FastPathAutoscaler(metadata=Metadata("web", "shop"), status=status)
    fpa = msgspec.structs.replace(fpa, spec=msgspec.structs.replace(fpa.spec, scale_target_ref=WEB))
    leaders = Leaders((Leader("fastpath/fastpath-scaler", "one_1", 1.0, 15.0, slices.slice_of("shop")),))
    examined = diagnosis.examine_fast(fpa, fast_facts(fpa, leaders, target=target(changes)))
    assert (examined.state.value, examined.diagnosis.startswith(begin)) == (state, True), examined.diagnosis


# -- what the objects say ------------------------------------------------------------------------------------


def workload(**document: Any) -> WorkloadDocument:
    return msgspec.convert(document, WorkloadDocument, dec_hook=decode_scalar)


def entry(manager: str, time: str, field: str = "f:replicas") -> dict[str, Any]:
    return {"manager": manager, "time": time, "fieldsV1": {"f:spec": {field: {}}}}


def test_the_last_manager_of_the_count_is_its_writer() -> None:
    first, second, later = (f"2026-01-31T12:00:0{second}Z" for second in (1, 2, 3))
    fields = [
        entry("kubectl", first),
        entry("argocd", second),
        entry("kube-controller-manager", first),
        entry("flux", later, "f:template"),
        {"manager": "old", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]
    assert targets.find_writer(workload(metadata={"managedFields": fields})) == CountWriter(
        "argocd", read_instant(second)
    )
    assert targets.find_writer(workload()) is None


def event(second: int, message: str) -> ObjectEvent:
    return ObjectEvent(message=message, last_timestamp=Instant(SCALED + second * SECOND))


def events(listed: list[tuple[int, str]]) -> list[ObjectEvent]:
    return [event(*each) for each in listed]


DOWN, UP = "Scaled down replica set web-7f to 3 from 8", "Scaled up replica set web-7f from 3 to 8"
RAISED = "New size: 8; reason: cpu resource utilization (percentage of request) above target"


@pytest.mark.parametrize(("changes", "rescales", "is_reversed"), answers("doctor/target_hops", "reversals"))
def test_a_count_that_another_writer_lowers(
    changes: list[tuple[int, str]], rescales: list[tuple[int, str]], *, is_reversed: bool
) -> None:
    at = SCALED + 100 * SECOND
    fields = [
        entry("kube-controller-manager", write_instant(at)) | {"subresource": "scale"},
        entry("kubectl-create", write_instant(at - 9 * SECOND), "f:template"),
        entry("argocd", write_instant(at + 2 * SECOND), "f:template"),
    ]
    reversal = targets.find_reversal(
        workload(metadata={"managedFields": fields}), events(changes), events(rescales), SCALED
    )
    assert reversal == (Reversal("argocd", 3, at) if is_reversed else None)


def test_a_writer_without_a_field_is_not_named() -> None:
    changes, rescales = [event(100, DOWN), event(110, UP)], [event(110, RAISED)]
    long_ago = entry("kubectl-create", write_instant(SCALED), "f:template")
    for fields in ([], [long_ago]):
        reversal = targets.find_reversal(
            workload(metadata={"managedFields": fields}), changes, rescales, SCALED
        )
        assert reversal is not None
        assert reversal.manager == ""


def pod(owner: str, name: str, phase: str = "Running", **labels: str) -> PodDocument:
    document = {
        "metadata": {
            "name": "p",
            "labels": {label.replace("_", "-"): value for label, value in labels.items()},
            "ownerReferences": [
                {"kind": "Parent", "name": "up"},
                {"kind": owner, "name": name, "controller": True},
            ],
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PodDocument, dec_hook=decode_scalar)


@pytest.mark.parametrize(("kind", "name", "pods", "strangers"), answers("doctor/target_hops", "strangers"))
def test_pods_of_other_workloads(kind: str, name: str, pods: list[Any], strangers: list[list[Any]]) -> None:
    listed = [*(pod(*facts, **labels) for *facts, labels in pods), PodDocument()]
    found = targets.find_strangers(listed, CrossVersionObjectReference(kind, name))
    assert list(map(list, found)) == strangers
