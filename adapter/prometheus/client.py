"""Instant queries to Prometheus.

Not here: how Prometheus is reached (`connection`), what its JSON means (`envelope`), which queries are worth sending and
what kind they are (the query plan, which counts them by kind). The law: an answer or a `PrometheusError`, never another
exception but the caller's own cancellation; nothing is kept and nothing is repeated, save a query whose idle connection
Prometheus had closed before it arrived.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Protocol, Self

import aiohttp
from aiohttp import http_exceptions
from yarl import URL

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult
from adapter.prometheus import connection, endpoint, hints
from adapter.prometheus import response as envelope
from adapter.prometheus.client_tls import FollowedTLS
from adapter.prometheus.connection import Connection, PrometheusSettings
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

__all__ = ["PrometheusClient", "PrometheusSettings", "Querier"]

ENDPOINT = "/api/v1/query"

_MAX_REDIRECTS = 10  # as Go's client
_KEEP_ALIVE_SECONDS = 90.0  # as Go's transport; Prometheus itself closes after five minutes

SMALL_ANSWER = 1024 * 1024
"""Bytes of memory that an answer may take however large the others are that are being read."""

_BEGINNING = 1024  # bytes of an answer that say what it is
_OF_THE_QUERY = frozenset({"query", "type"})  # kinds of failure that do not depend on the server

_log = logging.getLogger(__name__)

Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class Querier(Protocol):
    """What answers instant queries: the client below, and whatever stands before it."""

    async def query(self, promql: str, time: float, *, most: int | None = None) -> QueryResult:
        """Return the samples of `promql` evaluated at `time` (epoch seconds); raises `PrometheusError`.

        One of kind ``size`` where there are more than `most` of them.
        """
        ...


class PrometheusClient:
    """A pool of keep-alive connections to one Prometheus; open it with `open`, and `close` it."""

    def __init__(
        self,
        origin: Connection,
        session: aiohttp.ClientSession,
        tls: FollowedTLS,
        clock: Clock,
        monitoring: Monitoring,
    ) -> None:
        self.origin = origin
        """How it is reached; discovery connects in the same way."""
        self._settings = origin.settings
        self._session = session
        self._tls = tls
        self._clock = clock
        self._monitoring = monitoring
        self._free = asyncio.Semaphore(origin.settings.max_connections)
        self._reading = 0  # bytes of memory that the answers take that are being read
        monitoring.answers_reading.set_function(lambda: self._reading)
        self._duration = monitoring.client_duration.labels(path=ENDPOINT, server=origin.target.base)

    @classmethod
    async def open(
        cls, settings: PrometheusSettings, clock: Clock, monitoring: Monitoring, faults: ProblemLog
    ) -> Self:
        """Return a client; files are read now, Prometheus is not asked. Raises `errors.InputError` for unusable settings."""
        origin = await connection.open_connection(settings, clock, faults)
        tls = FollowedTLS(origin.trust, clock, faults)
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.max_connections, keepalive_timeout=_KEEP_ALIVE_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
        )
        return cls(origin, session, tls, clock, monitoring)

    async def close(self) -> None:
        """Close all connections; a query under way fails."""
        await self._session.close()

    async def query(self, promql: str, time: float, *, most: int | None = None) -> QueryResult:
        """Return the samples of `promql` at `time` (epoch seconds); of an answer of more than `most` the rest is not read.

        The order is Prometheus' own. A vector may be empty. Raises `PrometheusError`; a result of another
        type has kind ``type`` and its name in `result_type`.
        """
        started = self._clock.monotonic()
        try:
            async with self._slot():
                left = self._settings.request_timeout - (self._clock.monotonic() - started)
                answer = await self._attempt(promql, time, min(self._settings.attempt_timeout, left), most)
        except PrometheusError as error:
            if error.kind not in _OF_THE_QUERY:
                error.url = self.origin.target.shown(ENDPOINT)
            raise
        finally:
            self._monitoring.query_duration.observe(self._clock.monotonic() - started)
        if answer.warnings:
            self._monitoring.query_warnings.inc(answer.warnings)
        return answer.result

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for one of the connections, at most as long as a whole request may take."""
        if self._free.locked():
            self._monitoring.connections_waiting.inc()
            try:
                async with asyncio.timeout(self._settings.request_timeout):
                    await self._free.acquire()
            except TimeoutError as error:
                text = f"no connection became free in {self._settings.request_timeout:g} s"
                raise PrometheusError("timeout", text) from error
            finally:
                self._monitoring.connections_waiting.dec()
        else:
            await self._free.acquire()
        try:
            yield
        finally:
            self._free.release()

    async def _attempt(self, promql: str, time: float, within: float, most: int | None) -> envelope.Answer:
        """Ask once, in `within` seconds, which Prometheus is told too so that it stops when we do."""
        started = self._clock.monotonic()
        params = [
            ("query", promql),
            ("time", endpoint.format_time(time)),
            ("timeout", endpoint.format_time(max(within, 0.001))),
        ]
        if self._session.closed:
            raise PrometheusError("unreachable", "the client is closed")
        request = self.origin.target.request(ENDPOINT, params)
        if request.method != self._settings.verb:
            self._monitoring.query_posts.inc()
        try:
            async with asyncio.timeout(within):
                answer = await self._fetch(request, most)
        except TimeoutError as error:
            raise PrometheusError("timeout", f"no answer in {within:.3g} s") from error
        except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
            raise map_error(error) from error
        finally:
            seconds = self._clock.monotonic() - started
            self._duration.observe(seconds)
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug(
                    "query sent", extra=facts(method=request.method, query=promql, time=time, seconds=seconds)
                )
        return answer

    async def _fetch(self, request: endpoint.Request, most: int | None) -> envelope.Answer:
        headers = await self.origin.request_headers()
        if request.body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        reuse = _Reuse()
        async with self._session.request(
            request.method,
            URL(request.url, encoded=True),
            data=request.body,
            headers=headers,
            ssl=self._tls.context(),
            server_hostname=self.origin.trust.server_name or None,
            proxy=self.origin.proxy or None,
            max_redirects=_MAX_REDIRECTS,
            trace_request_ctx=reuse,
            middlewares=(self._once_more(reuse),),
        ) as response:
            if response.status not in envelope.ENVELOPE_STATUSES:
                if response.status == 401:
                    self.origin.authorization.refuse()
                raise PrometheusError("status", hints.of_status(response.status))
            return await self._read(response, most)

    async def _read(self, response: aiohttp.ClientResponse, most: int | None) -> envelope.Answer:
        limit = self._settings.max_answer_bytes
        if (response.content_length or 0) > limit:
            raise envelope.too_large(limit)
        decoder = envelope.AnswerDecoder(most, limit)
        held = size = 0
        beginning = b""
        try:
            async for chunk in response.content.iter_any():
                size += len(chunk)
                beginning = beginning or chunk[:_BEGINNING]
                if size > limit:
                    raise envelope.too_large(limit)
                decoder.feed(chunk)
                held = self._hold(decoder, held)
                while decoder.step():
                    held = self._hold(decoder, held)
                    await asyncio.sleep(0)
            return decoder.finish()
        except PrometheusError as error:
            self._reading -= held  # before it is all dropped: else others were refused for it meanwhile
            held = 0
            while decoder.drop():  # noqa: ASYNC110 - nothing to wait for: others run while a long answer is freed
                await asyncio.sleep(0)
            if (
                error.kind == "decode" and response.status >= 400
            ):  # a page of something in front of Prometheus
                raise PrometheusError("status", hints.of_status(response.status, beginning)) from error
            if error.kind == "decode":
                raise PrometheusError("decode", hints.of_body(error.message, beginning)) from error
            raise
        finally:
            self._reading -= held

    def _hold(self, decoder: envelope.AnswerDecoder, before: int) -> int:
        """Count what an answer takes now instead of `before`, and return it; refuse it when all take too much."""
        weight = decoder.weight
        limit = self._settings.max_answer_bytes
        others = self._reading - before
        if others + weight > limit and weight > SMALL_ANSWER:
            text = f"the answers that are read at a time take more than {limit} bytes (--prometheus-max-answer-bytes)"
            raise PrometheusError("size", text)
        self._reading = others + weight
        return weight

    def _once_more(
        self, reuse: "_Reuse"
    ) -> Callable[[aiohttp.ClientRequest, Handler], Awaitable[aiohttp.ClientResponse]]:
        """Return the step around sending that repeats a query lost on a connection the server closed while it lay idle.

        aiohttp itself would repeat any GET whose connection broke, and no POST.
        """

        async def send(request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
            repeated = False
            while True:
                reuse.idle = False
                try:
                    return await handler(request)
                except aiohttp.ClientConnectorError:
                    raise
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                    if repeated or not reuse.idle:
                        raise map_error(error) from error
                repeated = True
                self._monitoring.query_retries.inc()

        return send


def map_error(error: Exception) -> PrometheusError:
    """Return our error for one of aiohttp's or of the socket's; never with the query or a password in it."""
    kind, text = "unreachable", str(error)
    match error:
        case TimeoutError():
            kind = "timeout"
        case aiohttp.ClientConnectorCertificateError():
            text = f"certificate not accepted: {error.certificate_error}"
        case aiohttp.ClientConnectorError(os_error=ssl.SSLError() as reason):
            text = hints.of_tls(reason)
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy answered HTTP status {error.status}"
        case aiohttp.ClientConnectorError():
            text = f"cannot connect: {error.os_error.strerror or error.os_error}"
        case aiohttp.TooManyRedirects() | aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            kind, text = "status", "redirected too often or to nowhere"
        case aiohttp.ClientResponseError() | http_exceptions.HttpProcessingError():
            kind, text = "status", f"not an answer of HTTP: {error.message}"
        case aiohttp.ServerDisconnectedError():
            text = "the connection was closed before the answer"
        case aiohttp.ClientPayloadError():
            text = "the connection broke within the answer"
        case _:
            pass
    return PrometheusError(kind, envelope.shorten(text or type(error).__name__))


class _Reuse:
    """Whether the connection of a request had been used before."""

    idle = False


async def _note_reuse(
    _: aiohttp.ClientSession, context: SimpleNamespace, __: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.idle = True
