"""The query cache: the one way to Prometheus for metric values.

- TTL: an answer younger than its TTL is a hit (`answers`).
- Single-flight: equal requests in flight share one query; a caller that disconnects cancels it for no other.
- Batching: requests about one metric that are pending together share a query (`batching`).
- Refresh-ahead: a hit near the end of the TTL is served from the cache and starts a background refresh.
- Stale answers: if Prometheus fails, the last answer to the same request is used while it is younger than
  `max_age`.

The age of an answer counts from when its query was sent. A hit is younger than the TTL or, if its query took
over half of the TTL, younger than twice the time that the query took: an answer slower than its TTL would be
stale on arrival, and Prometheus would be queried without a pause. A refresh makes hits younger and changes
neither bound. Only while Prometheus fails may an answer be as old as `max_age`; its `failure` says so.

Failures are shared by the requests that wait for them and never cached. An answer with a warning may lack
data: it is not cached either, and callers that do not accept partial answers get a failure. A rule may accept
warnings; its answers are complete then.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Self, TypeVar

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.prometheus.answers import (
    KEPT_TEXTS_BYTES,
    AnswerStore,
    Freshness,
    ObjectAnswer,
    TextAnswer,
    TextQuery,
)
from adapter.prometheus.batching import Batch, Batcher, demux, fail, find_warning
from adapter.prometheus.client import Querier
from adapter.rules import query_plan
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from adapter.telemetry.metrics import Monitoring

_log = logging.getLogger(__name__)

INFLIGHT_BYTES = 64 * 1024 * 1024
"""Bound on the requests pending and in flight, those of disconnected callers included. A request beyond it
gets the last answer if that is young enough, and otherwise a failure of kind ``busy``."""

REFRESH_LIMIT = 10
"""With so many requests pending or in flight no refresh starts: waiting callers have half of the
connections."""

_CANCELLED = "the query was cancelled"
_SOURCES = ("query", "joined", "cache", "sweep", "stale")

_KeyT = TypeVar("_KeyT", bound=Hashable)
_AnswerT = TypeVar("_AnswerT", TextAnswer, ObjectAnswer)


class QueryCache:
    """Answers requests from the cache or from Prometheus. An async context manager: it owns its queries."""

    def __init__(
        self, querier: Querier, clock: Clock, monitoring: Monitoring, *, timeout: float = 8.0
    ) -> None:
        """`timeout`: for how many seconds a caller waits, the time that its request is pending included."""
        self._clock = clock
        self._timeout = timeout
        # labels() costs more than inc()
        self._sources = {source: monitoring.responses.labels(source=source) for source in _SOURCES}
        self._batcher = Batcher(querier, clock, monitoring)
        self._texts: AnswerStore[TextQuery, TextAnswer] = AnswerStore(
            "texts", clock, monitoring, lambda query: len(query.promql), KEPT_TEXTS_BYTES
        )
        monitoring.pending_query_bytes.set_function(self._inflight_bytes)
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
        """Return the answer to a query. Raises PrometheusError if it fails and no recent answer is cached.

        `accepts_warnings`: the rule counts an answer with warnings as complete. `takes_partial`: the caller
        accepts an answer that is marked as partial.
        """
        query = TextQuery(promql, accepts_warnings)
        kept = self._texts.find(query)
        if kept is not None and (left := freshness.left(kept, self._clock.monotonic())) > 0:
            self._sources["cache"].inc()
            if left <= freshness.ahead and query not in self._texts.inflight and self._may_refresh():
                self._start_text(query, freshness)
            return kept.answer
        start = functools.partial(self._start_text, query, freshness)
        return await self._get(self._texts, query, freshness, start, takes_partial=takes_partial)

    async def ask_objects(
        self,
        query: MetricQuery,
        objects: Objects,
        freshness: Freshness,
        expected: int = 0,
        *,
        takes_partial: bool = False,
    ) -> ObjectAnswer:
        """Return the samples of `objects`. Raises as `ask`, and TemplateError for a query without a text.

        `expected` is about how many objects have the metric, as discovery counted its series. `takes_partial`
        is as in `ask`; the rule of the query decides whether warnings are accepted.
        """
        if query.separability.reason:  # equal texts still share a query
            planned, accepts = query_plan.ask_alone(query, objects), query.rule.accepts_warnings
            text = await self.ask(
                planned.promql, freshness, accepts_warnings=accepts, takes_partial=takes_partial
            )
            answer, _ = await demux(query, [planned], [text.result], text.asked)
            return answer.select(objects)._replace(failure=text.failure, partial=text.partial)
        now, store, key = self._clock.monotonic(), self._batcher.own, (query, objects)
        batch = self._batcher.note(query, objects, expected, now)
        batch.freshness = freshness
        hit = self._batcher.find(query, objects, freshness, now)
        if hit is not None:
            own, source, left = hit
            self._sources[source].inc()
            is_due = left <= freshness.ahead and not batch.running and key not in store.inflight
            if is_due and self._may_refresh():
                self._start_objects(batch, objects)
            return own
        start = functools.partial(self._start_objects, batch, objects)
        return await self._get(store, key, freshness, start, takes_partial=takes_partial)

    async def _get(
        self,
        store: AnswerStore[_KeyT, _AnswerT],
        key: _KeyT,
        freshness: Freshness,
        start: Callable[[], asyncio.Future[_AnswerT]],
        *,
        takes_partial: bool,
    ) -> _AnswerT:
        """Join the query in flight for `key` or start one; fall back on the last answer within `max_age`."""
        future = store.inflight.get(key)
        self._sources["joined" if future else "query"].inc()
        try:
            if future is None:
                self._check_room()
                future = start()
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await asyncio.shield(future)  # a caller that is cancelled does not cancel it
            except TimeoutError as error:
                text = f"no answer within {self._timeout:g} s, waiting included"
                raise PrometheusError("timeout", text) from error
            if answer.partial is not None and not takes_partial:
                raise answer.partial
        except PrometheusError as failure:
            kept = store.find(key)
            if kept is None or self._clock.monotonic() - kept.answer.asked >= freshness.max_age:
                raise
            self._sources["stale"].inc()
            return kept.answer._replace(failure=failure)
        return answer

    def _inflight_bytes(self) -> int:
        return self._texts.inflight_bytes + self._batcher.own.inflight_bytes

    def _check_room(self) -> None:
        if self._inflight_bytes() >= INFLIGHT_BYTES:
            raise PrometheusError("busy", "too many requests are waiting for Prometheus")

    def _may_refresh(self) -> bool:
        inflight = len(self._texts.inflight) + len(self._batcher.own.inflight)
        return inflight < REFRESH_LIMIT and self._inflight_bytes() < INFLIGHT_BYTES

    def _start_text(self, query: TextQuery, freshness: Freshness) -> asyncio.Future[TextAnswer]:
        future = self._texts.open(query)
        work = self._execute_text(query, freshness, future)
        self._spawn(work, f"query {query.promql[:40]}", lambda failure: fail(future, failure))
        return future

    def _start_objects(self, batch: Batch, objects: Objects) -> asyncio.Future[ObjectAnswer]:
        """Send a request with the next query of its batch, or by itself if its rule may not be merged now."""
        future = self._batcher.own.open((batch.query, objects))
        name = f"batch {batch.query.series}"
        if not self._batcher.may_merge(batch.query.rule):
            self._spawn(batch.execute_one(objects, future), name, lambda failure: fail(future, failure))
        else:
            batch.pending[objects] = future
            if not batch.running:
                batch.running = True
                self._spawn(batch.run(), name, batch.abandon)
        return future

    async def _execute_text(
        self, query: TextQuery, freshness: Freshness, future: asyncio.Future[TextAnswer]
    ) -> None:
        sent = self._clock.monotonic()
        try:
            result = await self._batcher.send(
                query.promql, query_plan.QueryKind.ALONE, accepts_warnings=query.accepts_warnings
            )
        except PrometheusError as failure:
            fail(future, failure)
            return
        partial = find_warning([result], accepts_warnings=query.accepts_warnings)
        answer = TextAnswer(result, sent, partial=partial)
        self._texts.keep(query, answer, freshness.longest, self._clock.monotonic() - sent)
        future.set_result(answer)

    def _spawn(
        self, work: Coroutine[Any, Any, None], name: str, abandon: Callable[[PrometheusError], None]
    ) -> None:
        """Run `work` in a task of the cache, and call `abandon` if it does not complete."""
        if self._closed:
            work.close()
            abandon(PrometheusError("unreachable", _CANCELLED))
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def finish(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            if not done.cancelled():
                if (defect := done.exception()) is None:
                    return
                _log.error("query task failed", exc_info=defect)
            abandon(PrometheusError("unreachable", _CANCELLED))

        task.add_done_callback(finish)
