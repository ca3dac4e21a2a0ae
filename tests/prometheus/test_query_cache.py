"""Stories of the query cache over a Prometheus that answers when a test lets it."""

import asyncio
import itertools
import re
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import PrometheusError
from adapter.model.label_selectors import parse_selector
from adapter.model.metrics import QueryResult, Sample
from adapter.prometheus import batching, query_cache
from adapter.prometheus.answers import AnswerStore, Freshness, ObjectAnswer, TextAnswer, refresh_ahead
from adapter.prometheus.batching import Batcher
from adapter.prometheus.query_cache import QueryCache
from adapter.rules import matchers
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from adapter.telemetry.metrics import Monitoring
from tests.support.clock import FakeClock
from tests.support.waiting import other_work
from tests.support.world import Outcome, compile_rule, scalar, vector

FRESHNESS = Freshness(ttl=1.0, max_age=30.0)
RENEWED = refresh_ahead(ttl=1.0, max_age=30.0)
SUM = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
HALF = "<<.Series>>{<<.LabelMatchers>>} * on (ns, pod) sum by (pod) (y{<<.LabelMatchers>>})"
TOP = "topk(1, <<.Series>>{<<.LabelMatchers>>})"


class Prometheus:
    """Holds every query until the test answers it, or answers at once with `reply`.

    Keeps the order of arrival.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reply: Callable[[str], Outcome] | None = None
        self._held: dict[int, asyncio.Future[Outcome]] = {}

    async def query(self, promql: str, time: float, *, most: int | None = None) -> QueryResult:
        number = len(self.asked)
        self.asked.append(promql)
        if self.reply is not None:
            outcome = self.reply(promql)
        else:
            self._held[number] = asyncio.get_running_loop().create_future()
            outcome = await self._held[number]
        if isinstance(outcome, PrometheusError):
            raise outcome
        if most is not None and len(outcome.samples) > most:
            raise PrometheusError("size", f"the answer has more than {most} samples")
        return outcome

    def answer(self, number: int, outcome: Outcome | None = None) -> None:
        """Answer the query of this number, in the order of arrival, by default with every object it names."""
        self._held.pop(number).set_result(named_objects(self.asked[number]) if outcome is None else outcome)


def named_objects(promql: str) -> QueryResult:
    """Return a sample for each pod that a query names, of value 1, in the namespaces it names.

    For a sweep three objects.
    """

    def values(label: str, otherwise: Sequence[str]) -> Sequence[str]:
        found = re.search(rf'{label}=~?"([^"]*)"', promql)
        return found[1].replace(r"\\", "").split("|") if found else otherwise

    return vector(
        *(
            ({"ns": ns, "pod": pod}, 1.0)
            for ns in values("ns", ["a", "b"])
            for pod in values("pod", ["p", "q"])
        )
    )


class Story:
    """A cache, the Prometheus behind it, and a clock that stands."""

    def __init__(self) -> None:
        self.prometheus = Prometheus()
        self.clock = FakeClock()
        self.monitoring = Monitoring()
        self.cache = QueryCache(self.prometheus, self.clock, self.monitoring)
        self.query = metric_query()
        self._asking: list[asyncio.Task[object]] = []

    def text(self, promql: str, freshness: Freshness = FRESHNESS) -> asyncio.Task[object]:
        return self.start(self.cache.ask(promql, freshness))

    def objects(
        self,
        namespace: str | None,
        *names: str,
        query: MetricQuery | None = None,
        expected: int = 0,
        freshness: Freshness = FRESHNESS,
    ) -> asyncio.Task[object]:
        objects = Objects(namespace, names)
        return self.start(self.cache.ask_objects(query or self.query, objects, freshness, expected))

    def ask(self, kind: str, freshness: Freshness = RENEWED) -> asyncio.Task[object]:
        """Ask for a text, or for a pod of one metric."""
        if kind == "texts":
            return self.text("x", freshness)
        return self.objects("a", "p", freshness=freshness)

    def start(self, asking: Awaitable[object]) -> asyncio.Task[object]:
        async def wait() -> object:
            try:
                return await asking
            except PrometheusError as error:
                return error

        self._asking.append(asyncio.create_task(wait()))
        return self._asking[-1]

    async def answer(self, number: int, outcome: Outcome | None = None) -> list[str]:
        """Answer the query of this number, and return the queries sent when all that can has run."""
        self.prometheus.answer(number, outcome)
        return await self.settle()

    async def settle(self) -> list[str]:
        """Let everything run that can; return the queries sent so far."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.prometheus.asked

    async def end(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def count(self, source: str) -> float:
        """Return how many questions were answered from a source."""
        value = self.monitoring.registry.get_sample_value("fastpath_responses_total", {"source": source})
        return value or 0.0

    def cache_metric(self, metric: str, cache: str) -> float | None:
        return self.monitoring.registry.get_sample_value(f"fastpath_cache_{metric}", {"cache": cache})

    def queries(self, kind: str, outcome: str) -> float | None:
        labels = {"type": kind, "outcome": outcome}
        return self.monitoring.registry.get_sample_value("fastpath_prometheus_queries_total", labels)


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    made = Story()
    async with made.cache:
        yield made
        await made.end()


@pytest.fixture
def query(story: Story) -> MetricQuery:
    return story.query


def metric_query(
    template: str = SUM, selector: str = "", series: str = "x", namespace_label: str = "ns"
) -> MetricQuery:
    rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": template}]}))
    return MetricQuery(rule, series, matchers.from_selector(parse_selector(selector)), namespace_label, "pod")


def names_of(task: asyncio.Task[object]) -> set[str]:
    """Return the objects of an answer that is there."""
    answer = task.result()
    assert isinstance(answer, ObjectAnswer), answer
    return set(answer.samples)


def kind_of(task: asyncio.Task[object]) -> str:
    error = task.result()
    assert isinstance(error, PrometheusError), error
    return error.kind


async def failure(task: asyncio.Task[object]) -> str:
    await task
    return kind_of(task)


def stood_in(answer: object, last: object) -> str:
    """Return the kind of the failure that an answer stands in for; it must be the last good one."""
    assert isinstance(answer, TextAnswer | ObjectAnswer)
    assert answer.failure is not None
    assert answer._replace(failure=None) == last
    return answer.failure.kind


REFUSED = PrometheusError("query", "bad_data: made up")
UNREACHABLE = PrometheusError("unreachable", "cannot connect")

# --- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_identical_questions_in_flight_share_a_query(story: Story, kind: str) -> None:
    first, second, other = story.ask(kind), story.ask(kind), story.text("b")
    await story.settle()
    third = story.ask(kind)
    assert len(await story.settle()) == 2
    await story.answer(0)
    assert first.result() is second.result() is third.result()
    assert not other.done()
    assert (story.count("query"), story.count("joined")) == (2, 2)


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_a_failure_is_shared_and_not_kept(story: Story, kind: str) -> None:
    first, second = story.ask(kind), story.ask(kind)
    await story.settle()
    assert len(await story.answer(0, REFUSED)) == 1
    assert [kind_of(first), kind_of(second)] == ["query", "query"]
    third = story.ask(kind)
    assert len(await story.settle()) == 2
    await story.answer(1, named_objects('ns="a",pod="p"'))
    assert not isinstance(third.result(), PrometheusError)


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_a_stale_answer_replaces_a_failure_until_max_age(story: Story, kind: str) -> None:
    story.prometheus.reply = lambda _: vector(({"pod": "p"}, 1.0))
    good = await story.ask(kind, FRESHNESS)
    story.prometheus.reply = lambda _: UNREACHABLE
    story.clock.advance(29.9)
    assert stood_in(await story.ask(kind, FRESHNESS), good) == "unreachable"
    assert story.count("stale") == 1
    story.clock.advance(0.1)
    assert await failure(story.ask(kind, FRESHNESS)) == "unreachable"
    assert await failure(story.text("never answered")) == "unreachable"


# --- objects: joining and collecting --------------------------------------------------------------


async def test_one_request_is_sent_as_by_upstream(story: Story) -> None:
    asked = story.objects("a", "p.1", "q", query=metric_query())
    assert await story.settle() == ['sum(x{ns="a",pod=~"p.1|q"}) by (pod)']
    await story.answer(0, vector(({"pod": "p.1"}, 3.0), ({"pod": "px1"}, 5.0)))
    answer = asked.result()
    assert isinstance(answer, ObjectAnswer)
    assert {name: group[-1].value for name, group in answer.samples.items()} == {"p.1": 3.0}


async def test_requests_that_arrive_during_a_query_share_the_next(story: Story) -> None:
    first = story.objects("a", "p")
    await story.settle()
    others = [story.objects("a", "q"), story.objects("b", "p", "r")]
    assert len(await story.settle()) == 1
    assert (await story.answer(0))[1:] == ['sum by (pod, ns) (x{ns=~"a|b",pod=~"q|p|r"})']
    await story.answer(1, vector(*(({"ns": "b", "pod": pod}, 1.0) for pod in ("q", "r"))))
    assert [names_of(task) for task in (first, *others)] == [{"p"}, set(), {"r"}]


@pytest.mark.parametrize(
    ("namespace_label", "namespace", "promql"),
    [
        pytest.param("ns", "a", 'sum(x{ns="a",pod=~"p|q"}) by (pod)', id="in a namespace"),
        pytest.param("", None, 'sum(x{pod=~"p|q"}) by (pod)', id="a kind without a namespace"),
    ],
)
async def test_requests_of_one_moment_share_a_query(
    story: Story, namespace_label: str, namespace: str | None, promql: str
) -> None:
    query = metric_query(namespace_label=namespace_label)
    asked = [story.objects(namespace, "p", query=query), story.objects(namespace, "q", query=query)]
    assert await story.settle() == [promql]
    await story.answer(0, vector(({"pod": "q"}, 1.0)))
    assert [names_of(task) for task in asked] == [set(), {"q"}]


async def test_other_selectors_other_metrics_and_other_rules_have_batches_of_their_own(
    story: Story, query: MetricQuery
) -> None:
    story.objects("a", "p")
    story.objects("a", "q", query=MetricQuery(query.rule, "y", (), "ns", "pod"))
    story.objects("a", "q", query=metric_query(selector="code=x"))
    story.objects("a", "q", query=metric_query())
    assert len(await story.settle()) == 4


async def test_a_cancelled_caller_of_a_batch_cancels_no_other(story: Story) -> None:
    first, second = story.objects("a", "p"), story.objects("a", "q")
    await story.settle()
    third = story.objects("a", "r")
    await story.settle()
    first.cancel()
    third.cancel()
    await story.settle()
    assert len(await story.answer(0)) == 2  # what was asked is asked, and its answer kept
    await story.answer(1)
    assert names_of(second) == {"q"}
    kept = story.objects("a", "r")
    await kept
    assert names_of(kept) == {"r"}
    assert len(story.prometheus.asked) == 2


async def test_queries_that_cannot_be_merged_are_sent_at_once_and_shared_by_their_text(story: Story) -> None:
    query = metric_query(TOP)
    story.objects("a", "p", query=query)
    story.objects("a", "p", query=query)
    story.objects("a", "q", query=query)
    assert await story.settle() == ['topk(1, x{ns="a",pod="p"})', 'topk(1, x{ns="a",pod="q"})']


async def test_an_answer_that_is_no_vector_is_an_error(story: Story) -> None:
    story.prometheus.reply = lambda _: scalar(1.0)
    assert await failure(story.objects("a", "p", query=metric_query(TOP))) == "type"


# --- a busy batch ---------------------------------------------------------------------------------


async def ask_in_turn(
    story: Story, *objects: Objects, expected: int = 0, query: MetricQuery | None = None
) -> None:
    """Have questions asked one after the other, each in a quiet moment of its own."""
    story.prometheus.reply = named_objects
    for one in objects:
        await story.objects(one.namespace, *one.names, expected=expected, query=query)
        story.clock.advance(1.1)
    story.prometheus.reply = None
    story.prometheus.asked.clear()


async def test_an_idle_batch_neither_prefetches_nor_sweeps(story: Story) -> None:
    await ask_in_turn(story, Objects("a", ("p",)), Objects("b", ("q",)), expected=2)
    story.objects("a", "p", expected=2)
    assert await story.settle() == ['sum(x{ns="a",pod="p"}) by (pod)']


async def test_a_busy_batch_prefetches_the_oldest_requests(story: Story) -> None:
    await ask_in_turn(story, *(Objects(ns, (pod,)) for ns, pod in (("a", "p"), ("b", "q"), ("a", "r"))))
    story.objects("a", "s")
    await story.settle()
    story.prometheus.answer(0)
    busy = story.objects("a", "t")
    assert (await story.settle())[1:] == ['sum by (pod, ns) (x{ns=~"a|b",pod=~"t|p|r|q"})']
    await story.answer(1)
    assert names_of(busy) == {"t"}
    brought = story.objects("b", "q")
    await brought
    assert names_of(brought) == {"q"}
    assert len(story.prometheus.asked) == 2


@pytest.mark.parametrize(("more", "names"), [(0, '=~"s|due"'), (1, '="s"')], ids=["reached", "given up"])
async def test_the_search_for_what_is_due_ends_behind_many_fresh_ones(
    story: Story, more: int, names: str
) -> None:
    story.prometheus.reply = named_objects
    for number in range(batching.FRESH_SCANNED + more):
        await story.objects("a", f"p{number}")
    story.prometheus.reply = lambda _: UNREACHABLE
    await story.objects("a", "due")
    story.prometheus.reply = None
    story.objects("a", "s")
    assert (await story.settle())[-1] == f'sum(x{{ns="a",pod{names}}}) by (pod)'


# --- sweeps ---------------------------------------------------------------------------------------

SWEEP = 'sum by (pod, ns) (x{ns!="",pod!=""})'


async def make_busy(story: Story, expected: int, query: MetricQuery | None = None) -> list[str]:
    """Have two of a metric's objects be recent questions and the batch busy.

    Return what a third question sends.
    """
    await ask_in_turn(story, Objects("a", ("p",)), Objects("b", ("q",)), expected=expected, query=query)
    story.objects("a", "s", query=query)
    await story.settle()
    await story.answer(0)
    story.objects("a", "t", query=query)
    return (await story.settle())[1:]


SWEPT = {
    "over half of the objects": (SUM, 7, True),
    "half of the objects": (SUM, 8, False),
    "unknown number of objects": (SUM, 0, False),
    "too many objects": (SUM, batching.SWEEP_LIMIT, False),
    "namespaces cannot share a query": (HALF, 3, False),
}


@pytest.mark.parametrize(("template", "expected", "swept"), SWEPT.values(), ids=SWEPT)
async def test_sweep_only_where_it_is_worth_it(
    story: Story,
    template: str,
    expected: int,
    swept: bool,  # noqa: FBT001 - a table's column
) -> None:
    sent = await make_busy(story, expected, query=metric_query(template))
    assert (sent == [SWEEP]) is swept


async def test_a_sweep_answers_every_question_for_its_ttl(story: Story) -> None:
    assert await make_busy(story, 4) == [SWEEP]
    meanwhile = story.objects("b", "p", "missing")
    await story.settle()
    swept_at = story.clock.monotonic()
    await story.answer(1)
    assert names_of(meanwhile) == {"p"}  # it came while the sweep was on its way
    story.clock.advance(0.9)
    later = story.objects("a", "q")
    await later
    assert names_of(later) == {"q"}
    assert later.result().asked == swept_at, "an answer from a sweep is as old as the sweep"  # type: ignore[attr-defined]
    assert story.count("sweep") == 1
    assert len(story.prometheus.asked) == 2
    story.clock.advance(0.2)
    story.objects("a", "q")
    assert len(await story.settle()) == 3


async def test_a_sweep_of_too_many_is_not_repeated(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "SWEEP_LIMIT", 10)
    assert await make_busy(story, 4) == [SWEEP]
    await story.answer(1, vector(*(({"ns": "a", "pod": f"p{number}"}, 1.0) for number in range(10))))
    story.clock.advance(1.1)
    story.objects("a", "s")
    await story.settle()
    await story.answer(2)
    story.objects("a", "t")
    assert (await story.settle())[3:] != [SWEEP]


# --- when merging goes wrong ----------------------------------------------------------------------


async def test_two_samples_for_one_object_end_merging_for_good(story: Story) -> None:
    first, second = story.objects("a", "p"), story.objects("a", "q")
    await story.settle()
    story.prometheus.answer(
        0, vector(({"pod": "p"}, 1.0), ({"pod": "p", "le": "1"}, 2.0), ({"pod": "q"}, 3.0))
    )
    alone = ['sum(x{ns="a",pod="p"}) by (pod)', 'sum(x{ns="a",pod="q"}) by (pod)']
    assert (await story.settle())[1:] == alone
    story.prometheus.answer(1, vector(({"pod": "p"}, 1.0), ({"pod": "p", "le": "1"}, 2.0)))
    await story.answer(2)
    assert [names_of(first), names_of(second)] == [{"p"}, {"q"}]
    duplicates = {"reason": "duplicate"}
    assert story.monitoring.registry.get_sample_value("fastpath_values_dropped_total", duplicates) == 1
    story.clock.advance(3600.0)
    story.objects("a", "p")
    story.objects("a", "q")
    assert (await story.settle())[3:] == alone
    story.objects("a", "r")
    assert len(await story.settle()) == 6  # at once: there is nothing to wait for


async def test_a_failed_merged_query_is_sent_separately_and_not_merged_for_a_minute(story: Story) -> None:
    first, second = story.objects("a", "p"), story.objects("a", "q")
    await story.settle()
    story.prometheus.answer(0, REFUSED)
    alone = ['sum(x{ns="a",pod="p"}) by (pod)', 'sum(x{ns="a",pod="q"}) by (pod)']
    assert (await story.settle())[1:] == alone
    story.prometheus.answer(1, REFUSED)
    await story.answer(2)
    assert kind_of(first) == "query"
    assert names_of(second) == {"q"}
    story.clock.advance(batching.MERGE_PAUSE - 0.1)
    story.objects("a", "p")
    story.objects("a", "q")
    assert (await story.settle())[3:] == alone
    for number in (3, 4):
        await story.answer(number)
    story.clock.advance(1.1)
    story.objects("a", "p")
    story.objects("a", "q")
    assert (await story.settle())[5:] == ['sum(x{ns="a",pod=~"p|q"}) by (pod)']


async def test_pending_requests_are_sent_separately_too_when_merging_ends(story: Story) -> None:
    for name in ("p", "q"):
        story.objects("a", name)
    await story.settle()
    for name in ("r", "s"):
        story.objects("a", name)
    await story.settle()
    await story.answer(0, REFUSED)
    for number in (1, 2):
        story.prometheus.answer(number)
    alone = ['sum(x{ns="a",pod="r"}) by (pod)', 'sum(x{ns="a",pod="s"}) by (pod)']
    assert (await story.settle())[3:] == alone
    for number in (3, 4):
        await story.answer(number)
    await story.objects("a", "r")
    assert len(story.prometheus.asked) == 5


async def test_an_unreachable_server_is_not_queried_for_each_request(story: Story) -> None:
    asked = [story.objects("a", name) for name in ("p", "q")]
    await story.settle()
    assert len(await story.answer(0, UNREACHABLE)) == 1
    assert [kind_of(task) for task in asked] == ["unreachable"] * 2
    story.objects("a", "p")
    story.objects("a", "q")
    assert (await story.settle())[1:] == ['sum(x{ns="a",pod=~"p|q"}) by (pod)']  # and merged as before


# --- asking ahead ---------------------------------------------------------------------------------


def number_of(task: asyncio.Task[object]) -> float:
    """Return the one value of an answer that is there."""
    answer = task.result()
    assert isinstance(answer, TextAnswer | ObjectAnswer)
    samples = answer.result.samples if isinstance(answer, TextAnswer) else answer.samples["p"]
    return samples[0].value


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_a_hit_near_the_end_of_the_ttl_starts_a_refresh(story: Story, kind: str) -> None:

    def answer(number: int) -> None:
        story.prometheus.answer(number, vector(({"ns": "a", "pod": "p"}, float(number))))

    story.ask(kind)
    await story.settle()
    answer(0)
    await story.settle()
    story.clock.advance(0.89)
    young = story.ask(kind)
    assert len(await story.settle()) == 1
    assert number_of(young) == 0
    story.clock.advance(0.02)
    strict = story.ask(kind, FRESHNESS)
    assert len(await story.settle()) == 1, "who does not want it causes no query"
    assert number_of(strict) == 0
    many = [story.ask(kind) for _ in range(3)]
    assert len(await story.settle()) == 2, "all the same, one query"
    assert [number_of(task) for task in many] == [0, 0, 0], "the refresh does not delay them"
    assert story.count("cache") == 5
    story.clock.advance(0.09)
    joined = story.ask(kind)
    assert len(await story.settle()) == 2
    assert not joined.done(), "the old answer has ended"
    answer(1)
    await story.settle()
    after = story.ask(kind)
    await story.settle()
    assert [number_of(joined), number_of(after)] == [1, 1]
    assert len(story.prometheus.asked) == 2
    assert (story.count("query"), story.count("joined")) == (1, 1)
    story.clock.advance(0.9)  # the new answer is of when it was asked for, 0.91 s in
    story.ask(kind)
    assert len(await story.settle()) == 3


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_a_failed_refresh_fails_no_request(story: Story, kind: str) -> None:

    story.prometheus.reply = lambda _: vector(({"ns": "a", "pod": "p"}, 7.0))
    await story.ask(kind)
    story.prometheus.reply = lambda _: PrometheusError("status", "HTTP status 503")
    story.clock.advance(0.95)
    for sent in (2, 3):
        near = story.ask(kind)
        assert len(await story.settle()) == sent, "the next request tries again"
        assert number_of(near) == 7
    story.clock.advance(0.05)
    assert stood_in(await story.ask(kind), near.result()) == "status"


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_no_refresh_starts_while_too_much_is_pending(
    story: Story, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    story.prometheus.reply = lambda _: vector(({"ns": "a", "pod": "p"}, 7.0))
    await story.ask(kind)
    story.clock.advance(0.95)
    monkeypatch.setattr(query_cache, "INFLIGHT_BYTES", 0)
    near = story.ask(kind)
    assert len(await story.settle()) == 1
    assert number_of(near) == 7


async def test_a_refresh_prefetches_other_requests(story: Story) -> None:
    story.prometheus.reply = named_objects
    for name in ("p", "q", "r"):
        await story.objects("a", name, freshness=RENEWED)
    story.clock.advance(0.95)
    await story.objects("a", "q", freshness=RENEWED)
    assert (await story.settle())[3:] == ['sum(x{ns="a",pod=~"q|p|r"}) by (pod)']
    story.clock.advance(0.5)
    for name in ("p", "q", "r"):
        await story.objects("a", name, freshness=RENEWED)
    assert len(await story.settle()) == 4


@pytest.mark.parametrize("ttl", [1.0, 60.0])
async def test_a_refreshed_sweep_answers_all_later_requests(story: Story, ttl: float) -> None:
    """Else one question about a pod would have a newer value than the next about the same pod."""
    query, freshness = metric_query(), refresh_ahead(ttl, 60.0)
    every = (("a", "p"), ("a", "q"), ("b", "p"), ("b", "q"))

    def sweep_of(value: float) -> Callable[[str], Outcome]:
        return lambda _: vector(*(({"ns": ns, "pod": pod}, value) for ns, pod in every))

    async def ask(namespace: str, *names: str) -> set[float]:
        answer = await story.cache.ask_objects(query, Objects(namespace, names), freshness, 4)
        await story.settle()
        return {samples[0].value for samples in answer.samples.values()}

    story.prometheus.reply = sweep_of(1.0)
    for each in every:
        await ask(*each)
    story.clock.advance(ttl)
    for each in every:
        await ask(*each)
    assert story.prometheus.asked[-1] == SWEEP
    for _ in range(2):  # so that all are recent questions, and have the sweep's answers as their own
        story.clock.advance(freshness.refresh_after / 2)
        story.prometheus.reply = sweep_of(2.0)
        sent = len(story.prometheus.asked)
        seen = [await ask("a", "p"), await ask("a", "p", "q"), *[await ask(*each) for each in every]]
    assert story.prometheus.asked[sent:] == [SWEEP]
    assert seen == [{1.0}, *[{2.0}] * 5], "the request that starts the refresh gets the cached answer"


async def test_requests_that_wait_take_precedence_over_refreshes(story: Story) -> None:
    query = metric_query(TOP)
    story.prometheus.reply = lambda _: vector(({"pod": "p"}, 1.0))
    texts = [f"t{number}" for number in range(query_cache.REFRESH_LIMIT + 2)]
    begun = texts[: query_cache.REFRESH_LIMIT]
    for text in texts:
        await story.text(text, RENEWED)
    await story.objects("a", "p", freshness=RENEWED, query=query)
    story.prometheus.reply = None
    story.clock.advance(0.95)
    sent = len(await story.settle())
    for text in texts:
        await story.text(text, RENEWED)
    await story.objects("a", "p", freshness=RENEWED, query=query)
    assert (await story.settle())[sent:] == begun
    story.text("new", RENEWED)
    assert (await story.settle())[sent:] == [*begun, "new"]


@pytest.mark.parametrize("took", [0.5, 0.95])
async def test_a_request_during_a_query_gets_what_the_query_prefetched(story: Story, took: float) -> None:
    story.prometheus.reply = named_objects
    for name in ("p", "q"):
        await story.objects("a", name, freshness=RENEWED)
    story.clock.advance(0.8)
    await story.objects("a", "new", freshness=RENEWED)
    story.clock.advance(0.3)
    story.prometheus.reply = None
    first = story.objects("a", "p", freshness=RENEWED)
    sent = len(await story.settle())
    assert story.prometheus.asked[-1] == 'sum(x{ns="a",pod=~"p|q"}) by (pod)'
    second = story.objects("a", "q", freshness=RENEWED)
    await story.settle()
    story.clock.advance(took)
    assert len(await story.answer(sent - 1)) == sent
    assert [names_of(task) for task in (first, second)] == [{"p"}, {"q"}]


async def test_a_caller_without_ttl_gets_a_new_answer_beside_other_callers(story: Story) -> None:
    """The scaler asks so, in one batch with autoscalers that take older answers."""
    story.prometheus.reply = named_objects
    await story.objects("a", "p", freshness=RENEWED)
    story.clock.advance(0.8)
    strict = story.objects("a", "p", freshness=Freshness(0.25, 0.25))
    other = story.objects("a", "p", freshness=RENEWED)
    await asyncio.gather(strict, other)
    answer = strict.result()
    assert isinstance(answer, ObjectAnswer)
    assert answer.asked == story.clock.monotonic()


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_a_caller_without_ttl_keeps_the_stale_answers_of_other_callers(story: Story, kind: str) -> None:

    numbers = iter((1.0, 2.0))
    story.prometheus.reply = lambda _: vector(({"ns": "a", "pod": "p"}, next(numbers)))
    await story.ask(kind, FRESHNESS)
    story.clock.advance(0.5)
    newer = story.ask(kind, Freshness(0.25, 0.25))
    await newer
    assert number_of(newer) == 2
    story.prometheus.reply = lambda _: UNREACHABLE
    story.clock.advance(29.4)
    assert stood_in(await story.ask(kind, FRESHNESS), newer.result()) == "unreachable"
    assert await failure(story.ask(kind, Freshness(0.25, 0.25))) == "unreachable"
    story.clock.advance(0.2)  # 30.1 s after the one that was to be kept so long
    assert await failure(story.ask(kind, FRESHNESS)) == "unreachable"


# --- slow queries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freshness", "took", "seconds"),
    [
        (FRESHNESS, 0.0, 1.0),
        (FRESHNESS, 0.5, 1.0),
        (FRESHNESS, 0.6, 1.2),
        (FRESHNESS, 3.0, 6.0),
        (FRESHNESS, 20.0, 30.0),
        (Freshness(0.25, 0.25), 3.0, 0.25),
        (Freshness(5.0, 1.0), 3.0, 5.0),
        (Freshness(0.0, 30.0), 3.0, 0.0),
    ],
    ids=["at once", "half", "more", "slow", "within max age", "only new ones", "TTL above max age", "never"],
)
def test_how_long_an_answer_is_used(freshness: Freshness, took: float, seconds: float) -> None:
    assert freshness.lifetime(took) == seconds


@pytest.mark.parametrize("kind", ["alone", "sweep"])
async def test_a_query_slower_than_its_ttl_is_answered_from_the_cache(story: Story, kind: str) -> None:
    story.query = query = metric_query(TOP if kind == "alone" else SUM)
    if kind == "sweep":
        assert await make_busy(story, 4, query=query) == [SWEEP]
        sent = 2
    else:
        story.ask(kind)
        sent = len(await story.settle())
    story.clock.advance(3.0)
    await story.answer(sent - 1, named_objects(SUM))
    for _ in range(28):
        story.clock.advance(0.1)
        await story.ask(kind)
        assert len(await story.settle()) == sent
    story.clock.advance(0.15)
    await story.ask(kind)  # at once, and it is asked ahead
    assert len(await story.settle()) == sent + 1
    story.clock.advance(0.1)
    waiting = story.ask(kind)
    assert len(await story.settle()) == sent + 1  # one at a time
    assert not waiting.done()
    story.prometheus.answer(sent, named_objects(SUM))
    await waiting


@given(
    st.floats(0.05, 6.0), st.floats(0.01, 5.0), st.floats(0.02, 1.5), st.sampled_from(["texts", "objects"])
)
async def test_a_question_occupies_prometheus_half_of_the_time_at_most(
    took: float, ttl: float, pause: float, kind: str
) -> None:
    """At any rate of requests: one query at a time, at most one for each TTL, and no answer too old."""
    story, freshness = Story(), refresh_ahead(ttl, 30.0)
    now = story.clock.monotonic
    begun: list[float] = []
    under_way = False
    async with story.cache:
        for _ in range(40):
            asked = story.ask(kind, freshness)
            sent = len(await story.settle())
            if sent > len(begun):
                assert sent == len(begun) + 1
                assert not under_way
                under_way = True
                begun.append(now())
            if asked.done():
                answer = asked.result()
                assert isinstance(answer, TextAnswer | ObjectAnswer)
                assert now() - answer.asked < max(ttl, 2 * took)
            until = now() + pause
            if under_way and begun[-1] + took <= until:
                story.clock.advance(max(0.0, begun[-1] + took - now()))
                await story.answer(len(begun) - 1, named_objects('ns="a",pod="p"'))
                under_way = False
            story.clock.advance(max(0.0, until - now()))
        await story.end()
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert all(gap >= max(ttl, 2 * took) - freshness.ahead - 1e-6 for gap in gaps)


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_no_request_waits_longer_than_eight_seconds(story: Story) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    first = story.objects("a", "p")
    await asyncio.sleep(5)
    collected = story.objects("a", "q")
    await first
    assert kind_of(first) == "timeout"
    assert loop.time() - begun == pytest.approx(8)
    await collected
    assert kind_of(collected) == "timeout"
    assert loop.time() - begun == pytest.approx(13)  # eight seconds of its own, collecting included


async def test_closing_cancels_queries_in_flight_and_fails_pending_requests() -> None:
    story = Story()
    async with story.cache:
        waiting = [story.text("a"), story.objects("a", "p"), story.objects("a", "p", query=metric_query(TOP))]
        await story.settle()
        waiting.append(story.objects("a", "q"))
        await story.settle()
    await story.settle()
    assert [kind_of(task) for task in waiting] == ["unreachable"] * 4


async def test_closing_fails_only_unanswered_requests() -> None:
    story = Story()
    async with story.cache:
        first, second = story.objects("a", "p"), story.objects("a", "q")
        await story.settle()
        await story.answer(0, REFUSED)
        await story.answer(1)
    await story.settle()
    assert names_of(first) == {"p"}
    assert kind_of(second) == "unreachable"


async def test_a_closed_cache_sends_nothing() -> None:
    story = Story()
    async with story.cache:
        early = story.objects("a", "p", query=metric_query())
        await asyncio.sleep(0)
    asked = [early, story.text("a"), story.objects("a", "p", query=metric_query())]
    assert await story.settle() == []
    assert [kind_of(task) for task in asked] == ["unreachable"] * 3


async def test_a_defect_fails_pending_requests_and_is_logged(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> Outcome:
        raise ZeroDivisionError

    story.prometheus.reply = broken
    waiting = [story.text("a"), story.objects("a", "p"), story.objects("a", "q")]
    await story.settle()
    assert [kind_of(task) for task in waiting] == ["unreachable"] * 3
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 2
    story.prometheus.reply = named_objects
    again = story.objects("a", "p")
    await again
    assert names_of(again) == {"p"}


def test_questions_and_samples_take_room() -> None:
    """The last that fit are found, an answer that never fits is not kept, and an old one is dropped."""
    clock, sample = FakeClock(), (Sample({}, 1.0, 0.0),)
    empty = ObjectAnswer({}, clock.monotonic())
    long: AnswerStore[int, ObjectAnswer] = AnswerStore("objects", clock, Monitoring(), int, 45_000)
    for number in range(10_000, 10_004):
        long.keep(number, empty, 30.0)
    assert [number for number in range(10_000, 10_004) if long.find(number)] == [10_002, 10_003]
    store: AnswerStore[int, ObjectAnswer] = AnswerStore("objects", clock, Monitoring(), int, 6000)
    for number in range(5):
        store.keep(number, empty._replace(samples=dict.fromkeys("abc", sample)), 30.0)
    store.keep(9, empty._replace(samples=dict.fromkeys("abcdefghij", sample)), 30.0)
    assert [number for number in range(10) if store.find(number)] == [3, 4]
    clock.advance(30.0)
    assert store.find(4) is None


@pytest.mark.parametrize("others", [10_000, 40], ids=["ever new", "the same again and again"])
async def test_long_questions_take_no_more_memory_than_there_is_room(others: int) -> None:
    """Those included which the cache has dropped, and remembers until it looks through them."""
    clock = FakeClock()
    room = 400_000
    store: AnswerStore[str, TextAnswer] = AnswerStore("texts", clock, Monitoring(), len, room)
    answer = TextAnswer(QueryResult("vector", []), clock.monotonic())
    most = 0
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(600):
            question = f"{number % others:08}" * 500  # a new object, as a query is each time
            store.open(question).set_result(answer)
            await asyncio.sleep(0)
            store.keep(question, answer, 300.0)
            most = max(most, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert room / 2 < most < room * 1.3


# --- more than there may be -----------------------------------------------------------------------

WAITING = "fastpath_prometheus_pending_query_bytes"


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_requests_of_disconnected_callers_are_bounded(
    story: Story, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endless distinct selectors while Prometheus hangs: a request beyond the bound fails at once."""
    monkeypatch.setattr(query_cache, "INFLIGHT_BYTES", 100_000)
    plain = metric_query()

    def ask(number: int) -> asyncio.Task[object]:
        if kind == "texts":
            return story.text(f"{number:04}" + "x" * 1000)
        selector = (matchers.Matcher("l", "=", f"{number:04}" + "x" * 1000),)
        return story.objects("a", "p", query=MetricQuery(plain.rule, "x", selector, "ns", "pod"))

    known = ask(0)
    await story.settle()
    story.prometheus.answer(0)
    await known
    story.clock.advance(2.0)
    for number in range(1, 60):
        asked = ask(number)
        await story.settle()
        if asked.done():
            break
        asked.cancel()
    assert kind_of(asked) == "busy"
    sent = len(story.prometheus.asked)
    assert 20 < sent < 40
    assert story.monitoring.registry.get_sample_value(WAITING) == pytest.approx(100_000, rel=0.05)
    assert stood_in(await ask(0), known.result()) == "busy", "the last answer is young enough"
    joined = ask(1)
    await story.settle()
    assert not joined.done(), "a request for a query in flight joins it"
    story.prometheus.answer(1)
    await joined
    late = ask(100)
    await story.settle()
    assert not late.done()
    assert len(story.prometheus.asked) == sent + 1


async def test_endless_distinct_questions_are_answered_and_forgotten(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of selectors and names, within the TTL in which all of them would be kept."""
    story.prometheus.reply = named_objects
    monkeypatch.setattr(batching, "KEPT_BYTES", 200_000)
    monkeypatch.setattr(batching, "BATCHES_BYTES", 600_000)
    story.monitoring = Monitoring()
    story.cache = QueryCache(story.prometheus, story.clock, story.monitoring)
    plain = metric_query()
    for number in range(1000):
        selector = (matchers.Matcher("l", "=", f"{number}"),)
        for query, name in (
            (MetricQuery(plain.rule, "x", selector, "ns", "pod"), "p"),
            (plain, f"n{number}"),
        ):
            asked = story.objects("a", name, query=query)
            await asked
            assert names_of(asked) == {name}
    for cache in ("objects", "batches"):
        assert 0.9 < (story.cache_metric("used_ratio", cache) or 0) <= 1.0
        assert (story.cache_metric("evictions_total", cache) or 0) > 500
        assert (story.cache_metric("entries", cache) or 0) < 400
    before = len(story.prometheus.asked)
    again = story.objects(
        "a", "p", query=MetricQuery(plain.rule, "x", (matchers.Matcher("l", "=", "0"),), "ns", "pod")
    )
    await again
    assert names_of(again) == {"p"}
    assert len(story.prometheus.asked) == before + 1, "what was dropped is queried again"


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(Prometheus(), FakeClock(), Monitoring())


def test_the_requests_that_a_batch_remembers_are_bounded_by_their_names(
    batcher: Batcher, query: MetricQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each selector of objects may name thousands of them."""
    monkeypatch.setattr(batching, "BATCH_BYTES", 100_000)
    for number in range(30):
        names = tuple(f"n{number}-{name}" for name in range(100))
        batch = batcher.note(query, Objects("a", names), 0, batcher.clock.monotonic())
        assert batch.weight <= 100_000
    assert 5 < len(batch.recent) < 30
    assert batch.recent_names == 100 * len(batch.recent)
    requests = sum(request.weight for request in batch.recent)
    assert batch.weight == pytest.approx(1024 + 2 * query.weight + requests)


def test_a_batch_remembers_the_latest_requests_in_the_order_of_their_repetition(
    batcher: Batcher, query: MetricQuery
) -> None:
    names = [f"p{number}" for number in range(batching.RECENT_REQUESTS)]
    for name in (*names, "p1", "t"):
        batch = batcher.note(query, Objects("a", (name,)), 0, batcher.clock.monotonic())
    assert list(batch.recent) == [Objects("a", (name,)) for name in (*names[2:], "p1", "t")]
    later = batcher.note(query, Objects("a", ("late",)), 0, batcher.clock.monotonic() + 30.1)
    assert list(later.recent) == [Objects("a", ("late",))]


async def test_a_sweep_that_brings_too_much_is_broken_off(story: Story) -> None:
    """Then the requests are merged by name, and the metric is not swept again, even after a pause."""
    flood = vector(*(({"ns": "a", "pod": f"p{number}"}, 1.0) for number in range(200_000)))
    story.prometheus.reply = lambda promql: flood if 'pod!=""' in promql else named_objects(promql)
    for pause in (1.01, 1.01, batching.RECENT_SECONDS + 1, 1.01, 1.01):
        asked = [story.objects("a", f"p{number}", expected=4) for number in range(6)]
        await asyncio.gather(*asked)
        assert [names_of(each) for each in asked] == [{f"p{number}"} for number in range(6)]
        story.clock.advance(pause)
    assert sum('pod!=""' in promql for promql in story.prometheus.asked) == 1
    assert (story.queries("sweep", "size"), story.queries("merged", "success")) == (1, 5)


async def test_unused_batches_are_dropped(story: Story) -> None:
    story.prometheus.reply = named_objects
    rule = metric_query()
    for number in range(40):
        await story.objects("a", "p", query=MetricQuery(rule.rule, f"x{number}", (), "ns", "pod"))
        story.clock.advance(2.0)
    assert (story.cache_metric("entries", "batches") or 0) <= 16


async def test_an_evicted_batch_in_flight_still_completes(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "BATCHES_BYTES", 3_000)  # room for one
    async with QueryCache(story.prometheus, story.clock, story.monitoring) as story.cache:
        rule = metric_query()
        first = story.objects("a", "p", query=rule)
        await story.settle()
        story.objects("a", "p", query=MetricQuery(rule.rule, "y", (), "ns", "pod"))
        again = story.objects("a", "p", query=rule)
        await story.settle()
        await story.answer(0)
        assert story.cache_metric("evictions_total", "batches")
        assert [names_of(first), names_of(again)] == [{"p"}] * 2
        await story.end()


# --- self-metrics ---------------------------------------------------------------------------------


async def test_queries_are_counted_by_kind_and_outcome(story: Story) -> None:
    await make_busy(story, 4)
    await story.answer(1, REFUSED)
    kinds = (("alone", "success"), ("sweep", "query"), ("sweep", "success"))
    assert [story.queries(*kind) for kind in kinds] == [3, 1, 0]


async def test_many_names_and_many_requests_do_not_block_the_loop(story: Story) -> None:
    """Queries for many names are written one by one, and many requests of one batch get answers in turns."""
    query = metric_query(SUM)
    story.prometheus.reply = named_objects
    names = tuple(f"pod{number}" for number in range(5_000))
    async with other_work() as turns:
        answer = await story.cache.ask_objects(query, Objects("a", names), FRESHNESS)
    assert len(answer.samples) == 5_000
    written = len(story.prometheus.asked)
    assert written > 2
    assert turns.count >= written
    story.prometheus.reply = None
    story.clock.advance(60)
    waiting = [story.objects("b", f"p{number}", *names[:500], query=query) for number in range(20)]
    await story.settle()
    async with other_work() as turns:
        story.prometheus.answer(written)
        await asyncio.gather(*waiting)
    assert len(story.prometheus.asked) == written + 1
    assert turns.count >= 20 * 500 / 1_000


# --- answers with warnings ------------------------------------------------------------------------

ACCEPTING = """
rules:
- seriesQuery: x
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  onWarnings: accept
"""


def warned(result: QueryResult, *warnings: str) -> QueryResult:
    return result._replace(warnings=warnings or ("store away",))


async def test_a_partial_answer_is_a_failure_to_all_but_those_that_take_it(
    story: Story, query: MetricQuery
) -> None:
    def ask() -> list[asyncio.Task[object]]:
        return [story.text("q"), story.objects("a", "p")]

    whole = ask()
    await story.settle()
    story.prometheus.answer(0, vector(({}, 100.0)))
    await story.answer(1)
    story.clock.advance(2)
    strict = ask()
    taking = [
        story.start(story.cache.ask("q", FRESHNESS, takes_partial=True)),
        story.start(story.cache.ask_objects(query, Objects("a", ("p",)), FRESHNESS, takes_partial=True)),
    ]
    assert len(await story.settle()) == 4, "all share a query"
    story.prometheus.answer(2, warned(vector(({}, 10.0))))
    await story.answer(3, warned(vector(({"pod": "p"}, 10.0))))

    for before, after in zip(whole, strict, strict=True):
        assert stood_in(after.result(), before.result()) == "partial"
    for task in taking:
        answer = task.result()
        assert isinstance(answer, TextAnswer | ObjectAnswer)
        assert (answer.failure, answer.partial.kind if answer.partial else "") == (None, "partial")
        assert number_of(task) == 10.0

    story.clock.advance(29)
    late = ask()
    assert len(await story.settle()) == 6, "it was not kept"
    story.prometheus.answer(4, warned(vector()))
    await story.answer(5, warned(vector()))
    assert [kind_of(task) for task in late] == ["partial", "partial"]


async def test_a_merged_query_with_a_warning_is_partial_for_all_of_its_requests(
    story: Story, query: MetricQuery
) -> None:
    """It is the engine that lacks data, not the query that is too much."""
    tasks = [
        story.start(
            story.cache.ask_objects(query, Objects("a", (name,)), FRESHNESS, takes_partial=name != "r")
        )
        for name in ("p", "q", "r")
    ]
    await story.settle()
    story.prometheus.answer(0, warned(vector(({"pod": "p"}, 1.0))))
    assert await story.settle() == ['sum(x{ns="a",pod=~"p|q|r"}) by (pod)']
    assert [names_of(task) for task in tasks[:2]] == [{"p"}, set()]
    assert kind_of(tasks[2]) == "partial"
    later = story.objects("a", "p")
    assert len(await story.settle()) == 2, "it was not kept"
    await story.answer(1)
    assert names_of(later) == {"p"}


async def test_a_sweep_with_a_warning_answers_nothing_later(story: Story) -> None:
    assert await make_busy(story, 4) == [SWEEP]
    await story.answer(1, warned(vector(({"ns": "a", "pod": "p"}, 3.0), ({"ns": "b", "pod": "q"}, 3.0))))
    assert story.cache_metric("entries", "sweeps") == 0
    later = story.objects("b", "q")
    assert len(await story.settle()) == 3, "it is asked for"
    await story.answer(2)
    assert names_of(later) == {"q"}


async def test_a_rule_that_accepts_warnings_has_whole_answers(story: Story) -> None:
    query = MetricQuery(compile_rule(ACCEPTING), "x", (), "ns", "pod")
    first = story.objects("a", "p", query=query)
    text = story.start(story.cache.ask("q", FRESHNESS, accepts_warnings=True))
    await story.settle()
    story.prometheus.answer(0, warned(vector(({"pod": "p"}, 1.0))))
    await story.answer(1, warned(vector(({}, 1.0))))
    for task in (first, text, story.objects("a", "p", query=query)):
        await story.settle()
        answer = task.result()
        assert isinstance(answer, TextAnswer | ObjectAnswer)
        assert (answer.failure, answer.partial) == (None, None)
    assert len(story.prometheus.asked) == 2, "it was kept"
