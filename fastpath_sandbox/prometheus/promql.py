"""The subset of PromQL that the sandbox evaluates, over programmable series.

It covers what adapter rules usually ask: instant selectors with every kind of matcher and `offset`; `rate`
and `increase` of a range; `timestamp` of a selector; `sum`, `min`, `max`, `avg` and `count` with `by` or
`without`; and numbers. Any other expression is refused by name, so that a query never gets an answer that
Prometheus would not give.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeAlias

import promql_parser
import re2

from fastpath_sandbox.prometheus.series import NAME, LabelSet, Point, Series, SeriesSet

LOOKBACK = 300.0

_SIGNS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}
_QUIET = re2.Options()
_QUIET.log_errors = False


class QueryFailure(Exception):  # noqa: N818 - Prometheus' error response has a type and a message
    """A refused query; `type` is ``bad_data`` if it does not parse, ``execution`` if its evaluation fails."""

    def __init__(self, type_: str, message: str) -> None:
        self.type = type_
        super().__init__(message)


class VectorElement(NamedTuple):
    """One element of an instant vector."""

    labels: LabelSet
    value: float


class LabelMatcher(NamedTuple):
    """One label matcher; an absent label has the value ""."""

    name: str
    matches: Callable[[str], bool]
    exact: str | None = None
    """The only value that matches, if there is only one."""

    def holds(self, labels: LabelSet) -> bool:
        return self.matches(next((value for name, value in labels if name == self.name), ""))


Value: TypeAlias = float | list[VectorElement]


def parse_selector(text: str) -> list[LabelMatcher]:
    """Return the matchers of a series selector."""
    tree = _parse(text)
    if not isinstance(tree, promql_parser.VectorSelector):
        raise QueryFailure("bad_data", "parse error: not a series selector")
    return _matchers(tree)


def select(series: SeriesSet, matchers: list[LabelMatcher]) -> list[Series]:
    """Return the series that all matchers match, in the order of their labels."""
    name = next((one.exact for one in matchers if one.name == NAME and one.exact is not None), None)
    candidates = series if name is None else series.named(name)
    chosen = [one for one in candidates if all(matcher.holds(one.labels) for matcher in matchers)]
    return sorted(chosen, key=lambda one: one.labels)


def evaluate(query: str, series: SeriesSet, time: float) -> Value:
    """Return the answer to an instant query at `time`, in epoch seconds: a scalar or a vector."""
    return _evaluate(_parse(query), series, time)


def _parse(query: str) -> promql_parser.Expr:
    try:
        tree: promql_parser.Expr = promql_parser.parse(query)
    except ValueError as cause:
        raise QueryFailure("bad_data", f"parse error: {cause}") from None
    return tree


def _evaluate(tree: promql_parser.Expr, series: SeriesSet, time: float) -> Value:
    if isinstance(tree, promql_parser.ParenExpr):
        return _evaluate(tree.expr, series, time)
    if isinstance(tree, promql_parser.NumberLiteral):
        return float(tree.val)
    if isinstance(tree, promql_parser.VectorSelector):
        return [VectorElement(labels, point.value) for labels, point in _latest(tree, series, time)]
    if isinstance(tree, promql_parser.AggregateExpr):
        return _aggregate(tree, series, time)
    if isinstance(tree, promql_parser.Call):
        return _call(tree, series, time)
    raise _unsupported(_KINDS.get(type(tree).__name__, type(tree).__name__))


_KINDS = {
    "SubqueryExpr": "a subquery",
    "MatrixSelector": "a range vector as the result",
    "BinaryExpr": "an operator between two expressions",
    "UnaryExpr": "a sign",
    "StringLiteral": "a string",
}


def _unsupported(what: str) -> QueryFailure:
    return QueryFailure(
        "bad_data",
        f"sandbox: {what} is outside the subset of PromQL that the sandbox knows: use a real Prometheus",
    )


def _matchers(selector: promql_parser.VectorSelector) -> list[LabelMatcher]:
    if selector.matchers.or_matchers:
        raise _unsupported("or between matchers")
    matchers = [_matcher(one.name, _SIGNS[str(one.op)], one.value) for one in selector.matchers.matchers]
    if selector.name is not None:
        matchers.append(_matcher(NAME, "=", selector.name))
    return matchers


def _matcher(name: str, sign: str, value: str) -> LabelMatcher:
    """Return a matcher; regular expressions are RE2 and match whole values."""
    if sign == "=":
        return LabelMatcher(name, lambda text: text == value, value)
    if sign == "!=":
        return LabelMatcher(name, lambda text: text != value)
    try:
        pattern = re2.compile(value, _QUIET)
    except re2.error as cause:
        raise QueryFailure("bad_data", f"parse error: error parsing regexp: {cause}") from None
    if sign == "=~":
        return LabelMatcher(name, lambda text: pattern.fullmatch(text) is not None)
    return LabelMatcher(name, lambda text: pattern.fullmatch(text) is None)


def _end(selector: promql_parser.VectorSelector, time: float) -> float:
    if selector.at is not None:
        raise _unsupported("the @ modifier")
    return time - _seconds(selector.offset)


def _seconds(duration: timedelta | None) -> float:
    return duration.total_seconds() if duration is not None else 0.0


def _latest(
    selector: promql_parser.VectorSelector, series: SeriesSet, time: float
) -> list[tuple[LabelSet, Point]]:
    end = _end(selector, time)
    latest = [(one.labels, series.latest(one, end, LOOKBACK)) for one in select(series, _matchers(selector))]
    return [(labels, point) for labels, point in latest if point is not None]


def _aggregate(tree: promql_parser.AggregateExpr, series: SeriesSet, time: float) -> list[VectorElement]:
    reduce = _AGGREGATIONS.get(str(tree.op))
    if reduce is None:
        raise _unsupported(f"the aggregation {tree.op}")
    elements = _evaluate(tree.expr, series, time)
    assert isinstance(elements, list), "the parser checks types"
    names = frozenset(tree.modifier.labels) if tree.modifier is not None else frozenset[str]()
    by = tree.modifier is None or tree.modifier.type == promql_parser.AggModifierType.By
    kept = (lambda name: name in names) if by else (lambda name: name not in names and name != NAME)
    groups: dict[LabelSet, list[float]] = {}
    for labels, value in elements:
        groups.setdefault(tuple(pair for pair in labels if kept(pair[0])), []).append(value)
    return [VectorElement(labels, reduce(values)) for labels, values in groups.items()]


def _call(tree: promql_parser.Call, series: SeriesSet, time: float) -> list[VectorElement]:
    name = tree.func.name
    argument = tree.args[0] if tree.args else None
    while isinstance(argument, promql_parser.ParenExpr):
        argument = argument.expr
    if name == "timestamp" and isinstance(argument, promql_parser.VectorSelector):
        times = [(labels, point.time) for labels, point in _latest(argument, series, time)]
        return _without_name(times)
    if name in {"rate", "increase"} and isinstance(argument, promql_parser.MatrixSelector):
        return _without_name(_growth(argument, series, time, is_rate=name == "rate"))
    if isinstance(argument, promql_parser.SubqueryExpr):
        raise _unsupported("a subquery")
    raise _unsupported(f"the function {name}")


def _growth(
    tree: promql_parser.MatrixSelector, series: SeriesSet, time: float, *, is_rate: bool
) -> Iterable[tuple[LabelSet, float]]:
    end = _end(tree.vector_selector, time)
    start = end - _seconds(tree.range)
    for one in select(series, _matchers(tree.vector_selector)):
        increase = _increase(series.samples(one, start, end), start, end)
        if increase is not None:
            yield one.labels, increase / (end - start) if is_rate else increase


def _increase(points: Sequence[Point], start: float, end: float) -> float | None:
    """Return the increase of a counter in a window, None for fewer than two samples.

    As extrapolatedRate of Prometheus 3: the covered time grows to the window if the samples reach close to
    its ends, and never below zero.
    """
    if len(points) < 2:
        return None
    first, last = points[0], points[-1]
    resets = sum(before.value for before, after in itertools.pairwise(points) if after.value < before.value)
    growth = last.value - first.value + resets
    covered = last.time - first.time
    to_start, to_end = first.time - start, end - last.time
    average = covered / (len(points) - 1)
    to_start, to_end = (time if time < average * 1.1 else average / 2 for time in (to_start, to_end))
    if growth > 0 and first.value >= 0:
        to_start = min(to_start, covered * (first.value / growth))
    return growth * ((covered + to_start + to_end) / covered)


def _without_name(values: Iterable[tuple[LabelSet, float]]) -> list[VectorElement]:
    elements = [
        VectorElement(tuple(pair for pair in labels if pair[0] != NAME), value) for labels, value in values
    ]
    if len({element.labels for element in elements}) != len(elements):
        raise QueryFailure("execution", "vector cannot contain metrics with the same labelset")
    return elements


def _sum(values: Sequence[float]) -> float:
    """Return a compensated sum; infinities of both signs add up to NaN."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


def _extreme(choose: Callable[[Iterable[float]], float]) -> Callable[[Sequence[float]], float]:
    def find(values: Sequence[float]) -> float:
        numbers = [value for value in values if not math.isnan(value)]
        return choose(numbers) if numbers else math.nan

    return find


_AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": _sum,
    "avg": lambda values: _sum(values) / len(values),
    "min": _extreme(min),
    "max": _extreme(max),
    "count": lambda values: float(len(values)),
}
