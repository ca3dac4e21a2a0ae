"""Requests a second and latency of `fastpath serve`: warm, cold and mixed.

aiohttp alone and Prometheus alone serve the same requests for comparison.

Warm: the values of a rule are cached for a second, the default. A lap over all HorizontalPodAutoscalers takes
less, so the cache answers most requests and every value is queried again each second. Cold: nothing is
cached, so every request costs at least a share of a query. Mixed: as warm, but every tenth request has a new
selector; it selects the pods of one app, as the others do. The overhead of a cold request is the median over
that of the same query sent to Prometheus directly, the two in turn over one connection each.

Fastpath has the credentials of a Pod: see `benchmarks.pod`.

If PROMETHEUS_ADAPTER names a prometheus-adapter, it serves the same requests on the same core: without the
throttle of its client, and as shipped. In each lap every case runs with both programs directly one after the
other, and the order changes by the lap. `..._ratio` is our figure over that of the peer, the median over the
laps. As shipped, the peer answers at the constant rate of its throttle. That case runs once and longer, since
its queue takes seconds to form.

Processor time of a request is measured at 16 connections: of the adapter, of Prometheus and of the API
server. The peer lists the pods at the API server for each request, so only the sum compares the two. The API
server is the sandbox's, in Python: a real one takes less. A throttled peer is idle most of the time, so it
has no such figures.
"""

import sys
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import common, documents, load, peer
from benchmarks.common import Goal, Report
from benchmarks.load import Caller, Load
from benchmarks.stage import App, Stage, cpu_seconds_of, make_apps, memory_of, processor_seconds
from tests.support.prometheus import PrometheusServer

_WARM = "http_requests_per_second"
_COLD = "http_requests_per_second_uncached"

_CASES = ("warm", "cold", "mixed")
_CONNECTIONS = (1, 16)
_MEASURED_CPU = 16
_LONGER = 3


def rules(*, ours: bool = True) -> dict[str, object]:
    """Return a rule that caches values for a second, and one that follows the flags.

    Without `ours`, the keys that prometheus-adapter does not know are left out.
    """
    rule = documents.pods_rule("http_requests_total", documents.RATE)
    kept = {"ttl": "1s"} if ours else {}
    return {"rules": [{**rule, "name": {"as": _WARM}, **kept}, {**rule, "name": {"as": _COLD}}]}


def path_of(app: App, metric: str) -> str:
    """Return the request of a HorizontalPodAutoscaler on a Pods metric of the app."""
    selector = urllib.parse.quote(f"app={app.name}", safe="")
    pods = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{app.namespace}/pods"
    return f"{pods}/*/{metric}?labelSelector={selector}"


def main() -> None:
    sizes = common.parse_sizes(
        __doc__, hpas=200, pods=10, seconds=4.0, runs=5, peer_start=60.0, cases=",".join(_CASES)
    )
    cases = [case for case in _CASES if case in sizes.cases.split(",")]
    try:
        program = peer.find()
    except ValueError as error:
        print(f"serve: {error}", file=sys.stderr)
        sys.exit(2)
    common.stay_on_load_core()
    report = Report("serve", {**vars(sizes), "load": load.generator(sizes.seconds)}, {})
    apps = make_apps(sizes.hpas, sizes.pods)
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        kubeconfig = stage.start_cluster(sizes.hpas, sizes.pods, tls=True)
        around = kubeconfig, prometheus.url, rules(ours=False), path_of(apps[0], _WARM), sizes.peer_start
        try:
            peers = [peer.start(stage, program, form, *around) for form in peer.FORMS if program is not None]
        except ChildProcessError as error:
            print(f"serve: {error}", file=sys.stderr)
            sys.exit(1)
        adapter = stage.start_adapter(kubeconfig, prometheus.url, rules(), "--metrics-ttl", "0s", pod=True)
        asking = _Asking(stage, apps, prometheus)
        servers = [_Server("", adapter.port, adapter.pid)]
        servers += [_Server(f"{each.form}_", each.port, each.pid) for each in peers]
        body = asking.check([each.port for each in servers])
        bare = _Server("", stage.start_bare(body), stage.pids["bare"])
        steady = [each for each in servers if each.prefix != f"{peer.THROTTLED}_"]
        lap = _Lap(asking, cases, bare, steady)
        lap.run(min(1.0, sizes.seconds), 0)  # warms up
        report.add(**common.median_of([lap.run(sizes.seconds, turn) for turn in range(sizes.runs)]))
        for each in servers:
            if each not in steady:
                asking.drain(each.port, min(1.0, sizes.seconds))
                found = asking.run_cases(each, cases, _LONGER * sizes.seconds)
                report.add(**found, **peer.ratios(report.figures | found, peer.THROTTLED))
        asking.check([each.port for each in servers])  # the samples reach nine minutes ahead, no further
        report.add(**{f"{each.prefix}memory_mib": memory_of(each.pid) for each in servers})
        for form in peer.FORMS if peers else ():
            memory = {name: value for name, value in report.figures.items() if name.endswith("memory_mib")}
            report.add(**peer.ratios(memory, form))
    report.goals = {
        name: goal for name, goal in _goals(sizes.hpas, sizes.pods).items() if name in report.figures
    }
    if peers:
        behind = ", ".join(peer.find_behind(report.figures)) or "none"
        print(f"rows where prometheus-adapter is ahead: {behind}")
    report.show()


