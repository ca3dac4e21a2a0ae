"""Runs the policies of a simulation, on all cores where that is worth starting processes."""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from adapter.bounds.forecast.verdict import describe_alternative, percent
from adapter.model.autoscaling.forecast import DAY, ForecastSettings
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.engine import CountChange, Figures
from fastpath_forecast.simulate.policies import BOOST, FAST
from fastpath_forecast.simulate.schedules import ForecastMinimums
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_tools.loads.sources import whole_hours
from fastpath_tools.simulate.inputs import PolicyVariant
from fastpath_tools.simulate.recording import Recording
from fastpath_tools.simulate.results import PolicyFigures, RolledVerdict

WORTH = 250_000
"""From so many simulated seconds on, of all policies and phases, processes are started."""


class Rolled(NamedTuple):
    """The verdicts on the forecasts of a load, one a day, and the minimums that follow them.

    `compared` says what else the pods of the minimums buy, "" for nothing.
    """

    verdicts: Sequence[RolledVerdict]
    minimums: ForecastMinimums
    compared: str = ""


class Played(NamedTuple):
    """What a policy came to, its first phase if that was recorded, and what its forecast did."""

    figures: PolicyFigures
    changes: Sequence[CountChange]
    recording: Recording | None
    rolled: Rolled | None = None


def run_all(scenario: Scenario, variants: Sequence[PolicyVariant], columns: int = 0) -> list[Played]:
    """Run policies and return what they came to, in their order.

    With `columns` the first phase of each is recorded. A terminal shows how many are done.
    """
    seconds = min(load.seconds for load in scenario.loads.values())
    processes = min(os.cpu_count() or 1, len(variants))
    run = partial(_run, scenario, columns, seconds)
    console = Console(stderr=True)
    shown = partial(
        track,
        description="simulating",
        total=len(variants),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    if processes < 2 or seconds * scenario.phases * len(variants) < WORTH:
        return list(shown(map(run, variants)))
    # A new interpreter for each process: a copy of this one would share its locks. Ctrl-C reaches all of
    # them, and is left to this one. No result is cancelled: a pool whose processes end fails its results.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit it
        results = [pool.submit(run, variant) for variant in variants]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            return list(shown(result.result() for result in results))
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _run(scenario: Scenario, columns: int, seconds: int, variant: PolicyVariant) -> Played:
    rolled = None
    if variant.forecast is not None:
        rolled = roll(scenario, variant, variant.forecast)
        scenario = replace(scenario, forecast=rolled.minimums)
    recording = Recording(seconds, columns) if columns else None
    result = simulation.simulate(scenario, variant.policy, variant.behavior, observer=recording)
    runs = _compare_removals(scenario, variant, result.runs)
    return Played(PolicyFigures(variant.name, runs), result.changes, recording, rolled)


def _compare_removals(scenario: Scenario, variant: PolicyVariant, runs: Sequence[Figures]) -> list[Figures]:
    """Return the figures with the busy seconds that end with and without `scaleDown.prefer` Idle.

    That takes a second run, but where the policy cannot have the option, or no pod is idler than another.
    """
    policy, others = variant.policy, runs
    has_option = simulation.prefers_idle(scenario, policy)
    if policy.name in {FAST, BOOST} and (scenario.spread or has_option):
        others = simulation.simulate(replace(scenario, idle=not has_option), policy, variant.behavior).runs
    with_option, without = (runs, others) if has_option else (others, runs)
    return [
        replace(figures, busy_ended=usual.busy_ended, busy_ended_idle=idle.busy_ended)
        for figures, usual, idle in zip(runs, without, with_option, strict=True)
    ]


def roll(scenario: Scenario, variant: PolicyVariant, settings: ForecastSettings) -> Rolled:
    """Return what forecasts would have done over the loads of a scenario for a policy, day by day.

    The verdict of each day comes from the time before it, as that of a running scaler. It takes long.
    """
    from fastpath_forecast import judge, planner  # noqa: PLC0415 - needs numpy, which is an extra
    from fastpath_forecast.judge import Case  # noqa: PLC0415

    # What a policy changes in the autoscaler holds for the judge too. With another target it decides by that,
    # and what a pod serves stays.
    plain = replace(variant.policy, target=None)
    autoscaler = simulation.overridden(scenario.autoscaler, plain, variant.behavior)
    epoch = scenario.epoch // SECOND
    loads, start = whole_hours(scenario.loads, epoch)
    if not min(load.seconds for load in loads.values()):
        return Rolled((), ForecastMinimums(start, DAY, ()))
    judged = replace(scenario, autoscaler=autoscaler, loads=loads, epoch=start * SECOND, phases=1)
    case = Case(judged, variant.policy, settings)
    days = list(planner.roll(case))
    minimums = planner.join_minimums(days, start)
    compared = ""
    if any(minimums.values):
        count, none, acted = judge.compare(case, minimums)
        left = percent(acted.whole.shortage / none.whole.shortage) if none.whole.shortage else ""
        if also := describe_alternative(acted, none):
            on = f"on the {count} days with a floor" if count > 1 else "on the day with a floor"
            compared = f"{on} {left} of the shortage beyond the tolerance is left; {also}"
    verdicts = [
        RolledVerdict(verdict.at - epoch, verdict.chosen, verdict.missing)
        for verdict in (day.verdict for day in days)
    ]
    return Rolled(verdicts, minimums, compared)
