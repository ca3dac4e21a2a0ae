"""Answers of reviews, kept for a while; one review for all who ask the same at a time.

Shared by token and access reviews. The law: a review that failed is never kept, a caller who goes away takes nothing from
the others, and an answer is good from its arrival for as long as it is told, not longer.
"""

import asyncio
import functools
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import Counter

from adapter import errors
from adapter.model.clock import Clock
from adapter.telemetry.caching import BoundedCache
from adapter.telemetry.metrics import Monitoring

SIZE = 8192
"""Answers kept; beyond, those go that were not used for longest. One whose question is long counts for several, one for every 4 KiB."""

_COUNTS_AS_ONE = 4096


class ReviewLimit(NamedTuple):
    """A limit on reviews under way: at most `most` of a lane. A review may count in several lanes."""

    name: str
    most: int


EVERYBODY = ReviewLimit("everybody", 400)

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

    `requests` counts look-ups by ``hit`` and ``miss``; `keep_for` gives an answer's seconds, `weigh` the bytes of a key that somebody
    chooses; `cache` is what it is called in the self-metrics.
    """

    def __init__(
        self,
        clock: Clock,
        requests: Counter,
        keep_for: Callable[[_Answer], float],
        *,
        name: str,
        cache: str = "",
        monitoring: Monitoring | None = None,
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
        self._in_lane: Counts[ReviewLimit] = Counts()

    def find(self, key: _Key) -> _Answer | None:
        """Return a kept answer, None when there is none that is still good."""
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
        lanes: Sequence[ReviewLimit] = (EVERYBODY,),
    ) -> _Answer:
        """Return the answer of a review that is under way or starts now; raises what it raises. `keep` False keeps nothing.

        Raises TooManyRequestsError instead of starting one more than each of the lanes allows. Reviews count,
        not the callers that wait for them: a caller may leave while its review goes on.
        """
        self._misses.inc()
        task = self._under_way.get(key)
        if task is None:
            if any(self._in_lane[lane] >= lane.most for lane in lanes):
                raise errors.TooManyRequestsError("reviews")
            task = asyncio.create_task(self._review(key, review, keep=keep), name=self._name)
            self._under_way[key] = task
            self._in_lane.update(lanes)
            task.add_done_callback(functools.partial(self._end, key, lanes))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the reviews under way; who waits for one is cancelled."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _review(self, key: _Key, review: Callable[[], Awaitable[_Answer]], *, keep: bool) -> _Answer:
        answer = await review()
        seconds = self._keep_for(answer)
        weight = 1 + self._weigh(key) // _COUNTS_AS_ONE
        if keep and seconds > 0 and weight <= self._kept.maxsize:
            self._kept[key] = _CachedReview(answer, self._clock.monotonic() + seconds, weight)
        return answer

    def _end(self, key: _Key, lanes: Sequence[ReviewLimit], task: asyncio.Task[_Answer]) -> None:
        """Forget a review that has ended, and retrieve its exception: its callers may all have gone."""
        del self._under_way[key]
        for lane in lanes:
            self._in_lane[lane] -= 1
            if not self._in_lane[lane]:
                del self._in_lane[lane]  # users and addresses have no bound
        if not task.cancelled():
            task.exception()
