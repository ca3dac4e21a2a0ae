"""livez, readyz and healthz: named checks, their text, and the plain HTTP listener for kubelet's probes.

The texts are those of Kubernetes' API servers. The lists are open to everyone, so they name the checks that
fail and withhold the reasons, which are logged once for each change. The path of a single check gives its
reason, because authorization covers that path.

An informational check has a line, and fails nothing. Prometheus is one: an unready pod takes the APIService
down, and while an APIService is down no namespace of the cluster can be deleted.

Every pod of the cluster network can reach the listener for probes, and its callers are not authenticated. It
therefore shares nothing with the HTTPS server, and serves the lists alone. A connection gets one response,
lives for a few seconds and sends a few KiB; beyond a number of connections the oldest is closed. kubelet
sends its request as soon as it is connected, so it is answered before others could displace it.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple, cast

from adapter.server.api import query_string
from adapter.telemetry import logs

log = logging.getLogger(__name__)

PROBE_CONNECTIONS = 64
"""Connections of the listener for probes at a time; one more closes the oldest."""

PROBE_HEAD_BYTES = 8192
"""Bytes of a request's line and headers together."""

PROBE_SECONDS = 5.0
"""How long a connection for probes lives."""

_PATHS = frozenset({b"/livez", b"/readyz", b"/healthz"})
_END = b"\r\n\r\n"


class Check(NamedTuple):
    """A named check. `find_fault` is quick and returns None on success, else the reason in a few words."""

    name: str
    find_fault: Callable[[], str | None]
    informational: bool = False


class HealthAnswer(NamedTuple):
    status: int
    text: str


PING = Check("ping", lambda: None)
"""The check that always succeeds; upstream begins every list with it."""


class Health:
    """The three lists of checks. `healthz` has those of livez: a kubelet may restart a pod because of it."""

    def __init__(self, *, livez: Sequence[Check] = (), readyz: Sequence[Check] = ()) -> None:
        self._lists = {"healthz": (PING, *livez), "livez": (PING, *livez), "readyz": (PING, *readyz)}
        self._logged: dict[str, dict[str, str]] = {endpoint: {} for endpoint in self._lists}

    def answer(self, segments: Sequence[str], query: str) -> HealthAnswer | None:
        """Answer a decoded path (``readyz`` or ``readyz/NAME``) with its raw query; None for an unknown path.

        `verbose` asks for the list of checks, which a failure always shows; each `exclude` leaves one out.
        """
        if not segments or segments[0] not in self._lists:
            return None
        endpoint, name = segments[0], "/".join(segments[1:])
        if len(segments) == 1:
            return self._answer_all(endpoint, query)
        for check in self._lists[endpoint]:
            if check.name == name:
                fault = _run(check)
                if fault is not None:
                    return HealthAnswer(500, f"internal server error: {fault}\n")
                return HealthAnswer(200, "ok")
        return None

    def is_ready(self) -> bool:
        return all(check.informational or _run(check) is None for check in self._lists["readyz"])

    def _answer_all(self, endpoint: str, query: str) -> HealthAnswer:
        parameters = list(query_string.decode_pairs(query))
        excluded = {value for key, value in parameters if key == "exclude"} - {""}
        partial = bool(excluded)
        lines: list[str] = []
        failed: dict[str, str] = {}
        for check in self._lists[endpoint]:
            if check.name in excluded:
                excluded.remove(check.name)
                lines.append(f"[+]{check.name} excluded: ok\n")
                continue
            fault = _run(check)
            if fault is None:
                lines.append(f"[+]{check.name} ok\n")
            elif check.informational:
                lines.append(f"[-]{check.name} failed: reason withheld (informational)\n")
            else:
                failed[check.name] = fault
                lines.append(f"[-]{check.name} failed: reason withheld\n")
        if excluded:
            names = ",".join(json.dumps(name) for name in sorted(excluded))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if not partial:
            self._say(endpoint, failed)
        if failed:
            return HealthAnswer(500, f"{''.join(lines)}{endpoint} check failed\n")
        if any(key == "verbose" for key, _ in parameters):
            return HealthAnswer(200, f"{''.join(lines)}{endpoint} check passed\n")
        return HealthAnswer(200, "ok")

    def _say(self, endpoint: str, failed: dict[str, str]) -> None:
        """Log the changes since the last answer: these paths are polled every few seconds."""
        known = self._logged[endpoint]
        if failed == known:
            return
        self._logged[endpoint] = failed
        for name, fault in failed.items():
            if known.get(name) != fault:
                log.warning(
                    "health check failed", extra=logs.facts(endpoint=endpoint, check=name, reason=fault)
                )
        for name in known.keys() - failed.keys():
            log.info("health check passed again", extra=logs.facts(endpoint=endpoint, check=name))


def _run(check: Check) -> str | None:
    try:
        return check.find_fault()
    except Exception as error:  # an exception in a check is a failure like any other
        log.exception("a health check raised an exception", extra=logs.facts(check=check.name))
        return f"{type(error).__name__}: {error}"


class ProbeListener:
    """Answers probes with `health` between `start` and `stop`.

    The host "" means every address of the machine.
    """

    def __init__(self, host: str, port: int, health: Health) -> None:
        self._host = host
        self.port = port
        self._health = health
        self._server: asyncio.Server | None = None
        self._open: dict[_ProbeConnection, None] = {}

    async def start(self) -> None:
        """Listen. OSError where the address is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ProbeConnection(self._health, self._open), self._host or None, self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("answering probes", extra=logs.facts(host=self._host, port=self.port))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._open):
                connection.abort()
            await self._server.wait_closed()


class _ProbeConnection(asyncio.Protocol):
    """One connection: it reads a request to the end of its headers, answers it and closes."""

    def __init__(self, health: Health, connections: "dict[_ProbeConnection, None]") -> None:
        self._health = health
        self._open = connections
        self._head = b""
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self._deadline = asyncio.get_running_loop().call_later(PROBE_SECONDS, self.abort)
        self._open[self] = None
        if len(self._open) > PROBE_CONNECTIONS:
            next(iter(self._open)).abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        self._open.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._head += data
        head, end, _ = self._head.partition(_END)
        if len(head) > PROBE_HEAD_BYTES:
            self._send(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "")
        elif end:
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return self._send(HTTPStatus.BAD_REQUEST, "")
        method, target, _ = words
        path = target.partition(b"?")[0]
        if path not in _PATHS:
            return self._send(HTTPStatus.NOT_FOUND, "")
        if method not in {b"GET", b"HEAD"}:
            return self._send(HTTPStatus.METHOD_NOT_ALLOWED, "")
        answer = self._health.answer((path[1:].decode(),), "")
        assert answer is not None
        return self._send(HTTPStatus(answer.status), answer.text, bodiless=method == b"HEAD")

    def _send(self, status: HTTPStatus, text: str, *, bodiless: bool = False) -> None:
        assert self._transport is not None
        self._answered = True
        self._head = b""
        body = (text or f"{status.phrase}\n").encode()
        lines = [
            f"HTTP/1.1 {status} {status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        self._transport.write("\r\n".join(lines).encode() + _END + (b"" if bodiless else body))
        self._transport.close()
