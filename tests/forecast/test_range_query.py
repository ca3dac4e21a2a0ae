"""Range queries: what is sent, what is read, and what each failure is called."""

import json
from typing import Any

import pytest
from aiohttp import web

from adapter.errors import PrometheusError
from adapter.prometheus import connection
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_forecast.range_query import SMALLEST_RANGE, RangeReader
from tests.prometheus.scripted import Scripted, connection_options
from tests.support.clock import FakeClock


async def reader(url: str, **settings: Any) -> RangeReader:
    clock = FakeClock()
    options = connection_options(url, **settings)
    origin = await connection.open_connection(options, clock, ProblemLog(Monitoring(), clock))
    return RangeReader(origin, 30.0)


def matrix(*series: list[list[object]]) -> str:
    result = [{"metric": {}, "values": values} for values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


async def test_what_is_sent_and_read(scripted: Scripted) -> None:
    scripted.answer(200, matrix([[100, "1.5"], [115, "NaN"], [130, "+Inf"], [145.0, "0"]]))
    ask = await reader(f"{scripted.url}/prom", query_params=(("tenant", "t"),), headers=(("X-Scope", "a"),))

    assert await ask.read("sum(up)", 100, 145, 15) == {100: 1.5, 145: 0.0}

    (seen,) = scripted.seen
    assert seen.target.startswith("/prom/api/v1/query_range?")
    assert seen.form == {
        "query": "sum(up)",
        "start": "100",
        "end": "145",
        "step": "15",
        "timeout": "30",
        "tenant": "t",
    }
    assert seen.headers["x-scope"] == "a"


@pytest.mark.parametrize(("most", "asked"), [(1000, 1), (300, 7), (150, 15)])
async def test_a_range_that_is_too_much_is_read_in_halves(most: int, asked: int, scripted: Scripted) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        start, end, step = (int(request.query[name]) for name in ("start", "end", "step"))
        if (end - start) // step + 1 > most:
            text = "query processing would load too many samples into memory"
            return web.json_response({"status": "error", "errorType": "execution", "error": text}, status=422)
        return web.Response(text=matrix([[at, str(at)] for at in range(start, end + 1, step)]))

    scripted.respond = respond
    found = await (await reader(scripted.url)).read("sum(up)", 0, 14_985, 15)
    assert found == {at: float(at) for at in range(0, 15_000, 15)}
    assert len(scripted.seen) == asked


async def test_a_range_that_is_too_much_and_short_is_an_error(scripted: Scripted) -> None:
    scripted.answer(422, '{"status":"error","errorType":"execution","error":"too many samples"}')
    with pytest.raises(PrometheusError, match="too many samples") as raised:
        await (await reader(scripted.url)).read("sum(up)", 0, (4 * SMALLEST_RANGE - 1) * 15, 15)
    assert raised.value.url == f"{scripted.url}/api/v1/query_range"
    assert len(scripted.seen) == 3


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (401, "no", "status", "HTTP status 401"),
        (404, "no", "status", "this is not the API of Prometheus"),
        (302, "", "status", "HTTP status 302"),
        (200, "<html>", "decode", "not JSON"),
        (200, "{}", "decode", "no matrix"),
        (200, '{"status":"success","data":{"resultType":"vector","result":[]}}', "decode", "no matrix"),
        (200, '{"status":"error","errorType":"bad_data","error":"parse error"}', "query", "parse error"),
        (200, matrix([[100, "1"]], [[100, "2"]]), "type", "the query has 2 series"),
        (200, matrix([[100, "one"]]), "decode", "a sample's value is"),
        (200, matrix([[at, "1"] for at in range(9000)]), "size", "more than 100000 bytes"),
    ],
)
async def test_each_failure_has_a_name(
    status: int, body: str, kind: str, text: str, scripted: Scripted
) -> None:
    scripted.answer(status, body)
    ask = await reader(scripted.url, max_answer_bytes=100_000)
    with pytest.raises(PrometheusError, match=text) as raised:
        await ask.read("sum(up)", 100, 145, 15)
    assert raised.value.kind == kind
    assert raised.value.url == f"{scripted.url}/api/v1/query_range"
