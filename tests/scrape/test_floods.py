"""A pod that sends what HTTP allows, and far more of it than was requested.

Each way to send without end gets 64 MiB, before, within and after the answer. No step of the event loop may
take long for it, and no more of it may be kept than the budget of a body.
"""

import asyncio
import gc
import os
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import sleep

import pytest

from adapter.compose.clock import SystemClock
from adapter.config.rules_config import Access
from adapter.errors import ScrapeError
from adapter.scrape.bodies import BODIES_BYTES, BodyBudget
from adapter.scrape.http import ScrapeEndpoint
from tests.scrape.wire import Scraping
from tests.support import steps
from tests.support.waiting import until

FLOOD = 64 * 1024 * 1024
PIECE = 256 * 1024
LONGEST_STEP = 0.02  # seconds of processor time; a turn takes 2 ms, and a piece of 2 KiB that many at most
ACCESS = Access("metrics", timeout=1.0, max_bytes=16 * 1024 * 1024, max_lines=1_000_000)

OK = b"HTTP/1.1 200 OK\r\n"
ANSWER = OK + b"Content-Length: 4\r\n\r\nx 1\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
_ZIP = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
ZIP_HEAD = _ZIP.compress(b"") + _ZIP.flush(zlib.Z_SYNC_FLUSH)
ZEROS = zlib.compressobj(wbits=-zlib.MAX_WBITS)
BOMB = ZEROS.compress(b"\0" * 1_000_000) + ZEROS.flush(zlib.Z_FULL_FLUSH)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


FLOODS = {
    "responses without a body": (ANSWER, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "responses with a body": (ANSWER, ANSWER),
    "204 after the answer": (ANSWER, b"HTTP/1.1 204 No Content\r\n\r\n"),
    "304 after the answer": (ANSWER, b"HTTP/1.1 304 X\r\n\r\n"),
    "100 after the answer": (ANSWER, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "empty lines after the answer": (ANSWER, b"\r\n"),
    "100 before the answer": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "103 with links before the answer": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "empty lines before the answer": (b"", b"\r\n"),
    "headers": (OK, b"A: b\r\n"),
    "a reason phrase": (b"HTTP/1.1 200 ", b"x"),
    "chunks of one byte": (CHUNKED, chunk(b"\n")),
    "chunks of a byte and an extension": (CHUNKED, b"1;a=b\r\n#\r\n"),
    "an extension of a chunk": (CHUNKED + b"1;", b"a=b;"),
    "zeros of the size of a chunk": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"0\r\n", b"A: b\r\n"),
    "a chunked body that zips to nothing": (GZIP + chunk(ZIP_HEAD), chunk(b"\x00\x00\x00\xff\xff")),
    "a bomb": (GZIP + chunk(ZIP_HEAD), chunk(BOMB)),
    "a body without a length": (OK + b"\r\n", b"#"),
    "a body without a length of lines": (OK + b"\r\n", b"\n"),
    "bytes after an upgrade": (b"HTTP/1.1 101 X\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n", b"x"),
}


class PouringPod:
    """A pod in a thread of its own: answers each request with a beginning, then pours pieces."""

    def __init__(self, beginning: bytes, piece: bytes) -> None:
        self._beginning = beginning
        self._piece = piece * (PIECE // len(piece))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.sent = 0
        self.ended = 0
        """How many connections were poured to the end, or closed by the other side."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._pour(connection)
            self.ended += 1

    def _pour(self, connection: socket.socket) -> None:
        try:
            if not connection.recv(4096):
                return
            connection.sendall(self._beginning)
            sleep(0.02)  # so that the answer is taken, and the connection kept, before the rest comes
            poured = 0
            while poured < FLOOD:
                poured += connection.send(self._piece)
                self.sent = max(self.sent, poured)
        except OSError:
            pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@contextmanager
def pods(count: int, beginning: bytes, piece: bytes) -> Iterator[list[PouringPod]]:
    there = [PouringPod(beginning, piece) for _ in range(count)]
    try:
        yield there
    finally:
        for pod in there:
            pod.close()


def resident() -> int:
    """Return the bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep the collector of the tests' own objects out of what is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(("beginning", "piece"), FLOODS.values(), ids=FLOODS)
@pytest.mark.timeout(60)
async def test_a_flood_holds_neither_the_loop_nor_memory(
    tmp_path: Path, beginning: bytes, piece: bytes
) -> None:
    most, bodies = 0, BodyBudget()

    async def scrape(pod: PouringPod) -> None:
        # what follows an answer may come before its end is noticed
        refused = suppress(ScrapeError) if beginning is ANSWER else pytest.raises(ScrapeError)
        with refused, closing(bodies.open("hostile")) as body:
            await opened.fetch(ScrapeEndpoint("hostile", "127.0.0.1", pod.port, ACCESS), body)

    with without_collections(), pods(4, beginning, piece) as hostile:
        before = resident()
        async with Scraping(tmp_path, clock=SystemClock()).scraper as opened:
            with steps.measured() as measured:
                await asyncio.gather(*map(scrape, hostile))

                def ended() -> bool:
                    nonlocal most
                    most = max(most, resident() - before)
                    assert measured.longest < LONGEST_STEP
                    return all(pod.ended for pod in hostile)

                await until(ended, 30)
    assert measured.longest < LONGEST_STEP
    assert most < 2 * BODIES_BYTES
    assert bodies.size == 0
    assert max(pod.sent for pod in hostile) < FLOOD, "the connection is closed before all is sent"
