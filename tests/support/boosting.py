"""A world of boosted HorizontalPodAutoscalers: workloads of all metric kinds under changing loads.

It holds the cluster with its Deployments and autoscalers, the pods' gauges and the series of a Prometheus,
all as functions of one moment at which loads begin to move. A load depends on time alone, and a pod shows its
share of it. Other modules scale (`fastpath`, the stand-in of the native controller, `naive`) and judge
(`scalewrites`).

Durations are those of a cluster divided by about fifteen: the native controller looks once a second.
"""

import asyncio
import contextlib
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from aiohttp import web

from adapter.autoscaler.decide.observation import Settings
from adapter.compose.clock import SystemClock
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.model.timestamps import SECOND
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import Change
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus import series as exporter
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from scripts.generate import crd
from tests.support import adapter
from tests.support.adapter import RunningScaler
from tests.support.processor import limited
from tests.support.scalewrites import Audit, Place, follow

CLOCK = SystemClock()
NAMESPACE = "shop"
HOME = "fastpath"
"""The namespace of Fastpath itself."""
BOOSTED, OWN = "boosted", "own"
"""Names of the two workloads of `add_pair`."""
PERIOD = 1.0
"""Of the native controller."""
HOLD = 3.0
LIMITS = (2, 12)
UNIT = 10.0
"""How much load one pod takes."""
CONNECTIONS = 10
"""How many one of a load has."""
LOW, HIGH = 2 * UNIT, 6 * UNIT
STABILIZATION = 5
"""Longer than metrics are late: with less the native controller swings by itself."""
SETTINGS = Settings(
    cpu_initialization_period=0, initial_readiness_delay=0, downscale_stabilization=STABILIZATION * SECOND
)
"""Of the native controller, and below those of Fastpath that have to be the same."""
FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=1s",
    f"--horizontal-pod-autoscaler-downscale-stabilization={STABILIZATION}s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
    "--metrics-relist-interval=2s",
    "--metrics-max-age=60s",
)

_STARTUP = 0.3
_STEP_SECONDS = 0.1
SCRAPE = 0.2
_ADDRESSES = 400
_CORES = 0.005
"""What one of a load costs; a pod asks for 0.1, so that its share is half of what it asked for."""

RULES = """\
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: &of_pods {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  scrape: {interval: INTERVAL, port: PORT}
- seriesQuery: 'busy{namespace!="",pod!=""}'
  resources: *of_pods
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^(hits|saturation)$",namespace!="",service!=""}'
  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{__name__=~"^(backlog|pressure)$",namespace!="",queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
resourceRules:
  cpu:
    containerQuery: 'sum by (<<.GroupBy>>) (cores{container!="",<<.LabelMatchers>>})'
    nodeQuery: 'sum by (<<.GroupBy>>) (cores{id="/",<<.LabelMatchers>>})'
    resources: &resources
      overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}
    containerLabel: container
  memory:
    containerQuery: 'sum by (<<.GroupBy>>) (working_set_bytes{container!="",<<.LabelMatchers>>})'
    nodeQuery: 'sum by (<<.GroupBy>>) (working_set_bytes{id="/",<<.LabelMatchers>>})'
    resources: *resources
    containerLabel: container
  window: 1m
"""

RATIOS = ("saturation", "pressure")
"""The metrics that are of one pod and not of all."""

Document = dict[str, Any]
Load = Callable[[float], float]
"""The load at so many seconds after its beginning; before that it is what it is at a negative number."""


# --- loads -------------------------------------------------------------------------------------------------


def step(low: float = LOW, high: float = HIGH) -> Load:
    """Return a load that is high from its beginning on."""
    return lambda after: low if after < 0 else high


def spike(width: float = 2.0) -> Load:
    """Return a load with a spike that is shorter than the native controller's delay."""
    return lambda after: HIGH if 0 <= after < width else LOW


def _sawtooth(after: float) -> float:
    """Climb and fall at once, twice, and stay half way then."""
    tooth, position = divmod(after, 4.0)
    return LOW if after < 0 else LOW + (HIGH - LOW) * (position / 4.0 if tooth < 2 else 0.5)


