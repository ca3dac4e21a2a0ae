"""Results of pure functions, remembered within a weight so that long arguments cannot fill the memory.

`functools.lru_cache` bounds the number of results, not their size. Where an argument comes from an object of
the cluster, its owner chooses the size, and what is remembered outlives the object.

`Doorkeeper` keeps what is asked once out of a cache.
"""

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar

from cachetools import LRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Doorkeeper:
    """Admits a key to a cache when it comes for the second time.

    A caller may send new keys without end, and each cached result takes some thousand bytes until it is
    displaced. A key that came once takes about 80 bytes here. The last `most` keys are known, and at most
    twice as many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def admits(self, key: Hashable) -> bool:
        """Return whether the key came before. A wrong True, by equal hashes, costs one entry."""
        known = hash(key)
        if known in self._recent or known in self._older:
            return True
        if len(self._recent) >= self._most:
            self._recent, self._older = set(), self._recent
        self._recent.add(known)
        return False


def remember(room: int, weigh: Callable[[K], int]) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Return a decorator for a function of one argument.

    `weigh` estimates the bytes of an argument and its result together. The least recently used results go
    first. A result that weighs more than a sixty-fourth of the room is not kept.
    """

    def decorate(function: Callable[[K], V]) -> Callable[[K], V]:
        results: LRUCache[K, tuple[V, int]] = LRUCache(room, getsizeof=lambda result: result[1])

        @functools.wraps(function)
        def remembered(argument: K) -> V:
            entry = results.get(argument)
            if entry is not None:
                return entry[0]
            result = function(argument)
            weight = weigh(argument)
            if weight <= room // 64:
                results[argument] = (result, weight)
            return result

        remembered.kept = results  # type: ignore[attr-defined]  # for tests
        return remembered

    return decorate


def remember_short(most: int, longest: int = 64) -> Callable[[Callable[[str], V]], Callable[[str], V]]:
    """Return a decorator for a function of a text, which keeps the results of `most` short texts.

    It is faster than `remember`, for what is decoded often.
    """

    def decorate(function: Callable[[str], V]) -> Callable[[str], V]:
        cached = functools.lru_cache(most)(function)

        @functools.wraps(function)
        def remembered(text: str) -> V:
            return cached(text) if len(text) <= longest else function(text)

        return remembered

    return decorate
