"""The bounds of the query cache: time, memory, and work in a turn. The stories are in test_query_scripts."""

import asyncio
import itertools
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult, Sample
from adapter.prometheus import batching, query_cache
from adapter.prometheus.answers import AnswerStore, Freshness, ObjectAnswer, TextAnswer, refresh_ahead
from adapter.prometheus.batching import Batcher
from adapter.rules import matchers
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from adapter.telemetry.metrics import Monitoring
from tests.prometheus import stories
from tests.support.clock import FakeClock
from tests.support.waiting import other_work
from tests.support.world import Outcome, vector


@pytest.fixture
async def story() -> AsyncIterator[stories.AskedCache]:
    made = stories.AskedCache()
    yield made
    await made.end()


def names_of(task: asyncio.Task[object]) -> set[str]:
    """Return the objects of an answer that is there."""
    answer = task.result()
    assert isinstance(answer, ObjectAnswer), answer
    return set(answer.samples)


def kind_of(task: asyncio.Task[object]) -> str:
    error = task.result()
    assert isinstance(error, PrometheusError), error
    return error.kind


def selected(query: MetricQuery, text: str) -> MetricQuery:
    """Return the query with a metric selector of its own."""
    return stories.of_metric(query, "x", matchers.Matcher("l", "=", text))


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freshness", "took", "seconds"),
    [
        pytest.param(stories.FRESHNESS, 0.0, 1.0, id="at once"),
        pytest.param(stories.FRESHNESS, 0.5, 1.0, id="half"),
        pytest.param(stories.FRESHNESS, 0.6, 1.2, id="more"),
        pytest.param(stories.FRESHNESS, 20.0, 30.0, id="within max age"),
        pytest.param(Freshness(0.25, 0.25), 3.0, 0.25, id="only new ones"),
        pytest.param(Freshness(5.0, 1.0), 3.0, 5.0, id="TTL above max age"),
        pytest.param(Freshness(0.0, 30.0), 3.0, 0.0, id="never"),
    ],
)
def test_how_long_an_answer_is_used(freshness: Freshness, took: float, seconds: float) -> None:
    assert freshness.lifetime(took) == seconds


@given(
    st.floats(0.05, 6.0), st.floats(0.01, 5.0), st.floats(0.02, 1.5), st.sampled_from(["texts", "objects"])
)
async def test_a_question_occupies_prometheus_half_of_the_time_at_most(
    took: float, ttl: float, pause: float, kind: str
) -> None:
    """At any rate of requests: one query at a time, at most one for each TTL, and no answer too old."""
    story, freshness = stories.AskedCache(), refresh_ahead(ttl, 30.0)
    now = story.clock.monotonic
    begun: list[float] = []
    under_way = False
    for _ in range(40):
        asked = (
            story.text("x", freshness) if kind == "texts" else story.objects("a", "p", freshness=freshness)
        )
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
            story.prometheus.release(len(begun) - 1)
            await story.settle()
            under_way = False
        story.clock.advance(max(0.0, until - now()))
    await story.end()
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert all(gap >= max(ttl, 2 * took) - freshness.ahead - 1e-6 for gap in gaps)


@pytest.mark.looptime
async def test_no_request_waits_longer_than_eight_seconds(story: stories.AskedCache) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    first = story.objects("a", "p")
    await asyncio.sleep(5)
    collected = story.objects("a", "q")
    for task, seconds in ((first, 8), (collected, 13)):  # collecting included
        await task
        assert kind_of(task) == "timeout"
        assert loop.time() - begun == pytest.approx(seconds)


