"""The workloads of `benchmarks.reaction`: pods whose load steps once, their rules and autoscalers.

Within a case only the moment of the step differs, and a pod's load depends on time alone.
"""

import asyncio
import contextlib
import math
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from adapter.compose.clock import SystemClock
from benchmarks import common, documents, load
from benchmarks.common import ROOT
from benchmarks.stage import Stage
from fastpath_sandbox.apiserver.reviews import TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.demo import metric_source, native_hpa
from fastpath_sandbox.demo.metric_source import Job
from fastpath_sandbox.demo.native_hpa import Adapter
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet

NAMESPACE = "shop"
CASES = ("gauge", "counter", "prometheus_quick", "prometheus_slow", "native", "boosted")
HPA_CASES = ("native", "boosted")
"""Those of a HorizontalPodAutoscaler; the others have a FastPathAutoscaler."""

INTERVAL = 1.0
"""How often pods are read, in seconds, where they are read often."""

WINDOW = 5.0
"""What the rate of a counter is over, in seconds, where pods are scraped."""

CLOCK = SystemClock()

_START_SECONDS = 90.0

_LOW, _HIGH, _TARGET = 9.5, 19.5, 10
_BOOSTED_LOW = 8.0
"""Beyond tolerance: a controller that has not seen the step would take the raise back."""


@dataclass(slots=True)
class Workload:
    """A Deployment and the load of each of its pods, which steps at `step` (epoch seconds)."""

    case: str
    name: str
    begun: float
    step: float = math.inf

    @property
    def series(self) -> str:
        """The name of its pods' load series."""
        return f"{self.case}_load" + ("_total" if self.case == "counter" else "")

    def read(self, now: float) -> float:
        """Return the value that a pod shows."""
        if self.case == "counter":
            return _LOW * (now - self.begun) + (_HIGH - _LOW) * max(0.0, now - self.step)
        low = _BOOSTED_LOW if self.case == "boosted" else _LOW
        return _HIGH if now >= self.step else low


def cast(count: int, begun: float) -> list[Workload]:
    return [
        Workload(case, f"{case.replace('_', '-')}-{number}", begun)
        for case in CASES
        for number in range(count)
    ]


def needed(pods: int) -> int:
    """Return the replicas that a workload needs after its step."""
    return math.ceil(pods * _HIGH / _TARGET)


@contextlib.asynccontextmanager
async def listening(
    cluster: Cluster, workloads: Sequence[Workload], pods: int, now: Callable[[], float]
) -> AsyncIterator[tuple[int, list[tuple[str, str]]]]:
    """Serve every pod at its own address; yield their port, and the case by address and port."""
    by_name = {workload.name: workload for workload in workloads}
    given: list[str] = []

    def address(_: int) -> str:
        number = len(given)
        given.append(f"127.84.{number >> 8}.{number & 255}")
        return given[-1]

    for name in by_name:
        cluster.create(deployment(name, NAMESPACE, pods))
    Workloads(cluster, startup=0.0, address=address).step(now())
    async with contextlib.AsyncExitStack() as stack:
        port, addresses = 0, []
        for pod in cluster.list("Pod", NAMESPACE):
            workload = by_name[pod["metadata"]["labels"]["app"]]
            labels = {"namespace": NAMESPACE, "pod": pod["metadata"]["name"]}
            kind = "counter" if workload.case == "counter" else "gauge"
            # a literal
            shown = SeriesSet([Series(workload.series, labels, workload.read, type=kind)])  # type: ignore[arg-type]
            exporter = Exporter(shown, now, host=pod["status"]["podIP"], port=port)
            await stack.enter_async_context(exporter)
            port = int(exporter.address.rpartition(":")[2])
            addresses.append((workload.case, exporter.address))
        yield port, addresses


def prepare() -> None:
    """Leave the server's core, and allow as many open files as the system does; ends without Prometheus."""
    if shutil.which("prometheus") is None:
        sys.exit("this benchmark needs Prometheus; Debian's package prometheus has it")
    common.stay_on_load_core()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def make_cluster(log_size: int = 10_000) -> Cluster:
    """Return a sandbox cluster that knows the token of callers."""
    cluster = Cluster(now=CLOCK.wall, log_size=log_size)
    cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == load.TOKEN, "benchmark")
    return cluster


