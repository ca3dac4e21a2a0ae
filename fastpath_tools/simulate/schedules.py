"""`--schedule`: the schedules of the simulated autoscaler, and what the report says about them."""

from collections.abc import Collection, Iterator, Sequence

from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.schedules import windows
from adapter.model.schedules.bounds import MOST_LEAD
from adapter.model.schedules.documents import FastPathSchedule, ScheduleTarget
from adapter.model.schedules.windows import Schedule
from adapter.model.timestamps import SECOND
from adapter.simulate import simulation
from adapter.simulate.policies import BOOST, FIXED, NATIVE
from adapter.simulate.simulation import Scenario
from fastpath_tools.schedule import command as schedule_command
from fastpath_tools.simulate import report


def read(files: Sequence[str], target: ScheduleTarget, namespace: str) -> list[Schedule]:
    """Return the schedules of files, all of which are for a target. InputError.

    `namespace` is that of the target, and of schedules that name none.
    """
    found = schedule_command.read_schedules(files, namespace)
    expected = f"expected the target {target.kind} {namespace}/{target.name}, which is simulated"
    wrong = [
        Fault("--schedule", each.schedule.name, f"{expected}; it has {_targets(each)}")
        for each in found
        if target not in each.targets or each.metadata.namespace != namespace
    ]
    if wrong:
        raise InputError(wrong)
    return [each.schedule for each in found]


def _targets(schedule: FastPathSchedule) -> str:
    namespace = schedule.metadata.namespace
    return ", ".join(f"{each.kind} {namespace}/{each.name}" for each in schedule.targets)


def notes(scenario: Scenario, policies: Collection[str]) -> Iterator[str]:
    """Yield what the figures do not show; each is a sentence without the final stop.

    `policies` are the names of those that are simulated.
    """
    if not scenario.schedules:
        return
    start = scenario.epoch // SECOND
    yield f"the load begins at {timestamps.write_instant(scenario.epoch)}"
    for schedule in scenario.schedules:
        yield from _notes(schedule, scenario, start, start + report.seconds_of(scenario.loads))
    without = [name for name in (NATIVE, FIXED) if name in policies]
    if without:
        why = ": an HPA follows one only with boost" if NATIVE in without else ""
        yield f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no schedule{why}"
    bounds = [window.ceiling for schedule in scenario.schedules for window in schedule.windows]
    if BOOST in policies and any(ceiling is not None for ceiling in bounds):
        yield f"{BOOST} has the floors of schedules and not the ceilings: boost never lowers a count"


def _notes(schedule: Schedule, scenario: Scenario, start: int, end: int) -> Iterator[str]:
    levels = windows.levels(schedule, start, end)
    if not levels:
        yield f"schedule {schedule.name}: no window is active in the time of the load"
        return
    if schedule.by_start:
        lead = min(simulation.learned_start_up(scenario.start_ups), MOST_LEAD)
        yield f"schedule {schedule.name}: floors begin {report.duration(lead)} before their windows"
    floor, highest = max(level.floor or 0 for level in levels), scenario.autoscaler.spec.max_replicas
    if floor > highest:
        yield f"schedule {schedule.name}: a floor of {floor} is above maxReplicas: it counts as {highest}"
