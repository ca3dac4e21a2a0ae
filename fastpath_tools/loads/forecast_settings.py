"""What an autoscaler asks of a forecast, as the verbs that compute one read it."""

from importlib import util

from adapter.errors import RunError
from adapter.model.autoscaling import boost
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.forecasts.settings import ForecastSettings
from adapter.model.forecasts.spec import ForecastSpec
from adapter.model.timestamps import SECOND, Instant

EXTRA = "fastpath-adapter[tools]"

UNDATED = "the load does not tell when it begins: days repeat in UTC, and no day is a holiday; give --start"
"""What is said of settings that a load without a date cannot have."""

_MIDNIGHT = 1_699_920_000
"""Second 0 of a load that does not tell when it begins, in seconds since 1970: a midnight in UTC."""


def check_extra() -> None:
    """Raise RunError if forecasts cannot be computed here."""
    if util.find_spec("numpy") is None:
        raise RunError(f"forecasts need numpy, which is not installed: pip install '{EXTRA}'")


def asked_of(autoscaler: FastPathAutoscaler) -> ForecastSpec | None:
    """Return what an autoscaler asks of a forecast, an HPA in its annotation; None for nothing."""
    return autoscaler.spec.forecast or boost.read_annotations(autoscaler.metadata.annotations).forecast


def dated(settings: ForecastSettings, start: Instant | None) -> ForecastSettings:
    """Return the settings for a load; without a `start` it has no local days."""
    if start is not None:
        return settings
    return settings._replace(zone=ForecastSettings().zone, holidays=frozenset())


def start_of(start: Instant | None) -> int:
    """Return when a load begins, in seconds since 1970."""
    return _MIDNIGHT if start is None else start // SECOND
