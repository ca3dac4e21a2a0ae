"""The status of a FastPathSchedule: what is active, what comes next, and what keeps it from acting.

Everything here is pure: `describe` makes a status from the schedule, the time, and what is known of each
target.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import BY_START, FastPathSchedule, ScheduleTarget
from adapter.bounds.schedule.windows import Boundary, Level, Schedule
from adapter.bounds.timeline import SpansOfDay
from adapter.errors import Fault
from adapter.model import timestamps
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from adapter.model.timestamps import SECOND

APPLIED = "Applied"

ACTIVE_REASON = "Applied"
TARGET_NOT_FOUND = "TargetNotFound"
NOT_BOOSTED = "NotBoosted"
INVALID_TARGET = "InvalidTarget"
PAUSED = "Paused"

_DAY = 86_400
_SEARCHED = (31, 366)
"""How many days ahead the next boundary is looked for if none is within a day."""

_SWEPT = 600
"""Seconds for which the pairs of windows in conflict are kept: to find them takes longest."""

_MOST_SEARCHED = 20_000
"""The most begins of windows among which the next boundary is looked for."""

_MOST_SHOWN = 10


class TargetState(NamedTuple):
    """What is known of a target: why bounds do not reach it, "" if they do, and the longest lead in seconds.

    `lead` is None if no start of a pod was seen, or if another process decides the target.
    """

    reason: str = ""
    message: str = ""
    lead: int | None = None


class TargetStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: str
    name: str
    applied: bool
    reason: str
    message: str = ""
    lead_seconds: int | None = None


class NextBoundary(msgspec.Struct, frozen=True):
    time: str
    window: str
    edge: str


class ScheduleCondition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int


class ScheduleStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status as it is stored. Times are RFC 3339 in UTC."""

    observed_generation: int = 0
    active: str = ""
    windows: tuple[str, ...] = ()
    min_replicas: int | None = None
    max_replicas: int | None = None
    next_boundary: NextBoundary | None = None
    conflicts: tuple[str, ...] = ()
    targets: tuple[TargetStatus, ...] = ()
    conditions: tuple[ScheduleCondition, ...] = ()


class Outlook(NamedTuple):
    """What the windows alone tell from `since` until `until`, in seconds since 1970: until a boundary."""

    since: int
    until: int
    level: Level | None
    following: Boundary | None
    conflicts: tuple[str, ...]


