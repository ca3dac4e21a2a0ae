"""Whatever an API server refuses, and of which kind: a scaler goes on deciding, and soon reads it again.

The kinds are those that the scaler asks for here, so that a new one is among them. Slices and their owners
are in tests/kubernetes/ownership/test_api_server_faults.py.
"""

import asyncio
import contextlib
import dataclasses
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from adapter.compose.scaler import Scaler
from adapter.config.options import Options
from adapter.errors import KubernetesError, SourceError
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scope import SliceScope
from adapter.kubernetes.client import ListWatch, ResponseBody
from adapter.kubernetes.codec import WatchEvent
from adapter.kubernetes.ownership import installation_lock
from adapter.telemetry.metrics import Monitoring
from tests.compose.test_scaler import runtime
from tests.support.clock import LoopClock
from tests.support.waiting import running

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(120)]

HANGS, GONE = -1, 0
STATUSES = (401, 403, 404, 410, 429, 500, 503, 504, HANGS)
AWAY = 4.0
"""Seconds for which an API server that restarts is gone."""

FAULT = 8.0
"""Seconds of a fault."""

READ_AGAIN = 20.0
"""Seconds after a fault within which each kind is read again, as docs/guides/more-scalers.md says.

They are the longest pause between two attempts, and the time in which slices have an owner again.
"""

UNSERVED = 30.0
"""How often a kind is looked for that the API server does not serve at the start."""

UNANSWERED = 30.0
"""The limit of a request that the API server does not answer, which may have begun at the end of a fault."""

UNDECIDED = 2.5
"""The longest time between two decisions, which are due each second, while the slices have an owner."""

OWNED = 5.0
"""The longest time after a fault until slices have an owner again, and are decided."""

Document = dict[str, Any]


def meta(name: str, **more: Any) -> Document:
    return {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", **more}


TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "1"}},
}
OBJECTS: dict[str, list[Document]] = {
    "fastpathautoscalers": [
        {
            "metadata": meta("web", generation=1),
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 3,
                "metrics": [QUEUE],
            },
        }
    ],
    "deployments": [
        {
            "metadata": meta("web"),
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
            "status": {"replicas": 1},
        }
    ],
    "namespaces": [{"metadata": {"name": "shop", "resourceVersion": "1"}}],
}


class APIServer:
    """Answers at once, or as `faults` say: the status for each kind, "" for all. Only Leases change."""

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.changed = 0.0
        """Since when."""
        self.read: defaultdict[str, float] = defaultdict(float)
        """When kinds were last listed, or a watch of them began or showed something."""
        self._version = 10
        self._leases: dict[str, Document] = {}
        self._lock: dict[str, Document] = {}
        """The Lease of the installation that scales, which has no label."""
        self._changes: list[Document] = []
        self._watches: list[tuple[str, asyncio.Queue[Document | None]]] = []

    def refuse(self, **faults: int) -> None:
        self.faults, self.changed = faults, asyncio.get_running_loop().time()
        for _, queue in self._watches:
            queue.put_nowait(None)

    async def _answer(self, kind: str) -> None:
        await asyncio.sleep(0.002)
        status = self.faults.get(kind, self.faults.get("all"))
        if status == HANGS:
            await asyncio.Event().wait()
        elif status is not None:
            reason = "Refused" if status else "Unreachable"
            raise KubernetesError(status, reason, f"cannot {kind}: {status}")

    def _objects(self, kind: str) -> list[Document]:
        return list(self._leases.values()) if kind == "leases" else OBJECTS.get(kind, [])

    async def list_objects(
        self, source: ListWatch[Any], deliver: Callable[[list[Any]], None], **_: object
    ) -> str:
        await self._answer(source.resource.plural)
        found = self._objects(source.resource.plural)
        deliver([source.codec.decode(msgspec.json.encode(document)) for document in found])
        self.read[source.resource.plural] = asyncio.get_running_loop().time()
        return str(self._version)

    @contextlib.asynccontextmanager
    async def watch_objects(
        self, source: ListWatch[Any], *, silence: float, resource_version: str, **_: object
    ) -> AsyncIterator[AsyncIterator[list[WatchEvent[Any]]]]:
        kind, loop = source.resource.plural, asyncio.get_running_loop()
        await self._answer(kind)
        self.read[kind] = loop.time()
        queue: asyncio.Queue[Document | None] = asyncio.Queue()
        for document in self._changes if kind == "leases" else ():
            if int(document["metadata"]["resourceVersion"]) > int(resource_version):
                queue.put_nowait(document)

        async def events() -> AsyncIterator[list[WatchEvent[Any]]]:
            while True:
                try:
                    async with asyncio.timeout(silence):
                        document = await queue.get()
                except TimeoutError:
                    raise KubernetesError(0, "Timeout", "silent") from None
                if document is None:
                    raise KubernetesError(0, "Broken", "the connection broke")
                self.read[kind] = loop.time()
                event = msgspec.json.encode({"type": "MODIFIED", "object": document})
                yield [source.codec.decode_event(event)]  # type: ignore[list-item]

        self._watches.append((kind, queue))
        try:
            yield events()
        finally:
            self._watches.remove((kind, queue))

    async def get(self, path: str, **_: object) -> ResponseBody:
        kind, name = path.rsplit("/", 1)
        await self._answer(kind.rpartition("/")[2])
        leases = self._lock if f"/{installation_lock.NAMESPACE}/" in path else self._leases
        if name not in leases:
            raise KubernetesError(404, "NotFound", f"cannot get {path}")
        return ResponseBody("application/json", msgspec.json.encode(leases[name]))

    async def write(
        self,
        method: str,
        path: str,
        content: bytes,
        *,
        seconds: float,
        check: Callable[[], object],
        **_: object,
    ) -> ResponseBody:
        check()
        try:
            async with asyncio.timeout(seconds):
                await self._answer("leases" if "/leases" in path else "writes")
        except TimeoutError:
            raise KubernetesError(0, "Timeout", "no answer") from None
        document: Document = msgspec.json.decode(content)
        if "/leases" in path and method != "DELETE":
            self._version += 1
            document["metadata"]["resourceVersion"] = str(self._version)
        if f"/{installation_lock.NAMESPACE}/" in path:
            self._lock[installation_lock.NAME] = document
        elif "/leases" in path and method != "DELETE":
            self._leases[document["metadata"]["name"]] = document
            self._changes.append(document)
            for kind, queue in self._watches:
                if kind == "leases":
                    queue.put_nowait(document)
        return ResponseBody("application/json", msgspec.json.encode(document))


