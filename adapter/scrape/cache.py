"""Values that pods and endpoints expose themselves, for the API and the autoscaler.

`want` says which pods are scraped for which metrics, `want_endpoints` which external metrics are, and
`put_endpoints` which endpoints a source of these has now. `run` scrapes them (`work`), and `read` and
`read_endpoints` answer from what was scraped (`targets`).

An absent value is never zero, and an old one is never current. A pod that cannot be scraped keeps its last
good value until that is two intervals and a timeout old. From the first failure on the value is marked
overdue; after that time it is absent. An external metric is computed over the series of all endpoints of its
source. If one of them cannot be read, the answer lacks a part of unknown size: it is marked as overdue, so it
may scale up and not down, and the metrics API does not serve it.
"""

import itertools
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from adapter.config.rules_config import Access
from adapter.errors import ScrapeError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.model.clock import Clock
from adapter.model.metrics import CustomMetricInfo
from adapter.model.steps import Steps
from adapter.model.timestamps import SECOND
from adapter.rules.compile import Rule, UsageEntry
from adapter.rules.matchers import Matcher
from adapter.rules.registry import CustomEntry, ExternalEntry, Registry
from adapter.rules.resource import PODS
from adapter.scrape.bodies import BodyBuffer
from adapter.scrape.endpoints import Endpoint, FoundEndpoints, listens_since
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.readings import (
    EndpointReading,
    OwnUsage,
    ScrapedAnswer,
    ScrapedEntry,
    ScrapedMetric,
    ScrapedValue,
    ScrapeQuery,
)
from adapter.scrape.targets import MOST_MATCHERS, GroupKey, ScrapeGroup, ScrapeTarget, SourceKey, window_of
from adapter.scrape.work import ScrapeWork
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

READ_WORK = 5_000
"""Series and matchers that one read looks at for new queries; the rest is answered with the next scrape."""

PROBLEM = "scrape-endpoints"

_PENDING = "its query is not evaluated yet"


class _Want(NamedTuple):
    """What an owner wants of pods, or of the endpoints of external metrics if `pods` is None."""

    metrics: frozenset[ScrapedMetric]
    namespace: str = ""
    pods: tuple[WatchedPod, ...] | None = None


_NOTHING = _Want(frozenset())


_Placed: TypeAlias = dict[ScrapeQuery, set[ScrapeGroup]]
"""The groups that answer the queries of a want by the rules in force."""


