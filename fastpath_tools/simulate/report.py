"""The figures of policies as text for a terminal, Markdown for a pull request, and JSON.

Shares are of what the load needs, and comparisons are with the first policy. Notes say what the figures do
not show by themselves: gaps, saturation, and time at maxReplicas.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from adapter.cli import command_line
from adapter.model import timestamps, visible
from adapter.simulate.load import Load
from fastpath_tools.simulate import daily
from fastpath_tools.simulate.budget import Verdict
from fastpath_tools.simulate.daily import RolledVerdict
from fastpath_tools.simulate.results import PolicyFigures


class SimulationReport(NamedTuple):
    """What is printed. `name` is the autoscaler's, `loads` are by metric, `setting` is a sentence."""

    name: str
    loads: Mapping[str, Load]
    setting: str
    outcomes: Sequence[PolicyFigures]
    notes: Sequence[str] = ()
    verdicts: Sequence[Verdict] = ()
    forecasts: Mapping[str, Sequence[RolledVerdict]] = {}
    """What was found of forecasts each day, by the name of the policy with them."""


# -- JSON ----------------------------------------------------------------------------------------------------


def to_json(report: SimulationReport) -> str:
    """Return the figures as JSON."""
    policies = [outcome.document() for outcome in report.outcomes]
    document: dict[str, object] = {"load": load_document(report.loads), "policies": policies}
    if report.forecasts:
        document["forecasts"] = [
            {"policy": policy, "verdicts": [each.document() for each in verdicts]}
            for policy, verdicts in report.forecasts.items()
        ]
    return command_line.to_json(document)


def load_document(loads: Mapping[str, Load]) -> dict[str, object]:
    """Return what a load is; seconds in gaps and under saturation only where there are any."""
    document: dict[str, object] = {"seconds": seconds_of(loads)}
    if len(loads) == 1:
        document |= _extent(next(iter(loads.values())))
    else:
        document["metrics"] = {name: _extent(load) for name, load in loads.items()}
    gaps, saturated = gap_seconds(loads), saturated_seconds(loads)
    return (
        document
        | ({"gapSeconds": gaps} if gaps else {})
        | ({"saturatedSeconds": saturated} if saturated else {})
    )


def _extent(load: Load) -> dict[str, float | None]:
    values = {"mean": round(load.mean, 6), "max": round(load.highest, 6)}
    return {name: None if math.isnan(value) else float(value) for name, value in values.items()}


def seconds_of(loads: Mapping[str, Load]) -> int:
    """Return the seconds that are simulated: those of the shortest load."""
    return min(load.seconds for load in loads.values())


def gap_seconds(loads: Mapping[str, Load]) -> int:
    """Return the seconds of the largest gaps of a load."""
    return max(load.seconds - load.known_seconds for load in loads.values())


def saturated_seconds(loads: Mapping[str, Load]) -> int:
    return max(sum(span.end - span.start for span in load.saturated) for load in loads.values())


# -- text and Markdown ---------------------------------------------------------------------------------------


def to_text(report: SimulationReport) -> str:
    """Return the figures as a table for a terminal."""
    lines = [f"{report.name}: {describe_loads(report.loads)}", report.setting, ""]
    lines += text_table(_rows(report))
    if notes := [*_notes(report), *(_verdict(verdict) for verdict in report.verdicts)]:
        lines += ["", *notes]
    return visible.join(lines)


def to_markdown(report: SimulationReport) -> str:
    """Return the figures as a section for a pull request."""
    lines = [f"### Simulation of `{report.name}`", "", f"{describe_loads(report.loads)}."]
    lines += [report.setting, "", *markdown_table(_rows(report))]
    if notes := _notes(report):
        lines += ["", *(f"- {note}." for note in notes)]
    if report.verdicts:
        lines += ["", *(f"- **{_verdict(verdict)}.**" for verdict in report.verdicts)]
    return visible.join(lines)


