"""uvloop's event loop, with a fix for sockets that the caller passes in.

When a connection is reset before it is established, uvloop closes the descriptor of the given socket, but the
Python socket object keeps its number. When that object is collected, it closes the number again, which may by
then belong to another connection. A restarting API server would so break an unrelated connection, or make it
receive a foreign response.
"""

import socket
from typing import Any

import uvloop


class Loop(uvloop.Loop):
    """An event loop for HTTP clients that connect sockets themselves, such as aiohttp."""

    async def create_connection(
        self, *arguments: Any, sock: socket.socket | None = None, **options: Any
    ) -> tuple[Any, Any]:
        """Detach `sock` on failure: uvloop has closed its descriptor, or will."""
        try:
            return await super().create_connection(*arguments, sock=sock, **options)
        except BaseException:
            if sock is not None:
                sock.detach()
            raise
