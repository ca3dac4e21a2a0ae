"""The server of the pages: one machine, one person, nothing but reading.

It binds to 127.0.0.1, and serves only below a random path. A page of another site can make the browser send
requests here, so the Host has to be ours (a name that resolves to 127.0.0.1 is not), and a request that tells
where it comes from has to come from here. Requests have no body, and no method changes anything.

Requests share what is read of a page. While streams look at it, it is read again each second, and less often
if reading takes longer.
"""

import asyncio
import contextlib
import functools
import hmac
import secrets
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec
from aiohttp import web
from cachetools import LRUCache

from adapter.errors import FastpathError
from fastpath_tools.ui.pages import Content, Page, Query, Section, Templates
from fastpath_tools.ui.renewed import Renewed

ADDRESS = "127.0.0.1"

HEARTBEAT = 15.0
_RETRY = 2000
"""Milliseconds until a browser connects again."""

SILENT = 64
HEAD_SECONDS = 5.0
"""How many connections may have sent no request yet, and for how long."""

_END = b"\r\n\r\n"

STREAMS = 32
_PAGES = 64
"""How many streams are open at the same time, and of how many pages the last content is kept."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES = {"style.css": "text/css", "page.js": "text/javascript"}
_EVENTS = "events"

Finder = Callable[[str], Page | None]
"""Returns the page of a path below the token, None for no page."""


_Silent = dict[asyncio.Transport, asyncio.TimerHandle]
"""The connections without a request, oldest first, each with what ends it."""


class _State(NamedTuple):
    """What was read last, and why it is not up to date, "" if it is."""

    content: Content | None = None
    problem: str = ""


class _View:
    """A page with the fields of its form. Those that look at it share what is read."""

    def __init__(self, page: Page, query: Query) -> None:
        self._page = page
        self._query = query
        self._content: Content | None = None
        self.state = Renewed(self._read)

    async def _read(self) -> _State:
        try:
            self._content = await self._page.read(self._query)
        except FastpathError as error:
            return _State(self._content, str(error))
        return _State(self._content)


class PageServer:
    """Serves the pages that `find` finds, below ``/TOKEN/``."""

    def __init__(self, token: str, templates: Templates, find: Finder) -> None:
        self._token = token.encode()
        self._templates = templates
        self._find = find
        self._hosts: frozenset[str] = frozenset()
        self._views: LRUCache[tuple[str, tuple[tuple[str, str], ...]], _View] = LRUCache(_PAGES)
        self._streams = 0
        self._files = {name: templates.render(name).encode() for name in _FILES}

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[int]:
        """Serve while the block runs; gives the port, a free one for 0."""
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.on_response_prepare.append(_add_headers)
        runner = web.AppRunner(
            application,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            access_log=None,
            keepalive_timeout=30,
        )
        await runner.setup()
        assert runner.server is not None
        silent: _Silent = {}
        try:
            accept = functools.partial(_Connection, runner.server, silent)
            listener = await asyncio.get_running_loop().create_server(accept, ADDRESS, port)
            bound: int = listener.sockets[0].getsockname()[1]
            self._hosts = frozenset({f"{ADDRESS}:{bound}", f"localhost:{bound}"})
            try:
                yield bound
            finally:
                listener.close()
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refuse(request):
            refusal.force_close()
            return refusal
        path = request.path.split("/", 2)[2]
        if path in self._files:
            return web.Response(body=self._files[path], content_type=_FILES[path], charset="utf-8")
        query = dict(request.query)
        if path == _EVENTS:
            view = self._view(query.get("page", ""), dict(parse_qsl(query.get("query", ""))))
            return _missing() if view is None else await self._stream(request, view)
        view = self._view(path, query)
        return _missing() if view is None else await self._page(request, view, path)

    def _refuse(self, request: web.Request) -> web.Response | None:
        """Return the response to a request that may not be served, None if it may."""
        hosts, headers = request.headers.getall("Host", []), request.headers
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _plain(421, "this address serves 127.0.0.1 and localhost only")
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if origin not in {None, *(f"http://{host}" for host in self._hosts)} or site not in {
            "same-origin",
            "none",
        }:
            return _plain(403, "requests of other sites are not served")
        if request.method not in {"GET", "HEAD"}:
            refusal = _plain(405, "only GET and HEAD are served")
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal
        if request.can_read_body:
            return _plain(413, "a request has no body here")
        _, token, *rest = request.path.split("/", 2)
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token) or not rest:
            return _missing()
        return None

    def _view(self, path: str, query: dict[str, str]) -> _View | None:
        key = path, tuple(sorted(query.items()))
        if key not in self._views:
            page = self._find(path)
            if page is None:
                return None
            self._views[key] = _View(page, query)
        return self._views[key]

    async def _page(self, request: web.Request, view: _View, path: str) -> web.Response:
        content, problem = await view.state.get()
        shown = content or Content("Not readable", (), 502)
        fields = {
            "page": path,
            "query": request.query_string,
            "seen": ".".join(section.digest for section in shown.sections),  # page.js wants it last
        }
        events = f"/{self._token.decode()}/{_EVENTS}?{urlencode(fields)}"
        body = self._templates.layout(shown, events, problem).encode()
        response = web.Response(body=body, status=shown.status, content_type="text/html", charset="utf-8")
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async def _stream(self, request: web.Request, view: _View) -> web.StreamResponse:
        if self._streams >= STREAMS:
            return _plain(503, "too many pages are open")
        self._streams += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
            await response.prepare(request)
            if request.method == "GET":
                # a browser that connects again may have missed changes
                again = "Last-Event-ID" in request.headers
                seen = frozenset() if again else frozenset(request.query.get("seen", "").split("."))
                await _send_changes(response, view, seen)
        except ConnectionResetError:  # the browser has left
            pass
        finally:
            self._streams -= 1
        return response


class _Connection(asyncio.Protocol):
    """A connection, which ends if it sends no head in time. Beyond a number the oldest silent one ends.

    Any user of the machine can connect, and each connection takes a file.
    """

    def __init__(self, server: web.Server, silent: _Silent) -> None:
        self._inner = server()
        self._silent = silent
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._silent) >= SILENT:
            oldest = next(iter(self._silent))
            self._silent.pop(oldest).cancel()
            oldest.abort()
        self._transport = transport
        self._silent[transport] = asyncio.get_running_loop().call_later(HEAD_SECONDS, transport.abort)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport in self._silent:
            self._tail += data
            if _END in self._tail:
                self._end_silence()
            self._tail = self._tail[1 - len(_END) :]
        self._inner.data_received(data)

    def _end_silence(self) -> None:
        if (timer := self._silent.pop(self._transport, None)) is not None:
            timer.cancel()

    def eof_received(self) -> None:
        self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_silence()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


async def _send_changes(response: web.StreamResponse, view: _View, seen: frozenset[str]) -> None:
    """Send the sections of a page that change; at first those not `seen`. It ends by cancellation."""
    shown: dict[str, Section] = {}
    sent: dict[str, list[str]] = {}
    now = asyncio.get_running_loop().time
    reported, last = None, now()
    await response.write(f"retry: {_RETRY}\n\n".encode())
    while True:
        content, problem = await view.state.get()
        sections = () if content is None else content.sections
        changed = []
        for section in sections:
            if section != shown.get(section.name) and section.digest not in seen:
                lines = section.changes(sent.get(section.name, ()))
                changed.append({"name": section.name, "lines": lines})
                sent[section.name] = section.lines
            shown[section.name] = section
        seen = frozenset()
        events = b""
        if changed:
            events += _event("sections", changed)
        if problem != reported:
            events += _event("problem", problem)
            reported = problem
        if not events and now() - last >= HEARTBEAT:
            events = b":\n\n"
        if events:
            await response.write(events)
            last = now()
        await asyncio.sleep(view.state.remaining)


def _event(kind: str, content: object) -> bytes:
    return b"id: 1\nevent: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(content))


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _missing() -> web.Response:
    return _plain(404, "no such page; the verb prints the address")


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def make_token() -> str:
    return secrets.token_urlsafe(24)
