"""What workloads show: the gauges of their pods, and the series of a Prometheus, as functions of one moment.

A load depends on time alone, and a pod shows its share of it.
"""

import asyncio
import contextlib
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from fastpath_sandbox.prometheus import series as exporter
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from tests.world.aggregation import RESOURCE_RULES
from tests.world.workloads import CLOCK, CORES, UNIT, Load, Workload

SCRAPE = 0.2
_ADDRESSES = 400

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
"""


class Loads:
    """What workloads show: the gauges of their pods, and the series of a Prometheus.

    `begin` lets their loads move.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.port = 0
        """Where every pod answers scrapes, at an address of its own; known once `listening` has begun."""
        self.interval = "200ms"
        """Of the scrapes by Fastpath."""
        self.scrapes: Counter[str] = Counter()
        """How often the pods of each workload were scraped."""
        self.workloads: dict[str, Workload] = {}
        self.began: float | None = None
        self.series = SeriesSet(interval=SCRAPE)
        self.free = deque(addresses())
        """Addresses that no pod has."""
        self._pods: dict[str, tuple[Workload, str]] = {}
        """The pods by address."""
        self._shown: dict[str, tuple[str, list[Series]]] = {}
        # Prometheus knows of every metric before there is a pod, as it does of those that others show too
        for name in ("load", "busy"):
            self.series.add(Series(name, {"namespace": "default", "pod": "other"}, lambda _: 1.0))

    @property
    def rules(self) -> str:
        """Return Fastpath's rules for what is shown."""
        return (RULES + RESOURCE_RULES).replace("PORT", str(self.port)).replace("INTERVAL", self.interval)

    def begin(self) -> float:
        """Let all loads begin to move and return when that was."""
        self.began = CLOCK.wall()
        return self.began

    def load(self, name: str, load: Load) -> None:
        """Have a workload take another load."""
        self.workloads[name].load = load

    def need(self, name: str) -> float:
        """Return how many pods the load of a workload needs now."""
        return self.workloads[name].load(self._after(CLOCK.wall())) / UNIT

    def show(self, workload: Workload) -> None:
        """Let Prometheus see the load on a workload as a whole, and how much of it one pod has."""
        self.workloads[workload.name] = workload
        for labels in ({"service": workload.name}, {"queue": workload.name}):
            whole, part = ("hits", "saturation") if "service" in labels else ("backlog", "pressure")
            named = labels | {"namespace": self.namespace}
            self.series.add(Series(whole, named, lambda now: workload.load(self._after(now))))
            self.series.add(Series(part, named, self._mean(workload)))

    def pod_runs(self, pod: str, app: str, address: str) -> None:
        """Let a pod take its share; nothing happens when it does already."""
        if pod in self._shown:
            return
        workload = self.workloads[app]
        workload.parts[pod] = 1.0
        self._pods[address] = workload, pod
        named = {"namespace": self.namespace, "pod": pod}
        made = [
            Series("load", named, self._share(workload, pod)),
            Series("busy", named, self._share(workload, pod)),
            Series("cores", named | {"container": app}, self._share(workload, pod, CORES)),
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

    def lose(self, *pods: str) -> None:
        """Let Prometheus have no values of pods any more."""
        for pod in pods:
            for each in self._shown[pod][1]:
                self.series.remove(each)

    def regain(self, *pods: str) -> None:
        """Let it have values of pods again."""
        for pod in pods:
            for each in self._shown[pod][1]:
                self.series.add(each)

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
        return lambda now: factor * workload.load(self._after(now)) * workload.share(pod)

    async def _answer_scrape(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as the pod that was addressed."""
        assert request.transport is not None
        addressed = self._pods.get(request.transport.get_extra_info("sockname")[0])
        if addressed is None:
            return web.Response(status=404)
        workload, pod = addressed
        self.scrapes[workload.name] += 1
        shown = SeriesSet([Series("load", {}, self._share(workload, pod))])
        return web.Response(text=exporter.render(shown, CLOCK.wall()))


def addresses() -> list[str]:
    """Return loopback addresses, more than there are pods at any time."""
    return [f"127.84.{number >> 8}.{number & 255}" for number in range(1, _ADDRESSES + 1)]


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
