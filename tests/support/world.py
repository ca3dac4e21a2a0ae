"""The real provider, registry and query cache between a made-up Prometheus, cluster and series lists."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from adapter.config import rules_file
from adapter.errors import PrometheusError, ScrapeError
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.kubernetes.cache.pod_codec import SharedSpec, WatchedPod
from adapter.model import metrics
from adapter.model.objects import resources
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.prometheus.answers import refresh_ahead
from adapter.prometheus.query_cache import QueryCache
from adapter.provider.metrics import RulesMetricsProvider
from adapter.provider.reader import ValueReader, Values
from adapter.provider.relist import Relister
from adapter.provider.resolver import Resolver
from adapter.provider.resource import ResourceProvider
from adapter.rules import matchers
from adapter.rules.compile import Rule, Ruleset, compile_rules
from adapter.scrape.bodies import BodyBuffer
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.readings import ScrapedAnswer
from adapter.scrape.targets import ScrapeTarget
from adapter.server.api import paths, query_string
from adapter.server.api.query_string import Question
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.support.clock import WALL, FakeClock
from tests.support.waiting import running

FRESHNESS = refresh_ahead(ttl=1.0, max_age=30.0)

Outcome = metrics.QueryResult | PrometheusError
Labels = Mapping[str, str]


def vector(*samples: tuple[Labels, float], time: float = 0.0) -> metrics.QueryResult:
    """Return a vector of samples given as labels and value."""
    return metrics.QueryResult(
        "vector", [metrics.Sample(dict(labels), value, time) for labels, value in samples]
    )


def partial(*samples: tuple[Labels, float]) -> metrics.QueryResult:
    """Return a vector that came with a warning."""
    return vector(*samples)._replace(warnings=("receive series from store-1: Unavailable",))


def scalar(value: float, time: float = 0.0) -> metrics.QueryResult:
    return metrics.QueryResult("scalar", [metrics.Sample({}, value, time)])


class FakeQuerier:
    """Answers from a function of the query, at once or when `gate` is opened; remembers what was asked."""

    def __init__(self, answer: Callable[[str], Outcome]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def query(self, promql: str, time: float, *, most: int | None = None) -> metrics.QueryResult:
        self.asked.append(promql)
        outcome = await self.wait(promql)
        if isinstance(outcome, PrometheusError):
            raise outcome
        if most is not None and len(outcome.samples) > most:
            raise PrometheusError("size", f"the answer has more than {most} samples")
        samples = [
            metrics.Sample(sample.labels, sample.value, sample.time or time) for sample in outcome.samples
        ]
        return outcome._replace(samples=samples)

    async def wait(self, promql: str) -> Outcome:
        """Return the outcome of a query when it has come."""
        await self.gate.wait()
        return self.answer(promql)


class FakeLister:
    """Returns series lists from a table that a test may change; records selectors and start of each call."""

    def __init__(self, lists: Mapping[str, Sequence[metrics.SeriesInfo] | PrometheusError]) -> None:
        self.lists = dict(lists)
        self.asked: list[tuple[tuple[str, ...], float]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def series(
        self, selectors: Sequence[str], start: float
    ) -> Mapping[str, tuple[metrics.SeriesInfo, ...] | PrometheusError]:
        self.asked.append((tuple(selectors), start))
        await self.gate.wait()
        return {selector: self._list(selector) for selector in selectors}

    def _list(self, selector: str) -> tuple[metrics.SeriesInfo, ...] | PrometheusError:
        found = self.lists.get(selector, ())
        return found if isinstance(found, PrometheusError) else tuple(found)


class FakeNames:
    """Returns the same names for every question, or raises."""

    def __init__(self, names: Sequence[str] | Exception = ()) -> None:
        self.names_or_error = names
        self.asked: list[tuple[str, str | None, str]] = []

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        self.asked.append((str(resource.group_resource), namespace, str(selector)))
        if isinstance(self.names_or_error, Exception):
            raise self.names_or_error
        return tuple(self.names_or_error)


class FakeObjects:
    """Objects with their labels, or an error; as `adapter.kubernetes.cache.lister.ObjectLister` has them."""

    def __init__(self, objects: Sequence[LabeledObject] | Exception = ()) -> None:
        self.objects_or_error = objects

    async def select(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[LabeledObject, ...]:
        return tuple(
            each
            for each in self._objects()
            if namespace in {None, each.namespace} and selector.matches(each.labels)
        )

    async def find(self, resource: APIResource, namespace: str, name: str) -> LabeledObject | None:
        return next(
            (each for each in self._objects() if (each.namespace, each.name) == (namespace, name)), None
        )

    def count(self, resource: APIResource) -> int:
        return len(self._objects())

    def _objects(self) -> Sequence[LabeledObject]:
        if isinstance(self.objects_or_error, Exception):
            raise self.objects_or_error
        return self.objects_or_error


class FakeResources:
    """A catalogue that becomes `later` when it is read again."""

    def __init__(
        self, catalogue: Catalogue | Exception = resources.BUILTIN, later: Catalogue | Exception | None = None
    ) -> None:
        self._catalogue = catalogue
        self._later = later
        self.refreshed = 0

    def current(self) -> Catalogue:
        if isinstance(self._catalogue, Exception):
            raise self._catalogue
        return self._catalogue

    async def refresh(self) -> Catalogue:
        self.refreshed += 1
        if self._later is not None:
            self._catalogue = self._later
        return self.current()


def read_scraped(
    scraped: ScrapedValues, namespace: str, metric: str, names: Iterable[str], selector: LabelSelector
) -> ScrapedAnswer | None:
    """Return what is known of pods for a metric, None if it is not scraped."""
    entry = scraped.entry_of(metric)
    if entry is None:
        return None
    return scraped.read(entry, namespace, names, matchers.from_selector(selector))


class FakeReader:
    """Pods that show what a test sets, by address: a body or an error. It records the requests.

    `seconds` is how long it takes to parse the answers of an address.
    """

    def __init__(self) -> None:
        self.bodies: dict[str, str | ScrapeError] = {}
        self.seconds: dict[str, float] = {}
        self.asked: list[ScrapeEndpoint] = []
        self.openmetrics = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer) -> ScrapedBody:
        self.asked.append(endpoint)
        await self.gate.wait()
        buffer.seconds += self.seconds.get(endpoint.address, 0.0)
        body = self.bodies.get(endpoint.address, ScrapeError("unreachable", "cannot connect"))
        if isinstance(body, ScrapeError):
            raise body
        buffer.add(body.encode())
        return ScrapedBody(buffer.content(), self.openmetrics)


def scraped_pod(
    name: str,
    ip: str = "",
    *,
    host_network: bool = False,
    ports: Mapping[str, int] = {"metrics": 8080},
    ready: str | None = "True",
    **facts: Any,
) -> WatchedPod:
    spec = SharedSpec(host_network=host_network, ports=ports)
    return WatchedPod(name, ip=ip, ready=ready, spec=spec, **facts)


def object_values(
    milli: Mapping[str, int], sampled: Mapping[str, float], *bounds: float | None, **more: Any
) -> Values[tuple[str, int]]:
    """Return values of objects as the scaler reads them; `bounds` are the lookback and the greatest age."""
    lookback, oldest = bounds or (0.0, None)
    return Values(tuple(milli.items()), sampled=sampled, lookback=lookback, oldest=oldest, **more)


def series_values(
    milli: Sequence[int], time: float | None, *bounds: float | None, **more: Any
) -> Values[metrics.ExternalValue]:
    """Return values of an external metric as the scaler reads them; otherwise as `object_values`."""
    lookback, oldest = bounds or (0.0, None)
    sampled = {} if time is None else {"": time}
    items = [metrics.ExternalValue("", {}, value, WALL) for value in milli]
    return Values(items, -math.inf, sampled, lookback, oldest, **more)


class RulesWorld:
    """Everything a question passes through, and the fakes at its ends; see `world`."""

    def __init__(
        self,
        answer: Callable[[str], Outcome] = lambda _: vector(),
        *,
        lists: Mapping[str, Sequence[metrics.SeriesInfo] | PrometheusError] | None = None,
        names: Sequence[str] | Exception = (),
        lister: FakeLister | None = None,
        resources: FakeResources | None = None,
        interval: float = 600.0,
        running: Sequence[LabeledObject] | Exception = (),
        nodes: Sequence[LabeledObject] | Exception = (),
        clock: Any = None,  # a `LoopClock` where a test moves no time by hand
    ) -> None:
        self.querier = FakeQuerier(answer)
        self.lister = lister or FakeLister(lists or {})
        self.names = FakeNames(names)
        self.running, self.nodes = FakeObjects(running), FakeObjects(nodes)
        fakes: dict[str, Any] = vars(self)
        self.clock: FakeClock = clock or FakeClock()
        clock = self.clock
        self.monitoring = monitoring = Monitoring()
        self.faults = ProblemLog(monitoring, clock)
        self.cache = QueryCache(self.querier, clock, monitoring)
        self.relister = relister = Relister(
            fakes["lister"], clock, monitoring, self.faults, interval=interval, max_age=600.0
        )
        self.problems = met = SourceProblems(clock, self.faults)
        self.reader = FakeReader()
        self.scraped = ScrapedValues(
            self.reader.fetch,
            lambda: relister.registry,
            clock,
            monitoring,
            met,
            per_second=2000,
            random=lambda: 0.0,
        )
        known: Any = resources or FakeResources()
        self.scaler = reader = ValueReader(
            Resolver(known, fakes["names"], relister, met),
            self.cache,
            clock,
            monitoring,
            met,
            FRESHNESS,
            self.scraped,
        )
        self.provider = RulesMetricsProvider(reader)
        self.resource_provider = ResourceProvider(reader, fakes["running"], fakes["nodes"])

    async def scrape(self) -> None:
        """Scrape every pod that is wanted, now."""
        for target in self.targets():
            if target.endpoint.port:
                await self.scraped.work.scrape(target)

    def targets(self, *names: str) -> list[ScrapeTarget]:
        """Return the targets of pods and endpoints, or those of some pods."""
        groups = (*self.scraped._pods.values(), *self.scraped._sources.values())
        return [target for group in groups for target in group.targets if not names or target.pod in names]

    def metric(self, name: str, **labels: str) -> float:
        """Return a self-metric's value, 0 when it was never touched."""
        return self.monitoring.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def world(rules: str | Ruleset, *, attempted: bool = True, **ends: Any) -> AsyncIterator[RulesWorld]:
    """Run the provider on rules until the end of the block; the first discovery has ended, if `attempted`.

    `ends` are those of `RulesWorld`. The clock is a `FakeClock` unless another is given.
    """
    made = RulesWorld(**ends)
    await made.relister.adopt(compile_text(rules) if isinstance(rules, str) else rules)
    async with made.cache, running(made.relister.run()):
        if attempted:
            await made.relister.attempted.wait()
        yield made


