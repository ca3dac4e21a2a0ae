"""Compares what each pod exposes with the usage of its container, as samples of the latter come in.

A sample is compared when the pod's own usage is known for the whole of its window, and a bit beyond, because
it is not known exactly when the window ended. By then one or two later samples may have come: they wait.

A comparison counts for some time. After that a pod is as one that has not been compared: it may have changed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.autoscaler.usage import calibration as calibrations
from adapter.autoscaler.usage.calibration import Calibration, Comparison
from adapter.autoscaler.usage.history import UsageHistory
from adapter.model.timestamps import SECOND

LONGEST_WINDOW = 600.0
"""The longest window of a container's usage, in seconds, that is compared. It bounds the histories."""

_SHIFT = 15.0
"""By how many seconds a window may be off: the interval of the kubelet's samples."""

_BEYOND = 120.0
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

    def clear(self) -> None:
        self.calibration = calibrations.UNKNOWN
        self._pods.clear()

    def keep(self, names: Collection[str]) -> None:
        """Forget all other pods."""
        gone = [name for name in self._pods if name not in names]
        if gone:
            self.calibration = calibrations.without(self.calibration, gone)
        for name in gone:
            del self._pods[name]

    def add(self, name: str, started: int | None, time: float, milli: float, window: float) -> None:
        """Take the own usage of a pod; containers are measured over `window` seconds."""
        pod = self._pods.get(name)
        if pod is None or pod.started != started:
            pod = self._pods[name] = _ComparedPod(started)
        pod.history.add(time, milli, min(window, LONGEST_WINDOW) + _BEYOND)

    def sample(self, usages: Iterable[tuple[str, int | None]], times: Mapping[str, int]) -> None:
        """Take samples of containers: their usage in thousandths, and their times in nanoseconds."""
        for name, usage in usages:
            pod, time = self._pods.get(name), times.get(name)
            if pod is None or time is None or time <= pod.seen:
                continue
            pod.seen = time
            if usage is not None:
                pod.waiting = (*pod.waiting, _Sample(time / SECOND, usage))[-_MOST_WAITING:]

    def compare(self, window: float, lag: float, now: float) -> None:
        """Compare the samples whose windows are known. A rate is as of `lag` seconds before its time."""
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
            return
        self.calibration = calibrations.follow(self.calibration, comparisons)
        if self.calibration.ratios:
            for comparison in comparisons:
                self._pods[comparison.pod].until = now + window + _BEYOND

    def agrees(self, name: str, now: float) -> bool:
        """Tell whether a pod was compared lately, and agrees with the usage of its container."""
        return now <= self._pods[name].until and not self.is_apart(name)

    def is_apart(self, name: str) -> bool:
        """Tell whether the last comparison of a pod contradicts what it exposes."""
        return name in self.calibration.apart