SHAPES: dict[str, Load] = {"step": step(), "spike": spike(), "sawtooth": _sawtooth}


# --- metrics -----------------------------------------------------------------------------------------------


def _custom(kind: str, name: str, target: str, of: str = "") -> Document:
    amount = {"type": target, "value" if target == "Value" else "averageValue": f"{UNIT:g}"}
    source: Document = {"metric": {"name": name}, "target": amount}
    if kind == "Object":
        source["describedObject"] = {"apiVersion": "v1", "kind": "Service", "name": of}
    if kind == "External":
        source["metric"]["selector"] = {"matchLabels": {"queue": of}}
    return {"type": kind, kind.lower(): source}


def _cpu(*, percent: bool, container: str = "") -> Document:
    target: Document = {"type": "AverageValue", "averageValue": f"{UNIT * _CORES * 1000:g}m"}
    if percent:
        target = {"type": "Utilization", "averageUtilization": 50}
    if container:
        source = {"name": "cpu", "container": container, "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


METRICS: dict[str, Callable[[str], list[Document]]] = {
    "pods-scraped": lambda _: [_custom("Pods", "load", "AverageValue")],
    "pods": lambda _: [_custom("Pods", "busy", "AverageValue")],
    "object-average": lambda name: [_custom("Object", "hits", "AverageValue", name)],
    "object-value": lambda name: [_custom("Object", "saturation", "Value", name)],
    "external-average": lambda name: [_custom("External", "backlog", "AverageValue", name)],
    "external-value": lambda name: [_custom("External", "pressure", "Value", name)],
    "cpu-percent": lambda _: [_cpu(percent=True)],
    "cpu": lambda _: [_cpu(percent=False)],
    "container-cpu": lambda name: [_cpu(percent=True, container=name)],
    "several": lambda name: [
        _custom("Pods", "load", "AverageValue"),
        _custom("External", "backlog", "AverageValue", name),
    ],
}
"""The metrics of a workload by kind, from its name. Each of them wants a pod for UNIT of load."""

HEARD_AT_ONCE = ("object-value", "external-value")
"""The kinds that rest on RATIOS alone."""

BEHAVIOR = {
    "scaleUp": {
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 1},
            {"type": "Percent", "value": 100, "periodSeconds": 1},
        ]
    },
    "scaleDown": {"stabilizationWindowSeconds": STABILIZATION},
}


class Parts(NamedTuple):
    """What a pod takes of the load and of the connections of its workload, as a weight."""

    load: float = 1.0
    connections: float = 1.0


@dataclass(slots=True)
class Workload:
    """A Deployment of its own name with its autoscaler.

    `way` is how the latter reads its floor, "" where it is not boosted.
    """

    name: str
    metrics: str
    load: Load
    way: str = model.EXTERNAL
    spec: Document = field(default_factory=lambda: {"behavior": BEHAVIOR})
    replicas: int = LIMITS[0]
    parts: dict[str, Parts] = field(default_factory=dict)
    """Of the pods that are ready."""

    @property
    def ready(self) -> int:
        return len(self.parts)

    def share(self, pod: str) -> Parts:
        """Return the shares of a ready pod, from 0 to 1."""
        loads, connections = zip(*self.parts.values(), strict=True)
        part = self.parts[pod]
        return Parts(part.load / sum(loads), part.connections / sum(connections))

    def objects(self, namespace: str = NAMESPACE, *, autoscaled: bool = True) -> list[Document]:
        """Return all that there is of it in a cluster."""
        spec = {"clusterIP": "None", "ports": [{"port": 80}]}
        found: list[Document] = [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name}, "spec": spec}
        ]
        found += [self.deployment(), *([self.autoscaler()] if autoscaled else [])]
        for each in found:
            each["metadata"]["namespace"] = namespace
        return found

    def autoscaler(self) -> Document:
        metrics = METRICS[self.metrics](self.name)
        annotations = {}
        if self.way:
            annotations = {model.MODE_ANNOTATION: "boost", model.HOLD_ANNOTATION: f"{HOLD:g}s"}
            metrics = [*metrics, handshake(self.name, self.way)]
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "minReplicas": LIMITS[0],
                "maxReplicas": LIMITS[1],
                "metrics": metrics,
                **self.spec,
            },
        }

    def deployment(self) -> Document:
        """Return the Deployment; its container is named as it is and asks for cpu."""
        made: Document = deployment(self.name, NAMESPACE, self.replicas)
        container = made["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        return made


def own(workload: Workload) -> Document:
    """Return a FastPathAutoscaler with the spec that a workload's HorizontalPodAutoscaler would have."""
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": workload.name, "namespace": NAMESPACE},
        "spec": workload.autoscaler()["spec"],
    }


