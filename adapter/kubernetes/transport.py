"""One request to the API server at a time: session, credentials, attempts.

What lives here: what a request is, how it is sent, and when it is sent again. Not here: what is asked for (`kubernetes`), what went
wrong (`apifaults`). The law: a retry happens here or nowhere.

kubernetes-asyncio gives configuration, TLS, proxies and the session; its typed models and its watch are not used.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import aiohttp
from kubernetes_asyncio.client import Configuration, rest
from yarl import URL

from adapter import errors
from adapter.kubernetes import credentials, fenced_request
from adapter.kubernetes.api_errors import RESET, refusal_of, translated
from adapter.net import connect_errors, proxies

_READ_BYTES = 2 * 1024 * 1024
"""What is read ahead of a body: an object may be as large as etcd takes."""

ATTEMPTS = 3
RETRY_SECONDS = 0.2
RETRY_AFTER_LIMIT = 10.0
"""A longer Retry-After is an answer, not something to wait for."""

REVIEW_SECONDS = 10.0
"""How long one attempt of a create may take: nothing but reviews is created, and somebody waits for each."""

REVIEW_PAUSES = (0.5, 0.75, 1.125, 1.6875)
"""Seconds before further attempts of a create, as upstream's webhook clients; only after what surely passes."""

_REVIEW_RETRIED = frozenset({429, 500, 504})
_SPREAD = 0.2

_STATUS_BYTES = 64 * 1024

Parameters = Mapping[str, str]


class Request(NamedTuple):
    """What is sent. `what` names verb and resource in errors; `patient` asks again after faults that may pass.

    With a `document` it is a POST of that, asked again as reviews are; with a `body` a write, which is sent once.
    """

    what: str
    path: str
    parameters: Parameters
    accept: str
    timeout: aiohttp.ClientTimeout
    patient: bool
    document: Mapping[str, object] | None = None
    body: fenced_request.GuardedBody | None = None
    method: str = "PUT"


class _Refusal(NamedTuple):
    """A request that failed, and after how many seconds the server says to ask again (None: it does not say)."""

    error: errors.KubernetesError
    retry_after: float | None


