import asyncio
import contextlib
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from aiohttp import web

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.prometheus import connection, endpoint, series_worker
from adapter.prometheus.endpoint import PrometheusEndpoint, PrometheusServer, TLSFiles
from adapter.prometheus.series import LINE_BYTES, SeriesLister, WorkerLine, WorkerRequest
from adapter.prometheus.series_worker import SeriesTally
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.prometheus.scripted import Scripted, Start, connection_options, hang, redirect, stream
from tests.support.clock import WALL, FakeClock
from tests.support.tls import Authority

UP = {"__name__": "up", "job": "a", "pod": "p"}


def series(*listed: dict[str, str], **more: object) -> str:
    return json.dumps({"status": "success", "data": list(listed), **more}, separators=(",", ":"))


def refusal(kind: str, text: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": text})


# -- what is kept of a list ------------------------------------------------------------------------


def test_names_stand_in_the_order_in_which_they_last_appear() -> None:
    tally = SeriesTally()
    tally.add([{"__name__": "a", "x": "1"}, {"__name__": "b", "x": "1"}])
    tally.add([{"__name__": "a", "y": "2"}, {"__name__": "c"}, {"__name__": "c"}])
    assert tally.result() == [
        SeriesInfo("b", frozenset({"x"}), 1),
        SeriesInfo("a", frozenset({"x", "y"}), 2),
        SeriesInfo("c", frozenset(), 2),
    ]


def test_all_label_names_of_a_name_are_kept_however_many_sets_there_are() -> None:
    tally = SeriesTally()
    tally.add([{"__name__": "a", f"label_{number}": "x"} for number in range(2500)])
    (info,) = tally.result()
    assert info.count == 2500
    assert info.labels == frozenset(f"label_{number}" for number in range(2500))


def test_a_series_without_a_name_has_the_empty_one() -> None:
    tally = SeriesTally()
    tally.add([{"job": "a"}])
    assert tally.result() == [SeriesInfo("", frozenset({"job"}), 1)]


# -- the worker, run inside the test ---------------------------------------------------------------


async def run_worker(place: str | PrometheusEndpoint, *selectors: str, **settings: Any) -> list[WorkerLine]:
    """Run the worker for the selectors, with these fields of the server; return its lines but the last."""
    address = PrometheusEndpoint(place) if isinstance(place, str) else place
    bounds = {"timeout": 1.0, "max_bytes": 1 << 20}
    server = PrometheusServer(
        address, **{"tls": TLSFiles(), "headers": {}, "proxy": "", **bounds, **settings}
    )
    request = WorkerRequest(server, list(selectors), 1700000000.5, connections=2)
    sink = io.BytesIO()
    sound = await asyncio.to_thread(series_worker.run, io.BytesIO(msgspec.json.encode(request)), sink)
    assert sound
    lines = [msgspec.json.decode(line, type=WorkerLine) for line in sink.getvalue().splitlines()]
    assert lines[-1].peak > 1_000_000
    return lines[:-1]


async def test_what_is_sent(scripted: Scripted) -> None:
    scripted.answer(200, series(UP))
    address = PrometheusEndpoint(f"{scripted.url}/prom", query="dropped=1", params=(("tenant", "t"),))
    headers = {"Authorization": "Bearer abc", "X-Scope-OrgID": "team", "Accept-Encoding": "identity"}
    await run_worker(address, 'up{job=~"a|b"}', headers=headers)
    (seen,) = scripted.seen
    assert seen.method == "GET"
    selector = "match%5B%5D=up%7Bjob%3D~%22a%7Cb%22%7D"
    assert seen.target == f"/prom/api/v1/series?{selector}&start=1700000000.5&tenant=t"
    assert {name: seen.headers[name.lower()] for name in headers} == headers
    assert "end" not in parse_qs(urlsplit(seen.target).query)


async def test_a_selector_too_long_for_get_is_posted(scripted: Scripted) -> None:
    scripted.answer(200, series(UP))
    selector = "up{pod=~'" + "x" * 9000 + "'}"
    (line,) = await run_worker(PrometheusEndpoint(scripted.url, query="kept=1"), selector)
    assert line.done
    (seen,) = scripted.seen
    assert (seen.method, seen.target) == ("POST", "/api/v1/series?kept=1")
    assert seen.form == {"match[]": selector, "start": "1700000000.5"}
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_an_answer_is_names_and_label_names(scripted: Scripted) -> None:
    body = series(UP, {"__name__": "up", "node": "n"}, {"__name__": "down"}, warnings=["partial"])
    scripted.answer(200, body)
    listed = (SeriesInfo("up", frozenset({"job", "pod", "node"}), 2), SeriesInfo("down", frozenset(), 1))
    assert await run_worker(scripted.url, "x") == [WorkerLine(0, listed, done=True, bytes=len(body))]


async def test_a_long_result_is_told_in_several_lines(scripted: Scripted) -> None:
    many = [{"__name__": f"metric_{number:0200}"} for number in range(3000)]
    scripted.answer(200, series(*many))
    lines = await run_worker(scripted.url, "x")
    assert len(lines) > 2
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert [info.name for line in lines for info in line.series] == [each["__name__"] for each in many]
    assert max(len(msgspec.json.encode(line)) for line in lines) < 2 * LINE_BYTES


NOT_READ = "not an answer of Prometheus: "


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (400, refusal("bad_data", "parse error"), "query", "bad_data: parse error"),
        (200, refusal("execution", "too many"), "query", "execution: too many"),
        (500, refusal("bad_data", "not read"), "status", "HTTP status 500"),
        (404, "404 page not found", "status", f"HTTP status 404: {endpoint.NO_API}"),
        (400, "Client sent an HTTP request to an HTTPS server.\n", "status", endpoint.ONLY_TLS),
        (200, "", "decode", f"not JSON: {endpoint.NO_API}"),
        (200, '{"status":', "decode", f"{NOT_READ}Input data was truncated"),
        (200, '{"status":"success","data":[{"__name__":"a"},', "decode", NOT_READ),
        (200, '{"status":"success","data":[{"__name__":1}]}', "decode", NOT_READ),
        (200, '{"status":"success","data":{}}', "decode", NOT_READ),
        (200, '{"status":"success","data":null}', "decode", "the answer holds no data"),
    ],
)
async def test_failures_in_the_answer(
    status: int, body: str, kind: str, text: str, scripted: Scripted
) -> None:
    scripted.answer(status, body)
    (line,) = await run_worker(scripted.url, "x")
    assert (line.kind, line.done) == (kind, False)
    assert line.text.startswith(text) if text == NOT_READ else line.text == text
    assert len(scripted.seen) == 1, "nothing is tried twice"


