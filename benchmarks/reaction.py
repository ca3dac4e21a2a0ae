"""How long a step of the load takes to a written Scale: `python -m benchmarks.reaction`, in seconds.

Sandbox cluster, pods on loopback addresses of their own, a real Prometheus that scrapes them, a real `fastpath scale`, and for the native
chain `fastpath serve` with the stand-in of the HorizontalPodAutoscaler controller. Each workload's load steps once, at a random moment.
Counted from that moment, at the pod, to the moment at which the API server has taken the Scale: the first one upwards (`p50`, `mean`,
`max`), and the first one that asks for all that the load needs (`all_...`).

`gauge` and `counter` are scraped directly each second, the counter's rate is over 5 s; `prometheus_quick` and `prometheus_slow` are
gauges that Prometheus scrapes each second and every 15 s; `native` is a gauge that Prometheus scrapes every 15 s for a
HorizontalPodAutoscaler that is synced every 15 s. All run at the same time. No pods come when a Scale is
written: the load of each stays what it is.
"""

import asyncio
import contextlib
import math
import random
import resource
import shutil
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from adapter.app import SystemClock
from adapter.demo import metricsource, nativehpa
from adapter.demo.metricsource import Job
from adapter.demo.nativehpa import Adapter
from adapter.demo.scalewatch import ScaleWatch
from adapter.sandbox.cluster import Cluster
from adapter.sandbox.exporter import Exporter
from adapter.sandbox.reviews import TokenVerdict
from adapter.sandbox.series import Series, SeriesSet
from adapter.sandbox.workloads import Workloads, deployment
from benchmarks import common, load
from benchmarks.common import Goal, Report
from benchmarks.stage import ROOT, Stage

CLOCK = SystemClock()
NAMESPACE = "shop"
SEED = 20_261_120
_LOW, _HIGH, _TARGET = 9.5, 19.5, 10
_WINDOW = 5.0
_QUICK = 1.0
_START_SECONDS = 90.0
_BARE = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
_RATE = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"

CASES = ("gauge", "counter", "prometheus_quick", "prometheus_slow", "native")


@dataclass(slots=True)
class Workload:
    """A Deployment and the load of each of its pods, which steps at `step` (epoch seconds)."""

    case: str
    name: str
    begun: float
    step: float = math.inf

    @property
    def series(self) -> str:
        """What its pods call their load."""
        return f"{self.case}_load" + ("_total" if self.case == "counter" else "")

    def read(self, now: float) -> float:
        """Return what a pod shows."""
        if self.case == "counter":
            return _LOW * (now - self.begun) + (_HIGH - _LOW) * max(0.0, now - self.step)
        return _HIGH if now >= self.step else _LOW


def main() -> None:
    sizes = common.parse_sizes(
        "How long a step of the load takes to a written Scale.", workloads=30, pods=2, slow=15.0, seconds=30.0
    )
    if shutil.which("prometheus") is None:
        sys.exit("this benchmark needs Prometheus; Debian's package prometheus has it")
    common.stay_on_load_core()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    goals = {
        "gauge_p50_seconds": Goal("gauge", 0.7, "s"),
        "gauge_max_seconds": Goal("gauge", 1.5, "s"),
    }
    report = Report("reaction", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        figures = asyncio.run(_run(stage, int(sizes.workloads), int(sizes.pods), sizes.slow, sizes.seconds))
    report.add(**figures)
    report.show()


async def _run(stage: Stage, count: int, pods: int, slow: float, seconds: float) -> dict[str, float]:
    begun = CLOCK.wall()
    workloads = [
        Workload(case, f"{case.replace('_', '-')}-{number}", begun) for case in CASES for number in range(count)
    ]
    async with contextlib.AsyncExitStack() as stack:
        cluster = Cluster(now=CLOCK.wall)
        await stack.enter_async_context(cluster)
        cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == load.TOKEN, "benchmark")
        for document in yaml.safe_load_all((ROOT / "manifests/crd/fastpathautoscalers.yaml").read_text()):
            cluster.create(document)
        port, addresses = await stack.enter_async_context(_pods(cluster, workloads, pods))
        quick = [address for case, address in addresses if case == "prometheus_quick"]
        others = [address for case, address in addresses if case != "prometheus_quick"]
        jobs = [Job("quick", quick, _QUICK), Job("slow", others, slow)]
        program = shutil.which("prometheus") or ""
        prometheus = await stack.enter_async_context(
            metricsource.running(program, jobs, stage.directory / "prometheus")
        )
        for workload in workloads:
            cluster.create(_autoscaler(workload, pods))
        rules = _rules(port)
        kubeconfig = cluster.kubeconfig(stage.directory / "kubeconfig")
        relist = ("--metrics-relist-interval=2s", "--metrics-max-age=2m")
        served = await asyncio.to_thread(stage.start_adapter, kubeconfig, prometheus, rules, *relist)
        await asyncio.to_thread(stage.start_scaler, kubeconfig, prometheus, rules, *relist)
        adapter = Adapter(f"https://127.0.0.1:{served.port}", stage.authority, load.TOKEN)
        spread = random.Random(SEED)
        await stack.enter_async_context(
            nativehpa.running(kubeconfig, adapter, stage.directory, CLOCK, period=slow, random=spread.random)
        )
        await _until_active(cluster, workloads, 2 * slow)
        await asyncio.sleep(_WINDOW)  # so that every rate is over a whole window
        watch = ScaleWatch(cluster, CLOCK.wall)
        begin = CLOCK.wall() + 0.5
        for workload in workloads:
            workload.step = begin + seconds * spread.random()
        await _until_written(watch, workloads, pods, begin + seconds + 4 * slow + _WINDOW + 5)
    (log,) = stage.directory.glob("scaler-*.log")
    return _figures(watch, workloads, pods, log)


