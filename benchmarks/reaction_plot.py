"""Draws docs/images/reaction.svg: `python -m benchmarks.reaction_plot [RESULTS [PICTURE]]`.

The picture shows the average replicas of some cases of `benchmarks.reaction` over the time since the load
stepped: the whole time to the left, the first seconds to the right. The same results give the same bytes. The
colors follow the light or dark scheme of the reader.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import common, reaction, stepping, suite
from benchmarks.reaction import Curve
from fastpath_tools import charts
from fastpath_tools.charts import AREA, LINE, Color, Frame, Look, Sheet, TrackStep

PICTURE = common.ROOT / "docs" / "images" / "reaction.svg"

_WEIGHT = "stroke-width: 2.5"
CASES = {
    "gauge": Look(LINE, charts.BLUE, "fast-scaler", _WEIGHT),
    "boosted": Look(LINE, Color("#1a7f37", "#3fb950"), "HPA with boost", _WEIGHT),
    "native": Look(LINE, charts.ORANGE, "HPA alone", _WEIGHT),
}
LOOKS = CASES | {
    **{f"{case}-name": look._replace(shape=AREA, style="font-weight: 600") for case, look in CASES.items()},
    "needed": Look(LINE, charts.SLATE, "needed", "stroke-width: 1.5; stroke-dasharray: 5 4"),
    "missing": Look(AREA, charts.ORANGE, "too few replicas", "fill-opacity: 0.13"),
}


def average(curves: Sequence[Curve], begin: int) -> list[tuple[float, float]]:
    """Return the average of curves that begin with so many replicas, as the points of a line in steps."""
    counts = [begin] * len(curves)
    events = sorted((at, number, count) for number, curve in enumerate(curves) for at, count in curve)
    points: list[tuple[float, float]] = [(0.0, float(begin))]
    for at, number, count in events:
        counts[number] = count
        points.append((at, statistics.fmean(counts)))
    return points


def track(points: Sequence[tuple[float, float]], seconds: float) -> list[TrackStep]:
    """Return the points of a line in steps as steps that end with the picture."""
    ends = [at for at, _ in points[1:]] + [seconds]
    return [
        TrackStep(at, min(end, seconds), [count])
        for (at, count), end in zip(points, ends, strict=True)
        if at < seconds
    ]


def name(case: str, x: float, y: float) -> str:
    """Return the name of a case in its color."""
    return charts.text(x, y, CASES[case].words, f"{case}-name")


def axes(frame: Frame, ticks: Sequence[float]) -> Iterator[str]:
    """Yield the axes, their numbers, and the line of what is needed."""
    yield from frame.axis()
    words = {at: f"{at:g}" for at in ticks}
    yield from frame.times(frame.bottom + 20, words | {ticks[-1]: f"{ticks[-1]:g} s"})
    yield frame.line("needed", [TrackStep(frame.begin, frame.end, [frame.pods])])
    yield charts.text(frame.right, frame.top - 8, "needed", anchor="end")
    middle = (frame.left + frame.right) / 2
    yield charts.text(middle, frame.bottom + 42, "time after the step", anchor="middle")


def draw(entry: Mapping[str, Any]) -> str:
    """Return the picture of an entry of `reaction`."""
    settings = entry["settings"]
    begin, slow = int(settings["pods"]), settings["slow"]
    needed = stepping.needed(begin)
    curves = {case: reaction.read_curves(entry["notes"][f"replicas_{case}"]) for case in CASES}
    lines = {case: average(found, begin) for case, found in curves.items()}
    whole = Frame(64, 214, 0, 2 * slow, needed, begin, 46, 500)
    early = Frame(64, 214, 0, 1.5, needed, begin, 560, 770)
    missing = (
        (step.start, step.end, step.values[0], needed)
        for step in track(lines["native"], whole.end)
        if step.start < step.end
    )
    sheet = Sheet(
        f"Replicas after the load doubles: average of {settings['workloads']} workloads", LOOKS, 314
    )
    sheet.parts.append(charts.text(early.left, 26, "The first 1.5 s", "title"))
    sheet.parts.append(whole.boxes("missing", missing))
    for frame, ticks in ((whole, (0, 5, 10, 15, 20, 25, 30)), (early, (0, 0.5, 1, 1.5))):
        sheet.parts += axes(frame, ticks)
        sheet.parts += [
            frame.line(case, track(lines[case], frame.end)) for case in ("native", "boosted", "gauge")
        ]
    low, x = whole.bottom, whole.x(16.8)
    sheet.parts += [
        charts.text(whole.x(1.3), whole.top + 22, "with Fastpath", "gauge-name"),
        charts.text(whole.x(6), whole.y(begin + 0.65 * (needed - begin)), LOOKS["missing"].words),
        name("native", x, low - 80),
        charts.text(x, low - 62, f"Prometheus scrapes every {slow:g} s,"),
        charts.text(x, low - 45, f"the HPA decides every {slow:g} s"),
        name("gauge", early.x(0.05), early.top + 48),
        name("boosted", early.x(0.68), low - 75),
        name("native", early.x(0.68), low - 12),
    ]
    return sheet.render()


if __name__ == "__main__":
    suite.draw_kept("reaction", draw, PICTURE, sys.argv[1:])
