"""The listener for kubelet's probes: what it answers, what it refuses, and what callers can hold."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter.runtime.event_loop import Loop
from adapter.server import health as probes
from adapter.server.health import Check, Health, ProbeListener


@pytest.fixture(autouse=True, scope="module")
def _pipe_of_the_process() -> None:
    """uvloop opens a pipe for signals with its first loop, for as long as the process lives."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(asyncio.sleep(0))


@contextlib.asynccontextmanager
async def listening(health: Health | None = None) -> AsyncIterator[ProbeListener]:
    listener = ProbeListener("127.0.0.1", 0, health or Health())
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def ask(listener: ProbeListener, request: bytes) -> tuple[int, str, str]:
    """Send bytes; return status, headers and body of the answer, which the connection ends with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


def get(path: str, method: str = "GET") -> bytes:
    """Return what kubelet sends."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 10.0.0.7:8081\r\nUser-Agent: kube-probe/1.32\r\nAccept: */*\r\n"
        "Connection: close\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/readyz?verbose"])
async def test_a_healthy_process(path: str) -> None:
    async with listening() as listener:
        status, head, body = await ask(listener, get(path))
    assert (status, body) == (200, "ok")
    assert "Content-Length: 2" in head
    assert "Connection: close" in head


async def test_a_failing_check_is_named_and_its_reason_withheld() -> None:
    health = Health(readyz=[Check("caches-synced", lambda: "first list of pods in shop is not in")])
    async with listening(health) as listener:
        ready, _, body = await ask(listener, get("/readyz"))
        alive, _, _ = await ask(listener, get("/livez"))
        single, _, told = await ask(listener, get("/readyz/caches-synced"))
    assert (ready, alive, single) == (500, 200, 404)
    assert "[-]caches-synced failed: reason withheld" in body
    assert "shop" not in body + told


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (get("/metrics"), 404),
        (get("/debug/fastpath/autoscalers/shop/web"), 404),
        (get("/"), 404),
        (get("/livez", "POST"), 405),
        (b"GET /livez\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nX: " + b"a" * probes.PROBE_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\nX: " + b"a" * probes.PROBE_HEAD_BYTES, 431),
    ],
    ids=["metrics", "journal", "root", "POST", "no version", "TLS", "long head", "endless head"],
)
async def test_all_else_is_refused(request_: bytes, expected: int) -> None:
    async with listening() as listener:
        status, _, body = await ask(listener, request_)
    assert status == expected
    assert "ok" not in body


async def test_head_has_no_body() -> None:
    async with listening() as listener:
        status, head, body = await ask(listener, get("/livez", "HEAD"))
    assert (status, body) == (200, "")
    assert "Content-Length: 2" in head


async def test_a_request_that_comes_in_parts_is_answered_once() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for part in (b"GET /liv", b"ez HTTP/1.1\r\nHost: a\r\n", b"\r\n" + get("/livez")):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.count(b"HTTP/1.1 200") == 1


async def test_a_crowd_of_silent_callers_does_not_keep_the_kubelet_out() -> None:
    async with listening() as listener:
        crowd = [
            await asyncio.open_connection("127.0.0.1", listener.port)
            for _ in range(2 * probes.PROBE_CONNECTIONS)
        ]
        status, _, _ = await ask(listener, get("/livez"))
        assert status == 200
        with contextlib.suppress(ConnectionResetError):
            assert await crowd[0][0].read() == b"", "the oldest was closed"
        assert len(listener._open) <= probes.PROBE_CONNECTIONS
        for _, writer in crowd:
            writer.close()
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                await writer.wait_closed()


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PROBE_SECONDS", 0.01)
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            await writer.wait_closed()


def test_the_loop_of_the_program() -> None:
    """uvloop's transports are other classes than asyncio's."""

    async def both() -> list[tuple[int, str, str]]:
        listener = ProbeListener("", 0, Health())  # every address, as the manifests say
        await listener.start()
        try:
            return [await ask(listener, get("/livez")), await ask(listener, get("/metrics"))]
        finally:
            await listener.stop()

    with asyncio.Runner(loop_factory=Loop) as runner:
        answers = runner.run(both())
    assert [(status, body) for status, _, body in answers] == [(200, "ok"), (404, "Not Found\n")]


async def test_stop_closes_what_is_open() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await ask(listener, get("/livez"))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        await writer.wait_closed()
