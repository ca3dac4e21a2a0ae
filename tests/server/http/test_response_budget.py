"""Answers under way share one budget: large unread ones give way, and small ones are never refused."""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from adapter import errors
from adapter.model.metrics import ExternalValue
from adapter.server.api import encoding
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from adapter.server.http.budgets import SMALL_ANSWER, TAKING_SECONDS, Charge, ResponseBudget
from adapter.server.http.connection import ClientConnection
from adapter.server.http.handler import HandlerLimits
from tests.support import waiting
from tests.support.clock import FakeClock, ShiftedClock
from tests.support.serving import Caller, Certified, Connection, Served, ServerFactory, pod_value

KIB, MIB = 1024, 1024 * 1024
PODS = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/default/pods/%2A/http_requests"
QUEUE = f"/apis/{EXTERNAL_GROUP}/v1beta1/namespaces/default/queue_length"
AS_BOB = {"X-Remote-User": "bob"}
BIG = 1.5 * MIB
"""About the bytes of a large answer of these tests. Twice as many are needed for it while it is joined."""


# --- the budget alone


def make(most: int) -> tuple[ResponseBudget, FakeClock]:
    clock = FakeClock()
    return ResponseBudget(most, clock.monotonic), clock


def send(budget: ResponseBudget, caller: Caller, size: int, *, is_page: bool = False) -> None:
    budget.send(caller, bytes(size), is_page=is_page)


def test_small_answers_are_not_counted() -> None:
    budget, _ = make(0)
    for _ in range(100):
        send(budget, Caller(), SMALL_ANSWER)
    assert budget.used == 0
    with pytest.raises(errors.TooManyRequestsError) as caught:
        send(budget, Caller(), SMALL_ANSWER + 1)
    assert caught.value.limit == "responses"
    assert budget.used == 0


