"""The listening socket, and the TLS handshakes of its connections, which are bounded in number and time.

asyncio's own server reports a connection only when its handshake is done, so handshakes under way can be
neither counted nor cancelled. Here each handshake is a task. One connection is accepted in each turn of the
event loop: a handshake takes about a millisecond of CPU, and requests run between two of them.
"""

import asyncio
import ipaddress
import logging
import os
import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from adapter.telemetry import logs, metrics

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
"""A TLS handshake takes no longer than this."""

MOST_HANDSHAKES = 128
"""TLS handshakes at a time. A further one cancels the oldest of the address that has the most."""

RECEIVE_BUFFER = 32 * 1024
"""SO_RCVBUF of a connection, which Linux doubles. Requests are small; it also bounds what the TLS layer reads
at once."""

SEND_BUFFER = 64 * 1024
"""SO_SNDBUF of a connection, which Linux doubles. By default it grows to megabytes for a client that does not
read."""

HANDSHAKE_BYTES = 320 * 1024
"""Memory of a connection in its handshake at most, its buffers in the system included: a ClientHello may have
128 KiB."""

FAREWELL_SECONDS = 2.0
"""How long the TLS layer waits for close_notify of the client; asyncio's default is 30 s."""

_BACKLOG = 512
RETRY_SECONDS = 1.0  # after the process ran out of files or memory; as in asyncio


@dataclass(eq=False, slots=True)
class _Handshake:
    """A connection from accept to the end of its handshake."""

    address: str
    begun: float
    task: asyncio.Task[None] | None = None


class TLSListener:
    """Accepts connections from `start` to `close`; after its handshake a connection gets a protocol."""

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        own_metrics: metrics.Monitoring,
        *,
        most_handshakes: int = MOST_HANDSHAKES,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._make_protocol = make_protocol
        self._context = context
        self._most = most_handshakes
        self._seconds = handshake_seconds
        self._cuts = own_metrics.connections_closed
        own_metrics.handshakes.set_function(lambda: len(self._handshakes))
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._handshakes: dict[_Handshake, None] = {}  # oldest first

    @property
    def listening(self) -> bool:
        return self._socket is not None

    def start(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Listen on an IP address, or on all addresses where `host` is ""; return the port.

        Raises OSError where the address is not available.
        """
        both = not host and socket.has_dualstack_ipv6()
        is_6 = both or (host and ipaddress.ip_address(host).version == 6)
        try:
            listening = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if is_6 else socket.AF_INET,
                backlog=_BACKLOG,
                reuse_port=share_port,
                dualstack_ipv6=both,
            )
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            text = f"error while attempting to bind on address {(host, port)}: {reason}"
            raise OSError(error.errno, text) from error
        listening.setblocking(False)
        # accepted sockets inherit these; a size that was set does not grow
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._socket = listening
        self._loop.add_reader(listening, self._accept)
        bound: int = listening.getsockname()[1]
        return bound

    def has_young_handshakes(self, seconds: float) -> bool:
        """Return whether a handshake is under way that began less than `seconds` ago."""
        oldest = self._loop.time() - seconds
        return any(handshake.begun > oldest for handshake in self._handshakes)

    def close(self) -> None:
        """Stop listening. Connections in the backlog are accepted first, since closing resets them."""
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket)
        for _ in range(_BACKLOG):
            if not is_readable(self._socket.fileno()):
                break
            self._accept()
        self._socket.close()
        self._socket = None

    async def end_handshakes(self) -> None:
        tasks = [handshake.task for handshake in self._handshakes if handshake.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            accepted, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no files or no memory left
            log.warning("cannot accept connections", extra=logs.facts(error=str(error)))
            self._loop.remove_reader(self._socket)
            self._loop.call_later(RETRY_SECONDS, self._resume)
            return
        accepted.setblocking(False)
        handshake = _Handshake(group_address(peer[0]), self._loop.time())
        if len(self._handshakes) >= self._most:
            self._cut_one(handshake.address)
        self._handshakes[handshake] = None
        handshake.task = self._loop.create_task(self._shake_hands(handshake, accepted), name="TLS handshake")

    def _resume(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept)

    def _cut_one(self, newcomer: str) -> None:
        """Cancel the oldest handshake of the address that has the most, counting the new one."""
        counts = Counter(handshake.address for handshake in self._handshakes)
        counts[newcomer] += 1
        # the first of equals is the oldest
        chosen = max(self._handshakes, key=lambda handshake: counts[handshake.address])
        self._cuts.labels("handshake").inc()
        del self._handshakes[chosen]
        if chosen.task is not None:
            chosen.task.cancel()

    async def _shake_hands(self, handshake: _Handshake, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=FAREWELL_SECONDS,
            )
        except OSError as error:  # ssl.SSLError is one, and so are the timeout and the end of the connection
            log.debug("TLS handshake failed", extra=logs.facts(remote=handshake.address, error=str(error)))
            if isinstance(error, ConnectionAbortedError):
                self._cuts.labels("handshake").inc()
        finally:
            self._handshakes.pop(handshake, None)


def group_address(host: str) -> str:
    """Return the group that a remote address counts in: itself for IPv4, its network of 64 bits for IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def is_readable(descriptor: int) -> bool:
    """Return whether there is input or its end to read; False for a closed (negative) descriptor."""
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
