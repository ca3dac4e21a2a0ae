"""Draws the pictures of the performance pages: `python -m benchmarks.plot [NAME ...]`.

- `reaction`: the average replicas of some cases over the time since the load stepped, the whole time to the
  left, the first seconds to the right.
- `clients`: how many of the requests that are due in each second after the step are slow or fail, one panel
  for each load.
- `growth`: one panel a case with logarithmic axes: the measured cost without the fixed cost, and a dashed
  line of linear growth through the last point. Needs matplotlib (requirements/bench.txt).

The same results give the same bytes. The colors of the first two follow the light or dark scheme of the
reader.
"""

import io
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import clients_figures, common, reaction, stepping, suite
from benchmarks.common import show_number
from benchmarks.growth import ABOUT, UPPER
from benchmarks.reaction import Curve
from benchmarks.suite import Entry
from fastpath_tools import charts
from fastpath_tools.charts import AREA, LINE, Color, Frame, Look, Sheet, TrackStep

FOLDER = common.ROOT / "docs" / "images"

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

_EDGES = ((46, 260), (316, 530), (586, 790))
_TWINS = {"native": "native", "boosted": "boosted", "fast": "gauge"}

_COSTS = {"cpu_seconds": "processor seconds", "memory_mib": "MiB"}
_POINT = re.compile(r"(?P<case>[a-z]+)_(?P<size>\d+)_(?P<cost>cpu_seconds|memory_mib)")
_COLUMNS = 4
_SALT = "fastpath"  # of the names within the picture, which are random otherwise


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


def draw_reaction(entry: Entry) -> str:
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


def draw_clients(entry: Entry) -> str:
    """Return the picture of an entry of `clients`."""
    sheet = Sheet("Percentage of requests that are slow or fail, by the second in which they are due", LOOKS)
    sheet.legend(CASES)
    found = [name for name in clients_figures.CASES if f"slow_{name}_native" in entry["notes"]]
    for number, name in enumerate(found):
        case = clients_figures.CASES[name]
        frame = Frame(96 + 226 * (number // 3), 130, 0, case.seconds, 100, 0, *_EDGES[number % 3])
        sheet.parts.append(charts.text(frame.left, frame.top - 12, case.short, "head"))
        sheet.parts += frame.axis()
        words: dict[float, str] = {at: f"{at}" for at in range(0, case.seconds - 9, 20)}
        sheet.parts += frame.times(frame.bottom + 20, words | {case.seconds: f"{case.seconds} s"})
        for twin, look in _TWINS.items():
            shares = map(float, entry["notes"][f"slow_{name}_{twin}"].split())
            points = [TrackStep(at, at + 1, [share]) for at, share in enumerate(shares)]
            sheet.parts.append(frame.line(look, points))
        sheet.parts.append(charts.text(frame.left, frame.bottom + 40, "time after the load changes"))
        sheet.y = frame.bottom + 40
    return sheet.render()


def panels(figures: Mapping[str, float]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Return sizes and costs by case and kind of cost.

    The fixed cost is subtracted where at least a hundredth of it remains.
    """
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for name, value in figures.items():
        match = _POINT.fullmatch(name)
        if match is not None:
            case, cost = match["case"], match["cost"]
            fixed = figures[f"{case}_fixed_{cost}"]
            left = value - fixed
            if left > fixed / 100:
                found.setdefault((case, cost), []).append((int(match["size"]), left))
    return {key: sorted(points) for key, points in found.items()}


def draw_growth(entry: Entry) -> str:
    """Return the picture of an entry of `growth`."""
    import matplotlib as mpl  # noqa: PLC0415 - installed where pictures are drawn

    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": _SALT, "svg.fonttype": "none", "font.size": 8, "font.family": "sans-serif"}
    )
    from matplotlib.figure import Figure  # noqa: PLC0415 - after the settings

    figures: Mapping[str, float] = entry["figures"]
    found = panels(figures)
    rows = math.ceil(len(found) / _COLUMNS)
    sheet = Figure(figsize=(2.6 * _COLUMNS, 2.3 * rows), layout="constrained")
    for place, ((case, cost), points) in enumerate(found.items(), 1):
        axes = sheet.add_subplot(rows, _COLUMNS, place)
        sizes, costs = zip(*points, strict=True)
        axes.loglog(sizes, costs, "o-", markersize=3, linewidth=1, color="#1f5fa8")
        axes.loglog(
            sizes, [costs[-1] * size / sizes[-1] for size in sizes], "--", linewidth=0.8, color="#999999"
        )
        slope = figures[f"{case}_{cost.partition('_')[0]}_exponent"]
        axes.set_title(f"{ABOUT[case]}: exponent {slope:.2f}", fontsize=8)
        axes.set_ylabel(_COSTS[cost])
        axes.axvspan(sizes[-min(UPPER, len(sizes))], sizes[-1], color="#1f5fa8", alpha=0.06, linewidth=0)
        axes.set_xticks([sizes[0], sizes[-1]], [show_number(sizes[0]), show_number(sizes[-1])])
        axes.minorticks_off()
        axes.grid(visible=True, linewidth=0.3)
    picture = io.StringIO()
    sheet.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    return picture.getvalue()


PICTURES: Mapping[str, Callable[[Entry], str]] = {
    "reaction": draw_reaction,
    "clients": draw_clients,
    "growth": draw_growth,
}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.svg"


def main(names: Sequence[str]) -> None:
    results = suite.read(suite.RESULTS)
    for name in names or PICTURES:
        try:
            path_of(name).write_text(PICTURES[name](results[name]), encoding="utf-8")
        except ModuleNotFoundError as error:
            install = ".venv/bin/pip install --require-hashes -r requirements/bench.txt"
            sys.exit(f"the picture of {name} needs {error.name}: {install}")


if __name__ == "__main__":
    main(sys.argv[1:])
