"""The time that processing scraped bodies may take, divided fairly between namespaces and their pods.

Every pod demands what one of its scrapes costs, divided by its interval. As long as all demands fit the share
of time that is meant for scrapes, each pod is scraped at its interval. If they do not fit, the namespaces
with the largest demands are cut to the same level, and in each of these the pods with the largest demands:
they are scraped less often, and all others as before.
"""

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

from adapter.model import fairness

TIME_SHARE = 0.4
"""The part of the process's time that all scraped bodies together may take."""

LONGEST_STRETCH = 60.0
"""By how much the interval of one pod is multiplied at most."""

_STEP = 1.25
_NEWEST = 0.3

Key = TypeVar("Key", bound=Hashable)


class TimeShares(Generic[Key]):
    """What each pod costs, and how much less often it has to be scraped for that."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[Key, float]] = {}  # of one scrape, smoothed
        self._demands: dict[str, dict[Key, float]] = {}
        self._sums: dict[str, float] = {}

    def note(self, namespace: str, key: Key, seconds: float, interval: float) -> None:
        """Note what a scrape has cost, and how often, in seconds, the rule wants one."""
        costs = self._seconds.setdefault(namespace, {})
        cost = costs.get(key, seconds)
        costs[key] = cost = cost + (seconds - cost) * _NEWEST
        demands = self._demands.setdefault(namespace, {})
        demand = cost / interval
        self._sums[namespace] = self._sums.get(namespace, 0.0) + demand - demands.get(key, 0.0)
        demands[key] = demand

    def drop(self, namespace: str, key: Key) -> None:
        """Forget a pod."""
        demand = self._demands.get(namespace, {}).pop(key, None)
        if demand is None:
            return
        del self._seconds[namespace][key]
        self._sums[namespace] -= demand
        if not self._demands[namespace]:
            del self._demands[namespace], self._seconds[namespace], self._sums[namespace]

    def stretches(self) -> dict[str, dict[Key, float]]:
        """Return the factors of intervals by namespace and pod, where they are more than 1."""
        most = fairness.level(self._sums.values(), TIME_SHARE)
        found: dict[str, dict[Key, float]] = {}
        for namespace, demand in self._sums.items():
            if demand > most:
                demands = self._demands[namespace]
                level = fairness.level(demands.values(), most)
                found[namespace] = {
                    key: _stretch(each / level) for key, each in demands.items() if each > level
                }
        return found


def _stretch(ratio: float) -> float:
    """Return a factor of at least `ratio` in coarse steps, so that it does not change with each scrape."""
    return min(LONGEST_STRETCH, _STEP ** math.ceil(math.log(ratio, _STEP)))