async def test_a_defect_fails_pending_requests_and_is_logged(
    story: stories.AskedCache, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> Outcome:
        raise ZeroDivisionError

    story.prometheus.reply = broken
    waiting = [story.text("a"), story.objects("a", "p"), story.objects("a", "q")]
    await story.settle()
    assert [kind_of(task) for task in waiting] == ["unreachable"] * 3
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 2
    story.prometheus.reply = stories.named_objects
    again = story.objects("a", "p")
    await again
    assert names_of(again) == {"p"}


# --- memory ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["objects", "texts"])
async def test_requests_of_disconnected_callers_are_bounded(
    story: stories.AskedCache, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endless distinct selectors while Prometheus hangs: a request beyond the bound fails at once."""
    monkeypatch.setattr(query_cache, "INFLIGHT_BYTES", 100_000)

    async def ask(number: int) -> asyncio.Task[object]:
        text = f"{number:04}" + "x" * 1000
        if kind == "texts":
            asked = story.text(text)
        else:
            asked = story.objects("a", "p", query=selected(story.query, text))
        await story.settle()
        return asked

    known = await ask(0)
    story.prometheus.release(0)
    await known
    story.clock.advance(2.0)
    for number in range(1, 60):
        asked = await ask(number)
        if asked.done():
            break
        asked.cancel()
    assert kind_of(asked) == "busy"
    sent = len(story.prometheus.asked)
    assert 20 < sent < 40
    waiting = story.monitoring.registry.get_sample_value("fastpath_prometheus_pending_query_bytes")
    assert waiting == pytest.approx(100_000, rel=0.05)
    old = (await ask(0)).result()
    assert isinstance(old, TextAnswer | ObjectAnswer)
    assert old.failure is not None
    assert old.failure.kind == "busy"
    assert old._replace(failure=None) == known.result(), "the last answer is young enough"
    joined = await ask(1)
    assert not joined.done(), "a request for a query in flight joins it"
    story.prometheus.release(1)
    await joined
    assert not (await ask(100)).done()
    assert len(story.prometheus.asked) == sent + 1


async def test_endless_distinct_questions_are_answered_and_forgotten(
    story: stories.AskedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of selectors and names, within the TTL in which all of them would be kept."""
    monkeypatch.setattr(batching, "KEPT_BYTES", 200_000)
    monkeypatch.setattr(batching, "BATCHES_BYTES", 600_000)
    story.renew()
    story.prometheus.reply = stories.named_objects

    async def ask(name: str, query: MetricQuery) -> None:
        asked = story.objects("a", name, query=query)
        await asked
        assert names_of(asked) == {name}

    for number in range(1000):
        await ask("p", selected(story.query, f"{number}"))
        await ask(f"n{number}", story.query)
    for cache in ("objects", "batches"):
        assert 0.9 < story.cache_metric("used_ratio", cache) <= 1.0
        assert story.cache_metric("evictions_total", cache) > 500
        assert story.cache_metric("entries", cache) < 400
    before = len(story.prometheus.asked)
    await ask("p", selected(story.query, "0"))
    assert len(story.prometheus.asked) == before + 1, "what was dropped is queried again"


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(stories.HeldPrometheus(), FakeClock(), Monitoring())


def test_the_requests_that_a_batch_remembers_are_bounded_by_their_names(
    batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each selector of objects may name thousands of them."""
    monkeypatch.setattr(batching, "BATCH_BYTES", 100_000)
    query = stories.metric_query()
    for number in range(30):
        names = tuple(f"n{number}-{name}" for name in range(100))
        batch = batcher.note(query, Objects("a", names), 0, batcher.clock.monotonic())
        assert batch.weight <= 100_000
    assert 5 < len(batch.recent) < 30
    assert batch.recent_names == 100 * len(batch.recent)
    requests = sum(request.weight for request in batch.recent)
    assert batch.weight == pytest.approx(1024 + 2 * query.weight + requests)


def test_a_batch_remembers_the_latest_requests_in_the_order_of_their_repetition(batcher: Batcher) -> None:
    query = stories.metric_query()
    names = [f"p{number}" for number in range(batching.RECENT_REQUESTS)]
    for name in (*names, "p1", "t"):
        batch = batcher.note(query, Objects("a", (name,)), 0, batcher.clock.monotonic())
    assert list(batch.recent) == [Objects("a", (name,)) for name in (*names[2:], "p1", "t")]
    later = batcher.note(query, Objects("a", ("late",)), 0, batcher.clock.monotonic() + 30.1)
    assert list(later.recent) == [Objects("a", ("late",))]


async def test_a_sweep_that_brings_too_much_is_broken_off(story: stories.AskedCache) -> None:
    """Then the requests are merged by name, and the metric is not swept again, even after a pause."""
    flood = vector(*(({"ns": "a", "pod": f"p{number}"}, 1.0) for number in range(200_000)))
    story.prometheus.reply = lambda promql: flood if 'pod!=""' in promql else stories.named_objects(promql)
    for pause in (1.01, 1.01, batching.RECENT_SECONDS + 1, 1.01, 1.01):
        asked = [story.objects("a", f"p{number}", expected=4) for number in range(6)]
        await asyncio.gather(*asked)
        assert [names_of(each) for each in asked] == [{f"p{number}"} for number in range(6)]
        story.clock.advance(pause)
    assert sum('pod!=""' in promql for promql in story.prometheus.asked) == 1
    sent = "fastpath_prometheus_queries_total"
    for kind, outcome, count in (("sweep", "size", 1), ("merged", "success", 5)):
        labels = {"type": kind, "outcome": outcome}
        assert story.monitoring.registry.get_sample_value(sent, labels) == count


async def test_unused_batches_are_dropped(story: stories.AskedCache) -> None:
    story.prometheus.reply = stories.named_objects
    for number in range(40):
        await story.objects("a", "p", query=stories.of_metric(story.query, f"x{number}"))
        story.clock.advance(2.0)
    assert story.cache_metric("entries", "batches") <= 16


# --- work in a turn -------------------------------------------------------------------------------


async def test_many_names_and_many_requests_do_not_block_the_loop(story: stories.AskedCache) -> None:
    """Queries for many names are written one by one, and many requests of one batch get answers in turns."""
    story.prometheus.reply = stories.named_objects
    names = tuple(f"pod{number}" for number in range(5_000))
    async with other_work() as turns:
        asked = story.objects("a", *names)
        await asked
    assert len(names_of(asked)) == 5_000
    written = len(story.prometheus.asked)
    assert written > 2
    assert turns.count >= written
    story.prometheus.reply = None
    story.clock.advance(60)
    waiting = [story.objects("b", f"p{number}", *names[:500]) for number in range(20)]
    await story.settle()
    async with other_work() as turns:
        story.prometheus.release(written)
        await asyncio.gather(*waiting)
    assert len(story.prometheus.asked) == written + 1
    assert turns.count >= 20 * 500 / 1_000
