"""Draws docs/images/ready.svg: `python -m benchmarks.ready_plot [RESULTS [PICTURE]]`.

The picture shows how many of the needed pods are Ready, as an average of each chain of `benchmarks.ready`
over the time since the load stepped, one panel for each start-up time. Pods beyond the needed ones do not
count. The same results give the same bytes.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import reaction, reaction_plot, suite
from benchmarks.reaction_plot import HEIGHT, STYLE, WIDTH, Panel, label
from benchmarks.ready_world import CHAINS, NEEDED, PODS, STARTS

PICTURE = suite.ROOT / "docs" / "images" / "ready.svg"

_EDGES = {"short": (46, 260), "medium": (316, 530), "long": (586, 790)}
_COLORS = {"native": "native", "boosted": "boosted", "fast": "gauge"}
_STEPS = (5, 10, 20, 40, 50, 100)


def draw(entry: Mapping[str, Any]) -> str:
    """Return the picture of an entry of `ready`."""
    settings = entry["settings"]
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>Ready pods after a load step, average of {settings['workloads']} workloads</title>",
        f"<style>{STYLE}</style>",
    ]
    for start in STARTS:
        lines = {chain: _line(entry["notes"][f"ready_{chain}_{start}"]) for chain in CHAINS}
        seconds, ticks = scale_of(entry["figures"][f"native_{start}_p95_seconds"])
        left, right = _EDGES[start]
        panel = Panel(left, right, seconds, ticks, PODS, NEEDED)
        parts.append(label(left, 22, f"Pods start in {settings[start]:g} s", "title"))
        parts += reaction_plot.axes(panel)
        parts += [
            f'<path class="curve" stroke="var(--{_COLORS[chain]})" d="{panel.path(lines[chain])}"/>'
            for chain in CHAINS
        ]
    parts += [
        label(130, 190, "fast-scaler", "case", "gauge"),
        label(130, 210, "HPA with boost", "case", "boosted"),
        label(130, 230, "HPA alone", "case", "native"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _line(text: str) -> list[tuple[float, float]]:
    curves = [[(at, min(count, NEEDED)) for at, count in curve] for curve in reaction.read_curves(text)]
    return reaction_plot.average(curves, PODS)


def scale_of(longest: float) -> tuple[float, Sequence[float]]:
    """Return the seconds that a panel shows, which are more than `longest`, and its ticks."""
    step = next((step for step in _STEPS if longest < 4 * step), longest)
    ticks = [step * number for number in range(5) if step * (number - 1) < longest]
    return ticks[-1], ticks


def main(arguments: Sequence[str]) -> None:
    results = Path(arguments[0]) if arguments else suite.RESULTS
    picture = Path(arguments[1]) if len(arguments) > 1 else PICTURE
    entry = json.loads(results.read_text(encoding="utf-8")).get("ready")
    if entry is None:
        sys.exit(f"{results} has no ready: run scripts/bench ready")
    picture.write_text(draw(entry), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
