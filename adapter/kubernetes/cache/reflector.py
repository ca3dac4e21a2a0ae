"""`Reflector` is a store that stays equal to the objects of one kind at the API server, as client-go's does.

It lists the objects, then watches the changes from the version of that list. While a watch can go on where
the last one ended, a broken connection or a restarting server costs no list. Only when the version itself is
useless does it list again, without a version: 410 (too old for the server's log) and 504 (newer than the
server, whose cache is behind after a start, which was restored from a backup, or is another one). It must
never watch without a version after that, because such a watch reports what exists and not what was deleted in
between.

A watch that is refused (403) is tried again, after one second at first: an API server that starts has not
read the roles yet. While the API server answers, and no watch begins, the kind is listed whenever nothing was
heard for `relist` seconds. After `refusals` seconds of refusals, or where the kind cannot be watched at all
(405), that counts as lasting, and is reported. A kind that is read only on request (`on_demand`) is then
listed only while it is read.

A failure never empties the store. Readers see when the API server was `heard` last, and one that comes before
the first list is told "not synced", never "not found".
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from adapter import errors
from adapter.kubernetes.cache.filling import ObjectStore, ReflectorReports, T
from adapter.kubernetes.cache.scope import UNSELECTIVE, Coverage, SliceScope
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.runtime.waits import wait_for
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

_RESUMABLE = frozenset({0, 401, 429, 500, 502, 503})
"""Statuses of a failed watch whose version is still good. Must be disjoint from `_USELESS_VERSION`."""

_USELESS_VERSION = frozenset({410, 504})

_WATCH_DENIED = frozenset({403, 405})

_MAX_DOUBLINGS = 20  # far beyond any limit, and 2.0**n stays finite after days of failures


@dataclass(frozen=True, slots=True)
class ReflectorPeriods:
    """Periods and timeouts in seconds."""

    watch: float = 300.0
    """Shortest duration of a watch; the longest is twice that."""

    silence: float = 120.0
    """A watch without a byte for this long is lost. Servers send a bookmark about every minute, but none
    before the first event, so a watch that has shown nothing is only renewed. client-go relies on pings.
    """

    answer: float = 30.0
    """How long the API server may take to begin a watch, or between two parts of a list. Our own."""

    short_watch: float = 1.0
    """A watch that ends sooner without an event is a failure. Otherwise a broken server would be called in
    a tight loop.
    """

    backoff: float = 0.8
    """Pause after the first failure. Each further failure doubles it; jitter stretches it to at most twice
    its length.
    """

    backoff_limit: float = 8.0
    """The longest pause, without jitter. Shorter than client-go's 30 s: a scaler is one of few clients, and
    decides on old objects meanwhile.
    """

    backoff_reset: float = 120.0
    """The pause starts at `backoff` again after this long without a failure."""

    relist: float = 30.0
    """Interval between lists where the kind cannot be watched. Our own."""

    refusals: float = 60.0
    """A watch that is refused for this long counts as forbidden. Our own."""

    watch_again: float = 30.0
    """The longest pause between attempts at a watch that is refused. Our own."""

    consistent: bool = False
    """Whether each list reads the latest state. Else the API server may answer from its cache, and waits for
    3 s where that is older than what was seen.
    """

    stale: float = 180.0
    """A cache is reported as stale after this long without word from the API server; it still answers. Our
    own.
    """

    first_list: float = 5.0
    """How long a question waits for the first list of its kind. Our own."""


@dataclass(frozen=True, slots=True)
class ReflectorContext:
    """What all reflectors of a process share. `random` returns numbers in [0, 1)."""

    client: KubernetesClient
    clock: Clock
    monitoring: Monitoring
    problems: ProblemLog
    random: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    periods: ReflectorPeriods = ReflectorPeriods()
    scope: SliceScope | None = None
    """The slices whose objects are kept, None for all objects."""


class Reflector(ObjectStore[T]):
    """A store that stays equal to `source` while `run` runs. `name` identifies it in logs and self-metrics.

    `remedy` is added to the text of a refusal (403).
    """

    def __init__(
        self,
        source: ListWatch[T],
        context: ReflectorContext,
        name: str,
        *,
        on_demand: bool = False,
        remedy: str = "",
    ) -> None:
        super().__init__(
            Coverage(context.scope or SliceScope.of_everything()),
            ReflectorReports(context.monitoring, context.problems, name),
        )
        self.source = source
        self.name = name
        self.synced = False
        """Whether the first list is in. A list that is refused never is."""
        self.attempted = asyncio.Event()
        """Set once the first list succeeded or failed."""
        self.error: errors.KubernetesError | None = None
        """The failure of the last list or watch; None while they succeed."""
        self.clock: Clock = context.clock
        self._context = context
        self._periods = context.periods
        self._task: asyncio.Task[None] | None = None
        self._failures = 0  # since the pauses last started at their shortest
        self._failed_at = 0.0
        self._on_demand = on_demand
        self._remedy = remedy
        watchable = "watch" in source.resource.verbs
        self._mode: Literal["watch", "list"] = "watch" if watchable else "list"
        self._watch_from = 0.0 if watchable else math.inf
        """When the kind may be watched."""
        self._denied: float | None = None
        """Since when the watch is refused."""
        self._denials = 0
        self._version = "0"
        self._is_latest = False
        """Whether the version is that of a list without one, and nothing has shown that it is good."""
        self.heard: float | None = None
        """When the API server last sent a list, an event or a bookmark, in monotonic seconds."""
        self._read = asyncio.Event()
        self._relisted = asyncio.Event()

    @property
    def failure(self) -> str:
        """What `error` says, with the remedy; "" while list and watch succeed."""
        return self._text(self.error) if self.error else ""

    def _text(self, error: errors.KubernetesError) -> str:
        return f"{error}{self._remedy}" if error.status == 403 else str(error)

    @property
    def refused(self) -> bool:
        """Whether the API server refuses the list, so that waiting for it is useless."""
        return self.error is not None and self.error.is_refusal

    def covers(self, namespace: str) -> bool:
        """Tell whether the objects of a namespace are kept and listed; those of other slices are not."""
        return self._context.scope is None or slices.slice_of(namespace) in self._coverage.complete

    async def wait_synced(self) -> None:
        """Wait for the first list, and where the kind cannot be watched, for a list that is recent enough.

        Raises `errors.NotSyncedError` if the first list does not arrive in time or fails, and
        `errors.KubernetesError` if the API server refuses it (403 names verb and resource).
        """
        if not self.synced:
            await wait_for(self.attempted, self._periods.first_list)
            error = self.error
            if error is not None and error.is_refusal and not self.synced:
                raise errors.KubernetesError(error.status, error.reason, str(error)) from error
            self.check_synced()
        if self._mode == "watch" or self.heard is None:
            return
        self._read.set()
        age = self.clock.monotonic() - self.heard
        if self.error is not None or age <= 2 * self._periods.relist:
            return
        await wait_for(self._relisted, self._periods.first_list)

    def check_synced(self) -> None:
        """Raise `errors.NotSyncedError` before the first list."""
        if not self.synced:
            reason = f": {self.error}" if self.error else ""
            what = self.source.resource.group_resource
            raise errors.NotSyncedError(f"{what}: the first list has not arrived yet{reason}") from self.error

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run as a task of a group, until `stop`."""
        self._task = group.create_task(self.run(), name=f"reflector of {self.name}")

    def stop(self) -> None:
        """End the task, and resolve the reported problems of what is no longer watched."""
        if self._task is not None:
            self._task.cancel()
        self._reports.close()

    # -- the loop --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        if self._mode == "list":
            _log.info("this kind cannot be watched; it is listed instead", extra=facts(resource=self.name))
        async with self._coverage.applied():
            await self._run()

    async def _run(self) -> None:
        to_list = True
        while True:
            try:
                if to_list:
                    await self._list()
                if not await self._follow_scope():
                    to_list = True
                    continue
                if to_list:
                    await self._end_list()
                to_list = self._mode == "list"
                async with self._coverage.until_it_changes():
                    if self.clock.monotonic() >= self._watch_from and await self._watch():
                        to_list = False
                    else:
                        await self._wait_to_poll()
                        to_list = to_list or self._is_silent(self._periods.relist)
            except errors.KubernetesError as error:
                if error.status in UNSELECTIVE:
                    self._coverage.refuse_selector()
                await self._fail(error)
                is_there = error.status != 0 or error.reason == "Timeout"
                to_list = (
                    to_list
                    or error.status not in _RESUMABLE
                    or (is_there and self._is_silent(self._periods.relist))
                )

    async def _list(self) -> None:
        """Make the store equal to a list of everything."""
        self._coverage.begin(self._stored())
        if self._periods.consistent or self._is_latest:
            self._version = ""
        is_latest = not self._version
        try:
            self._version = await self._list_in(self._source)
        except errors.KubernetesError as error:
            is_new = self._mode == "watch" and self.synced and not self._is_silent(self._periods.refusals)
            if error.status != 404 or not self.source.optional or is_new:
                raise
            self._mode, self._version = "list", ""
            self._watch_from = max(self._watch_from, self.clock.monotonic() + self._periods.relist)
            await self.clear(self.source.namespace)
        self._is_latest = is_latest
        self._coverage.end()

    async def _end_list(self) -> None:
        self._reports.relists.inc()
        self._record_contact()
        self._coverage.join()
        if not self.synced:
            self.synced = True  # before `listed`: what it notifies asks at once
            self._reports.synced.set(1)
            _log.info("first list received", extra=facts(resource=self.name, objects=self.count()))
        for _ in self.listed(self.source.namespace):
            await asyncio.sleep(0)
        self.attempted.set()
        self._relisted.set()
        if self._mode == "list" or self._denied is not None:
            self._recover()

    @property
    def _source(self) -> ListWatch[T]:
        """What is listed and watched; objects of other slices are dropped."""
        coverage = self._coverage
        if coverage.is_whole:
            return self.source
        codec = self.source.codec.keeping(coverage.keeps)
        return replace(self.source, codec=codec, shard_selector=coverage.selector)

    async def _follow_scope(self) -> bool:
        """Remove the objects of slices that are gone, list those of new ones; False to list everything."""

        async def read(namespace: str) -> str:
            version = await self._list_in(replace(self.source, namespace=namespace))
            self.end_batch()
            return version

        return await self._coverage.follow(self._stored, self.clear, read if self._mode == "watch" else None)

    def _stored(self) -> list[str]:
        """Return the namespaces that have objects."""
        return [namespace for namespace, _ in self.listing(self.source.namespace)]

    async def _list_in(self, source: ListWatch[T]) -> str:
        """Make the store equal to a list, in the namespace of that; return the version of the list."""
        async with self.replacing(source.namespace) as put, self._answering("list") as limit:

            def deliver(objects: list[T]) -> None:
                limit.reschedule(asyncio.get_running_loop().time() + self._periods.answer)
                for obj in objects:
                    put(obj)

            # The API server's cache may not have come to such a version, and may not until something changes.
            least = "" if self._is_latest else self._version
            return await self._context.client.list_objects(source, deliver, resource_version=least, lose=put)

    @contextlib.asynccontextmanager
    async def _answering(self, verb: str) -> AsyncIterator[asyncio.Timeout]:
        """Fail if what is awaited within takes too long; the limit may be moved."""
        seconds = self._periods.answer
        try:
            async with asyncio.timeout(seconds) as limit:
                yield limit
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"cannot {verb} {self.name}: no answer within {seconds:g} s"
            raise errors.KubernetesError(0, "Timeout", text) from None

    async def _watch(self) -> bool:
        """Follow one watch. Return if the next one can resume where it ended, False if it is refused."""
        clock, periods = self.clock, self._periods
        started = clock.monotonic()
        heard = False
        watching = self._context.client.watch_objects(
            self._source,
            resource_version=self._version,
            duration=periods.watch * (1 + self._context.random()),
            silence=periods.silence,
        )
        recovering: asyncio.TimerHandle | None = None
        try:
            async with self._answering("watch") as limit, watching as watch:
                limit.reschedule(None)
                self._allow_watch()
                recovering = asyncio.get_running_loop().call_later(periods.short_watch, self._recover)
                async for events in watch:
                    heard, self._is_latest = True, False
                    for event in events:
                        self._version = event.version or self._version
                        self.apply(event)
                    self._reports.events.inc(len(events))
                    self._record_contact()
                    self.end_batch()
        except errors.KubernetesError as error:
            # The timer runs since the API server has begun to answer. A status before that refuses the watch;
            # one after that is an ERROR event of it.
            if error.status in _WATCH_DENIED and recovering is None:
                self._deny_watch(error)
                return False
            lasted = heard or clock.monotonic() - started >= periods.short_watch
            self._is_latest = self._is_latest and not lasted
            if error.status or recovering is None or not lasted:
                raise
            # the connection broke, or was silent for too long
            if heard or error.reason != "Timeout":
                self._reports.count_error(error.reason)
                _log.info("watch lost", extra=facts(resource=self.name, error=str(error)))
            return True
        finally:
            if recovering is not None:
                recovering.cancel()
        if not heard and clock.monotonic() - started < periods.short_watch:
            raise errors.KubernetesError(
                0, "ShortWatch", f"cannot watch {self.name}: the watch ended at once without an event"
            )
        return True

    def _allow_watch(self) -> None:
        self._mode, self._denied, self._denials, self._watch_from = "watch", None, 0, 0.0
        self._record_contact()

    def _deny_watch(self, error: errors.KubernetesError) -> None:
        """Have the watch tried again in a while; after a time of refusals it counts as forbidden."""
        now, periods = self.clock.monotonic(), self._periods
        pause = min(2.0 ** min(self._denials, _MAX_DOUBLINGS), periods.watch_again)
        self._watch_from, self._denials = now + pause, self._denials + 1
        self._reports.count_error(error.reason)
        if self._denied is None:
            self._denied = now
            details = facts(resource=self.name, error=self._text(error))
            _log.info("watch refused; it is tried again in a second", extra=details)
        if now - self._denied >= periods.refusals or error.status == 405:
            self._mode = "list"
            self._recover()
            message = "the watch is refused: allow it in the Role; until then the kind is listed at intervals"
            self._context.problems.report("watch", message, self._text(error), subject=self.name)

    def _is_silent(self, seconds: float) -> bool:
        return self.heard is None or self.clock.monotonic() - self.heard >= seconds

    async def _wait_to_poll(self) -> None:
        """Wait for the next list, or where a watch was refused a short time ago, for the next watch."""
        self._read.clear()
        self._relisted.clear()
        left = max(0.01, self._watch_from - self.clock.monotonic())  # a timer may be a little early
        is_lasting = self._mode == "list"
        await self._context.sleep(self._periods.relist if is_lasting else min(left, self._periods.relist))
        if self._on_demand and is_lasting:
            await self._read.wait()

    # -- state -----------------------------------------------------------------------------------------------

    def _record_contact(self) -> None:
        self.heard = self.clock.monotonic()
        self._reports.last_event.set(self.clock.wall())
        self._reports.objects.set(self.count())

    def _recover(self) -> None:
        """Resolve the problems: a polled kind was listed, or the watch of a watched one lasts."""
        self.error = None
        self._context.problems.resolve("informer", subject=self.name)
        if self._mode == "watch":
            self._context.problems.resolve("watch", subject=self.name)

    async def _fail(self, error: errors.KubernetesError) -> None:
        """Report a failed list or watch, choose the version to continue from, and pause.

        A version that has become useless is routine (client-go logs it as info): list again at once, without
        one, and report no problem, unless it is that of such a list.
        """
        periods, now = self._periods, self.clock.monotonic()
        self._reports.count_error(error.reason)
        if now - self._failed_at > periods.backoff_reset:
            self._failures = 0
        pause = min(periods.backoff * 2.0 ** min(self._failures, _MAX_DOUBLINGS), periods.backoff_limit)
        self._failures += 1
        self._failed_at = now
        if error.status in _USELESS_VERSION:
            is_routine = bool(self._version) and not self._is_latest
            self._version = ""
            if is_routine:
                details = facts(resource=self.name, error=str(error))
                _log.info("the version is of no use to the API server; listing without one", extra=details)
                return
        self.error = error
        message = "objects cannot be read; the cache keeps its last state"
        self._context.problems.report("informer", message, self._text(error), subject=self.name)
        self.attempted.set()
        await self._context.sleep(pause * (1 + self._context.random()))
