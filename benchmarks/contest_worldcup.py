"""The contest on WorldCup 98, in the windows of two papers.

Guruge and Priyadarshana, "Time series forecasting-based Kubernetes autoscaling using Facebook Prophet and
Long Short-Term Memory", Frontiers in Computer Science, 10.3389/fcomp.2025.1509165: 401 minutes of 7 July,
a pod serves 100 requests a minute. Their planner and their HPA are written again by their notebook,
github.com/PasanBhanu/time-series-forcasting-with-facebook-prophet-lstm-hybrid-model at 354f004.

Imdoukh, Ahmad and Alfailakawi, "Machine learning-based auto-scaling for containerized applications", Neural
Computing and Applications 2019, 10.1007/s00521-019-04507-z: the last 30 %.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks import contest_scenarios, traces
from benchmarks.contest_scenarios import Line
from benchmarks.traces import TRACES
from fastpath_forecast.simulate import elasticity
from fastpath_forecast.simulate.load import Load, of_points

MINUTE = 60
_BEGIN = datetime(1998, 4, 30, 21, 30, tzinfo=UTC)
GURUGE = (datetime(1998, 7, 7, 9, 51, tzinfo=UTC), 401)
IMDOUKH = (datetime(1998, 6, 30, 19, 31, tzinfo=UTC), 37_589)
WEEK = 7 * 24 * 60
"""The minutes of the second window that `simulate` runs: all 26 days take long."""

PER_POD = 100.0
"""Requests a minute that a pod serves in the first window."""

START_UP = 20
PHASES = 8


def counts(folder: Path, window: tuple[datetime, int]) -> list[float]:
    """Return the requests of each minute of a window."""
    trace = TRACES[0]
    begin, minutes = window
    first = int((begin - _BEGIN).total_seconds())
    points = trace.read(traces.fetch(trace, folder), trace.interval)
    values = [value for at, value in points if first <= at < first + minutes * MINUTE]
    assert len(values) == minutes, f"{len(values)} minutes from {begin}"
    return values


def load_of(values: Sequence[float]) -> Load:
    return of_points([(float(MINUTE * at), value) for at, value in enumerate(values)], MINUTE * len(values))


# -- the notebook of Guruge and Priyadarshana ----------------------------------------------------------------


class Planned(NamedTuple):
    """A planner of the notebook, and the figures that the notebook has for it, in per cent."""

    name: str
    under: float
    over: float
    time_under: float
    time_over: float


PUBLISHED = Planned("HPA, as published", 0.189, 593.755, 2.2, 97.6)


def plan(forecasts: Sequence[float]) -> list[int]:
    """Return the pods for forecasts of each minute: raises at once, and 60 % of a surplus is removed."""
    pods = [100]
    for forecast in forecasts[1:]:
        wanted = math.ceil(forecast / PER_POD)
        before = pods[-1]
        pods.append(wanted if wanted >= before else max(1, before - int((before - wanted) * 0.6)))
    return pods


def plan_hpa(values: Sequence[float]) -> list[int]:
    """Return the pods of the notebook's HPA: target 70 %, five minutes between scale-downs."""
    pods, since = [100], -1
    for minute, value in enumerate(values[1:], 1):
        wanted, before = math.ceil(value / (PER_POD * 0.7)), pods[-1]
        if wanted > before:
            since = -1
        elif wanted < before and since < 0:
            since, wanted = minute, before
        elif wanted < before and minute - since >= 5:
            since = minute
        else:
            wanted = before
        pods.append(wanted)
    return pods


def measure(name: str, values: Sequence[float], pods: Sequence[int]) -> Planned:
    """Return the figures as the notebook has them: loads are not rounded to pods, and 400 minutes count."""
    under = over = time_under = time_over = 0.0
    for value, count in zip(values, pods, strict=True):
        missing = value - count * PER_POD
        under += max(missing, 0) / value
        over += max(-missing, 0) / value
        time_under += missing > 0
        time_over += missing < 0
    return Planned(name, *(100 * total / 400 for total in (under, over, time_under, time_over)))


def planned(values: Sequence[float]) -> list[Planned]:
    """Return what forecasts come to with the notebook's planner: a perfect one, and last values times x."""
    last = [values[0], *values[:-1]]
    plans = {"perfect forecast": plan(values), "last minute's value": plan(last)}
    for x in (1.05, 1.10):
        plans[f"last minute's value times {x}"] = plan([x * value for value in last])
    plans["the notebook's own HPA"] = plan_hpa(values)
    return [*(measure(name, values, pods) for name, pods in plans.items()), PUBLISHED]


# -- the table of Imdoukh, Ahmad and Alfailakawi -------------------------------------------------------------


class Scored(NamedTuple):
    """A row of table 8: the four figures, and the elastic speed-up against the first row."""

    name: str
    figures: tuple[float, float, float, float]
    eta: float


TABLE_8 = (
    Scored("none", (3.29, 3.06, 57.95, 57.05), 1.0),
    Scored("ANN 1", (0.94, 3.51, 26.50, 73.20), 1.50),
    Scored("LSTM 1", (0.48, 4.28, 15.85, 89.10), 1.84),
    Scored("ANN 5", (5.07, 1.42, 76.50, 32.55), 1.17),
    Scored("LSTM 5", (1.88, 2.62, 42.55, 57.25), 1.29),
)


def speedup(row: Scored) -> float:
    eta = elasticity.speedup(TABLE_8[0].figures, row.figures)
    assert eta is not None
    return eta


# -- the tables ----------------------------------------------------------------------------------------------


class Windows(NamedTuple):
    guruge: Sequence[Planned]
    guruge_lines: Sequence[Line]
    imdoukh_lines: Sequence[Line]


def run(folder: Path) -> Windows:
    values = counts(folder, GURUGE)
    scenario = contest_scenarios.scenario(load_of(values), PER_POD, START_UP, PHASES)
    last = load_of(counts(folder, IMDOUKH)[:WEEK])
    # the capacity of a pod is not published: ten pods at the mean, and at least five, as there
    wide = contest_scenarios.scenario(last, last.mean / 10, START_UP, 1, least=5)
    return Windows(planned(values), contest_scenarios.contest(scenario), contest_scenarios.contest(wide))


def render_guruge(windows: Windows) -> str:
    lines = ["| planner of the notebook | θU | θO | TU | TO |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.under:.3f} | {row.over:.3f} | {row.time_under:.1f} | {row.time_over:.1f} |"
        for row in windows.guruge
    ]
    return "\n".join([*lines, "", *_table(windows.guruge_lines)])


def render_imdoukh(windows: Windows) -> str:
    lines = [
        "| table 8 | θU | θO | TU | TO | η | η of these four | TU + TO |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in TABLE_8:
        figures = " | ".join(f"{figure:.2f}" for figure in row.figures)
        total = row.figures[2] + row.figures[3]
        lines.append(f"| {row.name} | {figures} | {row.eta:.2f} | {speedup(row):.2f} | {total:.2f} |")
    return "\n".join([*lines, "", *_table(windows.imdoukh_lines)])


def _table(lines: Sequence[Line]) -> list[str]:
    head = [f"| policy | {contest_scenarios.HEAD} |", "|---|---|---|---|---|---|---|---|"]
    return [*head, *contest_scenarios.rows(lines)]
