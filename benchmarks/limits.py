"""The effect of abuse on memory, processor and other callers: `fastpath serve` over TLS under hostile load.

Three abuses by callers, with a real Prometheus: unknown selectors, object names and metric names, each
several thousand bytes long, as fast as they are answered. Each runs in two halves; the memory growth of the
second shows whether it is bounded. Then a Prometheus that answers a query for all pods with very many series,
and an API server that sends very many changed pods at once.

Meanwhile well-behaved callers repeat known requests at a constant rate. Their responses must be complete. The
peak of memory is that of the case alone. `held_over_50_ms` counts how often a timer of the adapter, at ten a
second, was that late. A caller of the swept metric waits for the sweep. The metrics that show a limit are
read from `/metrics`.
"""

import asyncio
import itertools
import sys
import time
import urllib.request
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import uvloop

from benchmarks import common, documents, flood, load
from benchmarks.common import Goal, Report
from benchmarks.load import Connection, SteadyCallers
from benchmarks.stage import Adapter, App, Stage, make_apps

_CONNECTIONS = 16
_LONG = 3000  # bytes of a selector; what is longer than 4 KiB is remembered nowhere
_METRIC = "http_requests_total"


class Meter:
    """The cost of one adapter during a case, and its self-metrics."""

    def __init__(self, stage: Stage, adapter: Adapter, metric: str, apps: Sequence[App], rate: float) -> None:
        """Others ask for the metric of the apps at this rate."""
        self.stage = stage
        self.adapter = adapter
        requests = [load.render(path_of(app, metric)) for app in apps]
        self._others = adapter.port, stage.tls, requests, len(apps[0].pods), rate

    def read(self, name: str, **labels: str) -> float:
        found = self.stage.metric(self.adapter.port, name, **labels)
        if found is None:
            sys.exit(f"no {name} with {labels}")
        return found

    def _held(self) -> float:
        """Return how often a timer of the event loop was more than 50 ms late."""
        lag = "fastpath_event_loop_lag_seconds"
        return self.read(f"{lag}_count") - self.read(f"{lag}_bucket", le="0.05")

    async def take(self, case: str, work: Callable[[], Awaitable[Mapping[str, float]]]) -> dict[str, float]:
        """Return the figures of a case, those of `work` included."""
        innocents = SteadyCallers(*self._others)
        asking = asyncio.create_task(innocents.run())
        held = await asyncio.to_thread(self._held)
        await asyncio.to_thread(_forget_peak, self.adapter.pid)
        before, cpu, begun = self.adapter.memory(), self.adapter.cpu_seconds(), time.perf_counter()
        found = await work()
        seconds = time.perf_counter() - begun
        figures = {
            "seconds": seconds,
            "cpu_seconds": self.adapter.cpu_seconds() - cpu,
            "before_mib": before,
            "peak_mib": self.adapter.memory("VmHWM"),
            "after_mib": self.adapter.memory(),
        }
        innocents.stopping = True
        await asking
        figures["held_over_50_ms"] = await asyncio.to_thread(self._held) - held
        if not innocents.took:
            sys.exit(f"{case}: no other caller was answered")
        figures |= {
            "innocent_p50_ms": common.percentile(innocents.took, 0.5),
            "innocent_p99_ms": common.percentile(innocents.took, 0.99),
            "innocent_failures": len(innocents.failures),
        }
        return {f"{case}_{name}": value for name, value in {**figures, **found}.items()}


def rules(series: str) -> dict[str, object]:
    """Return a rule whose queries can be merged and swept."""
    return {"rules": [documents.pods_rule(series)]}


def path_of(app: App, metric: str, *, name: str = "%2A", selector: str = "") -> str:
    """Return the path of a request for pods of an app, narrowed by `selector`."""
    pods = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{app.namespace}/pods/{name}/{metric}"
    return f"{pods}?labelSelector=app%3D{app.name}{selector}" if name == "%2A" else pods


