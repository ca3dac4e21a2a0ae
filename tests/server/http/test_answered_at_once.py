"""Requests that are answered as they arrive: the same as those of a task, in turns, one at a time."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapter.model.identity import AccessVerdict, User
from adapter.server.api.paths import CUSTOM_GROUP
from adapter.server.http import connection as connections
from adapter.server.http import listener, responses
from adapter.server.http.connection import ClientConnection
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import Later, Response
from tests.support import waiting
from tests.support.clock import ShiftedClock
from tests.support.serving import Certified, Connection, Served, ServerFactory, pod_value

LISTED = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/default/pods/%2A/http_requests"
BOB = "Authorization: Bearer bob"
AUDITED = "Audit-Id: 6b1f7f5a-7f0f-4d53-9b6a-6f6dbd0f3c11"
WARM = f"GET {LISTED} HTTP/1.1\r\nHost: x\r\n{BOB}\r\n\r\n".encode()


def get(*headers: str, target: str = LISTED, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", "Host: x", *headers, "", ""]).encode()


REQUESTS = {
    "cached": get(BOB, AUDITED),
    "its id is not one": get(BOB, "Audit-Id: a b"),
    "indented for people": get(BOB, "User-Agent: curl/8"),
    "indented": get(BOB, target=f"{LISTED}?pretty=true"),
    "a body to compress": get(BOB, "Accept-Encoding: gzip", target=f"{LISTED}?labelSelector=large"),
    "a body of several pieces": get(BOB, target=f"{LISTED}?labelSelector=large"),
    "no body": get(BOB, method="HEAD"),
    "the old version": get(BOB, version="1.0"),
    "the old version, kept": get(BOB, "Connection: keep-alive", version="1.0"),
    "the last one": get(BOB, "Connection: close"),
    "an upgrade": get(BOB, "Connection: upgrade", "Upgrade: websocket"),
    "another method": get(BOB, method="DELETE"),
    "with a body": get(BOB, "Content-Length: 2", method="POST") + b"{}",
    "nothing acceptable": get(BOB, "Accept: text/html"),
    "anonymous": get(),
    "a token that is unknown": get("Authorization: Bearer eve"),
    "a user who may not": get("Authorization: Bearer carol"),
    "an impersonation": get(BOB, "Impersonate-User: root"),
    "a header that is not text": get(BOB)[:-2] + b"X: \xff\r\n\r\n",
    "a wrong query": get(BOB, target=f"{LISTED}?labelSelector=a+in+b"),
    "a page": get(BOB, target="/livez"),
    "a document": get(BOB, target="/apis"),
    "nothing": get(BOB, target="/nothing"),
}


class Counted:
    """A server that counts which responses are written at once, and which by a task, as all are `by_task`."""

    def __init__(self, served: Served, *, by_task: bool = False) -> None:
        self.served = served
        self.ways: Counter[str] = Counter()
        provider, reviews, self.server = served.provider, served.reviews, served.server._connections
        provider.items = (pod_value("web-1", 1500), pod_value("web-2", 2000))
        provider.fresh_until = float("inf")
        provider.before = self._list
        reviews.tokens |= {"bob": User("bob"), "carol": User("carol")}
        reviews.verdict = lambda spec: AccessVerdict(allowed=spec["user"] != "carol")
        inner = self.server.answer

        def answer(request: HTTPRequest) -> Response | Later:
            found = inner(request)
            self.server.loop.call_soon(self._count, request.connection)  # once its task would be there
            if by_task and isinstance(response := found, Response):
                return lambda: asyncio.sleep(0, response)
            return found

        self.server.answer = answer

    def _count(self, connection: Any) -> None:
        self.ways["at once" if connection.task is None else "task"] += 1

    async def _list(self) -> None:
        is_large = "large" in str(self.served.provider.questions[-1])
        names = [f"web-{number}" for number in range(1000 if is_large else 2)]
        self.served.provider.items = tuple(pod_value(name, 1500) for name in names)

    def counters(self) -> str:
        """Return the self-metrics, but those about this process."""
        text = self.served.monitoring.exposition()
        return "\n".join(
            line for line in text.splitlines() if not re.match(r"(# \w+ )?(process|python)_", line)
        )


async def read(connection: Connection, *, head: bool) -> tuple[bytes, bytes]:
    """Return the head of a response, but its time and an id of the server's own, and its body."""
    lines = await connection.reader.readuntil(b"\r\n\r\n")
    lines = re.sub(rb"Date: [^\r]*", b"Date", lines)
    length = re.search(rb"Content-Length: (\d+)", lines)
    body = b"" if head or length is None else await connection.reader.readexactly(int(length[1]))
    own_id = rb"Audit-Id: (?!6b1f7f5a)[0-9a-f-]{36}"
    return re.sub(own_id, b"Audit-Id", lines), body


