"""What a forecast is made from: the autoscaler, its loads in whole hours, and the settings."""

import math
from collections.abc import Mapping, Sequence
from importlib import util
from typing import TYPE_CHECKING, NamedTuple

from adapter.cli.forecast.options import ForecastOptions
from adapter.cli.simulate import inputs, report
from adapter.errors import RunError
from adapter.model import quantity
from adapter.model.autoscaling import boost
from adapter.model.autoscaling.fastpath_autoscaler import KIND, FastPathAutoscaler
from adapter.model.forecasts import spec as forecast_spec
from adapter.model.forecasts.card import ForecastCard
from adapter.model.forecasts.settings import ForecastSettings
from adapter.model.forecasts.spec import ForecastSpec
from adapter.model.forecasts.verdict import JUDGED_DAYS, Verdict
from adapter.model.timestamps import SECOND
from adapter.simulate.load import Load
from adapter.simulate.policies import BOOST, FAST, read_policy
from adapter.simulate.simulation import Scenario

if TYPE_CHECKING:
    from adapter.forecast.judge import Case

HOUR = 3600

EPOCH = 1_699_920_000
"""Second 0 of a load that does not tell when it begins, in seconds since 1970: a midnight, in UTC."""

EXTRA = "fastpath-adapter[forecast]"


class Given(NamedTuple):
    """The name of an autoscaler, its case, and sentences on the load, without the final stop.

    A load that `is_dated` tells when it begins.
    """

    name: str
    case: "Case"
    is_dated: bool
    notes: Sequence[str] = ()


def check_extra() -> None:
    """Raise RunError if forecasts cannot be computed here."""
    if util.find_spec("numpy") is None:
        raise RunError(f"forecasts need numpy, which is not installed: pip install '{EXTRA}'")


def read(options: ForecastOptions) -> Given:
    """Return what the command line asks for. InputError with what is wrong in it and in the files."""
    from adapter.forecast.judge import Case  # noqa: PLC0415 - needs numpy, which is an extra

    recorded = inputs.read_recorded(options)
    schedules, _ = inputs.read_schedules(options, recorded)
    given = recorded.given
    asked = forecast_spec.settings_of(options.spec(asked_of(given.autoscaler)))
    settings = asked if recorded.start is not None else undated(asked)
    start = EPOCH if recorded.start is None else recorded.start // SECOND
    loads, start = latest_hours(recorded.loads, start, settings)
    scenario = Scenario(
        given.autoscaler,
        loads,
        inputs.read_start_ups(options.pod_start),
        quantity.read(options.request) if options.request else None,
        options.capacity_ratio,
        phases=1,
        schedules=schedules,
        epoch=start * SECOND,
    )
    policy = options.policy or (FAST if given.kind == KIND else BOOST)
    notes = [*recorded.notes, *report.load_notes(recorded.loads)]
    if settings != asked:
        notes.append(f"without --start days repeat in UTC, not in {asked.zone.key}, and no day is a holiday")
    case = Case(scenario, read_policy(policy), settings)
    return Given(given.autoscaler.metadata.name, case, recorded.start is not None, notes)


def asked_of(autoscaler: FastPathAutoscaler) -> ForecastSpec | None:
    """Return what an autoscaler asks of a forecast, an HPA in its annotation; None for nothing."""
    return autoscaler.spec.forecast or boost.read_annotations(autoscaler.metadata.annotations).forecast


def latest_hours(
    loads: Mapping[str, Load], start: int, settings: ForecastSettings
) -> tuple[dict[str, Load], int]:
    """Return the whole hours of loads within the history, and when they begin, in seconds since 1970.

    Loads without a whole hour have no seconds.
    """
    first = -start % HOUR
    whole = (min(load.seconds for load in loads.values()) - first) // HOUR * HOUR
    begin = first + max(0, whole - settings.history)
    if whole <= 0:
        return {name: Load((0,), (math.nan,), 0) for name in loads}, start + first
    return {name: load.part(begin, first + whole) for name, load in loads.items()}, start + begin


def undated(settings: ForecastSettings) -> ForecastSettings:
    """Return the settings for a load that does not tell when it begins: it has no local days."""
    return settings._replace(zone=ForecastSettings().zone, holidays=frozenset())


def make_card(case: "Case") -> ForecastCard:
    """Return the card of a case. It takes seconds: a week is replayed five times."""
    from adapter.forecast import cards, judge  # noqa: PLC0415 - needs numpy, which is an extra

    demand = judge.demand_of(case)
    if not len(demand.values):
        missing = f"0 of {JUDGED_DAYS} days of history"
        return cards.card_of(case, demand, Verdict(demand.end, case.lead, missing=missing))
    verdict, _ = judge.judge(case, demand)
    return cards.card_of(case, demand, verdict)
