"""A rule's query for one pod, evaluated from the series of that pod alone, or the reason why it cannot be.

`compile_query` compiles the rule's PromQL once; `PodQuery.evaluate` returns the value of a pod. The value is
that of Prometheus for the same series, except for the time of the samples: rates are over the rule's `window`
and divided by the time between its first and last sample, and everything else is of the last scrape.

A query that cannot be evaluated exactly is refused with the reason, never approximated. A pod without a
matching series has no value. The labels of pod and namespace are those of the scraped pod, whatever a series
says.
"""

import math
import operator
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import promql_parser as promql

from adapter.errors import TemplateError, UnscrapableError
from adapter.rules import matchers, mergeable, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.scrape import arithmetic
from adapter.rules.scrape.series import PodSeries, Selections, Track
from adapter.rules.template.template import Template

# A value with the exposed labels of its series; the labels of the pod are in the scope.
_Element = tuple[matchers.HasLabels, float]
_Elements = Generator[None, None, list[_Element]]
"""An evaluation in steps, which returns the elements."""

_NO_LABELS: Mapping[str, str] = {}
_STEP_TESTS = 2000
"""How many series and matchers a step looks at."""

_T = TypeVar("_T")
FIELDS = frozenset({"Series", "LabelMatchers", "GroupBy"})
SLOT_LABEL = mergeable.MATCHERS_SLOT.partition("=")[0]
# Prometheus sets these two itself, whatever the pod exposes.
_TARGET_LABELS = frozenset({"job", "instance"})


class PodIdentity(NamedTuple):
    """The scraped pod, and the rule's labels of namespaces ("" if it has none) and pods."""

    namespace: str
    name: str
    namespace_label: str
    pod_label: str

    def labels(self) -> dict[str, str]:
        """Return the labels that every series of the pod has."""
        named = {self.namespace_label: self.namespace} if self.namespace_label else {}
        return {**named, self.pod_label: self.name}


class PodValue(NamedTuple):
    """The value of a pod, which may be NaN or infinite, and the time of the oldest of the newest samples."""

    value: float
    time: float


@dataclass(slots=True)
class _Scope:
    """The input of an evaluation. `selector` has the matchers of the metric selector.

    `oldest` is the oldest time of the series used from the last scrape, `gone` of those that only earlier
    scrapes had.
    """

    series: str
    pod: PodSeries
    identity: Mapping[str, str]
    selector: tuple[Matcher, ...]
    window: float
    oldest: float = math.inf
    gone: float = math.inf

    def note(self, track: Track) -> None:
        """Note the time of a series in use; one that the last scrape lacks does not make the others older."""
        if track.scrape == self.pod.scrapes:
            self.oldest = min(self.oldest, track.times[-1])
        else:
            self.gone = min(self.gone, track.times[-1])


class _Vector(NamedTuple):
    """A part of a query with a value for each group. `grouping` has the labels of these, None for all."""

    evaluate: Callable[[_Scope], _Elements]
    grouping: frozenset[str] | None


_Operand = _Vector | float
"""A part of a query; a number is known when it is compiled."""


@dataclass(frozen=True, slots=True, eq=False)
class PodQuery:
    """A query that can be evaluated for one pod. `names` have a placeholder for the rule's series."""

    names: tuple[str, ...]
    counts: bool
    """Whether it uses more than the last scrape, as rates do."""
    selections: tuple[tuple[str, tuple[Matcher, ...]], ...]
    """The names with the query's own matchers on exposed labels."""
    _root: _Vector

    def select(self, series: str) -> Selections:
        """Return the series to keep for the rule's `series`."""
        selections: dict[str, frozenset[tuple[Matcher, ...]]] = {}
        for name, group in self.selections:
            full = name.replace(mergeable.SERIES_SLOT, series)
            selections[full] = selections.get(full, frozenset()) | {group}
        return selections

    def series_names(self, series: str) -> frozenset[str]:
        """Return the names to read for the rule's `series`."""
        return frozenset(name.replace(mergeable.SERIES_SLOT, series) for name in self.names)

    def evaluate(
        self, pod: PodSeries, series: str, identity: PodIdentity, selector: Sequence[Matcher], window: float
    ) -> Generator[None, None, PodValue | None]:
        """Return the pod's value, None without a matching series.

        `selector` has the matchers of the metric selector, `window` the seconds of rates. Steps take about a
        millisecond; between them `pod` must not change.
        """
        scope = _Scope(series, pod, identity.labels(), tuple(selector), window)
        elements = yield from self._root.evaluate(scope)
        if not elements:
            return None
        return PodValue(elements[0][1], scope.gone if math.isinf(scope.oldest) else scope.oldest)


