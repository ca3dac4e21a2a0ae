"""What goes wrong around a serving adapter, one fault at a time, over real HTTP.

In every test: never a zero, never a wrong number, the right status and message, the fault visible in
`readyz?verbose` and in the self-metrics while it lasts, the adapter ready all along, and recovery by itself.
Periods are scaled through options and the clock.
"""

import asyncio
import contextlib
import functools
import logging
import os
import resource
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from adapter.prometheus import endpoint
from adapter.provider.rule_source import RulesFiles
from adapter.server import tls
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from tests.support import adapter as support
from tests.support import faulty, patience
from tests.support.adapter import Answer, Caller, RunningAdapter
from tests.support.clock import ShiftedClock
from tests.support.faulty import QUERY, SERIES, Behaviour, FaultyPrometheus
from tests.support.mount import Mount
from tests.support.processor import limited
from tests.support.tls import Authority
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(30)]

# `load` gives up its last answer soon, `steady` after the 30 s that every rule has unless it says otherwise.
RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  maxAge: 300ms
- seriesQuery: 'steady{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_depth{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
  maxAge: 300ms
"""
RIGHT = {"web-0": "10", "web-1": "20", "web-2": "30"}
DEPTHS = {"mail": "5", "orders": "9"}
SHORT = ("--metrics-ttl=50ms", "--prometheus-attempt-timeout=250ms", "--prometheus-timeout=400ms")

LOADS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/load"
STEADY = LOADS.replace("load", "steady")
ONE = LOADS.replace("%2A", "web-1")
QUEUES = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth"
NAMESPACES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/%2A/metrics/load"
VERBOSE = "/readyz?verbose"
UNFETCHED = "Internal error occurred: unable to fetch metrics"
UNLISTED = "Internal error occurred: unable to list matching resources"


def _series(level: Callable[[float, float], float | None] = lambda _, level: level) -> SeriesSet:
    """Return the series of RULES; `level(time, level)` may bend them."""

    def curve(value: float) -> Callable[[float], float | None]:
        return lambda now: level(now, value)

    made = SeriesSet(interval=0.05)
    for name in ("load", "steady"):
        for pod, text in RIGHT.items():
            made.add(Series(name, {"namespace": "shop", "pod": pod}, curve(float(text))))
    for queue, text in DEPTHS.items():
        made.add(Series("queue_depth", {"namespace": "shop", "queue": queue}, curve(float(text))))
    return made


def _pod(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
    }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        _add_pods(cluster)
        yield cluster


def _add_pods(cluster: Cluster) -> None:
    for name in RIGHT:
        cluster.create(_pod(name))


@pytest.fixture
async def prometheus() -> AsyncIterator[FaultyPrometheus]:
    async with _prometheus() as prometheus:
        yield prometheus


def _prometheus() -> FaultyPrometheus:
    return FaultyPrometheus(_series(), time.time)  # noqa: TID251 - adapter and server share the time of day


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


# what is at fault here is not the API server's word about callers
_running = functools.partial(support.running, aggregated=True)


def _rewrite(rules: Path, text: str) -> None:
    rules.write_text(text)


async def _presented(adapter: RunningAdapter) -> bytes:
    """Return the certificate that a new connection is shown."""
    caller = await Caller.connect(adapter)
    caller.leave()
    return caller.certificate()


def _warnings(caplog: pytest.LogCaptureFixture, message: str) -> list[str]:
    """Return the error texts with which a message was logged as a warning."""
    return [
        str(getattr(record, "facts", {}).get("error"))
        for record in caplog.records
        if record.levelno == logging.WARNING and record.getMessage() == message
    ]


def _depths(answer: Answer) -> dict[str, str]:
    return {item["metricLabels"]["queue"]: item["value"] for item in answer.body["items"]}


async def _failed(adapter: RunningAdapter, path: str, message: str = UNFETCHED) -> Answer:
    """Wait until `path` is answered with 500; check what a caller is told."""
    answer = await adapter.wait_for(path, lambda answer: answer.status == 500)
    assert answer.body["message"].partition(": Prometheus does not answer since 20")[0] == message
    assert "retryAfterSeconds" not in str(answer.body)  # client-go would sleep on it
    return answer


async def _healthy(adapter: RunningAdapter) -> None:
    """Wait until everything is answered right again and no fault is left."""
    await adapter.wait_for(LOADS, lambda answer: answer.status == 200 and answer.values == RIGHT)
    assert (await adapter.get(STEADY)).values == RIGHT
    await adapter.wait_for(QUEUES, lambda answer: answer.status == 200 and _depths(answer) == DEPTHS)
    await adapter.wait_for(VERBOSE, lambda answer: "[-]" not in answer.body)
    assert set((await adapter.metric_lines("fastpath_faults_active")).values()) <= {0.0}


class _Failure(NamedTuple):
    """A failure of Prometheus, with the readyz line and the outcome of queries that report it."""

    behaviour: Behaviour
    line: str
    outcome: str
    said: str
    external: str = UNFETCHED


FAILURES = {
    "hangs": _Failure(faulty.hang, "queries", "timeout", "no answer in 0.25 s"),
    "trickles": _Failure(faulty.trickle, "queries", "timeout", "no answer in 0.25 s"),
    "500": _Failure(faulty.reply(500, "oops", "text/plain"), "prometheus", "status", "HTTP status 500"),
    "502 page": _Failure(
        faulty.reply(502, "<html>bad gateway</html>", "text/html"), "prometheus", "status", "HTTP status 502"
    ),
    "503 page": _Failure(
        faulty.reply(503, "<html>come again</html>", "text/html"), "prometheus", "status", "HTTP status 503"
    ),
    "503 in the envelope": _Failure(
        faulty.refuse(503, "unavailable", "starting up"), "prometheus", "status", "unavailable: starting up"
    ),
    "401": _Failure(faulty.reply(401, "who?", "text/plain"), "prometheus", "status", "HTTP status 401"),
    "422": _Failure(
        faulty.refuse(422, "execution", "query processing would load too many samples"),
        "queries",
        "query",
        "execution: query processing would load too many samples",
    ),
    "400": _Failure(
        faulty.refuse(400, "bad_data", "parse error"), "queries", "query", "bad_data: parse error"
    ),
    "a page with 200": _Failure(
        faulty.reply(200, "<html>please sign in</html>", "text/html"),
        "queries",
        "decode",
        f"not JSON: {endpoint.NO_API}",
    ),
    "nothing with 200": _Failure(faulty.reply(200, ""), "queries", "decode", f"not JSON: {endpoint.NO_API}"),
    "half of the JSON": _Failure(
        faulty.reply(
            200, '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"web-0"},"val'
        ),
        "queries",
        "decode",
        "not an answer of Prometheus: Input data was truncated",
    ),
    "breaks off": _Failure(
        faulty.break_off, "prometheus", "unreachable", "the connection broke within the answer"
    ),
    "announces 100 GiB": _Failure(
        faulty.announce_huge, "queries", "size", "the answer takes more than 67108864 bytes"
    ),
    "a matrix": _Failure(
        faulty.result("matrix", [{"metric": {"pod": "web-0"}, "values": [[1, "0"]]}]),
        "queries",
        "type",
        "the result is a matrix, neither vector nor scalar",
        external="encountered an unexpected query result type",
    ),
    "a string": _Failure(
        faulty.result("string", [1, "0"]),
        "queries",
        "type",
        "the result is a string, neither vector nor scalar",
    ),
    "a value that is no number": _Failure(
        faulty.result("vector", [{"metric": {"pod": "web-0"}, "value": [1, "much"]}]),
        "queries",
        "decode",
        "a sample's value is not a number: 'much'",
    ),
    "a time beyond all calendars": _Failure(
        faulty.result("vector", [{"metric": {"pod": "web-0"}, "value": [1e17, "0"]}]),
        "queries",
        "decode",
        "not an answer of Prometheus: Expected `float` < 253402300800.0",
    ),
    "null": _Failure(
        faulty.reply(200, '{"status":"success","data":null}'), "queries", "decode", "the answer holds no data"
    ),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_prometheus_fails(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    caplog: pytest.LogCaptureFixture,
    failure: _Failure,
) -> None:
    clock = ShiftedClock()
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, clock=clock) as adapter:
        await _healthy(adapter)
        prometheus.behaviours[QUERY] = failure.behaviour
        clock.advance(0.06)  # beyond the TTL, within maxAge
        for _ in range(2):
            assert (await adapter.get(STEADY)).values == RIGHT, "the last answer stands in"
        verbose = await adapter.get(VERBOSE)
        assert (verbose.status, f"[-]{failure.line} failed" in verbose.body) == (200, True), verbose.body
        clock.advance(0.5)
        await _failed(adapter, LOADS)
        await _failed(adapter, ONE)
        await _failed(adapter, QUEUES, failure.external)
        assert (await adapter.get(STEADY)).values == RIGHT
        assert (await adapter.get("/readyz")).status == 200
        counted = await adapter.metric_lines("fastpath_prometheus_queries_total")
        assert (
            sum(count for series, count in counted.items() if f'outcome="{failure.outcome}"' in series) >= 3
        )
        assert (await adapter.metric_lines("fastpath_responses_total"))[
            'fastpath_responses_total{source="stale"}'
        ] >= 2
        message = "Prometheus does not answer" if failure.line == "prometheus" else "query failed"
        texts = _warnings(caplog, message)
        assert all(failure.said in text for text in texts), texts
        assert 1 <= len(texts) <= 3, "said once for the server, or for each rule, not for each question"
        del prometheus.behaviours[QUERY]
        clock.advance(61)  # a query's problem ends when it has not occurred for a minute
        await _healthy(adapter)


async def test_a_scalar_is_no_answer_about_objects_and_one_about_a_queue(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    async with _running(tmp_path, cluster, prometheus.url, *SHORT) as adapter:
        prometheus.behaviours[QUERY] = faulty.result("scalar", [1700000000, "7"])
        await _failed(adapter, LOADS)
        await _failed(adapter, ONE)
        (item,) = (await adapter.get(QUEUES)).body["items"]
        assert (item["value"], item["metricLabels"]) == ("7", None)
        assert "[-]queries failed" in (await adapter.get(VERBOSE)).body


async def test_an_answer_without_end_is_cut_off(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    """An endless answer is not read to its end, delays no other request, and its memory is freed."""
    prometheus.behaviours[QUERY] = faulty.pour(
        b'{"metric":{"pod":"web-0","x":"%b"},"value":[1,"0"]}' % (b"x" * 5000)
    )
    long = ("--prometheus-attempt-timeout=5s", "--prometheus-timeout=8s")
    async with _running(tmp_path, cluster, prometheus.url, *long) as adapter:
        asked = asyncio.create_task(adapter.get(LOADS), name="asked")
        await until(lambda: prometheus.under_way)
        meanwhile = 0
        while not asked.done():
            assert (await adapter.get("/readyz")).status == 200
            meanwhile += not asked.done()
            await asyncio.sleep(0.005)
        assert meanwhile, "other requests are answered while the endless answer is read"
        assert (await asked).body["message"] == UNFETCHED
        counted = await adapter.metric_lines("fastpath_prometheus_queries_total")
        assert counted['fastpath_prometheus_queries_total{outcome="size",type="alone"}'] == 1
        await adapter.wait_for(VERBOSE, lambda answer: "[-]queries failed" in answer.body)
        assert not prometheus.under_way
        del prometheus.behaviours[QUERY]
        await adapter.wait_for(LOADS, lambda answer: answer.status == 200 and answer.values == RIGHT)


def _vector(**values: str) -> Behaviour:
    return faulty.result(
        "vector",
        [
            {"metric": {"namespace": "shop", "pod": f"web-{number[1:]}"}, "value": [1700000000, text]}
            for number, text in values.items()
        ],
    )


HISTOGRAM = faulty.result(
    "vector",
    [
        {"metric": {"namespace": "shop", "pod": "web-0"}, "value": [1700000000, "10"]},
        {
            "metric": {"namespace": "shop", "pod": "web-1"},
            "histogram": [1700000000, {"count": "3", "sum": "6", "buckets": []}],
        },
    ],
)

ABSENCES = {
    "empty": (_vector(), {}, ""),
    "some pods missing": (_vector(_0="10", _2="30"), {"web-0": "10", "web-2": "30"}, ""),
    "NaN": (_vector(_0="10", _1="NaN", _2="30"), {"web-0": "10", "web-2": "30"}, "nan"),
    "infinite": (_vector(_0="+Inf", _1="-Inf", _2="30"), {"web-2": "30"}, "infinite"),
    "all NaN": (_vector(_0="NaN", _1="NaN", _2="NaN"), {}, "nan"),
    "native histogram": (HISTOGRAM, {"web-0": "10"}, "histogram"),
    "negative": (_vector(_0="-10", _1="-0.0004", _2="-0"), {"web-0": "-10", "web-1": "0", "web-2": "0"}, ""),
}


@pytest.mark.parametrize(("behaviour", "left", "reason"), ABSENCES.values(), ids=ABSENCES)
async def test_an_object_without_a_value_is_absent(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    behaviour: Behaviour,
    left: dict[str, str],
    reason: str,
) -> None:
    """An absence is no failure: what was there before does not stand in for it, and the others are served."""
    clock = ShiftedClock()
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, clock=clock) as adapter:
        await _healthy(adapter)
        prometheus.behaviours[QUERY] = behaviour
        clock.advance(0.06)
        for path in (LOADS, STEADY):
            answer = await adapter.get(path)
            assert (answer.status, answer.values) == (200, left)
        one = await adapter.get(ONE)
        if "web-1" in left:
            assert one.status == 200, one
            assert one.values == {"web-1": left["web-1"]}
        else:
            assert (one.status, one.body["message"]) == (
                404,
                "the server could not find the metric load for pods web-1",
            )
        if reason:
            counted = await adapter.metric_lines("fastpath_values_dropped_total")
            assert counted[f'fastpath_values_dropped_total{{reason="{reason}"}}'] >= 2
        if reason in {"nan", "infinite"}:
            assert "[-]values failed" in (await adapter.get(VERBOSE)).body
        assert (await adapter.get("/readyz")).status == 200
        del prometheus.behaviours[QUERY]
        clock.advance(61)
        await _healthy(adapter)


async def test_a_value_that_no_quantity_holds_is_an_error(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    clock = ShiftedClock()
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, clock=clock) as adapter:
        prometheus.behaviours[QUERY] = _vector(_0="10", _1="1e300")
        message = "Internal error occurred: a value of rules[0] is beyond 9.2e15, the limit of a quantity"
        await _failed(adapter, LOADS, message)
        counted = await adapter.metric_lines("fastpath_values_dropped_total")
        assert counted['fastpath_values_dropped_total{reason="overflow"}'] >= 1
        assert "[-]values failed" in (await adapter.get(VERBOSE)).body
        del prometheus.behaviours[QUERY]
        clock.advance(61)
        await _healthy(adapter)


# -- the API server -----------------------------------------------------------------------------------------


async def test_the_adapter_starts_before_the_api_server(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    """Until the cluster is known nothing is "not found", and the aggregator gets the group documents."""
    await cluster.down()
    short = ("--prometheus-timeout=600ms",)
    async with _running(tmp_path, cluster, prometheus.url, *short, until_ready=False) as adapter:
        assert (await adapter.get("/livez")).status == 200
        unready = await adapter.get("/readyz")
        assert unready.status == 500
        assert "[-]caches-synced failed" in unready.body
        for path in ("/apis", "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"):
            assert (await adapter.get(path)).status == 200, path
        for path, message in {LOADS: UNLISTED, ONE: UNFETCHED, QUEUES: UNFETCHED}.items():
            answer = await adapter.get(path)
            assert (answer.status, answer.body["message"]) == (500, message), path
        await adapter.wait_for(VERBOSE, lambda answer: "[-]api-discovery failed" in answer.body)
        await cluster.up()
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200, seconds=8)
        await _healthy(adapter)


@pytest.mark.parametrize("refuse", [True, False], ids=["refused", "503"])
async def test_the_api_server_goes_away_and_comes_back(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus, *, refuse: bool
) -> None:
    """Reads go on from the cache; only a kind that was never requested fails."""
    async with _running(tmp_path, cluster, prometheus.url, *SHORT) as adapter:
        await _healthy(adapter)
        await cluster.down(refuse=refuse)
        await adapter.wait_for(VERBOSE, lambda answer: "[-]objects failed" in answer.body)
        assert (await adapter.get(LOADS)).values == RIGHT
        assert (await adapter.get(ONE)).values == {"web-1": "20"}
        unlisted = await adapter.get(NAMESPACES)
        assert (unlisted.status, unlisted.body["message"]) == (500, UNLISTED)
        assert (await adapter.get("/readyz")).status == 200
        cluster.delete("Pod", "web-1", "shop")
        cluster.compact()  # the watch cannot go on where it was
        await cluster.up()
        rest = {"web-0": "10", "web-2": "30"}
        await adapter.wait_for(LOADS, lambda answer: answer.status == 200 and answer.values == rest)
        await adapter.wait_for(
            NAMESPACES, lambda answer: answer.status == 200 and answer.values == {"shop": "60"}
        )
        await adapter.wait_for(VERBOSE, lambda answer: "[-]" not in answer.body)


async def test_a_kind_that_no_metric_names_is_not_mirrored(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    """Requests cannot make the adapter watch, and hold, all objects of the cluster."""
    async with _running(tmp_path, cluster, prometheus.url) as adapter:
        before = {request.resource for request in cluster.requests}
        for kind in ("configmaps", "events", "serviceaccounts", "deployments.apps"):
            answer = await adapter.get(f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/{kind}/%2A/load")
            assert (answer.status, answer.body["message"]) == (
                404,
                f"the server could not find the metric load for {kind}",
            )
        assert {request.resource for request in cluster.requests} == before


async def test_the_adapter_starts_before_prometheus(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ready at once, as an unready adapter harms the whole cluster; metrics appear once Prometheus does."""
    monkeypatch.setattr("adapter.provider.relist.RETRY", 0.1)
    await prometheus.down()
    async with _running(tmp_path, cluster, prometheus.url) as adapter:
        for path in (LOADS, QUEUES):
            answer = await adapter.get(path)
            assert (answer.status, answer.body["reason"]) == (404, "NotFound")
        assert "[-]discovery failed" in (await adapter.get(VERBOSE)).body
        failures = await adapter.metric_lines("fastpath_discovery_failures_total")
        assert failures['fastpath_discovery_failures_total{reason="unreachable"}'] >= 3
        await prometheus.up()
        document = await adapter.wait_for(
            "/apis/external.metrics.k8s.io/v1beta1",
            lambda answer: "queue_depth" in str(answer.body),
            seconds=10,
        )
        assert document.status == 200
        await _healthy(adapter)


