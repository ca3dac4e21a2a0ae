"""The sandbox's PromQL against a real Prometheus that holds the same samples."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support.answers import answers
from tests.support.prometheus import PrometheusFactory, PrometheusServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

START = 1_700_000_000.0 - 1_700_000_000.0 % 15
NOW = START + 1207.0
"""Between two scrapes, so that extrapolation has both ends to reach for."""


def _saw(period: float) -> Callable[[float], float]:
    return lambda now: (now - START) % period - 30


def _counter(mean: float, start: float, phase: float) -> Callable[[float], float]:
    """Return the integral of a sine around `mean` from `start` on; amplitude 8, period 300 s."""
    speed = 2 * math.pi / 300

    def total(now: float) -> float:
        return mean * now - 8 / speed * math.cos(speed * (now - phase))

    return lambda now: total(now) - total(start)


def world() -> SeriesSet:
    """Return counters with resets, gauges with NaN and infinities, series that begin late and that ended long
    ago.
    """
    made = SeriesSet()
    for number in range(6):
        labels = {
            "namespace": f"ns{number % 2}",
            "pod": f"pod-{number}",
            "app": "web" if number < 4 else "db",
        }
        start = START + 201 * number  # Prometheus 2 and 3 differ where a counter begins long before a scrape
        count = _counter(10 + number, start, 40 * number)
        made.add(Series("requests_total", labels, count, type="counter", start=start))
        made.add(Series("temp", labels, _saw(90 + number), start=START))
    reset = {"pod": "r"}
    made.add(
        Series("resetting_total", reset, lambda now: 3 * (now - START) % 400, type="counter", start=START)
    )
    odd = {
        "nan": math.nan,
        "inf": math.inf,
        "minus": -math.inf,
        "small": 1.5e-9,
        "large": 2.5e22,
        "long": 1 / 3,
        "zero": 0.0,
    }
    for name, value in odd.items():
        made.add(Series("odd", {"kind": name}, lambda _, value=value: value, start=START))  # type: ignore[misc]
    made.add(Series("limit", {"namespace": "ns0", "pod": "pod-0"}, lambda _: 4.0, start=START))
    made.add(Series("limit", {"namespace": "ns0", "pod": "pod-2"}, lambda _: 0.0, start=START))
    made.add(Series("quota", {"namespace": "ns0"}, lambda _: 20.0, start=START))
    made.add(Series("recent", {"pod": "x"}, lambda _: 1.0, start=START + 1200))
    return made


QUERIES = (Path(__file__).parent / "queries.txt").read_text().splitlines()
REFUSED = answers("prometheus/promql_against_prometheus", "refused")


@pytest.fixture(scope="module")
def real(module_prometheus: PrometheusFactory) -> PrometheusServer:
    made = world()
    lines = []
    for name in dict.fromkeys(one.name for one in made):
        kind = "unknown"
        lines.append(f"# TYPE {name} {kind}")
        for one in made:
            if one.name != name:
                continue
            labels = ",".join(f'{label}="{value}"' for label, value in one.labels if label != "__name__")
            lines += [
                f"{name}{{{labels}}} {point.value!r} {point.time}" for point in made.samples(one, START, NOW)
            ]
    return module_prometheus(samples="\n".join(lines))


def ask_real(server: PrometheusServer, path: str, parameters: Any) -> tuple[int, Any]:
    address = f"{server.url}{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
    try:
        with urllib.request.urlopen(address, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        with refused:
            # Prometheus 2 begins the reason with a capital
            return refused.code, json.loads(refused.read().replace(b": Invalid time", b": invalid time"))


async def ask_sandbox(path: str, parameters: Any) -> tuple[int, Any]:
    query = [
        (name, value)
        for name, values in parameters.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    async with (
        Prometheus(world(), lambda: NOW) as server,
        aiohttp.ClientSession(server.url) as http,
        http.get(path, params=query) as response,
    ):
        return response.status, await response.json()


def close(one: str, other: str) -> bool:
    """Say whether two values are the same number; sums may differ in the last digits, where the order of
    adding shows.
    """
    left, right = float(one), float(other)
    return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-12)


def comparable(data: Any) -> list[tuple[Any, list[list[Any]]]]:
    """Return rows of labels and samples, in an order that both servers share."""
    if data["resultType"] in {"scalar", "string"}:
        return [({}, [data["result"]])]
    rows = [(row["metric"], row.get("values") or [row["value"]]) for row in data["result"]]
    return sorted(rows, key=lambda row: sorted(row[0].items()))


@pytest.mark.parametrize("query", QUERIES)
async def test_answers(real: PrometheusServer, query: str) -> None:
    parameters = {"query": query, "time": repr(NOW)}
    expected_status, expected = ask_real(real, "/api/v1/query", parameters)
    status, found = await ask_sandbox("/api/v1/query", parameters)
    assert status == expected_status, (found, expected)
    if expected_status != 200:
        assert found["errorType"] == expected["errorType"]
        return
    assert found["data"]["resultType"] == expected["data"]["resultType"]
    ours, theirs = comparable(found["data"]), comparable(expected["data"])
    assert [labels for labels, _ in ours] == [labels for labels, _ in theirs]
    for (labels, mine), (_, samples) in zip(ours, theirs, strict=True):
        assert [time for time, _ in mine] == [time for time, _ in samples], labels
        for (_, value), (_, other) in zip(mine, samples, strict=True):
            assert value == other or close(value, other), (labels, value, other)


@pytest.mark.parametrize("query", REFUSED)
async def test_refusals(real: PrometheusServer, query: str) -> None:
    parameters = {"query": query, "time": repr(NOW)}
    expected_status, expected = ask_real(real, "/api/v1/query", parameters)
    status, found = await ask_sandbox("/api/v1/query", parameters)
    assert (status, found["status"], found["errorType"]) == (expected_status, "error", expected["errorType"])
    if expected["errorType"] == "bad_data":
        assert found["error"].startswith('invalid parameter "query": ')


@pytest.mark.parametrize("value", ["0.1", "100", "1e-6", "9.99e-7", "1e20", "1e21", "5e-324"])
async def test_numbers_are_written_alike(real: PrometheusServer, value: str) -> None:
    parameters = {"query": value, "time": repr(NOW)}
    assert await ask_sandbox("/api/v1/query", parameters) == ask_real(real, "/api/v1/query", parameters)


@pytest.mark.parametrize(
    "time", [repr(NOW), "2023-11-14T22:33:20Z", "2023-11-14T23:33:20.5+01:00", f"{NOW:.0f}", "x"]
)
async def test_times_are_read_alike(real: PrometheusServer, time: str) -> None:
    parameters = {"query": "7", "time": time}
    assert await ask_sandbox("/api/v1/query", parameters) == ask_real(real, "/api/v1/query", parameters)


@pytest.mark.parametrize(("path", "parameters"), answers("sandbox/promql", "endpoints"))
async def test_other_endpoints(real: PrometheusServer, path: str, parameters: Any) -> None:
    expected = ask_real(real, path, parameters)
    assert await ask_sandbox(path, parameters) == expected
