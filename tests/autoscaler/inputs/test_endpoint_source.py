"""External metrics that are scraped from endpoints, as an autoscaler reads them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.autoscaler.decide.observation import NOT_YET, ExternalReading, Unavailable
from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.inputs.sources import MetricSource
from adapter.autoscaler.interfaces import Key
from adapter.errors import ScrapeError
from adapter.model.objects.resources import BUILTIN
from adapter.model.timestamps import SECOND
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.autoscaler.inputs.sources_bench import SourceBench
from tests.support.clock import WALL
from tests.support.scaling import external_metric
from tests.support.world import Outcome, RulesWorld, vector, world

RULES = """
externalRules:
- seriesQuery: depth{{queue!=""}}
  resources: {{namespaced: {namespaced}}}
  metricsQuery: {query}
  scrape: {{service: {{namespace: inference, name: gateway}}, port: metrics}}
  {more}
"""
QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)"
A, B = Endpoint("a", "10.0.0.1", 9090), Endpoint("b", "10.0.0.2", 9090)
GONE = "Service inference/gateway has no endpoints"


class EndpointBench(SourceBench):
    """A bench whose external metrics are scraped."""

    def __init__(self, here: RulesWorld, feeds: Poller) -> None:
        super().__init__(here, feeds, scrapes=True)
        provided: Any = self.provided
        other: Any = self.other
        self.sources = SourceFactory(here.scaler, provided, other, lambda: BUILTIN, here.scraped, feeds)

    def put(self, *found: Endpoint, reason: str = "") -> None:
        (key,) = self.here.scraped.sources
        self.here.scraped.put_endpoints(key, FoundEndpoints(found, reason))

    def depth(self, **labels: str) -> MetricSource:
        metric = external_metric("depth", type="AverageValue", averageValue="1")
        metric["external"]["metric"]["selector"] = {"matchLabels": labels}
        return self.open(metric)


@asynccontextmanager
async def bench(more: str = "", namespaced: str = "false", **settings: Any) -> AsyncIterator[EndpointBench]:
    async with (
        world(RULES.format(query=QUERY, more=more, namespaced=namespaced), **settings) as here,
        Poller(
            here.clock, per_second=1000.0, answered=lambda _: None, defects=Defects(Monitoring())
        ) as feeds,
    ):
        here.scraped.want_endpoints(Key("shop", "web"), ["depth"])
        made = EndpointBench(here, feeds)
        made.put(A, B)
        here.reader.bodies = {"10.0.0.1": 'depth{queue="q"} 3', "10.0.0.2": 'depth{queue="q"} 4'}
        yield made


async def test_scraped_values_need_no_prometheus() -> None:
    async with bench() as here:
        await here.here.scrape()
        source = here.depth(queue="q")

        assert here.read(source) == ExternalReading((7000,), 3)
        assert (source.sampled, source.span) == (round(WALL * SECOND), SECOND)
        assert len(here.feeds) == 0
        assert here.here.querier.asked == []


async def test_a_lost_endpoint_may_scale_up_and_not_down() -> None:
    async with bench() as here:
        await here.here.scrape()
        here.here.reader.bodies["10.0.0.2"] = ScrapeError("timeout", "no answer in 1 s")
        source = here.depth()
        for _ in range(4):
            here.here.clock.advance(1)
            await here.here.scrape()

        assert here.read(source) == ExternalReading(
            (3000,), 3, "10.0.0.2:9090 is not scraped now: no answer in 1 s"
        )


async def test_without_endpoints_the_reason_is_shown() -> None:
    async with bench() as here:
        here.put(reason=GONE)
        source = here.depth()

        assert here.read(source).reason == NOT_YET  # Prometheus has not answered either
        assert await here.answered(source) == Unavailable(
            "NoMetrics", f"no metrics returned from external metrics API: {GONE}"
        )


async def test_before_a_scrape_prometheus_answers() -> None:
    def prometheus(promql: str) -> Outcome:
        return vector(({"queue": "q"}, WALL if "timestamp" in promql else 9))

    async with bench(answer=prometheus) as here:
        source = here.depth()

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
        source = here.depth()

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

        found = here.read(here.depth())
        if isinstance(values, str):
            assert values in found.message
        else:
            assert found.values == values


async def test_a_question_that_cannot_be_asked_is_left_to_prometheus() -> None:
    async with bench(namespaced="true", answer=lambda _: vector(({}, 9))) as here:
        assert isinstance(await here.answered(here.depth()), Unavailable)
        assert ("render", "externalRules[0]") in here.here.faults.active()
