"""The kinds of metric sources: what one metric of one autoscaler reads at a decision.

A polled source turns the answer of a feed into a reading. A scraped source reads the scrapes of the pods, and
falls back to Prometheus for pods without one. Before the first answer a metric is unknown, and never zero.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.metrics.feed import OLDEST, Feed, LeastReady, SourceAnswer, fresh_values, ready_then
from adapter.autoscaler.metrics.polling import Poller
from adapter.config.rules_config import OnNaN
from adapter.model.coherence import heavier_cut, incoherent_pods
from adapter.model.label_selectors import LabelSelector
from adapter.model.learned_usage import LearnedUsage
from adapter.model.pods import PodFacts
from adapter.model.timestamps import SECOND, span_of
from adapter.rules.matchers import Matcher
from adapter.rules.query import Dropped, milli_of
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.readings import ScrapedAnswer, ScrapedEntry

_NOT_YET = "no answer yet"
_FETCHING = "unable to fetch metrics from custom metrics API"
_TOO_LARGE = "beyond 9.2e15, the limit of a quantity"


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The autoscaler of a source: its period in seconds, its pod selector, and its pods' names."""

    key: Key
    period: float
    selector: LabelSelector
    names: Callable[[], tuple[str, ...]]

    @property
    def namespace(self) -> str:
        return self.key.namespace


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

    def cut(self, reading: PodsReading, sampled: Mapping[str, float]) -> PodsReading:
        """Return a reading without the values that are not of one cut; `sampled` is in monotonic seconds.

        A pod whose sample has no known time is left as it is. One that terminates or has ended delays no
        other: it does not count, and it is not sampled again.
        """
        values, became_ready = reading.values, self.became_ready
        if became_ready.keys().isdisjoint(values.keys()):
            return reading
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
class PolledSource:
    """A metric with a feed; `api` is the metrics API that error messages name."""

    feed: Feed
    poller: Poller
    key: Key
    api: str
    read_answer: ReadAnswer

    @property
    def sampled(self) -> int | None:
        """The time of the oldest sample; None if unknown."""
        answer = self.feed.answer
        return min(answer.times.values()) if answer is not None and answer.times else None

    @property
    def span(self) -> int | None:
        """The nanoseconds that a sample covers: its window and the interval to the next; None if unknown."""
        answer, interval = self.feed.answer, self.feed.interval.known
        if answer is None or interval is None or answer.lookback is None:
            return None
        return interval + answer.lookback

    def close(self) -> None:
        self.poller.drop(self.key, self.feed)

    def read(self, context: ReadContext) -> Reading:
        answer, late, error = self.feed.state(context.monotonic)
        if answer is None:
            reason = NOT_YET if self.feed.polled is None and not error else "NotAnswered"
            return Unavailable(
                reason, f"unable to fetch metrics from {self.api} metrics API: {error or _NOT_YET}"
            )
        if late:
            # A late answer does not scale down anyway. Its samples are not too old because no poll came.
            context = replace(context, now=context.now - round(self.feed.overdue(context.monotonic) * SECOND))
        if not answer.trusted:
            # Prometheus evaluates at our clock's time. If that was set back, old samples would look new.
            context = replace(context, now=max(context.now, self.feed.interval.newest))
        return self.read_answer(answer, self.feed.interval.lasts, context, late)


class PodsSource(PolledSource):
    """A metric of pods; `read_all` returns the values of all pods, whether or not they are of one cut."""

    __slots__ = ()
    read_all = PolledSource.read

    def read(self, context: ReadContext) -> Reading:
        reading = self.read_all(context)
        if not isinstance(reading, PodsReading) or not context.became_ready:
            return reading
        return context.cut(reading, self.sample_times(context))

    def sample_times(self, context: ReadContext) -> dict[str, float]:
        """Return when each pod was sampled, in monotonic seconds; without those that are not known."""
        times = {} if self.feed.answer is None else self.feed.answer.times
        return {name: context.monotonic - (context.now - time) / SECOND for name, time in times.items()}


@dataclass(slots=True, eq=False)
class InvalidMetric:
    """A metric with an invalid selector, which has no value."""

    why: Unavailable
    sampled: int | None = None
    span: int | None = None

    def read(self, _: ReadContext) -> Reading:
        return self.why

    def close(self) -> None:
        pass


# -- scraped -------------------------------------------------------------------------------------------------


_Polled = TypeVar("_Polled", bound=PolledSource)


@dataclass(slots=True, eq=False)
class ScrapedSource(Generic[_Polled]):
    """A scraped metric; `open_feed` polls Prometheus, which answers where no scrape is available."""

    metric: str
    subscriber: Subscriber
    open_feed: Callable[[], _Polled]
    fallback: _Polled | None = field(default=None, init=False)
    scrape_fault: str = field(default="", init=False)
    """Why a scrape fails, "" if none does; that of a pod that starts does not count."""

    def polled(self) -> _Polled:
        if self.fallback is None:
            self.fallback = self.open_feed()
        return self.fallback

    def close(self) -> None:
        """Stop polling; those that began the scrapes end them."""
        if self.fallback is not None:
            self.fallback.close()
            self.fallback = None