async def test_an_answer_that_is_too_large(scripted: Scripted) -> None:
    body = series(*[UP] * 100)
    scripted.answer(200, body)
    (line,) = await run_worker(scripted.url, "x", max_bytes=len(body) - 1)
    text = f"the series list is larger than {len(body) - 1} bytes (--discovery-max-bytes)"
    assert (line.kind, line.text) == ("size", text)
    (line,) = await run_worker(scripted.url, "x", max_bytes=len(body))
    assert line.done


async def test_a_failed_selector_leaves_the_others_alone(scripted: Scripted) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.query["match[]"] == "bad":
            return web.json_response({"status": "error", "errorType": "bad_data", "error": "no"}, status=400)
        return web.Response(text=series({"__name__": request.query["match[]"]}))

    scripted.respond = respond
    lines = await run_worker(scripted.url, "a", "bad", "b", "bad", "c")
    results = {line.selector: line.kind or line.series[0].name for line in lines}
    assert results == {0: "a", 1: "query", 2: "b", 3: "query", 4: "c"}


async def test_failures_of_the_connection(scripted: Scripted) -> None:
    async def result(url: str, **settings: object) -> tuple[str, str]:
        (line,) = await run_worker(url, "x", **settings)
        return line.kind, line.text

    without_tls = scripted.url.replace("http://", "https://")
    assert await result(without_tls) == ("unreachable", endpoint.NO_TLS)
    assert await result("http://127.0.0.1:1") == ("unreachable", "Connection refused")
    scripted.respond = stream([b'{"status":"success","data":['], pause=60.0)
    assert await result(scripted.url, timeout=0.1) == ("timeout", "no answer in time")
    scripted.respond = redirect
    redirected = "too many redirects, or a redirect to an invalid URL"
    assert await result(scripted.url) == ("status", redirected)


