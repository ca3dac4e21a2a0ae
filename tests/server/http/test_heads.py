"""Request heads: however the bytes of requests are divided, and how the long ones share a budget."""

import asyncio
import functools
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.server.http import budgets
from adapter.server.http.budgets import LongHeads
from adapter.server.http.connection_server import ConnectionServer, ServerLimits
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import EncodedResponse, Later, Response
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
    body = draw(st.binary(max_size=30) | st.just(b"\r\n\r\nGET / HTTP/1.1")) if method == "POST" else b""
    if method == "POST" and draw(st.booleans()):
        lines.append("Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (body, b"\r\n\r\n") if chunk)
        body += b"0\r\n" + draw(st.sampled_from([b"", b"X: y\r\n"])) + b"\r\n"
    elif method == "POST":
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

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None: ...
    def abort(self) -> None: ...


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition` holds, which takes few turns of the event loop."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never holds")


class Side:
    """The server's end of a connection whose requests are answered in `turns` turns of the event loop."""

    def __init__(self, turns: int, *, answers_now: bool = False) -> None:
        self._turns = turns
        self.transport = Transport()
        self._answers_now = answers_now
        self._begun = 0
        server = ConnectionServer(self._begin, Monitoring(), lambda _: None, ServerLimits())
        self.connection = server()
        self.connection.connection_made(self.transport)

    def _begin(self, request: HTTPRequest) -> Response | Later:
        assert self._begun == self.answered, "no request is parsed ahead"
        self._begun += 1
        return Response(request, _OK, "") if self._answers_now else functools.partial(self._answer, request)

    async def _answer(self, request: HTTPRequest) -> Response:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        await until(request.body.is_eof)
        return Response(request, _OK, "")

    @property
    def expects_head(self) -> bool:
        timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]  # of asyncio's own loops
        return any(timer._args == ("timeout",) and not timer.cancelled() for timer in timers)

    @property
    def answered(self) -> int:
        return self.transport.written.count(b"HTTP/1.1 200 OK")

    async def send(self, data: bytes) -> None:
        """Hand over bytes once the connection is read."""
        await until(lambda: self.transport.is_read)
        self.connection.data_received(data)


@given(
    sent=st.lists(_requests(), max_size=8),
    cuts=st.sets(st.integers(1, 2000)),
    left=st.integers(0, 40),
    turns=st.integers(0, 3),
)
def test_each_request_is_answered_and_the_rest_is_known(
    sent: list[bytes], cuts: set[int], left: int, turns: int
) -> None:
    """However the bytes are divided: only the beginning of the last head is unfinished, never a body."""

    async def play() -> None:
        side = Side(turns)
        last = b"GET /last HTTP/1.1\r\nHost: somewhere\r\nX: y\r\n"[:left]
        stream = b"".join(sent) + last
        places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        for start, end in itertools.pairwise(places):
            await side.send(stream[start:end])
        await until(lambda: side.answered == len(sent) and side.connection.waits)
        await asyncio.sleep(0)  # what arrived behind the last one is parsed
        assert side.connection.may_end == (bool(sent) and not last)
        assert side.expects_head == (bool(last) or not sent)
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
        await until(lambda side=side: side.answered == 2 + bool(first) and side.connection.waits)  # type: ignore[misc]
        side.connection.connection_lost(None)


async def test_blanks_between_requests_begin_none() -> None:
    side = Side(0)
    for number in range(1, 4):
        await side.send(b"GET / HTTP/1.1\r\nHost:    x   \r\nX:y\r\n\r\n\r\n")
        await until(lambda number=number: side.answered == number)  # type: ignore[misc]
        await until(lambda: side.connection.may_end)
        assert not side.expects_head
    side.connection.connection_lost(None)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\r", b"\r\n\r"])
async def test_a_head_ends_with_an_empty_line_and_nothing_else(end: bytes) -> None:
    """Else the parser would take more than one request at a time."""
    side = Side(0)
    await side.send(b"GET / HTTP/1.1\r\nHost: x" + end + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert side.transport.written.startswith(b"HTTP/1.0 400 ")
    assert not side.connection.is_open


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
