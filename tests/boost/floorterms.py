"""A process that publishes floors in terms, and a checker of the answers meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from adapter.boost.publisher import FloorWriter
from adapter.boost.view import FloorView, PublishedFloors
from adapter.errors import NotSyncedError
from adapter.kubernetes.write.config_map import ConfigMapOutlet, StoreSlot
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter
from adapter.model.autoscaling.floor import LABEL, Floor, encode_floor, floor_of
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND, FineInstant
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.boost.configmaps import JSON, Line, Store
from tests.support.clock import WALL, LoopClock
from tests.support.waiting import running
from tests.support.writing import HandFence

NAMESPACE = "fastpath"
MOST = 1000


def entry(uid: str, replicas: int, *, lasts: float = 600.0, since: float = WALL) -> Floor:
    return Floor("shop", f"web-{uid}", uid, replicas, FineInstant(round((since + lasts) * SECOND)), seen="7")


def config_map(*entries: Floor, name: str = "fastpath-floors-slice-00") -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: "true"}},
        "data": {each.uid: encode_floor(each) for each in entries},
    }


class StoringTerm(NamedTuple):
    """A term of a slice: what writes its ConfigMaps, and where."""

    outbox: Outbox
    slot: StoreSlot

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the term to its orderly end."""
        async with running(self.outbox.run()):
            try:
                yield
            finally:
                await self.outbox.drain(self.slot.number)


class StoringProcess:
    """A process with its own line to the store, which writes while its gate is open."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.store = store
        self.rate = 1000.0
        """The most writes a second, and the most at once."""
        self.line = Line(store)
        self.gate = HandFence()
        self.clock = clock or LoopClock()
        self.monitoring = Monitoring()
        self.problems = ProblemLog(self.monitoring, self.clock)

    def open_term(self, kind: WriteKind, gate: HandFence | None = None, number: int = 0) -> StoringTerm:
        budget = WriteRateLimiter(self.rate, self.clock, self.monitoring)
        line: Any = self.line
        unused: Any = None
        writer = Writer(line, gate or self.gate, budget, self.clock, self.monitoring, unused)
        outbox = Outbox(budget, self.clock, self.monitoring, self.problems.defects)
        outbox.begin(number, writer)
        outlet = ConfigMapOutlet(outbox, kind, "unexpected error while storing")
        return StoringTerm(outbox, StoreSlot(outlet, writer, NAMESPACE, number, self.clock, self.problems))


class FloorProcess(StoringProcess):
    """A process that publishes floors, with its own view of them."""

    def __init__(self, store: Store) -> None:
        self.clock: LoopClock
        super().__init__(store)
        self.view = FloorView(self.line, self.clock, NAMESPACE, self.problems)  # type: ignore[arg-type]  # all it calls
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Run the view until `stop`."""
        self._task = asyncio.create_task(self.view.run())

    async def stop(self) -> None:
        assert self._task is not None
        await end(self._task)

    def writes(self, outcome: str) -> float:
        labels = {"type": "floor", "outcome": outcome}
        return self.monitoring.registry.get_sample_value("fastpath_writes_total", labels) or 0.0

    async def answer(self, uid: str) -> int | None:
        """Return the floor as a replica answers it, None for an error."""
        try:
            return self.floor(await self.view.current(), uid)
        except NotSyncedError:
            recent = self.view.recent()
            return None if recent is None else self.floor(recent, uid) or None

    def floor(self, floors: PublishedFloors, uid: str) -> int:
        wall, now = int(self.clock.wall() * SECOND), self.clock.monotonic()
        known = [each.floor for _, entries in floors.config_maps.values() for each in entries.values()]
        names = {(each.namespace, each.name) for each in known}
        found = [each for name in names for key, each in floors.find(*name, now) if key == uid]
        return max((floor_of(each, wall, MOST) for each in found), default=0)

    def known(self, uid: str) -> int:
        """Return the floor as the last read found it."""
        recent = self.view.recent()
        assert recent is not None
        return self.floor(recent, uid)


@contextlib.asynccontextmanager
async def watching(*processes: FloorProcess) -> AsyncIterator[None]:
    for each in processes:
        each.begin()
    try:
        yield
    finally:
        for each in processes:
            await each.stop()


@contextlib.asynccontextmanager
async def leading(
    process: FloorProcess, gate: HandFence | None = None, number: int = 0
) -> AsyncIterator[FloorWriter]:
    """Run a term from its start to its end."""
    term = process.open_term(WriteKind.FLOOR, gate or HandFence(), number)
    writer = FloorWriter(term.slot)
    async with term.running():
        await writer.start()
        try:
            yield writer
        finally:
            writer.close()


async def end(*tasks: "asyncio.Task[None]") -> None:
    """Cancel tasks, and raise what else they ended with."""
    for each in tasks:
        each.cancel()
    for each in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await each


class Checker:
    """Knows which floors are held, by who publishes them, and judges what is answered."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Floor, float]] = {}
        self.wrong: list[str] = []
        self.floors = self.zeros = self.errors = 0

    def held(self, now: float) -> Mapping[str, Floor]:
        return {uid: each for uid, (each, _) in self._held.items() if each.until > now * SECOND}

    def hold(self, entry: Floor, now: float) -> None:
        self._held[entry.uid] = (entry, now)

    def release(self, uid: str) -> None:
        self._held.pop(uid, None)

    async def ask(self, process: FloorProcess, uid: str) -> None:
        """Ask a replica; the answer must not be less than a floor that was held during the whole request."""
        before = self._held.get(uid)
        answer = await process.answer(uid)
        after = self._held.get(uid)
        if answer is None:
            self.errors += 1
            return
        if answer:
            self.floors += 1
        else:
            self.zeros += 1
        now = process.clock.wall()
        if before is not None and before == after and before[0].until > now * SECOND and answer == 0:
            self.wrong.append(f"{uid}: 0 at {now:.3f}, {before[0].replicas} held since {before[1]:.3f}")
