"""Instant vectors of PromQL: label matchers, aggregation, and operators between two of them.

What lives here: values and labels, no syntax tree and no time. Its law: what Prometheus refuses while it evaluates is refused here
in its words.
"""

import math
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import re2

from adapter.sandbox.prometheus.range_functions import total
from adapter.sandbox.prometheus.series import NAME, LabelSet

_REGULAR = re2.Options()
_REGULAR.log_errors = False


class QueryFailure(Exception):  # noqa: N818  # Prometheus calls it an error type and an error
    """A query was refused; `type` is ``bad_data`` (it cannot be read) or ``execution`` (it cannot be evaluated)."""

    def __init__(self, type_: str, message: str) -> None:
        self.type = type_
        super().__init__(message)


class Element(NamedTuple):
    """One element of an instant vector."""

    labels: LabelSet
    value: float


class Matcher(NamedTuple):
    """One label matcher; an absent label has the value "". `exact` is the one value that can match, or None."""

    name: str
    test: Callable[[str], bool]
    exact: str | None = None

    def holds(self, labels: LabelSet) -> bool:
        """Say whether the labels match."""
        return self.test(next((value for name, value in labels if name == self.name), ""))


def matcher(name: str, sign: str, value: str) -> Matcher:
    """Return the matcher of ``=``, ``!=``, ``=~`` or ``!~``; regular expressions are RE2 and match whole values."""
    if sign == "=":
        return Matcher(name, lambda found: found == value, value)
    if sign == "!=":
        return Matcher(name, lambda found: found != value)
    try:
        pattern = re2.compile(value, _REGULAR)
    except re2.error as cause:
        raise QueryFailure("bad_data", f"parse error: error parsing regexp: {cause}") from None
    if sign == "=~":
        return Matcher(name, lambda found: pattern.fullmatch(found) is not None)
    return Matcher(name, lambda found: pattern.fullmatch(found) is None)


def without(labels: LabelSet, names: Collection[str]) -> LabelSet:
    """Return the labels but those named."""
    return tuple(pair for pair in labels if pair[0] not in names)


def only(labels: LabelSet, names: Collection[str]) -> LabelSet:
    """Return the labels that are named."""
    return tuple(pair for pair in labels if pair[0] in names)


def unnamed(labels: LabelSet) -> LabelSet:
    """Return the labels without the metric name."""
    return without(labels, (NAME,))


def distinct(elements: list[Element]) -> list[Element]:
    """Return the elements, or refuse when two have the same labels."""
    if len({element.labels for element in elements}) != len(elements):
        raise QueryFailure("execution", "vector cannot contain metrics with the same labelset")
    return elements


def _variance(values: Sequence[float]) -> float:
    mean = total(values) / len(values)
    return total([(value - mean) ** 2 for value in values]) / len(values)


def quantile(share: float, values: Sequence[float]) -> float:
    """Return a quantile with linear interpolation; outside of [0, 1] it is infinite."""
    if math.isnan(share):
        return math.nan
    if not 0 <= share <= 1:
        return math.inf if share > 1 else -math.inf
    ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    rank = share * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    weight = rank - low
    return ordered[low] * (1 - weight) + ordered[high] * weight


def _extreme(choose: Callable[[Iterable[float]], float]) -> Callable[[Sequence[float]], float]:
    def find(values: Sequence[float]) -> float:
        numbers = [value for value in values if not math.isnan(value)]
        return choose(numbers) if numbers else math.nan

    return find


AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": total,
    "avg": lambda values: total(values) / len(values),
    "min": _extreme(min),
    "max": _extreme(max),
    "count": lambda values: float(len(values)),
    "group": lambda _: 1.0,
    "stddev": lambda values: math.sqrt(_variance(values)),
    "stdvar": _variance,
}


def aggregate(
    elements: Iterable[Element],
    reduce: Callable[[Sequence[float]], float],
    group: Callable[[LabelSet], LabelSet],
) -> list[Element]:
    """Reduce the values of each group, in the order in which groups first appear."""
    groups: dict[LabelSet, list[float]] = {}
    for element in elements:
        groups.setdefault(group(element.labels), []).append(element.value)
    return [Element(labels, reduce(values)) for labels, values in groups.items()]


def _divide(one: float, other: float) -> float:
    if other == 0:
        if one == 0 or math.isnan(one):
            return math.nan
        return math.copysign(math.inf, one) * math.copysign(1.0, other)
    return one / other


def _modulo(one: float, other: float) -> float:
    return math.nan if other == 0 or math.isinf(one) else math.fmod(one, other)


def _power(one: float, other: float) -> float:
    try:
        return math.pow(one, other)
    except OverflowError:
        return math.inf if one > 0 or other % 2 == 0 else -math.inf
    except ValueError:
        return math.inf if one == 0 else math.nan


ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _modulo,
    "^": _power,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
SETS = frozenset(("and", "or", "unless"))


class Matching(NamedTuple):
    """Which labels two elements must share: those named by `on`, or all but the name and those of `ignoring`."""

    labels: tuple[str, ...]
    on: bool

    def signature(self, labels: LabelSet) -> LabelSet:
        """Return what must be equal."""
        return only(labels, self.labels) if self.on else without(labels, (*self.labels, NAME))

    def result(self, labels: LabelSet, *, keep_name: bool) -> LabelSet:
        """Return the labels of a result."""
        if self.on:
            return only(labels, self.labels if keep_name else [name for name in self.labels if name != NAME])
        return without(labels, self.labels if keep_name else (*self.labels, NAME))


def pair(
    left: Sequence[Element], right: Sequence[Element], matching: Matching
) -> list[tuple[Element, Element]]:
    """Return the pairs that match one to one, in the order of the left side; refuses anything else."""
    by_signature: dict[LabelSet, Element] = {}
    for element in right:
        signature = matching.signature(element.labels)
        if signature in by_signature:
            other = by_signature[signature].labels
            raise QueryFailure(
                "execution",
                f"found duplicate series for the match group {show(signature)} on the right hand-side of the operation: "
                f"[{show(element.labels)}, {show(other)}];many-to-many matching not allowed: matching labels must be unique on one side",
            )
        by_signature[signature] = element
    seen: set[LabelSet] = set()
    pairs = []
    for element in left:
        signature = matching.signature(element.labels)
        if signature in by_signature:
            if signature in seen:
                message = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                raise QueryFailure("execution", message)
            seen.add(signature)
            pairs.append((element, by_signature[signature]))
    return pairs


def combine_sets(name: str, left: list[Element], right: list[Element], matching: Matching) -> list[Element]:
    """Return ``and``, ``or`` or ``unless`` of two vectors."""
    on_right = {matching.signature(element.labels) for element in right}
    if name == "and":
        return [element for element in left if matching.signature(element.labels) in on_right]
    if name == "unless":
        return [element for element in left if matching.signature(element.labels) not in on_right]
    on_left = {matching.signature(element.labels) for element in left}
    return left + [element for element in right if matching.signature(element.labels) not in on_left]


def show(labels: LabelSet) -> str:
    """Return labels as Prometheus prints them."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}"
