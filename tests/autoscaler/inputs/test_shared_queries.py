"""How often several scalers query Prometheus that share the same autoscalers, on a loop with virtual time."""

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.inputs.sources import Subscriber
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model.autoscaling.hpa import MetricSpec, decode_scalar
from adapter.model.metrics import QueryResult, SeriesInfo
from adapter.model.objects.label_selectors import parse_selector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.support.clock import LoopClock
from tests.support.scaling import pods_metric
from tests.support.world import RulesWorld, vector, world

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(120)]

RULES = """
rules:
- seriesQuery: load
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
AUTOSCALERS, NAMESPACES = 120, 24
INTERVAL = 15.0
KEYS = [Key(f"tenant-{number % NAMESPACES}", f"web-{number}") for number in range(AUTOSCALERS)]
SECONDS = 45.0


class SharingScalers:
    """Scalers with equal shares of the autoscalers, which query one Prometheus."""

    def __init__(self, stack: AsyncExitStack, scalers: int, metric: dict[str, Any]) -> None:
        self.clock = LoopClock()
        self.worlds: list[RulesWorld] = []
        self._stack = stack
        self._scalers = scalers
        self._metric = msgspec.convert(metric, MetricSpec, dec_hook=decode_scalar)

    def answer(self, promql: str) -> QueryResult:
        sampled = self.clock.wall() // INTERVAL * INTERVAL
        labels = ({"namespace": key.namespace, "pod": key.name, "container": "app"} for key in KEYS)
        return vector(*((each, sampled if "timestamp" in promql else 1.0) for each in labels))

    async def start(self) -> None:
        """Open all metrics at random times of a period."""
        dice = random.Random(1)
        lists = {"load": (SeriesInfo("load", frozenset({"namespace", "pod"}), AUTOSCALERS),)}
        async with asyncio.TaskGroup() as group:
            for number in range(self._scalers):
                own = [key for key in KEYS if int(key.namespace[7:]) % self._scalers == number]
                running = [LabeledObject(key.namespace, key.name, {"app": key.name}) for key in own]
                here = await self._stack.enter_async_context(
                    world(RULES, answer=self.answer, lists=lists, running=running, clock=self.clock)
                )
                poller = await self._stack.enter_async_context(
                    Poller(
                        self.clock,
                        per_second=20.0,
                        answered=lambda _: None,
                        defects=Defects(Monitoring()),
                        scalers=lambda: self._scalers,
                    )
                )
                unused: Any = None
                factory = SourceFactory(here.scaler, here.resource_provider, unused, unused, None, poller)
                self.worlds.append(here)
                for key in own:
                    group.create_task(self._open(factory, key, dice.uniform(0, INTERVAL / 2)))

    async def _open(self, factory: SourceFactory, key: Key, after: float) -> None:
        await asyncio.sleep(after)
        selector = parse_selector(f"app={key.name}")
        factory.open(self._metric, Subscriber(key, 1.0, selector, lambda: (key.name,)))

    async def rate(self) -> float:
        """Return the queries a second of all scalers, once they know the interval of the samples."""
        await asyncio.sleep(3 * INTERVAL)
        before = self._count()
        await asyncio.sleep(SECONDS)
        return (self._count() - before) / SECONDS

    def _count(self) -> int:
        return sum(len(here.querier.asked) for here in self.worlds)


async def measure(scalers: int, metric: dict[str, Any]) -> float:
    async with AsyncExitStack() as stack:
        fleet = SharingScalers(stack, scalers, metric)
        await fleet.start()
        return await fleet.rate()


async def test_scalers_together_query_as_often_as_one() -> None:
    """Although all pods are sampled in the same moment."""
    alone = await measure(1, pods_metric(name="load"))
    rates = {scalers: await measure(scalers, pods_metric(name="load")) for scalers in (2, 4)}
    assert all(rate <= 1.1 * alone for rate in rates.values()), (alone, rates)
