"""Scraped endpoints over time: what is scraped, what the values are, and what happens when a part is lost."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.errors import InternalError, PrometheusError, ScrapeError
from adapter.model.label_selectors import parse_selector
from adapter.model.metrics import SeriesInfo
from adapter.rules import matchers
from adapter.scrape import endpoint_values, targets
from adapter.scrape.endpoint_values import EndpointReading
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from tests.scrape.scenes import scrape_at_once
from tests.support.clock import WALL
from tests.support.world import Outcome, World, compile_text, external_question, vector, world

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
DOWN = ScrapeError("timeout", "no answer in 1 s")


@asynccontextmanager
async def scraping(*found: Endpoint, rules: str = RULES, **settings: object) -> AsyncIterator[World]:
    """Run with the endpoints of the Service, which show one queue each, wanted by an autoscaler."""
    async with world(rules, **settings) as here:  # type: ignore[arg-type] # a table's columns
        here.endpoints.want("x", ["depth", "hits", "plain", "unknown"])
        for key in here.endpoints.groups:
            here.endpoints.put(key, FoundEndpoints(found))
        here.reader.bodies = {
            "10.0.0.1": 'depth{queue="q"} 3\nhits_total 1',
            "10.0.0.2": 'depth{queue="q"} 4\nhits_total 5',
        }
        yield here


def read(here: World, metric: str = "depth", selector: str = "") -> EndpointReading:
    entry = here.endpoints.entry_of(metric)
    assert entry is not None
    found = here.endpoints.read(entry, matchers.from_selector(parse_selector(selector)))
    assert found is not None
    return found


def values(found: EndpointReading) -> list[float]:
    assert found.elements is not None
    return [element.value for element in found.elements]


def put(here: World, found: FoundEndpoints) -> None:
    (key,) = here.endpoints.groups
    here.endpoints.put(key, found)


async def step(here: World, seconds: float = 1.0) -> None:
    here.clock.advance(seconds)
    await here.scrape()


async def test_the_series_of_all_endpoints_are_added_up() -> None:
    async with scraping(A, B) as here:
        await here.scrape()

        found = read(here)
        assert (values(found), found.time, found.overdue) == ([7], WALL, "")
        assert values(read(here, selector="queue=q")) == [7]
        assert (here.metric("fastpath_scrape_targets"), len(here.reader.asked)) == (2, 2)
        assert [each.namespace for each in here.reader.asked] == ["inference"] * 2


async def test_rules_with_the_same_endpoints_share_the_scrapes() -> None:
    async with scraping(A) as here:
        for hits in (1, 4, 7, 10):
            here.reader.bodies["10.0.0.1"] = f'depth{{queue="q"}} {hits}\nhits_total {hits}'
            await step(here)

        assert len(here.reader.asked) == 4
        assert values(read(here, "hits")) == [3.0]
        assert values(read(here)) == [10]


async def test_metrics_that_are_not_scraped() -> None:
    async with scraping(A) as here:
        assert here.endpoints.entry_of("plain") is None
        assert here.endpoints.entry_of("unknown") is None
        entry = here.endpoints.entry_of("depth")
        assert entry is not None
        assert here.endpoints.window_of(entry) == 0
        hits = here.endpoints.entry_of("hits")
        assert hits is not None
        assert here.endpoints.window_of(hits) == 5
        here.endpoints.want("x", [])
        assert here.endpoints.read(entry, ()) is None
        await here.endpoints.prepare(entry, ())


async def test_a_metric_exists_before_prometheus_has_seen_it() -> None:
    async with scraping(A, lists={"hits_total": PrometheusError("unreachable", "down")}) as here:
        assert set(here.provider.external_metrics()) == {"depth", "hits"}


async def test_a_lost_endpoint_never_makes_the_sum_smaller_unnoticed() -> None:
    async with scraping(A, B) as here:
        await here.scrape()
        here.reader.bodies["10.0.0.2"] = DOWN
        await step(here)
        found = read(here)
        assert (values(found), found.overdue) == (
            [7],
            "the scrape of 10.0.0.2:9090 is overdue: no answer in 1 s",
        )
        await step(here)
        await step(here)
        await step(here)  # two intervals and a timeout are over
        found = read(here)
        assert (values(found), found.overdue) == ([3], "10.0.0.2:9090 is not scraped now: no answer in 1 s")
        here.reader.bodies["10.0.0.2"] = 'depth{queue="q"} 5'
        await step(here)
        found = read(here)
        assert (values(found), found.overdue) == ([8], "")


async def test_a_sum_is_as_old_as_its_oldest_endpoint_also_where_that_has_no_such_series() -> None:
    async with scraping(A, B) as here:
        here.reader.bodies[B.address] = "other 1"
        await here.scrape()
        here.clock.advance(1)
        await scrape_at_once(here, "gateway/a:")
        assert (values(read(here)), read(here).time) == ([3], WALL)


async def test_an_endpoint_that_is_late_makes_the_value_overdue() -> None:
    async with scraping(A) as here:
        await here.scrape()
        here.clock.advance(2.5)
        assert read(here).overdue == "the scrape of 10.0.0.1:9090 is overdue"
        here.clock.advance(1)
        found = read(here)
        assert (found.elements, found.reason) == (None, "10.0.0.1:9090 is not scraped now")
        assert found.last == WALL


async def test_a_new_endpoint_is_a_missing_part_until_its_first_scrape() -> None:
    async with scraping(A) as here:
        await here.scrape()
        put(here, FoundEndpoints((A, B)))
        found = read(here)
        assert (values(found), found.overdue) == ([3], "10.0.0.2:9090 is new")
        await here.scrape()
        assert (values(read(here)), read(here).overdue) == ([7], "")
        put(here, FoundEndpoints((B,)))
        assert (values(read(here)), read(here).overdue) == ([4], "")


async def test_a_pod_with_a_new_address_starts_anew() -> None:
    async with scraping(A) as here:
        await here.scrape()
        put(here, FoundEndpoints((A._replace(address="10.0.0.2"),)))
        assert read(here).reason == "10.0.0.2:9090 is new"
        await here.scrape()
        assert values(read(here)) == [4]
        assert [each.address for each in here.reader.asked] == ["10.0.0.1", "10.0.0.2"]


async def test_endpoints_that_are_missing_make_the_value_overdue() -> None:
    async with scraping(A) as here:
        put(here, FoundEndpoints((A,), missing=("pod b is not ready",)))
        await here.scrape()
        assert (values(read(here)), read(here).overdue) == ([3], "pod b is not ready")


async def test_without_endpoints_the_reason_is_that_of_the_service() -> None:
    async with scraping(A) as here:
        await here.scrape()
        put(here, FoundEndpoints((), "Service inference/gateway has no endpoints"))
        found = read(here)
        assert (found.elements, found.reason) == (None, "Service inference/gateway has no endpoints")
        without_series = ("no-series", "plain")  # the only rule that needs series in Prometheus
        assert here.faults.active().keys() - {without_series} == {
            (endpoint_values.PROBLEM, f"externalRules[{number}]") for number in (0, 1)
        }
        assert here.faults.active()[endpoint_values.PROBLEM, "externalRules[0]"] == found.reason
        here.clock.advance(1)
        put(here, FoundEndpoints((A,)))
        assert here.faults.active().keys() == {without_series}


async def test_while_the_endpoints_are_unknown_the_known_ones_count_as_overdue() -> None:
    async with scraping(A) as here:
        await here.scrape()
        put(here, FoundEndpoints((), "endpointslices is forbidden", known=False))
        assert (values(read(here)), read(here).overdue) == ([3], "endpointslices is forbidden")
    async with scraping() as here:
        put(here, FoundEndpoints((), "endpointslices is forbidden", known=False))
        assert read(here).reason == "endpointslices is forbidden"


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


async def test_a_series_that_no_endpoint_exposes_has_no_value() -> None:
    async with scraping(A, B) as here:
        here.reader.bodies = dict.fromkeys(here.reader.bodies, "other 1")
        await here.scrape()
        found = read(here)
        assert (found.elements, found.last) == ((), WALL)
        assert found.reason == "the endpoints expose no such series of depth"


async def test_a_rate_that_is_not_known_yet_does_not_contradict_prometheus() -> None:
    async with scraping(A) as here:
        await here.scrape()
        found = read(here, "hits")
        assert (found.elements, found.last) == ((), -math.inf)


async def test_a_query_that_fails_has_no_value() -> None:
    rules = RULES.replace("sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)", "depth / on () depth")
    async with scraping(A, B, rules=rules) as here:
        await here.scrape()
        found = read(here)
        assert (found.elements, found.last) == (None, math.inf)
        assert found.reason == "its query fails: a series on the left matches several on the right"
        await here.scrape()  # evaluated again, with the same result
        assert read(here).reason == found.reason


async def test_samples_with_an_old_time_of_their_own_have_no_value() -> None:
    async with scraping(A) as here:
        here.reader.bodies["10.0.0.1"] = f'depth{{queue="q"}} 3 {(WALL - 10) * 1000:.0f}'
        await here.scrape()
        found = read(here)
        assert (found.elements, found.reason, found.last) == (None, "its samples are 10 s old", WALL - 10)


async def test_a_scrape_beyond_a_limit_leaves_a_partial_value() -> None:
    rules = RULES.replace("port: metrics}", "port: metrics, maxSeries: 2}")
    async with scraping(A, B, rules=rules) as here:
        await here.scrape()
        here.reader.bodies["10.0.0.2"] = 'depth{queue="q"} 1\ndepth{queue="r"} 2\ndepth{queue="s"} 2'
        await step(here)
        found = read(here)
        assert values(found) == [3]
        assert found.overdue.startswith("10.0.0.2:9090 is not scraped now: there are more than 2 samples")


async def test_the_owners_are_told_of_each_scrape() -> None:
    told: list[object] = []
    async with scraping(A) as here:
        here.scraped.subscribe(told.append)
        here.endpoints.want("y", ["hits"])
        await here.scrape()
        assert sorted(map(str, told)) == ["x", "y"]
        here.endpoints.want("x", ["hits"])
        here.endpoints.want("y", [])
        told.clear()
        await here.scrape()
        assert told == ["x"]
        here.endpoints.want("x", [])
        assert here.endpoints.groups == ()
        assert here.metric("fastpath_scrape_targets") == 0
        put_nowhere = FoundEndpoints((A,))
        entry = here.endpoints.entry_of("depth")
        assert entry is not None
        config = entry.rule.config.scrape
        assert config is not None
        assert config.source is not None
        here.endpoints.put((config.source, config.access), put_nowhere)
        assert here.metric("fastpath_scrape_targets") == 0


async def test_rules_that_change_change_the_endpoints() -> None:
    async with scraping(A) as here:
        await here.scrape()
        await here.relister.adopt(compile_text(RULES.replace("name: gateway", "name: other")))
        here.endpoints.follow()
        ((source, _),) = here.endpoints.groups
        assert source.service == "other"
        assert read(here).reason == "its endpoints are not known yet"
        here.endpoints.follow()


async def test_only_what_is_little_work_is_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.scrape.endpoint_values.READ_WORK", 1)
    async with scraping(A, B) as here:
        await here.scrape()
        assert read(here).reason == "its query is not evaluated yet"
        entry = here.endpoints.entry_of("depth")
        assert entry is not None
        await here.endpoints.prepare(entry, ())
        assert values(read(here)) == [7]
        here.reader.bodies["10.0.0.1"] = 'depth{queue="q"} 6'
        await step(here)  # evaluates what was read
        assert values(read(here)) == [10]
        await here.endpoints.prepare(entry, ())
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
        (group,) = here.endpoints._groups.values()
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
        (group,) = here.endpoints._groups.values()
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


async def ask(here: World, metric: str = "depth") -> list[tuple[int, float]]:
    answer = await here.provider.external(external_question(f"/namespaces/shop/{metric}"))
    return [(value.milli, value.time) for value in answer.items]


async def test_the_metrics_api_serves_scraped_values() -> None:
    async with scraping(A, B) as here:
        await here.scrape()
        answer = await here.provider.external(external_question("/namespaces/shop/depth"))
        assert [(item.milli, item.time, item.labels) for item in answer.items] == [
            (7000, WALL, {"queue": "q"})
        ]
        assert here.querier.asked == []
        assert here.metric("fastpath_scraped_values_total", source="scrape") == 1


async def test_the_metrics_api_answers_for_series_that_nobody_exposes() -> None:
    async with scraping(A) as here:
        here.reader.bodies["10.0.0.1"] = "other 1"
        await here.scrape()
        assert await ask(here) == []
        assert here.querier.asked == []


async def test_the_metrics_api_refuses_a_part() -> None:
    async with scraping(A, B, answer=lambda _: vector(({"queue": "q"}, WALL - 5))) as here:
        await here.scrape()
        here.reader.bodies["10.0.0.2"] = DOWN
        await step(here)
        with pytest.raises(InternalError, match="unable to fetch metrics"):
            await ask(here)
        assert here.metric("fastpath_scraped_values_total", source="absent") == 1
        assert ("value", "externalRules[0]") in here.faults.active()


async def test_newer_samples_of_prometheus_stand_in() -> None:
    def prometheus(promql: str) -> Outcome:
        return vector(({"queue": "q"}, WALL + 2.5 if "timestamp" in promql else 9))

    async with scraping(A, answer=prometheus) as here:
        await here.scrape()
        here.reader.bodies["10.0.0.1"] = DOWN
        for _ in range(4):
            await step(here)
        assert [milli for milli, _ in await ask(here)] == [9000]
        assert here.metric("fastpath_scraped_values_total", source="prometheus") == 1


async def test_what_is_not_scraped_here_comes_from_prometheus() -> None:
    async with scraping(A, answer=lambda _: vector(({"queue": "q"}, 9)), lists=LISTS) as here:
        here.endpoints.want("x", [])
        assert [milli for milli, _ in await ask(here)] == [9000]
        assert [milli for milli, _ in await ask(here, "plain")] == [9000]
        assert here.metric("fastpath_scraped_values_total", source="prometheus") == 0


LISTS = {"plain": (SeriesInfo("plain", frozenset(), 1),)}


async def test_without_any_scrape_prometheus_answers_as_ever() -> None:
    async with scraping(answer=lambda _: vector(({}, 9))) as here:
        assert [milli for milli, _ in await ask(here)] == [9000]
