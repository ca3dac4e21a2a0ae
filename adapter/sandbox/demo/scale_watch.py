"""The Scale writes that reach the sandbox cluster, with their times.

The time of a write is the moment at which the API server stores it, whichever client sent it.
"""

from collections.abc import Callable
from typing import NamedTuple

from adapter.sandbox.apiserver.cluster import Cluster
from adapter.sandbox.apiserver.storage.objects import store_key
from adapter.sandbox.apiserver.storage.store import Change


class Rescale(NamedTuple):
    """A changed count and its time (the seconds of the watch's clock)."""

    time: float
    before: int
    after: int


class ScaleWatch:
    """Records the Scale writes of Deployments. `now` is read at each write."""

    def __init__(self, cluster: Cluster, now: Callable[[], float]) -> None:
        self._now = now
        self._writes: dict[tuple[str, str], list[Rescale]] = {}
        cluster.store.subscribe(store_key(cluster.kinds.find("deployments")), self._changed)

    def raised(self, namespace: str, name: str, since: float, least: int = 0) -> float | None:
        """Return the time of the first raise after `since` to `least` replicas or more, None before it."""
        for write in self._writes.get((namespace, name), ()):
            if write.time >= since and write.after > write.before and write.after >= least:
                return write.time
        return None

    def highest(self, namespace: str, name: str, since: float) -> int:
        """Return the highest count written after `since`, 0 without a write."""
        return max(
            (each.after for each in self._writes.get((namespace, name), ()) if each.time >= since), default=0
        )

    def _changed(self, change: Change) -> None:
        if change.old is None or change.new is None:
            return
        before, after = (each.document["spec"].get("replicas", 1) for each in (change.old, change.new))
        if before != after:
            place = change.new.namespace, change.new.name
            self._writes.setdefault(place, []).append(Rescale(self._now(), before, after))
