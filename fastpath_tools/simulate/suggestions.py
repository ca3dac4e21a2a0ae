"""`--suggest`: runs the grid of `fastpath_tools.simulate.suggest`, and prints its Pareto front.

The grid runs at a few phases, and what is on its front again at all.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from adapter.cli import command_line
from adapter.model import visible
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.simulate import simulation
from adapter.simulate.policies import BOOST, FAST, NATIVE, read_policy
from adapter.simulate.simulation import Scenario
from fastpath_tools import tables
from fastpath_tools.loads import wording
from fastpath_tools.simulate import running, suggest
from fastpath_tools.simulate.inputs import Inputs, PolicyVariant
from fastpath_tools.simulate.options import JSON, MARKDOWN
from fastpath_tools.simulate.results import PolicyFigures
from fastpath_tools.simulate.suggest import Suggestion

_SWEEP_PHASES = 2
"""At how many phases the grid runs."""

_ROOM = (100, 110)
"""Pod seconds in per cent of the first policy's, within which the least shortage is named."""

_MODES = {NATIVE: "the HPA", BOOST: "the boosted HPA", FAST: "the fast-scaler"}


class Tried(NamedTuple):
    suggestion: Suggestion
    figures: PolicyFigures


class Front(NamedTuple):
    """The first policy, how many points were tried, and the Pareto front of these, the cheapest first."""

    first: PolicyFigures
    tried: int
    points: Sequence[Tried]


def sweep(given: Inputs) -> Front:
    paces = {name: read_policy(name) for name in suggest.MODES}
    for each in reversed(given.variants):
        if each.policy.name in paces:
            paces[each.policy.name] = each.policy
    scenario = given.scenario
    grid = suggest.grid(scenario.autoscaler, paces, scenario.capacity_ratio)
    coarse = replace(scenario, phases=min(scenario.phases, _SWEEP_PHASES))
    found = suggest.pareto(_try(coarse, grid), _costs)
    if coarse.phases < scenario.phases:
        found = suggest.pareto(_try(scenario, [each.suggestion for each in found]), _costs)
    first = running.run_all(scenario, given.variants[:1])[0].figures
    return Front(first, len(grid), found)


def _try(scenario: Scenario, suggestions: Sequence[Suggestion]) -> list[Tried]:
    variants = [PolicyVariant(each.policy, each.behavior) for each in suggestions]
    played = running.run_all(scenario, variants)
    return [Tried(each, run.figures) for each, run in zip(suggestions, played, strict=True)]


def _costs(tried: Tried) -> tuple[float, float]:
    return tried.figures.mean("shortagePodSeconds"), tried.figures.mean("podSeconds")


def render(given: Inputs, output: str) -> str:
    """Run the grid, and return its front as text, Markdown or JSON."""
    front = sweep(given)
    if output == JSON:
        return _to_json(given, front)
    name, loads = given.scenario.autoscaler.metadata.name, given.scenario.loads
    about = (wording.describe_loads(loads), f"{_heading(front)}.")
    said = [*_sentences(front), *wording.load_notes(loads), *given.notes]
    is_markdown = output == MARKDOWN
    lines = tables.page("Suggestions for", name, about, _rows(given, front), said, markdown=is_markdown)
    for pick in filter(None, (_pick(front, percent) for percent in _ROOM)):
        if change := _change(given, pick.suggestion):
            text = command_line.to_yaml(change).splitlines()
            lines += ["", f"What {_described(pick.suggestion)} changes in the autoscaler:", ""]
            lines += ["```yaml", *text, "```"] if is_markdown else text
        break
    return visible.join(lines)


def _heading(front: Front) -> str:
    return (
        f"{front.tried} autoscalers were tried; none of them has both less shortage and fewer pod seconds "
        "than one of these"
    )


