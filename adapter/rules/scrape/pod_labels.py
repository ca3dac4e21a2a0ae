"""Whether a rule's query has one value for each scraped pod, from the series of that pod alone.

The labels of pod and namespace are those of the scraped pod, whatever a series says. Every other label tells
series of the pod apart, so an aggregation must have put it away before two sides meet, and at the end.
"""

from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import UnscrapableError
from adapter.rules import slots

# Prometheus sets these two itself, whatever the pod exposes.
_TARGET_LABELS = frozenset({"job", "instance"})
_NUMBER: frozenset[str] = frozenset()  # values of series are grouped by the pod at least


class PodLabels(NamedTuple):
    """The labels of a rule that name pods and namespaces, "" if it has none for these."""

    pod: str
    namespace: str

    @property
    def own(self) -> frozenset[str]:
        return frozenset({*self} - {""})

    def identity(self, namespace: str, pod: str) -> dict[str, str]:
        """Return the labels that every series of a pod has."""
        named = {self.namespace: namespace} if self.namespace else {}
        return {**named, self.pod: pod}

    def check(self, tree: Any) -> None:
        """Refuse a query that compiles, but mixes pods or series. Raises UnscrapableError with the reason."""
        grouping = self._grouping(tree)
        if grouping is None:
            raise UnscrapableError(
                "without an aggregation a pod would have a value for each of its series: "
                "write sum(...) by (<<.GroupBy>>)"
            )
        if extra := sorted(grouping - self.own):
            raise UnscrapableError(f"grouped by {extra[0]} too, a pod would have several values")

    def _grouping(self, node: Any) -> frozenset[str] | None:
        """Return the labels that the values of a part have, None for all of the series."""
        if isinstance(node, promql.AggregateExpr):
            return self._aggregation(node)
        if isinstance(node, promql.BinaryExpr):
            return self._operation(node)
        if isinstance(node, promql.Call):
            return self._grouping(node.args[0])
        if isinstance(node, promql.ParenExpr | promql.UnaryExpr):
            return self._grouping(node.expr)
        if isinstance(node, promql.NumberLiteral):
            return _NUMBER
        self._check_selector(node.vector_selector if isinstance(node, promql.MatrixSelector) else node)
        return None

    def _aggregation(self, node: Any) -> frozenset[str]:
        name = str(node.op)
        if node.modifier is None or node.modifier.type != promql.AggModifierType.By:
            raise UnscrapableError(f"{name} without a grouping by pods: write {name}(...) by (<<.GroupBy>>)")
        labels = dict.fromkeys(node.modifier.labels)
        if self.pod not in labels:
            raise UnscrapableError(f"{name} by ({', '.join(labels)}) does not name {self.pod}: it mixes pods")
        inner = self._grouping(node.expr)
        return frozenset(labels) if inner is None else frozenset(labels) & inner

    def _operation(self, node: Any) -> frozenset[str] | None:
        """Refuse two vectors unless each is one value of the pod and Prometheus would match them."""
        left, right, name = self._grouping(node.lhs), self._grouping(node.rhs), str(node.op).strip()
        if left == _NUMBER:
            return right
        if right == _NUMBER:
            return left
        if left is None or right is None or (left | right) - self.own:
            raise UnscrapableError(
                f"{name} matches series with one another: aggregate both sides by (<<.GroupBy>>)"
            )
        matching = None if node.modifier is None else node.modifier.matching
        if matching is None:
            if left != right:
                raise UnscrapableError(f"the sides of {name} are grouped by different labels and never match")
        elif matching.type != promql.LabelModifierType.Include or self.pod not in matching.labels:
            raise UnscrapableError(f"{name} with a matching that does not name {self.pod}")
        elif (left ^ right) & frozenset(matching.labels):
            raise UnscrapableError(f"{name} matches on labels that one side does not have")
        return left

    def _check_selector(self, node: Any) -> None:
        shown, names = slots.show(node.name), [matcher.name for matcher in node.matchers.matchers]
        for name in names:
            if name in _TARGET_LABELS - self.own:
                raise UnscrapableError(
                    f"{shown} is selected by {name}, which Prometheus adds and pods do not expose"
                )
        if names.count(slots.LABEL) != 1:
            raise UnscrapableError(f"{shown} is selected without <<.LabelMatchers>>")
