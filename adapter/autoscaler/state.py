"""One autoscaler at work: what is remembered of it, what it reads from, and what it sees now.

Here: the spec made ready, sources opened and closed as spec and pods change, and the observation that a decision is made from. Not here:
when it is decided (`loop`), what follows (`acting`). Law: without pods and target known there is no observation, not an empty one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from prometheus_client import Gauge

from adapter.autoscaler.decide import autoscaler as autoscalers
from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, decision, guarded, past_changes
from adapter.autoscaler.decide.autoscaler import Autoscaler
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.guarded import Circumstances, Memory
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.decide.observation import NO_STATUS, NOT_YET, Observation, Reading, Unavailable
from adapter.autoscaler.decide.settings import Settings
from adapter.autoscaler.interfaces import Followed, Key, Target, Targets, Unfound
from adapter.autoscaler.journal import Input
from adapter.autoscaler.metric_source import Site, Source, View
from adapter.autoscaler.metric_sources import Sources
from adapter.autoscaler.readings import ASSUMED_INTERVAL, ASSUMED_WINDOW
from adapter.boost.floor import FloorEntry
from adapter.errors import NotSyncedError
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import (
    PAUSED,
    FastPathAutoscaler,
    FastPathAutoscalerStatus,
    PastChange,
)
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerSpec, MetricSpec
from adapter.model.autoscaling.validation import Violation
from adapter.model.pods import PodFacts
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.model.timestamps import SECOND

_NOT_READ = Unavailable("NotRead", "nothing was read")
_NO_SPEC = HorizontalPodAutoscalerSpec(metrics=())
_SAY_AGAIN = 15 * SECOND
"""How soon the same warning is told again: the native controller's period."""

_BEHIND = "fewer pods are known than the target has"


class Following(Protocol):
    """The pods that an autoscaler selects; met by `kubernetes.cache.pods.Following`."""

    @property
    def pods(self) -> Sequence[PodFacts]:
        """Return them, the very same sequence while nothing has changed; NotSyncedError."""
        ...

    @property
    def selected_by(self) -> Sequence[str]:
        """Return who follows any of these pods."""
        ...

    def min_ready(self, age: int) -> int | None:
        """Return the smallest number of ready pods within so many nanoseconds; None where that is not known."""
        ...

    def max_ready(self, age: int) -> int:
        """Return the largest number of ready pods that is known within so many nanoseconds."""
        ...

    def close(self) -> None:
        """Stop following."""
        ...


class Pods(Protocol):
    """The pods of the cluster."""

    def follow(
        self, namespace: str, selector: LabelSelector, autoscaler: str, changed: Callable[[], None]
    ) -> Following:
        """Keep the pods that match at hand; `changed` is called when there are others or one is another."""
        ...

    def stale(self) -> str:
        """Return why the cache may be out of date, "" where it is not."""
        ...


class Rivals(Protocol):
    """Who else scales a target."""

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...] | None:
        """Return the other autoscalers of its target by kind and name; None while that is not known."""
        ...


class Surroundings(NamedTuple):
    """What every autoscaler at work works with."""

    targets: Targets
    pods: Pods
    rivals: Rivals
    sources: Sources
    settings: Settings


class Written(NamedTuple):
    """A scale as our own write left it, or a reading beside the caches found it: they show that until they have caught up.

    `against` is the version that the caches had then.
    """

    replicas: int
    resource_version: str
    against: str
    manager: str = conflicts.OWN


class Seen(NamedTuple):
    """What a decision is made from, and what it is written against."""

    observation: Observation
    circumstances: Circumstances
    target: Target
    inputs: tuple[Input, ...]

    @property
    def waits(self) -> bool:
        """Whether the first answer to the question of a metric is still awaited."""
        return any(
            isinstance(each.reading, Unavailable) and each.reading.reason == NOT_YET for each in self.inputs
        )


class Last(NamedTuple):
    """The last decision: when, what it saw (None where it looked at nothing), what it said."""

    at: int
    seen: Seen | None
    made: Decision


