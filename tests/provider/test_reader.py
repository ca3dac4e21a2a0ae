"""What the scaler gets from Prometheus: the values of the API, each with its true age, and nothing that
stands in for an answer."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from adapter.errors import InternalError, PrometheusError
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ExternalValue, SeriesInfo
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector, parse_selector
from adapter.provider.reader import Values
from tests.support.clock import WALL
from tests.support.world import Outcome, RulesWorld, vector, world

RULES = """
rules:
- seriesQuery: s
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
RATE = RULES.replace("sum(<<.Series>>{<<.LabelMatchers>>})", "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m]))")
EXTERNAL = """
externalRules:
- seriesQuery: s
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (q)
"""
SERIES = {"s": (SeriesInfo("hits", frozenset({"namespace", "pod", "ingress"}), 3),)}
DOWN = PrometheusError("unreachable", "cannot connect")
UNFETCHED = "Internal error occurred: unable to fetch metrics"


def table(values: Outcome, ages: Outcome) -> Callable[[str], Outcome]:
    """Return what answers a query: `ages` those that ask for times, `values` the others."""
    return lambda promql: ages if "timestamp" in promql else values


def question(
    metric: str = "hits", resource: str = "pods", selector: LabelSelector = EVERYTHING
) -> CustomQuestion:
    return CustomQuestion(resource, "shop", None, metric, parse_selector("app=web"), selector)


async def objects(here: RulesWorld, *names: str, ttl: float = 0.5, **asked: str) -> Values[tuple[str, int]]:
    # texts
    samples = await here.scaler.sample_objects(question(**asked), names or ("a", "b", "c"), ttl)  # type: ignore[arg-type]
    assert samples is not None
    return samples


async def series(here: RulesWorld, selector: str = "", ttl: float = 0.5) -> Values[ExternalValue]:
    asked = ExternalQuestion("shop", "hits", parse_selector(selector))
    samples = await here.scaler.sample_series(asked, ttl)
    assert samples is not None
    return samples


PODS = table(
    vector(({"pod": "a"}, 1.0), ({"pod": "b"}, 2.5), ({"pod": "stranger"}, 9.0)),
    vector(({"pod": "a"}, WALL - 3.0), ({"pod": "stranger"}, WALL)),
)


async def test_values_and_the_times_of_their_oldest_samples() -> None:
    async with world(RULES, answer=PODS, lists=SERIES) as here:
        found = await objects(here)

        assert dict(found.items) == {"a": 1000, "b": 2500}
        assert found.sampled == {"a": WALL - 3.0}, "the time of b is not known"
        assert (found.lookback, found.oldest) == (0.0, None)
        assert sorted(here.querier.asked) == [
            'min(timestamp(hits{namespace="shop",pod=~"a|b|c"})) by (pod)',
            'sum(hits{namespace="shop",pod=~"a|b|c"}) by (pod)',
        ]


async def test_how_far_a_query_looks_back_and_what_the_rule_allows() -> None:
    async with world(RATE + "  maxSampleAge: 45s\n", answer=PODS, lists=SERIES) as here:
        found = await objects(here)

        assert (found.lookback, found.oldest) == (120.0, 45.0)


@pytest.mark.parametrize(("aggregation", "merges"), [("sum(", True), ("topk(1, ", False)])
async def test_whether_queries_of_several_questions_may_be_one(aggregation: str, *, merges: bool) -> None:
    async with world(RULES.replace("sum(", aggregation), answer=PODS, lists=SERIES) as here:
        found = await objects(here)
        assert (found.merges, found.crosses) == (merges, merges)


async def test_where_namespaces_share_no_query_it_is_said() -> None:
    rules = RULES.replace("sum(", "s{<<.LabelMatchers>>} * on (pod, namespace) sum(")
    async with world(rules, answer=PODS, lists=SERIES) as here:
        found = await objects(here)
        assert (found.merges, found.crosses) == (True, False)


async def test_answers_are_shared_for_as_long_as_the_scaler_says() -> None:
    async with world(RULES, answer=PODS, lists=SERIES) as here:
        await objects(here)
        here.clock.advance(0.4)
        await objects(here)
        assert len(here.querier.asked) == 2
        here.clock.advance(0.2)
        await objects(here)
        assert len(here.querier.asked) == 4


@pytest.mark.parametrize("ask", [objects, series])
async def test_values_and_times_that_are_used_for_long_are_of_one_moment(
    ask: Callable[..., Awaitable[object]],
) -> None:
    """A value with the time of a later sample would be taken for that sample."""
    outcomes: dict[str, Outcome] = {"values": DOWN}

    def answer(promql: str) -> Outcome:
        return vector(({"pod": "a"}, WALL)) if "timestamp" in promql else outcomes["values"]

    async with world(RULES + EXTERNAL, answer=answer, lists=SERIES) as here:
        with pytest.raises(InternalError):
            await ask(here, ttl=2.0)
        outcomes["values"] = vector(({"pod": "a"}, 1.0))
        here.clock.advance(1.0)
        here.querier.asked.clear()
        await ask(here, ttl=2.0)
        assert sorted("timestamp" in promql for promql in here.querier.asked) == [False, True]
        here.clock.advance(1.0)
        await ask(here, ttl=2.0)
        assert len(here.querier.asked) == 2


async def test_a_metric_selector_narrows_both_queries() -> None:
    async with world(RULES, answer=PODS, lists=SERIES) as here:
        await here.scaler.sample_objects(question(selector=parse_selector("q=1")), ("a",), 0.5)

        assert all('q="1"' in asked for asked in here.querier.asked)
        assert len(here.querier.asked) == 2


async def test_of_nothing_nothing_is_asked() -> None:
    async with world(RULES, answer=PODS, lists=SERIES) as here:
        assert await here.scaler.sample_objects(question(), (), 0.5) == Values((), merges=None)
        assert here.querier.asked == []


async def test_an_older_answer_that_the_api_may_still_use_is_not_used_here() -> None:
    async with world(RULES + EXTERNAL, answer=PODS, lists=SERIES) as here:
        await objects(here)
        await series(here)
        here.querier.answer = table(DOWN, DOWN)
        here.clock.advance(2)
        with pytest.raises(InternalError, match=UNFETCHED):
            await objects(here)
        with pytest.raises(InternalError, match=UNFETCHED):
            await series(here)


async def test_no_series() -> None:
    async with world(EXTERNAL, answer=lambda _: vector(), lists=SERIES) as here:
        found = await series(here)
        assert found == Values([], found.fresh_until, lookback=0.0)


async def test_questions_for_ages_are_merged_as_those_for_values() -> None:
    async with world(RULES, answer=PODS, lists=SERIES) as here:
        await asyncio.gather(objects(here, "a"), objects(here, "b"))

        assert len(here.querier.asked) == 2
