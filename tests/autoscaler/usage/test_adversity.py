"""Pods whose own usage misleads, from scrape to decision: no raise beyond `behavior`, and never a shrink.

The pods share a demand, and the decisions of an autoscaler that reads their usage are carried out. The
metrics API has a mean each 15 s. Beside each decision the same one is made without the pods' own usage.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import Observation, usual_way
from adapter.autoscaler.inputs.sources import ReadContext
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.objects.pods import PodFacts
from adapter.model.timestamps import SECOND
from adapter.scrape.readings import OwnUsage
from tests.autoscaler.inputs.sources_bench import SourceBench, bench
from tests.autoscaler.usage.test_source import RULES, serve
from tests.support.scaling import NOW, autoscaler, cpu_metric, pod
from tests.support.world import scraped_pod

PERIOD, COVERED = 15, 30
"""Seconds between two samples of the containers' usage, and those that a sample covers."""

FEW, START_UP = 3, 10
DEMAND = 0.6
"""Cores of all pods together: a target of 20 % of a core needs `FEW` of them."""

RAISED = 4
"""The pods that `behavior` allows in 15 s, or twice the pods if that is more."""

MOST = 60
BEHAVIOR = {
    "scaleUp": {
        "policies": [
            {"type": "Pods", "value": RAISED, "periodSeconds": PERIOD},
            {"type": "Percent", "value": 100, "periodSeconds": PERIOD},
        ]
    }
}
"""The defaults."""


class MisleadingPod:
    """A pod: how long it runs, what it has used at each second, and what its counter shows."""

    def __init__(self, number: int, age: int) -> None:
        self.number = number
        self.name = f"web-{number}"
        self.address = f"10.0.0.{number + 1}"
        self.age = age
        self.used: list[float] = []
        self.counter = 50.0

    def facts(self, now: int) -> PodFacts:
        ready = self.age >= START_UP
        since = now - max(0, self.age - START_UP) * SECOND if ready else now - self.age * SECOND
        made = pod(self.name, ready="True" if ready else "False")
        return msgspec.structs.replace(made, started=now - self.age * SECOND, ready_since=since)


class MisledWorkload:
    """Pods, what misleads in them, and the decisions of their autoscaler."""

    def __init__(self, here: SourceBench, source: Any) -> None:
        self.here = here
        self.source: OwnUsageSource = source
        self.spec = autoscaler([cpu_metric(20)], maxReplicas=MOST, behavior=BEHAVIOR)
        self.history, self.status = History(), HorizontalPodAutoscalerStatus()
        self.pods = [MisleadingPod(number, 3600) for number in range(FEW)]
        self.demand = DEMAND
        self.extra: Callable[[MisleadingPod, int], float] = lambda _, second: 0.0
        """Cores that a pod uses beside its part of the demand, at a second."""
        self.show: Callable[[MisleadingPod, float, int], None] = count
        """Moves the counter of a pod on by what it used in a second."""
        self.second = 0
        self.counts: list[int] = []
        self.own: dict[int, int] = {}
        """The replicas that only the pods' own usage asked for, by second."""
        here.clock.set_wall(NOW / SECOND)

    @property
    def now(self) -> int:
        return round(self.here.clock.wall() * SECOND)

    async def run(self, seconds: int) -> list[int]:
        """Let seconds pass; return the replicas after each. `behavior` bounds the raises."""
        for _ in range(seconds):
            await self.pass_second()
        for begin, count in enumerate(self.counts[:-PERIOD]):
            assert self.counts[begin + PERIOD] <= max(count + RAISED, 2 * count)
        return self.counts[-seconds:]

    async def pass_second(self) -> None:
        self.second += 1
        self.here.clock.advance(1.0)
        ready = [each for each in self.pods if each.age >= START_UP]
        for each in self.pods:
            each.age += 1
            used = (self.demand / len(ready) if each in ready else 0.0) + self.extra(each, self.second)
            each.used.append(used)
            self.show(each, used, self.second)
        shown = {each.address: f"process_cpu_seconds_total {each.counter!r}" for each in self.pods}
        self.here.here.reader.bodies = dict(shown)
        scraped = [scraped_pod(each.name, each.address) for each in self.pods]
        self.here.here.scraped.want("shop/web", "shop", [OwnUsage.CPU], scraped)
        await self.here.here.scrape()
        if self.second % PERIOD == 0:
            await self.measure()
        self.decide()

    def decide(self) -> None:
        now, before = self.now, len(self.pods)
        facts = [each.facts(now) for each in self.pods]
        self.here.pods = facts
        reading = self.source.read(ReadContext(facts, lambda _: before, now, self.here.clock.monotonic(), {}))
        slow = usual_way(reading)
        made, usual = self.decided(reading, facts), self.decided(slow, facts)
        assert made.replicas >= usual.replicas, "the pods' own usage lowers nothing"
        if made.replicas > usual.replicas:
            self.own[self.second] = made.replicas
        self.history, self.status = made.history, made.status
        self.pods = self.pods[: made.replicas]
        self.pods += [MisleadingPod(number, 0) for number in range(len(self.pods), made.replicas)]
        self.counts.append(made.replicas)

    def decided(self, reading: Any, facts: list[PodFacts]) -> Any:
        seen = Observation(len(facts), len(facts), "app=web", facts, [reading], self.status)
        return decide(self.spec, seen, self.history, self.now)

    async def measure(self) -> None:
        """Have the metrics API serve the mean of each pod over the time that it covers."""
        known = {each.name: each.used[-COVERED:] for each in self.pods if len(each.used) >= PERIOD}
        used = {name: {"app": sum(cores) / len(cores)} for name, cores in known.items()}
        await serve(self.here, self.source, used, COVERED, PERIOD)


