"""Scalers that share slices, each a process with a loop and clocks of its own, over Leases kept in memory.

Time is the world's and stands still while a process runs. A process may be frozen or killed wherever it is.
Requests are on their way for some time and land even if their sender has given up; each watch is at one of
several API servers, which learn of a write at different times. The clocks of processes differ in speed.
"""

import asyncio
import contextlib
import dataclasses
import functools
import heapq
import itertools
import math
import random
from asyncio import events
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any, NamedTuple, Self, TypeVar, cast

import msgspec

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.client import KubernetesClient, ListWatch, ResponseBody
from adapter.kubernetes.codec import WatchEvent
from adapter.kubernetes.ownership import installation_lock
from adapter.kubernetes.ownership.lease_view import LABEL
from adapter.kubernetes.ownership.membership import MemberSettings
from adapter.kubernetes.ownership.slice_keeper import SliceKeeper
from adapter.kubernetes.ownership.term import Term, Work
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

NAME = "fastpath-scaler"
DRAIN = 0.05
"""Seconds that the work of a slice takes to end."""

EPOCH = 1_700_000_000.0
"""What a right clock shows when the world begins at 0."""

HANGS = -1
"""In place of a status: the API servers do not answer."""

_TURN = 1e-7
"""Seconds that a turn of a loop takes."""

_T = TypeVar("_T")
Document = dict[str, Any]
Prepare = Callable[[], Awaitable[None]]


class _Task(asyncio.Task[_T]):
    """A task with the same place in a set in each run, so that all happens in the same order."""

    _numbers = itertools.count()

    def __new__(cls, *_: object, **_options: object) -> Self:
        task = super().__new__(cls)
        task._number = next(cls._numbers)
        return task

    _number: int

    def __hash__(self) -> int:
        return self._number


class ProcessLoop(asyncio.BaseEventLoop):
    """The loop of one process, which runs when its world says so, by the clock of the process."""

    _ready: deque[Any]
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._process = process
        self._selector = SimpleNamespace(select=lambda _timeout: [])
        self.set_exception_handler(lambda _loop, _context: None)
        self.set_task_factory(lambda loop, work, **options: _Task(work, loop=loop, **options))

    def time(self) -> float:
        return self._process.monotonic()

    def _process_events(self, _events: list[Any]) -> None:
        """Do nothing: there are no files."""

    def due(self) -> float:
        """Return when there is something to run, in the time of the world."""
        if self._ready:
            return -math.inf
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        return self._process.when(scheduled[0]._when) if scheduled else math.inf

    def run_due(self) -> float:
        """Run what is due; return when there is something again."""
        process, world = self._process, self._process.world
        if (due := self.due()) > world.now:
            return due
        run_once = cast("Any", self)._run_once
        events._set_running_loop(self)
        try:
            while due <= world.now and process.is_running:
                run_once()
                world.now += _TURN
                due = self.due()
        finally:
            events._set_running_loop(None)
        return due


class LeaseChange(NamedTuple):
    at: float
    version: int
    name: str
    before: Document | None
    after: Document | None


