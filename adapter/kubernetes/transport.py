"""One request to the API server: session, credentials, attempts, and the errors that they end with.

Retries happen here and nowhere else. Every failure becomes an `errors.KubernetesError` with a
status (0 without a response), a reason and a sentence that says what could not be done; no exception of a
library gets past here.

A write of an owner must not reach the API server after the lease may have been lost. Opening a connection can
take seconds, and the process may be suspended at any point, so a check before the request is not enough.
`GuardedBody` is called by aiohttp when the connection is open and nothing of the request has been sent: it
checks there. A write that is given up after that may still lie in the socket's send buffer, and the kernel
would deliver it later. Such a connection is reset (SO_LINGER 0), which discards the buffer.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp import http_exceptions
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter
from yarl import URL

from adapter import errors, net
from adapter.kubernetes import codec
from adapter.kubernetes.credentials import ClientConfiguration

_READ_BYTES = 2 * 1024 * 1024
"""Read-ahead of a response body: an object may be as large as etcd accepts."""

ATTEMPTS = 3
RETRY_SECONDS = 0.2
RETRY_AFTER_LIMIT = 10.0
"""A request with a longer Retry-After fails at once."""

_TRANSIENT = frozenset({0, 500, 502, 503, 504})

REVIEW_SECONDS = 10.0
"""Timeout of one attempt of a review, in seconds. A client waits for the result of each review."""

REVIEW_PAUSES = (0.5, 0.75, 1.125, 1.6875)
"""Pauses before further attempts of a review, in seconds, as in upstream's webhook clients; only after
transient failures.
"""

_REVIEW_RETRIED = frozenset({429, 500, 504})
_SPREAD = 0.2

STATUS_BYTES = 64 * 1024
_MESSAGE_LENGTH = 500
_LINGER_NONE = struct.pack("ii", 1, 0)
"""With this the kernel discards the send buffer when the connection is closed."""

JSON = "application/json"

Parameters = Mapping[str, str]
NOTHING: Parameters = {}


# -- errors --------------------------------------------------------------------------------------------------

FOREIGN = (
    *codec.UNREADABLE,
    aiohttp.ClientError,
    http_exceptions.HttpProcessingError,
    TimeoutError,
    OSError,
    ValueError,
)
"""Exceptions of sending, reading and decoding. ValueError: an invalid header value or host name."""

RESET = "Reset"
"""Reason of an error: the server had closed the connection."""

TOO_DEEP = "TooDeep"
"""Reason of an error: the response contains an object that is nested too deep."""


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise `errors.KubernetesError` with status 0 in place of the exceptions of libraries."""
    try:
        yield
    except FOREIGN as error:
        reason = _classify(error)
        text = net.describe_error(error)
        raise errors.KubernetesError(
            0, reason, f"cannot {what}: {reason}: {text[:_MESSAGE_LENGTH]}"
        ) from error


def _classify(error: BaseException) -> str:
    """Return the reason of a foreign exception. The order matters: some belong to several classes."""
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError):
        return RESET
    if isinstance(error, OSError) and error.errno in {errno.ECONNRESET, errno.EPIPE}:
        return RESET
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError):
        return "Decode"
    if isinstance(error, TimeoutError):
        return "Timeout"
    if isinstance(
        error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError | http_exceptions.HttpProcessingError
    ):
        return "Broken"
    return "Unreachable"


def _build_refusal(what: str, response: aiohttp.ClientResponse, text: bytes) -> errors.KubernetesError:
    """Build the error of a refused request, whose body is a Status or any text."""
    try:
        status = codec.STATUS.decode(text)
    except codec.UNREADABLE:
        status = codec.Status()
    message = status.message or text.decode(errors="replace").strip()
    reason = status.reason or response.reason or "Unknown"
    error = build_error(what, codec.Status(response.status, reason, message))
    error.plain = not status.message
    retry_after = response.headers.get("Retry-After", "")
    # a date is ignored, as in client-go
    if (response.status == 429 or response.status >= 500) and retry_after.isascii() and retry_after.isdigit():
        error.retry_after = float(retry_after)
    return error


def build_error(what: str, status: codec.Status) -> errors.KubernetesError:
    message = status.message[:_MESSAGE_LENGTH]
    text = f"cannot {what}: {status.code} {status.reason}" + (f": {message}" if message else "")
    error = errors.KubernetesError(status.code, status.reason, text)
    error.said = message
    return error


# -- requests ------------------------------------------------------------------------------------------------


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
            connection = writer.transport.get_extra_info("socket")
            if connection is not None:
                with contextlib.suppress(OSError):  # already closed by the server
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
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


class KubernetesRequest(NamedTuple):
    """A request. `what` names verb and resource in errors.

    Without a body it is a GET; if it is `patient`, transient failures are retried. A `review` is retried as
    upstream's webhook clients do. A write has a `GuardedBody` and is sent once.
    """

    what: str
    path: str
    timeout: aiohttp.ClientTimeout
    parameters: Parameters = NOTHING
    accept: str = JSON
    patient: bool = False
    method: str = "GET"
    review: bytes | None = None
    write: GuardedBody | None = None


