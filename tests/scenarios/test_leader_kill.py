"""Leaders come to every kind of end, two hundred times, under load that never rests, and no stale one writes.

Twelve elections run beside each other on one cluster over HTTP, each with two processes' worth of tasks that
have connections and a network of their own. Leases are short: 2 s, 1.2 s, 0.4 s; time is that of a loop which
a busy machine does not rush. Every write of a Scale, a status or an event is noted with who made it and who
held the lease at that very moment. Below them the same with real processes that the system freezes, which no
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

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import Change
from fastpath_sandbox.apiserver.workloads import deployment
from tests.support import patience
from tests.support.election import LoopClock
from tests.support.leader import Scaler
from tests.support.processor import limited
from tests.support.wire import Wire

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LANES = 12
KILLS = 17
ENDS = ("crash", "orderly", "partition", "stuck")
ROOT = Path(__file__).parents[2]
_LEASES = ("coordination.k8s.io", "leases")


class Written(NamedTuple):
    """One write that the cluster has made."""

    what: str
    by: str
    holder: str


class AuditedCluster(Cluster):
    """Notes the author of each write but those of leases, and who held the lease of its namespace.

    Between a write and its note nothing else can happen: there is no await. A caller's token is its identity,
    and so is a holder's.
    """

    def __init__(self) -> None:
        self._admitted: dict[str, str] = {}
        super().__init__(tokens=self._admitted)
        self.audit: dict[str, list[Written]] = {}
        self.releases = Counter[str]()
        """How often the holder of a namespace's lease gave it up."""
        self.store.subscribe(_LEASES, self._count_release)

    def admit(self, identity: str) -> None:
        """Admit a user whose token is its identity."""
        self._admitted[identity] = identity

    def _count_release(self, change: Change) -> None:
        if change.new is not None and not change.new.document["spec"].get("holderIdentity"):
            self.releases[change.new.namespace] += 1

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await super()._handle(request)
        _, _, rest = request.path.partition("/namespaces/")
        namespace, _, what = rest.partition("/")
        if request.method != "GET" and answer.status < 300 and not what.startswith("leases"):
            token = request.headers["Authorization"].removeprefix("Bearer ")
            lease = self.store.get(_LEASES, namespace, "fastpath")
            holder = lease.document["spec"]["holderIdentity"] if lease is not None else ""
            self.audit.setdefault(namespace, []).append(Written(what, token, holder))
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


class LeadingProcess(NamedTuple):
    """What one process has of its own."""

    scaler: Scaler
    wire: Wire
    task: asyncio.Task[None]


