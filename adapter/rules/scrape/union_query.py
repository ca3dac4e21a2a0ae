"""A rule's query over the series of several endpoints together, or the reason why it cannot be evaluated.

`compile_query` compiles the rule's PromQL once; `UnionQuery.evaluate` returns the samples that Prometheus
would answer if it had scraped the same endpoints at the same time. As in `pod_query`, rates are over the
rule's `window` and divided by the time between its first and last sample, and everything else is of the last
scrape of each endpoint. A query that cannot be evaluated exactly is refused, never approximated.
"""

import math
import operator
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import TemplateError, UnionError, UnscrapableError
from adapter.rules import matchers, mergeable, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.scrape import arithmetic, pod_query
from adapter.rules.scrape.pod_query import FIELDS, SLOT_LABEL, last_value, plain
from adapter.rules.scrape.series import Labels, PodSeries, Selections, Track
from adapter.rules.template.template import Template

NAME = "__name__"

MOST_RESULTS = 10_000
"""Bound on the samples of one answer."""

_STEP_WORK, _STEP_GROUPED = 1000, 250
"""How many series and matchers a step looks at, and how many samples it groups."""

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


class Element(NamedTuple):
    """A sample: its labels without the name of the series, and that name, "" without one."""

    labels: Labels
    value: float
    name: str = ""

    def all_labels(self) -> dict[str, str]:
        named = {NAME: self.name} if self.name else {}
        return named | dict(zip(self.labels[::2], self.labels[1::2], strict=True))


class UnionAnswer(NamedTuple):
    """The samples of an answer, and the time of the oldest of the newest samples behind it.

    `time` is infinite if no series was selected; `shown` says whether a last scrape had one of the names.
    """

    elements: tuple[Element, ...]
    time: float
    shown: bool


_Vector = Generator[None, None, list[Element]]


@dataclass(slots=True)
class _Scope:
    """The input of an evaluation: endpoints, the rule's series, and the matchers of the question."""

    endpoints: Sequence[PodSeries]
    series: str
    selector: tuple[Matcher, ...]
    window: float
    oldest: float = math.inf
    gone: float = math.inf

    def note(self, track: Track, endpoint: PodSeries) -> None:
        """Note the time of a series in use; one that the last scrape lacks does not make the others older."""
        if track.scrape == endpoint.scrapes:
            self.oldest = min(self.oldest, track.times[-1])
        else:
            self.gone = min(self.gone, track.times[-1])


_Part = Callable[[_Scope], _Vector] | float
"""A part of a query; a number is known when it is compiled."""

_Reading = Callable[[Track, PodSeries, _Scope], float | None]


@dataclass(frozen=True, slots=True, eq=False)
class UnionQuery:
    """A query that can be evaluated. `counts`: it uses more than the last scrape, as rates do."""

    counts: bool
    selections: tuple[tuple[str, tuple[Matcher, ...]], ...]
    """The names, with a placeholder for the rule's series, and the query's own matchers."""
    _root: Callable[[_Scope], _Vector]

    def select(self, series: str) -> Selections:
        """Return the series to keep for the rule's `series`."""
        selections: dict[str, frozenset[tuple[Matcher, ...]]] = {}
        for name, group in self.selections:
            full = name.replace(mergeable.SERIES_SLOT, series)
            selections[full] = selections.get(full, frozenset()) | {group}
        return selections

    def evaluate(
        self, endpoints: Sequence[PodSeries], series: str, selector: Sequence[Matcher], window: float
    ) -> Generator[None, None, UnionAnswer]:
        """Evaluate in steps, between which the endpoints must not change. Raises UnionError.

        `selector` has the matchers of the question, `window` is the seconds of rates.
        """
        scope = _Scope(endpoints, series, tuple(selector), window)
        elements = yield from self._root(scope)
        if len(elements) > MOST_RESULTS:
            raise UnionError(f"the query has more than {MOST_RESULTS} samples")
        names = self.select(series)
        shown = any(endpoint.shows(names) for endpoint in endpoints)
        return UnionAnswer(tuple(elements), scope.gone if math.isinf(scope.oldest) else scope.oldest, shown)


