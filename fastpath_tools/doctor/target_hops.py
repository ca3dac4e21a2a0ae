"""Whether the written count becomes pods: what else writes it, pods without a node, and pods of others.

Pure: facts in, a hop out. All autoscalers share it: none of them sees the cause itself.
"""

from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.timestamps import SECOND, write_instant
from adapter.model.visible import counted
from fastpath_tools.doctor.hops import Hop, Improvement, State
from fastpath_tools.live.facts import TargetFacts, Unread

TARGET = "target"

_APART = 5 * SECOND
"""A count that is written so much later than the autoscaler scaled is not the autoscaler's."""

_QUOTA = "exceeded quota"


def target_hop(
    target: TargetFacts | Unread, reference: CrossVersionObjectReference, scaled: int | None
) -> Hop | None:
    """Return what is wrong with the target, None for nothing; `scaled` is when its autoscaler scaled it."""
    if isinstance(target, Unread):
        return None
    name = f"{reference.kind} {reference.name}"
    if target.refused:
        pods = counted(target.replicas, "replica", "replicas")
        text = f"{name} has {len(target.ready)} of {pods}: new pods are refused: {target.refused}"
        change = f"make what refuses the pods of {name} allow them"
        if _QUOTA in target.refused:
            change = "raise the ResourceQuota of the namespace, or lower the requests of its pods"
        return _hop(State.FAULT, text, change)
    if target.strangers:
        others = ", ".join(f"{counted(pods, 'pod', 'pods')} of {other}" for other, pods in target.strangers)
        text = (
            f"the selector {target.selector} of {name} also matches {others}: their values count as its own"
        )
        return _hop(State.FAULT, text, f"give the pods of {name} a label of their own, in its selector too")
    if target.unplaced[0]:
        count, message = target.unplaced
        wait = counted(count, f"pod of {name} waits", f"pods of {name} wait")
        text = f"{wait} for a node: {message.rstrip('.')}"
        return _hop(State.WARNING, text, "add nodes, or lower the requests of its pods")
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


def absent_hop(target: TargetFacts | Unread) -> Hop | None:
    """Return the fault of a target that does not exist, None for any other. Nothing after it can work."""
    if not isinstance(target, Unread) or not target.absent:
        return None
    text = f"its target does not exist: {target.why}"
    return _hop(State.FAULT, text, "create the target, or correct spec.scaleTargetRef")


def _hop(state: State, text: str, change: str) -> Hop:
    return Hop(TARGET, state, text, change=Improvement(change), timed=False)
