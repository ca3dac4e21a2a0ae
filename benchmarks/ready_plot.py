"""Draws docs/images/ready.svg: `python -m benchmarks.ready_plot [RESULTS [PICTURE]]`.

The picture shows how many of the needed pods are Ready, as an average of each chain of `benchmarks.ready`
over the time since the load stepped, one panel for each start-up time. Pods beyond the needed ones do not
count. The same results give the same bytes.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import common, reaction, reaction_plot, suite
from benchmarks.reaction_plot import CASES, LOOKS
from benchmarks.ready_world import NEEDED, PODS, STARTS
from fastpath_tools import charts
from fastpath_tools.charts import Frame, Sheet

PICTURE = common.ROOT / "docs" / "images" / "ready.svg"

_EDGES = {"short": (46, 260), "medium": (316, 530), "long": (586, 790)}
_CASES = {"native": "native", "boosted": "boosted", "fast": "gauge"}
_STEPS = (5, 10, 20, 40, 50, 100)


def draw(entry: Mapping[str, Any]) -> str:
    """Return the picture of an entry of `ready`."""
    settings = entry["settings"]
    sheet = Sheet(f"Ready pods after a load step: average of {settings['workloads']} workloads", LOOKS)
    sheet.legend(CASES)
    for start in STARTS:
        seconds, ticks = scale_of(entry["figures"][f"native_{start}_p95_seconds"])
        frame = Frame(108, 214, 0, seconds, NEEDED, PODS, *_EDGES[start])
        sheet.parts.append(charts.text(frame.left, 80, f"Pods start in {settings[start]:g} s", "head"))
        sheet.parts += reaction_plot.axes(frame, ticks)
        for chain, case in _CASES.items():
            points = _line(entry["notes"][f"ready_{chain}_{start}"])
            sheet.parts.append(frame.line(case, reaction_plot.track(points, seconds)))
    sheet.y = 374
    return sheet.render()


def _line(text: str) -> list[tuple[float, float]]:
    curves = [[(at, min(count, NEEDED)) for at, count in curve] for curve in reaction.read_curves(text)]
    return reaction_plot.average(curves, PODS)


def scale_of(longest: float) -> tuple[float, Sequence[float]]:
    """Return the seconds that a panel shows, which are more than `longest`, and its ticks."""
    step = next((step for step in _STEPS if longest < 4 * step), longest)
    ticks = [step * number for number in range(5) if step * (number - 1) < longest]
    return ticks[-1], ticks


if __name__ == "__main__":
    suite.draw_kept("ready", draw, PICTURE, sys.argv[1:])
