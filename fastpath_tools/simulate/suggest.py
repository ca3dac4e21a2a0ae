"""What `--suggest` tries: a bounded grid of autoscalers, and those of them that no other one beats.

The grid is the product of modes, targets, stabilization windows and scaling policies. A candidate is on the
Pareto front if no other one has both fewer missing pod seconds and fewer pod seconds. The grid runs at a few
phases, and what is on its front again at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from adapter.cli import command_line
from adapter.model import quantity, visible
from adapter.model.autoscaling import hpa
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.quantity import Quantity
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.policies import BOOST, FAST, NATIVE, SimulatedPolicy, read_policy
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_tools import tables
from fastpath_tools.loads import wording
from fastpath_tools.simulate import running
from fastpath_tools.simulate.inputs import SUGGESTED, Inputs, PolicyVariant
from fastpath_tools.simulate.options import JSON, MARKDOWN
from fastpath_tools.simulate.results import PolicyFigures

SHARES = (70, 80, 90, 100)
"""Targets in per cent of the given one; the lower, the more pods are ready before a rise."""

HIGHER_SHARES = (110, 125, 150)
"""Further targets, tried as far as the capacity of a pod allows."""

WINDOWS = (60, 300, 900)
"""Seconds of stabilization of a scale-down, beside those of the autoscaler."""

_DEFAULT_WINDOW = 300

UNBOUNDED = hpa.HPAScalingRules(
    stabilization_window_seconds=0, select_policy="Max", policies=(hpa.HPAScalingPolicy("Percent", 900, 15),)
)
"""Rules for raises that bound nothing in practice: to ten times the pods in 15 s."""

T = TypeVar("T")


class Suggestion(NamedTuple):
    """One point of the grid.

    `target` is None where it is the given one. `window` and `is_unbounded` are what `behavior` changes: the
    seconds of stabilization of a scale-down, None for the given one, and whether raises are unbounded.
    """

    policy: SimulatedPolicy
    target: Quantity | None
    window: int | None
    is_unbounded: bool
    behavior: hpa.HorizontalPodAutoscalerBehavior | None


def grid(
    autoscaler: FastPathAutoscaler, paces: Mapping[str, SimulatedPolicy], capacity_ratio: float
) -> tuple[Suggestion, ...]:
    """Return what is tried, the given autoscaler of each mode first.

    `paces` are policies by mode, whose scrapes and syncs apply. With several metrics the targets stay.
    """
    targets = _targets(autoscaler.spec.metrics or (), capacity_ratio)
    behaviors = list(_behaviors(autoscaler.spec.behavior))
    return tuple(
        Suggestion(_policy(paces[mode], target), target, *behavior)
        for target in targets
        for behavior in behaviors
        for mode in SUGGESTED
    )


def _policy(pace: SimulatedPolicy, target: Quantity | None) -> SimulatedPolicy:
    text = pace.name if target is None else f"{pace.name}:target={target}"
    return SimulatedPolicy(text, pace.name, pace.native, pace.fast, pace.usage, target=target)


def _targets(metrics: Sequence[hpa.MetricSpec], capacity_ratio: float) -> list[Quantity | None]:
    """Return the targets to try, None for the given one, which is first."""
    targets: list[Quantity | None] = [None]
    if len(metrics) != 1:
        return targets
    given = simulation.target_of(metrics[0])
    higher = (share for share in HIGHER_SHARES if share <= round(100 * capacity_ratio))
    for share in (*reversed(SHARES), *higher):
        if given.average_utilization is not None:
            percent = given.average_utilization * share // 100
            target, same = Quantity(percent), percent in {0, given.average_utilization}
        else:
            before = given.average_value or given.value
            assert before is not None
            target = quantity.from_milli(before.milli * share // 100, before.form)
            same = target.milli in {0, before.milli}
        if not same:
            targets.append(target)
    return targets


def _behaviors(
    given: hpa.HorizontalPodAutoscalerBehavior | None,
) -> Iterator[tuple[int | None, bool, hpa.HorizontalPodAutoscalerBehavior | None]]:
    """Yield window, whether raises are unbounded, and the behavior; None for what is given."""
    base = given or hpa.HorizontalPodAutoscalerBehavior()
    down = base.scale_down or hpa.HPAScalingRules()
    own = down.stabilization_window_seconds
    own = _DEFAULT_WINDOW if own is None else own
    for window in (None, *(window for window in WINDOWS if window != own)):
        lowered = base
        if window is not None:
            lowered = structs.replace(
                base, scale_down=structs.replace(down, stabilization_window_seconds=window)
            )
        yield window, False, given if window is None else lowered
        if base.scale_up != UNBOUNDED:
            yield window, True, structs.replace(lowered, scale_up=UNBOUNDED)


def pareto(points: Sequence[T], costs: Callable[[T], tuple[float, float]]) -> list[T]:
    """Return the points that no other one beats, the cheapest first; of equal ones the first.

    `costs` are shortage and pod seconds.
    """
    front: list[T] = []
    least = float("inf")
    # Equal points keep their order, for sorting is stable.
    for point in sorted(points, key=lambda point: (costs(point)[1], costs(point)[0])):
        shortage = costs(point)[0]
        if shortage < least:
            front.append(point)
            least = shortage
    return front


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
    paces = {name: read_policy(name) for name in SUGGESTED}
    for variant in reversed(given.variants):
        if variant.policy.name in paces:
            paces[variant.policy.name] = variant.policy
    scenario = given.scenario
    tried = grid(scenario.autoscaler, paces, scenario.capacity_ratio)
    coarse = replace(scenario, phases=min(scenario.phases, _SWEEP_PHASES))
    points = pareto(_try(coarse, tried), _costs)
    if coarse.phases < scenario.phases:
        points = pareto(_try(scenario, [point.suggestion for point in points]), _costs)
    first = running.run_all(scenario, given.variants[:1])[0].figures
    return Front(first, len(tried), points)


def _try(scenario: Scenario, suggestions: Sequence[Suggestion]) -> list[Tried]:
    variants = [PolicyVariant(suggestion.policy, suggestion.behavior) for suggestion in suggestions]
    played = running.run_all(scenario, variants)
    return [Tried(suggestion, run.figures) for suggestion, run in zip(suggestions, played, strict=True)]


def _costs(tried: Tried) -> tuple[float, float]:
    return tried.figures.mean("shortagePodSeconds"), tried.figures.mean("podSeconds")


def render(given: Inputs, output: str) -> str:
    """Run the grid, and return its front as text, Markdown or JSON."""
    front = sweep(given)
    if output == JSON:
        return _to_json(given, front)
    name, loads = given.scenario.autoscaler.metadata.name, given.scenario.loads
    heading = (
        f"{front.tried} autoscalers were tried; none of them has both less shortage and fewer pod seconds "
        "than one of these."
    )
    about = (wording.describe_loads(loads), heading)
    notes = [*_sentences(front), *wording.load_notes(loads), *given.notes]
    is_markdown = output == MARKDOWN
    lines = tables.page("Suggestions for", name, about, _rows(given, front), notes, markdown=is_markdown)
    for pick in filter(None, (_pick(front, percent) for percent in _ROOM)):
        if change := _change(given, pick.suggestion):
            text = command_line.to_yaml(change).splitlines()
            lines += ["", f"What {_described(pick.suggestion)} changes in the autoscaler:", ""]
            lines += ["```yaml", *text, "```"] if is_markdown else text
        break
    return visible.join(lines)


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
    is_percent = simulation.target_of(metrics[0]).average_utilization is not None
    return f"{suggestion.target} %" if is_percent else str(suggestion.target)


def _pick(front: Front, percent: int) -> Tried | None:
    """Return the point with the least shortage within so many pod seconds, None if the first has no more."""
    shortage, pods = front.first.mean("shortagePodSeconds"), front.first.mean("podSeconds")
    within = [point for point in front.points if _costs(point)[1] <= pods * percent / 100]
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
        needs = f"{shortage} of its shortage and {pods} of its pod seconds"
        sentences.append(f"with {room}: {_described(pick.suggestion)} has {needs}")
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
        spec["metrics"] = [hpa.to_plain(simulation.retargeted(metrics[0], suggestion.target))]
    if suggestion.behavior is not given.scenario.autoscaler.spec.behavior:
        spec["behavior"] = hpa.to_plain(suggestion.behavior)
    return {"spec": spec} if spec else {}


def _to_json(given: Inputs, front: Front) -> str:
    return command_line.to_json(
        {
            "load": wording.load_document(given.scenario.loads),
            "first": front.first.document(front.first),
            "tried": front.tried,
            "front": [
                {"mode": suggestion.policy.name, "spec": _change(given, suggestion).get("spec", {})}
                | figures.document(front.first)
                for suggestion, figures in front.points
            ],
        }
    )