@contextlib.asynccontextmanager
async def _pods(
    cluster: Cluster, workloads: Sequence[Workload], pods: int
) -> AsyncIterator[tuple[int, list[tuple[str, str]]]]:
    """Let every pod run and listen at its own address; gives their port, and what case listens at which address and port."""
    by_name = {workload.name: workload for workload in workloads}
    given: list[str] = []

    def address(_: int) -> str:
        number = len(given)
        given.append(f"127.84.{number >> 8}.{number & 255}")
        return given[-1]

    for name in by_name:
        cluster.create(deployment(name, NAMESPACE, pods))
    Workloads(cluster, startup=0.0, address=address).step(CLOCK.wall())
    async with contextlib.AsyncExitStack() as stack:
        port, addresses = 0, []
        for pod in cluster.list("Pod", NAMESPACE):
            workload = by_name[pod["metadata"]["labels"]["app"]]
            labels = {"namespace": NAMESPACE, "pod": pod["metadata"]["name"]}
            kind = "counter" if workload.case == "counter" else "gauge"
            shown = SeriesSet([Series(workload.series, labels, workload.read, type=kind)])  # type: ignore[arg-type]  # a literal
            exporter = Exporter(shown, CLOCK.wall, host=pod["status"]["podIP"], port=port)
            await stack.enter_async_context(exporter)
            port = int(exporter.address.rpartition(":")[2])
            addresses.append((workload.case, exporter.address))
        yield port, addresses


def _rules(port: int) -> dict[str, Any]:
    places = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}

    def rule(series: str, query: str = _BARE, **more: object) -> dict[str, object]:
        asked = f'{series}{{namespace!="",pod!=""}}'
        return {"seriesQuery": asked, "resources": {"overrides": places}, "metricsQuery": query, **more}

    direct = {"interval": f"{_QUICK:g}s", "window": f"{_WINDOW:g}s", "port": port}
    named = {"matches": "^(.*)_total$", "as": "${1}"}
    return {
        "rules": [
            rule("gauge_load", scrape=direct),
            rule("counter_load_total", _RATE, name=named, scrape=direct),
            *(rule(f"{case}_load") for case in CASES[2:]),
        ]
    }


def _autoscaler(workload: Workload, pods: int) -> dict[str, Any]:
    native = workload.case == "native"
    metric = {"name": f"{workload.case}_load"}
    target = {"type": "AverageValue", "averageValue": str(_TARGET)}
    return {
        "apiVersion": "autoscaling/v2" if native else "fastpath.io/v1alpha1",
        "kind": "HorizontalPodAutoscaler" if native else "FastPathAutoscaler",
        "metadata": {"name": workload.name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name},
            "minReplicas": pods,
            "maxReplicas": 5 * pods,
            "metrics": [{"type": "Pods", "pods": {"metric": metric, "target": target}}],
        },
    }


async def _until_active(cluster: Cluster, workloads: Sequence[Workload], more: float) -> None:
    """Wait until every autoscaler has read its metric."""

    def waiting() -> list[str]:
        listed = [*cluster.list("FastPathAutoscaler", NAMESPACE), *cluster.list("HorizontalPodAutoscaler", NAMESPACE)]
        active = {
            each["metadata"]["name"]
            for each in listed
            for condition in each.get("status", {}).get("conditions", ())
            if (condition["type"], condition["status"]) == ("ScalingActive", "True")
        }
        return [workload.name for workload in workloads if workload.name not in active]

    deadline = CLOCK.monotonic() + _START_SECONDS + more
    while missing := waiting():
        if CLOCK.monotonic() > deadline:
            sys.exit(f"these autoscalers never read their metric: {', '.join(missing)}")
        await asyncio.sleep(0.2)


async def _until_written(watch: ScaleWatch, workloads: Sequence[Workload], pods: int, deadline: float) -> None:
    """Wait until every workload has all that it needs, or the time is over."""
    while any(_reaction(watch, each, _needed(pods)) is None for each in workloads):
        await asyncio.sleep(0.1)
        if CLOCK.wall() > deadline:
            return


def _needed(pods: int) -> int:
    return math.ceil(pods * _HIGH / _TARGET)


def _reaction(watch: ScaleWatch, workload: Workload, least: int = 0) -> float | None:
    at = watch.raised(NAMESPACE, workload.name, workload.step, least)
    return None if at is None else at - workload.step


def _figures(watch: ScaleWatch, workloads: Sequence[Workload], pods: int, log: Path) -> dict[str, float]:
    """Return the figures of all cases. Who never wrote has no time, and is counted."""
    figures: dict[str, float] = {}
    unwritten = 0
    for case in CASES:
        mine = [each for each in workloads if each.case == case]
        for prefix, least in (("", 0), ("all_", _needed(pods))):
            found = [_reaction(watch, each, least) for each in mine]
            times = [each for each in found if each is not None]
            unwritten += len(found) - len(times)
            if not times:
                sys.exit(f"no workload of the case {case} was scaled; the scaler says:\n{log.read_text()}")
            figures[f"{case}_{prefix}p50_seconds"] = statistics.median(times)
            figures[f"{case}_{prefix}mean_seconds"] = statistics.fmean(times)
            figures[f"{case}_{prefix}max_seconds"] = max(times)
        above = sum(watch.highest(NAMESPACE, each.name, 0.0) > _needed(pods) for each in mine)
        figures[f"{case}_above_needed"] = above
    figures["unwritten"] = unwritten
    return figures


if __name__ == "__main__":
    main()