class Sender:
    """One API server, one session. Made by `open_sender`."""

    def __init__(
        self,
        configuration: Configuration,
        session: rest.RESTClientObject,
        *,
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._configuration = configuration
        self._session = session
        self._sleep = sleep
        self._random = random
        self._closed = False

    async def close(self) -> None:
        """Close the session; requests in flight fail with `errors.KubernetesError`."""
        self._closed = True
        await self._session.close()

    @contextlib.asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send, again if that may help, and give the answer with its body unread; closed on leaving."""
        attempt = 1
        while isinstance(answer := await self._attempt(request), _Refusal):
            attempt += 1
            wait = self._wait_before(attempt, answer, request)
            if wait is None:
                raise answer.error
            await self._sleep(wait)
        try:
            yield answer
        finally:
            # a connection whose body was read has gone back to the pool already; any other is of no more use
            answer.close()

    def _wait_before(self, attempt: int, refusal: _Refusal, request: Request) -> float | None:
        """Return how many seconds to wait before the attempt of that number, None to give up."""
        if request.document is not None:
            return self._wait_before_review(attempt, refusal)
        if attempt > ATTEMPTS or request.body is not None:
            return None
        if refusal.retry_after is not None:
            return refusal.retry_after if refusal.retry_after <= RETRY_AFTER_LIMIT else None
        if not request.patient or self._closed or refusal.error.status not in {0, 500, 502, 503, 504}:
            return None
        return RETRY_SECONDS * (attempt - 1) * (1 + self._random())

    def _wait_before_review(self, attempt: int, refusal: _Refusal) -> float | None:
        """Return as `_wait_before` for a review."""
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

    async def _attempt(self, request: Request) -> aiohttp.ClientResponse | _Refusal:
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
            return _Refusal(error, None)
        refused = refusal_of(request.what, response, text)
        refused.retry_after = _parse_retry_after(response)
        return _Refusal(refused, refused.retry_after)

    async def _request(self, request: Request) -> aiohttp.ClientResponse:
        # identity: inside a cluster the network is cheaper than packing on their side and unpacking in our event loop
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "User-Agent": "fastpath-adapter"}
        if authorization := await credentials.fetch_authorization(self._configuration):
            headers["Authorization"] = authorization
        if self._closed:
            raise self._closed_error(request)
        if request.body is not None:
            return await self._request_write(request, request.body, headers)
        try:
            response: aiohttp.ClientResponse = await self._session.request(
                "GET" if request.document is None else "POST",
                f"{self._configuration.host}{request.path}",
                query_params=dict(request.parameters),
                headers=headers,
                body=request.document,
                _preload_content=False,
                _request_timeout=request.timeout,
            )
        except (AssertionError, RuntimeError) as error:  # aiohttp's, of a session closed under a request
            if not self._closed:
                raise
            raise self._closed_error(request) from error
        return response

    async def _request_write(
        self, request: Request, body: fenced_request.GuardedBody, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        """Send a write past kubernetes-asyncio, which would make the body itself, with all that it knows of the way."""
        session = self._session
        try:
            response: aiohttp.ClientResponse = await session.pool_manager.request(
                method=request.method,
                url=f"{self._configuration.host}{request.path}",
                params=dict(request.parameters),
                headers=headers | {"Content-Type": body.content_type},
                data=body,
                timeout=request.timeout,
                proxy=session.proxy or None,
                proxy_headers=session.proxy_headers or None,
                server_hostname=session.server_hostname or None,
            )
        except (AssertionError, RuntimeError) as error:  # as above
            if not self._closed:
                raise
            raise self._closed_error(request) from error
        body.answered()
        return response

    @staticmethod
    def _closed_error(request: Request) -> errors.KubernetesError:
        return errors.KubernetesError(0, "Closed", f"cannot {request.what}: the client is closed")


def open_sender(
    configuration: Configuration,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
    flag: str,
    impersonate: str = "",
) -> Sender:
    """Return what sends to the server that `credentials` loaded; within an event loop. `errors.InputError` if certificates cannot be used."""
    try:
        # no limit of connections: what is under way is bounded where it begins, and what is many there (watches, questions to a
        # metrics API that hangs) must never keep a renewal of the Lease or a Scale from being sent
        session = rest.RESTClientObject(configuration, maxsize=0)
    except (OSError, ValueError) as error:
        reason = connect_errors.describe_file(error)
        files = [
            each
            for each in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
            if each
        ]
        fault = errors.Fault(flag, ", ".join(files), f"expected certificates that can be used ({reason})")
        raise errors.InputError([fault]) from error
    library = session.pool_manager
    # the library's own session looks for a .netrc in a thread before each request, which takes longer than the request
    headers = {"Impersonate-User": impersonate} if impersonate else None
    own = aiohttp.ClientSession(connector=library.connector, read_bufsize=_READ_BYTES, headers=headers)
    library.detach()
    session.proxy = session.proxy or _proxy_of(configuration.host or "")
    session.pool_manager = _Straight(own)  # type: ignore[assignment]  # all that the library calls
    return Sender(configuration, session, sleep=sleep, random=random)


def _proxy_of(base: str) -> str:
    """Return the environment's proxy for the API server."""
    try:
        host = URL(base).host
    except ValueError:  # each request will say so
        return ""
    return proxies.proxy_of(base, host or "")


class _Straight:
    """A session that goes where it was sent and nowhere else.

    The library follows redirects, and with some of them would carry the body along, be it a review with somebody's token.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, **arguments: Any) -> aiohttp.ClientResponse:
        """Send a request; a redirect is its answer."""
        return await self._session.request(**arguments, allow_redirects=False)

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    text = b""
    while len(text) < limit and (piece := await response.content.read(limit - len(text))):
        text += piece
    return text


def _parse_retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds that an overloaded server asks for; a date is not understood, as in client-go."""
    if response.status != 429 and response.status < 500:
        return None
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
