"""The metrics that Fastpath exposes about itself, and their text format.

A metric is an attribute of `Monitoring`, declared in the table of its area; documentation and tests read the
same declarations through `METRICS`. Names carry their unit, and label values are bounded: by the declaration,
or by the kinds, groups and autoscalers of the cluster. `kind`, `namespace` and `name` are those of an
autoscaler. Names that dashboards know from API servers and from prometheus-adapter are kept.
"""

import platform
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

import prometheus_client
from cachetools import Cache, LRUCache, TLRUCache
from prometheus_client import Counter
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from adapter.telemetry.declarations import Metric
from adapter.telemetry.scaler_metrics import AutoscalerMetrics, ScalerMetrics
from adapter.telemetry.server_metrics import ServerMetrics
from adapter.telemetry.source_metrics import SourceMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SAMPLES_AT_ONCE = 50


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Monitoring(ServerMetrics, SourceMetrics, ScalerMetrics, AutoscalerMetrics):
    """The metrics of one process, or of one test, in a registry of their own."""

    def __init__(self, version: str = "unknown") -> None:
        self.registry = prometheus_client.CollectorRegistry(auto_describe=False)
        for metric in METRICS:
            setattr(self, metric.attribute, metric.build(self.registry))
        prometheus_client.ProcessCollector(registry=self.registry)
        self._caches: dict[str, list[weakref.ref[Cache[Any, Any]]]] = {}
        self.build.labels(version=version, python=platform.python_version()).set(1)

    def watch_cache(self, name: str, cache: Cache[Any, Any]) -> Counter:
        """Expose the size of a cache; return the counter of its evictions.

        Caches that share a name are added up. The caches are referenced weakly.
        """
        watched = self._caches.get(name)
        if watched is None:
            watched = self._caches[name] = []
            self.cache_entries.labels(name).set_function(lambda: sum(map(len, _alive(watched))))
            self.cache_used.labels(name).set_function(lambda: _used(_alive(watched)))
        watched[:] = [reference for reference in watched if reference() is not None]
        watched.append(weakref.ref(cache))
        return self.cache_evictions.labels(name)

    def exposition(self) -> str:
        return b"".join(self.exposition_pieces()).decode()

    def exposition_pieces(self) -> Iterator[bytes]:
        """Yield the text in pieces of at most 50 samples, about a millisecond each."""
        for family in self._families():
            samples = family.samples
            for start in range(0, max(len(samples), 1), _SAMPLES_AT_ONCE):
                family.samples = samples[start : start + _SAMPLES_AT_ONCE]
                text = prometheus_client.generate_latest(_FamilyCollector(family))
                # only the first piece of a family has the lines HELP and TYPE
                yield text if start == 0 else text.split(b"\n", 2)[2]

    def _families(self) -> Iterator[Family]:
        """Yield the metrics without what prometheus_client adds to them."""
        for family in self.registry.collect():
            # a `_created` sample would be one more gauge for every series
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            if family.name in _BARE_COUNTERS:
                family.type = "unknown"  # the type counter would be written with the suffix
                family.samples = [sample._replace(name=family.name) for sample in family.samples]
            yield family


METRICS = tuple(
    metric for area in Monitoring.__bases__ for metric in vars(area).values() if isinstance(metric, Metric)
)

# API servers expose these without the suffix `_total`, which prometheus_client always adds.
_BARE_COUNTERS = frozenset(
    metric.name for metric in METRICS if metric.type == "counter" and not metric.name.endswith("_total")
)


def _alive(watched: Iterable[weakref.ref[Cache[Any, Any]]]) -> list[Cache[Any, Any]]:
    return [cache for reference in watched if (cache := reference()) is not None]


def _used(caches: list[Cache[Any, Any]]) -> float:
    room = sum(cache.maxsize for cache in caches)
    return sum(cache.currsize for cache in caches) / room if room else 0.0


class _FamilyCollector(Collector):
    """One family in the form that `generate_latest` takes."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


class BoundedCache(LRUCache[_K, _V]):
    """An LRU cache whose entries weigh at most `room` together, and whose size is exposed.

    The bound never changes an answer: an evicted entry is fetched or computed again.

    `weigh` returns the weight of a value, 1 by default. `name` is the label of its metrics.
    """

    def __init__(
        self, name: str, monitoring: Monitoring | None, room: int, weigh: Callable[[_V], float] | None = None
    ) -> None:
        super().__init__(room, weigh)
        self._evictions = None if monitoring is None else monitoring.watch_cache(name, self)

    def popitem(self) -> tuple[_K, _V]:
        if self._evictions is not None:
            self._evictions.inc()
        return super().popitem()

    def drop_stale(self, is_stale: Callable[[_V], bool]) -> None:
        """Drop the two least recently used entries if they are stale, else count them as used now.

        Before each new entry this visits all of them in time, so stale ones do not stay until the cache is
        full. A cache that is half full keeps its order: there the least used ones go first.
        """
        if self.currsize * 2 > self.maxsize:
            return
        for _ in range(min(2, len(self))):
            key, value = super().popitem()
            if not is_stale(value):
                self[key] = value


class ExpiringCache(TLRUCache[_K, tuple[_V, float]]):
    """A bounded cache of values that expire: an entry is a value and its expiry in monotonic seconds."""

    def __init__(
        self,
        name: str,
        monitoring: Monitoring | None,
        room: int,
        weigh: Callable[[tuple[_V, float]], float],
        timer: Callable[[], float],
    ) -> None:
        super().__init__(room, ttu=lambda _, entry, __: entry[1], timer=timer, getsizeof=weigh)
        self._evictions = None if monitoring is None else monitoring.watch_cache(name, self)

    def popitem(self) -> tuple[_K, tuple[_V, float]]:
        if self._evictions is not None:
            self._evictions.inc()
        return super().popitem()
