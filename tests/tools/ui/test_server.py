"""The server of the pages over real HTTP: which requests it serves, and what it sends when a page changes."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import ClientSession
from markupsafe import Markup
from yarl import URL

from adapter.errors import RunError
from fastpath_tools.ui import renewed, server
from fastpath_tools.ui.pages import Content, Page, Query, Section, Templates
from fastpath_tools.ui.server import PageServer
from tests.support import tools
from tests.support.answers import answers
from tests.support.waiting import until
from tests.tools.ui.page_stream import PageStream

TOKEN = "the-token"


class Texts:
    """A page of two sections, whose texts a test changes; `reads` is how often it was read."""

    def __init__(self) -> None:
        self.texts = {"first": "one", "second": "two"}
        self.error = ""
        self.reads = 0
        self.queries: list[Query] = []

    async def read(self, query: Query) -> Content:
        self.reads += 1
        self.queries.append(query)
        if self.error:
            raise RunError(self.error)
        return Content(
            "Texts", [Section(name, Markup("<p>{}</p>").format(text)) for name, text in self.texts.items()]
        )


class ServedPages(NamedTuple):
    """A server with one page at "" and one at ``a/b``."""

    port: int
    page: Texts
    http: ClientSession

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"

    async def get(self, path: str = "", **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.get(URL(self.root + path, encoded=True), headers=named) as response:
            return response.status, await response.text()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedPages]:
    monkeypatch.setattr(renewed, "SECONDS", 0.05)
    page = Texts()

    def find(path: str) -> Page | None:
        return page if path in {"", "a/b"} else None

    async with (
        PageServer(TOKEN, Templates(f"/{TOKEN}/", "prod"), find).listening(0) as port,
        ClientSession() as http,
    ):
        yield ServedPages(port, page, http)


# -- which requests it serves --------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status"), answers("ui/server", "paths"))
async def test_only_paths_below_the_token(served: ServedPages, path: str, status: int) -> None:
    url = URL(f"http://127.0.0.1:{served.port}{path}", encoded=True)
    async with served.http.get(url) as response:
        assert response.status == status
        assert ("/the-token/" in await response.text()) == (
            status == 200 and not path.endswith((".css", ".js"))
        )


@pytest.mark.parametrize(("host", "status"), answers("ui/server", "hosts"))
async def test_only_its_own_host(served: ServedPages, host: str, status: int) -> None:
    assert (await served.get(Host=host.format(port=served.port)))[0] == status


async def test_a_request_with_two_hosts(served: ServedPages) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    host = f"Host: 127.0.0.1:{served.port}\r\n"
    writer.write(f"GET /{TOKEN}/ HTTP/1.1\r\n{host}{host}\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    assert status in {b"400", b"421"}


@pytest.mark.parametrize(("headers", "status"), answers("ui/server", "sites"))
async def test_no_request_of_another_site(served: ServedPages, headers: dict[str, str], status: int) -> None:
    sent = {name: value.format(port=served.port) for name, value in headers.items()}
    assert (await served.get(**sent))[0] == status
    assert served.page.reads == (status == 200)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
async def test_no_method_that_could_change_anything(served: ServedPages, method: str) -> None:
    async with served.http.request(method, served.root) as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert served.page.reads == 0


async def test_a_head_and_a_body(served: ServedPages) -> None:
    for path in ("", "style.css", "events?page="):
        async with served.http.head(served.root + path) as response:
            assert (response.status, await response.read()) == (200, b"")
    async with served.http.get(served.root, data=b"x" * 100_000) as response:
        assert response.status == 413


@pytest.mark.parametrize("path", ["", "none", "style.css", "page.js", "events?page=", "events?page=none"])
async def test_headers(served: ServedPages, path: str) -> None:
    async with served.http.get(served.root + path) as response:
        headers = response.headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            "style-src": "'self'",
            "script-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self' data:",
            "form-action": "'self'",
            "base-uri": "'none'",
            "frame-ancestors": "'none'",
        }
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert (
            headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
        )
        assert headers["Cache-Control"] == "no-store"


async def test_it_listens_on_this_machine_only(served: ServedPages) -> None:
    for address in ("127.0.0.2", "::1"):
        with pytest.raises(OSError, match="onnect"):
            await asyncio.open_connection(address, served.port)


async def test_tokens_are_long_and_differ() -> None:
    tokens = {server.make_token() for _ in range(8)}
    assert len(tokens) == 8
    assert all(len(token) == 32 for token in tokens)


# -- pages ---------------------------------------------------------------------------------------------------


async def test_a_page_works_without_scripts(served: ServedPages) -> None:
    status, text = await served.get("?name=a&name=b")
    assert status == 200
    assert '<div id="first"><p>one</p></div>\n<div id="second"><p>two</p></div>' in text
    assert "<title>Texts" in text
    assert '<p class="cluster">prod</p>' in text
    assert served.page.queries == [{"name": "a"}]


async def test_requests_share_what_was_read(served: ServedPages) -> None:
    await asyncio.gather(*(served.get() for _ in range(5)))
    assert served.page.reads == 1
    await served.get("?name=x")
    assert served.page.reads == 2, "another query is another page"


async def test_compression_where_the_client_accepts_it(served: ServedPages) -> None:
    served.page.texts["first"] = "x" * 10_000
    async with ClientSession(auto_decompress=False) as http:
        sizes = {}
        for coding in ("gzip", "identity"):
            async with http.get(served.root, headers={"Accept-Encoding": coding}) as response:
                body = await response.read()
                sizes[coding] = len(body)
                if coding == "gzip":
                    assert response.headers["Content-Encoding"] == "gzip"
                    body = gzip.decompress(body)
                assert b"x" * 10_000 in body
    assert sizes["gzip"] < 2000 < sizes["identity"]


async def test_what_cannot_be_read_is_shown_and_the_last_content_stays(served: ServedPages) -> None:
    served.page.error = "forbidden: <b>"
    status, text = await served.get()
    assert status == 502
    assert '<p id="problem" role="alert">forbidden: &lt;b&gt;</p>' in text
    served.page.error = ""
    await until_text(served, '<p id="problem" role="alert" hidden></p>')
    served.page.error = "gone"
    text = await until_text(served, '<p id="problem" role="alert">gone</p>')
    assert "<p>one</p>" in text


async def until_text(served: ServedPages, text: str) -> str:
    """Return the page as soon as it has a text."""
    page = ""
    while text not in page:
        _, page = await served.get()
        await asyncio.sleep(0.02)
    return page


# -- streams -------------------------------------------------------------------------------------------------


def address_of_events(page: str) -> str:
    """Return the address of the changes of a page, below the root."""
    start = page.partition('data-events="/the-token/')[2]
    return start.partition('"')[0].replace("&amp;", "&")


async def test_a_stream_sends_only_sections_that_changed(served: ServedPages) -> None:
    _, page = await served.get("?name=x")
    async with served.http.get(URL(served.root + address_of_events(page), encoded=True)) as response:
        assert response.content_type == "text/event-stream"
        stream = PageStream(response)
        assert await stream.next() == ("problem", "")
        served.page.texts["second"] = "<three>"
        assert await stream.sections() == {"second": "<p>&lt;three&gt;</p>"}
        served.page.texts |= {"first": "1", "second": "2"}
        assert await stream.sections() == {"first": "<p>1</p>", "second": "<p>2</p>"}
    assert served.page.queries[-1] == {"name": "x"}


async def test_of_a_section_only_lines_that_changed_are_sent(served: ServedPages) -> None:
    """A line that stays or moves comes as its place among those that were sent before."""
    events: list[Any] = []
    served.page.texts["second"] = "a\nb\nb\nc"
    async with served.http.get(f"{served.root}events?page=") as response:
        stream = PageStream(response)
        for text in ("a\nb\nb\nc", "b\nX\na\nb\nc", "b\nX", "", "0\n1"):
            served.page.texts["second"] = text
            kind = ""
            while kind != "sections":
                kind, content = await stream.next()
            events.append(content[-1]["lines"])
    assert events == [
        ["<p>a", "b", "b", "c</p>"],
        ["<p>b", "X", "a", 2, 3],
        [0, "X</p>"],
        ["<p></p>"],
        ["<p>0", "1</p>"],
    ]


async def test_what_changed_before_the_stream_began_is_sent(served: ServedPages) -> None:
    _, page = await served.get()
    served.page.texts["first"] = "new"
    await until_text(served, "<p>new</p>")
    async with served.http.get(URL(served.root + address_of_events(page), encoded=True)) as response:
        assert await PageStream(response).sections() == {"first": "<p>new</p>"}


async def test_a_browser_that_connects_again_gets_all_sections(served: ServedPages) -> None:
    _, page = await served.get()
    url = URL(served.root + address_of_events(page), encoded=True)
    async with served.http.get(url, headers={"Last-Event-ID": "1"}) as response:
        assert await PageStream(response).sections() == {"first": "<p>one</p>", "second": "<p>two</p>"}


async def test_a_stream_reports_what_cannot_be_read_and_that_it_can_be_again(served: ServedPages) -> None:
    _, page = await served.get()
    async with served.http.get(URL(served.root + address_of_events(page), encoded=True)) as response:
        stream = PageStream(response)
        assert await stream.next() == ("problem", "")
        served.page.error = "line 1\nline 2"
        assert await stream.next() == ("problem", "line 1\nline 2")
        served.page.error = ""
        assert await stream.next() == ("problem", "")


async def test_a_page_that_could_not_be_read_comes_by_the_stream(served: ServedPages) -> None:
    served.page.error = "not yet"
    _, page = await served.get()
    async with served.http.get(URL(served.root + address_of_events(page), encoded=True)) as response:
        stream = PageStream(response)
        assert await stream.next() == ("problem", "not yet")
        served.page.error = ""
        assert await stream.sections() == {"first": "<p>one</p>", "second": "<p>two</p>"}


async def test_a_quiet_stream_has_a_heartbeat(served: ServedPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEARTBEAT", 0.1)
    async with served.http.get(served.root + "events?page=") as response:
        while await response.content.readline() != b":\n":
            pass


async def test_streams_of_a_page_share_its_reads_and_end_with_the_browser(served: ServedPages) -> None:
    address = served.root + "events?page="
    responses = [await served.http.get(address) for _ in range(8)]
    for response in responses:
        await PageStream(response).next()
    before = served.page.reads
    await until(lambda: served.page.reads >= before + 4)
    served.page.texts["first"] = "shared"
    for response in responses:
        stream = PageStream(response)
        while (await stream.next())[0] != "sections":
            pass
    assert served.page.reads < before + 40, "eight streams do not read eight times as often"
    for response in responses:
        response.close()
    quiet = served.page.reads
    await _settle(served)
    assert served.page.reads <= quiet + 2
    assert await _open_streams(served, server.STREAMS) == 200, "those that ended are not counted"


async def _settle(served: ServedPages) -> None:
    """Return once the page has not been read for several of its periods."""
    before = -1
    while served.page.reads != before:
        before = served.page.reads
        await asyncio.sleep(0.3)


async def _open_streams(served: ServedPages, number: int) -> int:
    """Open streams; return the status of the last one."""
    responses = [await served.http.get(served.root + "events?page=") for _ in range(number)]
    status = responses[-1].status
    for response in responses:
        response.close()
    return status


async def test_the_number_of_streams_is_bounded(served: ServedPages) -> None:
    async with ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        assert await _open_streams(served._replace(http=http), server.STREAMS + 1) == 503


@pytest.mark.parametrize("page", ["none", "a", quote("a/b/c")])
async def test_no_stream_of_a_page_that_does_not_exist(served: ServedPages, page: str) -> None:
    assert (await served.get(f"events?page={page}"))[0] == 404


async def test_open_streams_do_not_delay_the_end() -> None:
    page = Texts()
    async with ClientSession() as http:
        async with PageServer(TOKEN, Templates("/t/"), lambda _: page).listening(tools.free_port()) as port:
            response = await http.get(f"http://127.0.0.1:{port}/{TOKEN}/events?page=")
            await PageStream(response).next()
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
        response.close()


# -- connections without a request ---------------------------------------------------------------------------


async def test_silent_connections_do_not_hold_up_the_page(served: ServedPages) -> None:
    """Beyond a bound the oldest ends, so other users of the machine cannot take all files."""
    opened = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(server.SILENT + 16)]
    first = opened[0][0]
    assert await first.read() == b"", "the oldest has ended"
    assert (await served.get())[0] == 200
    assert not any(reader.at_eof() for reader, _ in opened[17:]), "those of before the page have ended alone"
    for _, writer in opened:
        writer.close()


async def test_a_head_that_does_not_come_ends_its_connection(
    served: ServedPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert await reader.read() == b""
    writer.close()


async def test_a_request_in_pieces_is_answered(served: ServedPages) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"GET /{TOKEN}/ HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n"
    for byte in head.encode():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


async def test_a_refused_request_ends_its_connection(served: ServedPages) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 421 ")
    writer.close()
