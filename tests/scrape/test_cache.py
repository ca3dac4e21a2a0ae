"""Scrapes over time: which pods are scraped, what their values are, and what happens when scrapes fail."""

import asyncio
import math
from collections.abc import Hashable

import pytest

from adapter.errors import ScrapeError
from adapter.model.metrics import CustomAnswer, CustomMetricInfo, SeriesInfo
from adapter.model.objects.label_selectors import EVERYTHING
from adapter.model.timestamps import SECOND
from adapter.rules.resource import PODS
from tests.scrape.scenes import LABELS, A, B, read, rules, scrape_at_once, scraping, target
from tests.support.answers import answers
from tests.support.clock import WALL
from tests.support.waiting import running
from tests.support.world import RulesWorld, compile_text, custom_question, read_scraped, scraped_pod, vector


async def step(here: RulesWorld, seconds: float = 1.0, body: str | ScrapeError = "") -> None:
    """Scrape a little later; `body` is what pod a shows then, "" for what it showed before."""
    if body:
        here.reader.bodies[A.ip] = body
    here.clock.advance(seconds)
    await here.scrape()


async def show(here: RulesWorld, *bodies: str, metric: str = "depth") -> None:
    """Scrape the pods a and b, or a alone, for a metric; they show these bodies."""
    pods = (A, B)[: len(bodies)]
    here.reader.bodies |= {pod.ip: body for pod, body in zip(pods, bodies, strict=True)}
    here.scraped.want("x", "shop", [metric], pods)
    await here.scrape()


# --- which pods -----------------------------------------------------------------------------------


def span_of(here: RulesWorld, metric: str) -> float:
    entry = here.scraped.entry_of(metric)
    assert entry is not None
    return here.scraped.span_of(entry) / SECOND


async def test_the_span_that_a_value_speaks_for() -> None:
    async with scraping() as here:
        assert (
            here.scraped.entry_of("hits")
            == here.relister.registry.custom[CustomMetricInfo(PODS, namespaced=True, metric="hits")]
        )
        assert (span_of(here, "depth"), span_of(here, "hits")) == (1, 6), "a window and an interval"


async def test_nothing_is_kept_of_owners_and_metrics_that_are_gone() -> None:
    async with scraping() as here:
        for number in range(50):
            here.scraped.want(f"x{number % 2}", "shop", ["depth", f"unknown{number}"], [A])
        for number in range(2):
            here.scraped.forget(f"x{number}")

        assert (here.scraped._wants, here.scraped._pods, here.targets()) == ({}, {}, [])


async def test_other_rules_take_effect_with_the_next_scrape() -> None:
    async with scraping() as here:
        here.reader.bodies["10.0.0.1"] = "depth 3\ndepth2 4"
        here.scraped.want("x", "shop", ["depth"], [A])
        here.scraped.want("y", "shop", ["hits"], [A])
        await here.scrape()
        changed = (
            rules().replace("sum(<<.Series>>{", "sum(2 * <<.Series>>{").replace("port: metrics", "port: 1234")
        )
        await here.relister.adopt(compile_text(changed))
        await step(here)
        await step(here)

        assert [each.port for each in here.reader.asked] == [8080, 1234]
        assert read(here).values["a"].value == 6

        await here.relister.adopt(compile_text("rules: []"))
        await step(here)
        assert here.metric("fastpath_scrape_targets") == 0


async def test_a_relist_leaves_what_it_does_not_change() -> None:
    async with scraping() as here:
        here.reader.bodies |= {"10.0.0.1": "depth 3\nhits 1", "10.0.0.2": "depth 4\nhits 2"}
        here.scraped.want("x", "shop", ["depth"], [A])
        here.scraped.want("y", "shop", ["hits", "unknown"], [B])
        await here.scrape()
        here.lister.lists["counters"] = (SeriesInfo("unknown", LABELS, 1),)
        for _ in range(2):  # a name is forgotten when it is missing twice
            await here.relister._relist(["counters"], 600, whole=True)
        here.scraped.follow()

        assert read(here).values["a"].value == 3
        assert {query.series for query in target(here, "shop", "a").group.wanted} == {"depth"}
        assert {query.series for query in target(here, "shop", "b").group.wanted} == {"unknown"}
        assert read_scraped(here.scraped, "shop", "hits", ["b"], EVERYTHING) is None


# --- values ---------------------------------------------------------------------------------------


