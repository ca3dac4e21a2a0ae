"""Publishes the floor of a raise before the raise is written, and keeps it in step with what is remembered.

`adapter.boost.provider` explains what a floor is, and `decide.guards.boost` decides when one begins and ends.
A raise whose floor is not published is not written, because the HPA would revert it at its next sync.

This module is here and not in `adapter.boost` because it reads and sets the state of an autoscaler, and
`boost`, which only knows ConfigMaps, may not import `autoscaler`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from adapter import errors
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.inputs.snapshot import Snapshot
from adapter.model.autoscaling.floor import Floor


class FloorOutcome(NamedTuple):
    """The outcome of a write: the new resource version or an error; neither if nothing was left to write."""

    resource_version: str = ""
    error: str = ""
    unknown: bool = False
    """Whether the write may have been applied in spite of the error."""


class Floors(Protocol):
    """What publishes the floors of a slice: `boost.publisher.FloorWriter`."""

    async def publish(self, floor: Floor) -> None: ...

    def want(self, uid: str, floor: Floor | None) -> None: ...


class FloorKeeper:
    """Keeps what is published in step with what is remembered. `find` returns the floors of a namespace."""

    def __init__(self, find: Callable[[str], Floors]) -> None:
        self._find = find

    def follow(self, state: AutoscalerState, now: int) -> None:
        """Update the floor by the time and by what the HPA shows, and publish the change."""
        state.follow_floor(now)
        self.show(state, now)

    def forget(self, state: AutoscalerState) -> None:
        """Remove what is published, or just being published, of an HPA that is gone or no longer boosted."""
        if state.spec.boost is not None and (state.turn.is_writing or state.published is not None):
            self._find(state.key.namespace).want(state.spec.object.metadata.uid, None)

    async def publish(
        self, state: AutoscalerState, snapshot: Snapshot, replicas: int, now: int
    ) -> tuple[Floor | None, str]:
        """Publish the floor of a raise before it is written. Return it, to be settled, or why that failed."""
        assert state.spec.boost is not None
        spans, held = [metric.hpa_span for metric in snapshot.inputs], state.memory.boost
        before = snapshot.observation.replicas
        floor = boosting.begin(held, before, replicas, state.spec.boost, spans, now)
        longest, _ = state.spec.prepared.longest_periods
        added = histories.growth(state.memory.history, now - longest)
        floor = msgspec.structs.replace(floor, added=added, target=snapshot.target.uid)
        published = _published(state, msgspec.structs.replace(held, floor=floor), now)
        assert published is not None
        floors = self._find(state.key.namespace)
        try:
            await floors.publish(published)
        except errors.KubernetesError as error:
            if not state.turn.is_closed:  # otherwise `forget` has already said what to publish
                floors.want(published.uid, state.published)  # the API server may have accepted it
            return None, f"the floor cannot be published: {error.said or error}"
        if not state.turn.is_closed:
            state.published = published
        return floor, ""

    def settle(
        self, state: AutoscalerState, floor: Floor | None, replicas: int, outcome: FloorOutcome, now: int
    ) -> None:
        """Hold the `replicas` that were, or may have been, written; otherwise restore what was held before.

        `floor` is what `publish` returned.
        """
        if floor is None or state.turn.is_closed:
            return
        held = state.memory.boost
        if outcome.resource_version or outcome.unknown:
            last = held.floor
            floor = msgspec.structs.replace(
                floor,
                replicas=replicas,
                excused=floor.excused or (last is not None and last.shown is None and last.excused),
                stands=bool(outcome.resource_version),
            )
            state.set_boosting(msgspec.structs.replace(held, floor=floor))
        self.show(state, now)

    def show(self, state: AutoscalerState, now: int) -> None:
        """Publish what is remembered of a floor, unless only the resource version of the HPA has changed.

        What is published stays while the clock is in doubt: floors end at times, by the clocks of others.
        """
        if state.doubt:
            return
        floor, published = _published(state, state.memory.boost, now), state.published
        if floor is None and published is None:
            return
        if floor and published and msgspec.structs.replace(floor, seen=published.seen) == published:
            return
        state.published = floor
        self._find(state.key.namespace).want(state.spec.object.metadata.uid, floor)


def _published(state: AutoscalerState, memory: boosting.Boosting, now: int) -> Floor | None:
    floor = state.scheduled_floor(now)
    return boosting.published(memory, state.spec.object.metadata, floor, state.clock.set_by)
