"""What answers admitted requests: the metrics endpoint, the server's own pages, and the scaler's local ones.

The metrics endpoint answers from the response cache, or else from the provider. The other pages are documents
of discovery, self-metrics, health, and the journal of an autoscaler.
"""

import asyncio
import contextlib
import functools
from collections import Counter as Counts
from collections.abc import Callable, Iterable
from typing import Protocol

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
from adapter.server.api.documents import Documents
from adapter.server.api.query_string import Question
from adapter.server.api.routing import Route
from adapter.server.auth.admission import CALLER
from adapter.server.health import Health
from adapter.server.http import negotiation, response_cache
from adapter.server.http.budgets import Charge, ResponseBudget, connection_of
from adapter.server.http.negotiation import Representation
from adapter.server.http.response_cache import EncodedResponse, ResponseCache
from adapter.telemetry.metrics import CONTENT_TYPE, Monitoring

TEXT = "text/plain; charset=utf-8"

ShowAutoscaler = Callable[[str, str], tuple[int, bytes]]
"""Returns status and JSON of what is known of an autoscaler, by namespace and name."""

_RESERVED = 4
"""One part in so many of the questions in flight is for tenants that have less than half of that part."""

_TIMES_AT_ONCE = 1000  # observations of freshness, after which other work may run

