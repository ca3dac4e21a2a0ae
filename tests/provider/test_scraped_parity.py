"""Scraped values against what a real Prometheus says of the same series."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import prometheus_client
import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.compose.clock import SystemClock
from adapter.errors import UnscrapableError
from adapter.model import pod_networks
from adapter.model.label_selectors import parse_selector
from adapter.model.metrics import SeriesInfo
from adapter.provider.relist import Relister
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.scrape.scraped_query import PodLabels, compile_query
from adapter.rules.scrape.series import PodSeries
from adapter.rules.template import template
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.http import Scraper
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.support import waiting
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.scraping import evaluate, parse, record
from tests.support.world import FakeLister, FakePod, compile_text, read_scraped

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

# --- one query after the other over the same samples

NOW = 1_700_000_000
POD_LABELS = PodLabels("pod", "namespace")
WINDOW = 5
LABELS = ('code="200",path="/a"', 'code="200",path="/b\\\\\\"c"', 'code="500"', "")
VALUES = {
    "hits_total": ((3, 10, 12, 20, 35, 40), (7, 9, 30, 2, 4, 11), (1, 1, 1, 1, 1, 1), (1, 2, 3, 1, 0, 8)),
    "hits_sum": ((1, 2, 4, 8, 16, 32), (5, 5, 5, 5, 5, 9.5), (0.5, 1, 2, 2, 2, 2), (3, 3, 3, 3, 3, 4)),
    "depth": ((1, 2, 3, 4, 5, 6), (9, 9, 9, 9, 9, -2.5), ("NaN",) * 6, (0, 0, 0, 0, 0, 1e300)),
}
QUERIES = [
    f"{aggregation}({inner}) by (<<.GroupBy>>)"
    for aggregation in ("sum", "max", "min", "avg", "count")
    for inner in (
        "depth{<<.LabelMatchers>>}",
        'depth{<<.LabelMatchers>>,code=~"2.*"}',
        'depth{<<.LabelMatchers>>,code!="500"} * 2 - 1',
        "abs(-depth{<<.LabelMatchers>>})",
        "clamp_max(clamp_min(depth{<<.LabelMatchers>>}, 0), 5)",
        "last_over_time(depth{<<.LabelMatchers>>}[1m])",
        "rate(hits_total{<<.LabelMatchers>>}[5001ms])",
        'rate(hits_total{<<.LabelMatchers>>,path!~"/b.*",path!=""}[5001ms]) ^ 2 % 3',
        "irate(hits_total{<<.LabelMatchers>>}[5001ms])",
        "increase(hits_total{<<.LabelMatchers>>}[5001ms])",
    )
] + [
    ("sum(rate(hits_sum{<<.LabelMatchers>>}[5001ms])) by (<<.GroupBy>>) / "
    "sum(rate(hits_total{<<.LabelMatchers>>}[5001ms])) by (<<.GroupBy>>)"),
    ('100 * sum(depth{<<.LabelMatchers>>,code="200"}) by (<<.GroupBy>>) / on(pod) group_left '
    'sum(hits_total{<<.LabelMatchers>>}) by (pod, namespace)'),
    "sum(max(hits_total{<<.LabelMatchers>>}) by (<<.GroupBy>>, code)) by (<<.GroupBy>>)",
    "max(sum(hits_total{<<.LabelMatchers>>}) by (<<.GroupBy>>, path, nothing)) by (<<.GroupBy>>)",
    '-sum(depth{<<.LabelMatchers>>,code="200"}) by (<<.GroupBy>>) ^ 2 / 0',
    ("floor(sum(hits_total{<<.LabelMatchers>>}) by (<<.GroupBy>>) / 7) + "
    "ceil(sum(hits_total{<<.LabelMatchers>>}) by (<<.GroupBy>>) / 7)"),
    'sum(depth{<<.LabelMatchers>>,code="none"}) by (<<.GroupBy>>)',
    'sum(depth{<<.LabelMatchers>>,pod=~"we.*",namespace="shop"}) by (<<.GroupBy>>)',
    ('sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) - sum(depth{<<.LabelMatchers>>,code="none"}) by '
    '(<<.GroupBy>>)'),
]  # fmt: skip
SELECTORS = ("", "code=200", "code!=200", "code in (200,500)", "!path", "path,code notin (500)", "code=2")


def _body(at: int) -> str:
    """Return what the pod shows at one of six moments a second apart."""
    return "\n".join(
        f"{name}{{{labels}}} {values[at]}"
        for name, rows in VALUES.items()
        for labels, values in zip(LABELS, rows, strict=True)
    )


@pytest.fixture(scope="module")
def recorded(module_prometheus: PrometheusFactory) -> PrometheusServer:
    """Return a Prometheus that has scraped the pod, and another that it does not scrape."""
    lines = []
    for name, rows in VALUES.items():
        lines.append(f"# TYPE {name} unknown")
        for labels, values in zip(LABELS, rows, strict=True):
            both = ",".join(part for part in (labels, 'pod="web-0",namespace="shop"') if part)
            lines += [f"{name}{{{both}}} {value} {NOW - 5 + at}" for at, value in enumerate(values)]
        lines.append(f'{name}{{pod="web-1",namespace="shop",code="200"}} 1000 {NOW - 1}')
    return module_prometheus(samples="\n".join(lines))


@pytest.fixture(scope="module")
def shown() -> PodSeries:
    series = PodSeries()
    for at in range(6):
        record(series, parse(_body(at).encode(), VALUES.keys()), at, NOW, WINDOW)
    return series


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_prometheus_gives(
    recorded: PrometheusServer, shown: PodSeries, query: str
) -> None:
    parsed = template.parse(query)
    compiled = compile_query(parsed, pod=POD_LABELS)
    for selector in SELECTORS:
        parts = matchers.from_selector(parse_selector(selector))
        named = [*parts, Matcher("namespace", "=", "shop"), Matcher("pod", "=", "web-0")]
        promql = parsed.render({"Series": "", "LabelMatchers": matchers.join(named), "GroupBy": "pod"})
        theirs = [float(sample["value"][1]) for sample in recorded.query(promql, at=NOW)]

        answer = evaluate(compiled, shown, "", ("shop", "web-0"), parts, WINDOW)

        ours = [element.value for element in answer.elements]
        assert ours == pytest.approx(theirs, rel=1e-9, nan_ok=True), (promql, selector)


@pytest.mark.parametrize(
    "query",
    [
        (
            "sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(depth{<<.LabelMatchers>>}) by (pod, "
            "namespace)"
        ),
        (
            "sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>) / on(pod, namespace) "
            "sum(depth{<<.LabelMatchers>>}) by (pod, namespace)"
        ),
    ],
)
def test_sides_that_are_refused_because_they_never_match_do_not(
    recorded: PrometheusServer, query: str
) -> None:
    parsed = template.parse(query)
    with pytest.raises(UnscrapableError, match=r"never match|does not have"):
        compile_query(parsed, pod=POD_LABELS)

    promql = parsed.render({"Series": "", "LabelMatchers": 'pod="web-0"', "GroupBy": "pod"})
    assert recorded.query(promql, at=NOW) == []


# --- both scraping the same exporter

RULES = """
rules:
- seriesQuery: all
  resources: {overrides: {instance: {resource: pod}, job: {resource: namespace}}}
  name: {matches: (.*)_total, as: $1}
  scrape: {port: PORT, interval: 200ms, window: 3s}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>,code=~"2.."}[3s])) by (<<.GroupBy>>)
