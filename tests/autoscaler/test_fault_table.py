"""The table of faults: each fault x each kind of metric x growing, shrinking, steady.

Total absence, stale and failed values never shrink a workload; with some pods missing nothing goes below what
upstream's own repair gives for the same input; limits hold; and when the fault is over all goes on by itself.
Sources, feeds, decisions and the loop are the real ones, on a loop whose time a test does not wait for; below
them stands a provider that fails on demand.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.decide import decision
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import Observation, PodsReading, Settings
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.interfaces import Key
from adapter.errors import InternalError, NotFoundError
from adapter.model import metrics
from adapter.model.objects.pods import PodList
from adapter.model.objects.resources import BUILTIN
from adapter.model.timestamps import SECOND
from adapter.provider import reader
from adapter.provider.reader import Values
from adapter.rules.query import milli_of
from adapter.scrape.readings import ScrapedAnswer, ScrapedValue
from adapter.telemetry.problems import Defects
from tests.autoscaler.inputs.sources_bench import CONTAINER
from tests.autoscaler.looped import HandLoopClock
from tests.support.controller import Bench, fpa
from tests.support.scaling import NOW, cpu_metric, external_metric, hpa, object_metric, pods, pods_metric
from tests.support.world import FRESHNESS, object_values, series_values

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(30)]

REPLICAS, MOST = 4, 7
INTERVAL = 5.0
NO_WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}


class MetricKind(NamedTuple):
    """A kind of metric. `per_pod`: it has a value for each pod; `scraped`: read from the pods themselves.

    `own`: the pods' own usage is scraped beside that of their containers.
    """

    spec: dict[str, Any]
    per_pod: bool = True
    scraped: bool = False
    own: bool = False


KINDS = {
    "Pods": MetricKind(pods_metric("10")),
    "Pods scraped": MetricKind(pods_metric("10"), scraped=True),
    "Object Value": MetricKind(object_metric("Value", value="10"), per_pod=False),
    "Object AverageValue": MetricKind(object_metric("AverageValue", averageValue="10"), per_pod=False),
    "External Value": MetricKind(external_metric(value="10"), per_pod=False),
    "External AverageValue": MetricKind(external_metric(averageValue="10"), per_pod=False),
    "Resource": MetricKind(cpu_metric(50)),
    "ContainerResource": MetricKind(CONTAINER),
    "Resource and own": MetricKind(cpu_metric(50), own=True),
}

# fault: the kinds that it affects
FAULTS: dict[str, Callable[[MetricKind, str], bool]] = {
    "Prometheus fails": lambda kind, _: not kind.scraped,
    "Prometheus never answers": lambda kind, _: not kind.scraped,
    "empty result": lambda _kind, _: True,
    "no numbers": lambda _kind, name: "Resource" not in name,
    "stale samples": lambda kind, _: not kind.scraped,
    "ages unknown": lambda kind, _: not kind.scraped,
    "partial answers": lambda kind, _: not kind.scraped,
    "negative": lambda _kind, _: True,
    "overflow": lambda _kind, _: True,
    "scrapes overdue": lambda kind, _: kind.scraped or kind.own,
    "own usage missing": lambda kind, _: kind.own,
    "pods not watched": lambda _kind, _: True,
    "target unknown": lambda _kind, _: True,
    "other autoscaler unknown": lambda _kind, _: True,
}

MAY_GROW = {"scrapes overdue", "ages unknown", "partial answers", "pods not watched"}
"""What is out of date, or may lack a part, may raise."""

OWN_MAY_GROW = MAY_GROW | {
    *("Prometheus fails", "Prometheus never answers", "stale samples", "own usage missing")
}
"""The pods' own usage raises without that of their containers, and the other way round."""

OWN_FAULTS = {"scrapes overdue", "own usage missing"}
"""Faults of the own usage alone: the usage of containers decides as without it."""

DIRECTIONS = {"growing": 2.0, "shrinking": 0.45, "steady": 1.0}

CASES = [
    pytest.param(fault, name, direction, id=f"{fault}-{name}-{direction}")
    for fault, affects in FAULTS.items()
    for name, kind in KINDS.items()
    if affects(kind, name)
    for direction in DIRECTIONS
]


