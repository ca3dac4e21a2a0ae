"""The Kubernetes API server over HTTP: get, list, watch, create for reviews, and one write at a time.

What lives here: one function that sends, the verbs on top of it, retries, and the translation of everything that goes wrong
into `errors.KubernetesError`. Not here: where the server is (`credentials`), what its objects look like (`objectlist`),
when to list and when to watch (`informer`). The law: a retry happens here or nowhere, and no exception of a library leaves.

kubernetes-asyncio gives configuration, TLS, proxies and the session; its typed models and its watch are not used.
"""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import aiohttp
import msgspec
from aiohttp import http_exceptions
from kubernetes_asyncio.client import Configuration, exceptions, rest
from kubernetes_asyncio.config import ConfigException
from yarl import URL

from adapter import errors
from adapter.clients import apidiscovery, connection, credentials, objectlist, wirebody
from adapter.model.resources import APIResource, Catalogue
from adapter.model.selectors import EVERYTHING, LabelSelector

_READ_BYTES = 2 * 1024 * 1024
"""What is read ahead of a body: an object may be as large as etcd takes."""

FOREIGN = (
    *objectlist.UNREADABLE,
    aiohttp.ClientError,
    http_exceptions.HttpProcessingError,
    exceptions.OpenApiException,
    ConfigException,
    TimeoutError,
    OSError,
    ValueError,
)
"""What sending, reading and decoding may raise. ValueError: a header that cannot be sent, a host that is no name."""

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

RESET = "Reset"
"""The reason of an error whose request met a connection that the other side had closed."""

TOO_DEEP = "TooDeep"
"""The reason of an error whose answer has an object with more levels than can be followed."""

_MESSAGE_LENGTH = 500
_STATUS_BYTES = 64 * 1024
_PAGE = 500
_JSON = "application/json"

Parameters = Mapping[str, str]
NOTHING: Parameters = {}
_WORDS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_T = TypeVar("_T")
_E = TypeVar("_E")


class Body(NamedTuple):
    """An answer as it came; `content_type` in lower case with its parameters."""

    content_type: str
    content: bytes


class _Request(NamedTuple):
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
    body: wirebody.GuardedBody | None = None
    method: str = "PUT"


class _Refusal(NamedTuple):
    """A request that failed, and after how many seconds the server says to ask again (None: it does not say)."""

    error: errors.KubernetesError
    retry_after: float | None


