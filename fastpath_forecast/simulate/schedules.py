"""The schedules of a simulation: the bounds of an autoscaler at each instant, and when they change next."""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.bounds.schedule.windows import Schedule
from adapter.bounds.timeline import NO_BOUNDS, NO_LEAD, Bounds, BoundsTimeline, Lead
from adapter.model.timestamps import SECOND

_NEVER = 2**63
"""Nanoseconds since 1970, in the year 2262: the next change of bounds where there is no schedule."""


class ScheduledStretch(NamedTuple):
    """Bounds that hold from the second `start` of a simulation to `end`, exclusive."""

    start: int
    end: int
    min: int | None
    max: int | None


class ForecastMinimums(NamedTuple):
    """The minimums of a forecast: one for each `step` seconds from `start`, in seconds since 1970."""

    start: int
    step: int
    values: Sequence[int]

    def at(self, second: int) -> tuple[int, int]:
        """Return the minimum of a second, and the second at which it changes next."""
        place = (second - self.start) // self.step
        if not 0 <= place < len(self.values):
            return 0, self.start if place < 0 else _NEVER // SECOND
        least, after = self.values[place], place + 1
        while after < len(self.values) and self.values[after] == least:
            after += 1
        return least, self.start + after * self.step


class SimulatedSchedule:
    """The schedules of one autoscaler, and the minimums of a forecast.

    The minimums of schedules that are ready by the start begin early by their `lead`. Without `has_max`
    there are only minimums, as for a HorizontalPodAutoscaler. Instants are nanoseconds.
    """

    def __init__(
        self,
        schedules: Sequence[Schedule],
        lead: Lead = NO_LEAD,
        *,
        has_max: bool = True,
        forecast: ForecastMinimums | None = None,
    ) -> None:
        self._timeline = BoundsTimeline(schedules) if schedules else None
        self._lead = lead
        self._forecast = forecast
        self._has_max = has_max
        self._bounds = NO_BOUNDS
        self._start = self._end = 0  # the seconds in which `_bounds` hold

    def at(self, now: int) -> Bounds:
        """Return the bounds at an instant."""
        self._move_to(now)
        return self._bounds

    def next_change(self, now: int) -> int:
        """Return an instant after `now` until which the bounds stay as they are."""
        self._move_to(now)
        return self._end * SECOND

    def limits(self, lowest: int, highest: int, now: int) -> tuple[int, int]:
        """Return minReplicas and maxReplicas as a decision sees them at an instant."""
        return self.at(now).limits(lowest, highest)

    def stretches(self, epoch: int, seconds: int) -> list[ScheduledStretch]:
        """Return the bounds of the first `seconds` after `epoch`; time without bounds is left out."""
        parts: list[ScheduledStretch] = []
        start = 0
        while start < seconds:
            now = epoch + start * SECOND
            bounds, end = self.at(now), min(seconds, (self.next_change(now) - epoch) // SECOND)
            if bounds != NO_BOUNDS:
                stretch = ScheduledStretch(start, end, bounds.lowest or None, bounds.max)
                if parts and parts[-1]._replace(start=start, end=end) == stretch and parts[-1].end == start:
                    stretch = stretch._replace(start=parts.pop().start)
                parts.append(stretch)
            start = end
        return parts

    def _move_to(self, now: int) -> None:
        second = now // SECOND
        if self._start <= second < self._end:
            return
        bounds, end = NO_BOUNDS, _NEVER // SECOND
        if self._timeline is not None:
            bounds = self._timeline.at(second, self._lead)
            end = self._timeline.next_change(second, self._lead)
            bounds = bounds if self._has_max else bounds.without_max()
        if self._forecast is not None:
            least, until = self._forecast.at(second)
            bounds, end = bounds.with_forecast(least), min(end, until)
        self._bounds, self._start, self._end = bounds, second, end


NO_SCHEDULE = SimulatedSchedule(())
