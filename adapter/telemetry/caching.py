"""Caches within a bound, the least recently used going first; each says how full it is and how much it had to drop.

Not here: what is worth keeping, and what an entry weighs. The law: a bound never changes an answer: what was dropped is asked or worked out
anew.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from cachetools import LRUCache, TLRUCache

from adapter.telemetry.monitoring import Monitoring

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(LRUCache[K, V]):
    """At most `room`, by what `weigh` says of the values; 1 each without it. `name` is what the self-metrics call it, None for nothing."""

    def __init__(
        self, name: str, monitoring: Monitoring | None, room: int, weigh: Callable[[V], float] | None = None
    ) -> None:
        super().__init__(room, weigh)
        self._evictions = None if monitoring is None else monitoring.watch_cache(name, self)

    def popitem(self) -> tuple[K, V]:
        """Drop what was not used for longest."""
        if self._evictions is not None:
            self._evictions.inc()
        return super().popitem()


class ExpiringCache(TLRUCache[K, tuple[V, float]]):
    """The same for values that end: each comes with the moment (monotonic seconds) from which on it is gone."""

    def __init__(
        self,
        name: str,
        monitoring: Monitoring | None,
        room: int,
        weigh: Callable[[tuple[V, float]], float],
        timer: Callable[[], float],
    ) -> None:
        super().__init__(room, ttu=lambda _, kept, __: kept[1], timer=timer, getsizeof=weigh)
        self._evictions = None if monitoring is None else monitoring.watch_cache(name, self)

    def popitem(self) -> tuple[K, tuple[V, float]]:
        """Drop what was not used for longest, of what has not ended yet."""
        if self._evictions is not None:
            self._evictions.inc()
        return super().popitem()