class KubernetesClient:
    """One API server, one session. Made by `connect`; closed by `close` or as a context manager.

    `timeout` bounds a call in seconds: all of a get, each silence within a list or watch that has no limit of its own.
    """

    def __init__(
        self,
        configuration: Configuration,
        session: rest.RESTClientObject,
        *,
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        timeout: float,
    ) -> None:
        self._configuration = configuration
        self._session = session
        self._sleep = sleep
        self._random = random
        self._timeout = timeout
        self._closed = False

    async def close(self) -> None:
        """Close the session; calls in flight fail with `errors.KubernetesError`."""
        self._closed = True
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- verbs ---------------------------------------------------------------------------------------------------------

    async def get(self, path: str, *, accept: str = _JSON) -> Body:
        """Return what the server has at `path`. Faults that may pass are tried again, up to three attempts."""
        request = _Request(f"get {path}", path, {}, accept, aiohttp.ClientTimeout(total=self._timeout), patient=True)
        async with self._send(request) as response:
            with _translated(request.what):
                content = await response.read()
            return Body(response.headers.get("Content-Type", "").lower(), content)

    async def create(self, path: str, document: Mapping[str, object]) -> Body:
        """Post a review to `path` and return it with its answer.

        A review changes nothing, so one whose connection was reset is sent again: at once if it is the first time, for an
        idle connection may be closed by the other side at any moment.
        """
        timeout = aiohttp.ClientTimeout(total=REVIEW_SECONDS)
        request = _Request(f"create {path.rpartition('/')[2]}", path, {}, _JSON, timeout, False, document)
        async with self._send(request) as response:
            with _translated(request.what):
                content = await response.read()
            return Body(response.headers.get("Content-Type", "").lower(), content)

    async def write(
        self,
        method: Literal["POST", "PUT", "PATCH"],
        path: str,
        content: bytes,
        *,
        content_type: str = _JSON,
        parameters: Parameters = NOTHING,
        seconds: float,
        check: Callable[[], object],
    ) -> Body:
        """Write `content` to `path`, once: who writes has to look again before a second attempt.

        All of it, credentials and a connection included, takes at most `seconds`; the server is told to give up as well.
        `check` is called at the last moment, when a connection is there and nothing of the request has left, and stops the
        write by raising. A write that is given up is torn out of the system's buffers too (see `wirebody`). A PUT over a kept
        connection that breaks is sent once more over another, by aiohttp; an error says so (`sent_twice`).
        """
        body = wirebody.GuardedBody(content, content_type, check)
        unlimited = aiohttp.ClientTimeout(total=None)
        asked = {**parameters, "timeout": f"{max(1, int(seconds * 1000))}ms"}
        request = _Request(f"{_WORDS[method]} {path}", path, asked, _JSON, unlimited, False, None, body, method)
        try:
            with _translated(request.what):
                async with asyncio.timeout(seconds), self._send(request) as response:
                    return Body(response.headers.get("Content-Type", "").lower(), await response.read())
        except errors.KubernetesError as error:
            if body.refusal is not None:
                raise body.refusal from None
            error.sent_twice = body.times > 1
            raise
        finally:
            body.abandon()

    async def fetch_catalogue(self, known: Catalogue | None = None) -> Catalogue:
        """Return the resources of the cluster; `known` stands in for groups that cannot be read now."""
        return (await apidiscovery.fetch_discovery(self.get, known)).catalogue

    async def list_objects(
        self,
        resource: APIResource,
        deliver: Callable[[list[objectlist.ObjectMeta]], None],
        *,
        namespace: str = "",
        selector: LabelSelector = EVERYTHING,
        fields: str = "",
        resource_version: str = "0",
    ) -> str:
        """Hand the metadata of every object to `deliver`; otherwise as `list_whole`."""
        return await self.list_whole(
            objectlist.PARTIAL,
            resource,
            deliver,
            namespace=namespace,
            selector=selector,
            fields=fields,
            resource_version=resource_version,
        )

    async def list_whole(
        self,
        form: objectlist.Form[_T],
        resource: APIResource,
        deliver: Callable[[list[_T]], None],
        *,
        namespace: str = "",
        selector: LabelSelector = EVERYTHING,
        fields: str = "",
        resource_version: str = "0",
    ) -> str:
        """Hand what `form` keeps of every object to `deliver`, a bounded number at a time; return the version of the list.

        `selector` and `fields`, a field selector as text, say which objects; all of them by default.
        `resource_version` "0" takes what the server's cache has, "" what is stored now, another what is not older. When
        the server loses its place between two pages all objects are handed over once more, in one page.
        """
        what = f"list {resource.group_resource}"
        chosen = _chosen(selector, fields)
        page: Parameters = chosen | _version_parameters(resource_version)
        listed = ""
        while True:
            try:
                found = await self._list_page(form, what, _path_of(resource, namespace), page, deliver)
            except errors.KubernetesError as error:
                if error.status != 410 or not listed:
                    raise
                listed, page = "", chosen
                continue
            listed = listed or found.resource_version
            if not found.continue_:
                return listed
            page = chosen | {"limit": str(_PAGE), "continue": found.continue_}

    async def _list_page(
        self,
        form: objectlist.Form[_T],
        what: str,
        path: str,
        parameters: Parameters,
        deliver: Callable[[list[_T]], None],
    ) -> objectlist.ListMeta:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=self._timeout)
        request = _Request(what, path, parameters, form.list_accept, timeout, patient=False)
        decoder = objectlist.ListDecoder(form)
        async with self._send(request) as response:
            while piece := await _read_piece(response, what):
                for objects in _decoding(what, decoder.feed(piece)):
                    deliver(objects)
                    await asyncio.sleep(0)
        with _translated(what):
            objects, meta = decoder.finish()
        deliver(objects)
        return meta

    @contextlib.asynccontextmanager
    async def watch_objects(
        self,
        resource: APIResource,
        *,
        namespace: str = "",
        fields: str = "",
        resource_version: str,
        duration: float,
        silence: float,
    ) -> AsyncIterator["Watch[objectlist.WatchEvent]"]:
        """Open a watch of metadata; otherwise as `watch_whole`."""
        form, decoder = objectlist.PARTIAL, objectlist.WatchDecoder()
        chosen = _chosen(EVERYTHING, fields)
        watching = self._watch(form, decoder, resource, namespace, chosen, resource_version, duration, silence)
        async with watching as watch:
            yield watch

    @contextlib.asynccontextmanager
    async def watch_whole(
        self,
        form: objectlist.Form[_T],
        resource: APIResource,
        *,
        namespace: str = "",
        selector: LabelSelector = EVERYTHING,
        fields: str = "",
        resource_version: str,
        duration: float,
        silence: float,
    ) -> AsyncIterator["Watch[objectlist.ObjectEvent[_T]]"]:
        """Open a watch of what happens after `resource_version`, each object as `form` keeps it.

        The server ends it after `duration` seconds; `silence` is how many seconds without a word mean that it is lost. With
        `selector` or `fields` an object that ceases to match is told of as deleted.
        Entering raises what the server refuses, 410 (Expired) among it.
        """
        decoder = objectlist.WatchDecoder(lambda line: objectlist.decode_event(form, line))
        chosen = _chosen(selector, fields)
        watching = self._watch(form, decoder, resource, namespace, chosen, resource_version, duration, silence)
        async with watching as watch:
            yield watch

    @contextlib.asynccontextmanager
    async def _watch(
        self,
        form: objectlist.Form[Any],
        decoder: objectlist.WatchDecoder[_E],
        resource: APIResource,
        namespace: str,
        chosen: Parameters,
        resource_version: str,
        duration: float,
        silence: float,
    ) -> AsyncIterator["Watch[_E]"]:
        what = f"watch {resource.group_resource}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=silence)
        parameters = {
            **chosen,
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(duration)),
        }
        path = _path_of(resource, namespace)
        async with self._send(_Request(what, path, parameters, form.watch_accept, timeout, patient=False)) as response:
            yield Watch(response, what, decoder)

    # -- sending -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _send(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
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

    def _wait_before(self, attempt: int, refusal: _Refusal, request: _Request) -> float | None:
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

    async def _attempt(self, request: _Request) -> aiohttp.ClientResponse | _Refusal:
        try:
            with _translated(request.what):
                response = await self._request(request)
            if response.status < 300:
                return response
            try:
                with _translated(request.what):
                    text = await _read_at_most(response, _STATUS_BYTES)
            finally:
                response.close()
        except errors.KubernetesError as error:
            return _Refusal(error, None)
        refused = _build_error(request.what, response, text)
        refused.retry_after = _parse_retry_after(response)
        return _Refusal(refused, refused.retry_after)

    async def _request(self, request: _Request) -> aiohttp.ClientResponse:
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
        self, request: _Request, body: wirebody.GuardedBody, headers: dict[str, str]
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
    def _closed_error(request: _Request) -> errors.KubernetesError:
        return errors.KubernetesError(0, "Closed", f"cannot {request.what}: the client is closed")


