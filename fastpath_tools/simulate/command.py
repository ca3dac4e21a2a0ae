"""`fastpath simulate`: what an autoscaler would have done with a load, and what another would have done.

`inputs` reads what the command line names, `simulation` runs each policy, and `report` prints the figures.
"""

from collections.abc import Sequence
from dataclasses import replace

from adapter.cli import command_line, verbs
from adapter.errors import Fault, InputError
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.policies import BOOST
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_tools import tables
from fastpath_tools.loads import wording
from fastpath_tools.simulate import inputs, picture, recorded_replay, report, results, running, suggest
from fastpath_tools.simulate.inputs import PolicyVariant
from fastpath_tools.simulate.options import COMMAND, JSON, MARKDOWN, SVG, SimulateOptions
from fastpath_tools.simulate.picture import Panel
from fastpath_tools.simulate.report import SimulationReport

OVER_BUDGET = 3
"""The exit status when a limit of --budget is not kept."""


@command_line.verb(COMMAND)
def main(options: SimulateOptions) -> int:
    """Simulate and print; 0 if it is done, OVER_BUDGET if a limit is not kept. InputError for bad input.

    With --replay 1 if a decision comes out differently.
    """
    if options.replay:
        return recorded_replay.run(options.replay, options.output)
    if options.forecast:
        verbs.require("numpy")
    given = inputs.read_inputs(options)
    if options.suggest:
        command_line.show(suggest.render(given, options.output))
        return 0
    limits = results.read_budget(options.budget) if options.budget else {}
    if limits and len(given.variants) < 2:
        raise InputError([Fault(results.FLAG, options.budget, "expected at least two policies to compare")])
    scenario = given.scenario
    played = running.run_all(scenario, given.variants, picture.COLUMNS if options.output == SVG else 0)
    figures = [run.figures for run in played]
    baseline = results.find_baseline(figures, options.baseline)
    verdicts = list(results.judge_budget(limits, figures[0], figures[-1]))
    name, setting = scenario.autoscaler.metadata.name, _setting(options, scenario)
    summary = SimulationReport(name, scenario.loads, setting, played, given.notes, verdicts, baseline)
    if options.output == SVG:
        command_line.show(_draw(summary, scenario, given.variants))
    else:
        render = {JSON: report.to_json, MARKDOWN: report.to_markdown}.get(options.output, report.to_text)
        command_line.show(render(summary))
    broken = [verdict for verdict in verdicts if not verdict.is_kept]
    for verdict in broken:
        command_line.tell("simulate", f"budget not kept: {verdict.sentence}")
    return OVER_BUDGET if broken else 0


def _draw(summary: SimulationReport, scenario: Scenario, variants: Sequence[PolicyVariant]) -> str:
    panels = []
    for variant, run in zip(variants, summary.played, strict=True):
        assert run.recording is not None
        need, shortage, pods = map(run.figures.mean, ("needPodSeconds", "shortagePodSeconds", "podSeconds"))
        caption = (
            f"shortage {tables.share(shortage, need)} of need, pods {tables.share(pods, need)} of need, "
            f"{run.figures.mean('changes'):,.0f} changes"
        )
        forecast = None if run.rolled is None else run.rolled.minimums
        schedule = simulation.build_schedule(replace(scenario, forecast=forecast), variant.policy)
        panels.append(
            Panel(
                run.figures.policy,
                caption,
                run.recording,
                run.changes,
                variant.policy.name == BOOST,
                schedule.stretches(scenario.epoch, wording.seconds_of(scenario.loads)),
                has_forecast=run.rolled is not None,
            )
        )
    subtitles = (wording.describe_loads(summary.loads), summary.setting)
    saturated = [span for load in summary.loads.values() for span in load.saturated]
    return picture.draw(f"What {summary.name} would have done", subtitles, panels, saturated)


def _setting(options: SimulateOptions, scenario: Scenario) -> str:
    """Return what all policies have in common as a sentence."""
    starts = sorted(scenario.start_ups)
    ready = " to ".join(map(tables.duration, dict.fromkeys((starts[0], starts[-1]))))
    if options.phases == 1:
        phases = "the figures are those of one phase"
    else:
        drawn = ", the lines are the first" if options.output == SVG else ""
        phases = f"the figures are means of {options.phases} phases{drawn}"
    return f"Pods are ready {ready} after a written count; {phases}."