def handshake(name: str, way: str) -> Document:
    """Return the metric by which an autoscaler reads its floor."""
    plain: Document = msgspec.to_builtins(model.handshake(name, way), enc_hook=encode_scalar)
    return plain


def fleet(count: int = 20, *, boosted: bool = True, prefix: str = "web") -> list[Workload]:
    """Return so many workloads: metric kinds and load shapes in turn, and both forms of the handshake.

    A third of them has no behavior: the native controller uses its legacy algorithm there.
    """
    kinds, shapes = list(METRICS), list(SHAPES)
    ways = (model.EXTERNAL, model.OBJECT)
    return [
        Workload(
            f"{prefix}-{number:02}-{shapes[number % len(shapes)]}",
            kinds[number % len(kinds)],
            SHAPES[shapes[number % len(shapes)]],
            ways[number % 2] if boosted else "",
            {} if number % 3 == 2 else {"behavior": BEHAVIOR},
        )
        for number in range(count)
    ]


# --- the world ---------------------------------------------------------------------------------------------


def jumping(workloads: Iterable[Workload]) -> list[str]:
    """Return the workloads whose load jumps, and which a native controller with late metrics notices late."""
    return [
        each.name for each in workloads if "sawtooth" not in each.name and each.metrics not in HEARD_AT_ONCE
    ]


