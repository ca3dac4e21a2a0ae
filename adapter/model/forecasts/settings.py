"""What is asked of a forecast: how much history it needs, what it may cost, what it has to bring."""

from datetime import date
from typing import NamedTuple
from zoneinfo import ZoneInfo

ADVISE, FLOOR = "Advise", "Floor"
MODES = (ADVISE, FLOOR)

AUTO = "Auto"
"""The horizon that follows the learned start-up time of the pods."""

DAY = 24 * 3600


class ForecastSettings(NamedTuple):
    """The settings of one autoscaler.

    `history` is in seconds. `horizon` is how many seconds ahead a floor looks, None for the time that pods
    take to be Ready. `max_extra` and `min_gain` are shares of the pods and of the shortage without a floor.
    What repeats each day repeats on the clock of the `zone`; `holidays` are local dates that are like no
    other day.
    """

    mode: str = ADVISE
    history: int = 14 * DAY
    horizon: int | None = None
    max_extra: float = 0.15
    min_gain: float = 0.2
    zone: ZoneInfo = ZoneInfo("UTC")
    holidays: frozenset[date] = frozenset()
