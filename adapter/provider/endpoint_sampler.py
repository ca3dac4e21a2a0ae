"""The samples of external metrics that are scraped from endpoints, as the metrics API serves them.

An autoscaler adds the samples of an external metric up, so the API serves those of all endpoints or none: an
answer that lacks a part, or is overdue, gives way to a newer one of Prometheus, or is an error.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from adapter.model.metrics import Sample
from adapter.rules.matchers import Matcher
from adapter.rules.registry import ExternalEntry
from adapter.scrape.endpoint_values import EndpointReading, ScrapedEndpoints
from adapter.telemetry.metrics import Monitoring


class ScrapedSeries(NamedTuple):
    """The samples of all endpoints, None if Prometheus is to be asked.

    Then only samples later than `last` (epoch seconds) count, and `reason` says why scrapes have none, "" if
    the metric is not scraped in this process.
    """

    samples: tuple[Sample, ...] | None = None
    last: float = -math.inf
    reason: str = ""


class EndpointSampler:
    """Reads scraped endpoints, and counts where values come from. `endpoints` is None if none is scraped."""

    def __init__(self, endpoints: ScrapedEndpoints | None, monitoring: Monitoring) -> None:
        self._endpoints = endpoints
        self._values = monitoring.scraped_values

    async def read(self, entry: ExternalEntry, parts: Sequence[Matcher]) -> ScrapedSeries:
        """Return the samples of an external metric for the matchers of a question."""
        if self._endpoints is None or entry.rule.scraped is None:
            return ScrapedSeries()
        await self._endpoints.prepare(entry, parts)
        found = self._endpoints.read(entry, parts)
        if found is None:
            return ScrapedSeries()
        if found.elements is None or found.overdue or (not found.elements and math.isinf(found.last)):
            return ScrapedSeries(None, found.last, found.overdue or found.reason)
        self._values.labels("scrape").inc(len(found.elements))
        return ScrapedSeries(_samples(found))

    def count_instead(self, scraped: ScrapedSeries, samples: int) -> None:
        """Count the samples of Prometheus that stand in for scrapes, or that the metric has no value."""
        if scraped.reason:
            self._values.labels("prometheus" if samples else "absent").inc(samples or 1)


def _samples(found: EndpointReading) -> tuple[Sample, ...]:
    elements = found.elements or ()
    return tuple(Sample(element.all_labels(), element.value, found.time) for element in elements)
