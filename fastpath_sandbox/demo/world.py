"""The world of the demo: two workloads under the same stepped load, and the series of their pods.

A FastPathAutoscaler scales one, a HorizontalPodAutoscaler with the same target scales the other. `World.step`
brings the cluster, the load and the series to a moment; the caller decides when.
"""

import contextlib
import errno
import math
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from adapter.errors import RunError
from fastpath_sandbox.apiserver.kinds import FASTPATH_AUTOSCALERS
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import ScaleWatch, Workloads, deployment
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet

NAMESPACE = "shop"
FAST, NATIVE = "web-fast", "web-native"
NATIVE_SCRAPE = 15.0
LIMITS = (2, 8)

_METRIC = "requests_in_flight"
_TARGET = 10.0
_LEVELS = (18.0, 58.0)
_WOBBLE = 0.02
_FIRST_STEP = (1.0, 3.0)
_HIGH = (40.0, 50.0)
_LOW = (45.0, 55.0)
_STARTUP = 2.0
_ADDRESSES = 64
"""More addresses than pods exist at any time, terminating ones included."""

_RULES = """\
rules:
- seriesQuery: 'requests_in_flight{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  scrape: {interval: 1s, port: PORT}
- seriesQuery: 'ingress_hits{namespace!="",ingress!=""}'
  resources: {template: '<<.Resource>>'}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_depth{queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""


class LoadStep(NamedTuple):
    """An upward step of the load: its time (epoch seconds) and the two levels."""

    time: float
    before: float
    after: float


class Replicas(NamedTuple):
    """The ready pods of a workload, and the replicas of its Scale."""

    ready: int
    wanted: int


class World:
    """The cluster's objects and the series of its pods.

    `now` gives epoch seconds, `random` numbers in [0, 1).

    `quick` holds the series that Prometheus scrapes every second, `slow` those for the HPA: the
    workloads' pods. The first step follows soon after the FastPathAutoscaler has its first value.
    """

    def __init__(self, cluster: Cluster, now: Callable[[], float], random: Callable[[], float]) -> None:
        self.quick = SeriesSet(interval=1.0)
        self.slow = SeriesSet(interval=NATIVE_SCRAPE)
        self.steps: list[LoadStep] = []
        self.watch = ScaleWatch(cluster, now)
        self.rules = ""
        self._cluster = cluster
        self._random = random
        self._workloads = Workloads(cluster, startup=_STARTUP, address=self._next_address)
        self._addresses = {f"127.83.0.{number}": SeriesSet() for number in range(1, _ADDRESSES + 1)}
        self._free: list[str] = []
        self._shown: dict[str, tuple[str, list[Series]]] = {}
        self._ready = {FAST: 1, NATIVE: 1}
        self._level = _LEVELS[0]
        self._due: float | None = None
        self._build()

    def load(self, now: float) -> float:
        """Return the requests in flight on either workload."""
        return self._level * (1 + _WOBBLE * math.sin(now))

    def needed(self, now: float) -> int:
        lowest, highest = LIMITS
        return min(highest, max(lowest, math.ceil(self.load(now) / _TARGET)))

    def step(self, now: float) -> None:
        """Change the load if that is due, start and stop pods, and start and end their series."""
        if self._due is None:
            self._due = now + self._between(_FIRST_STEP) if self._is_active() else None
        elif now >= self._due:
            before, self._level = self._level, next(level for level in _LEVELS if level != self._level)
            if self._level > before:
                self.steps.append(LoadStep(now, before, self._level))
            self._due = now + self._between(_HIGH if self._level > before else _LOW)
        # an address is given again only when its pod's series are gone
        used = {address for address, _ in self._shown.values()}
        self._free = [address for address in self._addresses if address not in used]
        self._workloads.step(now)
        running: dict[str, tuple[str, str]] = {}
        for pod in self._cluster.list("Pod", NAMESPACE):
            if pod["status"]["phase"] == "Running":
                running[pod["metadata"]["name"]] = pod["metadata"]["labels"]["app"], pod["status"]["podIP"]
        for app in self._ready:
            self._ready[app] = max(1, sum(label == app for label, _ in running.values()))
        for name in running.keys() - self._shown.keys():
            self._add_series(name, *running[name])
        for name in self._shown.keys() - running.keys():
            self._remove_series(name)

    def replicas(self, app: str) -> Replicas:
        deployment = self._cluster.get("Deployment", app, NAMESPACE)
        return Replicas(deployment.get("status", {}).get("readyReplicas", 0), deployment["spec"]["replicas"])

    def reaction(self, app: str, step: LoadStep) -> float | None:
        """Return the seconds from a step to the first upward Scale write, None before it."""
        at = self.watch.raised(NAMESPACE, app, step.time)
        return None if at is None else at - step.time

    @contextlib.asynccontextmanager
    async def listening(self, now: Callable[[], float]) -> AsyncIterator[None]:
        """Serve the pods at their addresses, and set `rules`, which depend on their port."""
        async with contextlib.AsyncExitStack() as stack:
            port = 0
            for host, shown in self._addresses.items():
                exporter = Exporter(shown, now, host=host, port=port)
                try:
                    await stack.enter_async_context(exporter)
                except OSError as error:
                    raise RunError(_no_address(host, error)) from error
                port = int(exporter.address.rpartition(":")[2])
            self.rules = _RULES.replace("PORT", str(port))
            yield

    def _is_active(self) -> bool:
        status = self._cluster.get("FastPathAutoscaler", FAST, NAMESPACE).get("status", {})
        return any(
            condition["type"] == "ScalingActive" and condition["status"] == "True"
            for condition in status.get("conditions", ())
        )

    def _next_address(self, _: int) -> str:
        return self._free.pop(0)

    def _between(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return low + (high - low) * self._random()

    def _add_series(self, pod: str, app: str, address: str) -> None:
        """Add a pod's series: at its own address, and where Prometheus scrapes."""

        def share(now: float) -> float:
            return self.load(now) / self._ready[app]

        own = self._addresses[address].add(Series(_METRIC, {}, share))
        seen = self.slow.add(Series(_METRIC, {"namespace": NAMESPACE, "pod": pod}, share))
        self._shown[pod] = address, [own, seen]

    def _remove_series(self, pod: str) -> None:
        address, (own, seen) = self._shown.pop(pod)
        self._addresses[address].remove(own)
        self.slow.remove(seen)

    def _build(self) -> None:
        cluster = self._cluster
        cluster.create(FASTPATH_AUTOSCALERS)
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name in (FAST, NATIVE):
            cluster.create(deployment(name, NAMESPACE, LIMITS[0]))
        ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}
        cluster.create(ingress | {"metadata": {"name": "web", "namespace": NAMESPACE}})
        cluster.create(_autoscaler("fastpath.io/v1alpha1", "FastPathAutoscaler", FAST))
        cluster.create(_autoscaler("autoscaling/v2", "HorizontalPodAutoscaler", NATIVE))
        # a foreign pod, so that Prometheus has the metric within seconds of its start
        self.quick.add(Series(_METRIC, {"namespace": "default", "pod": "other"}, lambda _: 1.0))
        hits = {"namespace": NAMESPACE, "ingress": "web", "service": "web"}
        self.quick.add(Series("ingress_hits", hits, _wave(120, 80, 20)))
        for queue, mean, period in (("orders", 40.0, 16.0), ("mail", 9.0, 10.0)):
            depth = {"namespace": NAMESPACE, "queue": queue}
            self.quick.add(Series("queue_depth", depth, _wave(mean, mean * 0.8, period, digits=0)))


def _wave(mean: float, amplitude: float, period: float, digits: int = 6) -> Callable[[float], float]:
    """Return a sine around `mean`; `period` is in seconds."""
    return lambda now: round(mean + amplitude * math.sin(2 * math.pi * now / period), digits)


def _autoscaler(version: str, kind: str, name: str) -> dict[str, Any]:
    """Return an autoscaler; both kinds have the same target.

    Scale-down waits for a moment only, so that steps follow soon.
    """
    target = {"type": "AverageValue", "averageValue": f"{_TARGET:g}"}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": LIMITS[0],
            "maxReplicas": LIMITS[1],
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": _METRIC}, "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}},
        },
    }


def _no_address(host: str, error: OSError) -> str:
    advice = ""
    if error.errno == errno.EADDRNOTAVAIL:
        advice = " (Linux has all of 127.0.0.0/8; elsewhere add addresses to the loopback interface)"
    return f"the pods of the demo need loopback addresses, and {host} is not available{advice}: {error}"
