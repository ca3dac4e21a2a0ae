"""The journal: the last decisions of each autoscaler that changed something or were kept from it.

It is bounded per autoscaler and as a whole, by number and by bytes. Entries are values; they become text only
when they are shown. A decision that repeats the last one is not entered.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapter.autoscaler.decide.conflicts import ForeignChange
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Reading
from adapter.autoscaler.decide.trace import Step
from adapter.autoscaler.interfaces import Key
from adapter.model.timestamps import SECOND, write_instant

PER_AUTOSCALER = 100
IN_ALL = 20_000

ROOM = 64 * 1024 * 1024
"""The bytes of all entries, estimated. An entry has a value for each pod and metric, so a number alone is no
bound."""

_ENTRY_BYTES, _STEP_BYTES, _VALUE_BYTES = 2000, 1000, 400


class MetricInput(NamedTuple):
    """A metric as a decision saw it: description, reading, and the time and span of its oldest sample.

    Both are nanoseconds, None if unknown.
    """

    metric: str
    reading: Reading
    sampled: int | None
    span: int | None = None


class JournalEntry(NamedTuple):
    """One decision. `outcome` is that of its write: ``written``, ``failed``, or ``none`` without a write."""

    key: Key
    at: int
    current: int
    replicas: int
    outcome: str
    reason: str
    error: str
    pods: int
    inputs: tuple[MetricInput, ...]
    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    change: ForeignChange | None
    mark: tuple[object, ...]

    @property
    def weight(self) -> int:
        """Its estimated size in bytes."""
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
        self._all: dict[int, JournalEntry] = {}
        """All entries by identity, oldest first."""
        self._own: dict[Key, deque[JournalEntry]] = {}
        self._marks: dict[Key, tuple[object, ...]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._own.values()))

    def is_news(self, key: Key, mark: tuple[object, ...]) -> bool:
        """Tell whether a decision of that mark differs from the last one of its autoscaler."""
        return self._marks.get(key) != mark

    def note(self, entry: JournalEntry) -> None:
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
        """Note an uneventful decision: the next eventful one is news again."""
        self._marks.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop the entries of an autoscaler."""
        for entry in self._own.pop(key, ()):
            self._drop(entry)
        self._marks.pop(key, None)

    def of(self, key: Key) -> Sequence[JournalEntry]:
        """Return the entries of one autoscaler, oldest first."""
        return tuple(self._own.get(key, ()))

    def _drop(self, entry: JournalEntry) -> JournalEntry:
        self._weight -= entry.weight
        return self._all.pop(id(entry))

    def _evict(self, entry: JournalEntry) -> None:
        own = self._own.get(entry.key)
        if own and own[0] is entry:
            own.popleft()
            if not own:
                del self._own[entry.key]
                self._marks.pop(entry.key, None)


def show(entry: JournalEntry) -> dict[str, Any]:
    """Return an entry as JSON, its steps as text."""
    shown: dict[str, Any] = {
        "time": moment(entry.at),
        "currentReplicas": entry.current,
        "desiredReplicas": entry.replicas,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "error": entry.error,
        "pods": entry.pods,
        "inputs": [show_input(each, entry.at) for each in entry.inputs],
        "trace": [step.text() for step in entry.steps],
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


def show_input(given: MetricInput, now: int) -> dict[str, Any]:
    """Return a metric as JSON: its value, and its age in seconds, null if unknown."""
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
    """Return what must change for a decision to be news: all but the values of metrics."""
    conditions = tuple((each.type, each.status, each.reason) for each in made.status.conditions or ())
    return made.replicas, made.status.desired_replicas, conditions, bool(made.error)
