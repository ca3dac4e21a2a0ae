"""The real programs that tests lean on do what the fixtures say of them."""

import asyncio
import os
import subprocess
import sys
import time

import pytest
from aiohttp import ClientConnectorCertificateError, ClientSession, web
from aiohttp.test_utils import TestServer

from tests.support import processor
from tests.support.clock import FakeClock
from tests.support.kubectl import Kubectl
from tests.support.prometheus import PrometheusFactory
from tests.support.remotewrite import Written
from tests.support.tls import Authority

SAMPLES = """
# TYPE http_requests counter
http_requests_total{namespace="shop",pod="web-1"} 10 1700000000
http_requests_total{namespace="shop",pod="web-1"} 40 1700000030
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_loaded_samples_are_exact(prometheus_server: PrometheusFactory) -> None:
    prometheus = prometheus_server(samples=SAMPLES)
    assert prometheus.query("http_requests_total", at=1_700_000_030) == [
        {
            "metric": {"__name__": "http_requests_total", "namespace": "shop", "pod": "web-1"},
            "value": [1_700_000_030, "40"],
        }
    ]
    assert prometheus.query("http_requests_total", at=1_699_999_999) == []


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_written_samples_are_there_at_once(prometheus_server: PrometheusFactory) -> None:
    prometheus = prometheus_server()
    many = [
        Written({"__name__": "ready", "pod": f"web-{number}"}, number / 4, 1_700_000_000)
        for number in range(3000)
    ]
    prometheus.write(*many)
    prometheus.write(Written({"__name__": "ready", "pod": "web-7"}, float("nan"), 1_700_000_001.5))
    assert prometheus.query("count(ready)", at=1_700_000_002)[0]["value"][1] == "3000"
    assert prometheus.query('ready{pod="web-2999"}', at=1_700_000_000)[0]["value"] == [
        1_700_000_000,
        "749.75",
    ]
    assert (
        prometheus.query('timestamp(ready{pod="web-7"})', at=1_700_000_002)[0]["value"][1] == "1700000001.5"
    )
    prometheus.restart()
    assert prometheus.query('ready{pod="web-7"}', at=1_700_000_002)[0]["value"][1] == "NaN"


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_samples_of_one_series_are_written_in_a_row(prometheus_server: PrometheusFactory) -> None:
    prometheus = prometheus_server()
    first, second = {"__name__": "total", "pod": "web-1"}, {"__name__": "total", "pod": "web-2"}
    prometheus.write(
        *(
            Written(labels, place + turn, 1_700_000_000 + 15 * turn)
            for place, labels in ((0, first), (10, second))
            for turn in range(3)
        )
    )
    for turn in range(3):
        answer = prometheus.query("sort(total)", at=1_700_000_000 + 15 * turn)
        assert [each["value"][1] for each in answer] == [str(turn), str(10 + turn)]


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_target_is_scraped_and_a_restart_keeps_what_was_stored(
    prometheus_server: PrometheusFactory,
) -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text="queue_length 7\n")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    async with TestServer(application) as server:
        address = f"127.0.0.1:{server.port}"
        prometheus = await asyncio.to_thread(prometheus_server, targets={"queue": [address]})
        [found] = await asyncio.to_thread(prometheus.wait_for, "queue_length")
        assert found["metric"] == {"__name__": "queue_length", "instance": address, "job": "queue"}
        assert found["value"][1] == "7"
    port = prometheus.port
    await asyncio.to_thread(prometheus.kill)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(prometheus.query, "queue_length")
    await asyncio.to_thread(prometheus.start)
    assert prometheus.port == port
    assert await asyncio.to_thread(prometheus.query, "max_over_time(queue_length[5m])")


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_kubectl_reads_a_raw_path(kubectl: Kubectl, authority: Authority, *, secure: bool) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"asked": request.path_qs})

    application = web.Application()
    application.router.add_get("/apis/{rest:.*}", answer)
    server = TestServer(application, scheme="https" if secure else "http")
    await server.start_server(ssl=authority.server_context() if secure else None)
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/rate?labelSelector=app%3Dweb"
    url = str(server.make_url("")).rstrip("/")
    assert await kubectl.get_raw(url, path, ca=authority.file if secure else None) == {
        "asked": path.replace("*", "%2A")
    }
    await server.close()


async def test_only_the_own_authority_is_trusted(authority: Authority, other_authority: Authority) -> None:
    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        return web.Response(text=str(certificate["subject"]))

    application = web.Application()
    application.router.add_get("/", who)
    server = TestServer(application, scheme="https")
    await server.start_server(ssl=authority.server_context(client_certificates=True))
    client = authority.client_context(
        authority.issue("user", common_name="alice", organization="system:masters")
    )
    async with ClientSession() as session:
        async with session.get(server.make_url("/"), ssl=client) as response:
            text = await response.text()
        assert "alice" in text
        assert "system:masters" in text
        with pytest.raises(ClientConnectorCertificateError):
            await session.get(server.make_url("/"), ssl=other_authority.client_context())
    await server.close()


def test_the_clock_moves_only_on_request() -> None:
    clock = FakeClock(wall=100.0, monotonic=5.0)
    clock.advance(2.5)
    clock.set_wall(90.0)
    clock.advance(1.0)
    assert (clock.wall(), clock.monotonic()) == (91.0, 8.5)


@pytest.mark.looptime
async def test_fake_time_passes_at_once() -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()
    assert loop.time() - start == 3600


def test_a_limit_is_longer_by_what_its_threads_have_waited_for_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, waited = 100.0, {"old": 7.0}
    monkeypatch.setattr(processor, "waits", lambda: dict(waited))
    limit = processor.Limit(10.0, lambda: now)
    now = 109.0
    assert limit.left() == 1.0
    now = 111.0
    assert limit.left() == -1.0, "nothing has waited since"
    waited |= {"old": 9.0, "new": 0.5}
    assert limit.left() == 1.5
    waited["new"] = 1e6
    assert limit.left() == pytest.approx(10.0 * processor.MOST - 11.0), "a test that hangs ends"


@pytest.mark.integration
def test_a_program_that_waits_for_a_processor_is_seen() -> None:
    """Two programs that never rest have one processor between them."""
    one = {min(os.sched_getaffinity(0))}
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for program in programs:
            os.sched_setaffinity(program.pid, one)
        before = sum(processor.waits().values())
        while sum(processor.waits().values()) < before + 0.2:
            time.sleep(0.02)
    finally:
        for program in programs:
            program.kill()
            program.wait()


async def test_a_block_within_its_limit_goes_on_and_one_over_it_ends() -> None:
    async with processor.limited(30.0):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with processor.limited(0.01):
            await asyncio.Event().wait()
