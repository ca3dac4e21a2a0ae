"""`fastpath forecast`: whether a forecast would help an autoscaler, from its load or from a running scaler.

The card of a load is made here, by replay. The card of a running scaler is only shown.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from adapter.bounds.forecast.verdict import ForecastCard
from adapter.cli import command_line, verbs
from adapter.errors import RunError
from adapter.model.autoscaling.forecast import ANNOTATION, PATH
from fastpath_tools.forecast import case, chart, picture, wording
from fastpath_tools.forecast.options import COMMAND, JSON, SVG, ForecastOptions
from fastpath_tools.live.cluster_options import NAMESPACE


class ShownCard(NamedTuple):
    """A card with the name of its autoscaler, sentences below it, and the document for programs."""

    name: str
    card: ForecastCard
    document: dict[str, Any]
    notes: Sequence[str] = ()
    is_dated: bool = True


class _Condition(msgspec.Struct, frozen=True):
    """The condition ForecastReady."""

    message: str = "none was made yet"


class _LiveForecast(msgspec.Struct):
    """What a running scaler shows of the forecast of an autoscaler."""

    card: ForecastCard | None = None
    floor: int = 0
    withheld: str = ""
    condition: _Condition = _Condition()


@command_line.verb(COMMAND)
def main(options: ForecastOptions) -> int:
    """Print the card of a forecast; InputError for bad input, RunError if it cannot be made or read."""
    shown = _make(options) if options.needs_load else _fetch(options)
    if options.output == JSON:
        command_line.show(command_line.to_json(shown.document))
    elif options.output == SVG:
        command_line.show(picture.draw(shown.name, shown.card, shown.notes, is_dated=shown.is_dated))
    else:
        has_blocks = (sys.stdout.encoding or "").lower().startswith("utf")
        drawn = chart.draw(shown.card, chart.BLOCKS if has_blocks else chart.ASCII)
        text = wording.to_text(shown.name, shown.card, drawn, shown.notes, is_dated=shown.is_dated)
        command_line.show(text)
    return 0


def _make(options: ForecastOptions) -> ShownCard:
    verbs.require("numpy")
    given = case.read(options)
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("replaying 7 days with each forecast"):
            card = case.make_card(given.case)
    else:
        card = case.make_card(given.case)
    document = {"name": given.name, "card": card, "notes": given.notes}
    return ShownCard(given.name, card, document, given.notes, given.is_dated)


def _fetch(options: ForecastOptions) -> ShownCard:
    from fastpath_tools.live import scaler_access  # noqa: PLC0415 - aiohttp takes long to import

    whole = asyncio.run(scaler_access.fetch(options, options.namespace or NAMESPACE))
    place = "/".join(options.key)
    if whole.get("forecast") is None:
        raise RunError(
            f"{place} has no forecast: set {PATH} of a FastPathAutoscaler, or the annotation "
            f"{ANNOTATION} of a boosted HorizontalPodAutoscaler, such as {ANNOTATION}=Advise"
        )
    try:
        read = msgspec.convert(whole["forecast"], _LiveForecast)
    except msgspec.ValidationError as error:
        raise RunError(f"{place}: the scaler shows a forecast that cannot be read: {error}") from error
    if read.card is None:
        raise RunError(f"{place} has no verdict on its forecast: {read.condition.message}")
    document = {"name": place, **whole["forecast"]}
    return ShownCard(place, read.card, document, [wording.holds(read.card, read.floor, read.withheld)])
