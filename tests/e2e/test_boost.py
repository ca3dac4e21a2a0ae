"""Boosted HorizontalPodAutoscalers beside the real controller, under loads that step, spike and saw, and the
naive booster as control.

Then objects that are not boosted, and objects that stop being so. On a real control plane alone, with the
rights of the shipped manifests: the sandbox's turn is `tests/scenarios/test_boost.py`. Between the API server
and Fastpath is a server that makes totals three askings late, so that every raise comes before the controller
knows why.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from adapter.autoscaler.decide import boost
from adapter.model.autoscaling import floor as floors
from adapter.sandbox.prometheus.series import SeriesSet
from adapter.sandbox.prometheus.server import Prometheus
from adapter.server import tls
from tests.e2e import aggregation, watching
from tests.e2e.aggregation import NAMESPACE, SERVICE
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.test_aggregation import WELL
from tests.support import boosting, crd
from tests.support.boosting import BEHAVIOR, CLOCK, HOLD, LIMITS, SHAPES, UNIT, Loads, Workload, until_none
from tests.support.naive import MANAGER, NaiveBooster, Wanted
from tests.support.nativechain import Front
from tests.support.scalewrites import NATIVE, Audit, Place
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

LAG = 3
QUEUE = "external-average"
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
        self.naive = Audit(CLOCK.wall, HOLD, booster=MANAGER)
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


class Scene(NamedTuple):
    """A world whose metrics Fastpath serves through what is in front of it."""

    world: World
    front: Front


@pytest.fixture
async def scene(fronted: Fronted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)  # as the manifests do: leases and floors are there
    cluster, backend = fronted
    fronts: list[Front] = []
    async with contextlib.AsyncExitStack() as stack:
        config: Any = yaml.safe_load(cluster.admin_kubeconfig.read_text())
        shown = backend.authority.issue(common_name="admin", organization="system:masters")
        connector = aiohttp.TCPConnector(ssl=backend.authority.client_context(shown), limit=0)
        server = config["clusters"][0]["cluster"]["server"]
        timeout = aiohttp.ClientTimeout(total=None)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(base_url=server, connector=connector, timeout=timeout)
        )
        world = World(cluster, session)
        await stack.enter_async_context(world.listening())
        (tmp_path / "rules.yaml").write_text(world.rules)
        prometheus = await stack.enter_async_context(Prometheus(world.series, now=CLOCK.wall))
        await cluster.kubectl("apply", "--validate=false", "-f", str(crd.PATH))
        serving = backend.authority.server_context(
            backend.authority.issue(*tls.service_names(SERVICE, NAMESPACE))
        )

        @contextlib.asynccontextmanager
        async def through(port: int) -> AsyncIterator[int]:
            async with Front(world, [Port(port)], lag=LAG, token=cluster.token, tls=serving) as front:
                fronts.append(front)
                yield int(front.url.rpartition(":")[2])

        await stack.enter_async_context(world.watching())
        components = ("external", "resource", "scaler-in-process")
        await stack.enter_async_context(
            aggregation.register(
                cluster, backend, tmp_path, prometheus.url, *FLAGS, components=components, through=through
            )
        )
        yield Scene(world, fronts[0])
        await cluster.kubectl("delete", "hpa", "--all", "-n", cluster.namespace)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_twenty_boosted_autoscalers_and_the_naive_booster(scene: Scene) -> None:
    world, front = scene
    fleet = boosting.fleet(20)
    for each in fleet:
        each.spec = {
            "behavior": BEHAVIOR
        }  # without one the controller would wait five minutes before it lowers
    kinds = ("object-average", "external-average")
    control = [
        Workload(f"{kind}-{shape}", kind, load(), way="") for kind in kinds for shape, load in SHAPES.items()
    ]

    def wanted(name: str) -> Wanted:
        return Wanted(lambda: world.load(name) / UNIT, LIMITS[1])

    targets = {each.name: wanted(each.name) for each in control}
    naive = NaiveBooster(targets, world.replicas, world.raise_naively)
    await world.add([*fleet, *control])
    await until(lambda: all(world.is_active(name) for name in world.workloads), WAIT)
    await asyncio.sleep(LAG + 2)
    # while pods start some may seem to carry the load of others, and what was raised for that comes down
    # again
    await until(lambda: {world.replicas(name) for name in world.workloads} == {LIMITS[0]}, WAIT)
    await until_none(lambda: [each.name for each in fleet if world.floor(each.name)], WAIT)

    task = asyncio.create_task(naive.run(), name=MANAGER)
    start = world.begin()
    try:
        await asyncio.sleep(12)
        assert {each.write.target.name for each in world.naive.counted} >= targets.keys()
        assert {each.write.by for each in world.naive.counted} == {NATIVE}
        await until_none(
            lambda: [world.audit.of(each.name) for each in fleet if not world.is_right(each.name)], WAIT
        )
        await until_none(lambda: [each.name for each in fleet if world.floor(each.name)], WAIT)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert world.audit.counted == []
    assert world.audit.unpublished == []
    assert front.stale == []
    jumping = boosting.jumping(fleet)
    raised, first = world.audit.raised_first(jumping, start)
    assert first == raised, "what is raised here is raised before the controller has written anything"
    assert len(raised) > len(jumping) / 2

    def is_handed_over() -> bool:
        """Tell whether counts are right, and the late values that the controller reads are theirs."""
        caught_up = CLOCK.wall() - max(write.time for write in world.audit.writes) > 2 * LAG
        return caught_up and all(world.is_right(each.name) for each in fleet)

    # the controller alone, from where both have come to, changes nothing
    await until(is_handed_over, WAIT)
    for each in fleet:
        await world.annotate(each.name, mode=None, hold=None)
        await world.remove_handshake(each)
    left = CLOCK.wall()
    await asyncio.sleep(LAG + 3)
    assert [write for each in fleet for write in world.audit.of(each.name, since=left)] == []


async def settled(scene: Scene) -> None:
    """Return when autoscalers are active and their floors are answered."""
    world, front = scene
    await until(lambda: all(world.is_active(name) for name in world.workloads), WAIT)
    await until(
        lambda: all(front.floors[name] and front.floors[name][-1][1] == 200 for name in world.workloads), WAIT
    )
    await until(lambda: front.is_late, WAIT)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_who_scales_with_kubectl_twice_is_named_and_left_alone(scene: Scene) -> None:
    world = scene.world
    await world.add([Workload("web", QUEUE, boosting.step())])
    await world.annotate("web", hold="60s")
    await settled(scene)
    world.begin()
    for reason in (boost.REVERSED, boost.DEMOTED):
        await until(lambda: world.replicas("web") >= 6, WAIT)
        await world.cluster.kubectl(
            "scale", "deployment", "web", "--replicas=3", "-n", world.cluster.namespace
        )
        # mypy sees no defaults
        await until(lambda reason=reason: world.told("web", reason), WAIT)  # type: ignore[misc]
        assert all(text.startswith("kubectl scaled the target") for text in world.told("web", reason))
    await until(lambda: world.floor("web") == 0, WAIT)
    # the controller, which has the metrics, disagrees with both
    await until(lambda: world.replicas("web") >= 6, WAIT)
    assert len(world.audit.raises("web")) <= 2
    assert world.audit.writes[-1].by == NATIVE


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_who_leaves_has_a_plain_autoscaler(scene: Scene) -> None:
    """By annotation or by metric, while a floor is held: it is 0 at once, and there never is another."""
    world, front = scene
    workloads = [Workload(name, QUEUE, boosting.spike(width=6.0)) for name in ("annotation", "metric")]
    await world.add(workloads)
    for each in workloads:
        await world.annotate(each.name, hold="60s")
    await settled(scene)
    world.begin()
    await until(lambda: all(world.audit.raises(name) for name in world.workloads), WAIT)
    await world.annotate("annotation", mode=None)
    await world.remove_handshake(workloads[1])
    await until_none(lambda: [name for name in world.workloads if world.floor(name)], 30.0)
    await until(lambda: all(world.replicas(name) == LIMITS[0] for name in world.workloads), WAIT)

    for each in workloads:
        each.load = boosting.step()
    again, asked = world.begin(), len(front.floors["annotation"])
    await until(lambda: all(world.replicas(name) == 6 for name in world.workloads), WAIT)
    assert {write.by for write in world.audit.writes if write.time >= again} == {NATIVE}
    assert {each[1:] for each in front.floors["annotation"][asked:]} == {(200, "0")}
