"""The last hour of one autoscaler as its changes: what was asked for, decided and Ready, what limited it.

A record is written when one of these changes, and holds until the next. Most autoscalers rest and have one or
two. What fills memory is a demand that sways each second while nothing follows from it. So a demand is
thinned, and what was done is not:

- A *reaction* is a change of the desired count, of Ready pods or of a bound. It keeps its second.
- All else is a *sway*: a change of the demand, or of the restraint, which says what keeps the count.
- A sway of less than 5 s is forgotten between two records that are at most `SLOT` apart, if one of them is as
  high. A sway that is at most a tenth, or one pod, below the record before is always forgotten. So a peak
  keeps its second, unless the record before is as high.
- A restraint that lasts for `SLOT` keeps its second. One that comes and goes while nothing is done does not.

What is older than `EXACT` is thinned again. A quarter counts in place of a tenth, and `SLOT` in place of 5 s.
A record takes over the demand of a peak that is so little above it, for `RUN` at most. If a slot still has
more than two records, all but the last become one: the most demand and desired pods, and the fewest Ready.

So an hour has hardly more than two records in each slot. More than `MOST` come only from a reaction each
second, and then the older ones of the exact records are thinned too.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.timestamps import SECOND

HOUR = 3600 * SECOND
EXACT = 600 * SECOND
SLOT = 15 * SECOND
RUN = 300 * SECOND
MOST = 512

LAPSE = 90 * SECOND
"""After this long without a decision nothing is known; no period is as long."""

_EARLIER = EXACT // 2, SLOT, -SLOT
"""The ages beyond which records are thinned if there are too many; all are beyond the last."""


_Grain = tuple[float, int, int]
_FINE, _COARSE = (0.1, SLOT, SLOT // 3), (0.25, 4 * SLOT, SLOT)
"""The part of a demand that is no change of it, and how long a restraint and a demand hold that are shown."""


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The counts from `at` nanoseconds on, None for one that is not known.

    `bounds` are the floor, 0 without one, the minimum and the maximum. Where nothing was decided there is no
    restraint.
    """

    at: int
    demand: int | None
    desired: int | None
    ready: int | None
    bounds: tuple[int, int, int]
    restraint: Restraint | None

    def repeats(self, other: "Counts") -> bool:
        return self == msgspec.structs.replace(other, at=self.at)

    @property
    def height(self) -> float:
        return -math.inf if self.demand is None else self.demand


class PastHour:
    __slots__ = ("_changes", "_noted")

    def __init__(self) -> None:
        self._changes: tuple[Counts, ...] = ()
        self._noted = 0

    def note(self, now: Counts) -> None:
        """Note what was decided, not before what was noted earlier."""
        known, self._noted = self._until(now.at), now.at
        if not known or not now.repeats(known[-1]):
            self._changes = add(known, now)

    def changes(self, now: int) -> Sequence[Counts]:
        """Return the changes of the hour before `now`, oldest first; the first may be older."""
        known = self._until(now)
        return known[_first(known, now) :]

    def _until(self, now: int) -> tuple[Counts, ...]:
        """Return the changes; after a lapse the last one is of nothing."""
        if not self._changes or now - self._noted <= LAPSE:
            return self._changes
        return add(self._changes, Counts(self._noted + LAPSE, None, None, None, (0, 0, 0), None))

    def reversals(self, now: int) -> int:
        """Return the changes of direction of the desired count in the hour before `now`."""
        known = [one.desired for one in self.changes(now) if one.desired is not None]
        turns = [after > before for before, after in itertools.pairwise(known) if after != before]
        return sum(one != other for one, other in itertools.pairwise(turns))


def add(changes: Sequence[Counts], new: Counts) -> tuple[Counts, ...]:
    """Return the changes of an hour with one more, without those that it makes needless."""
    kept = list(changes)
    while len(kept) > 1 and _is_needless(kept[-2], kept[-1], new, _FINE):
        kept.pop()
    if not kept or not new.repeats(kept[-1]):
        shared = kept and kept[-1].bounds == new.bounds
        kept.append(msgspec.structs.replace(new, bounds=kept[-1].bounds) if shared else new)
    if changes:
        kept = _thinned(kept, changes[-1].at - EXACT, new.at - EXACT)
    for age in _EARLIER if len(kept) > MOST else ():
        kept = _thinned(kept, 0, new.at - age) if len(kept) > MOST else kept
    return tuple(kept[_first(kept, new.at) :])


def _first(changes: Sequence[Counts], now: int) -> int:
    """Return the place of the change that holds at the beginning of an hour."""
    return max(0, sum(1 for _ in itertools.takewhile(lambda one: one.at <= now - HOUR, changes)) - 1)


def _thinned(changes: list[Counts], begin: int, end: int) -> list[Counts]:
    """Return changes with those in the slots between two instants as what is old."""
    begin, end = begin // SLOT * SLOT, end // SLOT * SLOT
    if begin == end:
        return changes
    first = max(1, sum(one.at < begin for one in changes))
    last = max(first, sum(one.at < end for one in changes[:-1]))
    kept = changes[:first]
    for one, after in zip(changes[first:last], changes[first + 1 :], strict=False):
        if _is_as_high(kept[-1], one, after):
            kept[-1] = msgspec.structs.replace(kept[-1], demand=one.demand)
        elif not _is_needless(kept[-1], one, after, _COARSE):
            kept.append(one)
    slots = (list(slot) for _, slot in itertools.groupby(kept[first:], key=lambda one: one.at // SLOT))
    old = itertools.chain.from_iterable(slot if len(slot) <= 2 else _merged(slot) for slot in slots)
    return [*kept[:first], *old, *changes[last:]]


def _merged(slot: Sequence[Counts]) -> Iterator[Counts]:
    """Yield two changes for those of a slot: the last, and one of all before."""
    *others, last = slot
    highest = max(others, key=lambda one: one.height)
    desired = max((one.desired for one in others if one.desired is not None), default=None)
    ready = min((one.ready for one in others if one.ready is not None), default=None)
    yield Counts(others[0].at, highest.demand, desired, ready, others[-1].bounds, highest.restraint)
    yield last


def _is_sway(before: Counts, one: Counts, after: Counts, flicker: int) -> bool:
    """Tell whether nothing was done with the middle one of three changes, nor is its restraint a new one."""
    if one.desired != before.desired or one.ready != before.ready or one.bounds != before.bounds:
        return False
    is_over = one.restraint is not after.restraint and after.at - one.at < flicker
    return is_over or one.restraint is before.restraint


def _is_needless(before: Counts, one: Counts, after: Counts, grain: _Grain) -> bool:
    """Tell whether the middle one of three changes is a sway that may be forgotten."""
    share, flicker, moment = grain
    if not _is_sway(before, one, after, flicker):
        return False
    high, level, later = before.height, one.height, after.height
    is_short = after.at - one.at < moment
    if is_short and level <= max(high, later) and after.at - before.at <= SLOT:
        return True
    low = high - max(1, high * share)
    return level <= high and (level >= low or (is_short and later >= low))


def _is_as_high(before: Counts, one: Counts, after: Counts) -> bool:
    """Tell whether an old sway is so little above what was just before that this may be as high."""
    share, flicker, _ = _COARSE
    is_little = one.height - max(1, one.height * share) <= before.height < one.height
    return is_little and one.at - before.at <= RUN and _is_sway(before, one, after, flicker)