def endless(case: str, apps: Sequence[App]) -> Iterator[bytes]:
    """Yield requests that no caller made before; `case` is what differs."""
    padding = ",".join(f"v{number:04}" for number in range(_LONG // 6))
    for number, app in enumerate(itertools.cycle(apps)):
        if case == "selectors":
            selector = f",n{number}+notin+%28{padding}%29"
            yield load.render(path_of(app, _METRIC, selector=selector))
        elif case == "names":
            yield load.render(path_of(app, _METRIC, name=f"n{number}-{'x' * 200}"))
        else:
            yield load.render(path_of(app, f"m{number}_{'x' * _LONG}"))


async def ask_endlessly(meter: Meter, requests: Iterator[bytes], seconds: float) -> dict[str, float]:
    """Send requests in two halves; return the answers and the memory growth of each half."""
    answered, refused = 0, 0

    async def ask(end: float) -> None:
        nonlocal answered, refused
        connection = await Connection.open(meter.adapter.port, meter.stage.tls)
        while not answered or time.perf_counter() < end:
            reply = await connection.get(next(requests))
            answered += 1
            refused += reply.status == 429
        connection.close()

    memory = [meter.adapter.memory()]
    for _ in range(2):
        end = time.perf_counter() + seconds / 2
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONNECTIONS):
                group.create_task(ask(end))
        memory.append(meter.adapter.memory())
    return {
        "requests": answered,
        "refused": refused,
        "first_half_mib": memory[1] - memory[0],
        "second_half_mib": memory[2] - memory[1],
    }


def measure_callers(sizes: Namespace) -> dict[str, float]:
    apps = make_apps(sizes.apps, sizes.pods)
    figures: dict[str, float] = {}
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        cluster = stage.start_cluster(sizes.apps, sizes.pods, tls=True)
        adapter = stage.start_adapter(cluster, prometheus.url, rules(_METRIC), pod=True)
        meter = Meter(stage, adapter, _METRIC, apps, sizes.rate)
        for case in ("selectors", "names", "metrics"):
            abuse = partial(ask_endlessly, meter, endless(case, apps), sizes.seconds)
            figures |= uvloop.run(meter.take(case, abuse))
            for cache in ("routes", "objects", "batches", "selections", "bodies", "accesses"):
                figures[f"{case}_{cache}_used_ratio"] = meter.read("fastpath_cache_used_ratio", cache=cache)
        figures["routes_evictions"] = meter.read("fastpath_cache_evictions_total", cache="routes")
        figures["lookups_asked"] = meter.read("fastpath_discovery_lookups_total", outcome="sent")
        figures["lookups_limited"] = meter.read("fastpath_discovery_lookups_total", outcome="limited")
    return figures


def measure_sweep(sizes: Namespace) -> dict[str, float]:
    """Return the figures of a sweep with far more series than the one before."""
    apps = make_apps(sizes.apps, sizes.pods)
    with Stage() as stage:
        url = stage.start_server("flood", "prometheus", sizes.apps, sizes.pods, sizes.series)
        cluster = stage.start_cluster(sizes.apps, sizes.pods, tls=True)
        adapter = stage.start_adapter(cluster, url, rules(flood.METRIC), pod=True)
        # fast enough for all to be asked for within a second: else nothing is swept
        meter = Meter(stage, adapter, flood.METRIC, apps, max(sizes.rate, 2.0 * sizes.apps))
        queries = "fastpath_prometheus_queries_total"

        async def work() -> dict[str, float]:
            await load.wait_for(lambda: meter.read(queries, type="sweep", outcome="success") > 0, "a sweep")
            await asyncio.to_thread(_tell, url)
            await load.wait_for(lambda: meter.read(queries, type="sweep", outcome="size") > 0, "its end")
            await asyncio.sleep(sizes.seconds / 2)
            return {}

        return uvloop.run(meter.take("sweep", work)) | {
            "sweep_broken_off": meter.read(queries, type="sweep", outcome="size"),
            "sweep_merged_queries": meter.read(queries, type="merged", outcome="success"),
        }


def measure_changes(sizes: Namespace) -> dict[str, float]:
    count = -(-sizes.changes // sizes.pods)
    apps = make_apps(count, sizes.pods)
    with Stage() as stage:
        cluster = stage.start_server("flood", "cluster", count, sizes.pods, sizes.changes)
        kubeconfig = stage.directory / "kubeconfig-flood"
        kubeconfig.write_text(_KUBECONFIG.format(url=cluster), encoding="utf-8")
        prometheus = stage.start_server("flood", "prometheus", count, sizes.pods, 0)
        adapter = stage.start_adapter(kubeconfig, prometheus, rules(flood.METRIC))
        meter = Meter(stage, adapter, flood.METRIC, apps[: sizes.apps], sizes.rate)

        def seen() -> float:
            return meter.read("fastpath_informer_events_total", resource="pods")

        async def work() -> dict[str, float]:
            before = await asyncio.to_thread(seen)
            await asyncio.to_thread(_tell, cluster)
            begun = time.perf_counter()
            await load.wait_for(lambda: seen() - before >= sizes.changes, "the changes")
            took = time.perf_counter() - begun
            changed = apps[(sizes.changes - 1) // sizes.pods]
            last = path_of(changed, flood.METRIC, selector="%2Cversion%3D1.4.3")
            status, body = await asyncio.to_thread(stage.fetch, adapter.port, last)
            if status != 200 or body.count(b'"describedObject"') != (sizes.changes - 1) % sizes.pods + 1:
                sys.exit(f"the index is not right after the changes: HTTP status {status}")
            return {"per_second": sizes.changes / took, "events": sizes.changes}

        return uvloop.run(meter.take("changes", work))


_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: flood
clusters: [{{name: flood, cluster: {{server: "{url}"}}}}]
users: [{{name: flood, user: {{}}}}]
contexts: [{{name: flood, context: {{cluster: flood, user: flood}}}}]
"""


def _forget_peak(process: int) -> None:
    """Reset the peak of a process' memory."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")


def _tell(url: str) -> None:
    with urllib.request.urlopen(f"{url}/flood", timeout=10) as answer:
        answer.read()


def main() -> None:
    sizes = common.parse_sizes(
        __doc__, apps=200, pods=5, rate=100.0, seconds=12.0, series=200_000, changes=10_000
    )
    common.stay_on_load_core()
    cases = ("selectors", "names", "metrics", "sweep", "changes")
    goals = {f"{case}_innocent_failures": Goal("failed requests of other callers", 0, "") for case in cases}
    goals |= {f"{case}_peak_mib": Goal("peak memory", 400, "MiB") for case in cases}
    report = Report("limits", vars(sizes), goals)
    for measure in (measure_callers, measure_sweep, measure_changes):
        report.add(**measure(sizes))
    report.show()


if __name__ == "__main__":
    main()
