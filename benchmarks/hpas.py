"""Queries that Prometheus is asked a second while many HorizontalPodAutoscalers ask, each once a period.

Their phases are spread evenly, as those of a controller that has run for a while; no two ask at the same moment, which is the
hard case. Two cases: all on one rule, and as many on several rules together. Queries are counted by Prometheus itself.
"""

import asyncio
import sys
import time
from collections.abc import Sequence

import uvloop

from benchmarks import common, load
from benchmarks.common import Goal, Report
from benchmarks.load import Connection
from benchmarks.serve import path_of
from benchmarks.stage import App, Stage, make_apps, queries_of

_CONNECTIONS = 8


def rules(metrics: Sequence[str]) -> dict[str, object]:
    """Return one rule for each counter."""
    resources = {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
    return {
        "rules": [
            {
                "seriesQuery": f'{metric}{{namespace!="",pod!=""}}',
                "resources": resources,
                "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
                "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
            }
            for metric in metrics
        ]
    }


async def ask_all(
    stage: Stage, port: int, apps: Sequence[App], pods: int, period: float, seconds: float
) -> list[float]:
    """Let every app's autoscaler ask once a `period` for some seconds; returns how long each request took, in order."""
    requests = [load.render(path_of(app, app.metric.replace("_total", "_per_second"))) for app in apps]
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(_CONNECTIONS):
        free.put_nowait(await Connection.open(port, stage.tls))
    took: list[float] = []
    begun = time.perf_counter()

    async def ask(request: bytes, due: float) -> None:
        connection = await free.get()
        reply = await connection.get(request)
        free.put_nowait(connection)
        took.append(time.perf_counter() - due)
        if reply.status != 200 or reply.body.count(b'"describedObject"') != pods:
            sys.exit(f"HTTP status {reply.status}: {reply.body.decode()}")

    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds / period * len(requests))):
            due = begun + number * period / len(requests)
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(ask(requests[number % len(requests)], due))
    for _ in range(_CONNECTIONS):
        (await free.get()).close()
    return took


def run_case(count: int, pods: int, metrics: Sequence[str], period: float, seconds: float) -> dict[str, float]:
    """Return the figures of one case; a first period warms up and is not counted."""
    apps = make_apps(count, pods, metrics)
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        adapter = stage.start_adapter(stage.start_cluster(count, pods), prometheus.url, rules(metrics))
        uvloop.run(ask_all(stage, adapter.port, apps, pods, period, period))
        before = queries_of(prometheus), adapter.cpu_seconds()
        took = uvloop.run(ask_all(stage, adapter.port, apps, pods, period, seconds))
        queries, cpu = (
            after - first for after, first in zip((queries_of(prometheus), adapter.cpu_seconds()), before, strict=True)
        )
    return {
        "queries_per_second": queries / seconds,
        "requests_per_second": len(took) / seconds,
        "p50_ms": common.percentile(took, 0.5) * 1000,
        "p99_ms": common.percentile(took, 0.99) * 1000,
        "cpu_ms_per_request": cpu / len(took) * 1000,
    }


def main() -> None:
    sizes = common.parse_sizes(__doc__, hpas=1000, pods=5, rules=10, period=15.0, seconds=45.0)
    common.stay_on_load_core()
    report = Report(
        "hpas",
        vars(sizes),
        {
            "one_rule_queries_per_second": Goal("one rule", 2, "1/s"),
            "several_rules_queries_per_second": Goal("several rules", 2 * sizes.rules, "1/s"),
        },
    )
    for case, metrics in (
        ("one_rule", ["http_requests_total"]),
        ("several_rules", [f"component_{number}_requests_total" for number in range(sizes.rules)]),
    ):
        found = run_case(sizes.hpas, sizes.pods, metrics, sizes.period, sizes.seconds)
        report.add(**{f"{case}_{name}": value for name, value in found.items()})
    report.show()


if __name__ == "__main__":
    main()
