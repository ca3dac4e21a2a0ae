"""From zero to one: the time from a queue's first message to the written Scale: `python -m benchmarks.wake`.

One exporter shows the lengths of all queues, one for each Deployment; `fastpath scale` reads it through the
EndpointSlice of its Service, each second. The empty queues scale the Deployments to zero, and then each queue
fills once, at a random moment. The time counts from that moment, at the exporter, until the API server has
taken the Scale. Prometheus runs and scrapes nothing.

Then all queues are emptied, the exporter goes away and the queues fill again: `woken_without` counts the
Deployments that are scaled although nothing can be known of them, and `reasons_without` those whose condition
names the Service.
"""

import asyncio
import contextlib
import random
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from adapter.compose.clock import SystemClock
from benchmarks import common, stepping
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import ScaleWatch, Workloads, deployment
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet

CLOCK = SystemClock()
SEED = 20_261_123
NAMESPACE = "shop"
SOURCE = "queues"
ADDRESS = "127.85.0.1"
_START_SECONDS = 60.0
_STOPPED_SECONDS = 8.0

RULE = {
    "seriesQuery": 'queue_length{queue!=""}',
    "resources": {"namespaced": False},
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
    "scrape": {"service": {"namespace": SOURCE, "name": "exporter"}, "port": "metrics", "interval": "1s"},
}


def main() -> None:
    sizes = common.parse_sizes("How long zero to one takes.", workloads=30, seconds=30.0)
    common.stay_on_load_core()
    what = f"zero to one, {int(sizes.workloads)} workloads, a queue exporter scraped every second"
    goals = {
        "wake_p50_seconds": Goal(f"{what}: p50", 1.5, "s"),
        "wake_max_seconds": Goal(f"{what}: longest", 2.5, "s"),
        "woken_without": Goal("workloads scaled from zero without an exporter", 0, ""),
    }
    report = Report("wake", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        report.add(**asyncio.run(_run(stage, int(sizes.workloads), sizes.seconds)))
    report.show()


class Queues:
    """The queues by name: when each fills and empties, in epoch seconds."""

    def __init__(self, names: Sequence[str]) -> None:
        self.filled = dict.fromkeys(names, float("inf"))
        self.emptied = float("inf")

    def length_of(self, name: str) -> Callable[[float], float]:
        return lambda now: 5.0 if self.filled[name] <= now < self.emptied else 0.0


def autoscaler(name: str) -> dict[str, Any]:
    metric = {"name": "queue_length", "selector": {"matchLabels": {"queue": name}}}
    target = {"type": "AverageValue", "averageValue": "10"}
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 0,
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


def endpoint_slice(pod: str, port: int, *, ready: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "exporter-1",
            "namespace": SOURCE,
            "labels": {"kubernetes.io/service-name": "exporter"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": port, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [ADDRESS],
                "conditions": {"ready": ready},
                "targetRef": {"kind": "Pod", "namespace": SOURCE, "name": pod},
            }
        ],
    }


@contextlib.asynccontextmanager
async def exporting(cluster: Cluster, queues: Queues) -> AsyncIterator[str]:
    """Run the exporter in a pod of its own, as an endpoint of its Service; yield the name of the pod."""
    cluster.create(deployment("exporter", SOURCE))
    Workloads(cluster, startup=0.0, address=lambda _: ADDRESS).step(CLOCK.wall())
    (pod,) = (each["metadata"]["name"] for each in cluster.list("Pod", SOURCE))
    series = [Series("queue_length", {"queue": name}, queues.length_of(name)) for name in queues.filled]
    exporter = Exporter(SeriesSet(series), CLOCK.wall, host=ADDRESS)
    async with exporter:
        cluster.create(endpoint_slice(pod, int(exporter.address.rpartition(":")[2])))
        yield pod


async def _run(stage: Stage, count: int, seconds: float) -> dict[str, float]:
    names = [f"worker-{number}" for number in range(count)]
    queues = Queues(names)
    spread = random.Random(SEED)
    async with Cluster(now=CLOCK.wall) as cluster:
        stepping.create_kind(cluster)
        for name in names:
            cluster.create(deployment(name, NAMESPACE))
        async with exporting(cluster, queues):
            for name in names:
                cluster.create(autoscaler(name))
            kubeconfig = cluster.kubeconfig(stage.directory / "kubeconfig")
            prometheus = await asyncio.to_thread(stage.start_prometheus)
            await asyncio.to_thread(stage.start_scaler, kubeconfig, prometheus.url, {"externalRules": [RULE]})
            await _until(lambda: _sleeps(cluster), _START_SECONDS)
            watch = ScaleWatch(cluster, CLOCK.wall)
            begin = CLOCK.wall() + 0.5
            for name in names:
                queues.filled[name] = begin + seconds * spread.random()
            await _until(
                lambda: all(_raised(watch, name, queues.filled[name]) is not None for name in names),
                seconds + 10,
            )
            times = [_raised(watch, name, queues.filled[name]) for name in names]
            queues.emptied = CLOCK.wall()
            await _until(lambda: _sleeps(cluster), _START_SECONDS)
        for each in cluster.list("EndpointSlice", SOURCE):  # as the controller does without ready pods
            cluster.delete("EndpointSlice", each["metadata"]["name"], SOURCE)
        gone = CLOCK.wall()
        await asyncio.sleep(_STOPPED_SECONDS)
        without = [name for name in names if _raised(watch, name, gone) is not None]
        said = [each for each in _conditions(cluster, "False") if f"{SOURCE}/exporter" in each]
    if said:
        print(f"without an exporter: {said[0]}")
    found = [each for each in times if each is not None]
    if not found:
        sys.exit("no workload was scaled")
    return {
        "wake_p50_seconds": statistics.median(found),
        "wake_mean_seconds": statistics.fmean(found),
        "wake_max_seconds": max(found),
        "not_woken": count - len(found),
        "woken_without": len(without),
        "reasons_without": len(said),
    }


def _sleeps(cluster: Cluster) -> bool:
    return all(not each["spec"]["replicas"] for each in cluster.list("Deployment", NAMESPACE))


def _conditions(cluster: Cluster, status: str) -> list[str]:
    """Return the messages of the ScalingActive conditions with this status."""
    return [
        condition["message"]
        for each in cluster.list("FastPathAutoscaler", NAMESPACE)
        for condition in each.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("ScalingActive", status)
    ]


def _raised(watch: ScaleWatch, name: str, since: float) -> float | None:
    at = watch.raised(NAMESPACE, name, since, 1)
    return None if at is None else at - since


async def _until(done: Callable[[], bool], seconds: float) -> None:
    deadline = CLOCK.monotonic() + seconds
    while not done() and CLOCK.monotonic() < deadline:  # noqa: ASYNC110 - the sandbox sets no event
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
