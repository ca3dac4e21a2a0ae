"""The last hour of one autoscaler: what was asked for, decided and Ready, and its limits.

Time is divided into spans of 30 seconds, and a span that repeats the one before takes no memory. Within a
span the highest demand counts and the fewest Ready pods, because a short peak is what one looks for; of all
else the last value.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.timestamps import SECOND

SPAN = 30 * SECOND
SPANS = 120
"""The number of spans that are kept."""


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a span; None for one that is not known."""

    demand: int | None
    desired: int | None
    ready: int | None
    floor: int
    min: int
    max: int
    restraint: Restraint


class PastSpan(NamedTuple):
    """What was from `start` to `end`, in nanoseconds; `counts` is None where nothing was decided."""

    start: int
    end: int
    counts: Counts | None


class PastHour:
    __slots__ = ("_changes", "_span")

    def __init__(self) -> None:
        self._changes: list[tuple[int, Counts | None]] = []
        """The spans with other counts than the one before, by number, oldest first."""
        self._span = 0
        """The number of the newest span, 0 before the first."""

    def note(self, counts: Counts, now: int) -> None:
        """Note the counts of a decision at `now` nanoseconds, not before those noted earlier."""
        span = now // SPAN
        if not self._changes or span > self._span:
            if self._changes and span > self._span + 1:
                self._put(self._span + 1, None)
            self._span = span
        elif (before := self._changes[-1][1]) is not None and before != counts:
            demands = [demand for demand in (before.demand, counts.demand) if demand is not None]
            ready = [pods for pods in (before.ready, counts.ready) if pods is not None]
            most, least = max(demands, default=None), min(ready, default=None)
            counts = msgspec.structs.replace(counts, demand=most, ready=least)
        self._put(self._span, counts)

    def _put(self, span: int, counts: Counts | None) -> None:
        changes = self._changes
        if changes and changes[-1][0] == span:
            changes.pop()
        if not changes or changes[-1][1] != counts:
            changes.append((span, counts))
        while len(changes) > 1 and changes[1][0] <= self._span - SPANS + 1:
            changes.pop(0)

    def shift(self, by: int) -> None:
        """Keep all ages as they are when the clock is set forward by so many nanoseconds."""
        spans = round(by / SPAN)
        self._changes = [(span + spans, counts) for span, counts in self._changes]
        self._span += spans

    def spans(self, now: int) -> Iterator[PastSpan]:
        """Yield what was in the hour before `now`, oldest first."""
        oldest = now // SPAN - SPANS + 1
        for (first, counts), (last, _) in pairwise([*self._changes, (self._span + 1, None)]):
            start, end = max(first, oldest) * SPAN, min(last * SPAN, now)
            if start < end:
                yield PastSpan(start, end, counts)

    @property
    def reversals(self) -> int:
        """The changes of direction of the desired count."""
        known = [counts.desired for _, counts in self._changes if counts is not None]
        steps = [after - before for before, after in pairwise(one for one in known if one is not None)]
        return sum(before * after < 0 for before, after in pairwise(step for step in steps if step))