def create_kind(cluster: Cluster) -> None:
    """Create the CustomResourceDefinition of FastPathAutoscalers."""
    definition = ROOT / "manifests/chart/files/crd/fastpathautoscalers.yaml"
    for document in yaml.safe_load_all(definition.read_text()):
        cluster.create(document)


@contextlib.asynccontextmanager
async def chains(
    stage: Stage,
    cluster: Cluster,
    jobs: Sequence[Job],
    rules: Sequence[dict[str, Any]],
    relist: str,
    **native: Any,
) -> AsyncIterator[None]:
    """Run Prometheus, `fastpath serve`, `fastpath scale` and a stand-in for the HPA controller.

    `rules` are those that are served, and those of the scaler; `native` are arguments of the controller.
    """
    program = shutil.which("prometheus") or ""
    async with metric_source.running(program, jobs, stage.directory / "prometheus") as prometheus:
        kubeconfig = cluster.kubeconfig(stage.directory / "kubeconfig")
        flags = (f"--metrics-relist-interval={relist}", "--metrics-max-age=2m")
        served = await asyncio.to_thread(
            stage.start_adapter, kubeconfig, prometheus, rules[0], "--serve-floors", *flags
        )
        await asyncio.to_thread(stage.start_scaler, kubeconfig, prometheus, rules[1], *flags)
        adapter = Adapter(f"https://127.0.0.1:{served.port}", stage.authority, load.TOKEN)
        async with native_hpa.running(kubeconfig, adapter, stage.directory, CLOCK, **native):
            yield


async def until(done: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; return whether it does."""
    deadline = CLOCK.monotonic() + seconds
    while not (holds := done()) and CLOCK.monotonic() < deadline:  # noqa: ASYNC110 - the sandbox sets no event
        await asyncio.sleep(0.1)
    return bool(holds)


async def until_active(cluster: Cluster, namespace: str, names: Sequence[str], more: float) -> None:
    """Wait until every autoscaler of these names has read its metric; `more` is seconds beyond the usual."""

    def waiting() -> dict[str, str]:
        found = dict.fromkeys(names, "it has no condition ScalingActive")
        for kind in ("FastPathAutoscaler", "HorizontalPodAutoscaler"):
            for each in cluster.list(kind, namespace):
                for condition in each.get("status", {}).get("conditions", ()):
                    if condition["type"] == "ScalingActive":
                        found[each["metadata"]["name"]] = condition["message"]
                        if condition["status"] == "True":
                            del found[each["metadata"]["name"]]
        return found

    if not await until(lambda: not waiting(), _START_SECONDS + more):
        name, why = next(iter(waiting().items()))
        sys.exit(f"{len(waiting())} of {len(names)} autoscalers never read their metric: {name}: {why}")


def rules(port: int, scraped: Sequence[str]) -> dict[str, Any]:
    """Return rules for all cases; pods of the cases `scraped` are read directly at this port."""
    direct = {"scrape": {"interval": f"{INTERVAL:g}s", "window": f"{WINDOW:g}s", "port": port}}

    def rule(case: str) -> dict[str, object]:
        more: dict[str, Any] = direct if case in scraped else {}
        if case != "counter":
            return documents.pods_rule(f"{case}_load", **more)
        name = {"matches": "^(.*)_total$", "as": "${1}"}
        return documents.pods_rule(f"{case}_load_total", documents.RATE, name=name, **more)

    return {"rules": [rule(case) for case in CASES]}


def autoscaler(workload: Workload, pods: int) -> dict[str, Any]:
    case, metric = workload.case, documents.pods_metric(f"{workload.case}_load", str(_TARGET))
    kind = {"native": case in HPA_CASES, "boosted": case == "boosted"}
    return documents.autoscaler(workload.name, NAMESPACE, [metric], (pods, 5 * pods), **kind)