- seriesQuery: gauges
  resources: {overrides: {instance: {resource: pod}, job: {resource: namespace}}}
  scrape: {port: PORT, interval: 200ms}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: histograms
  resources: {overrides: {instance: {resource: pod}, job: {resource: namespace}}}
  name: {matches: (.*)_sum, as: "${1}_mean"}
  scrape: {port: PORT, interval: 200ms, window: 3s}
  metricsQuery: >-
    sum(rate(<<.Series>>{<<.LabelMatchers>>}[3s])) by (<<.GroupBy>>)
    / sum(rate(work_seconds_count{<<.LabelMatchers>>}[3s])) by (<<.GroupBy>>)
"""
PROMQL = {
    "requests": 'sum(rate(requests_total{job="shop",code=~"2.."}[3s])) by (instance)',
    "queue": 'max(queue{job="shop"}) by (instance)',
    "work_seconds_mean": (
        'sum(rate(work_seconds_sum{job="shop"}[3s])) / sum(rate(work_seconds_count{job="shop"}[3s]))'
    ),
}
LABEL_NAMES = frozenset({"job", "instance"})


class Program(Collector):
    """A program under even load: its counters count so much a second, whenever it is asked."""

    def __init__(self) -> None:
        self._start = time.monotonic()  # noqa: TID251 - a program of its own
        self.queue = {"small": 3.0, 'odd "name"\n': 12.5}

    def collect(self) -> Iterable[Metric]:
        seconds = time.monotonic() - self._start  # noqa: TID251 - a program of its own
        requests = CounterMetricFamily("requests", "All.", labels=["code", "path"])
        for code, path, rate in (("200", "/a", 40), ("201", "/b", 2.5), ("500", "/a", 100)):
            requests.add_metric([code, path], 1e6 + rate * seconds)
        queue = GaugeMetricFamily("queue", "Depth.", labels=["name"])
        for name, depth in self.queue.items():
            queue.add_metric([name], depth)
        work = HistogramMetricFamily("work_seconds", "Time.")
        work.add_metric([], [("+Inf", 20 * seconds)], sum_value=5 * seconds)
        return [requests, queue, work]


@contextmanager
def _exporting(program: Program) -> Iterator[int]:
    """Serve a program's metrics as prometheus_client does; yields the port."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(program)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _read_prometheus(server: PrometheusServer, promql: str) -> float | None:
    """Return the one value of a query that names no other series."""
    result = server.query(promql)
    return float(result[0]["value"][1]) if result else None