def compile_query(template: Template, pod_label: str, namespace_label: str) -> PodQuery:
    """Compile the query of a rule. Raises UnscrapableError with the reason."""
    if not template.is_plain:
        raise UnscrapableError("the template has actions other than a plain variable")
    foreign = sorted(set(template.fields) - FIELDS)
    if foreign:
        raise UnscrapableError(f"the template uses .{foreign[0]}")
    try:
        text = template.render(
            {
                "Series": mergeable.SERIES_SLOT,
                "LabelMatchers": mergeable.MATCHERS_SLOT,
                "GroupBy": matchers.write_label(pod_label),
            }
        )
        expression = parsing.parse(text)
    except (TemplateError, ValueError) as error:
        raise UnscrapableError(f"the query does not parse: {matchers.shorten(str(error))}") from error
    compiler = _Compiler(pod_label, namespace_label)
    root = compiler.visit(expression)
    if isinstance(root, float):
        raise UnscrapableError("the query is a number")
    if root.grouping is None:
        raise UnscrapableError(
            "without an aggregation a pod would have a value for each of its series: "
            "write sum(...) by (<<.GroupBy>>)"
        )
    if extra := sorted(root.grouping - compiler.own_labels):
        raise UnscrapableError(f"grouped by {extra[0]} too, a pod would have several values")
    selections = tuple(dict.fromkeys(compiler.selections))
    names = tuple(dict.fromkeys(name for name, _ in selections))
    return PodQuery(names, compiler.counts, selections, root)


