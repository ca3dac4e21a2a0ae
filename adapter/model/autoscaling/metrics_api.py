"""Values as the metrics APIs serve them to an autoscaler."""

from collections.abc import Mapping

from adapter.model.autoscaling.hpa import ObjectMeta, Struct
from adapter.model.quantity import Quantity
from adapter.model.timestamps import Instant, Span


class ContainerMetrics(Struct, frozen=True):
    """What one container used."""

    name: str = ""
    usage: Mapping[str, Quantity] | None = None


class MetricName(Struct, frozen=True):
    """A metric of which only the name counts."""

    name: str = ""


class PodMetrics(Struct, frozen=True):
    """What the containers of one pod used, over a window that ended at a time."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: Instant | None = None
    window: Span | None = None
    containers: tuple[ContainerMetrics, ...] | None = None


class DescribedObject(Struct, frozen=True):
    """The object that a custom metric describes."""

    kind: str = ""
    namespace: str = ""
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
