"""What keeps a written count from becoming pods of the target, and how that is read of its objects."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerStatus,
    Metadata,
)
from adapter.model.autoscaling.hpa import Condition, CrossVersionObjectReference, decode_scalar
from adapter.model.timestamps import SECOND, Instant, read_instant, write_instant
from fastpath_tools.doctor import diagnosis
from fastpath_tools.doctor.hops import State
from fastpath_tools.doctor.target_hops import target_hop
from fastpath_tools.live import targets
from fastpath_tools.live.api_objects import ObjectEvent, PodDocument, WorkloadDocument
from fastpath_tools.live.facts import (
    CountWriter,
    Leader,
    Leaders,
    Reversal,
    TargetFacts,
    Unread,
    UnreadyPods,
)
from tests.support.doctor import fast_facts

WEB = CrossVersionObjectReference("Deployment", "web")
SCALED = 1_000_000 * SECOND
TARGET = TargetFacts(4, "app=web", ("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("changes", "state", "text", "change"),
    [
        (
            {"unready": UnreadyPods("3 pods of Deployment web are not Ready", "correct the image", "web-1")},
            State.FAULT,
            "3 pods of Deployment web are not Ready",
            "correct the image",
        ),
        (
            {"unready": UnreadyPods("1 pod waits", "add nodes", is_late=False), "strangers": (("Job a", 1),)},
            State.WARNING,
            "1 pod waits",
            "add nodes",
        ),
        (
            {"strangers": (("Deployment canary", 1), ("Job load", 2))},
            State.FAULT,
            (
                "the selector app=web of Deployment web also matches 1 pod of Deployment canary, "
                "2 pods of Job load: their values count as its own"
            ),
            "give the pods of Deployment web a label of their own, in its selector too",
        ),
        (
            {"writer": CountWriter("argocd", SCALED + 6 * SECOND)},
            State.WARNING,
            (
                "argocd set the replicas of Deployment web to 4 at 1970-01-12T13:46:46Z, "
                "after the autoscaler had scaled it"
            ),
            "remove replicas from what argocd applies to Deployment web",
        ),
        (
            {"reversal": Reversal("argocd", 3, SCALED)},
            State.WARNING,
            (
                "argocd lowered the replicas of Deployment web to 3 at 1970-01-12T13:46:40Z, "
                "below what the autoscaler wants"
            ),
            "remove replicas from what argocd applies to Deployment web",
        ),
    ],
    ids=["unready", "starting", "strangers", "writer", "reversal"],
)
def test_what_is_wrong_with_a_target(changes: dict[str, Any], state: State, text: str, change: str) -> None:
    hop = target_hop(TARGET._replace(**changes), WEB, SCALED)
    assert hop is not None
    assert hop.change is not None
    assert (hop.state, hop.text, hop.change.text, hop.timed) == (state, text, change, False)


@pytest.mark.parametrize("scaled", [SCALED, None])
def test_a_target_without_a_problem_has_no_hop(scaled: int | None) -> None:
    writer = CountWriter("kube-controller-manager", SCALED + (5 * SECOND if scaled else 600 * SECOND))
    assert target_hop(TARGET._replace(writer=writer), WEB, scaled) is None
    assert target_hop(Unread("forbidden"), WEB, scaled) is None


@pytest.mark.parametrize(
    ("changes", "condition", "state", "begin"),
    [
        ({"unready": UnreadyPods("1 pod is", "do")}, "False", State.FAULT, "1 pod is"),
        ({"unready": UnreadyPods("1 pod is", "do", is_late=False)}, "False", State.WARNING, "1 pod is"),
        ({"writer": CountWriter("argocd", SCALED * 2)}, "False", State.FAULT, "AbleToScale is False"),
        ({"writer": CountWriter("argocd", SCALED * 2)}, "True", State.WARNING, "argocd set the replicas"),
        ({}, "True", State.OK, "its conditions report no problem"),
    ],
)
def test_a_fast_autoscaler_has_the_same_causes(
    changes: dict[str, Any], condition: str, state: State, begin: str
) -> None:
    status = FastPathAutoscalerStatus(
        last_scale_time=Instant(SCALED), conditions=(Condition("AbleToScale", condition),)
    )
    fpa = FastPathAutoscaler(metadata=Metadata("web", "shop"), status=status)
    fpa = msgspec.structs.replace(fpa, spec=msgspec.structs.replace(fpa.spec, scale_target_ref=WEB))
    leaders = Leaders((Leader("fastpath/fastpath-scaler", "one_1", 1.0, 15.0, slices.slice_of("shop")),))
    examined = diagnosis.examine_fast(fpa, fast_facts(fpa, leaders, target=TARGET._replace(**changes)))
    assert (examined.state, examined.diagnosis.startswith(begin)) == (state, True), examined.diagnosis


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


DOWN, UP = "Scaled down replica set web-7f to 3 from 8", "Scaled up replica set web-7f from 3 to 8"
RAISED = "New size: 8; reason: cpu resource utilization (percentage of request) above target"
LOWERED = "New size: 3; reason: All metrics below target"


@pytest.mark.parametrize(
    ("changes", "rescales", "is_reversed"),
    [
        ([event(100, DOWN), event(110, UP)], [event(110, RAISED)], True),
        ([event(100, DOWN.removesuffix(" from 8")), event(110, UP)], [event(109, RAISED)], True),
        ([event(100, DOWN), event(110, UP)], [event(110, RAISED), event(100, LOWERED)], False),
        ([event(100, DOWN), event(110, UP)], [event(110, RAISED), event(500, LOWERED)], False),
        ([event(100, DOWN), event(110, UP)], [event(110, RAISED), event(20, LOWERED)], True),
        ([event(100, DOWN)], [event(110, RAISED)], False),
        ([event(100, DOWN), event(90, UP)], [event(90, RAISED)], False),
        ([event(100, DOWN), event(110, UP)], [], False),
        ([event(100, DOWN), event(110, "Scaled up replica set web-9c to 8")], [event(110, RAISED)], False),
        ([event(-1, DOWN), event(110, UP)], [event(110, RAISED)], False),
        ([event(100, "Something else")], [event(110, "Something else")], False),
    ],
    ids=[
        "reversed",
        "an older text",
        "by itself",
        "by itself and again",
        "long after its own",
        "not raised again",
        "raised before",
        "raised by another writer",
        "a rollout",
        "long ago",
        "other events",
    ],
)
def test_a_count_that_another_writer_lowers(
    changes: list[ObjectEvent],
    rescales: list[ObjectEvent],
    is_reversed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    at = SCALED + 100 * SECOND
    fields = [
        entry("kube-controller-manager", write_instant(at)) | {"subresource": "scale"},
        entry("kubectl-create", write_instant(at - 9 * SECOND), "f:template"),
        entry("argocd", write_instant(at + 2 * SECOND), "f:template"),
    ]
    reversal = targets.find_reversal(workload(metadata={"managedFields": fields}), changes, rescales, SCALED)
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


@pytest.mark.parametrize(
    ("kind", "name", "pods", "strangers"),
    [
        ("Deployment", "web", [pod("ReplicaSet", "web-7f", pod_template_hash="7f")], ()),
        ("ReplicaSet", "web-7f", [pod("ReplicaSet", "web-7f", pod_template_hash="7f")], ()),
        ("Rollout", "web", [pod("ReplicaSet", "web-7f", rollouts_pod_template_hash="7f")], ()),
        (
            "Deployment",
            "web",
            [pod("ReplicaSet", "canary-7f", pod_template_hash="7f"), pod("StatefulSet", "db")],
            (("Deployment canary", 1), ("StatefulSet db", 1)),
        ),
        ("Deployment", "web", [pod("ReplicaSet", "web-7f")], (("ReplicaSet web-7f", 1),)),
        ("Deployment", "web", [pod("Job", "once", "Succeeded"), PodDocument()], ()),
        ("Database", "web", [pod("StatefulSet", "db")], ()),
    ],
    ids=["own", "its set", "a rollout", "others", "an own set", "ended or alone", "a custom kind"],
)
def test_pods_of_other_workloads(
    kind: str, name: str, pods: list[PodDocument], strangers: tuple[tuple[str, int], ...]
) -> None:
    assert targets.find_strangers(pods, CrossVersionObjectReference(kind, name)) == strangers
