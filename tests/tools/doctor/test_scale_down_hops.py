"""Where idle scale-down has no effect, and what `fastpath doctor` advises."""

from typing import Any

import pytest

from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from fastpath_tools.doctor.hops import Hop, Improvement, ScaleDownFacts, State
from fastpath_tools.doctor.scale_down_hops import scale_down_hop
from fastpath_tools.live.facts import PatchRight, TargetFacts, Unread

COST = "controller.kubernetes.io/pod-deletion-cost"
TARGET = TargetFacts(4, "app=web", labels=frozenset({"app", "pod-template-hash"}))
RIGHT = PatchRight("fastpath/fastpath-scaler", allowed=True, kubernetes=(1, 36))
NO_RIGHT = RIGHT._replace(allowed=False)
STATEFUL = frozenset({"app", "apps.kubernetes.io/pod-index", "controller-revision-hash"})
INSTALL = "install the component: components/idle-scale-down, or scaler.idleScaleDown.enabled of the chart"
MAY_NOT = "ServiceAccount fastpath/fastpath-scaler may not patch pods"


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
    ("changed", "why", "change"),
    [
        pytest.param(
            facts("StatefulSet", target=TARGET._replace(labels=STATEFUL)),
            "StatefulSet web has no ReplicaSet, which alone heeds deletion costs",
            "remove spec.scaleDown",
            id="a StatefulSet",
        ),
        pytest.param(facts(right=NO_RIGHT), MAY_NOT, INSTALL, id="no component"),
        pytest.param(
            facts(right=NO_RIGHT._replace(kubernetes=None)), MAY_NOT, INSTALL, id="an unknown version"
        ),
        pytest.param(
            facts(right=NO_RIGHT._replace(kubernetes=(1, 30))), MAY_NOT, INSTALL, id="the oldest Kubernetes"
        ),
        pytest.param(
            facts(right=NO_RIGHT._replace(kubernetes=(1, 29))),
            f"{MAY_NOT}, and the component for it needs Kubernetes 1.30: this is 1.29",
            "remove spec.scaleDown, or upgrade Kubernetes",
            id="an older Kubernetes",
        ),
        pytest.param(
            facts(target=TARGET._replace(cost_writers=(("karpenter", "web-1"), ("kubectl", "web-2")))),
            f"karpenter writes {COST} on Pod web-1, which Fastpath keeps",
            "let only one write it: remove spec.scaleDown, or have karpenter stop",
            id="another writer",
        ),
        pytest.param(
            facts(mode="", option="the annotation fastpath.io/scale-down"),
            "this HPA is not boosted",
            f"boost it: {BOOST_IT}, or remove the annotation fastpath.io/scale-down",
            id="no mode",
        ),
        pytest.param(
            facts(mode="Advise"),
            "this HPA is not boosted",
            f"boost it: {BOOST_IT}, or remove spec.scaleDown",
            id="advice",
        ),
    ],
)
def test_an_option_without_effect_is_a_warning(changed: ScaleDownFacts, why: str, change: str) -> None:
    text = f"idle scale-down has no effect: {why}"
    expected = Hop("scale-down", State.WARNING, text, change=Improvement(change), timed=False)
    assert scale_down_hop(changed, BOOST_IT) == expected


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
