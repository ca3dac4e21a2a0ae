"""What one run looked like, reduced to the columns of a picture: a run of any length takes the same memory.

A column is a range of seconds. Of need, ready pods and replicas it keeps the first, the last, the least and
the greatest value, which is all that a line of that width can show.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.autoscaler.decide.restraint import Restraint
from fastpath_forecast.simulate.deciders import Decider


class Extent(NamedTuple):
    """One line within a column, in an order that draws all of it."""

    first: float
    low: float
    high: float
    last: float

    @classmethod
    def after(cls, before: "Extent | None", value: float) -> "Extent":
        if before is None:
            return cls(value, value, value, value)
        return cls(before.first, min(before.low, value), max(before.high, value), value)


@dataclass(slots=True)
class Column:
    """The seconds of a run from `start` to `end`.

    `need` is None in a gap. `worst` are ready pods and need at the largest shortage.
    """

    start: float
    end: float
    need: Extent | None = None
    ready: Extent | None = None
    replicas: Extent | None = None
    seconds: int = 0
    restraints: Counter[Restraint] = field(default_factory=Counter)
    worst: tuple[int, float] | None = None

    def add(self, seconds: int, need: float, ready: int, replicas: int, restraint: Restraint) -> None:
        self.seconds += seconds
        self.restraints[restraint] += seconds
        self.ready = Extent.after(self.ready, ready)
        self.replicas = Extent.after(self.replicas, replicas)
        if math.isnan(need):
            return
        self.need = Extent.after(self.need, need)
        if need > ready and (self.worst is None or need - ready > self.worst[1] - self.worst[0]):
            self.worst = (ready, need)

    @property
    def restraint(self) -> Restraint:
        return max(self.restraints, key=lambda restraint: (self.restraints[restraint], restraint.value))


class Recording:
    """The columns of a run of `seconds`, at most `most`: the observer of a run."""

    def __init__(self, seconds: int, most: int) -> None:
        self.seconds = seconds
        count = min(seconds, most)
        self.columns: Sequence[Column] = [
            Column(place * seconds / count, (place + 1) * seconds / count) for place in range(count)
        ]
        self._restraint = Restraint.FOLLOWS
        self._floor: Restraint | None = None
        """What a boosted HPA reads a floor of: a schedule, or a raise."""

    def stretch(self, second: int, seconds: int, need: float, ready: int, replicas: int) -> None:
        restraint = self._floor or self._restraint
        count, end = len(self.columns), second + seconds
        while second < end:
            place = second * count // self.seconds
            after = min(end, -(-(place + 1) * self.seconds // count))
            self.columns[place].add(after - second, need, ready, replicas, restraint)
            second = after

    def decided(self, place: int, decider: Decider) -> None:
        """Note the restraint of the first chain, and the floor that the second one gives it."""
        if decider.last is None:
            return
        restraint = decider.last.limit
        if place == 0:
            self._restraint = restraint
        elif restraint is Restraint.SCHEDULED:
            self._floor = restraint
        else:
            self._floor = Restraint.FLOOR if decider.holds_floor else None
