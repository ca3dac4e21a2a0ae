"""The sources of metrics: what one metric of one autoscaler reads at a decision.

A polled source turns the answer of a feed into a reading. Others read scrapes (`scraped`), or the usage that
pods expose (`usage.source`). Before the first answer a metric is unknown, and never zero.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from adapter.autoscaler.decide.observation import (
    NOT_YET,
    ExternalReading,
    ObjectReading,
    PodsReading,
    Reading,
    Unavailable,
    read_usage,
)
from adapter.autoscaler.inputs.feed import OLDEST, Feed, LeastReady, SourceAnswer, fresh_values, ready_then
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.interfaces import Key
from adapter.model.coherence import heavier_cut, incoherent_pods
from adapter.model.learned_usage import LearnedUsage
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.pods import PodFacts
from adapter.model.timestamps import SECOND

_NOT_YET = "no answer yet"


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The autoscaler of a source: its period in seconds, its pod selector, and its pods' names."""

    key: Key
    period: float
    selector: LabelSelector
    names: Callable[[], tuple[str, ...]]


class ReadContext(msgspec.Struct, frozen=True):
    """What a reading depends on beside its source: pods and clocks (nanoseconds, monotonic seconds).

    `became_ready` is when pods became ready lately, by name, in monotonic seconds. `learned` is what sources
    before this one have learned of the target, by resource and container; the source keeps it up to date.
    """

    pods: Sequence[PodFacts]
    least_ready: LeastReady
    now: int
    monotonic: float
    became_ready: Mapping[str, float] = {}
    learned: MutableMapping[str, LearnedUsage] | None = None

    def cut(self, reading: PodsReading, find_sampled: Callable[[], Mapping[str, float]]) -> PodsReading:
        """Return a reading without the values that are not of one cut.

        `find_sampled` returns when each pod was sampled, in monotonic seconds. A pod whose sample has no
        known time is left as it is. One that terminates or has ended delays no other: it does not count, and
        it is not sampled again.
        """
        values, became_ready = reading.values, self.became_ready
        if became_ready.keys().isdisjoint(values.keys()):
            return reading
        sampled = find_sampled()
        present = {
            pod.name: sampled[pod.name]
            for pod in self.pods
            if pod.name in values and pod.name in sampled and pod.phase == "Running" and not pod.deleting
        }
        names = incoherent_pods(present, became_ready)
        if not names:
            return reading
        return replace(
            reading,
            values={name: value for name, value in values.items() if name not in names},
            left_out={name: values[name] for name in names},
            other_cut=tuple(sorted(heavier_cut(values, present, became_ready, names))),
        )


@dataclass(slots=True, eq=False)
class MetricSource:
    """What one metric of one autoscaler is read from.

    A reading sets the time of its oldest sample, and the nanoseconds that a sample covers and that pass until
    the next; None if unknown. `fault` is why a scrape fails, "" if none does; that of a pod that starts does
    not count.
    """

    sampled: int | None = field(default=None, init=False)
    span: int | None = field(default=None, init=False)
    fault: str = field(default="", init=False)

    def read(self, context: ReadContext) -> Reading:
        """Return the value as it is known now, from memory."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop what runs for this source alone."""


# -- polled --------------------------------------------------------------------------------------------------

ReadAnswer = Callable[[SourceAnswer, int | None, ReadContext, str], Reading]
"""Returns the reading of an answer whose samples last for some nanoseconds, None if that is not known. The
text says why it may be out of date, "" if it is not."""


def pods_reading(answer: SourceAnswer, lasts: int | None, context: ReadContext, late: str) -> Reading:
    fresh = fresh_values(answer, lasts, context.now)
    if not fresh.values:
        return _nothing(answer, "custom")
    return PodsReading(fresh.values, overdue=late or answer.overdue or fresh.overdue)


def object_reading(answer: SourceAnswer, lasts: int | None, context: ReadContext, late: str) -> Reading:
    fresh = fresh_values(answer, lasts, context.now)
    if len(fresh.values) != 1:
        return _nothing(answer, "custom")
    (value,) = fresh.values.values()
    then = ready_then(fresh.time, answer.lookback, lasts, context.now, context.least_ready)
    return ObjectReading(value, then, late or answer.overdue or fresh.overdue)


