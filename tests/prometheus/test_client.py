import asyncio
import gzip
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from adapter.errors import PrometheusError
from adapter.model.metrics import HISTOGRAM, QueryResult, Sample
from adapter.prometheus import client as prometheus
from adapter.prometheus import connection, endpoint
from adapter.prometheus import response as envelope
from adapter.prometheus.client import PrometheusClient
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.prometheus.scripted import (
    EMPTY_VECTOR,
    Scripted,
    Start,
    connection_options,
    hang,
    redirect,
    stream,
)
from tests.support.answers import answers
from tests.support.clock import WALL, FakeClock
from tests.support.tls import Authority
from tests.support.waiting import until

Open = Callable[..., Awaitable[PrometheusClient]]
Ask = Callable[..., Awaitable[QueryResult]]

VECTOR = '{"status":"success","data":{"resultType":"vector","result":[%s]}}'
ERROR = '{"status":"error","errorType":"%s","error":"%s"}'


@pytest.fixture
async def open_client(clock: FakeClock, monitoring: Monitoring, faults: ProblemLog) -> AsyncIterator[Open]:
    """Return a function that opens a client to a URL with further options; all are closed at the end."""
    clients: list[PrometheusClient] = []

    async def start(url: str, **options: object) -> PrometheusClient:
        wanted = connection_options(url, **options)
        clients.append(await PrometheusClient.open(wanted, clock, monitoring, faults))
        return clients[-1]

    yield start
    for client in clients:
        await client.close()


@pytest.fixture
def ask(scripted: Scripted, open_client: Open) -> Ask:
    """Return a function that opens a client to the scripted server with options, and sends a query."""

    async def query(promql: str = "up", **options: object) -> QueryResult:
        return await (await open_client(scripted.url, **options)).query(promql, WALL)

    return query


async def refused(asked: Awaitable[object]) -> tuple[str, str]:
    with pytest.raises(PrometheusError) as caught:
        await asked
    return caught.value.kind, caught.value.message


async def test_a_query_by_get(scripted: Scripted, open_client: Open) -> None:
    scripted.answer(200, VECTOR % f'{{"metric":{{"pod":"a"}},"value":[{WALL},"2.5"]}}')
    client = await open_client(f"{scripted.url}/prom/?dropped=1")
    result = await client.query('sum(x{a="b c"}[1m])', WALL + 0.25)
    assert result == QueryResult("vector", [Sample({"pod": "a"}, 2.5, WALL)])
    (seen,) = scripted.seen
    assert (seen.method, seen.body) == ("GET", "")
    assert (
        seen.target
        == "/prom/api/v1/query?query=sum%28x%7Ba%3D%22b+c%22%7D%5B1m%5D%29&time=1700000000.25&timeout=5"
    )


async def test_a_query_by_post(scripted: Scripted, open_client: Open) -> None:
    client = await open_client(f"{scripted.url}/prom?kept=1", verb="POST", query_params=(("tenant", "t"),))
    await client.query("a+b", WALL)
    (seen,) = scripted.seen
    assert (seen.method, seen.target) == ("POST", "/prom/api/v1/query?kept=1&tenant=t")
    assert seen.body == "query=a%2Bb&time=1700000000&timeout=5"
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_a_query_too_long_for_get_is_posted(
    scripted: Scripted, ask: Ask, monitoring: Monitoring
) -> None:
    query = f'up{{pod=~"{"|".join(f"pod-{number}" for number in range(2000))}"}}'
    await ask(query)
    (seen,) = scripted.seen
    assert (seen.method, seen.form["query"]) == ("POST", query)
    assert "fastpath_prometheus_query_posts_total 1.0" in monitoring.exposition()


