"""Watch streams: the log of a kind, filtered by a selector, as lines of JSON.

A watcher receives each change once and in order. An object that no longer matches the selector is sent as
DELETED, with its last matching state under the new version.
"""

import asyncio
from collections import deque

from aiohttp import web

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.requests import is_true, unsigned
from fastpath_sandbox.apiserver.selectors import Predicate
from fastpath_sandbox.apiserver.store import Change, Record, Store
from fastpath_sandbox.apiserver.views import HEADERS, View, json_response


class Watches:
    """The open watches of a cluster, and their behavior: see the arguments of Cluster.

    While `flowing` is not set, streams stay open and silent; the missed changes are sent afterwards.
    """

    def __init__(self, store: Store, *, bookmark_interval: float, gone_as_status: bool) -> None:
        self._store = store
        self._bookmark_interval = bookmark_interval
        self._gone_as_status = gone_as_status
        self.transports: set[asyncio.Transport] = set()
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def serve(self, request: web.BaseRequest, view: View, predicate: Predicate) -> web.StreamResponse:
        """Stream to one client until it disconnects or its timeoutSeconds are over."""
        query = request.query
        view.check_object()
        if "sendInitialEvents" in query:  # as in servers without WatchList
            message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise status.forbidden_option("sendInitialEvents", message)
        version = query.get("resourceVersion", "")
        start = None if version in {"", "0"} else unsigned("resourceVersion", version)
        timeout = unsigned("timeoutSeconds", query.get("timeoutSeconds") or "0")
        bookmarks = self._bookmark_interval if is_true(query.get("allowWatchBookmarks")) else None
        watch = _Watch(self._store, view, predicate)
        try:
            first = watch.start(start)
        except status.StatusFailure as gone:
            if self._gone_as_status:
                raise
            return json_response(_event("ERROR", gone.encode()))
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        transport = request.transport
        assert transport is not None
        self.transports.add(transport)
        try:
            await response.prepare(request)
            async with asyncio.timeout(timeout or None):
                await watch.stream(response, first, self.flowing, bookmarks)
        except TimeoutError:
            await response.write_eof()
        finally:
            self.transports.discard(transport)
        return response


class _Watch:
    """One watch of one client."""

    def __init__(self, store: Store, view: View, predicate: Predicate) -> None:
        self._store = store
        self._view = view
        self._predicate = predicate
        self._pending: deque[Change] = deque()
        self._wake = asyncio.Event()
        self._headed = True

    def start(self, version: int | None) -> list[bytes]:
        """Collect changes from now on and return the first lines; raise 410 for a forgotten `version`.

        Without a version, the present state comes first, as events.
        """
        key = self._view.kind.key
        lines = []
        if version is None:
            lines = [
                self._line("ADDED", record) for record in self._store.records(key) if self._predicate(record)
            ]
        else:
            backlog = self._store.changes_since(key, version)
            if backlog is None:
                raise status.too_old(version, self._store.horizon(key))
            self._pending.extend(backlog)
        self._after = version or 0
        self._unsubscribe = self._store.subscribe(key, self._receive)
        return lines

    def _receive(self, change: Change) -> None:
        if change.version > self._after:
            self._pending.append(change)
            self._wake.set()

    async def stream(
        self,
        response: web.StreamResponse,
        lines: list[bytes],
        flowing: asyncio.Event,
        bookmarks: float | None,
    ) -> None:
        """Send `lines` and all that follows until the caller cancels or the client disconnects.

        `bookmarks` is the interval in seconds, or None.
        """
        try:
            while True:
                await flowing.wait()
                while self._pending:
                    lines += self._render(self._pending.popleft())
                self._wake.clear()
                if lines:
                    await response.write(b"".join(lines))
                lines = await self._wait(bookmarks)
        finally:
            self._unsubscribe()

    def _render(self, change: Change) -> list[bytes]:
        before = change.old if change.old is not None and self._predicate(change.old) else None
        after = change.new if change.new is not None and self._predicate(change.new) else None
        if after is not None:
            return [self._line("ADDED" if before is None else "MODIFIED", after)]
        if before is not None:
            return [self._line("DELETED", before.at(change.version))]
        return []

    def _line(self, type_: str, record: Record) -> bytes:
        shown = self._view.one(record, headed=self._headed)
        self._headed = False
        return _event(type_, shown)

    async def _wait(self, bookmarks: float | None) -> list[bytes]:
        """Wait for a change; return a bookmark if none arrives within the interval."""
        try:
            async with asyncio.timeout(bookmarks):
                await self._wake.wait()
        except TimeoutError:
            if not self._pending:
                return [_event("BOOKMARK", self._view.bookmark(self._store.version))]
        return []


def _event(type_: str, shown: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + shown + b"}\n"
