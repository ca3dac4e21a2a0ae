"""CPU and memory as the pods themselves expose them, beside the usage of their containers.

The usage of containers is 15 to 60 s old when it arrives. What a pod tells of its own process is a second
old, but it is not the same: `calibration` says whether it counts, and by which factor. The reading has both.
The decision takes the one that asks for more replicas, so the pods' own values raise the count at once, and
lower it only when the containers' usage agrees.

Whatever a pod tells is bounded:

- by the limit of its container;
- by the highest of the pods whose container has been compared, for one that has not been;
- by its container's usage, for one that differs from the others (`Calibration.apart`).

A difference that chance explains (`noise`) does not count either: the containers' usage is steadier.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from adapter.autoscaler.decide.observation import FastUsage, PodsReading, Reading, Unavailable
from adapter.autoscaler.metrics.feed import ASSUMED_WINDOW, SourceAnswer
from adapter.autoscaler.metrics.sources import PolledSource, ReadContext, Subscriber
from adapter.autoscaler.usage import calibration as calibrations
from adapter.autoscaler.usage import containers
from adapter.autoscaler.usage.calibration import Calibration, Comparison, Verdict
from adapter.autoscaler.usage.history import UsageHistory
from adapter.autoscaler.usage.noise import Noise
from adapter.model.autoscaling.hpa import PodMetrics
from adapter.model.timestamps import SECOND, span_of
from adapter.rules.registry import UsageEntry
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.targets import ScrapedValue, window_of

_SHIFT = 15.0
"""By how many seconds the window of a container's usage may be off: the interval of the kubelet's samples."""

_STEADY = 1.05
"""How much the means over the shifted windows may differ, as a ratio, for a comparison."""

_LATEST = 120.0
"""Seconds for which the counters of pods are kept beyond the window of the containers' usage."""

_LEAST: Mapping[str, int] = {"cpu": 20, "memory": 1024 * 1024 * 1000}
"""The least usage of a container that is compared, in thousandths: below it, the rest of the pod weighs."""

_MOST = 2.0**62
"""A usage beyond it, in thousandths, is none."""

_COUNTS = "the usage that the pods expose may raise the count"
_NO_MORE = "the own usage of pods exceeds that of their containers by no more than chance explains"

NOT_SCRAPED = Verdict(None, "NotScraped")
"""No rule scrapes the resource from pods."""


@dataclass(slots=True)
class _OwnPod:
    """What is known of a pod's own usage, with the pod's start time.

    `seen` is the time of the last sample of its container, and `compared` says whether one was compared.
    """

    history: UsageHistory
    started: int | None
    seen: int = 0
    compared: bool = False


