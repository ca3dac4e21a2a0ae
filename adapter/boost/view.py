"""The published floors as a process knows them: the ConfigMaps of all shards, watched and read anew.

What lives here: `FloorView`: when they are read, and how old what is known may be. Not here: what is known (`floormaps`), the number that
is served of an entry (`boost.floor`), publishing (`floorwriter`). The law: what is known says how old it is; "no floor" is the answer of
a read that began after the question, never that of a view that may be behind.

A watch alone cannot tell whether it is behind, so a view is as old as the list that confirmed it, counted from when it was asked for.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from adapter import errors
from adapter.boost.floor import LABEL, FloorEntry
from adapter.boost.floor_maps import FORM, FloorMaps, ReadMap, number
from adapter.kubernetes.codec import ObjectCodec, WatchEvent
from adapter.model.clock import Clock
from adapter.model.resources import APIResource
from adapter.model.selectors.label_selectors import LabelSelector, parse_selector
from adapter.telemetry.problems import ProblemLog

RELIST = 4.0
"""Seconds from asking for one list to asking for the next, so that with the time it takes there is one every 5 s."""

STALE = 10.0
"""A view that no list has confirmed for so many seconds answers nothing."""

CONFIRM = 2.0
"""How long somebody waits for a list of their own."""

LIST_SECONDS = 3.0
"""How long a list may take."""

OVERLAP = 0.25
"""So long the next list waits for one under way to end. Then both are under way, for a stuck one must not hold up the rest."""

RETRY, RETRY_LIMIT = 0.5, 30.0
"""Seconds between attempts: of lists the first, of watches doubled up to the second."""

FAULT = "floor-read"
WATCH_FAULT = "floor-watch"

CONFIG_MAPS = APIResource("", "v1", "configmaps", "configmap", "ConfigMap", True, frozenset(), preferred=True)
SELECTOR = parse_selector(f"{LABEL}=true")

_PASSING = frozenset({0, 410, 429, 500, 502, 503, 504})
"""What a watch may fail with without more to say: lists fail likewise, or bring a version to go on from."""

_TICK = 0.01  # no pause is shorter, for clocks have a grain
_WATCH_SECONDS = 300.0
_SILENCE = 120.0
_NOT_READ = "the floors of autoscalers have not been read yet"

_T = TypeVar("_T")


class FloorClient(Protocol):
    """How ConfigMaps are listed and watched; `kubernetes.KubernetesClient` says what the arguments mean."""

    async def list_objects(
        self,
        form: ObjectCodec[_T],
        resource: APIResource,
        deliver: Callable[[list[_T]], None],
        *,
        namespace: str,
        selector: LabelSelector,
        resource_version: str,
    ) -> str:
        """Hand what is kept of every object to `deliver`; return the version of the list."""
        ...

    def watch_objects(
        self,
        form: ObjectCodec[_T],
        resource: APIResource,
        *,
        namespace: str,
        selector: LabelSelector,
        resource_version: str,
        duration: float,
        silence: float,
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[WatchEvent[_T]]]]:
        """Open a watch."""
        ...


class FloorView:
    """The floors published in `namespace`, kept while `run` runs."""

    def __init__(self, client: FloorClient, clock: Clock, namespace: str, faults: ProblemLog) -> None:
        self.namespace = namespace
        self._client = client
        self._clock = clock
        self._faults = faults
        self._maps = FloorMaps(clock, namespace)
        self._position = 0
        self._first = asyncio.Event()
        self._confirmed: float | None = None
        self._sent = 0.0
        self._error = ""
        self._running = False
        self._next: asyncio.Task[str] | None = None
        self._under_way: set[asyncio.Task[str]] = set()

    # -- what is said ---------------------------------------------------------------------------------------------------

    def find(self, uid: str) -> FloorEntry | None:
        """Return what is published of the autoscaler of a uid; of several entries the one with the greatest floor now.

        `errors.NotSyncedError` where what is known is too old, or cannot be read. No entry, and no floor, may be news that are seconds
        old: who acts on it has to `confirm` before.
        """
        self._check()
        return self._maps.find(uid)

    def entries(self) -> Mapping[str, FloorEntry]:
        """Return all that is published, by uid; otherwise as `find`."""
        self._check()
        return self._maps.entries()

    def leftovers(self, total: int) -> list[tuple[str, str]]:
        """Return names and versions of the ConfigMaps of shards of another total in which nothing counts any more; otherwise as `find`."""
        self._check()
        return self._maps.leftovers(total)

    def stored(self, name: str) -> tuple[int, Mapping[str, str]]:
        """Return what is known of a ConfigMap: the version in which it was, or was gone, and its texts."""
        return self._maps.stored(name)

    def take(self, read: ReadMap) -> None:
        """Take over a ConfigMap that was just written or read, unless what is known of it is newer."""
        for _ in self._maps.put(read):
            pass

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Have `changed` called with the uid of each entry that came, went or changed; return what ends that."""
        return self._maps.subscribe(changed)

    def fault(self) -> str:
        """Return why nothing can be said of floors now, a sentence for people; "" where something can."""
        if self._confirmed is None:
            return f"{_NOT_READ}: {self._error}" if self._error else _NOT_READ
        age = self._clock.monotonic() - self._confirmed
        if age > STALE:
            because = f": {self._error}" if self._error else ""
            return f"the floors of autoscalers were last read {age:.0f} s ago{because}"
        return self._maps.fault()

    def _check(self) -> None:
        if fault := self.fault():
            raise errors.NotSyncedError(fault)

    # -- reading -----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_listing())
                group.create_task(self._keep_watching())
        finally:
            self._running = False
            left = self._under_way | ({self._next} if self._next is not None else set())
            self._next = None
            for each in left:
                each.cancel()
            if left:
                await asyncio.wait(left)

    async def confirm(self) -> None:
        """Read what is stored now, in a list that begins after this call did; who calls meanwhile shares it.

        `errors.NotSyncedError` where that fails, or takes longer than `CONFIRM` seconds.
        """
        if (reading := self._next_list()) is None:
            raise errors.NotSyncedError("the floors of autoscalers are not read in this process now")
        await asyncio.wait({reading}, timeout=CONFIRM)
        if not reading.done():
            raise errors.NotSyncedError(f"the floors of autoscalers could not be read within {CONFIRM:g} s")
        if reading.cancelled():
            raise errors.NotSyncedError("the process ends")
        if fault := reading.result():
            raise errors.NotSyncedError(f"the floors of autoscalers cannot be read: {fault}")

    def _next_list(self) -> asyncio.Task[str] | None:
        """Return the list that has not begun yet; None where there will be none."""
        if self._next is None and self._running:
            self._next = asyncio.create_task(self._list(), name="list floors")
        return self._next

    async def _list(self) -> str:
        """List; return what went wrong, "" for nothing. Those who have asked for it share it until it begins."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=OVERLAP)
        this = asyncio.current_task()
        assert this is not None
        self._under_way.add(this)
        self._next = None
        self._sent = sent = self._clock.monotonic()
        newest = self._maps.newest
        found: list[ReadMap] = []
        try:
            async with asyncio.timeout(LIST_SECONDS):
                listed = await self._client.list_objects(
                    FORM,
                    CONFIG_MAPS,
                    found.extend,
                    namespace=self.namespace,
                    selector=SELECTOR,
                    resource_version="",
                )
            await self._take_list(number(listed), found, newest)
        except TimeoutError:
            return self._failed(f"no answer within {LIST_SECONDS:g} s")
        except errors.KubernetesError as error:
            return self._failed(str(error))
        finally:
            self._under_way.discard(this)
        self._confirmed = sent if self._confirmed is None else max(self._confirmed, sent)
        self._error = ""
        self._first.set()
        self._say()
        return ""

    def _failed(self, text: str) -> str:
        self._error = text
        self._say()
        return text

    def _say(self) -> None:
        text = self._error or self._maps.fault()
        if text:
            self._faults.report(
                FAULT, "the floors of autoscalers cannot be read; boosted ones do not shrink", text
            )
        else:
            self._faults.resolve(FAULT)

    async def _keep_listing(self) -> None:
        while True:
            reading = self._next_list()
            assert reading is not None
            await asyncio.wait({reading})
            if reading.result():
                await asyncio.sleep(RETRY)
            await self._due()

    async def _due(self) -> None:
        """Return when it is time for the next list; one that somebody has asked for puts it off."""
        while not self._error:
            pause = self._sent + RELIST - self._clock.monotonic()
            if pause <= 0:
                return
            await asyncio.sleep(max(pause, _TICK))

    async def _keep_watching(self) -> None:
        """Watch from wherever the view is. What a watch misses the next list brings, so nothing waits for it."""
        await self._first.wait()
        pause = RETRY
        while True:
            try:
                await self._watch()
                pause = RETRY
            except errors.KubernetesError as error:
                self._faults.report(
                    WATCH_FAULT, "floors are listed only, for they cannot be watched", str(error)
                )
                pause = min(2 * pause, RETRY_LIMIT)
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """Follow one watch to its end; raise why there can be none."""
        watching = self._client.watch_objects(
            FORM,
            CONFIG_MAPS,
            namespace=self.namespace,
            selector=SELECTOR,
            resource_version=str(self._position),
            duration=_WATCH_SECONDS,
            silence=_SILENCE,
        )
        opened = False
        try:
            async with watching as watch:
                opened = True
                self._faults.resolve(WATCH_FAULT)
                async for events in watch:
                    for event in events:
                        await self._take_event(event)
        except errors.KubernetesError as error:
            if not opened and error.status not in _PASSING:
                raise

    async def _take_event(self, event: WatchEvent[ReadMap]) -> None:
        version = number(event.version)
        if event.object is not None and event.type == "DELETED":
            self._maps.gone(event.object.name, version)
        elif event.object is not None:
            await _in_steps(self._maps.put(event.object))
        self._position = max(self._position, version)

    async def _take_list(self, listed: int, found: list[ReadMap], newest: int) -> None:
        """Take over a list; `newest` is the newest version that was known when it was asked for.

        What was known then is stored, so a list that is older tells of another store: one that was put back to an earlier state.
        """
        if listed < newest:
            self._confirmed = None
            self._position = 0
            self._maps.forget()
        await _in_steps(self._maps.put_all(listed, found))
        self._position = max(self._position, listed)


async def _in_steps(steps: Iterator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)