async def test_headers_and_authorization(scripted: Scripted, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    await ask(headers=(("X-Scope-OrgID", "team-1"),), token_file=str(tmp_path / "token"))
    sent = {"x-scope-orgid": "team-1", "authorization": "Bearer abc", "accept-encoding": "identity"}
    assert sent.items() <= scripted.seen[0].headers.items()


async def test_a_refused_token_is_looked_at_for_the_next_query(
    scripted: Scripted, open_client: Open, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("old")
    client = await open_client(scripted.url, token_file=str(tmp_path / "token"))
    (tmp_path / "token").write_text("newer")
    scripted.answer(401, "who?")
    assert await refused(client.query("up", WALL)) == ("status", "HTTP status 401")
    await refused(client.query("up", WALL))
    assert [seen.headers["authorization"] for seen in scripted.seen] == ["Bearer old", "Bearer newer"]


@pytest.mark.parametrize(("status", "body", "kind", "message"), answers("prometheus/client", "answers"))
async def test_what_a_status_and_a_body_say(
    status: int, body: str, kind: str, message: str, scripted: Scripted, ask: Ask
) -> None:
    scripted.answer(status, body)
    if kind:
        assert await refused(ask()) == (kind, message)
    else:
        assert (await ask()).samples == []


async def test_warnings_are_counted_and_carried(scripted: Scripted, ask: Ask, monitoring: Monitoring) -> None:
    body = VECTOR % '{"metric":{},"histogram":[1,{}]}'
    scripted.answer(200, body[:-1] + ',"warnings":["a","b"]}')
    result = await ask("h")
    assert [sample.value for sample in result.samples] == [HISTOGRAM]
    assert result.warnings == ("a", "b")
    assert "fastpath_prometheus_query_warnings_total 2.0" in monitoring.exposition()


async def test_compressed_answers_are_read(scripted: Scripted, ask: Ask) -> None:
    scripted.answer(200, gzip.compress(json.dumps(EMPTY_VECTOR).encode()), **{"Content-Encoding": "gzip"})
    assert (await ask()).samples == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_answer_that_is_too_large(chunked: bool, scripted: Scripted, ask: Ask) -> None:  # noqa: FBT001 - a table's column
    body = json.dumps(EMPTY_VECTOR).encode()
    scripted.answer(200, body)
    if chunked:
        scripted.respond = stream([body[start : start + 10] for start in range(0, len(body), 10)])
    text = f"the answer takes more than {len(body) - 1} bytes (--prometheus-max-answer-bytes)"
    assert await refused(ask(max_answer_bytes=len(body) - 1)) == ("size", text)
    assert (await ask(max_answer_bytes=2 * len(body))).samples == []


def long_answer(samples: int) -> bytes:
    elements = [f'{{"metric":{{"pod":"p{number}"}},"value":[{WALL},"1"]}}' for number in range(samples)]
    return (VECTOR % ",".join(elements)).encode()


async def test_an_answer_of_more_samples_than_wanted_is_not_read_to_its_end(
    scripted: Scripted, open_client: Open, monitoring: Monitoring
) -> None:
    body = long_answer(30_000)
    scripted.respond = stream([body[:-10]], pause=60.0)
    client = await open_client(scripted.url)
    asked = client.query("up", WALL, most=10_000)
    assert await refused(asked) == ("size", "the answer has more than 10000 samples")
    assert "\nfastpath_prometheus_response_bytes 0.0" in monitoring.exposition()
    scripted.answer(200, body.decode())
    assert len((await client.query("up", WALL, most=30_000)).samples) == 30_000


def memory_of(body: bytes) -> int:
    """Return how much memory an answer takes by the time it is read."""
    decoder = envelope.ResponseDecoder()
    decoder.feed(body)
    while decoder.step():
        pass
    return decoder.weight


def reading(monitoring: Monitoring) -> float | None:
    return monitoring.registry.get_sample_value("fastpath_prometheus_response_bytes")


async def test_an_answer_is_measured_by_the_memory_that_it_takes(
    scripted: Scripted, ask: Ask, monitoring: Monitoring
) -> None:
    """Many samples in few bytes are refused long before their text is as large as the limit."""
    body = long_answer(20_000)
    scripted.answer(200, body.decode())
    kind, text = await refused(ask(max_answer_bytes=3 * len(body)))
    assert (kind, text.partition(" (")[0]) == ("size", f"the answer takes more than {3 * len(body)} bytes")
    assert reading(monitoring) == 0
    assert len((await ask(max_answer_bytes=20 * len(body))).samples) == 20_000
    assert reading(monitoring) == 0


async def test_answers_that_are_read_at_a_time_are_bounded_together(
    scripted: Scripted, open_client: Open, ask: Ask, monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones are read all the same."""
    monkeypatch.setattr(prometheus, "SMALL_ANSWER", 100_000)
    body, small = long_answer(10_000), long_answer(100)
    rest = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if request.query["query"] == "small":
            await response.write(small)
        else:
            await response.write(body[:-10])
            await rest.wait()
            await response.write(body[-10:])
        return response

    scripted.respond = respond
    limit = memory_of(body) + 200_000
    client = await open_client(scripted.url, max_answer_bytes=limit)
    first = asyncio.create_task(client.query("large", WALL))
    await until(lambda: (reading(monitoring) or 0) > 0.95 * memory_of(body))
    kind, text = await refused(client.query("large", WALL))
    assert kind == "size"
    assert text == f"the answers being read take more than {limit} bytes (--prometheus-max-answer-bytes)"
    assert len((await client.query("small", WALL)).samples) == 100
    rest.set()
    assert len((await first).samples) == 10_000
    assert len((await client.query("large", WALL)).samples) == 10_000


async def test_a_bomb_is_measured_unpacked(scripted: Scripted, ask: Ask) -> None:
    scripted.answer(200, gzip.compress(b" " * 3_000_000), **{"Content-Encoding": "gzip"})
    assert (await refused(ask(max_answer_bytes=1_000_000)))[0] == "size"


async def test_a_slow_answer(scripted: Scripted, ask: Ask, monitoring: Monitoring) -> None:
    gone = asyncio.Event()
    scripted.respond = hang(gone=gone)
    assert await refused(ask(attempt_timeout=0.05)) == ("timeout", "no answer in 0.05 s")
    assert scripted.seen[0].form["timeout"] == "0.05"
    await gone.wait()
    assert "fastpath_prometheus_query_duration_seconds_count 1.0" in monitoring.exposition()


def bound_connections(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(prometheus, "MAX_CONNECTIONS", most)


async def test_a_cancelled_caller_cancels_the_request(
    scripted: Scripted, open_client: Open, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()
    scripted.respond = hang(begun, gone)
    bound_connections(monkeypatch, 1)
    client = await open_client(scripted.url)
    asking = asyncio.create_task(client.query("up", WALL))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await gone.wait()
    scripted.answer(200, json.dumps(EMPTY_VECTOR))
    await client.query("up", WALL)  # the one connection is free again


async def test_no_more_connections_than_allowed(
    scripted: Scripted, open_client: Open, ask: Ask, monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = most = 0
    go = asyncio.Event()

    async def respond(_: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return web.json_response(EMPTY_VECTOR)

    scripted.respond = respond
    bound_connections(monkeypatch, 2)
    client = await open_client(scripted.url)
    asking = [asyncio.create_task(client.query("up", WALL)) for _ in range(3)]
    await until(lambda: running == 2)
    assert "fastpath_prometheus_queries_waiting 1.0" in monitoring.exposition()
    go.set()
    await asyncio.gather(*asking)
    assert most == 2
    assert "fastpath_prometheus_queries_waiting 0.0" in monitoring.exposition()


async def test_waiting_for_a_connection_is_bounded(
    scripted: Scripted, ask: Ask, monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_connections(monkeypatch, 0)
    assert await refused(ask(timeout=0.05)) == ("timeout", "no connection became free in 0.05 s")
    assert "fastpath_prometheus_queries_waiting 0.0" in monitoring.exposition()
    assert scripted.seen == []


async def test_prometheus_gets_the_time_left(
    scripted: Scripted, open_client: Open, ask: Ask, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()

    async def respond(_: web.Request) -> web.StreamResponse:
        await go.wait()
        return web.json_response(EMPTY_VECTOR)

    scripted.respond = respond
    bound_connections(monkeypatch, 1)
    client = await open_client(scripted.url)
    first = asyncio.create_task(client.query("one", WALL))
    await until(lambda: bool(scripted.seen))
    second = asyncio.create_task(client.query("two", WALL))
    await asyncio.sleep(0)
    clock.advance(6.5)
    go.set()
    await asyncio.gather(first, second)
    assert [seen.form["timeout"] for seen in scripted.seen] == ["5", "1.5"]


# -- connections that break ------------------------------------------------------------------------

ANSWER = json.dumps(EMPTY_VECTOR).encode()
OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"Content-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)


class Raw:
    """A server below HTTP: for each connection a script of what to do with each request.

    None closes without a word.
    """

    def __init__(self, scripts: list[list[bytes | None]]) -> None:
        self._scripts = scripts
        self.requests = 0
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for step in self._scripts.pop(0) if self._scripts else []:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        await reader.readexactly(int(line.split(b":")[1]))
                self.requests += 1
                if step is None:
                    break
                writer.write(step)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


StartRaw = Callable[[list[list[bytes | None]]], Awaitable[Raw]]


@pytest.fixture
async def start_raw() -> AsyncIterator[StartRaw]:
    servers: list[asyncio.Server] = []

    async def start(scripts: list[list[bytes | None]]) -> Raw:
        raw = Raw(scripts)
        server = await asyncio.start_server(raw.handle, "127.0.0.1", 0)
        servers.append(server)
        raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return raw

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize(
    ("scripts", "outcomes", "requests", "retries"),
    [
        pytest.param([[WHOLE, None], [WHOLE]], ["", ""], 3, 1, id="idle: sent again"),
        pytest.param([[None], [WHOLE]], ["unreachable"], 1, 0, id="fresh: not sent again"),
        pytest.param([[WHOLE, None], [None], [WHOLE]], ["", "unreachable"], 3, 1, id="lost twice"),
    ],
)
async def test_a_query_lost_on_an_idle_connection_is_sent_again_once(
    verb: str,
    scripts: list[list[bytes | None]],
    outcomes: list[str],
    requests: int,
    retries: int,
    start_raw: StartRaw,
    open_client: Open,
    monitoring: Monitoring,
) -> None:
    raw = await start_raw([list(script) for script in scripts])
    client = await open_client(raw.url, verb=verb)
    for outcome in outcomes:
        if outcome:
            text = "the connection was closed before the answer"
            assert await refused(client.query("up", WALL)) == (outcome, text)
        else:
            assert (await client.query("up", WALL)).samples == []
    assert raw.requests == requests
    assert f"fastpath_prometheus_query_retries_total {retries}.0" in monitoring.exposition()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (WHOLE[:-10], "unreachable"),
        (OK + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"sta', "unreachable"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", "status"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "status"),
        (OK + b"Content-Length: x\r\n\r\n", "status"),
        (b"HTTP/1.1 302 Found\r\nLocation: ftp://elsewhere/\r\nContent-Length: 0\r\n\r\n", "status"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://\r\nContent-Length: 0\r\n\r\n", "status"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nxxxx", "unreachable"),
        (OK + b"X: " + b"x" * 100_000 + b"\r\n\r\n", "status"),
    ],
    ids=["body", "chunk", "bad chunk", "not http", "bad length", "ftp", "nowhere", "not gzip", "header"],
)
async def test_answers_that_break_off_or_are_not_http(
    answer: bytes, kind: str, start_raw: StartRaw, open_client: Open
) -> None:
    raw = await start_raw([[answer], []])
    found, text = await refused((await open_client(raw.url)).query("secret_query", WALL))
    assert found in {kind, "unreachable"}
    assert "secret_query" not in text
    assert len(text) <= 200


async def test_redirects_are_limited(scripted: Scripted, ask: Ask) -> None:
    scripted.respond = redirect
    assert await refused(ask()) == ("status", "too many redirects, or a redirect to an invalid URL")
    assert len(scripted.seen) == 10


async def test_closed_during_a_query(scripted: Scripted, open_client: Open, ask: Ask) -> None:
    begun = asyncio.Event()
    scripted.respond = hang(begun)
    client = await open_client(scripted.url)
    asking = asyncio.create_task(client.query("up", WALL))
    await begun.wait()
    await client.close()
    assert (await refused(asking))[0] == "unreachable"
    assert await refused(client.query("up", WALL)) == ("unreachable", "the client is closed")


URL_WITH_SECRET = URL("http://p/?query=secret")
ASKED = aiohttp.RequestInfo(URL_WITH_SECRET, "GET", None, URL_WITH_SECRET)  # type: ignore[arg-type]  # no headers


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (aiohttp.ClientHttpProxyError(ASKED, (), status=407), "unreachable"),
        (aiohttp.InvalidURL(URL_WITH_SECRET), "status"),
        (aiohttp.ClientResponseError(ASKED, (), message="m"), "status"),
        (aiohttp.ServerDisconnectedError(), "unreachable"),
        (aiohttp.ClientPayloadError("text"), "unreachable"),
        (OSError(), "unreachable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_the_library_raises_is_mapped(error: Exception, kind: str) -> None:
    mapped = prometheus.map_error(error)
    assert mapped.kind == kind
    assert str(mapped)
    assert "secret" not in str(mapped)


async def test_a_failure_names_the_url_without_secrets(open_client: Open) -> None:
    url = "http://user:secret@127.0.0.1:1/prom/?token=secret"
    client = await open_client(url, query_params=(("token", "secret"),), headers=(("X-Key", "secret"),))
    with pytest.raises(PrometheusError) as caught:
        await client.query("secret", WALL)
    assert str(caught.value).startswith("http://127.0.0.1:1/prom/api/v1/query: cannot connect: ")
    assert not re.search("secret|0x", str(caught.value))


async def test_a_refused_query_does_not_name_the_server(scripted: Scripted, ask: Ask) -> None:
    scripted.answer(400, ERROR % ("bad_data", "parse error"))
    with pytest.raises(PrometheusError) as caught:
        await ask("(")
    assert str(caught.value) == "bad_data: parse error"


# -- TLS -------------------------------------------------------------------------------------------


async def test_a_server_without_tls(scripted: Scripted, open_client: Open) -> None:
    client = await open_client(scripted.url.replace("http://", "https://"))
    assert await refused(client.query("up", WALL)) == ("unreachable", endpoint.NO_TLS)


def test_a_failure_of_tls_says_which() -> None:
    """What OpenSSL says of a handshake; its word for a plain answer depends on the version."""
    other = ssl.SSLError(1, "[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] handshake failure")
    assert endpoint.explain_tls(other) == f"TLS failed: {other}"
    assert (
        endpoint.explain_tls(ssl.SSLCertVerificationError("self-signed"))
        == "certificate not accepted: ('self-signed',)"
    )


async def test_the_certificate_must_name_the_host(
    start_scripted: Start, open_client: Open, authority: Authority
) -> None:
    server = await start_scripted(authority.server_context(authority.issue("elsewhere.example")))
    kind, text = await refused((await open_client(server.url, ca_file=str(authority.file))).query("up", WALL))
    assert kind == "unreachable"
    assert "127.0.0.1" in text


async def test_tls_older_than_1_2_is_refused(open_client: Open, authority: Authority) -> None:
    client = await open_client("https://127.0.0.1", ca_file=str(authority.file))
    assert connection.build_context(client.origin.tls).minimum_version == ssl.TLSVersion.TLSv1_2


# -- the real one ----------------------------------------------------------------------------------
