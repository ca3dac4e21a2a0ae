"""The stated subset of PromQL, evaluated over programmable series.

The subset: instant and range vector selectors with all matchers (the name's included) and offset; the range functions of
`rangefunctions`; timestamp, time, vector, scalar, abs, ceil, floor, round, exp, ln, sqrt, clamp, clamp_min, clamp_max; sum, avg, min,
max, count, group, stddev, stdvar, quantile with by and without; arithmetic, comparison (with bool) and set operators, matched on all
labels, on(...) or ignoring(...). Its law: what is outside is refused by name, never answered with something else.
"""

import functools
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

import promql_parser

from adapter.sandbox.prometheus import vectors
from adapter.sandbox.prometheus.range_functions import RANGE_FUNCTIONS, Window
from adapter.sandbox.prometheus.series import NAME, LabelSet, Point, Series, SeriesSet
from adapter.sandbox.prometheus.vectors import Element, Matcher, Matching, QueryFailure

LOOKBACK = 300.0
_SIGNS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}
_KEEPS_NAME = frozenset(("last_over_time",))


class Matrix(NamedTuple):
    """A range vector: the samples of each series in a window."""

    window: Window
    series: list[tuple[LabelSet, list[Point]]]


Value: TypeAlias = float | str | list[Element] | Matrix


class Answer(NamedTuple):
    """The value of a query and its type as Prometheus names it."""

    type: Literal["scalar", "string", "vector", "matrix"]
    value: Value


def parse(query: str) -> promql_parser.Expr:
    """Return the syntax tree, or refuse as bad_data."""
    try:
        tree: promql_parser.Expr = promql_parser.parse(query)
    except ValueError as cause:
        raise QueryFailure("bad_data", f"parse error: {cause}") from None
    return tree


def parse_selector(text: str) -> list[Matcher]:
    """Return the matchers of a series selector."""
    tree = parse(text)
    if not isinstance(tree, promql_parser.VectorSelector):
        raise QueryFailure("bad_data", "parse error: not a series selector")
    return _matchers(tree)


def select(series: SeriesSet, matchers: list[Matcher]) -> list[Series]:
    """Return the series that match, in the order of their labels."""
    name = next((matcher.exact for matcher in matchers if matcher.name == NAME), None)
    candidates = series if name is None else series.named(name)
    found = [one for one in candidates if all(matcher.holds(one.labels) for matcher in matchers)]
    return sorted(found, key=lambda one: one.labels)


def evaluate(query: str, series: SeriesSet, time: float) -> Answer:
    """Evaluate an instant query at `time` in epoch seconds."""
    value = _Evaluation(series, time).value(parse(query))
    if isinstance(value, list):
        return Answer("vector", value)
    if isinstance(value, Matrix):
        return Answer("matrix", value)
    return Answer("string" if isinstance(value, str) else "scalar", value)


def _unsupported(what: str) -> QueryFailure:
    return QueryFailure(
        "bad_data",
        f"sandbox: {what} is outside the subset of PromQL that the sandbox knows: use a real Prometheus",
    )


def _matchers(selector: promql_parser.VectorSelector) -> list[Matcher]:
    if selector.matchers.or_matchers:
        raise _unsupported("or between matchers")
    found = [
        vectors.matcher(entry.name, _SIGNS[str(entry.op)], entry.value)
        for entry in selector.matchers.matchers
    ]
    if selector.name is not None:
        found.append(vectors.matcher(NAME, "=", selector.name))
    return found


