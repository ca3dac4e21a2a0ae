"""The steps of the count in a history: how long after the demand it was raised, and until pods were Ready."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.model.autoscaling.view import HistoryPoint, HistoryView
from adapter.model.timestamps import SECOND, read_nanoseconds


class Stretch(NamedTuple):
    """A point of the history with its begin and end in epoch seconds."""

    start: float
    end: float
    point: HistoryPoint


class Move(NamedTuple):
    """A change of the count at `at`. `since` is since when the demand was above it, None where it was not.

    `ready` is when the pods of a raise were Ready, None where they never were.
    """

    at: float
    before: int
    after: int
    cause: str
    since: float | None = None
    ready: float | None = None


def epoch(at: str) -> float:
    return read_nanoseconds(at) / SECOND


def spans(history: HistoryView | None, until: float) -> list[Stretch]:
    """Return a history, oldest first; its last point holds `until` then."""
    points = () if history is None else history.points
    starts = [epoch(point.at) for point in points]
    listed = zip(starts, [*starts[1:], until], points, strict=False)
    return [Stretch(start, end, point) for start, end, point in listed if end > start]


def find(known: Sequence[Stretch]) -> Iterator[Move]:
    """Yield the steps of a history, oldest first."""
    for place, (former, span) in enumerate(itertools.pairwise(known), 1):
        before, count = former.point.desired, span.point.desired
        if before is None or count is None or before == count:
            continue
        step = Move(span.start, before, count, span.point.limited_by)
        if count > before:
            step = step._replace(since=_since(known[: place + 1], before), ready=_ready(known[place:], count))
        yield step


def _since(known: Sequence[Stretch], count: int) -> float | None:
    """Return since when the demand has been above a count, None if it is not."""
    above = list(itertools.takewhile(lambda span: (span.point.demand or 0) > count, reversed(known)))
    return above[-1].start if above else None


def _ready(known: Sequence[Stretch], count: int) -> float | None:
    """Return when so many pods were Ready, None if the count changes before."""
    held = itertools.takewhile(lambda span: (span.point.desired or 0) >= count, known)
    return next((span.start for span in held if (span.point.ready or 0) >= count), None)
