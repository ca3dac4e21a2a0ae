"""One tick of the scaler: `python -m benchmarks.tick`, for 10,000 autoscalers with 10 pods each.

The unit is seconds of one core. The values are in the provider already, as after a round of scrapes. The
measured time covers all that follows, once for every autoscaler: pods and target from their caches, the
reading, the decision, its history and its reports. `steady` has nothing to change, `limited` is held back at
every tick, `cpu` computes shares of requests. Values stay the same from tick to tick, and in the cases
`changing` all of them are others, as after a round of scrapes. Decoding is stated beside it: the pods and
the autoscalers as the API server lists them. The unit is CPU time, so that a busy machine gives valid figures
too.
"""

# ruff: noqa: ARG002 - caches that are full ignore their arguments

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.controller.reporter import Journal
from adapter.autoscaler.decide.observation import PodsReading, Reading, Settings
from adapter.autoscaler.inputs.follower import TargetFollowers
from adapter.autoscaler.inputs.snapshot import AutoscalerContext
from adapter.autoscaler.inputs.sources import MetricSource, ReadContext, Subscriber
from adapter.autoscaler.interfaces import Forecasts
from adapter.errors import KubernetesError
from adapter.kubernetes.cache.pod_selections import Follower
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.writer import WriteRateLimiter
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricSpec, decode_scalar
from adapter.model.clock import DecisionClock
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.pods import Container, Pod, PodFacts, PodList, ResourceRequirements, facts_of
from adapter.model.quantity import read
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from benchmarks import common, documents
from benchmarks.common import Goal, Report
from tests.support.controller import HandClock, NoForecasts
from tests.support.scaling import NOW

_SAMPLE_AGE = 0.5


class World:
    """Filled caches: targets, pods by selector, values by pod."""

    def __init__(self, pods: int, value: int) -> None:
        self.pods = pods
        self.value = value
        containers = (Container("app", ResourceRequirements({"cpu": read("500m")})),)
        started = NOW - 3600 * 1_000_000_000
        self._facts = {
            "containers": containers,
            "started": started,
            "ready": "True",
            "ready_since": started + 1_000_000_000,
        }
        self.writes = 0
        self._sources: list[_Source] = []

    def set_value(self, value: int) -> None:
        """Have all metrics say so much of each pod."""
        self.value = value
        for source in self._sources:
            source.set_value(value)

    # targets

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> "_Followed":
        path = f"/apis/apps/v1/namespaces/default/deployments/{reference.name}/scale"
        return _Followed(ScaleTarget(self.pods, self.pods, f"app={reference.name}", "1", "fastpath", path))

    # sources

    def open(self, metric: MetricSpec, site: Subscriber) -> "_Source":
        source = _Source(self, site)
        self._sources.append(source)
        return source

    # rivals

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...]:
        return ()

    # actuator

    async def acquire(self, target: ScaleTarget) -> None:
        pass

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        self.writes += 1
        raise KubernetesError(403, "Forbidden", "nothing is written here")

    def _ignore(self, *_: object) -> None:
        pass

    give_back = status = event = forget = _ignore


class _Followed:
    def __init__(self, target: ScaleTarget) -> None:
        self._target = target

    def find(self) -> ScaleTarget:
        return self._target

    def close(self) -> None:
        pass


class _Following:
    def __init__(self, pods: Sequence[PodFacts], autoscaler: str) -> None:
        self.pods = pods
        self.selected_by = (autoscaler,)
        self.became_ready: dict[str, float] = {}

    def min_ready(self, age: int) -> int | None:
        return len(self.pods)

    def max_ready(self, age: int) -> int:
        return len(self.pods)

    def leave(self, follower: Follower) -> None:
        pass


class Pods:
    def __init__(self, world: World) -> None:
        self._world = world

    def follow(self, namespace: str, selector: LabelSelector, follower: Follower) -> _Following:
        name = selector.requirements[0].values[0]
        facts: dict[str, Any] = self._world._facts  # noqa: SLF001 - the same file
        pods = PodList(PodFacts(f"{name}-{number}", **facts) for number in range(self._world.pods))
        return _Following(pods, follower.autoscaler)

    def stale(self) -> str:
        return ""


class _Source(MetricSource):
    """A metric source with a value for each pod by name; each call builds a new reading."""

    def __init__(self, world: World, site: Subscriber) -> None:
        super().__init__()
        self._world = world
        self._values = dict.fromkeys(site.names(), world.value)
        self.span = 1_000_000_000

    def set_value(self, value: int) -> None:
        self._values = dict.fromkeys(self._values, value)

    def read(self, view: ReadContext) -> Reading:
        values = self._values
        self.sampled = taken = view.now - round(_SAMPLE_AGE * 1e9)
        return PodsReading(
            {name: values[name] for name in values}, dict.fromkeys(values, (taken, 1_000_000_000))
        )

    def close(self) -> None:
        pass


_METRICS: dict[str, dict[str, object]] = {
    "pods": documents.pods_metric("requests_per_second", "20"),
    "cpu": {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    },
}
_CASES = {"steady": ("pods", 20_400), "limited": ("pods", 90_000), "cpu": ("cpu", 310)}
_MOST_CHANGE = 20
"""By how much a value changes at most, in thousandths: the shares of cpu stay within tolerance."""


