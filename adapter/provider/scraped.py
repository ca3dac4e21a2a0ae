"""Values that pods show themselves: one snapshot for each pod and rule, the same for the API and for the scaler.

Who wants what is told with `want`; `run` scrapes those pods; `read` answers from what was seen; `subscribe` tells of each finished
scrape. Not here: HTTP (`clients.scraper`), when (`clients.scraperounds`), what a query makes of series (`rules.scrape`).

The law: absent is never zero and old is never fresh. A pod that cannot be scraped keeps its last good value until that is two intervals
and a timeout old; from the first failure on the value is marked overdue, and after that time there is none.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from adapter.clients.scraper import Body, Endpoint
from adapter.clients.scraperounds import ScrapeRounds
from adapter.config.scrapekeys import Access
from adapter.errors import ExpositionError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.selectors import LabelSelector
from adapter.monitoring import Monitoring
from adapter.provider.scrapeseams import Finished, Reader, Registered, ScrapedAnswer, ScrapedPod, ScrapedValue
from adapter.provider.sourcefaults import SourceFaults
from adapter.rules import exposition, matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.plan import Objects
from adapter.rules.podseries import PodSeries
from adapter.rules.query import MetricQuery
from adapter.rules.registry import CustomEntry, CustomKey, namespace_label
from adapter.rules.resource import PODS
from adapter.rules.scrape import Identity, PodQuery, PodValue

# Answers that are kept for a pod until its next scrape: one for each metric selector that somebody asks with.
_ANSWERS_KEPT = 64


class _Source(NamedTuple):
    """What answers a metric, as far as scrapes go."""

    rule: Rule
    series: str


_Key: TypeAlias = tuple[str, str, int]
"""Namespace and name of a pod, and the number that stands for the access it is scraped with: quick to look up."""

_Question: TypeAlias = tuple[_Source, tuple[Matcher, ...]]
"""What a value answers: a metric, and the matchers of a metric selector."""


@dataclass(slots=True, eq=False)
class _Target:
    """A pod that is scraped: who wants which metrics of it, what was seen, how the last scrape ended."""

    endpoint: Endpoint
    series: PodSeries
    wanted: dict[str, set[str]] = field(default_factory=dict)  # metric -> owners
    names: frozenset[str] = frozenset()
    keep: float = 0.0  # seconds of samples that its rates are taken over
    failed: bool = False
    answers: dict[_Question, PodValue | None] = field(default_factory=dict)


class _Want(NamedTuple):
    namespace: str
    metrics: frozenset[str]
    pods: tuple[ScrapedPod, ...]


class ScrapedValues:
    """The pods that are scraped and what they have shown. `run` is its one task."""

    def __init__(
        self,
        reader: Reader,
        registered: Registered,
        clock: Clock,
        monitoring: Monitoring,
        faults: SourceFaults,
        *,
        per_second: float,
        random: Callable[[], float],
    ) -> None:
        """`per_second`: scrapes of all pods together; `random` gives numbers from 0 to 1."""
        self._reader = reader
        self._registered = registered
        self._clock = clock
        self._monitoring = monitoring
        self._faults = faults
        self._rounds: ScrapeRounds[_Key] = ScrapeRounds(self._scrape, monitoring, per_second=per_second, random=random)
        self._targets: dict[_Key, _Target] = {}
        self._accesses: dict[Access, int] = {}
        self._wants: dict[str, _Want] = {}
        self._placed: dict[str, set[tuple[_Key, str]]] = {}  # owner -> its targets, by metric
        self._generation = -1
        self._sources: dict[str, _Source | None] = {}  # of every metric that anybody wants
        self._listeners: list[Finished] = []
        self._owner_listeners: list[Callable[[str], None]] = []

    @property
    def generation(self) -> int:
        """Number of the registry's snapshot: with another one other metrics may be scraped."""
        return self._registered.registry.generation

    async def run(self) -> None:
        """Scrape for ever."""
        await self._rounds.run()

    def subscribe(self, finished: Finished) -> None:
        """Have `finished` called after every scrape, once for each metric that is wanted of the pod. It must be quick and not raise."""
        self._listeners.append(finished)

    def subscribe_owners(self, finished: Callable[[str], None]) -> None:
        """Have `finished` called after every scrape of a pod with each owner that wants it. It must be quick and not raise."""
        self._owner_listeners.append(finished)

    def is_scraped(self, metric: str) -> bool:
        """Whether the rule that answers a metric of pods has them scraped."""
        entry = self._entry(metric)
        return entry is not None and entry.rule.pod_query is not None

    def entry_of(self, metric: str) -> CustomEntry | None:
        """Return what answers a metric of pods that its rule has scraped; None for any other."""
        entry = self._entry(metric)
        return entry if entry is not None and entry.rule.pod_query is not None else None

    def window_of(self, metric: str) -> float | None:
        """Return for how many seconds before its time a value of the metric speaks: 0 for a gauge, None for what is not scraped."""
        entry = self._entry(metric)
        if entry is None or entry.rule.pod_query is None or entry.rule.config.scrape is None:
            return None
        return entry.rule.config.scrape.window * self._rounds.stretch if entry.rule.pod_query.counts else 0.0

    def want(self, owner: str, namespace: str, metrics: Collection[str], pods: Iterable[ScrapedPod]) -> None:
        """Have the pods scraped for those of the metrics that are scraped; what the owner wanted before is forgotten.

        Pods that do not run, are being deleted, have no address, lack the rule's port, or use their node's network where the rule does
        not allow it, are left out. Quick when nothing has changed.
        """
        wanted = _Want(namespace, frozenset(metrics), tuple(pods))
        self.follow()
        if self._wants.get(owner) != wanted:
            self._wants[owner] = wanted
            self._place(owner, wanted)

    def forget(self, owner: str) -> None:
        """Scrape nothing for this owner any more."""
        if self._wants.pop(owner, None) is not None:
            self._place(owner, _Want("", frozenset(), ()))

    def follow(self) -> None:
        """Take notice of other rules, if there are other rules than when last looked."""
        generation = self._registered.registry.generation
        if generation == self._generation:
            return
        self._generation = generation
        changed = {metric for metric, source in self._sources.items() if self._source(metric) != source}
        self._sources = {}
        for owner, wanted in self._wants.items():
            if changed & wanted.metrics:
                self._place(owner, wanted)
            else:
                self._sources.update({metric: self._source(metric) for metric in wanted.metrics})

    def read(
        self, entry: CustomEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> ScrapedAnswer:
        """Return what is known of the pods `names` for a metric, narrowed by the matchers of a metric selector."""
        values: dict[str, ScrapedValue] = {}
        absent: dict[str, float] = {}
        unseen: set[str] = set()
        config, query = entry.rule.config.scrape, entry.rule.pod_query
        number = None if config is None else self._accesses.get(config.access)
        if config is None or query is None or number is None:
            return ScrapedAnswer(values, absent, unseen)
        now = self._clock.monotonic()
        offset = self._clock.wall() - now
        interval, timeout = config.access.interval * self._rounds.stretch, config.access.timeout
        oldest = min(2 * interval + timeout, entry.rule.config.max_sample_age or math.inf)
        question = (_Source(entry.rule, entry.series), tuple(selector))
        for name in names:
            target = self._targets.get((namespace, name, number))
            if target is None:
                continue
            try:
                found = target.answers[question]
            except KeyError:
                found = self._evaluate(target, question, query, namespace, name)
            series = target.series
            overdue = target.failed or not series.scrapes or now - series.time > interval + timeout
            if found is not None and now - found.time <= oldest:
                values[name] = ScrapedValue(found.value, found.time + offset, overdue)
                continue
            if overdue:
                unseen.add(name)
            names_shown = query.series_names(entry.series)
            absent[name] = _last_word(series, names_shown, offset) if found is None else found.time + offset
        return ScrapedAnswer(values, absent, unseen)

    def read_objects(self, entry: CustomEntry, query: MetricQuery, objects: Objects) -> ScrapedAnswer:
        """Return what is known of the objects that a question of the API is about."""
        if entry.resource.group_resource != PODS or objects.namespace is None:
            return ScrapedAnswer({}, {})
        return self.read(entry, objects.namespace, objects.names, query.selector)

    def read_metric(
        self, namespace: str, metric: str, names: Iterable[str], selector: LabelSelector
    ) -> ScrapedAnswer | None:
        """Return what is known of pods for a metric, None where it is not scraped. Raises UnsupportedSelectorError."""
        entry = self._entry(metric)
        if entry is None or entry.rule.pod_query is None:
            return None
        return self.read(entry, namespace, names, matchers.from_selector(selector))

    # What is scraped.

    def _entry(self, metric: str) -> CustomEntry | None:
        return self._registered.registry.custom.get(CustomKey(PODS, namespaced=True, metric=metric))

    def _source(self, metric: str) -> _Source | None:
        entry = self._entry(metric)
        return None if entry is None else _Source(entry.rule, entry.series)

    def _place(self, owner: str, wanted: _Want) -> None:
        """Make the targets what an owner wants of them."""
        before = self._placed.pop(owner, set())
        now: set[tuple[_Key, str]] = set()
        touched: set[_Key] = {key for key, _ in before}
        for metric in wanted.metrics:
            self._sources[metric] = self._source(metric)
            entry = self._entry(metric)
            if entry is None or entry.rule.config.scrape is None or entry.rule.pod_query is None:
                continue
            access = entry.rule.config.scrape.access
            number = self._accesses.setdefault(access, len(self._accesses))
            for pod in wanted.pods:
                endpoint = self._endpoint(wanted.namespace, pod, access, entry.rule.path)
                if endpoint is None:
                    continue
                key = (wanted.namespace, pod.name, number)
                now.add((key, metric))
                touched.add(key)
                target = self._targets.get(key)
                if target is None or target.endpoint != endpoint:
                    others = (
                        {} if target is None else target.wanted
                    )  # another pod under the same name starts from nothing
                    self._targets[key] = target = _Target(endpoint, PodSeries(), others)
                target.wanted.setdefault(metric, set()).add(owner)
        for key, metric in before - now:
            target = self._targets[key]
            owners = target.wanted.get(metric, set())
            owners.discard(owner)
            if not owners:
                target.wanted.pop(metric, None)
        if now:
            self._placed[owner] = now
        for key in touched:
            self._settle(key)

    def _endpoint(self, namespace: str, pod: ScrapedPod, access: Access, path: str) -> Endpoint | None:
        """Return where a pod is scraped, None where it cannot or must not be."""
        if pod.phase != "Running" or pod.deleting or not pod.ip or (pod.host_network and not access.host_network):
            return None
        port = int(access.port) if access.port.isdigit() else pod.ports.get(access.port)
        if port is None:
            self._faults.met("scrape", "pods have no such port", f"no port is named {access.port}", path)
            return None
        return Endpoint(namespace, pod.ip, port, access)

    def _settle(self, key: _Key) -> None:
        """Have a target scraped for what is wanted of it now, or no more."""
        target = self._targets[key]
        if not target.wanted:
            del self._targets[key]
            self._rounds.drop(key)
            return
        names: set[str] = set()
        keep = 0.0
        for metric in target.wanted:
            entry = self._entry(metric)
            if entry is not None and entry.rule.pod_query is not None and entry.rule.config.scrape is not None:
                names |= entry.rule.pod_query.series_names(entry.series)
                keep = max(keep, entry.rule.config.scrape.window if entry.rule.pod_query.counts else 0.0)
        target.names = frozenset(names)
        target.keep = keep
        self._rounds.put(key, target.endpoint.access.interval)

    # Scraping.

    async def _scrape(self, key: _Key) -> None:
        """Scrape a target once and tell who listens; a failure is noted, not raised."""
        self.follow()
        target = self._targets.get(key)
        if target is None:
            return
        time, wall = self._clock.monotonic(), self._clock.wall()
        try:
            body = await self._reader.fetch(target.endpoint)
            self._take(target, body, time, wall)
            self._monitoring.scrapes.labels("success").inc()
        except ScrapeError as error:
            self._monitoring.scrapes.labels(error.kind).inc()
            target.failed = True
            self._note(target, error)
        if self._targets.get(key) is target:
            for metric in list(target.wanted):
                for finished in self._listeners:
                    finished(key[0], metric)
            for owner in set().union(*target.wanted.values()):
                for told in self._owner_listeners:
                    told(owner)

    def _take(self, target: _Target, body: Body, time: float, wall: float) -> None:
        """Take in what a pod has shown; ScrapeError for what is no exposition."""
        try:
            limit = target.endpoint.access.max_series
            samples = exposition.parse(body.content, target.names, openmetrics=body.openmetrics, limit=limit)
            target.series.record(samples, time, wall, target.keep * self._rounds.stretch)
        except ExpositionError as error:
            raise ScrapeError("decode", str(error)) from error
        target.failed = False
        target.answers.clear()
        for path in self._paths(target):
            self._faults.quiet("scrape", path)

    def _note(self, target: _Target, error: ScrapeError) -> None:
        for path in self._paths(target):
            self._faults.met("scrape", "pods cannot be scraped", str(error), path, kind=error.kind)

    def _paths(self, target: _Target) -> set[str]:
        """Return the rules that a target is scraped for."""
        return {entry.rule.path for metric in target.wanted if (entry := self._entry(metric)) is not None}

    # From what was seen to values.

    def _evaluate(
        self, target: _Target, question: _Question, query: PodQuery, namespace: str, name: str
    ) -> PodValue | None:
        """Return the pod's value as of its last good scrape; worked out once for each scrape."""
        (rule, series), selector = question
        identity = Identity(namespace, name, namespace_label(rule) or "", rule.converter.label_for(PODS))
        window = rule.config.scrape.window * self._rounds.stretch if rule.config.scrape else 0.0
        found = query.evaluate(target.series, series, identity, selector, window)
        if len(target.answers) >= _ANSWERS_KEPT:
            target.answers.clear()
        target.answers[question] = found
        return found


def _last_word(series: PodSeries, names: Iterable[str], offset: float) -> float:
    """Return the time of the last scrape where that shows nothing of a metric; before all time where it does, or there was none.

    What a scrape shows and what is not yet enough for a rate says nothing against an older sample of Prometheus.
    """
    return -math.inf if not series.scrapes or series.shows(names) else series.time + offset
