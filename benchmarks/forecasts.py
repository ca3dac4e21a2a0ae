"""What forecasts would have done with public traces: `python -m benchmarks.forecasts --folder DIR`.

With --write it makes the tables of docs/forecast-traces.md, of the traces and of `benchmarks.daily_loads`. Of
each trace three weeks count, the last of them around its highest value. A verdict is made each day from the
two weeks before it, and the minimums of the last week are those of a live scaler: `planner.roll` goes through
the load as it does. Targets and bounds are those of `benchmarks.simulated`.

Of a load whose forecast acted the figures are those of the days on which it did. Beside them stands a lower
target with the pods of these days, found by bisection apart from the judge.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import JUDGED_DAYS, ReplayFigures
from adapter.model.autoscaling.forecast import DAY, ForecastSettings
from adapter.model.timestamps import SECOND
from benchmarks import daily_loads, simulated, traces
from benchmarks.simulated import START_UPS
from benchmarks.traces import TRACES
from fastpath_forecast import judge, planner
from fastpath_forecast.judge import Case
from fastpath_forecast.planner import DayOfMinimums
from fastpath_forecast.replay import STEP, SplitFigures
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.load import Load, of_points
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.schedules import ForecastMinimums

PAGE = Path(__file__).parent.parent / "docs" / "forecast-traces.md"
WEEKS = 3
EPOCH = 1_699_999_200
"""An hour of 2023: traces have no time zone, and nothing here depends on the day."""

POLICY = "fast"

HALVES = 9
"""How often the lower target is halved: to a thousandth of the target."""


NAMES = [f"{trace.name} ({trace.resolution})" for trace in TRACES] + list(daily_loads.DAILY_LOADS)


class Row(NamedTuple):
    """One load at one start-up time: shortage and pods in per cent of the need, and what was decided.

    `place` is that of its name. `target` is the lower target with the same pods, in per cent of the target.
    """

    place: int
    start_up: int
    shortage: float = 0.0
    shortage_with: float = 0.0
    extra: float = 0.0
    shortage_of_same_pods: float = 0.0
    target: float = 0.0
    verdicts: str = ""
    seconds: float = 0.0


def weeks_of(place: int, folder: Path) -> Load:
    """Return three weeks of a load, of a trace with its highest value in the middle of the last."""
    if place >= len(TRACES):
        return of_points(daily_loads.points_of(NAMES[place]), WEEKS * 7 * DAY)
    return traces.load_of(TRACES[place], folder, WEEKS * 7 * DAY)


def run(job: tuple[int, int, Path]) -> Row:
    place, start_up, folder = job
    began = time.process_time()
    load = weeks_of(place, folder)
    scenario = dataclasses.replace(simulated.scenario_for(load, start_up), phases=1, epoch=EPOCH * SECOND)
    case = Case(scenario, read_policy(POLICY), ForecastSettings())
    first = min(2 * 7 * DAY, max(load.seconds // DAY - 6, 1) * DAY)
    if load.seconds < (JUDGED_DAYS + 1) * DAY:
        missing = "less than an hour"
        if load.seconds >= 3600:
            missing = judge.find_missing(judge.build_demand(case))
        return Row(place, start_up, verdicts=f"no verdict: {missing}", seconds=_since(began))
    days = list(planner.roll(case, first))
    loads = {name: each.part(first, each.seconds) for name, each in scenario.loads.items()}
    begin = EPOCH + first
    week = case._replace(scenario=dataclasses.replace(scenario, loads=loads, epoch=begin * SECOND))
    spans = [
        range(day.start - begin, day.start - begin + STEP * len(day.minimums))
        for day in days
        if day.verdict.chosen
    ]
    demand = judge.build_demand(week).values
    need = STEP * sum(float(np.nansum(demand[span.start // STEP : span.stop // STEP])) for span in spans)
    if not spans:
        need, spans = STEP * float(np.nansum(demand)), [range(load.seconds)]
        without = replay(week, spans).shortage / need
        return Row(place, start_up, 100 * without, verdicts=describe(days), seconds=_since(began))
    none = replay(week, spans)
    acted = replay(week, spans, planner.join_minimums(days, case.start))
    low, high = 0.5, 1.0
    for _ in range(HALVES):
        middle = (low + high) / 2
        is_more = replay(week, spans, share=middle).pods > acted.pods
        low, high = (middle, high) if is_more else (low, middle)
    return Row(
        place,
        start_up,
        100 * none.shortage / need,
        100 * acted.shortage / need,
        100 * acted.extra_over(none),
        100 * replay(week, spans, share=high).shortage / need,
        100 * high,
        describe(days),
        _since(began),
    )


def _since(began: float) -> float:
    return time.process_time() - began


class PartFigures(SplitFigures):
    """Sums the figures of some spans of seconds."""

    def __init__(self, limits: Limits, spans: Sequence[range]) -> None:
        super().__init__(0, limits)
        self._spans = spans

    def stretch(self, second: int, seconds: int, need: float, ready: int, replicas: int) -> None:
        for span in self._spans:
            begin, end = max(second, span.start), min(second + seconds, span.stop)
            if begin < end:
                super().stretch(begin, end - begin, need, ready, replicas)


def replay(
    case: Case, spans: Sequence[range], minimums: ForecastMinimums | None = None, share: float = 1.0
) -> ReplayFigures:
    """Return the figures of some spans with the minimums of a forecast, or with a share of the target."""
    figures = PartFigures(judge.build_limits(case), spans)
    scenario = dataclasses.replace(case.scenario, forecast=minimums)
    simulation.simulate(scenario, dataclasses.replace(case.policy, target_share=share), observer=figures)
    return figures.whole


def describe(days: list[DayOfMinimums]) -> str:
    """Return which candidate acted on how many days, or why the best of the last day was refused."""
    chosen = Counter(day.verdict.chosen for day in days if day.verdict.chosen)
    last = days[-1].verdict
    if chosen:
        listed = ", ".join(f"{name} {count}" for name, count in chosen.most_common())
        return f"{listed} of {len(days)} days"
    if last.none is None:
        return f"no verdict: {last.missing}"
    none = last.none.whole
    best = max(last.candidates, key=lambda each: each.whole.gain_over(none))
    return f"refused; {best.name}: {best.refused.split(';')[0]}"


def render(rows: list[Row]) -> str:
    lines = [
        "| load | pods start in | without | more pods | forecast | lower target | of that | acted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.verdicts.startswith("no verdict"):
            continue
        cells = [f"{row.shortage:.3g} %", "-", "-", "-", "-"]
        if row.target:
            of_same = 100 * row.shortage_with / row.shortage_of_same_pods if row.shortage_of_same_pods else 0
            cells[1:] = [
                f"{row.extra:+.1f} %",
                f"{row.shortage_with:.3g} %",
                f"{row.shortage_of_same_pods:.3g} % (target {row.target:.0f} %)",
                f"{of_same:.2g} %",
            ]
        lines.append(f"| {NAMES[row.place]} | {row.start_up} s | {' | '.join(cells)} | {row.verdicts} |")
    return "\n".join(lines)


def main() -> None:
    parser = traces.parser_of(__doc__)
    parser.add_argument(
        "--load", type=int, action="append", help="the place of a load in the list, again for more"
    )
    given = parser.parse_args()
    places = given.load or range(len(NAMES))
    jobs = [
        (place, start_up, given.folder)
        for place in places
        for start_up in (START_UPS if place < len(TRACES) else START_UPS[1:])
    ]
    rows = []
    with ProcessPoolExecutor(given.processes) as pool:
        for row in pool.map(run, jobs):
            print(NAMES[row.place], *row[1:], flush=True)
            rows.append(row)
    table = "\n\n".join(
        render([row for row in rows if (row.place < len(TRACES)) == is_trace]) for is_trace in (True, False)
    )
    cpu = f"{sum(row.seconds for row in rows):.0f} s of CPU time"
    traces.put_table(PAGE, "the table", table, cpu, write=given.write)


if __name__ == "__main__":
    main()
