"""Answers requests that are not about metrics: documents, self-metrics, health, an autoscaler's journal."""

from collections.abc import Callable

from aiohttp import web

from adapter import errors
from adapter.model.metrics import MetricsProvider
from adapter.server.api import encoding
from adapter.server.api.documents import Documents
from adapter.server.api.routing import Route
from adapter.server.health import Health
from adapter.server.http import negotiation, response_cache
from adapter.server.http.response_budget import Charge, ResponseBudget, connection_of
from adapter.server.http.response_cache import EncodedResponse, ResponseCache
from adapter.telemetry import exposition, metrics

TEXT = "text/plain; charset=utf-8"

ShowAutoscaler = Callable[[str, str], tuple[int, bytes]]
"""Returns status and JSON of what is known of an autoscaler, by namespace and name."""

_NOT_ACCEPTABLE = errors.NotAcceptableError(
    f"only the following media types are accepted: {negotiation.JSON}"
)


class Pages:
    """Serves the server's own pages."""

    def __init__(
        self,
        provider: MetricsProvider,
        documents: Documents,
        health: Health,
        cache: ResponseCache,
        budget: ResponseBudget,
        own_metrics: metrics.Monitoring,
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
            with Charge(self._budget, connection_of(request), is_page=True) as charge:
                body = await encoding.join(self._own_metrics.exposition_pieces(), charge)
            return EncodedResponse(200, body, exposition.CONTENT_TYPE)
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
        generation, served = self._provider.generation, ",".join(self._documents.served_groups)
        document = await self._documents.find(route.document, aggregated=aggregated)
        if document is None:
            return await self._list_paths()
        if not acceptable:
            raise _NOT_ACCEPTABLE
        headers = [("Vary", "Accept")] if is_root else []
        if document.etag:
            headers.append(("ETag", document.etag))
            if negotiation.matches_etag(request.headers.get("If-None-Match", ""), document.etag):
                return EncodedResponse(304, b"", "", tuple(headers))
        representation = negotiation.choose_representation(request.headers, route.options.pretty)
        key = f"{route.document} {document.content_type} {served}"  # a blank: no target has one
        kept = self._cache.find(key, representation)
        if kept is None:
            with Charge(self._budget, connection_of(request), is_page=True) as charge:
                kept = await response_cache.represent(document.body, representation, charge)
            self._cache.keep(key, representation, kept, generation, float("inf"))
        return kept._replace(content_type=document.content_type, headers=(*kept.headers, *headers))

    async def _list_paths(self) -> EncodedResponse:
        """Return the answer for an unknown path: outside the API groups Kubernetes lists its paths."""
        document = await self._documents.find("/index.html")
        assert document is not None  # every table of documents has it
        return EncodedResponse(404, document.body, document.content_type)
