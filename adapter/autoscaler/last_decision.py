"""The last decision about an autoscaler, from what it was made, and what it adds to the last hour."""

from typing import Self

import msgspec

from adapter.autoscaler.decide import roster as rosters
from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.restraint import Restraint, restraint_of
from adapter.autoscaler.past_hour import Counts
from adapter.autoscaler.snapshot import Snapshot


class LastDecision(msgspec.Struct, frozen=True):
    """The time of day at which it was made, and from what; `snapshot` is None if it looked at nothing."""

    time: int
    snapshot: Snapshot | None
    decision: Decision
    restraint: Restraint

    @classmethod
    def after(
        cls, before: Self | None, decision: Decision, snapshot: Snapshot | None, own: ReplicaLimits, time: int
    ) -> Self:
        """Return the one that follows another; `own` are the limits of the spec.

        Most decisions repeat the one before. Then their restraint is the same, and is not computed.
        """
        if before is not None and _are_alike(before.decision, decision):
            return cls(time, snapshot, decision, before.restraint)
        return cls(time, snapshot, decision, restraint_of(decision, own))

    def counts(self, own: ReplicaLimits, floor: int) -> Counts:
        """Return its counts for the history; `floor` is the one that is published, 0 without one."""
        decision = self.decision
        limits = own if decision.spec is None else decision.spec.limits
        ready = None if self.snapshot is None else rosters.prepare(self.snapshot.observation.pods).ready
        return Counts(decision.wanted, decision.desired, ready, floor, *limits, self.restraint)


def _are_alike(before: Decision, decision: Decision) -> bool:
    """Tell whether two decisions have the same restraint; their numbers may differ."""
    return (
        before.status.conditions is decision.status.conditions
        and before.spec is decision.spec
        and before.desired == decision.desired
        and [step.name for step in before.trace] == [step.name for step in decision.trace]
    )
