"""What the judge found of the forecasts of one autoscaler: which may act, and why not the others.

Figures are pod seconds of a replay: what was missing (`shortage`) and what ran (`pods`).
"""

from collections.abc import Iterator, Sequence

import msgspec

from adapter.model.forecasts.settings import ForecastSettings

NONE = "none"
"""The candidate without a forecast."""

SWITCH_MARGIN = 0.05
"""By what share of the shortage a candidate must be better than the one that acts to take its place."""

JUDGED_DAYS, RECENT_DAYS = 7, 3
"""The days that are replayed, and the last of them, which count by themselves too."""

MOST_GAPS = 0.1
"""The greatest share of the judged days without a value."""

MOST_WITHHELD = 0.2
"""The greatest share of the judged time in which the rules of `floors` may withhold a floor."""


class ReplayFigures(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay came to, in pod seconds."""

    shortage: float
    pods: float

    def gain_over(self, none: "ReplayFigures") -> float:
        """Return which share of the shortage is gone; 0 where there was none."""
        return 1 - self.shortage / none.shortage if none.shortage else 0.0

    def extra_over(self, none: "ReplayFigures") -> float:
        """Return how many more pods ran, as a share."""
        return self.pods / none.pods - 1 if none.pods else 0.0


class CandidateFigures(msgspec.Struct, frozen=True, rename="camel"):
    """A candidate with the figures of all judged days and of the recent ones.

    `wanted` and `reached` are coverages, `reached` None if too few bounds were compared. `withheld` is the
    share of the time in which a rule withheld the floor. `refused` says why it may not act, "" if it may.
    """

    name: str
    whole: ReplayFigures
    recent: ReplayFigures
    wanted: float = 0.0
    reached: float | None = None
    withheld: float = 0.0
    refused: str = ""


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
        return next((each for each in self.candidates if each.name == name), None)

    @property
    def acting(self) -> CandidateFigures | None:
        return self.find(self.chosen) if self.chosen else None


def decide(
    at: int,
    lead: int,
    none: CandidateFigures,
    candidates: Sequence[CandidateFigures],
    settings: ForecastSettings,
    incumbent: str = "",
) -> Verdict:
    """Return the verdict on replayed candidates. `incumbent` is the one that acts now, "" for none."""
    judged = [
        msgspec.structs.replace(each, refused="; ".join(_refusals(each, none, settings)))
        for each in candidates
    ]
    passing = [each for each in judged if not each.refused]
    best = max(passing, key=lambda each: each.whole.gain_over(none.whole), default=None)
    acting = next((each for each in passing if each.name == incumbent), None)
    if best is not None and acting is not None:
        lead_of_best = best.whole.gain_over(none.whole) - acting.whole.gain_over(none.whole)
        best = best if lead_of_best > SWITCH_MARGIN else acting
    return Verdict(at, lead, "" if best is None else best.name, "", none, tuple(judged))


def _refusals(each: CandidateFigures, none: CandidateFigures, settings: ForecastSettings) -> Iterator[str]:
    spans = (("", each.whole, none.whole), (f" in the last {RECENT_DAYS} days", each.recent, none.recent))
    for when, figures, without in spans:
        gain, extra = figures.gain_over(without), figures.extra_over(without)
        if gain < settings.min_gain:
            yield f"{_change(-gain)} shortage{when}, and minGain is {settings.min_gain:.0%}"
            break
        if extra > settings.max_extra:
            yield f"{_change(extra)} pods{when}, and maxExtra is {settings.max_extra:.0%}"
            break
    if each.withheld > MOST_WITHHELD:
        yield f"withheld {each.withheld:.0%} of the time, and at most {MOST_WITHHELD:.0%} are accepted"


def _change(share: float) -> str:
    """Return a change in per cent, with its sign."""
    return f"{100 * share:+.0f} %"
