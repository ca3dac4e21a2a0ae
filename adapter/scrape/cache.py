"""Values that pods show themselves: one snapshot for each pod and rule, the same for the API and for the scaler.

`want` says which pods are scraped for which metrics; `run` scrapes them; `read` answers from what was seen; `subscribe` and
`subscribe_owners` register callbacks for finished scrapes. `scrape.http` does the HTTP, `scrape.schedule` the timing,
`scrape.work` the processing of bodies within its budgets.

Absent is never zero and old is never fresh. A pod that cannot be scraped keeps its last good value until that is two intervals and a
timeout old; from the first failure on the value is marked overdue, and after that time there is none.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from adapter.config.scrape_keys import Access
from adapter.errors import ScrapeError
from adapter.model.clock import Clock
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.registry import CustomEntry, CustomKey
from adapter.rules.resource import PODS
from adapter.scrape.http import Endpoint
from adapter.scrape.interfaces import Finished, Reader, Registered, ScrapedAnswer, ScrapedPod, ScrapedValue
from adapter.scrape.schedule import ScrapeRounds
from adapter.scrape.targets import MOST_MATCHERS, Answer, Key, Question, Scrape, Source, Target
from adapter.scrape.work import ScrapeWork
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

READ_WORK = 5_000
"""Series and matchers that one `read` looks at for new questions; the rest comes with the next scrape."""


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
        faults: SourceProblems,
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
        self._rounds: ScrapeRounds[Key] = ScrapeRounds(
            self._scrape, monitoring, per_second=per_second, random=random
        )
        self._work = ScrapeWork(clock, monitoring, faults, lost=self._note, slowed=self._plan)
        self._targets: dict[Key, Target] = {}
        self._accesses: dict[Access, int] = {}
        self._wants: dict[Hashable, _Want] = {}
        self._placed: dict[Hashable, set[tuple[Key, str]]] = {}  # owner -> its targets, by metric
        self._generation = -1
        self._sources: dict[Hashable, dict[str, Source | None]] = {}  # of the metrics of each owner
        self._listeners: list[Finished] = []
        self._owner_listeners: list[Callable[[Hashable], None]] = []

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

    def subscribe_owners(self, finished: Callable[[Hashable], None]) -> None:
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

    def want(
        self, owner: Hashable, namespace: str, metrics: Collection[str], pods: Iterable[ScrapedPod]
    ) -> None:
        """Have the pods scraped for those of the metrics that are scraped; what the owner wanted before is forgotten.

        Pods that do not run, are being deleted, have no address, lack the rule's port, or use their node's network where the rule does
        not allow it, are left out. Quick when nothing has changed.
        """
        wanted = _Want(namespace, frozenset(metrics), tuple(pods))
        self.follow()
        if self._wants.get(owner) != wanted:
            self._wants[owner] = wanted
            self._place(owner, wanted)

    def forget(self, owner: Hashable) -> None:
        """Scrape nothing for this owner any more."""
        if self._wants.pop(owner, None) is not None:
            self._place(owner, _Want("", frozenset(), ()))
            del self._sources[owner]

    def follow(self) -> None:
        """Take notice of other rules, if there are other rules than when last looked."""
        generation = self._registered.registry.generation
        if generation == self._generation:
            return
        self._generation = generation
        for owner, wanted in self._wants.items():
            if self._sources.get(owner) != {metric: self._source(metric) for metric in wanted.metrics}:
                self._place(owner, wanted)

    def read(
        self, entry: CustomEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> ScrapedAnswer:
        """Return what is known of the pods `names` for a metric, narrowed by the matchers of a metric selector.

        A question that was not asked lately is answered here only as far as that is little work; the other pods have
        no value until their next scrape.
        """
        config, query = entry.rule.config.scrape, entry.rule.pod_query
        number = None if config is None else self._accesses.get(config.access)
        if config is None or query is None or number is None:
            return ScrapedAnswer({}, {}, set())
        now = self._clock.monotonic()
        question = (Source(entry.rule, entry.series), tuple(selector))
        look = _Look(
            now,
            self._clock.wall() - now,
            config.access.interval * self._rounds.stretch,
            config.access.timeout,
            entry.rule.config.max_sample_age or math.inf,
        )
        left = READ_WORK
        for name in names:
            target = self._targets.get((namespace, name, number))
            if target is None:
                continue
            answer = target.answers.get(question) if len(selector) <= MOST_MATCHERS else None
            if answer is None or answer.pending:
                cost = target.cost(question)
                if target.can_answer() and cost <= left:
                    left -= cost
                    answer = target.find(question, self._stretch_of(target))
                else:
                    answer = Answer()
                target.put(question, answer)
            answer.asked = now
            look.add(name, target, answer)
        return ScrapedAnswer(look.values, look.absent, look.unseen)

    def reason_of(self, entry: CustomEntry, namespace: str, name: str) -> str:
        """Return why the scrape of a pod is overdue or its value absent, "" where that is not known."""
        config = entry.rule.config.scrape
        number = None if config is None else self._accesses.get(config.access)
        target = None if number is None else self._targets.get((namespace, name, number))
        if target is None:
            return ""
        if target.failed:
            return target.reason
        if target.slowed > 1:
            return f"its scrapes take more time than their share, so its interval is {target.slowed:.3g} times as long"
        return ""

    async def prepare(
        self, entry: CustomEntry, namespace: str, names: Iterable[str], selector: Sequence[Matcher]
    ) -> None:
        """Work out the answers that a `read` would have to leave out, in turns with all other work."""
        config = entry.rule.config.scrape
        number = None if config is None else self._accesses.get(config.access)
        if number is None or len(selector) > MOST_MATCHERS:
            return
        question = (Source(entry.rule, entry.series), tuple(selector))
        found = (self._targets.get((namespace, name, number)) for name in names)
        missing = [each for each in found if each is not None and _lacks(each, question)]
        if sum(target.cost(question) for target in missing) > READ_WORK:
            await self._work.answer(namespace, missing, question, self._stretch_of)

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

    def _source(self, metric: str) -> Source | None:
        entry = self._entry(metric)
        return None if entry is None else Source(entry.rule, entry.series)

    def _place(self, owner: Hashable, wanted: _Want) -> None:
        """Make the targets what an owner wants of them."""
        before = self._placed.pop(owner, set())
        now: set[tuple[Key, str]] = set()
        touched: set[Key] = {key for key, _ in before}
        self._sources[owner] = {metric: self._source(metric) for metric in wanted.metrics}
        for metric in wanted.metrics:
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
                self._target(key, endpoint).wanted.setdefault(metric, set()).add(owner)
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

    def _target(self, key: Key, endpoint: Endpoint) -> Target:
        """Return the target of a pod; another pod under the same name starts from nothing."""
        known = self._targets.get(key)
        if known is not None and known.endpoint == endpoint:
            return known
        if known is not None:
            self._work.drop(known)
        made = self._targets[key] = Target(key, endpoint, {} if known is None else known.wanted)
        return made

    def _endpoint(self, namespace: str, pod: ScrapedPod, access: Access, path: str) -> Endpoint | None:
        """Return where a pod is scraped, None where it cannot or must not be."""
        if (
            pod.phase != "Running"
            or pod.deleting
            or not pod.ip
            or (pod.host_network and not access.host_network)
        ):
            return None
        port = int(access.port) if access.port.isdigit() else pod.ports.get(access.port)
        if port is None:
            self._faults.report("scrape", "pods have no such port", f"no port is named {access.port}", path)
            return None
        return Endpoint(namespace, pod.ip, port, access)

    def _settle(self, key: Key) -> None:
        """Have a target scraped for what is wanted of it now, or no more."""
        target = self._targets[key]
        if not target.wanted:
            del self._targets[key]
            self._rounds.drop(key)
            self._work.drop(target)
            return
        selections: dict[str, frozenset[tuple[Matcher, ...]]] = {}
        keep = 0.0
        for metric in target.wanted:
            entry = self._entry(metric)
            if (
                entry is not None
                and entry.rule.pod_query is not None
                and entry.rule.config.scrape is not None
            ):
                for name, groups in entry.rule.pod_query.select(entry.series).items():
                    selections[name] = selections.get(name, frozenset()) | groups
                keep = max(keep, entry.rule.config.scrape.window if entry.rule.pod_query.counts else 0.0)
        target.names = frozenset(selections)
        target.selections = selections
        target.keep = keep
        self._plan(target)

    def _plan(self, target: Target) -> None:
        """Have a target scraped at its interval, or less often if its scrapes take too much time."""
        if not target.gone:
            self._rounds.put(target.key, target.endpoint.access.interval * target.slowed)

    def _stretch_of(self, target: Target) -> float:
        """Return by how much the windows of a target are stretched: as much as its interval."""
        return self._rounds.stretch * target.slowed

    # Scraping.

    async def _scrape(self, key: Key) -> None:
        """Scrape a target once and tell who listens; a failure is noted, not raised."""
        self.follow()
        target = self._targets.get(key)
        if target is None:
            return
        time, wall = self._clock.monotonic(), self._clock.wall()
        buffer = self._work.bodies.open(target.namespace)
        try:
            body = await self._reader.fetch(target.endpoint, buffer)
            await self._work.take(target, buffer, Scrape(body, time, wall, self._stretch_of(target)))
            for path in self._paths(target):
                self._faults.expire("scrape", path)
            self._monitoring.scrapes.labels("success").inc()
        except ScrapeError as error:
            self._monitoring.scrapes.labels(error.kind).inc()
            target.failed, target.reason = True, str(error)
            self._note(target, error)
        finally:
            buffer.close()
        if self._targets.get(key) is target:
            for metric in list(target.wanted):
                for finished in self._listeners:
                    finished(key[0], metric)
            for owner in set().union(*target.wanted.values()):
                for told in self._owner_listeners:
                    told(owner)

    def _note(self, target: Target, error: ScrapeError) -> None:
        for path in self._paths(target):
            self._faults.report("scrape", "pods cannot be scraped", str(error), path, kind=error.kind)

    def _paths(self, target: Target) -> set[str]:
        """Return the rules that a target is scraped for."""
        return {entry.rule.path for metric in target.wanted if (entry := self._entry(metric)) is not None}


def _lacks(target: Target, question: Question) -> bool:
    """Whether a question about a target is not answered, and can be."""
    answer = target.answers.get(question)
    return (answer is None or answer.pending) and target.can_answer()


class _Look:
    """One reading of many pods: `offset` makes times of the day of monotonic ones, the others are seconds."""

    def __init__(self, now: float, offset: float, interval: float, timeout: float, oldest: float) -> None:
        self.values: dict[str, ScrapedValue] = {}
        self.absent: dict[str, float] = {}
        self.unseen: set[str] = set()
        self._now = now
        self._offset = offset
        self._interval = interval
        self._timeout = timeout
        self._oldest = oldest

    def add(self, name: str, target: Target, answer: Answer) -> None:
        """Add what is known of a pod."""
        value = answer.value
        late = self._now - target.time > self._interval + self._timeout
        overdue = target.failed or not target.scrapes or late
        oldest = min(2 * self._interval * target.slowed + self._timeout, self._oldest)
        if value is not None and self._now - value.time <= oldest:
            self.values[name] = ScrapedValue(value.value, value.time + self._offset, overdue)
            return
        if overdue or answer.pending:
            self.unseen.add(name)
        self.absent[name] = self._last_word(target, answer) if value is None else value.time + self._offset

    def _last_word(self, target: Target, answer: Answer) -> float:
        """Return the time of the last scrape where that shows nothing of a metric; else before all time.

        What a scrape shows and what is not yet enough for a rate says nothing against an older sample of Prometheus.
        """
        known = target.scrapes and not answer.pending and not answer.shown
        return target.time + self._offset if known else -math.inf
