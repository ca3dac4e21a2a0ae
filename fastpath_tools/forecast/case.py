"""What a forecast is made from: the autoscaler, its loads in whole hours, and the settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from adapter.bounds.forecast.verdict import JUDGED_DAYS, ForecastCard, Verdict
from adapter.model import quantity
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.timestamps import SECOND
from adapter.simulate.policies import BOOST, FAST, read_policy
from adapter.simulate.simulation import Scenario
from fastpath_tools.forecast.options import ForecastOptions
from fastpath_tools.loads import forecasts as asking
from fastpath_tools.loads import sources, start_ups, wording
from fastpath_tools.loads.forecasts import latest, whole_hours

if TYPE_CHECKING:
    from adapter.forecast.judge import Case


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

    recorded = sources.read_recorded(options)
    schedules, _ = sources.read_schedules(options, recorded)
    given = recorded.given
    asked = forecast_spec.settings_of(options.spec(asking.asked_of(given.autoscaler)))
    settings = asking.dated(asked, recorded.start)
    loads, start = whole_hours(recorded.loads, asking.start_of(recorded.start))
    loads, start = latest(loads, start, settings.history)
    scenario = Scenario(
        given.autoscaler,
        loads,
        start_ups.read_start_ups(options.pod_start),
        quantity.read(options.request) if options.request else None,
        options.capacity_ratio,
        phases=1,
        schedules=schedules,
        epoch=start * SECOND,
    )
    policy = options.policy or (FAST if given.kind == KIND else BOOST)
    notes = [*recorded.notes, *wording.load_notes(recorded.loads)]
    if settings != asked:
        notes.append(asking.UNDATED)
    case = Case(scenario, read_policy(policy), settings)
    return Given(given.autoscaler.metadata.name, case, recorded.start is not None, notes)


def make_card(case: "Case") -> ForecastCard:
    """Return the card of a case. It takes seconds: a week is replayed five times."""
    from adapter.forecast import cards, judge  # noqa: PLC0415 - needs numpy, which is an extra

    demand = judge.build_demand(case)
    if not len(demand.values):
        missing = f"0 of {JUDGED_DAYS} days of history"
        return cards.build_card(case, demand, Verdict(demand.end, case.lead, missing=missing))
    verdict, _ = judge.judge(case, demand)
    return cards.build_card(case, demand, verdict)