def compile_text(text: str, catalogue: Catalogue = resources.BUILTIN) -> Ruleset:
    """Return the rules of a file that has no fault."""
    parsed = rules_file.parse_rules(text, "rules.yaml")
    assert not parsed.fatal
    assert not parsed.faults
    ruleset, faults = compile_rules(parsed.config, catalogue)
    assert not faults
    return ruleset


def compile_rule(text: str) -> Rule:
    """Return the one rule of a file, custom or external."""
    ruleset = compile_text(text)
    (rule,) = (*ruleset.custom, *ruleset.external)
    return rule


def series(*given: Labels) -> tuple[metrics.SeriesInfo, ...]:
    """Return what discovery keeps of series: names in the order of last appearance, with all their labels."""
    kept: dict[str, metrics.SeriesInfo] = {}
    for labels in given:
        name = labels["__name__"]
        before = kept.pop(name, metrics.SeriesInfo(name, frozenset(), 0))
        kept[name] = metrics.SeriesInfo(
            name, before.labels | (labels.keys() - {"__name__"}), before.count + 1
        )
    return tuple(kept.values())


def question(kind: str, request: str) -> Question:
    """Return what a request below ``/apis/GROUP/v1beta1`` asks, as the server reads it."""
    group = {
        "custom": paths.CUSTOM_GROUP,
        "external": paths.EXTERNAL_GROUP,
        "resource": paths.RESOURCE_GROUP,
    }[kind]
    path, query = paths.split_target(request)
    parsed = paths.parse_metric_path(group, "v1beta1", paths.decode_segments(path))
    return query_string.build_question(parsed, query_string.parse_parameters(query), watch=False)


def custom_question(request: str) -> metrics.CustomQuestion:
    asked = question("custom", request)
    assert isinstance(asked, metrics.CustomQuestion)
    return asked


def external_question(request: str) -> metrics.ExternalQuestion:
    asked = question("external", request)
    assert isinstance(asked, metrics.ExternalQuestion)
    return asked


def resource_question(request: str) -> metrics.ResourceQuestion:
    asked = question("resource", request)
    assert isinstance(asked, metrics.ResourceQuestion)
    return asked


def parse_value(text: str) -> float:
    return math.nan if text == "NaN" else float(text)