def compile_query(template: Template, absent: Collection[str] = ()) -> UnionQuery:
    """Compile the query of a rule. Raises UnscrapableError with the reason.

    `absent` are the labels that Prometheus has and scrapes do not know.
    """
    if not template.is_plain:
        raise UnscrapableError("the template has actions other than a plain variable")
    foreign = sorted(set(template.fields) - FIELDS)
    if foreign:
        raise UnscrapableError(f"the template uses .{foreign[0]}")
    slots = {"Series": mergeable.SERIES_SLOT, "LabelMatchers": mergeable.MATCHERS_SLOT, "GroupBy": ""}
    try:
        expression = parsing.parse(template.render(slots))
    except (TemplateError, ValueError) as error:
        raise UnscrapableError(f"the query does not parse: {matchers.shorten(str(error))}") from error
    compiler = _Compiler(frozenset(absent))
    root = compiler.visit(expression)
    if isinstance(root, float):
        raise UnscrapableError("the query is a number")
    return UnionQuery(compiler.counts, tuple(dict.fromkeys(compiler.selections)), root)


class _Compiler:
    """One pass over a query; refuses the first part that needs more than the scraped series."""

    def __init__(self, absent: frozenset[str]) -> None:
        self.absent = absent
        self.selections: list[tuple[str, tuple[Matcher, ...]]] = []
        self.counts = False

    def visit(self, node: Any) -> _Part:
        visitor = _VISITORS.get(type(node))
        if visitor is None:
            raise UnscrapableError("a string or a subquery cannot be computed from scrapes")
        return visitor(self, node)

    def unary(self, node: Any) -> _Part:
        return _map(self.visit(node.expr), operator.neg)

    def selector(self, node: Any) -> _Part:
        return self._series(node, lambda track, endpoint, _: last_value(track, endpoint), drops_name=False)

    def call(self, node: Any) -> _Part:
        name = node.func.name
        arguments = list(node.args)
        if name == "vector":
            value = self.visit(arguments[0])
            assert isinstance(value, float), "the parser accepts scalars only, and other scalars are refused"
            return _constant(value)
        if name in arithmetic.PER_VALUE:
            return _map(self.visit(arguments[0]), arithmetic.PER_VALUE[name])
        if name in arithmetic.WITH_BOUND:
            limit, pick = self.visit(arguments[1]), arithmetic.WITH_BOUND[name]
            assert isinstance(limit, float), "the parser accepts nothing else, and scalar() is refused"
            return _map(
                self.visit(arguments[0]), lambda value: math.nan if math.isnan(value) else pick(value, limit)
            )
        if name not in _RANGES:
            known = ", ".join((*_RANGES, *arithmetic.PER_VALUE, *arithmetic.WITH_BOUND, "vector"))
            raise UnscrapableError(f"{name}() cannot be computed from scrapes, only {known}")
        matrix = arguments[0]
        if not isinstance(matrix, promql.MatrixSelector):
            raise UnscrapableError(f"{name}() needs a plain series selector")
        reading = _RANGES[name]
        if reading is None:
            return self.selector(matrix.vector_selector)
        self.counts = True
        return self._series(matrix.vector_selector, reading(matrix.range.total_seconds()), drops_name=True)

    def aggregate(self, node: Any) -> _Part:
        name = str(node.op)
        function = arithmetic.AGGREGATIONS.get(name)
        if function is None:
            raise UnscrapableError(f"{name} is not one of {', '.join(arithmetic.AGGREGATIONS)}")
        inner = self.visit(node.expr)
        assert not isinstance(inner, float), "the parser accepts nothing else"
        labels: frozenset[str] = frozenset()
        without = False
        if node.modifier is not None:
            labels = self._known(node.modifier.labels)
            without = node.modifier.type == promql.AggModifierType.Without

        def evaluate(scope: _Scope) -> _Vector:
            elements = yield from inner(scope)
            groups: dict[Element, list[float]] = {}
            for number, element in enumerate(elements, 1):
                key = _kept(element, labels, without=without)
                groups.setdefault(key, []).append(element.value)
                if number % _STEP_GROUPED == 0:
                    yield
            return [key._replace(value=function(values)) for key, values in groups.items()]

        return evaluate

    def binary(self, node: Any) -> _Part:
        name = str(node.op).strip()
        left, right = self.visit(node.lhs), self.visit(node.rhs)
        if name in _SETS:
            assert not isinstance(left, float), "the parser accepts nothing else"
            assert not isinstance(right, float), "as above"
            return _set(_SETS[name], left, right, self._matching(name, node.modifier))
        if name in _COMPARISONS:
            return self._compare(name, left, right, node.modifier)
        function = arithmetic.ARITHMETIC.get(name)
        if function is None:
            known = " ".join((*arithmetic.ARITHMETIC, *_COMPARISONS, *_SETS))
            raise UnscrapableError(f"{name} is not computed from scrapes, only {known}")
        if isinstance(right, float):
            return _map(left, lambda value: function(value, right))
        if isinstance(left, float):
            return _map(right, lambda value: function(left, value))
        return _arithmetic(function, left, right, self._matching(name, node.modifier))

    def _compare(self, name: str, left: _Part, right: _Part, modifier: Any) -> _Part:
        test, as_number = _COMPARISONS[name], modifier is not None and modifier.return_bool
        if isinstance(left, float):
            if isinstance(right, float):
                return float(test(left, right))
            vector, number, flipped = right, left, True
        elif isinstance(right, float):
            vector, number, flipped = left, right, False
        else:
            raise UnscrapableError(f"{name} between two vectors is not computed from scrapes")

        def holds(value: float) -> bool:
            return test(number, value) if flipped else test(value, number)

        def evaluate(scope: _Scope) -> _Vector:
            elements = yield from vector(scope)
            if as_number:
                return [Element(each.labels, float(holds(each.value))) for each in elements]
            return [each for each in elements if holds(each.value)]

        return evaluate

    def _matching(self, name: str, modifier: Any) -> "_Matching":
        """Return how two vectors are matched, which is one to one."""
        if modifier is None:
            return _Matching(frozenset(), on=False)
        if modifier.card not in _ONE_TO_ONE:
            raise UnscrapableError(f"{name} with group_left or group_right is not computed from scrapes")
        fills = modifier.fill_values
        if fills.lhs is not None or fills.rhs is not None:
            raise UnscrapableError(f"{name} has fill values for missing series")
        matching = modifier.matching
        if matching is None:
            return _Matching(frozenset(), on=False)
        if NAME in matching.labels:
            raise UnscrapableError(f"{name} matches by the names of series")
        on = matching.type == promql.LabelModifierType.Include
        return _Matching(self._known(matching.labels), on=on)

    def _known(self, labels: Sequence[str]) -> frozenset[str]:
        for label in labels:
            if label in self.absent:
                raise UnscrapableError(f"it groups or matches by {label}, which the scraped pods do not have")
        return frozenset(labels)

    def _series(self, node: Any, read: _Reading, *, drops_name: bool) -> _Part:
        """Return the values that `read` gives for the series of a selector."""
        shown = node.name or "{...}"
        if not node.name:
            raise UnscrapableError("a selector without the name of a series")
        if node.at is not None or node.offset is not None:
            raise UnscrapableError(f"{plain(shown)} has an @ modifier or an offset")
        if node.matchers.or_matchers:
            raise UnscrapableError(f"{plain(shown)} joins matchers with or")
        own, narrows = self._own_matchers(node, plain(shown))
        self.selections.append((shown, own))

        def evaluate(scope: _Scope) -> _Vector:
            elements: list[Element] = []
            name = shown.replace(mergeable.SERIES_SLOT, scope.series)
            tests = [matchers.build_test(each) for each in (*own, *(scope.selector if narrows else ()))]
            work = 0
            for endpoint in scope.endpoints:
                for track in endpoint.tracks(name):
                    if all(test(track) for test in tests):
                        value = read(track, endpoint, scope)
                        if value is not None:
                            elements.append(Element(track.flat, value, "" if drops_name else name))
                            scope.note(track, endpoint)
                    work += 1 + len(tests)
                    if work >= _STEP_WORK:
                        work = 0
                        yield
            return elements

        return evaluate

    def _own_matchers(self, node: Any, shown: str) -> tuple[tuple[Matcher, ...], bool]:
        """Return the query's own matchers, and whether those of the question come on top."""
        own = []
        narrows = False
        for matcher in node.matchers.matchers:
            if matcher.name == SLOT_LABEL:
                narrows = True
            elif matcher.name in self.absent:
                raise UnscrapableError(
                    f"{shown} is selected by {matcher.name}, which the scraped pods do not have"
                )
            elif mergeable.SERIES_SLOT in matcher.name or mergeable.SERIES_SLOT in matcher.value:
                raise UnscrapableError(f"{shown} has <<.Series>> in a matcher")
            else:
                own.append(pod_query.own_matcher(matcher, shown))
        return tuple(own), narrows


