"""What `fastpath simulate --forecast` says of the verdicts of a load, one a day."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from adapter.model.forecasts.settings import DAY


class RolledVerdict(NamedTuple):
    """The candidate that acts from a second of the load on, "" for none, and what a verdict lacks."""

    second: int
    candidate: str
    missing: str

    def document(self) -> dict[str, object]:
        return {"second": self.second, "candidate": self.candidate, "missing": self.missing}


def describe(verdicts: Sequence[RolledVerdict]) -> str:
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
