"""Which pods each autoscaler selects, kept up to date as pods change, and how many of them were ready lately.

Autoscalers with equal selectors share a `Selection`. A changed pod is matched only against the selections
that require one of its labels, so an event costs the selections that it concerns, not all there are.

A tenant chooses how many pods and how many autoscalers there are, so no step may cost the product of both.
Which autoscalers follow the pods of a selection is found in steps, ends with the first few, and is kept with
the labels of the pods until a selection with these labels comes or goes.
"""

import bisect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from adapter.kubernetes.cache import pod_starts
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.kubernetes.cache.store import LabeledCache
from adapter.model.objects.label_selectors import LabelSelector, Operator
from adapter.model.objects.pods import PodList
from adapter.model.ready_times import Outcome, PodStart
from adapter.model.timestamps import SECOND

_EQUALITY = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})

RECENT_SECONDS = 360.0
"""For how long it is known when a pod became ready, in seconds: longer than any sample may be old."""

KEPT_SECONDS = 900.0
"""How far back the number of ready pods is known, in seconds: longer than any useful stabilization window."""


MOST_NAMED = 10
"""The most autoscalers that are named where several follow the same pods."""

MOST_MATCHED = 5_000
"""How many selectors are matched in a row, about 5 ms, before other work may run."""

_END = operator.itemgetter(0)


class ReadyHistory(msgspec.Struct, gc=False, eq=False):
    """The number of ready pods, back to `since`; times in seconds of the monotonic clock.

    Kept are only the counts that can still be the smallest or largest of a window that ends now, each with
    the time at which it ended: rising counts in `past`, falling ones in `peaks`.
    """

    count: int
    since: float
    past: list[tuple[float, int]] | None = None
    """End of a count, and the count, oldest first. None, the most frequent case, for no entries."""
    peaks: list[tuple[float, int]] | None = None

    def record(self, count: int, now: float) -> None:
        self.past = _exceeding(self.past, self.count, count, now, operator.lt)
        self.peaks = _exceeding(self.peaks, self.count, count, now, operator.gt)
        self.count = count

    def restart(self, now: float) -> None:
        """Forget the past: what happened before `now` is unknown."""
        self.since = now
        self.past = self.peaks = None

    def smallest(self, start: float, now: float) -> int | None:
        """Return the smallest number since `start`, None if it is unknown."""
        if start < self.since or start < now - KEPT_SECONDS:
            return None
        past = self.past or ()
        place = bisect.bisect_left(past, start, key=_END)
        return past[place][1] if place < len(past) else self.count

    def largest(self, start: float) -> int:
        """Return the largest known number since `start`."""
        peaks = self.peaks or ()
        place = bisect.bisect_left(peaks, start, key=_END)
        return peaks[place][1] if place < len(peaks) else self.count


def _exceeding(
    past: list[tuple[float, int]] | None,
    ended: int,
    count: int,
    now: float,
    exceeds: Callable[[int, int], bool],
) -> list[tuple[float, int]] | None:
    """Return the counts that exceed all later ones, after `ended` was replaced by `count`."""
    kept = past or []
    if exceeds(ended, count):
        kept.append((now, ended))
    while kept and not exceeds(kept[-1][1], count):
        kept.pop()
    del kept[: bisect.bisect_left(kept, now - KEPT_SECONDS, key=_END)]
    return kept or None


class RecentlyReady:
    """When pods became ready for the first time, by name, for those that did so lately.

    The times are seconds of the monotonic clock, at which the watch showed it: the clock of our scrapes. The
    condition's own time is the kubelet's, in whole seconds.

    A pod that becomes ready again is not new. Under overload pods lose and regain readiness, and the values
    of those that do must count at once.
    """

    __slots__ = ("_lapsed", "_times")

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._lapsed: set[str] = set()  # were ready and are not now

    def record(self, name: str, time: float, now: float) -> None:
        """Record that a pod is ready since `time`."""
        if name in self._lapsed:
            self._lapsed.discard(name)
            return
        self._times.pop(name, None)
        self._times[name] = time
        self.times(now)

    def times(self, now: float) -> Mapping[str, float]:
        """Return the times, and forget those that are no longer recent."""
        times, oldest = self._times, now - RECENT_SECONDS
        while times and times[first := next(iter(times))] < oldest:
            del times[first]
        return times

    def lapse(self, name: str) -> None:
        """Record that a pod is not ready any more."""
        self._lapsed.add(name)

    def forget(self, name: str) -> None:
        """Forget a pod that is gone; another one of its name is new."""
        self._times.pop(name, None)
        self._lapsed.discard(name)


