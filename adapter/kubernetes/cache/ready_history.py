"""How many pods of a selection were ready, as far back as it matters: the smallest and the largest number of a window that ends now."""

import bisect
import operator
from collections.abc import Callable

import msgspec

KEPT_SECONDS = 900.0
"""For how long it is known how many pods were ready: longer than any window that makes sense to a scaler."""


class ReadyHistory(msgspec.Struct, gc=False, eq=False):
    """How many pods were ready, back to `since`; times in seconds of the monotonic clock.

    Only what a window that ends now can still see as its smallest or largest is kept: in `past` counts in rising
    order, in `peaks` counts in falling order, each with when it ended.
    """

    count: int
    since: float
    past: list[tuple[float, int]] | None = None
    """When a count ended, and the count, oldest first; None, which is most often so, for nothing."""
    peaks: list[tuple[float, int]] | None = None

    def note(self, count: int, now: float) -> None:
        """Note that from now on so many are ready."""
        self.past = _noted(self.past, self.count, count, now, operator.lt)
        self.peaks = _noted(self.peaks, self.count, count, now, operator.gt)
        self.count = count

    def restart(self, now: float) -> None:
        """Note that nobody knows what happened until now."""
        self.since = now
        self.past = self.peaks = None

    def smallest(self, start: float, now: float) -> int | None:
        """Return the smallest number since `start`, None where that is not known."""
        if start < self.since or start < now - KEPT_SECONDS:
            return None
        past = self.past or ()
        place = bisect.bisect_left(past, start, key=_end_of)
        return past[place][1] if place < len(past) else self.count

    def largest(self, start: float) -> int:
        """Return the largest number that is known since `start`."""
        peaks = self.peaks or ()
        place = bisect.bisect_left(peaks, start, key=_end_of)
        return peaks[place][1] if place < len(peaks) else self.count


def _noted(
    past: list[tuple[float, int]] | None,
    ended: int,
    count: int,
    now: float,
    exceeds: Callable[[int, int], bool],
) -> list[tuple[float, int]] | None:
    """Return the counts that are extreme beside all later ones, after `ended` became `count`."""
    kept = past or []
    if exceeds(ended, count):
        kept.append((now, ended))
    while kept and not exceeds(kept[-1][1], count):
        kept.pop()
    del kept[: bisect.bisect_left(kept, now - KEPT_SECONDS, key=_end_of)]
    return kept or None


def _end_of(past: tuple[float, int]) -> float:
    return past[0]
