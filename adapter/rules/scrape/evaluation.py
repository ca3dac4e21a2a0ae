"""The parts that an evaluation over scraped series is made of, each a function from a `Scope` to its samples.

A part is a generator: it yields about every millisecond, so that one large query delays nothing else.
Between two steps the series must not change.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.errors import UnionError
from adapter.model.steps import Steps
from adapter.rules import matchers, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.scrape.series import Labels, PodSeries, Track

NAME = "__name__"

_STEP_WORK, _STEP_GROUPED = 1000, 250
"""How many series and matchers a step looks at, and how many samples it groups."""


class Element(NamedTuple):
    """A sample: its labels without the name of the series, and that name, "" without one."""

    labels: Labels
    value: float
    name: str = ""

    def all_labels(self) -> dict[str, str]:
        named = {NAME: self.name} if self.name else {}
        return named | dict(zip(self.labels[::2], self.labels[1::2], strict=True))


@dataclass(slots=True)
class Scope:
    """The input of an evaluation, and the times of the series that it has used so far.

    `series` is the rule's, `selector` has the matchers of the question, `window` is the seconds of rates of a
    pod that is scraped at its interval.
    All series have the labels in `identity`, whatever they say of them themselves. `oldest` is the oldest
    time of the series used from the last scrape, `gone` of those that only earlier scrapes had.
    """

    endpoints: Sequence[PodSeries]
    series: str
    selector: tuple[Matcher, ...]
    window: float
    identity: Mapping[str, str]
    oldest: float = math.inf
    gone: float = math.inf


Vector = Steps[list[Element]]
Part = Callable[[Scope], Vector]
Reading = Callable[[Track, PodSeries, float], float | None]
"""Returns the value of a series for the window of rates, None without one."""


class Projection(NamedTuple):
    """The labels that count in a grouping or a match: these, or with `without` all but these."""

    labels: frozenset[str]
    without: bool

    def key(self, element: Element) -> Labels:
        """Return the labels that count; the name does not belong to them."""
        labels, without = self
        flat = element.labels
        if not labels:
            return flat if without else ()
        return tuple(
            part
            for at in range(0, len(flat), 2)
            if (flat[at] in labels) is not without
            for part in flat[at : at + 2]
        )


ALL_LABELS = Projection(frozenset(), without=True)
NO_LABELS = Projection(frozenset(), without=False)


def _last_value(track: Track, endpoint: PodSeries, _: float) -> float | None:
    """Return the value of the last scrape, None if that lacked the series."""
    return track.values[-1] if track.scrape == endpoint.scrapes else None


def _rate(track: Track, endpoint: PodSeries, window: float) -> float | None:
    return track.rate(endpoint.time, window)


READINGS: Mapping[str, Reading] = {
    "rate": _rate,
    "increase": _rate,  # of our window, for the range in the query
    "irate": lambda track, endpoint, window: track.last_rate(endpoint.time, window),
    "last_over_time": _last_value,
}


def read_series(
    name: str, own: tuple[Matcher, ...], read: Reading, *, narrows: bool, keeps_name: bool
) -> Part:
    """Return the values that `read` gives for the series of a selector with the query's `own` matchers.

    `narrows`: the matchers of the question come on top.
    """

    def evaluate(scope: Scope) -> Vector:
        elements: list[Element] = []
        full, identity = name.replace(parsing.SERIES, scope.series), scope.identity
        selector = (*own, *scope.selector) if narrows else own
        if not all(matchers.build_test(part)(identity) for part in selector if part.label in identity):
            return elements
        tests = [matchers.build_test(part) for part in selector if part.label not in identity]
        shown = full if keeps_name else ""
        oldest, work = scope.oldest, 0
        for endpoint in scope.endpoints:
            window = scope.window * endpoint.stretch
            for track in endpoint.tracks(full):
                if not tests or all(test(track) for test in tests):
                    value = read(track, endpoint, window)
                    if value is not None:
                        elements.append(Element(track.flat, value, shown))
                        time = track.times[-1]
                        if track.scrape != endpoint.scrapes:
                            scope.gone = min(scope.gone, time)
                        elif time < oldest:  # no call of min: this is done for every series
                            oldest = scope.oldest = time
                work += 1 + len(tests)
                if work >= _STEP_WORK:
                    work = 0
                    yield
        return elements

    return evaluate


def constant(value: float) -> Part:
    def evaluate(_: Scope) -> Vector:
        yield from ()
        return [Element((), value)]

    return evaluate


def apply(inner: Part | float, function: Callable[[float], float]) -> Part | float:
    """Return the values of a function of each sample, which has no name then; of a number, its value."""
    if isinstance(inner, float):
        return function(inner)

    def evaluate(scope: Scope) -> Vector:
        elements = yield from inner(scope)
        return [Element(element.labels, function(element.value)) for element in elements]

    return evaluate


def keep(inner: Part | float, test: Callable[[float], float]) -> Part:
    """Return the samples whose value passes a test, as they are."""
    assert not isinstance(inner, float), "the parser accepts a comparison of numbers only with bool"

    def evaluate(scope: Scope) -> Vector:
        elements = yield from inner(scope)
        return [element for element in elements if test(element.value)]

    return evaluate


def aggregate(inner: Part, function: Callable[[Sequence[float]], float], grouping: Projection) -> Part:
    is_one = grouping == NO_LABELS  # as in nearly every query of a pod
    keeps_name = NAME in grouping.labels and not grouping.without

    def evaluate(scope: Scope) -> Vector:
        elements = yield from inner(scope)
        if is_one:
            return [Element((), function([value for _, value, _ in elements]))] if elements else []
        groups: dict[tuple[Labels, str], list[float]] = {}
        for number, element in enumerate(elements, 1):
            group = grouping.key(element), element.name if keeps_name else ""
            groups.setdefault(group, []).append(element.value)
            if number % _STEP_GROUPED == 0:
                yield
        return [Element(labels, function(values), name) for (labels, name), values in groups.items()]

    return evaluate


def combine(function: Callable[[float, float], float], left: Part, right: Part, matching: Projection) -> Part:
    """Return the values of a function of two samples with the same labels. Raises UnionError in a step."""

    def evaluate(scope: Scope) -> Vector:
        ones = yield from left(scope)
        others: dict[Labels, Element] = {}
        for other in (yield from right(scope)):
            if others.setdefault(matching.key(other), other) is not other:
                raise UnionError("a series on the left matches several on the right")
        results: dict[Labels, Element] = {}
        for one in ones:
            labels = matching.key(one)
            match = others.get(labels)
            if match is None:
                continue
            if labels in results:
                raise UnionError("several series on the left match one on the right")
            results[labels] = Element(labels, function(one.value, match.value))
        return list(results.values())

    return evaluate


SETS = ("or", "and", "unless")


def combine_sets(operator: str, left: Part, right: Part, matching: Projection) -> Part:
    """Return the samples of both sides (`or`), or those of the left that the right has (`and`) or lacks."""

    def evaluate(scope: Scope) -> Vector:
        ones = yield from left(scope)
        others = yield from right(scope)
        if operator == "or":
            keys = set(map(matching.key, ones))
            return [*ones, *(other for other in others if matching.key(other) not in keys)]
        keys = set(map(matching.key, others))
        return [one for one in ones if (matching.key(one) in keys) is (operator == "and")]

    return evaluate


# The functions of values. As in IEEE 754, each takes and returns any float, NaN and infinities included; none
# raises as Python's do.


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _remainder(left: float, right: float) -> float:
    """Return the remainder with the sign of `left`, as Go's math.Mod."""
    return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except (OverflowError, ValueError) as error:
        if isinstance(error, ValueError) and left:  # a root of a negative number, not 0 to a negative power
            return math.nan
        return math.copysign(math.inf, left) if right % 2 == 1 else math.inf


