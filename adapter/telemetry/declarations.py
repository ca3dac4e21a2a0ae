"""The declaration of a metric: `counter`, `gauge` and `histogram` make one."""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
DASHBOARD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

_Buckets = tuple[float, ...]
_MetricT = TypeVar("_MetricT", Counter, Gauge, Histogram)


@dataclass(slots=True)
class Metric:
    """The declaration of a metric.

    `values` lists the values of each label if they are known beforehand, so that their series exist from the
    start at zero. Without it the labels are bounded by the cluster.
    """

    kind: type[Counter | Gauge | Histogram]
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
        return self.kind.__name__.lower()

    def build(self, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
        buckets: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        metric = self.kind(self.name, self.help, self.labels, registry=registry, **buckets)
        if self.values:
            for combination in itertools.product(*self.values):
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
gauge = functools.partial(_declare, Gauge)
histogram = functools.partial(_declare, Histogram)
