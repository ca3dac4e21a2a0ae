"""A cluster with workloads, and what happens there: the one class in which stories are told.

It knows the cluster by watches alone, and does what kubelets do. Deployments get their pods, and autoscalers
their counts, from the controllers of the control plane, and from stand-ins on the sandbox. `Fastpath` runs as
a process. Between the API server and Fastpath is a `Front`, which makes totals some askings late, so that
every raise comes before the controller knows why. An audit judges all writes of counts.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from adapter.model.autoscaling.floor import LABEL
from adapter.model.clock import Clock
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.demo.native_hpa import Adapter
from fastpath_tools import certs
from scripts.generate import crd, crd_schedules
from tests.support import adapter, rendered
from tests.support.adapter import RunningAdapter, RunningScaler
from tests.support.kubectl import Kubectl
from tests.support.objects import plain
from tests.support.processor import limited
from tests.support.rendered import Objects
from tests.support.waiting import until
from tests.world import aggregation, controllers, oracle, watching
from tests.world.aggregation import SERVICE, FrontedControlPlane, FrontedSandbox
from tests.world.clusters import ClusterUnderTest, Config, Document, SandboxBackend
from tests.world.faulty import FaultyPrometheus
from tests.world.naive import MANAGER
from tests.world.processes import THIS, Fastpath, Front, Version
from tests.world.scalewrites import BOOSTER
from tests.world.view import WAIT, View
from tests.world.workloads import (
    BEHAVIOR,
    BOOSTED,
    CLOCK,
    FLAGS,
    HOME,
    METRICS,
    NAMESPACE,
    OWN,
    STANDIN_FLAGS,
    Load,
    Workload,
    step,
)

DEFINITIONS = (crd.PATH, crd_schedules.PATH)
QUEUE = "external-average"
"""The kind of metric by which the native controller reverses the most: a total, independent of the pods."""


class World(View):
    """Workloads of one namespace, and what happens to them."""

    front: Front
    prometheus: FaultyPrometheus

    def __init__(self, cluster: ClusterUnderTest, session: aiohttp.ClientSession) -> None:
        super().__init__(cluster, session)
        self.directory = cluster.directory
        self.processes: list[Fastpath] = []
        self.running = contextlib.AsyncExitStack()
        self._declared: list[Document] = []

    # What is in the cluster.

    @property
    def sandbox(self) -> Cluster:
        """The sandbox, for what it alone can do: faults, and objects as no API server admits them."""
        assert self.cluster.backend.sandbox is not None
        return self.cluster.backend.sandbox

    def hpa(self, name: str, metrics: str = QUEUE, load: Load | None = None, **fields: Any) -> Workload:
        """Declare a workload with an HPA, boosted unless `way` is "", or with the kind of ours if `own`."""
        workload = Workload(name, metrics, load or step(), **fields)
        self.declare([workload])
        return workload

    def fpa(self, name: str, metrics: str = QUEUE, load: Load | None = None, **spec: Any) -> Workload:
        """Declare a workload with a FastPathAutoscaler."""
        return self.hpa(name, metrics, load, way="", own=True, spec={"behavior": BEHAVIOR} | spec)

    def declare(self, workloads: Iterable[Workload], *, autoscaled: bool = True) -> None:
        """Have workloads in the cluster as soon as the story goes on."""
        for workload in workloads:
            self.show(workload)
            self._declared += workload.objects(self.namespace, autoscaled=autoscaled)

    async def pair(self) -> None:
        """Create the workload BOOSTED with a boosted HPA, and OWN with a FastPathAutoscaler."""
        self.hpa(BOOSTED)
        self.fpa(OWN)
        await self.create()

    async def create(self, *documents: Document) -> None:
        """Create what is declared, and objects."""
        found = [*self._declared, *documents]
        self._declared.clear()
        if found:
            await self.cluster.create(*found)

    # What happens.

    async def serve(
        self,
        *arguments: str,
        lag: int = 0,
        pods: int = 1,
        elsewhere: bool = False,
        components: Iterable[str] = (),
    ) -> None:
        """Run Fastpath, which scales, until the story ends, with the rights of manifests and components.

        The controller's answers are `lag` askings late. With `elsewhere` the metrics but floors come from a
        server that stays when Fastpath goes.
        """
        await self.create()
        components = ("external", "resource", "scaler-in-process", *components)
        account, objects = await self.admit_adapter(*components)
        (self.directory / "rules.yaml").write_text(self.rules)
        flags = (
            *groups_of(objects),
            f"--prometheus-url={self.prometheus.url}",
            *(FLAGS if self.is_real else STANDIN_FLAGS),
            *arguments,
        )
        scaling = (*flags, "--scaler", "--local-address=")

        async def start(pod: str, flags: Iterable[str]) -> Fastpath:
            return await self.running.enter_async_context(Fastpath(account, self.directory, *flags, pod=pod))

        self.processes = [await start(f"fastpath-{number}", scaling) for number in range(pods)]
        others = [await start("other", flags)] if elsewhere else []
        await self.register(objects, others, lag)

    async def register(self, objects: Objects, others: Sequence[Fastpath] = (), lag: int = 0) -> None:
        """Have the cluster find `processes` behind the APIServices of manifests, until the story ends."""
        backend = self._fronted
        pair = backend.authority.issue(*certs.service_names(SERVICE, HOME), "127.0.0.1")
        context, token = backend.authority.server_context(pair), self.cluster.token
        read = self._read_floors if self.is_real else None
        front = Front(self.audit, self.processes, read, others=others, lag=lag, token=token, tls=context)
        self.front = await self.running.enter_async_context(front)
        port = int(front.url.rpartition(":")[2])
        await self.running.enter_async_context(
            aggregation.registering(self.cluster, backend, objects, port, aggregation.GROUP_VERSIONS)
        )
        if not self.is_real:
            asked = Adapter(front.url, backend.authority.file, token)
            await self.running.enter_async_context(controllers.autoscaling(self.cluster, asked))

    async def _read_floors(self) -> list[Document]:
        listing = ("get", "configmaps", "-n", HOME, "-l", f"{LABEL}=true", "-o", "json")
        found: list[Document] = json.loads(await self.cluster.kubectl(*listing))["items"]
        return found

    @property
    def _fronted(self) -> FrontedSandbox | FrontedControlPlane:
        backend = self.cluster.backend
        assert isinstance(backend, FrontedSandbox | FrontedControlPlane)
        return backend

    async def admit_adapter(self, *components: str, version: Version = THIS) -> tuple[Config, Objects]:
        """Return the account of an adapter with the rights of manifests and components, and these objects."""
        folder = self.directory / "overlay"
        rendered.write_overlay(folder, components, manifests=version.manifests)
        objects = await asyncio.to_thread(rendered.render, folder)
        return await self._fronted.admit_adapter(self.cluster, objects), objects

    async def admit_scaler(self, *components: str, version: Version = THIS) -> Config:
        """Return the account of a scaler with the rights of manifests and components."""
        backend = self.cluster.backend
        if not isinstance(backend, FrontedSandbox | FrontedControlPlane):
            return self.cluster.admin
        folder = self.directory / "scaler-overlay"
        rendered.write_overlay(folder, ("scaler", *components), manifests=version.manifests)
        objects = await asyncio.to_thread(rendered.render, folder)
        return await backend.admit(self.cluster, objects, "fastpath-scaler", HOME)

    async def scaler(
        self,
        *arguments: str,
        pod: str = "scaler-0",
        account: Config | None = None,
        rules: str = "",
        **how: Any,
    ) -> Fastpath:
        """Run `fastpath scale` until the story ends."""
        await self.create()
        account = account or await self.admit_scaler()
        folder = self.directory / pod
        folder.mkdir(exist_ok=True)
        (folder / "rules.yaml").write_text(rules or self.rules)
        flags = (f"--prometheus-url={self.prometheus.url}", *STANDIN_FLAGS, *arguments)
        running = Fastpath(account, folder, *flags, pod=pod, command="scale", **how)
        return await self.running.enter_async_context(running)

    async def run(self, condition: Callable[[], object], seconds: float = WAIT) -> None:
        """Create what is declared, and go on until a condition holds."""
        await self.create()
        await until(condition, seconds)

    async def settled(self, names: Iterable[str] = ()) -> None:
        """Return once autoscalers are active, floors are answered, and answers have their full delay."""
        wanted = list(names) or list(self.workloads)
        await self.run(lambda: all(self.is_active(name) for name in wanted))
        asked = [name for name in wanted if self.workloads[name].way]
        answers = self.front.floors
        await self.run(lambda: all(answers[name] and answers[name][-1][1] == 200 for name in asked))
        await self.run(lambda: self.front.is_late)

    async def patch_hpa(self, name: str, change: Document) -> None:
        await self.patch(f"{self._within('/apis/autoscaling/v2')}/horizontalpodautoscalers/{name}", change)

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """Set annotations of ours by their last part; None takes one away."""
        change = {f"fastpath.io/{key}": value for key, value in annotations.items()}
        await self.patch_hpa(name, {"metadata": {"annotations": change}})

    async def remove_handshake(self, name: str) -> None:
        """Take the metric of the floor out of the spec."""
        metrics = METRICS[self.workloads[name].metrics](name)
        await self.patch_hpa(name, {"spec": {"metrics": metrics}})

    async def scale(self, name: str, count: int, manager: str = MANAGER) -> None:
        """Write a count as another client."""
        path = f"{self._within('/apis/apps/v1')}/deployments/{name}/scale"
        await self.patch(path, {"spec": {"replicas": count}}, fieldManager=manager)

    # What has to hold.

    def is_caught_up(self) -> bool:
        """Tell whether the late values that the controller reads were all taken after the last write."""
        return CLOCK.wall() - max(write.time for write in self.audit.writes) > 2 * self.front.lag

    def check(self) -> None:
        """Check the invariants: no reversal, no raise before its floor, no denied floor, no lowered count."""
        assert self.audit.counted == []
        assert self.audit.unpublished == []
        assert self.front.stale == []
        assert [
            write for write in self.audit.writes if write.by == BOOSTER and write.after <= write.before
        ] == []


async def until_none(find: Callable[[], Sequence[object]], seconds: float = WAIT) -> None:
    """Return as soon as nothing is found any more; after so many seconds fail the test with the findings."""
    found = find()
    with contextlib.suppress(TimeoutError):
        async with limited(seconds):
            while found := find():  # noqa: ASYNC110 - a cluster comes to it by itself
                await asyncio.sleep(0.05)
    assert not found, found


@contextlib.asynccontextmanager
async def opened(cluster: ClusterUnderTest) -> AsyncIterator[World]:
    """Run an empty world with its Prometheus until the block ends."""
    sandbox = cluster.backend.sandbox
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(watching.connect(cluster))
        world = World(cluster, session)
        await stack.enter_async_context(world.listening())
        world.prometheus = await stack.enter_async_context(FaultyPrometheus(world.series, now=CLOCK.wall))
        if sandbox is None:
            await cluster.kubectl(
                "apply", "--validate=false", *(f"--filename={path}" for path in DEFINITIONS)
            )
            await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        else:
            sandbox.create(plain("Namespace", HOME))
            for path in DEFINITIONS:
                for document in yaml.safe_load_all(path.read_text()):
                    sandbox.create(document)
            await stack.enter_async_context(controllers.workloads(sandbox))
        async with world.watching(), world.running:
            yield world
        await oracle.examine(cluster)
        if sandbox is None:
            await cluster.kubectl("delete", "hpa,fpa,fps", "--all", "-n", cluster.namespace)


@contextlib.asynccontextmanager
async def sandboxed(directory: Path, namespace: str = NAMESPACE) -> AsyncIterator[World]:
    """Run an empty world on a sandbox of its own, without TLS and aggregation."""
    async with Cluster(now=CLOCK.wall) as sandbox:
        cluster = ClusterUnderTest(SandboxBackend(sandbox), Kubectl(directory), directory)
        cluster.namespace = namespace
        await cluster.open()
        async with opened(cluster) as world:
            yield world


def groups_of(objects: Objects) -> list[str]:
    """Return the flags of the groups that rendered manifests serve."""
    return [flag for flag in objects.container["args"] if flag.startswith("--serve-groups=")]


def serving(
    world: World, directory: Path, *flags: str, rules: str = "", clock: Clock | None = None
) -> contextlib.AbstractAsyncContextManager[RunningAdapter]:
    """Run the metrics APIs in this process, with the scaler if the flags say so."""
    (directory / "rules.yaml").write_text(rules or world.rules)
    flags = (*STANDIN_FLAGS, "--local-address=", "--scrape-pod-cidrs=127.0.0.0/8", *flags)
    return adapter.running(directory, world.sandbox, world.prometheus.url, *flags, clock=clock)


def scaling(
    world: World, directory: Path, kubeconfig: Path | None = None, *flags: str
) -> contextlib.AbstractAsyncContextManager[RunningScaler]:
    """Run a scaler in this process, in a folder that is made if need be."""
    directory.mkdir(exist_ok=True)
    account = kubeconfig or world.sandbox.kubeconfig(directory / "kubeconfig")
    flags = (*STANDIN_FLAGS, "--scrape-pod-cidrs=127.0.0.0/8", *flags)
    return adapter.running_scaler(directory, world.rules, world.prometheus.url, account, *flags)
