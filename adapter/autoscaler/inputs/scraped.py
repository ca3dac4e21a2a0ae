"""Metrics that are scraped, from pods or from endpoints: Prometheus answers where no scrape is available.

Both kinds read scrapes from memory. A feed is open only while Prometheus has to answer, and a sample of
Prometheus counts only if it is newer than the last scrape.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from adapter.autoscaler.decide.observation import ExternalReading, PodsReading, Reading, Unavailable
from adapter.autoscaler.inputs.feed import ready_then
from adapter.autoscaler.inputs.sources import MetricSource, PolledSource, ReadContext, Subscriber
from adapter.config.rules_config import OnNaN
from adapter.errors import NamingError, UnsupportedSelectorError
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.timestamps import SECOND, span_of
from adapter.provider import rule_queries
from adapter.rules.matchers import Matcher
from adapter.rules.query import OVERFLOW, TOO_LARGE, Dropped
from adapter.rules.registry import ExternalEntry
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.readings import EndpointReading, ScrapedAnswer, ScrapedEntry


@dataclass(slots=True, eq=False)
class ScrapedSource(MetricSource):
    """A scraped metric; `open_feed` polls Prometheus."""

    metric: str
    subscriber: Subscriber
    open_feed: Callable[[], PolledSource]
    scraped: ScrapedValues
    fallback: PolledSource | None = field(default=None, init=False)

    def polled(self) -> PolledSource:
        if self.fallback is None:
            self.fallback = self.open_feed()
        return self.fallback

    def read_polled(self, context: ReadContext) -> Reading:
        """Return what Prometheus says alone."""
        polled = self.polled()
        reading = polled.read(context)
        self.sampled, self.span = polled.sampled, polled.span
        return reading

    def close(self) -> None:
        """Stop polling; those that began the scrapes end them."""
        if self.fallback is not None:
            self.fallback.close()
            self.fallback = None


def _convert(
    entry: ScrapedEntry, shown: Iterable[tuple[Any, float]], api: str, which: str
) -> dict[Any, int] | Unavailable:
    """Return thousandths without a NaN and the like; a value beyond 64 bits makes the metric unavailable.

    It is an error, as through Prometheus and the API: the metric scales neither up nor down.
    """
    values: dict[Any, int] = {}
    for source, value in shown:
        milli = entry.rule.milli(value)
        if milli is OVERFLOW:
            text = f"{which.format(path=entry.rule.config.path, source=source)} is {TOO_LARGE}"
            return Unavailable("InvalidValue", f"unable to fetch metrics from {api} metrics API: {text}")
        if not isinstance(milli, Dropped):
            values[source] = milli
    return values


@dataclass(slots=True, eq=False)
class ScrapedPodsSource(ScrapedSource):
    """A metric of scraped pods; Prometheus answers for pods without a scrape."""

    matchers: tuple[Matcher, ...]
    """Those of the selector of the metric."""

    def read(self, context: ReadContext) -> Reading:
        """Return the scraped values, and Prometheus' for pods without one."""
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.entry_of(self.metric)
        if entry is None:
            self.fault = ""
            return self.read_polled(context)
        names = [pod.name for pod in context.pods]
        look = self.scraped.read(entry, self.subscriber.key.namespace, names, self.matchers)
        self.fault, self.span = look.fault, self.scraped.span_of(entry)
        shown = ((name, value.value) for name, value in look.values.items())
        values = _convert(entry, shown, "custom", "the value of {path} for {source}")
        if isinstance(values, Unavailable):
            return values
        # An overdue value may raise the count, never lower it: the decision is told which pods have one.
        late = [name for name in values if look.values[name].overdue]
        overdue = f"the scrape of {late[-1]} is overdue{self._why(entry, late[-1])}" if late else ""
        times: list[int] = [span_of(value.time) for value in look.values.values()]
        if missing := [
            pod.name
            for pod in context.pods
            if pod.name not in look.values and pod.phase == "Running" and not pod.deleting
        ]:
            polled = self.polled()
            filled, why = self._fill(polled, entry, look, missing, context)
            values |= filled
            late += filled if why else ()
            overdue = overdue or why
            times += [time for name, time in polled.times.items() if name in filled]
        elif self.fallback is not None:
            self.close()  # a feed that stays open would poll Prometheus in vain
        self.sampled = min(times, default=None)
        if values:
            reading = PodsReading(values, {}, overdue, overdue_pods=tuple(sorted(late)))
            return context.cut(reading, lambda: self._sample_times(look, context))
        if self.fallback is not None and self.fallback.feed.polled is None:
            return self.fallback.read(context)  # neither scraped nor answered yet
        return Unavailable("NoMetrics", self._nothing(entry, look, missing))

    def _fill(
        self,
        polled: PolledSource,
        entry: ScrapedEntry,
        look: ScrapedAnswer,
        missing: Sequence[str],
        context: ReadContext,
    ) -> tuple[dict[str, int], str]:
        """Return Prometheus' values for pods without a scraped one, and why these may be out of date."""
        reading = polled.read(replace(context, became_ready={}))  # the cut is of all values together
        if not isinstance(reading, PodsReading):
            return {}, ""
        values = {
            name: reading.values[name]
            for name in missing
            if name in reading.values
            and (name not in look.absent or polled.times.get(name, 0) > look.absent[name] * SECOND)
        }
        # Such a pod has no better value, and Prometheus' is older than a scrape.
        if unseen := [name for name in values if name in look.unseen]:
            return values, f"{unseen[0]} is not scraped now, using Prometheus{self._why(entry, unseen[0])}"
        late = reading.overdue if values else ""
        return values, f"{late}; not scraped: {look.fault}" if late and look.fault else late

    def _sample_times(self, look: ScrapedAnswer, context: ReadContext) -> dict[str, float]:
        """Return when each pod was sampled, by Prometheus unless it is scraped, in monotonic seconds."""
        polled = {} if self.fallback is None else self.fallback.sample_times(context)
        return polled | {name: value.time - look.offset for name, value in look.values.items()}

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

    def _why(self, entry: ScrapedEntry, name: str) -> str:
        """Return why a pod is not scraped, as the end of a sentence, "" if unknown."""
        reason = self.scraped.reason_of(entry, self.subscriber.key.namespace, name)
        return f": {reason}" if reason else ""