async def test_a_small_answer_is_made_where_nothing_is_left() -> None:
    budget, _ = make(0)
    with closing(Charge(budget, Caller())) as making:
        assert len(await encoding.join([bytes(SMALL_ANSWER // 2)] * 2, making)) == SMALL_ANSWER
    with closing(Charge(budget, Caller())) as making, pytest.raises(errors.TooManyRequestsError):
        await encoding.join([bytes(SMALL_ANSWER // 2)] * 3, making)


def test_what_is_closed_is_given_back_once() -> None:
    budget, _ = make(8 * MIB)
    with closing(Charge(budget, Caller(is_certified=True))) as charge:
        charge.grow(MIB)
        charge.grow(MIB)
        assert budget.used == 2 * MIB - SMALL_ANSWER
        charge.resize(MIB)
        assert budget.used == MIB - SMALL_ANSWER
        charge.close()
        charge.grow(MIB)
        assert budget.used == 0
    assert budget.used == 0


def test_connections_without_a_certificate_share_half_and_documents_have_a_reserve() -> None:
    budget, _ = make(8 * MIB)
    send(budget, Caller(), 3 * MIB)
    with pytest.raises(errors.TooManyRequestsError):
        send(budget, Caller("b"), MIB)
    send(budget, Caller(is_certified=True), 4 * MIB)
    with pytest.raises(errors.TooManyRequestsError):
        send(budget, Caller(is_certified=True), MIB)
    send(budget, Caller(is_certified=True), MIB, is_page=True)


def test_the_largest_of_the_address_with_the_most_is_cut() -> None:
    budget, clock = make(16 * MIB)
    one = Caller("b")
    several = [Caller("a"), Caller("a"), Caller("a")]
    proxy = Caller("c", is_certified=True)
    send(budget, proxy, 6 * MIB)
    send(budget, one, 2 * MIB)
    for caller, size in zip(several, (1, 2, 1), strict=True):
        send(budget, caller, size * MIB)
    with pytest.raises(errors.TooManyRequestsError):
        send(budget, Caller("d"), 2 * MIB)  # they have had no time to take theirs
    clock.advance(TAKING_SECONDS)
    send(budget, Caller("d"), 2 * MIB)
    assert [each.reasons for each in (one, *several, proxy)] == [[], [], ["unread"], [], []]


def test_a_certified_answer_ends_for_another_and_never_for_one_without() -> None:
    budget, clock = make(8 * MIB)
    unread, reading = Caller(is_certified=True), Caller(is_certified=True, writing_paused=False)
    send(budget, unread, 3 * MIB)
    send(budget, reading, 4 * MIB)
    clock.advance(TAKING_SECONDS)
    with pytest.raises(errors.TooManyRequestsError):
        send(budget, Caller(), 2 * MIB)
    assert unread.reasons == []
    send(budget, Caller(is_certified=True), 2 * MIB)
    assert (unread.reasons, reading.reasons) == (["unread"], [])
    with pytest.raises(errors.TooManyRequestsError):
        send(budget, Caller(is_certified=True), 2 * MIB)


async def test_bodies_that_are_joined_at_a_time_stay_within_the_budget() -> None:
    budget, most = ResponseBudget(4 * MIB, FakeClock().monotonic), 0
    refused = made = 0

    def pieces() -> Any:
        nonlocal most
        for _ in range(50):
            most = max(most, budget.used)
            yield bytes(encoding.PIECE_BYTES)

    async def encode() -> None:
        nonlocal refused, made
        with closing(Charge(budget, Caller(is_certified=True))) as making:
            try:
                body = await encoding.join(pieces(), making)
            except errors.TooManyRequestsError:
                refused += 1
                return
            made += 1
            assert len(body) == 50 * encoding.PIECE_BYTES
            assert making.size == len(body)

    await asyncio.gather(*(encode() for _ in range(400)))
    assert (made > 0, refused > 0, made + refused) == (True, True, 400)
    assert 2 * MIB < most <= 4 * MIB
    assert budget.used == 0


# --- over connections


def behind(served: Served) -> list[ClientConnection]:
    return served.server._connections.open_connections()


def port_of(connection: ClientConnection) -> int:
    """Return the port of the other end."""
    assert connection.transport is not None
    port: int = connection.transport.get_extra_info("peername")[1]
    return port


def used(served: Served) -> float:
    found = re.search(r"^fastpath_response_bytes (\S+)$", served.monitoring.exposition(), re.MULTILINE)
    assert found is not None
    return float(found[1])


async def start(serve: Callable[..., Awaitable[Served]], answers: int) -> Served:
    """Start a server with large answers to custom questions, and one small external one."""
    served = await serve(limits=HandlerLimits(answers_bytes=answers))
    served.provider.items = tuple(pod_value(f"web-{number}", number) for number in range(8_000))
    served.provider.external_items = (ExternalValue("queue_length", {}, 1000, 1_700_000_000.0),)
    return served


async def leave_unread(connection: Connection, served: Served, headers: str = "") -> None:
    """Ask for a large answer and take nothing of it, until the server waits for that."""
    transport = connection.writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * KIB
    )  # else it may grow
    port = transport.get_extra_info("sockname")[1]
    connection.writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
    await waiting.until(lambda: any(port_of(each) == port and each.writing_paused for each in behind(served)))


async def test_the_budget_is_given_back_when_an_answer_is_read_or_its_connection_ends(
    serve: ServerFactory,
) -> None:
    served = await start(serve, 64 * MIB)
    connections = [await served.connect() for _ in range(3)]
    for each in connections:
        await leave_unread(each, served)
    assert 2.8 * BIG < used(served) < 3 * BIG
    whole = used(served)
    transport = connections[0].writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.resume_reading()
    assert len((await connections[0].read_answer()).json["items"]) == 8_000
    await waiting.until(lambda: used(served) == round(2 * whole / 3))
    connections[1].writer.transport.abort()
    await waiting.until(lambda: used(served) == round(whole / 3))
    connections[2].writer.transport.abort()
    await waiting.until(lambda: used(served) == 0)
    assert (await connections[0].request(PODS)).status == 200
    await waiting.until(lambda: used(served) == 0)


async def test_a_connection_that_waits_holds_no_copy_of_its_answer(serve: ServerFactory) -> None:
    served = await start(serve, 64 * MIB)
    await leave_unread(await served.connect(), served)
    (connection,) = behind(served)
    transport: Any = connection.transport
    assert transport.get_write_buffer_size() < 64 * KIB
    assert transport._ssl_protocol._transport.get_write_buffer_size() < 128 * KIB


async def test_a_question_that_does_not_fit_is_refused_and_small_ones_are_not(serve: ServerFactory) -> None:
    served = await start(serve, 8 * MIB)
    unread = await served.connect()
    await leave_unread(unread, served)
    refused = await served.get(PODS)
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert 'fastpath_requests_refused_total{limit="responses"} 1.0' in served.monitoring.exposition()
    assert (await served.get(QUEUE)).status == 200
    assert (await served.get("/livez")).status == 200
    assert (await served.get(f"/apis/{CUSTOM_GROUP}/v1beta2")).status == 200
    served.clock.advance(TAKING_SECONDS)
    assert len((await served.get(PODS)).json["items"]) == 8_000
    assert 'fastpath_connections_closed_total{reason="unread"} 1.0' in served.monitoring.exposition()
    await waiting.until(lambda: used(served) == 0)


class StandingClock(ShiftedClock):
    """Certificates are valid now, and no time passes but by the test."""

    def monotonic(self) -> float:
        return 1000.0 + self.monotonic_shift


async def test_unread_answers_do_not_keep_out_the_front_proxy(serve: ServerFactory, tmp_path: Path) -> None:
    clock = StandingClock()
    certified = Certified(serve, tmp_path, clock)
    context, served = certified.proxy, await start(certified.start, 12 * MIB)
    strangers = [await served.connect() for _ in range(2)]
    for each in strangers:
        await leave_unread(each, served)
    late = await served.connect()
    assert (await late.request(PODS)).status == 429, "half is for those with a certificate"
    late.writer.transport.abort()
    pooled = await served.connect(context)
    for _ in range(5):
        assert len((await pooled.request(PODS, headers=AS_BOB)).json["items"]) == 8_000
    # a tenant behind the front proxy does not read either
    for _ in range(4):
        await leave_unread(await served.connect(context), served, "X-Remote-User: eve\r\n")
    assert (await pooled.request(PODS, headers=AS_BOB)).status == 429
    assert (await pooled.request(QUEUE, headers=AS_BOB)).status == 200
    clock.advance(TAKING_SECONDS)
    left, port = [], pooled.writer.transport.get_extra_info("sockname")[1]
    for _ in range(3):  # each time one connection ends, those without a certificate first
        assert len((await pooled.request(PODS, headers=AS_BOB)).json["items"]) == 8_000
        await waiting.until(lambda: any(port_of(each) == port and each.waits for each in behind(served)))
        left.append(sorted(each.is_certified for each in behind(served)))
        await leave_unread(await served.connect(context), served, "X-Remote-User: eve\r\n")
    assert left == [[False, *(5 * [True])], 6 * [True], 6 * [True]]


async def test_the_forms_of_a_large_answer(serve: ServerFactory) -> None:
    served = await start(serve, 64 * MIB)
    plain = await served.get(PODS)
    assert plain.headers["content-length"] == str(len(plain.body))
    assert (await served.get(PODS, "HEAD")).headers["content-length"] == str(len(plain.body))
    assert (await served.get(f"{PODS}?pretty=1")).json == plain.json
    packed = await served.get(PODS, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    await waiting.until(lambda: used(served) == 0)
    assert (await served.get(f"{PODS}?timeout=30s")).json == plain.json
    await waiting.until(lambda: used(served) == 0)
