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
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from aiohttp import web

from adapter.prometheus import endpoint
from adapter.provider.rule_source import RulesFiles
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from tests.support import adapter as support
from tests.support.adapter import DecodedAnswer, RunningAdapter
from tests.support.clock import ShiftedClock
from tests.support.objects import plain
from tests.world import faulty
from tests.world.faulty import QUERY, SERIES, Behaviour, FaultyPrometheus
from tests.world.mount import Mount

pytestmark = [pytest.mark.integration, pytest.mark.timeout(30)]

# `load` gives up its last answer soon, `steady` after the 30 s that every rule has unless it says otherwise.
RULES = (Path(__file__).parents[1] / "data" / "rules" / "steady.yaml").read_text()
RIGHT = {"web-0": "10", "web-1": "20", "web-2": "30"}
DEPTHS = {"mail": "5", "orders": "9"}
SHORT = ("--metrics-ttl=50ms", "--prometheus-attempt-timeout=250ms", "--prometheus-timeout=400ms")

LOADS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/load"
STEADY = LOADS.replace("load", "steady")
ONE = LOADS.replace("%2A", "web-1")
QUEUES = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth"
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


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        for name in RIGHT:
            cluster.create(plain("Pod", name, "shop", {"app": "web"}))
        yield cluster


@pytest.fixture
async def prometheus() -> AsyncIterator[FaultyPrometheus]:
    now = time.time  # noqa: TID251 - adapter and server share the time of day
    async with FaultyPrometheus(_series(), now) as prometheus:
        yield prometheus


# what is at fault here is not the API server's word about callers
_running = functools.partial(support.running, aggregated=True)


class Start(Protocol):
    """Runs an adapter."""

    def __call__(self, *arguments: str, **how: Any) -> AbstractAsyncContextManager[RunningAdapter]: ...


@pytest.fixture
def start(tmp_path: Path, rules: Path, cluster: Cluster, prometheus: FaultyPrometheus) -> Start:
    return functools.partial(_running, tmp_path, cluster, prometheus.url)


def _rewrite(rules: Path, text: str) -> None:
    rules.write_text(text)


def _warnings(caplog: pytest.LogCaptureFixture, message: str) -> list[str]:
    """Return the error texts with which a message was logged as a warning."""
    return [
        str(getattr(record, "facts", {}).get("error"))
        for record in caplog.records
        if record.levelno == logging.WARNING and record.getMessage() == message
    ]


def _depths(answer: DecodedAnswer) -> dict[str, str]:
    return {item["metricLabels"]["queue"]: item["value"] for item in answer.body["items"]}


async def _failed(adapter: RunningAdapter, path: str, message: str = UNFETCHED) -> DecodedAnswer:
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
    "trickles": _Failure(faulty.trickle, "queries", "timeout", "no answer in 0.25 s"),
    "503 in the envelope": _Failure(
        faulty.refuse(503, "unavailable", "starting up"), "prometheus", "status", "unavailable: starting up"
    ),
    "422": _Failure(
        faulty.refuse(422, "execution", "query processing would load too many samples"),
        "queries",
        "query",
        "execution: query processing would load too many samples",
    ),
    "a page with 200": _Failure(
        faulty.reply(200, "<html>please sign in</html>", "text/html"),
        "queries",
        "decode",
        f"not JSON: {endpoint.NO_API}",
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
}


