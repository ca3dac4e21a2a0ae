"""From one HTTP request to its answer: bodies kept as bytes, deadline, failures, self-metrics.

`Handler.handle` is all that aiohttp's low-level server calls: the same handler behind an `Application`'s router takes
about a quarter more CPU for a kept answer. Who may ask is decided before `_answer`, on the `Route` that
`_answer` works from: what is kept is not kept by caller.

A body is kept until its values are no longer young or the registry has changed; who asks the same in the same form
within that time gets the same bytes. Failures are never kept.
"""

import asyncio
import gzip
import logging
import uuid
from collections import Counter as Counts
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, cast

from aiohttp import web
from multidict import CIMultiDict
from prometheus_client import Counter, Histogram

from adapter import errors
from adapter.autoscaler import debug
from adapter.model.clock import Clock
from adapter.model.identity import ANONYMOUS, User
from adapter.model.metrics import CustomQuestion, ExternalQuestion, MetricsProvider, ResourceQuestion
from adapter.server.api import encoding, encoding_resource, routing
from adapter.server.api.documents import Documents
from adapter.server.api.paths import Question, ResourceMetricsProvider
from adapter.server.api.routing import Labels, Route
from adapter.server.auth.admission import Access, Pending, Queue, read_query
from adapter.server.health import Health
from adapter.server.http import negotiation
from adapter.server.http.access_log import AccessLog
from adapter.server.http.response_budget import (
    ANSWERS_BYTES,
    SMALL_ANSWER,
    AnswerBudget,
    Charge,
    LargeBody,
    Taker,
)
from adapter.telemetry import exposition, logs, metrics
from adapter.telemetry.caching import BoundedCache

log = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"
_ALLOWED = "GET, HEAD"
_ROUTES_WEIGHT = 48 * 1024 * 1024
_SHARES = 4  # one user or address takes this part of the callers that may wait for reviews
_INDENTED = 4  # times the length of a body that its indented form may have; measured 2.6
_TIMES_AT_ONCE = 1000  # observations of freshness, after which other work may run
_LONGEST_KEY = 4096  # bytes of a target that is remembered; also what an entry counts for beside its body

