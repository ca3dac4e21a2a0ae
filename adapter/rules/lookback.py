"""Of which time a value is: over how much of the past its query looks, and how old the samples behind it are.

A rate over two minutes lags two minutes behind, which matters when it is multiplied by what exists now.
`lookback_of` reads the lookback from the query. An instant query stamps its samples with the evaluation time,
so their true age needs a companion query: ``timestamp(SERIES{...})``, grouped like the rule's query. An item
of unknown age counts as too old, because it cannot be shown to be fresh.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import TemplateError
from adapter.model import memo
from adapter.model.metrics import Sample
from adapter.rules import matchers, mergeable, parsing, slots
from adapter.rules.matchers import Matcher
from adapter.rules.template import template
from adapter.rules.template.template import Template

LOOKBACKS_BYTES = 1024 * 1024
"""Bound on the remembered lookbacks, by the text of the query."""

_RECORDED = ":"  # in the names of series that recording rules make
_USAGE_FIELDS = frozenset({"LabelMatchers", "GroupBy"})


def _weigh(query: str) -> int:
    return 300 + len(query)


@memo.remember(LOOKBACKS_BYTES, _weigh)
def lookback_of(query: str) -> float | None:
    """Return over how many seconds of the past a rendered query looks, 0 if it uses only the latest samples.

    Return None if that is not known: for a query that does not parse, and for series of recording rules,
    whose names have a colon.
    """
    try:
        node = parsing.parse(query)
    except ValueError:
        return None
    return _lookback(node)


def _lookback(node: Any) -> float | None:
    """Return the lookback of a part: the longest of its operands, and the sum of nested ranges."""
    if isinstance(node, promql.VectorSelector):
        name = node.name or _name_of(node)
        return None if name is None or _RECORDED in name else _seconds(node.offset)
    if isinstance(node, promql.MatrixSelector):
        inner = _lookback(node.vector_selector)
        return None if inner is None else inner + _seconds(node.range)
    if isinstance(node, promql.SubqueryExpr):
        inner = _lookback(node.expr)
        return None if inner is None else inner + _seconds(node.range) + _seconds(node.offset)
    longest = 0.0
    for part in _parts(node):
        inner = _lookback(part)
        if inner is None:
            return None
        longest = max(longest, inner)
    return longest


def _name_of(node: Any) -> str | None:
    """Return the series name that a matcher requires; None if there may be several."""
    return next(
        (
            each.value
            for each in node.matchers.matchers
            if each.name == "__name__" and each.op == promql.MatchOp.Equal
        ),
        None,
    )


def _parts(node: Any) -> list[Any]:
    """Return what a part of a query consists of, nothing for a selector or a literal."""
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    if isinstance(node, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return [node.expr]
    return []


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
        return [item for item in items if times.get(self.key(item.labels), float("-inf")) >= oldest]

    def oldest(self, items: Iterable[Sample], ages: Iterable[Sample]) -> float | None:
        """Return the time of the oldest sample behind the items (epoch seconds), None if one is not known."""
        times = self._times(ages)
        all_times = [times.get(self.key(item.labels)) for item in items]
        known = [time for time in all_times if time is not None and math.isfinite(time)]
        return min(known) if known and len(known) == len(all_times) else None

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
    while isinstance(node, promql.ParenExpr | promql.Call):
        if isinstance(node, promql.ParenExpr):
            node = node.expr
            continue
        name = node.func.name
        vectors = [argument for argument in node.args if not isinstance(argument, promql.NumberLiteral)]
        if len(vectors) != 1 or name not in mergeable.SERIES_FUNCTIONS:
            return ()
        loses_le = loses_le or name.startswith("histogram_")
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
    if not query.is_plain or not set(query.fields) <= _USAGE_FIELDS:
        return None
    try:
        node = parsing.parse(query.render({"LabelMatchers": slots.MATCHERS, "GroupBy": "object"}))
    except (TemplateError, ValueError):
        return None
    for selector in _selectors(node):
        names = [each.name for each in selector.matchers.matchers]
        if (
            slots.LABEL in names
            and not selector.matchers.or_matchers
            and selector.at is None
            and selector.offset is None
        ):
            return template.parse(f"min(timestamp({_selector_text(selector)})) by (<<.GroupBy>>)")
    return None


def _selectors(node: Any) -> Iterator[Any]:
    """Yield the vector selectors of a query in the order in which they are written."""
    if isinstance(node, promql.VectorSelector):
        yield node
    for part in _parts(node):
        yield from _selectors(part)


def _selector_text(node: Any) -> str:
    texts = [
        "<<.LabelMatchers>>" if matcher.name == slots.LABEL else str(slots.read_matcher(matcher))
        for matcher in node.matchers.matchers
    ]
    return f"{node.name or ''}{{{','.join(texts)}}}"
