"""The listening socket: what counts as one address, and what happens where nothing can be accepted."""

import asyncio
import errno
import socket

import pytest

from adapter.server.http import listener
from adapter.telemetry.metrics import Monitoring
from tests.support import waiting
from tests.support.serving import Served


@pytest.mark.parametrize("host", ["", "/run/socket"])
def test_what_is_no_address_is_its_own_group(host: str) -> None:
    assert listener.group_address(host) == host


async def test_without_files_it_tries_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process with all its files open accepts again once there are some."""
    monkeypatch.setattr(listener, "RETRY_SECONDS", 0.01)
    inner = served.server._listener
    assert inner._socket is not None
    real: socket.socket = inner._socket

    class Full:
        """A listening socket of a process that may open no more files, for two attempts."""

        attempts = 0

        def accept(self) -> object:
            self.attempts += 1
            if self.attempts <= 2:
                raise OSError(errno.EMFILE, "Too many open files")
            return real.accept()

        def fileno(self) -> int:
            return real.fileno()

        def close(self) -> None:
            real.close()

    full = Full()
    monkeypatch.setattr(inner, "_socket", full)
    assert (await served.get("/livez")).status == 200
    assert full.attempts > 2
    assert "cannot accept connections" in [record.message for record in caplog.records]


async def test_without_a_host_it_listens_on_all_addresses(served: Served) -> None:
    inner = served.server._listener
    everywhere = listener.TLSListener(inner._make_protocol, inner._context, Monitoring())
    port = everywhere.start("", 0)
    try:
        for host in ("127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            await writer.wait_closed()
    finally:
        everywhere.close()
        await everywhere.end_handshakes()


async def test_accepted_sockets_buffer_little(served: Served) -> None:
    connection = await served.connect()
    assert (await connection.request("/livez")).status == 200
    await waiting.until(served.server._connections.open_connections)
    (there,) = served.server._connections.open_connections()
    assert there.transport is not None
    accepted = there.transport.get_extra_info("socket")
    for option, most in (
        (socket.SO_RCVBUF, listener.RECEIVE_BUFFER),
        (socket.SO_SNDBUF, listener.SEND_BUFFER),
    ):
        assert accepted.getsockopt(socket.SOL_SOCKET, option) <= 2 * most
