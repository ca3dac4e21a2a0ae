"""How many pods a core scrapes: `python -m benchmarks.scrape`, in pods a second of CPU time.

`parse` finds one family in a body. `take` does all that is done with a body: it parses, records the samples
of a counter and evaluates the pod's rate. `scrape` also reads the pods over HTTP on loopback, with the pods
on another core. Bodies are those of ordinary programs: some 300 and some 900 lines, 24 and 70 KiB, a dozen
series of one name wanted.

`usage` is what follows a scrape of a pod's own usage, each second: its history, the comparison with the usage
of its container, and the reading. `usage_pod_microseconds` is the processor time for one pod, and
`usage_pod_bytes` its memory.
"""

import asyncio
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop
from aiohttp import web

from adapter.autoscaler.decide.observation import PodsReading
from adapter.autoscaler.inputs.feed import SourceAnswer
from adapter.autoscaler.inputs.sources import ReadContext
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.compose.clock import SystemClock
from adapter.config.rules_config import Access
from adapter.model.autoscaling.hpa import ContainerMetrics, PodMetrics
from adapter.model.objects import pod_networks
from adapter.model.objects.api_objects import ObjectMeta
from adapter.model.objects.pods import Container, PodFacts
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND, Instant
from adapter.rules.scrape import scraped_query
from adapter.rules.scrape.scraped_query import PodLabels
from adapter.rules.scrape.series import PodSeries
from adapter.rules.template import template
from adapter.scrape.http import ScrapeEndpoint
from adapter.scrape.readings import ScrapedAnswer, ScrapedValue
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from benchmarks import bare, common
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage
from tests.support.scraping import LoneScraper, evaluate, parse, record

WANTED = "http_requests_total"
_QUERY = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
_POD = ("shop", "web-0")
_WINDOW = 5.0
LOOPBACK = pod_networks.parse_networks(["127.0.0.0/8"])


