"""The text format of the metrics, without what prometheus_client adds to it."""

from collections.abc import Collection, Iterator

import prometheus_client
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SAMPLES_AT_ONCE = 50


def render(registry: prometheus_client.CollectorRegistry, bare_counters: Collection[str]) -> Iterator[bytes]:
    """Yield the exposition of a registry in pieces of at most 50 samples, about a millisecond each.

    `bare_counters` names the counters that API servers expose without the suffix ``_total``, which
    prometheus_client always adds.
    """
    for family in _families(registry, bare_counters):
        samples = family.samples
        for start in range(0, max(len(samples), 1), _SAMPLES_AT_ONCE):
            family.samples = samples[start : start + _SAMPLES_AT_ONCE]
            text = prometheus_client.generate_latest(_FamilyCollector(family))
            # only the first piece of a family has the lines HELP and TYPE
            yield text if start == 0 else text.split(b"\n", 2)[2]


def _families(
    registry: prometheus_client.CollectorRegistry, bare_counters: Collection[str]
) -> Iterator[Family]:
    for family in registry.collect():
        # a `_created` sample would be one more gauge for every series
        family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        if family.name in bare_counters:
            family.type = "unknown"  # the type counter would be written with the suffix
            family.samples = [sample._replace(name=family.name) for sample in family.samples]
        yield family


class _FamilyCollector(Collector):
    """One family in the form that `generate_latest` takes."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family
