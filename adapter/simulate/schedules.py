"""The schedules of a simulation: the bounds of an autoscaler at each instant, and when they change next."""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.model.schedules import bounds as schedule_bounds
from adapter.model.schedules.bounds import BoundsTimeline, ScheduledBounds
from adapter.model.schedules.windows import Schedule
from adapter.model.timestamps import SECOND

_NEVER = 2**63
"""Nanoseconds since 1970, in the year 2262: the next change of bounds where there is no schedule."""


class ScheduledStretch(NamedTuple):
    """Bounds that hold from the second `start` of a simulation to `end`, exclusive."""

    start: int
    end: int
    floor: int | None
    ceiling: int | None


class SimulatedSchedule:
    """The schedules of one autoscaler.

    The floors of those that are ready by the start begin `lead` seconds early, at most MOST_LEAD. Without
    `has_ceilings` there are only floors, as for a HorizontalPodAutoscaler. Instants are nanoseconds.
    """

    def __init__(self, schedules: Sequence[Schedule], lead: int = 0, *, has_ceilings: bool = True) -> None:
        self._timeline = BoundsTimeline(schedules) if schedules else None
        self._lead = min(lead, schedule_bounds.MOST_LEAD)
        self._has_ceilings = has_ceilings
        self._bounds: ScheduledBounds | None = None
        self._start = self._end = 0  # the seconds in which `_bounds` hold

    def at(self, now: int) -> ScheduledBounds | None:
        """Return the bounds at an instant, None outside all windows."""
        self._move_to(now)
        return self._bounds

    def next_change(self, now: int) -> int:
        """Return an instant after `now` until which the bounds stay as they are."""
        self._move_to(now)
        return _NEVER if self._timeline is None else self._end * SECOND

    def limits(self, lowest: int, highest: int, now: int) -> tuple[int, int]:
        """Return minReplicas and maxReplicas as a decision sees them at an instant."""
        return schedule_bounds.limits(lowest, highest, self.at(now))

    def stretches(self, epoch: int, seconds: int) -> list[ScheduledStretch]:
        """Return the bounds of the first `seconds` after `epoch`; time without bounds is left out."""
        found: list[ScheduledStretch] = []
        start = 0
        while start < seconds and self._timeline is not None:
            now = epoch + start * SECOND
            bounds, end = self.at(now), min(seconds, (self.next_change(now) - epoch) // SECOND)
            if bounds is not None:
                stretch = ScheduledStretch(start, end, bounds.floor, bounds.ceiling)
                if found and found[-1]._replace(start=start, end=end) == stretch and found[-1].end == start:
                    stretch = stretch._replace(start=found.pop().start)
                found.append(stretch)
            start = end
        return found

    def _move_to(self, now: int) -> None:
        second = now // SECOND
        if self._timeline is None or self._start <= second < self._end:
            return
        found = self._timeline.at(second, self._lead)
        if found is not None and not self._has_ceilings:
            found = None if found.floor is None else found.without_ceiling()
        self._bounds = found
        self._start, self._end = second, self._timeline.next_change(second, self._lead)


NO_SCHEDULE = SimulatedSchedule(())
