"""Watch streams: the log of a kind, filtered by a selector, as lines of JSON.

A watcher receives each change once and in order. An object that no longer matches the selector is sent as
DELETED, with its last matching state under the new version.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec
from aiohttp import web

from adapter.sandbox.apiserver import status, views
from adapter.sandbox.apiserver.kinds import Kind
from adapter.sandbox.apiserver.selectors import Predicate
from adapter.sandbox.apiserver.store import Change, Record, Store


class StreamGate:
    """Pauses watch streams. They stay open and silent; the missed changes are sent afterwards."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        await self._open.wait()


class Watch:
    """One watch of one client.

    `version` is where it starts; None sends the present state first, as events. `bookmarks` is the interval
    in seconds, or None.
    """

    def __init__(
        self, store: Store, kind: Kind, predicate: Predicate, form: views.ObjectView, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._kind = kind
        self._predicate = predicate
        self._form = form
        self._now = now
        self._pending: deque[Change] = deque()
        self._wake = asyncio.Event()
        self._headed = True
        self.include = "Metadata"

    def start(self, version: int | None, *, mark_initial_end: bool = False) -> list[bytes]:
        """Collect changes from now on and return the first lines; raise 410 for a forgotten `version`."""
        key = self._kind.key
        lines = []
        if version is None:
            records = self._store.records(key)
            lines = [self._line("ADDED", record) for record in records if self._predicate(record)]
            if mark_initial_end:
                lines.append(
                    _event(
                        "BOOKMARK",
                        views.bookmark(self._form, self._kind, self._store.version, initial_end=True),
                    )
                )
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

    def _lines(self) -> list[bytes]:
        lines = []
        while self._pending:
            line = self._render(self._pending.popleft())
            if line is not None:
                lines.append(line)
        self._wake.clear()
        return lines

    def _render(self, change: Change) -> bytes | None:
        before = change.old if change.old is not None and self._predicate(change.old) else None
        after = change.new if change.new is not None and self._predicate(change.new) else None
        if after is not None:
            return self._line("ADDED" if before is None else "MODIFIED", after)
        if before is not None:
            return self._line("DELETED", before.at(change.version))
        return None

    def _line(self, type_: str, record: Record) -> bytes:
        shown = views.one(
            self._form, self._kind, record, self._now(), include=self.include, headed=self._headed
        )
        self._headed = False
        return _event(type_, shown)

    async def stream(
        self, response: web.StreamResponse, first: list[bytes], gate: StreamGate, bookmarks: float | None
    ) -> None:
        """Send `first` and all that follows until the caller cancels or the client disconnects."""
        try:
            lines = first
            while True:
                await gate.passed()
                lines += self._lines()
                if lines:
                    await response.write(b"".join(lines))
                lines = await self._wait(bookmarks)
        finally:
            self._unsubscribe()

    async def _wait(self, bookmarks: float | None) -> list[bytes]:
        """Wait for a change; return a bookmark if none arrives within the interval."""
        try:
            async with asyncio.timeout(bookmarks):
                await self._wake.wait()
        except TimeoutError:
            if not self._pending:
                return [_event("BOOKMARK", views.bookmark(self._form, self._kind, self._store.version))]
        return []


def _event(type_: str, shown: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + shown + b"}\n"


def error_line(failure: status.StatusFailure) -> bytes:
    """Return the ERROR event that ends a watch."""
    return _event("ERROR", msgspec.json.encode(failure.document))
