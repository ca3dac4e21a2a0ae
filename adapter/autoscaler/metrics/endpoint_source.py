"""An external metric that is scraped from endpoints; Prometheus answers where no scrape is available."""

from dataclasses import dataclass

from adapter.autoscaler.decide.observation import ExternalReading, Reading, Unavailable
from adapter.autoscaler.metrics.feed import ready_then
from adapter.autoscaler.metrics.sources import PolledSource, ReadContext, ScrapedSource
from adapter.config.rules_config import OnNaN
from adapter.errors import NamingError, UnsupportedSelectorError
from adapter.model.label_selectors import LabelSelector
from adapter.model.timestamps import SECOND, span_of
from adapter.provider import rule_queries
from adapter.rules.query import Dropped, milli_of
from adapter.rules.registry import ExternalEntry
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.readings import EndpointReading

_EMPTY = "no metrics returned from external metrics API"
_FETCHING = "unable to fetch metrics from external metrics API"


@dataclass(slots=True, eq=False)
class ScrapedExternalSource(ScrapedSource[PolledSource]):
    """An external metric as an autoscaler reads it."""

    scraped: ScrapedValues
    narrowed: LabelSelector
    scraped_at: int | None = None

    @property
    def sampled(self) -> int | None:
        """The time of the oldest sample; None if unknown."""
        return self.scraped_at if self.fallback is None else self.fallback.sampled

    @property
    def span(self) -> int | None:
        """The time in nanoseconds that one scrape covers."""
        if self.fallback is not None:
            return self.fallback.span
        entry = self.scraped.external_entry(self.metric)
        return None if entry is None else self.scraped.span_of(entry)

    def read(self, context: ReadContext) -> Reading:
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.external_entry(self.metric)
        look = None if entry is None else self._look(entry)
        self.scrape_fault = "" if look is None else look.fault
        if entry is None or look is None:
            return self.polled().read(context)
        if not look.elements:
            return self._instead(look, context)
        self.close()
        self.scraped_at = span_of(look.time)
        values = []
        rule = entry.rule
        for element in look.elements:
            try:
                milli = milli_of(element.value, nan_is_zero=rule.config.on_nan is OnNaN.ZERO)
            except OverflowError:
                text = f"a value of {rule.config.path} is beyond 9.2e15, the limit of a quantity"
                return Unavailable("InvalidValue", f"{_FETCHING}: {text}")
            if not isinstance(milli, Dropped):
                values.append(milli)
            elif rule.config.on_nan is not OnNaN.DROP:  # a sum that lacks a part of unknown size is no value
                return Unavailable("NoMetrics", f"{_FETCHING}: a series of {self.metric} has no value")
        if not values:
            return Unavailable("NoMetrics", _EMPTY)
        window = round(self.scraped.covered_seconds(entry) * SECOND)
        then = ready_then(self.scraped_at, window, None, context.now, context.least_ready)
        return ExternalReading(tuple(values), then, look.overdue)

    def _look(self, entry: ExternalEntry) -> EndpointReading | None:
        """Return what the scrapes say, None if this metric is not scraped for the question."""
        try:
            parts = rule_queries.external_matchers(entry.rule, self.narrowed, self.subscriber.namespace)
        except (NamingError, UnsupportedSelectorError):
            return None  # the same for Prometheus, which reports it
        return self.scraped.read_endpoints(entry, parts)

    def _instead(self, look: EndpointReading, context: ReadContext) -> Reading:
        """Return Prometheus' value if its samples are newer than the last scrape, else the reason."""
        polled = self.polled()
        reading = polled.read(context)
        answer = polled.feed.answer
        if isinstance(reading, ExternalReading) and answer is not None:
            times = answer.times.values()
            if look.last == float("-inf") or (times and min(times) > look.last * SECOND):
                return reading
        if polled.feed.polled is None:
            return reading  # neither scraped nor answered yet
        return Unavailable("NoMetrics", f"{_EMPTY}: {look.reason}")
