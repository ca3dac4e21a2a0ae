"""Compares what each pod exposes with the usage of its container, as samples of the latter come in.

A sample is compared when the pod's own usage is known for the whole of its window, and a bit beyond, because
it is not known exactly when the window ended. By then one or two later samples may have come: they wait.

A comparison counts for some time. After that a pod is as one that has not been compared: it may have changed.

What a source before this one has learned counts until the first comparison, which has to confirm it: else it
is dropped.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from adapter.autoscaler.usage import calibration as calibrations
from adapter.autoscaler.usage.calibration import Calibration, Comparison
from adapter.autoscaler.usage.history import UsageHistory
from adapter.model.learned_usage import MOST_PODS, AgreeingPod, LearnedUsage
from adapter.model.timestamps import SECOND
from adapter.scrape.readings import ScrapedValue

LONGEST_WINDOW = 600.0
"""The longest window of a container's usage, in seconds, that is compared. It bounds the histories."""

_SHIFT = 15.0
"""By how many seconds a window may be off: the interval of the kubelet's samples."""

BEYOND = 120.0
"""Seconds beyond a window for which usage is kept, and for which a comparison counts."""

_MOST_WAITING = 4


class _Sample(NamedTuple):
    """The usage of a container over the window before a time, which is seconds since the epoch."""

    time: float
    usage: int


@dataclass(slots=True)
class _ComparedPod:
    """A pod by its start time; `seen` is the last sample of its container, in nanoseconds."""

    started: int | None
    history: UsageHistory = field(default_factory=UsageHistory)
    seen: int = 0
    waiting: tuple[_Sample, ...] = ()
    until: float = 0.0
    """Until when its last comparison counts, in monotonic seconds."""


class ComparedPods:
    """The pods of one workload. `least` is the smallest usage, in thousandths, that shows a ratio."""

    def __init__(self, least: float) -> None:
        self.calibration: Calibration = calibrations.UNKNOWN
        self._least = least
        self._pods: dict[str, _ComparedPod] = {}
        self._adopted: dict[str, AgreeingPod] | None = None
        """The pods that agreed before, while what was learned before is not confirmed."""

    def clear(self) -> None:
        self.calibration, self._adopted = calibrations.UNKNOWN, None
        self._pods.clear()

    def adopt(self, learned: LearnedUsage) -> None:
        """Go on with what was learned before."""
        self.calibration, self._adopted = Calibration(learned.ratios), dict(learned.pods)

    def agreeing(self, now: float, wall: float) -> dict[str, AgreeingPod]:
        """Return pods that agree, those that were compared last first; clocks in seconds."""
        names = sorted(self._pods, key=lambda name: (-self._pods[name].until, name))
        agreeing = [(name, self._pods[name]) for name in names if self.agrees(name, now)]
        return {name: AgreeingPod(pod.started, wall + pod.until - now) for name, pod in agreeing[:MOST_PODS]}

    def keep(self, names: Collection[str]) -> None:
        """Forget all other pods."""
        gone = [name for name in self._pods if name not in names]
        if gone:
            self.calibration = calibrations.without(self.calibration, gone)
        for name in gone:
            del self._pods[name]

    def add(
        self, name: str, started: int | None, value: ScrapedValue, window: float, now: float, wall: float
    ) -> None:
        """Take the own usage of a pod; containers are measured over `window` seconds."""
        pod = self._pods.get(name)
        if pod is None or pod.started != started:
            pod = self._pods[name] = _ComparedPod(started)
            before = (self._adopted or {}).get(name)
            if before is not None and before.started == started:
                pod.until = now + min(before.until - wall, window + BEYOND)
        pod.history.add(value.time, value.value, min(window, LONGEST_WINDOW) + BEYOND)

    def sample(self, usages: Iterable[tuple[str, int | None]], times: Mapping[str, int]) -> None:
        """Take samples of containers: their usage in thousandths, and their times in nanoseconds."""
        for name, usage in usages:
            pod, time = self._pods.get(name), times.get(name)
            if pod is None or time is None or time <= pod.seen:
                continue
            pod.seen = time
            if usage is not None:
                pod.waiting = (*pod.waiting, _Sample(time / SECOND, usage))[-_MOST_WAITING:]

    def first_due(self, window: float) -> float:
        """Return when the first window of a container can be known (epoch seconds), infinite if it cannot."""
        shift = min(_SHIFT, window / 4)
        return min((pod.history.begun for pod in self._pods.values()), default=math.inf) + window + 2 * shift

    def compare(self, window: float, lag: float, now: float) -> bool:
        """Compare the samples whose windows are known, and tell whether there were any.

        A rate is as of `lag` seconds before its time.
        """
        shift = min(_SHIFT, window / 4)
        comparisons: list[Comparison] = []
        for name, pod in self._pods.items():
            while pod.waiting and pod.waiting[0].time + lag + shift <= pod.history.latest:
                (time, usage), *rest = pod.waiting
                pod.waiting = tuple(rest)
                end = time + lag
                means = [pod.history.mean(end + by - window, end + by) for by in (-shift, 0.0, shift)]
                known = [mean for mean in means if mean is not None]
                if len(known) == len(means):
                    low, high = min(known), max(known)
                    comparisons.append(Comparison(name, usage, known[1], low, high, self._least))
        if not comparisons:
            return False
        if self._adopted is not None:
            middle = median(self.calibration.ratios)
            if not all(comparison.agrees(middle) for comparison in comparisons):
                self.calibration = calibrations.UNKNOWN
            self._adopted = None
        self.calibration = calibrations.follow(self.calibration, comparisons)
        if self.calibration.ratios:
            for comparison in comparisons:
                self._pods[comparison.pod].until = now + window + BEYOND
        return True

    def agrees(self, name: str, now: float) -> bool:
        """Tell whether a pod was compared lately, and agrees with the usage of its container."""
        return now <= self._pods[name].until and not self.is_apart(name)

    def is_apart(self, name: str) -> bool:
        """Tell whether the last comparison of a pod contradicts what it exposes."""
        return name in self.calibration.apart