class Follower(Protocol):
    """What follows pods for an autoscaler (``namespace/name``)."""

    @property
    def autoscaler(self) -> str: ...

    def changed(self) -> None:
        """Note that the pods may have changed. It must not block; it may leave selections.

        It is called once the first list is in, and after each batch of events that added, removed or changed
        a pod.
        """

    def started(self, start: PodStart | Outcome) -> None:
        """Note that a pod is Ready for the first time, or has ended before. It must do no more than that."""


class Selection:
    """The pods of a namespace that match a selector, kept up to date for its followers."""

    __slots__ = ("_pods", "_selected_by", "_space", "followers", "history", "selector")

    def __init__(self, space: "PodNamespace", selector: LabelSelector) -> None:
        self._space = space
        self.selector = selector
        self.followers: list[Follower] = []
        self._pods: PodList[WatchedPod] | None = None
        self._selected_by: tuple[int, tuple[str, ...] | None] = (-1, ())
        ready = sum(pod.running_and_ready for pod in self.find())
        self.history = ReadyHistory(ready, space.cache.clock.monotonic())

    def leave(self, follower: Follower) -> None:
        """End what `PodCache.follow` began; leaving twice is harmless."""
        if follower in self.followers:
            self.followers.remove(follower)
            self._space.generation += 1
            if not self.followers:
                self._space.discard(self)

    @property
    def pods(self) -> tuple[WatchedPod, ...]:
        """The pods in list order, terminating and completed ones among them.

        Raises `errors.NotSyncedError` before the first list.
        """
        if not self._space.cache.synced:
            self._space.cache.check_synced()
        return self._pods or self.find()

    def find(self) -> tuple[WatchedPod, ...]:
        """Return the pods that are known, also before the first list."""
        if self._pods is None:
            self._pods = PodList(self._space.select(self.selector))
        return self._pods

    @property
    def became_ready(self) -> Mapping[str, float]:
        """When pods of the namespace became ready lately, by name, in monotonic seconds."""
        return self._space.became_ready.times(self._space.cache.clock.monotonic())

    @property
    def starting(self) -> StartingPods:
        """The pods that have never been Ready, without those that terminate."""
        return pod_starts.count_starting(pod.starting for pod in self.pods if not pod.deleting)

    def min_ready(self, age: int) -> int | None:
        """Return the smallest number of ready pods within the last `age` nanoseconds.

        None if that is unknown: the selection is younger, the time is more than `KEPT_SECONDS` ago, or before
        the last list. Between a list and the watch before it anything may have happened.
        """
        now = self._space.cache.clock.monotonic()
        return self.history.smallest(now - age / SECOND, now)

    def max_ready(self, age: int) -> int:
        """Return the largest known number of ready pods within the last `age` nanoseconds."""
        return self.history.largest(self._space.cache.clock.monotonic() - age / SECOND)

    @property
    def selected_by(self) -> tuple[str, ...] | None:
        """The autoscalers that follow any of these pods, sorted; none where there are no pods.

        Of more than `MOST_NAMED` the last item says how many there are at least. None while they are looked
        for: ask again.
        """
        generation = self._space.generation
        if self._selected_by[0] != generation or self._selected_by[1] is None:
            self._selected_by = generation, self._space.find_followers(self.pods)
        return self._selected_by[1]

    def touch(self, ready: int, now: float) -> None:
        """Note a change to a pod; `ready` is the change in the number of ready pods."""
        self._pods = None
        if ready:
            self.history.record(self.history.count + ready, now)

    def notify(self) -> None:
        for follower in tuple(self.followers):
            follower.changed()