_EMPTY = "no metrics returned from external metrics API"


@dataclass(slots=True, eq=False)
class ScrapedExternalSource(ScrapedSource):
    """An external metric that is scraped from endpoints; Prometheus answers for all of them or none."""

    narrowed: LabelSelector

    def read(self, context: ReadContext) -> Reading:
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.external_entry(self.metric)
        look = None if entry is None else self._look(entry)
        self.fault = "" if look is None else look.fault
        if entry is None or look is None:
            return self.read_polled(context)
        if not look.elements:
            return self._instead(look, context)
        self.close()  # a feed that stays open would poll Prometheus in vain
        self.sampled, self.span = span_of(look.time), self.scraped.span_of(entry)
        shown = enumerate(element.value for element in look.elements)
        values = _convert(entry, shown, "external", "a value of {path}")
        if isinstance(values, Unavailable):
            return values
        if len(values) < len(look.elements) and entry.rule.config.on_nan is not OnNaN.DROP:
            # A sum that lacks a part of unknown size is no value.
            text = (
                f"unable to fetch metrics from external metrics API: a series of {self.metric} has no value"
            )
            return Unavailable("NoMetrics", text)
        if not values:
            return Unavailable("NoMetrics", _EMPTY)
        window = round(self.scraped.covered_seconds(entry) * SECOND)
        then = ready_then(self.sampled, window, None, context.now, context.least_ready)
        return ExternalReading(tuple(values.values()), then, look.overdue)

    def _look(self, entry: ExternalEntry) -> EndpointReading | None:
        """Return what the scrapes say, None if this metric is not scraped for the question."""
        try:
            parts = rule_queries.external_matchers(entry.rule, self.narrowed, self.subscriber.key.namespace)
        except (NamingError, UnsupportedSelectorError):
            return None  # the same for Prometheus, which reports it
        return self.scraped.read_endpoints(entry, parts)

    def _instead(self, look: EndpointReading, context: ReadContext) -> Reading:
        """Return Prometheus' value if its samples are newer than the last scrape, else the reason."""
        reading = self.read_polled(context)
        is_newer = look.last == -math.inf or (self.sampled or 0) > look.last * SECOND
        if isinstance(reading, ExternalReading) and is_newer:
            return reading
        if self.polled().feed.polled is None:
            return reading  # neither scraped nor answered yet
        return Unavailable("NoMetrics", f"{_EMPTY}: {look.reason}")
