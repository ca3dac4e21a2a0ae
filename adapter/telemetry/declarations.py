"""The declaration of a metric: `counter`, `gauge`, `histogram` and the tables of many series make one."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
DASHBOARD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

_Buckets = tuple[float, ...]
_Family = GaugeMetricFamily | CounterMetricFamily


class GaugeTable(Collector):
    """A gauge of many series, whose values are in one dictionary by the values of their labels.

    A child of prometheus_client takes 700 bytes, and each autoscaler has ten.
    """

    family: ClassVar[type[_Family]] = GaugeMetricFamily

    def __init__(
        self, name: str, documentation: str, labels: tuple[str, ...], *, registry: CollectorRegistry
    ) -> None:
        self.values: dict[tuple[str, ...], float] = {}
        self._described = name, documentation, labels
        registry.register(self)

    def put(self, labels: tuple[str, ...], value: float | None) -> None:
        """Set a series to a value, or end it if the value is None."""
        if value is None:
            self.values.pop(labels, None)
        else:
            self.values[labels] = value

    def collect(self) -> Iterator[_Family]:
        name, documentation, labels = self._described
        family = self.family(name, documentation, labels=labels)
        for values, value in self.values.items():
            family.add_metric(values, value)
        yield family


class CounterTable(GaugeTable):
    family = CounterMetricFamily


_Kind = Counter | Gauge | Histogram | GaugeTable
_MetricT = TypeVar("_MetricT", Counter, Gauge, Histogram, GaugeTable, CounterTable)


@dataclass(slots=True)
class Metric:
    """The declaration of a metric.

    `values` lists the values of each label if they are known beforehand, so that their series exist from the
    start at zero. Without it the labels are bounded by the cluster.
    """

    kind: type[_Kind]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: _Buckets = ()
    values: tuple[tuple[str, ...], ...] = ()
    attribute: str = ""

    def __set_name__(self, _: object, name: str) -> None:
        self.attribute = name

    @property
    def type(self) -> str:
        return self.kind.__name__.removesuffix("Table").lower()

    def build(self, registry: CollectorRegistry) -> _Kind:
        buckets: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        metric = self.kind(self.name, self.help, self.labels, registry=registry, **buckets)
        known = itertools.product(*self.values)
        if isinstance(metric, GaugeTable):
            metric.values |= dict.fromkeys(known, 0) if len(self.values) == len(self.labels) else {}
        elif self.values:
            for combination in known:
                metric.labels(*combination)
        return metric


def _declare(
    kind: type[_MetricT], name: str, text: str, labels: str = "", /, buckets: _Buckets = (), **values: str
) -> _MetricT:
    """Declare a metric by its help and its labels, or by the values of each label.

    As with `dataclasses.field`, the attribute is the declaration on the class and the metric on an instance.
    """
    known = tuple(tuple(words.split()) for words in values.values())
    declared = Metric(kind, name, text, (*labels.split(), *values), buckets, known)
    return cast("_MetricT", declared)


counter = functools.partial(_declare, Counter)
counter_table = functools.partial(_declare, CounterTable)
gauge = functools.partial(_declare, Gauge)
gauge_table = functools.partial(_declare, GaugeTable)
histogram = functools.partial(_declare, Histogram)