class Watch(Generic[_E]):
    """An open watch: iterate to get events, a bounded number at a time. Ends when the server ends it.

    `errors.KubernetesError` when it breaks: what an ERROR line says (status 410: list again), reason ``Timeout`` for silence.
    """

    def __init__(self, response: aiohttp.ClientResponse, what: str, decoder: objectlist.WatchDecoder[_E]) -> None:
        self._response = response
        self._what = what
        self._decoder = decoder
        self._decoded: Iterator[list[_E] | objectlist.Status] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[_E]:
        while True:
            for events in _decoding(self._what, self._decoded):
                if isinstance(events, objectlist.Status):
                    raise _build_status_error(self._what, events)
                await asyncio.sleep(0)
                return events
            piece = await _read_piece(self._response, self._what)
            if not piece:
                with _translated(self._what):
                    self._decoder.finish()
                raise StopAsyncIteration
            self._decoded = self._decoder.feed(piece)


async def connect(
    configuration: Configuration,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float],
    timeout: float = 30.0,  # noqa: ASYNC109 - bounds each later call, not this one
) -> KubernetesClient:
    """Return a client for what `credentials` loaded; no request is sent yet.

    `random` gives numbers in [0, 1) that spread retries. `errors.InputError` if certificates cannot be used.
    """
    try:
        # no limit of connections: what is under way is bounded where it begins, and what is many there (watches, questions to a
        # metrics API that hangs) must never keep a renewal of the Lease or a Scale from being sent
        session = rest.RESTClientObject(configuration, maxsize=0)
    except (OSError, ValueError) as error:
        fault = errors.Fault(credentials.FLAG, "", f"certificates that can be used ({error})")
        raise errors.InputError([fault]) from error
    library = session.pool_manager
    # the library's own session looks for a .netrc in a thread before each request, which takes longer than the request
    own = aiohttp.ClientSession(connector=library.connector, read_bufsize=_READ_BYTES)
    library.detach()
    session.proxy = session.proxy or _proxy_of(configuration.host or "")
    session.pool_manager = _Straight(own)  # type: ignore[assignment]  # all that the library calls
    return KubernetesClient(configuration, session, sleep=sleep, random=random, timeout=timeout)


