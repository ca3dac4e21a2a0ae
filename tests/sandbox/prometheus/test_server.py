"""The sandbox Prometheus over HTTP, what the real one does not do included."""

import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support.answers import answers

NOW = 1_700_000_010.0


@pytest.fixture
async def server() -> AsyncIterator[Prometheus]:
    series = SeriesSet([Series("up", {"job": "a"}, lambda _: 1.0)])
    async with Prometheus(series, lambda: NOW) as running:
        yield running


@pytest.fixture
async def api(server: Prometheus) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def query(api: aiohttp.ClientSession, text: str, **parameters: str) -> tuple[int, Any]:
    async with api.get("/api/v1/query", params={"query": text} | parameters) as response:
        return response.status, await response.json()


async def test_a_query_by_get_and_by_post(server: Prometheus, api: aiohttp.ClientSession) -> None:
    expected = {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [{"metric": {"__name__": "up", "job": "a"}, "value": [1_700_000_010, "1"]}],
        },
    }
    assert await query(api, "up") == (200, expected)
    async with api.post("/api/v1/query?tenant=x", data={"query": "up"}) as response:
        assert await response.json() == expected
    got, posted = server.requests
    assert (got.method, got.path, got.parameters["query"]) == ("GET", "/api/v1/query", "up")
    assert (posted.method, dict(posted.parameters)) == ("POST", {"tenant": "x", "query": "up"})


async def test_a_long_query_by_post(api: aiohttp.ClientSession) -> None:
    body = b"query=sum(up)" + b"+" * 2_000_000  # beyond what aiohttp reads unless told
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with api.post("/api/v1/query", data=io.BytesIO(body), headers=form) as response:
        assert response.status == 200


@pytest.mark.parametrize(("text", "named"), answers("sandbox/prometheus", "outside"))
async def test_what_is_outside_the_subset_is_named(api: aiohttp.ClientSession, text: str, named: str) -> None:
    status, answer = await query(api, text)
    assert (status, answer["errorType"]) == (400, "bad_data")
    assert answer["error"] == (
        f'invalid parameter "query": sandbox: {named} is outside the subset of PromQL '
        "that the sandbox knows: use a real Prometheus"
    )


async def test_a_series_ends_at_the_next_scrape(server: Prometheus, api: aiohttp.ClientSession) -> None:
    """A stale marker ends it; the five minutes of lookback are for late scrapes."""
    (one,) = server.series
    one.end = NOW - 15
    assert (await query(api, "up"))[1]["data"]["result"] == []
    assert (await query(api, "up", time=str(NOW - 30)))[1]["data"]["result"] != []
    assert (await query(api, "increase(up[1m])"))[1]["data"]["result"] != []
    async with api.get("/api/v1/series", params={"match[]": "up", "start": str(NOW - 60)}) as response:
        assert len((await response.json())["data"]) == 1
    async with api.get("/api/v1/series", params={"match[]": "up", "start": str(NOW - 14)}) as response:
        assert (await response.json())["data"] == []


async def test_series_come_and_go_while_it_runs(server: Prometheus, api: aiohttp.ClientSession) -> None:
    (one,) = server.series
    server.series.add(Series("up", {"job": "b"}, lambda _: 0.0, start=NOW - 10))
    assert len((await query(api, "up"))[1]["data"]["result"]) == 2
    server.series.remove(one)
    assert [row["metric"]["job"] for row in (await query(api, "up"))[1]["data"]["result"]] == ["b"]


@pytest.mark.parametrize("path", ["/", "/-/ready", "/-/healthy"])
async def test_plain_pages(api: aiohttp.ClientSession, path: str) -> None:
    async with api.get(path) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/v1/nothing"), ("DELETE", "/api/v1/query"), ("GET", "/x")]
)
async def test_unknown_paths(api: aiohttp.ClientSession, method: str, path: str) -> None:
    async with api.request(method, path) as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")


async def test_faults(server: Prometheus, api: aiohttp.ClientSession) -> None:
    server.fail(502, "<html>bad gateway</html>", "text/html")
    async with api.get("/api/v1/query", params={"query": "up"}) as response:
        assert (response.status, await response.text()) == (502, "<html>bad gateway</html>")
    server.recover()
    server.delay(30)
    with pytest.raises(TimeoutError):
        async with api.get(
            "/api/v1/query", params={"query": "up"}, timeout=aiohttp.ClientTimeout(total=0.05)
        ):
            pass
    server.recover()
    url = server.url
    await server.down()
    with pytest.raises(aiohttp.ClientConnectionError):
        await query(api, "up")
    await server.up()
    assert server.url == url
    assert (await query(api, "up"))[0] == 200
