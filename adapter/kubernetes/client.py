"""The Kubernetes API server over HTTP: get, list, watch, create for reviews, and one write at a time.

What lives here: the verbs. Not here: where the server is (`credentials`), how a request is sent and sent again (`sending`), what its
objects look like (`objectlist`), when to list and when to watch (`informer`). The law: whatever goes wrong is an `errors.KubernetesError`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import aiohttp
from kubernetes_asyncio.client import Configuration

from adapter import errors
from adapter.kubernetes import codec, credentials, discovery, fenced_request
from adapter.kubernetes.api_errors import error_of, translated
from adapter.kubernetes.transport import REVIEW_SECONDS, Parameters, Request, Sender, open_sender
from adapter.model.resources import APIResource, Catalogue
from adapter.model.selectors.label_selectors import EVERYTHING, LabelSelector

_PAGE = 500
_JSON = "application/json"

NOTHING: Parameters = {}
_WORDS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_T = TypeVar("_T")
_E = TypeVar("_E")


class Body(NamedTuple):
    """An answer as it came; `content_type` in lower case with its parameters."""

    content_type: str
    content: bytes


class KubernetesClient:
    """One API server, one session. Made by `connect`; closed by `close` or as a context manager.

    `timeout` bounds a call in seconds: all of a get, each silence within a list or watch that has no limit of its own.
    """

    def __init__(self, sender: Sender, *, timeout: float) -> None:
        self._sender = sender
        self._timeout = timeout

    async def close(self) -> None:
        """Close the session; calls in flight fail with `errors.KubernetesError`."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def get(self, path: str, *, accept: str = _JSON) -> Body:
        """Return what the server has at `path`. Faults that may pass are tried again, up to three attempts."""
        request = Request(
            f"get {path}", path, {}, accept, aiohttp.ClientTimeout(total=self._timeout), patient=True
        )
        async with self._sender.send(request) as response:
            with translated(request.what):
                content = await response.read()
            return Body(response.headers.get("Content-Type", "").lower(), content)

    async def create(self, path: str, document: Mapping[str, object]) -> Body:
        """Post a review to `path` and return it with its answer.

        A review changes nothing, so one whose connection was reset is sent again: at once if it is the first time, for an
        idle connection may be closed by the other side at any moment.
        """
        timeout = aiohttp.ClientTimeout(total=REVIEW_SECONDS)
        request = Request(f"create {path.rpartition('/')[2]}", path, {}, _JSON, timeout, False, document)
        async with self._sender.send(request) as response:
            with translated(request.what):
                content = await response.read()
            return Body(response.headers.get("Content-Type", "").lower(), content)

    async def write(
        self,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
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
        body = fenced_request.GuardedBody(content, content_type, check)
        unlimited = aiohttp.ClientTimeout(total=None)
        asked = {**parameters, "timeout": f"{max(1, int(seconds * 1000))}ms"}
        request = Request(
            f"{_WORDS[method]} {path}", path, asked, _JSON, unlimited, False, None, body, method
        )
        try:
            with translated(request.what):
                async with asyncio.timeout(seconds), self._sender.send(request) as response:
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
        return (await discovery.fetch_discovery(self.get, known)).catalogue

    async def list_objects(
        self,
        resource: APIResource,
        deliver: Callable[[list[codec.ObjectMeta]], None],
        *,
        namespace: str = "",
        selector: LabelSelector = EVERYTHING,
        fields: str = "",
        resource_version: str = "0",
    ) -> str:
        """Hand the metadata of every object to `deliver`; otherwise as `list_whole`."""
        return await self.list_whole(
            codec.PARTIAL,
            resource,
            deliver,
            namespace=namespace,
            selector=selector,
            fields=fields,
            resource_version=resource_version,
        )

    async def list_whole(
        self,
        form: codec.Form[_T],
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
        form: codec.Form[_T],
        what: str,
        path: str,
        parameters: Parameters,
        deliver: Callable[[list[_T]], None],
    ) -> codec.ListMeta:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=self._timeout)
        request = Request(what, path, parameters, form.list_accept, timeout, patient=False)
        decoder = codec.ListDecoder(form)
        async with self._sender.send(request) as response:
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
        self,
        resource: APIResource,
        *,
        namespace: str = "",
        fields: str = "",
        resource_version: str,
        duration: float,
        silence: float,
    ) -> AsyncIterator["Watch[codec.WatchEvent]"]:
        """Open a watch of metadata; otherwise as `watch_whole`."""
        form, decoder = codec.PARTIAL, codec.WatchDecoder()
        chosen = _chosen(EVERYTHING, fields)
        watching = self._watch(
            form, decoder, resource, namespace, chosen, resource_version, duration, silence
        )
        async with watching as watch:
            yield watch

    @contextlib.asynccontextmanager
    async def watch_whole(
        self,
        form: codec.Form[_T],
        resource: APIResource,
        *,
        namespace: str = "",
        selector: LabelSelector = EVERYTHING,
        fields: str = "",
        resource_version: str,
        duration: float,
        silence: float,
    ) -> AsyncIterator["Watch[codec.ObjectEvent[_T]]"]:
        """Open a watch of what happens after `resource_version`, each object as `form` keeps it.

        The server ends it after `duration` seconds; `silence` is how many seconds without a word mean that it is lost. With
        `selector` or `fields` an object that ceases to match is told of as deleted.
        Entering raises what the server refuses, 410 (Expired) among it.
        """
        decoder = codec.WatchDecoder(lambda line: codec.decode_event(form, line))
        chosen = _chosen(selector, fields)
        watching = self._watch(
            form, decoder, resource, namespace, chosen, resource_version, duration, silence
        )
        async with watching as watch:
            yield watch

    @contextlib.asynccontextmanager
    async def _watch(
        self,
        form: codec.Form[Any],
        decoder: codec.WatchDecoder[_E],
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
        async with self._sender.send(
            Request(what, path, parameters, form.watch_accept, timeout, patient=False)
        ) as response:
            yield Watch(response, what, decoder)


class Watch(Generic[_E]):
    """An open watch: iterate to get events, a bounded number at a time. Ends when the server ends it.

    `errors.KubernetesError` when it breaks: what an ERROR line says (status 410: list again), reason ``Timeout`` for silence.
    """

    def __init__(self, response: aiohttp.ClientResponse, what: str, decoder: codec.WatchDecoder[_E]) -> None:
        self._response = response
        self._what = what
        self._decoder = decoder
        self._decoded: Iterator[list[_E] | codec.Status] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[_E]:
        while True:
            for events in _decoding(self._what, self._decoded):
                if isinstance(events, codec.Status):
                    raise error_of(self._what, events)
                await asyncio.sleep(0)
                return events
            piece = await _read_piece(self._response, self._what)
            if not piece:
                with translated(self._what):
                    self._decoder.finish()
                raise StopAsyncIteration
            self._decoded = self._decoder.feed(piece)


async def connect(
    configuration: Configuration,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float],
    timeout: float = 30.0,  # noqa: ASYNC109 - bounds each later call, not this one
    flag: str = credentials.FLAG,
    impersonate: str = "",
) -> KubernetesClient:
    """Return a client for what `credentials` loaded; no request is sent yet.

    `random` gives numbers in [0, 1) that spread retries. `impersonate` is the user to act as, "" for none. `errors.InputError` that names `flag` if certificates
    cannot be used.
    """
    return KubernetesClient(
        open_sender(configuration, sleep=sleep, random=random, flag=flag, impersonate=impersonate),
        timeout=timeout,
    )


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
    with translated(what):
        return await response.content.readany()


def _decoding(what: str, decoded: Iterator[_T]) -> Iterator[_T]:
    while True:
        with translated(what):
            batch = next(decoded, None)
        if batch is None:
            return
        yield batch