async def test_metric_selectors_are_told_apart_and_answers_are_worked_out_once() -> None:
    async with scraping() as here:
        here.reader.bodies["10.0.0.1"] = 'depth{q="1"} 3\ndepth{q="2"} 4'
        here.scraped.want("x", "shop", ["depth"], [A])
        await here.scrape()

        found = [read(here, selector=text).values["a"].value for text in ("", "q=1", "q=2", "q")]
        assert found == [7, 3, 4, 7]
        assert len(target(here, "shop", "a").group.answers) == 4
        for number in range(100):
            assert read(here, selector=f"q!={number}5").values["a"].value == 7
        assert len(target(here, "shop", "a").group.answers) <= 64


async def test_every_scrape_notifies_its_owners_good_or_bad() -> None:
    async with scraping() as here:
        owners: list[Hashable] = []
        here.scraped.subscribe(owners.append)
        here.scraped.want("x", "shop", ["depth", "hits"], [A])
        here.scraped.want("x", "shop", ["depth", "hits"], [A])
        here.scraped.want("y", "shop", ["depth"], [A])
        await here.scrape()
        assert sorted(map(str, owners)) == ["x", "y"]
        here.reader.bodies["10.0.0.1"] = "depth 3"
        await here.scrape()
        assert sorted(map(str, owners)) == ["x", "x", "y", "y"]


# --- failures -------------------------------------------------------------------------------------


async def test_intervals_and_windows_are_stretched_together() -> None:
    async with scraping() as here:
        here.scraped.work.schedule._per_second = 1
        others = [scraped_pod("c", "10.0.0.3"), scraped_pod("d", "10.0.0.4")]
        here.scraped.want("x", "shop", ["hits", "depth"], [A, B, *others])
        assert here.metric("fastpath_scrape_interval_stretch_ratio") == 4
        for number in range(5):
            await step(here, 4, body=f"depth 1\nhits {number * 8}")

        assert read(here, "hits").values["a"] == (2, WALL + 20, False)
        assert span_of(here, "hits") == 21
        here.clock.advance(9)
        assert not math.isnan(read(here).values["a"].value)
        here.clock.advance(0.001)
        assert read(here).values == {}


# --- the API --------------------------------------------------------------------------------------


async def ask(here: RulesWorld, request: str = "/namespaces/shop/pods/*/depth") -> CustomAnswer:
    return await here.provider.custom(custom_question(request))


def values_of(found: CustomAnswer) -> dict[str, int]:
    return {item.described.name: item.milli for item in found.items}


@pytest.mark.parametrize(
    ("value", "became_ready", "served"),
    answers("scrape/cache", "the api leaves out a pod that took over load since"),
)
async def test_the_api_leaves_out_a_pod_that_took_over_load_since(
    value: int, became_ready: float | None, served: dict[str, int]
) -> None:
    """An HPA would add its value to an older one of the pod that it has relieved."""
    async with scraping(names=("a", "b")) as here:
        times = {} if became_ready is None else {"b": here.clock.monotonic() + became_ready}
        here.scaler.became_ready = lambda namespace: times if namespace == "shop" else {}
        here.reader.bodies |= {"10.0.0.1": "depth 40", "10.0.0.2": f"depth {value}"}
        here.scraped.want("x", "shop", ["depth"], [A])
        await here.scrape()
        here.clock.advance(0.8)
        here.scraped.want("x", "shop", ["depth"], [A, B])
        await scrape_at_once(here, "b")
        assert values_of(await ask(here)) == served
        assert here.querier.asked == []

        await step(here)
        assert values_of(await ask(here)) == {"a": 40_000, "b": value * 1000}


async def test_prometheus_that_is_slow_is_not_waited_for() -> None:
    async with scraping(names=("a", "b"), answer=lambda _: vector(({"pod": "b"}, 7))) as here:
        here.scraped.want("x", "shop", ["depth"], [A, B])
        here.reader.bodies["10.0.0.1"] = "depth 3"
        await here.scrape()
        here.querier.gate.clear()
        assert values_of(await ask(here)) == {"a": 3000}
        here.querier.gate.set()
        await asyncio.sleep(0.01)
        assert values_of(await ask(here)) == {"a": 3000, "b": 7000}
        assert len(here.querier.asked) == 1, "the first query went on"


async def test_it_runs_and_ends() -> None:
    async with scraping(rules("interval: 100ms")) as here:
        here.reader.bodies["10.0.0.1"] = "depth 3"
        scraped = asyncio.Event()
        here.scraped.subscribe(lambda _: scraped.set())
        async with running(here.scraped.run()):
            here.scraped.want("x", "shop", ["depth"], [A])
            await scraped.wait()

        assert read(here).values["a"].value == 3
