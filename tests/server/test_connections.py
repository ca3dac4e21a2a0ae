"""Who is silent, slow, or comes in numbers; and which connection may end when the server does."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from adapter.monitoring import FaultLog, Monitoring
from adapter.server import connections, serving
from adapter.server.api import CUSTOM_GROUP
from adapter.server.connections import ClientConnection
from adapter.server.truststore import TrustStore
from tests.support import waiting
from tests.support.certificates import Signer, config_map
from tests.support.clock import ShiftedClock
from tests.support.serving import Connection, Served, ServerFactory, pod_value

PODS = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/default/pods/%2A/http_requests"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def behind(served: Served) -> list[ClientConnection]:
    """Return the server's ends of the open connections."""
    return served.server._connections.open_connections()


async def ended(connection: Connection) -> bool:
    """Return whether the server ends the connection, without a word, before the test's patience does."""
    with contextlib.suppress(ConnectionError):
        return await connection.closed()
    return True


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nX: "], ids=["nothing", "the beginning"])
async def test_a_request_has_to_come(serve: ServerFactory, sent: bytes) -> None:
    served = await serve(head_seconds=0.1)
    connection = await served.connect()
    connection.writer.write(sent)
    assert await ended(connection)


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


async def test_who_has_asked_may_be_silent(serve: ServerFactory) -> None:
    served = await serve(head_seconds=0.1)
    connection = await served.connect()
    for _ in range(2):
        assert (await connection.request("/livez")).status == 200
        await asyncio.sleep(0.15)
    connection.writer.write(LIVEZ[:-2])
    assert await ended(connection), "what is begun has to become whole"


async def test_an_answer_may_take_longer_than_a_request(serve: ServerFactory) -> None:
    served = await serve(head_seconds=0.05)

    async def hold() -> None:
        await asyncio.sleep(0.15)

    served.provider.before = hold
    connection = await served.connect()
    connection.writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + LIVEZ[:9])
    assert (await connection.read_answer()).status == 200
    connection.writer.write(LIVEZ[9:])
    assert (await connection.read_answer()).status == 200


async def test_the_oldest_stranger_makes_room(serve: ServerFactory, tmp_path: Path) -> None:
    clients, clock = Signer("kubernetes"), ShiftedClock()
    believed = TrustStore(FaultLog(Monitoring(), clock))
    believed.adopt_config_map(config_map(Signer("front-proxy-ca").pem, clients.pem))
    served = await serve(believed=believed, clock=clock, most_connections=4)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(clients.issue("alice").write(tmp_path))
    alice = await served.connect(context)
    assert (await alice.request("/version")).status == 200
    strangers = [await served.connect() for _ in range(3)]
    assert (await strangers[0].request("/livez")).status == 200
    flood = [await served.connect() for _ in range(2)]
    assert [await ended(each) for each in strangers[:2]] == [True, True]
    for each in (alice, strangers[2], *flood):
        assert (await each.request("/livez")).status == 200
    assert len(behind(served)) == 4


async def test_without_an_idle_one_nobody_comes_in(serve: ServerFactory) -> None:
    served = await serve(most_connections=2)
    release, busy = asyncio.Event(), [await served.connect() for _ in range(2)]

    async def hold() -> None:
        await release.wait()

    served.provider.before = hold
    for each in busy:
        each.writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await waiting.until(lambda: len(served.provider.questions) == 2)
    late = await served.connect()
    assert await ended(late)
    release.set()
    assert [(await each.read_answer()).status for each in busy] == [200, 200]
    assert (await (await served.connect()).request("/livez")).status == 200


async def test_headers_are_bounded_together(serve: ServerFactory) -> None:
    """Each may be long, and there may be many, but not both."""
    served = await serve()
    fits = await served.connect()
    line = b"X-%d: " + b"x" * 60_000 + b"\r\n"
    fits.writer.write(LIVEZ[:-2] + b"".join(line % number for number in range(10)) + b"\r\n")
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
    assert 'fastpath_connections_cut_total{reason="headers"} 1.0' in served.monitoring.exposition()
    assert len(behind(served)) == 1