async def test_an_answer_that_breaks_off(scripted: Scripted) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"status":"success","data":[')
        assert request.transport is not None
        request.transport.close()
        return response

    scripted.respond = respond
    (line,) = await run_worker(scripted.url, "x")
    assert (line.kind, line.text) == ("unreachable", "the connection broke within the answer")


async def test_tls_files(start_scripted: Start, authority: Authority, other_authority: Authority) -> None:
    server = await start_scripted(authority.server_context(client_certificates=True))
    server.answer(200, series(UP))
    pair = authority.issue()
    shown = {"cert_file": str(pair.certificate), "key_file": str(pair.key)}

    async def ask(**files: Any) -> WorkerLine:
        (line,) = await run_worker(server.url, "x", tls=TLSFiles(**files))
        return line

    assert (await ask(ca_file=str(authority.file), **shown)).done
    assert (await ask(ca_file=str(authority.file))).kind == "unreachable"
    assert (await ask(ca_file="/nowhere/ca.crt")).kind == "unreachable"
    for files in ({}, {"ca_file": str(other_authority.file)}):
        refusal = await ask(**files, **shown)
        assert refusal.kind == "unreachable"
        assert refusal.text.startswith("certificate not accepted: ")
        assert "0x" not in refusal.text


async def test_another_name_in_the_servers_certificate(start_scripted: Start, authority: Authority) -> None:
    server = await start_scripted(authority.server_context(authority.issue("prometheus.example")))
    server.answer(200, series(UP))
    (line,) = await run_worker(server.url, "x", tls=TLSFiles(str(authority.file)))
    assert line.kind == "unreachable"
    named = TLSFiles(str(authority.file), server_name="prometheus.example")
    (line,) = await run_worker(server.url, "x", tls=named)
    assert line.done


async def test_the_environment_says_nothing(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    scripted.answer(200, series(UP))
    (line,) = await run_worker(scripted.url, "x")
    assert line.done
    assert "authorization" not in scripted.seen[0].headers


async def test_a_proxy_is_used_when_it_is_given(scripted: Scripted) -> None:
    scripted.answer(200, series(UP))
    (line,) = await run_worker("http://prometheus.example:9090", "x", proxy=scripted.url)
    assert line.done
    assert scripted.seen[0].target.startswith("http://prometheus.example:9090/api/v1/series?")


# -- the lister with its process -------------------------------------------------------------------

MakeLister = Callable[..., Awaitable[SeriesLister]]


@pytest.fixture
def make_lister(clock: FakeClock, monitoring: Monitoring, faults: ProblemLog) -> MakeLister:
    async def make(
        url: str,
        *,
        max_bytes: int = 1 << 24,
        timeout: float = 30,  # noqa: ASYNC109 - the lister's
        **settings: object,
    ) -> SeriesLister:
        origin = await connection.open_connection(connection_options(url, **settings), clock, faults)
        return SeriesLister(origin, monitoring, faults, max_bytes=max_bytes, timeout=timeout)

    return make


async def test_no_selector_needs_no_process(make_lister: MakeLister) -> None:
    assert await (await make_lister("http://127.0.0.1:1")).series([], WALL) == {}


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_names_that_take_too_much_memory_fail_the_list_and_not_the_process(
    scripted: Scripted, make_lister: MakeLister
) -> None:
    """A short list of ever other names and labels takes many times its bytes in memory."""
    labels = ",".join(f'"l{number}":""' for number in range(40))

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.query["match[]"] == "up":
            return web.Response(text=series(UP))
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"status":"success","data":[')
        for block in range(100):
            part = ",".join(f'{{"__name__":"m{block}_{number}",{labels}}}' for number in range(800))
            await response.write(f"{',' if block else ''}{part}".encode())
        await response.write(b"]}")
        return response

    scripted.respond = respond
    found = await (await make_lister(scripted.url, max_bytes=1 << 25)).series(["many", "up"], WALL)
    assert isinstance(found["many"], PrometheusError)
    assert (found["many"].kind, "take more memory than" in str(found["many"])) == ("size", True)
    assert found["up"] == (SeriesInfo("up", frozenset({"job", "pod"}), 1),)


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_run(
    scripted: Scripted, make_lister: MakeLister, monitoring: Monitoring, tmp_path: Path
) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.query["match[]"] == "bad":
            return web.json_response({"status": "error", "errorType": "bad_data", "error": "no"}, status=400)
        return web.Response(text=series({"__name__": request.query["match[]"], "pod": "p"}))

    scripted.respond = respond
    (tmp_path / "token").write_text("secret-token")
    lister = await make_lister(scripted.url, token_file=str(tmp_path / "token"))
    found = await lister.series(["a", "bad", "b", "a"], WALL - 0.5)
    refusal = found["bad"]
    assert isinstance(refusal, PrometheusError)
    assert (refusal.kind, str(refusal)) == ("query", "bad_data: no")
    assert dict(found) == {
        "a": (SeriesInfo("a", frozenset({"pod"}), 1),),
        "bad": refusal,
        "b": (SeriesInfo("b", frozenset({"pod"}), 1),),
    }
    assert len(scripted.seen) == 3
    assert {seen.headers["authorization"] for seen in scripted.seen} == {"Bearer secret-token"}
    assert {seen.form["start"] for seen in scripted.seen} == {"1699999999.5"}
    size = 2 * len(series({"__name__": "a", "pod": "p"}))
    assert f"fastpath_discovery_bytes {size}.0" in monitoring.exposition()
    assert "fastpath_discovery_worker_peak_memory_bytes 0.0" not in monitoring.exposition()


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_secrets_are_neither_in_the_arguments_nor_in_the_environment(
    scripted: Scripted, make_lister: MakeLister
) -> None:
    shown: list[bytes] = []

    async def respond(_: web.Request) -> web.StreamResponse:
        shown.extend(what_children_show())
        return web.Response(text=series(UP))

    scripted.respond = respond
    lister = await make_lister(
        scripted.url.replace("http://", "http://user:hidden-password@"), headers=(("X-Key", "hidden-key"),)
    )
    await lister.series(["up"], WALL)
    assert any(b"series_worker" in text for text in shown)
    assert not any(b"hidden" in text for text in shown)
    assert scripted.seen[0].headers["x-key"] == "hidden-key"


def what_children_show() -> list[bytes]:
    return [
        Path(f"/proc/{child}/{name}").read_bytes()
        for child in child_processes()
        for name in ("cmdline", "environ")
    ]


def child_processes() -> set[int]:
    return {
        int(child)
        for task in Path(f"/proc/{os.getpid()}/task").glob("*/children")
        for child in task.read_text().split()
    }


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_the_deadline_keeps_what_was_complete(scripted: Scripted, make_lister: MakeLister) -> None:
    quick = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.query["match[]"] == "slow":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"status":"success","data":[{"__name__":"a"}')
            while True:  # a byte now and then: no timeout of the worker's own would end this
                await response.write(b" ")
                await asyncio.sleep(0.05)
        quick.set()
        return web.Response(text=series(UP))

    scripted.respond = respond
    lister = await make_lister(scripted.url, timeout=3)
    found = await lister.series(["slow", "quick"], WALL)
    slow = found["slow"]
    assert isinstance(slow, PrometheusError)
    assert (slow.kind, str(slow)) == ("timeout", f"{scripted.url}/api/v1/series: no series list in 3 s")
    assert found["quick"] == (SeriesInfo("up", frozenset({"job", "pod"}), 1),)
    assert not child_processes()


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_killed_worker(scripted: Scripted, make_lister: MakeLister, faults: ProblemLog) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        for child in child_processes():
            os.kill(child, 9)
        return web.Response(text=series(UP))

    scripted.respond = respond
    lister = await make_lister(scripted.url)
    found = await lister.series(["a", "b"], WALL)
    assert [(each.kind, str(each)) for each in found.values() if isinstance(each, PrometheusError)] == [
        ("worker", "the discovery worker ended with SIGKILL, as when memory runs out")
    ] * 2
    assert list(faults.active()) == [("discovery-worker", "")]
    scripted.answer(200, series(UP))
    assert not isinstance((await lister.series(["a"], WALL))["a"], PrometheusError)
    assert not faults.active()


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_cancelled_caller_ends_the_worker(scripted: Scripted, make_lister: MakeLister) -> None:
    begun = asyncio.Event()
    scripted.respond = hang(begun)
    asking = asyncio.create_task((await make_lister(scripted.url)).series(["up"], WALL))
    await begun.wait()
    assert child_processes()
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert asking.cancelled()
    assert not child_processes()


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_worker_that_cannot_start(
    make_lister: MakeLister, monkeypatch: pytest.MonkeyPatch, faults: ProblemLog
) -> None:
    lister = await make_lister("http://127.0.0.1:1")
    monkeypatch.setattr("adapter.prometheus.series.MODULE", "adapter.prometheus.missing")
    (error,) = (await lister.series(["up"], WALL)).values()
    assert isinstance(error, PrometheusError)
    assert (error.kind, str(error)) == ("worker", "the discovery worker ended with exit status 1")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (error,) = (await lister.series(["up"], WALL)).values()
    assert isinstance(error, PrometheusError)
    assert str(error) == "the discovery worker cannot be started: No such file or directory"
    assert list(faults.active()) == [("discovery-worker", "")]


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_million_series_need_no_more_memory_than_few(
    scripted: Scripted, make_lister: MakeLister, monitoring: Monitoring
) -> None:
    blocks = [
        ",".join(
            f'{{"__name__":"metric_{block}","instance":"10.0.0.1:8080","namespace":"web","pod":"pod-{number}"}}'
            for number in range(1000)
        ).encode()
        for block in range(100)
    ]

    first, *others = blocks * 10
    others = [b"," + block for block in others]
    scripted.respond = stream([b'{"status":"success","data":[', first, *others, b"]}"])
    (found,) = (await (await make_lister(scripted.url, max_bytes=1 << 28)).series(["x"], WALL)).values()
    assert not isinstance(found, PrometheusError)
    assert sum(info.count for info in found) == 1_000_000
    assert len(found) == 100
    # the worker's memory does not grow with the list, of 80 MB here
    peak = monitoring.registry.get_sample_value("fastpath_discovery_worker_peak_memory_bytes")
    assert peak is not None
    assert peak < 60 * 2**20