async def test_discovery_fails_and_nothing_known_is_lost(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapter.provider.rule_source.PERIOD", 0.05)
    monkeypatch.setattr("adapter.provider.relist.RETRY", 0.1)
    async with _running(tmp_path, cluster, prometheus.url, *SHORT) as adapter:
        await _healthy(adapter)
        prometheus.behaviours[SERIES] = faulty.reply(500, "oops", "text/plain")
        _rewrite(rules, RULES + "\n# another list is due now\n")
        await adapter.wait_for(VERBOSE, lambda answer: "[-]discovery failed" in answer.body)
        assert prometheus.url not in (await adapter.get("/readyz/discovery")).body
        assert (await adapter.get(LOADS)).values == RIGHT
        assert (await adapter.metric_lines("fastpath_discovery_rules_stale"))[
            "fastpath_discovery_rules_stale"
        ] == 3
        del prometheus.behaviours[SERIES]
        await _healthy(adapter)


# -- time ---------------------------------------------------------------------------------------------------


async def test_the_time_of_day_jumps(tmp_path: Path, rules: Path, cluster: Cluster) -> None:
    """Ages are measured by the clock that never jumps.

    Where Prometheus has nothing for the new time, nothing is served.
    """
    born = time.time()  # noqa: TID251 - the series begin now
    clock = ShiftedClock()
    _rewrite(rules, RULES.replace("  maxAge: 300ms", "  ttl: 1s\n  maxAge: 2s", 1))
    series = _series(lambda now, level: level if born - 60 <= now <= born + 600 else None)
    async with (
        FaultyPrometheus(series, time.time) as prometheus,  # noqa: TID251 - see above
        support.running(tmp_path, cluster, prometheus.url, clock=clock) as adapter,
    ):
        assert (await adapter.get(LOADS)).values == RIGHT
        asked = prometheus.queries()
        clock.wall_shift = -3600.0
        assert (await adapter.get(LOADS)).values == RIGHT, (
            "the TTL is not over: it is measured by the other clock"
        )
        assert prometheus.queries() == asked
        for jump in (-3600.0, 3600.0, -86_400.0 * 365 * 30, 86_400.0 * 365 * 90):
            clock.wall_shift = jump
            clock.monotonic_shift += 1.0
            answer = await adapter.get(LOADS)
            assert (answer.status, answer.values) == (200, {}), jump
            assert (await adapter.get(ONE)).status == 404
            assert (await adapter.get("/readyz")).status == 200
        clock.wall_shift = 0.0
        clock.monotonic_shift += 1.0
        assert (await adapter.get(LOADS)).values == RIGHT
        prometheus.behaviours[QUERY] = faulty.reply(500, "oops", "text/plain")
        clock.wall_shift = -3600.0
        clock.monotonic_shift += 1.5
        assert (await adapter.get(LOADS)).values == RIGHT, (
            "the last answer is 1.5 s old, whatever the time of day"
        )
        clock.monotonic_shift += 0.5
        await _failed(adapter, LOADS)


async def test_true_sample_age_follows_the_time_of_day(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    """With `maxSampleAge` a wrong clock makes values absent or leaves them; it never changes them."""
    clock = ShiftedClock()
    _rewrite(
        rules,
        RULES.replace("  maxAge: 300ms", "  maxSampleAge: 30s", 1).replace(
            "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "<<.Series>>{<<.LabelMatchers>>}", 1
        ),
    )
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, clock=clock) as adapter:
        assert (await adapter.get(LOADS)).values == RIGHT
        prometheus.behaviours[QUERY] = faulty.result(
            "vector",
            [
                {
                    "metric": {"namespace": "shop", "pod": pod},
                    "value": [clock.wall(), str(clock.wall() - 20.0 * number)],
                }
                for number, pod in enumerate(RIGHT)
            ],
        )
        clock.advance(1.0)
        assert (await adapter.get(LOADS)).values.keys() == {"web-0", "web-1"}, "web-2's sample is 41 s old"
        counted = await adapter.metric_lines("fastpath_values_dropped_total")
        assert counted['fastpath_values_dropped_total{reason="stale"}'] == 1


# -- files --------------------------------------------------------------------------------------------------


BROKEN_RULES = {
    "deleted": None,
    "empty": b"",
    "blank": b"\n\n",
    "not UTF-8": b"rules: \xff\xfe",
    "not YAML": b"rules: [",
    "cut off": RULES.encode()[: RULES.index("metricsQuery") + 20],
    "a page": b"<html>503</html>",
    "an unknown key": RULES.replace("metricsQuery", "metricQuery", 1).encode(),
}


async def test_the_rules_file_is_swapped_and_broken(
    tmp_path: Path, cluster: Cluster, prometheus: FaultyPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change as kubelet makes it takes effect; an unusable one is reported and changes no rule."""
    monkeypatch.setattr("adapter.provider.rule_source.PERIOD", 0.05)
    mount = Mount(tmp_path / "mounted")
    mount.put(rules_yaml=RULES.encode())
    (tmp_path / "rules.yaml").symlink_to("mounted/rules.yaml")
    pressure = LOADS.replace("load", "pressure")
    async with _running(tmp_path, cluster, prometheus.url, *SHORT) as adapter:
        await _healthy(adapter)
        mount.put(
            rules_yaml=RULES.replace(
                "- seriesQuery: 'load", "- name: {as: pressure}\n  seriesQuery: 'load"
            ).encode()
        )
        assert (await adapter.wait_for(pressure, lambda answer: answer.status == 200)).values == RIGHT
        assert (await adapter.get(LOADS)).status == 404
        for refused, (name, content) in enumerate(BROKEN_RULES.items(), 1):
            if content is None:
                mount.drop()
            else:
                mount.put(rules_yaml=content)
            line = f'fastpath_config_reloads_total{{outcome="refused"}} {refused}.0'
            await adapter.wait_for("/metrics", lambda answer, line=line: line in answer.body)
            verbose = await adapter.get(VERBOSE)
            assert verbose.status == 200
            assert "[-]config-reload failed" in verbose.body, name
            assert (await adapter.get(pressure)).values == RIGHT, name
        mount.put(rules_yaml=RULES.encode())
        await _healthy(adapter)
        mount.put(rules_yaml=b"rules: []\nexternalRules: []\n")
        await adapter.wait_for(LOADS, lambda answer: answer.status == 404)
        assert (await adapter.get("/apis/custom.metrics.k8s.io/v1beta2")).status == 200, (
            "a served group stays"
        )
        mount.put(rules_yaml=RULES.encode())
        await _healthy(adapter)


async def test_new_kinds_do_not_hide_that_the_file_is_refused(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapter.provider.rule_source.PERIOD", 0.05)
    clock = ShiftedClock()
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, clock=clock) as adapter:
        _rewrite(rules, "rules: [")
        await adapter.wait_for(VERBOSE, lambda answer: "[-]config-reload failed" in answer.body)
        cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", True))
        clock.monotonic_shift += 11  # the time of day stays that of the API server
        known = LOADS.replace("pods", "widgets.example.com")
        await adapter.wait_for(known, lambda answer: answer.status == 404)  # 500 while the kind is unknown
        for _ in range(4):
            await asyncio.sleep(0.05)
            assert "[-]config-reload failed" in (await adapter.get(VERBOSE)).body
        _rewrite(rules, RULES)
        await _healthy(adapter)


@contextlib.contextmanager
def _unprivileged() -> Iterator[None]:
    """Become an unprivileged user: root reads everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_rules_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        inner = folder / "inner"
        inner.mkdir()
        (inner / "rules.yaml").write_text(RULES)
        files = RulesFiles([str(inner)])
        assert not files.read().fatal
        for mode, path in ((0o000, inner), (0o000, inner / "rules.yaml"), (0o600, inner)):
            path.chmod(mode)
            with _unprivileged():
                for source in (inner, inner / "rules.yaml"):
                    (fault,) = RulesFiles([str(source)]).read().fatal
                    assert "Permission denied" in str(fault)
                    assert str(inner) in str(fault)
            path.chmod(0o755)


def _der(pair: tls.CertificatePair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(
        pair.certificate.read_text().partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    )


async def test_the_serving_certificate_rotates_under_load(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tls.ServingCertificate.follow, "__defaults__", (0.05,))
    message = "the changed serving certificate cannot be used; the old one stays in use"
    old, new, other = authority.issue(), authority.issue(), authority.issue()
    mount = Mount(tmp_path / "tls")
    mount.put(tls_crt=old.certificate.read_bytes(), tls_key=old.key.read_bytes())
    flags = (
        f"--tls-cert-file={mount.folder / 'tls.crt'}",
        f"--tls-private-key-file={mount.folder / 'tls.key'}",
    )
    async with _running(tmp_path, cluster, prometheus.url, *flags) as adapter:
        assert await _presented(adapter) == _der(old)
        async with _asking(adapter) as seen:
            for certificate, key in (
                (new.certificate, other.key),
                (other.key, new.key),
                (new.certificate, tmp_path / "rules.yaml"),
            ):
                caplog.clear()
                mount.put(tls_crt=certificate.read_bytes(), tls_key=key.read_bytes())
                await until(lambda: message in caplog.messages, 3.0)
                assert await _presented(adapter) == _der(old)
            mount.put(tls_crt=new.certificate.read_bytes(), tls_key=new.key.read_bytes())
            async with limited(5):
                while await _presented(adapter) != _der(new):  # noqa: ASYNC110 - what is shown next sets no event
                    await asyncio.sleep(0.02)
    assert {answer.status for answer in seen} == {200}
    assert all(answer.values == RIGHT for answer in seen)


@contextlib.asynccontextmanager
async def _asking(adapter: RunningAdapter, path: str = LOADS, askers: int = 3) -> AsyncIterator[list[Answer]]:
    """Ask all the time until the end of the block; every answer is in the list."""
    seen: list[Answer] = []
    stop = asyncio.Event()

    async def ask() -> None:
        while not stop.is_set():
            seen.append(await adapter.get(path))

    async with asyncio.TaskGroup() as group:
        for _ in range(askers):
            group.create_task(ask())
        try:
            yield seen
        finally:
            stop.set()


async def test_the_token_for_prometheus_rotates(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A refused token has the file read again: one question fails at most, and its last answer stands in."""
    accepted = {"Bearer first"}

    async def judge(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") not in accepted:
            return web.Response(status=401, text="who?")
        return await prometheus.answer(request)

    prometheus.behaviours = {QUERY: judge, SERIES: judge}
    mount = Mount(tmp_path / "secret")
    mount.put(token=b"first\n")
    flag = f"--prometheus-token-file={mount.folder / 'token'}"
    clock = ShiftedClock()
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, flag, clock=clock) as adapter:
        await _healthy(adapter)
        accepted.clear()
        clock.advance(0.5)
        await _failed(adapter, LOADS)
        assert (await adapter.get(STEADY)).values == RIGHT
        assert "[-]prometheus failed" in (await adapter.get(VERBOSE)).body
        shown = (await adapter.get("/readyz/prometheus")).body
        assert shown == "internal server error: HTTP status 401\n", "anyone may read it, so it has no address"
        assert _warnings(caplog, "Prometheus does not answer") == [
            f"{prometheus.url}/api/v1/query: HTTP status 401"
        ]
        accepted.add("Bearer second")
        mount.put(token=b"second\n")
        await _healthy(adapter)
        for broken in (b"", b"two\nlines"):
            mount.put(token=broken)
            clock.advance(1.5)
            assert (await adapter.get(LOADS)).values == RIGHT, "the token in use stays"
            assert "[-]credentials failed" in (await adapter.get(VERBOSE)).body
        mount.put(token=b"third")
        accepted.add("Bearer third")
        accepted.remove("Bearer second")
        clock.advance(1.5)
        await _healthy(adapter)


# -- callers ------------------------------------------------------------------------------------------------


async def _gauge(adapter: RunningAdapter, series: str) -> float:
    return (await adapter.metric_lines(series.partition("{")[0]))[series]


IN_FLIGHT = 'apiserver_current_inflight_requests{request_kind="readOnly"}'


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Allow 4,096 open files: both ends of hundreds of connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= 4096:
        yield
        return
    if hard < 4096:
        pytest.skip(f"this process may open {hard} files; two for each connection are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
def test_hundreds_of_questions_while_prometheus_hangs(tmp_path: Path, rules: Path) -> None:
    """Pending requests are bounded, the rest is refused; documents and health are served; nothing is left."""
    patience.run(_ask_hundreds(tmp_path))


async def _ask_hundreds(tmp_path: Path) -> None:
    async with Cluster() as cluster, _prometheus() as prometheus:
        _add_pods(cluster)
        await _hang_hundreds(tmp_path, cluster, prometheus)


async def _hang_hundreds(tmp_path: Path, cluster: Cluster, prometheus: FaultyPrometheus) -> None:
    long = ("--prometheus-attempt-timeout=1500ms", "--prometheus-timeout=2500ms")
    async with _running(tmp_path, cluster, prometheus.url, *long) as adapter:
        callers = [await Caller.connect(adapter) for _ in range(700)]
        tasks = len(asyncio.all_tasks())
        memory = await _gauge(adapter, "process_resident_memory_bytes")
        prometheus.behaviours[QUERY] = faulty.hang
        for number, caller in enumerate(callers):
            caller.ask(ONE.replace("web-1", f"web-{number}"))
        answers = [asyncio.create_task(caller.answer(), name="caller") for caller in callers]
        served = 0  # before the first query gives up: what does not need Prometheus does not wait for it
        while not all(answer.done() for answer in answers):
            for path in ("/readyz", "/apis/custom.metrics.k8s.io/v1beta2", "/apis", "/metrics"):
                assert (await adapter.get(path)).status == 200
                served += not any(answer.done() and answer.result().status == 500 for answer in answers)
            assert await _gauge(adapter, IN_FLIGHT) <= 300
            await asyncio.sleep(0.02)
        statuses = Counter(answer.result().status for answer in answers)
        assert statuses.keys() == {500, 429}
        assert statuses[500] >= 300, (
            "those that had a place waited in vain, others may have got one after them; 100 places are not "
            "for one user alone"
        )
        told = [answer.result().body["message"] for answer in answers if answer.result().status == 500]
        assert {text.partition(": Prometheus")[0] for text in told} == {UNFETCHED}
        assert served >= 4
        assert prometheus.most_under_way <= 20, "as many connections as there are"
        await adapter.wait_for("/metrics", lambda answer: f"{IN_FLIGHT} 0.0" in answer.body)
        assert await _gauge(adapter, "process_resident_memory_bytes") - memory < 100 * 1024 * 1024
        for caller in callers:
            caller.leave()
        del prometheus.behaviours[QUERY]
        await adapter.wait_for(LOADS, lambda answer: answer.status == 200 and answer.values == RIGHT)
        await until(lambda: len(asyncio.all_tasks()) <= tasks, 10.0)
        await until(lambda: not prometheus.under_way, 5.0)


async def test_callers_that_go_away(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    """A client that leaves cancels no shared query: others still get its answer, and no slot stays taken."""
    release = asyncio.Event()

    async def hold(request: web.BaseRequest) -> web.StreamResponse:
        await release.wait()
        return await prometheus.answer(request)

    async with _running(tmp_path, cluster, prometheus.url) as adapter:
        prometheus.behaviours[QUERY] = hold
        leaving = [await Caller.connect(adapter) for _ in range(20)]
        for number, caller in enumerate(leaving):
            caller.ask(LOADS if number % 2 else ONE)
        await until(lambda: prometheus.under_way, 5.0)
        staying = asyncio.create_task(adapter.get(LOADS), name="staying")
        impatient = [
            asyncio.create_task(adapter.get(f"{path}?timeout=50ms"), name="impatient")
            for path in (LOADS, ONE, QUEUES)
        ]
        for caller in leaving:
            caller.leave()
        for answer in await asyncio.gather(*impatient):
            assert (answer.status, answer.body["reason"]) == (504, "Timeout")
        asked = prometheus.under_way
        release.set()
        assert (await staying).values == RIGHT
        assert asked <= 3
        await adapter.wait_for("/metrics", lambda answer: f"{IN_FLIGHT} 0.0" in answer.body)
        await _healthy(adapter)


async def test_a_fault_that_no_longer_occurs_ends(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who met it may never ask again: the autoscaler is gone, or the rule."""
    monkeypatch.setattr("adapter.telemetry.problems.EXPIRY_CHECK", 0.02)
    clock = ShiftedClock()
    async with _running(tmp_path, cluster, prometheus.url, *SHORT, clock=clock) as adapter:
        prometheus.behaviours[QUERY] = faulty.refuse(422, "execution", "too many samples")
        await _failed(adapter, LOADS)
        for _ in range(3):
            await asyncio.sleep(0.05)
            assert "[-]queries failed" in (await adapter.get(VERBOSE)).body
        clock.advance(61)
        await adapter.wait_for(VERBOSE, lambda answer: "[+]queries ok" in answer.body)
