"""How many pods of a selection were ready, as far back as it matters.

What lives here: the record and its one question. Not here: who counts (`podwatch`). The law: the answer is exact or None.
"""

import bisect

import msgspec

KEPT_SECONDS = 900.0
"""For how long it is known how many pods were ready: longer than any window that makes sense to a scaler."""


class ReadyHistory(msgspec.Struct, gc=False, eq=False):
    """How many pods were ready, back to `since`; times in seconds of the monotonic clock.

    Only what a window that ends now can still see as its smallest is kept: counts in rising order, each with when it ended.
    """

    count: int
    since: float
    past: list[tuple[float, int]] | None = None
    """When a count ended, and the count, oldest first; None, which is most often so, for nothing."""

    def note(self, count: int, now: float) -> None:
        """Note that from now on so many are ready."""
        past = self.past or []
        if count > self.count:
            past.append((now, self.count))
        while past and past[-1][1] >= count:
            past.pop()
        del past[: bisect.bisect_left(past, now - KEPT_SECONDS, key=_end_of)]
        self.past = past or None
        self.count = count

    def restart(self, now: float) -> None:
        """Note that nobody knows what happened until now."""
        self.since = now
        self.past = None

    def smallest(self, start: float, now: float) -> int | None:
        """Return the smallest number since `start`, None where that is not known."""
        if start < self.since or start < now - KEPT_SECONDS:
            return None
        past = self.past or ()
        place = bisect.bisect_left(past, start, key=_end_of)
        return past[place][1] if place < len(past) else self.count


def _end_of(past: tuple[float, int]) -> float:
    return past[0]
