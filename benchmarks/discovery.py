"""How long the discovery of a million series blocks the event loop.

A process like the adapter's, on the server's core, relists through the adapter's own relister, lister and
registry while a timer of one millisecond measures how late it fires. The worker process of discovery runs on
the same core, as it does if the adapter has one. Two cases: a million series of 2,000 names, and
(`many_names`) of 50,000 names. `idle` is the same timer before the discovery: the share of the machine.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import time

import uvloop

from adapter.compose.clock import SystemClock
from adapter.config import rules_file
from adapter.config.options import PrometheusOptions
from adapter.model.resources import BUILTIN
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.series import SeriesLister
from adapter.provider.relist import Relister
from adapter.rules.compile import compile_rules
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from benchmarks import common
from benchmarks.common import ROOT, Goal, Report
from benchmarks.hpas import rules
from benchmarks.stage import Stage

_TICK = 0.001
_IDLE_SECONDS = 2.0


async def watch_lag(lags: list[float]) -> None:
    """Record how late a timer of a millisecond fires, until cancelled."""
    while True:
        due = time.perf_counter() + _TICK  # uvloop's own time is in whole milliseconds
        await asyncio.sleep(_TICK)
        lags.append(max(0.0, time.perf_counter() - due))


async def relist(url: str) -> dict[str, float]:
    """Relist once from nothing and return the cost."""
    gc.freeze()  # as `fastpath serve` does: what is imported is no garbage
    clock, monitoring = SystemClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    parsed = rules_file.parse_rules(json.dumps(rules(['{__name__=~"component_.*"}'])), "rules")
    ruleset, found = compile_rules(parsed.config, BUILTIN)
    faulty = (*parsed.faults, *parsed.fatal, *found)
    assert not faulty
    client = await PrometheusClient.open(PrometheusOptions(prometheus_url=url), clock, monitoring, problems)
    lister = SeriesLister(client.origin, monitoring, problems)
    relister = Relister(lister, clock, monitoring, problems, interval=600, max_age=600)
    idle: list[float] = []
    busy: list[float] = []
    ticker = asyncio.create_task(watch_lag(idle))
    await asyncio.sleep(_IDLE_SECONDS)
    ticker.cancel()
    ticker = asyncio.create_task(watch_lag(busy))
    begun = time.perf_counter()
    running = asyncio.create_task(relister.run())
    await relister.adopt(ruleset)
    await relister.attempted.wait()
    took = time.perf_counter() - begun
    running.cancel()
    ticker.cancel()
    await asyncio.gather(running, ticker, return_exceptions=True)
    await client.close()
    if problems.active():
        sys.exit(f"discovery failed: {problems.active()}")
    samples = {
        metric.name: sample.value for metric in monitoring.registry.collect() for sample in metric.samples
    }
    return {
        "idle_lag_p99_ms": common.percentile(idle, 0.99) * 1000,
        "idle_lag_max_ms": max(idle) * 1000,
        "lag_p50_ms": common.percentile(busy, 0.5) * 1000,
        "lag_p99_ms": common.percentile(busy, 0.99) * 1000,
        "lag_max_ms": max(busy) * 1000,
        "seconds": took,
        "series": samples["fastpath_discovery_series"],
        "metrics": float(len(relister.registry.custom)),
        "answer_mib": samples["fastpath_discovery_bytes"] / 2**20,
        "worker_peak_mib": samples["fastpath_discovery_worker_peak_memory_bytes"] / 2**20,
    }


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "relist":
        print(json.dumps(uvloop.run(relist(sys.argv[2]))))
        return
    sizes = common.parse_sizes(__doc__, series=1_000_000, names=2000, many_names=50_000, runs=3)
    common.stay_on_load_core()
    lag = f"longest event-loop lag during the discovery of {sizes.series:,} series with"
    goals = {
        "lag_max_ms": Goal(f"{lag} {sizes.names:,} names", 50, "ms"),
        "many_names_lag_max_ms": Goal(f"{lag} {sizes.many_names:,} names", 50, "ms"),
    }
    report = Report("discovery", vars(sizes), goals)
    for prefix, names in (("", sizes.names), ("many_names_", sizes.many_names)):
        runs = _runs(sizes.series, names, sizes.runs)
        found = common.median_of(runs) | {"lag_max_of_all_runs_ms": max(run["lag_max_ms"] for run in runs)}
        report.add(**{f"{prefix}{name}": value for name, value in found.items()})
    report.show()


def _runs(series: int, names: int, count: int) -> list[dict[str, float]]:
    """Return the figures of some runs, each a process of its own."""
    runs: list[dict[str, float]] = []
    with Stage() as stage:
        url = stage.start_long_list(series, names)
        for _ in range(count):
            command = common.on_server_core([sys.executable, "-m", "benchmarks.discovery", "relist", url])
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, env=dict(os.environ))
            runs.append(json.loads(done.stdout))
    return runs


if __name__ == "__main__":
    main()
