"""What `fastpath check` says about schedules that can be read: ceilings without effect, and conflicts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.bounds.schedule.documents import FastPathSchedule, ScheduleTarget
from adapter.bounds.schedule.windows import Window
from adapter.errors import Fault
from adapter.model import local_time
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from fastpath_tools.check import schedule_conflicts as conflicts
from fastpath_tools.check.schedule_conflicts import Conflict
from fastpath_tools.manifests import ManifestObject


class GivenSchedule(NamedTuple):
    """A schedule, and the object that it was read from."""

    found: FastPathSchedule
    origin: ManifestObject

    @property
    def name(self) -> str:
        return self.found.schedule.name.lstrip("/")

    def fault(self, path: str, value: str, expected: str) -> Fault:
        """Return a fault at a path below the schedule; its sentence names the schedule."""
        return self.origin.located(Fault(path, value, f"{self.name}: {expected}"))


def faults_of(given: Sequence[GivenSchedule]) -> Iterator[Fault]:
    """Yield schedules that are given twice, and ceilings that no target can have."""
    names: set[str] = set()
    for each in given:
        if each.name in names:
            yield each.fault("metadata.name", each.found.metadata.name, "expected each schedule once")
        names.add(each.name)
        if all(target.kind == HPA_KIND for target in each.found.targets):
            for index, window in _ceilings(each):
                sentence = (
                    f"a {HPA_KIND} gets no ceiling: expected minReplicas alone, or a FastPathAutoscaler"
                )
                yield each.fault(f"spec.windows[{index}].maxReplicas", str(window.max), sentence)


def warnings_of(given: Sequence[GivenSchedule], now: int) -> Iterator[Fault]:
    """Yield targets that get the floors alone, and windows whose floor is above the ceiling of another.

    `now` is in seconds since 1970; windows of the past are left out.
    """
    for each in given:
        kinds = {target.kind for target in each.found.targets}
        if HPA_KIND in kinds and len(kinds) > 1 and any(_ceilings(each)):
            for index, target in enumerate(each.found.targets):
                if target.kind == HPA_KIND:
                    sentence = "it gets the floors alone: a ceiling is only for a FastPathAutoscaler"
                    yield each.fault(f"spec.targets[{index}]", f"{target.kind} {target.name}", sentence)
    schedules = [each.found.schedule for each in given]
    bounded = [_with_ceilings(each) for each in given]
    for conflict in conflicts.find(schedules, now, lambda one, other: bool(bounded[one] & bounded[other])):
        yield _conflict(given, conflict)


def _ceilings(given: GivenSchedule) -> Iterator[tuple[int, Window]]:
    for index, window in enumerate(given.found.schedule.windows):
        if window.max is not None:
            yield index, window


def _with_ceilings(given: GivenSchedule) -> set[tuple[str, ScheduleTarget]]:
    """Return the targets that get ceilings, with their namespace."""
    namespace = given.found.metadata.namespace
    return {(namespace, target) for target in given.found.targets if target.kind != HPA_KIND}


def _conflict(given: Sequence[GivenSchedule], conflict: Conflict) -> Fault:
    one, other = (given[place.schedule] for place in (conflict.floor, conflict.ceiling))
    floored = one.found.schedule.windows[conflict.floor.window]
    ceiled = other.found.schedule.windows[conflict.ceiling.window]
    name = ceiled.name if one is other else f"{ceiled.name} of {other.name}"
    zone = one.found.schedule.zone
    first = local_time.local_at(conflict.at, zone).isoformat()
    sentence = (
        f"the floor of {floored.name} is above the ceiling of {name}, {ceiled.max}; where both are "
        f"active, first at {first} {zone.key}, the floor holds"
    )
    return one.fault(f"spec.windows[{conflict.floor.window}].minReplicas", str(floored.min), sentence)