class _Compiler:
    """One pass over a query; refuses the first part that needs more than the series of one pod."""

    def __init__(self, pod_label: str, namespace_label: str) -> None:
        self.pod_label = pod_label
        self.own_labels = frozenset({pod_label, namespace_label} - {""})
        self.selections: list[tuple[str, tuple[Matcher, ...]]] = []
        self.counts = False

    def visit(self, node: Any) -> _Operand:
        visitor = _VISITORS.get(type(node))
        if visitor is None:
            raise UnscrapableError("a string or a subquery cannot be computed from scrapes")
        return visitor(self, node)

    def unary(self, node: Any) -> _Operand:
        return _map(self.visit(node.expr), operator.neg)

    def selector(self, node: Any) -> _Vector:
        """Return the values of the series of the last scrape."""
        return self._series(node, lambda track, scope: last_value(track, scope.pod))

    def call(self, node: Any) -> _Operand:
        name = node.func.name
        arguments = list(node.args)
        if name in arithmetic.PER_VALUE:
            return _map(self.visit(arguments[0]), arithmetic.PER_VALUE[name])
        if name in arithmetic.WITH_BOUND:
            limit, pick = self.visit(arguments[1]), arithmetic.WITH_BOUND[name]
            assert isinstance(limit, float), "the parser accepts nothing else, and scalar() is refused"
            return _map(
                self.visit(arguments[0]), lambda value: math.nan if math.isnan(value) else pick(value, limit)
            )
        reading = _READINGS.get(name)
        if reading is None:
            known = ", ".join((*_READINGS, *arithmetic.PER_VALUE, *arithmetic.WITH_BOUND))
            raise UnscrapableError(f"{name}() cannot be computed from scrapes, only {known}")
        matrix = arguments[0]
        if not isinstance(matrix, promql.MatrixSelector):
            raise UnscrapableError(f"{name}() needs a plain series selector")
        seconds = matrix.range.total_seconds()
        self.counts = self.counts or name != "last_over_time"
        return self._series(matrix.vector_selector, lambda track, scope: reading(track, scope, seconds))

    def aggregate(self, node: Any) -> _Vector:
        name = str(node.op)
        function = arithmetic.AGGREGATIONS.get(name)
        if function is None:
            raise UnscrapableError(f"{name} is not one of {', '.join(arithmetic.AGGREGATIONS)}")
        if node.modifier is None or node.modifier.type != promql.AggModifierType.By:
            raise UnscrapableError(f"{name} without a grouping by pods: write {name}(...) by (<<.GroupBy>>)")
        labels = tuple(dict.fromkeys(node.modifier.labels))
        if self.pod_label not in labels:
            raise UnscrapableError(
                f"{name} by ({', '.join(labels)}) does not name {self.pod_label}: it mixes pods"
            )
        inner = self.visit(node.expr)
        assert isinstance(inner, _Vector), "the parser accepts nothing else"
        others = tuple(label for label in labels if label not in self.own_labels)

        def evaluate(scope: _Scope) -> _Elements:
            elements = yield from inner.evaluate(scope)
            if not others:  # one group, as in nearly every query
                return [(_NO_LABELS, function([value for _, value in elements]))] if elements else []
            groups: dict[tuple[str, ...], list[float]] = {}
            for carried, value in elements:
                groups.setdefault(tuple(carried.get(label, "") for label in others), []).append(value)
            return [(dict(zip(others, key, strict=True)), function(values)) for key, values in groups.items()]

        carries = frozenset(labels) if inner.grouping is None else frozenset(labels) & inner.grouping
        return _Vector(evaluate, carries)

    def binary(self, node: Any) -> _Operand:
        name = str(node.op).strip()
        function = arithmetic.ARITHMETIC.get(name)
        if function is None:
            raise UnscrapableError(
                f"{name} is not computed from scrapes, only {' '.join(arithmetic.ARITHMETIC)}"
            )
        left, right = self.visit(node.lhs), self.visit(node.rhs)
        if isinstance(right, float):
            return _map(left, lambda value: function(value, right))
        if isinstance(left, float):
            return _map(right, lambda value: function(left, value))
        self._check_matching(name, left, right, node.modifier)

        def evaluate(scope: _Scope) -> _Elements:
            ones = yield from left.evaluate(scope)
            others = yield from right.evaluate(scope)
            return [(ones[0][0], function(ones[0][1], others[0][1]))] if ones and others else []

        return _Vector(evaluate, left.grouping)

    def _check_matching(self, name: str, left: _Vector, right: _Vector, modifier: Any) -> None:
        """Refuse two vectors unless each is one value of the pod and Prometheus would match them."""
        if (
            left.grouping is None
            or right.grouping is None
            or (left.grouping | right.grouping) - self.own_labels
        ):
            raise UnscrapableError(
                f"{name} matches series with one another: aggregate both sides by (<<.GroupBy>>)"
            )
        matching = None
        if modifier is not None:
            fills = modifier.fill_values
            if fills.lhs is not None or fills.rhs is not None:
                raise UnscrapableError(f"{name} has fill values for missing series")
            matching = modifier.matching
        if matching is None:
            if left.grouping != right.grouping:
                raise UnscrapableError(f"the sides of {name} are grouped by different labels and never match")
        elif matching.type != promql.LabelModifierType.Include or self.pod_label not in matching.labels:
            raise UnscrapableError(f"{name} with a matching that does not name {self.pod_label}")
        elif (left.grouping ^ right.grouping) & frozenset(matching.labels):
            raise UnscrapableError(f"{name} matches on labels that one side does not have")

    def _series(self, node: Any, read: Callable[[Track, _Scope], float | None]) -> _Vector:
        """Return the values that `read` gives for the series of a selector."""
        shown = node.name or "{...}"
        if not node.name:
            raise UnscrapableError("a selector without the name of a series")
        if node.at is not None or node.offset is not None:
            raise UnscrapableError(f"{plain(shown)} has an @ modifier or an offset")
        if node.matchers.or_matchers:
            raise UnscrapableError(f"{plain(shown)} joins matchers with or")
        own = self._own_matchers(node, plain(shown))
        self.selections.append(
            (shown, tuple(matcher for matcher in own if matcher.label not in self.own_labels))
        )

        def evaluate(scope: _Scope) -> _Elements:
            elements: list[_Element] = []
            selector = [*own, *scope.selector]
            about_pod = [matcher for matcher in selector if matcher.label in scope.identity]
            about_series = [matcher for matcher in selector if matcher.label not in scope.identity]
            if not all(matchers.build_test(matcher)(scope.identity) for matcher in about_pod):
                return elements
            tests = [matchers.build_test(matcher) for matcher in about_series]
            work = 0
            for track in scope.pod.tracks(shown.replace(mergeable.SERIES_SLOT, scope.series)):
                if not tests or all(test(track) for test in tests):
                    value = read(track, scope)
                    if value is not None:
                        elements.append((track, value))
                        scope.note(track)
                work += 1 + len(tests)
                if work >= _STEP_TESTS:
                    work = 0
                    yield
            return elements

        return _Vector(evaluate, None)

    def _own_matchers(self, node: Any, shown: str) -> tuple[Matcher, ...]:
        slots = 0
        own = []
        for matcher in node.matchers.matchers:
            if matcher.name == SLOT_LABEL:
                slots += 1
            elif matcher.name in _TARGET_LABELS - self.own_labels:
                raise UnscrapableError(
                    f"{shown} is selected by {matcher.name}, which Prometheus adds and pods do not expose"
                )
            elif mergeable.SERIES_SLOT in matcher.name or mergeable.SERIES_SLOT in matcher.value:
                raise UnscrapableError(f"{shown} has <<.Series>> in a matcher")
            else:
                own.append(own_matcher(matcher, shown))
        if slots != 1:
            raise UnscrapableError(f"{shown} is selected without <<.LabelMatchers>>")
        return tuple(own)


