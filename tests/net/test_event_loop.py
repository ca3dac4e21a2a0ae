"""What becomes of a socket that no connection comes of. It is the library's bug that is tested here.

See `adapter.runtime.event_loop`.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import struct

import pytest
import uvloop

from adapter.runtime.event_loop import Loop
from tests.support.processor import limited

_AT_ONCE = struct.pack("ii", 1, 0)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def fail(how: str) -> tuple[socket.socket, int]:
    """Let a connection over a given socket fail; return the socket and the descriptor that it had."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        given = socket.socket()
        given.setblocking(False)
        await loop.sock_connect(given, listener.getsockname())
        peer, _ = listener.accept()
    descriptor = given.fileno()
    tls = ssl.create_default_context()
    connecting = asyncio.ensure_future(
        loop.create_connection(asyncio.Protocol, sock=given, ssl=tls, server_hostname="localhost")
    )
    if how == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        peer.close()
    elif how == "garbage":
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    else:
        await asyncio.sleep(0)
        connecting.cancel()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await connecting
        pytest.fail("it connected")
    peer.close()
    async with limited(1.5):
        while is_open(descriptor):  # noqa: ASYNC110 - nothing tells when the system has closed it
            await asyncio.sleep(0.005)
    return given, descriptor


@pytest.fixture(autouse=True, scope="module")
def _pipe_of_the_process() -> None:
    """The library opens a pipe for signals with its first loop, for as long as the process lives."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.sleep(0))


@pytest.mark.parametrize("how", ["reset", "garbage", "cancelled"])
def test_a_socket_that_failed_knows_that_it_is_closed(how: str) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        given, _ = runner.run(fail(how))
    assert given.fileno() == -1, "else it would close another file that has the number by then"


def test_the_workaround_is_still_needed() -> None:
    """When this fails the library has learnt it, and `adapter.runtime.event_loop` can go."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        given, descriptor = runner.run(fail("reset"))
    assert given.detach() == descriptor