class Lane:
    """One election: a namespace with a Deployment, its autoscaler and a Lease; two processes at any time."""

    def __init__(self, cluster: AuditedCluster, number: int) -> None:
        self.namespace = f"lane-{number}"
        self.dice = random.Random(number)
        self.ends: Counter[str] = Counter()
        self._cluster = cluster
        self._made = 0
        self._running: list[LeadingProcess] = []
        self._uid = make_autoscaler(cluster, self.namespace)

    def load(self) -> int:
        """Return how many replicas are wanted: another number five times a second."""
        return 1 + int(asyncio.get_running_loop().time() * 5) * 7 % 90

    @property
    def audit(self) -> list[Written]:
        return self._cluster.audit.setdefault(self.namespace, [])

    @property
    def releases(self) -> int:
        return self._cluster.releases[self.namespace]

    async def start(self) -> None:
        self._made += 1
        identity = f"{self.namespace}-{self._made}"
        self._cluster.admit(identity)
        wire = await Wire(self._cluster.url).__aenter__()
        scaler = Scaler(wire.url, self.namespace, identity, self._uid, LoopClock(), self.load)
        self._running.append(LeadingProcess(scaler, wire, asyncio.create_task(scaler.run(), name=identity)))

    async def stop(self, process: LeadingProcess) -> None:
        self._running.remove(process)
        process.task.cancel()
        await asyncio.wait([process.task])
        await process.wire.__aexit__(None, None, None)
        assert process.task.cancelled(), process.task.exception()

    async def run(self) -> None:
        """Bring one leader after the other to its end."""
        await self.start()
        await self.start()
        for number in range(KILLS):
            leader = await self._leader_at_work()
            await asyncio.sleep(self.dice.uniform(0.0, 0.4))
            end = ENDS[number % len(ENDS)]
            self.ends[end] += 1
            stopping = self._end(leader, end)
            await self.start()
            await self._until(lambda: self.audit[-1].by != leader.scaler.identity)  # noqa: B023 - awaited within the turn
            if end == "partition":
                leader.wire.release()
                await asyncio.sleep(0.1)
            await (stopping or self.stop(leader))
        for process in list(self._running):
            await self.stop(process)

    def _end(self, leader: LeadingProcess, end: str) -> asyncio.Task[None] | None:
        """Begin the end of a leader.

        A crashed one says nothing any more; one cut off or stuck does not know that it is over.
        """
        if end == "partition":
            leader.wire.hold()
            return None
        if end == "stuck":
            leader.scaler.store.stuck = True
            return None
        if end == "crash":
            leader.wire.cut()
        return asyncio.create_task(self.stop(leader))

    async def _leader_at_work(self) -> LeadingProcess:
        """Return the process that leads, once it has written."""
        found: list[LeadingProcess] = []

        def leads() -> bool:
            found[:] = [
                each for each in self._running if self.audit and self.audit[-1].by == each.scaler.identity
            ]
            return bool(found) and found[0].scaler.elector.leading

        await self._until(leads)
        return found[0]

    @staticmethod
    async def _until(condition: Callable[[], bool]) -> None:
        async with limited(20):
            while not condition():  # noqa: ASYNC110 - what a server in the same loop has come to sets no event of ours
                await asyncio.sleep(0.01)


async def kill_leaders() -> tuple[list[Lane], list[Written]]:
    async with AuditedCluster() as cluster:
        lanes = [Lane(cluster, number) for number in range(LANES)]
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(lane.run(), name=lane.namespace)
    return lanes, [each for lane in lanes for each in lane.audit]


def test_two_hundred_leaders_come_to_their_end() -> None:
    lanes, written = patience.run(kill_leaders())
    assert [each for each in written if each.by != each.holder] == []
    ends = sum((lane.ends for lane in lanes), Counter[str]())
    assert ends.total() >= 200
    assert min(ends[end] for end in ENDS) >= 48
    kinds = Counter(
        "scale" if each.what.endswith("/scale") else each.what.partition("/")[0] for each in written
    )
    assert min(kinds[kind] for kind in ("scale", "horizontalpodautoscalers", "events")) > 100
    assert all(lane.releases >= lane.ends["orderly"] for lane in lanes), "an orderly end frees the lease"


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
            *("-m", "tests.support.leader", cluster.url, "frozen", identity, uid),
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


async def test_a_frozen_leader_wakes_up_and_writes_nothing() -> None:
    """The system stops it wherever it happens to be, and for longer than its lease."""
    async with AuditedCluster() as cluster, programs(cluster, "a", "b", "c") as running:
        audit = cluster.audit.setdefault("frozen", [])

        async def wait_for_other(than: str) -> str:
            async with limited(30):
                while not audit or audit[-1].by == than:  # noqa: ASYNC110 - the writes of other processes
                    await asyncio.sleep(0.01)
            return audit[-1].by

        leader = await wait_for_other("")
        for number in range(8):
            await asyncio.sleep(0.1 * number)
            frozen = leader
            running[frozen].send_signal(signal.SIGSTOP)
            leader = await wait_for_other(frozen)
            running[frozen].send_signal(signal.SIGCONT)
            await asyncio.sleep(0.3)
        assert [each for each in audit if each.by != each.holder] == []
        running[leader].send_signal(signal.SIGTERM)
        assert await running[leader].wait() == 0
        await wait_for_other(leader)
        assert [each for each in audit if each.by != each.holder] == []