async def test_who_does_not_take_an_answer_is_given_up(serve: ServerFactory) -> None:
    """The first that is too much for the buffers of the system stands in memory for as long as idle connections live."""
    served = await serve(unread_seconds=0.2)
    served.provider.fresh_until = served.clock.monotonic() + 1000.0
    served.provider.items = tuple(pod_value(f"web-{number}", number) for number in range(10_000))
    connection = await served.connect()
    transport = connection.writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    connection.writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 8)
    await waiting.until(lambda: bool(behind(served)) and behind(served)[0].writing_paused)
    await waiting.until(lambda: not behind(served))
    exposition = served.monitoring.exposition()
    assert 'fastpath_connections_cut_total{reason="unread"} 1.0' in exposition
    assert "\nfastpath_connections 0.0" in exposition
    transport.abort()
    reader = await served.connect()
    for _ in range(8):
        assert len((await reader.request(PODS)).json["items"]) == 10_000
    assert 'fastpath_connections_cut_total{reason="unread"} 1.0' in served.monitoring.exposition()
    assert "\nfastpath_connections 1.0" in served.monitoring.exposition()


# -- the end ----------------------------------------------------------------------------------------------------------


async def test_what_has_arrived_is_answered_at_the_end(serve: ServerFactory) -> None:
    served = await serve(shutdown_delay=0.1)
    connection = await served.connect()
    assert (await connection.request("/livez")).status == 200
    await waiting.until(lambda: behind(served)[0].may_end)
    connection.writer.write(LIVEZ)
    assert behind(served)[0].waits, "it was not read yet"
    assert not behind(served)[0].may_end
    assert (await connection.read_answer()).status == 200
    await waiting.until(lambda: behind(served)[0].may_end)


async def test_half_a_request_is_waited_for_at_the_end(serve: ServerFactory) -> None:
    served = await serve()
    connection = await served.connect()
    assert (await connection.request("/livez")).status == 200
    connection.writer.write(LIVEZ[:10])
    await waiting.until(lambda: behind(served)[0]._head_begun)
    stopping = asyncio.create_task(served.server.stop())
    await asyncio.sleep(0.1)
    assert not stopping.done()
    connection.writer.write(LIVEZ[10:])
    answer = await connection.read_answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await ended(connection)
    await stopping


async def test_who_waits_to_be_accepted_is_heard_at_the_end(serve: ServerFactory) -> None:
    """The system has made such a connection already, and closing the listener would cut it."""
    served = await serve()
    listener = served.server._listener
    assert listener is not None
    with socket.create_connection(("127.0.0.1", served.server.port)):
        assert connections.is_readable(listener.sockets[0].fileno())
        await serving._accept_who_waits(listener)
        assert not connections.is_readable(listener.sockets[0].fileno())
        assert served.server._connections.is_shaking_hands


def test_a_closed_descriptor_has_nothing_to_read() -> None:
    assert not connections.is_readable(-1)


async def test_who_was_just_accepted_is_heard_at_the_end(serve: ServerFactory) -> None:
    served = await serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    stopping = asyncio.create_task(served.server.stop())
    await waiting.until(lambda: not served.server.listening)
    await writer.start_tls(served.trust, server_hostname="localhost")
    connection = Connection(reader, writer)
    answer = await connection.request("/livez")
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await ended(connection)
    await stopping


async def test_who_has_gone_does_not_hold_up_the_end(serve: ServerFactory) -> None:
    served = await serve()
    connection = await served.connect()
    assert (await connection.request("/livez")).status == 200
    connection.writer.transport.abort()
    async with asyncio.timeout(0.5):
        await served.server.stop()


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


async def test_who_has_not_asked_yet_is_heard_at_the_end(serve: ServerFactory) -> None:
    served = await serve()
    connection = await served.connect()
    stopping = asyncio.create_task(served.server.stop())
    await asyncio.sleep(0.1)
    answer = await connection.request("/livez")
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    await stopping


async def test_idle_connections_do_not_hold_up_the_end(serve: ServerFactory) -> None:
    served = await serve()
    idle = [await served.connect() for _ in range(5)]
    for each in idle:
        assert (await each.request("/livez")).status == 200
    async with asyncio.timeout(0.5):
        await served.server.stop()
    assert [await ended(each) for each in idle] == [True] * 5
