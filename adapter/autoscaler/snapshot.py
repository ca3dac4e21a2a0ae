"""What one autoscaler reads (target, pods, metrics), and the snapshot that a decision is made from.

`Subscriptions` keeps what the spec names in the caches, and opens and closes metric sources as spec and pods
change. `observe` returns a `Snapshot`. While a cache has not had its first list there is no snapshot, rather
than an empty one: a decision must not take missing pods for none.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide import decision
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.observation import (
    NOT_YET,
    Observation,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
)
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.interfaces import (
    Forecasts,
    Key,
    NoForecasts,
    NoSchedules,
    Schedules,
    SelectedPodCache,
)
from adapter.autoscaler.metrics.factory import MetricSource, SourceFactory
from adapter.autoscaler.metrics.feed import ASSUMED_INTERVAL, ASSUMED_WINDOW
from adapter.autoscaler.metrics.sources import ReadContext, Subscriber
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.autoscalers import ScaleConflicts
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.kubernetes.cache.pods import PodSubscription
from adapter.kubernetes.cache.scale_targets import ScaleTarget, ScaleTargets, TargetSubscription, Unfound
from adapter.model.autoscaling.fastpath_autoscaler import PAUSED
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
)
from adapter.model.label_selectors import LabelSelector
from adapter.model.pods import PodFacts
from adapter.model.ready_times import Outcome, PodStart, ReadyTimes

_NOT_READ = Unavailable("NotRead", "nothing was read")
_FEWER_PODS = "fewer pods are cached than the target has"


class AutoscalerContext(NamedTuple):
    """The caches and settings that all autoscalers share."""

    targets: ScaleTargets
    pods: SelectedPodCache
    rivals: ScaleConflicts
    sources: SourceFactory
    settings: Settings
    schedules: Schedules = NoSchedules()
    forecasts: Forecasts = NoForecasts()


class MetricInput(NamedTuple):
    """A metric as a decision saw it: description, reading, and the time and span of its oldest sample.

    Both are nanoseconds, None if unknown.
    """

    metric: str
    reading: Reading
    sampled: int | None
    span: int | None = None


class Snapshot(NamedTuple):
    """What a decision is made from; it is written against the resource version of `target`."""

    observation: Observation
    constraints: Constraints
    target: ScaleTarget
    inputs: tuple[MetricInput, ...]
    ready_times: ReadyTimes | None = None
    """How long the last pods of the target took to be Ready; None before the first."""

    @property
    def is_waiting(self) -> bool:
        """Whether the first value of a metric is still being fetched."""
        return any(
            isinstance(each.reading, Unavailable) and each.reading.reason == NOT_YET for each in self.inputs
        )


class Subscriptions:
    """What one autoscaler follows.

    `changed` is called when any of it may have changed, `started` with the start of each pod of the target.
    """

    def __init__(
        self,
        context: AutoscalerContext,
        key: Key,
        changed: Callable[[], None],
        started: Callable[[PodStart | Outcome], None],
    ) -> None:
        self._context = context
        self._specs: Sequence[MetricSpec] = ()
        self._period = 0.0
        self._key = key
        self._changed = changed
        self._started = started
        self._target: TargetSubscription | None = None
        self._selector_text = ""
        self._selector: LabelSelector | None = None
        self._pods: PodSubscription | None = None
        self._sources: tuple[
            MetricSource, ...
        ] = ()  # in the order of the spec; none before the pods are known

    def adopt(self, metrics: Sequence[MetricSpec], period: float) -> None:
        """Take the metrics of a new spec, which are wanted every `period` seconds."""
        self.close_metrics()
        self._specs, self._period = metrics, period

    def find_target(self, reference: CrossVersionObjectReference) -> ScaleTarget | Unfound:
        if self._target is None:
            self._target = self._context.targets.follow(self._key.namespace, reference, self._changed)
        return self._target.find()

    def observe(
        self,
        prepared: PreparedSpec,
        status: HorizontalPodAutoscalerStatus,
        target: ScaleTarget,
        constraints: Constraints,
        now: int,
        monotonic: float,
    ) -> Snapshot | Unfound:
        """Return what a decision sees at `now`, or why it cannot see yet.

        The metrics are read unless the decision has no use for them: while paused, beside another autoscaler,
        and outside minReplicas and maxReplicas.
        """
        replicas = target.replicas
        lowest, highest = prepared.limits
        is_active = constraints.mode != PAUSED and not constraints.rivals
        self._follow_pods(target.selector)
        pods: Sequence[PodFacts] = ()
        selected_by: Sequence[str] = ()
        if self._pods is not None:
            try:
                pods, selected_by = self._pods.pods, self._pods.selected_by
            except NotSyncedError as error:
                return Unfound(str(error), known=False)
            if is_active:
                self._open_sources(self._pods)
            else:
                self._close_sources()
        inputs: tuple[MetricInput, ...] = ()
        if is_active and (replicas == 0 or lowest <= replicas <= highest) and self._pods is not None:
            inputs = self._read(prepared, self._pods, pods, target, now, monotonic)
        readings = [each.reading for each in inputs] or [_NOT_READ] * len(prepared.metrics)
        observation = Observation(
            replicas,
            target.status_replicas,
            target.selector,
            pods,
            readings,
            status,
            selected_by,
            unsure_of_pods=self._context.pods.stale() if prepared.throughputs else "",
        )
        return Snapshot(observation, constraints, target, inputs)

    def starting(self) -> StartingPods | None:
        """Return the pods of the target that have never been Ready; None before the pods are known."""
        try:
            return None if self._pods is None else self._pods.starting
        except NotSyncedError:
            return None

    def close_metrics(self) -> None:
        """Close the metric sources and the pods: the spec has changed."""
        self._close_sources()
        if self._pods is not None:
            self._pods.close()
            self._pods = None

    def close_target(self) -> None:
        if self._target is not None:
            self._target.close()
            self._target = None

    def close(self) -> None:
        self.close_metrics()
        self.close_target()

    def _follow_pods(self, selector: str) -> None:
        if selector == self._selector_text and (self._pods is not None or self._selector is None):
            return
        self.close_metrics()
        self._selector_text = selector
        self._selector = decision.selector_of(selector)
        if self._selector is not None:
            self._pods = self._context.pods.follow(
                self._key.namespace, self._selector, str(self._key), self._changed, self._started
            )

    def _open_sources(self, following: PodSubscription) -> None:
        if self._sources or self._selector is None:
            return

        def names() -> tuple[str, ...]:
            return tuple(pod.name for pod in following.pods if pod.phase != "Pending")

        subscriber = Subscriber(self._key, self._period, self._selector, names)
        self._sources = tuple(self._context.sources.open(each, subscriber) for each in self._specs)

    def _close_sources(self) -> None:
        for source in self._sources:
            source.close()
        self._sources = ()

    def _read(
        self,
        prepared: PreparedSpec,
        following: PodSubscription,
        pods: Sequence[PodFacts],
        target: ScaleTarget,
        now: int,
        monotonic: float,
    ) -> tuple[MetricInput, ...]:
        context = ReadContext(
            pods,
            lambda since: _least_ready(following, pods, since, now),
            now,
            monotonic,
            following.became_ready,
        )
        stale = self._context.pods.stale()
        # A target never has more replicas than pods, so the watch of pods lags behind that of targets.
        behind = _FEWER_PODS if target.status_replicas > len(pods) else ""
        read = [source.read(context) for source in self._sources]
        inputs = []
        for metric, spec, source, found in zip(
            prepared.metrics, self._specs, self._sources, read, strict=True
        ):
            reading, sampled, span = found, source.sampled, source.span
            if not isinstance(reading, Unavailable):
                by_pods = _depends_on_pods(spec)
                if why := stale or (behind if by_pods else ""):
                    whole = {"overdue_pods": ()} if isinstance(reading, PodsReading) else {}
                    reading = msgspec.structs.replace(reading, overdue=why, **whole)
                if by_pods:
                    most = _most_ready(following, sampled, span, now)
                    reading = msgspec.structs.replace(reading, most_then=most)
            inputs.append(MetricInput(metric.description, reading, sampled, span))
        return tuple(inputs)


def _least_ready(following: PodSubscription, pods: Sequence[PodFacts], since: int, now: int) -> int:
    """Return the smallest number of ready pods since an instant.

    If the cache has not watched for that long, count the pods that are ready now and were ready then. Pods
    that were ready then and are gone cannot be known, and are not needed: the count is multiplied, and a
    smaller one is safe.
    """
    known = following.min_ready(max(0, now - since))
    if known is not None:
        return known
    return sum(pod.running_and_ready and pod.ready_since <= since for pod in pods)


def _most_ready(following: PodSubscription, sampled: int | None, span: int | None, now: int) -> int:
    """Return the largest number of ready pods over the time that a reading covers."""
    age = ASSUMED_WINDOW + ASSUMED_INTERVAL if span is None else span
    return following.max_ready(age if sampled is None else age + max(0, now - sampled))


def _depends_on_pods(metric: MetricSpec) -> bool:
    """Tell whether the known pods are part of the calculation of a metric."""
    outer = metric.object or metric.external
    return outer is None or outer.target.type == "Value"
