"""Load curves: a value as a function of time, with its exact integral.

The integral lets a gauge and a counter follow the same load: a counter whose rate is the curve grows by the
difference of the integral between two times.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """`value` at a time in epoch seconds, and `total`, its integral up to a constant."""

    value: Callable[[float], float]
    total: Callable[[float], float]

    def __call__(self, now: float) -> float:
        return self.value(now)


def constant(level: float) -> Curve:
    return Curve(lambda _: level, lambda now: level * now)


def wave(mean: float, amplitude: float, period: float, phase: float = 0.0) -> Curve:
    """Return a sine around `mean`.

    `period` and `phase` are in seconds; the maximum is at `phase` + `period` / 4.
    """
    speed = 2 * math.pi / period

    def value(now: float) -> float:
        return mean + amplitude * math.sin(speed * (now - phase))

    def total(now: float) -> float:
        return mean * now - amplitude / speed * math.cos(speed * (now - phase))

    return Curve(value, total)


def steps(levels: Sequence[tuple[float, float]], before: float = 0.0) -> Curve:
    """Return a load that jumps to each level at its time; `levels` are (epoch seconds, level) in order."""

    def value(now: float) -> float:
        level = before
        for start, after in levels:
            if now < start:
                break
            level = after
        return level

    def total(now: float) -> float:
        origin = levels[0][0] if levels else 0.0
        if now < origin or not levels:
            return before * (now - origin)
        ends = [start for start, _ in levels[1:]] + [math.inf]
        return sum(
            level * (min(now, end) - start)
            for (start, level), end in zip(levels, ends, strict=True)
            if start <= now
        )

    return Curve(value, total)


def share(curve: Curve, factor: float) -> Curve:
    return Curve(lambda now: factor * curve.value(now), lambda now: factor * curve.total(now))


def counter(rate: Curve, since: float) -> Callable[[float], float]:
    """Return a counter that starts at zero at `since` and grows at `rate` a second."""
    start = rate.total(since)
    return lambda now: rate.total(now) - start
