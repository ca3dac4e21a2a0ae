"""PromQL's arithmetic, comparisons, aggregations and functions of single values.

As in IEEE 754, every function takes and returns any float, NaN and infinities included; none raises as
Python's do.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence


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
    except OverflowError:
        beyond = True
    except ValueError:  # a root of a negative number, or zero to a negative power
        beyond = left == 0
    if not beyond:
        return math.nan
    return math.copysign(math.inf, left) if right % 2 == 1 else math.inf


def _add(values: Sequence[float]) -> float:
    """Add without rounding errors, as Prometheus does with Kahan's and Neumaier's compensation."""
    total = sum(values)
    if not math.isfinite(total):
        return total
    try:
        return math.fsum(values)
    except OverflowError:  # an intermediate sum is beyond all floats
        return total


def _average(values: Sequence[float]) -> float:
    total = _add(values)
    if math.isinf(total) and all(map(math.isfinite, values)):
        return sum(value / len(values) for value in values)  # the sum is beyond all floats, the mean is not
    return total / len(values)


def _extreme(pick: Callable[[Sequence[float]], float]) -> Callable[[Sequence[float]], float]:
    """Return max or min of the values that are not NaN; NaN only without such values."""

    def found(values: Sequence[float]) -> float:
        numbers = [value for value in values if not math.isnan(value)]
        return pick(numbers) if numbers else math.nan

    return found


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
