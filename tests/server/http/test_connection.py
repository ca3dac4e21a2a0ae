"""Who is silent, slow, or comes in numbers; and which connection may end when the server does."""

import asyncio
import contextlib
import json
import socket
import ssl
from pathlib import Path
from unittest.mock import Mock

import pytest

from adapter.server.api.paths import CUSTOM_GROUP
from adapter.server.http import connection_server, listener
from tests.support import waiting
from tests.support.clock import ShiftedClock
from tests.support.serving import Certified, Connection, ServerFactory, pod_value

PODS = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/default/pods/%2A/http_requests"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


async def ended(connection: Connection) -> bool:
    """Return whether the server ends the connection, without a word, before the test's patience does."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(1.5):
            return await connection.closed()
    return True


async def test_a_request_in_small_pieces(serve: ServerFactory) -> None:
    served = await serve(head_seconds=0.2)
    connection = await served.connect()
    connection.writer.write(LIVEZ[:-2] + b"X: ")
    closed = asyncio.create_task(ended(connection))
    async with asyncio.timeout(1):
        while not closed.done():
            connection.writer.write(b"x")
            await asyncio.sleep(0.01)
    assert closed.result(), "each piece is progress, and none makes it whole"


@pytest.fixture
def certified(serve: ServerFactory, tmp_path: Path) -> Certified:
    return Certified(serve, tmp_path, ShiftedClock())


AS_BOB = {"X-Remote-User": "bob"}


@pytest.mark.parametrize(
    ("path", "count"), [("/livez", 20), (PODS, 1)], ids=["behind each other", "answered as they arrive"]
)
async def test_a_flood_of_requests_takes_turns_with_others(
    certified: Certified, path: str, count: int
) -> None:
    """Few requests of strangers begin in one turn of the loop.

    Those of a certified connection do not wait for them.
    """
    lines: list[bytes] = []
    served = await certified.start(sink=lines.append)
    assert served.access_log is not None
    served.provider.fresh_until = float("inf")
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    proxy = await served.connect(certified.proxy)
    assert (await proxy.request("/version", headers=AS_BOB)).status == 200
    strangers = [await served.connect() for _ in range(40)]
    for each in strangers:
        assert (await each.request(path)).status == 200
    await served.access_log.flush()
    lines.clear()
    for each in strangers:
        each.writer.write(request * count)
    proxy.writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nX-Remote-User: bob\r\n\r\n")
    for each in (proxy, *strangers * count):
        assert (await each.read_answer()).status == 200
    await served.access_log.flush()
    paths = [json.loads(line)["path"] for line in b"".join(lines).splitlines()]
    assert paths.index("/version") <= 3 * connection_server.REQUESTS_PER_TURN
    assert len(paths) == 1 + 40 * count


async def test_no_request_is_parsed_ahead(serve: ServerFactory) -> None:
    """What is pipelined waits as it came, and the connection is not read."""
    served = await serve()
    release = served.provider.hold()
    connection = await served.connect()
    there = connection.writer.transport.get_extra_info("socket")
    there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 100) for number in range(90))
    count = 300

    request = f"GET {PODS} HTTP/1.1\r\nHost: x\r\n".encode() + lines + b"\r\n"
    connection.writer.write(request)
    await waiting.until(lambda: len(served.provider.questions) == 1)

    async def pour() -> None:
        for _ in range(count):
            connection.writer.write(request)
            await connection.writer.drain()

    pouring = asyncio.create_task(pour())
    taken, _ = await asyncio.wait([pouring], timeout=0.5)
    assert not taken
    release.set()
    for _ in range(1 + count):
        assert (await connection.read_answer()).status == 200
    await pouring


async def test_a_request_without_its_client_keeps_its_place(certified: Certified) -> None:
    """Else connections that are closed again could hold any number of heads."""
    served = await certified.start(most_connections=8, most_uncertified=2)
    left, release = list[str](), asyncio.Event()

    async def hold() -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            left.append("cut")
            raise

    served.provider.before = hold
    for number in range(2):
        gone = await served.connect()
        gone.writer.write(f"GET {PODS}{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await waiting.until(lambda number=number: len(served.provider.questions) == number + 1)  # type: ignore[misc]
        gone.writer.transport.abort()
    await waiting.until(lambda: not served.ends)
    proxy = await served.connect(certified.proxy)
    assert (await proxy.request("/version", headers=AS_BOB)).status == 200
    assert not left, "there is room for those with a certificate"
    assert (await (await served.connect()).request("/livez")).status == 200
    await waiting.until(lambda: left)
    assert left == ["cut"], "the oldest makes room"
    release.set()
    assert 'fastpath_connections_closed_total{reason="limit"} 0.0' in served.monitoring.exposition()


async def test_a_request_ends_with_its_connection_that_is_cut(serve: ServerFactory) -> None:
    """Else what was cut would stay in memory until its question is answered."""
    served = await serve()
    ends: list[type[BaseException]] = []

    async def hold() -> None:
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            ends.append(type(error))
            raise

    served.provider.before = hold
    connection = await served.connect()
    connection.writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await waiting.until(lambda: len(served.provider.questions) == 1)
    (there,) = served.ends
    there.cut("memory")
    assert await ended(connection)
    await waiting.until(lambda: ends == [asyncio.CancelledError])


# --- handshakes


async def test_handshakes_are_bounded(serve: ServerFactory) -> None:
    """The oldest of the address that has the most ends for each further one, and is not one of those
    connected.
    """
    served = await serve(most_handshakes=3)
    other = await asyncio.open_connection("127.0.0.1", served.server.port, local_addr=("127.0.0.2", 0))
    silent = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(5)]
    for reader, _ in silent[:3]:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    exposition = served.monitoring.exposition()
    assert "fastpath_connection_handshakes 3.0" in exposition
    assert 'fastpath_connections_closed_total{reason="handshake"} 3.0' in exposition
    assert (await served.get("/livez")).status == 200
    assert not other[0].at_eof()
    for _, writer in (other, *silent):
        writer.transport.abort()
    await waiting.until(lambda: "fastpath_connection_handshakes 0.0" in served.monitoring.exposition())


async def test_a_handshake_takes_no_longer(serve: ServerFactory) -> None:
    served = await serve(handshake_seconds=0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    await waiting.until(lambda: "fastpath_connection_handshakes 0.0" in served.monitoring.exposition())
    assert 'fastpath_connections_closed_total{reason="handshake"} 1.0' in served.monitoring.exposition()
    writer.close()


async def test_headers_are_bounded_together(serve: ServerFactory) -> None:
    """Each may be long, and there may be many, but not both."""
    served = await serve()
    fits = await served.connect()
    line = b"X-%d: " + b"x" * 14_000 + b"\r\n"
    fits.writer.write(LIVEZ[:-2] + b"".join(line % number for number in range(2)) + b"\r\n")
    assert (await fits.read_answer()).status == 200
    fits.writer.write(LIVEZ)
    assert (await fits.read_answer()).status == 200
    flood = await served.connect()
    flood.writer.write(LIVEZ[:-2])
    closed = asyncio.create_task(ended(flood))
    for number in range(100):
        if closed.done():
            break
        flood.writer.write(line % number)
        await asyncio.sleep(0)
    assert await closed
    assert 'fastpath_connections_closed_total{reason="headers"} 1.0' in served.monitoring.exposition()
    assert len(served.ends) == 1


async def test_who_does_not_take_an_answer_is_given_up(serve: ServerFactory) -> None:
    """The first that is too much for the buffers of the system stands in memory for as long as idle
    connections live.
    """
    served = await serve(unread_seconds=0.2)
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    served.provider.items = tuple(pod_value(f"web-{number}", number) for number in range(10_000))
    connection = await served.connect()
    transport = connection.writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    connection.writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 8)
    await waiting.until(lambda: bool(served.ends) and served.ends[0].writing_paused)
    await waiting.until(lambda: not served.ends)
    exposition = served.monitoring.exposition()
    assert 'fastpath_connections_closed_total{reason="unread"} 1.0' in exposition
    assert "\nfastpath_connections 0.0" in exposition
    transport.abort()
    reader = await served.connect()
    for _ in range(8):
        assert len((await reader.request(PODS)).json["items"]) == 10_000
    assert 'fastpath_connections_closed_total{reason="unread"} 1.0' in served.monitoring.exposition()
    assert "\nfastpath_connections 1.0" in served.monitoring.exposition()


# --- the end


async def test_what_has_arrived_is_answered_at_the_end(serve: ServerFactory) -> None:
    served = await serve(shutdown_delay=0.1)
    connection = await served.connect()
    assert (await connection.request("/livez")).status == 200
    await waiting.until(lambda: served.ends[0].may_end)
    connection.writer.write(LIVEZ)
    assert served.ends[0].waits, "it was not read yet"
    assert not served.ends[0].may_end
    assert (await connection.read_answer()).status == 200
    await waiting.until(lambda: served.ends[0].may_end)


async def test_a_connection_that_its_client_closes_does_not_stop_the_end(
    serve: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The TLS layer has no socket any more one turn of the event loop before the connection is lost."""
    served = await serve(shutdown_delay=0.1)
    connection = await served.connect()
    assert (await connection.request("/livez")).status == 200
    (closing,) = served.ends
    await waiting.until(lambda: closing.waits)
    transport = Mock(wraps=closing.transport, get_extra_info=lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(closing, "transport", transport)
        assert closing.may_end


async def test_who_waits_to_be_accepted_is_heard_at_the_end(serve: ServerFactory) -> None:
    """The system has made such a connection already, and closing the listener would cut it."""
    served = await serve()
    with socket.create_connection(("127.0.0.1", served.server.port)) as plain:
        plain.setblocking(False)
        stopping = asyncio.create_task(served.server.stop())
        await waiting.until(lambda: not served.server.listening)
        reader, writer = await asyncio.open_connection(
            sock=plain.dup(), ssl=served.trust, server_hostname="localhost"
        )
        answer = await Connection(reader, writer).request("/livez")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        writer.close()
        await stopping


def test_a_closed_descriptor_has_nothing_to_read() -> None:
    assert not listener.is_readable(-1)


async def test_who_never_says_farewell_does_not_hold_up_the_end(serve: ServerFactory) -> None:
    served = await serve()

    def ask() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", served.server.port))
        secured = served.trust.wrap_socket(plain, server_hostname="localhost")
        secured.sendall(LIVEZ[:-2] + b"Connection: close\r\n\r\n")
        assert secured.recv(65536).startswith(b"HTTP/1.1 200")
        return secured

    with await asyncio.to_thread(ask):
        async with asyncio.timeout(0.5):
            await served.server.stop()
