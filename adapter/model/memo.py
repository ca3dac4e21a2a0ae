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
    displaced. A key that came once leaves a mark here. The last `most` keys are known, and at most twice as
    many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = 16 * most  # so at most one new key in eight finds the mark of another
        self._recent = bytearray(self._places)
        self._older = bytearray(self._places)
        self._marked = 0

    def admits(self, key: Hashable) -> bool:
        """Return whether the key came before. A wrong True, by the mark of another key, costs one entry."""
        place = hash(key) % self._places
        if self._recent[place] or self._older[place]:
            return True
        if self._marked >= self._most:
            self._recent, self._older = bytearray(self._places), self._recent
            self._marked = 0
        self._marked += 1
        self._recent[place] = 1
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
