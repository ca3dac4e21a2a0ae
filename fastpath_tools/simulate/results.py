"""What a policy came to: its figures over the phases, and the verdicts on its forecasts, one a day."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.model.autoscaling.forecast import DAY
from adapter.simulate.figures import Figures

FIGURES = {
    "shortagePodSeconds": "shortage",
    "excessPodSeconds": "excess",
    "podSeconds": "pod_seconds",
    "needPodSeconds": "need",
    "shortSeconds": "short_seconds",
    "changes": "changes",
    "maxReplicas": "max_replicas",
    "secondsAtMax": "seconds_at_max",
    "backlogMax": "backlog_max",
}
"""The figures of the output in their order, and the fields of `Figures`."""

_COUNTS = frozenset({"shortSeconds", "changes", "maxReplicas", "secondsAtMax"})

_DIGITS = 6  # sums of binary fractions differ from those on paper far behind the point


@dataclass(frozen=True)
class PolicyFigures:
    """What a policy came to: `policy` as it was written, and the figures of each phase."""

    policy: str
    runs: Sequence[Figures]

    def _values(self, name: str) -> list[float]:
        return [getattr(figures, FIGURES[name]) for figures in self.runs]

    def mean(self, name: str) -> float:
        """Return the mean of a figure over the phases; of a count that is whole, an integer."""
        values = self._values(name)
        mean = round(math.fsum(values) / len(values), _DIGITS)
        return int(mean) if name in _COUNTS and mean == int(mean) else float(mean)

    def spread(self, name: str) -> tuple[float, float]:
        values = [value if name in _COUNTS else round(float(value), _DIGITS) for value in self._values(name)]
        return min(values), max(values)

    def document(self) -> dict[str, object]:
        return {
            "policy": self.policy,
            **{name: self.mean(name) for name in FIGURES},
            "spread": {name: self.spread(name) for name in FIGURES},
        }


class RolledVerdict(NamedTuple):
    """The candidate that acts from a second of the load on, "" for none, and what a verdict lacks."""

    second: int
    candidate: str
    missing: str

    def document(self) -> dict[str, object]:
        return {"second": self.second, "candidate": self.candidate, "missing": self.missing}


def describe_verdicts(verdicts: Sequence[RolledVerdict]) -> str:
    """Return which candidate acted on which days, as words; the first day of a load is day 1."""
    days = [(1, "no verdict")]  # a first verdict is made after a day
    days += [(each.second // DAY + 1, _word(each)) for each in verdicts]
    parts = []
    for word, group in itertools.groupby(days, key=lambda day: day[1]):
        numbers = [number for number, _ in group]
        which = f"days {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"day {numbers[0]}"
        parts.append(f"{word} on {which}")
    return ", ".join(parts)


def _word(each: RolledVerdict) -> str:
    return "no verdict" if each.missing else each.candidate or "no forecast"
