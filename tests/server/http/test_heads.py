"""Request heads: however the bytes of requests are divided, and how the long ones share a budget."""

import asyncio
import itertools
from collections.abc import Callable

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from adapter.server.http import budgets
from adapter.server.http.budgets import LongHeads
from adapter.server.http.connection import ClientConnection
from adapter.server.http.fair_queue import FairQueue
from adapter.server.http.responses import EncodedResponse, Response
from adapter.telemetry.metrics import Monitoring
from tests.support.serving import Caller

_NAME = st.from_regex(r"[A-Z][a-z]{0,8}", fullmatch=True).map(lambda name: f"X-{name}")
_VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40) | st.just(
    "\U0001f600 a"
)
_OK = EncodedResponse(200, b"", "")
_HEADERS = st.lists(st.tuples(_NAME, _VALUE), max_size=6)


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST"]))
    lines = [f"{method} /{draw(st.from_regex('[a-z]{0,20}', fullmatch=True))} HTTP/1.1", "Host: x"]
    lines += [f"{name}: {value}" for name, value in draw(_HEADERS)]
    body = draw(st.binary(max_size=30)) if method == "POST" else b""
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Transport(asyncio.Transport):
    """A transport that keeps what is written, and says whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None: ...
    def abort(self) -> None: ...


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition` holds, which takes few turns of the event loop."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never holds")


_CUTS = Monitoring().connections_closed


class Side:
    """The server's end of a connection whose requests are answered in `turns` turns of the event loop."""

    def __init__(self, turns: int, *, answers_now: bool = False) -> None:
        self._turns = turns
        self.transport = Transport()
        self.connection = ClientConnection(
            web.Server(self._answer),
            loop=asyncio.get_running_loop(),
            cuts=_CUTS,
            long_heads=LongHeads(budgets.LONG_HEADS_BYTES),
            judge=lambda _: None,
            turns=FairQueue(asyncio.get_running_loop(), 8),
            answer_now=lambda request: Response(request, _OK, "") if answers_now else None,
            head_seconds=None,
            unread_seconds=60,
            access_log=None,
            lingering_time=0,
            auto_decompress=False,
        )
        self.connection.connection_made(self.transport)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        await until(request.content.is_eof)
        return web.Response(text=request.path)

    async def send(self, data: bytes) -> None:
        """Hand over bytes once the connection is read."""
        await until(lambda: self.transport.is_read)
        self.connection.data_received(data)
        assert len(self.connection._messages) <= 1, "no request is parsed ahead"


@given(
    sent=st.lists(_requests(), max_size=8),
    cuts=st.sets(st.integers(1, 2000)),
    left=st.integers(0, 40),
    turns=st.integers(0, 3),
)
def test_each_request_is_answered_and_the_rest_is_known(
    sent: list[bytes], cuts: set[int], left: int, turns: int
) -> None:
    """However the bytes are divided: only the beginning of the last head is unfinished, never a body.

    A beginning that came in one piece with a body before it may be noticed with its next bytes only.
    """

    async def play() -> None:
        side = Side(turns)
        last = b"GET /last HTTP/1.1\r\nHost: somewhere\r\nX: y\r\n"[:left]
        stream = b"".join(sent) + last
        places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        for start, end in itertools.pairwise(places):
            await side.send(stream[start:end])
        await until(lambda: side.transport.written.count(b"HTTP/1.1 200 OK") == len(sent))
        await until(lambda: side.connection.waits)
        unfinished = side.connection._unfinished
        has_body = any(each.startswith(b"POST") for each in sent)
        assert unfinished == len(last) or (has_body and unfinished < len(last))
        assert (side.connection._head_deadline is not None) == bool(unfinished or not sent)
        assert side.transport.is_read
        side.connection.connection_lost(None)

    asyncio.run(play())


@pytest.mark.parametrize("answers_now", [False, True])
@pytest.mark.parametrize("first", [b"", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"])
async def test_requests_behind_each_other_are_answered_wherever_they_are_cut(
    first: bytes,
    answers_now: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    stream = first + b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    for cut in range(1, len(stream)):
        side = Side(0, answers_now=answers_now)
        await side.send(stream[:cut])
        await side.send(stream[cut:])
        await until(lambda side=side: side.transport.written.count(b" 200 OK") == 2 + bool(first))  # type: ignore[misc]
        await until(lambda side=side: side.connection.waits)  # type: ignore[misc]
        side.connection.connection_lost(None)


async def test_blanks_that_the_parser_strips_do_not_stay() -> None:
    side = Side(0)
    for number in range(1, 4):
        await side.send(b"GET / HTTP/1.1\r\nHost:    x   \r\nX:y\r\n\r\n\r\n")
        await until(lambda number=number: side.transport.written.count(b" 200 OK") == number)  # type: ignore[misc]
        assert side.connection._unfinished == 0
    side.connection.connection_lost(None)


# --- long heads


def test_the_longest_head_is_cut() -> None:
    heads = LongHeads(100)
    short, long, other = Caller(), Caller(), Caller()
    heads.hold(short, 30)
    heads.hold(long, 50)
    heads.hold(other, 20)
    heads.hold(short, 10)  # the one that is parsed is longer
    assert [each.reasons for each in (short, long, other)] == [[], [], []]
    heads.hold(other, 21)
    assert [each.reasons for each in (short, long, other)] == [[], ["memory"], []]


def test_a_released_head_makes_room() -> None:
    heads = LongHeads(100)
    first, second = Caller(), Caller()
    heads.hold(first, 60)
    heads.release(first)
    heads.release(first)
    heads.hold(second, 100)
    assert [first.reasons, second.reasons] == [[], []]


def test_one_long_head_fits_the_budget() -> None:
    assert budgets.CERTIFIED_HEADS.memory < budgets.LONG_HEADS_BYTES // 4