class Lookout:
    """Looks at the windows of a schedule, in steps of some milliseconds."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._spans = SpansOfDay(schedule)
        self._conflicts: tuple[str, ...] = ()
        self._swept: int | None = None

    def look(self, now: int) -> Generator[None, None, Outlook]:
        """Return the bounds, the next boundary within a year, and the pairs in conflict within a day."""
        spans = self._spans
        if not spans.covers(now):
            yield from spans.renew(now)
        following = spans.next_boundary(now)
        if following is None:
            yield from spans.renew(now)
            following = spans.next_boundary(now) or (yield from _search(self._schedule, now))
        if self._swept is None or not 0 <= now - self._swept < _SWEPT:
            self._conflicts = yield from _find_conflicts(self._schedule, now)
            self._swept = now
        active = spans.active(now)
        level = windows.level_of(now, now + 1, active) if active else None
        until = now + _DAY if following is None else min(following.at, now + _DAY)
        return Outlook(now, until, level, following, self._conflicts)


def _search(schedule: Schedule, now: int) -> Generator[None, None, Boundary | None]:
    """Return the next boundary; it is not far ahead where windows begin often."""
    often = windows.spans_a_day(schedule)
    searched = max((days for days in _SEARCHED if often * days <= _MOST_SEARCHED), default=0)
    step, end = 7 * _DAY, now + searched * _DAY
    for start in range(now + 1, end, step):
        first = []
        for window in schedule.windows:
            first += windows.boundaries_of(window, schedule, start, min(start + step, end))[:1]
            yield
        if first:
            return min(first)
    return None


def _find_conflicts(schedule: Schedule, now: int) -> Generator[None, None, tuple[str, ...]]:
    minimums = [window.min for window in schedule.windows if window.min is not None]
    maximums = [window.max for window in schedule.windows if window.max is not None]
    if max(minimums, default=0) <= min(maximums, default=math.inf):
        return ()
    pairs = set()
    for level in windows.levels_in_steps(schedule, now, now + _DAY):
        if level is not None and level.conflict:
            pairs.add(level.conflict)
        yield
    conflicts = [f"{floor} has a floor above the ceiling of {ceiling}" for floor, ceiling in sorted(pairs)]
    return tuple(conflicts[:_MOST_SHOWN])


def describe(
    schedule: FastPathSchedule,
    generation: int,
    targets: Mapping[ScheduleTarget, TargetState],
    outlook: Outlook,
    before: ScheduleStatus,
    now: int,
) -> ScheduleStatus:
    """Return the status of a valid schedule at `now`, in seconds; `before` is the one that is stored."""
    level = outlook.level
    listed = tuple(
        _target_status(target, targets[target], level, by_start=schedule.ready == BY_START)
        for target in schedule.targets
    )
    active = () if level is None else level.windows
    following = outlook.following
    return ScheduleStatus(
        generation,
        ", ".join(active),
        active,
        None if level is None else level.min,
        None if level is None else level.max,
        None if following is None else NextBoundary(_instant(following.at), following.window, following.edge),
        outlook.conflicts,
        listed,
        (_condition(generation, *_verdict(listed), before, now),),
    )


def describe_invalid(
    faults: Sequence[Fault], generation: int, before: ScheduleStatus, now: int
) -> ScheduleStatus:
    """Return the status of a schedule that cannot be used: that of before, with the reason."""
    message = "; ".join(map(str, faults[:_MOST_SHOWN]))
    condition = _condition(generation, "False", "Invalid", message, before, now)
    return msgspec.structs.replace(before, observed_generation=generation, conditions=(condition,))


def decode(text: bytes) -> ScheduleStatus:
    """Return a stored status; one that cannot be read counts as none."""
    try:
        return msgspec.json.decode(text, type=ScheduleStatus) if text else ScheduleStatus()
    except msgspec.MsgspecError:
        return ScheduleStatus()


def _target_status(
    target: ScheduleTarget, state: TargetState, level: Level | None, *, by_start: bool
) -> TargetStatus:
    if state.reason:
        return TargetStatus(target.kind, target.name, False, state.reason, state.message)
    notes = []
    if target.kind == HPA_KIND and level is not None and level.max is not None:
        notes.append("a ceiling is not for a HorizontalPodAutoscaler: it gets the floor alone")
    if by_start and state.lead is None:
        notes.append("no start-up time is known yet: floors begin at the start of their window")
    lead = state.lead if by_start else None
    return TargetStatus(target.kind, target.name, True, ACTIVE_REASON, "; ".join(notes), lead)


def _verdict(targets: Sequence[TargetStatus]) -> tuple[str, str, str]:
    """Return status, reason and message of the condition."""
    failing = [target for target in targets if not target.applied]
    if not failing:
        reached = "the target" if len(targets) == 1 else f"all {len(targets)} targets"
        return "True", ACTIVE_REASON, f"the bounds reach {reached}"
    shown = "; ".join(f"{target.kind}/{target.name}: {target.message}" for target in failing[:_MOST_SHOWN])
    return "False", failing[0].reason, shown


def _condition(
    generation: int, status: str, reason: str, message: str, before: ScheduleStatus, now: int
) -> ScheduleCondition:
    since = _instant(now)
    for former in before.conditions:
        if former.type == APPLIED and former.status == status:
            since = former.last_transition_time
    return ScheduleCondition(APPLIED, status, reason, message, since, generation)


def _instant(seconds: int) -> str:
    return timestamps.write_instant(seconds * SECOND)
