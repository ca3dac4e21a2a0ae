"""Requests a second and latency of `fastpath serve`: warm, cold and mixed.

aiohttp alone and Prometheus alone serve the same requests for comparison.

Warm: the values of a rule are cached for a second, the default. A lap over all HorizontalPodAutoscalers takes
less, so the cache answers most requests and every value is queried again each second. Cold: nothing is
cached, so every request costs at least a share of a query. Mixed: as warm, but every tenth request has a new
selector; it selects the pods of one app, as the others do. The overhead of a cold request is the median over
that of the same query sent to Prometheus directly, the two in turn over one connection each.

If PROMETHEUS_ADAPTER names a prometheus-adapter, it serves the same requests between our runs, on the same
core: without the throttle of its client, and as shipped. `..._ratio` is our figure over its own, the median
over the runs. As shipped, it answers at the constant rate of that throttle. That case runs once and longer,
since its queue takes seconds to form.
"""

import sys
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import common, load, peer
from benchmarks.common import Goal, Report
from benchmarks.load import Caller, Load
from benchmarks.peer import Peer
from benchmarks.stage import App, Stage, make_apps, memory_of

_QUERY = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
_WARM = "http_requests_per_second"
_COLD = "http_requests_per_second_uncached"

_CASES = ("warm", "cold", "mixed")
_CONNECTIONS = (1, 16)
_LONGER = 3


