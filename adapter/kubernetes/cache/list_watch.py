"""What a reflector is composed of beside its store.

The list and watch calls, its periods, its pauses and its metrics.

The periods are client-go's unless their docstring says otherwise.

"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from adapter.kubernetes.codec import ObjectCodec, WatchEvent
from adapter.model.clock import Clock
from adapter.model.resources import APIResource
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

MAX_REASONS = 40
"""Upper bound on distinct `reason` label values of one reflector; the API server has fewer reasons.
Further ones count as Other.
"""

_MAX_DOUBLINGS = 20  # far beyond any limit, and 2.0**n stays finite after days of failures

T = TypeVar("T")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ReflectorPeriods:
    """Periods and timeouts in seconds."""

    watch: float = 300.0
    """Shortest duration of a watch; the longest is twice that."""

    silence: float = 120.0
    """A watch without a byte for this long is lost. Servers send a bookmark about every minute; client-go
    relies on pings.
    """

    short_watch: float = 1.0
    """A watch that ends sooner without an event is a failure. Otherwise a broken server would be called in
    a tight loop.
    """

    backoff: float = 0.8
    """Pause after the first failure. Each further failure doubles it; jitter stretches it to at most twice
    its length.
    """

    backoff_limit: float = 30.0

    backoff_reset: float = 120.0
    """The pause starts at `backoff` again after this long without a failure."""

    relist: float = 30.0
    """Interval between lists where the kind cannot be watched. Our own."""

    watch_again: float = 300.0
    """Where watching is forbidden: interval between attempts to watch after all. Our own."""

    stale: float = 180.0
    """A cache is reported as stale after this long without word from the API server; it still answers. Our
    own.
    """

    first_list: float = 5.0
    """How long a question waits for the first list of its kind. Our own."""


class ListWatchClient(Protocol):
    """The calls of `KubernetesClient` that reflectors make."""

    async def list_objects(
        self,
        codec: ObjectCodec[_T],
        resource: APIResource,
        deliver: Callable[[list[_T]], None],
        *,
        namespace: str,
        fields: str,
        resource_version: str,
    ) -> str:
        """Deliver every object; return the version of the list."""
        ...

    def watch_objects(
        self,
        codec: ObjectCodec[_T],
        resource: APIResource,
        *,
        namespace: str,
        fields: str,
        resource_version: str,
        duration: float,
        silence: float,
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[WatchEvent[_T]]]]:
        """Open a watch."""
        ...


@dataclass(frozen=True, slots=True)
class ReflectorContext:
    """What all reflectors of a process share. `random` returns numbers in [0, 1)."""

    client: ListWatchClient
    clock: Clock
    monitoring: Monitoring
    faults: ProblemLog
    random: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    periods: ReflectorPeriods = ReflectorPeriods()


@dataclass(frozen=True, slots=True)
class ListWatch(Generic[T]):
    """One kind, in one namespace or ("") in all, as `codec` keeps its objects.

    `fields` is a field selector as text.

    An `optional` kind need not exist: if the API server does not serve it, there are no objects of it.

    """

    client: ListWatchClient
    codec: ObjectCodec[T]
    resource: APIResource
    namespace: str = ""
    fields: str = ""
    optional: bool = False

    async def fetch_list(self, deliver: Callable[[list[T]], None], resource_version: str) -> str:
        """Deliver every object; return the version of the list."""
        return await self.client.list_objects(
            self.codec,
            self.resource,
            deliver,
            namespace=self.namespace,
            fields=self.fields,
            resource_version=resource_version,
        )

    def open_watch(
        self, resource_version: str, *, duration: float, silence: float
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[WatchEvent[T]]]]:
        """Open a watch."""
        return self.client.watch_objects(
            self.codec,
            self.resource,
            namespace=self.namespace,
            fields=self.fields,
            resource_version=resource_version,
            duration=duration,
            silence=silence,
        )


class Backoff:
    """The pauses after failures.

    Exponential with jitter, from the start again after a time without failures.
    """

    def __init__(self, context: ReflectorContext) -> None:
        self._periods = context.periods
        self._clock = context.clock
        self._random = context.random
        self._failed_at = 0.0
        self.failures = 0
        """Failures since the pauses last started at their shortest."""

    def fail(self) -> float:
        """Count a failure; return the pause after it in seconds."""
        periods, now = self._periods, self._clock.monotonic()
        if now - self._failed_at > periods.backoff_reset:
            self.failures = 0
        pause = min(periods.backoff * 2.0 ** min(self.failures, _MAX_DOUBLINGS), periods.backoff_limit)
        self.failures += 1
        self._failed_at = now
        return pause * (1 + self._random())


class ReflectorMetrics:
    """The self-metrics of one reflector, whose label is `name`."""

    def __init__(self, monitoring: Monitoring, name: str) -> None:
        self._name = name
        self._errors = monitoring.informer_errors
        self._reasons: set[str] = set()
        self.objects = monitoring.informer_objects.labels(name)
        self.last_event = monitoring.informer_event.labels(name)
        self.synced = monitoring.informer_synced.labels(name)
        self.relists = monitoring.informer_relists.labels(name)
        self.events = monitoring.informer_events.labels(name)

    def count_error(self, reason: str) -> None:
        if reason not in self._reasons:
            if len(self._reasons) >= MAX_REASONS:
                reason = "Other"
            self._reasons.add(reason)
        self._errors.labels(self._name, reason).inc()
