"""Draws docs/images/noise.svg: `python -m benchmarks.noise_plot [RESULTS [PICTURE]]`.

The picture shows what a longer window of a rate brings and costs, from the figures of `benchmarks.noise`:
the raises by noise in an hour of steady load to the left, the time from a step to the raise to the right. The
same results give the same bytes.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import common, suite
from benchmarks.noise import SHOWN_PODS, WINDOWS
from fastpath_tools import charts
from fastpath_tools.charts import AREA, Frame, Look, Sheet

PICTURE = common.ROOT / "docs" / "images" / "noise.svg"

KINDS = {"alone": "unguarded_", "shipped": ""}
LOOKS = {
    "alone": Look(AREA, charts.ORANGE, "by the tolerance alone", "fill-opacity: 0.55"),
    "shipped": Look(AREA, charts.BLUE, "as shipped: beyond the noise as well"),
}


def _bars(frame: Frame, figures: Mapping[str, float], figure: str) -> Iterator[str]:
    """Yield the axes and two bars for each window, with their values."""
    yield from frame.axis()
    for number, (kind, prefix) in enumerate(KINDS.items()):
        heights = [figures[f"{SHOWN_PODS}_pods_{window}s_{prefix}{figure}"] for window in WINDOWS]
        begins = [place + 0.12 + 0.4 * number for place in range(len(WINDOWS))]
        yield frame.boxes(
            kind, ((begin, begin + 0.36, 0.0, height) for begin, height in zip(begins, heights, strict=True))
        )
        for begin, height in zip(begins, heights, strict=True):
            yield charts.text(frame.x(begin + 0.18), frame.y(height) - 5, f"{height:.3g}", anchor="middle")
    words = {place + 0.5: f"{window} s" for place, window in enumerate(WINDOWS)}
    for at, word in words.items():
        yield charts.text(frame.x(at), frame.bottom + 20, word, anchor="middle")
    yield charts.text(
        (frame.left + frame.right) / 2, frame.bottom + 42, "window of the rate", anchor="middle"
    )


def draw(entry: Mapping[str, Any]) -> str:
    """Return the picture of an entry of `noise`."""
    figures: Mapping[str, float] = entry["figures"]
    sheet = Sheet(f"The window of a rate: noise against reaction, workloads of {SHOWN_PODS} pods", LOOKS)
    sheet.legend(KINDS)
    panels = (
        ("raises_per_hour", "Raises by noise in an hour of steady load", (46, 390)),
        ("reaction_p50_seconds", "Seconds from a step to the raise, p50", (446, 790)),
    )
    for figure, title, edges in panels:
        highest = max(
            figures[f"{SHOWN_PODS}_pods_{window}s_{prefix}{figure}"]
            for window in WINDOWS
            for prefix in KINDS.values()
        )
        frame = Frame(110, 200, 0, len(WINDOWS), charts.ceiling(1.1 * highest), 0.0, *edges)
        sheet.parts.append(charts.text(frame.left, 86, title, "head"))
        sheet.parts += _bars(frame, figures, figure)
    sheet.y = 364
    return sheet.render()


if __name__ == "__main__":
    suite.draw_kept("noise", draw, PICTURE, sys.argv[1:])
