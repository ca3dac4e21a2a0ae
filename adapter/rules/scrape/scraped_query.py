"""A rule's query over the series of scraped endpoints, or the reason why it cannot be evaluated.

`compile_query` compiles the rule's PromQL once; `ScrapedQuery.evaluate` returns the samples that Prometheus
would answer if it had scraped the same endpoints at the same time. Rates are over the rule's `window` and
divided by the time between its first and last sample, and everything else is of the last scrape of each
endpoint. A query that cannot be evaluated exactly is refused, never approximated.
"""

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import TemplateError, UnionError, UnscrapableError
from adapter.model.steps import Steps
from adapter.rules import matchers, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.scrape import evaluation
from adapter.rules.scrape.evaluation import READINGS, Element, Part, Projection, Reading, Scope
from adapter.rules.scrape.series import PodSeries, Selections
from adapter.rules.template.template import Template

MOST_RESULTS = 10_000
"""Bound on the samples of one answer."""

# Prometheus sets these two itself, whatever the pod exposes.
_TARGET_LABELS = frozenset({"job", "instance"})
_NUMBER: frozenset[str] = frozenset()  # values of series are grouped by the pod at least


class PodLabels(NamedTuple):
    """The labels of a rule that name pods and namespaces, "" if it has none for these.

    They are those of the scraped pod, whatever a series says. Every other label tells series of the pod
    apart, so an aggregation must have put it away before two sides meet, and at the end.
    """

    pod: str
    namespace: str

    @property
    def own(self) -> frozenset[str]:
        return frozenset({*self} - {""})

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
        shown, names = parsing.show(node.name), [matcher.name for matcher in node.matchers.matchers]
        for name in names:
            if name in _TARGET_LABELS - self.own:
                raise UnscrapableError(
                    f"{shown} is selected by {name}, which Prometheus adds and pods do not expose"
                )
        if names.count(parsing.LABEL) != 1:
            raise UnscrapableError(f"{shown} is selected without <<.LabelMatchers>>")


class Answer(NamedTuple):
    """The samples of an answer, and the time of the oldest of the newest samples behind it.

    `time` is infinite if no series was selected; `shown` says whether there are samples, or a last scrape had
    one of the names.
    """

    elements: tuple[Element, ...]
    time: float
    shown: bool


@dataclass(frozen=True, slots=True, eq=False)
class ScrapedQuery:
    """A query that can be evaluated. `counts`: it uses more than the last scrape, as rates do."""

    counts: bool
    selections: tuple[tuple[str, tuple[Matcher, ...]], ...]
    """The names, with a placeholder for the rule's series, and the query's own matchers on exposed labels."""
    pod: PodLabels | None
    """The labels of the pod, None for a query over several endpoints."""
    _root: Part

    def series_names(self, series: str) -> frozenset[str]:
        return frozenset(name.replace(parsing.SERIES, series) for name, _ in self.selections)

    def evaluate(
        self,
        endpoints: Sequence[PodSeries],
        series: str,
        selector: Sequence[Matcher],
        window: float,
        pod: tuple[str, str] = ("", ""),
    ) -> Steps[Answer]:
        """Evaluate in steps, between which the endpoints must not change. Raises UnionError.

        `selector` has the matchers of the question, `window` is the seconds of rates, and `pod` the
        namespace and name of the pod of a query for one.
        """
        identity: dict[str, str] = {}  # the labels that every series of a pod has
        if self.pod is not None:
            identity = {label: name for label, name in zip(self.pod, reversed(pod), strict=True) if label}
        scope = Scope(endpoints, series, tuple(selector), window, identity)
        elements = yield from self._root(scope)
        if len(elements) > MOST_RESULTS:
            raise UnionError(f"the query has more than {MOST_RESULTS} samples")
        shown = bool(elements) or any(endpoint.shows(self.series_names(series)) for endpoint in endpoints)
        return Answer(tuple(elements), scope.gone if math.isinf(scope.oldest) else scope.oldest, shown)


def merge_selections(wanted: Iterable[tuple[ScrapedQuery, str]]) -> Selections:
    """Return the series to keep for queries, each with its rule's series."""
    selections: dict[str, frozenset[tuple[Matcher, ...]]] = {}
    for query, series in wanted:
        for name, group in query.selections:
            full = name.replace(parsing.SERIES, series)
            selections[full] = selections.get(full, frozenset()) | {group}
    return selections


