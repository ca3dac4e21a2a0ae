"""The event loop of the servers: uvloop's, but a socket that was given to it is its own even where no connection comes of it.

uvloop closes the descriptor of such a socket, and leaves its number to the Python object when the connection is reset before it was
made. The object closes the number once more when it is collected, whoever it belongs to by then: a connection to the API server that
restarts would cost another its connection, or be answered by what another asked.
"""

import socket
from typing import Any

import uvloop


class Loop(uvloop.Loop):
    """A loop for programs whose HTTP client connects sockets itself, as aiohttp's does."""

    async def create_connection(
        self, *arguments: Any, sock: socket.socket | None = None, **options: Any
    ) -> tuple[Any, Any]:
        """Return transport and protocol; when that fails, `sock` is closed or will be, and says so."""
        try:
            return await super().create_connection(*arguments, sock=sock, **options)
        except BaseException:
            if sock is not None:
                sock.detach()
            raise
