"""Whether idle scale-down, which an autoscaler asks for, has an effect, and what to do where it has none.

Pure: facts in, a hop out.
"""

from functools import partial

from adapter.autoscaler.decide import removal
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST
from adapter.model.autoscaling.scale_down import COST_ANNOTATION
from fastpath_tools.doctor.hops import Hop, ScaleDownFacts, State
from fastpath_tools.live.facts import Unread

_hop = partial(Hop.untimed, "scale-down")
_OLDEST = (1, 30)
"""The first version of Kubernetes with ValidatingAdmissionPolicies, which limit the right."""


def scale_down_hop(facts: ScaleDownFacts, boosting: str = "") -> Hop:
    """Return what idle scale-down lacks. `boosting` is how to boost an HPA, "" if it must not be boosted."""
    remove = f"remove {facts.option}"
    kind, target, right = facts.reference.kind, facts.target, facts.right
    if facts.mode not in {AUTO, BOOST}:
        boost = f"boost it: {boosting}, or " if boosting else ""
        return _without_effect("this HPA is not boosted", f"{boost}{remove}")
    if isinstance(target, Unread):
        return _unknown(target.why)
    if not removal.has_replica_set(kind, ()):
        if not target.labels:
            return _unknown(f"{kind} {facts.reference.name} has no pod whose labels would tell")
        if not any(label.endswith(removal.TEMPLATE_HASH) for label in target.labels):
            text = f"{kind} {facts.reference.name} has no ReplicaSet, which alone heeds deletion costs"
            return _without_effect(text, remove)
    if isinstance(right, Unread):
        return _unknown(right.why)
    if not right.allowed:
        text = f"ServiceAccount {right.account} may not patch pods"
        if right.kubernetes is not None and right.kubernetes < _OLDEST:
            version = "{}.{}".format(*right.kubernetes)
            text = f"{text}, and the component for it needs Kubernetes 1.30: this is {version}"
            return _without_effect(text, f"{remove}, or upgrade Kubernetes")
        component = "components/idle-scale-down, or scaler.idleScaleDown.enabled of the chart"
        return _without_effect(text, f"install the component: {component}")
    if target.cost_writers:
        manager, pod = target.cost_writers[0]
        text = f"{manager} writes {COST_ANNOTATION} on Pod {pod}, which Fastpath keeps"
        return _without_effect(text, f"let only one write it: {remove}, or have {manager} stop")
    return _hop(State.OK, "a scale-down removes the idlest pods first")


def _without_effect(why: str, change: str) -> Hop:
    return _hop(State.WARNING, f"idle scale-down has no effect: {why}", change)


def _unknown(why: str) -> Hop:
    return _hop(State.UNKNOWN, f"whether idle scale-down has an effect is not known: {why}")