def _proxy_of(base: str) -> str:
    """Return the environment's proxy for the API server."""
    try:
        host = URL(base).host
    except ValueError:  # each request will say so
        return ""
    return connection.proxy_of(base, host or "")


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


def _chosen(selector: LabelSelector, fields: str) -> dict[str, str]:
    """Return the parameters that say which objects."""
    chosen = {"labelSelector": str(selector)} if selector.requirements else {}
    return chosen | {"fieldSelector": fields} if fields else chosen


def _version_parameters(resource_version: str) -> dict[str, str]:
    """Return the first page's parameters. A limit would turn "not older than" into "exactly", as in client-go's reflector."""
    if resource_version in {"", "0"}:
        limit = {"limit": str(_PAGE)}
        return limit | {"resourceVersion": resource_version} if resource_version else limit
    return {"resourceVersion": resource_version}


def _path_of(resource: APIResource, namespace: str) -> str:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{resource.version}{within}/{resource.plural}"


async def _read_piece(response: aiohttp.ClientResponse, what: str) -> bytes:
    """Return what has arrived, b"" at the end."""
    with _translated(what):
        return await response.content.readany()


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    text = b""
    while len(text) < limit and (piece := await response.content.read(limit - len(text))):
        text += piece
    return text


def _decoding(what: str, decoded: Iterator[_T]) -> Iterator[_T]:
    while True:
        with _translated(what):
            batch = next(decoded, None)
        if batch is None:
            return
        yield batch


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn what libraries raise into `errors.KubernetesError` with status 0."""
    try:
        yield
    except FOREIGN as error:
        reason = _reason_of(error)
        text = str(error) or type(error).__name__
        raise errors.KubernetesError(0, reason, f"cannot {what}: {reason}: {text[:_MESSAGE_LENGTH]}") from error


def _reason_of(error: BaseException) -> str:
    """Return one word for a foreign exception; the order matters, for some are of several kinds."""
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError):
        return RESET
    if isinstance(error, OSError) and error.errno in {errno.ECONNRESET, errno.EPIPE}:
        return RESET
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if isinstance(error, msgspec.MsgspecError):
        return "Decode"
    if isinstance(error, TimeoutError):
        return "Timeout"
    if isinstance(
        error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError | http_exceptions.HttpProcessingError
    ):
        return "Broken"
    return "Unreachable"


def _build_error(what: str, response: aiohttp.ClientResponse, text: bytes) -> errors.KubernetesError:
    try:
        status = objectlist.STATUS.decode(text)
    except objectlist.UNREADABLE:
        status = objectlist.Status()
    message = status.message or text.decode(errors="replace").strip()
    error = _build_status_error(
        what, objectlist.Status(response.status, status.reason or response.reason or "Unknown", message)
    )
    error.plain = not status.message
    return error


def _build_status_error(what: str, status: objectlist.Status) -> errors.KubernetesError:
    message = status.message[:_MESSAGE_LENGTH]
    text = f"cannot {what}: {status.code} {status.reason}" + (f": {message}" if message else "")
    error = errors.KubernetesError(status.code, status.reason, text)
    error.said = message
    return error


def _parse_retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds that an overloaded server asks for; a date is not understood, as in client-go."""
    if response.status != 429 and response.status < 500:
        return None
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
