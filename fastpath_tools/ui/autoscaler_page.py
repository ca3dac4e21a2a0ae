"""The page of one autoscaler: why its count is what it is, over time, hop by hop, and what could be changed.

`render` is pure: what was read in, sections out.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from adapter.errors import FastpathError, RunError
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, HPA_KIND
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.doctor.hops import Hop, Total, total
from fastpath_tools.ui import axis, fleet_page, sentence, what_if
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader, AutoscalerReading, hops_by_metric
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.pages import Content, Query, Templates

_STEPS, _LINKS = 100, 50
"""How many steps of the ladder are shown, and how many autoscalers where one does not exist."""


class AutoscalerPage:
    """The page of one autoscaler; where it does not exist, those of `fleet`."""

    def __init__(self, doctor: Doctor, templates: Templates, fleet: FleetReader, *key: str) -> None:
        self._reader = AutoscalerReader(doctor, *key)
        self._fleet = fleet
        self._templates = templates

    async def read(self, query: Query) -> Content:
        try:
            reading = await self._reader.read()
        except RunError as error:
            rows: Sequence[Any] = ()
            with contextlib.suppress(FastpathError):  # not everyone may list all
                rows = (await self._fleet.read()).rows[:_LINKS]
            facts = {"problem": error, "rows": rows, "address": fleet_page.of_autoscaler}
            missing = self._templates.section("missing", "autoscaler_missing.html", **facts)
            return Content("No such autoscaler", [missing], 404)
        return await asyncio.to_thread(render, self._templates, reading, query)  # a replay takes a while


def render(templates: Templates, reading: AutoscalerReading, query: Query) -> Content:
    view, examination = reading.view, reading.examination
    why = sentence.describe(view, examination)
    spans = {name: urlencode({**query, "span": name}) for name in axis.SPANS}
    facts: dict[str, dict[str, Any]] = {
        "sentence": {"view": view, "why": why, "words": sentence, "notes": reading.notes},
        "axis": {"axis": axis.draw(view, query.get("span", "")), "view": view, "spans": spans},
        "chain": {"chains": [_block(*chain, why.cause) for chain in hops_by_metric(view, examination)]},
        "ladder": {"last": view.last, "steps": () if view.last is None else view.last.trace[:_STEPS]},
        "metrics": {"metrics": view.metrics, "words": sentence},
        "writers": {"view": view, "hop": sentence.target_hop(examination), "clock": sentence.clock},
        "ahead": {"bounds": view.ahead},
        "try": _try(reading, query),
    }
    sections = [templates.section(name, f"autoscaler_{name}.html", **shown) for name, shown in facts.items()]
    return Content(f"{view.namespace}/{view.name}", sections)


class ChainRow(NamedTuple):
    """A hop, and its part of the bar in per cent."""

    hop: Hop
    left: float
    width: float
    shade: int


class ChainBlock(NamedTuple):
    """The hops of one metric from the load to Ready pods, and their sum."""

    metric: str
    rows: Sequence[ChainRow]
    total: Total


def _block(metric: str, hops: Sequence[Hop], cause: str) -> ChainBlock:
    """Return the chain of a metric; the cause that its sentence has is not repeated."""
    whole = total(hops)
    length = whole.took.usual or 1.0
    rows, left, shade = [], 0.0, 0
    for hop in hops:
        width = 0.0 if hop.took is None else 100 * hop.took.usual / length
        shown = hop._replace(text="as above") if hop.text == cause else hop
        rows.append(ChainRow(shown, left, width, shade))
        left += width
        shade = (shade + bool(width)) % 2
    return ChainBlock(metric, rows, whole)


def _try(reading: AutoscalerReading, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the form with its limits, and the figures by settings, none without a history."""
    autoscaler, view = reading.autoscaler, reading.view
    is_hpa = view.kind == HPA_KIND
    is_boosted = reading.examination.facts.mode == BOOST
    today = what_if.settings(autoscaler, is_hpa=is_hpa, is_boosted=is_boosted)
    trial = what_if.read_trial(query, today)
    rows: list[tuple[str, what_if.Result]] = []
    if view.history is not None and what_if.is_known(view.history):
        rows = [("as it was", what_if.recorded(view.history))]
        if "target" in query:  # a replay takes half a second, so it has to be asked for
            tries = {"replayed with today's settings": today, "replayed with these settings": trial}
            rows += [
                (name, what_if.replay(view.history, autoscaler, reading.start_up, one))
                for name, one in tries.items()
            ]
    limits = {"targets": what_if.TARGETS, "windows": what_if.WINDOWS, "has_boost": is_hpa}
    return {"trial": trial, "rows": rows, "span": query.get("span"), **limits}
