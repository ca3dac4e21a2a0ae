"""Reading pods over real HTTP: what is sent, what is taken, and how every failure is named."""

import asyncio
import errno
import gzip
import os
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from adapter.config.rules_config import Access, Credentials, EndpointTLS
from adapter.errors import ScrapeError
from adapter.scrape.bodies import BodyBudget
from adapter.scrape.connections import HEADER_BYTES, HEADERS_TAKEN
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.scrape.wire import ACCESS, Scraping, WirePod
from tests.support.answering import AnsweringServer
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.scraping import LoneScraper
from tests.support.tls import Authority
from tests.support.waiting import other_work

BODY = b"# TYPE x gauge\nx 1\n"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class AnsweringPod(AnsweringServer):
    """A pod that answers as `handle` says."""

    def __init__(self, handle: Handler, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.connections: set[object] = set()
        self._handle = handle

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.connections.add(request.transport)
        return await self._handle(request)

    def endpoint(self, access: Access = ACCESS, namespace: str = "shop") -> ScrapeEndpoint:
        return ScrapeEndpoint(namespace, "127.0.0.1", self.port, access)


def reply(body: bytes = BODY, status: int = 200, **headers: str) -> Handler:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return web.Response(body=body, status=status, headers=named)

    return answer


@pytest.fixture
async def scraping(tmp_path: Path) -> AsyncIterator[Scraping]:
    own = tmp_path / "serviceaccount"
    own.mkdir()
    (own / "token").write_text("our-own\n")
    made = Scraping(own)
    async with made.scraper:
        yield made


async def test_what_is_sent_and_what_comes_back(scraping: Scraping) -> None:
    async with AnsweringPod(reply(Content_Type="text/plain; version=0.0.4")) as there:
        access = replace(ACCESS, path="/deep/metrics?name%5B%5D=x")

        assert await scraping.scraper.fetch(there.endpoint(access)) == ScrapedBody(BODY, openmetrics=False)

        (request,) = there.requests
        assert (request.method, request.raw_path) == ("GET", "/deep/metrics?name%5B%5D=x")
        assert request.headers["Accept"].startswith(
            "application/openmetrics-text;version=1.0.0;escaping=underscores,"
        )
        assert request.headers.keys() == {"Host", "Accept", "Accept-Encoding", "User-Agent"}
    assert scraping.monitoring.registry.get_sample_value("fastpath_scrape_duration_seconds_count") == 1


async def test_openmetrics_is_known_by_its_type(scraping: Scraping) -> None:
    async with AnsweringPod(
        reply(Content_Type="application/openmetrics-text; version=1.0.0; charset=utf-8")
    ) as there:
        assert (await scraping.scraper.fetch(there.endpoint())).openmetrics


async def test_a_connection_closed_while_idle_is_no_failure(scraping: Scraping) -> None:
    async with AnsweringPod(reply()) as there:
        await scraping.scraper.fetch(there.endpoint())
        await there.down()
        await there.up()

        assert await scraping.content(there.endpoint()) == BODY


async def test_cookies_are_neither_kept_nor_sent(scraping: Scraping) -> None:
    async with AnsweringPod(reply(Set_Cookie="a=b")) as there:
        for _ in range(2):
            await scraping.scraper.fetch(there.endpoint())

        assert "Cookie" not in there.requests[1].headers


async def test_no_proxy_stands_between(scraping: Scraping, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnsweringPod(reply(b"proxy")) as proxy, AnsweringPod(reply()) as there:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)

        assert await scraping.content(there.endpoint()) == BODY
        assert proxy.requests == []


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(scraping: Scraping, status: int) -> None:
    async with (
        AnsweringPod(reply()) as other,
        AnsweringPod(reply(b"", status, Location=f"{other.url}/metrics")) as there,
    ):
        refusal = await scraping.refusal(there.endpoint())

        assert refusal == ("status", f"HTTP status {status}, and redirects are not followed")
        assert other.requests == []


@pytest.mark.parametrize("status", [204, 401, 404, 500, 503])
async def test_another_status_is_a_failure(scraping: Scraping, status: int) -> None:
    async with AnsweringPod(reply(b"", status)) as there:
        assert await scraping.refusal(there.endpoint()) == ("status", f"HTTP status {status}")


async def test_connection_refused(scraping: Scraping) -> None:
    async with AnsweringPod(reply()) as there:
        await there.down()

        refusal = await scraping.refusal(there.endpoint())
        assert refusal == ("unreachable", "Connection refused")


@pytest.mark.parametrize("part", ["nothing", "half"])
async def test_too_slow(scraping: Scraping, part: str) -> None:
    async def stall(request: web.BaseRequest) -> web.StreamResponse:
        if part == "half":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(BODY)
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    async with AnsweringPod(stall) as there:
        refusal = await scraping.refusal(there.endpoint(replace(ACCESS, timeout=0.1)))
        assert refusal == ("timeout", "no answer in 0.1 s")


OK = b"HTTP/1.1 200 OK\r\n"
BROKE = "the connection broke within the answer"


@pytest.mark.parametrize(
    ("sent", "kind", "said"),
    [
        pytest.param(b"", "unreachable", "the connection was closed before the answer", id="nothing"),
        pytest.param(OK + b"Content-Length: 99\r\n\r\nx 1\n", "unreachable", BROKE, id="cut short"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nx 1\n\r\n", "unreachable", BROKE, id="chunks"
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "status", "invalid HTTP response: ", id="no HTTP"),
    ],
)
async def test_a_broken_connection(scraping: Scraping, sent: bytes, kind: str, said: str) -> None:
    async with WirePod(sent, closes=True).running() as there:
        refusal = await scraping.refusal(there.endpoint)
    assert (refusal[0], refusal[1][: len(said)]) == (kind, said)


@pytest.mark.parametrize(("address", "said"), answers("scrape/http", "only addresses of pods are asked"))
async def test_only_addresses_of_pods_are_asked(scraping: Scraping, address: str, said: str) -> None:
    assert await scraping.refusal(ScrapeEndpoint("shop", address, 80, ACCESS)) == ("unreachable", said)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
async def test_loopback_is_refused_unless_it_is_named(address: str) -> None:
    async with AnsweringPod(reply()) as there:
        clock = FakeClock()
        monitoring = Monitoring()
        problems = SourceProblems(clock, ProblemLog(monitoring, clock))
        async with LoneScraper(clock, monitoring, problems) as scraper:
            with pytest.raises(ScrapeError, match="is a loopback address"):
                await scraper.fetch(there.endpoint()._replace(address=address))
        assert there.requests == []


def test_addresses_of_version_6_stand_in_brackets() -> None:
    assert ScrapeEndpoint("shop", "2001:db8::1", 8080, ACCESS).host == "[2001:db8::1]:8080"


# --- limits ---------------------------------------------------------------------------------------

SMALL = replace(ACCESS, max_bytes=1024, max_lines=10)


async def chunked(body: bytes, request: web.BaseRequest, **headers: str) -> web.StreamResponse:
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    for start in range(0, len(body), 100):
        await response.write(body[start : start + 100])
    await response.write_eof()
    return response


@pytest.mark.parametrize("length_is_said", [True, False])
@pytest.mark.parametrize(("size", "good"), [(1024, True), (1025, False), (100_000, False)])
async def test_bytes_are_bounded(scraping: Scraping, *, length_is_said: bool, size: int, good: bool) -> None:
    body = b"#" * size
    handle = reply(body) if length_is_said else lambda request: chunked(body, request)
    async with AnsweringPod(handle) as there:
        if good:
            assert await scraping.content(there.endpoint(SMALL)) == body
        else:
            refusal = await scraping.refusal(there.endpoint(SMALL))
            assert refusal == ("size", "the body is larger than 1024 bytes")


async def test_lines_are_bounded(scraping: Scraping) -> None:
    async with AnsweringPod(reply(b"\n" * 10)) as good, AnsweringPod(reply(b"\n" * 11)) as bad:
        assert await scraping.content(good.endpoint(SMALL)) == b"\n" * 10
        assert await scraping.refusal(bad.endpoint(SMALL)) == ("size", "the body has more than 10 lines")


async def test_a_zipped_body_is_unzipped_in_small_parts_between_which_other_work_runs(
    scraping: Scraping,
) -> None:
    body = b"# some comment that is the same in every line\n" * 40_000
    async with AnsweringPod(reply(gzip.compress(body), Content_Encoding="gzip")) as there:
        async with other_work() as turns:
            assert (
                await scraping.scraper.fetch(there.endpoint(replace(ACCESS, max_bytes=len(body))))
            ).content == body
        assert turns.count > len(body) / (256 * 1024)


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 512 * 1024])
async def test_a_zipped_body_may_end_with_a_part(scraping: Scraping, size: int) -> None:
    body = b"#" * size
    async with AnsweringPod(reply(gzip.compress(body), Content_Encoding="gzip")) as there:
        assert await scraping.content(there.endpoint()) == body