_NOT_ALLOWED = errors.MethodNotAllowedError(
    "the server does not allow this method on the requested resource", {}
)
_NOT_ACCEPTABLE = errors.NotAcceptableError(
    f"only the following media types are accepted: {negotiation.JSON}"
)
_UNEXPECTED = errors.PlainError("Internal Server Error")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server takes upon itself."""

    request_timeout: float = 60.0
    """Seconds a caller waits at most; a smaller `timeout` of the request wins."""
    in_flight: int = 400
    """Questions that may wait for the provider at a time; callers of more are told to come again."""
    request_body_bytes: int = 8192
    """A GET has no use for a body; one announced as longer is refused."""
    kept_bytes: int = 64 * 1024 * 1024
    """Memory for bodies kept. Each counts for 4 KiB more than it is long, so there are at most 16,384."""
    answers_bytes: int = ANSWERS_BYTES
    """Memory for bodies that are made or sent, beside a small share of each; callers of more are told to come again."""


class Reply(NamedTuple):
    """An answer before it becomes a response. An empty content type goes with an empty body."""

    status: int
    body: bytes
    content_type: str = negotiation.JSON
    headers: tuple[tuple[str, str], ...] = ()


class _Form(NamedTuple):
    """How a body is wanted; `table` is the version of a Table, "" for the plain answer."""

    pretty: bool
    compressed: bool
    table: str = ""


class _Kept(NamedTuple):
    reply: Reply
    generation: int
    fresh_until: float


class _Remembered(NamedTuple):
    route: Route
    weight: int


_Key = tuple[str, _Form]


class Handler:
    """Answers requests; `stopping` asks callers to close their connections, so that they find another server."""

    def __init__(
        self,
        provider: MetricsProvider,
        documents: Documents,
        health: Health,
        access: Access,
        *,
        own_metrics: metrics.Monitoring,
        clock: Clock,
        limits: Limits = Limits(),
        resource_provider: ResourceMetricsProvider | None = None,
        access_log: AccessLog | None = None,
        autoscalers: Callable[[str, str], debug.DebugResponse] | None = None,
    ) -> None:
        """`resource_provider` is needed where ``metrics.k8s.io`` is served, `autoscalers` shows one where there is a scaler."""
        self.stopping = False
        self._provider = provider
        self._resource_provider = resource_provider
        self._access_log = access_log
        self._autoscalers = autoscalers
        self._documents = documents
        self._health = health
        self._access = access
        self.own_metrics = own_metrics
        self._clock = clock
        self._limits = limits
        self._routes: BoundedCache[str, _Remembered] = BoundedCache(
            "routes", own_metrics, _ROUTES_WEIGHT, lambda remembered: remembered.weight
        )
        self._routed = documents.served_groups
        self._kept: BoundedCache[_Key, _Kept] = BoundedCache(
            "bodies", own_metrics, limits.kept_bytes, lambda kept: len(kept.reply.body) + _LONGEST_KEY
        )
        self._answers = AnswerBudget(limits.answers_bytes, clock.monotonic)
        own_metrics.answer_bytes.set_function(lambda: self._answers.used)
        self._asking = 0
        self._hasty: set[asyncio.Task[Reply]] = set()
        self._in_review: Counts[tuple[bool, Queue]] = Counts()
        self._inflight = own_metrics.inflight.labels("readOnly")
        self._counters: dict[tuple[Labels, int], Counter] = {}
        self._durations: dict[Labels, Histogram] = {}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Raises nothing but cancellation."""
        started = self._clock.monotonic()
        target = request.raw_path
        served = self._documents.served_groups
        if served is not self._routed:  # a path may mean something now that it did not mean before
            self._routed = served
            self._routes.clear()
        remembered = self._routes.get(target)
        if remembered is not None:
            route = remembered.route
        else:
            route = routing.find_route(target, served, self._provider.canonical_resource)
        charge: Charge | None = None
        try:
            admitted = self._access.admit_now(request, route)
            if isinstance(admitted, Pending):
                reply = await self._answer_after_review(request, target, route, admitted)
            else:
                if remembered is None:
                    self._remember(target, route, admitted)
                reply = await self._answer(request, target, route)
            if len(reply.body) > SMALL_ANSWER:
                charge = self._answers.send(_taker(request), reply.body, is_page=_is_page(route))
        except errors.TooManyRequestsError as error:
            self.own_metrics.too_many.labels(error.limit).inc()
            reply = _too_many(error)
        except Exception as error:  # noqa: BLE001 - the one place where failures become answers
            reply = _fail(_status_of(error, route), _form(request, route))
        seconds = self._clock.monotonic() - started
        self._count(route.labels, reply.status, seconds)
        response = self._respond(request, reply, charge)
        if self._access_log is not None:
            self._access_log.note(request, route, response, seconds)
        return response

    async def _answer_after_review(
        self, request: web.BaseRequest, target: str, route: Route, pending: Pending
    ) -> Reply:
        """Answer once the API server has said that the caller may ask; review and answer share one deadline.

        The callers that wait are bounded too, those for metrics apart from all others: so many of one user,
        so many with unknown tokens from one address, and so many that are anonymous. None of them keeps out
        the rest.
        """
        waiting = (route.kind == "metrics", pending.queue)
        limit = self._limits.in_flight
        if pending.queue.standing != "anonymous":
            limit = max(1, limit // _SHARES)
        if self._in_review[waiting] >= limit:
            raise errors.TooManyRequestsError("callers")
        async with asyncio.timeout(self._patience(route)):
            self._in_review[waiting] += 1
            try:
                user = await self._access.admit(request, route, pending)
            finally:
                self._in_review[waiting] -= 1
                if not self._in_review[waiting]:
                    del self._in_review[waiting]  # users and addresses have no bound
            self._remember(target, route, user)
            return await self._answer(request, target, route)

    def _patience(self, route: Route) -> float:
        """Return how many seconds the caller waits."""
        return min(self._limits.request_timeout, route.options.timeout or self._limits.request_timeout)

    async def _answer(self, request: web.BaseRequest, target: str, route: Route) -> Reply:
        is_unknown = route.error is not None and route.error.code == errors.NotFoundError.code
        if request.method not in {"GET", "HEAD"} and not is_unknown:
            reply = _fail(_NOT_ALLOWED, _form(request, route))
            return reply._replace(headers=(("Allow", _ALLOWED),))
        if request.body_exists and (request.content_length or 0) > self._limits.request_body_bytes:
            raise errors.RequestTooLargeError(
                f"Request entity too large: limit is {self._limits.request_body_bytes}"
            )
        if route.error is not None:
            return _fail(route.error, _form(request, route))
        if route.kind == "metrics":
            question, error = route.asked or await read_query(route)
            if question is None:
                assert error is not None
                return _fail(error, _form(request, route))
            return await self._answer_metrics(request, target, route, question)
        if route.kind == "document":
            return await self._answer_document(request, route)
        if route.kind == "monitoring":
            with self._answers.open(_taker(request), is_page=True) as making:
                body = await encoding.join(self.own_metrics.exposition_pieces(), making)
            return Reply(200, body, exposition.CONTENT_TYPE)
        if route.kind == "debug" and self._autoscalers is not None:
            namespace, name = route.segments[-2:]
            status, document = self._autoscalers(namespace, name)
            return Reply(status, debug.encode(document))
        answer = self._health.answer(route.segments, route.query)
        return (
            await self._list_paths() if answer is None else Reply(answer.status, answer.text.encode(), _TEXT)
        )

    async def _answer_metrics(
        self, request: web.BaseRequest, target: str, route: Route, question: Question
    ) -> Reply:
        form = _metrics_form(request, route, question)
        kept = self._find_kept((target, form))
        if kept is not None:
            return kept
        if self._asking >= self._limits.in_flight:
            raise errors.TooManyRequestsError("questions")
        self._asking += 1
        self._inflight.inc()
        making = self._answers.open(_taker(request))
        if route.options.timeout is None:
            try:
                return await self._ask_and_keep(target, route, question, form, making)
            finally:
                self._end_question()
        # who asks and leaves has asked all the same: what is under way is bounded, not who waits for it
        asking = asyncio.create_task(
            self._ask_and_keep(target, route, question, form, making), name="question of a caller in haste"
        )
        self._hasty.add(asking)
        asking.add_done_callback(self._end_hasty)
        async with asyncio.timeout(self._patience(route)):
            return await asyncio.shield(asking)

    async def _ask_and_keep(
        self, target: str, route: Route, question: Question, form: _Form, making: Charge
    ) -> Reply:
        generation = (
            self._provider.generation
        )  # before asking: an answer may be older than the registry it ends in
        with making:
            async with asyncio.timeout(self._limits.request_timeout):
                body, fresh_until = await self._ask(route, question, form.table, making)
                reply = await _shape(body, form, making)
        self._keep((target, form), _Kept(reply, generation, fresh_until))
        return reply

    def _end_question(self) -> None:
        self._asking -= 1
        self._inflight.dec()

    def _end_hasty(self, asking: asyncio.Task[Reply]) -> None:
        """Note its failure, which nobody else may do when the caller has gone."""
        self._end_question()
        self._hasty.discard(asking)
        if not asking.cancelled():
            asking.exception()

    async def _ask(self, route: Route, question: Question, table: str, making: Charge) -> tuple[bytes, float]:
        """Put the question to the provider; returns the body and until when it may be kept."""
        version = route.labels.version
        if isinstance(question, CustomQuestion):
            custom = await self._provider.custom(question)
            self._check_resource(route, question)
            times = {item.time for item in custom.items}
            pieces, fresh_until = encoding.encode_custom(version, question, custom), custom.fresh_until
        elif isinstance(question, ResourceQuestion):
            assert self._resource_provider is not None  # the group is served
            usages = await self._resource_provider.resource(question)
            times = {item.time for item in usages.items}
            wanted = encoding_resource.Table(table, route.parameters.include_object) if table else None
            pieces, fresh_until = (
                encoding_resource.encode(version, question, usages, wanted),
                usages.fresh_until,
            )
        else:
            assert isinstance(question, ExternalQuestion)
            external = await self._provider.external(question)
            times = {item.time for item in external.items}
            pieces, fresh_until = encoding.encode_external(version, external), external.fresh_until
        body = await encoding.join(pieces, making)
        await self._note_freshness(route.labels.group, times)
        return body, fresh_until

    def _check_resource(self, route: Route, question: CustomQuestion) -> None:
        """Refuse a resource that became known, while it was asked for, under another name than authorized."""
        assert route.path is not None
        authorized = route.resource or route.path.resource
        if self._provider.canonical_resource(question.resource) not in {authorized, None}:
            raise errors.NotFoundError(
                f"the server could not find the metric {question.metric} for {question.resource}"
            )

    async def _note_freshness(self, group: str, times: Collection[float]) -> None:
        """Observe the age of an answer's values, once for each distinct time."""
        freshness = self.own_metrics.freshness.labels(group)
        now = self._clock.wall()
        for number, time in enumerate(times, 1):
            freshness.observe(now - time)
            if number % _TIMES_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _answer_document(self, request: web.BaseRequest, route: Route) -> Reply:
        accept = request.headers.get("Accept", "")
        is_root = route.document == "/apis"
        if is_root:
            media_type = negotiation.choose_discovery(accept)
            acceptable, aggregated = media_type is not None, media_type == "aggregated"
        else:
            acceptable, aggregated = negotiation.accepts_json(accept), False
        # before asking: a document may be older than the registry and the groups it ends in
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
                return Reply(304, b"", "", tuple(headers))
        form = _form(request, route)
        key = (f"{route.document} {document.content_type} {served}", form)  # a blank: no target has one
        kept = self._find_kept(key)
        if kept is None:
            with self._answers.open(_taker(request), is_page=True) as making:
                kept = await _shape(document.body, form, making)
            self._keep(key, _Kept(kept, generation, float("inf")))
        return kept._replace(content_type=document.content_type, headers=(*kept.headers, *headers))

    async def _list_paths(self) -> Reply:
        """Return the answer for a path outside the API groups, which in Kubernetes' API servers is the list of what there is."""
        document = await self._documents.find("/index.html")
        assert document is not None  # every table of documents has it
        return Reply(404, document.body, document.content_type)

    def _remember(self, target: str, route: Route, user: User) -> None:
        """Keep a route for the next request, within a bound of memory: a selector outweighs its text.

        Routes of anonymous callers are not kept: anyone could make them take the place of others.
        """
        is_kept = route.is_settled and user is not ANONYMOUS
        if is_kept and len(target) <= _LONGEST_KEY:
            self._routes[target] = _Remembered(route, routing.weigh(target))

    def _find_kept(self, key: _Key) -> Reply | None:
        kept = self._kept.get(key)
        if kept is None or kept.generation != self._provider.generation:
            return None
        return kept.reply if self._clock.monotonic() < kept.fresh_until else None

    def _keep(self, key: _Key, kept: _Kept) -> None:
        too_large = len(kept.reply.body) + _LONGEST_KEY > self._limits.kept_bytes
        if not too_large and len(key[0]) <= _LONGEST_KEY and self._clock.monotonic() < kept.fresh_until:
            self._kept[key] = kept

    def _count(self, labels: Labels, status: int, seconds: float) -> None:
        """Note a request. Children are looked up once: finding them costs more than counting."""
        counter = self._counters.get((labels, status))
        if counter is None:
            counter = self._counters[labels, status] = self.own_metrics.requests.labels(*labels, str(status))
            self._durations[labels] = self.own_metrics.request_duration.labels(*labels)
        counter.inc()
        self._durations[labels].observe(seconds)

    def _respond(self, request: web.BaseRequest, reply: Reply, charge: Charge | None) -> web.Response:
        audit_id = request.headers.get("Audit-Id", "")
        if not negotiation.is_audit_id(audit_id):
            audit_id = str(uuid.uuid4())
        headers = CIMultiDict(reply.headers)
        headers["Audit-Id"] = audit_id
        headers["Cache-Control"] = "no-cache, private"
        headers["Server"] = "fastpath"
        headers["X-Content-Type-Options"] = "nosniff"
        if reply.content_type:
            headers["Content-Type"] = reply.content_type
        body: bytes | LargeBody = reply.body
        if charge is not None:
            body = LargeBody(reply.body, charge, content_type=reply.content_type)
        response = web.Response(status=reply.status, body=body, headers=headers)
        # a body that is still on its way is not waited for, so the connection ends, and its owner is told
        if self.stopping or reply.status == errors.RequestTooLargeError.code or not request.content.is_eof():
            response.force_close()
        return response


def _status_of(error: Exception, route: Route) -> errors.StatusError:
    """Return what the caller of a failed request is told. What nobody expected is logged here, and only named in the log."""
    if isinstance(error, errors.StatusError):
        return error
    if isinstance(error, TimeoutError):
        return errors.TimeoutStatusError("Timeout: request did not complete within the allotted timeout", {})
    facts = logs.facts(path=route.path, document=route.document)
    if isinstance(error, errors.SourceError):
        log.warning("a source failed while a request was answered", extra=facts, exc_info=error)
        if isinstance(error, errors.NotSyncedError):
            return errors.UnavailableError("the object cache is not synced yet")
        if isinstance(error, errors.KubernetesError):
            return errors.InternalError("unable to list matching resources")
        return errors.InternalError("unable to fetch metrics")
    log.error("unexpected error while a request was answered", extra=facts, exc_info=error)
    return _UNEXPECTED


def _form(request: web.BaseRequest, route: Route) -> _Form:
    pretty = route.options.pretty
    if pretty is None:
        pretty = negotiation.is_pretty_agent(request.headers.get("User-Agent", ""))
    return _Form(pretty, negotiation.accepts_gzip(request.headers.get("Accept-Encoding", "")))


def _metrics_form(request: web.BaseRequest, route: Route, question: Question) -> _Form:
    """Return how a value list is wanted; raises for a caller who takes no JSON. Only resource metrics have a Table."""
    accept, form = request.headers.get("Accept", ""), _form(request, route)
    if isinstance(question, ResourceQuestion):
        table = negotiation.choose_table(accept)
        if table is None:
            raise _NOT_ACCEPTABLE
        return form._replace(table=table) if table else form
    if not negotiation.accepts_json(accept):
        raise _NOT_ACCEPTABLE
    return form


def _fail(error: errors.StatusError, form: _Form) -> Reply:
    body = encoding.encode_status(error)
    return Reply(error.code, encoding.indent(body) if form.pretty else body)


async def _shape(body: bytes, form: _Form, making: Charge) -> Reply:
    """Return a body in the form asked for; what is large is worked on in a thread, and its copies are counted."""
    is_large = len(body) > negotiation.COMPRESS_ABOVE
    if form.pretty and is_large:
        making.grow(_INDENTED * len(body))
        body = await asyncio.to_thread(encoding.indent, body)
        making.resize(len(body))
    elif form.pretty:
        body = encoding.indent(body)
    if form.compressed and is_large:
        making.grow(len(body))
        body = await asyncio.to_thread(gzip.compress, body, compresslevel=1, mtime=0)
        return Reply(200, body, headers=(("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")))
    return Reply(200, body)


def _taker(request: web.BaseRequest) -> Taker:
    """Return the connection of a request."""
    return cast("Taker", request.protocol)


def _is_page(route: Route) -> bool:
    """Return whether the answer is the server's own, and not one to a question about metrics."""
    return route.kind != "metrics"


def _too_many(error: errors.TooManyRequestsError) -> Reply:
    return Reply(error.code, f"{error.message}\n".encode(), _TEXT, (("Retry-After", "1"),))
