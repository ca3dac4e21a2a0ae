"""The condition ForecastReady: whether there is a verdict on the forecasts of an autoscaler, and what of it.

A message changes with the verdict, and not with each minimum: it is part of a status.
"""

from typing import NamedTuple

from adapter.bounds.forecast import minimum
from adapter.bounds.forecast.verdict import JUDGED_DAYS, CandidateFigures, Verdict
from adapter.model.autoscaling.forecast import FLOOR
from adapter.model.timestamps import SECOND, write_instant

ACTING, ADVISING, REFUSED, WITHHELD = "Acting", "Advising", "Refused", "Withheld"
"""The reasons while there is a verdict."""

PENDING, PAUSED, INCOMPLETE = "Pending", "Paused", "Incomplete"
"""The reasons before a verdict; those of jobs that fail are in `job`."""

_WITHHELD = {
    minimum.BUDGET: "the floor would exceed maxExtra over the last day",
    minimum.COVERAGE: "the demand of the last day exceeded its bounds too often",
    minimum.ABSENT: "less demand comes than was expected",
    minimum.UNKNOWN: "the demand is not known",
}


class Readiness(NamedTuple):
    """The condition: its status, its reason, and one sentence."""

    holds: bool
    reason: str
    message: str


UNJUDGED = Readiness(holds=False, reason=PENDING, message="the first verdict is being made")


def paused(until: int) -> Readiness:
    """Return the condition while the next verdict waits until a time in seconds since 1970."""
    due = write_instant(until * SECOND)
    said = f"the next verdict is due at {due}: a changed or new spec does not hasten it"
    return Readiness(holds=False, reason=PAUSED, message=said)


def readiness_of(mode: str, verdict: Verdict | None, withheld: str) -> Readiness:
    """Return the condition of a verdict; `withheld` says what withholds the minimum, "" for nothing."""
    if verdict is None:
        return UNJUDGED
    if verdict.missing:
        return Readiness(holds=False, reason=INCOMPLETE, message=f"no verdict yet: {verdict.missing}")
    acting, none = verdict.acting, verdict.none
    if acting is None or none is None:
        refused = "; ".join(f"{each.name}: {each.refused}" for each in verdict.candidates)
        return Readiness(holds=True, reason=REFUSED, message=f"no candidate may act: {refused}")
    told = f"candidate {acting.name}: {_figures(acting, none)}"
    if mode != FLOOR:
        return Readiness(holds=True, reason=ADVISING, message=f"no floor in mode {mode}; {told}")
    if withheld:
        return Readiness(holds=True, reason=WITHHELD, message=f"{_WITHHELD[withheld]}; {told}")
    return Readiness(holds=True, reason=ACTING, message=told)


def _figures(acting: CandidateFigures, none: CandidateFigures) -> str:
    gain, extra = acting.whole.gain_over(none.whole), acting.whole.extra_over(none.whole)
    return f"{-100 * gain:+.0f} % shortage, {100 * extra:+.0f} % pods in a replay of {JUDGED_DAYS} days"