class _Evaluation:
    """One query at one time."""

    def __init__(self, series: SeriesSet, time: float) -> None:
        self._series = series
        self._time = time

    def value(self, tree: promql_parser.Expr) -> Value:
        """Return the value of any expression."""
        if isinstance(tree, promql_parser.ParenExpr):
            return self.value(tree.expr)
        if isinstance(tree, promql_parser.NumberLiteral | promql_parser.StringLiteral):
            return tree.val
        if isinstance(tree, promql_parser.VectorSelector):
            return [Element(labels, point.value) for labels, point in self._instant(tree)]
        if isinstance(tree, promql_parser.MatrixSelector):
            return self._range(tree)
        if isinstance(tree, promql_parser.UnaryExpr):
            return self._negative(tree)
        if isinstance(tree, promql_parser.BinaryExpr):
            return self._binary(tree)
        if isinstance(tree, promql_parser.AggregateExpr):
            return self._aggregate(tree)
        if isinstance(tree, promql_parser.Call):
            return self._call(tree)
        raise _unsupported(
            "a subquery" if isinstance(tree, promql_parser.SubqueryExpr) else type(tree).__name__
        )

    def _vector(self, tree: promql_parser.Expr) -> list[Element]:
        value = self.value(tree)
        assert isinstance(value, list), "the parser checks types"
        return value

    def _number(self, tree: promql_parser.Expr) -> float:
        value = self.value(tree)
        assert isinstance(value, float | int), "the parser checks types"
        return value

    def _end(self, selector: promql_parser.VectorSelector) -> float:
        if selector.at is not None:
            raise _unsupported("the @ modifier")
        return self._time - _seconds(selector.offset)

    def _instant(self, selector: promql_parser.VectorSelector) -> list[tuple[LabelSet, Point]]:
        end = self._end(selector)
        found = []
        for one in select(self._series, _matchers(selector)):
            point = self._series.latest(one, end, LOOKBACK)
            if point is not None:
                found.append((one.labels, point))
        return found

    def _range(self, tree: promql_parser.MatrixSelector) -> Matrix:
        end = self._end(tree.vector_selector)
        window = Window(end - _seconds(tree.range), end)
        chosen = select(self._series, _matchers(tree.vector_selector))
        sampled = [(one.labels, self._series.samples(one, *window)) for one in chosen]
        return Matrix(window, [(labels, points) for labels, points in sampled if points])

    def _negative(self, tree: promql_parser.UnaryExpr) -> Value:
        value = self.value(tree.expr)
        if isinstance(value, list):
            return vectors.distinct([Element(vectors.unnamed(labels), -number) for labels, number in value])
        assert isinstance(value, float | int), "the parser checks types"
        return -value

    def _aggregate(self, tree: promql_parser.AggregateExpr) -> list[Element]:
        name = str(tree.op)
        reduce: Callable[[Sequence[float]], float]
        if name == "quantile":
            assert tree.param is not None, "the parser checks arguments"
            reduce = functools.partial(vectors.quantile, self._number(tree.param))
        elif name in vectors.AGGREGATIONS:
            reduce = vectors.AGGREGATIONS[name]
        else:
            raise _unsupported(f"the aggregation {name}")
        return vectors.aggregate(self._vector(tree.expr), reduce, _grouping(tree.modifier))

    def _call(self, tree: promql_parser.Call) -> Value:
        name = tree.func.name
        if name in RANGE_FUNCTIONS:
            return self._over_range(name, tree.args[0])
        if name == "timestamp":
            return self._timestamps(tree.args[0])
        if name == "time":
            return self._time
        if name == "vector":
            return [Element((), self._number(tree.args[0]))]
        if name == "scalar":
            elements = self._vector(tree.args[0])
            return elements[0].value if len(elements) == 1 else math.nan
        if name not in _ELEMENTWISE:
            raise _unsupported(f"the function {name}")
        numbers = [self._number(argument) for argument in tree.args[1:]]
        apply = _ELEMENTWISE[name]
        elements = self._vector(tree.args[0])
        if name == "clamp" and numbers[0] > numbers[1]:
            return []
        return vectors.distinct(
            [Element(vectors.unnamed(labels), apply(value, *numbers)) for labels, value in elements]
        )

    def _over_range(self, name: str, tree: promql_parser.Expr) -> list[Element]:
        value = self.value(tree)
        assert isinstance(value, Matrix), "the parser checks types"
        elements = []
        for labels, points in value.series:
            number = RANGE_FUNCTIONS[name](points, value.window)
            if number is not None:
                elements.append(Element(labels if name in _KEEPS_NAME else vectors.unnamed(labels), number))
        return vectors.distinct(elements)

    def _timestamps(self, tree: promql_parser.Expr) -> list[Element]:
        """Return sample times for a selector; for any other vector Prometheus knows only the evaluation time."""
        while isinstance(tree, promql_parser.ParenExpr):
            tree = tree.expr
        if isinstance(tree, promql_parser.VectorSelector):
            elements = [Element(vectors.unnamed(labels), point.time) for labels, point in self._instant(tree)]
        else:
            elements = [Element(vectors.unnamed(labels), self._time) for labels, _ in self._vector(tree)]
        return vectors.distinct(elements)

    def _binary(self, tree: promql_parser.BinaryExpr) -> Value:
        name = str(tree.op)
        if name not in vectors.ARITHMETIC.keys() | vectors.COMPARISONS.keys() | vectors.SETS:
            raise _unsupported(f"the operator {name}")
        modifier = tree.modifier
        returns_bool = modifier is not None and modifier.return_bool
        matching = _matching(name, modifier)
        left, right = self.value(tree.lhs), self.value(tree.rhs)
        if isinstance(left, list) and isinstance(right, list):
            if name in vectors.SETS:
                return vectors.distinct(vectors.combine_sets(name, left, right, matching))
            pairs = vectors.pair(left, right, matching)
            return _elements(name, pairs, matching, returns_bool=returns_bool)
        assert isinstance(left, float | int | list), "the parser checks types"
        assert isinstance(right, float | int | list), "the parser checks types"
        if isinstance(left, list) and not isinstance(right, list):
            both = [(element, Element((), right)) for element in left]
            return _elements(name, both, matching, returns_bool=returns_bool)
        if isinstance(right, list) and not isinstance(left, list):
            turned = [(Element(element.labels, left), element) for element in right]
            return _elements(name, turned, matching, returns_bool=returns_bool, shown=1)
        assert not isinstance(left, list)
        assert not isinstance(right, list)
        if name in vectors.ARITHMETIC:
            return vectors.ARITHMETIC[name](left, right)
        return float(vectors.COMPARISONS[name](left, right))


