"""Label flow: whether the result of a query can have a label, without which its values match no objects.

Only PromQL's operators are followed, because the labels of the series are not known. If they do not decide,
the label may exist. `mergeable` decides the related question whether a query keeps objects apart.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import promql_parser as promql

# These return the label sets of their series, regardless of the grouping.
_PICKING = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_WITHOUT_LABELS = frozenset({"scalar", "vector", "time", "pi"})


def loses(node: Any, label: str) -> str:
    """Return the part of a parsed query that drops `label`, in words, or "" if the label may survive."""
    visitor = _VISITORS.get(type(node))
    return visitor(node, label) if visitor else ""


def _inner(node: Any, label: str) -> str:
    return loses(node.expr, label)


def _selector(_: Any, __: str) -> str:
    return ""


def _number(_: Any, __: str) -> str:
    return "a number"


def _call(node: Any, label: str) -> str:
    name = node.func.name
    if name in _WITHOUT_LABELS:
        return f"{name}()"
    if name in {"label_replace", "label_join"} and node.args[1].val == label:
        return ""
    vectors = [
        part for part in node.args if not isinstance(part, promql.StringLiteral) and not is_scalar(part)
    ]
    return loses(vectors[0], label) if vectors else ""


def _aggregate(node: Any, label: str) -> str:
    operator = str(node.op)
    if operator in _PICKING:
        return loses(node.expr, label)
    if operator == "count_values" and node.param.val == label:
        return ""
    if node.modifier is None:
        return f"{operator} without a grouping"
    listed = ", ".join(node.modifier.labels)
    if node.modifier.type == promql.AggModifierType.By:
        return loses(node.expr, label) if label in node.modifier.labels else f"{operator} by ({listed})"
    return f"{operator} without ({listed})" if label in node.modifier.labels else loses(node.expr, label)


def _binary(node: Any, label: str) -> str:
    operator = str(node.op).strip()
    left, right = loses(node.lhs, label), loses(node.rhs, label)
    if is_scalar(node.lhs):
        return right
    if is_scalar(node.rhs) or operator in {"and", "unless"}:
        return left
    if operator == "or":
        return left and right
    modifier = node.modifier
    if modifier is not None and modifier.card != promql.VectorMatchCardinality.OneToOne:
        many, one = (
            (left, right) if modifier.card == promql.VectorMatchCardinality.ManyToOne else (right, left)
        )
        return one if label in (modifier.group_labels or ()) else many
    if modifier is not None and modifier.matching is not None:
        listed = ", ".join(modifier.matching.labels)
        on = modifier.matching.type == promql.LabelModifierType.Include
        if (label in modifier.matching.labels) is not on:
            return f"{operator} {'on' if on else 'ignoring'} ({listed})"
    return left or right


def is_scalar(node: Any) -> bool:
    """Whether a parsed query gives a scalar, which has no labels."""
    while isinstance(node, promql.ParenExpr | promql.UnaryExpr):
        node = node.expr
    if isinstance(node, promql.BinaryExpr):
        return is_scalar(node.lhs) and is_scalar(node.rhs)
    return isinstance(node, promql.NumberLiteral) or (
        isinstance(node, promql.Call) and node.func.name in {"scalar", "time", "pi"}
    )


_VISITORS: Mapping[type, Callable[[Any, str], str]] = MappingProxyType(
    {
        promql.NumberLiteral: _number,
        promql.ParenExpr: _inner,
        promql.UnaryExpr: _inner,
        promql.SubqueryExpr: _inner,
        promql.VectorSelector: _selector,
        promql.MatrixSelector: _selector,
        promql.Call: _call,
        promql.AggregateExpr: _aggregate,
        promql.BinaryExpr: _binary,
    }
)
