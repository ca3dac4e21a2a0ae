"""Instant queries to Prometheus.

A query ends with an answer or a `PrometheusError`; every error of the HTTP library is mapped to one. Nothing
is cached here, and nothing is retried but a query whose idle connection Prometheus had closed before the
query arrived.
"""

import asyncio
import logging
import ssl
from typing import Protocol, Self

import aiohttp
from aiohttp import http_exceptions

from adapter.config.options import PrometheusOptions
from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult
from adapter.prometheus import connection, endpoint
from adapter.prometheus.connection import FollowedFiles, PrometheusConnection
from adapter.prometheus.http_connections import HttpAnswer, HttpConnections, Origin
from adapter.prometheus.response import READABLE_STATUSES, ResponseDecoder, shorten, too_large
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

ENDPOINT = "/api/v1/query"

MAX_CONNECTIONS = 20
"""As many queries as Prometheus itself runs at once."""

SMALL_ANSWER = 1024 * 1024
"""Bytes that an answer may take in any case, however large the other answers being read are."""

_BEGINNING = 1024  # bytes of an answer that are examined if it is not JSON
_OF_THE_QUERY = frozenset({"query", "type"})  # kinds of failure that do not depend on the server

_log = logging.getLogger(__name__)


class Querier(Protocol):
    """Answers instant queries: `PrometheusClient`, and in tests a fake."""

    async def query(self, promql: str, time: float, *, most: int | None = None) -> QueryResult:
        """Return the samples of `promql` evaluated at `time` (epoch seconds). Raises PrometheusError.

        An answer with more than `most` samples is a PrometheusError of kind ``size``.
        """


