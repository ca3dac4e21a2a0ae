"""The verbs of the Kubernetes API: get, list, watch, create for reviews, and writes.

Every failure is an `errors.KubernetesError`. `transport` translates the exceptions of libraries and decides
on retries, `cache.reflector` when to list and when to watch.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, Self, TypeVar

import aiohttp
import msgspec

from adapter import errors
from adapter.kubernetes import credentials
from adapter.kubernetes.codec import (
    ListDecoder,
    ListMeta,
    ObjectCodec,
    Status,
    Unreadable,
    WatchDecoder,
    WatchEvent,
)
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.kubernetes.server_clock import ServerClock
from adapter.kubernetes.transport import (
    JSON,
    NOTHING,
    REVIEW_SECONDS,
    GuardedBody,
    KubernetesRequest,
    Parameters,
    Sender,
    build_error,
    translated,
)
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector
from adapter.model.objects.resources import APIResource

_PAGE = 500
LONGEST = 32 * 1024 * 1024  # the metrics of 30,000 pods; lists and watches are not read in one piece
_WORDS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_T = TypeVar("_T")


class ResponseBody(NamedTuple):
    """The body of a response, undecoded. `content_type` is in lower case, with its parameters."""

    content_type: str
    content: bytes

    def decode(self, form: type[_T], what: str) -> _T:
        """Decode JSON. `what` names verb and resource in the error of a body that is not of this form."""
        with translated(what):
            return msgspec.json.decode(self.content, type=form)


@dataclass(frozen=True, slots=True)
class ListWatch(Generic[_T]):
    """What to list and watch: a kind in one namespace or ("") all, as `codec` keeps its objects.

    `selector`, `fields` (a field selector as text) and `shard_selector` restrict the objects; servers without
    sharded lists and watches ignore the third. An `optional` kind need not exist: to a reflector one that the
    API server does not serve has no objects.
    """

    codec: ObjectCodec[_T]
    resource: APIResource
    namespace: str = ""
    selector: LabelSelector = EVERYTHING
    fields: str = ""
    optional: bool = False
    shard_selector: str = ""

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace)

    @property
    def parameters(self) -> dict[str, str]:
        chosen = {"labelSelector": str(self.selector)} if self.selector.requirements else {}
        if self.fields:
            chosen["fieldSelector"] = self.fields
        return chosen | {"shardSelector": self.shard_selector} if self.shard_selector else chosen


class KubernetesClient:
    """A session with one API server, opened by `connect`; closed by `close` or as a context manager.

    `timeout` in seconds bounds a whole get, and the silence within a list.
    """

    def __init__(self, sender: Sender, *, timeout: float) -> None:
        self._sender = sender
        self._timeout = timeout
        self.server_clock: ServerClock | None = None
        """What compares the times of responses."""

    async def close(self) -> None:
        """Close the session; calls in flight fail with `errors.KubernetesError`."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, path: str, *, accept: str = JSON) -> ResponseBody:
        """Return the body at `path`. Transient failures are retried, up to three attempts."""
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        return await self._fetch(KubernetesRequest(f"get {path}", path, timeout, accept=accept, patient=True))

    async def get_start(self, path: str, most: int) -> bytes:
        """Return the first `most` bytes of the text at `path`. Only a Retry-After is heeded."""
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        request = KubernetesRequest(f"get {path}", path, timeout, accept="text/plain")
        return (await self._fetch_start(request, most)).content

    async def create(self, path: str, document: Mapping[str, object]) -> ResponseBody:
        """Post a review to `path`; return the completed review.

        A review changes nothing, so it is retried after a connection reset. The first retry is immediate: the
        server may close an idle connection at any moment.
        """
        timeout = aiohttp.ClientTimeout(total=REVIEW_SECONDS)
        what = f"create {path.rpartition('/')[2]}"
        review = json.dumps(document).encode()  # escapes lone surrogates, which msgspec refuses
        return await self._fetch(KubernetesRequest(what, path, timeout, method="POST", review=review))

    async def _fetch(self, request: KubernetesRequest) -> ResponseBody:
        body = await self._fetch_start(request, LONGEST + 1)
        if len(body.content) > LONGEST:
            what = f"cannot {request.what}: TooLarge: the answer has more than {LONGEST:,} bytes"
            raise errors.KubernetesError(0, "TooLarge", what)
        return body

    async def _fetch_start(self, request: KubernetesRequest, most: int) -> ResponseBody:
        content = bytearray()
        async with self._send(request) as response:
            with translated(request.what):
                while len(content) < most and (piece := await response.content.read(most - len(content))):
                    content += piece
            return ResponseBody(response.headers.get("Content-Type", "").lower(), bytes(content))

    @contextlib.asynccontextmanager
    async def _send(self, request: KubernetesRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        clock = self.server_clock if _is_of_api_server(request.path) else None
        sent = 0.0 if clock is None else clock.monotonic()
        async with self._sender.send(request) as response:
            if clock is not None:
                clock.note(sent, response.headers.get("Date", ""))
            yield response

    async def write(
        self,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
        path: str,
        content: bytes,
        *,
        content_type: str = JSON,
        parameters: Parameters = NOTHING,
        seconds: float,
        check: Callable[[], object],
    ) -> ResponseBody:
        """Write `content` to `path`, once. Callers must read the object again before a second attempt.

        The write takes at most `seconds`, including credentials and connection; the server gets the same
        timeout. `check` is called when the connection is open and nothing has been sent, and stops the write
        by raising; see `transport` on abandoned writes. aiohttp repeats a PUT once if a pooled connection
        breaks; an error then has `sent_twice` set.
        """
        body = GuardedBody(content, content_type, check)
        unlimited = aiohttp.ClientTimeout(total=None)
        query = {**parameters, "timeout": f"{max(1, int(seconds * 1000))}ms"}
        what = f"{_WORDS[method]} {path}"
        request = KubernetesRequest(what, path, unlimited, query, method=method, write=body)
        try:
            with translated(what):
                async with asyncio.timeout(seconds):
                    return await self._fetch(request)
        except errors.KubernetesError as error:
            if body.refusal is not None:
                raise body.refusal from None
            error.sent_twice = body.times > 1
            raise
        finally:
            body.abandon()

    async def list_objects(
        self,
        source: ListWatch[_T],
        deliver: Callable[[list[_T]], None],
        *,
        resource_version: str = "0",
        lose: Callable[[Unreadable], None] | None = None,
    ) -> str:
        """Pass the kept part of every object to `deliver`, in batches; return the version of the list.

        `resource_version` "0" reads the server's watch cache, "" reads etcd, and any other version reads a
        state that is not older than it. If the server loses its place between two pages (410), all objects
        are delivered again, from one page. `lose` is called with each object that cannot be decoded; without
        it the list fails.
        """
        chosen = source.parameters
        # As in client-go's reflector there is no limit with a version: the server would then require exactly
        # that version, not one that is not older.
        page = chosen | ({"limit": str(_PAGE)} if resource_version in {"", "0"} else {})
        if resource_version:
            page["resourceVersion"] = resource_version
        listed = ""
        while True:
            try:
                meta = await self._list_page(source, page, deliver, lose)
            except errors.KubernetesError as error:
                if error.status != 410 or not listed:
                    raise
                listed, page = "", chosen
                continue
            listed = listed or meta.resource_version
            if not meta.continue_:
                return listed
            page = chosen | {"limit": str(_PAGE), "continue": meta.continue_}

    async def _list_page(
        self,
        source: ListWatch[_T],
        parameters: Parameters,
        deliver: Callable[[list[_T]], None],
        lose: Callable[[Unreadable], None] | None,
    ) -> ListMeta:
        what = f"list {source.resource.group_resource}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=self._timeout)
        request = KubernetesRequest(what, source.path, timeout, parameters, source.codec.list_accept)
        decoder = ListDecoder(source.codec, lose)
        async with self._send(request) as response:
            while piece := await _read_piece(response, what):
                for objects in _decoding(what, decoder.feed(piece)):
                    deliver(objects)
                    await asyncio.sleep(0)
        with translated(what):
            objects, meta = decoder.finish()
        deliver(objects)
        return meta

    @contextlib.asynccontextmanager
    async def watch_objects(
        self, source: ListWatch[_T], *, resource_version: str, duration: float, silence: float
    ) -> AsyncIterator[AsyncIterator[list[WatchEvent[_T]]]]:
        """Open a watch of the changes after `resource_version`: batches of events until the server ends it.

        Entering raises what the server refuses, such as 410 (Expired). Iterating raises for an ERROR event
        (status 410: list again) and, with reason ``Timeout``, for silence.

        The server ends the watch after `duration` seconds; `silence` seconds without a byte mean that the
        connection is lost. An object that ceases to match a selector is reported as deleted.
        """
        what = f"watch {source.resource.group_resource}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=silence)
        parameters = source.parameters | {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(duration)),
        }
        request = KubernetesRequest(what, source.path, timeout, parameters, source.codec.watch_accept)
        decoder = WatchDecoder(source.codec)
        async with (
            self._send(request) as response,
            contextlib.aclosing(_read_events(response, what, decoder)) as events,
        ):
            yield events


