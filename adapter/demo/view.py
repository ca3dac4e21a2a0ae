"""What the demo shows: the values an autoscaler reads, asked for over HTTPS as it asks, and the URLs to try."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_BARS = " ▁▂▃▄▅▆▇█"
_HISTORY = 12


class Question(NamedTuple):
    """A question that an autoscaler would ask: what for, in words and as a path."""

    metric: str
    subject: str
    path: str


class Reading(NamedTuple):
    """One answer: the values by object or label set, or the error instead of them."""

    values: Mapping[str, str]
    error: str = ""


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
    """Return a quantity of the demo as a number: thousandths, thousands, or plain."""
    factor = {"m": 0.001, "k": 1000.0}.get(text[-1:])
    return float(text[:-1]) * factor if factor else float(text)


def total(reading: Reading) -> float | None:
    """Return the sum of a reading, None where there is none."""
    return sum(map(number, reading.values.values())) if reading.values else None


def render(
    questions: Sequence[Question],
    readings: Sequence[Reading],
    history: Sequence[Sequence[float | None]],
    facts: Mapping[str, str],
) -> RenderableType:
    """Return the whole screen."""
    table = Table(expand=False, header_style="bold")
    for column in ("metric", "an autoscaler reads", "sum", "over time"):
        table.add_column(column)
    for question, reading, line in zip(questions, readings, history, strict=True):
        shown = "\n".join(f"{name}={value}" for name, value in reading.values.items())
        cell = Text(reading.error, style="red") if reading.error else Text(shown or "no value yet", overflow="fold")
        summed = total(reading)
        metric = Text.assemble(question.metric, "\n", (question.subject, "dim"), no_wrap=True)
        table.add_row(metric, cell, "" if summed is None else f"{summed:.4g}", Text(_sparkline(line), no_wrap=True))
    lines = [Text(f"{name:<11} {text}") for name, text in facts.items()]
    return Group(table, *lines)


def _sparkline(values: Sequence[float | None]) -> str:
    recent = list(values)[-_HISTORY:]
    top = max((value for value in recent if value is not None), default=0.0) or 1.0
    return "".join("·" if value is None else _BARS[max(1, round(value / top * (len(_BARS) - 1)))] for value in recent)
