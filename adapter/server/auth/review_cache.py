"""Cached reviews of tokens and accesses, with one review at a time for equal questions.

A review that fails is not cached. A review belongs to no caller: it goes on when the caller that started it
leaves, and all callers that wait for it share its result. The lifetime of an answer begins when it arrives.
"""

import asyncio
import functools
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import Counter

from adapter import errors
from adapter.model.clock import Clock
from adapter.telemetry.metrics import BoundedCache, Monitoring

SIZE = 8192
"""Answers kept; beyond that the least recently used are evicted. A long question counts once more for each
4 KiB."""

COUNTS_AS_ONE = 4096


class ReviewLimit(NamedTuple):
    """At most `most` reviews under way with this name. A review may count in several limits."""

    name: str
    most: int


ALL_REVIEWS = ReviewLimit("all", 400)

SHARE = 100
"""Reviews of one user, or of the unknown tokens of one address, that are under way at a time."""

_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")


class _CachedReview(NamedTuple, Generic[_Answer]):
    answer: _Answer
    until: float
    weight: int


class ReviewCache(Generic[_Key, _Answer]):
    """Keeps answers by key.

    `requests` counts look-ups by ``hit`` and ``miss``. `keep_for` returns how many seconds an answer is kept,
    `weigh` the bytes of a key that a caller chooses. `cache` is the cache's name in the self-metrics.
    """

    def __init__(
        self,
        clock: Clock,
        requests: Counter,
        keep_for: Callable[[_Answer], float],
        *,
        name: str,
        cache: str,
        monitoring: Monitoring,
        weigh: Callable[[_Key], int] = lambda _: 0,
        size: int = SIZE,
    ) -> None:
        self._clock = clock
        self._keep_for = keep_for
        self._name = name
        self._hits, self._misses = requests.labels("hit"), requests.labels("miss")
        self._weigh = weigh
        self._kept: BoundedCache[_Key, _CachedReview[_Answer]] = BoundedCache(
            cache, monitoring, size, lambda kept: kept.weight
        )
        self._under_way: dict[_Key, asyncio.Task[_Answer]] = {}
        self._in_review: Counts[ReviewLimit] = Counts()

    def find(self, key: _Key) -> _Answer | None:
        """Return a kept answer that has not expired, else None."""
        try:
            kept = self._kept[key]
        except KeyError:
            return None
        if self._clock.monotonic() >= kept.until:
            del self._kept[key]
            return None
        self._hits.inc()
        return kept.answer

    async def ask(
        self,
        key: _Key,
        review: Callable[[], Awaitable[_Answer]],
        *,
        keep: bool = True,
        limits: Sequence[ReviewLimit] = (ALL_REVIEWS,),
    ) -> _Answer:
        """Return the answer of a review that is under way or starts now; raises what it raises.

        Raises TooManyRequestsError rather than exceed one of the limits. Reviews count, not the callers that
        wait for them. `keep` False caches nothing.
        """
        self._misses.inc()
        task = self._under_way.get(key)
        if task is None:
            if any(self._in_review[limit] >= limit.most for limit in limits):
                raise errors.TooManyRequestsError("reviews")
            task = asyncio.create_task(self._review(key, review, keep=keep), name=self._name)
            self._under_way[key] = task
            self._in_review.update(limits)
            task.add_done_callback(functools.partial(self._end, key, limits))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the reviews under way, and the callers that wait for them."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _review(self, key: _Key, review: Callable[[], Awaitable[_Answer]], *, keep: bool) -> _Answer:
        answer = await review()
        seconds = self._keep_for(answer)
        weight = 1 + self._weigh(key) // COUNTS_AS_ONE
        if keep and seconds > 0 and weight <= self._kept.maxsize:
            self._kept[key] = _CachedReview(answer, self._clock.monotonic() + seconds, weight)
        return answer

    def _end(self, key: _Key, limits: Sequence[ReviewLimit], task: asyncio.Task[_Answer]) -> None:
        """Remove a review that has ended, and retrieve its exception: its callers may all have left."""
        del self._under_way[key]
        for limit in limits:
            self._in_review[limit] -= 1
            if not self._in_review[limit]:
                del self._in_review[limit]  # users and addresses have no bound
        if not task.cancelled():
            task.exception()
