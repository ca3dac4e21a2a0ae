"""What answers admitted requests for metrics: the response cache, or else the provider.

An autoscaler with many HPAs asks the same few targets all the time, so the bytes of an answer are kept by
target and representation.
"""

import asyncio
import contextlib
import functools
import gzip
import re
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD

from adapter import errors
from adapter.model import metrics
from adapter.model.clock import Clock
from adapter.server.api import encoding
from adapter.server.api.query_string import Question
from adapter.server.api.routing import Route
from adapter.server.health import Health
from adapter.server.http import negotiation
from adapter.server.http.budgets import Charge, ResponseBudget
from adapter.server.http.negotiation import Representation
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import PIECE, EncodedResponse
from adapter.telemetry.metrics import CONTENT_TYPE, BoundedCache, Monitoring

AskUsages = Callable[[metrics.ResourceQuestion], Awaitable[metrics.ResourceAnswer]]
"""Answers a question about cpu and memory; for a named pod or node exactly one item, or an error."""

ShowAutoscalers = Callable[[Sequence[str], str], Awaitable[tuple[int, bytes]]]
"""Returns status and JSON of a namespace and name, or of all for neither, with the query of the request."""

LONGEST_KEY = 4096
"""Bytes of a target that is kept; an entry counts for as much beside its body."""

_INDENTED = 4  # times the length of a body that its indented form may have; measured 2.6

RESERVED = 4
"""One part in so many of the questions in flight is for tenants that have less than half of that part."""

_TIMES_AT_ONCE = 1000  # observations of freshness, after which other work may run

_LOOPBACK = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?")
"""The Host of a request to a loopback address, whatever port is forwarded to it."""

_Answer = metrics.CustomAnswer | metrics.ExternalAnswer | metrics.ResourceAnswer


class _CachedResponse(NamedTuple):
    response: EncodedResponse
    generation: int
    fresh_until: float


class ResponseCache:
    """Keeps encoded responses within `kept_bytes`, by target and representation.

    Two things end their use. The values of an answer have a time until which they are fresh. And every answer
    belongs to a generation, the number of the registry snapshot it was made from; `generation` returns the
    one in force. Rules that change, or metrics that appear and disappear, begin a new generation, and
    responses of any other are never sent. The generation is read *before* the provider is asked. Read
    afterwards, a registry that changes while the question is under way would give its number to an answer
    from the one before.

    Responses do not belong to callers: every request is authorized before the cache is looked at. Failures
    are not kept.
    """

    def __init__(
        self, generation: Callable[[], int], clock: Clock, own_metrics: Monitoring, kept_bytes: int
    ) -> None:
        self._generation = generation
        self._clock = clock
        self._entries: BoundedCache[tuple[str, Representation], _CachedResponse] = BoundedCache(
            "bodies", own_metrics, kept_bytes, lambda kept: len(kept.response.body) + LONGEST_KEY
        )

    def find(self, target: str, representation: Representation) -> EncodedResponse | None:
        """Return the response for a target if it may still be sent."""
        kept = self._entries.get((target, representation))
        if kept is None or kept.generation != self._generation():
            return None
        return kept.response if self._clock.monotonic() < kept.fresh_until else None

    def keep(
        self,
        target: str,
        representation: Representation,
        response: EncodedResponse,
        generation: int,
        fresh_until: float,
    ) -> None:
        """Keep a response of a generation until `fresh_until` (monotonic seconds), unless it is too large."""
        too_large = len(response.body) + LONGEST_KEY > self._entries.maxsize
        now = self._clock.monotonic()
        if not too_large and len(target) <= LONGEST_KEY and now < fresh_until:
            self._entries.drop_stale(lambda kept: kept.fresh_until <= now)
            self._entries[target, representation] = _CachedResponse(response, generation, fresh_until)


async def represent(body: bytes, representation: Representation, charge: Charge) -> EncodedResponse:
    """Return a body in the representation asked for.

    A large body is indented and compressed in a thread, and its copies are charged.
    """
    is_large = len(body) > negotiation.COMPRESS_ABOVE
    if representation.pretty and is_large:
        charge.grow(_INDENTED * len(body))
        body = await asyncio.to_thread(encoding.indent, body)
        charge.resize(len(body))
    elif representation.pretty:
        body = encoding.indent(body)
    if representation.compressed and is_large:
        charge.grow(len(body))
        body = await asyncio.to_thread(gzip.compress, body, compresslevel=1, mtime=0)
        headers = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
        return EncodedResponse(200, body, headers=headers)
    return EncodedResponse(200, body)


