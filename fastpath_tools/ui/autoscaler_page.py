"""The page of one autoscaler: why its count is what it is, over time, hop by hop, and what could be changed.

`render` is pure: what was read in, sections out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapter.model.autoscaling.fastpath_autoscaler import BOOST, HPA_KIND
from adapter.model.autoscaling.view import BoundsAhead, MetricView
from fastpath_tools.doctor.hops import Hop, State, seconds, total
from fastpath_tools.ui import axis, sentence, what_if
from fastpath_tools.ui.access import ClusterAccess
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader, AutoscalerReading, hops_by_metric
from fastpath_tools.ui.pages import Content, Query, Templates

_STEPS = 100
"""How many steps of the ladder are shown."""


class AutoscalerPage:
    def __init__(self, access: ClusterAccess, templates: Templates, namespace: str, name: str) -> None:
        self._reader = AutoscalerReader(access, namespace, name)
        self._templates = templates

    async def read(self, query: Query) -> Content:
        reading = await self._reader.read()
        return await asyncio.to_thread(render, self._templates, reading, query)  # a replay takes a while


def render(templates: Templates, reading: AutoscalerReading, query: Query) -> Content:
    view, examination = reading.view, reading.examination
    why = sentence.describe(view, examination)
    facts: dict[str, dict[str, Any]] = {
        "sentence": {"view": view, "why": why, "notes": reading.notes},
        "axis": {"axis": axis.draw(view), "has_history": view.history is not None},
        "chain": {"chains": [_block(*chain, why.cause) for chain in hops_by_metric(view, examination)]},
        "ladder": {"last": view.last, "steps": () if view.last is None else view.last.trace[:_STEPS]},
        "metrics": {"metrics": list(map(_metric_row, view.metrics))},
        "writers": {"view": view, "hop": sentence.target_hop(examination), "clock": sentence.clock},
        "ahead": {"bounds": list(map(_ahead_row, view.ahead))},
        "try": {"trial": _try(reading, query)},
    }
    sections = [templates.section(name, f"autoscaler_{name}.html", **shown) for name, shown in facts.items()]
    return Content(f"{view.namespace}/{view.name}", sections)


# -- the chain -----------------------------------------------------------------------------------------------


class ChainRow(NamedTuple):
    """A hop: its times as text, "" for one that takes none, and its part of the bar in per cent."""

    name: str
    usual: str
    most: str
    state: State
    text: str
    left: float
    width: float
    shade: int


class ChainBlock(NamedTuple):
    """The hops of one metric from the load to Ready pods, and their sum."""

    metric: str
    rows: Sequence[ChainRow]
    usual: str
    most: str


def _block(metric: str, hops: Sequence[Hop], cause: str) -> ChainBlock:
    """Return the chain of a metric; the cause that its sentence has is not repeated."""
    whole = total(hops)
    more = "" if whole.whole else ">"
    length = whole.took.usual or 1.0
    rows, left, shade = [], 0.0, 0
    for hop in hops:
        took = hop.took
        width = 0.0 if took is None else 100 * took.usual / length
        texts = ("?", "?") if took is None else (seconds(took.usual), seconds(took.most))
        if not hop.timed:
            texts = ("", "")
        text = "as above" if hop.text == cause else hop.text
        rows.append(ChainRow(hop.name, *texts, hop.state, text, left, width, shade))
        left += width
        shade = (shade + bool(width)) % 2
    times = seconds(whole.took.usual), seconds(whole.took.most)
    return ChainBlock(metric, rows, f"{more}{times[0]}", f"{more}{times[1]}")


# -- metrics -------------------------------------------------------------------------------------------------


class MetricRow(NamedTuple):
    name: str
    current: str
    target: str
    ratio: str
    age: str
    problem: str


def _metric_row(metric: MetricView) -> MetricRow:
    return MetricRow(
        metric.name,
        "" if metric.current == sentence.UNKNOWN else sentence.in_unit_of_target(metric),
        metric.target,
        "" if metric.ratio is None else f"{metric.ratio:.2f}",
        "" if metric.age is None else seconds(metric.age),
        metric.fault or metric.overdue,
    )


# -- schedule and forecast -----------------------------------------------------------------------------------


class AheadRow(NamedTuple):
    """Bounds ahead as text; an instant has no seconds."""

    start: str
    end: str
    bounds: str
    source: str


def _ahead_row(ahead: BoundsAhead) -> AheadRow:
    bounds = [
        f"{word} {bound}" for word, bound in (("min", ahead.min), ("max", ahead.max)) if bound is not None
    ]
    return AheadRow(_minute(ahead.start), _minute(ahead.end), ", ".join(bounds), ahead.source)


def _minute(at: str) -> str:
    return f"{at[:10]} {at[11:16]}"


# -- try -----------------------------------------------------------------------------------------------------


class TryRow(NamedTuple):
    name: str
    shortage: str
    pods: str
    most: str


class TryForm(NamedTuple):
    """The fields of the form with their limits, and the figures as rows, none without a history."""

    trial: what_if.Trial
    targets: tuple[int, int]
    windows: tuple[int, int]
    has_boost: bool
    rows: Sequence[TryRow]


def _try(reading: AutoscalerReading, query: Mapping[str, str]) -> TryForm:
    autoscaler, view = reading.autoscaler, reading.view
    is_hpa = view.kind == HPA_KIND
    is_boosted = reading.examination.facts.mode == BOOST
    today = what_if.settings(autoscaler, is_hpa=is_hpa, is_boosted=is_boosted)
    trial = what_if.read_trial(query, today)
    results: Sequence[what_if.Result] = ()
    if view.history is not None and what_if.is_known(view.history):
        results = [what_if.recorded(view.history)]
        if "target" in query:  # a replay takes half a second, so it has to be asked for
            tries = (today, trial)
            results += [what_if.replay(view.history, autoscaler, reading.start_up, one) for one in tries]
    names = ("as it was", "replayed with today's settings", "replayed with these settings")
    rows = [
        TryRow(name, f"{result.shortage:,.0f}", f"{result.pod_seconds:,.0f}", str(result.most))
        for name, result in zip(names, results, strict=False)
    ]
    return TryForm(trial, what_if.TARGETS, what_if.WINDOWS, is_hpa, rows)
