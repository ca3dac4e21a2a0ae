"""Questions to Prometheus: equal ones share a query, mergeable ones leave together, answers live for a while.

`rules.plan.plan` says what may be merged and how the query reads; here is when it leaves. The law:

- No timers. A question leaves at once; while a query of its lane (one metric, one metric selector, one kind of object; one
  namespace too where namespaces cannot share a query) is on its way, further questions collect and leave together when it is back.
- Who comes towards the end of an answer's TTL gets it at once, and a query leaves that nobody waits for.
- A lane that had another question within the last TTL is busy: its next query takes along, as far as it has room, the questions
  that were asked longest ago and will be asked again first. Where over half of a metric's objects are asked for, one sweep
  answers all.
- A caller that goes away cancels nothing that others wait for. Failures are shared by those who wait and never kept.
- When Prometheus fails, the last answer to the very same question stands in while it is younger than `max_age`.
- An answer with a warning may lack a part of the data. Callers that take partial answers get it marked; to all others it is a
  failure. It is never kept, so the last whole answer stays. A rule may accept warnings: then its answers are whole.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult
from adapter.prometheus.answers import (
    KEPT_SWEEPS_BYTES,
    KEPT_TEXTS_BYTES,
    Answers,
    Freshness,
    ObjectAnswer,
    SweepAnswer,
    Text,
    TextAnswer,
    weigh_question,
)
from adapter.prometheus.batching import SWEEP_LIMIT, Lane, Lanes
from adapter.prometheus.client import Querier
from adapter.prometheus.demux import PLACED_AT_ONCE, failure_of, partial_of, pick, place
from adapter.rules.plan import plan
from adapter.rules.plan.plan import Objects, PlannedQuery
from adapter.rules.query import MetricQuery
from adapter.rules.query_rule import QueryRule
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

__all__ = ["Freshness", "ObjectAnswer", "QueryCache", "TextAnswer"]

_log = logging.getLogger(__name__)

MERGE_PAUSE = 60.0
"""After a merged query failed, the questions of its rule are asked alone for so many seconds."""

WAITING_BYTES = 64 * 1024 * 1024
"""How much memory the questions on their way may take, those included whose callers have left. Who asks one more gets the last answer if
that is young enough, and a failure of kind ``busy`` if not."""

SWEPT_SAMPLES = 100_000
"""A sweep whose answer has more samples is not read to its end: the objects asked for are asked for by name."""

FRESH_PASSED = 64
"""How many questions with fresh answers are passed over in search of those to take along. What stands behind more of them was
asked so lately that it would be out of date before it is asked again, and looking at all would cost more than the query."""

ASKED_AHEAD = 10
"""While so many queries or questions are on their way, none is asked ahead: those that somebody waits for have half of the connections."""

_SOURCES = ("query", "joined", "cache", "sweep", "stale")

_Key = TypeVar("_Key", bound=Hashable)
Answer = TypeVar("Answer", TextAnswer, ObjectAnswer)


class QueryCache:
    """The one way to Prometheus for values. Use as an async context manager: it owns the queries it sends."""

    def __init__(
        self, querier: Querier, clock: Clock, monitoring: Monitoring, *, timeout: float = 8.0
    ) -> None:
        """`timeout`: seconds a caller waits at most, the time spent collecting included."""
        self._querier = querier
        self._clock = clock
        self._monitoring = monitoring
        self._timeout = timeout
        # children are looked up once: finding one costs more than counting
        self._sources = {source: monitoring.answers.labels(source=source) for source in _SOURCES}
        self._succeeded = {
            kind: monitoring.queries.labels(kind=kind, outcome="success") for kind in plan.Kind
        }
        self._texts: Answers[Text, TextAnswer] = Answers(
            "texts", clock, monitoring, lambda text: len(text.promql), KEPT_TEXTS_BYTES
        )
        self._objects: Answers[tuple[MetricQuery, Objects], ObjectAnswer] = Answers(
            "objects", clock, monitoring, weigh_question
        )
        self._sweeps: Answers[MetricQuery, SweepAnswer] = Answers(
            "sweeps", clock, monitoring, lambda query: query.weight, KEPT_SWEEPS_BYTES
        )
        self._lanes = Lanes(monitoring)
        monitoring.questions_waiting.set_function(lambda: self._texts.flying + self._objects.flying)
        self._unmergeable: WeakSet[QueryRule] = WeakSet()
        self._paused: WeakKeyDictionary[QueryRule, float] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(
        self,
        promql: str,
        freshness: Freshness,
        *,
        accepts_warnings: bool = False,
        takes_partial: bool = False,
    ) -> TextAnswer:
        """Return the answer to a query; PrometheusError when there is none and no last one young enough.

        `accepts_warnings`: the rule counts an answer with warnings as whole. `takes_partial`: the caller
        takes an answer that is marked as partial.
        """
        text = Text(promql, accepts_warnings)
        kept = self._texts.find(text)
        flight = self._texts.flights.get(text)
        if kept is not None:
            left = kept.answer.asked + freshness.lasts(kept.took) - self._clock.monotonic()
            if left > 0:
                self._count("cache")
                if left <= freshness.ahead and flight is None and self._may_ask_ahead():
                    self._open_text(text, freshness)
                return kept.answer
        self._count("joined" if flight else "query")
        if flight is None and self._is_full():
            return self._stand_in(self._texts, text, freshness, _busy())
        if flight is None:
            flight = self._open_text(text, freshness)
        return await self._landing(self._texts, text, flight, freshness, takes_partial=takes_partial)

    async def ask_objects(
        self,
        query: MetricQuery,
        objects: Objects,
        freshness: Freshness,
        expected: int = 0,
        *,
        takes_partial: bool = False,
    ) -> ObjectAnswer:
        """Return the samples of `objects`; errors as `ask`, and TemplateError when the query cannot be rendered.

        `expected` is about how many objects have the metric, as discovery counted its series. `takes_partial`
        is as in `ask`; the query's rule says whether warnings are accepted.
        """
        if not query.separability.separable:
            return await self._ask_unmergeable(query, objects, freshness, takes_partial=takes_partial)
        now = self._clock.monotonic()
        key = (query, objects)
        lane = self._lanes.note(query, objects, expected, now)
        lane.freshness = freshness
        flight = self._objects.flights.get(key)
        found = self._find(lane, objects, now, freshness)
        if found is not None:
            answer, source, left = found
            self._count(source)
            if left <= freshness.ahead and flight is None and not lane.draining and self._may_ask_ahead():
                self._board(lane, objects, now)
            return answer
        self._count("joined" if flight else "query")
        if flight is None and self._is_full():
            return self._stand_in(self._objects, key, freshness, _busy())
        if flight is None:
            flight = self._board(lane, objects, now)
        return await self._landing(self._objects, key, flight, freshness, takes_partial=takes_partial)

    async def _ask_unmergeable(
        self, query: MetricQuery, objects: Objects, freshness: Freshness, *, takes_partial: bool
    ) -> ObjectAnswer:
        """Ask a question that can only be asked as it is; equal texts still share a query."""
        promql, accepts = plan.ask_alone(query, objects).promql, query.rule.accepts_warnings
        answer = await self.ask(promql, freshness, accepts_warnings=accepts, takes_partial=takes_partial)
        samples = pick(query, objects, answer.result)
        return ObjectAnswer(samples, answer.asked, answer.failure, partial=answer.partial)

    def _open_text(self, text: Text, freshness: Freshness) -> asyncio.Future[TextAnswer]:
        flight = self._texts.open(text)
        work = self._answer_text(text, freshness, flight)
        self._spawn(work, f"query {text.promql[:40]}", lambda: _give_up([flight]))
        return flight

    def _board(self, lane: Lane, objects: Objects, now: float) -> asyncio.Future[ObjectAnswer]:
        """Return the flight of a question that nobody has asked: at once and alone, or with the lane's next departure."""
        flight = self._objects.open((lane.query, objects))
        if not self._may_merge(lane.query.rule, now):
            work = self._answer_alone(lane, objects, flight)
            self._spawn(work, f"question {lane.query.series}", lambda: _give_up([flight]))
            return flight
        lane.waiting[objects] = flight
        if not lane.draining:
            lane.draining = True
            self._spawn(self._drain(lane), f"lane {lane.query.series}", lambda: _abandon(lane))
        return flight

    async def _landing(
        self,
        store: Answers[_Key, Answer],
        key: _Key,
        flight: asyncio.Future[Answer],
        freshness: Freshness,
        *,
        takes_partial: bool,
    ) -> Answer:
        """Wait for a flight without owning it; fall back on the last whole answer while it is young."""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await asyncio.shield(flight)
        except TimeoutError:
            failure = PrometheusError("timeout", f"no answer within {self._timeout:g} s, waiting included")
        except PrometheusError as error:
            failure = error
        else:
            if answer.partial is None or takes_partial:
                return answer
            failure = answer.partial
        return self._stand_in(store, key, freshness, failure)

    def _stand_in(
        self, store: Answers[_Key, Answer], key: _Key, freshness: Freshness, failure: PrometheusError
    ) -> Answer:
        """Return the last answer where there is none of now, while it is young enough; else raise `failure`."""
        kept = store.get(key)
        if kept is not None and self._clock.monotonic() - kept.asked < freshness.max_age:
            self._count("stale")
            return kept._replace(failure=failure)
        raise failure

    def _is_full(self) -> bool:
        return self._texts.flying + self._objects.flying >= WAITING_BYTES

    def _may_ask_ahead(self) -> bool:
        return not self._is_full() and len(self._texts.flights) + len(self._objects.flights) < ASKED_AHEAD

    def _find(
        self, lane: Lane, objects: Objects, now: float, freshness: Freshness
    ) -> tuple[ObjectAnswer, str, float] | None:
        """Return the newest answer, if it may be used still, where it was, and for how many seconds it may be used.

        One from a sweep is the question's own from now on.
        """
        kept = self._objects.find((lane.query, objects))
        swept = self._sweeps.find(lane.query)
        if kept is not None and (swept is None or swept.answer.asked <= kept.answer.asked):
            left = kept.answer.asked + freshness.lasts(kept.took) - now
            if left > 0:
                return kept.answer, "cache", left
        if swept is None:
            return None
        left = swept.answer.asked + freshness.lasts(swept.took) - now
        if left <= 0:
            return None
        answer = swept.answer.pick(objects.namespace or "", objects.names)
        self._keep(lane, objects, answer, swept.took)
        return answer, "sweep", left

    def _keep(self, lane: Lane, objects: Objects, answer: ObjectAnswer, took: float) -> None:
        self._objects.keep((lane.query, objects), answer, max(lane.freshness), took)

    # What follows runs in tasks of the cache.

    async def _answer_text(
        self, text: Text, freshness: Freshness, flight: asyncio.Future[TextAnswer]
    ) -> None:
        asked = self._clock.monotonic()
        result = await self._send(text.promql, plan.Kind.ALONE, accepts_warnings=text.accepts_warnings)
        if isinstance(result, PrometheusError):
            _fail(flight, result)
            return
        partial = partial_of([result], accepts_warnings=text.accepts_warnings)
        answer = TextAnswer(result, asked, partial=partial)
        if partial is None:
            self._texts.keep(text, answer, max(freshness), self._clock.monotonic() - asked)
        flight.set_result(answer)

    async def _drain(self, lane: Lane) -> None:
        """Send what waits, until nothing does."""
        left = float("inf")
        while lane.waiting:
            lane.departing, lane.waiting = lane.waiting, {}
            self._settle(lane, left)
            left = self._clock.monotonic()
            if lane.departing:
                await self._depart(lane, lane.departing)
        lane.departing, lane.draining = {}, False

    def _settle(self, lane: Lane, left: float) -> None:
        """Answer what the last departure, of `left`, brought along: a question may have come while its answer was on its way."""
        now = self._clock.monotonic()
        for objects, flight in list(lane.departing.items()):
            found = self._find(lane, objects, now, lane.freshness)
            if found is not None and found[0].asked >= left:
                flight.set_result(found[0])
                del lane.departing[objects]

    async def _depart(self, lane: Lane, flights: Mapping[Objects, asyncio.Future[ObjectAnswer]]) -> None:
        """Send the questions of `flights` with what rides along, and give each its answer."""
        now = self._clock.monotonic()
        busy = now - lane.used_before < lane.freshness.ttl
        wanted = list(flights)
        if not self._may_merge(lane.query.rule, now):
            await self._depart_alone(lane, flights)
            return
        planned: list[PlannedQuery] = []
        results: list[QueryResult | PrometheusError] = []
        riding: list[Objects] = []
        if busy and lane.worth_sweeping():
            sweep = plan.sweep(lane.query)
            swept = await self._sweep(lane, sweep)
            if swept is not None:
                planned, results = [sweep], [swept]
        if not planned:
            if busy:
                riding = plan.companions(lane.query, wanted, self._due(lane, flights, now))
            planned = await _merge(lane.query, [*wanted, *riding])
            results = await self._send_all(lane, planned)
        failure = next(filter(None, map(failure_of, results)), None)
        if failure is not None:
            await self._recover(lane, flights, planned, failure)
            return
        placed, doubled, size = await place(lane.query, planned, results)
        if doubled and any(query.kind is not plan.Kind.ALONE for query in planned):
            self._monitoring.dropped.labels(reason="duplicate").inc()
            self._unmergeable.add(lane.query.rule)
            await self._depart_alone(lane, flights)
            return
        partial = partial_of(results, accepts_warnings=lane.query.rule.accepts_warnings)
        answers = SweepAnswer(placed, now, size, partial)
        took = self._clock.monotonic() - now
        if planned[0].kind is plan.Kind.SWEEP and partial is None:
            self._sweeps.expire()
            self._sweeps.keep(lane.query, answers, lane.freshness.lasts(took), took)
            lane.objects_seen = sum(map(len, placed.values()))
        await self._hand_out(lane, flights, (*wanted, *riding), answers, took)

    async def _sweep(self, lane: Lane, sweep: PlannedQuery) -> QueryResult | PrometheusError | None:
        """Return what a sweep brings; None where that is too much to be read, and the lane is not swept any more."""
        accepts = lane.query.rule.accepts_warnings
        swept = await self._send(sweep.promql, sweep.kind, SWEPT_SAMPLES, accepts_warnings=accepts)
        if isinstance(swept, PrometheusError) and swept.kind == "size":
            lane.objects_seen = SWEEP_LIMIT
            return None
        return swept

    async def _send_all(
        self, lane: Lane, planned: Sequence[PlannedQuery]
    ) -> list[QueryResult | PrometheusError]:
        accepts = lane.query.rule.accepts_warnings
        sending = [self._send(query.promql, query.kind, accepts_warnings=accepts) for query in planned]
        if len(sending) == 1:  # as nearly always: spares a task
            return [await sending[0]]
        return await asyncio.gather(*sending)

    async def _hand_out(
        self,
        lane: Lane,
        flights: Mapping[Objects, asyncio.Future[ObjectAnswer]],
        questions: Iterable[Objects],
        answers: SweepAnswer,
        took: float,
    ) -> None:
        """Keep the answer to each question unless it is partial, and give it to the callers that wait."""
        picked = 0
        for objects in questions:
            picked += len(objects.names)
            if picked > PLACED_AT_ONCE:
                picked = 0
                await asyncio.sleep(0)
            answer = answers.pick(objects.namespace or "", objects.names)
            if answer.partial is None:
                self._keep(lane, objects, answer, took)
            if objects in flights:
                flights[objects].set_result(answer)

    def _due(self, lane: Lane, flights: Mapping[Objects, object], now: float) -> Iterator[Objects]:
        """Yield the standing questions whose answers are not fresh, those asked longest ago first."""
        fresh = 0
        for objects in lane.standing:
            kept = self._objects.find((lane.query, objects))
            if (
                kept is not None
                and now - kept.answer.asked < lane.freshness.lasts(kept.took) - lane.freshness.ahead
            ):
                fresh += 1
                if fresh > FRESH_PASSED:
                    return
            elif objects not in flights:
                yield objects

    async def _recover(
        self,
        lane: Lane,
        flights: Mapping[Objects, asyncio.Future[ObjectAnswer]],
        planned: Sequence[PlannedQuery],
        failure: PrometheusError,
    ) -> None:
        """After a failure: a merged query is asked again separately, once; a server that is not there is not asked n times."""
        merged = any(query.kind is not plan.Kind.ALONE for query in planned)
        if not merged or failure.kind == "unreachable":
            for flight in flights.values():
                _fail(flight, failure)
            return
        self._paused[lane.query.rule] = self._clock.monotonic() + MERGE_PAUSE
        _log.info(
            "merged query failed, asking separately",
            extra=facts(rule=lane.query.rule.path, error=str(failure)),
        )
        await self._depart_alone(lane, flights)

    async def _depart_alone(
        self, lane: Lane, flights: Mapping[Objects, asyncio.Future[ObjectAnswer]]
    ) -> None:
        await asyncio.gather(
            *(self._answer_alone(lane, objects, flight) for objects, flight in flights.items())
        )

    async def _answer_alone(self, lane: Lane, objects: Objects, flight: asyncio.Future[ObjectAnswer]) -> None:
        asked = self._clock.monotonic()
        planned = plan.ask_alone(lane.query, objects)
        accepts = lane.query.rule.accepts_warnings
        result = await self._send(planned.promql, planned.kind, accepts_warnings=accepts)
        if isinstance(result, PrometheusError):
            _fail(flight, result)
            return
        partial = partial_of([result], accepts_warnings=accepts)
        try:
            answer = ObjectAnswer(pick(lane.query, objects, result), asked, partial=partial)
        except PrometheusError as error:
            _fail(flight, error)
            return
        if partial is None:
            self._keep(lane, objects, answer, self._clock.monotonic() - asked)
        flight.set_result(answer)

    async def _send(
        self, promql: str, kind: plan.Kind, most: int | None = None, *, accepts_warnings: bool
    ) -> QueryResult | PrometheusError:
        """Ask Prometheus for at most `most` samples; a failure is a value here, because several share it."""
        try:
            result = await self._querier.query(promql, self._clock.wall(), most=most)
        except PrometheusError as error:
            self._monitoring.queries.labels(kind=kind, outcome=error.kind).inc()
            return error
        if result.warnings and not accepts_warnings:
            self._monitoring.queries.labels(kind=kind, outcome="partial").inc()
        else:
            self._succeeded[kind].inc()
        return result

    def _may_merge(self, rule: QueryRule, now: float) -> bool:
        return rule not in self._unmergeable and self._paused.get(rule, float("-inf")) <= now

    def _spawn(self, work: Coroutine[Any, Any, None], name: str, abandon: Callable[[], None]) -> None:
        """Run `work` in a task of the cache; call `abandon` if it does not reach its end: the cache is closed, or has a defect."""
        if self._closed:
            work.close()
            abandon()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def finished(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            if done.cancelled():
                abandon()
            elif (defect := done.exception()) is not None:
                _log.error("query task failed", exc_info=defect)
                abandon()

        task.add_done_callback(finished)

    def _count(self, source: str) -> None:
        self._sources[source].inc()


def _busy() -> PrometheusError:
    return PrometheusError("busy", "too many questions wait for Prometheus")


async def _merge(query: MetricQuery, questions: Sequence[Objects]) -> list[PlannedQuery]:
    """Return the queries that answer the questions; other work may run between two."""
    planned: list[PlannedQuery] = []
    for one in plan.merge(query, questions):
        if planned:
            await asyncio.sleep(0)
        planned.append(one)
    return planned


def _fail(flight: asyncio.Future[Any], failure: PrometheusError) -> None:
    if not flight.done():
        flight.set_exception(failure)


def _give_up(flights: Iterable[asyncio.Future[Any]]) -> None:
    """Tell those who still wait that their query has ended without an answer: the cache was closed, or has a defect."""
    for flight in flights:
        _fail(flight, PrometheusError("unreachable", "the query was given up"))


def _abandon(lane: Lane) -> None:
    """After the task of a lane broke off: nobody waits any more, and the next question starts another."""
    _give_up([*lane.departing.values(), *lane.waiting.values()])
    lane.departing, lane.waiting, lane.draining = {}, {}, False
