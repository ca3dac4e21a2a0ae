"""What was decided and why: a bounded memory of the decisions that changed something or were kept from it.

Values only; words are made when somebody reads. Law: bounded as a whole and for each autoscaler, and a decision that says the same as
the one before is not told again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapter.autoscaler.decide.conflicts import Change
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Reading
from adapter.autoscaler.decide.trace import Step
from adapter.autoscaler.interfaces import Key
from adapter.model.timestamps import SECOND, write_instant

PER_AUTOSCALER = 100
IN_ALL = 20_000

ROOM = 64 * 1024 * 1024
"""About how many bytes all entries may take: one has a value for each pod of each metric, so their number alone bounds nothing."""

_ENTRY_BYTES, _STEP_BYTES, _VALUE_BYTES = 2000, 1000, 400


class Input(NamedTuple):
    """A metric as a decision saw it: its description, the reading, the time of its oldest sample, and the nanoseconds that this speaks of.

    Both are None where nobody knows.
    """

    metric: str
    reading: Reading
    sampled: int | None
    span: int | None = None


class Entry(NamedTuple):
    """One decision. `outcome` is what became of its write: ``written``, ``failed``, ``none`` where there was none to make."""

    key: Key
    at: int
    current: int
    replicas: int
    outcome: str
    reason: str
    error: str
    pods: int
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    change: Change | None
    mark: tuple[object, ...]

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        read = (each.reading for each in self.inputs)
        values = sum(len(each.values) for each in read if isinstance(each, PodsReading | ExternalReading))
        return _ENTRY_BYTES + _STEP_BYTES * len(self.steps) + _VALUE_BYTES * values


class Journal:
    """The entries, newest last."""

    def __init__(self, per_autoscaler: int = PER_AUTOSCALER, in_all: int = IN_ALL, room: int = ROOM) -> None:
        self._per_autoscaler = per_autoscaler
        self._in_all = in_all
        self._room = room
        self._weight = 0
        self._all: dict[int, Entry] = {}
        """All that are kept, by identity, oldest first."""
        self._own: dict[Key, deque[Entry]] = {}
        self._marks: dict[Key, tuple[object, ...]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._own.values()))

    def tells(self, key: Key, mark: tuple[object, ...]) -> bool:
        """Tell whether a decision of that mark says anything that the last one of its autoscaler did not say."""
        return self._marks.get(key) != mark

    def note(self, entry: Entry) -> None:
        """Add an entry."""
        self._marks[entry.key] = entry.mark
        own = self._own.setdefault(entry.key, deque())
        own.append(entry)
        self._all[id(entry)] = entry
        self._weight += entry.weight
        if len(own) > self._per_autoscaler:
            self._drop(own.popleft())
        while self._all and (len(self._all) > self._in_all or self._weight > self._room):
            self._evict(self._drop(next(iter(self._all.values()))))

    def quiet(self, key: Key) -> None:
        """Note that a decision had nothing to tell: what comes after it is news again."""
        self._marks.pop(key, None)

    def forget(self, key: Key) -> None:
        """Forget an autoscaler that is gone."""
        for entry in self._own.pop(key, ()):
            self._drop(entry)
        self._marks.pop(key, None)

    def of(self, key: Key) -> Sequence[Entry]:
        """Return the entries of one autoscaler, oldest first."""
        return tuple(self._own.get(key, ()))

    def _drop(self, entry: Entry) -> Entry:
        self._weight -= entry.weight
        return self._all.pop(id(entry))

    def _evict(self, entry: Entry) -> None:
        own = self._own.get(entry.key)
        if own and own[0] is entry:
            own.popleft()
            if not own:
                del self._own[entry.key]
                self._marks.pop(entry.key, None)


def show(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON would have it, its steps in words."""
    shown: dict[str, Any] = {
        "time": moment(entry.at),
        "currentReplicas": entry.current,
        "desiredReplicas": entry.replicas,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "error": entry.error,
        "pods": entry.pods,
        "inputs": [show_input(each, entry.at) for each in entry.inputs],
        "trace": [step.words() for step in entry.steps],
        "events": [
            {"type": each.type, "reason": each.reason, "message": each.message} for each in entry.events
        ],
    }
    if entry.change is not None:
        by, count = entry.change.by, entry.change.replicas
        shown["changeSeen"] = {"replicas": count, "manager": by, "reversal": entry.change.reverses}
    return shown


def moment(instant: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds."""
    return write_instant(instant).replace("Z", f".{instant // 1_000_000 % 1000:03d}Z")


def show_input(given: Input, now: int) -> dict[str, Any]:
    """Return a metric as JSON would have it: its value and how old it is in seconds, null where that is not known."""
    age = None if given.sampled is None else round((now - given.sampled) / SECOND, 3)
    return {"metric": given.metric, **_value(given.reading), "ageSeconds": age}


def _value(reading: Reading) -> Mapping[str, Any]:
    if isinstance(reading, PodsReading):
        return {"values": dict(reading.values), "overdue": reading.overdue}
    if isinstance(reading, ObjectReading):
        return {"value": reading.value, "readyThen": reading.ready_then, "overdue": reading.overdue}
    if isinstance(reading, ExternalReading):
        return {"values": list(reading.values), "readyThen": reading.ready_then, "overdue": reading.overdue}
    return {"unavailable": reading.message}


def mark_of(made: Decision) -> tuple[object, ...]:
    """Return what tells one decision from another that says the same: everything but numbers that move by themselves."""
    conditions = tuple((each.type, each.status, each.reason) for each in made.status.conditions or ())
    return made.replicas, made.status.desired_replicas, conditions, bool(made.error)