def count(pod: MisleadingPod, used: float, _: int) -> None:
    pod.counter += used


@asynccontextmanager
async def workload() -> AsyncIterator[MisledWorkload]:
    """Run a workload whose pods' own usage counts."""
    async with bench(RULES, "") as here:
        running = MisledWorkload(here, here.open(cpu_metric()))
        await running.run(180)
        assert set(running.counts) == {FEW}
        assert running.source.verdict.ratio == pytest.approx(1.0, rel=0.01)
        yield running


async def test_more_demand_raises_within_seconds_and_less_lowers_when_the_containers_agree() -> None:
    async with workload() as pods:
        pods.demand = 2 * DEMAND
        counts = await pods.run(120)
        pods.demand = DEMAND
        later = await pods.run(600)

    assert counts[5] > FEW
    assert counts[-1] == 2 * FEW
    assert set(later[:30]) == {2 * FEW}, "not before the containers show it and the window has ended"
    assert later[-1] == FEW


@pytest.mark.parametrize("seconds", [20, 40])
async def test_the_start_of_a_jvm_raises_no_further_than_the_demand(seconds: int) -> None:
    """New pods take a core each to start, before they are Ready and after."""
    async with workload() as pods:
        pods.extra = lambda each, _: 1.0 if each.age < seconds else 0.0
        pods.demand = 1.5 * DEMAND
        await pods.run(240)

    assert pods.own
    assert max(pods.own.values()) <= 1.5 * FEW + 0.5


@pytest.mark.parametrize("seconds", [20, 40])
async def test_a_replaced_pod_that_starts_raises_nothing(seconds: int) -> None:
    async with workload() as pods:
        pods.extra = lambda each, _: 2.0 if each.age < seconds else 0.0
        pods.pods[1] = MisleadingPod(1, 0)
        await pods.run(240)

    assert not pods.own


def lies(value: float) -> Callable[[MisleadingPod, float, int], None]:
    """Return what moves the counter of one pod on by so many cores, and those of others by what they use."""

    def show(pod: MisleadingPod, used: float, _: int) -> None:
        pod.counter += value if pod.name == "web-0" else used

    return show


def goes_back(pod: MisleadingPod, used: float, second: int) -> None:
    count(pod, used, second)
    if pod.name == "web-0" and second % 4 == 0:
        pod.counter -= 3.0


def starts_anew(pod: MisleadingPod, used: float, second: int) -> None:
    pod.counter = used if second % 30 == 0 else pod.counter + used


def alternates(pod: MisleadingPod, used: float, second: int) -> None:
    """Show one of two processes by turns, as a server does that forks; the other one has used more."""
    count(pod, used / 2, second)
    pod.counter += 40.0 if second % 2 else -40.0


def stands_still(pod: MisleadingPod, used: float, second: int) -> None:
    if pod.name != "web-0":
        count(pod, used, second)


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(lies(100.0), id="a hundred cores"),
        pytest.param(lies(-0.01), id="negative"),
        pytest.param(goes_back, id="going back"),
        pytest.param(starts_anew, id="resets"),
        pytest.param(alternates, id="two processes"),
        pytest.param(stands_still, id="no usage"),
        pytest.param(lies(float("nan")), id="no number"),
    ],
)
async def test_a_counter_that_lies_raises_within_behavior_until_it_is_found_out(
    show: Callable[[MisleadingPod, float, int], None],
) -> None:
    async with workload() as pods:
        pods.show = show
        counts = await pods.run(600)

    assert counts[-1] == FEW, "the count comes back"


async def test_a_storm_of_garbage_collections_is_noise_once_it_is_known() -> None:
    """Each pod collects for 3 s of 20, at its own time, which is that of at most two of seven pods."""
    async with workload() as pods:
        pods.extra = lambda each, second: 0.5 if (second + 7 * each.number) % 20 < 3 else 0.0
        counts = await pods.run(600)

    highest = DEMAND + 2 * 0.5 * 3 / 4  # the cores of the four seconds that used most
    assert max(counts) <= math.ceil(highest / 0.2)
    assert all(second < 180 + 120 for second in pods.own)


async def test_a_process_beside_the_server_ends_the_fast_reading() -> None:
    """It burns what the counter does not show; the containers' usage counts as before."""
    async with workload() as pods:
        pods.extra = lambda each, second: 0.4 if (second // 7 + each.number) % 2 else 0.0
        pods.show = lambda each, used, second: count(each, used - pods.extra(each, second), second)
        await pods.run(300)

    assert pods.source.verdict.ratio is None
    assert not pods.own