def _elements(
    name: str, pairs: list[tuple[Element, Element]], matching: Matching, *, returns_bool: bool, shown: int = 0
) -> list[Element]:
    """Return the results of an operator over pairs; a comparison keeps the value of the side `shown`."""
    found = []
    for both in pairs:
        left, right = both
        if name in vectors.ARITHMETIC:
            value = vectors.ARITHMETIC[name](left.value, right.value)
        elif returns_bool:
            value = float(vectors.COMPARISONS[name](left.value, right.value))
        elif vectors.COMPARISONS[name](left.value, right.value):
            value = both[shown].value
        else:
            continue
        keep_name = name in vectors.COMPARISONS and not returns_bool
        found.append(Element(matching.result(left.labels, keep_name=keep_name), value))
    return vectors.distinct(found)


def _matching(name: str, modifier: promql_parser.BinModifier | None) -> Matching:
    if modifier is None:
        return Matching((), on=False)
    side = {"ManyToOne": "group_left", "OneToMany": "group_right"}.get(str(modifier.card).rpartition(".")[2])
    if side is not None:
        raise _unsupported(f"{side} of the operator {name}")
    fill = modifier.fill_values
    if fill.lhs is not None or fill.rhs is not None:
        raise _unsupported(f"fill of the operator {name}")
    if modifier.matching is None:
        return Matching((), on=False)
    on = modifier.matching.type == promql_parser.LabelModifierType.Include
    return Matching(tuple(modifier.matching.labels), on=on)


def _grouping(modifier: promql_parser.AggModifier | None) -> Callable[[LabelSet], LabelSet]:
    if modifier is None:
        return lambda _: ()
    names = tuple(modifier.labels)
    if modifier.type == promql_parser.AggModifierType.By:
        return lambda labels: vectors.only(labels, names)
    return lambda labels: vectors.without(labels, (*names, NAME))


def _seconds(duration: timedelta | None) -> float:
    return duration.total_seconds() if duration is not None else 0.0


def _round(value: float, nearest: float = 1.0) -> float:
    """Round half up, as Prometheus does; its inverse keeps 0.1 exact."""
    inverse = 1.0 / nearest
    return value if math.isnan(value) or math.isinf(value) else math.floor(value * inverse + 0.5) / inverse


def _logarithm(value: float) -> float:
    if value == 0:
        return -math.inf
    return math.nan if value < 0 else math.log(value)


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


_ELEMENTWISE: dict[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": lambda value: float(math.ceil(value)) if math.isfinite(value) else value,
    "floor": lambda value: float(math.floor(value)) if math.isfinite(value) else value,
    "round": _round,
    "exp": _exponential,
    "ln": _logarithm,
    "sqrt": lambda value: math.nan if value < 0 else math.sqrt(value),
    "clamp": lambda value, low, high: max(low, min(high, value)),
    "clamp_min": lambda value, low: max(low, value),
    "clamp_max": lambda value, high: min(high, value),
}