class FaultyWorkload(Bench):
    """A workload of one autoscaler under a load, and the faults between it and its metric."""

    freshness = FRESHNESS

    def __init__(self, name: str) -> None:
        super().__init__()
        self.kind = KINDS[name]
        self.name = name
        self.clock = HandLoopClock()
        self.clock.skew = NOW / SECOND - self.clock.monotonic()
        self.load = 1.0
        self.fault = ""
        self.missing: Collection[str] = ()
        self.frozen = 0.0
        self.counts = [REPLICAS]
        self.ready: list[tuple[float, int]] = []
        self.pods.ready = lambda age: min(self.ready_within(age), default=None)
        self.pods.most = lambda age: max(self.ready_within(age), default=0)

    @property
    def replicas(self) -> int:
        return self.server.scales["web"].replicas

    @property
    def names(self) -> list[str]:
        return [f"web-{number}" for number in range(self.replicas)]

    def value(self) -> float:
        """What each pod shows of a load that `REPLICAS` pods would bear at target, or the whole value."""
        share = self.load * REPLICAS / self.replicas
        if self.kind.per_pod or self.name.endswith(" Value"):
            return 10 * share
        return 10 * self.load * REPLICAS

    def ready_within(self, age: int) -> list[int]:
        """How many pods were ready at any time within the last nanoseconds."""
        since = self.clock.monotonic() - age / SECOND
        before = [count for at, count in self.ready if at <= since][-1:]
        return before + [count for at, count in self.ready if at > since]

    def milli(self) -> int:
        if self.fault == "negative":
            return -5000
        if self.fault == "overflow":
            return 2**62
        return round(self.value() * 1000)

    def taken(self) -> float:
        """When the last sample was taken."""
        now = self.frozen if self.fault == "stale samples" else self.clock.wall()
        return now // INTERVAL * INTERVAL

    async def fail(self) -> None:
        if self.fault == "Prometheus fails":
            raise InternalError("unable to fetch metrics")
        if self.fault == "Prometheus never answers":
            await asyncio.Event().wait()

    # the provider

    async def sample_objects(
        self, question: metrics.CustomQuestion, names: tuple[str, ...], ttl: float
    ) -> Values[tuple[str, int]]:
        await self.fail()
        if self.fault in {"empty result", "no numbers"}:
            return object_values({}, {}, 0.0, None)
        present = [name for name in names if name not in self.missing]
        times = {} if self.fault == "ages unknown" else dict.fromkeys(present, self.taken())
        return object_values(dict.fromkeys(present, self.milli()), times, 0.0, None, overdue=self.overdue)

    async def sample_series(
        self, question: metrics.ExternalQuestion, ttl: float
    ) -> Values[metrics.ExternalValue]:
        await self.fail()
        if self.fault == "no numbers":
            raise NotFoundError("a series of queue has no value")
        if self.fault == "empty result":
            return series_values((), None, 0.0, None)
        values = (self.milli(), self.milli()) if self.fault == "overflow" else (self.milli(),)
        time = None if self.fault == "ages unknown" else self.taken()
        return series_values(values, time, 0.0, None, overdue=self.overdue)

    @property
    def overdue(self) -> str:
        return reader.PARTIAL if self.fault == "partial answers" else ""

    @property
    def answers(self) -> bool:
        return True

    async def resource(
        self, question: metrics.ResourceQuestion, ttl: float | None = None
    ) -> metrics.ResourceAnswer:
        await self.fail()
        now = self.clock.wall()
        if self.fault == "empty result":
            return metrics.ResourceAnswer((), 15.0, now, 0.0)
        # half a core at target, of the core that each pod asks for
        used = self.milli() if self.fault in {"negative", "overflow"} else round(self.value() * 50)
        usage = metrics.Usage(used, 0)
        items = tuple(
            metrics.ObjectUsage("default", name, {}, now, usage, (metrics.ContainerUsage("app", usage),))
            for name in self.names
            if name not in self.missing
        )
        times = {} if self.fault == "ages unknown" else {item.name: self.taken() for item in items}
        return metrics.ResourceAnswer(
            items, 15.0, now, 0.0, partial=self.fault == "partial answers", times=times
        )

    # scrapes

    def follow(self) -> None:
        pass

    def entry_of(self, metric: str) -> object:
        return ENTRY

    def find_usage(self) -> object:
        return OWN if self.kind.own else None

    def covered_seconds(self, entry: object) -> float:
        return 5.0

    def span_of(self, entry: object) -> int:
        return SECOND

    def read(
        self, entry: object, namespace: str, names: Iterable[str], selector: Sequence[object]
    ) -> ScrapedAnswer:
        present = [name for name in names if name not in self.missing]
        if self.fault in {"empty result", "own usage missing"}:
            return ScrapedAnswer({}, dict.fromkeys(present, self.clock.wall()))
        value = float("nan") if self.fault == "no numbers" else self.milli() / 1000
        if self.kind.own and self.fault not in {"negative", "overflow"}:
            value = self.value() * 0.05  # cores, as of `resource`
        overdue = self.fault == "scrapes overdue"
        found = {name: ScrapedValue(value, self.clock.wall(), overdue) for name in present}
        return ScrapedAnswer(found, dict.fromkeys(self.missing, self.clock.wall()))

    def reason_of(self, entry: object, namespace: str, name: str) -> str:
        return ""

    # the cluster

    def settle(self) -> None:
        """Let caches and pods follow what was written, unless a fault keeps them."""
        if not self.ready or self.ready[-1][1] != self.replicas:
            self.ready.append((self.clock.monotonic(), self.replicas))
            self.pods.pods["app=web"] = PodList(pods(self.replicas))
        self.counts.append(self.replicas)
        if self.fault == "target unknown":
            self.server.cached.pop("web", None)
        else:
            self.server.tell("web")
        self.pods.why_stale = "silence" if self.fault == "pods not watched" else ""
        self.rivals.names = None if self.fault == "other autoscaler unknown" else ()


