"""What the report of a simulation says about schedules."""

from collections.abc import Collection, Iterator

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import Schedule
from adapter.bounds.timeline import MOST_LEAD
from adapter.model import timestamps
from adapter.model.timestamps import SECOND
from adapter.simulate import simulation
from adapter.simulate.policies import BOOST, FIXED, NATIVE
from adapter.simulate.simulation import Scenario
from fastpath_tools import tables
from fastpath_tools.loads import wording


def notes(scenario: Scenario, policies: Collection[str]) -> Iterator[str]:
    """Yield what the figures do not show; each is a sentence without the final stop.

    `policies` are the names of those that are simulated.
    """
    if not scenario.schedules:
        return
    start = scenario.epoch // SECOND
    yield f"the load begins at {timestamps.write_instant(scenario.epoch)}"
    for schedule in scenario.schedules:
        yield from _notes(schedule, scenario, start, start + wording.seconds_of(scenario.loads))
    without = [name for name in (NATIVE, FIXED) if name in policies]
    if without:
        why = ": an HPA follows one only with boost" if NATIVE in without else ""
        yield f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no schedule{why}"
    bounds = [window.max for schedule in scenario.schedules for window in schedule.windows]
    if BOOST in policies and any(bound is not None for bound in bounds):
        yield f"{BOOST} has the floors of schedules and not the ceilings: boost never lowers a count"


def _notes(schedule: Schedule, scenario: Scenario, start: int, end: int) -> Iterator[str]:
    levels = windows.levels(schedule, start, end)
    if not levels:
        yield f"schedule {schedule.name}: no window is active in the time of the load"
        return
    if schedule.by_start:
        lead = min(simulation.learned_start_up(scenario.start_ups), MOST_LEAD)
        yield f"schedule {schedule.name}: floors begin {tables.duration(lead)} before their windows"
    least, highest = max(level.min or 0 for level in levels), scenario.autoscaler.spec.max_replicas
    if least > highest:
        yield f"schedule {schedule.name}: a floor of {least} is above maxReplicas: it counts as {highest}"
