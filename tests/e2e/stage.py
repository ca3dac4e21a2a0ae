"""Workloads and their autoscalers on a real control plane, with an adapter that scales them.

Watches feed the audits, and make pods run as kubelets do. Between the API server and Fastpath is a server
that makes totals some askings late, so that every raise comes before the controller knows why.
"""

import asyncio
import contextlib
import functools
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp

from adapter.model.autoscaling import floor as floors
from adapter.server import tls
from fastpath_sandbox.prometheus.series import SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from scripts.generate import crd, crd_schedules
from tests.e2e import aggregation, watching
from tests.e2e.aggregation import NAMESPACE, SERVICE
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.conftest import Fronted
from tests.e2e.test_aggregation import WELL
from tests.support import boosting
from tests.support.boosting import CLOCK, HOLD, UNIT, Loads, Workload
from tests.support.naive import MANAGER
from tests.support.nativechain import Front
from tests.support.scalewrites import Audit, Place
from tests.support.waiting import until

WAIT = 90.0
FLAGS = (
    "--scaler",
    "--local-address=",
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--metrics-relist-interval=2s",
    "--metrics-max-age=60s",
    "--scrape-pod-cidrs=127.0.0.0/8",
)


class Port(NamedTuple):
    """Where an adapter listens."""

    port: int


