"""What a forecast is made from: the autoscaler, its loads in whole hours, and the settings."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from adapter.model import quantity
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.forecasts import spec as forecast_spec
from adapter.model.forecasts.card import ForecastCard
from adapter.model.forecasts.verdict import JUDGED_DAYS, Verdict
from adapter.model.timestamps import SECOND
from adapter.simulate.load import Load
from adapter.simulate.policies import BOOST, FAST, read_policy
from adapter.simulate.simulation import Scenario
from fastpath_tools.forecast.options import ForecastOptions
from fastpath_tools.loads import forecast_settings as asking
from fastpath_tools.simulate import inputs, report

if TYPE_CHECKING:
    from adapter.forecast.judge import Case

HOUR = 3600


class Given(NamedTuple):
    """The name of an autoscaler, its case, and sentences on the load, without the final stop.

    A load that `is_dated` tells when it begins.
    """

    name: str
    case: "Case"
    is_dated: bool
    notes: Sequence[str] = ()


def read(options: ForecastOptions) -> Given:
    """Return what the command line asks for. InputError with what is wrong in it and in the files."""
    from adapter.forecast.judge import Case  # noqa: PLC0415 - needs numpy, which is an extra

    recorded = inputs.read_recorded(options)
    schedules, _ = inputs.read_schedules(options, recorded)
    given = recorded.given
    asked = forecast_spec.settings_of(options.spec(asking.asked_of(given.autoscaler)))
    settings = asking.dated(asked, recorded.start)
    loads, start = whole_hours(recorded.loads, asking.start_of(recorded.start))
    loads, start = latest(loads, start, settings.history)
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
        notes.append(asking.UNDATED)
    case = Case(scenario, read_policy(policy), settings)
    return Given(given.autoscaler.metadata.name, case, recorded.start is not None, notes)


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


def make_card(case: "Case") -> ForecastCard:
    """Return the card of a case. It takes seconds: a week is replayed five times."""
    from adapter.forecast import cards, judge  # noqa: PLC0415 - needs numpy, which is an extra

    demand = judge.demand_of(case)
    if not len(demand.values):
        missing = f"0 of {JUDGED_DAYS} days of history"
        return cards.card_of(case, demand, Verdict(demand.end, case.lead, missing=missing))
    verdict, _ = judge.judge(case, demand)
    return cards.card_of(case, demand, verdict)
