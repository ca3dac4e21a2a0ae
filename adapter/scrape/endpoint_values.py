"""Values of external metrics that endpoints expose: one reader for all autoscalers and the metrics API.

`want` says which metrics an autoscaler reads, `put` which endpoints a group has now; `read` answers from what
was scraped. A group is the endpoints of one source that are scraped in one way. The scrapes run in the
schedule and the budgets of all scrapes (`cache`, `targets`), those of a group in its namespace.

The answer to a query is computed over the series of all endpoints of a group together. If one of them cannot
be read, the answer lacks a part of unknown size: it is marked as overdue, so it may scale up and not down,
and the metrics API does not serve it.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from adapter.config.rules_config import Access, EndpointSource
from adapter.errors import UnionError
from adapter.model import steps
from adapter.model.clock import Clock
from adapter.model.steps import Steps
from adapter.rules.matchers import Matcher
from adapter.rules.registry import ExternalEntry, Registry
from adapter.rules.scrape.evaluation import Element
from adapter.rules.scrape.series import PodSeries, Relabel, attach
from adapter.scrape.cache import READ_WORK, ScrapedValues
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from adapter.scrape.http import ScrapeEndpoint
from adapter.scrape.targets import (
    ANSWERED_SECONDS,
    Scrape,
    ScrapeQuery,
    ScrapeTarget,
    TargetAnswer,
    keep_answer,
)
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

GroupKey: TypeAlias = tuple[EndpointSource, Access]
"""Which endpoints, and how they are scraped. Rules with equal ones share the scrapes."""

EVALUATION_SHARE = 0.1
"""The part of the time that the evaluation of a group's queries may take; at least twice in an interval all
of them are evaluated."""

_SERIES_WORK = 2
"""How much work a series is, compared with one of a pod: it has more labels, which are grouped."""

PROBLEM = "scrape-endpoints"

_PENDING = "its query is not evaluated yet"
_NOT_FOUND = FoundEndpoints((), "its endpoints are not known yet", known=False)


@dataclass(slots=True)
class _EndpointAnswer(TargetAnswer):
    """The result of a query over the endpoints `live` as of `version`; `reason` says why it has none."""

    version: int = 0
    live: tuple[object, ...] = ()
    reason: str = ""


class EndpointReading(NamedTuple):
    """What the scrapes say about an external metric.

    `elements` are the samples of its query, None without an answer; `time` is that of the oldest of them
    (epoch seconds). `overdue` says why a part may be missing or out of date, "" if none is, and `reason` why
    there is no value. Only a sample of Prometheus later than `last` (epoch seconds) says more. `fault` is
    why the scrape of an endpoint fails, or why there are no endpoints.
    """

    elements: tuple[Element, ...] | None
    time: float
    overdue: str
    reason: str
    last: float
    fault: str = ""


@dataclass(slots=True, eq=False)
class EndpointGroup:
    """The endpoints of a source that are scraped in one way, and the answers to the queries over them."""

    key: GroupKey
    number: int
    clock: Clock
    wanted: dict[str, set[Hashable]] = field(default_factory=dict)  # metric -> owners
    targets: dict[Endpoint, "EndpointTarget"] = field(default_factory=dict)
    found: FoundEndpoints = _NOT_FOUND
    answers: dict[ScrapeQuery, _EndpointAnswer] = field(default_factory=dict)
    version: int = 0
    last: float = -math.inf  # time of the last good scrape of any endpoint
    pause_until: float = -math.inf

    def live(self, now: float, stretch: float) -> list["EndpointTarget"]:
        """Return the targets whose last good scrape still counts, and is still kept."""
        return [target for target in self.targets.values() if target.counts(now, stretch)]

    def query_steps(
        self, query: ScrapeQuery, live: Sequence["EndpointTarget"], stretch: float
    ) -> Steps[_EndpointAnswer]:
        answer = _EndpointAnswer(None, self.clock.monotonic(), self.version, tuple(live))
        try:
            answer.result = yield from query.steps([target.series for target in live], stretch)
        except UnionError as error:
            answer.reason = str(error)
        return answer

    def note_scrape(self, stretch: float) -> Steps[None]:
        """Note a good scrape, and evaluate the queries that were read lately, unless that was done lately."""
        self.version += 1
        begun = self.last = self.clock.monotonic()
        if begun < self.pause_until:
            return
        recent = [query for query, answer in self.answers.items() if begun - answer.read <= ANSWERED_SECONDS]
        self.answers = {query: self.answers[query] for query in recent}
        live = self.live(begun, stretch)
        for query in recent:
            answer = yield from self.query_steps(query, live, stretch)
            answer.read = self.answers[query].read
            self.answers[query] = answer
        self.rest(begun)

    def rest(self, begun: float) -> None:
        """Evaluate no more for a while, after an evaluation that began then."""
        took = self.clock.monotonic() - begun
        start = max(self.pause_until, begun)
        self.pause_until = min(start + took / EVALUATION_SHARE, begun + self.key[1].interval / 2)


@dataclass(slots=True, eq=False)
class EndpointTarget(ScrapeTarget):
    """A scraped endpoint. All of its series are kept that a query of the rules selects."""

    group: EndpointGroup | None = None

    @property
    def pod(self) -> str:
        return self.key[1].rpartition(":")[0].rpartition("/")[2]

    def counts(self, now: float, stretch: float) -> bool:
        """Return whether its last good scrape counts: there is one, it is kept, and it is not too old."""
        kept = self.busy or self.series.scrapes == self.scrapes
        return self.scrapes > 0 and kept and now - self.time <= self.oldest(stretch)

    def oldest(self, stretch: float) -> float:
        """Return the age in seconds at which its last good scrape no longer counts."""
        access = self.endpoint.access
        return 2 * access.interval * stretch * self.slowed + access.timeout

    def trouble(self, now: float, stretch: float, live: Collection["EndpointTarget"]) -> str:
        """Return why its values are missing or out of date, "" if they are not."""
        access = self.endpoint.access
        where = self.endpoint.host
        why = f": {self.reason}" if self.failed else ""
        if self not in live:
            return f"{where} is not scraped now{why}" if self.failed or self.scrapes else f"{where} is new"
        late = now - self.time > access.interval * stretch + access.timeout
        return f"the scrape of {where} is overdue{why}" if self.failed or late else ""

    def steps(self, scrape: Scrape) -> Steps[None]:
        """Process a scrape in steps, and then the queries over all endpoints of the group."""
        yield from ScrapeTarget.steps(self, scrape)
        if self.group is not None and not self.gone:
            yield from self.group.note_scrape(scrape.stretch)


class ScrapedEndpoints:
    """The scraped endpoints of external rules and their values.

    `scraped` runs the scrapes; `registry` returns the snapshot in force.
    """

    def __init__(
        self,
        scraped: ScrapedValues,
        registry: Callable[[], Registry],
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
    ) -> None:
        self.scraped = scraped
        self._registry = registry
        self._clock = clock
        self._refused = monitoring.scrape_endpoints_refused
        self._problems = problems
        self._wants: dict[Hashable, frozenset[str]] = {}
        self._groups: dict[GroupKey, EndpointGroup] = {}
        self._numbers = 0
        self._generation = -1

    def entry_of(self, metric: str) -> ExternalEntry | None:
        """Return the entry of an external metric whose rule has `scrape`; None for any other metric."""
        entry = self._registry().external.get(metric)
        return entry if entry is not None and entry.rule.scraped is not None else None

    def want(self, owner: Hashable, metrics: Collection[str]) -> None:
        """Scrape the endpoints of the metrics that are scraped; replaces what the owner wanted before."""
        before, after = self._wants.get(owner, frozenset()), frozenset(metrics)
        if after:
            self._wants[owner] = after
        else:
            self._wants.pop(owner, None)
        if any(self._change(metric, owner, wanted=metric in after) for metric in before ^ after):
            self._settle()

    def _change(self, metric: str, owner: Hashable, *, wanted: bool) -> bool:
        """Note whether an owner wants a metric; return whether the groups change with that."""
        key = self._key_of(self.entry_of(metric))
        group = None if key is None else self._groups.get(key)
        owners = None if group is None else group.wanted.get(metric)
        if owners is None:
            return key is not None and wanted
        if wanted:
            owners.add(owner)
        else:
            owners.discard(owner)
        return not owners

    def follow(self) -> None:
        """Apply the registry if it has changed since the last call."""
        if self._registry().generation != self._generation:
            self._settle()

    @property
    def groups(self) -> tuple[GroupKey, ...]:
        """The groups that are wanted now; the caller finds their endpoints."""
        return tuple(self._groups)

    def put(self, key: GroupKey, found: FoundEndpoints) -> None:
        """Set the endpoints of a group; quick if nothing has changed."""
        group = self._groups.get(key)
        if group is None:
            return
        text = found.trouble
        entries = map(self.entry_of, group.wanted)
        for path in {entry.rule.path for entry in entries if entry is not None}:
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
        for endpoint in group.targets.keys() - set(found.endpoints):
            self.scraped.drop_target(group.targets.pop(endpoint))
        source, access = key
        for endpoint in found.endpoints:
            if endpoint in group.targets:
                group.targets[endpoint].listens_since = found.listen_since.get(endpoint, -math.inf)
            else:
                place = ScrapeEndpoint(source.namespace, endpoint.address, endpoint.port, access)
                target = group.targets[endpoint] = EndpointTarget(
                    (source.namespace, f"{source.service}/{endpoint.pod}:{endpoint.port}", group.number),
                    place,
                    group.wanted,
                    series=PodSeries(_relabel(source, endpoint.pod, place)),
                    listens_since=found.listen_since.get(endpoint, -math.inf),
                    group=group,
                )
                target.select(map(self.entry_of, group.wanted))
                self.scraped.put_target(target)
        group.version += 1

    def _settle(self) -> None:
        """Make the groups match what is wanted and the rules in force."""
        self._generation = self._registry().generation
        wanted: dict[GroupKey, dict[str, set[Hashable]]] = {}
        for owner, metrics in self._wants.items():
            for metric in metrics:
                key = self._key_of(self.entry_of(metric))
                if key is not None:
                    wanted.setdefault(key, {}).setdefault(metric, set()).add(owner)
        for key in self._groups.keys() - wanted.keys():
            for target in self._groups.pop(key).targets.values():
                self.scraped.drop_target(target)
        for key, metrics_of in wanted.items():
            group = self._groups.get(key)
            if group is None:
                self._numbers += 1
                group = self._groups[key] = EndpointGroup(key, self._numbers, self._clock)
            group.wanted.clear()
            group.wanted.update(metrics_of)
            for target in group.targets.values():
                target.select(map(self.entry_of, group.wanted))
                self.scraped.put_target(target)

    def _key_of(self, entry: ExternalEntry | None) -> GroupKey | None:
        config = None if entry is None else entry.rule.config.scrape
        return None if config is None or config.source is None else (config.source, config.access)

    def _group_of(self, entry: ExternalEntry) -> EndpointGroup | None:
        key = self._key_of(entry)
        return None if key is None else self._groups.get(key)

    def read(self, entry: ExternalEntry, selector: Sequence[Matcher]) -> EndpointReading | None:
        """Return what is known of a metric for the matchers of a question; None if it is not scraped here.

        A query that was not read lately is evaluated here if that is little work, else with the next scrape.
        """
        group = self._group_of(entry)
        if group is None:
            return None
        faults = filter(None, (target.fault for target in group.targets.values()))
        fault = next(faults, group.found.trouble)
        return self._read(group, entry, selector)._replace(fault=fault)

    def _read(
        self, group: EndpointGroup, entry: ExternalEntry, selector: Sequence[Matcher]
    ) -> EndpointReading:
        now, stretch = self._clock.monotonic(), self.scraped.stretch
        offset = self._clock.wall() - now
        live = group.live(now, stretch)
        of_targets = (target.trouble(now, stretch, live) for target in group.targets.values())
        # A reason is of no endpoints, or of those of before while the API server does not answer.
        troubles = itertools.chain(of_targets, (group.found.reason,), group.found.missing)
        trouble = next(filter(None, troubles), "")
        # Without a live endpoint no answer is a sum. The time says since when, so that an older sample of
        # Prometheus is not taken for a newer one.
        if not live:
            return EndpointReading(None, 0.0, "", trouble, group.last + offset)
        answer = self._answer(group, ScrapeQuery.build(entry, selector), live, now)
        if answer is None:
            return EndpointReading(None, 0.0, "", _PENDING, group.last + offset)
        # The answer is of other endpoints than those that are live now: it may lack one.
        if answer.live != tuple(live):
            trouble = trouble or _PENDING
        result = answer.result
        if result is None:
            return EndpointReading(None, 0.0, "", f"its query fails: {answer.reason}", math.inf)
        eldest = min(target.time for target in live)
        if not result.elements:
            # series that are not yet enough for a rate do not contradict an older sample of Prometheus
            last = -math.inf if result.shown else eldest + offset
            reason = trouble or f"the endpoints expose no such series of {entry.series}"
            return EndpointReading((), 0.0, trouble, reason, last)
        # A sum is as old as its oldest part, also where an endpoint adds no series to it.
        time = min(result.time, eldest)
        oldest = max(target.oldest(stretch) for target in live)
        if now - time > min(oldest, entry.rule.config.max_sample_age or math.inf):
            return EndpointReading(None, 0.0, "", f"its samples are {now - time:.3g} s old", time + offset)
        return EndpointReading(result.elements, time + offset, trouble, "", group.last + offset)

    async def prepare(self, entry: ExternalEntry, selector: Sequence[Matcher]) -> None:
        """Evaluate a query that `read` would have to leave out, in turns with all other work."""
        group = self._group_of(entry)
        query = ScrapeQuery.build(entry, selector)
        if group is None or query in group.answers:
            return
        now, stretch = self._clock.monotonic(), self.scraped.stretch
        live = group.live(now, stretch)
        if not live or _cost(query, live) <= READ_WORK:
            return

        def steps() -> Steps[None]:
            if all(target.can_answer() for target in live):
                keep_answer(group.answers, query, (yield from group.query_steps(query, live, stretch)))

        await self.scraped.evaluate(group.key[0].namespace, steps())

    def _answer(
        self, group: EndpointGroup, query: ScrapeQuery, live: Sequence[EndpointTarget], now: float
    ) -> _EndpointAnswer | None:
        """Return the answer over these endpoints.

        If it is too much work to compute at once, return the last answer, None without one.
        """
        known = group.answers.get(query)
        if known is not None:
            known.read = now
            current = known.version == group.version or now < group.pause_until
            if current and known.live == tuple(live):
                return known
        ready = all(target.can_answer() for target in live)
        if ready and _cost(query, live) <= READ_WORK:
            answer = steps.run(group.query_steps(query, live, self.scraped.stretch))
            keep_answer(group.answers, query, answer)
            group.rest(now)
            return answer
        return known


def _cost(query: ScrapeQuery, live: Sequence[EndpointTarget]) -> int:
    return query.cost(_SERIES_WORK * sum(target.series.count for target in live))


def _relabel(source: EndpointSource, pod: str, place: ScrapeEndpoint) -> Relabel:
    """Return what makes the labels of the series of an endpoint."""
    labels = {
        "namespace": source.namespace,
        "pod": pod,
        "endpoint": place.access.port,
        "instance": place.host,
        "job": source.service,  # that of a PodMonitor has its name, which is not known: no such label
    }
    if source.service:
        labels["service"] = source.service
    return functools.partial(attach, attached=labels, honor=source.honor_labels)
