"""Requests a second and latency of `fastpath serve`, warm and cold, beside aiohttp alone and Prometheus alone.

Warm: the values of a rule are kept for a second, as they are by default; a lap over all HorizontalPodAutoscalers takes less,
so most answers come from memory and every value is asked for anew each second. Cold: nothing is kept, so that every request
costs at least a share of a query. The overhead of a cold request is the median over that of the same query sent to
Prometheus directly, the two asked in turn over one connection each.
"""

import sys
import time
import urllib.parse

from adapter.app import SystemClock
from benchmarks import common, load
from benchmarks.common import Goal, Report
from benchmarks.load import Caller, Load
from benchmarks.stage import App, Stage, make_apps

_QUERY = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
_WARM = "http_requests_per_second"
_COLD = "http_requests_per_second_uncached"

GOALS = {
    "warm_16_requests_per_second": Goal("warm", 7000, "1/s", at_least=True),
    "warm_16_p50_ms": Goal("warm", 2.3, "ms"),
    "warm_1_p50_ms": Goal("warm", 0.5, "ms"),
    "cold_overhead_p50_ms": Goal("cold", 1.0, "ms"),
}


def rules() -> dict[str, object]:
    """Return a rule whose values are kept for a second, and one whose values are kept as long as the flags say."""
    resources = {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
    rule = {
        "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
        "resources": resources,
        "metricsQuery": _QUERY,
    }
    return {"rules": [{**rule, "name": {"as": _WARM}, "ttl": "1s"}, {**rule, "name": {"as": _COLD}}]}


def path_of(app: App, metric: str) -> str:
    """Return what a HorizontalPodAutoscaler on a Pods metric of the app asks for."""
    selector = urllib.parse.quote(f"app={app.name}", safe="")
    return f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{app.namespace}/pods/*/{metric}?labelSelector={selector}"


def measure_overhead(
    stage: Stage, port: int, prometheus_port: int, apps: list[App], seconds: float
) -> dict[str, float]:
    """Return the medians of cold requests and of their queries alone, asked in turn."""
    ours, direct = Caller(port, stage.tls), Caller(prometheus_port)
    pairs = []
    for app in apps:
        matchers = f'namespace="{app.namespace}",pod=~"{"|".join(app.pods)}"'
        promql = _QUERY.replace("<<.Series>>", app.metric).replace("<<.LabelMatchers>>", matchers)
        pairs.append((load.render(path_of(app, _COLD)), promql.replace("<<.GroupBy>>", "pod")))
    clock = SystemClock()
    cold: list[float] = []
    alone: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        request, promql = pairs[len(cold) % len(pairs)]
        parameters = urllib.parse.urlencode({"query": promql, "time": f"{clock.wall():.3f}"})
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


def _named(name: str, found: Load) -> dict[str, float]:
    if found.errors:
        sys.exit(f"{name}: {found.errors} requests failed")
    return {
        f"{name}_requests_per_second": found.requests_per_second,
        f"{name}_p50_ms": found.p50_ms,
        f"{name}_p99_ms": found.p99_ms,
    }


def main() -> None:
    sizes = common.parse_sizes(__doc__, hpas=200, pods=10, seconds=4.0, runs=5)
    common.stay_on_load_core()
    apps = make_apps(sizes.hpas, sizes.pods)
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        adapter = stage.start_adapter(
            stage.start_cluster(sizes.hpas, sizes.pods), prometheus.url, rules(), "--metrics-ttl", "0s"
        )
        paths = {metric: [path_of(app, metric) for app in apps] for metric in (_WARM, _COLD)}
        for path in paths[_WARM]:
            status, body = stage.fetch(adapter.port, path)
            if status != 200 or body.count(b'"describedObject"') != sizes.pods:
                sys.exit(f"{path}: HTTP status {status}: {body.decode()}")
        bare = stage.start_bare(body)
        runs = []
        for number in range(sizes.runs + 1):
            figures: dict[str, float] = {}
            seconds = sizes.seconds if number else min(1.0, sizes.seconds)  # the first lap only warms up
            for connections in (1, 16):
                for name, port, asked in (
                    ("bare", bare, paths[_WARM]),
                    ("warm", adapter.port, paths[_WARM]),
                    ("cold", adapter.port, paths[_COLD]),
                ):
                    found = load.run_closed_loop(port, stage.tls, asked, connections, seconds, stage.directory)
                    figures |= _named(f"{name}_{connections}", found)
            figures |= measure_overhead(stage, adapter.port, prometheus.port, apps, seconds)
            if number:
                runs.append(figures)
        memory = adapter.memory()
    settings = {**vars(sizes), "load": load.generator(sizes.seconds)}
    report = Report("serve", settings, GOALS)
    report.add(**common.median_of(runs))
    for connections in (1, 16):
        ratio = [
            run[f"warm_{connections}_requests_per_second"] / run[f"bare_{connections}_requests_per_second"]
            for run in runs
        ]
        report.add(**{f"warm_{connections}_share_of_bare": common.percentile(ratio, 0.5)})
    report.add(memory_mib=memory)
    report.show()


if __name__ == "__main__":
    main()
