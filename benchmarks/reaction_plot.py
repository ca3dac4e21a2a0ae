"""Draws docs/images/reaction.svg: `python -m benchmarks.reaction_plot [RESULTS [PICTURE]]`.

The picture shows the average replicas of some cases of `benchmarks.reaction` over the time since the load
stepped: the whole time to the left, the first seconds to the right. The same results give the same bytes. The
colors follow the light or dark scheme of the reader.
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import reaction, stepping, suite
from benchmarks.reaction import Curve

PICTURE = suite.ROOT / "docs" / "images" / "reaction.svg"

WIDTH, HEIGHT = 800, 330
TOP, BOTTOM = 64, 278
_NAMES = {"gauge": "fast-scaler", "boosted": "HPA with boost", "native": "HPA alone"}
STYLE = """
svg { --ink: #1f2328; --soft: #656d76; --rule: #d0d7de; }
svg { --gauge: #0969da; --boosted: #1a7f37; --native: #bc4c00; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9198a1; --rule: #3d444d; }
  svg { --gauge: #4493f8; --boosted: #3fb950; --native: #f0883e; }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.case { font-weight: 600; }
.rule { stroke: var(--rule); stroke-width: 1; }
.needed { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4; }
.curve { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
.missing { fill: var(--native); fill-opacity: 0.13; }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: where it lies between left and right, and the seconds that it shows."""

    left: float
    right: float
    seconds: float
    ticks: Sequence[float]
    low: int
    high: int

    def x(self, seconds: float) -> float:
        """Return where a time lies; later times lie at the right edge."""
        return round(self.left + (self.right - self.left) * min(seconds, self.seconds) / self.seconds, 1)

    def y(self, replicas: float) -> float:
        """Return where a count lies."""
        return round(BOTTOM - (BOTTOM - TOP) * (replicas - self.low) / (self.high - self.low), 1)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """Return a line in steps from the first point to the right edge."""
        first, *rest = points
        steps = "".join(f" H{self.x(at):g} V{self.y(count):g}" for at, count in rest if at <= self.seconds)
        return f"M{self.x(first[0]):g} {self.y(first[1]):g}{steps} H{self.right:g}"


def average(curves: Sequence[Curve], begin: int) -> list[tuple[float, float]]:
    """Return the average of curves that begin with so many replicas, as the points of a line in steps."""
    counts = [begin] * len(curves)
    events = sorted((at, number, count) for number, curve in enumerate(curves) for at, count in curve)
    points: list[tuple[float, float]] = [(0.0, float(begin))]
    for at, number, count in events:
        counts[number] = count
        points.append((at, statistics.fmean(counts)))
    return points


def draw(entry: Mapping[str, Any]) -> str:
    """Return the picture of an entry of `reaction`."""
    settings = entry["settings"]
    begin = int(settings["pods"])
    needed = stepping.needed(begin)
    curves = {case: reaction.read_curves(entry["notes"][f"replicas_{case}"]) for case in _NAMES}
    lines = {case: average(found, begin) for case, found in curves.items()}
    whole = Panel(46, 500, 2 * settings["slow"], (0, 5, 10, 15, 20, 25, 30), begin, needed)
    early = Panel(560, 770, 1.5, (0, 0.5, 1, 1.5), begin, needed)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>Average replicas of {settings['workloads']} workloads after a load step</title>",
        f"<style>{STYLE}</style>",
        label(
            8, 22, f"Replicas after the load doubles: average of {settings['workloads']} workloads", "title"
        ),
        label(early.left, 22, "The first 1.5 s", "title"),
    ]
    for panel in (whole, early):
        parts += axes(panel)
        for case in ("native", "boosted", "gauge"):
            parts.append(f'<path class="curve" stroke="var(--{case})" d="{panel.path(lines[case])}"/>')
    missing = f"{whole.path(lines['native'])} V{whole.y(needed):g} H{whole.x(0):g} Z"
    parts.insert(5, f'<path class="missing" d="{missing}"/>')
    parts += [
        label(whole.x(1.3), whole.y(needed) + 22, "with Fastpath", "case", "gauge"),
        label(whole.x(6), whole.y(begin + 0.65 * (needed - begin)), "too few replicas"),
        label(whole.x(16.8), whole.y(begin) - 80, _NAMES["native"], "case", "native"),
        label(whole.x(16.8), whole.y(begin) - 62, f"Prometheus scrapes every {settings['slow']:g} s,"),
        label(whole.x(16.8), whole.y(begin) - 45, f"the HPA decides every {settings['slow']:g} s"),
        label(early.x(0.05), early.y(needed) + 48, _NAMES["gauge"], "case", "gauge"),
        label(early.x(0.68), early.y(begin) - 75, _NAMES["boosted"], "case", "boosted"),
        label(early.x(0.68), early.y(begin) - 12, _NAMES["native"], "case", "native"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def axes(panel: Panel) -> list[str]:
    """Return the axes, their numbers, and the line of what is needed."""
    parts = []
    for count in range(panel.low, panel.high + 1):
        y = panel.y(count)
        kind = "needed" if count == panel.high else "rule"
        parts.append(f'<line class="{kind}" x1="{panel.left}" x2="{panel.right}" y1="{y:g}" y2="{y:g}"/>')
        parts.append(label(panel.left - 8, y + 4, str(count), anchor="end"))
    for at in panel.ticks:
        unit = " s" if at == panel.ticks[-1] else ""
        parts.append(label(panel.x(at), BOTTOM + 20, f"{at:g}{unit}", anchor="middle"))
    parts.append(label(panel.right, TOP - 8, "needed", anchor="end"))
    parts.append(label((panel.left + panel.right) / 2, BOTTOM + 42, "time after the step", anchor="middle"))
    return parts


def label(x: float, y: float, words: str, kind: str = "", colour: str = "", *, anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' style="fill: var(--{colour})"' if colour else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{words}</text>'


def main(arguments: Sequence[str]) -> None:
    results = Path(arguments[0]) if arguments else suite.RESULTS
    picture = Path(arguments[1]) if len(arguments) > 1 else PICTURE
    entry = json.loads(results.read_text(encoding="utf-8")).get("reaction")
    if entry is None:
        sys.exit(f"{results} has no reaction: run scripts/bench reaction")
    picture.write_text(draw(entry), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
