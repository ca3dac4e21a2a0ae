"""What a forecast is made for: the settings of an autoscaler, and the whole hours of its loads."""

import math
from collections.abc import Mapping

from adapter.model.autoscaling import boost
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import ForecastSettings, ForecastSpec
from adapter.model.timestamps import SECOND, Instant
from adapter.simulate.load import Load

UNDATED = "the load does not tell when it begins: days repeat in UTC, and no day is a holiday; give --start"
"""What is said of settings that a load without a date cannot have."""

_MIDNIGHT = 1_699_920_000
"""Second 0 of a load that does not tell when it begins, in seconds since 1970: a midnight in UTC."""


def asked_of(autoscaler: FastPathAutoscaler) -> ForecastSpec | None:
    """Return what an autoscaler asks of a forecast, an HPA in its annotation; None for nothing."""
    asked = boost.read_annotations(autoscaler.metadata.annotations)
    return autoscaler.spec.forecast or boost.with_options(autoscaler, asked).spec.forecast


def dated(settings: ForecastSettings, start: Instant | None) -> ForecastSettings:
    """Return the settings for a load; without a `start` it has no local days."""
    if start is not None:
        return settings
    return settings._replace(zone=ForecastSettings().zone, holidays=frozenset())


def start_of(start: Instant | None) -> int:
    """Return when a load begins, in seconds since 1970."""
    return _MIDNIGHT if start is None else start // SECOND


HOUR = 3600


def whole_hours(loads: Mapping[str, Load], start: int) -> tuple[dict[str, Load], int]:
    """Return the whole hours of loads, and when they begin; `start` and that are in seconds since 1970.

    Loads without a whole hour have no seconds.
    """
    first = -start % HOUR
    seconds = (min(load.seconds for load in loads.values()) - first) // HOUR * HOUR
    if seconds <= 0:
        return {name: Load((0,), (math.nan,), 0) for name in loads}, start + first
    return {name: load.part(first, first + seconds) for name, load in loads.items()}, start + first


def latest(loads: Mapping[str, Load], start: int, seconds: int) -> tuple[dict[str, Load], int]:
    """Return the last seconds of loads that are equally long, and when they begin."""
    length = min(load.seconds for load in loads.values())
    first = max(0, length - seconds)
    return {name: load.part(first, length) if first else load for name, load in loads.items()}, start + first