ENTRY = SimpleNamespace(rule=SimpleNamespace(milli=partial(milli_of, nan_is_zero=False)))
ACCESS = SimpleNamespace(access=SimpleNamespace(port="metrics"))
RULE = SimpleNamespace(path="resourceRules.cpu.scrape", config=SimpleNamespace(scrape=ACCESS))
OWN = SimpleNamespace(container="", rule=RULE)


@contextlib.asynccontextmanager
async def running(world: FaultyWorkload, **spec: Any) -> AsyncIterator[Controller]:
    world.server.set("web", REPLICAS)
    world.settle()

    def answered(keys: Iterable[Key]) -> None:
        for key in keys:
            world.controller.loop.touch(key)

    async with Poller(
        world.clock, per_second=20.0, answered=answered, defects=Defects(world.monitoring)
    ) as feeds:
        scraped: Any = world if world.kind.scraped or world.kind.own else None
        provider: Any = world
        api: Any = None
        sources: Any = SourceFactory(provider, provider, api, lambda: BUILTIN, scraped, feeds)
        world.sources = sources
        controller = world.start()
        controller.put(fpa([world.kind.spec], minReplicas=1, maxReplicas=MOST, behavior=NO_WINDOW, **spec))
        task = asyncio.create_task(controller.loop.run())
        try:
            yield controller
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            world.close()


async def live(world: FaultyWorkload, seconds: float) -> None:
    """Let time pass, the cluster following twice a second."""
    for _ in range(int(seconds * 2)):
        await asyncio.sleep(0.5)
        world.settle()


@pytest.mark.parametrize(("fault", "name", "direction"), CASES)
async def test_faults(fault: str, name: str, direction: str) -> None:
    world = FaultyWorkload(name)
    wanted = {"growing": MOST, "shrinking": 2, "steady": REPLICAS}[direction]
    may_grow = fault in (OWN_MAY_GROW if world.kind.own else MAY_GROW)
    async with running(world):
        await live(world, 90 if world.kind.own else 30)  # until what is measured is known
        assert world.counts[-1] == REPLICAS
        world.frozen = world.clock.wall()
        world.fault = fault
        world.settle()
        if fault in {"Prometheus fails", "Prometheus never answers", "stale samples"}:
            await live(world, 30)  # until what was asked before has lost its worth
            assert min(world.counts) >= REPLICAS
        world.load = DIRECTIONS[direction]
        await live(world, 60)
        if world.kind.own and fault in OWN_FAULTS:
            assert min(world.counts) == min(wanted, REPLICAS)
        else:
            assert min(world.counts) >= REPLICAS
        assert max(world.counts) <= (MOST if may_grow else REPLICAS)
        if may_grow and direction == "growing":
            assert world.replicas == MOST

        world.fault = ""
        await live(world, 90)
        assert world.replicas == wanted


PER_POD = [name for name, kind in KINDS.items() if kind.per_pod]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("name", PER_POD)
async def test_some_pods_without_a_value(name: str, missing: int, direction: str) -> None:
    """Never below what upstream's own repair gives for the same input."""
    world = FaultyWorkload(name)
    async with running(world):
        await live(world, 30)
        world.missing = [f"web-{number}" for number in range(missing)]
        world.load = DIRECTIONS[direction]
        await live(world, 30)
        floor = upstream(world, missing, DIRECTIONS[direction])
        assert world.counts[60:]
        assert min(world.counts) >= floor
        assert max(world.counts) <= MOST

        world.missing = ()
        await live(world, 60)
        assert world.replicas == {"growing": MOST, "shrinking": 2, "steady": REPLICAS}[direction]