class MetricsEndpoint:
    """Serves the questions of the metrics APIs, at most `in_flight` of them from the provider at a time."""

    def __init__(
        self,
        provider: metrics.MetricsProvider,
        ask_usages: AskUsages | None,
        cache: ResponseCache,
        budget: ResponseBudget,
        clock: Clock,
        own_metrics: Monitoring,
        *,
        in_flight: int,
        request_timeout: float,
    ) -> None:
        """`request_timeout` is in seconds. `ask_usages` is needed where ``metrics.k8s.io`` is served."""
        self._provider = provider
        self._ask_usages = ask_usages
        self._cache = cache
        self._budget = budget
        self._clock = clock
        self._freshness = functools.cache(own_metrics.freshness.labels)  # labels() costs more than observe()
        self._most_in_flight = in_flight
        self._request_timeout = request_timeout
        self._in_flight: Counts[str] = Counts()
        self._reserved = in_flight // RESERVED
        own_metrics.inflight.labels("readOnly").set_function(self._in_flight.total)
        self._detached: set[asyncio.Task[EncodedResponse]] = set()

    def find_kept(self, request: HTTPRequest, route: Route) -> EncodedResponse | None:
        """Return the response in memory to a plain GET, unless it is long. Raises NotAcceptableError."""
        question = route.question
        if request.method != "GET" or request.body is not EMPTY_PAYLOAD:
            return None
        if question is None or isinstance(question, errors.StatusError):
            return None
        kept = self._cache.find(request.target, _choose_representation(request, route, question))
        return kept if kept is not None and len(kept.body) <= PIECE else None

    async def answer(self, request: HTTPRequest, route: Route, question: Question) -> EncodedResponse:
        """Return the values that a caller asks for. Raises StatusError (also for too many), TimeoutError."""
        target, representation = request.target, _choose_representation(request, route, question)
        kept = self._cache.find(target, representation)
        if kept is not None:
            return kept
        assert request.caller is not None  # admitted
        tenant = request.caller.tenant
        # The last part of the questions is for tenants that have few, so that one with slow questions does
        # not keep out the others.
        left = self._most_in_flight - self._in_flight.total()
        if left <= 0 or (left <= self._reserved and self._in_flight[tenant] >= self._reserved // 2):
            raise errors.TooManyRequestsError("requests")
        self._in_flight[tenant] += 1
        charge = Charge(self._budget, request.connection)
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
        generation = self._provider.generation  # before asking, see `ResponseCache`
        with contextlib.closing(charge):
            async with asyncio.timeout(self._request_timeout):
                answer, pieces = await self._ask(route, question, representation.table)
                body = await encoding.join(pieces, charge)
                freshness, now = self._freshness(route.labels.group), self._clock.wall()
                for number, time in enumerate({item.time for item in answer.items}, 1):
                    freshness.observe(now - time)
                    if number % _TIMES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                response = await represent(body, representation, charge)
        self._cache.keep(target, representation, response, generation, answer.fresh_until)
        return response

    async def _ask(self, route: Route, question: Question, table: str) -> tuple[_Answer, Iterable[bytes]]:
        """Return an answer, and its body in pieces."""
        version = route.labels.version
        if isinstance(question, metrics.CustomQuestion):
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
        if isinstance(question, metrics.ExternalQuestion):
            external = await self._provider.external(question)
            return external, encoding.encode_external(version, external)
        assert self._ask_usages is not None  # the group is served
        usages = await self._ask_usages(question)
        included = route.parameters.get("includeObject", "")
        wanted = encoding.TableOptions(table, included) if table else None
        return usages, encoding.encode_resource(version, question, usages, wanted)

    def _end_question(self, tenant: str) -> None:
        self._in_flight[tenant] -= 1
        if not self._in_flight[tenant]:
            del self._in_flight[tenant]  # tenants have no bound

    def _end_detached(self, tenant: str, making: asyncio.Task[EncodedResponse]) -> None:
        """Retrieve the exception of a question whose caller may have left."""
        self._end_question(tenant)
        self._detached.discard(making)
        if not making.cancelled():
            making.exception()


def _choose_representation(request: HTTPRequest, route: Route, question: Question) -> Representation:
    return negotiation.choose_metrics_representation(
        request.headers, route.options.pretty, has_table=type(question) is metrics.ResourceQuestion
    )


class LocalPages:
    """The scaler's local pages over plain HTTP: health, self-metrics and the journal of an autoscaler.

    Callers are not authenticated: they are on the machine or in the pod already, and `kubectl port-forward`
    has its own permission. The pages are read-only, and the command line accepts loopback addresses only.
    A page of another site can make a browser on the machine send requests here, under a name that resolves to
    a loopback address: these have its name as Host, or an Origin, and are refused.
    They are served between `start` and `stop`, unless the address is "".
    """

    def __init__(
        self, address: str, health: Health, own_metrics: Monitoring, show_autoscalers: ShowAutoscalers
    ) -> None:
        self._address = address
        self._health = health
        self._monitoring = own_metrics
        self._show_autoscalers = show_autoscalers
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
        if not _LOOPBACK.fullmatch(request.headers.get("Host", "")) or "Origin" in request.headers:
            return web.Response(status=403, text="only requests to a loopback address are served\n")
        segments = tuple(request.path.split("/")[1:])
        match segments:
            case ("metrics",):
                body = await encoding.join(self._monitoring.exposition_pieces())
                return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
            case ("debug", "fastpath", "autoscalers", *key) if len(key) in {0, 2} and all(key):
                status, body = await self._show_autoscalers(key, request.query_string)
                return web.Response(status=status, body=body, content_type=negotiation.JSON)
        answer = self._health.answer(segments, request.query_string)
        if answer is None:
            return web.Response(status=404, text="not found\n")
        return web.Response(status=answer.status, text=answer.text)
