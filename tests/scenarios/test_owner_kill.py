"""Owners of a slice come to every kind of end under load that never rests, and no stale one writes.

Lanes run beside each other on one cluster over HTTP, each with two processes' worth of tasks that have
connections and a network of their own. Leases are short: 2 s, 1.2 s, 0.4 s; time is that of a loop which a
busy machine does not rush. Every write of a Scale, a status or an event is noted with who made it and who
owned the slice at that very moment. Below them the same with real processes that the system freezes, which no
task can play.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from adapter.kubernetes.ownership import installation_lock
from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.support import patience
from tests.support.clock import LoopClock
from tests.support.processor import limited
from tests.support.slice_owner import NAME, Scaler
from tests.support.wire import Wire

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LANES = 12
KILLS = 8
ENDS = ("crash", "orderly", "partition", "stuck")
ROOT = Path(__file__).parents[2]
_LEASES = ("coordination.k8s.io", "leases")


class Written(NamedTuple):
    """One write that the cluster has made."""

    what: str
    by: str
    owner: str


class AuditedCluster(Cluster):
    """Notes the author of each write but those of leases, and who owned the slice of its namespace.

    Between a write and its note nothing else can happen: there is no await. A caller's token is its identity,
    and so is a holder's. The Leases of each namespace are those of scalers of its own.
    """

    def __init__(self) -> None:
        self._admitted: dict[str, str] = {}
        super().__init__(tokens=self._admitted)
        self.audit: dict[str, list[Written]] = {}
        self.stuck: set[str] = set()
        """Those whose renewals get no answer while all else goes through."""

    def admit(self, identity: str) -> None:
        """Admit a user whose token is its identity."""
        self._admitted[identity] = identity

    def holder(self, namespace: str, lease: str) -> str:
        found = self.store.get(_LEASES, namespace, lease)
        return found.document["spec"]["holderIdentity"] if found is not None else ""

    def owner(self, namespace: str) -> str:
        """Return who owns the slice of a namespace: its holder, while that holds its own Lease."""
        holder = self.holder(namespace, slices.name_of(NAME, slices.slice_of(namespace)))
        return self.holder(namespace, f"{NAME}-member-{holder}")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if token in self.stuck and request.method == "PUT" and f"/{NAME}-member-" in request.path:
            await asyncio.Event().wait()
        answer = await super()._handle(request)
        _, _, rest = request.path.partition("/namespaces/")
        namespace, _, what = rest.partition("/")
        if request.method != "GET" and answer.status < 300 and not what.startswith("leases"):
            self.audit.setdefault(namespace, []).append(Written(what, token, self.owner(namespace)))
        return answer


def make_autoscaler(cluster: Cluster, namespace: str) -> str:
    """Create a Deployment ``web`` and its autoscaler; return the uid of the latter."""
    cluster.create(deployment("web", namespace))
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {"maxReplicas": 99},
    }
    made = cluster.create(autoscaler | {"metadata": {"name": "web", "namespace": namespace}})
    uid: str = made["metadata"]["uid"]
    return uid


class OwningProcess(NamedTuple):
    """What one process has of its own."""

    scaler: Scaler
    wire: Wire
    task: asyncio.Task[None]


class Lane:
    """A namespace with a Deployment, its autoscaler and the Leases; two processes at any time."""

    def __init__(self, cluster: AuditedCluster, number: int) -> None:
        self.namespace = f"lane-{number}"
        self.dice = random.Random(number)
        self.ends: Counter[str] = Counter()
        self.kept: list[str] = []
        """Those that ended in order and kept their Lease."""
        self._cluster = cluster
        self._made = 0
        self._running: list[OwningProcess] = []
        self._uid = make_autoscaler(cluster, self.namespace)

    def load(self) -> int:
        """Return how many replicas are wanted: another number five times a second."""
        return 1 + int(asyncio.get_running_loop().time() * 5) * 7 % 90

    @property
    def audit(self) -> list[Written]:
        return self._cluster.audit.setdefault(self.namespace, [])

    async def start(self) -> None:
        self._made += 1
        identity = f"{self.namespace}-{self._made}"
        self._cluster.admit(identity)
        wire = await Wire(self._cluster.url).__aenter__()
        scaler = Scaler(wire.url, self.namespace, identity, self._uid, LoopClock(), self.load)
        self._running.append(OwningProcess(scaler, wire, asyncio.create_task(scaler.run(), name=identity)))

    async def stop(self, process: OwningProcess, *, is_orderly: bool = False) -> None:
        self._running.remove(process)
        process.task.cancel()
        await asyncio.wait([process.task])
        if is_orderly and self._cluster.holder(self.namespace, f"{NAME}-member-{process.scaler.identity}"):
            self.kept.append(process.scaler.identity)
        await process.wire.__aexit__(None, None, None)
        assert process.task.cancelled(), process.task.exception()

    async def run(self) -> None:
        """Bring one owner after the other to its end."""
        await self.start()
        await self.start()
        for number in range(KILLS):
            owner = await self._owner_at_work()
            await asyncio.sleep(self.dice.uniform(0.0, 0.4))
            end = ENDS[number % len(ENDS)]
            self.ends[end] += 1
            stopping = self._end(owner, end)
            await self.start()
            await self._until(lambda: self.audit[-1].by != owner.scaler.identity)  # noqa: B023 - awaited within the turn
            if end == "partition":
                owner.wire.release()
                await asyncio.sleep(0.1)
            await (stopping or self.stop(owner))
        for process in list(self._running):
            await self.stop(process)

    def _end(self, owner: OwningProcess, end: str) -> asyncio.Task[None] | None:
        """Begin the end of an owner.

        A crashed one says nothing any more; one cut off or stuck does not know that it is over.
        """
        if end == "partition":
            owner.wire.hold()
            return None
        if end == "stuck":
            self._cluster.stuck.add(owner.scaler.identity)
            return None
        if end == "crash":
            owner.wire.cut()
        return asyncio.create_task(self.stop(owner, is_orderly=end == "orderly"))

    async def _owner_at_work(self) -> OwningProcess:
        """Return the process that owns the slice, once it has written."""
        found: list[OwningProcess] = []

        def works() -> bool:
            last, owner = self.audit[-1].by if self.audit else "", self._cluster.owner(self.namespace)
            found[:] = [each for each in self._running if last == owner == each.scaler.identity]
            return bool(found)

        await self._until(works)
        return found[0]

    @staticmethod
    async def _until(condition: Callable[[], bool]) -> None:
        async with limited(20):
            while not condition():  # noqa: ASYNC110 - what a server in the same loop has come to sets no event of ours
                await asyncio.sleep(0.01)


async def kill_owners() -> tuple[list[Lane], list[Written]]:
    async with AuditedCluster() as cluster:
        # each lane is an installation of its own, and all scale at once
        cluster.forbid("get", "leases", installation_lock.NAMESPACE)
        lanes = [Lane(cluster, number) for number in range(LANES)]
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(lane.run(), name=lane.namespace)
    return lanes, [each for lane in lanes for each in lane.audit]


def test_owners_come_to_every_kind_of_end() -> None:
    lanes, written = patience.run(kill_owners())
    assert [each for each in written if each.by != each.owner] == []
    ends = sum((lane.ends for lane in lanes), Counter[str]())
    assert {ends[end] for end in ENDS} == {LANES * KILLS // len(ENDS)}
    kinds = Counter(
        "scale" if each.what.endswith("/scale") else each.what.partition("/")[0] for each in written
    )
    assert min(kinds[kind] for kind in ("scale", "horizontalpodautoscalers", "events")) > 100
    assert [identity for lane in lanes for identity in lane.kept] == [], "an orderly end frees the Lease"


# --- real processes ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def programs(
    cluster: AuditedCluster, *identities: str
) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    """Run a scaler as a program under each of these names."""
    uid = make_autoscaler(cluster, "frozen")
    started = {}
    for identity in identities:
        cluster.admit(identity)
        started[identity] = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.slice_owner", cluster.url, "frozen", identity, uid),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.DEVNULL,
        )
    try:
        yield started
    finally:
        for each in started.values():
            if each.returncode is None:
                each.send_signal(signal.SIGCONT)
                each.kill()
            await each.wait()


async def test_a_frozen_owner_wakes_up_and_writes_nothing() -> None:
    """The system stops it wherever it happens to be, and for longer than its lease."""
    async with AuditedCluster() as cluster, programs(cluster, "a", "b", "c") as running:
        audit = cluster.audit.setdefault("frozen", [])

        async def wait_for_other(than: str) -> str:
            async with limited(30):
                while not audit or audit[-1].by == than:  # noqa: ASYNC110 - the writes of other processes
                    await asyncio.sleep(0.01)
            return audit[-1].by

        owner = await wait_for_other("")
        for number in range(8):
            await asyncio.sleep(0.1 * number)
            frozen = owner
            running[frozen].send_signal(signal.SIGSTOP)
            owner = await wait_for_other(frozen)
            running[frozen].send_signal(signal.SIGCONT)
            await asyncio.sleep(0.3)
        assert [each for each in audit if each.by != each.owner] == []
        running[owner].send_signal(signal.SIGTERM)
        assert await running[owner].wait() == 0
        await wait_for_other(owner)
        assert [each for each in audit if each.by != each.owner] == []
