"""What a pod says about its start: whether it has been Ready yet, what it waits for, how long it took.

A record of a pod keeps one small integer for this, a sum of the flags below; 0 is a pod that has been Ready.
Its times are read from the object that shows it Ready, so no time is kept while it starts.

**The first Ready.** A readiness probe that fails later takes the condition Ready away, and the next Ready is
not a start. The kubelet writes Ready=False when it first sees a pod, and does not change the time of that
until Ready is True. Ready can be True only after Initialized is. So if Ready has been False since before, or
just when, the condition Initialized became True, the pod has never been Ready.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.memo import remember_short
from adapter.model.objects.api_objects import Struct
from adapter.model.ready_times import Outcome, PodStart, PodTimes, measure
from adapter.model.timestamps import read_nanoseconds

STARTING = 1
"""It has never been Ready."""
UNSCHEDULABLE = 2
"""The scheduler has reported that no node fits."""
PULL_FAILED = 4
"""An image could not be pulled."""
NO_NODE = 8
"""It waits for a node now."""
PULLING = 16
"""It waits now, because an image could not be pulled."""
CRASHING = 32
"""A container has ended, and is started again."""

_PULL_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)


class WireCondition(Struct, frozen=True):
    """A condition of a pod as it is decoded."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class _WireRunning(Struct, frozen=True):
    started_at: str | None = None


class _WireWaiting(Struct, frozen=True):
    reason: str | None = None


class _WireState(Struct, frozen=True):
    running: _WireRunning | None = None
    waiting: _WireWaiting | None = None


class _WireContainerStatus(Struct, frozen=True):
    state: _WireState | None = None
    restart_count: int = 0


_STATUSES = msgspec.json.Decoder(tuple[_WireContainerStatus, ...] | None)

NO_STATUSES = msgspec.Raw(b"null")


class StartingPods(NamedTuple):
    """How many pods of a selection have never been Ready, and what of them waits for what."""

    pods: int = 0
    no_node: int = 0
    pulling: int = 0
    crashing: int = 0


def count_starting(flags: Iterable[int]) -> StartingPods:
    """Count pods by their flags; a pod may wait for several things, and count in each."""
    starting = [pod for pod in flags if pod & STARTING]
    return StartingPods(
        len(starting), *(sum(bool(pod & flag) for pod in starting) for flag in (NO_NODE, PULLING, CRASHING))
    )


def read_time(text: str | None) -> int | None:
    """Parse a time of the API; None for one that is invalid."""
    return _parse(text) if text else None


@remember_short(1024)
def _parse(text: str) -> int | None:
    """Remembered, because many times of a pod, and of pods that start together, are the same."""
    try:
        return read_nanoseconds(text)
    except ValueError:
        return None


def _read_statuses(written: msgspec.Raw) -> tuple[_WireContainerStatus, ...]:
    """Parse container statuses; none if they are invalid."""
    try:
        return _STATUSES.decode(written) or ()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def _by_type(conditions: Sequence[WireCondition] | None) -> Mapping[str, WireCondition]:
    """Return conditions by type; of two with one type the first counts."""
    return {condition.type: condition for condition in reversed(conditions or ())}


def compute_flags(
    conditions: Sequence[WireCondition] | None,
    containers: msgspec.Raw,
    init_containers: msgspec.Raw,
    before: int | None,
) -> int:
    """Return the flags of a pod that is not Ready; `before` are those of its record, None without one."""
    by_type = _by_type(conditions)
    if before == 0 or not _is_first(by_type):
        return 0
    flags = STARTING | ((before or 0) & (UNSCHEDULABLE | PULL_FAILED))
    scheduled = by_type.get("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        flags |= NO_NODE
        if scheduled.reason == "Unschedulable":
            flags |= UNSCHEDULABLE
    main = _read_statuses(containers)
    reasons = {
        status.state.waiting.reason
        for status in (*main, *_read_statuses(init_containers))
        if status.state is not None and status.state.waiting is not None
    }
    if reasons & _PULL_REASONS:
        flags |= PULLING | PULL_FAILED
    if "CrashLoopBackOff" in reasons or any(status.restart_count > 0 for status in main):
        flags |= CRASHING
    return flags


def _is_first(conditions: Mapping[str, WireCondition]) -> bool:
    """Tell whether a pod that is not Ready has never been Ready; assume so if its conditions do not tell."""
    ready, initialized = conditions.get("Ready"), conditions.get("Initialized")
    if ready is None or initialized is None or initialized.status != "True":
        return True
    since, from_then = read_time(ready.last_transition_time), read_time(initialized.last_transition_time)
    return since is None or from_then is None or since <= from_then


def measure_pod(
    created: str | None, conditions: Sequence[WireCondition] | None, containers: msgspec.Raw, flags: int
) -> PodStart | Outcome:
    """Return the start of a pod that is Ready for the first time, or why it is only counted."""
    by_type = _by_type(conditions)
    statuses = _read_statuses(containers)
    times = PodTimes(
        read_time(created),
        _true_since(by_type.get("PodScheduled")),
        _true_since(by_type.get("Initialized")),
        _last_started(statuses),
        _true_since(by_type.get("Ready")),
        sum(max(0, status.restart_count) for status in statuses),
        bool(flags & UNSCHEDULABLE),
        bool(flags & PULL_FAILED),
    )
    return measure(times)


def _true_since(condition: WireCondition | None) -> int | None:
    if condition is None or condition.status != "True":
        return None
    return read_time(condition.last_transition_time)


def _last_started(statuses: Sequence[_WireContainerStatus]) -> int | None:
    """Return when the last container was started; None if that is not known of each of them."""
    started: list[int] = []
    for status in statuses:
        at = None
        if status.state is not None and status.state.running is not None:
            at = read_time(status.state.running.started_at)
        if at is None:
            return None
        started.append(at)
    return max(started, default=None)