# -- parts of an evaluation ----------------------------------------------------------------------------------


class _Matching(NamedTuple):
    """The labels by which two vectors are matched: `on` these, or all but these."""

    labels: frozenset[str]
    on: bool

    def key(self, element: Element) -> Hashable:
        return _kept(element, self.labels, without=not self.on).labels


def _kept(element: Element, labels: frozenset[str], *, without: bool) -> Element:
    """Return an element with only these labels, or without them; the name counts as a label of its own."""
    name = element.name if not without and NAME in labels else ""
    if not labels:
        return Element(element.labels, 0.0, name) if without else Element((), 0.0, name)
    flat = element.labels
    kept = tuple(
        part
        for at in range(0, len(flat), 2)
        if (flat[at] in labels) is not without
        for part in flat[at : at + 2]
    )
    return Element(kept, 0.0, name)


def _constant(value: float) -> Callable[[_Scope], _Vector]:
    def evaluate(_: _Scope) -> _Vector:
        yield from ()
        return [Element((), value)]

    return evaluate


def _map(inner: _Part, function: Callable[[float], float]) -> _Part:
    if isinstance(inner, float):
        return function(inner)

    def evaluate(scope: _Scope) -> _Vector:
        elements = yield from inner(scope)
        return [Element(each.labels, function(each.value)) for each in elements]

    return evaluate