def _rows(given: Inputs, front: Front) -> list[list[str]]:
    compared = f"vs {front.first.policy}"
    head = ["mode", "target", "scale-down window", "raises", "shortage", compared, "pod seconds", compared]
    rows = [[*head, "changes", "at max"], _row(front, front.first, f"{front.first.policy}, given")]
    for suggestion, figures in front.points:
        window = "as given" if suggestion.window is None else f"{suggestion.window}s"
        raises = "unbounded" if suggestion.is_unbounded else "as given"
        rows.append(_row(front, figures, suggestion.policy.name, _target(given, suggestion), window, raises))
    return rows


def _row(
    front: Front, figures: PolicyFigures, mode: str, target: str = "", window: str = "", raises: str = ""
) -> list[str]:
    row = [mode, target, window, raises]
    for name in ("shortagePodSeconds", "podSeconds"):
        value = figures.mean(name)
        row += [f"{value:,.0f}", tables.share(value, front.first.mean(name))]
    return [*row, f"{figures.mean('changes'):,.0f}", tables.duration(figures.mean("secondsAtMax"))]


def _target(given: Inputs, suggestion: Suggestion) -> str:
    if suggestion.target is None:
        return "as given"
    metrics = given.scenario.autoscaler.spec.metrics or ()
    is_percent = suggest.target_of(metrics[0]).average_utilization is not None
    return f"{suggestion.target} %" if is_percent else str(suggestion.target)


def _pick(front: Front, percent: int) -> Tried | None:
    """Return the point with the least shortage within so many pod seconds, None if the first has no more."""
    shortage, pods = front.first.mean("shortagePodSeconds"), front.first.mean("podSeconds")
    within = [each for each in front.points if _costs(each)[1] <= pods * percent / 100]
    return within[-1] if within and _costs(within[-1])[0] < shortage else None


def _sentences(front: Front) -> list[str]:
    """Return what the front says: how much of the shortage goes for how many more pods."""
    sentences = []
    for percent in _ROOM:
        pick, policy = _pick(front, percent), front.first.policy
        room = f"no more pod seconds than {policy}" if percent == 100 else f"{percent} % of its pod seconds"
        if pick is None:
            sentences.append(f"with {room} no autoscaler has less shortage")
            continue
        shortage = tables.share(_costs(pick)[0], front.first.mean("shortagePodSeconds"))
        pods = tables.share(_costs(pick)[1], front.first.mean("podSeconds"))
        found = f"{shortage} of its shortage and {pods} of its pod seconds"
        sentences.append(f"with {room}: {_described(pick.suggestion)} has {found}")
    return sentences


def _described(suggestion: Suggestion) -> str:
    parts = [_MODES[suggestion.policy.name]]
    if suggestion.target is not None:
        parts.append(f"target {suggestion.target}")
    if suggestion.window is not None:
        parts.append(f"a scale-down window of {suggestion.window}s")
    if suggestion.is_unbounded:
        parts.append("unbounded raises")
    return parts[0] if len(parts) == 1 else f"{parts[0]} with {' and '.join(parts[1:])}"


def _change(given: Inputs, suggestion: Suggestion) -> dict[str, Any]:
    """Return the fields of the autoscaler's spec that a suggestion changes."""
    spec: dict[str, Any] = {}
    metrics = given.scenario.autoscaler.spec.metrics or ()
    if suggestion.target is not None:
        spec["metrics"] = [_plain(simulation.retargeted(metrics[0], suggestion.target))]
    if suggestion.behavior is not given.scenario.autoscaler.spec.behavior:
        spec["behavior"] = _plain(suggestion.behavior)
    return {"spec": spec} if spec else {}


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=encode_scalar, str_keys=True)


def _to_json(given: Inputs, front: Front) -> str:
    return command_line.to_json(
        {
            "load": wording.load_document(given.scenario.loads),
            "first": front.first.document(),
            "tried": front.tried,
            "front": [
                {"mode": each.suggestion.policy.name, "spec": _change(given, each.suggestion).get("spec", {})}
                | each.figures.document()
                for each in front.points
            ],
        }
    )
