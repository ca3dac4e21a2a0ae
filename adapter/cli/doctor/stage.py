"""The hops between a change of the load and ready pods.

How long each takes, and whether something is wrong with it. `metric` and `shared` make hops from `facts`.
Unknown seconds are None and never count as 0.
"""

import enum
import math
from collections.abc import Iterable
from typing import NamedTuple


class State(enum.StrEnum):
    """How a hop is."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class Improvement(NamedTuple):
    """Something that one could do, and how many seconds it usually saves.

    Infinite where nothing works without it.
    """

    text: str
    saves: float = math.inf


class Took(NamedTuple):
    """How long a hop takes usually and at most, in seconds."""

    usual: float
    most: float


def evenly(most: float) -> Took:
    """Return how long one waits for what comes every `most` seconds."""
    return Took(most / 2, most)


NOTHING = Took(0.0, 0.0)


class Hop(NamedTuple):
    """One hop. `took` is None where it is not known; `timed` is False for what takes no time in any case."""

    name: str
    state: State
    text: str
    took: Took | None = None
    change: Improvement | None = None
    timed: bool = True


class Chain(NamedTuple):
    """The hops of one metric, from the load to the count that is written."""

    metric: str
    hops: tuple[Hop, ...]


class Total(NamedTuple):
    """What a chain comes to; `whole` is False where the time of a hop is missing in it."""

    took: Took
    whole: bool


def total(hops: Iterable[Hop]) -> Total:
    """Return the sum over hops."""
    timed = [each for each in hops if each.timed]
    known = [each.took for each in timed if each.took is not None]
    return Total(
        Took(sum(each.usual for each in known), sum(each.most for each in known)), len(known) == len(timed)
    )


def seconds(value: float) -> str:
    """Return seconds for people: ``40 ms``, ``7.5 s``, ``2 m 30 s``."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms" if value >= 0.0005 else "0 s"
    if value < 9.95:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} m {rest} s" if rest else f"{minutes} m"
