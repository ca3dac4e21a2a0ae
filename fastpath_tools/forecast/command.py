"""`fastpath forecast`: whether a forecast would help an autoscaler, from its load or from a running scaler.

The card of a load is made here, by replay. The card of a running scaler is only shown.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from rich.console import Console

from adapter.bounds.forecast.verdict import JUDGED_DAYS, ForecastCard, Verdict
from adapter.cli import command_line, verbs
from adapter.errors import RunError
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.autoscaling.forecast import ANNOTATION, PATH
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate.policies import BOOST, FAST, read_policy
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_tools.forecast import picture, wording
from fastpath_tools.forecast.options import COMMAND, JSON, SVG, ForecastOptions
from fastpath_tools.live.cluster_options import NAMESPACE
from fastpath_tools.loads import sources
from fastpath_tools.loads.wording import load_notes

if TYPE_CHECKING:
    from fastpath_forecast.judge import Case


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
        drawn = picture.draw_signs(shown.card, picture.BLOCKS if has_blocks else picture.ASCII)
        text = wording.to_text(shown.name, shown.card, drawn, shown.notes, is_dated=shown.is_dated)
        command_line.show(text)
    return 0


def _make(options: ForecastOptions) -> ShownCard:
    verbs.require("numpy")
    case, is_dated, notes = read_case(options)
    console = Console(stderr=True)
    console.quiet = not console.is_terminal
    with console.status("replaying 7 days with each forecast"):
        card = make_card(case)
    name = case.scenario.autoscaler.metadata.name
    return ShownCard(name, card, {"name": name, "card": card, "notes": notes}, notes, is_dated)


def read_case(options: ForecastOptions) -> "tuple[Case, bool, Sequence[str]]":
    """Return the case that the command line names, whether its load tells when it begins, and notes on it.

    InputError with what is wrong in the command line and in the files.
    """
    from fastpath_forecast.judge import Case  # noqa: PLC0415 - needs numpy, which is an extra

    recorded = sources.read_recorded(options)
    schedules, _ = sources.read_schedules(options, recorded)
    given = recorded.given
    notes = [*recorded.notes, *load_notes(recorded.loads)]
    wish = options.spec(sources.forecast_wish(given.autoscaler))
    settings = sources.forecast_settings(wish, recorded.start, notes)
    loads, start = sources.whole_hours(recorded.loads, recorded.begin, settings.history)
    scenario = Scenario(
        given.autoscaler,
        loads,
        sources.read_start_ups(options.pod_start),
        options.requested,
        options.capacity_ratio,
        phases=1,
        schedules=schedules,
        epoch=start * SECOND,
    )
    policy = options.policy or (FAST if given.kind == KIND else BOOST)
    return Case(scenario, read_policy(policy), settings), recorded.start is not None, notes


def make_card(case: "Case") -> ForecastCard:
    """Return the card of a case. It takes seconds: a week is replayed up to nine times."""
    from fastpath_forecast import judge, planner  # noqa: PLC0415 - needs numpy, which is an extra

    demand = judge.build_demand(case)
    if not len(demand.values):
        missing = f"0 of {JUDGED_DAYS} days of history"
        return planner.build_card(case, demand, Verdict(demand.end, case.lead, missing=missing))
    return planner.build_card(case, demand, judge.judge(case, demand)[0])


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
