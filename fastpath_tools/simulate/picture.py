"""Draws what policies did with a load as one SVG picture, a panel for each policy.

A panel has the demand in pods as an area, the ready pods and those asked for as lines, the shortage shaded,
and below it the written counts and what kept the count.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.autoscaler.decide.restraint import Restraint
from fastpath_forecast.simulate.engine import CountChange
from fastpath_forecast.simulate.load import LoadSpan
from fastpath_forecast.simulate.schedules import ScheduledStretch
from fastpath_tools import charts, tables
from fastpath_tools.charts import AREA, HATCH, LINE, MARK, Frame, Look, Sheet, TrackStep
from fastpath_tools.simulate.recording import Recording

COLUMNS = 720
"""How many columns a recording for a picture should have: one for each pixel of a panel."""

_LONGEST_NAME = 48  # the figures stand to the right of it

_DESCRIBED = 200
"""Up to so many changes each has its reason as a tooltip."""

_LINES = {
    "demand": Look(AREA, charts.GRAY, "demand, in pods", "fill-opacity: 0.34"),
    "ready": Look(LINE, charts.BLUE, "ready pods", "stroke-width: 1.8"),
    "asked": Look(LINE, charts.VIOLET, "pods asked for", "stroke-width: 1.1"),
    "shortage": Look(AREA, charts.RED, "shortage", "fill-opacity: 0.55"),
    "raised": Look(MARK, charts.BLUE, "raised"),
    "lowered": Look(MARK, charts.GRAY, "lowered"),
    "boosted": Look(MARK, charts.GREEN, "raised by boost"),
}
RESTRAINTS = {
    Restraint.HELD: charts.LAVENDER,
    Restraint.FLOOR: charts.GREEN,
    Restraint.SCHEDULED: charts.TEAL,
    Restraint.FORECAST: charts.PINK,
    Restraint.LIMITED: charts.AMBER,
    Restraint.HIGHEST: charts.RED,
    Restraint.LOWEST: charts.DIM,
    Restraint.ABSENT: charts.SLATE,
}
"""The colors of the ribbon; where the count follows the metrics it is empty."""

_BOUNDS = "floor or ceiling of a schedule"
_RIBBON = {
    restraint.name.lower(): Look(AREA, color, restraint.value) for restraint, color in RESTRAINTS.items()
} | {
    "gap": Look(HATCH, charts.GRAY, "no sample"),
    "saturated": Look(HATCH, charts.AMBER, "saturated when recorded"),
    "bounds": Look(LINE, charts.TEAL, _BOUNDS, "stroke-width: 1.4; stroke-dasharray: 5 3"),
}


class Panel(NamedTuple):
    """One policy: its name, a sentence of figures, and the run to draw.

    `changes` are the written counts. `is_boosted` says that those of the second chain are raises beside an
    HPA. `scheduled` are the bounds of schedules, and `has_forecast` says that floors of forecasts are among
    them.
    """

    policy: str
    caption: str
    recording: Recording
    changes: Sequence[CountChange]
    is_boosted: bool = False
    scheduled: Sequence[ScheduledStretch] = ()
    has_forecast: bool = False

    @property
    def highest(self) -> float:
        tracks = (track for column in self.recording.columns for track in (column.need, column.replicas))
        return max((track.high for track in tracks if track is not None), default=1.0)


def draw(
    title: str, subtitles: tuple[str, str], panels: Sequence[Panel], saturated: Sequence[LoadSpan] = ()
) -> str:
    """Return the picture of policies over the same seconds; the title and two lines stand above them.

    In the spans `saturated` the demand may have been higher.
    """
    bounds = f"{_BOUNDS}{' or forecast' if any(panel.has_forecast for panel in panels) else ''}"
    looks = _LINES | _RIBBON | {"bounds": _RIBBON["bounds"]._replace(words=bounds)}
    sheet = Sheet(title, looks)
    sheet.write(subtitles)
    sheet.legend(kind for kind in _LINES if kind != "boosted" or any(panel.is_boosted for panel in panels))
    pods = charts.ceiling(max(panel.highest for panel in panels))
    seconds = panels[0].recording.seconds
    for panel in panels:
        sheet.y += 30
        name = panel.policy
        name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
        sheet.parts += [
            f'<g class="panel"><title>{charts.escaped(panel.policy)}</title>',
            charts.text(charts.MARGIN, sheet.y, name, "head"),
            charts.text(charts.RIGHT, sheet.y, panel.caption, anchor="end"),
            *_panel(panel, Frame(sheet.y + 12, 150, 0, seconds, pods), saturated),
            "</g>",
        ]
        sheet.y += 183
    sheet.y += 14
    sheet.parts += Frame(0, 0, 0, seconds).times(
        sheet.y, {at: tables.short_duration(at) for at in charts.ticks(seconds)}
    )
    # the ribbon's legend names only what some panel has
    columns = [column for panel in panels for column in panel.recording.columns]
    shown = {column.restraint.name.lower() for column in columns}
    shown |= {"gap"} if any(column.need is None for column in columns) else set()
    shown |= {"saturated"} if saturated else set()
    shown |= {"bounds"} if any(panel.scheduled for panel in panels) else set()
    sheet.legend(kind for kind in _RIBBON if kind in shown)
    return sheet.render()


def _panel(panel: Panel, frame: Frame, saturated: Sequence[LoadSpan]) -> Iterator[str]:
    seconds, columns = panel.recording.seconds, panel.recording.columns
    yield frame.uprights("rule", charts.ticks(seconds)[1:])
    yield from frame.axis()
    yield frame.spans("gap", ((column.start, column.end) for column in columns if column.need is None))
    yield frame.area("demand", (TrackStep(column.start, column.end, column.need or ()) for column in columns))
    yield frame.spans("saturated", ((span.start, span.end) for span in saturated))
    yield frame.boxes(
        "shortage", ((column.start, column.end, *column.worst) for column in columns if column.worst)
    )
    yield frame.line(
        "asked", (TrackStep(column.start, column.end, column.replicas or ()) for column in columns)
    )
    yield frame.line("ready", (TrackStep(column.start, column.end, column.ready or ()) for column in columns))
    bounds = (
        [TrackStep(column.start, column.end, [bound])]
        for column in panel.scheduled
        for bound in (column.min, column.max)
        if bound is not None and bound <= frame.pods
    )
    yield frame.line("bounds", *bounds)
    yield from _changes(panel, frame)
    ribbon = Frame(frame.bottom + 12, 9, 0, seconds)
    yield ribbon.spans("empty", [(0, seconds)])
    for restraint in RESTRAINTS:
        held = ((column.start, column.end) for column in columns if column.restraint is restraint)
        yield ribbon.spans(restraint.name.lower(), held)


def _changes(panel: Panel, frame: Frame) -> Iterator[str]:
    """Yield a mark for each raise and each lowering, one for those of the same pixel."""
    marks: dict[tuple[str, int], list[str]] = {}
    for change in panel.changes:
        kind, by = "raised" if change.after > change.before else "lowered", ""
        if panel.is_boosted and change.by and kind == "raised":
            kind, by = "boosted", " by boost"
        reason = f": {change.reason}" if change.reason else ""
        tip = f"{tables.short_duration(change.second)}: from {change.before} to {change.after}{by}{reason}"
        marks.setdefault((kind, round(frame.x(change.second))), []).append(tip)
    is_described = len(panel.changes) <= _DESCRIBED
    for (kind, x), tips in marks.items():
        y = frame.bottom + (7 if kind == "lowered" else 3)
        yield charts.rect(kind, x - 0.75, y, 1.5, 4, "; ".join(tips) if is_described else "")
