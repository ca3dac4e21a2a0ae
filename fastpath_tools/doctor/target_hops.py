"""Whether the written count becomes Ready pods, and whether idle scale-down, if asked for, has an effect.

Pure: facts in, a hop out. All autoscalers share them: none of them sees the cause itself.
"""

from functools import partial

from adapter.autoscaler.decide.guards import removal
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.objects.pods import COST_ANNOTATION
from adapter.model.timestamps import SECOND, write_instant
from adapter.model.visible import counted
from fastpath_tools.doctor.hops import Hop, ScaleDownFacts, State
from fastpath_tools.live.facts import TargetFacts, Unread

TARGET, PODS = "target", "pods"
"""The names of hops; that of pods says what keeps them from getting Ready."""

_hop = partial(Hop.untimed, TARGET)
_shrink = partial(Hop.untimed, "scale-down")

_OLDEST = (1, 30)
"""The first version of Kubernetes with ValidatingAdmissionPolicies, which limit the right to write costs."""

_APART = 5 * SECOND
"""A count that is written so much later than the autoscaler scaled is not the autoscaler's."""


def target_hop(
    target: TargetFacts | Unread, reference: CrossVersionObjectReference, scaled: int | None
) -> Hop | None:
    """Return what is wrong with the target, None for nothing; `scaled` is when its autoscaler scaled it."""
    if isinstance(target, Unread):
        return None
    name = f"{reference.kind} {reference.name}"
    if target.unready is not None:
        state = State.FAULT if target.unready.is_late else State.WARNING
        return Hop.untimed(PODS, state, target.unready.text, target.unready.change)
    if target.strangers:
        others = ", ".join(f"{counted(pods, 'pod', 'pods')} of {other}" for other, pods in target.strangers)
        text = (
            f"the selector {target.selector} of {name} also matches {others}: their values count as its own"
        )
        return _hop(State.FAULT, text, f"give the pods of {name} a label of their own, in its selector too")
    if target.reversal is not None:
        manager = target.reversal.manager or "another writer"
        at, count = write_instant(target.reversal.at), target.reversal.replicas
        text = f"{manager} lowered the replicas of {name} to {count} at {at}, below what the autoscaler wants"
        return _hop(State.WARNING, text, f"remove replicas from what {manager} applies to {name}")
    writer = target.writer
    if writer is not None and scaled is not None and writer.at > scaled + _APART:
        text = (
            f"{writer.manager} set the replicas of {name} to {target.replicas} at "
            f"{write_instant(writer.at)}, after the autoscaler had scaled it"
        )
        return _hop(State.WARNING, text, f"remove replicas from what {writer.manager} applies to {name}")
    return None


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
    return _shrink(State.OK, "a scale-down removes the idlest pods first")


def _without_effect(why: str, change: str) -> Hop:
    return _shrink(State.WARNING, f"idle scale-down has no effect: {why}", change)


def _unknown(why: str) -> Hop:
    return _shrink(State.UNKNOWN, f"whether idle scale-down has an effect is not known: {why}")
