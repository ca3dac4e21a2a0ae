"""The account of request heads, compared with aiohttp's parser on the same bytes; and the shared budget."""

import asyncio
import dataclasses
import itertools
from collections import deque
from typing import Any

import pytest
from aiohttp.http import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from adapter.server.http import budgets
from adapter.server.http.budgets import HeadAccount, HeadBudget

_NAME = st.from_regex(r"[A-Z][a-z]{0,8}", fullmatch=True).map(lambda name: f"X-{name}")
_VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40) | st.just(
    "\U0001f600 a"
)
_HEADERS = st.lists(st.tuples(_NAME, _VALUE), max_size=6)


@dataclasses.dataclass
class Sent:
    """A request as it is sent, and the bytes of its head."""

    head: bytes
    body: bytes


@st.composite
def _requests(draw: st.DrawFn) -> Sent:
    method = draw(st.sampled_from(["GET", "POST"]))
    lines = [f"{method} /{draw(st.from_regex('[a-z]{0,20}', fullmatch=True))} HTTP/1.1", "Host: x"]
    lines += [f"{name}: {value}" for name, value in draw(_HEADERS)]
    body = draw(st.binary(max_size=30)) if method == "POST" else b""
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return Sent("\r\n".join([*lines, "", ""]).encode(), body)


class Side:
    """A protocol as the parser sees it, which reads bodies as they come."""

    def pause_reading(self) -> None: ...
    def resume_reading(self, resume_parser: bool = True) -> None: ...  # noqa: FBT001, FBT002 - aiohttp's signature


def _parser(queued: int = 0) -> Any:
    side: Any = Side()
    return HttpRequestParser(
        side,
        asyncio.get_running_loop(),
        2**16,
        max_line_size=2**16,
        max_field_size=2**16,
        max_headers=1000,
        payload_exception=ValueError,
        auto_decompress=False,
        max_msg_queue_size=queued,
    )


@given(sent=st.lists(_requests(), max_size=8), cuts=st.sets(st.integers(1, 2000)), left=st.integers(0, 40))
def test_what_is_unfinished(sent: list[Sent], cuts: set[int], left: int) -> None:
    """However the bytes are divided, only the beginning of the last head is unfinished, never a body."""

    async def play() -> None:
        parser, account = _parser(), HeadAccount()
        last = b"GET /last HTTP/1.1\r\nHost: somewhere\r\nX: y\r\n"[:left]
        stream = b"".join(each.head + each.body for each in sent) + last
        places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        answered = 0
        for start, end in itertools.pairwise(places):
            data = stream[start:end]
            parsed, *_ = parser.feed_data(data)
            account.receive(data, parsed, is_paused=False)
            answered += len(parsed)
        assert answered == len(sent)
        assert account.unfinished == len(last)
        assert account.weight >= budgets.BYTE_WEIGHT * (len(last) + sum(len(each.head) for each in sent))
        for _ in sent:
            account.answered()
        assert account.weight == budgets.BYTE_WEIGHT * len(last) + budgets.HEADER_WEIGHT * last.count(b"\n")

    asyncio.run(play())


@given(sent=st.lists(_requests(), min_size=1, max_size=30))
def test_what_is_not_parsed_yet_counts_as_it_came(sent: list[Sent]) -> None:
    async def play() -> None:
        parser, account, queue = _parser(queued=2), HeadAccount(), deque[Any]()
        stream = b"".join(each.head + each.body for each in sent)
        data, answered = stream, 0
        while answered < len(sent):
            parsed, *_ = parser.feed_data(data)
            queue.extend(parsed)
            account.receive(data, parsed, is_paused=len(queue) >= 2)
            assert account.unfinished <= len(stream)
            queue.popleft()
            parser.message_consumed()
            account.answered()
            answered, data = answered + 1, b""
        assert (account.unfinished, account.weight) == (0, 0)

    asyncio.run(play())


