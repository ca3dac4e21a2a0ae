"""How old the samples behind an external metric are: the companion query, and which of its answers belongs to which item.

An instant query stamps samples with the time it is evaluated at, so the true age has to be asked for: `timestamp(SERIES{...})`,
grouped as the rule's own query groups. An item with no known age is treated as too old: it cannot be shown to be fresh.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import promql_parser as promql

from adapter.model.metrics import Sample
from adapter.rules import matchers, separable
from adapter.rules.matchers import Matcher


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
        times = {self.key(sample.labels): sample.value for sample in ages}
        return [item for item in items if times.get(self.key(item.labels), float("-inf")) >= oldest]


def age_query(query: str, series: str, parts: Sequence[Matcher]) -> AgeQuery:
    """Return the companion of `query`, which was rendered for `series` with the matchers `parts`.

    A query grouped `by` labels is told apart by those, one that aggregates nothing by all its labels; any other, and one that
    does not parse, has one age for all its items: that of the oldest sample.
    """
    selector = f"{series}{{{matchers.join(parts)}}}"
    labels = _grouping(query)
    if labels is None:
        return AgeQuery(f"timestamp({selector})", None)
    return AgeQuery(f"min by ({', '.join(labels)}) (timestamp({selector}))", labels)


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
        if len(vectors) != 1 or name not in separable.SERIES_FUNCTIONS:
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
