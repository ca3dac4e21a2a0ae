"""From one HTTP request to its response: routing, admission, deadline, failures, self-metrics.

A request goes through five steps. Its target is parsed (`routing`), the caller is admitted
(`auth.admission`), the question is resolved and its values are queried (the provider), and the answer is
encoded (`endpoints`). Routes are kept by target and responses by target and representation, so a repeated
request is admitted and then answered with bytes that exist already: at once, without a task.
"""

import asyncio
import contextlib
import functools
import logging
import uuid
from collections import Counter as Counts
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from adapter import errors
from adapter.model.clock import Clock
from adapter.model.identity import ANONYMOUS, User
from adapter.model.memo import Doorkeeper
from adapter.model.metrics import MetricsProvider
from adapter.server.api import encoding, routing
from adapter.server.api.documents import Documents
from adapter.server.api.routing import RequestLabels, Route
from adapter.server.auth.admission import Admission, PendingAdmission, ReviewQueue, parse_query
from adapter.server.health import Health
from adapter.server.http import endpoints, negotiation
from adapter.server.http.access_log import AccessLog
from adapter.server.http.budgets import ANSWERS_BYTES, SMALL_ANSWER, Charge, ResponseBudget
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import EncodedResponse, Later, Response
from adapter.telemetry import logs, metrics
from adapter.telemetry.metrics import BoundedCache

log = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"
ROUTES_WEIGHT = 48 * 1024 * 1024
_TARGETS_AWAITED = 16_384  # targets of so many autoscalers are known until they are repeated
SHARES = 4  # one user or address takes this part of the callers that may wait for reviews

_NOT_ALLOWED = errors.MethodNotAllowedError(
    "the server does not allow this method on the requested resource", {}
)
_UNEXPECTED = errors.PlainError("Internal Server Error")


@dataclass(frozen=True, slots=True)
class HandlerLimits:
    """What one server accepts at a time."""

    request_timeout: float = 60.0
    """Seconds a caller waits at most; a smaller `timeout` of the request wins."""
    in_flight: int = 400
    """Questions that the provider works on at a time; further callers get a 429."""
    request_body_bytes: int = 8192
    """A GET has no use for a body; one announced as longer is refused."""
    kept_bytes: int = 64 * 1024 * 1024
    """Memory for cached responses. Each counts for 4 KiB more than it is long, so there are at most
    16,384."""
    answers_bytes: int = ANSWERS_BYTES
    """Memory for bodies that are made or sent, beside a small share of each; further callers get a 429."""


