import asyncio
import contextlib
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from aiohttp import web

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.prometheus import connection, endpoint, series_worker
from adapter.prometheus.connection import PrometheusSettings
from adapter.prometheus.endpoint import PrometheusEndpoint, TLSFiles
from adapter.prometheus.series import LINE_BYTES, SeriesLister, WorkerLine, WorkerRequest
from adapter.prometheus.series_worker import SeriesTally
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import WALL, FakeClock
from tests.support.prometheus import PrometheusFactory
from tests.support.scripted import Scripted, Start
from tests.support.tls import Authority

UP = {"__name__": "up", "job": "a", "pod": "p"}


def series(*each: dict[str, str], **more: object) -> str:
    return json.dumps({"status": "success", "data": list(each), **more}, separators=(",", ":"))


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


def request_to(url: str, *selectors: str, **settings: object) -> WorkerRequest:
    values: dict[str, object] = {
        "endpoint": PrometheusEndpoint(url),
        "tls": TLSFiles(),
        "headers": {},
        "proxy": "",
        "selectors": list(selectors),
        "start": 1700000000.5,
        "max_bytes": 1 << 20,
        "timeout": 1.0,
        "connections": 2,
        **settings,
    }
    return WorkerRequest(**values)  # type: ignore[arg-type]  # a table of settings


async def run_worker(request: WorkerRequest) -> list[WorkerLine]:
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
    await run_worker(request_to("", 'up{job=~"a|b"}', endpoint=address, headers=headers))
    (seen,) = scripted.seen
    assert seen.method == "GET"
    assert (
        seen.target
        == "/prom/api/v1/series?match%5B%5D=up%7Bjob%3D~%22a%7Cb%22%7D&start=1700000000.5&tenant=t"
    )
    assert {name: seen.headers[name.lower()] for name in headers} == headers
    assert "end" not in parse_qs(urlsplit(seen.target).query)


@pytest.mark.parametrize("how", ["verb", "length"])
async def test_what_is_posted(how: str, scripted: Scripted) -> None:
    scripted.answer(200, series(UP))
    selector = "up" if how == "verb" else "up{pod=~'" + "x" * 9000 + "'}"
    address = PrometheusEndpoint(scripted.url, query="kept=1", verb="POST" if how == "verb" else "GET")
    (line,) = await run_worker(request_to("", selector, endpoint=address))
    assert line.done
    (seen,) = scripted.seen
    assert (seen.method, seen.target) == ("POST", "/api/v1/series?kept=1")
    assert seen.form == {"match[]": selector, "start": "1700000000.5"}
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_an_answer_is_names_and_label_names(scripted: Scripted) -> None:
    body = series(UP, {"__name__": "up", "node": "n"}, {"__name__": "down"}, warnings=["partial"])
    scripted.answer(200, body)
    listed = (
        SeriesInfo("up", frozenset({"job", "pod", "node"}), 2),
        SeriesInfo("down", frozenset(), 1),
    )
    assert await run_worker(request_to(scripted.url, "x")) == [
        WorkerLine(0, listed, done=True, bytes=len(body))
    ]


async def test_a_long_answer_is_read_in_pieces(scripted: Scripted) -> None:
    many = [
        {"__name__": f"metric_{number // 100}", "pod": f"pod-{number}", "text": "},{"}
        for number in range(20_000)
    ]
    scripted.answer(200, series(*many))
    (line,) = await run_worker(request_to(scripted.url, "x", max_bytes=1 << 24))
    assert line.done
    assert [(info.name, info.count) for info in line.series] == [
        (f"metric_{number}", 100) for number in range(200)
    ]


async def test_a_long_result_is_told_in_several_lines(scripted: Scripted) -> None:
    many = [{"__name__": f"metric_{number:0200}"} for number in range(3000)]
    scripted.answer(200, series(*many))
    lines = await run_worker(request_to(scripted.url, "x"))
    assert len(lines) > 2
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert [info.name for line in lines for info in line.series] == [each["__name__"] for each in many]
    assert max(len(msgspec.json.encode(line)) for line in lines) < 2 * LINE_BYTES


async def test_an_empty_list_is_fine_and_null_is_not(scripted: Scripted) -> None:
    scripted.answer(200, series())
    assert await run_worker(request_to(scripted.url, "x")) == [WorkerLine(0, (), done=True, bytes=30)]
    scripted.answer(200, '{"status":"success","data":null}')
    assert await run_worker(request_to(scripted.url, "x")) == [
        WorkerLine(0, kind="decode", text="the answer holds no data")
    ]


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (
            400,
            '{"status":"error","errorType":"bad_data","error":"parse error"}',
            "query",
            "bad_data: parse error",
        ),
        (
            200,
            '{"status":"error","errorType":"execution","error":"too many"}',
            "query",
            "execution: too many",
        ),
        (503, "down", "status", "HTTP status 503"),
        (500, '{"status":"error","errorType":"bad_data","error":"not read"}', "status", "HTTP status 500"),
        (401, "who?", "status", "HTTP status 401"),
        (200, "<html>", "decode", None),
        (200, '{"status":"success","data":[{"__name__":"a"},', "decode", None),
        (200, '{"status":"success","data":[{"__name__":1}]}', "decode", None),
        (200, '{"status":"success","data":{}}', "decode", None),
    ],
)
async def test_failures_in_the_answer(
    status: int, body: str, kind: str, text: str | None, scripted: Scripted
) -> None:
    scripted.answer(status, body)
    (line,) = await run_worker(request_to(scripted.url, "x"))
    assert line.kind == kind
    assert not line.done
    if text is not None:
        assert line.text == text


