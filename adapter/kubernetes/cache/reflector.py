"""One kind of object, mirrored: list, then watch from that version.

What lives here: the loop of a reflector, its periods, and what it says of itself; `Reflector`, which mirrors names and labels.
Not here: HTTP (`kubernetes`), the index (`objectstore`), which kinds are mirrored (`informer`), mirrors of whole objects (`mirror`).
The law: once the first list is in, the store is never emptied because the API server
cannot be read; `status` tells how old it is.

Periods are client-go's unless their docstring says otherwise.
"""

import abc
import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from adapter import errors
from adapter.kubernetes.cache.store import Store
from adapter.kubernetes.client import Watch
from adapter.kubernetes.codec import ObjectMeta, WatchEvent
from adapter.model.clock import Clock
from adapter.model.metrics import GroupResource
from adapter.model.resources import APIResource
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

_PASSING = frozenset({0, 429, 500, 502, 503})
"""What a watch may fail with although its version is still good."""

_VERSION_OF_NO_USE = frozenset({410, 504})
"""Too old for the server's log, or (504) from the future: another server, or one put back to an earlier state.

Nothing of these may be in `_PASSING`: a watch without a version tells of what is there, and never of what has gone meanwhile.
"""

_DENIED = frozenset({403, 405})
"""What a watch is answered where it is not allowed, or not served."""

_SWEEP_STEP = 2_000
_REASONS = 40  # words of the API server for failures that are told apart: more than it has
_DOUBLINGS = 20  # far beyond any limit, and still a number after days of failures


@dataclass(frozen=True, slots=True)
class Periods:
    """How often and how long, in seconds."""

    watch: float = 300.0
    """A watch lasts this long at least, twice that at most."""

    silence: float = 120.0
    """A watch without a word for so long is lost. Servers send a bookmark about every minute; client-go pings instead."""

    short_watch: float = 1.0
    """A watch that ends sooner and empty is a failure, else a broken server would be asked in a tight loop."""

    backoff: float = 0.8
    """The pause after a failure; doubled by each further one, and stretched by chance up to twice its length."""

    backoff_limit: float = 30.0

    backoff_reset: float = 120.0
    """So long after the last failure the pauses start anew."""

    relist: float = 30.0
    """Where watching is not allowed: how often the kind is listed while it is asked for. Our own."""

    watch_again: float = 300.0
    """Where watching is not allowed: how often to try whether it is by now. Our own."""

    stale: float = 180.0
    """Without word from the API server for so long a cache is called stale; it is read nevertheless. Our own."""

    first_list: float = 5.0
    """How long a question waits for the first list of its kind. Our own."""


class ReflectorStatus(NamedTuple):
    """What a reflector says of itself.

    `age` is seconds since the API server last spoke of this kind (list, event, bookmark; None: never), `stale` whether that is
    too long. `mode` is ``list`` where watching is not allowed. `last_error` is "" while all is well.
    """

    resource: GroupResource
    synced: bool
    mode: Literal["watch", "list"]
    age: float | None
    stale: bool
    last_error: str
    objects: int


class ObjectClient(Protocol):
    """How objects are listed and watched; `kubernetes.KubernetesClient` says what the arguments mean."""

    async def list_objects(
        self,
        resource: APIResource,
        deliver: Callable[[list[ObjectMeta]], None],
        *,
        fields: str,
        resource_version: str,
    ) -> str:
        """Hand every object to `deliver`; return the version of the list."""
        ...

    def watch_objects(
        self, resource: APIResource, *, fields: str, resource_version: str, duration: float, silence: float
    ) -> contextlib.AbstractAsyncContextManager[Watch[WatchEvent]]:
        """Open a watch."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every reflector works with. `random` gives numbers in [0, 1)."""

    client: ObjectClient
    clock: Clock
    monitoring: Monitoring
    faults: ProblemLog
    random: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    periods: Periods = Periods()


class Named(Protocol):
    """What is known of an object whatever its kind. `namespace` is "" for cluster-scoped objects."""

    @property
    def namespace(self) -> str:
        """Return where it is."""
        ...

    @property
    def name(self) -> str:
        """Return what it is called there."""
        ...