class PodNamespace:
    """The pods and selections of a namespace; `generation` changes when a selection may have other pods."""

    def __init__(self, name: str, cache: LabeledCache[Any], spaces: dict[str, "PodNamespace"]) -> None:
        self.name = name
        self.cache = cache
        self.pods: dict[str, WatchedPod] = {}
        self.selections: dict[LabelSelector, Selection] = {}
        self.generation = 0
        self.became_ready = RecentlyReady()
        self._spaces = spaces
        self._by_label: dict[tuple[str, str] | None, list[Selection]] = {}
        self._first: dict[int, tuple[Mapping[str, str], tuple[Selection, ...]]] = {}
        """Labels of pods by identity, and the first selections that match them: one more than are named."""

    def select(self, selector: LabelSelector) -> tuple[WatchedPod, ...]:
        return tuple(map(self.pods.__getitem__, self.cache.index.names(self.name, selector)))

    def add(self, selection: Selection) -> None:
        self.selections[selection.selector] = selection
        self._by_label.setdefault(_required_label(selection.selector), []).append(selection)
        self._forget_first(selection)

    def discard(self, selection: Selection) -> None:
        del self.selections[selection.selector]
        label = _required_label(selection.selector)
        self._by_label[label].remove(selection)
        if not self._by_label[label]:
            del self._by_label[label]
        self._forget_first(selection)
        self.forget_if_empty()

    def forget_if_empty(self) -> None:
        if not self.pods and not self.selections:
            self._spaces.pop(self.name, None)

    def _forget_first(self, selection: Selection) -> None:
        """Forget what matches the labels of its pods: it has come, or goes."""
        self.generation += 1
        for pod in selection.find():
            self._first.pop(id(pod.labels), None)

    def matching(self, labels: Mapping[str, str]) -> list[Selection]:
        return [one for one in self._candidates(labels) if one.selector.matches(labels)]

    def _candidates(self, labels: Mapping[str, str]) -> Iterator[Selection]:
        """Yield the selections that may match some labels."""
        yield from self._by_label.get(None, ())
        for label in labels.items():
            yield from self._by_label.get(label, ())

    def notify_started(self, labels: Mapping[str, str], start: PodStart | Outcome) -> None:
        for selection in self.matching(labels):
            for follower in selection.followers:
                follower.started(start)

    def find_followers(self, pods: Iterable[WatchedPod]) -> tuple[str, ...] | None:
        """Return the autoscalers that follow any of the pods, as `Selection.selected_by` has them."""
        if len(self._first) > 2 * len(self.pods) + MOST_NAMED:
            self._first.clear()  # mostly labels of pods that are gone
        names: set[str] = set()
        known: set[Selection] = set()
        left = MOST_MATCHED
        for pod in pods:
            _, first = self._first.get(id(pod.labels), (None, None))
            if first is None:
                if left <= 0:
                    return None
                first, count = self._match_first(pod.labels)
                left -= count
            for selection in first:
                if selection not in known:
                    known.add(selection)
                    names.update(other.autoscaler for other in selection.followers[: MOST_NAMED + 1])
            if len(names) > MOST_NAMED:
                others = sum(len(selection.followers) for selection in known) - MOST_NAMED
                return (*sorted(names)[:MOST_NAMED], f"and at least {others} more")
        return tuple(sorted(names))

    def _match_first(self, labels: Mapping[str, str]) -> tuple[tuple[Selection, ...], int]:
        """Find the first selections that match some labels; return them, and how many were tried."""
        first: list[Selection] = []
        count = 0
        for selection in self._candidates(labels):
            count += 1
            if selection.selector.matches(labels):
                first.append(selection)
                if len(first) > MOST_NAMED:
                    break
        self._first[id(labels)] = labels, tuple(first)
        return tuple(first), count


def _required_label(selector: LabelSelector) -> tuple[str, str] | None:
    """Return the label under which a selector is filed: one that all its pods have, None without one."""
    for requirement in selector.requirements:
        if requirement.operator in _EQUALITY:
            return requirement.key, requirement.values[0]
    return None
