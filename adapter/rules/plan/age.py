"""How old the samples behind a value are: the companion queries, and which of their answers belongs to which item.

An instant query stamps samples with the time it is evaluated at, so the true age has to be asked for: `timestamp(SERIES{...})`,
grouped as the rule's own query groups. An item with no known age is treated as too old: it cannot be shown to be fresh.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import TemplateError
from adapter.model.go_text import quote
from adapter.model.metrics import Sample
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.plan import mergeable
from adapter.rules.template import template
from adapter.rules.template.template import Template


class AgeQuery(NamedTuple):
    """The companion of one query. `labels` are what its answers are told apart by; None means by all labels."""

    promql: str
    labels: tuple[str, ...] | None

    def key(self, labels: Mapping[str, str]) -> object:
        """Return what an item and its age have in common."""
        if self.labels is None:
            return frozenset((name, value) for name, value in labels.items() if name != "__name__")
        return tuple(labels.get(label, "") for label in self.labels)

    def fresh(self, items: Iterable[Sample], ages: Iterable[Sample], oldest: float) -> list[Sample]:
        """Return the items whose samples are all from `oldest` (epoch seconds) or later."""
        times = self._times(ages)
        return [item for item in items if times.get(self.key(item.labels), float("-inf")) >= oldest]

    def oldest(self, items: Iterable[Sample], ages: Iterable[Sample]) -> float | None:
        """Return the time of the oldest sample behind the items (epoch seconds), None where that of one is not known."""
        times = self._times(ages)
        found = [times.get(self.key(item.labels)) for item in items]
        known = [time for time in found if time is not None and math.isfinite(time)]
        return min(known) if known and len(known) == len(found) else None

    def _times(self, ages: Iterable[Sample]) -> dict[object, float]:
        return {self.key(sample.labels): sample.value for sample in ages}


def age_query(query: str, series: str, parts: Sequence[Matcher]) -> AgeQuery:
    """Return the companion of `query`, which was rendered for `series` with the matchers `parts`.

    A query grouped `by` labels is told apart by those, one that aggregates nothing by all its labels; any other, and one that
    does not parse, has one age for all its items: that of the oldest sample.
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
        node = promql.parse(query)
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


_USAGE_FIELDS = frozenset({"LabelMatchers", "GroupBy"})
_SLOT_LABEL, _, _ = mergeable.MATCHERS_SLOT.partition("=")


def usage_age(query: Template) -> Template | None:
    """Return the template that asks for the times of the oldest samples behind `query`, which names its series itself.

    As for other rules the samples of one series name count: those of the first selector that has
    `.LabelMatchers`. None where there is no such selector, and where the template decides what to write.
    """
    if not query.is_plain() or not set(query.fields()) <= _USAGE_FIELDS:
        return None
    try:
        node = promql.parse(query.render({"LabelMatchers": mergeable.MATCHERS_SLOT, "GroupBy": "object"}))
    except (TemplateError, ValueError):
        return None
    for selector in _selectors(node):
        names = [each.name for each in selector.matchers.matchers]
        if (
            _SLOT_LABEL in names
            and not selector.matchers.or_matchers
            and selector.at is None
            and selector.offset is None
        ):
            return template.parse(f"min(timestamp({_selector_text(selector)})) by (<<.GroupBy>>)")
    return None


def _selectors(node: Any) -> Iterator[Any]:
    """Yield the vector selectors of a query in the order in which they are written."""
    match node:
        case promql.VectorSelector():
            yield node
        case promql.MatrixSelector():
            yield node.vector_selector
        case promql.Call():
            for argument in node.args:
                yield from _selectors(argument)
        case promql.BinaryExpr():
            yield from _selectors(node.lhs)
            yield from _selectors(node.rhs)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _selectors(node.expr)
        case _:
            pass


def _selector_text(node: Any) -> str:
    texts = [
        "<<.LabelMatchers>>"
        if each.name == _SLOT_LABEL
        else f"{each.name}{mergeable.OPERATORS[str(each.op)]}{quote(each.value)}"
        for each in node.matchers.matchers
    ]
    return f"{node.name or ''}{{{','.join(texts)}}}"
