"""The screen of the demo: the replicas over time, the values that autoscalers read, and the reaction times.

The functions turn values into text that fits into 80 columns and 24 lines.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 66
"""Moments that fit into the chart."""

_BARS = " ▁▂▃▄▅▆▇█"
_HISTORY = 12
_BOTH, _FAST, _NATIVE, _NEEDED = "═", "━", "─", "░"
_STYLES = {_BOTH: "bold", _FAST: "bold green", _NATIVE: "bold yellow", _NEEDED: "dim"}


class Question(NamedTuple):
    """A metric that an autoscaler would request: its name, its subject in words, and its path."""

    metric: str
    subject: str
    path: str


class Reading(NamedTuple):
    """The values of one response by object or label set, or the error."""

    values: Mapping[str, str]
    error: str = ""


class Moment(NamedTuple):
    """One column of the chart: the needed pods, and the replicas of the two workloads."""

    needed: int
    fast: int
    native: int


class Reaction(NamedTuple):
    """A step of the load, its age in seconds, and the reaction times; None before the write."""

    text: str
    ago: float
    fast: float | None
    native: float | None


def parse(body: Mapping[str, Any]) -> Reading:
    """Return the values of a metric list, or the message of a Status."""
    if body.get("kind") == "Status":
        return Reading({}, str(body.get("message", "")))
    values = {}
    for item in body["items"]:
        described = item.get("describedObject")
        name = described["name"] if described else ",".join(item["metricLabels"].values())
        values[name] = item["value"]
    return Reading(values)


def number(text: str) -> float:
    """Return a quantity of the demo as a number; it has the suffix `m`, `k` or none."""
    factor = {"m": 0.001, "k": 1000.0}.get(text[-1:])
    return float(text[:-1]) * factor if factor else float(text)


def total(reading: Reading) -> float | None:
    """Return the sum of a reading, None without values."""
    return sum(map(number, reading.values.values())) if reading.values else None


def chart(moments: Sequence[Moment], highest: int) -> Text:
    """Return the chart of the last moments, one row for each count from `highest` to 1."""
    text = Text(no_wrap=True)
    shown = list(moments)[-WIDTH:]
    for count in range(highest, 0, -1):
        text.append(f"{count:>3} │ ", "dim")
        text.append(" " * (WIDTH - len(shown)))
        for moment in shown:
            mark = _mark(moment, count)
            text.append(mark, _STYLES.get(mark, ""))
        text.append("\n")
    text.append(f"    └{'─' * (WIDTH + 1)}", "dim")
    return text


def legend(fast: str, native: str) -> Text:
    parts: list[tuple[str, str]] = []
    for mark, about in ((_FAST, f"fast-scaler {fast}"), (_NATIVE, f"HPA {native}"), (_BOTH, "both")):
        parts += [(mark * 2, _STYLES[mark]), (f" {about}  ", "")]
    parts += [(_NEEDED * 2, _STYLES[_NEEDED]), (" needed", "")]
    return Text.assemble("  ", *parts, no_wrap=True)


def readings_table(
    questions: Sequence[Question], readings: Sequence[Reading], history: Sequence[Sequence[float | None]]
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("metric", "of", "values", "sum", "over time"):
        table.add_column(column, no_wrap=True)
    for question, reading, line in zip(questions, readings, history, strict=True):
        summed = total(reading)
        cells = [str(len(reading.values)), "" if summed is None else f"{summed:.4g}", _sparkline(line)]
        if is_first(line):
            cells = ["", "", "not yet"]
        elif reading.error:
            cells = ["", "", "no value now"]
        table.add_row(question.metric, question.subject, *cells)
    return table


def is_first(line: Sequence[float | None]) -> bool:
    """Return whether a question has had no value yet, which is normal soon after the start."""
    return all(value is None for value in line)


def faults(readings: Sequence[Reading], history: Sequence[Sequence[float | None]]) -> list[Text]:
    """Return the errors of questions that had a value before."""
    texts = [
        reading.error
        for reading, line in zip(readings, history, strict=True)
        if reading.error and not is_first(line)
    ]
    return [Text(text, "red", no_wrap=True, overflow="ellipsis") for text in dict.fromkeys(texts)]


def seconds_text(seconds: float) -> str:
    """Return a reaction time. The demo samples too rarely to resolve less than a tenth of a second."""
    return "under 0.1 s" if seconds < 0.1 else f"{seconds:.1f} s"


def reaction_line(reaction: Reaction) -> Text:
    parts = [
        f"{name} {'not yet' if seconds is None else seconds_text(seconds)}"
        for name, seconds in (("fast-scaler", reaction.fast), ("HPA", reaction.native))
    ]
    return Text(f"{reaction.text}, {reaction.ago:.0f} s ago: {', '.join(parts)}", no_wrap=True)


def summary(reactions: Sequence[Reaction]) -> list[str]:
    """Return the reaction times over all steps."""
    if not reactions:
        return ["The load did not step in this time: let the demo run for 60 s or longer."]
    lines = ["From a step of the load to the Scale that is written:"]
    for name, times in (
        ("fast-scaler", [reaction.fast for reaction in reactions]),
        ("HPA", [reaction.native for reaction in reactions]),
    ):
        known = [seconds for seconds in times if seconds is not None]
        if not known:
            waited = max(reaction.ago for reaction in reactions)
            lines.append(
                f"  {name:<13} not yet, {waited:.1f} s after the step; it can take half a minute: --for 60s"
            )
        elif len(known) == 1:
            lines.append(f"  {name:<13} {seconds_text(known[0])}")
        else:
            half, most = statistics.median(known), max(known)
            lines.append(
                f"  {name:<13} {seconds_text(half)} (p50 of {len(known)} steps; at most {seconds_text(most)})"
            )
    return lines


def render(
    title: str,
    plot: RenderableType,
    about: RenderableType,
    table: Table,
    faulty: Sequence[Text],
    reactions: Sequence[Reaction],
) -> Group:
    lines = [reaction_line(reaction) for reaction in list(reactions)[-2:]] or [
        Text("the load steps in a moment", "dim")
    ]
    return Group(
        Text(title, "bold", no_wrap=True), plot, about, Text(), table, *(faulty[:1] or [Text()]), *lines
    )


def _mark(moment: Moment, count: int) -> str:
    if moment.fast == moment.native == count:
        return _BOTH
    if moment.fast == count:
        return _FAST
    if moment.native == count:
        return _NATIVE
    return _NEEDED if count <= moment.needed else " "


def _sparkline(values: Sequence[float | None]) -> str:
    recent = list(values)[-_HISTORY:]
    top = max((value for value in recent if value is not None), default=0.0) or 1.0
    return "".join(
        "·" if value is None else _BARS[max(1, round(value / top * (len(_BARS) - 1)))] for value in recent
    )
