"""What the judge found of the forecasts of one autoscaler: which may act, and why not the others.

Figures are pod seconds of a replay: what was missing (`shortage`) and what ran (`pods`).
"""

from collections.abc import Iterator, Sequence

import msgspec

from adapter.model.autoscaling.forecast import ForecastSettings

NONE = "none"
"""The candidate without a forecast."""

SWITCH_MARGIN = 0.05
"""Gains that differ by less are alike: the one that acts stays, else the cheapest acts."""

JUDGED_DAYS, RECENT_DAYS = 7, 3
"""The days that are replayed, and the last of them, which count by themselves too."""

MOST_GAPS = 0.1
"""The greatest share of the judged days without a value."""

MOST_WITHHELD = 0.2
"""The greatest share of the judged time in which the rules of `minimum` may withhold a minimum."""


class ReplayFigures(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay came to, in pod seconds."""

    shortage: float
    pods: float

    def gain_over(self, none: "ReplayFigures") -> float:
        """Return which share of the shortage is gone; 0 without a shortage."""
        return 1 - self.shortage / none.shortage if none.shortage else 0.0

    def extra_over(self, none: "ReplayFigures") -> float:
        """Return how many more pods ran, as a share."""
        return self.pods / none.pods - 1 if none.pods else 0.0


class CandidateFigures(msgspec.Struct, frozen=True, rename="camel"):
    """A candidate with the figures of all judged days and of the recent ones.

    `wanted` and `reached` are coverages, `reached` None if too few bounds were compared. `withheld` is the
    share of the time in which a rule withheld the minimum. `refused` says why it may not act, "" if it may.
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
    most = max((each.whole.gain_over(none.whole) for each in passing), default=0.0)
    near = [each for each in passing if each.whole.gain_over(none.whole) >= most - SWITCH_MARGIN]
    acting = [each for each in near if each.name == incumbent]
    best = min(acting or near, key=lambda each: each.whole.pods, default=None)
    return Verdict(at, lead, "" if best is None else best.name, "", none, tuple(judged))


def _refusals(each: CandidateFigures, none: CandidateFigures, settings: ForecastSettings) -> Iterator[str]:
    spans = (("", each.whole, none.whole), (f" in the last {RECENT_DAYS} days", each.recent, none.recent))
    for when, figures, without in spans:
        gain, extra = figures.gain_over(without), figures.extra_over(without)
        if gain < settings.min_gain:
            least = percent(settings.min_gain)
            yield f"it removes {percent(gain)} of the shortage{when}, and minGain is {least}"
            break
        if extra > settings.max_extra:
            yield f"it takes {percent(extra)} more pods{when}, and maxExtra is {percent(settings.max_extra)}"
            break
    if each.withheld > MOST_WITHHELD:
        most = percent(MOST_WITHHELD)
        yield f"its floor is withheld {percent(each.withheld)} of the time, and at most {most} are accepted"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.0f} %"
