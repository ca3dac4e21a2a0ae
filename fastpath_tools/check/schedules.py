"""What `fastpath check` says about schedules that can be read: ceilings without effect, and conflicts.

A conflict are two windows that overlap, with the floor of one above the ceiling of the other: the floor wins.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import FastPathSchedule, ScheduleTarget
from adapter.bounds.schedule.windows import ActiveSpan, Schedule, SingleWindow, Window
from adapter.errors import Fault
from adapter.model import local_time
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from fastpath_tools.manifests import ManifestObject

_DAY = 86_400
_STEP = 31 * _DAY
"""For how many seconds the spans of two windows are compared at once."""

HORIZON = 366 * _DAY
"""How far ahead, in seconds, an overlap is looked for."""

_OFTEN = 2000
"""A window of more spans in a step overlaps within that step, or is left: a year of them takes seconds."""


class GivenSchedule(NamedTuple):
    """A schedule, and the object that it was read from."""

    document: FastPathSchedule
    origin: ManifestObject

    @property
    def name(self) -> str:
        return self.document.schedule.name.lstrip("/")

    @property
    def ceilings(self) -> list[tuple[int, Window]]:
        """The windows with a ceiling, by their indices."""
        numbered = enumerate(self.document.schedule.windows)
        return [(index, window) for index, window in numbered if window.max is not None]

    def fault(self, path: str, value: str, expected: str) -> Fault:
        """Return a fault at a path below the schedule; its sentence names the schedule."""
        return self.origin.located(Fault(path, value, f"{self.name}: {expected}"))


class Place(NamedTuple):
    """A window and where it stands: the numbers of its schedule and in its schedule."""

    schedule: int
    window: int


class Conflict(NamedTuple):
    """The window of the floor, that of the ceiling, and the first instant at which both are active."""

    floor: Place
    ceiling: Place
    at: int


def faults_of(given: Sequence[GivenSchedule]) -> Iterator[Fault]:
    """Yield schedules that are given twice, and ceilings that no target can have."""
    names: set[str] = set()
    for schedule in given:
        if schedule.name in names:
            name = schedule.document.metadata.name
            yield schedule.fault("metadata.name", name, "expected each schedule once")
        names.add(schedule.name)
        if all(target.kind == HPA_KIND for target in schedule.document.targets):
            for index, window in schedule.ceilings:
                sentence = (
                    f"a {HPA_KIND} gets no ceiling: expected minReplicas alone, or a FastPathAutoscaler"
                )
                yield schedule.fault(f"spec.windows[{index}].maxReplicas", str(window.max), sentence)


def warnings_of(given: Sequence[GivenSchedule], now: int) -> Iterator[Fault]:
    """Yield targets that get the floors alone, and windows whose floor is above the ceiling of another.

    `now` is in seconds since 1970; windows of the past are left out.
    """
    bounded: list[set[tuple[str, ScheduleTarget]]] = []
    for schedule in given:
        namespace, targets = schedule.document.metadata.namespace, schedule.document.targets
        bounded.append({(namespace, target) for target in targets if target.kind != HPA_KIND})
        if bounded[-1] and schedule.ceilings:
            for index, target in enumerate(targets):
                if target.kind == HPA_KIND:
                    sentence = "it gets the floors alone: a ceiling is only for a FastPathAutoscaler"
                    yield schedule.fault(f"spec.targets[{index}]", f"{target.kind} {target.name}", sentence)
    schedules = [schedule.document.schedule for schedule in given]
    for conflict in find(schedules, now, lambda one, other: bool(bounded[one] & bounded[other])):
        yield _conflict(given, conflict)


def _conflict(given: Sequence[GivenSchedule], conflict: Conflict) -> Fault:
    one, other = (given[place.schedule] for place in (conflict.floor, conflict.ceiling))
    floored = one.document.schedule.windows[conflict.floor.window]
    ceiled = other.document.schedule.windows[conflict.ceiling.window]
    name = ceiled.name if one is other else f"{ceiled.name} of {other.name}"
    zone = one.document.schedule.zone
    first = local_time.local_at(conflict.at, zone).isoformat()
    sentence = (
        f"the floor of {floored.name} is above the ceiling of {name}, {ceiled.max}; where both are "
        f"active, first at {first} {zone.key}, the floor holds"
    )
    return one.fault(f"spec.windows[{conflict.floor.window}].minReplicas", str(floored.min), sentence)


# -- conflicts -----------------------------------------------------------------------------------------------


def find(schedules: Sequence[Schedule], start: int, meet: Callable[[int, int], bool]) -> Iterator[Conflict]:
    """Yield each pair of windows with the floor of one above the ceiling of the other, from `start` on.

    `meet` tells whether an autoscaler gets the floors of one schedule and the ceilings of another, by their
    numbers. Windows that recur are followed for HORIZON seconds. A single one counts whenever it is.
    """
    placed = {
        Place(number, index): (window, schedule)
        for number, schedule in enumerate(schedules)
        for index, window in enumerate(schedule.windows)
    }

    @functools.cache  # the same steps are compared with those of other windows
    def spans(place: Place, begin: int) -> list[ActiveSpan]:
        return windows.spans_of(*placed[place], begin, begin + _STEP)

    for one, other in itertools.product(placed, repeat=2):
        floor, ceiling = placed[one][0].min, placed[other][0].max
        if floor is None or ceiling is None or floor <= ceiling or not meet(one.schedule, other.schedule):
            continue
        first, limit = _range(start, placed[one], placed[other])
        for begin in range(first, limit, _STEP):
            ones, others = spans(one, begin), spans(other, begin)
            at = _meet(ones, others, begin)
            if at is not None and at < limit:
                yield Conflict(one, other, at)
            if at is not None or max(len(ones), len(others)) > _OFTEN:
                break


def _range(start: int, *placed: tuple[Window, Schedule]) -> tuple[int, int]:
    """Return from when to when two windows can overlap; one that is single bounds it."""
    end = None
    for window, schedule in placed:
        if isinstance(window.times, SingleWindow):
            span = window.times.span(schedule.zone)
            start = max(start, span.begin)
            end = span.end if end is None else min(end, span.end)
    return start, start + HORIZON if end is None else min(end, start + HORIZON)


def _meet(ones: Sequence[ActiveSpan], others: Sequence[ActiveSpan], start: int) -> int | None:
    """Return the first instant from `start` on that is in a span of both; spans are in order."""
    first, second = iter(ones), iter(others)
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        begin, end = max(one.begin, other.begin, start), min(one.end, other.end)
        if begin < end:
            return begin
        if one.end <= other.end:
            one = next(first, None)
        else:
            other = next(second, None)
    return None