@dataclass(slots=True, eq=False)
class OwnUsageSource:
    """The usage of a resource by pods, or by one container in each (`container`)."""

    slow: PolledSource
    scraped: ScrapedValues
    subscriber: Subscriber
    resource: str
    container: str
    calibration: Calibration = calibrations.UNKNOWN
    verdict: Verdict = NOT_SCRAPED
    """Whether the pods' own values count, and why not."""
    why: str = ""
    """Why there is no faster reading, "" if there is one or no rule scrapes the resource."""
    sampled: int | None = None
    span: int | None = None
    """Those of the pods' own values if these count."""
    _pods: dict[str, _OwnPod] = field(default_factory=dict)
    _noise: Noise | None = None
    _answer: SourceAnswer | None = None
    _items: Mapping[str, PodMetrics] = field(default_factory=dict)
    """The usages of the last answer, by pod."""

    @property
    def condition(self) -> FastUsage | None:
        """Whether the pods' own values count; None if no rule scrapes the resource."""
        ratio, reason, why = self.verdict
        if reason == NOT_SCRAPED.reason:
            return None
        return FastUsage(ratio is not None, reason, why or _COUNTS)

    def close(self) -> None:
        self.slow.close()

    def read(self, context: ReadContext) -> Reading:
        reading = self.slow.read(context)
        self.sampled, self.span = self.slow.sampled, self.slow.span
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.usage_of(self.resource)
        if entry is None:
            self._pods.clear()
            self.calibration, self.verdict, self._noise = calibrations.UNKNOWN, NOT_SCRAPED, None
            self.why = ""
            return reading
        if self.slow.feed.answer is not self._answer:
            self._answer = self.slow.feed.answer
            items = () if self._answer is None else self._answer.items
            self._items = {item.metadata.name: item for item in items}
        own = self._read_own(entry, context)
        self._compare(entry, own, context)
        self.verdict = self._judge(entry, own, context)
        self.why = self.verdict.why
        if self.verdict.ratio is None:
            return reading
        faster = self._faster(entry, own, self.verdict.ratio, reading, context)
        self.why = self._why_not(faster, reading)
        if self.why:
            return reading
        self.sampled = span_of(min(value.time for value in own.values()))
        self.span = self.scraped.span_of(entry)
        if isinstance(reading, Unavailable):
            return PodsReading({}, overdue=reading.message, faster=faster)
        assert isinstance(reading, PodsReading), "a resource is read of pods"
        return msgspec.structs.replace(reading, faster=faster)

    # -- the pods' own usage ---------------------------------------------------------------------------------

    def _read_own(self, entry: UsageEntry, context: ReadContext) -> dict[str, ScrapedValue]:
        """Return the own usage of each pod in thousandths, and add it to its history."""
        started = {pod.name: pod.started for pod in context.pods}
        look = self.scraped.read(entry, self.subscriber.namespace, started, ())
        own: dict[str, ScrapedValue] = {}
        for name, value in look.values.items():
            milli = value.value * 1000.0
            if not 0.0 <= milli <= _MOST:  # nor NaN
                continue
            own[name] = value._replace(value=milli)
            pod = self._pods.get(name)
            if pod is None or pod.started != started[name]:
                pod = self._pods[name] = _OwnPod(UsageHistory(self._window() + _LATEST), started[name])
            pod.history.add(value.time, milli)
        if gone := self._pods.keys() - started.keys():
            self.calibration = calibrations.without(self.calibration, gone)
            for name in gone:
                del self._pods[name]
        if self._noise is None:
            self._noise = Noise(max(window_of(entry), 1.0))
        if known := [value for name, value in own.items() if name not in self.calibration.apart]:
            self._noise.add(
                min(value.time for value in known), sum(value.value for value in known) / len(known)
            )
        return own

    def _agrees(self, name: str) -> bool:
        """Tell whether what a pod tells was compared with its container's usage, and was close to it."""
        return self._pods[name].compared and name not in self.calibration.apart

    # -- the comparison --------------------------------------------------------------------------------------

    def _window(self) -> float:
        """Return the seconds that the usage of a container covers."""
        answer = self._answer
        return (ASSUMED_WINDOW if answer is None or not answer.lookback else answer.lookback) / SECOND

    def _compare(self, entry: UsageEntry, own: Mapping[str, ScrapedValue], context: ReadContext) -> None:
        """Compare what came since the last time."""
        times = {} if self._answer is None else self._answer.times
        comparisons: list[Comparison] = []
        for pod in context.pods:
            known, time = self._pods.get(pod.name), times.get(pod.name)
            if known is None or time is None or time <= known.seen or pod.name not in own:
                continue
            item = self._items.get(pod.name)
            usage = (
                None
                if item is None
                else containers.usage_of(item, self.resource, containers.container_of(pod, entry))
            )
            if usage is None or usage < _LEAST.get(self.resource, 0):
                known.seen = time
                continue
            means = self._means(known.history, time / SECOND, window_of(entry) / 2)
            if means is None:
                continue  # it may be known later
            known.seen = time
            if max(means) <= _STEADY * min(means) and means[1] > 0.0:
                comparisons.append(Comparison(pod.name, float(usage), means[1]))
                known.compared = True
        self.calibration = calibrations.follow(self.calibration, comparisons)

    def _means(self, history: UsageHistory, end: float, lag: float) -> tuple[float, float, float] | None:
        """Return the pod's own means over the window of a container's usage, shifted back, as it is, and on.

        A rate is as of the middle of its window, `lag` seconds before its time.
        """
        window = self._window()
        shift = min(_SHIFT, window / 4)
        means = [history.mean(end + lag + by - window, end + lag + by) for by in (-shift, 0.0, shift)]
        early, middle, late = means
        return None if early is None or middle is None or late is None else (early, middle, late)

    def _judge(self, entry: UsageEntry, own: Mapping[str, ScrapedValue], context: ReadContext) -> Verdict:
        """Return whether the pods' own values count."""
        path = entry.rule.path
        if not own:
            namespace = self.subscriber.namespace
            reasons = (self.scraped.reason_of(entry, namespace, pod.name) for pod in context.pods)
            why = next(filter(None, reasons), "")
            return Verdict(
                None, "NotExposed", f"no pod exposes the series of {path}" + (f": {why}" if why else "")
            )
        verdict = calibrations.judge(self.calibration, path)
        if verdict.ratio is not None and not any(map(self._agrees, own)):
            why = f"{path} of no pod that runs now has been compared with its container's usage"
            return Verdict(None, "NotCompared", why)
        return verdict

    # -- the reading -----------------------------------------------------------------------------------------

    def _faster(
        self,
        entry: UsageEntry,
        own: Mapping[str, ScrapedValue],
        ratio: float,
        slow: Reading,
        context: ReadContext,
    ) -> PodsReading | None:
        """Return the reading of the pods' own usages, None if it is of another container than the metric."""
        before = slow if isinstance(slow, PodsReading) else PodsReading({})
        most = ratio * max(value.value for name, value in own.items() if self._agrees(name))
        values: dict[str, int] = {}
        samples: dict[str, tuple[int, int]] = {}
        window = span_of(window_of(entry))
        overdue = ""
        others = containers.usage_of_others(self._items, context.pods, entry, self.resource)
        for pod in context.pods:
            name, value = pod.name, own.get(pod.name)
            container = containers.container_of(pod, entry)
            if self.container and self.container != container:
                return None
            rest = 0 if self.container or containers.is_alone(pod) else others.get(name, others.get(""))
            if value is None or name in self.calibration.apart or rest is None:
                if name in before.values:
                    values[name] = before.values[name]
                    samples[name] = before.samples.get(name, (0, 0))
                continue
            used = ratio * value.value if self._agrees(name) else min(ratio * value.value, most)
            values[name] = math.ceil(min(used, containers.limit_of(pod, container, self.resource))) + rest
            samples[name] = (span_of(value.time), window)
            if value.overdue:
                overdue = f"the scrape of {name} is overdue"
        return PodsReading(values, samples, overdue)

    def _why_not(self, faster: PodsReading | None, slow: Reading) -> str:
        """Return why a reading of the own usages does not count, "" if it does."""
        if faster is None:
            return "the own usage of pods is that of another container"
        share = None if self._noise is None else self._noise.share
        if share is None:
            return "how much the own usage of pods varies by chance is not known yet"
        if not isinstance(slow, PodsReading):
            return ""
        both = faster.values.keys() & slow.values.keys()
        now, before = (sum(reading.values[name] for name in both) for reading in (faster, slow))
        return "" if not both or now - before > share * before else _NO_MORE
