"""Draws docs/images/idle-scale-down.svg: `python -m benchmarks.idle_plot [RESULTS [PICTURE]]`.

The picture shows the load of each pod of one workload of `benchmarks.idle_scale_down` when its scale-down
began, busiest first, and which of the pods went: in Kubernetes' own order, and with idle scale-down. The same
results give the same bytes.
"""

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import common, suite
from fastpath_tools import charts
from fastpath_tools.charts import AREA, Frame, Look, Sheet

PICTURE = common.ROOT / "docs" / "images" / "idle-scale-down.svg"

_PANELS = {"fast": ("Kubernetes' own order", 46, 390), "fast_idle": ("with prefer: Idle", 430, 774)}
_LOOKS = {
    "stays": Look(AREA, charts.BLUE, "pods that stay"),
    "removed": Look(AREA, charts.ORANGE, "pods that are removed"),
}
_WIDTH = 0.8
_THIN = 0.04
"""The height, in busy cores, of a pod without load: it is to be seen."""


def draw(entry: Mapping[str, Any]) -> str:
    """Return the picture of an entry of `idle_scale_down`."""
    sheet = Sheet("Busy cores of the pods of a workload that is scaled down from 20 to 10", _LOOKS)
    sheet.legend(_LOOKS)
    shown = {kind: json.loads(entry["notes"][f"pods_{kind}"]) for kind in _PANELS}
    most = math.ceil(max(load for pods in shown.values() for load, _ in pods))
    for kind, (words, left, right) in _PANELS.items():
        pods = sorted(shown[kind], reverse=True)
        frame = Frame(108, 214, 0, len(pods), most, 0, left, right)
        ended = sum(load for load, is_removed in pods if is_removed)
        sheet.parts.append(charts.text(left, 80, f"{words}: {ended:.1f} busy cores end", "head"))
        sheet.parts += frame.axis()
        for look in _LOOKS:
            boxes = [
                (place, place + _WIDTH, 0, max(load, _THIN))
                for place, (load, is_removed) in enumerate(pods)
                if is_removed == (look == "removed")
            ]
            sheet.parts.append(frame.boxes(look, boxes))
    means = " and ".join(f"{entry['figures'][f'{kind}_load']:.1f}" for kind in _PANELS)
    words = f"This is the first of {entry['settings']['runs']} workloads; their mean is {means} busy cores."
    sheet.parts.append(charts.text(46, 346, words))
    sheet.y = 350
    return sheet.render()


if __name__ == "__main__":
    suite.draw_kept("idle_scale_down", draw, PICTURE, sys.argv[1:])
