"""The card of a forecast: everything that is shown of it, in the terminal, as a picture, and as JSON."""

import msgspec

from adapter.bounds.forecast.verdict import Verdict

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
