"""Scraped endpoints over time: what is scraped, what the values are, and what happens when a part is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.errors import PrometheusError
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers
from adapter.scrape import targets
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from adapter.scrape.readings import EndpointReading
from tests.scrape.scenes import scrape_at_once
from tests.support.clock import WALL
from tests.support.world import RulesWorld, compile_text, world

SERVICE = "{service: {namespace: inference, name: gateway}, port: metrics}"
RULES = f"""
externalRules:
- seriesQuery: depth{{queue!=""}}
  resources: {{namespaced: false}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (queue)
  scrape: {SERVICE}
- seriesQuery: hits_total
  resources: {{namespaced: false}}
  name: {{as: hits}}
  metricsQuery: sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[1m]))
  scrape: {SERVICE}
- seriesQuery: plain
  resources: {{namespaced: false}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}})
"""
A, B = Endpoint("a", "10.0.0.1", 9090), Endpoint("b", "10.0.0.2", 9090)


@asynccontextmanager
async def scraping(*found: Endpoint, rules: str = RULES, **settings: object) -> AsyncIterator[RulesWorld]:
    """Run with the endpoints of the Service, which show one queue each, wanted by an autoscaler."""
    async with world(rules, **settings) as here:  # type: ignore[arg-type] # a table's columns
        here.scraped.want_endpoints("x", ["depth", "hits", "plain", "unknown"])
        for key in here.scraped.sources:
            here.scraped.put_endpoints(key, FoundEndpoints(found))
        here.reader.bodies = {
            "10.0.0.1": 'depth{queue="q"} 3\nhits_total 1',
            "10.0.0.2": 'depth{queue="q"} 4\nhits_total 5',
        }
        yield here


def read(here: RulesWorld, metric: str = "depth", selector: str = "") -> EndpointReading:
    entry = here.scraped.external_entry(metric)
    assert entry is not None
    found = here.scraped.read_endpoints(entry, matchers.from_selector(parse_selector(selector)))
    assert found is not None
    return found


def values(found: EndpointReading) -> list[float]:
    assert found.elements is not None
    return [element.value for element in found.elements]


def put(here: RulesWorld, found: FoundEndpoints) -> None:
    (key,) = here.scraped.sources
    here.scraped.put_endpoints(key, found)


async def step(here: RulesWorld, seconds: float = 1.0) -> None:
    here.clock.advance(seconds)
    await here.scrape()


async def test_metrics_that_are_not_scraped() -> None:
    async with scraping(A) as here:
        assert here.scraped.external_entry("plain") is None
        assert here.scraped.external_entry("unknown") is None
        entry = here.scraped.external_entry("depth")
        assert entry is not None
        assert here.scraped.covered_seconds(entry) == 0
        hits = here.scraped.external_entry("hits")
        assert hits is not None
        assert here.scraped.covered_seconds(hits) == 5
        here.scraped.want_endpoints("x", [])
        assert here.scraped.read_endpoints(entry, ()) is None
        await here.scraped.prepare(entry, "", (), ())


async def test_a_metric_exists_before_prometheus_has_seen_it() -> None:
    async with scraping(A, lists={"hits_total": PrometheusError("unreachable", "down")}) as here:
        assert set(here.provider.external_metrics()) == {"depth", "hits"}


async def test_a_sum_is_as_old_as_its_oldest_endpoint_also_where_that_has_no_such_series() -> None:
    async with scraping(A, B) as here:
        here.reader.bodies[B.address] = "other 1"
        await here.scrape()
        here.clock.advance(1)
        await scrape_at_once(here, "a")
        assert (values(read(here)), read(here).time) == ([3], WALL)


async def test_each_endpoint_has_the_window_of_its_own_interval() -> None:
    async with scraping(A, B) as here:
        here.targets("b")[0].slowed = 4.0
        for second in range(21):
            here.reader.bodies = {A.address: f"hits_total {second}", B.address: f"hits_total {10 * second}"}
            await scrape_at_once(here, *("a" if second % 4 else "ab"))
            here.clock.advance(1)
            assert second < 12 or values(read(here, "hits")) == [11]


async def test_refused_endpoints_are_counted_when_they_come() -> None:
    def counted() -> float:
        return here.metric("fastpath_scrape_endpoints_refused_total", reason="foreign")

    async with scraping(A) as here:
        found = FoundEndpoints((A,), "", ("10.9.9.9 is not ...",), (("foreign", 2),))
        put(here, found)
        put(here, found)
        assert counted() == 2
        put(here, found._replace(refused=(("foreign", 1),)))
        assert counted() == 2
        refused = [text for (problem, _), text in here.faults.active().items() if problem != "no-series"]
        assert set(refused) == {"10.9.9.9 is not ..."}


async def test_the_owners_are_told_of_each_scrape() -> None:
    told: list[object] = []
    async with scraping(A) as here:
        (key,) = here.scraped.sources
        here.scraped.subscribe(told.append)
        here.scraped.want_endpoints("y", ["hits"])
        await here.scrape()
        assert sorted(map(str, told)) == ["x", "y"]
        here.scraped.want_endpoints("x", ["hits"])
        here.scraped.want_endpoints("y", [])
        told.clear()
        await here.scrape()
        assert told == ["x"]
        here.scraped.want_endpoints("x", [])
        assert here.scraped.sources == ()
        assert here.metric("fastpath_scrape_targets") == 0
        here.scraped.put_endpoints(key, FoundEndpoints((A,)))
        assert here.targets() == []


async def test_rules_that_change_change_the_endpoints() -> None:
    async with scraping(A) as here:
        await here.scrape()
        await here.relister.adopt(compile_text(RULES.replace("name: gateway", "name: other")))
        here.scraped.follow()
        ((source, _),) = here.scraped.sources
        assert source.service == "other"
        assert read(here).reason == "its endpoints are not known yet"
        here.scraped.follow()


async def test_only_what_is_little_work_is_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.scrape.cache.READ_WORK", 1)
    async with scraping(A, B) as here:
        await here.scrape()
        assert read(here).reason == "its query is not evaluated yet"
        entry = here.scraped.external_entry("depth")
        assert entry is not None
        await here.scraped.prepare(entry, "", (), ())
        assert values(read(here)) == [7]
        here.reader.bodies["10.0.0.1"] = 'depth{queue="q"} 6'
        assert read(here, selector="queue=q").reason == "its query is not evaluated yet"
        await step(here)  # evaluates what was read
        assert values(read(here)) == [10]
        assert values(read(here, selector="queue=q")) == [10]
        await here.scraped.prepare(entry, "", (), ())
        put(here, FoundEndpoints((A,)))
        found = read(here)  # the last answer, until the next scrape
        assert (values(found), found.overdue) == ([10], "its query is not evaluated yet")
        await step(here)
        assert (values(read(here)), read(here).overdue) == ([6], "")


async def test_many_queries_do_not_stay_in_memory() -> None:
    async with scraping(A) as here:
        await here.scrape()
        for number in range(targets.ANSWERS_KEPT + 5):
            read(here, selector=f"queue!=x{number}")
            here.clock.advance(0.001)
        (group,) = here.scraped._sources.values()
        assert len(group.answers) == targets.ANSWERS_KEPT
        long = ",".join(f"l{number}!=x" for number in range(targets.MOST_MATCHERS + 1))
        assert values(read(here, selector=long)) == [3]
        assert len(group.answers) == targets.ANSWERS_KEPT
        await step(here, 2 * targets.ANSWERED_SECONDS)
        assert group.answers == {}


async def test_costly_evaluations_pause() -> None:
    async with scraping(A) as here:
        await here.scrape()
        assert values(read(here)) == [3]
        (group,) = here.scraped._sources.values()
        group.rest(here.clock.monotonic() - 0.04)  # as if it had taken 40 ms
        here.reader.bodies["10.0.0.1"] = 'depth{queue="q"} 6'
        here.clock.advance(0.3)
        await here.scrape()
        assert values(read(here)) == [3]
        here.clock.advance(0.2)
        assert values(read(here)) == [6]


async def test_budgets_are_those_of_all_scrapes() -> None:
    async with scraping(A, B) as here:
        await here.scrape()
        assert here.metric("fastpath_scraped_series_bytes") > 0
        put(here, FoundEndpoints(()))
        assert here.metric("fastpath_scraped_series_bytes") == 0


# --- through the metrics API
