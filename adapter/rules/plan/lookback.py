"""Over how much of the past a query looks: what a value that comes out of it says something about.

A rate over two minutes lags two minutes behind; whoever multiplies such a value by what there is now has to know. Law: what cannot be
told is None, never a guess.
"""

from typing import Any

import promql_parser as promql

from adapter.model import memo

_RECORDED = ":"


LOOKBACKS_BYTES = 1024 * 1024
"""Room for lookbacks that are known, by the text of the query."""


def _weigh(query: str) -> int:
    return 300 + len(query)


@memo.remember(LOOKBACKS_BYTES, _weigh)
def lookback_of(query: str) -> float | None:
    """Return the seconds of the past that a rendered query looks at, 0 for one of the latest samples alone.

    None where it cannot be told: for what does not parse, and for series that a recording rule has made, whose names have a colon.
    """
    try:
        node = promql.parse(query)
    except ValueError:
        return None
    return _lookback(node)


def _lookback(node: Any) -> float | None:
    """Return the lookback of a part: of parts side by side the longest counts, of one within the other both."""
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
    """Return the series name that a matcher gives; None where there may be several."""
    return next(
        (
            each.value
            for each in node.matchers.matchers
            if each.name == "__name__" and each.op == promql.MatchOp.Equal
        ),
        None,
    )


def _parts(node: Any) -> list[Any]:
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr):
        return [node.expr]
    return []


def _seconds(span: Any) -> float:
    return 0.0 if span is None else abs(float(span.total_seconds()))
