"""The figures of policies as text for a terminal, Markdown for a pull request, and JSON.

Shares are of what the load needs, and comparisons are with the first policy. Notes say what the figures do
not show by themselves: gaps, saturation, and time at maxReplicas.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapter.cli import command_line
from adapter.model import visible
from fastpath_forecast.simulate.load import Load
from fastpath_tools.loads.wording import describe_loads, load_document, load_notes
from fastpath_tools.simulate.results import ELASTICITY, BudgetVerdict, PolicyFigures, describe_verdicts
from fastpath_tools.simulate.running import Played, Rolled
from fastpath_tools.tables import duration, page, share


class SimulationReport(NamedTuple):
    """What is printed. `name` is the autoscaler's, `loads` are by metric, `setting` is a sentence.

    `baseline` is what the elastic speed-up compares with.
    """

    name: str
    loads: Mapping[str, Load]
    setting: str
    played: Sequence[Played]
    notes: Sequence[str]
    verdicts: Sequence[BudgetVerdict]
    baseline: PolicyFigures | None

    @property
    def outcomes(self) -> Sequence[PolicyFigures]:
        return [run.figures for run in self.played]

    @property
    def forecasts(self) -> Sequence[tuple[str, Rolled]]:
        """What forecasts did, with the name of the policy that had them."""
        return [(run.figures.policy, run.rolled) for run in self.played if run.rolled is not None]


# -- JSON ----------------------------------------------------------------------------------------------------


def to_json(report: SimulationReport) -> str:
    policies = [outcome.document(report.baseline) for outcome in report.outcomes]
    document: dict[str, object] = {"load": load_document(report.loads), "policies": policies}
    if report.forecasts:
        document["forecasts"] = [
            {
                "policy": policy,
                "verdicts": [verdict._asdict() for verdict in days.verdicts],
                "compared": days.compared,
            }
            for policy, days in report.forecasts
        ]
    return command_line.to_json(document)


# -- text and Markdown ---------------------------------------------------------------------------------------


def to_text(report: SimulationReport) -> str:
    notes = [*_notes(report), *map(_verdict, report.verdicts)]
    return visible.join(_page(report, notes, markdown=False))


def to_markdown(report: SimulationReport) -> str:
    lines = _page(report, _notes(report), markdown=True)
    if report.verdicts:
        lines += ["", *(f"- **{_verdict(verdict)}.**" for verdict in report.verdicts)]
    return visible.join(lines)


def _page(report: SimulationReport, notes: Sequence[str], *, markdown: bool) -> list[str]:
    about = (describe_loads(report.loads), report.setting)
    return page("Simulation of", report.name, about, _rows(report), notes, markdown=markdown)


def _rows(report: SimulationReport) -> list[list[str]]:
    first = report.outcomes[0]
    head = ["policy", "shortage", "of need", "vs first", "pod seconds", "of need", "vs first"]
    head += ["θU / θO", "TU / TO", "speed-up"]
    rows = [[*head, "short for", "changes", "most pods", "at max"]]
    for outcome in report.outcomes:
        need = outcome.mean("needPodSeconds")
        row = [outcome.policy]
        for name in ("shortagePodSeconds", "podSeconds"):
            value = outcome.mean(name)
            row += [f"{value:,.0f}", share(value, need), share(value, first.mean(name))]
        under, over, time_under, time_over = map(outcome.mean, ELASTICITY)
        row += [f"{under:.1f} / {over:.1f} %", f"{time_under:.1f} / {time_over:.1f} %"]
        speedup = None if report.baseline is None else outcome.speedup(report.baseline)
        row += ["-" if speedup is None else f"{speedup:.2f}"]
        row += [duration(outcome.mean("shortSeconds")), f"{outcome.mean('changes'):,.0f}"]
        rows.append([*row, f"{outcome.mean('maxReplicas'):.0f}", duration(outcome.mean("secondsAtMax"))])
    return rows


def _notes(report: SimulationReport) -> list[str]:
    notes = [*report.notes, *load_notes(report.loads)]
    notes += [f"{policy}: {describe_verdicts(days.verdicts)}" for policy, days in report.forecasts]
    notes += [f"{policy}: {days.compared}" for policy, days in report.forecasts if days.compared]
    outcomes = report.outcomes
    at_max = [(outcome.policy, outcome.mean("secondsAtMax")) for outcome in outcomes]
    if any(seconds for _, seconds in at_max):
        listed = ", ".join(f"{policy} for {duration(seconds)}" for policy, seconds in at_max if seconds)
        notes.append(f"at maxReplicas: {listed}; shortage then may be due to the limit, not to the reaction")
    backlogs = [(outcome.policy, outcome.mean("backlogMax")) for outcome in outcomes]
    if any(backlog for _, backlog in backlogs):
        listed = ", ".join(f"{backlog:,.6g} with {policy}" for policy, backlog in backlogs)
        notes.append(f"the most load that waits at once: {listed}")
    names = ("busySecondsEnded", "busySecondsEndedIdle")
    ended = [(outcome.policy, *map(outcome.mean, names)) for outcome in outcomes]
    if any(usual != idle for _, usual, idle in ended):
        listed = ", ".join(
            f"{usual:,.1f} with {policy}" + f" ({idle:,.1f} with scaleDown.prefer Idle)" * (usual != idle)
            for policy, usual, idle in ended
        )
        notes.append(f"busy seconds ended by scale-downs: {listed}")
    spreads = [(outcome.policy, *outcome.spread("shortagePodSeconds")) for outcome in outcomes]
    if any(least < most for _, least, most in spreads):
        listed = ", ".join(
            f"{least:,.0f} to {most:,.0f} with {policy}" for policy, least, most in spreads if least < most
        )
        notes.append(f"shortage differs between the phases: {listed}")
    return notes


def _verdict(verdict: BudgetVerdict) -> str:
    return f"{'Budget kept' if verdict.is_kept else 'Budget not kept'}: {verdict.sentence}"
