"""Batching: requests about one metric that are pending together share a query.

A batch belongs to one `MetricQuery`: one metric, one metric selector and one kind of object. It sends a
request at once. While that query is in flight, further requests are pending; when it is done, they leave
together. There are no timers, so batching delays no request by more than the query before it, and the number
of queries follows from how long Prometheus takes: the slower it is, the more requests share a query.

The planner (`rules.query_plan`) decides what may share a query and splits one that would be too long. A batch
that was used within the last TTL is busy, and HorizontalPodAutoscalers repeat their requests every 15
seconds. The next query of a busy batch therefore has the room it leaves filled with requests that will be
repeated soon (prefetch). Where the recent requests name over half of the objects of the metric, one query
without names (a sweep) answers all of them.

A merged query may fail where its parts do not: it is longer, and it reads more series. Its requests are then
sent separately, and the rule is not merged for a minute. If a merged answer has two samples for one object,
the analysis of the rule was wrong about it, and the rule is never merged again.

Glossary:
  request    some objects of one metric that a caller asks for; the same objects are the same request
  pending    waits for the query in flight of its batch
  in flight  part of a query that Prometheus has not answered
  recent     asked for within the last 30 seconds, so it is likely to be repeated
  sweep      a query for all objects of a metric
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult, Sample
from adapter.prometheus.answers import (
    KEPT_BYTES,
    KEPT_SWEEPS_BYTES,
    AnswerStore,
    Freshness,
    ObjectAnswer,
    SweepAnswer,
)
from adapter.prometheus.client import Querier
from adapter.rules import query_plan
from adapter.rules.query import MetricQuery, QueryRule
from adapter.rules.query_plan import Objects, PlannedQuery
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import ExpiringCache, Monitoring

_log = logging.getLogger(__name__)

MERGE_PAUSE = 60.0
"""For this many seconds after a merged query failed, the requests of its rule are sent separately."""

TOGETHER = 20
"""So many requests are sent separately at a time. If none of them is answered in time, the others fail too.
Else a Prometheus that is too slow for one query would get thousands in its place."""

RECENT_SECONDS = 30.0
"""A request is expected again for this long: two periods of a HorizontalPodAutoscaler."""

RECENT_REQUESTS = 10_000
"""How many recent requests a batch remembers."""

FRESH_SCANNED = 64
"""A search for requests to prefetch ends after so many with fresh answers. Those behind them came so lately
that an answer would be stale before they are repeated, and looking at all would cost more than the query."""

SWEEP_LIMIT = 20_000
"""A metric with so many objects is not swept again: the answer would cost more than it saves."""

SWEEP_SAMPLES = 100_000
"""A sweep is aborted beyond so many samples, and the requested objects are queried by name."""

STEP_SAMPLES = 250
"""How many samples of an answer are processed in one step."""

BATCH_BYTES = 32 * 1024 * 1024
"""Bound on the requests that one batch remembers: each may name thousands of objects."""

BATCHES_BYTES = 64 * 1024 * 1024
"""Bound on all batches together; those without a recent request are forgotten."""

_BATCH_BYTES = 1024

RequestFuture = asyncio.Future[ObjectAnswer]


class Batcher:
    """The batches in use, and what they share: the way to Prometheus, answers, and which rules may be merged.

    `own` has the answers to requests about objects, `sweeps` those that answer any request of a query.
    """

    def __init__(self, querier: Querier, clock: Clock, monitoring: Monitoring) -> None:
        self.clock = clock
        self.own: AnswerStore[tuple[MetricQuery, Objects], ObjectAnswer] = AnswerStore(
            "objects", clock, monitoring, lambda key: key[0].weight + key[1].weight, KEPT_BYTES
        )
        self.sweeps: AnswerStore[MetricQuery, SweepAnswer] = AnswerStore(
            "sweeps", clock, monitoring, lambda query: query.weight, KEPT_SWEEPS_BYTES
        )
        # a batch that is evicted while it runs finishes by itself, and the next request begins another
        self._batches: ExpiringCache[tuple[MetricQuery, str | None], Batch] = ExpiringCache(
            "batches", monitoring, BATCHES_BYTES, lambda kept: kept[0].weight, clock.monotonic
        )
        self._querier = querier
        self._monitoring = monitoring
        # labels() costs more than inc()
        self._succeeded = {
            kind: monitoring.queries.labels(type=kind, outcome="success") for kind in query_plan.QueryKind
        }
        self._unmergeable: WeakSet[QueryRule] = WeakSet()
        self._paused: WeakKeyDictionary[QueryRule, float] = WeakKeyDictionary()
        self.too_large: WeakSet[QueryRule] = WeakSet()
        """The rules whose metrics have too many series for a sweep."""

    async def send(
        self, promql: str, kind: query_plan.QueryKind, most: int | None = None, *, accepts_warnings: bool
    ) -> QueryResult:
        """Query Prometheus and count the outcome. Raises PrometheusError, of kind ``size`` beyond `most`."""
        try:
            result = await self._querier.query(promql, self.clock.wall(), most=most)
        except PrometheusError as error:
            self._monitoring.queries.labels(type=kind, outcome=error.kind).inc()
            raise
        if result.warnings and not accepts_warnings:
            self._monitoring.queries.labels(type=kind, outcome="partial").inc()
        else:
            self._succeeded[kind].inc()
        return result

    def note(self, query: MetricQuery, objects: Objects, object_count: int, now: float) -> "Batch":
        """Return the batch of a request, and remember the request there."""
        # where namespaces cannot share a query, each has its own batch
        key = (query, None if query.sweepable else objects.namespace)
        try:
            batch, _ = self._batches[key]
        except KeyError:
            batch = Batch(query, object_count, self)
        batch.note(objects, now)
        if batch.weight <= self._batches.maxsize:
            self._batches[key] = (batch, now + RECENT_SECONDS)
        return batch

    def find(
        self, query: MetricQuery, objects: Objects, freshness: Freshness, now: float
    ) -> tuple[ObjectAnswer, str, float] | None:
        """Return the newest usable answer, where it is from, and for how many seconds it may be used.

        An answer that is selected from a sweep becomes the request's own.
        """
        kept = self.own.find((query, objects))
        swept = self.sweeps.find(query)
        if (
            kept is not None
            and (swept is None or swept.answer.asked <= kept.answer.asked)
            and (left := freshness.left(kept, now)) > 0
        ):
            return kept.answer, "cache", left
        if swept is None or (left := freshness.left(swept, now)) <= 0:
            return None
        answer = swept.answer.select(objects)
        self.own.keep((query, objects), answer, freshness.longest, swept.took)
        return answer, "sweep", left

    def may_merge(self, rule: QueryRule) -> bool:
        return rule not in self._unmergeable and self._paused.get(rule, -math.inf) <= self.clock.monotonic()

    def stop_merging(self, rule: QueryRule) -> None:
        """Never merge requests of the rule again: a merged answer had two samples for one object."""
        self._monitoring.dropped.labels(reason="duplicate").inc()
        self._unmergeable.add(rule)

    def pause_merging(self, rule: QueryRule, failure: PrometheusError) -> None:
        self._paused[rule] = self.clock.monotonic() + MERGE_PAUSE
        _log.info(
            "merged query failed, sending its requests separately",
            extra=facts(rule=rule.path, error=str(failure)),
        )


class Batch:
    """The requests of one `MetricQuery`: those pending, those in flight, and the recent ones, oldest first.

    `object_count` is about how many objects have the metric. `used` and `used_before` are the times of the
    last two requests.
    """

    def __init__(self, query: MetricQuery, object_count: int, shared: Batcher) -> None:
        self.query = query
        self.pending: dict[Objects, RequestFuture] = {}
        self.inflight: dict[Objects, RequestFuture] = {}
        self.running = False
        self.used = -math.inf
        self.used_before = -math.inf
        self.freshness = Freshness(0.0, 0.0)
        self.recent: OrderedDict[Objects, float] = OrderedDict()
        self.recent_names = 0
        self.weight = _BATCH_BYTES + 2 * query.weight  # also as a key of the cache of batches
        self.object_count = object_count
        self._shared = shared

    def note(self, objects: Objects, now: float) -> None:
        self.used_before, self.used = self.used, now
        if objects not in self.recent:
            self.recent_names += len(objects.names)
            self.weight += objects.weight
        self.recent[objects] = now
        self.recent.move_to_end(objects)
        while (
            len(self.recent) > RECENT_REQUESTS
            or (self.weight > BATCH_BYTES and len(self.recent) > 1)
            or now - next(iter(self.recent.values())) > RECENT_SECONDS
        ):
            forgotten, _ = self.recent.popitem(last=False)
            self.recent_names -= len(forgotten.names)
            self.weight -= forgotten.weight

    async def run(self) -> None:
        """Execute the batch until no request is pending."""
        clock = self._shared.clock
        while self.pending:
            self.inflight, self.pending = self.pending, {}
            sent = clock.monotonic()
            await self.execute()
            now = clock.monotonic()
            for objects, future in list(self.pending.items()):  # a sweep or prefetch may have answered them
                hit = self._shared.find(self.query, objects, self.freshness, now)
                if hit is not None and hit[0].asked >= sent:
                    future.set_result(hit[0])
                    del self.pending[objects]
        self.inflight, self.running = {}, False

    async def execute(self) -> None:
        """Send the requests in flight with as few queries as possible, and resolve them."""
        shared, query = self._shared, self.query
        if not shared.may_merge(query.rule):
            await self._execute_separately()
            return
        sent = shared.clock.monotonic()
        requests = list(self.inflight)
        planned: list[PlannedQuery] = []
        try:
            results = await self._query(requests, planned, sent)
            answer, duplicates = await demux(query, planned, results, sent)
        except PrometheusError as failure:
            if _is_merged(planned) and failure.kind != "unreachable":
                shared.pause_merging(query.rule, failure)
                await self._execute_separately()
            else:
                self._fail_inflight(failure)
            return
        if duplicates and _is_merged(planned):
            shared.stop_merging(query.rule)
            await self._execute_separately()
            return
        took = shared.clock.monotonic() - sent
        if planned[0].kind is query_plan.QueryKind.SWEEP and answer.partial is None:
            shared.sweeps.expire()
            shared.sweeps.keep(query, answer, self.freshness.lifetime(took), took)
            self.object_count = sum(map(len, answer.samples.values()))
        await self._resolve(requests, answer, took, self.inflight)

    async def execute_one(self, objects: Objects, future: RequestFuture) -> None:
        sent = self._shared.clock.monotonic()
        planned = [query_plan.ask_alone(self.query, objects)]
        try:
            answer, _ = await demux(self.query, planned, await self._send(planned), sent)
        except PrometheusError as failure:
            fail(future, failure)
            return
        took = self._shared.clock.monotonic() - sent
        await self._resolve([objects], answer, took, {objects: future})

    def abandon(self, failure: PrometheusError) -> None:
        """Fail all requests after `run` was cancelled or failed; the next request starts another run."""
        self.inflight |= self.pending
        self._fail_inflight(failure)
        self.inflight, self.pending, self.running = {}, {}, False

    def _fail_inflight(self, failure: PrometheusError) -> None:
        for future in self.inflight.values():
            fail(future, failure)

    def _is_worth_sweeping(self) -> bool:
        """Whether the recent requests name over half of the objects, and those are not too many.

        A name counts once for each request: telling names apart would cost more than a sweep too early.
        """
        may_sweep = self.query.sweepable and self.query.rule not in self._shared.too_large
        return may_sweep and 0 < self.object_count < min(SWEEP_LIMIT, self.recent_names * 2)

    async def _query(
        self, requests: list[Objects], planned: list[PlannedQuery], now: float
    ) -> Sequence[QueryResult]:
        """Plan and send the queries of requests; a busy batch adds what it prefetches to the requests."""
        busy = now - self.used_before < (RECENT_SECONDS if self.freshness.repeats else self.freshness.ttl)
        if busy and self._is_worth_sweeping():
            planned.append(query_plan.sweep(self.query))
            try:
                return await self._send(planned, SWEEP_SAMPLES)
            except PrometheusError as error:
                if error.kind != "size":
                    raise
            self._shared.too_large.add(self.query.rule)
            planned.clear()
        if busy:
            requests += query_plan.prefetch(self.query, requests, self._due(now))
        for one in query_plan.merge(self.query, requests):
            if planned:
                await asyncio.sleep(0)
            planned.append(one)
        return await self._send(planned)

    async def _send(self, planned: Sequence[PlannedQuery], most: int | None = None) -> list[QueryResult]:
        accepts = self.query.rule.accepts_warnings
        sending = [self._shared.send(one.promql, one.kind, most, accepts_warnings=accepts) for one in planned]
        if len(sending) == 1:  # nearly always; saves a task
            return [await sending[0]]
        results: list[QueryResult] = []
        # every query ends before the first failure is raised, so that none is left running
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
        return results

    async def _execute_separately(self) -> None:
        requests = list(self.inflight.items())
        for begin in range(0, len(requests), TOGETHER):
            some = requests[begin : begin + TOGETHER]
            await asyncio.gather(*(self.execute_one(*request) for request in some))
            failures = [late for _, future in some if (late := _find_timeout(future)) is not None]
            if len(failures) == len(some):
                for _, future in requests[begin + TOGETHER :]:
                    fail(future, failures[0])
                return

    async def _resolve(
        self,
        requests: Sequence[Objects],
        answer: SweepAnswer,
        took: float,
        futures: Mapping[Objects, RequestFuture],
    ) -> None:
        names = 0
        for objects in requests:
            names += len(objects.names)
            if names > STEP_SAMPLES and len(requests) > 1:
                names = 0
                await asyncio.sleep(0)
            own = answer.select(objects)
            self._shared.own.keep((self.query, objects), own, self.freshness.longest, took)
            if (future := futures.get(objects)) is not None:
                future.set_result(own)

    def _due(self, now: float) -> Iterator[Objects]:
        """Yield the recent requests without a fresh answer, oldest first."""
        fresh = 0
        for objects in self.recent:
            kept = self._shared.own.find((self.query, objects))
            if kept is not None and self.freshness.left(kept, now) > self.freshness.ahead:
                fresh += 1
                if fresh > FRESH_SCANNED:
                    return
            elif objects not in self.inflight:
                yield objects


def fail(future: asyncio.Future[Any], failure: PrometheusError) -> None:
    if not future.done():
        future.set_exception(failure)


def _find_timeout(future: RequestFuture) -> PrometheusError | None:
    """Return the failure of a request that was not answered in time, None for any other outcome."""
    failure = None if future.cancelled() or not future.done() else future.exception()
    return failure if isinstance(failure, PrometheusError) and failure.kind == "timeout" else None


def _is_merged(planned: Sequence[PlannedQuery]) -> bool:
    return any(query.kind is not query_plan.QueryKind.ALONE for query in planned)


async def demux(
    query: MetricQuery, planned: Sequence[PlannedQuery], results: Sequence[QueryResult], sent: float
) -> tuple[SweepAnswer, bool]:
    """Return which sample belongs to which object, and whether an object has too many samples.

    An answer may have a hundred thousand samples: other tasks may run between the steps. Raises
    PrometheusError for an answer without labels, which says nothing about objects.
    """
    samples: dict[str, dict[str, tuple[Sample, ...]]] = {}
    duplicates = False
    for one, result in zip(planned, results, strict=True):
        if result.type != "vector":
            raise PrometheusError("type", f"expected a vector, got a {result.type}")
        for start in range(0, len(result.samples), STEP_SAMPLES):
            if start:
                await asyncio.sleep(0)
            step = result.samples[start : start + STEP_SAMPLES]
            for (namespace, name), sample in query_plan.place_samples(query, one, step):
                names = samples.setdefault(namespace, {})
                earlier = names.get(name)
                if earlier is None:
                    names[name] = (sample,)
                else:
                    duplicates = duplicates or query.doubles(sample, earlier)
                    names[name] = (*earlier, sample)
    partial = find_warning(results, accepts_warnings=query.rule.accepts_warnings)
    return SweepAnswer(samples, sent, partial), duplicates


def find_warning(results: Sequence[QueryResult], *, accepts_warnings: bool) -> PrometheusError | None:
    """Return why an answer may lack data: its first warning; None for a complete answer."""
    if accepts_warnings:
        return None
    warnings = [text for result in results for text in result.warnings]
    if not warnings:
        return None
    text = f"the answer has a warning, so it may lack data: {warnings[0]!r}"
    return PrometheusError("partial", f"{text} (onWarnings: accept on the rule takes such answers)")
