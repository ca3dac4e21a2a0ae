"""Sources of one autoscaler, and all they read from: rules of ours, another adapter, scraped pods."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.feed import Feed
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.inputs.sources import MetricSource, ReadContext, Subscriber
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.metrics_api import TimedCustomValue, TimedExternalValue
from adapter.model import metrics
from adapter.model.autoscaling.hpa import MetricSpec, PodMetrics, decode_scalar
from adapter.model.learned_usage import LearnedUsage
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.objects.resources import BUILTIN
from adapter.model.timestamps import SECOND
from adapter.provider.reader import Values
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects, ProblemLog, SourceProblems
from tests.support.clock import FakeClock
from tests.support.scaling import pod
from tests.support.waiting import until
from tests.support.world import FRESHNESS, RulesWorld, object_values, scraped_pod, series_values, world

RULES = """
rules:
- seriesQuery: all
  resources: {{template: <<.Resource>>}}
  scrape: {{port: metrics}}
  {more}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
RATES = RULES.replace(
    "sum(<<.Series>>{{<<.LabelMatchers>>}})", "sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[1m]))"
)
LISTS = {"all": (metrics.SeriesInfo("load", frozenset({"namespace", "pod"}), 3),)}
A, B, C = (scraped_pod(name, f"10.0.0.{number}") for number, name in enumerate("abc", 1))
CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "cpu",
        "container": "app",
        "target": {"type": "Utilization", "averageUtilization": 50},
    },
}


class Provided:
    """The answers of our rules: a provider, cpu and memory, as a test sets them; None: no such rule."""

    freshness = FRESHNESS

    def __init__(self) -> None:
        clock = FakeClock()
        self.problems = SourceProblems(clock, ProblemLog(Monitoring(), clock))
        self.objects: Values[tuple[str, int]] | Exception | None = object_values({}, {}, 0.0, None)
        self.series: Values[metrics.ExternalValue] | None = series_values((), None, 0.0, None)
        self.usages: metrics.ResourceAnswer | None = None
        self.asked: list[Any] = []

    async def sample_objects(
        self, question: metrics.CustomQuestion, names: tuple[str, ...], ttl: float
    ) -> Values[tuple[str, int]] | None:
        self.asked.append(question)
        if isinstance(self.objects, Exception):
            raise self.objects
        return self.objects

    async def sample_series(
        self, question: metrics.ExternalQuestion, ttl: float
    ) -> Values[metrics.ExternalValue] | None:
        self.asked.append(question.metric)
        return self.series

    @property
    def answers(self) -> bool:
        return self.usages is not None

    async def resource(
        self, question: metrics.ResourceQuestion, ttl: float | None = None
    ) -> metrics.ResourceAnswer:
        assert self.usages is not None
        return self.usages


class Other:
    """Another adapter behind the API server."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.custom: Sequence[TimedCustomValue] | Exception = ()
        self.series: Sequence[TimedExternalValue] = ()
        self.usages: Sequence[PodMetrics] = ()

    async def pods(self, *asked: str) -> Sequence[TimedCustomValue]:
        self.asked.append(asked)
        return self._custom()

    async def described(self, *asked: str) -> Sequence[TimedCustomValue]:
        self.asked.append(asked)
        return self._custom()

    async def external(self, *asked: str) -> Sequence[TimedExternalValue]:
        self.asked.append(asked)
        return self.series

    async def resource(self, *asked: str) -> Sequence[PodMetrics]:
        self.asked.append(asked)
        return self.usages

    def _custom(self) -> Sequence[TimedCustomValue]:
        if isinstance(self.custom, Exception):
            raise self.custom
        return self.custom


class SourceBench:
    """Sources of one autoscaler of the pods a, b and c, and all they read from."""

    def __init__(self, here: RulesWorld, feeds: Poller, *, scrapes: bool) -> None:
        self.here = here
        self.feeds = feeds
        self.provided = Provided()
        self.other = Other()
        provided: Any = self.provided
        other: Any = self.other
        self.pods = [pod(name) for name in "abc"]
        self.became_ready: dict[str, float] = {}
        self.learned: dict[str, LearnedUsage] = {}
        self.sources = SourceFactory(
            provided, provided, other, lambda: BUILTIN, here.scraped if scrapes else None, feeds
        )

    @property
    def clock(self) -> FakeClock:
        return self.here.clock

    def open(self, metric: Mapping[str, Any]) -> MetricSource:
        names = tuple(each.name for each in self.pods)
        site = Subscriber(Key("shop", "web"), 1.0, parse_selector("app=web"), lambda: names)
        return self.sources.open(msgspec.convert(metric, MetricSpec, dec_hook=decode_scalar), site)

    def view(self) -> ReadContext:
        now, monotonic = round(self.clock.wall() * SECOND), self.clock.monotonic()
        return ReadContext(self.pods, lambda _: 3, now, monotonic, self.became_ready, self.learned)

    def read(self, source: MetricSource) -> Any:
        return source.read(self.view())

    async def scrape(self, bodies: Mapping[str, str], pods: Sequence[WatchedPod]) -> None:
        """Scrape pods, which show what `bodies` has by address."""
        self.here.reader.bodies = dict(bodies)
        self.here.scraped.want("shop/web", "shop", ["load"], pods)
        await self.here.scrape()

    async def scrape_again(self, *names: str) -> None:
        """Scrape some of the pods that are scraped."""
        for target in self.here.targets(*names):
            await self.here.scraped.work.scrape(target)

    @property
    def feed(self) -> Feed:
        """The only question to Prometheus or another adapter."""
        (feed,) = self.feeds.feeds()
        return feed

    async def answered(self, source: MetricSource) -> Any:
        """Return what a source says once it was asked."""
        self.read(source)
        await until(lambda: not len(self.feeds) or self.feed.polled is not None)
        return self.read(source)

    async def ask_again(self) -> None:
        self.feed.answer, self.feed.due = None, 0.0
        self.feeds._plan(self.feed)
        await until(lambda: self.feed.answer is not None)


@asynccontextmanager
async def bench(rules: str = RULES, more: str = "", *, scrapes: bool = True) -> AsyncIterator[SourceBench]:
    async with (
        world(rules.format(more=more), lists=LISTS) as here,
        Poller(
            here.clock, per_second=1000.0, answered=lambda _: None, defects=Defects(Monitoring())
        ) as feeds,
    ):
        yield SourceBench(here, feeds, scrapes=scrapes)
