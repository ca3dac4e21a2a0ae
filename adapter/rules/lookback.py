"""Of which time a value is: over how much of the past its query looks, and how old the samples behind it are.

A rate over two minutes lags two minutes behind, which matters when it is multiplied by what exists now.
`lookback_of` reads the lookback from the query. An instant query stamps its samples with the evaluation time,
so their true age needs a companion query: ``timestamp(SERIES{...})``, grouped like the rule's query. An item
of unknown age counts as too old, because it cannot be shown to be fresh.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import TemplateError
from adapter.model import memo
from adapter.model.metrics import Sample
from adapter.rules import matchers, mergeable, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.template import template
from adapter.rules.template.template import Template

LOOKBACKS_BYTES = 1024 * 1024
"""Bound on the remembered lookbacks, by the text of the query."""


def _weigh(query: str) -> int:
    return 300 + len(query)


@memo.remember(LOOKBACKS_BYTES, _weigh)
def lookback_of(query: str) -> float | None:
    """Return over how many seconds of the past a rendered query looks, 0 if it uses only the latest samples.

    Return None if that is not known: for a query that does not parse, and for series of recording rules,
    whose names have a colon.
    """
    try:
        lookback = _lookback(parsing.parse(query))
    except ValueError:
        return None
    return lookback if math.isfinite(lookback) else None


def _lookback(node: Any) -> float:
    """Return the lookback of a part: the longest of its operands, and the sum of nested ranges.

    Infinite if it is not known.
    """
    match node:
        case promql.VectorSelector():
            return math.inf if ":" in (parsing.series_name(node) or ":") else _seconds(node.offset)
        case promql.MatrixSelector():
            return _lookback(node.vector_selector) + _seconds(node.range)
        case promql.SubqueryExpr():
            return _lookback(node.expr) + _seconds(node.range) + _seconds(node.offset)
        case promql.BinaryExpr():
            return max(_lookback(node.lhs), _lookback(node.rhs))
        case promql.Call():
            return max(map(_lookback, node.args), default=0.0)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return _lookback(node.expr)
    return 0.0


def _seconds(span: Any) -> float:
    return 0.0 if span is None else abs(float(span.total_seconds()))


class AgeQuery(NamedTuple):
    """The companion of one query. `labels` identify an item and its age; None means all labels."""

    promql: str
    labels: tuple[str, ...] | None

    def key(self, labels: Mapping[str, str]) -> object:
        """Return what identifies both an item and its age."""
        if self.labels is None:
            return frozenset((name, value) for name, value in labels.items() if name != "__name__")
        return tuple(labels.get(label, "") for label in self.labels)

    def fresh(self, items: Iterable[Sample], ages: Iterable[Sample], oldest: float) -> list[Sample]:
        """Return the items whose samples are all from `oldest` (epoch seconds) or later."""
        times = self._times(ages)
        return [item for item in items if times.get(self.key(item.labels), -math.inf) >= oldest]

    def oldest(self, items: Iterable[Mapping[str, str]], ages: Iterable[Sample]) -> float | None:
        """Return the time of the oldest sample behind items with these labels, None if one is not known."""
        times = self._times(ages)
        known = [times.get(self.key(labels), math.nan) for labels in items]
        return min(known) if known and all(map(math.isfinite, known)) else None

    def _times(self, ages: Iterable[Sample]) -> dict[object, float]:
        return {self.key(sample.labels): sample.value for sample in ages}


def age_query(query: str, series: str, parts: Sequence[Matcher]) -> AgeQuery:
    """Return the companion of `query`, which was rendered for `series` with the matchers `parts`.

    Items of a query grouped `by` labels are identified by those, and items without an aggregation by all
    their labels. Any other query has one age for all its items: that of the oldest sample.
    """
    selector = f"{series}{{{matchers.join(parts)}}}"
    labels = _grouping(query)
    if labels is None:
        return AgeQuery(f"timestamp({selector})", None)
    grouping = ", ".join(map(matchers.write_label, labels))
    return AgeQuery(f"min by ({grouping}) (timestamp({selector}))", labels)


def _grouping(query: str) -> tuple[str, ...] | None:
    """Return the labels that the items of a query are grouped by, None for all labels of its one selector."""
    try:
        node = parsing.parse(query)
    except ValueError:
        return ()
    loses_le = False
    while isinstance(node := parsing.unwrapped(node), promql.Call):
        name = node.func.name
        vectors = [argument for argument in node.args if not isinstance(argument, promql.NumberLiteral)]
        if len(vectors) != 1 or name not in mergeable.SERIES_FUNCTIONS:
            return ()
        loses_le |= name.startswith("histogram_")
        node = vectors[0]
    if isinstance(node, promql.VectorSelector | promql.MatrixSelector):
        return () if loses_le else None
    if (
        isinstance(node, promql.AggregateExpr)
        and node.modifier is not None
        and node.modifier.type == promql.AggModifierType.By
    ):
        return tuple(label for label in node.modifier.labels if label != "le")
    return ()


def usage_age(query: Template) -> Template | None:
    """Return the template for the times of the oldest samples behind `query`, which names its series itself.

    As for other rules, the samples of one series name count: those of the first selector with
    `.LabelMatchers`. Return None without such a selector, and for a template with actions.
    """
    if "Series" in query.fields:
        return None
    try:
        tree = parsing.parse_rule(query, "object")
    except TemplateError:
        return None
    for node in parsing.nodes(tree):
        if not isinstance(node, promql.VectorSelector) or node.at is not None or node.offset is not None:
            continue
        texts = [
            "<<.LabelMatchers>>" if matcher.name == parsing.LABEL else str(parsing.read_matcher(matcher))
            for matcher in node.matchers.matchers
        ]
        if "<<.LabelMatchers>>" in texts and not node.matchers.or_matchers:
            selector = f"{node.name or ''}{{{','.join(texts)}}}"
            return template.parse(f"min(timestamp({selector})) by (<<.GroupBy>>)")
    return None