async def test_prometheus_fails(
    start: Start, prometheus: FaultyPrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ShiftedClock()
    async with start(*SHORT, clock=clock) as adapter:
        await _healthy(adapter)
        for name, failure in FAILURES.items():
            caplog.clear()
            prometheus.behaviours[QUERY] = failure.behaviour
            clock.advance(0.06)  # beyond the TTL, within maxAge
            assert (await adapter.get(STEADY)).values == RIGHT, f"{name}: the last answer stands in"
            verbose = await adapter.get(VERBOSE)
            assert (verbose.status, f"[-]{failure.line} failed" in verbose.body) == (200, True), name
            clock.advance(0.5)
            await _failed(adapter, LOADS)
            await _failed(adapter, ONE)
            await _failed(adapter, QUEUES, failure.external)
            assert (await adapter.get(STEADY)).values == RIGHT, name
            assert (await adapter.get("/readyz")).status == 200
            counted = await adapter.metric_lines("fastpath_prometheus_queries_total")
            found = [count for series, count in counted.items() if f'outcome="{failure.outcome}"' in series]
            assert sum(found) >= 3, name
            message = "Prometheus does not answer" if failure.line == "prometheus" else "query failed"
            texts = _warnings(caplog, message)
            assert all(failure.said in text for text in texts), texts
            assert 1 <= len(texts) <= 3, "said once for the server, or for each rule, not for each question"
            del prometheus.behaviours[QUERY]
            clock.advance(61)  # a query's problem ends when it has not occurred for a minute
            await _healthy(adapter)
        answered = await adapter.metric_lines("fastpath_responses_total")
        assert answered['fastpath_responses_total{source="stale"}'] >= 2 * len(FAILURES)


def _vector(**values: str) -> Behaviour:
    return faulty.result(
        "vector",
        [
            {"metric": {"namespace": "shop", "pod": f"web-{number[1:]}"}, "value": [1700000000, text]}
            for number, text in values.items()
        ],
    )


ABSENCES = {
    "empty": (_vector(), {}, ""),
    "NaN": (_vector(_0="10", _1="NaN", _2="30"), {"web-0": "10", "web-2": "30"}, "nan"),
    "infinite": (_vector(_0="+Inf", _1="-Inf", _2="30"), {"web-2": "30"}, "infinite"),
    "negative": (_vector(_0="-10", _1="-0.0004", _2="-0"), {"web-0": "-10", "web-1": "0", "web-2": "0"}, ""),
}


async def test_an_object_without_a_value_is_absent(start: Start, prometheus: FaultyPrometheus) -> None:
    """An absence is no failure: what was there before does not stand in for it, and the others are served."""
    clock = ShiftedClock()
    async with start(*SHORT, clock=clock) as adapter:
        await _healthy(adapter)
        for name, (behaviour, left, reason) in ABSENCES.items():
            prometheus.behaviours[QUERY] = behaviour
            clock.advance(0.06)
            for path in (LOADS, STEADY):
                answer = await adapter.get(path)
                assert (answer.status, answer.values) == (200, left), name
            one = await adapter.get(ONE)
            if "web-1" in left:
                assert one.values == {"web-1": left["web-1"]}
            else:
                missing = "the server could not find the metric load for pods web-1"
                assert (one.status, one.body["message"]) == (404, missing), name
            if reason:
                counted = await adapter.metric_lines("fastpath_values_dropped_total")
                assert counted[f'fastpath_values_dropped_total{{reason="{reason}"}}'] >= 2
                assert "[-]values failed" in (await adapter.get(VERBOSE)).body
            assert (await adapter.get("/readyz")).status == 200
        del prometheus.behaviours[QUERY]
        clock.advance(61)
        await _healthy(adapter)


async def test_the_adapter_starts_before_the_api_server(cluster: Cluster, start: Start) -> None:
    """Until the cluster is known nothing is "not found", and the aggregator gets the group documents."""
    await cluster.down()
    short = ("--prometheus-timeout=600ms",)
    async with start(*short, until_ready=False) as adapter:
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


async def test_a_kind_that_no_metric_names_is_not_mirrored(cluster: Cluster, start: Start) -> None:
    """Requests cannot make the adapter watch, and hold, all objects of the cluster."""
    async with start() as adapter:
        before = {request.resource for request in cluster.requests}
        for kind in ("configmaps", "events", "serviceaccounts", "deployments.apps"):
            answer = await adapter.get(f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/{kind}/%2A/load")
            assert (answer.status, answer.body["message"]) == (
                404,
                f"the server could not find the metric load for {kind}",
            )
        assert {request.resource for request in cluster.requests} == before


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


@pytest.fixture
def _quick_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.provider.rule_source.PERIOD", 0.05)


@pytest.mark.usefixtures("_quick_files")
async def test_the_rules_file_is_swapped_and_broken(
    tmp_path: Path, cluster: Cluster, prometheus: FaultyPrometheus
) -> None:
    """A change as kubelet makes it takes effect; an unusable one is reported and changes no rule."""
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


@pytest.mark.usefixtures("_quick_files")
async def test_new_kinds_do_not_hide_that_the_file_is_refused(
    rules: Path, cluster: Cluster, start: Start
) -> None:
    clock = ShiftedClock()
    async with start(*SHORT, clock=clock) as adapter:
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


async def test_the_token_for_prometheus_rotates(
    tmp_path: Path, prometheus: FaultyPrometheus, start: Start, caplog: pytest.LogCaptureFixture
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
    async with start(*SHORT, flag, clock=clock) as adapter:
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
