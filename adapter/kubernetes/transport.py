"""One request to the API server.

Session, credentials, attempts, and the body of a write that may be stopped at the last moment.

Retries happen here and nowhere else.

A write of a leader must not reach the API server after the lease may have been lost. Opening a connection can
take seconds, and the process may be suspended at any point, so a check before the request is not enough.
`GuardedBody` is called by aiohttp when the connection is open and nothing of the request has been sent: it
checks there. A write that is given up after that may still lie in the socket's send buffer, and the kernel
would deliver it later. Such a connection is reset (SO_LINGER 0), which discards the buffer.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter
from yarl import URL

from adapter import errors, net
from adapter.kubernetes.api_errors import RESET, refusal_of, translated
from adapter.kubernetes.credentials import ClientConfiguration

_READ_BYTES = 2 * 1024 * 1024
"""Read-ahead of a response body: an object may be as large as etcd accepts."""

ATTEMPTS = 3
RETRY_SECONDS = 0.2
RETRY_AFTER_LIMIT = 10.0
"""A request with a longer Retry-After fails at once."""

REVIEW_SECONDS = 10.0
"""Timeout of one attempt of a review, in seconds. A client waits for the result of each review."""

REVIEW_PAUSES = (0.5, 0.75, 1.125, 1.6875)
"""Pauses before further attempts of a review, in seconds, as in upstream's webhook clients; only after
transient failures.
"""

_REVIEW_RETRIED = frozenset({429, 500, 504})
_SPREAD = 0.2

_STATUS_BYTES = 64 * 1024

Parameters = Mapping[str, str]


_LINGER_NONE = struct.pack("ii", 1, 0)


class GuardedBody(aiohttp.BytesPayload):
    """The body of one write. `refusal` is what `check` raised, `times` the number of times it was sent."""

    def __init__(self, content: bytes, content_type: str, check: Callable[[], object]) -> None:
        super().__init__(content, content_type=content_type)
        self._check = check
        self._transports: list[asyncio.Transport] = []
        self.refusal: Exception | None = None
        self.times = 0

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Check, then write. aiohttp holds the request head back until here.

        Called again if the server had closed the connection and aiohttp has opened another.
        """
        try:
            self._check()
        except Exception as refusal:
            self.refusal = refusal
            raise
        if isinstance(writer, StreamWriter) and writer.transport is not None:
            self._transports.append(writer.transport)
            _discard_on_close(writer.transport)
        self.times += 1
        await super().write_with_length(writer, content_length)

    def answered(self) -> None:
        """Note the response: nothing of the request is left to deliver."""
        self._transports.clear()

    def abandon(self) -> None:
        """Reset the connection unless the server has responded."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()


def _discard_on_close(transport: asyncio.Transport) -> None:
    """Make the kernel discard the send buffer when the connection is closed."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # already closed by the server
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)


class KubernetesRequest(NamedTuple):
    """A request. `what` names verb and resource in errors.

    `patient` requests are retried after transient failures.

    A `document` makes it a POST, retried as reviews are; a `body` makes it a write, which is sent once.

    """

    what: str
    path: str
    parameters: Parameters
    accept: str
    timeout: aiohttp.ClientTimeout
    patient: bool
    document: Mapping[str, object] | None = None
    body: GuardedBody | None = None
    method: str = "PUT"


class _FailedAttempt(NamedTuple):
    """A failed attempt, and the server's Retry-After in seconds, if any."""

    error: errors.KubernetesError
    retry_after: float | None