def compile_query(
    template: Template, *, pod: PodLabels | None = None, absent: Collection[str] = ()
) -> ScrapedQuery:
    """Compile the query of a rule: for one pod, or for all its endpoints together.

    `absent` are the labels that Prometheus has and scrapes do not know. Raises UnscrapableError with the
    reason.
    """
    try:
        tree = parsing.parse_rule(template, "" if pod is None else matchers.write_label(pod.pod))
    except TemplateError as error:
        raise UnscrapableError(str(error)) from error
    compiler = _Compiler(frozenset() if pod is None else pod.own, frozenset(absent))
    root = compiler.visit(tree)
    if isinstance(root, float):
        raise UnscrapableError("the query is a number")
    if pod is not None:
        pod.check(tree)
    return ScrapedQuery(compiler.counts, tuple(dict.fromkeys(compiler.selections)), pod, root)


class _Compiler:
    """One pass over a query; refuses the first part that needs more than the scraped series."""

    def __init__(self, own: frozenset[str], absent: frozenset[str]) -> None:
        self.own = own
        self.absent = absent
        self.selections: list[tuple[str, tuple[Matcher, ...]]] = []
        self.counts = False
        functions = (*READINGS, *evaluation.PER_VALUE, *evaluation.WITH_BOUND)
        # A pod has one value, which neither `vector` nor a comparison may add or take away.
        self.functions = functions if own else (*functions, "vector")
        self.operators = tuple(evaluation.ARITHMETIC)
        if not own:
            self.operators += (*evaluation.COMPARISONS, *evaluation.SETS)

    def visit(self, node: Any) -> Part | float:
        """Return a part of the query; a number is known when it is compiled."""
        visitor = _VISITORS.get(type(node))
        if visitor is None:
            raise UnscrapableError("a string or a subquery cannot be computed from scrapes")
        return visitor(self, node)

    # The parser checks the types of arguments; scalar() and time(), which it takes for numbers, are refused.

    def number(self, node: Any) -> float:
        value = self.visit(node)
        assert isinstance(value, float), "the parser accepts nothing else"
        return value

    def vector(self, node: Any) -> Part:
        part = self.visit(node)
        assert not isinstance(part, float), "the parser accepts nothing else"
        return part

    def selector(self, node: Any) -> Part:
        return self._series(node, READINGS["last_over_time"], keeps_name=True)

    def call(self, node: Any) -> Part | float:
        name = node.func.name
        arguments = list(node.args)
        if name not in self.functions:
            known = ", ".join(self.functions)
            raise UnscrapableError(f"{name}() cannot be computed from scrapes, only {known}")
        if name == "vector":
            return evaluation.constant(self.number(arguments[0]))
        if function := evaluation.PER_VALUE.get(name):
            return evaluation.apply(self.visit(arguments[0]), function)
        if pick := evaluation.WITH_BOUND.get(name):
            limit = self.number(arguments[1])
            return evaluation.apply(
                self.visit(arguments[0]), lambda value: math.nan if math.isnan(value) else pick(value, limit)
            )
        matrix = arguments[0]
        if not isinstance(matrix, promql.MatrixSelector):
            raise UnscrapableError(f"{name}() needs a plain series selector")
        is_last = name == "last_over_time"
        self.counts = self.counts or not is_last
        values = self._series(matrix.vector_selector, READINGS[name], keeps_name=is_last)
        if name != "increase":
            return values
        seconds = matrix.range.total_seconds()
        return evaluation.apply(values, lambda rate: rate * seconds)

    def aggregate(self, node: Any) -> Part:
        name = str(node.op)
        function = evaluation.AGGREGATIONS.get(name)
        if function is None:
            raise UnscrapableError(f"{name} is not one of {', '.join(evaluation.AGGREGATIONS)}")
        inner, grouping = self.vector(node.expr), evaluation.NO_LABELS
        if node.modifier is not None:
            without = node.modifier.type == promql.AggModifierType.Without
            # All series have the pod's labels, so these tell none apart; what a series says of them is void.
            grouping = Projection(self._known(node.modifier.labels) - self.own, without)
        return evaluation.aggregate(inner, function, grouping)

    def binary(self, node: Any) -> Part | float:
        name = str(node.op).strip()
        if name not in self.operators:
            raise UnscrapableError(f"{name} is not computed from scrapes, only {' '.join(self.operators)}")
        if name in evaluation.SETS:
            sides = self.vector(node.lhs), self.vector(node.rhs)
            return evaluation.combine_sets(name, *sides, self._matching(name, node.modifier))
        left, right = self.visit(node.lhs), self.visit(node.rhs)
        function = evaluation.ARITHMETIC.get(name) or evaluation.COMPARISONS[name]
        returns_bool = node.modifier is not None and node.modifier.return_bool
        filters = name in evaluation.COMPARISONS and not returns_bool
        apply = evaluation.keep if filters else evaluation.apply
        if isinstance(right, float):
            return apply(left, lambda value: function(value, right))
        if isinstance(left, float):
            return apply(right, lambda value: function(left, value))
        if name in evaluation.COMPARISONS:
            raise UnscrapableError(f"{name} between two vectors is not computed from scrapes")
        return evaluation.combine(function, left, right, self._matching(name, node.modifier))

    def _matching(self, name: str, modifier: Any) -> Projection:
        """Return the labels by which two vectors are matched, one to one."""
        if modifier is None:
            return evaluation.ALL_LABELS
        fills = modifier.fill_values
        if fills.lhs is not None or fills.rhs is not None:
            raise UnscrapableError(f"{name} has fill values for missing series")
        if self.own:  # each side is one value, that of the pod
            return evaluation.NO_LABELS
        if modifier.card in (
            promql.VectorMatchCardinality.ManyToOne,
            promql.VectorMatchCardinality.OneToMany,
        ):
            raise UnscrapableError(f"{name} with group_left or group_right is not computed from scrapes")
        matching = modifier.matching
        if matching is None:
            return evaluation.ALL_LABELS
        if evaluation.NAME in matching.labels:
            raise UnscrapableError(f"{name} matches by the names of series")
        without = matching.type != promql.LabelModifierType.Include
        return Projection(self._known(matching.labels), without)

    def _known(self, labels: Sequence[str]) -> frozenset[str]:
        for label in labels:
            if label in self.absent:
                raise UnscrapableError(f"it groups or matches by {label}, which the scraped pods do not have")
        return frozenset(labels)

    def _series(self, node: Any, read: Reading, *, keeps_name: bool) -> Part:
        if not node.name:
            raise UnscrapableError("a selector without the name of a series")
        shown = parsing.show(node.name)
        if node.at is not None or node.offset is not None:
            raise UnscrapableError(f"{shown} has an @ modifier or an offset")
        if node.matchers.or_matchers:
            raise UnscrapableError(f"{shown} joins matchers with or")
        own = []
        narrows = False
        for matcher in node.matchers.matchers:
            if matcher.name == parsing.LABEL:
                narrows = True
            elif matcher.name in self.absent:
                raise UnscrapableError(
                    f"{shown} is selected by {matcher.name}, which the scraped pods do not have"
                )
            elif parsing.SERIES in matcher.name or parsing.SERIES in matcher.value:
                raise UnscrapableError(f"{shown} has <<.Series>> in a matcher")
            else:
                own.append(_matcher(matcher, shown))
        self.selections.append((node.name, tuple(part for part in own if part.label not in self.own)))
        return evaluation.read_series(node.name, tuple(own), read, narrows=narrows, keeps_name=keeps_name)


def _matcher(matcher: Any, shown: str) -> Matcher:
    """Return a matcher of the query for the series `shown`. Raises UnscrapableError if RE2 refuses it."""
    own = parsing.read_matcher(matcher)
    try:
        matchers.build_test(own)
    except ValueError as error:
        raise UnscrapableError(f"{shown} is selected by an invalid expression: {error}") from error
    return own


_VISITORS: Mapping[type, Callable[[_Compiler, Any], Part | float]] = {
    promql.NumberLiteral: lambda _, node: float(node.val),
    promql.ParenExpr: lambda compiler, node: compiler.visit(node.expr),
    promql.UnaryExpr: lambda compiler, node: evaluation.apply(compiler.visit(node.expr), operator.neg),
    promql.VectorSelector: _Compiler.selector,
    promql.Call: _Compiler.call,
    promql.AggregateExpr: _Compiler.aggregate,
    promql.BinaryExpr: _Compiler.binary,
}