def _goals(hpas: int, pods: int) -> dict[str, Goal]:
    """Return the goals, those of the comparison included."""
    warm = f"warm requests over TLS for {hpas} autoscalers of {pods} pods:"
    overhead = "p50 of a cold request beyond that of its raw Prometheus query"
    return {
        "warm_16_requests_per_second": Goal(
            f"{warm} throughput at 16 connections", 7000, "/s", at_least=True
        ),
        "warm_16_p50_ms": Goal(f"{warm} p50 at 16 connections", 2.3, "ms"),
        "warm_1_p50_ms": Goal(f"{warm} p50 at one connection", 0.5, "ms"),
        "cold_overhead_p50_ms": Goal(overhead, 1.0, "ms"),
        **peer.GOALS,
    }


class _Server(NamedTuple):
    """A program that answers requests; the names of its figures begin with `prefix`."""

    prefix: str
    port: int
    pid: int


class _Lap(NamedTuple):
    """All cases once, each with all servers one directly after the other."""

    asking: "_Asking"
    cases: Sequence[str]
    bare: _Server
    servers: Sequence[_Server]

    def run(self, seconds: float, turn: int) -> dict[str, float]:
        """Return the figures, each case run for so many seconds; each server is first in its turn."""
        found: dict[str, dict[str, float]] = {each.prefix: {} for each in self.servers}
        first = turn % len(self.servers)
        figures: dict[str, float] = {}
        for connections in _CONNECTIONS:
            figures |= self.asking.run_case(self.bare, "bare", connections, seconds)
            for case in self.cases:
                for each in [*self.servers[first:], *self.servers[:first]]:
                    found[each.prefix] |= self.asking.run_case(each, case, connections, seconds)
        for each in self.servers:
            figures |= found[each.prefix]
        for each in self.servers:
            if each.prefix:
                figures |= peer.ratios(figures, each.prefix.removesuffix("_"))
        if "warm" in self.cases:
            figures |= _shares_of_bare(figures)
        if "cold" in self.cases:
            figures |= self.asking.measure_overhead(self.servers[0].port, seconds)
        return figures