class Sender:
    """One API server, one session, opened within an event loop.

    Raises `errors.InputError`, which names `flag`, for unusable certificates.
    """

    def __init__(
        self,
        configuration: ClientConfiguration,
        *,
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        flag: str,
        impersonate: str,
    ) -> None:
        self._configuration = configuration
        self._session = aiohttp.ClientSession(
            # no connection limit: concurrency is bounded where requests start, and many open requests
            # (watches, calls to a hanging metrics API) must not delay a Lease renewal or a Scale write
            connector=aiohttp.TCPConnector(limit=0, ssl=_build_context(configuration, flag)),
            read_bufsize=_READ_BYTES,
            headers={"Impersonate-User": impersonate} if impersonate else None,
        )
        self._proxy = configuration.proxy
        if not self._proxy:
            with contextlib.suppress(ValueError):  # each request reports it
                self._proxy = net.proxy_of(configuration.host, URL(configuration.host).host or "")
        self._sleep = sleep
        self._random = random
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self._session.close()

    @contextlib.asynccontextmanager
    async def send(self, request: KubernetesRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send, with retries, and yield the response with its body unread; the response is closed on exit."""
        attempt = 1
        while True:
            try:
                response = await self._attempt(request)
                break
            except errors.KubernetesError as error:
                attempt += 1
                wait = self._wait_before(attempt, error, request)
                if wait is None:
                    raise
            await self._sleep(wait)
        try:
            yield response
        finally:
            # if the body was read, the connection is back in the pool already; otherwise it cannot be reused
            response.close()

    def _wait_before(
        self, attempt: int, refusal: errors.KubernetesError, request: KubernetesRequest
    ) -> float | None:
        """Return the pause before the attempt with that number in seconds, None to give up."""
        is_review = request.review is not None
        most = len(REVIEW_PAUSES) + 1 if is_review else ATTEMPTS
        if attempt > most or request.write is not None or self._closed:
            return None
        if refusal.retry_after is not None and refusal.status != 504:  # after a 504 the wait is over
            return refusal.retry_after if refusal.retry_after <= RETRY_AFTER_LIMIT else None
        if not is_review:
            can_help = request.patient and refusal.status in _TRANSIENT
            return RETRY_SECONDS * (attempt - 1) * (1 + self._random()) if can_help else None
        if refusal.reason == RESET:
            if attempt == 2:
                return 0.0
        elif refusal.status not in _REVIEW_RETRIED:
            return None
        return REVIEW_PAUSES[attempt - 2] * (1 + _SPREAD * self._random())

    async def _attempt(self, request: KubernetesRequest) -> aiohttp.ClientResponse:
        """Send once. Raise `errors.KubernetesError` unless the server accepts the request."""
        with translated(request.what):
            response = await self._request(request)
            if response.status < 300:
                return response
            try:
                text = b""
                while len(text) < STATUS_BYTES and (
                    piece := await response.content.read(STATUS_BYTES - len(text))
                ):
                    text += piece
            finally:
                response.close()
        raise _build_refusal(request.what, response, text)

    async def _request(self, request: KubernetesRequest) -> aiohttp.ClientResponse:
        # identity: inside a cluster, bandwidth is cheaper than decompression in the event loop
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "User-Agent": "fastpath-adapter"}
        if authorization := await self._configuration.authorization():
            headers["Authorization"] = authorization
        if request.write is not None:
            headers["Content-Type"] = request.write.content_type
        elif request.review is not None:
            headers["Content-Type"] = JSON
        if self._closed:
            raise _closed_error(request)
        query = f"?{urlencode(request.parameters)}" if request.parameters else ""
        try:
            response = await self._session.request(
                request.method,
                f"{self._configuration.host}{request.path}{query}",
                headers=headers,
                data=request.review if request.write is None else request.write,
                timeout=request.timeout,
                # a redirect could resend the body, which may be a review with a user's token
                allow_redirects=False,
                proxy=self._proxy or None,
                server_hostname=self._configuration.tls_server_name or None,
            )
        except (AssertionError, RuntimeError) as error:  # from aiohttp, if the session is closed meanwhile
            if not self._closed:
                raise
            raise _closed_error(request) from error
        if request.write is not None:
            request.write.answered()
        return response


def _closed_error(request: KubernetesRequest) -> errors.KubernetesError:
    return errors.KubernetesError(0, "Closed", f"cannot {request.what}: the client is closed")


def _build_context(configuration: ClientConfiguration, flag: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ca_file or None)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    except (OSError, ValueError) as error:
        reason = net.describe_file_error(error)
        files = filter(None, (configuration.ca_file, configuration.cert_file, configuration.key_file))
        fault = errors.Fault(flag, ", ".join(files), f"expected usable certificates ({reason})")
        raise errors.InputError([fault]) from error
    # Python 3.13 by default refuses certificate authorities without certain extensions. Go accepts them, and
    # clusters use them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    configuration.contexts.append(context)
    return context
