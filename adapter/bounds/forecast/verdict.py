"""What the judge found of the forecasts of one autoscaler: which may act, and why not the others.

Figures are pod seconds of a replay: what was missing (`shortage`) and what ran (`pods`). A verdict is told by
the condition ForecastReady (`Readiness`), and by a `ForecastCard` in the terminal, as a picture, and as JSON.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from adapter.bounds.forecast import minimum
from adapter.model.autoscaling.forecast import FLOOR, ForecastSettings
from adapter.model.timestamps import SECOND, write_instant

NONE = "none"
"""The candidate without a forecast."""

SWITCH_MARGIN = 0.05
"""Gains that differ by less are alike: the cheapest acts."""

JUDGED_DAYS, RECENT_DAYS = 7, 3
"""The days that are replayed, and the last of them, which count by themselves too."""

MOST_GAPS = 0.1
"""The greatest share of the judged days without a value."""

MOST_WITHHELD = 0.2
"""The greatest share of the judged time in which the rules of `minimum` may withhold a minimum."""


BEATS = 0.5
"""Which share of the shortage of its alternative a candidate may leave. Loads that repeat leave less."""


class ReplayFigures(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay came to, in pod seconds.

    `tolerated` is the shortage within the tolerance of the autoscaler, which `shortage` leaves out.
    """

    shortage: float
    pods: float
    tolerated: float = 0.0

    def gain_over(self, none: "ReplayFigures") -> float:
        """Return which share of the shortage is gone; 0 without a shortage."""
        return 1 - self.shortage / none.shortage if none.shortage else 0.0

    def extra_over(self, none: "ReplayFigures") -> float:
        """Return how many more pods ran, as a share."""
        return self.pods / none.pods - 1 if none.pods else 0.0


class Alternative(msgspec.Struct, frozen=True, rename="camel"):
    """A change of the spec that takes the pods of a candidate, and the shortage that it leaves.

    `recent` is the shortage of the recent days.
    """

    change: str
    shortage: float
    recent: float


class CandidateFigures(msgspec.Struct, frozen=True, rename="camel"):
    """A candidate with the figures of all judged days and of the recent ones.

    `wanted` and `reached` are coverages, `reached` None if too few bounds were compared. `withheld` is the
    share of the time in which a rule withheld the minimum. `refused` says why it may not act, "" if it may.
    `alternative` is what it was compared to, None if it was refused before or takes no more pods.
    """

    name: str
    whole: ReplayFigures
    recent: ReplayFigures
    wanted: float = 0.0
    reached: float | None = None
    withheld: float = 0.0
    refused: str = ""
    alternative: Alternative | None = None


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """Which candidate may act, "" for none.

    `missing` says what a verdict needs and has not, "" if it has all. `at` is the end of the judged days in
    seconds since 1970, `lead` is in seconds. `none` are the figures without a forecast.
    """

    at: int
    lead: int
    chosen: str = ""
    missing: str = ""
    none: CandidateFigures | None = None
    candidates: tuple[CandidateFigures, ...] = ()

    def find(self, name: str) -> CandidateFigures | None:
        return next((candidate for candidate in self.candidates if candidate.name == name), None)

    @property
    def acting(self) -> CandidateFigures | None:
        return self.find(self.chosen) if self.chosen else None


def decide(
    at: int,
    lead: int,
    none: CandidateFigures,
    candidates: Sequence[CandidateFigures],
    settings: ForecastSettings,
) -> Verdict:
    judged = [
        msgspec.structs.replace(candidate, refused="; ".join(refusals(candidate, none, settings)))
        for candidate in candidates
    ]
    gains = [
        (candidate.whole.gain_over(none.whole), candidate) for candidate in judged if not candidate.refused
    ]
    most = max((gain for gain, _ in gains), default=0.0)
    near = [candidate for gain, candidate in gains if gain >= most - SWITCH_MARGIN]
    best = min(near, key=lambda candidate: candidate.whole.pods, default=None)
    return Verdict(at, lead, "" if best is None else best.name, "", none, tuple(judged))


def refusals(
    candidate: CandidateFigures, none: CandidateFigures, settings: ForecastSettings
) -> Iterator[str]:
    for when, figures, without in (
        ("", candidate.whole, none.whole),
        (_RECENTLY, candidate.recent, none.recent),
    ):
        gain, extra = figures.gain_over(without), figures.extra_over(without)
        if gain < settings.min_gain:
            least = percent(settings.min_gain)
            yield f"it removes {percent(gain)} of the shortage{when}, and minGain is {least}"
            break
        if extra > settings.max_extra:
            yield f"it takes {percent(extra)} more pods{when}, and maxExtra is {percent(settings.max_extra)}"
            break
    if candidate.withheld > MOST_WITHHELD:
        share, most = percent(candidate.withheld), percent(MOST_WITHHELD)
        yield f"its floor is withheld {share} of the time, and at most {most} are accepted"
    yield from _beaten(candidate, none)


