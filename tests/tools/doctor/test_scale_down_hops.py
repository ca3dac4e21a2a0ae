"""Where idle scale-down has no effect, and what `fastpath doctor` advises."""

from typing import Any

import pytest

from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from fastpath_tools.doctor.hops import Hop, Improvement, ScaleDownFacts, State
from fastpath_tools.doctor.target_hops import scale_down_hop
from fastpath_tools.live.facts import PatchRight, TargetFacts, Unread
from tests.support.answers import answers

TARGET = TargetFacts(4, "app=web", labels=frozenset({"app", "pod-template-hash"}))
RIGHT = PatchRight("fastpath/fastpath-scaler", allowed=True, kubernetes=(1, 36))


BOOST_IT = "kubectl get hpa web -o yaml | fastpath boost - | kubectl apply -f -"


def facts(kind: str = "Deployment", **changes: Any) -> ScaleDownFacts:
    reference = CrossVersionObjectReference(kind, "web")
    return ScaleDownFacts("spec.scaleDown", reference, TARGET, RIGHT, "Auto")._replace(**changes)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "ReplicationController"])
@pytest.mark.parametrize("mode", ["Auto", "Boost"])
def test_pods_of_replica_sets_go_by_their_cost(kind: str, mode: str) -> None:
    expected = Hop("scale-down", State.OK, "a scale-down removes the idlest pods first", timed=False)
    bare = TARGET._replace(labels=frozenset({"app"}))
    assert scale_down_hop(facts(kind, target=bare, mode=mode)) == expected


def test_another_kind_counts_by_the_labels_of_its_pods() -> None:
    rollout = TARGET._replace(labels=frozenset({"app", "rollouts-pod-template-hash"}))
    assert scale_down_hop(facts("Rollout", target=rollout)).state is State.OK


@pytest.mark.parametrize(
    ("kind", "target", "right", "changes", "why", "change"), answers("doctor/scale_down_hops", "warnings")
)
def test_an_option_without_effect_is_a_warning(
    kind: str, target: dict[str, Any], right: dict[str, Any], changes: dict[str, Any], why: str, change: str
) -> None:
    if version := right.get("kubernetes"):
        right = right | {"kubernetes": tuple(version)}
    found = facts(kind, target=TARGET._replace(**target), right=RIGHT._replace(**right), **changes)
    text = f"idle scale-down has no effect: {why}"
    expected = Hop("scale-down", State.WARNING, text, change=Improvement(change), timed=False)
    assert scale_down_hop(found, BOOST_IT) == expected


def test_an_hpa_that_must_not_be_boosted_is_not_to_be_boosted() -> None:
    change = scale_down_hop(facts(mode="")).change
    assert change is not None
    assert change.text == "remove spec.scaleDown"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (facts(target=Unread("forbidden")), "forbidden"),
        (facts(right=Unread("you may not")), "you may not"),
        (
            facts("Rollout", target=TARGET._replace(labels=frozenset())),
            "Rollout web has no pod whose labels would tell",
        ),
    ],
)
def test_what_was_not_read_is_unknown(changed: ScaleDownFacts, why: str) -> None:
    text = f"whether idle scale-down has an effect is not known: {why}"
    assert scale_down_hop(changed) == Hop("scale-down", State.UNKNOWN, text, timed=False)
