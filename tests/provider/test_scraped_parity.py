"""Scraped values against what a real Prometheus says of the same series."""

import asyncio

import prometheus_client
import pytest

from adapter.config.rules_config import Access
from adapter.errors import UnscrapableError
from adapter.model.objects import pod_networks
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.scrape.scraped_query import PodLabels, compile_query
from adapter.rules.scrape.series import PodSeries
from adapter.rules.template import template
from adapter.scrape.http import ScrapeEndpoint
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.scraping import LoneScraper, evaluate, parse, record

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
    "query", answers("provider/scraped_parity", "sides_that_are_refused_because_they_never_match_do_not")
)
def test_sides_that_are_refused_because_they_never_match_do_not(
    recorded: PrometheusServer, query: str
) -> None:
    parsed = template.parse(query)
    with pytest.raises(UnscrapableError, match=r"never match|does not have"):
        compile_query(parsed, pod=POD_LABELS)

    promql = parsed.render({"Series": "", "LabelMatchers": 'pod="web-0"', "GroupBy": "pod"})
    assert recorded.query(promql, at=NOW) == []


async def test_an_exporter_of_prometheus_client_is_read_as_it_serves() -> None:
    registry = prometheus_client.CollectorRegistry()
    queue = prometheus_client.Gauge("queue", "Depth.", ["name"], registry=registry)
    requests = prometheus_client.Counter("requests", "All.", ["code"], registry=registry)
    queue.labels('odd "name"\n').set(12.5)
    requests.labels("200").inc(3)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    clock, monitoring = FakeClock(), Monitoring()
    networks = pod_networks.parse_networks(["127.0.0.0/8"])
    try:
        problems = SourceProblems(clock, ProblemLog(monitoring, clock))
        async with LoneScraper(clock, monitoring, problems, networks=networks) as scraper:
            body = await scraper.fetch(ScrapeEndpoint("shop", "127.0.0.1", server.server_port, Access("")))
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
    assert body.openmetrics
    samples = parse(body.content, {"queue", "requests_total"}, openmetrics=True)
    assert sorted((sample.name, sample.value) for sample in samples) == [
        ("queue", 12.5),
        ("requests_total", 3),
    ]
