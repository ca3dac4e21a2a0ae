"""The exposition of programmable series, alone and scraped by a real Prometheus."""

import asyncio
import math
import time

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet, render
from tests.support.prometheus import PrometheusFactory


def test_exposition() -> None:
    series = SeriesSet(
        [
            Series("requests_total", {"pod": "a"}, lambda now: now, type="counter"),
            Series("queue", {"name": 'quote " slash \\ line \n end'}, lambda _: math.inf),
            Series("requests_total", {"pod": "b"}, lambda _: 0.5, type="counter", end=50),
            Series("bare", {"empty": ""}, lambda _: math.nan, type="untyped"),
            Series("absent", {}, lambda _: None),
        ]
    )
    assert render(series, 10.0) == (
        "# TYPE requests_total counter\n"
        'requests_total{pod="a"} 10.0\n'
        'requests_total{pod="b"} 0.5\n'
        "# TYPE queue gauge\n"
        'queue{name="quote \\" slash \\\\ line \\n end"} inf\n'
        "# TYPE bare untyped\n"
        "bare nan\n"
    )
    assert 'pod="b"' not in render(series, 50.0)
    families = {family.name: family for family in text_string_to_metric_families(render(series, 10.0))}
    assert families["queue"].samples[0].labels == {"name": 'quote " slash \\ line \n end'}
    assert families["queue"].samples[0].value == math.inf


async def test_serving() -> None:
    async with Exporter(SeriesSet([Series("a", {}, lambda now: now)]), lambda: 7.0) as running:
        async with aiohttp.ClientSession(running.url) as http:
            async with http.get("/metrics") as response:
                assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert await response.text() == "# TYPE a gauge\na 7.0\n"
            async with http.get("/") as response:
                assert response.status == 404
        assert running.scrapes == 1
        await running.down()
        async with aiohttp.ClientSession(running.url) as http:
            with pytest.raises(aiohttp.ClientConnectionError):
                await http.get("/metrics")
        await running.up()


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_real_prometheus_scrapes_it(prometheus_server: PrometheusFactory) -> None:
    series = SeriesSet([Series("queue", {"pod": "a"}, lambda _: 42.5)])
    async with Exporter(series, time.time) as running:  # noqa: TID251  # the real program has the real time
        server = await asyncio.to_thread(prometheus_server, targets={"demo": [running.address]})
        found = await asyncio.to_thread(server.wait_for, "queue")
        assert (found[0]["metric"]["pod"], found[0]["value"][1]) == ("a", "42.5")
        await asyncio.to_thread(server.kill)
