"""Prometheus queries each second while many HorizontalPodAutoscalers ask, each once a period.

Their phases are spread evenly, as those of a controller that has run for a while. No two ask at the same
moment, which is the hard case. Three cases: all on one rule, as many on several rules together, and ten times
as many on one rule. Prometheus itself counts the queries. A latency counts from the moment at which a request
was due, so that a late caller shows. `load_core_busy_share` is the used share of the core that runs the
callers and Prometheus: near 1, that core was the bottleneck.
"""

import sys
import time
from collections.abc import Sequence

import uvloop

from benchmarks import common, documents, load
from benchmarks.common import Goal, Report
from benchmarks.load import SteadyCallers
from benchmarks.serve import path_of
from benchmarks.stage import App, Stage, cpu_seconds_of, make_apps, queries_of


def rules(metrics: Sequence[str]) -> dict[str, object]:
    name = {"matches": "^(.*)_total$", "as": "${1}_per_second"}
    return {"rules": [documents.pods_rule(metric, documents.RATE, name=name) for metric in metrics]}


async def ask_all(
    stage: Stage, port: int, apps: Sequence[App], pods: int, period: float, seconds: float
) -> list[float]:
    """Send one request each `period` for every app's autoscaler; return the latencies in milliseconds."""
    requests = [load.render(path_of(app, app.metric.replace("_total", "_per_second"))) for app in apps]
    callers = SteadyCallers(port, stage.tls, requests, pods, len(requests) / period)
    await callers.run(int(seconds / period * len(requests)))
    for reply in callers.failures:
        sys.exit(f"HTTP status {reply.status}: {reply.body.decode()}")
    return callers.took


def run_case(
    count: int, pods: int, metrics: Sequence[str], period: float, seconds: float
) -> dict[str, float]:
    """Return the figures of one case; a first period warms up and is not counted."""
    apps = make_apps(count, pods, metrics)
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        cluster = stage.start_cluster(count, pods, tls=True)
        adapter = stage.start_adapter(cluster, prometheus.url, rules(metrics), pod=True)
        first = uvloop.run(ask_all(stage, adapter.port, apps, pods, period, period))

        def read() -> tuple[float, ...]:
            used = adapter.cpu_seconds(), cpu_seconds_of(prometheus), time.process_time()
            return queries_of(prometheus), time.perf_counter(), *used, common.busy_seconds(common.LOAD_CORE)

        before = read()
        took = uvloop.run(ask_all(stage, adapter.port, apps, pods, period, seconds))
        queries, elapsed, *used = (after - begun for after, begun in zip(read(), before, strict=True))
        cpu, prometheus_cpu, caller_cpu, busy = used
        memory = adapter.memory()
    return {
        "queries_per_second": queries / elapsed,
        "requests_per_second": len(took) / seconds,
        "p50_ms": common.percentile(took, 0.5),
        "p99_ms": common.percentile(took, 0.99),
        "first_period_p50_ms": common.percentile(first, 0.5),
        "first_period_p99_ms": common.percentile(first, 0.99),
        "cpu_ms_per_request": cpu / len(took) * 1000,
        "cpu_share": cpu / elapsed,
        "caller_cpu_share": caller_cpu / elapsed,
        "prometheus_cpu_share": prometheus_cpu / elapsed,
        "load_core_busy_share": busy / elapsed,
        "memory_mib": memory,
    }


def main() -> None:
    sizes = common.parse_sizes(__doc__, hpas=1000, many=10_000, pods=5, rules=10, period=15.0, seconds=30.0)
    common.stay_on_load_core()
    asked = (
        f"Prometheus queries for {sizes.hpas:,} autoscalers of {sizes.pods} pods that request a metric every "
        f"{sizes.period:g} s, after the first period"
    )
    many = f"{sizes.many:,} such autoscalers"
    goals = {
        "one_rule_queries_per_second": Goal(f"{asked}: one rule", 2, "/s"),
        "several_rules_queries_per_second": Goal(f"{asked}: {sizes.rules} rules", 2 * sizes.rules, "/s"),
        "many_queries_per_second": Goal(f"Prometheus queries for {many} on one rule", 2, "/s"),
        "many_p99_ms": Goal(f"p99 of the requests of {many}", 30, "ms"),
    }
    report = Report("hpas", vars(sizes), goals)
    several = [f"component_{number}_requests_total" for number in range(sizes.rules)]
    for case, count, metrics in (
        ("one_rule", sizes.hpas, ["http_requests_total"]),
        ("several_rules", sizes.hpas, several),
        ("many", sizes.many, ["http_requests_total"]),
    ):
        found = run_case(count, sizes.pods, metrics, sizes.period, sizes.seconds)
        report.add(**{f"{case}_{name}": value for name, value in found.items()})
    report.show()


if __name__ == "__main__":
    main()
