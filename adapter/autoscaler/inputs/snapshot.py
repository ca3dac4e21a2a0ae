"""What one autoscaler reads (target, pods, metrics), and the snapshot that a decision is made from.

`Subscriptions` follows the target, and opens and closes metric sources as spec and pods change. `observe`
returns a `Snapshot`. While a cache has not had its first list there is no snapshot, rather than an empty one:
a decision must not take missing pods for none.

Two facts about the target are newer here than in the caches. After our own write, or after a read beside the
caches, the caches still show the former count for a while; `find_target` then returns the newer one. And when
a write had no response, `attempted` holds its count: if the target shows it later without a field manager, it
is ours.
"""

import contextlib
import functools
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import conflicts
from adapter.autoscaler.decide.guards.removal import count_idle
from adapter.autoscaler.decide.observation import (
    NOT_YET,
    SETTLING,
    ExternalReading,
    ObjectReading,
    Observation,
    OptionState,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
    Ways,
)
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.feed import ASSUMED_INTERVAL, ASSUMED_WINDOW
from adapter.autoscaler.inputs.follower import Started, TargetFollower, TargetFollowers
from adapter.autoscaler.inputs.idleness import NO_IDLENESS, NO_VALUES, Idleness, Values
from adapter.autoscaler.inputs.sources import MetricSource, ReadContext, Subscriber
from adapter.autoscaler.interfaces import Forecasts, Key
from adapter.autoscaler.schedules.book import ScheduleBook
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.autoscalers import ScaleConflicts
from adapter.kubernetes.cache.pod_selections import Selection
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.model.autoscaling.fastpath_autoscaler import PAUSED
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
)
from adapter.model.autoscaling.scale_down import ScaleDown, find_metric
from adapter.model.clock import DecisionClock
from adapter.model.learned_usage import LearnedUsage
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.pods import PodFacts

_R = TypeVar("_R", bound=PodsReading | ObjectReading | ExternalReading)

_NOT_READ = Unavailable("NotRead", "nothing was read")
MOST_VALUES = 100_000
"""How many values of pods one decision reads, but for the first such metric: 20 metrics of 5,000 pods. A
tenant chooses both numbers, and a decision is one step.
"""

_FEWER_PODS = "fewer pods are cached than the target has"
_SETTLING_SECONDS = 15.0
"""For how long that is normal: pods that go leave the cache before the status of the target follows."""


_TOO_MANY = Unavailable(
    "TooManyValues",
    f"a decision reads {MOST_VALUES:,} values of pods, and the metrics before this one have so many: use "
    "fewer metrics, or metrics of type Object or External",
)


class AutoscalerContext(NamedTuple):
    """The caches and settings that all autoscalers share."""

    followers: TargetFollowers
    rivals: ScaleConflicts
    sources: SourceFactory
    settings: Settings
    clock: DecisionClock
    changes: Changes
    forecasts: Forecasts
    schedules: ScheduleBook | None = None
    """None without schedules."""
    keeps_history: bool = True
    """Whether the changes of the last hour are kept for each autoscaler."""
    doubt: Callable[[], str] = lambda: ""
    """Returns why no count may fall, "" if one may."""


class MetricInput(msgspec.Struct, frozen=True):
    """A metric as a decision saw it: description, reading, and the time and span of its oldest sample.

    Both are nanoseconds, None if unknown. `hpa_span` is the span of a sample as the HPA controller reads it.
    `slow` is why the pods' own usages do not count, "" if they do or are not scraped. `scrape_fault` is why
    the scrape of a pod or endpoint fails, "" if none does.
    """

    metric: str
    reading: Reading
    sampled: int | None
    span: int | None = None
    hpa_span: int | None = None
    slow: str = ""
    scrape_fault: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """What a decision is made from; it is written against the resource version of `target`."""

    observation: Observation
    constraints: Constraints
    target: ScaleTarget
    inputs: tuple[MetricInput, ...]
    idleness: Values = NO_VALUES
    """The values by which pods are ranked, in thousandths by name; {} without the option."""
    ranked_at: int | None = None
    """The time of the oldest sample of these values in nanoseconds, None if that is not known."""

    @property
    def is_waiting(self) -> bool:
        """Whether the first value of a metric is still being fetched."""
        readings = (metric.reading for metric in self.inputs)
        return any(isinstance(reading, Unavailable) and reading.reason == NOT_YET for reading in readings)


