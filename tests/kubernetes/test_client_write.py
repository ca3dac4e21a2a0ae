"""One write at a time: what is sent, that it is sent once, and that it can be stopped until the very last."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from adapter import errors
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from tests.kubernetes.apiclient import connected, error_of, listening
from tests.kubernetes.wire import Wire
from tests.support.tls import Authority
from tests.support.waiting import until

PATH = "/apis/apps/v1/namespaces/default/deployments/web/scale"
BODY = msgspec.json.encode({"spec": {"replicas": 3}})


def passing() -> None:
    pass


async def test_a_stopped_write_never_reaches_the_server() -> None:
    """Not even its head: a server that reads only that cannot act on it."""
    heard: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        heard.append(await reader.read(1000))
        writer.close()

    def check() -> None:
        raise errors.NotLeadingError("the lease is no longer held")

    async with listening(serve) as url, connected(url) as client:
        with pytest.raises(errors.NotLeadingError, match="no longer held"):
            await client.write("PUT", PATH, BODY, seconds=1, check=check)
        await until(lambda: heard)
    assert connections == 1, "the connection was there by then: this is the last moment"
    assert heard == [b""]


async def test_a_write_sent_again_on_a_new_connection_is_checked_again() -> None:
    """The idle connection had been closed by the other side; aiohttp opens another, which may take long."""
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 3:
            raise errors.NotLeadingError("meanwhile it was lost")

    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"}}")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
            await reader.readuntil(b"}}")  # and close without an answer
        writer.close()

    async with listening(serve) as url, connected(url) as client:
        await client.write("PUT", PATH, BODY, seconds=1, check=check)
        with pytest.raises(errors.NotLeadingError, match="meanwhile"):
            await client.write("PUT", PATH, BODY, seconds=1, check=check)
    assert (checks, served) == (3, 2)


async def test_an_error_says_whether_the_write_was_sent_twice() -> None:
    """The first may have been made, and the second met what it left."""
    refused = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}"
    answers = [refused, b"", refused]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                await reader.readuntil(b"}}")
                answer = answers.pop(0)
                if not answer:
                    break
                writer.write(answer)
        writer.close()

    async with listening(serve) as url, connected(url) as client:
        for twice in (False, True):
            raised = await error_of(client.write("PUT", PATH, BODY, seconds=1, check=passing))
            assert (raised.status, raised.sent_twice) == (409, twice)
    assert answers == []


async def test_a_write_ends_when_its_time_is_over_and_its_connection_is_reset() -> None:
    """A connection that is closed in the usual way delivers later what it still holds; this one must not."""
    ended: list[Exception | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        try:
            ended.append(None if await reader.read() == b"" else AssertionError())
        except ConnectionResetError as error:
            ended.append(error)
        writer.close()

    async with listening(serve) as url, connected(url) as client:
        caught = await error_of(client.write("PUT", PATH, BODY, seconds=0.05, check=passing))
        await until(lambda: ended)
    assert (caught.status, caught.reason) == (0, "Timeout")
    assert isinstance(ended[0], ConnectionResetError)


async def test_the_time_of_a_write_holds_for_connecting_too() -> None:
    with socket.socket() as full:  # it accepts no connection, and its queue is full
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            async with connected(f"http://127.0.0.1:{full.getsockname()[1]}") as client:
                caught = await error_of(client.write("PUT", PATH, BODY, seconds=0.1, check=passing))
    assert caught.reason == "Timeout"


async def test_all_that_holds_over_tls_too(authority: Authority) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.read()  # no answer to the second
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.server_context())
    async with server, Wire(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}") as wire:
        configuration = credentials.ClientConfiguration(wire.url.replace("http:", "https:"))
        configuration.ca_file = str(authority.file)
        async with await kubernetes.connect(configuration, random=lambda: 0.5) as client:
            await client.write("PUT", PATH, BODY, seconds=1, check=passing)
            assert wire.resets == 0
            caught = await error_of(client.write("PUT", PATH, BODY, seconds=0.05, check=passing))
            await until(lambda: wire.resets == 1)
    assert caught.reason == "Timeout"