class Work:
    """One autoscaler. `touch` is called when something it depends on has changed."""

    def __init__(
        self,
        autoscaler: FastPathAutoscaler,
        around: Surroundings,
        touch: Callable[[], None],
        now: int,
        events: tuple[Events, Events] | None = None,
    ) -> None:
        """`events` are the scale events so far; without them those that the status tells of, as they count at `now`."""
        self.key = Key.of(autoscaler)
        self.object = autoscaler
        self.violations: Sequence[Violation] = ()
        self.memory: Memory = _remember(autoscaler.status, events, now)
        self.written: Written | None = None
        self.attempted: int | None = None
        """A count whose write had no answer, so that nobody knows whether it was made."""
        self.boost: Boost | None = None
        """What stands beside the decisions for a HorizontalPodAutoscaler; None for autoscalers of our own."""
        self.published: FloorEntry | None = None
        """What everybody reads of its floor, or will."""
        self.aim = 0
        """How often the target has become another."""
        self.moved = 0
        """By how many nanoseconds the clock of decisions was set, all in all."""
        self.last: Last | None = None
        self.gauges: tuple[Gauge, ...] | None = None
        self.shown: tuple[int, ...] | None = None
        self.busy = False
        self.failures = 0
        self.due = 0.0
        self.decided = float("-inf")
        self.again = False
        self.closed = False
        self._around = around
        self._touch = touch
        self._followed: Followed | None = None
        self._uid = ""
        self._warned: dict[tuple[str, str], int] = {}
        self._selector: LabelSelector | None = None
        self._selector_text = ""
        self._following: Following | None = None
        self._sources: tuple[Source, ...] = ()
        self._counting: tuple[bool, ...] = ()
        self.prepared: Autoscaler = self._prepare()

    @property
    def period(self) -> float:
        """Return the longest time between two decisions, in seconds."""
        least, most = fastpath_autoscaler.SYNC_PERIODS  # a spec that is refused may have any
        return min(max(self.object.spec.sync_period, least), most) / SECOND

    @property
    def sources(self) -> Sequence[Source]:
        """What the metrics are read from, in the order of the spec; none before pods can be told."""
        return self._sources

    def adopt(self, autoscaler: FastPathAutoscaler) -> bool:
        """Take the object as it is now; tell whether its spec has changed. Its status is what we wrote ourselves."""
        before, self.object = self.object.spec, autoscaler
        if autoscaler.spec == before:
            return False
        self.memory = guarded.spec_changed(self.memory)
        if autoscaler.spec.scale_target_ref != before.scale_target_ref:
            self._begin_anew()
            self._close_target()
        self._close_sources()
        self.prepared = self._prepare()
        self.failures = 0
        return True

    def _begin_anew(self) -> None:
        """Forget what was done to another target: it is no concern of this one. A demotion is the autoscaler's, and stays."""
        boosted = self.memory.boost
        self.memory = guarded.remember(NO_STATUS)
        self.remember_boost(Boosting(demotion=boosted.demotion, told=boosted.told))
        self.written = self.attempted = None
        self._uid = ""
        self.aim += 1

    def recognize(self, uid: str) -> None:
        """Take notice of which object is scaled: one that came in the place of another begins as after a start."""
        floor = self.memory.boost.floor
        known = self._uid or (
            "" if floor is None else floor.target
        )  # a leader before may have raised another
        if uid and known and uid != known:
            self._begin_anew()
        self._uid = uid or self._uid

    def follow_floor(self, now: int) -> None:
        """Take notice of what time and the native autoscaler have made of the floor."""
        if self.boost is not None:
            alone = not self._around.rivals.of(self.object)
            most, band = self.object.spec.max_replicas, self.prepared.band
            boosted = boosting.follow(self.memory.boost, self.boost, now, alone=alone, most=most, band=band)
            self.remember_boost(boosted)

    def remember_boost(self, boosted: Boosting) -> None:
        """Take what is remembered of raises and floors."""
        if boosted is not self.memory.boost:
            self.memory = msgspec.structs.replace(self.memory, boost=boosted)

    def is_news(self, event: Event, now: int) -> bool:
        """Tell whether a warning is to be told: what is so at every decision no more often than the native controller would say it."""
        warning = event.reason, event.message
        told = self._warned.get(warning)
        if told is not None and 0 <= now - told < _SAY_AGAIN:
            return False
        self._warned = {each: at for each, at in self._warned.items() if 0 <= now - at < _SAY_AGAIN}
        self._warned[warning] = now
        return True

    def set_clock(self, by: int) -> None:
        """Keep all ages as they are although the clock of decisions was set forward by so many nanoseconds."""
        self.memory = guarded.shifted(self.memory, by)
        self.moved += by

    def close(self) -> None:
        """Follow and ask nothing any more."""
        self.closed = True
        self._close_sources()
        self._close_target()

    def recent_changes(self, now: int) -> tuple[PastChange, ...]:
        """Return the changes that policies still count, oldest first; of very many the oldest as one."""
        history, up, down = self.memory.history, self.prepared.up, self.prepared.down
        if not (history.ups or history.downs):
            return ()
        longest = max(up.longest_period if up else 0, down.longest_period if down else 0)
        return past_changes.changes_of(history.ups, history.downs, now, longest)

    def _prepare(self) -> Autoscaler:
        self.violations = fastpath_autoscaler.validate(self.object)
        if self.violations:
            # what cannot be valid is not looked into: no metric, no behavior, only a name
            plain = msgspec.structs.replace(fastpath_autoscaler.as_hpa(self.object), spec=_NO_SPEC)
            return autoscalers.prepare(plain, self._around.settings)
        return autoscalers.prepare(fastpath_autoscaler.as_hpa(self.object), self._around.settings)

    # -- what it sees --------------------------------------------------------------------------------------------------

    def find_target(self) -> Target | Unfound:
        """Return the target as the caches have it, or as our own last write left it if they lag behind that."""
        if self._followed is None:
            reference = self.object.spec.scale_target_ref
            self._followed = self._around.targets.follow(self.key.namespace, reference, self._touch)
        target = self._followed.find()
        if isinstance(target, Unfound):
            return target
        written = self.written
        if written is not None and _is_older(target.resource_version, written):
            return target._replace(
                replicas=written.replicas,
                resource_version=written.resource_version,
                manager=written.manager,
                since="",
            )
        self.written = None
        if not target.manager and target.replicas == self.attempted:
            return target._replace(manager=conflicts.OWN)  # what nobody names is what we tried to write
        return target

    def circumstances(self) -> Circumstances | None:
        """Return what stands beside the observation; None while it is not known who else scales the target."""
        rivals = self._around.rivals.of(self.object)
        spec = self.object.spec
        return None if rivals is None else Circumstances(spec.mode, rivals, spec.fallback, self.boost)

    def observe(
        self, target: Target, circumstances: Circumstances, now: int, monotonic: float
    ) -> Seen | Unfound:
        """Return all that one decision sees at `now`; why there is nothing to be seen while caches are not in."""
        replicas = target.replicas
        lowest, highest = self.prepared.limits
        looks = circumstances.mode != PAUSED and not circumstances.rivals
        self._follow(target.selector)
        pods: Sequence[PodFacts] = ()
        selected_by: Sequence[str] = ()
        following = self._following
        if following is not None:
            try:
                pods, selected_by = following.pods, following.selected_by
            except NotSyncedError as error:
                return Unfound(str(error), known=False)
            if looks:
                self._open_sources(following)
            else:
                self._stop_asking()
        inputs: tuple[Input, ...] = ()
        if looks and (replicas == 0 or lowest <= replicas <= highest) and following is not None:
            view = View(pods, lambda since: self._least_ready(pods, since, now), now, monotonic)
            stale = self._around.pods.stale()
            # a target never has more replicas than there are pods: then the watch of pods is behind that of targets
            behind = _BEHIND if target.status_replicas > len(pods) else ""
            metrics = zip(self.prepared.metrics, self._sources, self._counting, strict=True)
            found = [
                (metric, source, _overdue(source.read(view), stale or (behind if counts else "")), counts)
                for metric, source, counts in metrics
            ]
            inputs = tuple(
                Input(
                    metric.description,
                    self._with_most(reading, source, now) if counts else reading,
                    source.sampled,
                    source.span,
                )
                for metric, source, reading, counts in found
            )
        readings = [each.reading for each in inputs] or [_NOT_READ] * len(self.prepared.metrics)
        observation = Observation(
            replicas, target.status_replicas, target.selector, pods, readings, self.memory.status, selected_by
        )
        return Seen(observation, circumstances, target, inputs)

    def _follow(self, text: str) -> None:
        """Follow the pods of a selector, if it is another than before."""
        if text == self._selector_text and (self._following is not None or self._selector is None):
            return
        self._close_sources()
        self._selector_text = text
        self._selector = decision.selector_of(text)
        if self._selector is not None:
            self._following = self._around.pods.follow(
                self.key.namespace, self._selector, str(self.key), self._touch
            )

    def _open_sources(self, following: Following) -> None:
        around = self._around
        if not self._sources and self._selector is not None:

            def names() -> tuple[str, ...]:
                return tuple(pod.name for pod in following.pods if pod.phase != "Pending")

            site = Site(str(self.key), self.key.namespace, self.period, self._selector, names)
            metrics = fastpath_autoscaler.as_hpa(self.object).spec.metrics or ()
            self._sources = (
                () if self.violations else tuple(around.sources.open(each, site) for each in metrics)
            )
            self._counting = tuple(map(_counts_pods, metrics))

    def _stop_asking(self) -> None:
        for source in self._sources:
            source.close()
        self._sources = ()

    def _close_sources(self) -> None:
        self._stop_asking()
        if self._following is not None:
            self._following.close()
            self._following = None

    def _close_target(self) -> None:
        self.written = self.attempted = None
        if self._followed is not None:
            self._followed.close()
            self._followed = None

    def _least_ready(self, pods: Sequence[PodFacts], since: int, now: int) -> int:
        """Return how few pods were ready at some time since an instant.

        Where nobody has watched for so long, those that are ready now and were then: what else was ready is not there to be multiplied.
        """
        assert self._following is not None
        known = self._following.min_ready(max(0, now - since))
        if known is not None:
            return known
        return sum(pod.running_and_ready and pod.ready_since <= since for pod in pods)

    def _with_most(self, reading: Reading, source: Source, now: int) -> Reading:
        """Return a reading with the largest number of ready pods over the time that it speaks of."""
        assert self._following is not None
        if isinstance(reading, Unavailable):
            return reading
        span = ASSUMED_WINDOW + ASSUMED_INTERVAL if source.span is None else source.span
        age = span if source.sampled is None else span + max(0, now - source.sampled)
        return msgspec.structs.replace(reading, most_then=self._following.max_ready(age))


def _remember(
    status: FastPathAutoscalerStatus | None, events: tuple[Events, Events] | None, now: int
) -> Memory:
    if status is None:
        return guarded.remember(NO_STATUS, *(events or ((), ())))
    if events is None:
        events = past_changes.events_of(status.recent_changes, now)
    return guarded.remember(fastpath_autoscaler.plain_status(status), *events)


def _is_older(version: str, written: Written) -> bool:
    """Tell whether a resource version is from before a write; versions are one growing count wherever they are numbers."""
    if not version:
        return False
    if version.isdigit() and written.resource_version.isdigit():
        return int(version) < int(written.resource_version)
    return version == written.against


def _overdue(reading: Reading, why: str) -> Reading:
    """Return a reading that is overdue for that reason, as it is where there is none."""
    return (
        reading
        if not why or isinstance(reading, Unavailable)
        else msgspec.structs.replace(reading, overdue=why)
    )


def _counts_pods(metric: MetricSpec) -> bool:
    """Tell whether the pods that are known are part of what a metric comes to."""
    outer = metric.object or metric.external
    return outer is None or outer.target.type == "Value"