class Loads:
    """What workloads show: the gauges of their pods, and the series of a Prometheus.

    `begin` lets their loads move.
    """

    def __init__(self, series: SeriesSet) -> None:
        self.port = 0
        """Where every pod answers scrapes, at an address of its own; known once `listening` has begun."""
        self.interval = "200ms"
        """Of the scrapes by Fastpath."""
        self.scrapes: Counter[str] = Counter()
        """How often the pods of each workload were scraped."""
        self.workloads: dict[str, Workload] = {}
        self.began: float | None = None
        self.series = series
        self.free = deque(addresses())
        """Addresses that no pod has."""
        self._pods: dict[str, tuple[Workload, str]] = {}
        """The pods by address."""
        self._shown: dict[str, tuple[str, list[Series]]] = {}
        # Prometheus knows of every metric before there is a pod, as it does of those that others show too
        for name in ("load", "busy", "connections"):
            self.series.add(Series(name, {"namespace": "default", "pod": "other"}, lambda _: 1.0))

    @property
    def rules(self) -> str:
        """Return Fastpath's rules for what is shown."""
        return RULES.replace("PORT", str(self.port)).replace("INTERVAL", self.interval)

    def begin(self) -> float:
        """Let all loads begin to move and return when that was."""
        self.began = CLOCK.wall()
        return self.began

    def load(self, name: str) -> float:
        return self.workloads[name].load(self._after(CLOCK.wall()))

    def show(self, workload: Workload, namespace: str = NAMESPACE) -> None:
        """Let Prometheus see the load on a workload as a whole, and how much of it one pod has."""
        self.workloads[workload.name] = workload
        for labels in ({"service": workload.name}, {"queue": workload.name}):
            whole, part = ("hits", "saturation") if "service" in labels else ("backlog", "pressure")
            named = labels | {"namespace": namespace}
            self.series.add(Series(whole, named, lambda now: workload.load(self._after(now))))
            self.series.add(Series(part, named, self._mean(workload)))

    def pod_runs(self, pod: str, app: str, address: str, namespace: str = NAMESPACE) -> None:
        """Let a pod take its share; nothing happens when it does already."""
        if pod in self._shown:
            return
        workload = self.workloads[app]
        workload.parts[pod] = Parts()
        self._pods[address] = workload, pod
        named = {"namespace": namespace, "pod": pod}
        made = [
            Series("load", named, self._share(workload, pod)),
            Series("busy", named, self._share(workload, pod)),
            Series("cores", named | {"container": app}, self._share(workload, pod, _CORES)),
            Series("working_set_bytes", named | {"container": app}, lambda _: 1024.0 * 1024),
        ]
        self._shown[pod] = address, [self.series.add(each) for each in made]

    def pod_ends(self, pod: str) -> None:
        """Let its share fall to the others; nothing happens when it had none."""
        if pod not in self._shown:
            return
        address, series = self._shown.pop(pod)
        workload, _ = self._pods.pop(address)
        del workload.parts[pod]
        self.free.append(address)
        for each in series:
            self.series.remove(each)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answer scrapes until the block ends."""
        server = web.Server(self._answer_scrape, access_log=None)
        sockets = _listen(addresses())
        self.port = sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        listening = [await loop.create_server(server, sock=each, backlog=4) for each in sockets]
        try:
            yield
        finally:
            for each in listening:
                each.close()
            await server.shutdown(0.1)

    def _after(self, now: float) -> float:
        return -1.0 if self.began is None else now - self.began

    def _mean(self, workload: Workload) -> Callable[[float], float | None]:
        """Return the load of a mean pod; nothing while no pod is ready."""
        return lambda now: workload.load(self._after(now)) / workload.ready if workload.ready else None

    def _share(self, workload: Workload, pod: str, factor: float = 1.0) -> Callable[[float], float]:
        """Return what a ready pod has of a load."""
        return lambda now: factor * workload.load(self._after(now)) * workload.share(pod).load

    async def _answer_scrape(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as the pod that was addressed."""
        assert request.transport is not None
        addressed = self._pods.get(request.transport.get_extra_info("sockname")[0])
        if addressed is None:
            return web.Response(status=404)
        workload, pod = addressed
        self.scrapes[workload.name] += 1
        load = self._share(workload, pod)
        connections = CONNECTIONS * self.load(workload.name) * workload.share(pod).connections
        shown = [Series("load", {}, load), Series("connections", {}, lambda _: round(connections))]
        return web.Response(text=exporter.render(SeriesSet(shown), CLOCK.wall()))


