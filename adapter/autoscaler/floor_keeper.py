"""The floors of raises: published before a count is written, followed while they are held, taken back when nothing came of it.

Here: what of an autoscaler's memory everybody is to read, and when. Not here: when a floor begins and ends (`autoscaler.decide.boost`), how it is
published (`boost.view`). Law: what is not published is not raised.
"""

import msgspec

from adapter import errors
from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.boost import Floor
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.interfaces import FloorPublisher, Outcome
from adapter.autoscaler.snapshot import Snapshot
from adapter.autoscaler.state import AutoscalerState
from adapter.boost.floor import FloorEntry


class FloorKeeper:
    """Keeps what is published in step with what is remembered. Without `floors` nothing is raised."""

    def __init__(self, floors: FloorPublisher | None) -> None:
        self._floors = floors

    def adopt(self, work: AutoscalerState, published: FloorEntry, now: int) -> None:
        """Take over what a leader before has published."""
        work.published = published
        work.set_boosting(boosting.adopt(published, now))

    def follow(self, work: AutoscalerState, now: int) -> None:
        """Take notice of what time and the native autoscaler have made of a floor."""
        if work.boost is not None:
            work.follow_floor(now)
            self.show(work)

    def forget(self, work: AutoscalerState) -> None:
        """Publish nothing of an autoscaler that is gone, or asks for nothing any more."""
        if (
            self._floors is not None
            and work.boost is not None
            and (work.is_writing or work.published is not None)
        ):
            self._floors.want(work.object.metadata.uid, None)  # one that is just being published included

    async def publish(
        self, work: AutoscalerState, seen: Snapshot, made: Decision, now: int
    ) -> tuple[Floor | None, str]:
        """Publish the floor of a raise before it is written, and return it, to be settled; or why that failed."""
        assert work.boost is not None
        if self._floors is None:
            return None, "no floors are published here"
        spans = [each.span for each in seen.inputs]
        raised = boosting.begin(
            work.memory.boost, seen.observation.replicas, made.replicas, work.boost, spans, now
        )
        assert raised.floor is not None
        longest = work.prepared.up.longest_period if work.prepared.up else 0
        added = histories.growth(work.memory.history, now - longest)
        floor = msgspec.structs.replace(raised.floor, added=added, target=seen.target.uid)
        raised = msgspec.structs.replace(raised, floor=floor)
        meta = work.object.metadata
        entry = boosting.entry_of(raised, meta.namespace, meta.name, meta.uid, meta.resource_version)
        assert entry is not None
        try:
            await self._floors.publish(entry)
        except errors.KubernetesError as error:
            if not work.is_closed:  # else somebody else has said what is wanted
                self._floors.want(meta.uid, work.published)  # it may have been taken all the same
            return None, f"the floor of the raise cannot be published: {error.said or error}"
        if not work.is_closed:
            work.published = entry
        return floor, ""

    def settle(
        self, work: AutoscalerState, floor: Floor | None, by: int, replicas: int, outcome: Outcome
    ) -> None:
        """Hold the `replicas` that were written, or may have been; else it stays what it was.

        `floor` is None where nothing was published, `by` is how the clock was set since.
        """
        if floor is None or work.is_closed:
            return
        held = work.memory.boost
        if outcome.resource_version or outcome.unknown:
            last = held.floor
            excused = floor.excused or (last is not None and last.shown is None and last.excused)
            floor = msgspec.structs.replace(
                floor,
                replicas=replicas,
                until=floor.until + by,
                at=floor.at + by,
                excused=excused,
                stands=bool(outcome.resource_version),
            )
            work.set_boosting(msgspec.structs.replace(held, floor=floor))
        self.show(work)

    def show(self, work: AutoscalerState) -> None:
        """Have everybody read what has become of a floor."""
        meta, published = work.object.metadata, work.published
        entry = boosting.entry_of(
            work.memory.boost, meta.namespace, meta.name, meta.uid, meta.resource_version
        )
        if self._floors is None or (entry is None and published is None):
            return
        if (
            entry is not None
            and published is not None
            and msgspec.structs.replace(entry, seen=published.seen) == published
        ):
            return
        work.published = entry
        self._floors.want(meta.uid, entry)