def make_body(lines: int, number: int = 0, *, end: bool = False) -> bytes:
    """Return an exposition of about `lines` lines: gauges, histograms of many paths, the wanted counter."""
    written = []
    for gauge in range(lines // 8):
        name = f"process_runtime_gauge_{gauge}_bytes"
        written += [
            f"# HELP {name} A gauge of the runtime, number {gauge}.",
            f"# TYPE {name} gauge",
            f"{name} {gauge * 1e6 + number}",
        ]
    written += [f"# HELP {WANTED} Requests.", f"# TYPE {WANTED} counter"]
    for status in ("200", "404", "500"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            labels = f'code="{status}",handler="/api/v1/things",method="{method}"'
            written.append(f"{WANTED}{{{labels}}} {number * 17 + int(status)}")
    written += [
        "# HELP http_request_duration_seconds Time.",
        "# TYPE http_request_duration_seconds histogram",
    ]
    path = 0
    while len(written) < lines:
        labels = f'handler="/api/v1/things/{path}",method="GET"'
        for bound in (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, "+Inf"):
            written.append(f'http_request_duration_seconds_bucket{{{labels},le="{bound}"}} {number}')
        written += [f"http_request_duration_seconds_{part}{{{labels}}} {number}" for part in ("sum", "count")]
        path += 1
    return "\n".join([*written, "# EOF" if end else "", ""]).encode()


def main() -> None:
    sizes = common.parse_sizes("How many pods a core scrapes.", bodies=2000, pods=200, rounds=10, runs=5)
    os.sched_setaffinity(0, {common.SERVER_CORE})
    goals = {
        f"{name}_pods_per_second": Goal(f"pods {what}, on one core", 2_000, "/s", at_least=True)
        for name, what in (
            ("parse_small", "whose small responses are parsed"),
            ("parse_large", "whose large responses are parsed"),
            ("take_large", "whose large responses are parsed, recorded and evaluated"),
            ("scrape_large", "with large responses that are scraped over HTTP"),
        )
    }
    small, large = make_body(300), make_body(900)
    settings = {"small_bytes": len(small), "large_bytes": len(large), **vars(sizes)}
    report = Report("scrape", settings, goals)
    count = int(sizes.bodies)
    metrics = make_body(900, end=True)
    work: dict[str, tuple[Callable[[], None], int]] = {
        "parse_small": (lambda: _parse(small, count), count),
        "parse_large": (lambda: _parse(large, count), count),
        "parse_openmetrics": (lambda: _parse(metrics, count, openmetrics=True), count),
        "take_large": (lambda: _take(count), count),
    }
    runs = range(int(sizes.runs))
    for name, (function, pods) in work.items():
        figure = f"{name}_pods_per_second"
        report.add(**common.median_of([{figure: _rate(function, pods)} for _ in runs]))
    pods, rounds = int(sizes.pods), int(sizes.rounds)
    with Stage() as stage:
        port = int(stage.start_server("scrape").rpartition(":")[2])
        figure = "scrape_large_pods_per_second"
        reading = [
            {figure: _rate(lambda: uvloop.run(_scrape(port, pods, rounds)), pods * rounds)} for _ in runs
        ]
        report.add(**common.median_of(reading))
    own = OwnUsages(100)
    own.run(300)  # until the usage is compared and its noise is known
    usages = [{"usage_pod_microseconds": 1e6 / _rate(lambda: own.run(100), 100 * own.pods)} for _ in runs]
    report.add(**common.median_of(usages), usage_pod_bytes=OwnUsages(100).bytes_of_pod())
    report.notes["scrape"] = "CPU time of the adapter's core alone, connections opened in the first round"
    report.show()


def _rate(work: Callable[[], None], count: int) -> float:
    start = time.process_time()
    work()
    return count / (time.process_time() - start)


def _parse(body: bytes, count: int, *, openmetrics: bool = False) -> None:
    names = frozenset({WANTED})
    for _ in range(count):
        assert len(parse(body, names, openmetrics=openmetrics)) == 12


def _take(count: int) -> None:
    """Process scrapes of pods, each pod's a second apart, and evaluate each pod."""
    query = scraped_query.compile_query(template.parse(_QUERY), pod=PodLabels("pod", "namespace"))
    names = query.series_names(WANTED)
    bodies = [make_body(900, number) for number in range(10)]
    pod = PodSeries()
    for number in range(count):
        if number % 100 == 0:
            pod = PodSeries()
        now = float(number)
        record(pod, parse(bodies[number % 10], names), now, now, _WINDOW)
        evaluate(query, pod, WANTED, _POD, (), _WINDOW)


async def _scrape(port: int, pods: int, rounds: int) -> None:
    clock, monitoring = SystemClock(), Monitoring()
    query = scraped_query.compile_query(template.parse(_QUERY), pod=PodLabels("pod", "namespace"))
    names = query.series_names(WANTED)
    access = Access(str(port))
    # every address of 127.0.0.0/8 is this machine: a connection to each pod, as in a cluster
    endpoints = [
        ScrapeEndpoint("shop", f"127.0.{1 + number // 250}.{1 + number % 250}", port, access)
        for number in range(pods)
    ]
    series = [PodSeries() for _ in endpoints]
    problems = SourceProblems(clock, ProblemLog(monitoring, clock))
    async with LoneScraper(clock, monitoring, problems, networks=LOOPBACK) as reader:

        async def one(endpoint: ScrapeEndpoint, pod: PodSeries) -> None:
            body = await reader.fetch(endpoint)
            now = clock.monotonic()
            record(pod, parse(body.content, names, openmetrics=body.openmetrics), now, now, _WINDOW)
            evaluate(query, pod, WANTED, _POD, (), _WINDOW)

        for _ in range(rounds):
            for start in range(0, pods, 20):
                await asyncio.gather(*map(one, endpoints[start : start + 20], series[start : start + 20]))


class OwnUsages:
    """Pods of one autoscaler: their own usage is scraped each second, that of containers each 15 s."""

    def __init__(self, pods: int) -> None:
        self.pods = pods
        self._now = 1_790_000_000.0
        self._names = tuple(f"web-{number}" for number in range(pods))
        self._facts = [PodFacts(name, containers=(Container("app"),)) for name in self._names]
        scrape = SimpleNamespace(access=Access("metrics"), window=_WINDOW)
        config, counts = SimpleNamespace(scrape=scrape), SimpleNamespace(counts=True)
        rule = SimpleNamespace(path="resourceRules.cpu.scrape", config=config, scraped=counts)
        self._entry: Any = SimpleNamespace(rule=rule, container="app")
        self._feed = SimpleNamespace(answer=None)
        key = SimpleNamespace(namespace="shop")
        usual: Any = SimpleNamespace(feed=self._feed, read=self._read_usual, key=key, sampled=0, span=0)
        own: Any = self
        self._source = OwnUsageSource(usual, own, "")

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self._now += 1.0
            if self._now % 15 == 0:
                self._feed.answer = self._answer()
            now = round(self._now * SECOND)
            self._source.read(ReadContext(self._facts, lambda _: None, now, self._now))

    def bytes_of_pod(self) -> float:
        """Return the memory of a pod after five minutes."""
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        self.run(300)
        self._feed.answer = None  # all scalers have one
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return held / self.pods

    def _answer(self) -> SourceAnswer:
        at = round((self._now - 20.0) * SECOND)
        used = (ContainerMetrics("app", {"cpu": from_milli(200)}),)
        items = tuple(PodMetrics(ObjectMeta(name, "shop"), Instant(at), None, used) for name in self._names)
        return SourceAnswer({}, dict.fromkeys(self._names, at), (), 30 * SECOND, items=items)

    def _read_usual(self, _: ReadContext) -> PodsReading:
        return PodsReading(dict.fromkeys(self._names, 200))

    # what is scraped

    def follow(self) -> None:
        pass

    def find_usage(self) -> Any:
        return self._entry

    def span_of(self, _: object) -> int:
        return 6 * SECOND

    def covered_seconds(self, _: object) -> float:
        return _WINDOW

    def read(self, _: object, __: str, names: Iterable[str], ___: object) -> ScrapedAnswer:
        value = ScrapedValue(0.21, self._now, overdue=False)
        return ScrapedAnswer(dict.fromkeys(names, value), {})


async def _serve(port_file: Path) -> None:
    """Serve a large body at every address of loopback."""
    body = make_body(900)

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type="text/plain")

    await bare.listen(answer, port_file, host="0.0.0.0")


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        common.stay_on_load_core()
        uvloop.run(_serve(Path(sys.argv[1])))
    else:
        main()
