"""CPU and memory as the pods themselves expose them, beside the usage of their containers.

The usage of containers is 15 to 60 s old when it arrives. What a pod tells of its own process is a second
old, but it is not the same: `calibration` says whether it counts, and by which factor. The reading has both.
The decision takes the one that asks for more replicas, so the pods' own values raise the count at once, and
lower it only when the containers' usage agrees.

A pod without a value of its own counts with the usage of its containers, and as missing without that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from adapter.autoscaler.decide.observation import PodsReading, Reading, Unavailable
from adapter.autoscaler.metrics.feed import ASSUMED_WINDOW
from adapter.autoscaler.metrics.sources import PolledSource, ReadContext, Subscriber
from adapter.autoscaler.usage import calibration as calibrations
from adapter.autoscaler.usage.calibration import Calibration, Comparison
from adapter.autoscaler.usage.history import UsageHistory
from adapter.model.autoscaling.hpa import PodMetrics
from adapter.model.pods import PodFacts
from adapter.model.timestamps import SECOND, span_of
from adapter.rules.query import Dropped, milli_of
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


@dataclass(slots=True)
class _OwnPod:
    """What is known of a pod's own usage: its history, and when its container was last compared with it."""

    history: UsageHistory
    compared: int = 0


@dataclass(slots=True, eq=False)
class OwnUsageSource:
    """The usage of a resource by pods, or by one container in each (`container`)."""

    slow: PolledSource
    scraped: ScrapedValues
    subscriber: Subscriber
    resource: str
    container: str
    calibration: Calibration = calibrations.UNKNOWN
    why: str = ""
    """Why the pods' own values do not count, "" if they do or are not scraped."""
    own_sampled: int | None = None
    own_span: int | None = None
    """As `sampled` and `span`, of the pods' own values."""
    _pods: dict[str, _OwnPod] = field(default_factory=dict)

    @property
    def sampled(self) -> int | None:
        """The time of the oldest sample of the containers' usage; None if unknown."""
        return self.slow.sampled

    @property
    def span(self) -> int | None:
        """The nanoseconds that such a sample covers; None if unknown."""
        return self.slow.span

    def close(self) -> None:
        self.slow.close()

    def read(self, context: ReadContext) -> Reading:
        reading = self.slow.read(context)
        self.why = ""
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.usage_of(self.resource)
        if entry is None:
            self._pods.clear()
            self.calibration = calibrations.UNKNOWN
            return reading
        own = self._read_own(entry, context)
        self._compare(entry, own, context)
        verdict = calibrations.judge(self.calibration, entry.rule.path)
        if verdict.ratio is None or not own:
            self.why = verdict.why or f"no pod exposes {entry.rule.path}"
            return reading
        faster = self._faster(entry, own, verdict.ratio, reading, context)
        if faster is None:
            return reading
        self.own_sampled = span_of(min(value.time for value in own.values()))
        self.own_span = self.scraped.span_of(entry)
        if isinstance(reading, PodsReading):
            return msgspec.structs.replace(reading, faster=faster)
        why = reading.message if isinstance(reading, Unavailable) else ""
        return msgspec.structs.replace(faster, overdue=faster.overdue or why)

    # -- the pods' own usage -----------------------------------------------------------------------------------

    def _read_own(self, entry: UsageEntry, context: ReadContext) -> dict[str, ScrapedValue]:
        """Return the own usage of each pod in thousandths, and add it to its history."""
        names = [pod.name for pod in context.pods]
        look = self.scraped.read(entry, self.subscriber.namespace, names, ())
        own: dict[str, ScrapedValue] = {}
        for name, value in look.values.items():
            try:
                milli = milli_of(value.value, nan_is_zero=False)
            except OverflowError:
                continue
            if isinstance(milli, Dropped) or milli < 0:
                continue
            own[name] = value._replace(value=float(milli))
            pod = self._pods.get(name)
            if pod is None:
                pod = self._pods[name] = _OwnPod(UsageHistory(self._window() + _LATEST))
            pod.history.add(value.time, milli)
        if gone := self._pods.keys() - set(names):
            self.calibration = calibrations.without(self.calibration, gone)
            for name in gone:
                del self._pods[name]
        return own

    # -- the comparison ----------------------------------------------------------------------------------------

    def _window(self) -> float:
        """Return the seconds that the usage of a container covers."""
        answer = self.slow.feed.answer
        return (ASSUMED_WINDOW if answer is None or not answer.lookback else answer.lookback) / SECOND

    def _compare(self, entry: UsageEntry, own: Mapping[str, ScrapedValue], context: ReadContext) -> None:
        """Compare what came since the last time."""
        answer = self.slow.feed.answer
        if answer is None:
            return
        pods = {pod.name: pod for pod in context.pods}
        items = {item.metadata.name: item for item in answer.items}
        comparisons: list[Comparison] = []
        for name, known in self._pods.items():
            item, time = items.get(name), answer.times.get(name)
            if item is None or time is None or time <= known.compared or name not in own:
                continue
            container = _container_of(pods[name], entry)
            usage = _usage_of(item, self.resource, container)
            if usage is None or usage < _LEAST.get(self.resource, 0):
                known.compared = time
                continue
            means = self._means(known.history, time / SECOND, window_of(entry) / 2)
            if means is None:
                continue  # it may be known later
            known.compared = time
            if max(means) <= _STEADY * min(means):
                comparisons.append(Comparison(name, float(usage), means[1]))
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

    # -- the reading -------------------------------------------------------------------------------------------

    def _faster(
        self,
        entry: UsageEntry,
        own: Mapping[str, ScrapedValue],
        ratio: float,
        slow: Reading,
        context: ReadContext,
    ) -> PodsReading | None:
        """Return the reading of the pods' own usages, None if it is of another container than the metric."""
        answer = self.slow.feed.answer
        items = {} if answer is None else {item.metadata.name: item for item in answer.items}
        before = slow if isinstance(slow, PodsReading) else PodsReading({})
        values: dict[str, int] = {}
        samples: dict[str, tuple[int, int]] = {}
        window = span_of(window_of(entry))
        overdue = ""
        others = self._others(entry, items, context)
        for pod in context.pods:
            name, value = pod.name, own.get(pod.name)
            container = _container_of(pod, entry)
            if self.container and self.container != container:
                return None
            rest = 0 if self.container or len(pod.containers) == 1 else others.get(name, others.get(""))
            if value is None or name in self.calibration.apart or rest is None:
                if name in before.values:
                    values[name] = before.values[name]
                    samples[name] = before.samples.get(name, (0, 0))
                continue
            values[name] = round(ratio * value.value) + rest
            samples[name] = (span_of(value.time), window)
            if value.overdue:
                overdue = f"the scrape of {name} is overdue"
        return PodsReading(values, samples, overdue) if values else None

    def _others(
        self, entry: UsageEntry, items: Mapping[str, PodMetrics], context: ReadContext
    ) -> dict[str, int]:
        """Return the last usage of each pod's other containers; that of "" is the mean, for new pods."""
        others: dict[str, int] = {}
        for pod in context.pods:
            if len(pod.containers) == 1 or (item := items.get(pod.name)) is None:
                continue
            whole = _usage_of(item, self.resource, "")
            part = _usage_of(item, self.resource, _container_of(pod, entry))
            if whole is not None and part is not None:
                others[pod.name] = whole - part
        if others:
            others[""] = round(sum(others.values()) / len(others))
        return others


def _container_of(pod: PodFacts, entry: UsageEntry) -> str:
    """Return the container that the values are about, "" if it is not known."""
    scrape = entry.rule.config.scrape
    assert scrape is not None, "usages are scraped"
    only = pod.containers[0].name if len(pod.containers) == 1 else ""
    return entry.container or only or pod.port_owners.get(scrape.access.port, "")


def _usage_of(item: PodMetrics, resource: str, container: str) -> int | None:
    """Return the usage of a container, of the whole pod for "", in thousandths; None if a part is unknown."""
    used = [
        None if part.usage is None else part.usage.get(resource)
        for part in item.containers or ()
        if not container or part.name == container
    ]
    known = [quantity.milli for quantity in used if quantity is not None]
    return sum(known) if known and len(known) == len(used) else None