def series_reading(answer: SourceAnswer, lasts: int | None, context: ReadContext, late: str) -> Reading:
    """Return the reading of an external metric; if one series is too old, the sum would lack a part."""
    if not answer.series:
        return _nothing(answer, "external")
    fresh = fresh_values(answer._replace(values=dict.fromkeys(answer.times, 0)), lasts, context.now)
    is_unknown = not answer.times and answer.oldest is not None
    if is_unknown or len(fresh.values) < len(answer.times):
        return _stale("external")
    then = ready_then(fresh.time, answer.lookback, lasts, context.now, context.least_ready)
    return ExternalReading(answer.series, then, late or answer.overdue or fresh.overdue)


def resource_reading(
    resource: str, container: str, answer: SourceAnswer, lasts: int | None, context: ReadContext, late: str
) -> Reading:
    """Return the reading of a resource metric of pods, or of one container in each."""
    names = {pod.name for pod in context.pods}
    overdue = late or answer.overdue
    if not answer.trusted:
        usages = answer._replace(values={item.metadata.name: 0 for item in answer.items})
        fresh = fresh_values(usages, lasts, context.now)
        if usages.values and not fresh.values:
            return _stale("resource")
        names &= fresh.values.keys()
        overdue = overdue or fresh.overdue
    oldest = context.now - OLDEST
    recent = [
        item
        for item in answer.items
        if item.metadata.name in names and (item.timestamp is None or item.timestamp >= oldest)
    ]
    reading = read_usage(recent, resource, container)
    if isinstance(reading, PodsReading) and overdue:
        return PodsReading(reading.values, reading.samples, overdue)
    return reading


def _nothing(answer: SourceAnswer, api: str) -> Unavailable:
    if answer.values or answer.series:
        return _stale(api)
    return Unavailable("NoMetrics", f"no metrics returned from {api} metrics API")


def _stale(api: str) -> Unavailable:
    return Unavailable("Stale", f"no metrics returned from {api} metrics API: all samples are too old")


@dataclass(slots=True, eq=False)
class PolledSource(MetricSource):
    """A metric with a feed; `api` is the metrics API that error messages name."""

    feed: Feed
    poller: Poller
    key: Key
    api: str
    read_answer: ReadAnswer

    @property
    def times(self) -> Mapping[str, int]:
        """The times of the oldest samples of the last answer."""
        return {} if self.feed.answer is None else self.feed.answer.times

    def sample_times(self, context: ReadContext) -> dict[str, float]:
        """Return these times in monotonic seconds."""
        return {name: context.monotonic - (context.now - time) / SECOND for name, time in self.times.items()}

    def close(self) -> None:
        self.poller.drop(self.key, self.feed)

    def read(self, context: ReadContext) -> Reading:
        self.sampled, self.span = min(self.times.values(), default=None), self._find_span()
        answer, late, error = self.feed.state(context.monotonic)
        if answer is None:
            reason = NOT_YET if self.feed.polled is None and not error else "NotAnswered"
            return Unavailable(
                reason, f"unable to fetch metrics from {self.api} metrics API: {error or _NOT_YET}"
            )
        aged = context
        if late:
            # A late answer does not scale down anyway. Its samples are not too old because no poll came.
            aged = replace(aged, now=aged.now - round(self.feed.overdue(context.monotonic) * SECOND))
        if not answer.trusted:
            # Prometheus evaluates at our clock's time. If that was set back, old samples would look new.
            aged = replace(aged, now=max(aged.now, self.feed.interval.newest))
        reading = self.read_answer(answer, self.feed.interval.lasts, aged, late)
        if self.api == "custom" and isinstance(reading, PodsReading):
            return context.cut(reading, lambda: self.sample_times(context))
        return reading

    def _find_span(self) -> int | None:
        """Return the nanoseconds that a sample covers: its window and the interval to the next."""
        answer, interval = self.feed.answer, self.feed.interval.known
        if answer is None or interval is None or answer.lookback is None:
            return None
        return interval + answer.lookback


@dataclass(slots=True, eq=False)
class InvalidMetric(MetricSource):
    """A metric with an invalid selector, which has no value."""

    why: Unavailable

    def read(self, _: ReadContext) -> Reading:
        return self.why
