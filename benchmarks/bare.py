"""aiohttp alone, over TLS, with one response for every request: the upper bound for a server on aiohttp.

`python -m benchmarks.bare ANSWER PORT_FILE CERTIFICATE KEY` runs the low-level server on uvloop, without
router, middlewares or access log, as `adapter.server.http.connection_server` uses it. It writes the port once
it listens.
"""

import asyncio
import os
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web


async def main(body: bytes, port: Path, certificate: str, key: str) -> None:
    headers = {"Content-Type": "application/json"}

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    new = port.with_suffix(".new")
    new.write_text(str(runner.addresses[0][1]), encoding="ascii")
    os.replace(new, port)  # noqa: PTH105 - whole or not at all
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
