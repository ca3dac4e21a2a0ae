"""aiohttp alone, over TLS, with one response for every request: the upper bound for a server on aiohttp.

`python -m benchmarks.bare PORT_FILE ANSWER CERTIFICATE KEY` runs the low-level server on uvloop, without
router, middlewares or access log, as `adapter.server.http.connection_server` uses it. It writes the port once
it listens.
"""

import asyncio
import itertools
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvloop
from aiohttp import web

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def listen(
    answer: Answer, port_file: Path, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> None:
    """Serve until cancelled; write the port into a file, whole or not at all."""
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, host, 0, ssl_context=tls).start()
    new = port_file.with_suffix(".new")
    new.write_text(str(runner.addresses[0][1]), encoding="ascii")
    new.replace(port_file)
    await asyncio.Event().wait()


PODS = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":['
"""How a list of pods begins."""


async def begin(request: web.BaseRequest) -> web.StreamResponse:
    """Begin a response in parts."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    return response


def separated(texts: Iterator[bytes]) -> Iterator[bytes]:
    return (b"," + text if number else text for number, text in enumerate(texts))


async def send(response: web.StreamResponse, texts: Iterator[bytes], batch: int = 500) -> None:
    """Write texts that are made while they are sent."""
    while content := b"".join(itertools.islice(texts, batch)):
        await response.write(content)
        await asyncio.sleep(0)  # another response has its turn


async def main(body: bytes, port: Path, certificate: str, key: str) -> None:
    headers = {"Content-Type": "application/json"}

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    await listen(handle, port, context)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[2]).read_bytes(), Path(sys.argv[1]), sys.argv[3], sys.argv[4]))