class Handler:
    """Answers requests.

    `stopping` asks callers to close their connections, so that they find another server.
    """

    def __init__(
        self,
        provider: MetricsProvider,
        documents: Documents,
        health: Health,
        admission: Admission,
        *,
        own_metrics: metrics.Monitoring,
        clock: Clock,
        limits: HandlerLimits = HandlerLimits(),
        ask_usages: endpoints.AskUsages | None = None,
        access_log: AccessLog | None = None,
        show_autoscalers: endpoints.ShowAutoscalers | None = None,
    ) -> None:
        """Without `ask_usages` there is no ``metrics.k8s.io``; a scaler has `show_autoscalers`."""
        self.stopping = False
        self._provider = provider
        self._access_log = access_log
        self._documents = documents
        self._health = health
        self.admission = admission
        self.own_metrics = own_metrics
        self._clock = clock
        self._limits = limits
        self._routes: BoundedCache[str, Route] = BoundedCache(
            "routes", own_metrics, ROUTES_WEIGHT, lambda route: route.weight
        )
        self._doorkeeper = Doorkeeper(_TARGETS_AWAITED)
        self._routed = documents.served
        self._cache = endpoints.ResponseCache(
            lambda: provider.generation, clock, own_metrics, limits.kept_bytes
        )
        self._budget = ResponseBudget(limits.answers_bytes, clock.monotonic)
        own_metrics.response_bytes.set_function(lambda: self._budget.used)
        self._metrics = endpoints.MetricsEndpoint(
            provider,
            ask_usages,
            self._cache,
            self._budget,
            clock,
            own_metrics,
            in_flight=limits.in_flight,
            request_timeout=limits.request_timeout,
        )
        self._show_autoscalers = show_autoscalers
        self._in_review: Counts[tuple[bool, ReviewQueue]] = Counts()
        self._counters: dict[tuple[RequestLabels, int], Counter] = {}
        self._durations: dict[RequestLabels, Histogram] = {}

    def answer(self, request: HTTPRequest) -> Response | Later:
        """Answer a request, at once where nothing has to be awaited. Raises nothing but cancellation."""
        started = self._clock.monotonic()
        cached = self._find_kept_route(request.target)
        route = cached or routing.find_route(
            request.target, self._documents.served, self._provider.canonical_resource
        )
        try:
            admitted = self.admission.admit_now(request, route)
            if isinstance(admitted, PendingAdmission):
                making = functools.partial(self._answer_after_review, request, route, admitted)
            else:
                if cached is None:
                    self._keep_route(request.target, route, admitted)
                kept = self._metrics.find_kept(request, route)
                if kept is not None:
                    return self._finish(request, route, kept, started)
                making = functools.partial(self._answer, request, route)
        except Exception as error:  # noqa: BLE001 - here and below failures become responses
            return self._finish(request, route, self._explain(error, request, route), started)
        return functools.partial(self._complete, request, route, making, started)

    async def _complete(
        self,
        request: HTTPRequest,
        route: Route,
        making: Callable[[], Awaitable[EncodedResponse]],
        started: float,
    ) -> Response:
        charge: Charge | None = None
        try:
            encoded = await making()
            if len(encoded.body) > SMALL_ANSWER:
                is_page = route.kind != "metrics"
                charge = self._budget.send(request.connection, encoded.body, is_page=is_page)
        except Exception as error:  # noqa: BLE001 - see above
            encoded = self._explain(error, request, route)
        return self._finish(request, route, encoded, started, charge)

    def _explain(self, error: Exception, request: HTTPRequest, route: Route) -> EncodedResponse:
        """Return the response to a request that has failed."""
        if isinstance(error, errors.TooManyRequestsError):
            self.own_metrics.requests_refused.labels(error.limit).inc()
            text = f"{error.message}\n".encode()
            return EncodedResponse(error.code, text, _TEXT, (("Retry-After", "1"),))
        return _fail(_find_status(error, route), request, route)

    def _find_kept_route(self, target: str) -> Route | None:
        served = self._documents.served
        if served is not self._routed:  # a path may mean something now that it did not mean before
            self._routed = served
            self._routes.clear()
        return self._routes.get(target)

    def _finish(
        self,
        request: HTTPRequest,
        route: Route,
        encoded: EncodedResponse,
        started: float,
        charge: Charge | None = None,
    ) -> Response:
        """Count a request, log it, and return what is sent."""
        seconds = self._clock.monotonic() - started
        self._count(route.labels, encoded.status, seconds)
        audit_id = request.headers.get("Audit-Id", "")
        if not negotiation.AUDIT_ID.fullmatch(audit_id):
            audit_id = str(uuid.uuid4())
        response = Response(request, encoded, audit_id, charge)
        # The server does not wait for an unread request body: it closes the connection and says so.
        too_large = errors.RequestTooLargeError.code
        if self.stopping or encoded.status == too_large or not request.body.is_eof():
            response.keep_alive = False
        if self._access_log is not None:
            self._access_log.note(request, route, response, seconds)
        return response

    async def _answer_after_review(
        self, request: HTTPRequest, route: Route, pending: PendingAdmission
    ) -> EncodedResponse:
        """Answer once the API server has reviewed the caller; review and answer share one deadline.

        The callers that wait are bounded, those for metrics apart from all others: the number of one user,
        that of unknown tokens from one address, and that of anonymous ones. So none of them can keep the rest
        out.
        """
        waiting = (route.kind == "metrics", pending.queue)
        limit = self._limits.in_flight
        if pending.queue.standing != "anonymous":
            limit = max(1, limit // SHARES)
        if self._in_review[waiting] >= limit:
            raise errors.TooManyRequestsError("clients")
        timeout = self._limits.request_timeout
        async with asyncio.timeout(min(timeout, route.options.timeout or timeout)):
            self._in_review[waiting] += 1
            try:
                user = await self.admission.admit(request, route, pending)
            finally:
                self._in_review[waiting] -= 1
                if not self._in_review[waiting]:
                    del self._in_review[waiting]  # users and addresses have no bound
            self._keep_route(request.target, route, user)
            return await self._answer(request, route)

    async def _answer(self, request: HTTPRequest, route: Route) -> EncodedResponse:
        is_unknown = route.error is not None and route.error.code == errors.NotFoundError.code
        if request.method not in {"GET", "HEAD"} and not is_unknown:
            response = _fail(_NOT_ALLOWED, request, route)
            return response._replace(headers=(("Allow", "GET, HEAD"),))
        if request.announced > self._limits.request_body_bytes:
            raise errors.RequestTooLargeError(
                f"Request entity too large: limit is {self._limits.request_body_bytes}"
            )
        if route.error is not None:
            return _fail(route.error, request, route)
        if route.kind != "metrics":
            return await self._answer_page(request, route)
        question = route.question or await parse_query(route)
        if isinstance(question, errors.StatusError):
            return _fail(question, request, route)
        return await self._metrics.answer(request, route, question)

    async def _answer_page(self, request: HTTPRequest, route: Route) -> EncodedResponse:
        """Return a document of discovery, self-metrics, health, or the journal of an autoscaler."""
        if route.kind == "document":
            return await self._answer_document(request, route)
        if route.kind == "monitoring":
            with contextlib.closing(Charge(self._budget, request.connection, is_page=True)) as charge:
                body = await encoding.join(self.own_metrics.exposition_pieces(), charge)
            return EncodedResponse(200, body, metrics.CONTENT_TYPE)
        if route.kind == "debug" and self._show_autoscalers is not None:
            return EncodedResponse(*await self._show_autoscalers(route.segments[3:], route.query))
        answer = self._health.answer(route.segments, route.query)
        if answer is None:
            return await self._list_paths()
        return EncodedResponse(answer.status, answer.text.encode(), _TEXT)

    async def _answer_document(self, request: HTTPRequest, route: Route) -> EncodedResponse:
        accept = request.headers.get("Accept", "")
        is_root = route.document == "/apis"
        asks = negotiation.asks_aggregated if is_root else negotiation.asks_nothing
        form = negotiation.choose_form(accept, asks)
        # before asking, see `ResponseCache`: here the groups that are served may change too
        generation, served = self._provider.generation, ",".join(self._documents.served)
        document = await self._documents.find(route.document, aggregated=form == "aggregated")
        if document is None:
            return await self._list_paths()
        if form is None:
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
            with contextlib.closing(Charge(self._budget, request.connection, is_page=True)) as charge:
                kept = await endpoints.represent(document.body, representation, charge)
            self._cache.keep(key, representation, kept, generation, float("inf"))
        return kept._replace(content_type=document.content_type, headers=(*kept.headers, *headers))

    async def _list_paths(self) -> EncodedResponse:
        """Return the answer for an unknown path: outside the API groups Kubernetes lists its paths."""
        document = await self._documents.find("/index.html")
        assert document is not None  # every table of documents has it
        return EncodedResponse(404, document.body, document.content_type)

    def _keep_route(self, target: str, route: Route, user: User) -> None:
        """Keep the route of a repeated target. A parsed selector is larger than its text: memory is bounded.

        Routes of anonymous callers are not kept: anyone could displace those of others with them.
        """
        request = route.request
        # else the target may mean something else next time
        is_settled = request is None or request.form != "object" or route.resource
        may_be_kept = is_settled and user is not ANONYMOUS and len(target) <= endpoints.LONGEST_KEY
        if route.error is None and may_be_kept and self._doorkeeper.admits(target):
            route.weight = routing.weigh(target)
            self._routes[target] = route

    def _count(self, labels: RequestLabels, status: int, seconds: float) -> None:
        """Note a request. Children of metrics are looked up once: finding them costs more than counting."""
        counter = self._counters.get((labels, status))
        if counter is None:
            counter = self._counters[labels, status] = self.own_metrics.requests.labels(*labels, str(status))
            self._durations[labels] = self.own_metrics.request_duration.labels(*labels)
        counter.inc()
        self._durations[labels].observe(seconds)


def _find_status(error: Exception, route: Route) -> errors.StatusError:
    """Return what the caller of a failed request gets; details of an unexpected failure stay in the log."""
    if isinstance(error, errors.StatusError):
        return error
    if isinstance(error, TimeoutError):
        return errors.TimeoutStatusError("Timeout: request did not complete within the allotted timeout", {})
    facts = logs.facts(path=route.request, document=route.document)
    if isinstance(error, errors.SourceError):
        log.warning("a source failed while a request was answered", extra=facts, exc_info=error)
        if isinstance(error, errors.NotSyncedError):
            return errors.UnavailableError("the object cache is not synced yet")
        if isinstance(error, errors.KubernetesError):
            return errors.InternalError("unable to list matching resources")
        return errors.InternalError("unable to fetch metrics")
    log.error("unexpected error while a request was answered", extra=facts, exc_info=error)
    return _UNEXPECTED


def _fail(error: errors.StatusError, request: HTTPRequest, route: Route) -> EncodedResponse:
    body = encoding.encode_status(error)
    pretty = negotiation.choose_representation(request.headers, route.options.pretty).pretty
    return EncodedResponse(error.code, encoding.indent(body) if pretty else body)