def _add(values: Sequence[float]) -> float:
    """Add without rounding errors, as Prometheus does with Kahan's and Neumaier's compensation."""
    try:
        return math.fsum(values)
    except ValueError:  # infinities of both signs
        return math.nan
    except OverflowError:  # an intermediate sum is beyond all floats; `sum` differs between Pythons there
        return functools.reduce(operator.add, values)


def _average(values: Sequence[float]) -> float:
    total = _add(values)
    if math.isinf(total) and all(map(math.isfinite, values)):
        return sum(value / len(values) for value in values)  # the sum is beyond all floats, the mean is not
    return total / len(values)


def _extreme(pick: Callable[[Sequence[float]], float]) -> Callable[[Sequence[float]], float]:
    """Return max or min of the values that are not NaN; NaN only without such values."""
    return lambda values: pick([value for value in values if not math.isnan(value)] or [math.nan])


AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": _add,
    "max": _extreme(max),
    "min": _extreme(min),
    "avg": _average,
    "count": lambda values: float(len(values)),
}
ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
    "^": _power,
}


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(function(value)) if math.isfinite(value) else value


PER_VALUE: Mapping[str, Callable[[float], float]] = {
    "abs": abs,
    "ceil": _whole(math.ceil),
    "floor": _whole(math.floor),
}
WITH_BOUND: Mapping[str, Callable[[float, float], float]] = {"clamp_min": max, "clamp_max": min}
COMPARISONS: Mapping[str, Callable[[float, float], float]] = {
    ">": lambda left, right: float(left > right),
    "<": lambda left, right: float(left < right),
    ">=": lambda left, right: float(left >= right),
    "<=": lambda left, right: float(left <= right),
    "==": lambda left, right: float(left == right),
    "!=": lambda left, right: float(left != right),
}