@pytest.mark.parametrize(
    "headers",
    [{f"X-{number}": "1" for number in range(HEADERS_TAKEN)}, {"X": "x" * HEADER_BYTES}],
    ids=["many", "long"],
)
async def test_the_head_of_an_answer_is_bounded(scraping: Scraping, headers: dict[str, str]) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=BODY, headers=headers)

    async with AnsweringPod(answer) as there:
        kind, _ = await scraping.refusal(there.endpoint())
        assert kind == "status"


async def test_a_body_is_charged_as_it_arrives_and_fails_if_it_exceeds_the_budget(scraping: Scraping) -> None:
    bodies = BodyBudget(3000, 2000)
    async with AnsweringPod(reply(BODY * 50)) as good, AnsweringPod(reply(b"#" * 2001)) as bad:
        with closing(bodies.open("shop")) as buffer:
            assert await scraping.content(good.endpoint(), buffer) == BODY * 50
            assert bodies.size == len(BODY * 50)
            with closing(bodies.open("hostile")) as other, pytest.raises(ScrapeError) as raised:
                await scraping.scraper.fetch(bad.endpoint(), other)
            assert raised.value.kind == "budget"
            assert bodies.size == len(BODY * 50)
    assert bodies.size == 0


BOMB = gzip.compress(b"\0" * 50_000_000)
ENDLESS = zlib.compressobj(wbits=zlib.MAX_WBITS | 16).flush()[:10] + b"\x00\x00\x00\xff\xff" * 20_000