def _is_of_api_server(path: str) -> bool:
    """Tell whether the API server itself answers, and not a server behind it, whose Date it passes on.

    Of the named groups, Leases are enough: metrics APIs, which are read most, are such servers.
    """
    return not path.startswith("/apis/") or path.startswith("/apis/coordination.k8s.io/")


async def _read_events(
    response: aiohttp.ClientResponse, what: str, decoder: WatchDecoder[_T]
) -> AsyncGenerator[list[WatchEvent[_T]], None]:
    while piece := await _read_piece(response, what):
        for events in _decoding(what, decoder.feed(piece)):
            if isinstance(events, Status):
                raise build_error(what, events)
            await asyncio.sleep(0)
            yield events
    with translated(what):
        decoder.finish()


async def connect(
    configuration: ClientConfiguration,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float],
    timeout: float = 30.0,  # noqa: ASYNC109 - bounds each later call, not this one
    flag: str = credentials.FLAG,
    impersonate: str = "",
) -> KubernetesClient:
    """Return a client for a configuration of `credentials`; no request is sent yet.

    `impersonate` is the user to act as, "" for none. `random` returns numbers in [0, 1) and adds jitter to
    retries. `errors.InputError` names `flag` if the certificates are unusable.
    """
    sender = Sender(configuration, sleep=sleep, random=random, flag=flag, impersonate=impersonate)
    return KubernetesClient(sender, timeout=timeout)


def path_of(resource: APIResource, namespace: str) -> str:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{resource.version}{within}/{resource.plural}"


async def _read_piece(response: aiohttp.ClientResponse, what: str) -> bytes:
    """Return the bytes that have arrived, b"" at the end."""
    with translated(what):
        return await response.content.readany()


def _decoding(what: str, decoded: Iterator[_T]) -> Iterator[_T]:
    while True:
        with translated(what):
            batch = next(decoded, None)
        if batch is None:
            return
        yield batch