class _Wanted(NamedTuple):
    """What a spec asks for.

    `ranking` is the metric by which pods are ranked, None without the option. Up to a value of `drain`, in
    thousandths, a pod is idle; None if a scale-down does not wait for that.
    """

    reference: CrossVersionObjectReference
    metrics: Sequence[MetricSpec]
    by_pods: Sequence[bool]
    period: float
    ranking: MetricSpec | None
    drain: int | None


class _Opened(NamedTuple):
    """The sources that are open for a selector, those of the metrics of the spec in its order.

    `own_usages` are those of them that may read the usage that pods expose. `ranking` is the source of the
    metric by which pods are ranked, None if it is among them.
    """

    selector: LabelSelector | None = None
    sources: Sequence[MetricSource] = ()
    own_usages: Sequence[OwnUsageSource] = ()
    ranking: MetricSource | None = None


class Subscriptions:
    """What one autoscaler follows; `started` is called with the start of each pod of the target."""

    __slots__ = (
        "_behind_since",
        "_context",
        "_follower",
        "_idleness",
        "_key",
        "_newer",
        "_opened",
        "_started",
        "_wanted",
        "attempted",
    )

    def __init__(self, context: AutoscalerContext, key: Key, started: Started) -> None:
        self.attempted: int | None = None
        """The count of a write without a response, which may have been applied; None for none."""
        self._context = context
        self._key = key
        self._started = started
        self._wanted: _Wanted | None = None
        self._follower: TargetFollower | None = None
        self._newer: tuple[ScaleTarget, str] | None = None
        """The target as we wrote or read it last, until the caches catch up, and the version they had."""
        self._opened = _Opened()
        self._idleness = NO_IDLENESS
        self._behind_since: float | None = None
        """Since when fewer pods are cached than the target has, in monotonic seconds."""

    def adopt(
        self,
        reference: CrossVersionObjectReference,
        metrics: Sequence[MetricSpec],
        period: float,
        scale_down: ScaleDown | None = None,
    ) -> None:
        """Take the target and the metrics of a new spec, which are wanted every `period` seconds."""
        if self._wanted is None or reference != self._wanted.reference:
            self.close()
        self._close_sources()
        ranking = None if scale_down is None else find_metric(scale_down, metrics)
        by_pods = tuple(map(_depends_on_pods, metrics))
        drain = None if scale_down is None or scale_down.drain is None else scale_down.drain.value.milli
        self._wanted = _Wanted(reference, metrics, by_pods, period, ranking, drain)
        self._idleness = NO_IDLENESS if scale_down is None else Idleness()

    # -- the target ------------------------------------------------------------------------------------------

    def find_target(self) -> ScaleTarget | Unfound:
        """Return the target from the cache, or as we last wrote or read it if the cache is older."""
        if self._follower is None:
            assert self._wanted is not None, "adopted before it is decided"
            join = self._context.followers.join
            self._follower = join(self._key, self._wanted.reference, self._note_change, self._started)
        target = self._follower.target.find()
        if isinstance(target, Unfound):
            return target
        if self._newer is not None:
            newer, against = self._newer
            if _is_older(target.resource_version, newer.resource_version, against):
                return newer
            self._newer = None
        if not target.manager and target.replicas == self.attempted:
            return target._replace(manager=conflicts.OWN)
        return target

    def note_newer(self, target: ScaleTarget, against: str) -> None:
        """Note a target as we wrote or read it; `against` is the version that the caches had."""
        self._newer = target, against

    def note_written(self, target: ScaleTarget, replicas: int, version: str) -> None:
        written = target._replace(
            replicas=replicas, resource_version=version, manager=conflicts.OWN, since=""
        )
        self.note_newer(written, target.resource_version)

    def find_applied(self, before: ScaleTarget, sent: Sequence[int]) -> ScaleTarget | None:
        """Return the target if it was read after a lost response and shows a sent count, else None."""
        newer, _ = self._newer or (None, "")
        if newer is None or newer.resource_version == before.resource_version:
            return None
        return newer if newer.manager == conflicts.OWN and newer.replicas in sent else None

    def forget_target(self) -> None:
        self._newer, self.attempted = None, None

    # -- the snapshot ----------------------------------------------------------------------------------------

    def observe(
        self,
        prepared: PreparedSpec,
        status: HorizontalPodAutoscalerStatus,
        target: ScaleTarget,
        constraints: Constraints,
        now: int,
        learned: MutableMapping[str, LearnedUsage],
        ready_within: int | None,
        idle_scale_down: OptionState | None,
    ) -> Snapshot | Unfound:
        """Return what a decision sees at `now`, or why it cannot see yet; `learned` is as in `ReadContext`.

        The metrics are read unless the decision has no use for them: while paused, beside another autoscaler,
        and outside minReplicas and maxReplicas.
        """
        replicas = target.replicas
        lowest, highest = prepared.limits
        is_active = constraints.mode != PAUSED and not constraints.rivals
        assert self._follower is not None, "the target was found by it"
        assert self._wanted is not None, "adopted before it is decided"
        drain = self._wanted.drain
        following = self._follower.select(target.selector)
        pods: Sequence[PodFacts] = ()
        selected_by: Sequence[str] | None = ()
        inputs: tuple[MetricInput, ...] = ()
        if following is not None:
            try:
                pods, selected_by = following.pods, following.selected_by
            except NotSyncedError as error:
                return Unfound(str(error), known=False)
        if selected_by is None:
            return Unfound("the autoscalers of the same pods are not known yet", known=False)
        # Nothing is polled for an autoscaler that decides nothing, or for pods of a former selector.
        if not is_active or self._opened.selector is not self._follower.selector:
            self._close_sources()
        if is_active and following is not None:
            if not self._opened.sources:
                self._open_sources(self._follower)
            if replicas == 0 or lowest <= replicas <= highest:
                inputs = self._read(prepared, following, pods, target, now, learned)
        readings = [metric.reading for metric in inputs] or [_NOT_READ] * len(prepared.metrics)
        observation = Observation(
            replicas,
            target.status_replicas,
            target.selector,
            pods,
            readings,
            status,
            selected_by,
            ready_within=ready_within,
            unsure_of_pods=self._context.followers.pods.stale() if prepared.throughputs else "",
            fast_usage=self._fast_usage() if self._opened.own_usages else None,
            idle=None if drain is None else count_idle(pods, self._idleness.values, drain),
            idle_scale_down=idle_scale_down,
            set_by=self._context.clock.set_by or msgspec.UNSET,
        )
        return Snapshot(
            observation, constraints, target, inputs, self._idleness.values, self._idleness.sampled
        )

    def starting(self) -> StartingPods | None:
        """Return the pods of the target that have never been Ready; None before the pods are known."""
        with contextlib.suppress(NotSyncedError):
            if self._follower is not None and self._follower.pods is not None:
                return self._follower.pods.starting
        return None

    def close(self) -> None:
        """Close the metric sources, and leave the target."""
        self._close_sources()
        if self._follower is not None:
            self._follower.leave(self._note_change)
            self._follower = None

    def _note_change(self) -> None:
        self._context.changes.note((self._key,))

    def _open_sources(self, follower: TargetFollower) -> None:
        assert follower.selector is not None, "there are pods"

        def names() -> tuple[str, ...]:
            pods = () if follower.pods is None else follower.pods.pods
            return tuple(pod.name for pod in pods if pod.phase != "Pending")

        assert self._wanted is not None, "the target was found by it"
        _, metrics, _, period, ranking, _ = self._wanted
        subscriber = Subscriber(self._key, period, follower.selector, names)
        open_source = self._context.sources.open
        sources = tuple(open_source(metric, subscriber) for metric in metrics)
        own = tuple(source for source in sources if isinstance(source, OwnUsageSource))
        apart = None if ranking is None or ranking in metrics else open_source(ranking, subscriber)
        self._opened = _Opened(follower.selector, sources, own, apart)

    def _close_sources(self) -> None:
        for source in self._opened.sources:
            source.close()
        if self._opened.ranking is not None:
            self._opened.ranking.close()
        self._opened = _Opened(self._opened.selector)

    def _read(
        self,
        prepared: PreparedSpec,
        following: Selection,
        pods: Sequence[PodFacts],
        target: ScaleTarget,
        now: int,
        learned: MutableMapping[str, LearnedUsage],
    ) -> tuple[MetricInput, ...]:
        clock = self._context.clock
        time, monotonic = now + clock.set_by, clock.monotonic()
        least_ready = functools.partial(_least_ready, following, pods, time)
        context = ReadContext(pods, least_ready, time, monotonic, following.became_ready, learned)
        stale = self._context.followers.pods.stale()
        behind = self._find_lag(target, pods, monotonic)

        def completed(reading: _R, sampled: int | None, span: int | None, *, by_pods: bool) -> _R:
            changes: dict[str, Any] = {}
            if why := stale or (behind if by_pods else ""):
                changes = {"overdue": why}
                if isinstance(reading, PodsReading):
                    changes["overdue_pods"] = ()
            if by_pods:
                age = ASSUMED_WINDOW + ASSUMED_INTERVAL if span is None else span
                age = age if sampled is None else age + max(0, time - sampled)
                changes["most_then"] = following.max_ready(age)
            return msgspec.structs.replace(reading, **changes) if changes else reading

        assert self._wanted is not None, "the target was found by it"
        inputs, values = [], 0
        wanted = zip(prepared.metrics, self._wanted.by_pods, self._opened.sources, strict=True)
        for metric, by_pods, source in wanted:
            values += len(pods) if metric.source else 0
            is_read = not metric.source or values <= max(MOST_VALUES, len(pods))
            reading = source.read(context) if is_read else _TOO_MANY
            sampled, span = source.sampled, source.span
            usual, slow = source, ""
            if isinstance(source, OwnUsageSource):
                usual, slow = source.slow, source.why
            if isinstance(reading, Ways):
                first, *others = reading.ways
                first = completed(first, usual.sampled, usual.span, by_pods=by_pods)
                later = (completed(way, sampled, span, by_pods=by_pods) for way in others)
                reading = Ways((first, *later))
            elif not isinstance(reading, Unavailable):
                reading = completed(reading, usual.sampled, usual.span, by_pods=by_pods)
            description = metric.description
            inputs.append(MetricInput(description, reading, sampled, span, usual.span, slow, source.fault))
        if self._wanted.ranking is not None:
            self._rank(self._wanted.ranking, inputs, context)
        return tuple(inputs)

    def _find_lag(self, target: ScaleTarget, pods: Sequence[PodFacts], monotonic: float) -> str:
        """Return why pods are missing, "" if none is.

        A target never has more replicas than pods, so the watch of pods lags behind that of targets.
        """
        if target.status_replicas <= len(pods):
            self._behind_since = None
            return ""
        since = self._behind_since = monotonic if self._behind_since is None else self._behind_since
        return SETTLING if monotonic - since < _SETTLING_SECONDS else _FEWER_PODS

    def _rank(self, by: MetricSpec, inputs: Sequence[MetricInput], context: ReadContext) -> None:
        """Note the values by which pods are ranked."""
        if (source := self._opened.ranking) is not None:
            self._idleness.note(source.read(context), source.sampled)
        elif self._wanted is not None:
            ranked_by = inputs[self._wanted.metrics.index(by)]
            self._idleness.note(ranked_by.reading, ranked_by.sampled)

    def _fast_usage(self) -> OptionState | None:
        """Return the condition of the first metric for which the usage that pods expose does not count."""
        first: OptionState | None = None
        for source in self._opened.own_usages:
            condition = source.condition
            if condition is not None and (first is None or not condition.holds):
                first = condition
                if not condition.holds:
                    break
        return first


def _least_ready(following: Selection, pods: Sequence[PodFacts], time: int, since: int) -> int:
    """Return the smallest number of ready pods since an instant.

    If the cache has not watched for that long, count the pods that are ready now and were ready then. Pods
    that were ready then and are gone cannot be known, and are not needed: the count is multiplied, and a
    smaller one is safe.
    """
    known = following.min_ready(max(0, time - since))
    if known is not None:
        return known
    return sum(pod.running_and_ready and pod.ready_since <= since for pod in pods)


def _depends_on_pods(metric: MetricSpec) -> bool:
    """Tell whether the known pods are part of the calculation of a metric."""
    outer = metric.object or metric.external
    return outer is None or outer.target.type == "Value"


def _is_older(version: str, newer: str, against: str) -> bool:
    """Tell whether a resource version is older than ours; numeric versions are one growing count."""
    if version.isdigit() and newer.isdigit():
        return int(version) < int(newer)
    return bool(version) and version == against