@pytest.mark.parametrize("body", [BOMB, ENDLESS], ids=["unzipped bytes", "bytes that unzip to nothing"])
async def test_both_sides_of_a_zipped_body_are_bounded(scraping: Scraping, body: bytes) -> None:
    assert len(BOMB) < 50_000
    assert zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(ENDLESS) == b""
    async with AnsweringPod(lambda request: chunked(body, request, **{"Content-Encoding": "gzip"})) as there:
        refusal = await scraping.refusal(there.endpoint(replace(ACCESS, max_bytes=60_000)))
        assert refusal == ("size", "the body is larger than 60000 bytes")


@pytest.mark.parametrize(
    ("sent", "content"),
    [
        pytest.param(b"\r\nx 1234\n", b"x 1234\n", id="whole lines"),
        pytest.param(b"Content-Length: 4\r\n\r\nx 12", b"x 12", id="a length"),
        pytest.param(b"\r\n", b"", id="nothing"),
        pytest.param(b"\r\nx 12", None, id="perhaps cut within a line"),
    ],
)
async def test_a_body_that_only_the_connection_ends_ends_with_a_line(
    scraping: Scraping, sent: bytes, content: bytes | None
) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
    async with WirePod(head + sent, closes=True).running() as there:
        if content is None:
            said = "the body ends within a line and has no length, so it may be truncated"
            assert await scraping.refusal(there.endpoint) == ("decode", said)
        else:
            assert await scraping.content(there.endpoint) == content


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        pytest.param(b"not zipped", "gzip", "the body is not valid gzip", id="not zipped"),
        pytest.param(gzip.compress(BODY)[:-3], "x-gzip", "the gzip body is truncated", id="cut short"),
        pytest.param(gzip.compress(BODY) * 2, "gzip", "data follows the gzip body", id="two members"),
        pytest.param(gzip.compress(BODY) + b"x", "gzip", "data follows the gzip body", id="a byte too many"),
        pytest.param(BODY, "br", "the body is encoded as br, which was not requested", id="another encoding"),
    ],
)
async def test_a_body_that_is_not_encoded_as_it_says(
    scraping: Scraping, body: bytes, encoding: str, said: str
) -> None:
    async with AnsweringPod(reply(body, Content_Encoding=encoding)) as there:
        assert await scraping.refusal(there.endpoint()) == ("decode", said)