async def test_blanks_that_the_parser_strips_do_not_stay() -> None:
    parser, account = _parser(), HeadAccount()
    for _ in range(3):
        data = b"GET / HTTP/1.1\r\nHost:    x   \r\nX:y\r\n\r\n"
        account.receive(data, parser.feed_data(data)[0], is_paused=False)
        account.answered()
    assert (account.unfinished, account.weight) == (0, 0)


async def test_an_error_is_no_head() -> None:
    account = HeadAccount()
    error: Any = object()
    assert account.receive(b"x" * 100_000, [(error, error)], is_paused=False) == 0
    assert (account.unfinished, account.weight) == (0, 0)


async def test_the_largest_head_is_reported() -> None:
    parser, account = _parser(), HeadAccount()
    small, large = (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * size + b"\r\n\r\n" for size in (10, 1000))
    data = small + large + b"GET"
    assert account.receive(data, parser.feed_data(data)[0], is_paused=False) == len(large)
    assert account.receive(b"x" * 2000, (), is_paused=False) == 2003


class Holder:
    """A connection with heads of a given weight."""

    def __init__(self, address: str, weight: int, *, is_certified: bool = False) -> None:
        self.heads: Any = self
        self.address = address
        self.weight = weight
        self.is_certified = is_certified
        self.is_open = True


class Budgeted:
    """A budget over connections that end at once when they are cut."""

    def __init__(self, most: int) -> None:
        self.cut: list[Holder] = []
        self.budget = HeadBudget(most + 10 * budgets.SMALL_HEADS, 10, self._end)

    def hold(self, *holders: Holder) -> None:
        for each in holders:
            each.weight += budgets.SMALL_HEADS
            self.budget.note(each)

    def _end(self, holder: Holder) -> None:
        self.cut.append(holder)
        holder.is_open = False
        holder.weight = 0
        self.budget.note(holder)


def test_the_largest_of_the_largest_address_goes() -> None:
    budgeted = Budgeted(100)
    alone, small, large = Holder("a", 45), Holder("b", 20), Holder("b", 30)
    budgeted.hold(alone, small, large)
    assert budgeted.cut == []
    budgeted.hold(Holder("c", 6))
    assert budgeted.cut == [large]


def test_small_heads_are_never_cut() -> None:
    budgeted = Budgeted(0)
    budgeted.hold(*(Holder("a", 0) for _ in range(100)))
    assert budgeted.cut == []
    budgeted.hold(one := Holder("a", 1))
    assert budgeted.cut == [one]


def test_certified_connections_go_last() -> None:
    budgeted = Budgeted(100)
    front_proxy, stranger = Holder("a", 90, is_certified=True), Holder("b", 5)
    budgeted.hold(stranger, front_proxy)
    budgeted.hold(other := Holder("c", 8, is_certified=True))
    assert budgeted.cut == [stranger]
    budgeted.hold(Holder("c", 7, is_certified=True))
    assert budgeted.cut == [stranger, front_proxy]
    assert other.is_open


def test_requests_of_connections_that_are_gone_cost_no_certified_one() -> None:
    budgeted = Budgeted(100)
    gone = Holder("a", 95)
    budgeted.hold(gone)
    gone.is_open = False
    front_proxy, stranger = Holder("b", 60, is_certified=True), Holder("c", 1)
    budgeted.hold(front_proxy)
    assert budgeted.cut == []
    budgeted.hold(stranger)
    assert budgeted.cut == [stranger]


@pytest.mark.parametrize(
    "limits", [budgets.UNCERTIFIED_HEADS, budgets.CERTIFIED_HEADS], ids=["uncertified", "certified"]
)
def test_one_connection_fits_the_budget(limits: budgets.HeadLimits) -> None:
    """A single head within its limits is never too much."""
    weight = budgets.BYTE_WEIGHT * limits.total + budgets.HEADER_WEIGHT * limits.headers
    assert weight < budgets.HEADS_BYTES // 4
