"""Resident memory of `fastpath serve` and its time from start to ready, by the number of watched pods.

`idle` is an empty cluster with an empty Prometheus: what Python, the libraries and the code take. The pods of
the others are those of Deployments, which share their labels. The large number is repeated with pods of
StatefulSets, each of which has a label of its own.

Fastpath has the credentials of a Pod: see `benchmarks.pod`. Ready is the first `readyz` that succeeds: pods
listed, series discovered. Memory is read then, and again after every autoscaler has asked once. The peak is
over all that time.
"""

import sys
from collections.abc import Sequence

from benchmarks import common
from benchmarks.common import Goal, Report
from benchmarks.hpas import rules
from benchmarks.serve import path_of
from benchmarks.stage import Adapter, App, Stage, make_apps

_ASKING = 200
_METRIC = "http_requests_total"


def start(stage: Stage, pods: int, pods_per_app: int, owner: str) -> tuple[Adapter, Sequence[App]]:
    """Start the adapter; only the first few apps, which are returned, have series and send requests."""
    count = -(-pods // pods_per_app)
    apps = make_apps(min(_ASKING, count), pods_per_app)
    prometheus = stage.start_prometheus(apps)
    cluster = stage.start_cluster(count, pods_per_app, owner, tls=True)
    return stage.start_adapter(cluster, prometheus.url, rules([_METRIC]), pod=True), apps


def ask(stage: Stage, adapter: Adapter, apps: Sequence[App]) -> None:
    """Send the request of each app's autoscaler; a missing value ends the program."""
    for app in apps:
        status, body = stage.fetch(adapter.port, path_of(app, "http_requests_per_second"))
        if status != 200 or body.count(b'"describedObject"') != len(app.pods):
            sys.exit(f"HTTP status {status}: {body.decode()}")


def run_case(pods: int, pods_per_app: int, owner: str) -> dict[str, float]:
    """Return the figures at one number of pods."""
    with Stage() as stage:
        adapter, apps = start(stage, pods, pods_per_app, owner)
        ready = adapter.memory()
        if not pods:
            return {"start_seconds": adapter.start_seconds, "mib": ready}
        ask(stage, adapter, apps)
        return {
            "start_seconds": adapter.start_seconds,
            "ready_mib": ready,
            "asked_mib": adapter.memory(),
            "peak_mib": adapter.memory("VmHWM"),
        }


def main() -> None:
    sizes = common.parse_sizes(__doc__, small=10_000, large=100_000, pods=10, runs=3)
    common.stay_on_load_core()
    large = f"memory with {sizes.large:,} watched pods"
    goals = {
        "idle_start_seconds": Goal("time from start to ready with an empty cluster", 0.6, "s"),
        "idle_mib": Goal("memory with an empty cluster", 60, "MiB"),
        "small_start_seconds": Goal(f"time from start to ready with {sizes.small:,} pods", 3, "s"),
        "large_asked_mib": Goal(large, 120, "MiB"),
        "large_peak_mib": Goal(f"peak {large}", 400, "MiB"),
        "large_stateful_peak_mib": Goal(f"peak {large} that share no label sets", 400, "MiB"),
    }
    report = Report("memory", vars(sizes), goals)
    for case, pods, owner in (
        ("idle", 0, "Deployment"),
        ("small", sizes.small, "Deployment"),
        ("large", sizes.large, "Deployment"),
        ("large_stateful", sizes.large, "StatefulSet"),
    ):
        found = common.median_of([run_case(pods, sizes.pods, owner) for _ in range(sizes.runs)])
        report.add(**{f"{case}_{name}": value for name, value in found.items()})
    report.show()


if __name__ == "__main__":
    main()
