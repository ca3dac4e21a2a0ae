"""External metrics that are scraped from endpoints, as an autoscaler reads them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.observation import NOT_YET, ExternalReading, Unavailable
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.metrics.factory import MetricSource, SourceFactory
from adapter.autoscaler.metrics.polling import Poller
from adapter.autoscaler.metrics.sources import ReadContext, Subscriber
from adapter.errors import ScrapeError
from adapter.model.autoscaling.hpa import MetricSpec, decode_scalar
from adapter.model.label_selectors import parse_selector
from adapter.model.resources import BUILTIN
from adapter.model.timestamps import SECOND
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.support.clock import WALL
from tests.support.waiting import until
from tests.support.world import Outcome, World, vector, world

RULES = """
externalRules:
- seriesQuery: depth{{queue!=""}}
  resources: {{namespaced: false}}
  metricsQuery: {query}
  scrape: {{service: {{namespace: inference, name: gateway}}, port: metrics}}
  {more}
"""
QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)"
A, B = Endpoint("a", "10.0.0.1", 9090), Endpoint("b", "10.0.0.2", 9090)
GONE = "Service inference/gateway has no endpoints"


class Bench:
    def __init__(self, here: World, feeds: Poller) -> None:
        self.here = here
        self.feeds = feeds
        unused: Any = None
        self.sources = SourceFactory(
            here.scaler, unused, unused, lambda: BUILTIN, here.scraped, feeds, endpoints=here.endpoints
        )

    def put(self, *found: Endpoint, reason: str = "") -> None:
        (key,) = self.here.endpoints.groups
        self.here.endpoints.put(key, FoundEndpoints(found, reason))

    def open(self, **labels: str) -> MetricSource:
        identifier = {"name": "depth", "selector": {"matchLabels": labels}}
        target = {"type": "AverageValue", "averageValue": "1"}
        metric = {"type": "External", "external": {"metric": identifier, "target": target}}
        site = Subscriber(Key("shop", "web"), 1.0, parse_selector("app=web"), tuple)
        return self.sources.open(msgspec.convert(metric, MetricSpec, dec_hook=decode_scalar), site)

    def read(self, source: MetricSource) -> Any:
        clock = self.here.clock
        return source.read(ReadContext([], lambda _: 3, round(clock.wall() * SECOND), clock.monotonic()))

    async def answered(self, source: MetricSource) -> Any:
        self.read(source)
        await until(lambda: all(feed.polled is not None for feed in self.feeds._feeds.values()))
        return self.read(source)


@asynccontextmanager
async def bench(query: str = QUERY, more: str = "", **settings: Any) -> AsyncIterator[Bench]:
    async with (
        world(RULES.format(query=query, more=more), **settings) as here,
        Poller(
            here.clock, per_second=1000.0, answered=lambda _: None, defects=Defects(Monitoring())
        ) as feeds,
    ):
        here.endpoints.want(Key("shop", "web"), ["depth"])
        made = Bench(here, feeds)
        made.put(A, B)
        here.reader.bodies = {"10.0.0.1": 'depth{queue="q"} 3', "10.0.0.2": 'depth{queue="q"} 4'}
        yield made


async def test_scraped_values_need_no_prometheus() -> None:
    async with bench() as here:
        await here.here.scrape()
        source = here.open(queue="q")

        assert here.read(source) == ExternalReading((7000,), 3)
        assert (source.sampled, source.span) == (round(WALL * SECOND), SECOND)
        assert len(here.feeds) == 0
        assert here.here.querier.asked == []


async def test_a_lost_endpoint_may_scale_up_and_not_down() -> None:
    async with bench() as here:
        await here.here.scrape()
        here.here.reader.bodies["10.0.0.2"] = ScrapeError("timeout", "no answer in 1 s")
        source = here.open()
        for _ in range(4):
            here.here.clock.advance(1)
            await here.here.scrape()

        assert here.read(source) == ExternalReading(
            (3000,), 3, "10.0.0.2:9090 is not scraped now: no answer in 1 s"
        )


async def test_without_endpoints_the_reason_is_shown() -> None:
    async with bench() as here:
        here.put(reason=GONE)
        source = here.open()

        assert here.read(source).reason == NOT_YET  # Prometheus has not answered either
        assert await here.answered(source) == Unavailable(
            "NoMetrics", f"no metrics returned from external metrics API: {GONE}"
        )


async def test_before_a_scrape_prometheus_answers() -> None:
    def prometheus(promql: str) -> Outcome:
        return vector(({"queue": "q"}, WALL if "timestamp" in promql else 9))

    async with bench(answer=prometheus) as here:
        source = here.open()

        assert (await here.answered(source)).values == (9000,)
        assert source.sampled == round(WALL * SECOND)
        assert source.span is None  # the interval of its samples is not known yet
        await here.here.scrape()
        assert here.read(source).values == (7000,)
        assert len(here.feeds) == 0


@pytest.mark.parametrize(("sampled", "counts"), [(WALL - 3, False), (WALL + 3, True)])
async def test_after_a_scrape_only_a_newer_sample_of_prometheus_counts(
    sampled: float, *, counts: bool
) -> None:
    def prometheus(promql: str) -> Outcome:
        return vector(({"queue": "q"}, sampled if "timestamp" in promql else 9))

    async with bench(answer=prometheus) as here:
        await here.here.scrape()
        here.put(reason=GONE)
        here.here.clock.advance(5)
        source = here.open()

        found = await here.answered(source)
        if counts:
            assert found.values == (9000,)
        else:
            assert found == Unavailable("NoMetrics", f"no metrics returned from external metrics API: {GONE}")
        source.close()
        assert len(here.feeds) == 0


@pytest.mark.parametrize(
    ("more", "body", "values"),
    [
        ("", 'depth{queue="q"} NaN', "a series of depth has no value"),
        ("onNaN: drop", 'depth{queue="q"} NaN\ndepth{queue="r"} 2', (2000,)),
        ("onNaN: drop", 'depth{queue="q"} NaN', "no metrics returned from external metrics API"),
        ("onNaN: zero", 'depth{queue="q"} NaN', (0,)),
        ("", 'depth{queue="q"} 1e300', "beyond 9.2e15, the limit of a quantity"),
    ],
)
async def test_values_that_are_none(more: str, body: str, values: object) -> None:
    async with bench(more=more) as here:
        here.put(A)
        here.here.reader.bodies["10.0.0.1"] = body
        await here.here.scrape()

        found = here.read(here.open())
        if isinstance(values, str):
            assert values in found.message
        else:
            assert found.values == values


async def test_a_question_that_cannot_be_asked_is_left_to_prometheus() -> None:
    rules = RULES.format(query=QUERY, more="").replace("namespaced: false", "namespaced: true")
    async with (
        world(rules, answer=lambda _: vector(({}, 9))) as here,
        Poller(
            here.clock, per_second=1000.0, answered=lambda _: None, defects=Defects(Monitoring())
        ) as feeds,
    ):
        here.endpoints.want(Key("shop", "web"), ["depth"])
        made = Bench(here, feeds)

        found = await made.answered(made.open())
        assert isinstance(found, Unavailable)
        assert ("render", "externalRules[0]") in here.faults.active()
