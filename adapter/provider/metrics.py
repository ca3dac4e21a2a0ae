"""Values of custom and external metrics for the API.

A question is resolved to a rule and objects (`resolver`), and these to values (`reader`). Errors are
prometheus-adapter's, word for word. An object without a value is absent from the answer and never zero.
"""

from collections.abc import Sequence
from typing import Protocol

from adapter.errors import NotFoundError
from adapter.model import metrics
from adapter.provider.reader import ValueReader


class OwnMetric(Protocol):
    """A metric that Fastpath answers by itself, without a rule; errors as those of `RulesMetricsProvider`."""

    async def custom(self, question: metrics.CustomQuestion) -> metrics.CustomAnswer:
        """Answer a question about objects."""

    async def external(self, question: metrics.ExternalQuestion) -> metrics.ExternalAnswer:
        """Answer a question about no object."""


class RulesMetricsProvider:
    """Answers questions about custom and external metrics."""

    def __init__(self, reader: ValueReader) -> None:
        self.reader = reader
        self._resolver = reader.resolver
        self._relister = reader.resolver.relister
        self._own: dict[str, OwnMetric] = {}
        self._own_listed: list[metrics.CustomMetricInfo] = []
        self.canonical_resource = reader.resolver.canonical_resource

    def register(self, described: metrics.CustomMetricInfo, metric: OwnMetric) -> None:
        """Serve a metric of Fastpath's own, as an external metric and of the objects `described`."""
        self._own[described.metric] = metric
        self._own_listed.append(described)

    @property
    def generation(self) -> int:
        """Number of the registry snapshot; what was built from another one is out of date."""
        return self._relister.registry.generation

    def custom_metrics(self) -> Sequence[metrics.CustomMetricInfo]:
        listed = self._relister.registry.listed
        return sorted([*listed, *self._own_listed]) if self._own_listed else listed

    def external_metrics(self) -> Sequence[str]:
        return sorted([*self._relister.registry.external, *self._own])

    async def custom(self, question: metrics.CustomQuestion) -> metrics.CustomAnswer:
        """Return the values of one object or of all that match; StatusError as prometheus-adapter answers.

        Objects without a value are left out of a list; a single object without one is not found.
        """
        own = self._own.get(question.metric)
        if own is not None:
            return await own.custom(question)
        entry, names = await self._resolver.custom(question)
        kind, place, metric = entry.resource.kind, question.namespace or "", question.metric
        # upstream writes "/v1" for core kinds
        api_version = f"{entry.resource.group}/{entry.resource.version}"

        def build(name: str, milli: int, time: float) -> metrics.MetricValue:
            described = metrics.ObjectReference(kind, place, name, api_version)
            return metrics.MetricValue(described, metric, milli, time)

        values = await self.reader.read_objects(entry, question, names, build)
        if question.name is not None and not values.items:
            raise NotFoundError(
                f"the server could not find the metric {metric} for {question.resource} {question.name}"
            )
        resource = str(entry.resource.group_resource)
        return metrics.CustomAnswer(tuple(values.items), values.fresh_until, resource)

    async def external(self, question: metrics.ExternalQuestion) -> metrics.ExternalAnswer:
        """Return every sample of the metric's query as a value; StatusError as prometheus-adapter answers."""
        own = self._own.get(question.metric)
        if own is not None:
            return await own.external(question)
        entry = await self._resolver.external(question)
        values = await self.reader.read_series(entry, question)
        return metrics.ExternalAnswer(tuple(values.items), values.fresh_until)