def upstream(world: FaultyWorkload, missing: int, load: float) -> int:
    """Return the lowest count of upstream's controller, sync after sync, while the same pods are missing."""
    spec = hpa([world.kind.spec], minReplicas=1, maxReplicas=MOST, behavior=NO_WINDOW)
    autoscaler, counts = prepare(spec, Settings()), [REPLICAS]
    for _ in range(20):
        count = counts[-1]
        value = round(load * REPLICAS / count * (500 if "Resource" in world.name else 10_000))
        values = {f"web-{number}": value for number in range(missing, count)}
        reading = PodsReading(values, dict.fromkeys(values, (NOW, 15 * SECOND)))
        seen = Observation(count, count, "app=web", pods(count), [reading])
        counts.append(decision.decide(autoscaler, seen, History(), NOW).replicas)
    return min(counts)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_one_metric_fails_and_another_is_fresh(direction: str) -> None:
    """The fresh one may raise; while the other has no value nothing shrinks."""
    world = FaultyWorkload("External AverageValue")
    world.kind = MetricKind(external_metric(averageValue="10"), per_pod=False)
    async with running(world) as controller:
        both = [external_metric(averageValue="10"), pods_metric("10")]
        controller.put(fpa(both, minReplicas=1, maxReplicas=MOST, behavior=NO_WINDOW))
        original = world.sample_objects

        async def broken(
            question: metrics.CustomQuestion, names: tuple[str, ...], ttl: float
        ) -> Values[tuple[str, int]]:
            raise InternalError("unable to fetch metrics")

        world.sample_objects = broken  # type: ignore[method-assign]  # the other metric alone
        world.load = DIRECTIONS[direction]
        await live(world, 60)
        assert min(world.counts) >= REPLICAS
        assert world.replicas == (MOST if direction == "growing" else REPLICAS)

        world.sample_objects = original  # type: ignore[method-assign]  # as above
        await live(world, 60)
        assert world.replicas >= {"growing": MOST, "shrinking": 2, "steady": REPLICAS}[direction]


class Sampled(FaultyWorkload):
    """A workload whose metric is sampled from time to time, and shows the last sample until the next one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.every = 1.0 if self.kind.scraped else 15.0
        self.sample = (-1.0, 0.0)

    def taken(self) -> float:
        return self.clock.wall() // self.every * self.every

    def value(self) -> float:
        if self.sample[0] != self.taken():
            self.sample = (self.taken(), super().value())
        return self.sample[1]


@pytest.mark.parametrize("name", KINDS)
async def test_a_sample_from_before_a_shrink_does_not_shrink_again(name: str) -> None:
    """The load is worth 3 pods; a sample of 4 pods, multiplied by those that are left, would be worth 2."""
    world = Sampled(name)
    async with running(world):
        await live(world, 60)
        world.load = 0.55
        await live(world, 90)
        assert min(world.counts) == world.replicas == 3


class Restarted(FaultyWorkload):
    """Two series of a sum: after Prometheus lost all data, the second is scraped later than the first."""

    LATER = 4.0

    def __init__(self, name: str, samples: int) -> None:
        super().__init__(name)
        self.samples = samples
        self.back = 0.0

    async def sample_series(
        self, question: metrics.ExternalQuestion, ttl: float
    ) -> Values[metrics.ExternalValue]:
        await self.fail()
        since = self.clock.wall() - self.back
        oldest = since // INTERVAL * INTERVAL
        if since >= self.LATER:
            oldest = min(oldest, self.LATER + (since - self.LATER) // INTERVAL * INTERVAL)
        count = 2 if since >= self.LATER + (self.samples - 1) * INTERVAL else 1
        return series_values((self.milli() // 2,) * count, self.back + oldest, 0.0, None)


@pytest.mark.parametrize("samples", [pytest.param(1, id="gauge"), pytest.param(2, id="rate")])
@pytest.mark.parametrize("load", [1.0, 0.5])
async def test_series_that_are_not_back_yet_do_not_shrink(load: float, samples: int) -> None:
    world = Restarted("External AverageValue", samples)
    async with running(world):
        await live(world, 30)
        assert world.replicas == REPLICAS
        world.fault = "Prometheus fails"
        await live(world, 30)
        world.load = load
        world.back = world.clock.wall()
        world.fault = ""
        await live(world, 60)
        assert min(world.counts) == world.replicas == REPLICAS * load


class Remembered(FaultyWorkload):
    """What Prometheus answers is the load at the time that it is asked about."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.grew = math.inf

    def value(self) -> float:
        self.load = 1.0 if self.taken() >= self.grew else 0.5
        return super().value()


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.scraped])
async def test_a_clock_that_is_set_back_brings_no_old_values(name: str) -> None:
    world = Remembered(name)
    async with running(world):
        await live(world, 60)
        assert world.replicas == 2
        world.grew = world.clock.wall()
        await live(world, 60)
        assert world.replicas == REPLICAS
        since = len(world.counts)
        world.clock.skew -= 120
        await live(world, 60)
        assert min(world.counts[since:]) == REPLICAS
        world.clock.skew += 120
        world.grew = math.inf
        await live(world, 90)
        assert world.replicas == 2
