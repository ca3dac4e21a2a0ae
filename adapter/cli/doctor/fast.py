"""The diagnosis of a FastPathAutoscaler: a second autoscaler, no leader, or a condition that is False.

Its hops are not followed: the scaler records its decisions, and `fastpath explain` shows them.
"""

from typing import NamedTuple

from adapter.cli.doctor import shared
from adapter.cli.doctor.codec import FPA
from adapter.cli.doctor.facts import Leader, Unread
from adapter.cli.doctor.stage import State
from adapter.model.autoscaling.hpa import Condition

_BY_WISH = frozenset({"AdviseOnly", "ScalingPaused"})
"""Reasons of a False condition that say only what spec.mode asks for."""


class FastExamination(NamedTuple):
    """A FastPathAutoscaler examined."""

    fpa: FPA
    state: State
    diagnosis: str
    change: str

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.fpa.metadata.namespace}/{self.fpa.metadata.name}"

    @property
    def explain(self) -> str:
        """Return the command that shows what was decided."""
        return f"fastpath explain {self.key}"


def examine(fpa: FPA, rivals: tuple[str, ...], leaders: tuple[Leader, ...] | Unread) -> FastExamination:
    """Return what is found; `rivals` are the other autoscalers of its target as ``Kind name``."""
    meta, spec = fpa.metadata, fpa.spec
    target = f"{spec.scale_target_ref.kind} {spec.scale_target_ref.name}"
    found = FastExamination(fpa, State.FAULT, "", "")
    if rivals:
        text = f"{', '.join(rivals)} scales {target} too: Fastpath does nothing while that is so"
        return found._replace(diagnosis=text, change=f"leave one autoscaler on {target}")
    if not isinstance(leaders, Unread) and (vacant := shared.vacancy(meta.namespace, meta.name, leaders)):
        advice = "run Fastpath with --scaler (or fastpath scale); its namespace is given with --namespace"
        return found._replace(diagnosis=f"nothing decides for it: {vacant}", change=advice)
    conditions = {each.type: each for each in fpa.status.conditions or ()}
    if not conditions:
        return found._replace(state=State.WARNING, diagnosis="the scaler has not looked at it yet")
    for kind in ("AbleToScale", "ScalingActive"):
        each = conditions.get(kind, Condition())
        if each.status == "False":
            state = State.WARNING if each.reason in _BY_WISH else State.FAULT
            return found._replace(state=state, diagnosis=f"{kind} is False ({each.reason}): {each.message}")
    limited = conditions.get("ScalingLimited", Condition())
    if (limited.status, limited.reason) == ("True", "TooManyReplicas"):
        text = f"it wants more than its maximum of {spec.max_replicas}"
        change = f"raise spec.maxReplicas, now {spec.max_replicas}"
        return found._replace(state=State.WARNING, diagnosis=text, change=change)
    return found._replace(
        state=State.OK, diagnosis="by its conditions it is able to scale and its metrics have values"
    )