def main() -> None:
    sizes = common.parse_sizes("One tick of the scaler.", autoscalers=10_000, pods=10, ticks=5, runs=3)
    os.sched_setaffinity(0, {common.SERVER_CORE})
    tick = (
        f"decision round of {sizes.autoscalers:,} autoscalers of {sizes.pods} pods, on one core, "
        "with cached values"
    )
    goals = {f"tick_{name}_seconds": Goal(f"{tick}: {name}", 0.5, "s") for name in _CASES}
    report = Report("tick", vars(sizes), goals)
    count, pods, ticks = int(sizes.autoscalers), int(sizes.pods), int(sizes.ticks)
    for change in (0, _MOST_CHANGE):
        for name, (metric, value) in _CASES.items():
            figure = f"tick_{name}{'_changing' if change else ''}_seconds"
            times = [
                asyncio.run(_tick(count, pods, ticks, _METRICS[metric], value, change))
                for _ in range(int(sizes.runs))
            ]
            report.add(**common.median_of([{figure: each} for each in times]))
    report.add(**_decode(count, pods))
    report.add(peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    report.show()


def autoscaler(number: int, pods: int, metric: dict[str, object]) -> dict[str, Any]:
    """Return an autoscaler that never writes."""
    name = f"web{number}"
    # as many as there are: where more is wanted, every tick is limited; nothing is ever written
    document = documents.autoscaler(name, "default", [metric], (1, pods))
    document["metadata"] |= {"uid": name, "resourceVersion": "1"}
    return document


def open_controller(
    clock: HandClock,
    world: World,
    forecasts: Forecasts,
    monitoring: Monitoring,
    numbers: Sequence[int] = range(slices.COUNT),
    **caches: Any,
) -> Controller:
    """Return a controller of some slices whose writes go to the world, and what `caches` lack comes from it.

    Nothing is boosted, and no pod has a deletion cost.
    """
    hand: Any = world  # all that a tick calls
    full = {"followers": TargetFollowers(hand, Pods(world)), "rivals": hand, "changes": Changes()}  # type: ignore[arg-type]  # pods that are full
    settings = Settings(scale_to_zero=True, strict=True)
    context = AutoscalerContext(
        sources=hand, settings=settings, clock=DecisionClock(clock), forecasts=forecasts, **full | caches
    )
    limiter, unused = WriteRateLimiter(1_000.0, clock, monitoring), cast("Any", None)
    outbox = Outbox(limiter, clock, monitoring, Defects(monitoring))
    costs = CostKeeper(outbox, hand)
    controller = Controller(context, hand, monitoring, Journal(), random=lambda: 0.0, costs=costs)
    for number in numbers:
        controller.begin(number, unused)
    return controller


async def decide_all(controller: Controller) -> float:
    """Decide what is due; return the processor seconds."""
    start = time.process_time()
    await controller.loop.tick()
    return time.process_time() - start


def close(controller: Controller) -> None:
    for number in list(controller.slices):
        controller.drop(number)


async def _tick(
    count: int, pods: int, ticks: int, metric: dict[str, object], value: int, change: int = 0
) -> float:
    """Return the seconds of each tick after the first; between two, values change by `change` at most."""
    clock = HandClock()
    world = World(pods, value)
    controller = open_controller(clock, world, NoForecasts(), Monitoring())
    for number in range(count):
        controller.put(
            msgspec.convert(autoscaler(number, pods, metric), FastPathAutoscaler, dec_hook=decode_scalar)
        )
    await controller.loop.tick()
    gc.collect()
    gc.freeze()
    seconds = 0.0
    for number in range(ticks):
        clock.seconds += 1.0
        if change:
            world.set_value(value + number % change + 1)
        seconds += await decide_all(controller)
    decided = sum(
        state.last is not None and state.last.time == controller.loop.clock.time_of_day()
        for key in controller.names()
        if (state := controller.find(key))
    )
    assert decided == count, f"{decided} of {count} were decided"
    assert not world.writes, "a tick that writes is another measurement"
    close(controller)
    gc.unfreeze()
    return seconds / ticks


def _decode(count: int, pods: int) -> dict[str, float]:
    """Return the time to decode all autoscalers and all pods once."""
    autoscalers = msgspec.json.encode([autoscaler(number, pods, _METRICS["pods"]) for number in range(count)])
    listed = msgspec.json.encode([_pod(number) for number in range(count * pods)])
    start = time.process_time()
    msgspec.json.decode(autoscalers, type=list[FastPathAutoscaler], dec_hook=decode_scalar)
    middle = time.process_time()
    facts = [*map(facts_of, msgspec.json.decode(listed, type=list[Pod], dec_hook=decode_scalar))]
    end = time.process_time()
    assert len(facts) == count * pods
    return {"decode_autoscalers_seconds": middle - start, "decode_pods_seconds": end - middle}


def _pod(number: int) -> dict[str, object]:
    return {
        "metadata": {"name": f"web-{number}", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "500m"}}}]},
        "status": {
            "phase": "Running",
            "startTime": "2026-11-20T11:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T11:00:01Z"}],
        },
    }


if __name__ == "__main__":
    main()
