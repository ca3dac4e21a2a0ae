"""What changes the count next, and when, if the load stays as it is.

Between two changes of its inputs a decision depends on time only where something expires: a recommendation
leaves its window, a change leaves the period of a policy, a pause or a floor ends, a window of a schedule
begins. So the same decision is made at each of these instants, with the same observation, until one changes
the count. Of the recommendations only one matters in each direction: the last that holds the count.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import Observation
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling import status as statuses

_MOST = 64
"""The most decisions that are made: an autoscaler may have many recent changes and many windows."""


class BoundsFrom(NamedTuple):
    """The bounds that hold from an instant on, in nanoseconds."""

    at: int
    bounds: Bounds


class Foreseen(NamedTuple):
    """The next count, and when it is decided, in nanoseconds."""

    replicas: int
    at: int


def foresee(
    spec: PreparedSpec,
    observation: Observation,
    memory: Memory,
    now: int,
    constraints: Constraints,
    ahead: Sequence[BoundsFrom] = (),
) -> Foreseen | None:
    """Return the next change of the count from `now` (ns) on, None if it stays as long as the load does.

    `memory` is that after the last decision, `ahead` are the bounds to come, soonest first. What a
    HorizontalPodAutoscaler lowers itself counts as a change too.
    """
    current, at = observation.replicas, now
    for _ in range(_MOST):
        for begin in ahead:
            if begin.at <= at:
                constraints = replace(constraints, bounds=begin.bounds)
        decision = guarded.decide(spec, observation, memory, at, constraints)
        replicas = _count_after(decision, memory, constraints, current, at)
        if replicas != current:
            return Foreseen(replicas, at)
        memory, _ = memories.commit(
            memory, decision, observation, at, constraints.boost, constraints.fallback
        )
        expiries = *(begin.at for begin in ahead), *_expiries(spec, memory, constraints, decision)
        following = min((expiry for expiry in expiries if expiry > at), default=None)
        if following is None:
            return None
        at = following
    return None


def _count_after(decision: Decision, memory: Memory, constraints: Constraints, current: int, at: int) -> int:
    """Return the count after a decision, whether this scaler writes it or the HPA controller."""
    if constraints.boost is None or decision.replicas != current or decision.desired is None:
        return decision.replicas
    floor = memory.boost.floor
    held = 0 if floor is None or floor.until <= at else floor.replicas
    return min(current, max(decision.desired, held))


def _expiries(
    spec: PreparedSpec, memory: Memory, constraints: Constraints, decision: Decision
) -> Iterator[int]:
    """Yield the instants at which something ends that may hold the count of a decision, in no order."""
    yield from _past_expiries(spec, memory, decision)
    yield memory.conflicts.paused_until
    if (floor := memory.boost.floor) is not None:
        yield floor.until
    if memory.draining is not None and constraints.drain is not None:
        yield memory.draining + constraints.drain
    if (rules := constraints.fallback) is not None and memory.absence.since is not None:
        begins = memory.absence.since + rules.after
        yield begins
        yield begins + (rules.last_good_for or 0)


def _past_expiries(spec: PreparedSpec, memory: Memory, decision: Decision) -> Iterator[int]:
    """Yield when recommendations leave their windows, and changes the periods of the policies."""
    history, current = memory.history, decision.status.current_replicas
    recommended = history.recommendations
    # without `behavior` a recommendation of exactly the age of the window still counts
    down = spec.settings.downscale_stabilization + 1 if spec.down is None else spec.down.window
    yield from [entry.at + down for entry in recommended.high if entry.replicas >= current][-1:]
    if spec.up is not None and spec.down is not None:
        yield from [entry.at + spec.up.window for entry in recommended.low if entry.replicas <= current][-1:]
        if statuses.holds(decision.status.conditions, statuses.SCALING_LIMITED):
            periods = {policy.period for rules in (spec.up, spec.down) for policy in rules.policies}
            yield from (event.at + period for event in (*history.ups, *history.downs) for period in periods)