def _arithmetic(
    function: Callable[[float, float], float],
    left: Callable[[_Scope], _Vector],
    right: Callable[[_Scope], _Vector],
    matching: _Matching,
) -> _Part:
    def evaluate(scope: _Scope) -> _Vector:
        ones = yield from left(scope)
        others: dict[Hashable, Element] = {}
        for each in (yield from right(scope)):
            if others.setdefault(matching.key(each), each) is not each:
                raise UnionError("a series on the left matches several on the right")
        results: dict[Hashable, Element] = {}
        for one in ones:
            key = matching.key(one)
            other = others.get(key)
            if other is None:
                continue
            if key in results:
                raise UnionError("several series on the left match one on the right")
            labels = _kept(one, matching.labels, without=not matching.on).labels
            results[key] = Element(labels, function(one.value, other.value))
        return list(results.values())

    return evaluate


def _set(
    pick: Callable[[list[Element], list[Element], _Matching], list[Element]],
    left: Callable[[_Scope], _Vector],
    right: Callable[[_Scope], _Vector],
    matching: _Matching,
) -> _Part:
    def evaluate(scope: _Scope) -> _Vector:
        ones = yield from left(scope)
        others = yield from right(scope)
        return pick(ones, others, matching)

    return evaluate


def _or(ones: list[Element], others: list[Element], matching: _Matching) -> list[Element]:
    keys = set(map(matching.key, ones))
    return [*ones, *(each for each in others if matching.key(each) not in keys)]


def _and(ones: list[Element], others: list[Element], matching: _Matching) -> list[Element]:
    keys = set(map(matching.key, others))
    return [each for each in ones if matching.key(each) in keys]


def _unless(ones: list[Element], others: list[Element], matching: _Matching) -> list[Element]:
    keys = set(map(matching.key, others))
    return [each for each in ones if matching.key(each) not in keys]


_SETS = {"or": _or, "and": _and, "unless": _unless}
_ONE_TO_ONE = (promql.VectorMatchCardinality.OneToOne, promql.VectorMatchCardinality.ManyToMany)


def _rate(_: float) -> _Reading:
    return lambda track, endpoint, scope: track.rate(endpoint.time, scope.window)


def _increase(seconds: float) -> _Reading:
    """Return the rate over our window as the increase over the range in the query."""

    def read(track: Track, endpoint: PodSeries, scope: _Scope) -> float | None:
        rate = track.rate(endpoint.time, scope.window)
        return None if rate is None else rate * seconds

    return read


def _irate(_: float) -> _Reading:
    return lambda track, endpoint, scope: track.last_rate(endpoint.time, scope.window)


_RANGES: Mapping[str, Callable[[float], _Reading] | None] = {
    "rate": _rate,
    "increase": _increase,
    "irate": _irate,
    "last_over_time": None,  # the same as the selector without a range
}
_VISITORS: Mapping[type, Callable[[_Compiler, Any], _Part]] = {
    promql.NumberLiteral: lambda _, node: float(node.val),
    promql.ParenExpr: lambda compiler, node: compiler.visit(node.expr),
    promql.UnaryExpr: _Compiler.unary,
    promql.VectorSelector: _Compiler.selector,
    promql.Call: _Compiler.call,
    promql.AggregateExpr: _Compiler.aggregate,
    promql.BinaryExpr: _Compiler.binary,
}