class Kept(Protocol):
    """Where a reflector keeps objects: what it reads and takes away itself."""

    def __len__(self) -> int:
        """Return how many objects there are."""
        ...

    def remove(self, namespace: str, name: str) -> None:
        """Forget an object; nothing happens if it is not there."""
        ...

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield namespaces with their names, each as they are when their turn comes."""
        ...


T = TypeVar("T", bound=Named)
E = TypeVar("E")


class Loop(abc.ABC, Generic[T, E]):
    """List, then watch: keeps `store` equal to what the API server has of one kind, for as long as `run` runs.

    `T` is what a list delivers, `E` what a watch does. `name` is what logs and self-metrics call it. `wanted` says that the objects
    are always asked for: where they cannot be watched they are listed every `relist` seconds, asked or not.
    """

    wanted = False

    def __init__(self, resource: APIResource, surroundings: Surroundings, store: Kept, name: str) -> None:
        self.resource = resource
        self.synced = False
        """Whether the first list is in."""
        self.attempted = asyncio.Event()
        """Set once the first list is in or has failed."""
        self.error: errors.KubernetesError | None = None
        """What the last list or watch failed with; None while all is well."""
        self._around = surroundings
        self._periods = surroundings.periods
        self._kept = store
        self._name = name
        self._watchable = "watch" in resource.verbs
        self._mode: Literal["watch", "list"] = "watch" if self._watchable else "list"
        self._watch_denied = 0.0
        self._version = "0"
        self._heard: float | None = None
        self._failures = 0
        self._failed_at = 0.0
        self._reasons: set[str] = set()
        self._asked = asyncio.Event()
        self._listed = asyncio.Event()
        monitoring = surroundings.monitoring
        self._objects_gauge = monitoring.informer_objects.labels(self._name)
        self._event_gauge = monitoring.informer_event.labels(self._name)
        self._synced_gauge = monitoring.informer_synced.labels(self._name)
        self._relists_counter = monitoring.informer_relists.labels(self._name)
        self._events_counter = monitoring.informer_events.labels(self._name)

    def status(self) -> ReflectorStatus:
        """Return what is known of this cache now."""
        age = None if self._heard is None else self._around.clock.monotonic() - self._heard
        error = str(self.error) if self.error else ""
        stale = age is None or age > self._periods.stale
        resource = self.resource.group_resource
        return ReflectorStatus(resource, self.synced, self._mode, age, stale, error, len(self._kept))

    async def freshen(self) -> None:
        """Note that the kind is asked for. Where it cannot be watched, wait for a list if the last one is too old."""
        if self._mode == "watch" or self._heard is None:
            return
        self._asked.set()
        age = self._around.clock.monotonic() - self._heard
        if self.error is not None or age <= 2 * self._periods.relist:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._periods.first_list):
                await self._listed.wait()

    def abandon(self) -> None:
        """Note that the kind is not wanted any more: what was wrong with it is nobody's concern."""
        for fault in ("informer", "watch"):
            self._around.faults.resolve(fault, subject=self._name)

    # -- what is mirrored and how --------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def _fetch(self, deliver: Callable[[list[T]], None]) -> str:
        """List from `_version` on; return the version of the list."""

    @abc.abstractmethod
    def _open(self, duration: float) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[E]]]:
        """Open a watch from `_version` on."""

    @abc.abstractmethod
    def _put(self, each: T) -> None:
        """Take an object of a list into the store."""

    @abc.abstractmethod
    def _apply(self, event: E) -> None:
        """Take an event into the store, and its version as the one to go on from."""

    def _settle(self) -> None:
        """Note that a batch of events is in the store."""

    def _finish(self) -> Iterator[None]:
        """Note that a list is in the store; yield wherever other work may run."""
        return iter(())

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled."""
        if not self._watchable:
            _log.info("this kind cannot be watched; it is listed instead", extra=facts(resource=self._name))
        to_list = True
        while True:
            try:
                if to_list:
                    await self._list()
                if self._mode == "watch":
                    to_list = False
                    await self._watch()
                else:
                    to_list = True
                    await self._wait_to_list_again()
            except errors.KubernetesError as error:
                # a server that is away comes back with the same versions; any other refusal says that ours is of no use
                to_list = to_list or error.status not in _PASSING
                await self._fail(error)

    async def _list(self) -> None:
        """Bring the store up to a list; what is not in it any more goes last."""
        seen: dict[str, set[str]] | None = {} if len(self._kept) else None

        def deliver(objects: list[T]) -> None:
            for each in objects:
                self._put(each)
                if seen is not None:
                    seen.setdefault(each.namespace, set()).add(each.name)

        self._version = await self._fetch(deliver)
        if seen is not None:
            await self._sweep(seen)
        self._relists_counter.inc()
        self._hear()
        if not self.synced:
            self.synced = True
            self._synced_gauge.set(1)
            _log.info("first list is in", extra=facts(resource=self._name, objects=len(self._kept)))
        for _ in self._finish():
            await asyncio.sleep(0)
        self.attempted.set()
        self._listed.set()
        if self._mode == "list":
            self._recover()

    async def _sweep(self, seen: dict[str, set[str]]) -> None:
        for namespace, names in self._kept.listing():
            kept = seen.get(namespace, set())
            for count, name in enumerate(names, 1):
                if name not in kept:
                    self._kept.remove(namespace, name)
                if count % _SWEEP_STEP == 0:
                    await asyncio.sleep(0)

    async def _watch(self) -> None:
        """Follow one watch to its end. Returns when the next one may begin where it ended; raises what else befell it."""
        clock, periods = self._around.clock, self._periods
        started = clock.monotonic()
        spoke = False
        watching = self._open(periods.watch * (1 + self._around.random()))
        settling: asyncio.TimerHandle | None = None
        try:
            async with watching as watch:
                self._hear()
                settling = asyncio.get_running_loop().call_later(periods.short_watch, self._recover)
                async for events in watch:
                    spoke = True
                    for event in events:
                        self._apply(event)
                    self._events_counter.inc(len(events))
                    self._hear()
                    self._settle()
        except errors.KubernetesError as error:
            if error.status in _DENIED and settling is None:
                self._deny_watch(error)
                return
            lived = spoke or clock.monotonic() - started >= periods.short_watch
            if error.status or settling is None or not lived:
                raise
            # cut, or silent for too long
            self._count(error)
            _log.info("watch lost", extra=facts(resource=self._name, error=str(error)))
            return
        finally:
            if settling is not None:
                settling.cancel()
        if not spoke and clock.monotonic() - started < periods.short_watch:
            raise errors.KubernetesError(
                0, "ShortWatch", f"cannot watch {self._name}: it ended at once and empty"
            )

    def _deny_watch(self, error: errors.KubernetesError) -> None:
        self._mode = "list"
        self._watch_denied = self._around.clock.monotonic()
        self._recover()
        self._count(error)
        message = "this kind may not be watched; it is listed instead"
        self._around.faults.report("watch", message, str(error), subject=self._name)

    async def _wait_to_list_again(self) -> None:
        """Pause between lists of a kind that cannot be watched: `relist` seconds, and until somebody asks."""
        self._asked.clear()
        self._listed.clear()
        await self._around.sleep(self._periods.relist)
        if not self.wanted:
            await self._asked.wait()
        denied_for = self._around.clock.monotonic() - self._watch_denied
        if self._watchable and denied_for >= self._periods.watch_again:
            self._mode = "watch"

    # -- what happened -------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        self._heard = self._around.clock.monotonic()
        self._event_gauge.set(self._around.clock.wall())
        self._objects_gauge.set(len(self._kept))

    def _recover(self) -> None:
        """Note that all is well: a list where we list, a watch that lives where we watch."""
        self.error = None
        self._around.faults.resolve("informer", subject=self._name)
        if self._mode == "watch":
            self._around.faults.resolve("watch", subject=self._name)

    def _count(self, error: errors.KubernetesError) -> None:
        reason = error.reason
        if reason not in self._reasons:
            if len(self._reasons) >= _REASONS:
                reason = "Other"
            self._reasons.add(reason)
        self._around.monitoring.informer_errors.labels(self._name, reason).inc()

    async def _fail(self, error: errors.KubernetesError) -> None:
        """Note a failed list or watch, choose the version to go on from, pause."""
        self._count(error)
        now = self._around.clock.monotonic()
        if now - self._failed_at > self._periods.backoff_reset:
            self._failures = 0
        pause = min(
            self._periods.backoff * 2.0 ** min(self._failures, _DOUBLINGS), self._periods.backoff_limit
        )
        self._failures += 1
        self._failed_at = now
        if error.status in _VERSION_OF_NO_USE:
            self._version = ""
            if self.synced and self._failures == 1:
                _log.info("watch expired; listing again", extra=facts(resource=self._name))
                return
        self.error = error
        self._around.faults.report(
            "informer", "objects cannot be read; the cache stays as it is", str(error), subject=self._name
        )
        self.attempted.set()
        await self._around.sleep(pause * (1 + self._around.random()))


class Reflector(Loop[ObjectMeta, WatchEvent]):
    """Mirrors the names and labels of one kind.

    `fields` is a field selector as text: only objects that match it are mirrored.
    """

    def __init__(self, resource: APIResource, surroundings: Surroundings, fields: str = "") -> None:
        self.fields = fields
        self.store = Store(surroundings.monitoring)
        name = f"{resource.group_resource}[{fields}]" if fields else str(resource.group_resource)
        super().__init__(resource, surroundings, self.store, name)

    async def _fetch(self, deliver: Callable[[list[ObjectMeta]], None]) -> str:
        list_objects = self._around.client.list_objects
        return await list_objects(self.resource, deliver, fields=self.fields, resource_version=self._version)

    def _open(
        self, duration: float
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[WatchEvent]]]:
        return self._around.client.watch_objects(
            self.resource,
            fields=self.fields,
            resource_version=self._version,
            duration=duration,
            silence=self._periods.silence,
        )

    def _put(self, each: ObjectMeta) -> None:
        self.store.put(each.namespace, each.name, each.labels)

    def _apply(self, event: WatchEvent) -> None:
        meta = event.object
        if event.type == "DELETED":
            self.store.remove(meta.namespace, meta.name)
        elif event.type != "BOOKMARK":
            self._put(meta)
        self._version = meta.resource_version or self._version
