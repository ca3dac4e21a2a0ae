"""The items of the lists that the metrics APIs return, as an autoscaler reads them."""

from collections.abc import Mapping

from adapter.model.autoscaling.hpa import ObjectMeta, Struct
from adapter.model.quantity import Quantity
from adapter.model.timestamps import Instant, Span


class ContainerMetrics(Struct, frozen=True):
    """The usage of one container."""

    name: str = ""
    usage: Mapping[str, Quantity] | None = None


class PodMetrics(Struct, frozen=True):
    """The usage of the containers of one pod, over a `window` that ends at `timestamp`."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: Instant | None = None
    window: Span | None = None
    containers: tuple[ContainerMetrics, ...] | None = None


class DescribedObject(Struct, frozen=True):
    """The object that a custom metric describes."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class MetricName(Struct, frozen=True):
    """The identifier of a custom metric; its selector is not read."""

    name: str = ""


class CustomMetricValue(Struct, frozen=True):
    """A custom metric of one object."""

    value: Quantity
    described_object: DescribedObject = DescribedObject()
    metric: MetricName = MetricName()


class ExternalMetricValue(Struct, frozen=True):
    """One series of an external metric."""

    value: Quantity
    metric_name: str = ""
    metric_labels: Mapping[str, str] | None = None