class _Asking:
    """Runs the cases against a server, and never uses the same new selector twice."""

    def __init__(self, stage: Stage, apps: Sequence[App], prometheus: PrometheusServer) -> None:
        self._stage = stage
        self._apps = apps
        self._prometheus = prometheus
        warm, cold = ([path_of(app, metric) for app in apps] for metric in (_WARM, _COLD))
        self._paths = {"bare": warm, "warm": warm, "cold": cold, "mixed": warm}
        self._loads = 0

    def check(self, ports: Sequence[int]) -> bytes:
        """Send some requests, a new one too, and return one body. A missing value ends the program."""
        body = b""
        warm, cold = self._paths["warm"], self._paths["cold"]
        for port in ports:
            for path in (warm[0], cold[-1], load.make_fresh(warm[-1], f"check-{self._loads}")):
                status, body = self._stage.fetch(port, path)
                if status != 200 or body.count(b'"describedObject"') != len(self._apps[0].pods):
                    sys.exit(f"{path}: HTTP status {status}, not a value for each pod: {body.decode()}")
        return body

    def run_cases(self, server: _Server, cases: Sequence[str], seconds: float) -> dict[str, float]:
        """Return the figures of one server at both numbers of connections."""
        figures: dict[str, float] = {}
        for connections in _CONNECTIONS:
            for case in cases:
                figures |= self.run_case(server, case, connections, seconds)
        return figures

    def run_case(self, server: _Server, case: str, connections: int, seconds: float) -> dict[str, float]:
        """Return the figures of a case; a failed request ends the program."""
        name = f"{server.prefix}{case}_{connections}"
        self._settle(server.port)
        before = self._processor_seconds(server)
        found = self._load(server.port, case, connections, seconds)
        after = self._processor_seconds(server)
        if found.errors or not found.requests_per_second:
            rate = f"{found.requests_per_second:g} answered a second"
            sys.exit(f"{name}: {found.errors} requests failed, {rate}")
        figures = {
            f"{name}_requests_per_second": found.requests_per_second,
            f"{name}_p50_ms": found.p50_ms,
            f"{name}_p99_ms": found.p99_ms,
        }
        if case != "bare" and connections == _MEASURED_CPU and server.prefix != f"{peer.THROTTLED}_":
            spent = {part: (after[part] - before[part]) * 1000 / found.requests for part in after}
            spent["all"] = sum(spent.values())
            figures |= {f"{name}_{part}_cpu_ms": value for part, value in spent.items()}
        return figures

    def _processor_seconds(self, server: _Server) -> dict[str, float]:
        """Return the processor time so far of the programs that take part in a request."""
        return {
            "adapter": processor_seconds(server.pid),
            "prometheus": cpu_seconds_of(self._prometheus),
            "api_server": processor_seconds(self._stage.pids["cluster"]),
        }

    def measure_overhead(self, port: int, seconds: float) -> dict[str, float]:
        """Return the medians of cold requests and of their queries alone, sent in turn."""
        ours, direct = Caller(port, self._stage.tls), Caller(self._prometheus.port)
        pairs = []
        for app in self._apps:
            matchers = f'namespace="{app.namespace}",pod=~"{"|".join(app.pods)}"'
            promql = documents.RATE.replace("<<.Series>>", app.metric).replace("<<.LabelMatchers>>", matchers)
            pairs.append((load.render(path_of(app, _COLD)), promql.replace("<<.GroupBy>>", "pod")))
        cold: list[float] = []
        alone: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            request, promql = pairs[len(cold) % len(pairs)]
            parameters = urllib.parse.urlencode({"query": promql, "time": f"{common.wall():.3f}"})
            alone.append(direct.time(load.render(f"/api/v1/query?{parameters}")))
            cold.append(ours.time(request))
        ours.close()
        direct.close()
        cold_p50, alone_p50 = (common.percentile(took, 0.5) * 1000 for took in (cold, alone))
        figures = {"cold_interleaved_p50_ms": cold_p50, "prometheus_alone_p50_ms": alone_p50}
        return figures | {"cold_overhead_p50_ms": cold_p50 - alone_p50}

    def drain(self, port: int, seconds: float) -> None:
        """Use up the saved burst of a throttle, so that its steady state is measured."""
        self._load(port, "cold", _CONNECTIONS[-1], seconds)

    def _settle(self, port: int) -> None:
        """Wait until a server has finished the requests of an earlier load, which a throttle delays."""
        status, body = self._stage.fetch(port, self._paths["warm"][0])
        if status != 200:
            sys.exit(f"HTTP status {status}: {body.decode()}")

    def _load(self, port: int, case: str, connections: int, seconds: float) -> Load:
        self._loads += 1
        fresh = f"load-{self._loads}" if case == "mixed" else ""
        stage, paths = self._stage, self._paths[case]
        return load.run_closed_loop(
            port, stage.tls, paths, connections, seconds, stage.directory, fresh=fresh
        )


def _shares_of_bare(figures: Mapping[str, float]) -> dict[str, float]:
    """Return our share of what aiohttp alone does."""
    rates = ((count, f"{count}_requests_per_second") for count in _CONNECTIONS)
    return {
        f"warm_{count}_share_of_bare": figures[f"warm_{rate}"] / figures[f"bare_{rate}"]
        for count, rate in rates
    }


if __name__ == "__main__":
    main()