async def test_both_ways_are_one(serve: ServerFactory) -> None:
    sinks: tuple[list[bytes], list[bytes]] = ([], [])
    each, by_task = [Counted(await serve(sink=sink.append), by_task=sink is sinks[1]) for sink in sinks]
    at_once = set()
    for name, request in REQUESTS.items():
        before = each.ways["at once"]
        for _ in range(3):
            answers = []
            for counted in (each, by_task):
                connection = await counted.served.connect()
                connection.writer.write(get(target="/version"))  # what TLS has to say has been sent
                await connection.read_answer()
                connection.writer.write(request)
                answer = await read(connection, head=request.startswith(b"HEAD"))
                connection.writer.write(get(target="/version"))
                closes = b"Connection: close" in answer[0] or b"HTTP/1.0" in request
                answers.append((answer, closes or (await connection.read_answer()).status))
                await connection.close()
            assert answers[0] == answers[1], name
        assert each.counters() == by_task.counters(), name
        if each.ways["at once"] > before:
            at_once.add(name)
    for counted in (each, by_task):
        assert counted.served.access_log is not None
        await counted.served.access_log.flush()
    ids = rb'"auditID":"[^"]*"'
    logged = [sorted(re.sub(ids, b"", b"".join(sink)).splitlines()) for sink in sinks]
    assert logged[0] == logged[1]
    assert by_task.ways["at once"] == 0
    assert at_once == REQUESTS.keys() - {
        *("a body of several pieces", "no body", "the old version", "the last one", "another method"),
        *("with a body", "a wrong query", "a page", "a document", "nothing"),
    }
    assert each.ways.total() == by_task.ways["task"]


class HeldQueue:
    """Meets `FairQueue` as far as a connection uses it: no turn comes by itself."""

    def __init__(self) -> None:
        self.starts: list[Callable[[], bool]] = []
        self.waiting = 0

    def enter_now(self, _: str, start: Callable[[], bool]) -> bool:
        self.starts.append(start)
        return False


async def waiting_for_its_turn(counted: Counted) -> tuple[Connection, ClientConnection, HeldQueue]:
    caller = await counted.served.connect()
    for _ in range(2):
        caller.writer.write(WARM)
        assert (await caller.read_answer()).status == 200
    (end,), held = counted.served.ends, HeldQueue()
    counted.server.turns = held  # type: ignore[assignment]
    caller.writer.write(WARM)
    await waiting.until(lambda: len(held.starts) == 1)
    return caller, end, held


async def test_what_arrives_behind_a_request_that_waits_for_its_turn(serve: ServerFactory) -> None:
    counted = Counted(await serve())
    caller, end, held = await waiting_for_its_turn(counted)
    assert not end.waits
    assert not end.may_end, "a request is unanswered"
    assert end.transport is not None
    accepted = end.transport.get_extra_info("socket").fileno()
    caller.writer.write(WARM)
    await waiting.until(lambda: not listener.is_readable(accepted))
    assert held.starts[0]()
    assert (await caller.read_answer()).status == 200
    await waiting.until(lambda: len(held.starts) == 2)  # the next one has a turn of its own
    assert held.starts[1]()
    assert (await caller.read_answer()).status == 200
    assert end.waits


