"""What the scaler gets from Prometheus: the values of the API, each with its true age, and nothing that
stands in for an answer."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest

from adapter.errors import InternalError, NotFoundError, PrometheusError
from adapter.model.label_selectors import EVERYTHING, LabelSelector, parse_selector
from adapter.model.metrics import HISTOGRAM, CustomQuestion, ExternalQuestion, SeriesInfo
from adapter.provider import scaler_provider
from adapter.provider.scaler_provider import ObjectSamples, SeriesSamples
from tests.support.clock import WALL
from tests.support.world import Outcome, World, vector, world

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


async def objects(here: World, *names: str, ttl: float = 0.5, **asked: str) -> ObjectSamples:
    # texts
    samples = await here.scaler.sample_objects(question(**asked), names or ("a", "b", "c"), ttl)  # type: ignore[arg-type]
    assert samples is not None
    return samples


async def series(here: World, selector: str = "", ttl: float = 0.5) -> SeriesSamples:
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

        assert found.values == {"a": 1000, "b": 2500}
        assert found.times == {"a": WALL - 3.0}, "the time of b is not known"
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
        assert await here.scaler.sample_objects(question(), (), 0.5) == ObjectSamples(
            {}, {}, None, None, merges=None
        )
        assert here.querier.asked == []


@pytest.mark.parametrize(("more", "values"), [("", {"b": 2000}), ("  onNaN: zero\n", {"a": 0, "b": 2000})])
async def test_no_number_is_no_value_unless_the_rule_says_zero(more: str, values: dict[str, int]) -> None:
    answer = table(
        vector(({"pod": "a"}, float("nan")), ({"pod": "b"}, 2.0), ({"pod": "c"}, float("inf"))), vector()
    )
    async with world(RULES + more, answer=answer, lists=SERIES) as here:
        assert (await objects(here)).values == values


@pytest.mark.parametrize(("values", "ages"), [(DOWN, vector()), (vector(), DOWN), (DOWN, DOWN)])
async def test_without_values_or_ages_there_is_no_answer(values: Outcome, ages: Outcome) -> None:
    async with world(RULES + EXTERNAL, answer=table(values, ages), lists=SERIES) as here:
        with pytest.raises(InternalError, match=UNFETCHED):
            await objects(here)
        with pytest.raises(InternalError, match=UNFETCHED):
            await series(here)


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


async def test_a_query_that_cannot_be_made() -> None:
    text = RULES.replace("(<<.GroupBy>>)", "(<<.GroupBy>>) <<.Unknown>>") + EXTERNAL.replace(
        "by (q)", "<<.Unknown>>"
    )
    async with world(text, answer=PODS, lists=SERIES) as here:
        with pytest.raises(NotFoundError, match="could not find the metric hits for pods"):
            await objects(here)
        with pytest.raises(InternalError, match=UNFETCHED):
            await series(here)
        assert {fault for fault, _ in here.faults.active()} == {"render"}


async def test_what_no_rule_knows_has_no_samples() -> None:
    async with world(RULES + EXTERNAL, answer=PODS, lists=SERIES) as here:
        for unknown in (question("other"), question(resource="gauges.example.com")):
            assert await here.scaler.sample_objects(unknown, ("a",), 0.5) is None
        assert await here.scaler.sample_series(ExternalQuestion("shop", "other", EVERYTHING), 0.5) is None
        assert here.querier.asked == []


async def test_series_with_the_time_of_the_oldest() -> None:
    answer = table(
        vector(({"q": "1"}, 1.0), ({"q": "2"}, 2.0)),
        vector(({"q": "1"}, WALL - 2.0), ({"q": "2"}, WALL - 7.0)),
    )
    async with world(EXTERNAL + "  maxSampleAge: 45s\n", answer=answer, lists=SERIES) as here:
        assert await series(here, "a=b") == SeriesSamples((1000, 2000), WALL - 7.0, 0.0, 45.0)
        assert sorted(here.querier.asked) == [
            'min by (q) (timestamp(hits{a="b"}))',
            'sum(hits{a="b"}) by (q)',
        ]


async def test_no_series() -> None:
    async with world(EXTERNAL, answer=lambda _: vector(), lists=SERIES) as here:
        assert await series(here) == SeriesSamples((), None, 0.0, None)


@pytest.mark.parametrize(
    ("value", "says", "expected"),
    [
        (math.nan, "", None),
        (math.nan, "drop", (1000,)),
        (math.nan, "zero", (1000, 0)),
        (math.inf, "zero", None),
        (HISTOGRAM, "drop", (1000,)),
    ],
)
async def test_of_a_sum_that_lacks_a_part_there_is_no_value(
    value: float, says: str, expected: tuple[int, ...] | None
) -> None:
    """Unless the rule says otherwise, as for the API."""
    answer = table(
        vector(({"q": "1"}, 1.0), ({"q": "2"}, value)),
        vector(({"q": "1"}, WALL - 2.0), ({"q": "2"}, WALL - 7.0)),
    )
    rule = EXTERNAL + (f"  onNaN: {says}\n" if says else "")
    async with world(rule, answer=answer, lists=SERIES) as here:
        if expected is None:
            with pytest.raises(NotFoundError, match="a series of hits has no value"):
                await series(here)
        else:
            assert (await series(here)).values == expected


async def test_of_a_sum_with_a_part_of_unknown_age_the_age_is_not_known() -> None:
    answer = table(vector(({"q": "1"}, 1.0), ({"q": "2"}, 2.0)), vector(({"q": "1"}, WALL - 2.0)))
    async with world(EXTERNAL, answer=answer, lists=SERIES) as here:
        assert (await series(here)).time is None


async def test_old_parts_are_left_out_where_the_rule_says_so() -> None:
    answer = table(
        vector(({"q": "1"}, 1.0), ({"q": "2"}, 2.0)),
        vector(({"q": "1"}, WALL - 2.0), ({"q": "2"}, WALL - 60.0)),
    )
    async with world(EXTERNAL + "  maxSampleAge: 45s\n", answer=answer, lists=SERIES) as here:
        assert (await series(here))[:2] == ((1000, 2000), WALL - 60.0), "too old as a whole"
    async with world(EXTERNAL + "  maxSampleAge: 45s\n  onNaN: drop\n", answer=answer, lists=SERIES) as here:
        assert (await series(here))[:2] == ((1000,), WALL - 2.0)


@pytest.mark.parametrize(("values_warn", "ages_warn"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("option", "overdue"), [("", scaler_provider.PARTIAL), ("  onWarnings: accept\n", "")]
)
async def test_a_partial_answer_is_overdue(
    option: str, overdue: str, *, values_warn: bool, ages_warn: bool
) -> None:
    """The API would rather have the last whole answer; here the newest counts, and may only raise."""
    warnings = ("store away at 10.0.0.7",)
    labels = {"namespace": "shop", "pod": "a", "q": "1"}
    whole = table(vector((labels, 9.0)), vector((labels, WALL)))
    part = table(
        vector((labels, 1.0))._replace(warnings=warnings if values_warn else ()),
        vector((labels, WALL))._replace(warnings=warnings if ages_warn else ()),
    )
    async with world(RULES + option + EXTERNAL + option, answer=whole, lists=SERIES) as here:
        assert ((await objects(here)).overdue, (await series(here)).overdue) == ("", "")
        here.querier.answer = part
        here.clock.advance(2)
        for _ in range(2):
            found, sums = await objects(here), await series(here)
            assert (found.values, sums.values) == ({"a": 1000}, (1000,))
            assert (found.overdue, sums.overdue) == (overdue, overdue)
        assert "10.0.0.7" not in overdue
        faults = {fault for fault, _ in here.faults.active()}
        assert faults == ({"query"} if overdue else set())


async def test_questions_for_ages_are_merged_as_those_for_values() -> None:
    async with world(RULES, answer=PODS, lists=SERIES) as here:
        await asyncio.gather(objects(here, "a"), objects(here, "b"))

        assert len(here.querier.asked) == 2
