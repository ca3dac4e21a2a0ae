"""Draws docs/images/growth.svg: `python -m benchmarks.plot [RESULTS [PICTURE]]`.

One panel a case of `benchmarks.growth`, with logarithmic axes: the measured cost without the fixed cost, and
a dashed line of linear growth through the last point. The same results give the same bytes. Needs matplotlib
(requirements/bench.txt).
"""

import io
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import common, suite
from benchmarks.common import show_number
from benchmarks.growth import ABOUT, UPPER

PICTURE = common.ROOT / "docs" / "images" / "growth.svg"

_COSTS = {"cpu_seconds": "processor seconds", "memory_mib": "MiB"}
_POINT = re.compile(r"(?P<case>[a-z]+)_(?P<size>\d+)_(?P<cost>cpu_seconds|memory_mib)")
_COLUMNS = 4
_SALT = "fastpath"  # of the names within the picture, which are random otherwise


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


def draw(entry: Mapping[str, Any]) -> str:
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


if __name__ == "__main__":
    suite.draw_kept("growth", draw, PICTURE, sys.argv[1:])