class PrometheusClient:
    """A pool of keep-alive connections to one Prometheus; open it with `open`, and `close` it."""

    def __init__(
        self,
        origin: PrometheusConnection,
        tls: FollowedFiles[ssl.SSLContext],
        clock: Clock,
        monitoring: Monitoring,
    ) -> None:
        self.origin = origin
        self._options = origin.options
        self._tls = tls
        self._clock = clock
        self._monitoring = monitoring
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._reading = 0  # bytes that the answers being read take
        monitoring.prometheus_response_bytes.set_function(lambda: self._reading)
        self._duration = monitoring.client_duration.labels(path=ENDPOINT, server=origin.endpoint.base)
        self._server = "/".join(origin.endpoint.base.split("/", 3)[:3])
        self._connections = HttpConnections(MAX_CONNECTIONS, monitoring.query_retries.inc)

    @classmethod
    async def open(
        cls, options: PrometheusOptions, clock: Clock, monitoring: Monitoring, problems: ProblemLog
    ) -> Self:
        """Return a client without connecting. Raises InputError for options or files that cannot be used."""
        origin = await connection.open_connection(options, clock, problems)
        tls = connection.follow_tls(origin.tls, clock, problems, system_cas=origin.uses_tls)
        return cls(origin, tls, clock, monitoring)

    async def close(self) -> None:
        """Close all connections; queries in flight fail."""
        await self._connections.close()

    async def query(self, promql: str, time: float, *, most: int | None = None) -> QueryResult:
        """Return the samples of `promql` at `time` (epoch seconds), in Prometheus' order.

        Raises PrometheusError. An answer is not read beyond `most` samples. A result that is neither vector
        nor scalar is an error of kind ``type`` with its name in `result_type`.
        """
        started = self._clock.monotonic()
        try:
            if self._free.locked():
                await self._wait_for_connection()
            else:
                await self._free.acquire()
            try:
                left = self._options.prometheus_timeout - (self._clock.monotonic() - started)
                return await self._attempt(
                    promql, time, min(self._options.prometheus_attempt_timeout, left), most
                )
            finally:
                self._free.release()
        except PrometheusError as error:
            if error.kind not in _OF_THE_QUERY:
                error.url = self.origin.endpoint.shown(ENDPOINT)
            raise
        finally:
            self._monitoring.query_duration.observe(self._clock.monotonic() - started)

    async def _wait_for_connection(self) -> None:
        self._monitoring.queries_waiting.inc()
        try:
            async with asyncio.timeout(self._options.prometheus_timeout):
                await self._free.acquire()
        except TimeoutError as error:
            text = f"no connection became free in {self._options.prometheus_timeout:g} s"
            raise PrometheusError("timeout", text) from error
        finally:
            self._monitoring.queries_waiting.dec()

    async def _attempt(self, promql: str, time: float, within: float, most: int | None) -> QueryResult:
        """Send the query once. Prometheus gets the timeout of `within` seconds as well, and then stops."""
        started = self._clock.monotonic()
        params = [
            ("query", promql),
            ("time", endpoint.format_time(time)),
            ("timeout", endpoint.format_time(max(within, 0.001))),
        ]
        if self._connections.closed:
            raise PrometheusError("unreachable", "the client is closed")
        request = self.origin.endpoint.request(ENDPOINT, params)
        if request.method != self._options.prometheus_verb:
            self._monitoring.query_posts.inc()
        try:
            async with asyncio.timeout(within):
                return await self._fetch(request, most)
        except TimeoutError as error:
            raise PrometheusError("timeout", f"no answer in {within:.3g} s") from error
        except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
            raise map_error(error) from error
        finally:
            seconds = self._clock.monotonic() - started
            self._duration.observe(seconds)
            if _log.isEnabledFor(logging.DEBUG):
                values = facts(method=request.method, query=promql, time=time, seconds=seconds)
                _log.debug("query sent", extra=values)

    async def _fetch(self, request: endpoint.EndpointRequest, most: int | None) -> QueryResult:
        headers, tls, files = await self.origin.request_headers(), await self._tls.value(), self.origin.tls
        server = Origin(self._server, headers, tls, files.server_name, self.origin.proxy)
        response = await self._connections.send(request, server)
        try:
            if response.status not in READABLE_STATUSES:
                if response.status == 401:
                    self.origin.authorization.refuse()
                raise PrometheusError("status", endpoint.explain_status(response.status))
            return await self._read(response, most)
        finally:
            response.release()

    async def _read(self, response: HttpAnswer, most: int | None) -> QueryResult:
        limit = self._options.prometheus_max_answer_bytes
        if int(response.headers.get("Content-Length", 0)) > limit:
            raise too_large(limit)
        decoder = ResponseDecoder(most, limit)
        held = size = 0
        beginning = b""
        try:
            while chunk := await response.body.readany():
                size += len(chunk)
                beginning = beginning or chunk[:_BEGINNING]
                if size > limit:
                    raise too_large(limit)
                decoder.feed(chunk)
                held = self._hold(decoder, held)
                while decoder.step():
                    held = self._hold(decoder, held)
                    await asyncio.sleep(0)
            answer = decoder.finish()
        except PrometheusError as error:
            # before the samples are freed, so that no other answer is refused meanwhile
            self._reading -= held
            held = 0
            while decoder.drop():  # noqa: ASYNC110 - lets other tasks run while a long answer is freed
                await asyncio.sleep(0)
            if error.kind != "decode":
                raise
            if response.status >= 400:  # a page of something in front of Prometheus
                text = endpoint.explain_status(response.status, beginning)
                raise PrometheusError("status", text) from error
            raise PrometheusError("decode", endpoint.explain_body(error.message, beginning)) from error
        else:
            self._monitoring.query_warnings.inc(decoder.warnings)
            return answer
        finally:
            self._reading -= held

    def _hold(self, decoder: ResponseDecoder, before: int) -> int:
        """Count the bytes that an answer takes instead of `before`; refuse it if all take too much."""
        weight = decoder.weight
        limit = self._options.prometheus_max_answer_bytes
        others = self._reading - before
        if weight > limit:
            raise too_large(limit)
        if others + weight > limit and weight > SMALL_ANSWER:
            text = f"the answers being read take more than {limit} bytes (--prometheus-max-answer-bytes)"
            raise PrometheusError("size", text)
        self._reading = others + weight
        return weight


def map_error(error: Exception) -> PrometheusError:
    """Map an error of aiohttp or of the socket; the text never has the query or a password in it."""
    kind, text = "unreachable", str(error)
    match error:
        case TimeoutError():
            kind = "timeout"
        case aiohttp.ClientConnectorCertificateError():
            text = f"certificate not accepted: {error.certificate_error}"
        case aiohttp.ClientConnectorError(os_error=ssl.SSLError() as reason):
            text = endpoint.explain_tls(reason)
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy answered HTTP status {error.status}"
        case aiohttp.ClientConnectorError():
            text = f"cannot connect: {error.os_error.strerror or error.os_error}"
        case aiohttp.TooManyRedirects() | aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            kind, text = "status", "an invalid URL"
        case aiohttp.ClientResponseError() | http_exceptions.HttpProcessingError():
            kind, text = "status", f"invalid HTTP response: {error.message}"
        case aiohttp.ServerDisconnectedError():
            text = "the connection was closed before the answer"
        case aiohttp.ClientPayloadError():
            text = "the connection broke within the answer"
    return PrometheusError(kind, shorten(text or type(error).__name__))