class Values:
    """Has no values, so that each decision keeps the count."""

    async def sample_series(self, *_: object) -> None:
        raise SourceError("no values")


class ExactClock(LoopClock):
    """Shows times that add up exactly, so that no wait is too short to end in fake time."""

    def monotonic(self) -> float:
        return math.ceil(super().monotonic() * 2**20) / 2**20


class ScalerUnderFaults:
    """A scaler of `fastpath scale` with one autoscaler."""

    def __init__(self) -> None:
        self.server = APIServer()
        monitoring = self._monitoring = Monitoring()
        clock: Any = ExactClock()
        client: Any = self.server
        own = runtime(clock, monitoring)
        watching = ReflectorContext(client, clock, monitoring, own.problems, lambda: 0.5, scope=SliceScope())
        own = dataclasses.replace(own, client=client, watching=watching)
        own.relister.attempted.set()
        nothing: Any = Values()
        options = Options(horizontal_pod_autoscaler_sync_period=1.0)
        self.scaler = Scaler(options, own, nothing, lambda _: nothing, random=lambda: 0.5)

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator["ScalerUnderFaults"]:
        caches, scaling = self.scaler.tasks()
        async with running(*caches.values(), scaling):
            yield self

    def decisions(self) -> float:
        find = self._monitoring.registry.get_sample_value
        return find("fastpath_scaler_lag_seconds_count") or 0.0

    async def longest_pause(self, seconds: float) -> float:
        """Let time pass; return the longest time without a decision."""
        step, longest, since, before = 0.5, 0.0, 0.0, self.decisions()
        for _ in range(int(seconds / step)):
            await asyncio.sleep(step)
            since += step
            longest = max(longest, since)
            if self.decisions() > before:
                since, before = 0.0, self.decisions()
        return longest


async def find_kinds() -> list[str]:
    """Return what a scaler lists or watches."""
    bench = ScalerUnderFaults()
    async with bench.started():
        await asyncio.sleep(5)
    assert {"leases", "pods", "deployments", "horizontalpodautoscalers"} <= bench.server.read.keys()
    return sorted(bench.server.read)


def find_faults(kinds: list[str]) -> Iterator[dict[str, int]]:
    """Yield rounds: at first each kind has another status; then all have the same, and each in turn."""
    for shift in (0, 4):
        yield {kind: STATUSES[(shift + at) % len(STATUSES)] for at, kind in enumerate(kinds)}
    for status in STATUSES:
        yield {"all": status}


async def check_read(
    bench: ScalerUnderFaults, kinds: list[str], faults: dict[str, int], *, begins: bool = False
) -> None:
    """Check that all kinds are read again in time. At the start one kind waits for another."""
    now = asyncio.get_running_loop().time
    began = bench.server.changed
    waiting = set(kinds)
    while waiting:
        await asyncio.sleep(0.5)
        waiting -= {kind for kind in kinds if bench.server.read[kind] > began}
        for kind in waiting:
            statuses = faults.values() if begins else [faults.get(kind) or faults["all"]]
            more = max({HANGS: UNANSWERED, 404: UNSERVED}.get(status, 0.0) for status in statuses)
            assert now() - began < READ_AGAIN + more, (kind, faults)


@pytest.mark.parametrize("restarts", [False, True], ids=["middle", "restart"])
async def test_a_kind_that_was_refused_is_read_again_soon(*, restarts: bool) -> None:
    kinds = await find_kinds()
    bench = ScalerUnderFaults()
    async with bench.started():
        await asyncio.sleep(5)
        for faults in find_faults(kinds):
            if restarts:
                bench.server.refuse(all=GONE)
                await asyncio.sleep(AWAY)
            bench.server.refuse(**faults)
            pause = await bench.longest_pause(FAULT)
            assert restarts or pause < UNDECIDED, faults
            bench.server.refuse()
            assert await bench.longest_pause(OWNED + 1) < OWNED, faults
            await check_read(bench, kinds, faults)
            assert await bench.longest_pause(OWNED) < UNDECIDED, faults


async def test_a_fault_at_the_start() -> None:
    kinds = await find_kinds()
    for faults in find_faults(kinds):
        bench = ScalerUnderFaults()
        bench.server.refuse(**faults)
        async with bench.started():
            await asyncio.sleep(FAULT)
            bench.server.refuse()
            await check_read(bench, kinds, faults, begins=True)
            await asyncio.sleep(UNDECIDED)
            assert bench.decisions(), faults
