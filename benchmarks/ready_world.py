"""The workloads of `benchmarks.ready`: their loads and queues, their rules and autoscalers.

A workload of a loaded chain has pods that share its load, which steps once. One of a chain from zero has no
pods, and a queue that gets its first work. Chains differ in their autoscaler and in what reads the metric.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks import capacity, documents
from benchmarks.capacity import PodTimes, Startup
from fastpath_sandbox.prometheus.series import Series, SeriesSet

NAMESPACE = "shop"
CHAINS = ("native", "boosted", "fast")
ZERO_CHAINS = ("zero_native", "zero_fast", "zero_scraped")
HPA_CHAINS = ("native", "boosted", "zero_native")
"""Those of a HorizontalPodAutoscaler; the others have a FastPathAutoscaler."""

STARTS = ("short", "medium", "long")

INTERVAL = 1.0
"""How often Fastpath scrapes pods and queues, in seconds."""

QUEUES = "queue-metrics"
"""The Service of the exporter of all queues."""

QUEUES_ADDRESS = "127.84.0.1"
"""Where that listens; pods of workloads have addresses from 127.85.0.0 on."""

PODS = 5
"""The pods of a workload before its load steps."""

_TARGET = 10
_LOW, _HIGH = 40.0, 97.5
"""The load of a workload. Before the step its pods are at 0.8 of their target; after it 10 are needed."""

NEEDED = math.ceil(_HIGH / _TARGET)
"""The pods that a loaded workload needs after its step."""

_BACKLOG = 8.0
"""What a queue holds after its signal: work for one pod."""

_DRAWN = 5 * PODS

Reader = Literal["prometheus", "fastpath"]


@dataclass(slots=True, eq=False)
class Pod:
    """A pod at its own address. `running`: its containers run, Ready or not."""

    name: str
    address: str
    times: PodTimes = field(default_factory=PodTimes)
    running: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Workload:
    """A Deployment, and the load or the queue that steps at `step` (epoch seconds)."""

    chain: str
    start: str
    name: str
    startups: Sequence[Startup]
    step: float = math.inf
    pods: list[Pod] = field(default_factory=list)
    """All that ever existed, oldest first."""
    asked: list[tuple[float, int]] = field(default_factory=list)
    """The counts that were written to its Scale."""

    @property
    def is_at_zero(self) -> bool:
        """Whether it has no pods before the step, and its metric is a queue."""
        return self.chain in ZERO_CHAINS

    @property
    def begin(self) -> int:
        """The pods that it is created with."""
        return 1 if self.is_at_zero else PODS

    @property
    def lowest(self) -> int:
        """The count of pods before the step."""
        return 0 if self.is_at_zero else PODS

    @property
    def needed(self) -> int:
        return 1 if self.is_at_zero else NEEDED

    @property
    def series(self) -> str:
        return f"{self.chain}_depth" if self.is_at_zero else f"{self.chain}_load"

    @property
    def reader(self) -> Reader:
        """What reads the pods' metric for its autoscaler."""
        return "prometheus" if self.chain == "native" else "fastpath"

    def load(self, now: float) -> float:
        low, high = (0.0, _BACKLOG) if self.is_at_zero else (_LOW, _HIGH)
        return high if now >= self.step else low

    def alive(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.times.ended == math.inf]

    def ready(self) -> int:
        """Return the number of its Ready pods."""
        return sum(pod.times.ready < math.inf for pod in self.alive())

    def times(self) -> capacity.WorkloadTimes:
        return capacity.WorkloadTimes(self.step, self.needed, [pod.times for pod in self.pods], self.asked)


def cast(count: int, zero: int, medians: Mapping[str, float], seed: int) -> list[Workload]:
    """Return `count` workloads for each chain and start-up time, and `zero` for each chain from zero.

    Workloads of one number follow each other, whatever their chain, and have equal start-up times.
    """
    loaded = [
        Workload(
            chain,
            start,
            f"{chain}-{start}-{number}",
            capacity.draw_startups(median, _DRAWN, f"{seed} {start} {number}"),
        )
        for number in range(count)
        for start, median in medians.items()
        for chain in CHAINS
    ]
    queues = [
        Workload(
            chain,
            STARTS[0],
            f"{chain.replace('_', '-')}-{number}",
            capacity.draw_startups(medians[STARTS[0]], _DRAWN, f"{seed} zero {number}"),
        )
        for number in range(zero)
        for chain in ZERO_CHAINS
    ]
    return [*loaded, *queues]


def queues(workloads: Sequence[Workload]) -> SeriesSet:
    """Return what the exporter of all queues shows."""
    return SeriesSet(
        Series(workload.series, {"namespace": NAMESPACE, "queue": workload.name}, workload.load)
        for workload in workloads
        if workload.is_at_zero
    )


def queue_service(port: int) -> list[dict[str, Any]]:
    """Return the pod of the exporter of all queues, and the EndpointSlice of its Service."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": QUEUES, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "exporter", "image": "exporter:1"}]},
        "status": {"phase": "Running", "podIP": QUEUES_ADDRESS},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": QUEUES,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": QUEUES},
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [QUEUES_ADDRESS],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": QUEUES},
            }
        ],
        "ports": [{"name": "metrics", "port": port, "protocol": "TCP"}],
    }
    return [pod, endpoints]


def rules(port: int, scraped: Sequence[str]) -> dict[str, Any]:
    """Return rules for all chains; those `scraped` read the pods directly at this port, or the queues."""
    interval = f"{INTERVAL:g}s"
    direct: dict[str, Any] = {"scrape": {"interval": interval, "port": port}}
    service = {"namespace": NAMESPACE, "name": QUEUES}
    of_queues: dict[str, Any] = {"scrape": {"interval": interval, "port": "metrics", "service": service}}
    return {
        "rules": [
            documents.pods_rule(f"{chain}_load", **(direct if chain in scraped else {})) for chain in CHAINS
        ],
        "externalRules": [
            documents.queue_rule(f"{chain}_depth", **(of_queues if chain in scraped else {}))
            for chain in ZERO_CHAINS
        ],
    }


def autoscaler(workload: Workload) -> dict[str, Any]:
    """Return the HorizontalPodAutoscaler or the FastPathAutoscaler of a workload."""
    metric = documents.pods_metric(workload.series, str(_TARGET))
    more: dict[str, Any] = {}
    if workload.is_at_zero:
        metric = documents.external_metric(workload.series, str(_TARGET), queue=workload.name)
        # a zero counts only if the autoscaler came to it: those of a queue do so before the run
        more = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
    more |= {"native": workload.chain in HPA_CHAINS, "boosted": workload.chain == "boosted"}
    return documents.autoscaler(workload.name, NAMESPACE, [metric], (workload.lowest, 5 * PODS), **more)