def beats(candidate: CandidateFigures) -> bool:
    """Tell whether a candidate leaves less shortage than its alternative, by the margin."""
    other = candidate.alternative
    return other is None or (
        candidate.whole.shortage <= BEATS * other.shortage
        and candidate.recent.shortage <= BEATS * other.recent
    )


def describe_alternative(candidate: CandidateFigures, none: CandidateFigures) -> str:
    """Return what the pods of a candidate buy without it, "" for nothing to compare."""
    other = candidate.alternative
    if other is None or not none.whole.shortage:
        return ""
    return f"the same pods by {other.change}: {percent(other.shortage / none.whole.shortage)} left"


def _beaten(candidate: CandidateFigures, none: CandidateFigures) -> Iterator[str]:
    other = candidate.alternative
    if other is None or beats(candidate):
        return
    when, figures, without, left = "", candidate.whole, none.whole, other.shortage
    if figures.shortage <= BEATS * left:
        when, figures, without, left = _RECENTLY, candidate.recent, none.recent, other.recent
    yield (
        f"it leaves {percent(figures.shortage / without.shortage)} of the shortage{when}, and "
        f"{other.change} leaves {percent(left / without.shortage)} with the same pods: "
        f"at most {percent(BEATS)} of that are accepted"
    )


_RECENTLY = f" in the last {RECENT_DAYS} days"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# -- the condition ForecastReady -----------------------------------------------------------------------------

# A message changes with the verdict, and not with each minimum: it is part of a status.

ACTING, ADVISING, REFUSED, WITHHELD = "Acting", "Advising", "Refused", "Withheld"
"""The reasons while there is a verdict."""

PENDING, PAUSED, INCOMPLETE = "Pending", "Paused", "Incomplete"
"""The reasons before a verdict; those of jobs that fail are in `jobs`."""

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
    message = f"the next verdict is due at {due}: a changed or new spec does not hasten it"
    return Readiness(holds=False, reason=PAUSED, message=message)


def readiness_of(mode: str, verdict: Verdict | None, withheld: str) -> Readiness:
    """Return the condition of a verdict; `withheld` says what withholds the minimum, "" for nothing."""
    if verdict is None:
        return UNJUDGED
    if verdict.missing:
        return Readiness(holds=False, reason=INCOMPLETE, message=f"no verdict yet: {verdict.missing}")
    acting, none = verdict.acting, verdict.none
    if acting is None or none is None:
        refused = "; ".join(f"{candidate.name}: {candidate.refused}" for candidate in verdict.candidates)
        return Readiness(holds=True, reason=REFUSED, message=f"no candidate may act: {refused}")
    gain, extra = acting.whole.gain_over(none.whole), acting.whole.extra_over(none.whole)
    figures = f"{-100 * gain:+.0f} % shortage, {100 * extra:+.0f} % pods in a replay of {JUDGED_DAYS} days"
    text = f"candidate {acting.name}: {figures}"
    if mode != FLOOR:
        return Readiness(holds=True, reason=ADVISING, message=f"no floor in mode {mode}; {text}")
    if withheld:
        return Readiness(holds=True, reason=WITHHELD, message=f"{_WITHHELD[withheld]}; {text}")
    return Readiness(holds=True, reason=ACTING, message=text)


# -- the card ------------------------------------------------------------------------------------------------

POINT = 600
"""The seconds of a point of the picture: its figures are the greatest of that time."""

AHEAD = 12 * 3600
"""The seconds that a card shows after the end of the demand."""


class CardPoint(msgspec.Struct, frozen=True, array_like=True):
    """Demand, forecast and upper bound in pods from `at` on, in seconds since 1970; None for unknown."""

    at: int
    demand: float | None = None
    forecast: float | None = None
    upper: float | None = None


class ForecastCard(msgspec.Struct, frozen=True, rename="camel"):
    """The last verdict, and the demand of the last day and the next hours.

    `shown` is the candidate that the points are of: the one that may act, else the one with the greatest
    gain, "" without a verdict. `max_extra` and `min_gain` are shares.
    """

    mode: str
    max_extra: float
    min_gain: float
    verdict: Verdict
    shown: str = ""
    points: tuple[CardPoint, ...] = ()

    @property
    def now(self) -> int:
        """Where the demand ends and what is ahead begins, in seconds since 1970."""
        return self.points[-1].at + POINT - AHEAD if self.points else self.verdict.at