def rules(*, ours: bool = True) -> dict[str, object]:
    """Return a rule that caches values for a second, and one that follows the flags.

    Without `ours`, the keys that prometheus-adapter does not know are left out.
    """
    resources = {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
    rule = {
        "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
        "resources": resources,
        "metricsQuery": _QUERY,
    }
    kept = {"ttl": "1s"} if ours else {}
    return {"rules": [{**rule, "name": {"as": _WARM}, **kept}, {**rule, "name": {"as": _COLD}}]}


def path_of(app: App, metric: str) -> str:
    """Return the request of a HorizontalPodAutoscaler on a Pods metric of the app."""
    selector = urllib.parse.quote(f"app={app.name}", safe="")
    pods = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{app.namespace}/pods"
    return f"{pods}/*/{metric}?labelSelector={selector}"


def main() -> None:
    sizes = common.parse_sizes(__doc__, hpas=200, pods=10, seconds=4.0, runs=3, peer_start=60.0)
    try:
        program = peer.find()
    except ValueError as error:
        print(f"serve: {error}", file=sys.stderr)
        sys.exit(2)
    common.stay_on_load_core()
    warm = f"warm requests over TLS for {sizes.hpas} autoscalers of {sizes.pods} pods:"
    goals = {
        "warm_16_requests_per_second": Goal(
            f"{warm} throughput at 16 connections", 7000, "/s", at_least=True
        ),
        "warm_16_p50_ms": Goal(f"{warm} p50 at 16 connections", 2.3, "ms"),
        "warm_1_p50_ms": Goal(f"{warm} p50 at one connection", 0.5, "ms"),
        "cold_overhead_p50_ms": Goal(
            "p50 of a cold request beyond that of its raw Prometheus query", 1.0, "ms"
        ),
    }
    report = Report("serve", {**vars(sizes), "load": load.generator(sizes.seconds)}, goals)
    apps = make_apps(sizes.hpas, sizes.pods)
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        kubeconfig = stage.start_cluster(sizes.hpas, sizes.pods)
        peers = [
            _start_peer(stage, program, form, kubeconfig, prometheus.url, apps[0], sizes.peer_start)
            for form in peer.FORMS
            if program is not None
        ]
        adapter = stage.start_adapter(kubeconfig, prometheus.url, rules(), "--metrics-ttl", "0s")
        asking = _Asking(stage, apps)
        body = asking.check([adapter.port, *(each.port for each in peers)])
        lap = _Lap(asking, stage.start_bare(body), adapter.port, prometheus.port, peers)
        lap.run(min(1.0, sizes.seconds))  # warms up
        report.add(**common.median_of([lap.run(sizes.seconds) for _ in range(sizes.runs)]))
        for each in peers:
            if each.form == peer.THROTTLED:
                asking.drain(each.port, min(1.0, sizes.seconds))
                found = asking.ask(f"{each.form}_", each.port, _LONGER * sizes.seconds, _CASES)
                report.add(**found, **_ratios(report.figures | found, each.form))
        asking.check(
            [adapter.port, *(each.port for each in peers)]
        )  # the samples reach nine minutes ahead, no further
        report.add(
            memory_mib=adapter.memory(), **{f"{each.form}_memory_mib": memory_of(each.pid) for each in peers}
        )
    report.show()


class _Lap(NamedTuple):
    """All cases once, of all servers in turn, except those of the throttled peer."""

    asking: "_Asking"
    bare_port: int
    port: int
    prometheus_port: int
    peers: Sequence[Peer]

    def run(self, seconds: float) -> dict[str, float]:
        """Return the figures, each case run for so many seconds."""
        figures = self.asking.ask("", self.bare_port, seconds, ["bare"])
        figures |= self.asking.ask("", self.port, seconds, _CASES)
        figures |= _shares_of_bare(figures)
        for each in self.peers:
            if each.form != peer.THROTTLED:
                figures |= self.asking.ask(f"{each.form}_", each.port, seconds, _CASES)
                figures |= _ratios(figures, each.form)
        return figures | self.asking.measure_overhead(self.port, self.prometheus_port, seconds)


def _start_peer(
    stage: Stage, program: Path, form: str, kubeconfig: Path, prometheus_url: str, app: App, seconds: float
) -> Peer:
    """Start a prometheus-adapter; a failure ends the program."""
    try:
        return peer.start(
            stage, program, form, kubeconfig, prometheus_url, rules(ours=False), path_of(app, _WARM), seconds
        )
    except ChildProcessError as error:
        print(f"serve: {error}", file=sys.stderr)
        sys.exit(1)


class _Asking:
    """Runs the cases against a server, and never uses the same new selector twice."""

    def __init__(self, stage: Stage, apps: Sequence[App]) -> None:
        self._stage = stage
        self._apps = apps
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

    def ask(self, prefix: str, port: int, seconds: float, cases: Sequence[str]) -> dict[str, float]:
        """Return the figures at both numbers of connections; a failed request ends the program."""
        figures: dict[str, float] = {}
        for connections in _CONNECTIONS:
            for case in cases:
                name = f"{prefix}{case}_{connections}"
                self._settle(port)
                found = self._load(port, case, connections, seconds)
                if found.errors or not found.requests_per_second:
                    sys.exit(
                        f"{name}: {found.errors} requests failed, "
                        f"{found.requests_per_second:g} answered a second"
                    )
                figures |= {
                    f"{name}_requests_per_second": found.requests_per_second,
                    f"{name}_p50_ms": found.p50_ms,
                    f"{name}_p99_ms": found.p99_ms,
                }
        return figures

    def measure_overhead(self, port: int, prometheus_port: int, seconds: float) -> dict[str, float]:
        """Return the medians of cold requests and of their queries alone, sent in turn."""
        ours, direct = Caller(port, self._stage.tls), Caller(prometheus_port)
        pairs = []
        for app in self._apps:
            matchers = f'namespace="{app.namespace}",pod=~"{"|".join(app.pods)}"'
            promql = _QUERY.replace("<<.Series>>", app.metric).replace("<<.LabelMatchers>>", matchers)
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
        return {
            "cold_interleaved_p50_ms": cold_p50,
            "prometheus_alone_p50_ms": alone_p50,
            "cold_overhead_p50_ms": cold_p50 - alone_p50,
        }

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
        paths = self._paths[case]
        return load.run_closed_loop(
            port, self._stage.tls, paths, connections, seconds, self._stage.directory, fresh=fresh
        )


def _shares_of_bare(figures: Mapping[str, float]) -> dict[str, float]:
    """Return our share of what aiohttp alone does."""
    name = "_requests_per_second"
    return {
        f"warm_{connections}_share_of_bare": figures[f"warm_{connections}{name}"]
        / figures[f"bare_{connections}{name}"]
        for connections in _CONNECTIONS
    }


def _ratios(figures: Mapping[str, float], form: str) -> dict[str, float]:
    """Return our figures over those of a form of the peer."""
    names = [name.removeprefix(f"{form}_") for name in figures if name.startswith(f"{form}_")]
    return {f"{form}_{name}_ratio": figures[name] / figures[f"{form}_{name}"] for name in names}


if __name__ == "__main__":
    main()