class World(Loads):
    """Workloads on a real control plane without kubelet: watches feed the audits, and make pods run."""

    def __init__(self, cluster: ClusterUnderTest, session: aiohttp.ClientSession) -> None:
        super().__init__(SeriesSet(interval=boosting.SCRAPE))
        self.cluster = cluster
        self.audit = Audit(CLOCK.wall, HOLD)
        # it raises for steps alone, which are right for good, and a starved controller reverses them late
        self.naive = Audit(CLOCK.wall, WAIT, booster=MANAGER)
        self._session = session
        self._hpas: dict[str, Document] = {}
        self._events: list[Document] = []
        self._starting: deque[tuple[str, str]] = deque()

    async def add(self, workloads: Iterable[Workload]) -> None:
        """Create workloads and their autoscalers."""
        documents = []
        for each in workloads:
            self.show(each, self.cluster.namespace)
            documents += each.objects(self.cluster.namespace)
        await self.cluster.create(*documents)

    def place(self, name: str) -> Place:
        return Place(self.cluster.namespace, name)

    def replicas(self, name: str) -> int:
        return self.audit.count(self.place(name))

    def is_active(self, name: str) -> bool:
        conditions = self._hpas.get(name, {}).get("status", {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("ScalingActive", "True") for each in conditions)

    def is_right(self, name: str) -> bool:
        return abs(self.load(name) / UNIT / max(1, self.replicas(name)) - 1) <= 0.1

    def floor(self, name: str) -> int:
        return self.audit.published(self.place(name), CLOCK.wall())

    async def patch(self, path: str, change: Document, **parameters: str) -> None:
        """Merge a change into what is at a path."""
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(
            path, params=parameters, data=json.dumps(change), headers=headers
        ) as response:
            assert response.status in {200, 404}, await response.text()

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """Set annotations of ours by their last part; None takes one away."""
        found = {f"fastpath.io/{key}": value for key, value in annotations.items()}
        await self.patch(self._hpa_path(name), {"metadata": {"annotations": found}})

    async def remove_handshake(self, workload: Workload) -> None:
        """Take the metric of the floor out of the spec."""
        metrics = boosting.METRICS[workload.metrics](workload.name)
        await self.patch(self._hpa_path(workload.name), {"spec": {"metrics": metrics}})

    def told(self, name: str, reason: str) -> list[str]:
        """Return the messages of events about an autoscaler."""
        found = [
            each
            for each in self._events
            if (each["involvedObject"]["name"], each["reason"]) == (name, reason)
        ]
        return [each["message"] for each in found]

    def _hpa_path(self, name: str) -> str:
        return f"/apis/autoscaling/v2/namespaces/{self.cluster.namespace}/horizontalpodautoscalers/{name}"

    async def raise_naively(self, name: str, count: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/deployments/{name}/scale"
        await self.patch(path, {"spec": {"replicas": count}}, fieldManager=MANAGER)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Follow the cluster until the block ends."""
        within = f"namespaces/{self.cluster.namespace}"
        watches = [
            self._watch(f"/apis/apps/v1/{within}/deployments", self._saw_target),
            self._watch(f"/apis/autoscaling/v2/{within}/horizontalpodautoscalers", self._saw_autoscaler),
            self._watch(
                f"/api/v1/namespaces/{NAMESPACE}/configmaps",
                self._saw_floors,
                labelSelector=f"{floors.LABEL}=true",
            ),
            self._watch(f"/api/v1/{within}/events", self._saw_event),
            self._watch(f"/api/v1/{within}/pods", self._saw_pod),
            self._start_pods(),
        ]
        tasks = [asyncio.create_task(each) for each in watches]
        try:
            yield
            failed = [each.exception() for each in tasks if each.done()]
            assert failed == []
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _watch(
        self, path: str, see: Callable[[str, Document], None], **parameters: str
    ) -> Coroutine[Any, Any, None]:
        return watching.follow(self._session, path, see, **parameters)

    def _saw_target(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self.audit.saw_target(document)
            self.naive.saw_target(document)

    def _saw_autoscaler(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self._hpas[document["metadata"]["name"]] = document
            self.audit.saw_autoscaler(document)
            self.naive.saw_autoscaler(document)

    def _saw_floors(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self.audit.saw_floors(document)

    def _saw_event(self, _: str, document: Document) -> None:
        self._events.append(document)

    def _saw_pod(self, kind: str, document: Document) -> None:
        name, status = document["metadata"]["name"], document["status"]
        if kind == "DELETED" or "deletionTimestamp" in document["metadata"]:
            self.pod_ends(name)
        elif status.get("podIP"):
            self.pod_runs(
                name, document["metadata"]["labels"]["app"], status["podIP"], self.cluster.namespace
            )
        elif kind == "ADDED":
            self._starting.append((name, self.free.popleft()))

    async def _start_pods(self) -> None:
        """Do what kubelets do once containers run."""
        while True:
            while self._starting:
                name, address = self._starting.popleft()
                status: Document = WELL | {"podIP": address, "podIPs": [{"ip": address}]}
                path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{name}/status"
                await self.patch(path, {"status": status})
            await asyncio.sleep(0.05)


W = TypeVar("W", bound=World)


def _straight(_: World, port: int) -> contextlib.AbstractAsyncContextManager[int]:
    return aggregation.straight(port)


class Scene(NamedTuple):
    """A world whose metrics Fastpath serves through what is in front of it."""

    world: World
    front: Front


@contextlib.asynccontextmanager
async def opened(
    fronted: Fronted, directory: Path, make: Callable[[ClusterUnderTest, aiohttp.ClientSession], W]
) -> AsyncIterator[tuple[W, Prometheus]]:
    """Run a world with its Prometheus, and write its rules, until the block ends."""
    cluster, backend = fronted
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(watching.connect(cluster, backend.authority))
        world = make(cluster, session)
        await stack.enter_async_context(world.listening())
        (directory / "rules.yaml").write_text(world.rules)
        prometheus = await stack.enter_async_context(Prometheus(world.series, now=CLOCK.wall))
        for path in (crd.PATH, crd_schedules.PATH):
            await cluster.kubectl("apply", "--validate=false", "-f", str(path))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        await stack.enter_async_context(world.watching())
        yield world, prometheus
        await cluster.kubectl("delete", "hpa,fpa", "--all", "-n", cluster.namespace)


@contextlib.asynccontextmanager
async def scaled(
    fronted: Fronted,
    directory: Path,
    make: Callable[[ClusterUnderTest, aiohttp.ClientSession], W],
    *components: str,
    through: Callable[[W, int], contextlib.AbstractAsyncContextManager[int]] = _straight,
) -> AsyncIterator[W]:
    """Run an adapter that scales a world, with these components of the manifests too, until the block ends.

    POD_NAMESPACE is that of the manifests.
    """
    async with (
        opened(fronted, directory, make) as (world, prometheus),
        aggregation.register(
            *fronted,
            directory,
            prometheus.url,
            *FLAGS,
            components=("external", "resource", "scaler-in-process", *components),
            through=functools.partial(through, world),
        ),
    ):
        yield world


@contextlib.asynccontextmanager
async def staged(fronted: Fronted, tmp_path: Path, lag: int) -> AsyncIterator[Scene]:
    """Run an adapter that scales, behind a server that answers `lag` askings late, until the block ends."""
    cluster, backend = fronted
    fronts: list[Front] = []
    serving = backend.authority.server_context(
        backend.authority.issue(*tls.service_names(SERVICE, NAMESPACE))
    )

    @contextlib.asynccontextmanager
    async def through(world: World, port: int) -> AsyncIterator[int]:
        async with Front(world, [Port(port)], lag=lag, token=cluster.token, tls=serving) as front:
            fronts.append(front)
            yield int(front.url.rpartition(":")[2])

    async with scaled(fronted, tmp_path, World, through=through) as world:
        yield Scene(world, fronts[0])


async def settled(scene: Scene) -> None:
    """Return when autoscalers are active and their floors are answered."""
    world, front = scene
    await until(lambda: all(world.is_active(name) for name in world.workloads), WAIT)
    await until(
        lambda: all(front.floors[name] and front.floors[name][-1][1] == 200 for name in world.workloads), WAIT
    )
    await until(lambda: front.is_late, WAIT)