# --- credentials ----------------------------------------------------------------------------------


def with_token(path: Path, *namespaces: str) -> Access:
    return replace(ACCESS, credentials=Credentials(str(path), frozenset(namespaces)))


async def test_a_token_goes_to_the_listed_namespaces_only(scraping: Scraping, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    access = with_token(tmp_path / "token", "shop")
    async with AnsweringPod(reply()) as there:
        await scraping.scraper.fetch(there.endpoint(access, "shop"))
        await scraping.scraper.fetch(there.endpoint(access, "elsewhere"))
        await scraping.scraper.fetch(there.endpoint(ACCESS, "shop"))

        shown = [request.headers.get("Authorization") for request in there.requests]
        assert shown == ["Bearer secret", None, None]


async def test_a_token_is_read_again_when_it_changes(scraping: Scraping, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    access = with_token(tmp_path / "token", "shop")
    statuses = iter([200, 401, 200])

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=next(statuses))

    async with AnsweringPod(answer) as there:
        await scraping.scraper.fetch(there.endpoint(access))
        (tmp_path / "token").write_text("newer")
        await scraping.refusal(there.endpoint(access))
        await scraping.scraper.fetch(there.endpoint(access))

        shown = [request.headers["Authorization"] for request in there.requests]
        assert shown == ["Bearer old", "Bearer old", "Bearer newer"], "a refusal has the file checked"


@pytest.mark.parametrize("content", [None, "", "two\nlines", "ünprintable"])
async def test_an_invalid_token_is_a_failure_and_nothing_is_sent(
    scraping: Scraping, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    async with AnsweringPod(reply()) as there:
        kind, said = await scraping.refusal(there.endpoint(with_token(tmp_path / "token", "shop")))

        assert kind == "credentials"
        assert "scrape.credentials.tokenFile" in said
        assert there.requests == []
        (tmp_path / "token").write_text("secret")
        assert await scraping.content(there.endpoint(with_token(tmp_path / "token", "shop"))) == BODY


async def test_our_own_token_is_never_sent(scraping: Scraping, tmp_path: Path) -> None:
    own = tmp_path / "serviceaccount" / "token"
    linked = tmp_path / "link"
    linked.symlink_to(own)
    copied = tmp_path / "copy"
    copied.write_text("our-own")
    async with AnsweringPod(reply()) as there:
        for path in (own, linked):
            refusal = await scraping.refusal(there.endpoint(with_token(path, "shop")))
            text = f"{path} is our own service account token, which is never sent to pods"
            assert refusal == ("credentials", text)
        kind, said = await scraping.refusal(there.endpoint(with_token(copied, "shop")))

        assert kind == "credentials"
        assert said.endswith("a token other than that of our own service account")
        assert there.requests == []


async def test_without_a_service_account_any_token_is_another(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    made = Scraping(tmp_path / "absent")
    async with made.scraper, AnsweringPod(reply()) as there:
        await made.scraper.fetch(there.endpoint(with_token(tmp_path / "token", "shop")))

        assert there.requests[0].headers["Authorization"] == "Bearer secret"


# --- TLS ------------------------------------------------------------------------------------------


def secure(**tls: object) -> Access:
    return replace(ACCESS, scheme="https", tls=EndpointTLS(**tls))  # type: ignore[arg-type] # a table's columns


async def test_a_certificate_is_checked(scraping: Scraping, authority: Authority, tmp_path: Path) -> None:
    by_name = authority.server_context(authority.issue("pods.example"))
    async with (
        AnsweringPod(reply(), authority.server_context()) as by_address,
        AnsweringPod(reply(), by_name) as named,
    ):
        trusted = secure(ca_file=str(authority.file))
        assert await scraping.content(by_address.endpoint(trusted)) == BODY
        with_name = secure(ca_file=str(authority.file), server_name="pods.example")
        assert await scraping.content(named.endpoint(with_name)) == BODY
        assert await scraping.content(named.endpoint(secure(verify=False))) == BODY

        for endpoint in (named.endpoint(trusted), by_address.endpoint(replace(ACCESS, scheme="https"))):
            kind, said = await scraping.refusal(endpoint)
            assert kind == "unreachable"
            assert said.startswith("certificate not accepted: ")


async def test_authorities_are_read_again(scraping: Scraping, authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    access = secure(ca_file=str(file))
    async with AnsweringPod(reply(), authority.server_context()) as there:
        kind, said = await scraping.refusal(there.endpoint(access))
        assert (kind, said.partition(":")[0]) == ("credentials", "scrape.tls.caFile")
        assert os.strerror(errno.ENOENT) in said
        file.write_bytes(authority.file.read_bytes())
        await scraping.scraper.fetch(there.endpoint(access))
        file.write_text("broken")
        scraping.clock.advance(61)
        assert await scraping.content(there.endpoint(access)) == BODY, "what is broken does not replace"


async def test_a_ca_file_is_read_once_for_all_waiting_scrapes(
    scraping: Scraping, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.file.read_bytes())
    threads: list[int] = []
    create = ssl.create_default_context

    def count(cafile: str | None) -> ssl.SSLContext:
        threads.append(threading.get_ident())
        return create(cafile=cafile)

    async with AnsweringPod(reply(), authority.server_context()) as there:
        monkeypatch.setattr(ssl, "create_default_context", count)
        endpoint = there.endpoint(secure(ca_file=str(file)))
        for number in (1, 2):
            await asyncio.gather(*(scraping.scraper.fetch(endpoint) for _ in range(20)))
            assert len(threads) == number
            file.write_bytes(authority.file.read_bytes() * 2)
            scraping.clock.advance(61)
        assert threading.get_ident() not in threads, "the event loop goes on"


async def test_the_authorities_of_the_system_are_read_again(
    scraping: Scraping, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "system.crt"
    file.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with AnsweringPod(reply(), authority.server_context()) as there:
        assert (await scraping.refusal(there.endpoint(secure())))[0] == "unreachable"
        file.write_bytes(authority.file.read_bytes())
        scraping.clock.advance(61)
        assert await scraping.content(there.endpoint(secure())) == BODY


@pytest.mark.parametrize("after", ["fixed", "no scrape"])
async def test_the_problem_of_a_ca_file_ends(
    scraping: Scraping, authority: Authority, tmp_path: Path, after: str
) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.file.read_bytes())
    async with AnsweringPod(reply(), authority.server_context()) as there:
        endpoint = there.endpoint(secure(ca_file=str(file)))
        await scraping.scraper.fetch(endpoint)
        file.write_text("broken")
        scraping.clock.advance(61)
        await scraping.scraper.fetch(endpoint)
        assert list(scraping.faults.active()) == [("credentials", str(file))]
        if after == "fixed":
            file.write_bytes(authority.file.read_bytes())
            scraping.clock.advance(2)
            await scraping.scraper.fetch(endpoint)
        else:
            scraping.clock.advance(301)
            scraping.problems.expire(*next(iter(scraping.problems.reported)))
        assert scraping.faults.active() == {}


async def test_connections_stay_while_the_authorities_do(
    scraping: Scraping, authority: Authority, other_authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.file.read_bytes())
    async with AnsweringPod(reply(), authority.server_context()) as there:
        endpoint = there.endpoint(secure(ca_file=str(file)))
        for _ in range(3):
            await scraping.scraper.fetch(endpoint)
            scraping.clock.advance(61)
        assert len(there.connections) == 1
        file.write_bytes(other_authority.file.read_bytes())
        refusals = await asyncio.gather(*(scraping.refusal(endpoint) for _ in range(5)))
        assert {kind for kind, _ in refusals} == {"unreachable"}, "what is not trusted any more is not used"