class SliceWorld:
    """The API servers and all processes. To declare metrics takes longer than much of what happens here, so
    the processes may have the same.
    """

    def __init__(self, seed: int = 0, monitoring: Monitoring | None = None) -> None:
        self.now = 1000.0
        _Task._numbers = itertools.count()
        self.dice = random.Random(seed)
        self.monitoring = monitoring
        self.leases: dict[str, Document] = {}
        self.log: list[LeaseChange] = []
        self.processes: list[Process] = []
        self.writers: defaultdict[int, list[tuple[Process, Term]]] = defaultdict(list)
        """Those that work on a slice, each with its term. What a process that was killed has sent may land
        while its term is open.
        """
        self.ended: defaultdict[int, list[tuple[Process, Term]]] = defaultdict(list)
        """Those whose work has ended, while their term is open."""
        self.contested: set[int] = set()
        """Slices that several may work on."""
        self.failures: list[str] = []
        """What must not have happened, in the middle of a process."""
        self.begun = 0
        """How often work on a slice has begun."""
        self.free: dict[int, float] = {}
        """Since when slices have no owner that runs."""
        self.taken: Callable[[int, float], None] = lambda _number, _since: None
        """Called when a slice has an owner again, with the time since when it had none."""
        self.compacted = 0
        self.faults: dict[str, int] = {}
        """The statuses with which the API servers refuse requests, by verb; without an answer for `HANGS`."""
        self.lock_faults: dict[str, int] = {}
        """Those of requests for the Lease of the installation that scales."""
        self.before_write: Callable[[str], None] = lambda _name: None
        self._version = 0
        self._shown: dict[tuple[int, str], WatchEvent[Any] | None] = {}
        """The events of changes by version and name of scalers, None where no watch has one."""
        self.watches: list[LateWatch] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    # -- time ------------------------------------------------------------------------------------------------

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), act))

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, condition: Callable[[], bool], most: float = 120.0) -> float:
        """Let time pass until a condition holds, or for so long; return how long it took."""
        start = self.now
        while True:
            due = self._settle()
            if condition():
                return self.now - start
            when = min(due, self._due[0][0]) if self._due else due
            if when > start + most:
                self.now = start + most
                return most
            self.now = max(self.now, when)
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()

    def longest_gap(self, seconds: float) -> float:
        """Let time pass; return the longest time for which a slice had no owner, or has had none by now."""
        gaps = [0.0]
        self.taken = lambda _number, since: gaps.append(self.now - since)
        self.run(seconds)
        return max([*gaps, *(self.now - since for since in self.free.values())])

    def _settle(self) -> float:
        """Run what is due; return when there is something again. Processes meet at the API server only."""
        before, due = self.now, math.inf
        for process in self.processes:
            if process.is_running:
                due = min(due, process.loop.run_due())
        if self.now > before:
            self.check()
        assert not self.failures, self.failures[0]
        return due

    def check(self) -> None:
        """Note if two processes could write for one slice."""
        for number in self.contested:
            able = [*self.writers[number], *self.ended[number]]
            writing = [process.identity for process, term in able if is_open(term)]
            if len(writing) > 1:
                self.failures.append(f"at {self.now:.3f} slice {number} has {writing}")

    def note_owner(self, number: int) -> None:
        """Note whether a slice has an owner that runs, and whether several may write."""
        working = self.writers[number]
        ended = self.ended[number] = [entry for entry in self.ended[number] if is_open(entry[1])]
        (self.contested.add if len(working) + len(ended) > 1 else self.contested.discard)(number)
        if not any(process.is_running for process, _ in working):
            self.free.setdefault(number, self.now)
        elif (since := self.free.pop(number, None)) is not None:
            self.taken(number, since)

    # -- Leases ----------------------------------------------------------------------------------------------

    def put(self, name: str, document: Document | None) -> Document | None:
        self._version += 1
        before = self.leases.pop(name, None)
        if document is not None:
            metadata = {
                "uid": str(self._version),
                **document["metadata"],
                "namespace": "default",
                "resourceVersion": str(self._version),
            }
            document = document | {"metadata": metadata}
            self.leases[name] = document
        change = LeaseChange(self.now, self._version, name, before, document)
        self.log.append(change)
        for watch in self.watches:
            watch.report(change)
        return document

    def holder(self, name: str) -> str:
        return (self.leases.get(name, {}).get("spec") or {}).get("holderIdentity") or ""

    def edit(self, name: str, **spec: object) -> None:
        """Change a Lease as a person does."""
        document = self.leases[name]
        self.put(name, document | {"spec": document["spec"] | spec})

    def label(self, name: str, labels: dict[str, str]) -> None:
        if (document := self.leases.get(name)) is not None:
            self.put(name, document | {"metadata": document["metadata"] | {"labels": labels}})

    def delete(self, name: str) -> None:
        if name in self.leases:
            self.put(name, None)

    def annotate(self, name: str) -> None:
        if (document := self.leases.get(name)) is not None:
            annotations = {"annotations": {"by": str(self._version)}}
            self.put(name, document | {"metadata": document["metadata"] | annotations})

    def state(self, at: float) -> tuple[int, dict[str, Document]]:
        """Return the version and the Leases of a moment."""
        if not self.log or self.log[-1].at <= at:
            return self._version, self.leases
        version, found = 0, dict[str, Document]()
        for change in self.log:
            if change.at > at:
                break
            version = change.version
            found.pop(change.name, None)
            if change.after is not None:
                found[change.name] = change.after
        return version, found

    def read(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.leases:
            raise KubernetesError(404, "NotFound", "it does not exist")
        return msgspec.json.encode(self.leases[name])

    def write(self, method: str, path: str, content: bytes) -> bytes:
        document = msgspec.json.decode(content)
        name = path.rpartition("/")[2] if method == "DELETE" else document["metadata"]["name"]
        self.before_write(name)
        known = self.leases.get(name)
        if method == "DELETE":
            if known is None:
                raise KubernetesError(404, "NotFound", "it does not exist")
            if known["metadata"]["resourceVersion"] != document["preconditions"]["resourceVersion"]:
                raise KubernetesError(409, "Conflict", "another version")
            self.delete(name)
            return b"{}"
        if method == "POST" and known is not None:
            raise KubernetesError(409, "AlreadyExists", "it exists")
        if method == "PUT":
            if known is None:
                raise KubernetesError(self.dice.choice((404, 409)), "NotFound", "it does not exist")
            if known["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
                raise KubernetesError(409, "Conflict", "another version")
        self.put(name, document)
        return self.read(path if method == "PUT" else f"{path}/{name}")

    def compact(self) -> None:
        """Forget the past: a watch from an older version has to list again."""
        self.compacted = self._version
        self.end_watches()

    def end_watches(self) -> None:
        for watch in self.watches:
            watch.end()

    def show(self, change: LeaseChange, source: ListWatch[Any], name: str) -> WatchEvent[Any] | None:
        """Return the event of a change, None if it does not concern a watch."""
        if (change.version, name) not in self._shown:
            before, after = (
                document if document is not None and _is_shown(document, name) else None
                for document in (change.before, change.after)
            )
            type_ = "DELETED" if after is None else "ADDED" if before is None else "MODIFIED"
            shown, event = after or before, None
            if shown is not None:
                metadata = shown["metadata"] | {"resourceVersion": str(change.version)}
                content = msgspec.json.encode({"type": type_, "object": shown | {"metadata": metadata}})
                event = cast("WatchEvent[Any]", source.codec.decode_event(content))
            self._shown[change.version, name] = event
        return self._shown[change.version, name]

    # -- processes -------------------------------------------------------------------------------------------

    def join(
        self, name: str = "", *, installation: str = NAME, prepare: Prepare | None = None, **settings: Any
    ) -> "Process":
        name = name or f"pod-{len(self.processes)}"
        process = Process(self, name, MemberSettings("", installation, **settings), prepare)
        for former in self.processes:
            if former.is_killed and former.settings.pod == settings.get("pod", "") != "":
                former.lose_connections()
        self.processes.append(process)
        return process

    @property
    def alive(self) -> list["Process"]:
        return [process for process in self.processes if not process.is_killed and not process.is_leaving]

    def shares(self, among: Collection["Process"] | None = None) -> list[int]:
        """Return how many slices each of these processes owns, by default of those that are there to stay."""
        owned = [process for working in self.writers.values() for process, term in working if is_open(term)]
        return [owned.count(process) for process in (self.alive if among is None else among)]

    def is_fair(self, among: Collection["Process"] | None = None) -> bool:
        """Return whether these processes own every slice, and none two more than another."""
        working = list(itertools.chain.from_iterable(self.writers.values()))
        if len(working) > slices.COUNT:
            working = [(process, term) for process, term in working if is_open(term)]
        owned = [process for process, _ in working]
        shares = [owned.count(process) for process in (self.alive if among is None else among)]
        is_even = sum(shares) == slices.COUNT and max(shares) - min(shares) <= 1
        # to look at each term takes longer than all that happens
        return is_even and all(is_open(term) for _, term in working)

    def close(self) -> None:
        """End all processes without a trace: what they still want to do has no effect."""
        self.watches.clear()
        self.writers.clear()
        for process in self.processes:
            process.close()


def is_open(term: Term) -> bool:
    try:
        return term.check() > 0
    except NotLeadingError:
        return False


class Process:
    """A scaler. `mode` says how its requests fare, see `_Client`."""

    def __init__(
        self, world: SliceWorld, name: str, settings: MemberSettings, prepare: Prepare | None = None
    ) -> None:
        self.world = world
        self.identity = f"{name}_{len(world.processes)}"
        self.installation = settings.lease_name
        self.mode = "good"
        self.stalled = False
        """Whether its watches are silent, and new ones too."""
        self.lag: Callable[[], float] = lambda: world.dice.choice((0.001, 0.01, 0.05))
        self.is_killed = self.is_leaving = self.is_frozen = False
        self.suspended = math.inf
        self.rate, self.slept, self.shift = 1.0, 0.0, 0.0
        """The speed of its clocks, the time for which the monotonic one stood still, and what the other one
        was set by.
        """
        self.calls = 0
        self.error: BaseException | None = None
        self.loop = ProcessLoop(self)
        self.monitoring = world.monitoring or Monitoring()
        self.problems = ProblemLog(self.monitoring, self)
        client = cast("KubernetesClient", _Client(self))
        self.context = ReflectorContext(client, self, self.monitoring, self.problems, world.dice.random)
        self.settings = dataclasses.replace(settings, identity=self.identity)
        self.wanted: list[set[int]] = []
        """The slices that it wants, as often as they may have changed."""
        self.keeper = SliceKeeper(self.context, "default", self.settings, self._want, prepare)
        self.view = self.keeper.view
        self.work: Work = self._work
        self.task = self.loop.create_task(self._main())

    def monotonic(self) -> float:
        return self.world.now * self.rate - self.slept

    def when(self, monotonic: float) -> float:
        """Return the time of the world when its clock shows this."""
        return (monotonic + self.slept) / self.rate

    def wall(self) -> float:
        return EPOCH + self.world.now * self.rate + self.shift

    @property
    def is_running(self) -> bool:
        return not self.is_killed and not self.is_frozen

    @property
    def lease(self) -> str:
        """The name of the Lease of this member."""
        return f"{self.installation}-member-{self.identity.rpartition('_')[2]}"

    @property
    def owned(self) -> list[int]:
        return [number for number, working in self.world.writers.items() if self in dict(working)]

    def _want(self, numbers: Collection[int]) -> None:
        self.wanted.append(set(numbers))

    async def _main(self) -> None:
        async with asyncio.TaskGroup() as group:
            cache = group.create_task(self.view.cache.run())
            try:
                await self.keeper.run(self.work)
            finally:
                cache.cancel()

    async def _work(self, term: Term) -> None:
        number = term.number
        working = self.world.writers[number]
        working.append((self, term))
        self.world.begun += 1
        self.world.note_owner(number)
        self.world.check()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(DRAIN)
            if (self, term) in working:
                working.remove((self, term))
                self.world.ended[number].append((self, term))
                self.world.note_owner(number)

    def leave(self) -> None:
        """End in order."""
        self.is_leaving = True
        self.loop.call_soon(self.task.cancel)

    def kill(self) -> None:
        self.is_killed = True
        self._note_owned()

    def lose_connections(self) -> None:
        """End what the process has sent, as the API server does when the connections of a container end."""
        for entries in itertools.chain(self.world.writers.values(), self.world.ended.values()):
            entries[:] = [entry for entry in entries if entry[0] is not self]

    def freeze(self, seconds: float = math.inf) -> None:
        self.is_frozen = True
        self._note_owned()
        if seconds < math.inf:
            self.world.after(seconds, self.thaw)

    def suspend(self) -> None:
        """Freeze the machine: the monotonic clock of the process stands still meanwhile."""
        self.suspended = self.world.now
        self.freeze()

    def thaw(self) -> None:
        self.is_frozen = False
        self.slept += max(0.0, self.world.now - self.suspended) * self.rate
        self.suspended = math.inf
        self._note_owned()

    def _note_owned(self) -> None:
        for number in self.owned:
            self.world.note_owner(number)

    def heal(self) -> None:
        """End all faults."""
        self.thaw()
        self.mode, self.stalled, self.lag = "good", False, lambda: 0.01

    def cut_watches(self) -> None:
        for watch in list(self.world.watches):
            if watch.process is self:
                watch.end()

    def close(self) -> None:
        """End the tasks, so that nothing is left for the garbage collector."""
        self.is_killed, self.is_frozen, self.mode = False, False, "cut"
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_due()
            self.world.now += DRAIN
        self.is_killed = True
        if not self.task.cancelled():
            self.error = self.task.exception()
        self.loop.close()


_FATES = ("good", "good", "good", "cut", "deaf", "late", "error", "slow")


class _Client:
    """What a process calls.

    A request is lost in mode ``cut``, its answer in ``deaf``; it lands when its sender has given up in
    ``late``, takes seconds in ``slow``, and is refused in ``error``. In ``flaky`` each has a fate of its own.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    async def get(self, path: str) -> ResponseBody:
        answer = await self._call("get", math.inf, lambda: self._process.world.read(path), path)
        return ResponseBody("application/json", answer)

    async def write(
        self, method: str, path: str, content: bytes, *, seconds: float, check: Callable[[], object]
    ) -> ResponseBody:
        check()
        world = self._process.world
        answer = await self._call("write", seconds, lambda: world.write(method, path, content), path)
        return ResponseBody("application/json", answer)

    async def list_objects(
        self,
        source: ListWatch[Any],
        deliver: Callable[[list[Any]], None],
        *,
        resource_version: str = "0",
        lose: object = None,
    ) -> str:
        process = self._process
        world, lag = process.world, process.lag()

        def read() -> tuple[int, dict[str, Document]]:
            version, found = world.state(world.now - (0.0 if not resource_version else lag))
            if int(resource_version or 0) > version:
                raise KubernetesError(504, "Timeout", "Too large resource version")
            return version, found

        version, found = await self._call("list", 10, read)
        shown = [
            document for _, document in sorted(found.items()) if _is_shown(document, process.installation)
        ]
        for start in range(0, len(shown), 10):
            part = shown[start : start + 10]
            deliver([source.codec.decode(msgspec.json.encode(document)) for document in part])
            await asyncio.sleep(0)
        return str(version)

    @contextlib.asynccontextmanager
    async def watch_objects(
        self, source: ListWatch[Any], *, resource_version: str, duration: float, silence: float
    ) -> AsyncIterator[AsyncIterator[list[WatchEvent[Any]]]]:
        world, process = self._process.world, self._process
        watch = LateWatch(process, source, duration)

        def begin() -> None:
            if int(resource_version) < world.compacted:
                raise KubernetesError(410, "Expired", "too old")
            for change in world.log[int(resource_version) :]:
                watch.report(change)
            world.watches.append(watch)

        await self._call("watch", 10, begin)
        try:
            yield watch.events(silence)
        finally:
            if watch in world.watches:
                world.watches.remove(watch)

    async def _call(self, verb: str, seconds: float, act: Callable[[], _T], path: str = "") -> _T:
        process, world, dice = self._process, self._process.world, self._process.world.dice
        process.calls += 1
        mode, future = process.mode, process.loop.create_future()
        if mode == "flaky":
            mode = dice.choice(_FATES)
        there, back = dice.choice((0.001, 0.003, 0.02)), dice.choice((0.001, 0.003, 0.02))
        if mode == "slow":
            there, back = dice.uniform(0, 3), dice.uniform(0, 3)
        elif mode == "late":
            there = dice.uniform(6, 12)

        def land() -> None:
            faults = world.lock_faults if f"/{installation_lock.NAMESPACE}/" in path else {}
            status = 503 if mode == "error" else world.faults.get(verb, faults.get(verb, 0))
            done: tuple[object, KubernetesError | None]
            done = None, KubernetesError(status, "Refused", "refused")
            if not status:
                try:
                    done = act(), None
                except KubernetesError as error:
                    done = None, error
            settle = functools.partial(_settle, future, *done)
            if mode != "deaf" and status != HANGS:
                world.after(back, settle)

        if mode != "cut":
            world.after(there, land)
        if seconds == math.inf:
            return cast("_T", await future)
        late = KubernetesError(0, "Timeout", "no answer")
        timer = process.loop.call_later(seconds, _settle, future, None, late)
        try:
            return cast("_T", await future)
        finally:
            timer.cancel()


def _settle(future: asyncio.Future[Any], result: object, error: KubernetesError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class LateWatch:
    """A watch at one of the API servers, which is behind by a time of its own."""

    def __init__(self, process: Process, source: ListWatch[Any], duration: float) -> None:
        self.process = process
        self._source = source
        self._lag = process.lag()
        self._last = 0.0
        self._is_lost = False
        """Whether the connection is lost, without a sign of it."""
        self._arrived: list[WatchEvent[Any] | None] = []
        self._reader: asyncio.Future[None] | None = None
        process.world.after(duration, self.end)

    def report(self, change: LeaseChange) -> None:
        event = self.process.world.show(change, self._source, self.process.installation)
        if event is not None:
            self._deliver(event)

    def end(self) -> None:
        self._deliver(None)

    def _deliver(self, event: WatchEvent[Any] | None) -> None:
        world = self.process.world
        self._last = max(self._last, world.now + self._lag)

        def arrive() -> None:
            self._is_lost |= self.process.stalled or self.process.mode == "cut"
            if not self._is_lost:
                self._arrived.append(event)
                self._wake()

        world.after(self._last - world.now, arrive)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def events(self, silence: float) -> AsyncIterator[list[WatchEvent[Any]]]:
        loop = self.process.loop
        while True:
            if not self._arrived:
                self._reader = loop.create_future()
                timer = loop.call_later(silence, self._wake)
                try:
                    await self._reader
                finally:
                    timer.cancel()
                if not self._arrived:
                    raise KubernetesError(0, "Timeout", "the watch is silent")
            batch, self._arrived = self._arrived, []
            if found := [event for event in batch if event is not None]:
                yield found
            if None in batch:
                return


def _is_shown(document: Document, name: str) -> bool:
    return bool((document["metadata"].get("labels") or {}).get(LABEL) == name)
