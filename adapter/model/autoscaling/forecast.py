"""The field ``forecast`` of an autoscaler, and the annotation of a boosted HPA that says the same.

The annotation is the mode alone (``Floor``), or pairs such as ``mode=Floor,history=14d``, with the keys of
the field. Holidays are separated by blanks.
"""

import itertools
import math
import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple
from zoneinfo import ZoneInfo

from adapter.model import local_time
from adapter.model.autoscaling import validation
from adapter.model.autoscaling.validation import Violation
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.timestamps import SECOND, Span, read_span, write_span

ADVISE, FLOOR = "Advise", "Floor"
MODES = (ADVISE, FLOOR)

AUTO = "Auto"
"""The horizon that follows the learned start-up time of the pods."""

DAY = 24 * 3600

ANNOTATION = "fastpath.io/forecast"

PATH = "spec.forecast"

HISTORIES = (7 * DAY, 35 * DAY)
"""The shortest and the longest history, in seconds."""

HORIZONS = (Span(SECOND), Span(3600 * SECOND))
"""The shortest and the longest horizon."""

MOST_HOLIDAYS = 1000

_LONGEST = 16 * 1024
"""Characters of an annotation."""

_HISTORY = re.compile("([1-9][0-9]{0,2})([dh])")
_SHARE = re.compile("([1-9][0-9]?|100)%")
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

    mode: str = ADVISE
    history: str = "14d"
    horizon: str = AUTO
    max_extra: str = "15%"
    min_gain: str = "20%"
    time_zone: str = "UTC"
    holidays: tuple[str, ...] | None = None


def check(spec: ForecastSpec) -> Iterator[Violation]:
    """Yield what is wrong with a field, but for the time zone: no API server knows the zones there are."""
    if spec.mode not in MODES:
        yield validation.unsupported(f"{PATH}.mode", spec.mode, MODES)
    least, most = HISTORIES
    if not least <= _history(spec.history) <= most:
        detail = f"must be from {least // DAY}d to {most // DAY}d, in days or hours such as 14d or 336h"
        yield _invalid("history", spec.history, detail)
    if spec.horizon != AUTO and _horizon(spec.horizon) is None:
        bounds = " to ".join(write_span(each) for each in HORIZONS)
        yield _invalid("horizon", spec.horizon, f"must be {AUTO}, or from {bounds}")
    for key, text in (("maxExtra", spec.max_extra), ("minGain", spec.min_gain)):
        if not _SHARE.fullmatch(text):
            yield _invalid(key, text, "must be from 1% to 100%, without a fraction")
    yield from validation.too_many(f"{PATH}.holidays", spec.holidays, MOST_HOLIDAYS)
    for index, text in enumerate(spec.holidays or ()):
        if local_time.read_date(text) is None:
            yield _invalid(f"holidays[{index}]", text, "must be a date such as 2026-12-25")


def check_zone(spec: ForecastSpec) -> Iterator[Violation]:
    """Yield that the tz database has no such time zone."""
    if local_time.read_zone(spec.time_zone) is None:
        detail = "must be a time zone of the tz database such as Europe/Berlin"
        yield _invalid("timeZone", spec.time_zone, detail)


def settings_of(spec: ForecastSpec) -> ForecastSettings:
    """Return the settings of a field that `check` accepts. ValueError if there is no such time zone.

    The horizon is rounded up to whole seconds.
    """
    zone = local_time.read_zone(spec.time_zone)
    if zone is None:
        raise ValueError("; ".join(map(str, check_zone(spec))))
    horizon = None if spec.horizon == AUTO else _horizon(spec.horizon)
    days = (local_time.read_date(text) for text in spec.holidays or ())
    return ForecastSettings(
        spec.mode,
        _history(spec.history),
        horizon,
        _share(spec.max_extra),
        _share(spec.min_gain),
        zone,
        frozenset(day for day in days if day is not None),
    )


def _invalid(key: str, text: str, detail: str) -> Violation:
    return validation.invalid(f"{PATH}.{key}", quote(text), detail)


def _history(text: str) -> int:
    """Return a history in seconds, 0 for any other text."""
    match = _HISTORY.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else 0


def _horizon(text: str) -> int | None:
    """Return a horizon in seconds, None for any other text."""
    try:
        span = read_span(text)
    except ValueError:
        return None
    least, most = HORIZONS
    return math.ceil(span / SECOND) if least <= span <= most else None


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
    fault = next(itertools.chain(check(spec), check_zone(spec)), None)
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
