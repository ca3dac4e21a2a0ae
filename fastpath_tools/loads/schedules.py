"""`--schedule`: the schedules of the autoscaler."""

from collections.abc import Sequence

from adapter.errors import Fault, InputError
from adapter.model.schedules.documents import FastPathSchedule, ScheduleTarget
from adapter.model.schedules.windows import Schedule
from fastpath_tools import schedule_files


def read(files: Sequence[str], target: ScheduleTarget, namespace: str) -> list[Schedule]:
    """Return the schedules of files, all of which are for a target. InputError.

    `namespace` is that of the target, and of schedules that name none.
    """
    found = schedule_files.read_schedules(files, namespace)
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
