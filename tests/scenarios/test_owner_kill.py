"""Owners of a slice come to every kind of end under load that never rests, and no stale one writes.

They are programs of their own. Leases are short: 2 s, 1.2 s, 0.4 s. Every write of a Scale, a status or an
event is noted with who made it and who owned the slice at that very moment.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from adapter.kubernetes.ownership import installation_lock
from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.scenarios.slice_owner import NAME
from tests.support.processor import limited

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ENDS: tuple[signal.Signals | str, ...] = (
    signal.SIGKILL,
    "partition",
    signal.SIGSTOP,
    "stuck",
    signal.SIGTERM,
)
"""One that is cut off, frozen or stuck does not know that it is over, and goes on later."""
UNANSWERED = {"partition": "/", "stuck": f"/{NAME}-member-"}
ROOT = Path(__file__).parents[2]
_LEASES = ("coordination.k8s.io", "leases")


class ClusterWrite(NamedTuple):
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
        self.audit: dict[str, list[ClusterWrite]] = {}
        self.unanswered: dict[str, str] = {}
        """Requests of some get no answer: those whose path has this text."""

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
        if token in self.unanswered and self.unanswered[token] in request.path:
            await asyncio.Event().wait()
        answer = await super()._handle(request)
        _, _, rest = request.path.partition("/namespaces/")
        namespace, _, what = rest.partition("/")
        if request.method != "GET" and answer.status < 300 and not what.startswith("leases"):
            self.audit.setdefault(namespace, []).append(ClusterWrite(what, token, self.owner(namespace)))
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


@contextlib.asynccontextmanager
async def program(cluster: AuditedCluster, identity: str, uid: str) -> AsyncIterator[Process]:
    """Run a scaler under a name."""
    cluster.admit(identity)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.scenarios.slice_owner", cluster.url, "shop", identity, uid),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_owners_come_to_every_kind_of_end() -> None:
    async with AuditedCluster() as cluster, contextlib.AsyncExitStack() as stack:
        cluster.forbid("get", "leases", installation_lock.NAMESPACE)
        uid = make_autoscaler(cluster, "shop")
        audit = cluster.audit.setdefault("shop", [])
        running: dict[str, Process] = {}

        async def start() -> None:
            identity = f"owner-{len(running)}"
            running[identity] = await stack.enter_async_context(program(cluster, identity, uid))

        async def wait_for_other(than: str) -> str:
            """Return the next writer, once it has the slice."""
            async with limited(30):
                while not audit or audit[-1].by == than:  # noqa: ASYNC110 - the writes of other processes
                    await asyncio.sleep(0.01)
            return audit[-1].by

        await start()
        await start()
        owner = await wait_for_other("")
        for number, end in enumerate(ENDS):
            await asyncio.sleep(0.1 * number)
            ended = owner
            if isinstance(end, signal.Signals):
                running[ended].send_signal(end)
            else:
                cluster.unanswered[ended] = UNANSWERED[end]
            owner = await wait_for_other(ended)
            if end in {signal.SIGKILL, signal.SIGTERM}:
                assert await running[ended].wait() in {0, -signal.SIGKILL}
                await start()
            else:
                running[ended].send_signal(signal.SIGCONT)
                cluster.unanswered.pop(ended, None)
            await asyncio.sleep(0.3)
        assert cluster.holder("shop", f"{NAME}-member-{ended}") == "", "an orderly end frees the Lease"
    assert [each for each in audit if each.by != each.owner] == []
    parts = (each.what.split("/") for each in audit)
    kinds = Counter("scale" if part[-1] == "scale" else part[0] for part in parts)
    assert min(kinds[kind] for kind in ("scale", "horizontalpodautoscalers", "events")) > 10