_Answer = CustomAnswer | ExternalAnswer | ResourceAnswer
_Encoded = tuple[_Answer, Iterable[bytes]]
"""An answer, and its body in pieces."""


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
        self._in_flight: Counts[str] = Counts()
        self._reserved = in_flight // _RESERVED
        self._inflight_gauge = own_metrics.inflight.labels("readOnly")
        self._detached: set[asyncio.Task[EncodedResponse]] = set()

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
        tenant = request[CALLER].tenant
        self._begin_question(tenant)
        charge = Charge(self._budget, connection_of(request))
        if route.options.timeout is None:
            try:
                return await self._make(target, route, question, representation, charge)
            finally:
                self._end_question(tenant)
        # A caller with a timeout of its own may leave before the query ends. The query goes on and keeps its
        # place in flight, so that requests which are abandoned early count like all others.
        making = asyncio.create_task(
            self._make(target, route, question, representation, charge), name="question with a timeout"
        )
        self._detached.add(making)
        making.add_done_callback(functools.partial(self._end_detached, tenant))
        async with asyncio.timeout(min(route.options.timeout, self._request_timeout)):
            return await asyncio.shield(making)

    async def _make(
        self, target: str, route: Route, question: Question, representation: Representation, charge: Charge
    ) -> EncodedResponse:
        generation = self._provider.generation  # before asking, see `response_cache`
        with contextlib.closing(charge):
            async with asyncio.timeout(self._request_timeout):
                answer, pieces = await self._ask(route, question, representation.table)
                body = await encoding.join(pieces, charge)
                freshness, now = self._own_metrics.freshness.labels(route.labels.group), self._clock.wall()
                for number, time in enumerate({item.time for item in answer.items}, 1):
                    freshness.observe(now - time)
                    if number % _TIMES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                response = await response_cache.represent(body, representation, charge)
        self._cache.keep(target, representation, response, generation, answer.fresh_until)
        return response

    async def _ask(self, route: Route, question: Question, table: str) -> _Encoded:
        version = route.labels.version
        if isinstance(question, CustomQuestion):
            custom = await self._provider.custom(question)
            # In the meantime the resource may have become known under another name than the one authorized.
            assert route.request is not None
            authorized = route.resource or route.request.resource
            meant = custom.resource or self._provider.canonical_resource(question.resource)
            if meant not in {authorized, None}:
                raise errors.NotFoundError(
                    f"the server could not find the metric {question.metric} for {question.resource}"
                )
            return custom, encoding.encode_custom(version, question, custom)
        if isinstance(question, ExternalQuestion):
            external = await self._provider.external(question)
            return external, encoding.encode_external(version, external)
        assert self._resource_provider is not None  # the group is served
        usages = await self._resource_provider.resource(question)
        included = route.parameters.get("includeObject", "")
        wanted = encoding.TableOptions(table, included) if table else None
        return usages, encoding.encode_resource(version, question, usages, wanted)

    def _begin_question(self, tenant: str) -> None:
        """Count a question. Raises TooManyRequestsError.

        The last part of the questions is for tenants that have few, so that one with slow questions does not
        keep out the others.
        """
        left = self._most_in_flight - self._in_flight.total()
        if left <= 0 or (left <= self._reserved and self._in_flight[tenant] >= self._reserved // 2):
            raise errors.TooManyRequestsError("requests")
        self._in_flight[tenant] += 1
        self._inflight_gauge.inc()

    def _end_question(self, tenant: str) -> None:
        self._in_flight[tenant] -= 1
        if not self._in_flight[tenant]:
            del self._in_flight[tenant]  # tenants have no bound
        self._inflight_gauge.dec()

    def _end_detached(self, tenant: str, making: asyncio.Task[EncodedResponse]) -> None:
        """Retrieve the exception of a question whose caller may have left."""
        self._end_question(tenant)
        self._detached.discard(making)
        if not making.cancelled():
            making.exception()


class Pages:
    def __init__(
        self,
        provider: MetricsProvider,
        documents: Documents,
        health: Health,
        cache: ResponseCache,
        budget: ResponseBudget,
        own_metrics: Monitoring,
        show_autoscaler: ShowAutoscaler | None,
    ) -> None:
        self._provider = provider
        self._documents = documents
        self._health = health
        self._cache = cache
        self._budget = budget
        self._own_metrics = own_metrics
        self._show_autoscaler = show_autoscaler

    async def answer(self, request: web.BaseRequest, route: Route) -> EncodedResponse:
        """Return the page at a route that is not about metrics. Raises StatusError."""
        if route.kind == "document":
            return await self._answer_document(request, route)
        if route.kind == "monitoring":
            with contextlib.closing(Charge(self._budget, connection_of(request), is_page=True)) as charge:
                body = await encoding.join(self._own_metrics.exposition_pieces(), charge)
            return EncodedResponse(200, body, CONTENT_TYPE)
        if route.kind == "debug" and self._show_autoscaler is not None:
            namespace, name = route.segments[-2:]
            return EncodedResponse(*self._show_autoscaler(namespace, name))
        answer = self._health.answer(route.segments, route.query)
        if answer is None:
            return await self._list_paths()
        return EncodedResponse(answer.status, answer.text.encode(), TEXT)

    async def _answer_document(self, request: web.BaseRequest, route: Route) -> EncodedResponse:
        accept = request.headers.get("Accept", "")
        is_root = route.document == "/apis"
        if is_root:
            media_type = negotiation.choose_discovery(accept)
            acceptable, aggregated = media_type is not None, media_type == "aggregated"
        else:
            acceptable, aggregated = negotiation.accepts_json(accept), False
        # before asking, see `response_cache`: here the groups that are served may change too
        generation, served = self._provider.generation, ",".join(self._documents.served)
        document = await self._documents.find(route.document, aggregated=aggregated)
        if document is None:
            return await self._list_paths()
        if not acceptable:
            raise negotiation.not_acceptable()
        headers = [("Vary", "Accept")] if is_root else []
        if document.etag:
            headers.append(("ETag", document.etag))
            if negotiation.matches_etag(request.headers.get("If-None-Match", ""), document.etag):
                return EncodedResponse(304, b"", "", tuple(headers))
        representation = negotiation.choose_representation(request.headers, route.options.pretty)
        key = f"{route.document} {document.content_type} {served}"  # a blank: no target has one
        kept = self._cache.find(key, representation)
        if kept is None:
            with contextlib.closing(Charge(self._budget, connection_of(request), is_page=True)) as charge:
                kept = await response_cache.represent(document.body, representation, charge)
            self._cache.keep(key, representation, kept, generation, float("inf"))
        return kept._replace(content_type=document.content_type, headers=(*kept.headers, *headers))

    async def _list_paths(self) -> EncodedResponse:
        """Return the answer for an unknown path: outside the API groups Kubernetes lists its paths."""
        document = await self._documents.find("/index.html")
        assert document is not None  # every table of documents has it
        return EncodedResponse(404, document.body, document.content_type)


class LocalPages:
    """The scaler's local pages over plain HTTP: health, self-metrics and the journal of an autoscaler.

    Callers are not authenticated: they are on the machine or in the pod already, and `kubectl port-forward`
    has its own permission. The pages are read-only, and the command line accepts loopback addresses only.
    They are served between `start` and `stop`, unless the address is "".
    """

    def __init__(
        self,
        address: str,
        health: Health,
        own_metrics: Monitoring,
        show_autoscaler: ShowAutoscaler,
    ) -> None:
        self._address = address
        self._health = health
        self._monitoring = own_metrics
        self._show_autoscaler = show_autoscaler
        self._runner: web.ServerRunner | None = None
        self.port = 0
        """The port it listens on, 0 while it does not listen."""

    async def start(self) -> None:
        """Listen. OSError where the address is not available."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None))
        await self._runner.setup()
        site = web.TCPSite(self._runner, host.strip("[]"), int(port))
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        segments = tuple(request.path.split("/")[1:])
        match segments:
            case ("metrics",):
                body = await encoding.join(self._monitoring.exposition_pieces())
                return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
            case ("debug", "fastpath", "autoscalers", namespace, name) if namespace and name:
                status, body = self._show_autoscaler(namespace, name)
                return web.Response(status=status, body=body, content_type=negotiation.JSON)
        answer = self._health.answer(segments, request.query_string)
        if answer is None:
            return web.Response(status=404, text="not found\n")
        return web.Response(status=answer.status, text=answer.text)