class Sender:
    """One API server, one session. Made by `open_sender`."""

    def __init__(
        self,
        config: ClientConfiguration,
        session: aiohttp.ClientSession,
        *,
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._config = config
        self._proxy = config.proxy or _proxy_of(config.host)
        self._session = session
        self._sleep = sleep
        self._random = random
        self._closed = False

    async def close(self) -> None:
        """Close the session; requests in flight fail with `errors.KubernetesError`."""
        self._closed = True
        await self._session.close()

    @contextlib.asynccontextmanager
    async def send(self, request: KubernetesRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send, with retries, and yield the response with its body unread; the response is closed on exit."""
        attempt = 1
        while isinstance(answer := await self._attempt(request), _FailedAttempt):
            attempt += 1
            wait = self._wait_before(attempt, answer, request)
            if wait is None:
                raise answer.error
            await self._sleep(wait)
        try:
            yield answer
        finally:
            # if the body was read, the connection is back in the pool already; otherwise it cannot be reused
            answer.close()

    def _wait_before(self, attempt: int, refusal: _FailedAttempt, request: KubernetesRequest) -> float | None:
        """Return the pause before the attempt with that number in seconds, None to give up."""
        if request.document is not None:
            return self._wait_before_review(attempt, refusal)
        if attempt > ATTEMPTS or request.body is not None:
            return None
        if refusal.retry_after is not None:
            return refusal.retry_after if refusal.retry_after <= RETRY_AFTER_LIMIT else None
        if not request.patient or self._closed or refusal.error.status not in {0, 500, 502, 503, 504}:
            return None
        return RETRY_SECONDS * (attempt - 1) * (1 + self._random())

    def _wait_before_review(self, attempt: int, refusal: _FailedAttempt) -> float | None:
        """Do as `_wait_before`, for a review."""
        if attempt > len(REVIEW_PAUSES) + 1 or self._closed:
            return None
        if refusal.retry_after is not None:
            return refusal.retry_after if refusal.retry_after <= RETRY_AFTER_LIMIT else None
        if refusal.error.reason == RESET:
            if attempt == 2:
                return 0.0
        elif refusal.error.status not in _REVIEW_RETRIED:
            return None
        return REVIEW_PAUSES[attempt - 2] * (1 + _SPREAD * self._random())

    async def _attempt(self, request: KubernetesRequest) -> aiohttp.ClientResponse | _FailedAttempt:
        try:
            with translated(request.what):
                response = await self._request(request)
            if response.status < 300:
                return response
            try:
                with translated(request.what):
                    text = await _read_at_most(response, _STATUS_BYTES)
            finally:
                response.close()
        except errors.KubernetesError as error:
            return _FailedAttempt(error, None)
        refused = refusal_of(request.what, response, text)
        refused.retry_after = _parse_retry_after(response)
        return _FailedAttempt(refused, refused.retry_after)

    async def _request(self, request: KubernetesRequest) -> aiohttp.ClientResponse:
        # identity: inside a cluster, bandwidth is cheaper than decompression in the event loop
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "User-Agent": "fastpath-adapter"}
        if authorization := await self._config.authorization():
            headers["Authorization"] = authorization
        if self._closed:
            raise self._closed_error(request)
        data: GuardedBody | bytes | None = None
        method = "GET"
        if request.body is not None:
            data, method = request.body, request.method
            headers["Content-Type"] = request.body.content_type
        elif request.document is not None:
            data, method = json.dumps(request.document).encode(), "POST"
            headers["Content-Type"] = "application/json"
        try:
            response = await self._session.request(
                method,
                f"{self._config.host}{request.path}",
                params=request.parameters,
                headers=headers,
                data=data,
                timeout=request.timeout,
                # some redirects resend the body, which may be a review with a user's token
                allow_redirects=False,
                proxy=self._proxy or None,
                server_hostname=self._config.tls_server_name or None,
            )
        except (
            AssertionError,
            RuntimeError,
        ) as error:  # aiohttp's, if the session is closed during a request
            if not self._closed:
                raise
            raise self._closed_error(request) from error
        if request.body is not None:
            request.body.answered()
        return response

    @staticmethod
    def _closed_error(request: KubernetesRequest) -> errors.KubernetesError:
        return errors.KubernetesError(0, "Closed", f"cannot {request.what}: the client is closed")


def open_sender(
    config: ClientConfiguration,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
    flag: str,
    impersonate: str = "",
) -> Sender:
    """Open a session with the server that `credentials` loaded, within an event loop.

    Raises `errors.InputError` for unusable certificates.
    """
    try:
        context = _build_tls_context(config)
    except (OSError, ValueError) as error:
        reason = net.describe_file_error(error)
        files = [each for each in (config.ca_file, config.cert_file, config.key_file) if each]
        fault = errors.Fault(flag, ", ".join(files), f"expected usable certificates ({reason})")
        raise errors.InputError([fault]) from error
    session = aiohttp.ClientSession(
        # no connection limit: concurrency is bounded where requests start, and many open requests (watches,
        # calls to a hanging metrics API) must not delay a Lease renewal or a Scale write
        connector=aiohttp.TCPConnector(limit=0, ssl=context),
        read_bufsize=_READ_BYTES,
        headers={"Impersonate-User": impersonate} if impersonate else None,
    )
    return Sender(config, session, sleep=sleep, random=random)


def _build_tls_context(config: ClientConfiguration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ca_file or None)
    if config.cert_file:
        context.load_cert_chain(config.cert_file, config.key_file or None)
    # Python 3.13 by default refuses certificate authorities without certain extensions. Go accepts them, and
    # clusters use them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy_of(base: str) -> str:
    """Return the proxy that the environment names for the API server."""
    try:
        host = URL(base).host
    except ValueError:  # each request reports it
        return ""
    return net.proxy_of(base, host or "")


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    text = b""
    while len(text) < limit and (piece := await response.content.read(limit - len(text))):
        text += piece
    return text


def _parse_retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return Retry-After in seconds; a date is ignored, as in client-go."""
    if response.status != 429 and response.status < 500:
        return None
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