def describe_loads(loads: Mapping[str, Load]) -> str:
    """Return how long the loads are, and the mean and the highest value of each."""
    values = "; ".join(
        f"{name} with a mean of {load.mean:.6g} and at most {load.highest:.6g}"
        for name, load in loads.items()
    )
    return f"{duration(seconds_of(loads))} of {values}"


def _rows(report: SimulationReport) -> list[list[str]]:
    first = report.outcomes[0]
    head = ["policy", "shortage", "of need", "vs first", "pod seconds", "of need", "vs first"]
    rows = [[*head, "short for", "changes", "most pods", "at max"]]
    for outcome in report.outcomes:
        need = outcome.mean("needPodSeconds")
        row = [outcome.policy]
        for name in ("shortagePodSeconds", "podSeconds"):
            value = outcome.mean(name)
            row += [f"{value:,.0f}", share(value, need), share(value, first.mean(name))]
        row += [duration(outcome.mean("shortSeconds")), f"{outcome.mean('changes'):,.0f}"]
        rows.append([*row, f"{outcome.mean('maxReplicas'):.0f}", duration(outcome.mean("secondsAtMax"))])
    return rows


def _notes(report: SimulationReport) -> list[str]:
    notes = [*report.notes, *load_notes(report.loads)]
    notes += [f"{policy}: {daily.describe(verdicts)}" for policy, verdicts in report.forecasts.items()]
    outcomes = report.outcomes
    at_max = [(each.policy, each.mean("secondsAtMax")) for each in outcomes]
    if any(seconds for _, seconds in at_max):
        listed = ", ".join(f"{policy} for {duration(seconds)}" for policy, seconds in at_max if seconds)
        notes.append(f"at maxReplicas: {listed}; shortage then may be due to the limit, not to the reaction")
    backlogs = [(each.policy, each.mean("backlogMax")) for each in outcomes]
    if any(backlog for _, backlog in backlogs):
        listed = ", ".join(f"{backlog:,.6g} with {policy}" for policy, backlog in backlogs)
        notes.append(f"the most load that waits at once: {listed}")
    spreads = [(each.policy, *each.spread("shortagePodSeconds")) for each in outcomes]
    if any(least < most for _, least, most in spreads):
        listed = ", ".join(
            f"{least:,.0f} to {most:,.0f} with {policy}" for policy, least, most in spreads if least < most
        )
        notes.append(f"shortage differs between the phases: {listed}")
    return notes


def load_notes(loads: Mapping[str, Load]) -> list[str]:
    """Return what the loads leave open: gaps, saturation, and different lengths."""
    seconds, notes = seconds_of(loads), []
    if gaps := gap_seconds(loads):
        notes.append(
            f"{duration(gaps)} of the load ({share(gaps, seconds)}) are gaps without a sample: there the "
            "autoscalers see no value, and only pod seconds are counted"
        )
    if saturated := saturated_seconds(loads):
        notes.append(
            f"in {duration(saturated)} ({share(saturated, seconds)}) all pods were saturated when the load "
            "was recorded: the demand may have been higher, and so may the shortage"
        )
    if len({load.seconds for load in loads.values()}) > 1:
        notes.append(f"the loads differ in length: the first {duration(seconds)} of each are simulated")
    return notes


def _verdict(verdict: Verdict) -> str:
    return f"{'Budget kept' if verdict.is_kept else 'Budget not kept'}: {verdict.sentence}"


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as kubectl prints them: names to the left, numbers to the right, the head in capitals."""
    head, *below = rows
    shown = [[cell.upper() for cell in head], *below]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["   ".join(_aligned(row, widths)).rstrip() for row in shown]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if place else cell.ljust(width)


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as a table in Markdown, the numbers to the right."""
    head, *below = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    ruler = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(row)} |" for row in (head, ruler, *below)]


def share(part: float, whole: float) -> str:
    """Return a part of a whole in per cent, "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def duration(seconds: float) -> str:
    """Return seconds as a duration such as ``1h30m0s``, in days from two days on."""
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.4g}d"
    return timestamps.format_go_duration(round(seconds))