async def test_values_are_those_of_prometheus_up_to_its_sampling(
    prometheus_server: PrometheusFactory,
) -> None:
    program = Program()
    with _exporting(program) as port:
        pod = FakePod(f"127.0.0.1:{port}", "127.0.0.1")
        server = await asyncio.to_thread(
            lambda: prometheus_server(targets={"shop": [pod.name]}, scrape_interval="200ms")
        )
        clock, monitoring = SystemClock(), Monitoring()
        faults = ProblemLog(monitoring, clock)
        lists = {
            "all": (SeriesInfo("requests_total", LABEL_NAMES, 3),),
            "gauges": (SeriesInfo("queue", LABEL_NAMES, 2),),
            "histograms": (SeriesInfo("work_seconds_sum", LABEL_NAMES, 1),),
        }
        relister = Relister(FakeLister(lists), clock, monitoring, faults, interval=600, max_age=600)
        await relister.adopt(compile_text(RULES.replace("PORT", str(port))))
        relisting = asyncio.create_task(relister.run())
        await relister.attempted.wait()
        async with Scraper(
            clock, monitoring, faults, networks=pod_networks.parse_networks(["127.0.0.0/8"])
        ) as scraper:
            met = SourceProblems(clock, faults)
            scraped = ScrapedValues(
                scraper.fetch,
                lambda: relister.registry,
                clock,
                monitoring,
                met,
                per_second=2000,
                random=lambda: 0.0,
            )
            scraped.want("x", "shop", PROMQL.keys(), [pod])
            running = asyncio.create_task(scraped.run())

            def ours(metric: str, selector: str = "") -> float | None:
                found = read_scraped(scraped, "shop", metric, [pod.name], parse_selector(selector))
                assert found is not None
                value = found.values.get(pod.name)
                return None if value is None else value.value

            # whole windows on both sides
            covered = "min(count_over_time(requests_total[3s])) >= 15"
            await asyncio.to_thread(server.wait_for, covered)
            await asyncio.sleep(1)
            for metric, truth in (("requests", 42.5), ("work_seconds_mean", 0.25)):
                theirs = await asyncio.to_thread(_read_prometheus, server, PROMQL[metric])
                assert theirs == pytest.approx(truth, rel=0.1), metric
                assert ours(metric) == pytest.approx(truth, rel=0.1), metric
            assert ours("queue") == await asyncio.to_thread(_read_prometheus, server, PROMQL["queue"]) == 12.5
            assert ours("queue", "name=small") == 3
            assert ours("requests", "code=201") == pytest.approx(2.5, rel=0.1)

            program.queue["small"] = 99.0
            await asyncio.to_thread(server.wait_for, f"{PROMQL['queue']} == 99")
            await waiting.until(lambda: ours("queue") == 99)
            running.cancel()
            relisting.cancel()
            await asyncio.gather(running, relisting, return_exceptions=True)
        counted = monitoring.registry.get_sample_value("fastpath_scrapes_total", {"outcome": "success"})
        assert counted is not None
        assert counted > 15
