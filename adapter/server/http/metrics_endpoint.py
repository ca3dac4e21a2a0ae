"""Answers metrics requests from the response cache, or else from the provider."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from aiohttp import web

from adapter import errors
from adapter.model.clock import Clock
from adapter.model.metrics import (
    CustomAnswer,
    CustomQuestion,
    ExternalAnswer,
    ExternalQuestion,
    MetricsProvider,
    ResourceAnswer,
    ResourceQuestion,
)
from adapter.server.api import encoding
from adapter.server.api.query_string import Question
from adapter.server.api.routing import Route
from adapter.server.http import negotiation, response_cache
from adapter.server.http.negotiation import Representation
from adapter.server.http.response_budget import Charge, ResponseBudget, connection_of
from adapter.server.http.response_cache import EncodedResponse, ResponseCache
from adapter.telemetry.metrics import Monitoring

_TIMES_AT_ONCE = 1000  # observations of freshness, after which other work may run

Answer = CustomAnswer | ExternalAnswer | ResourceAnswer
_Endpoint = Callable[[Route, Any, str], Awaitable[tuple[Answer, Iterable[bytes]]]]


class ResourceMetricsProvider(Protocol):
    """Answers questions about cpu and memory; errors as those of `MetricsProvider`."""

    async def resource(self, question: ResourceQuestion) -> ResourceAnswer:
        """Answer a question about pods or nodes; for a named one exactly one item, or an error."""
        ...


class MetricsEndpoint:
    """Serves the questions of the metrics APIs, at most `in_flight` of them from the provider at a time."""

    def __init__(
        self,
        provider: MetricsProvider,
        resource_provider: ResourceMetricsProvider | None,
        cache: ResponseCache,
        budget: ResponseBudget,
        clock: Clock,
        own_metrics: Monitoring,
        *,
        in_flight: int,
        request_timeout: float,
    ) -> None:
        """`request_timeout` is in seconds.

        `resource_provider` is needed where ``metrics.k8s.io`` is served.
        """
        self._provider = provider
        self._resource_provider = resource_provider
        self._cache = cache
        self._budget = budget
        self._clock = clock
        self._own_metrics = own_metrics
        self._most_in_flight = in_flight
        self._request_timeout = request_timeout
        self._in_flight = 0
        self._inflight_gauge = own_metrics.inflight.labels("readOnly")
        self._detached: set[asyncio.Task[EncodedResponse]] = set()
        self._endpoints: Mapping[type, _Endpoint] = {
            CustomQuestion: self._ask_custom,
            ExternalQuestion: self._ask_external,
            ResourceQuestion: self._ask_resource,
        }

    async def answer(
        self, request: web.BaseRequest, target: str, route: Route, question: Question
    ) -> EncodedResponse:
        """Return the values that a caller asks for. Raises StatusError, TimeoutError."""
        representation = negotiation.choose_metrics_representation(
            request.headers, route.options.pretty, has_table=type(question) is ResourceQuestion
        )
        kept = self._cache.find(target, representation)
        if kept is not None:
            return kept
        if self._in_flight >= self._most_in_flight:
            raise errors.TooManyRequestsError("questions")
        self._in_flight += 1
        self._inflight_gauge.inc()
        charge = Charge(self._budget, connection_of(request))
        if route.options.timeout is None:
            try:
                return await self._make(target, route, question, representation, charge)
            finally:
                self._end_question()
        # A caller with a timeout of its own may leave before the query ends. The query goes on and keeps its
        # place in flight, so that requests which are abandoned early count like all others.
        making = asyncio.create_task(
            self._make(target, route, question, representation, charge), name="question with a timeout"
        )
        self._detached.add(making)
        making.add_done_callback(self._end_detached)
        async with asyncio.timeout(min(route.options.timeout, self._request_timeout)):
            return await asyncio.shield(making)

    async def _make(
        self, target: str, route: Route, question: Question, representation: Representation, charge: Charge
    ) -> EncodedResponse:
        generation = self._provider.generation  # before asking, see `response_cache`
        with charge:
            async with asyncio.timeout(self._request_timeout):
                answer, pieces = await self._endpoints[type(question)](route, question, representation.table)
                body = await encoding.join(pieces, charge)
                await self._note_freshness(route.labels.group, {item.time for item in answer.items})
                response = await response_cache.represent(body, representation, charge)
        self._cache.keep(target, representation, response, generation, answer.fresh_until)
        return response

    async def _ask_custom(
        self, route: Route, question: CustomQuestion, _table: str
    ) -> tuple[Answer, Iterable[bytes]]:
        answer = await self._provider.custom(question)
        # While it was asked for, the resource may have become known under another name than the one
        # authorized.
        assert route.request is not None
        authorized = route.resource or route.request.resource
        if self._provider.canonical_resource(question.resource) not in {authorized, None}:
            raise errors.NotFoundError(
                f"the server could not find the metric {question.metric} for {question.resource}"
            )
        return answer, encoding.encode_custom(route.labels.version, question, answer)

    async def _ask_external(
        self, route: Route, question: ExternalQuestion, _table: str
    ) -> tuple[Answer, Iterable[bytes]]:
        answer = await self._provider.external(question)
        return answer, encoding.encode_external(route.labels.version, answer)

    async def _ask_resource(
        self, route: Route, question: ResourceQuestion, table: str
    ) -> tuple[Answer, Iterable[bytes]]:
        assert self._resource_provider is not None  # the group is served
        answer = await self._resource_provider.resource(question)
        included = route.parameters.get("includeObject", "")
        wanted = encoding.TableOptions(table, included) if table else None
        return answer, encoding.encode_resource(route.labels.version, question, answer, wanted)

    async def _note_freshness(self, group: str, times: Collection[float]) -> None:
        """Observe the age of an answer's values, once for each distinct time."""
        freshness = self._own_metrics.freshness.labels(group)
        now = self._clock.wall()
        for number, time in enumerate(times, 1):
            freshness.observe(now - time)
            if number % _TIMES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _end_question(self) -> None:
        self._in_flight -= 1
        self._inflight_gauge.dec()

    def _end_detached(self, making: asyncio.Task[EncodedResponse]) -> None:
        """Retrieve the exception of a question whose caller may have left."""
        self._end_question()
        self._detached.discard(making)
        if not making.cancelled():
            making.exception()