class ScrapedValues:
    """The scraped pods and endpoints and their values. `run` is its only task."""

    def __init__(
        self,
        fetch: Callable[[ScrapeEndpoint, BodyBuffer], Awaitable[ScrapedBody]],
        registry: Callable[[], Registry],
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        per_second: float,
        random: Callable[[], float],
    ) -> None:
        """`registry` returns the snapshot in force; `per_second` bounds the scrapes of all together."""
        self._registry = registry
        self._clock = clock
        self._refused = monitoring.scrape_endpoints_refused
        self._problems = problems
        self.work = ScrapeWork(
            fetch, self.follow, clock, monitoring, problems, per_second=per_second, random=random
        )
        # by owner, and whether it is of endpoints
        self._wants: dict[tuple[Hashable, bool], tuple[_Want, _Placed]] = {}
        self._pods: dict[GroupKey, ScrapeGroup] = {}
        self._sources: dict[GroupKey, ScrapeGroup] = {}
        self._accesses: dict[Access, int] = {}
        self._generation = -1

    async def run(self) -> None:
        await self.work.schedule.run()

    def subscribe(self, scraped: Callable[[Hashable], None]) -> None:
        """Call `scraped` after every scrape, good or bad, with each owner. Quick, does not raise."""
        self.work.listeners.append(scraped)

    def entry_of(self, metric: ScrapedMetric) -> CustomEntry | UsageEntry | None:
        """Return the entry of a metric of pods whose rule has `scrape`; None for any other metric."""
        if isinstance(metric, OwnUsage):
            return self.find_usage()
        entry = self._registry().custom.get(CustomMetricInfo(PODS, namespaced=True, metric=metric))
        return entry if entry is not None and entry.rule.scraped is not None else None

    def find_usage(self) -> UsageEntry | None:
        """Return the entry of the CPU that pods are scraped for; None without one."""
        return self._registry().usage

    def external_entry(self, metric: str) -> ExternalEntry | None:
        """Return the entry of an external metric whose rule has `scrape`; None for any other metric."""
        entry = self._registry().external.get(metric)
        return entry if entry is not None and entry.rule.scraped is not None else None

    def span_of(self, entry: ScrapedEntry) -> int:
        """Return the nanoseconds that a value covers, and the interval to the next one."""
        interval = 0.0 if entry.rule.config.scrape is None else entry.rule.config.scrape.access.interval
        return round((window_of(entry.rule) * self.work.schedule.stretch + interval) * SECOND)

    def covered_seconds(self, entry: ScrapedEntry) -> float:
        """Return the seconds that a value covers, 0 for a gauge."""
        return window_of(entry.rule) * self.work.schedule.stretch

    # -- who wants what --------------------------------------------------------------------------------------

    def want(
        self, owner: Hashable, namespace: str, metrics: Collection[ScrapedMetric], pods: Iterable[WatchedPod]
    ) -> None:
        """Scrape the pods for the metrics that are scraped; this replaces what the owner wanted before.

        Pods that do not run, are being deleted, have no address or lack the rule's port are not scraped, and
        pods on their node's network only if the rule allows it. Quick if nothing has changed.
        """
        self._replace(owner, _Want(frozenset(metrics), namespace, tuple(pods)))

    def forget(self, owner: Hashable) -> None:
        """Scrape no pods for the owner any more."""
        self._replace(owner, _Want(frozenset(), "", ()))

    def want_endpoints(self, owner: Hashable, metrics: Collection[str]) -> None:
        """Scrape the endpoints of external metrics; this replaces what the owner wanted of them before."""
        self._replace(owner, _Want(frozenset(metrics)))

    def follow(self) -> None:
        """Apply the registry if it has changed since the last call."""
        generation = self._registry().generation
        if generation == self._generation:
            return
        self._generation = generation
        for key, (want, placed) in self._wants.items():
            if placed.keys() != self._find_queries(want):
                self._wants[key] = want, self._place(key[0], want, placed)

    @property
    def sources(self) -> tuple[SourceKey, ...]:
        """The sources of endpoints that are wanted now; the caller finds their endpoints."""
        groups = self._sources.values()
        return tuple((group.source, group.access) for group in groups if group.source is not None)

    def put_endpoints(self, key: SourceKey, found: FoundEndpoints) -> None:
        """Set the endpoints of a source; quick if nothing has changed."""
        group = self._sources.get(key)
        if group is None:
            return
        text = found.trouble
        for path in group.paths:
            if text:
                self._problems.report(PROBLEM, "endpoints cannot be scraped", text, path)
            else:
                self._problems.expire(PROBLEM, path, after=0.0)
        if found == group.found:
            return
        for kind, count in found.refused:
            before = dict(group.found.refused).get(kind, 0)
            self._refused.labels(kind).inc(max(0, count - before))
        group.found = found
        if not found.known:
            return  # as they were: what is not known now is not gone
        since = found.listen_since
        self._set_targets(group, {place: since.get(place, -math.inf) for place in found.endpoints})

    def _replace(self, owner: Hashable, want: _Want) -> None:
        """Make a want the one of an owner for pods or for endpoints; one without metrics ends it."""
        self.follow()
        key = owner, want.pods is None
        known, placed = self._wants.get(key, (_NOTHING, {}))
        if known != want:
            self._wants[key] = want, self._place(owner, want, placed)
        if not want.metrics:
            self._wants.pop(key, None)

    def _find_queries(self, want: _Want) -> frozenset[ScrapeQuery]:
        """Return the queries of the metrics that are scraped by the rules in force."""
        entries: Iterable[ScrapedEntry | None]
        if want.pods is None:
            entries = (self.external_entry(metric) for metric in want.metrics if isinstance(metric, str))
        else:
            entries = map(self.entry_of, want.metrics)
        return frozenset(ScrapeQuery(entry.rule, entry.series) for entry in entries if entry is not None)

    def _place(self, owner: Hashable, want: _Want, before: _Placed) -> _Placed:
        """Make the groups and their targets match what an owner wants, which it wanted `before`."""
        placed = {query: set(self._find_groups(want, query.rule)) for query in self._find_queries(want)}
        for query, groups in placed.items():
            for group in groups:
                group.wanted.setdefault(query, set()).add(owner)
        for query, groups in before.items():
            for group in groups - placed.get(query, set()):
                group.wanted[query].discard(owner)
                if not group.wanted[query]:
                    del group.wanted[query]
        # Last, so that a group of which an owner wants another metric now keeps its targets.
        for group in set().union(*before.values(), *placed.values()):
            if group.wanted:
                group.select()
            else:
                del (self._pods if group.source is None else self._sources)[group.key]
                self._set_targets(group, {})
            for target in group.targets:
                if not target.endpoint.port:
                    self.work.report(target)
        return placed

    def _find_groups(self, want: _Want, rule: Rule) -> Iterator[ScrapeGroup]:
        """Return the groups that answer a query of a rule: its source, or the pods as they are now."""
        config = rule.config.scrape
        assert config is not None, "only metrics of rules with scrape are wanted"
        access = config.access
        if (source := config.source) is not None:
            new = ScrapeGroup((source, access), source.namespace, access, self._clock, source)
            yield self._sources.setdefault(new.key, new)
            return
        number = self._accesses.setdefault(access, len(self._accesses))
        for pod in want.pods or ():
            is_hidden = pod.spec.host_network and not access.host_network
            if pod.phase != "Running" or pod.deleting or not pod.ip or is_hidden:
                continue
            port = int(access.port) if access.port.isdigit() else pod.spec.ports.get(access.port, 0)
            key = want.namespace, pod.name, number
            group = self._pods.get(key)
            if group is None:
                group = self._pods[key] = ScrapeGroup(key, want.namespace, access, self._clock, pod=pod.name)
            self._set_targets(group, {Endpoint(pod.name, pod.ip, port): listens_since(pod)})
            if not port:
                names = ", ".join(sorted(pod.spec.ports)[:3])
                has = f", only {names}" if names else ""
                group.targets[0].fail(ScrapeError("port", f"no port is named {access.port}{has}"), math.inf)
            yield group

    def _set_targets(self, group: ScrapeGroup, places: Mapping[Endpoint, float]) -> None:
        """Scrape these places, each from when on a failure is a fault; those that are known go on."""
        targets = {
            Endpoint(target.pod, target.endpoint.address, target.endpoint.port): target
            for target in group.targets
        }
        if targets.keys() != places.keys():
            for gone in targets.keys() - places.keys():
                self.work.drop(targets.pop(gone))
            for new in [place for place in places if place not in targets]:
                endpoint = ScrapeEndpoint(group.namespace, new.address, new.port, group.access)
                targets[new] = ScrapeTarget(group, new.pod, endpoint)
                self.work.put(targets[new])
            group.targets = tuple(targets.values())
            group.version += 1
        for place, since in places.items():
            targets[place].listens_since = since

    # -- values of pods --------------------------------------------------------------------------------------

    def read(
        self, entry: ScrapedEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> ScrapedAnswer:
        """Return what is known of the pods `names` for a metric and the matchers of a metric selector.

        A query that was not read lately is evaluated here as far as that is little work; the other pods have
        no value until their next scrape.
        """
        now, stretch = self._clock.monotonic(), self.work.schedule.stretch
        offset, oldest = self._clock.wall() - now, entry.rule.config.max_sample_age or math.inf
        query, number = ScrapeQuery(entry.rule, entry.series, tuple(selector)), self._number(entry)
        values: dict[str, ScrapedValue] = {}
        absent: dict[str, float] = {}
        unseen: set[str] = set()
        slowed: set[str] = set()
        fault = ""
        left = READ_WORK
        for name in names:
            group = self._pods.get((namespace, name, number))
            if group is None:
                continue
            (target,) = group.targets
            if target.is_fault:
                fault = fault or target.fault
            if not target.endpoint.port:
                self.work.report(target)  # nothing scrapes it, so the fault would expire
                continue
            answer = group.answers.get(query)
            if answer is None or answer.version != group.version:
                answer, work = group.answer(query, group.targets, now, left)
                left -= work
            answer.read = now
            value, is_seen = target.judge(answer, now, offset, stretch, oldest)
            if target.slowed > 1.0:
                slowed.add(name)
            if isinstance(value, ScrapedValue):
                values[name] = value
                continue
            absent[name] = value
            if not is_seen:
                unseen.add(name)
        return ScrapedAnswer(values, absent, unseen, offset, slowed=slowed, fault=fault)

    def reason_of(self, entry: ScrapedEntry, namespace: str, name: str) -> str:
        """Return why the scrape of a pod is overdue or its value absent; "" if that is not known."""
        group = self._pods.get((namespace, name, self._number(entry)))
        if group is None:
            return ""
        (target,) = group.targets
        if target.failed:
            return target.why
        if target.slowed > 1:
            text = "processing its scrapes takes more than its share of time, so its interval is"
            return f"{text} {target.slowed:.3g} times as long"
        return ""

    async def prepare(
        self, entry: ScrapedEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> None:
        """Evaluate the queries that a read would have to leave out, in turns with all other work.

        An external metric has neither namespace nor names.
        """
        if len(selector) > MOST_MATCHERS:
            return
        query = ScrapeQuery(entry.rule, entry.series, tuple(selector))
        if isinstance(entry, ExternalEntry):
            known = [self._find_source(entry)]
        else:
            number = self._number(entry)
            known = [self._pods.get((namespace, name, number)) for name in names]
        now, stretch = self._clock.monotonic(), self.work.schedule.stretch
        missing = [
            (group, live)
            for group in known
            if group is not None and (live := group.live(now, stretch)) and group.lacks(query, live)
        ]
        if sum(group.cost(query, live) for group, live in missing) <= READ_WORK:
            return

        def evaluation() -> Steps[None]:
            for group, live in missing:
                if group.lacks(query, live):
                    group.keep_answer(query, (yield from group.evaluate(query, live)))
                    yield

        await self.work.evaluate(missing[0][0].namespace, evaluation())

    def _number(self, entry: ScrapedEntry) -> int:
        """Return the number of the access in the keys of a metric's pods; -1 without pods."""
        config = entry.rule.config.scrape
        return -1 if config is None else self._accesses.get(config.access, -1)

    # -- values of endpoints ---------------------------------------------------------------------------------

    def read_endpoints(self, entry: ExternalEntry, selector: Sequence[Matcher]) -> EndpointReading | None:
        """Return what is known of a metric for the matchers of a question; None if it is not scraped here.

        A query that was not read lately is evaluated here if that is little work, else with the next scrape.
        """
        group = self._find_source(entry)
        if group is None:
            return None
        faults = filter(None, (target.fault for target in group.targets))
        fault = next(faults, group.found.trouble)
        now, stretch = self._clock.monotonic(), self.work.schedule.stretch
        offset = self._clock.wall() - now
        live = group.live(now, stretch)
        of_targets = (target.trouble(now, stretch, live) for target in group.targets)
        # A reason is of no endpoints, or of those of before while the API server does not answer.
        troubles = itertools.chain(of_targets, (group.found.reason,), group.found.missing)
        trouble = next(filter(None, troubles), "")
        # Without a live endpoint no answer is a sum. The time says since when, so that an older sample of
        # Prometheus is not taken for a newer one.
        if not live:
            return EndpointReading(trouble, group.last + offset, fault)
        query = ScrapeQuery(entry.rule, entry.series, tuple(selector))
        answer, _ = group.answer(query, live, now, READ_WORK)
        result = answer.result
        if result is None and not answer.reason:
            return EndpointReading(_PENDING, group.last + offset, fault)
        # The answer is of other endpoints than those that are live now: it may lack one.
        if answer.live != live:
            trouble = trouble or _PENDING
        if result is None:
            return EndpointReading(f"its query fails: {answer.reason}", math.inf, fault)
        eldest = min(target.time for target in live)
        if not result.elements:
            # series that are not yet enough for a rate do not contradict an older sample of Prometheus
            last = -math.inf if result.shown else eldest + offset
            reason = trouble or f"the endpoints expose no such series of {entry.series}"
            return EndpointReading(reason, last, fault, (), overdue=trouble)
        # A sum is as old as its oldest part, also where an endpoint adds no series to it.
        time = min(result.time, eldest)
        oldest = max(target.oldest(stretch) for target in live)
        if now - time > min(oldest, entry.rule.config.max_sample_age or math.inf):
            return EndpointReading(f"its samples are {now - time:.3g} s old", time + offset, fault)
        return EndpointReading("", group.last + offset, fault, result.elements, time + offset, trouble)

    def _find_source(self, entry: ExternalEntry) -> ScrapeGroup | None:
        config = entry.rule.config.scrape
        key = None if config is None or config.source is None else (config.source, config.access)
        return None if key is None else self._sources.get(key)
