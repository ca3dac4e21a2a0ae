"""Whether the written count becomes Ready pods: what keeps them, what else writes it, and pods of others.

Pure: facts in, a hop out. All autoscalers share it: none of them sees the cause itself.
"""

from functools import partial

from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.timestamps import SECOND, write_instant
from adapter.model.visible import counted
from fastpath_tools.doctor.hops import Hop, State
from fastpath_tools.live.facts import TargetFacts, Unread

TARGET, PODS = "target", "pods"
"""The names of hops; that of pods says what keeps them from getting Ready."""

_hop = partial(Hop.untimed, TARGET)

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
