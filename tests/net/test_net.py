"""Errors of connections in words, from real connections on loopback."""

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter import net
from fastpath_tools.live.scaler_access import is_wrong_name
from tests.support.tls import Authority


async def _handle(_: web.Request) -> web.Response:
    return web.Response()


@pytest.fixture
async def plain() -> AsyncIterator[TestServer]:
    app = web.Application()
    app.router.add_get("/", _handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    yield server
    await server.close()


@pytest.fixture
async def secure(authority: Authority) -> AsyncIterator[TestServer]:
    app = web.Application()
    app.router.add_get("/", _handle)
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=authority.server_context(authority.issue("fastpath.fastpath.svc")))
    yield server
    await server.close()


async def _fails(url: str, context: ssl.SSLContext | None = None) -> BaseException:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(url, ssl=context or ssl.create_default_context()):
                pytest.fail("it answered")
        except (aiohttp.ClientError, OSError) as error:
            return error


async def test_a_refused_connection() -> None:
    error = await _fails("http://127.0.0.1:1")
    assert net.describe_error(error) == "cannot connect to 127.0.0.1:1: Connection refused"
    assert not is_wrong_name(error)


async def test_a_server_without_tls(plain: TestServer) -> None:
    error = await _fails(f"https://127.0.0.1:{plain.port}")
    said = f"127.0.0.1:{plain.port} does not speak TLS: http:// instead of https://?"
    assert net.describe_error(error) == said


async def test_a_certificate_of_another_authority(secure: TestServer) -> None:
    error = await _fails(f"https://127.0.0.1:{secure.port}")
    said = net.describe_error(error)
    assert said.startswith(f"the certificate of 127.0.0.1:{secure.port} is not accepted: ")
    assert "object at" not in said
    assert "_ssl.c" not in said
    assert not is_wrong_name(error)


async def test_a_certificate_for_another_name(secure: TestServer, authority: Authority) -> None:
    error = await _fails(
        f"https://127.0.0.1:{secure.port}", ssl.create_default_context(cafile=str(authority.file))
    )
    assert "is not accepted: IP address mismatch" in net.describe_error(error)
    assert is_wrong_name(error)


async def test_a_handshake_that_fails_otherwise(secure: TestServer, authority: Authority) -> None:
    old = ssl.create_default_context(cafile=str(authority.file))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("PSK")
    error = await _fails(f"https://127.0.0.1:{secure.port}", old)
    assert net.describe_error(error).startswith(f"the TLS handshake with 127.0.0.1:{secure.port} failed: ")


async def test_a_connection_that_is_cut() -> None:
    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = net.describe_error(await _fails(f"http://127.0.0.1:{port}"))
    assert said in {"Connection reset by peer", "Server disconnected"}
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "no answer in time"),
        (ssl.SSLError(1, "[SSL] PEM lib (_ssl.c:3905)"), "the TLS handshake with the server failed: PEM lib"),
        (OSError("odd"), "odd"),
        (OSError(), "OSError"),
        (FileNotFoundError(2, "No such file or directory", "a.pem"), "No such file or directory: 'a.pem'"),
        (ValueError("odd"), "odd"),
        (ValueError(), "ValueError"),
    ],
)
def test_other_errors(error: Exception, text: str) -> None:
    assert text in net.describe_error(error)


def test_a_process_may_open_as_many_files_as_its_hard_limit_says() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    try:
        assert net.raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError(f"not allowed: {limits}")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, -1))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert net.raise_file_limit() == 256
