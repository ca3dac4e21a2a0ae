"""What a policy came to: its figures over the phases, the verdicts on its forecasts, and on `--budget`."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.errors import Fault, InputError
from adapter.model.autoscaling.forecast import DAY
from fastpath_forecast.simulate import elasticity
from fastpath_forecast.simulate.engine import Figures
from fastpath_forecast.simulate.policies import NATIVE

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
    "thetaU": "theta_under",
    "thetaO": "theta_over",
    "timeU": "time_under",
    "timeO": "time_over",
    "busySecondsEnded": "busy_ended",
    "busySecondsEndedIdle": "busy_ended_idle",
}
"""The figures of the output in their order, and the fields of `Figures`."""

ELASTICITY = ("thetaU", "thetaO", "timeU", "timeO")
"""The figures of `fastpath_forecast.simulate.elasticity`, in per cent."""

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

    def speedup(self, baseline: "PolicyFigures") -> float | None:
        """Return the elastic speed-up of the means against those of a baseline."""
        before, after = ([figures.mean(name) for name in ELASTICITY] for figures in (baseline, self))
        return elasticity.speedup(before, after)

    def document(self, baseline: "PolicyFigures | None") -> dict[str, object]:
        eta: dict[str, object] | None = None
        if baseline is not None:
            value = self.speedup(baseline)
            eta = {"baseline": baseline.policy, "value": None if value is None else round(value, _DIGITS)}
        return {
            "policy": self.policy,
            **{name: self.mean(name) for name in FIGURES},
            "eta": eta,
            "spread": {name: self.spread(name) for name in FIGURES},
        }


def find_baseline(figures: Sequence[PolicyFigures], name: str) -> PolicyFigures | None:
    """Return the policy that the elastic speed-up compares with; without a name native, if it is there."""
    by_name = {outcome.policy: outcome for outcome in figures}
    if name and name not in by_name:
        listed = ", ".join(by_name)
        raise InputError([Fault("--baseline", name, f"expected one of the policies: {listed}")])
    return by_name.get(name or NATIVE)


class RolledVerdict(NamedTuple):
    """The candidate that acts from a second of the load on, "" for none, and what a verdict lacks."""

    second: int
    candidate: str
    missing: str


def describe_verdicts(verdicts: Sequence[RolledVerdict]) -> str:
    """Return which candidate acted on which days, as words; the first day of a load is day 1."""
    days = [(1, "no verdict")]  # a first verdict is made after a day
    for verdict in verdicts:
        word = "no verdict" if verdict.missing else verdict.candidate or "no forecast"
        days.append((verdict.second // DAY + 1, word))
    parts = []
    for word, group in itertools.groupby(days, key=lambda day: day[1]):
        numbers = [number for number, _ in group]
        which = f"days {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"day {numbers[0]}"
        parts.append(f"{word} on {which}")
    return ", ".join(parts)


# -- the budget ----------------------------------------------------------------------------------------------

FLAG = "--budget"

_BUDGETS = {"shortage": ("shortagePodSeconds", "shortage"), "pods": ("podSeconds", "pod seconds")}
"""By the key of a limit: the figure, and its words."""

_LIMIT = re.compile(r"\s*([^\s<=]*)\s*<=\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_EXAMPLE = "such as shortage<=5%,pods<=110%"


def read_budget(text: str) -> dict[str, float]:
    """Return the limits of a text such as ``shortage<=5%,pods<=110%``. ValueError with what was expected.

    A limit is how much of the figure of the first policy the last one may have, in per cent.
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        match = _LIMIT.fullmatch(part)
        if match is None:
            raise ValueError(f"expected KEY<=PERCENT%, {_EXAMPLE}")
        key, percent = match.groups()
        if key not in _BUDGETS:
            raise ValueError(f"expected {' or '.join(_BUDGETS)} before <=, {_EXAMPLE}")
        if key in limits:
            raise ValueError(f"expected {key} once")
        limits[key] = float(percent)
    return limits


def check_budget(text: str) -> str:
    """Return what is wrong with the text of a budget, "" for nothing."""
    try:
        if text:
            read_budget(text)
    except ValueError as error:
        return str(error)
    return ""


class BudgetVerdict(NamedTuple):
    """Whether one limit is kept, and the sentence that says so, without the final stop."""

    is_kept: bool
    sentence: str


def judge_budget(
    limits: Mapping[str, float], first: PolicyFigures, last: PolicyFigures
) -> Iterator[BudgetVerdict]:
    for key, percent in limits.items():
        figure, words = _BUDGETS[key]
        before, after = first.mean(figure), last.mean(figure)
        # A figure of 0 stays within any limit only as 0.
        is_kept = after <= before * percent / 100
        finding = f"{after:g} pod seconds, and 0 of {first.policy}"
        if before or not after:
            share = 100 * after / before if before else 0.0
            finding = f"{share:.1f} % of the {words} of {first.policy}"
        sentence = f"{words} of {last.policy}: {finding}; the budget is {percent:g} %"
        yield BudgetVerdict(is_kept, sentence)
