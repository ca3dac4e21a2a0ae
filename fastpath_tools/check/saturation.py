"""Warnings about gauges that saturate: requests in flight up to a cap, utilization, usage of a cache.

At its cap such a gauge cannot say how much more is needed. An autoscaler that reads it alone grows by at most
the cap divided by the target in each decision, and not at all if that is within its tolerance. A sum with a
queue does not saturate, nor does a ratio of something else to the gauge.
"""

import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any, NamedTuple

import msgspec
import promql_parser as promql

from adapter.rules import parsing
from fastpath_tools.live.preview import RulePreview


class CappedGauge(msgspec.Struct, frozen=True):
    """A series that cannot exceed `cap`, None where a setting of the program (`bound`) is the cap.

    `advice` are series of the same program that do not saturate.
    """

    bound: str
    cap: float | None = None
    advice: tuple[str, ...] = ()


_FILE = resources.files(__package__) / "saturating.yaml"
KNOWN = msgspec.yaml.decode(_FILE.read_bytes(), type=dict[str, CappedGauge])
"""By name of the series."""

_LIKE_A_SHARE = re.compile(
    r"_(?:utili[sz]ation|usage_perc|usage_percent|(?:utili[sz]ation|usage|busy|occupancy)_(?:ratio|percent|percentage))"
    r"(?:_avg)?\Z"
)
_ANY_SHARE = CappedGauge("1 or 100")

_SERIES_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

_RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets"})
_COUNTS = frozenset({"count", "count_values", "group"})
_SAME_RANGE = frozenset({"avg", "max", "min", "quantile", "topk", "bottomk"})
_COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<=", "and", "unless"})


class Saturation(NamedTuple):
    """The series that bounds a query, and the largest result, None if that is not known."""

    series: str
    gauge: CappedGauge
    largest: float | None


def check(made: RulePreview, others: Sequence[RulePreview]) -> Iterator[tuple[str, str, str]]:
    """Yield the warning about a rule whose metric saturates: path below the rule, value, sentence.

    `others` are all rules of the files: if one serves the advised queue, the advice has been taken.
    """
    saturation = of_rule(made)
    if saturation is None:
        return
    advice = saturation.gauge.advice
    if advice and any(_reads(other, advice) for other in others):
        return
    remedy = "read a queue, or requests that arrive, as well"
    if advice:
        remedy = (
            f"read {' or '.join(advice)} in its place, add it to this one, or serve it as a second metric"
        )
    bound = f"cannot exceed {saturation.gauge.bound}"
    sentence = f"{bound}, so at full load it does not say how much more is needed: {remedy}"
    yield "metricsQuery", saturation.series, sentence


def of_rule(made: RulePreview) -> Saturation | None:
    """Return what bounds the metric of a rule; None if nothing does, or if the rule has several metrics."""
    if len(made.series) != 1 or made.main is None or not made.main.promql:
        return None
    try:
        parsed = parsing.parse(made.main.promql)
    except ValueError:
        return None
    saturation = _of(parsed)
    if saturation is None or not made.external or _is_one_sample(parsed):
        return saturation
    return saturation._replace(largest=None)  # an autoscaler adds the samples of an external metric up


def _is_one_sample(node: Any) -> bool:
    """Return whether the result is one sample for certain: an aggregation of everything, times a number."""
    while isinstance(node := parsing.unwrapped(node), promql.BinaryExpr):
        if _number(node.lhs) is None and _number(node.rhs) is None:
            return False
        node = node.rhs if _number(node.lhs) is not None else node.lhs
    if not isinstance(node, promql.AggregateExpr) or str(node.op) in {"topk", "bottomk"}:
        return False
    grouping = node.modifier
    return grouping is None or (grouping.type == promql.AggModifierType.By and not grouping.labels)


def _reads(made: RulePreview, names: Sequence[str]) -> bool:
    named = _SERIES_NAME.findall(f"{made.config.series_query} {made.config.metrics_query}")
    return any(name in made.series or name in named for name in names)


def _of(node: Any) -> Saturation | None:
    """Return what bounds the result of a parsed query from above, None if nothing is known to."""
    match node:
        case promql.VectorSelector():
            name = parsing.series_name(node)
            gauge = KNOWN.get(name) or (_ANY_SHARE if _LIKE_A_SHARE.search(name) else None)
            return None if gauge is None else Saturation(name, gauge, gauge.cap)
        case promql.MatrixSelector():
            return _of(node.vector_selector)
        case promql.ParenExpr() | promql.SubqueryExpr():
            return _of(node.expr)
        case promql.Call():
            return _of_call(node)
        case promql.AggregateExpr():
            return _of_aggregate(node)
        case promql.BinaryExpr():
            return _of_binary(node)
        case _:
            return None


def _of_call(node: Any) -> Saturation | None:
    name = node.func.name
    if name in _RATES or name.startswith(("absent", "count_", "present", "timestamp")):
        return None
    inner = next((bound for bound in map(_of, node.args) if bound is not None), None)
    if inner is None or name in {"avg_over_time", "max_over_time", "min_over_time", "last_over_time"}:
        return inner
    return inner._replace(largest=None)


def _of_aggregate(node: Any) -> Saturation | None:
    operator = str(node.op)
    if operator in _COUNTS:
        return None
    inner = _of(node.expr)
    if inner is None or operator in _SAME_RANGE:
        return inner
    return inner._replace(largest=None)  # a sum, of a number of series that is not known


def _of_binary(node: Any) -> Saturation | None:
    operator = str(node.op).strip()
    left, right = _of(node.lhs), _of(node.rhs)
    if operator in _COMPARISONS:  # these keep values of the left side, or drop them
        return left
    factor = _number(node.lhs), _number(node.rhs)
    if operator == "*" and (left or right):
        inner = left or right
        assert inner is not None
        scale = factor[0] if left is None else factor[1]
        return inner._replace(largest=_product(inner.largest, scale))
    if operator == "/" and left is not None:
        return left._replace(largest=_product(left.largest, None if not factor[1] else 1 / factor[1]))
    if operator == "-":  # the largest difference depends on the least of the right side
        return None if left is None else left._replace(largest=None)
    if operator in {"+", "or"}:  # a side that nothing bounds, such as a queue, takes the cap away
        constant = factor[0] is not None or factor[1] is not None
        both = left is not None and right is not None
        inner = left or right
        return inner._replace(largest=None) if inner is not None and (both or constant) else None
    return None


def _number(node: Any) -> float | None:
    node = parsing.unwrapped(node)
    return float(node.val) if isinstance(node, promql.NumberLiteral) else None


def _product(largest: float | None, factor: float | None) -> float | None:
    return None if largest is None or factor is None or factor <= 0 else largest * factor