async def test_nothing_is_tried_twice(scripted: Scripted) -> None:
    scripted.answer(503, "down")
    await run_worker(request_to(scripted.url, "x"))
    assert len(scripted.seen) == 1


async def test_an_answer_that_is_too_large(scripted: Scripted) -> None:
    body = series(*[UP] * 100)
    scripted.answer(200, body)
    (line,) = await run_worker(request_to(scripted.url, "x", max_bytes=len(body) - 1))
    assert (line.kind, line.text) == (
        "size",
        f"the series list is larger than {len(body) - 1} bytes (--discovery-max-bytes)",
    )
    (line,) = await run_worker(request_to(scripted.url, "x", max_bytes=len(body)))
    assert line.done


async def test_a_failed_selector_leaves_the_others_alone(scripted: Scripted) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.query["match[]"] == "bad":
            return web.json_response({"status": "error", "errorType": "bad_data", "error": "no"}, status=400)
        return web.Response(text=series({"__name__": request.query["match[]"]}))

    scripted.respond = respond
    lines = await run_worker(request_to(scripted.url, "a", "bad", "b", "bad", "c"))
    assert {line.selector: line.kind or line.series[0].name for line in lines} == {
        0: "a",
        1: "query",
        2: "b",
        3: "query",
        4: "c",
    }


async def test_a_slow_answer(scripted: Scripted) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"status":"success","data":[')
        await asyncio.sleep(60)
        raise AssertionError

    scripted.respond = respond
    (line,) = await run_worker(request_to(scripted.url, "x", timeout=0.1))
    assert (line.kind, line.text) == ("timeout", "no answer in time")


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (200, "<html>", "decode", f"not JSON: {endpoint.NO_API}"),
        (200, "", "decode", f"not JSON: {endpoint.NO_API}"),
        (200, '{"status":', "decode", "not a list of series: Input data was truncated"),
        (404, "404 page not found", "status", f"HTTP status 404: {endpoint.NO_API}"),
        (400, "Client sent an HTTP request to an HTTPS server.\n", "status", endpoint.ONLY_TLS),
    ],
)
async def test_another_server_at_the_address(
    status: int, body: str, kind: str, text: str, scripted: Scripted
) -> None:
    scripted.answer(status, body)
    (line,) = await run_worker(request_to(scripted.url, "x"))
    assert (line.kind, line.text) == (kind, text)


async def test_a_server_without_tls(scripted: Scripted) -> None:
    (line,) = await run_worker(request_to(scripted.url.replace("http://", "https://"), "x"))
    assert (line.kind, line.text) == ("unreachable", endpoint.NO_TLS)


async def test_connection_refused() -> None:
    (line,) = await run_worker(request_to("http://127.0.0.1:1", "x"))
    assert (line.kind, line.text) == ("unreachable", "Connection refused")


