"""The last hour of one autoscaler in less than 2 KiB: what was asked for, decided and Ready, and its limits.

Time is divided into spans of 30 seconds. A span has one record of fixed size, and a record that repeats the
last one lengthens it instead. So an autoscaler at rest takes a few bytes, and a busy one a record a span.
Within a span the highest demand counts and the fewest Ready pods, because a short peak is what one looks for;
of all else the last value.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.timestamps import SECOND

SPAN = 30 * SECOND
SPANS = 120
"""The number of spans that are kept."""

MOST = 0xFFFE
"""The largest count that is kept; a larger one is kept as this."""

_COUNTS = struct.Struct("<6HB")
"""Demand, desired, ready, floor, min, max, and the place of the restraint."""

_RECORD = 1 + _COUNTS.size
"""A record is a number of spans and their counts."""

_RESTRAINTS = tuple(Restraint)
_PLACES = {restraint: place for place, restraint in enumerate(_RESTRAINTS)}
_NOTHING = _COUNTS.pack(0, 0, 0, 0, 0, 0, _PLACES[Restraint.FAILED])


class Counts(NamedTuple):
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
    __slots__ = ("_open", "_sealed", "_span")

    def __init__(self) -> None:
        self._sealed = b""
        """Records of the spans before the open one, oldest first."""
        self._open = _NOTHING
        self._span = 0
        """The number of the open span, 0 before the first."""

    def note(self, counts: Counts, now: int) -> None:
        """Note the counts of a decision at `now` nanoseconds, not before those noted earlier."""
        span = now // SPAN
        if span > self._span:
            self._seal(span)
            self._open = _NOTHING
        packed = _pack(counts)
        if packed != self._open:
            self._open = packed if self._open is _NOTHING else _merge(self._open, packed)

    def spans(self, now: int) -> Iterator[PastSpan]:
        """Yield what was in the hour before `now`, oldest first."""
        places = range(0, len(self._sealed), _RECORD)
        records = [(self._sealed[at], self._sealed[at + 1 : at + _RECORD]) for at in places]
        first = self._span - sum(count for count, _ in records)
        oldest = now // SPAN - SPANS
        for count, packed in (*records, (1, self._open)):
            start, end = max(first, oldest) * SPAN, min((first + count) * SPAN, now)
            if self._span and start < end:
                yield PastSpan(start, end, None if packed == _NOTHING else _unpack(packed))
            first += count

    @property
    def reversals(self) -> int:
        """The changes of direction of the desired count."""
        changes, before, direction = 0, None, 0
        records = self._sealed + b"\1" + self._open
        for at in range(1, len(records), _RECORD):
            desired = _unpack(records[at : at + _COUNTS.size]).desired
            if desired is None or desired == before:
                continue
            if before is not None:
                turn = 1 if desired > before else -1
                changes += turn == -direction
                direction = turn
            before = desired
        return changes

    def _seal(self, span: int) -> None:
        """Begin a span: the open one becomes a record, and spans without a decision another."""
        if not self._span:
            self._span = span
            return
        records = _lengthened(self._sealed, self._open, 1)
        if span > self._span + 1:
            records = _lengthened(records, _NOTHING, min(span - self._span - 1, SPANS))
        self._sealed, self._span = _last_spans(records), span


def _lengthened(records: bytes, packed: bytes, spans: int) -> bytes:
    """Return records with some more spans of the same counts."""
    if records[-_COUNTS.size :] == packed:
        spans += records[-_RECORD]
        records = records[:-_RECORD]
    return records + bytes((min(spans, SPANS),)) + packed


def _last_spans(records: bytes) -> bytes:
    """Return the records of the last spans."""
    left = SPANS - 1
    for at in range(len(records) - _RECORD, -1, -_RECORD):
        if records[at] >= left:
            return bytes((left,)) + records[at + 1 :]
        left -= records[at]
    return records


def _pack(counts: Counts) -> bytes:
    demand, desired, ready, floor, low, high, restraint = counts
    # 0 is an unknown count, and others are one more
    demand = 0 if demand is None else demand + 1
    desired = 0 if desired is None else desired + 1
    ready = 0 if ready is None else ready + 1
    packed = demand, desired, ready, floor, low, high
    try:
        return _COUNTS.pack(*packed, _PLACES[restraint])
    except struct.error:  # a count with more bits, which a spec may have
        return _COUNTS.pack(*(max(0, min(count, MOST + 1)) for count in packed), _PLACES[restraint])


def _unpack(packed: bytes) -> Counts:
    demand, desired, ready, floor, low, high, place = _COUNTS.unpack(packed)
    return Counts(_known(demand), _known(desired), _known(ready), floor, low, high, _RESTRAINTS[place])


def _known(count: int) -> int | None:
    return count - 1 if count else None


def _merge(before: bytes, packed: bytes) -> bytes:
    """Return the counts of a span after one more decision."""
    former, _, least, *_ = _COUNTS.unpack(before)
    demand, desired, ready, *others = _COUNTS.unpack(packed)
    return _COUNTS.pack(max(former, demand), desired, min(least, ready) or max(least, ready), *others)
