"""The optional access log: a line of JSON for each request, written to a stream or a file.

A line holds the fields of `_LogEntry` and nothing else of a request: no header but the audit id, and of the
query only the selectors, since anything else that a caller sends could be a secret.

Lines are buffered in memory and written in batches by a thread. Where the reader does not keep up, lines are
dropped and counted; no request waits for the log.
"""

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from adapter import errors
from adapter.model.clock import Clock
from adapter.model.identity import ANONYMOUS
from adapter.server.api import paths, query_string
from adapter.server.api.routing import Route
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import Response
from adapter.telemetry.logs import format_time
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

FLAG = "--access-log"
STREAMS = ("stdout", "stderr")
"""The destinations that are streams and not files."""

PERIOD = 0.2
"""Seconds between two batches."""

ROOM = 8 * 1024 * 1024
"""Bytes of buffered lines; further lines are dropped."""

_LONGEST = 2048
"""Characters of a path or selector that are logged."""


class _LogEntry(msgspec.Struct, omit_defaults=True):
    """The facts of a request.

    `user` is None where the caller is not known; `bytes` are those of the body as sent.
    """

    time: str
    user: str | None
    verb: str
    path: str
    code: int
    latencySeconds: float  # noqa: N815 - as it is written
    bytes: int
    auditID: str  # noqa: N815 - as it is written
    labelSelector: str = ""  # noqa: N815 - as it is written
    metricLabelSelector: str = ""  # noqa: N815 - as it is written
    fieldSelector: str = ""  # noqa: N815 - as it is written


def open_sink(destination: str) -> Callable[[bytes], None]:
    """Return what writes whole lines to the stream or the file that the flag names.

    A file is opened for each batch, since it may be rotated at any time; a new one is readable by its owner
    only. InputError for a file that cannot be written.
    """
    if destination in STREAMS:
        return functools.partial(write_stream, getattr(sys, destination).buffer)

    def append(lines: bytes) -> None:
        with open(destination, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(lines)

    try:
        append(b"")
    except OSError as error:
        reason = f"expected stdout, stderr, or a file that can be written: {error.strerror}"
        raise errors.InputError([errors.Fault(FLAG, destination, reason)]) from error
    return append


def write_stream(stream: BinaryIO, lines: bytes) -> None:
    stream.write(lines)
    stream.flush()


class AccessLog:
    """Buffers entries and writes them while `run` runs; `flush` writes the rest. A thread calls `sink`."""

    def __init__(
        self, sink: Callable[[bytes], None], clock: Clock, monitoring: Monitoring, problems: ProblemLog
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._dropped = monitoring.access_log_dropped
        self._problems = problems
        self._encoder = msgspec.json.Encoder()
        self._waiting: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    def note(self, request: HTTPRequest, route: Route, response: Response, seconds: float) -> None:
        """Log a request that was answered now, `seconds` after it was read."""
        time = format_time(self._clock.wall())
        line = self._encoder.encode(_build_line(request, route, response, seconds, time))
        if self._size + len(line) > ROOM:
            self._dropped.inc()
            return
        self._waiting.append(line)
        self._size += len(line) + 1
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(PERIOD)
            await self.flush()

    async def flush(self) -> None:
        async with self._writing:
            self._wake.clear()
            lines, self._waiting, self._size = self._waiting, [], 0
            if not lines:
                return
            writing = asyncio.create_task(asyncio.to_thread(self._write, lines), name="access log lines")
            try:
                failure = await asyncio.shield(writing)
            except asyncio.CancelledError:
                with contextlib.suppress(asyncio.CancelledError):
                    await writing  # a thread cannot be cancelled, and half a line is worse than a late end
                raise
            if failure:
                self._dropped.inc(len(lines))
            self._problems.follow("access-log", "access log cannot be written", failure)

    def _write(self, lines: list[bytes]) -> str:
        """Write lines; return why that failed, "" if it did not."""
        try:
            self._sink(b"\n".join([*lines, b""]))
        except (OSError, ValueError) as error:  # ValueError: a stream that was closed
            return f"{type(error).__name__}: {error}"
        return ""


def _build_line(
    request: HTTPRequest, route: Route, response: Response, seconds: float, time: str
) -> _LogEntry:
    """Return the line of a request. The path of a malformed target is left out: it is arbitrary text."""
    user = request.caller
    wanted = route.bare_attributes
    if wanted is not None and request.method != "GET":
        wanted = wanted.with_method(request.method)
    try:
        path, _ = paths.split_target(request.target)
    except errors.BadRequestError:
        path = ""
    # A query that is too long for its caller was not parsed, and is not parsed for the log either.
    is_shown = user is not None and (
        user is not ANONYMOUS or len(route.query) <= query_string.ANONYMOUS_QUERY
    )
    parameters = route.parameters if is_shown else {}
    return _LogEntry(
        time=time,
        user=user.name if user else None,
        verb=wanted.verb if wanted else request.method.lower(),
        path=path[:_LONGEST],
        code=response.status,
        latencySeconds=round(seconds, 6),
        bytes=len(response.sent_body),
        auditID=response.audit_id,
        labelSelector=parameters.get("labelSelector", "")[:_LONGEST],
        metricLabelSelector=parameters.get("metricLabelSelector", "")[:_LONGEST],
        fieldSelector=parameters.get("fieldSelector", "")[:_LONGEST],
    )