async def test_an_answer_that_breaks_off(scripted: Scripted) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"status":"success","data":[')
        assert request.transport is not None
        request.transport.close()
        return response

    scripted.respond = respond
    (line,) = await run_worker(request_to(scripted.url, "x"))
    assert (line.kind, line.text) == ("unreachable", "the connection broke within the answer")


async def test_redirects_are_limited(scripted: Scripted) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/again")

    scripted.respond = respond
    (line,) = await run_worker(request_to(scripted.url, "x"))
    assert (line.kind, line.text) == ("status", "too many redirects, or a redirect to an invalid URL")


async def test_tls_files(start_scripted: Start, authority: Authority, other_authority: Authority) -> None:
    server = await start_scripted(authority.server_context(client_certificates=True))
    server.answer(200, series(UP))
    pair = authority.issue()
    shown = {"cert_file": str(pair.certificate), "key_file": str(pair.key)}

    async def ask(**files: object) -> WorkerLine:
        (line,) = await run_worker(request_to(server.url, "x", tls=TLSFiles(**files)))  # type: ignore[arg-type]  # a table of settings
        return line

    assert (await ask(ca_file=str(authority.file), **shown)).done
    assert (await ask(ca_file=str(authority.file))).kind == "unreachable"
    for files in ({}, {"ca_file": str(other_authority.file)}):
        refusal = await ask(**files, **shown)
        assert refusal.kind == "unreachable"
        assert refusal.text.startswith("certificate not accepted: ")
        assert "0x" not in refusal.text


async def test_each_run_reads_the_tls_files_again(
    start_scripted: Start, authority: Authority, other_authority: Authority, tmp_path: Path
) -> None:
    server = await start_scripted(authority.server_context(client_certificates=True))
    server.answer(200, series(UP))
    files = [tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key")]
    tls = TLSFiles(str(files[0]), str(files[1]), str(files[2]))

    async def ask(ca: bytes, certificate: bytes, key: bytes) -> WorkerLine:
        for file, content in zip(files, (ca, certificate, key), strict=True):
            file.write_bytes(content)
        (line,) = await run_worker(request_to(server.url, "x", tls=tls))
        return line

    pair = authority.issue()
    good = [file.read_bytes() for file in (authority.file, pair.certificate, pair.key)]
    assert (await ask(*good)).done
    assert (await ask(other_authority.file.read_bytes(), *good[1:])).kind == "unreachable"
    for place, content in enumerate(good):
        broken = [*good]
        broken[place] = content[: len(content) // 2]
        assert (await ask(*broken)).kind == "unreachable"
    files[0].unlink()
    (line,) = await run_worker(request_to(server.url, "x", tls=tls))
    assert line.kind == "unreachable"
    assert "ca.crt" in line.text
    assert (await ask(*good)).done


async def test_another_name_in_the_servers_certificate(start_scripted: Start, authority: Authority) -> None:
    server = await start_scripted(authority.server_context(authority.issue("prometheus.example")))
    server.answer(200, series(UP))
    (line,) = await run_worker(request_to(server.url, "x", tls=TLSFiles(str(authority.file))))
    assert line.kind == "unreachable"
    (line,) = await run_worker(
        request_to(server.url, "x", tls=TLSFiles(str(authority.file), server_name="prometheus.example"))
    )
    assert line.done


async def test_the_environment_says_nothing(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    scripted.answer(200, series(UP))
    (line,) = await run_worker(request_to(scripted.url, "x"))
    assert line.done
    assert "authorization" not in scripted.seen[0].headers


async def test_a_proxy_is_used_when_it_is_given(scripted: Scripted) -> None:
    scripted.answer(200, series(UP))
    (line,) = await run_worker(request_to("http://prometheus.example:9090", "x", proxy=scripted.url))
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
        origin = await connection.open_connection(PrometheusSettings(url, **settings), clock, faults)  # type: ignore[arg-type]  # a table of settings
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

    async def respond(_: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError

    scripted.respond = respond
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

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"status":"success","data":[')
        for round_ in range(10):
            for number, block in enumerate(blocks):
                await response.write(block if round_ == number == 0 else b"," + block)
        await response.write(b"]}")
        return response

    scripted.respond = respond
    (found,) = (await (await make_lister(scripted.url, max_bytes=1 << 28)).series(["x"], WALL)).values()
    assert not isinstance(found, PrometheusError)
    assert sum(info.count for info in found) == 1_000_000
    assert len(found) == 100
    # the worker's memory does not grow with the list, of 80 MB here
    (line,) = [
        line
        for line in monitoring.exposition().splitlines()
        if line.startswith("fastpath_discovery_worker_peak_memory_bytes ")
    ]
    assert float(line.split()[1]) < 60 * 2**20


SAMPLES = f"""
# TYPE queue_len gauge
queue_len{{namespace="web",pod="a"}} 3 {WALL:.0f}
queue_len{{namespace="web",node="b"}} 4 {WALL:.0f}
# TYPE jobs gauge
jobs{{namespace="web"}} 3 {WALL:.0f}
# TYPE old gauge
old{{namespace="web"}} 3 {WALL - 4 * 3600:.0f}
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_real_prometheus(prometheus_server: PrometheusFactory, make_lister: MakeLister) -> None:
    server = await asyncio.to_thread(prometheus_server, samples=SAMPLES)
    lister = await make_lister(f"{server.url}/")
    found = await lister.series(['{namespace="web"}', '{__name__="none"}', "{", "{}"], WALL - 3600)
    assert found['{namespace="web"}'] == (
        SeriesInfo("jobs", frozenset({"namespace"}), 1),
        SeriesInfo("queue_len", frozenset({"namespace", "pod", "node"}), 2),
    )
    assert found['{__name__="none"}'] == ()
    kinds = [error.kind for error in (found["{"], found["{}"]) if isinstance(error, PrometheusError)]
    assert kinds == ["query", "query"]
    await asyncio.to_thread(server.kill)
    (error,) = (await lister.series(["up"], WALL)).values()
    assert isinstance(error, PrometheusError)
    assert (error.kind, str(error)) == ("unreachable", f"{server.url}/api/v1/series: Connection refused")
