"""Bounded caches that evict the least recently used entry and expose their size.

A bound never changes an answer: an evicted entry is fetched or computed again.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from cachetools import LRUCache, TLRUCache

from adapter.telemetry.metrics import Monitoring

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(LRUCache[K, V]):
    """An LRU cache whose entries weigh at most `room` together.

    `weigh` returns the weight of a value, 1 by default. `name` is the label of its metrics.
    """

    def __init__(
        self, name: str, monitoring: Monitoring | None, room: int, weigh: Callable[[V], float] | None = None
    ) -> None:
        super().__init__(room, weigh)
        self._evictions = None if monitoring is None else monitoring.watch_cache(name, self)

    def popitem(self) -> tuple[K, V]:
        if self._evictions is not None:
            self._evictions.inc()
        return super().popitem()


class ExpiringCache(TLRUCache[K, tuple[V, float]]):
    """A bounded cache of values that expire: an entry is a value and its expiry in monotonic seconds."""

    def __init__(
        self,
        name: str,
        monitoring: Monitoring | None,
        room: int,
        weigh: Callable[[tuple[V, float]], float],
        timer: Callable[[], float],
    ) -> None:
        super().__init__(room, ttu=lambda _, entry, __: entry[1], timer=timer, getsizeof=weigh)
        self._evictions = None if monitoring is None else monitoring.watch_cache(name, self)

    def popitem(self) -> tuple[K, tuple[V, float]]:
        if self._evictions is not None:
            self._evictions.inc()
        return super().popitem()