def own_matcher(matcher: Any, shown: str) -> Matcher:
    """Return a matcher of the query for the series `shown`. Raises UnscrapableError if RE2 refuses it."""
    own = Matcher(matcher.name, mergeable.OPERATORS[str(matcher.op)], matcher.value)
    try:
        matchers.build_test(own)
    except ValueError as error:
        raise UnscrapableError(f"{shown} is selected by an invalid expression: {error}") from error
    return own


def plain(name: str) -> str:
    """Return the name of a series as the rule's template has it."""
    return name.replace(mergeable.SERIES_SLOT, "<<.Series>>")


def finish(steps: Generator[None, None, _T]) -> _T:
    """Run an evaluation to its end and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: _T = ended.value
            return result


def _map(inner: _Operand, function: Callable[[float], float]) -> _Operand:
    if isinstance(inner, float):
        return function(inner)

    def evaluate(scope: _Scope) -> _Elements:
        elements = yield from inner.evaluate(scope)
        return [(labels, function(value)) for labels, value in elements]

    return _Vector(evaluate, inner.grouping)


def last_value(track: Track, pod: PodSeries) -> float | None:
    """Return the value of the last scrape, None if that lacked the series."""
    return track.values[-1] if track.scrape == pod.scrapes else None


def _increase(track: Track, scope: _Scope, seconds: float) -> float | None:
    """Return the rate over our window as the increase over the range in the query."""
    rate = track.rate(scope.pod.time, scope.window)
    return None if rate is None else rate * seconds


_READINGS: Mapping[str, Callable[[Track, _Scope, float], float | None]] = {
    "rate": lambda track, scope, _: track.rate(scope.pod.time, scope.window),
    "increase": _increase,
    "irate": lambda track, scope, _: track.last_rate(scope.pod.time, scope.window),
    "last_over_time": lambda track, scope, _: last_value(track, scope.pod),
}
_VISITORS: Mapping[type, Callable[[_Compiler, Any], _Operand]] = {
    promql.NumberLiteral: lambda _, node: float(node.val),
    promql.ParenExpr: lambda compiler, node: compiler.visit(node.expr),
    promql.UnaryExpr: _Compiler.unary,
    promql.VectorSelector: _Compiler.selector,
    promql.Call: _Compiler.call,
    promql.AggregateExpr: _Compiler.aggregate,
    promql.BinaryExpr: _Compiler.binary,
}
