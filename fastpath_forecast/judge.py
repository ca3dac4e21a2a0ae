"""The judge: what each candidate would have done to the decisions of the last days.

The candidates are replayed with the production `decide`, by the engine of `fastpath simulate`, over days that
they have not seen: what is said about a step comes from the demand before it. Their cost is not the error of
the forecast. It is the shortage, and the pods. `adapter.bounds.forecast.verdict` has the rules.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from adapter.autoscaler.decide import prepared_spec
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.bounds.forecast import verdict as verdicts
from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import (
    JUDGED_DAYS,
    MOST_GAPS,
    NONE,
    RECENT_DAYS,
    CandidateFigures,
    ReplayFigures,
    Verdict,
    percent,
)
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.forecast import ForecastSettings
from adapter.model.timestamps import SECOND
from fastpath_forecast import variants
from fastpath_forecast.alternative import Alternatives
from fastpath_forecast.candidates import CANDIDATES
from fastpath_forecast.grid import DAY, DemandGrid, Values, of_segments
from fastpath_forecast.replay import STEP, Check, JudgedDays, go_on
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.metrics import simulated_metrics
from fastpath_forecast.simulate.policies import SimulatedPolicy
from fastpath_forecast.simulate.schedules import ForecastMinimums
from fastpath_forecast.simulate.simulation import SCALER, Scenario
from fastpath_forecast.variants import Variant, VariantSpan


class Case(NamedTuple):
    """An autoscaler with the loads of its metrics from `scenario.epoch` on, which is the begin of an hour.

    `policy` is how it runs. Without start-up times nothing can be judged, and only the last JUDGED_DAYS of
    the loads are replayed.
    """

    scenario: Scenario
    policy: SimulatedPolicy
    settings: ForecastSettings

    @property
    def start(self) -> int:
        """Second 0 of the loads, in seconds since 1970."""
        return self.scenario.epoch // SECOND

    @property
    def lead(self) -> int:
        """How many seconds ahead a minimum looks."""
        return self.settings.horizon or simulation.learned_horizon(self.scenario.start_ups)


def build_limits(case: Case) -> Limits:
    """Return what the minimums of an autoscaler are bound to, before a coverage is chosen."""
    spec = _prepared(case)
    # A minimum that comes a few seconds late is better than one that comes a whole step early.
    lead = max(1, math.ceil(case.lead / STEP - 0.1))
    hold = max(1, -(-_window(spec) // (STEP * SECOND)))  # the steps in which a scale-down waits
    settings = case.settings
    return Limits(*spec.limits, lead, hold, 0.0, settings.max_extra, *spec.band, zone=settings.zone.key)


def _prepared(case: Case) -> PreparedSpec:
    return prepared_spec.prepare(fastpath_autoscaler.with_defaults(case.scenario.autoscaler), SCALER)


def _window(spec: PreparedSpec) -> int:
    """Return the nanoseconds in which a scale-down waits."""
    return spec.settings.downscale_stabilization if spec.down is None else spec.down.window


def build_demand(case: Case) -> DemandGrid:
    """Return the demand of the whole hours of the loads, in pods."""
    scenario = case.scenario
    metrics = simulated_metrics(scenario.autoscaler.spec.metrics or (), scenario.request)
    seconds = min(load.seconds for load in scenario.loads.values())
    seconds -= seconds % 3600
    needs = []
    for metric in metrics:
        segments = scenario.loads[metric.name].segments()
        grid = of_segments(segments, case.start, seconds, STEP, case.settings.zone)
        needs.append(grid.values / (metric.capacity * scenario.capacity_ratio))
    values = np.max(np.stack(needs), axis=0)  # of several metrics, one unknown makes the demand unknown
    return DemandGrid(case.start, STEP, values, case.settings.zone)


def judge(case: Case, demand: DemandGrid, check: Check = go_on) -> tuple[Verdict, Variant | None]:
    """Return the verdict at the end of the demand, and the variant that may act, None for none.

    What `check` raises ends it.
    """
    missing = find_missing(demand)
    if not case.scenario.start_ups:
        missing = "no start of a pod was seen yet"
    if missing:
        lead = case.lead if case.scenario.start_ups or case.settings.horizon else 0
        return Verdict(demand.end, lead, missing=missing), None
    limits, count = build_limits(case), len(demand.values)
    judged, recent = (VariantSpan(count - days * DAY // STEP, count) for days in (JUDGED_DAYS, RECENT_DAYS))
    start = demand.end - JUDGED_DAYS * DAY
    days = JudgedDays(_last_days(case, start), case.policy, limits, check)
    none = days.run(NONE)
    alternatives = Alternatives(days, none, limits, _window(_prepared(case)))
    limits = limits._replace(ratio=_ratio(none.whole, demand, limits, judged))
    prepared, listed = {}, []
    for name in CANDIDATES:
        check(0)
        variant = variants.prepare(demand, name, limits, case.settings, case.lead, judged, recent)
        prepared[name] = variant
        figures = replace(
            days.run(name, ForecastMinimums(start, STEP, variant.minimums[judged.begin :])),
            wanted=variant.limits.coverage,
            reached=_reached(demand, variant.bounds, judged),
            withheld=sum(map(bool, variant.withheld[judged.begin :])) / (judged.end - judged.begin),
        )
        is_refused = any(verdicts.refusals(figures, none, case.settings))
        listed.append(figures if is_refused else alternatives.beat(figures))
    verdict = verdicts.decide(demand.end, case.lead, none, listed, case.settings)
    return verdict, prepared.get(verdict.chosen)


def compare(case: Case, minimums: ForecastMinimums) -> tuple[int, CandidateFigures, CandidateFigures]:
    """Return what the days with a minimum come to: how many, without a forecast, and with its minimums.

    The latter has its alternative. Days without one, as before the first verdict, say nothing about it.
    """
    limits = build_limits(case)
    counted = {place * minimums.step // DAY for place, least in enumerate(minimums.values) if least}
    days = JudgedDays(case.scenario, case.policy, limits, go_on, counted)
    none = days.run(NONE)
    alternatives = Alternatives(days, none, limits, _window(_prepared(case)))
    return len(counted), none, alternatives.beat(days.run("", minimums))


def _ratio(none: ReplayFigures, demand: DemandGrid, limits: Limits, span: VariantSpan) -> float:
    """Return how many pods ran without a minimum, over those that the model expects; 1 at most."""
    minimums = [0] * len(demand.values)
    (expected,) = variants.estimate(demand, minimums, limits, 0, [span])
    return min(none.pods / (expected.pods * STEP), 1.0) if expected.pods else 1.0


def find_missing(demand: DemandGrid) -> str:
    """Return what a verdict needs and the demand has not, "" for nothing."""
    known = ~np.isnan(demand.values)
    if not known.any():
        return "no value of the metrics"
    first = int(np.argmax(known))
    seconds = (len(known) - first) * STEP
    if seconds < JUDGED_DAYS * DAY:
        return f"{seconds / DAY:.1f} of {JUDGED_DAYS} days of history".replace(".0 ", " ")
    share = 1 - float(known[-JUDGED_DAYS * DAY // STEP :].mean())
    if share > MOST_GAPS:
        return (
            f"{percent(share)} of the last {JUDGED_DAYS} days are gaps, "
            f"and at most {percent(MOST_GAPS)} are accepted"
        )
    return ""


def _reached(demand: DemandGrid, bounds: Values, span: VariantSpan) -> float | None:
    values, upper = demand.values[span.begin : span.end], bounds[span.begin : span.end]
    compared = ~np.isnan(values) & ~np.isnan(upper)
    if not compared.any():
        return None
    return float((values[compared] <= upper[compared]).mean())


def _last_days(case: Case, start: int) -> Scenario:
    """Return the scenario of the judged days, which begin at an instant in seconds."""
    begin = start - case.start
    until = begin + JUDGED_DAYS * DAY
    loads = {key: load.part(begin, until) for key, load in case.scenario.loads.items()}
    return dataclasses.replace(case.scenario, loads=loads, epoch=start * SECOND)