class World(Loads):
    """Workloads on a sandbox. `audit` judges all writes of counts."""

    def __init__(
        self,
        cluster: Cluster,
        prometheus: Prometheus,
        series: SeriesSet,
        startup: float | Callable[[], float],
    ) -> None:
        super().__init__(series)
        self.cluster = cluster
        self.prometheus = prometheus
        self.startup = startup
        self.audit = Audit(CLOCK.wall, HOLD)
        follow(cluster, self.audit)
        cluster.store.subscribe(("", "pods"), self._pod_changed)

    def add(self, workloads: Iterable[Workload], *, autoscaled: bool = True) -> None:
        for each in workloads:
            self.show(each)
            for document in each.objects(autoscaled=autoscaled):
                self.cluster.create(document)

    def add_own(self, **spec: Any) -> None:
        """Add the workload OWN with a FastPathAutoscaler."""
        workload = Workload(OWN, "external-average", step(), way="")
        self.add([workload], autoscaled=False)
        document = own(workload)
        document["spec"] |= spec
        self.cluster.create(document)

    def add_pair(self) -> None:
        """Add the workload BOOSTED with a boosted HPA, and OWN with a FastPathAutoscaler."""
        self.add([Workload(BOOSTED, "external-average", step())])
        self.add_own()

    def replicas(self, name: str) -> int:
        """Return what the Deployment is told to have."""
        count: int = self.cluster.get("Deployment", name, NAMESPACE)["spec"]["replicas"]
        return count

    def hpa(self, name: str) -> Document:
        found: Document = self.cluster.get("HorizontalPodAutoscaler", name, NAMESPACE)
        return found

    def is_active(self, name: str) -> bool:
        """Tell whether the native controller reads the metrics of an autoscaler."""
        conditions = self.hpa(name).get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("ScalingActive", "True") for each in conditions)

    def is_right(self, name: str) -> bool:
        """Tell whether a count is within tolerance of what the load needs."""
        return abs(self.load(name) / UNIT / self.replicas(name) - 1) <= 0.1

    def floor(self, name: str) -> int:
        """Return the floor that is published for a workload now."""
        return self.audit.published(Place(NAMESPACE, name), CLOCK.wall())

    def events(self, name: str) -> list[Document]:
        return [
            each for each in self.cluster.list("Event", NAMESPACE) if each["involvedObject"]["name"] == name
        ]

    def annotate(self, name: str, **annotations: str | None) -> None:
        """Set annotations of ours by their last part; None takes one away."""
        change = {f"fastpath.io/{key}": value for key, value in annotations.items()}
        self.cluster.patch("HorizontalPodAutoscaler", name, {"metadata": {"annotations": change}}, NAMESPACE)

    def remove_handshake(self, name: str) -> None:
        """Take the metric of the floor out of the spec."""
        metrics = [each for each in self.hpa(name)["spec"]["metrics"] if model.METRIC not in str(each)]
        self.cluster.patch("HorizontalPodAutoscaler", name, {"spec": {"metrics": metrics}}, NAMESPACE)

    def _pod_changed(self, change: Change) -> None:
        record = change.new or change.old
        assert record is not None
        if record.namespace != NAMESPACE:
            return
        status = record.document["status"]
        if change.new is None:
            self.pod_ends(record.name)
        elif status["phase"] == "Running":
            self.pod_runs(record.name, record.labels["app"], status["podIP"])

    async def run(self) -> None:
        workloads = Workloads(self.cluster, startup=self.startup, address=lambda _: self.free.popleft())
        while True:
            workloads.step(CLOCK.wall())
            await asyncio.sleep(_STEP_SECONDS)


async def until_none(find: Callable[[], Sequence[object]], seconds: float) -> None:
    """Return as soon as nothing is found any more; after so many seconds fail the test with the findings."""
    found = find()
    with contextlib.suppress(TimeoutError):
        async with limited(seconds):
            while found := find():  # noqa: ASYNC110 - a cluster comes to it by itself
                await asyncio.sleep(0.05)
    assert not found, found


def addresses() -> list[str]:
    """Return loopback addresses, more than there are pods at any time."""
    return [f"127.84.{number >> 8}.{number & 255}" for number in range(1, _ADDRESSES + 1)]


@contextlib.asynccontextmanager
async def running(startup: float | Callable[[], float] = _STARTUP) -> AsyncIterator[World]:
    """Run an empty world until the block ends, whose pods are ready after `startup` seconds."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(now=CLOCK.wall))
        for document in yaml.safe_load_all(crd.PATH.read_text()):
            cluster.create(document)
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        series = SeriesSet(interval=SCRAPE)
        prometheus = await stack.enter_async_context(Prometheus(series, now=CLOCK.wall))
        world = World(cluster, prometheus, series, startup)
        await stack.enter_async_context(world.listening())
        ticking = asyncio.create_task(world.run(), name="workloads")
        try:
            yield world
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)


def scaling(
    world: World, directory: Path, kubeconfig: Path | None = None, *flags: str
) -> contextlib.AbstractAsyncContextManager[RunningScaler]:
    """Run a scaler in this process, in a folder that is made if need be."""
    directory.mkdir(exist_ok=True)
    account = kubeconfig or world.cluster.kubeconfig(directory / "kubeconfig")
    return adapter.running_scaler(directory, world.rules, world.prometheus.url, account, *FLAGS, *flags)


def _listen(hosts: Sequence[str]) -> list[socket.socket]:
    """Return a socket for each host, all of one port."""
    found: list[socket.socket] = []
    port = 0
    for host in hosts:
        each = socket.socket()
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((host, port))
        port = each.getsockname()[1]
        found.append(each)
    return found
