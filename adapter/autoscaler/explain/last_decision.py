"""The last decision about an autoscaler, from what it was made, and what it adds to the last hour."""

import msgspec

from adapter.autoscaler.decide import roster as rosters
from adapter.autoscaler.decide.sync import Decision
from adapter.autoscaler.explain.past_hour import Counts
from adapter.autoscaler.inputs.snapshot import Snapshot
from adapter.model.autoscaling.floor import Floor


class LastDecision(msgspec.Struct, frozen=True):
    """The time of day at which it was made, and from what; `snapshot` is None if it looked at nothing."""

    time: int
    snapshot: Snapshot | None
    decision: Decision

    def change(self, now: int, floor: Floor | None) -> Counts:
        """Return its record for the history; `floor` is the one that is published."""
        decision, bounds = self.decision, (floor.replicas if floor else 0, *self.decision.spec.limits)
        ready = None if self.snapshot is None else rosters.prepare(self.snapshot.observation.pods).ready
        return Counts(now, decision.wanted, decision.desired, ready, bounds, decision.restraint)