@dataclass(slots=True, eq=False)
class ScrapedPodsSource(ScrapedSource[PodsSource]):
    """A metric of scraped pods; Prometheus answers for pods without a scrape."""

    scraped: ScrapedValues
    matchers: tuple[Matcher, ...]
    """Those of the selector of the metric."""
    sampled: int | None = None
    span: int | None = None
    """The time of the oldest sample, and the nanoseconds that one covers."""

    def read(self, context: ReadContext) -> Reading:
        """Return the scraped values, and Prometheus' for pods without one."""
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.entry_of(self.metric)
        if entry is None:
            polled, self.scrape_fault = self.polled(), ""
            reading = polled.read(context)
            self.sampled, self.span = polled.sampled, polled.span
            return reading
        self.span = self.scraped.span_of(entry)
        names = [pod.name for pod in context.pods]
        look = self.scraped.read(entry, self.subscriber.key.namespace, names, self.matchers)
        self.scrape_fault = look.fault
        read = self._read_values(entry, look)
        if isinstance(read, Unavailable):
            return read
        values, overdue = read
        # An overdue value may raise the count, never lower it: the decision is told which pods have one.
        late_pods = {name for name in values if look.values[name].overdue}
        times: list[int] = [span_of(time) for _, time, _ in look.values.values()]
        if missing := [
            pod.name
            for pod in context.pods
            if pod.name not in look.values and pod.phase == "Running" and not pod.deleting
        ]:
            polled_values, late = self._fill(missing, look.absent, context)
            values |= polled_values
            times += [time for name, time in self._times_polled().items() if name in polled_values]
            # Such a pod has no better value, and Prometheus' is older than a scrape.
            unseen = next((name for name in polled_values if name in look.unseen), None)
            if unseen is not None:
                late = f"{unseen} is not scraped now, using Prometheus{self._why(entry, unseen)}"
            elif late and look.fault:
                late = f"{late}; not scraped: {look.fault}"
            late_pods |= polled_values.keys() if late else set()
            overdue = overdue or late
        # All pods are scraped again. A feed that stays open would poll Prometheus in vain.
        else:
            self.close()
        self.sampled = min(times, default=None)
        if not values:
            if self.fallback is not None and self.fallback.feed.polled is None:
                return self.fallback.read(context)  # neither scraped nor answered yet
            return Unavailable("NoMetrics", self._nothing(entry, look, missing))
        reading = PodsReading(values, {}, overdue, overdue_pods=tuple(sorted(late_pods)))
        return context.cut(reading, self._sample_times(look, context)) if context.became_ready else reading

    def _nothing(self, entry: ScrapedEntry, look: ScrapedAnswer, missing: Sequence[str]) -> str:
        """Return why no pod has a value."""
        text = "no metrics returned from custom metrics API"
        if look.fault:
            return f"{text}; not scraped: {look.fault}"
        unseen = next((name for name in missing if name in look.unseen and self._why(entry, name)), None)
        if unseen is not None:
            return f"{text}; {unseen} is not scraped now{self._why(entry, unseen)}"
        if look.absent.keys() - look.unseen:
            return f"{text}: the scraped pods expose no such series of {entry.series}"
        return text

    def _times_polled(self) -> Mapping[str, int]:
        answer = None if self.fallback is None else self.fallback.feed.answer
        return {} if answer is None else answer.times

    def _sample_times(self, look: ScrapedAnswer, context: ReadContext) -> Mapping[str, float]:
        """Return when each pod was sampled, by Prometheus unless it is scraped, in monotonic seconds."""
        polled = {} if self.fallback is None else self.fallback.sample_times(context)
        return polled | {name: value.time - look.offset for name, value in look.values.items()}

    def _read_values(
        self, entry: ScrapedEntry, look: ScrapedAnswer
    ) -> tuple[dict[str, int], str] | Unavailable:
        """Return the scraped values in thousandths by pod, and why one may be out of date, "" if none is."""
        values: dict[str, int] = {}
        overdue = ""
        nan_is_zero = entry.rule.config.on_nan is OnNaN.ZERO
        for name, (value, _, is_overdue) in look.values.items():
            try:
                milli = milli_of(value, nan_is_zero=nan_is_zero)
            except OverflowError:
                # An error, as through Prometheus and the API: the metric scales neither up nor down.
                which = f"the value of {entry.rule.config.path} for {name}"
                return Unavailable("InvalidValue", f"{_FETCHING}: {which} is {_TOO_LARGE}")
            if not isinstance(milli, Dropped):
                values[name] = milli
                if is_overdue:
                    overdue = f"the scrape of {name} is overdue{self._why(entry, name)}"
        return values, overdue

    def _why(self, entry: ScrapedEntry, name: str) -> str:
        """Return why a pod is not scraped, as the end of a sentence, "" if unknown."""
        reason = self.scraped.reason_of(entry, self.subscriber.key.namespace, name)
        return f": {reason}" if reason else ""

    def _fill(
        self, missing: Sequence[str], absent: Mapping[str, float], context: ReadContext
    ) -> tuple[dict[str, int], str]:
        """Return Prometheus' values for pods without a scraped one, and why these may be out of date.

        A sample counts only if it is newer than the last scrape of its pod.
        """
        polled = self.polled()
        reading = polled.read_all(context)
        answer = polled.feed.answer
        if not isinstance(reading, PodsReading) or answer is None:
            return {}, ""
        values = {
            name: reading.values[name]
            for name in missing
            if name in reading.values
            and (name not in absent or answer.times.get(name, 0) > absent[name] * SECOND)
        }
        return values, reading.overdue if values else ""