async def test_a_connection_is_not_idle_while_its_request_waits_for_its_turn(
    serve: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE", 1.0)
    counted = Counted(await serve())
    caller, _, held = await waiting_for_its_turn(counted)
    later = await counted.served.connect()
    assert await later.closed()
    assert held.starts[0](), "the connection is open"
    assert (await caller.read_answer()).status == 200


async def test_a_connection_stays_usable_and_open_until_it_is_idle(
    serve: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE", 1.0)
    counted = Counted(await serve())
    first, caller = await counted.served.connect(), await counted.served.connect()
    for connection in (first, first, caller, caller):
        connection.writer.write(WARM)
        assert (await connection.read_answer()).status == 200
    caller.writer.write(WARM * 3)
    assert [(await caller.read_answer()).status for _ in range(3)] == [200] * 3
    assert counted.ways == {"task": 2, "at once": 5}, "the first make what the others are answered with"
    caller.writer.write(WARM)
    assert (await caller.read_answer()).status == 200
    assert await caller.closed()


async def test_a_client_that_leaves_before_its_turn(serve: ServerFactory) -> None:
    counted = Counted(await serve())
    caller, end, held = await waiting_for_its_turn(counted)
    before = counted.ways.total()
    await caller.close()
    await waiting.until(lambda: end.transport is None)
    assert not held.starts[0](), "it takes no place of others"
    assert counted.ways.total() == before


async def test_what_is_not_kept_any_more_when_its_turn_comes(serve: ServerFactory) -> None:
    counted = Counted(await serve())
    caller, _, held = await waiting_for_its_turn(counted)
    counted.served.provider.generation += 1
    before = counted.ways["task"]
    assert held.starts[0]()
    assert (await caller.read_answer()).status == 200
    assert counted.ways["task"] == before + 1
    admitted = 'authorization_attempts_total{result="allowed"} 3.0'
    assert admitted in counted.counters(), "nothing is admitted twice"


async def test_while_a_client_does_not_read_its_requests_wait_in_the_task(serve: ServerFactory) -> None:
    counted = Counted(await serve())
    caller = await counted.served.connect()
    caller.writer.write(WARM)
    await caller.read_answer()
    (end,) = counted.served.ends
    assert end.transport is not None
    end.transport.get_write_buffer_size = lambda: 2 * responses.PIECE  # type: ignore[method-assign]
    caller.writer.write(WARM)
    assert (await caller.read_answer()).status == 200
    assert counted.ways == {"task": 2}


async def test_no_answer_at_once_closes_a_connection_during_shutdown(serve: ServerFactory) -> None:
    counted = Counted(await serve())
    caller = await counted.served.connect()
    for _ in range(3):
        caller.writer.write(WARM)
        await caller.read_answer()
    counted.served.handler.stopping = True
    caller.writer.write(WARM)
    answer = await caller.read_answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await caller.closed()
    assert counted.ways["at once"] == 1


@pytest.fixture
def certified(serve: ServerFactory, tmp_path: Path) -> Certified:
    return Certified(serve, tmp_path, ShiftedClock())


async def test_limits_follow_the_trust_of_a_request_answered_at_once(certified: Certified) -> None:
    counted = Counted(await certified.start())
    caller = await counted.served.connect(certified.alice)
    for _ in range(2):
        caller.writer.write(WARM)
        assert (await caller.read_answer()).status == 200
    (end,) = counted.served.ends
    was_certified = end.is_certified
    bob = await counted.served.connect()  # whose token is known, then
    bob.writer.write(WARM)
    assert (await bob.read_answer()).status == 200
    certified.lose_trust()
    before = counted.ways["at once"]
    caller.writer.write(WARM)
    assert (await caller.read_answer()).status == 200
    assert counted.ways["at once"] == before + 1
    assert (was_certified, end.is_certified) == (True, False)
    caller.writer.write(WARM[:-2] + b"".join(b"X-%d: x\r\n" % number for number in range(200)) + b"\r\n")
    assert (await caller.read_answer()).status == 400
