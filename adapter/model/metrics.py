"""The values that travel from Prometheus to an API caller, and the requests for them.

Types with an instance for each object are hidden from the garbage collector (`gc=False`): to traverse those
of 10,000 pods would stop the event loop for tens of milliseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from adapter.model.objects.field_selectors import FieldSelector
from adapter.model.objects.label_selectors import LabelSelector


class GroupResource(NamedTuple):
    """A kind of object as the API names it: API group ("" for core) and plural resource."""

    group: str
    resource: str

    def __str__(self) -> str:
        """Return the form of paths and messages: ``pods``, ``deployments.apps``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The object that a value describes. `namespace` is "" for cluster-scoped objects.

    Fields and their names in JSON are those of the Go type, which leaves out empty ones.
    """

    kind: str = ""
    namespace: str = ""
    name: str = ""
    api_version: str = ""


HISTOGRAM: Final = float("nan")
"""The value of a native histogram sample, which is no single number: this NaN, compared by identity."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One sample of an instant query; `time` in epoch seconds.

    The labels include ``__name__`` if the engine sent it. The value may be NaN, infinite or `HISTOGRAM`: the
    code that turns samples into metric values decides what that means.
    """

    labels: Mapping[str, str]
    value: float
    time: float


class QueryResult(NamedTuple):
    """The answer of one instant query. A scalar is one sample with no labels; other types are never decoded.

    `warnings` are the first warnings that came with it, fit for a log. An answer with a warning may lack a
    part of the data.
    """

    type: Literal["vector", "scalar"]
    samples: list[Sample]
    warnings: tuple[str, ...] = ()


class SeriesInfo(msgspec.Struct, frozen=True, gc=False):
    """What discovery keeps of the series of one name: their label names and how many there were."""

    name: str
    labels: frozenset[str]
    count: int


class MetricValue(msgspec.Struct, frozen=True, gc=False):
    """A value that describes an object: `milli` in thousandths, `time` in epoch seconds."""

    described: ObjectReference
    metric: str
    milli: int
    time: float


class ExternalValue(msgspec.Struct, frozen=True, gc=False):
    """A value that describes no object; `labels` is None for the answer of a scalar query."""

    metric: str
    labels: Mapping[str, str] | None
    milli: int
    time: float


class CustomQuestion(NamedTuple):
    """A request to ``custom.metrics.k8s.io``.

    `resource` is spelled as in the path (``pods``, ``deployments.apps``); `namespace` is None for root-scoped
    requests; `name` is None in a request for all objects that match `objects`.
    """

    resource: str
    namespace: str | None
    name: str | None
    metric: str
    objects: LabelSelector
    selector: LabelSelector


class ExternalQuestion(NamedTuple):
    """A request to ``external.metrics.k8s.io``; `metric` is spelled as in the path."""

    namespace: str
    metric: str
    selector: LabelSelector


class ResourceQuestion(NamedTuple):
    """A request to ``metrics.k8s.io``.

    `namespace` is None for nodes and for the pods of all namespaces; `name` is None in a request for all
    objects that match both `objects`, by their labels, and `fields`.
    """

    resource: Literal["pods", "nodes"]
    namespace: str | None
    name: str | None
    objects: LabelSelector
    fields: FieldSelector


class CustomAnswer(NamedTuple):
    """Values in the order of the objects, fresh until `fresh_until` (monotonic seconds).

    `resource` is the ``plural.group`` that the resource of the question meant, "" where nothing resolved it.
    """

    items: tuple[MetricValue, ...]
    fresh_until: float
    resource: str = ""


class ExternalAnswer(NamedTuple):
    """Values in the order of the response of Prometheus, fresh until `fresh_until` (monotonic seconds)."""

    items: tuple[ExternalValue, ...]
    fresh_until: float


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The usage of cpu and memory, in thousandths of a core and of a byte; never of one alone."""

    cpu: int
    memory: int


class ContainerUsage(msgspec.Struct, frozen=True, gc=False):
    """The usage of one container; `name` is "" for samples that name no container."""

    name: str
    usage: Usage


class ObjectUsage(msgspec.Struct, frozen=True, gc=False):
    """The usage of a pod or node at `time` (epoch seconds), the earliest of its samples.

    `namespace` is "" for nodes. `usage` is the sum over `containers`, which are sorted by name; a node has
    none.
    """

    namespace: str
    name: str
    labels: Mapping[str, str]
    time: float
    usage: Usage
    containers: tuple[ContainerUsage, ...] = ()


class ResourceAnswer(NamedTuple):
    """Objects by namespace, then name; those without a whole usage are left out.

    `window` is the time that a sample covers, in seconds; `made` when the answer was built (epoch
    seconds). Fresh until `fresh_until` (monotonic seconds). `stands_in` says that a part of
    it is from before a failure, `partial` that data may be missing. `times` says for
    each object, by name, when the oldest sample behind its usage was taken (epoch seconds), None if that is
    not available.
    """

    items: tuple[ObjectUsage, ...]
    window: float
    made: float
    fresh_until: float
    stands_in: bool = False
    partial: bool = False
    times: Mapping[str, float] | None = None


class CustomMetricInfo(msgspec.Struct, frozen=True, order=True, gc=False):
    """How a custom metric is requested and listed: kind, whether under a namespace, name."""

    resource: GroupResource
    namespaced: bool
    metric: str


class MetricsProvider(Protocol):
    """Answers the requests of callers. A `StatusError` is for them; any other error becomes a bare 500."""

    @property
    def generation(self) -> int:
        """Return a number that changes whenever the available metrics change."""

    async def custom(self, question: CustomQuestion) -> CustomAnswer:
        """Answer a question about objects; for a named object exactly one item, or an error."""

    async def external(self, question: ExternalQuestion) -> ExternalAnswer:
        """Answer a question about no object. Metric names match exactly, as upstream's do."""

    def canonical_resource(self, resource: str) -> str | None:
        """Return the ``plural.group`` of a resource that is spelled as in a path, None for an unknown one."""

    def custom_metrics(self) -> Sequence[CustomMetricInfo]:
        """Return what the discovery documents of custom metrics list."""

    def external_metrics(self) -> Sequence[str]:
        """Return what the discovery document of external metrics lists."""
