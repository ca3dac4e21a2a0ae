"""The usage that pods expose beside that of their containers: compared, and then read with every scrape."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.autoscaler.decide.observation import PodsReading
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.model.autoscaling.hpa import ContainerMetrics, ObjectMeta, PodMetrics
from adapter.model.pods import Container
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND, Instant, Span
from adapter.scrape.targets import OwnUsage
from tests.autoscaler.metrics.test_sources import CONTAINER, Bench, bench
from tests.support.scaling import cpu_metric, pod
from tests.support.world import FakePod

RULES = """
resourceRules:
  cpu:
    containerQuery: sum(rate(container_cpu{{<<.LabelMatchers>>}}[1m])) by (<<.GroupBy>>)
    nodeQuery: sum(rate(node_cpu{{<<.LabelMatchers>>}}[1m])) by (<<.GroupBy>>)
    resources: {{template: <<.Resource>>}}
    containerLabel: container
    scrape: {{port: metrics{more}}}
  memory:
    containerQuery: sum(container_memory{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
    nodeQuery: sum(node_memory{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
    resources: {{template: <<.Resource>>}}
    containerLabel: container
  window: 1m
"""
PODS = tuple(FakePod(name, f"10.0.0.{number}") for number, name in enumerate("abc", 1))
PERIOD = 15
"""Seconds between two samples of the containers' usage, each of which covers twice that time."""


class Servers:
    """Pods that use processors, expose a counter, and whose containers are measured elsewhere, later."""

    def __init__(self, here: Bench, source: OwnUsageSource) -> None:
        self.here = here
        self.source = source
        self.usage: dict[str, float] = dict.fromkeys("abc", 0.2)
        """Cores of each pod's container."""
        self.shown: Callable[[str, float], float] = lambda _, cores: cores
        """What the counter of a pod shows of its cores."""
        self.side: float = 0.0
        """Cores of the other container, if there is one."""
        self.counters: dict[str, float] = dict.fromkeys("abc", 100.0)
        self.used: dict[str, list[float]] = {name: [] for name in "abc"}
        self.seconds = 0
        self.measured = True
        self.reading: Any = None

    async def run(self, seconds: int) -> Any:
        """Let seconds pass; return the last reading."""
        for _ in range(seconds):
            self.seconds += 1
            self.here.clock.advance(1.0)
            for name, cores in self.usage.items():
                self.counters[name] += self.shown(name, cores)
                self.used[name].append(cores)
            bodies = {
                each.ip: f"process_cpu_seconds_total {self.counters[each.name]!r}"
                for each in PODS
                if each.name in self.counters
            }
            self.here.here.reader.bodies = dict(bodies)
            await self.here.here.scrape()
            if self.measured and self.seconds % PERIOD == 0:
                await self.measure()
            self.reading = self.here.read(self.source)
        return self.reading

    async def measure(self) -> None:
        """Have the metrics API serve the mean over the last two periods."""
        wall = Instant(round(self.here.clock.wall() * SECOND))
        covered = 2 * PERIOD
        items = []
        for name, used in self.used.items():
            mean = sum(used[-covered:]) / len(used[-covered:])
            parts = [ContainerMetrics("app", {"cpu": from_milli(round(mean * 1000))})]
            if self.side:
                parts.append(ContainerMetrics("side", {"cpu": from_milli(round(self.side * 1000))}))
            items.append(PodMetrics(ObjectMeta(name, "shop"), wall, Span(covered * SECOND), tuple(parts)))
        self.here.other.usages = tuple(items)
        feed, now = self.source.slow.feed, self.here.clock.monotonic()
        await self.here.feeds._fetch(feed, 0.0)
        feed.polled, feed.due = now, now + PERIOD


@asynccontextmanager
async def servers(metric: Mapping[str, Any] | None = None, more: str = "") -> AsyncIterator[Servers]:
    async with bench(RULES, more) as here:
        source: Any = here.open(metric or cpu_metric())
        here.here.scraped.want("shop/web", "shop", [OwnUsage("cpu")], PODS)
        yield Servers(here, source)


async def test_a_step_is_in_the_faster_reading_within_seconds() -> None:
    async with servers() as all_of_them:
        calm = await all_of_them.run(180)
        assert calm.faster is not None, all_of_them.source.why
        assert calm.faster.values == pytest.approx(dict.fromkeys("abc", 200), rel=0.01)

        all_of_them.usage = dict.fromkeys("abc", 0.8)
        all_of_them.measured = False
        steep = await all_of_them.run(6)

    assert steep.values == dict.fromkeys("abc", 200), "the containers' usage has not come yet"
    assert steep.faster.values == pytest.approx(dict.fromkeys("abc", 800), rel=0.02)


async def test_before_the_comparison_the_containers_usage_counts_alone() -> None:
    async with servers() as all_of_them:
        reading = await all_of_them.run(20)

        assert reading.faster is None
        assert all_of_them.source.why == (
            "resourceRules.cpu.scrape has been compared with the container's usage 0 times: 3 are needed"
        )


async def test_a_counter_of_one_process_of_three_does_not_count() -> None:
    async with servers() as all_of_them:
        all_of_them.shown = lambda _, cores: cores / 3
        reading = await all_of_them.run(180)

        assert reading.faster is None
        assert all_of_them.source.why.startswith("2 of 3 processes are not in resourceRules.cpu.scrape")


async def test_a_ratio_corrects_what_is_read() -> None:
    async with servers() as all_of_them:
        all_of_them.shown = lambda _, cores: cores / 1.06
        reading = await all_of_them.run(180)

    assert reading.faster.values == pytest.approx(dict.fromkeys("abc", 200), rel=0.01)


async def test_a_pod_that_lies_counts_with_its_containers_usage() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        all_of_them.shown = lambda name, cores: 100.0 if name == "a" else cores
        reading = await all_of_them.run(90)

    assert reading.faster.values == pytest.approx(dict.fromkeys("abc", 200), rel=0.01)


async def test_without_the_containers_usage_the_pods_own_may_raise_and_not_lower() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        all_of_them.source.slow.feed.error = "the server is gone"
        reading = all_of_them.here.read(all_of_them.source)

    assert isinstance(reading, PodsReading)
    assert reading.values == pytest.approx(dict.fromkeys("abc", 200), rel=0.01)
    assert reading.overdue == "unable to fetch metrics from resource metrics API: the server is gone"


async def test_pods_whose_scrape_fails_count_with_their_containers_usage() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        del all_of_them.counters["a"]
        del all_of_them.usage["a"]
        all_of_them.here.here.reader.bodies = {}
        reading = await all_of_them.run(10)

    assert set(reading.faster.values) == set("abc")


async def test_other_containers_count_with_their_last_usage() -> None:
    async with servers(more=", container: app") as all_of_them:
        all_of_them.here.pods = [
            pod(name, containers=(Container("app"), Container("side"))) for name in "abc"
        ]
        all_of_them.side = 0.05
        reading = await all_of_them.run(180)

    assert reading.faster.values == pytest.approx(dict.fromkeys("abc", 250), rel=0.01)


async def test_a_metric_of_another_container_has_no_faster_reading() -> None:
    async with servers(CONTAINER, more=", container: side") as all_of_them:
        all_of_them.here.pods = [
            pod(name, containers=(Container("app"), Container("side"))) for name in "abc"
        ]
        all_of_them.side = 0.2
        reading = await all_of_them.run(180)

    assert reading.faster is None
