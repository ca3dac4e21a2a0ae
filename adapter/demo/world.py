"""The world of the demo: three workloads with changing load, and the series their pods expose.

Nothing here knows the adapter. `step` brings the cluster and its series to a moment; the caller says when.
"""

from collections.abc import Iterator

from adapter.sandbox import curves
from adapter.sandbox.cluster import Cluster
from adapter.sandbox.curves import Curve
from adapter.sandbox.series import Series, SeriesSet
from adapter.sandbox.workloads import Workloads, deployment

NAMESPACE = "shop"
_WEB_REPLICAS = (3, 5)
_SCALE_EVERY = 15.0
_STARTUP = 2.0

RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5s])) by (<<.GroupBy>>)'
- seriesQuery: 'ingress_hits{namespace!="",ingress!=""}'
  resources: {template: '<<.Resource>>'}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_depth{queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""


class World:
    """The cluster's objects and the series of its pods, from `start` (epoch seconds) on."""

    def __init__(self, cluster: Cluster, start: float) -> None:
        self.series = SeriesSet(interval=1.0)
        self._cluster = cluster
        self._start = start
        self._workloads = Workloads(cluster, startup=_STARTUP)
        self._known: dict[str, Series] = {}
        self._load = {
            "web": curves.wave(mean=120, amplitude=80, period=20, phase=start),
            "api": curves.wave(mean=60, amplitude=20, period=12, phase=start),
        }
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name, replicas in (("web", _WEB_REPLICAS[0]), ("api", 2), ("worker", 2)):
            cluster.create(deployment(name, NAMESPACE, replicas))
        for kind, version in (("Service", "v1"), ("Ingress", "networking.k8s.io/v1")):
            cluster.create({"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": NAMESPACE}})
        self._add_fixed_series()

    def step(self, now: float) -> None:
        """Scale, start and stop pods, and let series begin and end with them."""
        turn = int((now - self._start) / _SCALE_EVERY)
        wanted = _WEB_REPLICAS[turn % 2]
        if self._cluster.get("Deployment", "web", NAMESPACE)["spec"]["replicas"] != wanted:
            self._cluster.patch("Deployment", "web", {"spec": {"replicas": wanted}}, NAMESPACE)
        self._workloads.step(now)
        running = {name: app for app in self._load for name in self._running(app)}
        for name, app in running.items():
            if name not in self._known:
                self._known[name] = self.series.add(self._requests_of(app, name, now))
        for name in self._known.keys() - running.keys():
            self.series.remove(self._known.pop(name))

    def replicas(self, app: str) -> tuple[int, int]:
        """Return how many pods of a workload are ready, and how many are wanted."""
        found = self._cluster.get("Deployment", app, NAMESPACE)
        return found.get("status", {}).get("readyReplicas", 0), found["spec"]["replicas"]

    def _running(self, app: str) -> Iterator[str]:
        for pod in self._cluster.list("Pod", NAMESPACE):
            if pod["metadata"]["labels"].get("app") == app and pod["status"]["phase"] == "Running":
                yield pod["metadata"]["name"]

    def _requests_of(self, app: str, pod: str, now: float) -> Series:
        """Return the request counter of one pod: its share of the workload's load."""
        spread = 1 / max(_WEB_REPLICAS) if app == "web" else 1 / 2
        rate: Curve = curves.share(self._load[app], spread)
        labels = {"namespace": NAMESPACE, "pod": pod}
        return Series("http_requests_total", labels, curves.counter(rate, now), type="counter", start=now)

    def _add_fixed_series(self) -> None:
        hits = {"namespace": NAMESPACE, "ingress": "web", "service": "web"}
        self.series.add(Series("ingress_hits", hits, self._load["web"]))
        for queue, mean, period in (("orders", 40.0, 16.0), ("mail", 9.0, 10.0)):
            curve = curves.wave(mean, mean * 0.8, period, self._start)
            depth = {"namespace": NAMESPACE, "queue": queue}
            self.series.add(Series("queue_depth", depth, lambda now, curve=curve: float(round(curve(now)))))  # type: ignore[misc]
