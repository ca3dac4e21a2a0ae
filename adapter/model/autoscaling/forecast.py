"""The field ``forecast`` of an autoscaler, and the annotation of a boosted HPA that says the same.

The annotation is the mode alone (``Floor``), or pairs such as ``mode=Floor,history=14d``, with the keys of
the field. Holidays are separated by blanks.
"""

import itertools
import math
from collections.abc import Iterator
from datetime import date
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

from adapter.model import local_time
from adapter.model.autoscaling import limits
from adapter.model.autoscaling.limits import Date, Items, Matches, OneOf, Violation, Within
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.timestamps import SECOND, Span, read_span

ADVISE, FLOOR = "Advise", "Floor"
MODES = (ADVISE, FLOOR)

AUTO = "Auto"
"""The horizon that follows the learned start-up time of the pods."""

DAY = 24 * 3600

ANNOTATION = "fastpath.io/forecast"

PATH = "spec.forecast"

_LONGEST = 16 * 1024
"""Characters of an annotation."""

_HISTORY = Matches(
    "(([7-9]|[12][0-9]|3[0-5])d|(16[89]|1[7-9][0-9]|[2-7][0-9][0-9]|8[0-3][0-9]|840)h)",
    4,
    "must be from 7d to 35d, in days or hours such as 14d or 336h",
)
_SHARE = Matches("([1-9][0-9]?|100)%", 4, "must be from 1% to 100%, without a fraction")
_SECONDS = {"d": DAY, "h": 3600}


class ForecastSettings(NamedTuple):
    """The settings of one autoscaler.

    `history` is in seconds. `horizon` is how many seconds ahead the minimum looks, None for the time that
    pods take to be Ready. `max_extra` and `min_gain` are shares of the pods and of the shortage without it.
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


class ForecastSpec(Struct, frozen=True):
    """What is asked of a forecast, as it is written; `ForecastSettings` says what it means."""

    mode: Annotated[str, OneOf(ADVISE, FLOOR)] = ADVISE
    """mode is how the forecast is used: Advise only shows it; Floor also raises the lower limit for the
    number of replicas to it, while a replay of the last days shows that it helps."""
    history: Annotated[str, _HISTORY] = "14d"
    """history is how much of the past is read, from 7d to 35d, in days or hours."""
    horizon: Annotated[str, Within(Span(SECOND), Span(3600 * SECOND), AUTO)] = AUTO
    """horizon is how far ahead the forecast raises the lower limit, as a duration. Auto is the learned time
    that pods take to be Ready."""
    max_extra: Annotated[str, _SHARE] = "15%"
    """maxExtra is the upper limit for the pods that run because of the forecast, as a percentage from 1% to
    100% of those that would run without it."""
    min_gain: Annotated[str, _SHARE] = "20%"
    """minGain is the part of the shortage of pods that the forecast must remove in a replay before it acts,
    as a percentage from 1% to 100%."""
    time_zone: str = "UTC"
    """timeZone is the time zone in which days repeat, by its name in the tz database, such as
    Europe/Berlin."""
    holidays: Annotated[tuple[str, ...] | None, Items(1000, Date())] = None
    """holidays are local dates whose load is unlike that of other days."""


def check_zone(spec: ForecastSpec) -> Iterator[Violation]:
    """Yield that the tz database has no such time zone; an API server does not know which there are."""
    if local_time.read_zone(spec.time_zone) is None:
        detail = "must be a time zone of the tz database such as Europe/Berlin"
        yield limits.invalid(f"{PATH}.timeZone", quote(spec.time_zone), detail)


def settings_of(spec: ForecastSpec) -> ForecastSettings:
    """Return the settings of a field within its limits. ValueError if there is no such time zone.

    The horizon is rounded up to whole seconds.
    """
    zone = local_time.read_zone(spec.time_zone)
    if zone is None:
        raise ValueError("; ".join(map(str, check_zone(spec))))
    horizon = None if spec.horizon == AUTO else math.ceil(read_span(spec.horizon) / SECOND)
    days = (local_time.read_date(text) for text in spec.holidays or ())
    return ForecastSettings(
        spec.mode,
        int(spec.history[:-1]) * _SECONDS[spec.history[-1]],
        horizon,
        _share(spec.max_extra),
        _share(spec.min_gain),
        zone,
        frozenset(day for day in days if day is not None),
    )


def _share(text: str) -> float:
    return int(text.removesuffix("%")) / 100


# -- the annotation ------------------------------------------------------------------------------------------

_DEFAULTS = ForecastSpec()
_KEYS = dict(zip(ForecastSpec.__struct_encode_fields__, ForecastSpec.__struct_fields__, strict=True))
_EXPECTED = (
    f"expected {' or '.join(MODES)}, or pairs such as mode=Floor,history=14d; the keys are {', '.join(_KEYS)}"
)


def read_annotation(text: str) -> ForecastSpec:
    """Return the field that the value of an annotation stands for. Raise ValueError with a sentence."""
    if text.strip() in MODES:
        return ForecastSpec(text.strip())
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text)} characters: expected at most {_LONGEST}")
    given: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in _KEYS or not value:
            raise ValueError(f"{quote(part)}: {_EXPECTED}")
        if name in given:
            raise ValueError(f"{quote(part)}: expected each key once")
        given[name] = value
    holidays = given.pop("holidays", None)
    fields = {_KEYS[name]: value for name, value in given.items()}
    spec = ForecastSpec(**fields, holidays=None if holidays is None else tuple(holidays.split()))
    fault = next(itertools.chain(limits.check(spec, PATH), check_zone(spec)), None)
    if fault is not None:
        key = fault.path.removeprefix(f"{PATH}.")
        raise ValueError(f"{key} {fault.value}: {fault.detail}")
    return spec


def write_annotation(spec: ForecastSpec) -> str:
    """Return the value of the annotation for a field; what is a default is left out, but for the mode."""
    parts = [f"mode={spec.mode}"]
    for name, field in _KEYS.items():
        value = getattr(spec, field)
        if field == "holidays":
            value = " ".join(value or ())
        if field != "mode" and value and value != getattr(_DEFAULTS, field):
            parts.append(f"{name}={value}")
    return ",".join(parts) if parts[1:] else spec.mode
