"""Values that pods expose themselves: one snapshot for each pod and rule, for the API and the autoscaler.

`want` says which pods are scraped for which metrics; `run` scrapes them; `read` answers from what was
scraped. `http` sends the requests, `schedule` times them, and `targets` processes the bodies within budgets.

An absent value is never zero, and an old one is never current. A pod that cannot be scraped keeps its last
good value until that is two intervals and a timeout old. From the first failure on the value is marked
overdue; after that time it is absent.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Generator, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from adapter.config.rules_config import Access
from adapter.errors import ScrapeError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.model import steps
from adapter.model.clock import Clock
from adapter.model.metrics import CustomMetricInfo
from adapter.model.timestamps import SECOND
from adapter.rules.compile import UsageEntry
from adapter.rules.matchers import Matcher
from adapter.rules.registry import CustomEntry, Registry
from adapter.rules.resource import PODS
from adapter.scrape.bodies import BodyBuffer
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.schedule import ScrapeSchedule
from adapter.scrape.targets import (
    MOST_MATCHERS,
    OwnUsage,
    Scrape,
    ScrapedAnswer,
    ScrapedEntry,
    ScrapedMetric,
    ScrapedValue,
    ScrapeQuery,
    ScrapeTarget,
    ScrapeWork,
    TargetAnswer,
    TargetKey,
    keep_answer,
    window_of,
)
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

_log = logging.getLogger(__name__)

STARTING_SECONDS = 5.0
"""A pod that is Ready for less time may not listen yet: without a readiness probe it is Ready at once."""

READ_WORK = 5_000
"""Series and matchers that one `read` looks at for new queries; the rest is answered with the next scrape."""


def listens_since(pod: WatchedPod) -> float:
    """Return from when on a scrape of the pod that fails is a fault (epoch seconds)."""
    return pod.ready_since / SECOND + STARTING_SECONDS if pod.ready == "True" else math.inf


_Placed: TypeAlias = set[tuple[TargetKey, ScrapedMetric]]


class _Want(NamedTuple):
    namespace: str
    metrics: frozenset[ScrapedMetric]
    pods: tuple[WatchedPod, ...]


class ScrapedValues:
    """The scraped pods and their values. `run` is its only task."""

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
        """`registry` returns the snapshot in force; `per_second` bounds the scrapes of all pods together."""
        self._fetch = fetch
        self._registry = registry
        self._clock = clock
        self._monitoring = monitoring
        self._problems = problems
        self._schedule: ScrapeSchedule[TargetKey] = ScrapeSchedule(
            self._scrape, monitoring, per_second=per_second, random=random
        )
        self._work = ScrapeWork(clock, monitoring, problems, lost=self._note, slowed=self._plan)
        self._targets: dict[TargetKey, ScrapeTarget] = {}
        self._accesses: dict[Access, int] = {}
        self._wants: dict[Hashable, _Want] = {}
        self._placed: dict[Hashable, _Placed] = {}  # owner -> its targets, by metric
        self._generation = -1
        self._metrics: dict[Hashable, dict[ScrapedMetric, ScrapeQuery | None]] = {}  # owner -> its metrics
        self._listeners: list[Callable[[Hashable], None]] = []

    async def run(self) -> None:
        await self._schedule.run()

    def subscribe(self, scraped: Callable[[Hashable], None]) -> None:
        """Call `scraped` after every scrape of a pod, good or bad, with each owner. Quick, does not raise."""
        self._listeners.append(scraped)

    def entry_of(self, metric: ScrapedMetric) -> CustomEntry | UsageEntry | None:
        """Return the entry of a metric of pods whose rule has `scrape`; None for any other metric."""
        if isinstance(metric, OwnUsage):
            return self.find_usage()
        entry = self._registry().custom.get(CustomMetricInfo(PODS, namespaced=True, metric=metric))
        return entry if entry is not None and entry.rule.scraped is not None else None

    def find_usage(self) -> UsageEntry | None:
        """Return the entry of the CPU that pods are scraped for; None without one."""
        return self._registry().usage

    def span_of(self, entry: ScrapedEntry) -> int:
        """Return the nanoseconds that a value covers, and the interval to the next one."""
        interval = 0.0 if entry.rule.config.scrape is None else entry.rule.config.scrape.access.interval
        return round((self.covered_seconds(entry) + interval) * SECOND)

    def covered_seconds(self, entry: ScrapedEntry) -> float:
        """Return the seconds that a value covers, 0 for a gauge."""
        return window_of(entry) * self._schedule.stretch

    def want(
        self, owner: Hashable, namespace: str, metrics: Collection[ScrapedMetric], pods: Iterable[WatchedPod]
    ) -> None:
        """Scrape the pods for the metrics that are scraped; this replaces what the owner wanted before.

        Pods that do not run, are being deleted, have no address or lack the rule's port are not scraped, and
        pods on their node's network only if the rule allows it. Quick if nothing has changed.
        """
        wanted = _Want(namespace, frozenset(metrics), tuple(pods))
        self.follow()
        if self._wants.get(owner) != wanted:
            self._wants[owner] = wanted
            self._place(owner, wanted)

    def forget(self, owner: Hashable) -> None:
        if self._wants.pop(owner, None) is not None:
            self._place(owner, _Want("", frozenset(), ()))
            del self._metrics[owner]

    def follow(self) -> None:
        """Apply the registry if it has changed since the last call."""
        generation = self._registry().generation
        if generation == self._generation:
            return
        self._generation = generation
        for owner, wanted in self._wants.items():
            if self._metrics.get(owner) != {metric: self._metric(metric) for metric in wanted.metrics}:
                self._place(owner, wanted)

    def read(
        self, entry: ScrapedEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> ScrapedAnswer:
        """Return what is known of the pods `names` for a metric and the matchers of a metric selector.

        A query that was not read lately is evaluated here as far as that is little work; the other pods have
        no value until their next scrape.
        """
        now, stretch = self._clock.monotonic(), self._schedule.stretch
        offset, oldest = self._clock.wall() - now, entry.rule.config.max_sample_age or math.inf
        number = self._number(entry)
        query = ScrapeQuery.build(entry, selector)
        values: dict[str, ScrapedValue] = {}
        absent: dict[str, float] = {}
        unseen: set[str] = set()
        slowed: set[str] = set()
        fault = ""
        left = READ_WORK
        for name in names:
            target = self._targets.get((namespace, name, number))
            if target is None:
                continue
            fault = fault or target.fault
            if not target.endpoint.port:
                self._note(target)
                continue
            answer = target.answers.get(query) if len(selector) <= MOST_MATCHERS else None
            if answer is None or answer.result is None:
                cost = query.cost(target.series.count)
                if target.can_answer() and cost <= left:
                    left -= cost
                    answer = steps.run(target.answer_steps(query, self._stretch_of(target)))
                else:
                    answer = TargetAnswer()
                keep_answer(target.answers, query, answer)
            answer.read = now
            value, is_seen = target.judge(answer.result, now, offset, stretch, oldest)
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
        target = self._targets.get((namespace, name, self._number(entry)))
        if target is None:
            return ""
        if target.failed:
            return target.why
        if target.slowed > 1:
            text = "processing its scrapes takes more than its share of time, so its interval is"
            return f"{text} {target.slowed:.3g} times as long"
        return ""

    async def prepare(
        self, entry: ScrapedEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> None:
        """Evaluate the queries that a `read` would have to leave out, in turns with all other work."""
        if len(selector) > MOST_MATCHERS:
            return
        query = ScrapeQuery.build(entry, selector)
        number = self._number(entry)
        targets = (self._targets.get((namespace, name, number)) for name in names)
        missing = [target for target in targets if target is not None and target.lacks(query)]
        if sum(query.cost(target.series.count) for target in missing) > READ_WORK:
            await self._work.answer(namespace, missing, query, self._stretch_of)

    def _number(self, entry: ScrapedEntry) -> int:
        """Return the number of the access in the keys of a metric's targets; -1 without targets."""
        config = entry.rule.config.scrape
        return -1 if config is None else self._accesses.get(config.access, -1)

    def _metric(self, metric: ScrapedMetric) -> ScrapeQuery | None:
        entry = self.entry_of(metric)
        return None if entry is None else ScrapeQuery.build(entry, ())

    def _place(self, owner: Hashable, wanted: _Want) -> None:
        """Make the targets match what an owner wants."""
        before = self._placed.pop(owner, set())
        now: _Placed = set()
        touched: set[TargetKey] = {key for key, _ in before}
        self._metrics[owner] = {metric: self._metric(metric) for metric in wanted.metrics}
        for metric in wanted.metrics:
            entry = self.entry_of(metric)
            if entry is None or entry.rule.config.scrape is None:
                continue
            access = entry.rule.config.scrape.access
            number = self._accesses.setdefault(access, len(self._accesses))
            for pod in wanted.pods:
                endpoint = self._endpoint(wanted.namespace, pod, access)
                if endpoint is None:
                    continue
                key = (wanted.namespace, pod.name, number)
                now.add((key, metric))
                touched.add(key)
                target = self._target(key, endpoint)
                target.listens_since = listens_since(pod)
                target.wanted.setdefault(metric, set()).add(owner)
                if not endpoint.port:
                    names = ", ".join(sorted(pod.spec.ports)[:3])
                    has = f", only {names}" if names else ""
                    target.fail(ScrapeError("port", f"no port is named {access.port}{has}"), math.inf)
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

    def _target(self, key: TargetKey, endpoint: ScrapeEndpoint) -> ScrapeTarget:
        """Return the target of a pod; a new pod under the same name starts without series."""
        known = self._targets.get(key)
        if known is not None and known.endpoint == endpoint:
            return known
        if known is not None:
            self._work.drop(known)
        target = ScrapeTarget(key, endpoint, {} if known is None else known.wanted)
        self._targets[key] = target
        return target

    def _endpoint(self, namespace: str, pod: WatchedPod, access: Access) -> ScrapeEndpoint | None:
        """Return the endpoint of a pod, None if it cannot or must not be scraped."""
        if (
            pod.phase != "Running"
            or pod.deleting
            or not pod.ip
            or (pod.spec.host_network and not access.host_network)
        ):
            return None
        port = int(access.port) if access.port.isdigit() else pod.spec.ports.get(access.port, 0)
        return ScrapeEndpoint(namespace, pod.ip, port, access)

    def _settle(self, key: TargetKey) -> None:
        """Scrape a target for what is wanted of it now, or stop scraping it."""
        target = self._targets[key]
        if not target.wanted:
            del self._targets[key]
            self._schedule.drop(key)
            self._work.drop(target)
            return
        target.select(map(self.entry_of, target.wanted))
        self._plan(target)
        if not target.endpoint.port:
            self._note(target)

    def _plan(self, target: ScrapeTarget) -> None:
        """Scrape a target at its interval, or less often if its scrapes take too much time."""
        if target.gone:
            return
        if target.endpoint.port:
            self._schedule.put(target.key, target.endpoint.access.interval * target.slowed)
        else:
            self._schedule.drop(target.key)

    def _stretch_of(self, target: ScrapeTarget) -> float:
        """Return the factor of the windows of a target, which is that of its interval."""
        return self._schedule.stretch * target.slowed

    async def _scrape(self, key: TargetKey) -> None:
        """Scrape a target once and notify the listeners; a failure is reported, not raised."""
        self.follow()
        target = self._targets.get(key)
        if target is None:
            return
        time, wall = self._clock.monotonic(), self._clock.wall()
        buffer = self._work.bodies.open(target.namespace)
        try:
            body = await self._fetch(target.endpoint, buffer)
            await self._work.take(target, buffer, Scrape(body, time, wall, self._stretch_of(target)))
            for path in target.paths:
                self._problems.expire("scrape", path)
            self._monitoring.scrapes.labels("success").inc()
        except ScrapeError as error:
            self._monitoring.scrapes.labels(error.kind).inc()
            target.fail(error, wall)
            self._note(target)
        except Exception:  # noqa: BLE001 - the body of one pod keeps no other from being scraped
            self._monitoring.scrapes.labels("decode").inc()
            target.fail(ScrapeError("decode", "the body cannot be processed: see the log"), wall)
            _log.exception("unexpected error while scraping a pod")
        finally:
            self._work.note(target, buffer.seconds)
            buffer.close()
        if self._targets.get(key) is target:
            for owner in set().union(*target.wanted.values()):
                for scraped in self._listeners:
                    scraped(owner)

    def put_target(self, target: ScrapeTarget) -> None:
        """Scrape a target that another collection of values owns, within the same budgets."""
        self._targets[target.key] = target
        self._plan(target)

    def drop_target(self, target: ScrapeTarget) -> None:
        if self._targets.get(target.key) is target:
            del self._targets[target.key]
            self._schedule.drop(target.key)
        self._work.drop(target)

    @property
    def stretch(self) -> float:
        """The factor of all intervals; 1 while the allowed rate of scrapes is not exceeded."""
        return self._schedule.stretch

    async def evaluate(self, namespace: str, steps: Generator[None, None, None]) -> None:
        """Run an evaluation in turns with all other work on the scrapes of a namespace."""
        await self._work.turns.finish(self._work.turns.start(namespace, steps))

    def _note(self, target: ScrapeTarget) -> None:
        """Report that the scrapes of a target fail, unless its pod is still starting.

        Of pods that fail alike the log has one. Health checks show no address.
        """
        if not target.is_fault:
            return
        text, cause = f"{target.namespace}/{target.fault}", target.reason
        public = f"{target.namespace}/{target.pod}: {cause}"
        for path in target.paths:
            self._problems.report(
                "scrape", "pods cannot be scraped", text, path, public=public, cause=cause, kind=target.kind
            )
