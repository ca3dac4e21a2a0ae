"""Reports decisions: statuses and events, the journal, and metrics.

A decision that repeats the last one is not reported again: its status is written only if it has changed, its
warnings are repeated at the HPA controller's period, and the journal gets one entry.

The `Journal` holds the last decisions of each autoscaler that changed something or were kept from it. It is
bounded per autoscaler and as a whole, by number and by bytes. Beyond that the namespace whose entries take
most loses its oldest one, so a tenant with many autoscalers does not displace what is known of others.
Entries are values; `debug` makes text of them when they are shown.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.guards.conflicts import ForeignChange
from adapter.autoscaler.decide.observation import ExternalReading, PodsReading, usual_way
from adapter.autoscaler.decide.record import DecisionInputs, DecisionRecord, record
from adapter.autoscaler.decide.sync import Decision, Event
from adapter.autoscaler.decide.trace import Step
from adapter.autoscaler.explain.series import AutoscalerSeries
from adapter.autoscaler.inputs.snapshot import MetricInput, Snapshot
from adapter.autoscaler.interfaces import Key
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.hpa import Condition
from adapter.model.autoscaling.status import SCALING_LIMITED
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring

PER_AUTOSCALER = 100
IN_ALL = 20_000

ROOM = 56 * 1024 * 1024
"""The bytes of all entries, estimated. An entry has a value for each pod and metric, so a number alone is no
bound."""

_ENTRY_BYTES, _STEP_BYTES, _VALUE_BYTES = 2000, 1000, 400


class JournalEntry(NamedTuple):
    """One decision, and the time of day at which it was made.

    `outcome` is that of its write: ``written``, ``failed``, or ``none`` without a write. `current` is None if
    the count was not read, and `replicas` if none was decided; `reason` then says why.
    """

    key: Key
    time: int
    current: int | None
    replicas: int | None
    outcome: str
    reason: str
    error: str
    pods: int
    inputs: tuple[MetricInput, ...]
    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    change: ForeignChange | None
    mark: tuple[object, ...]
    record: DecisionRecord | None = None
    """What the decision was made from, if the journal keeps that."""

    @property
    def weight(self) -> int:
        """Its estimated size in bytes."""
        readings = (usual_way(metric.reading) for metric in self.inputs)
        values = sum(len(read.values) for read in readings if isinstance(read, PodsReading | ExternalReading))
        inputs = 0 if self.record is None else self.record.inputs.weight + _VALUE_BYTES * values
        return _ENTRY_BYTES + _STEP_BYTES * len(self.steps) + _VALUE_BYTES * values + inputs


@dataclass(slots=True, eq=False)
class Journal:
    """The entries, newest last."""

    per_autoscaler: int = PER_AUTOSCALER
    in_all: int = IN_ALL
    room: int = ROOM
    keeps_inputs: bool = field(default=False, kw_only=True)
    """Whether each entry has a record of what its decision was made from."""
    _weights: Counter[str] = field(default_factory=Counter, init=False)
    """The bytes of each namespace."""
    _weight: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _spaces: dict[str, dict[int, JournalEntry]] = field(default_factory=dict, init=False)
    """The entries of each namespace by identity, oldest first."""
    _own: dict[Key, list[JournalEntry]] = field(default_factory=dict, init=False)
    _marks: dict[Key, tuple[object, ...]] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return self._size

    def is_news(self, key: Key, mark: tuple[object, ...]) -> bool:
        """Tell whether a decision of that mark differs from the last one of its autoscaler."""
        return self._marks.get(key) != mark

    def note(self, entry: JournalEntry) -> None:
        self._marks[entry.key] = entry.mark
        own = self._own.setdefault(entry.key, [])
        own.append(entry)
        self._spaces.setdefault(entry.key.namespace, {})[id(entry)] = entry
        self._count(entry, 1)
        if len(own) > self.per_autoscaler:
            self._drop(own.pop(0))
        while self._size and (self._size > self.in_all or self._weight > self.room):
            largest = max(self._weights, key=self._weights.__getitem__)
            self._evict(self._drop(next(iter(self._spaces[largest].values()))))

    def quiet(self, key: Key) -> None:
        """Note an uneventful decision: the next eventful one is news again."""
        self._marks.pop(key, None)

    def forget(self, key: Key) -> None:
        for entry in self._own.pop(key, ()):
            self._drop(entry)
        self._marks.pop(key, None)

    def of(self, key: Key) -> Sequence[JournalEntry]:
        return tuple(self._own.get(key, ()))

    def _count(self, entry: JournalEntry, by: int) -> None:
        weight = by * entry.weight
        self._size += by
        self._weight += weight
        self._weights[entry.key.namespace] += weight

    def _drop(self, entry: JournalEntry) -> JournalEntry:
        namespace = entry.key.namespace
        space = self._spaces[namespace]
        del space[id(entry)]
        self._count(entry, -1)
        if not space:
            del self._spaces[namespace], self._weights[namespace]
        return entry

    def _evict(self, entry: JournalEntry) -> None:
        own = self._own.get(entry.key)
        if own and own[0] is entry:
            del own[0]
            if not own:
                del self._own[entry.key]  # its mark stays: noted again, it would displace others each second


# -- reports -------------------------------------------------------------------------------------------------

_REPEAT = 15 * SECOND
"""How often a warning is repeated: the HPA controller's period."""


@dataclass(slots=True)
class _Reported:
    series: AutoscalerSeries
    warned: dict[tuple[str, str], int] = field(default_factory=dict)
    """When each warning, by reason and message, was last reported."""
    conditions: tuple[Condition, ...] | None = None
    marked: tuple[tuple[str, str, str | None], ...] = ()
    """What the mark of a decision has of `conditions`, the last ones."""
    is_limited: bool = False

    def follow(self, conditions: tuple[Condition, ...] | None) -> None:
        """Note the conditions of a decision. While nothing changes they are the same object."""
        if conditions is not self.conditions:
            self.conditions = conditions
            self.marked = tuple((one.type, one.status, one.reason) for one in conditions or ())
            self.is_limited = statuses.holds(conditions, SCALING_LIMITED)

    def is_news(self, event: Event, now: int) -> bool:
        """Tell whether a warning is to be reported, and note that it is."""
        warning = event.reason, event.message
        last = self.warned.get(warning)
        if last is not None and now - last < _REPEAT:
            return False
        self.warned = {other: at for other, at in self.warned.items() if now - at < _REPEAT}
        self.warned[warning] = now
        return True


class Reporter:
    def __init__(self, actuator: Actuator, monitoring: Monitoring, journal: Journal) -> None:
        self._actuator = actuator
        self._monitoring = monitoring
        self.journal = journal
        self._reported: dict[Key, _Reported] = {}

    def forget(self, key: Key) -> None:
        self.journal.forget(key)
        self.hide(key)

    def hide(self, key: Key) -> None:
        """Remove an autoscaler from the metrics."""
        reported = self._reported.pop(key, None)
        if reported is not None:
            reported.series.remove()

    def report(
        self,
        state: AutoscalerState,
        choice: Decision,
        snapshot: Snapshot | None,
        events: tuple[Event, ...],
        change: ForeignChange | None,
        now: int,
        outcome: str,
        inputs: DecisionInputs | None = None,
    ) -> None:
        """Report a decision that `state` has committed.

        For the journal: the `outcome` of its write, and what it was made from, None if that is not kept.
        """
        reported = self._reported_of(state.key)
        if choice.status_changed:
            self._actuator.status(
                state.spec.object,
                state.memory.status,
                state.recent_changes(now),
                state.backlog_credits,
                "" if state.last is None else state.last.decision.restraint.value,
            )
        for event in events:
            if event.type == "Normal" or reported.is_news(event, now):
                self._actuator.event(state.spec.object, event)
        reported.series.show(state, choice, snapshot, now)
        desired, current = choice.desired, choice.status.current_replicas
        kind = "none" if not choice.rescale else "up" if choice.replicas > current else "down"
        self._monitoring.scaler_decisions.values[(kind,)] += 1
        reported.follow(choice.status.conditions)
        if reported.is_limited:
            self._monitoring.scaler_limited.values[()] += 1
        is_eventful = choice.rescale or choice.error or reported.is_limited or choice.covered
        if not (is_eventful or change or events or desired != current):
            self.journal.quiet(state.key)
            return
        # An autoscaler that is held back repeats itself each second. Only the first of equal entries is news,
        # or it would push all others out of the journal; new values of metrics alone are not recorded
        mark = choice.replicas, desired, reported.marked, bool(choice.error), bool(choice.covered)
        if outcome == "none" and change is None and not self.journal.is_news(state.key, mark):
            return
        time, metrics = state.clock.time_of_day(now), () if snapshot is None else snapshot.inputs
        if sampled := [metric.sampled for metric in metrics if metric.sampled is not None]:
            self._monitoring.scaler_sample_age.observe(max(0.0, (time - min(sampled)) / SECOND))
        self.journal.note(
            JournalEntry(
                key=state.key,
                time=time,
                current=None if snapshot is None else current,
                replicas=desired,
                outcome=outcome,
                reason=choice.obstacle.text() if desired is None and choice.obstacle else choice.reason,
                error=choice.error,
                pods=0 if snapshot is None else len(snapshot.observation.pods),
                inputs=metrics,
                steps=choice.trace,
                events=events,
                change=change,
                mark=mark,
                record=None if inputs is None else record(inputs, choice),
            )
        )

    def _reported_of(self, key: Key) -> _Reported:
        reported = self._reported.get(key)
        if reported is None:
            reported = self._reported[key] = _Reported(AutoscalerSeries(self._monitoring, key.labels))
        return reported

    def observe_stages(self, state: AutoscalerState, snapshot: Snapshot, now: int, seconds: float) -> None:
        """Measure the stages of a change; `seconds` is the time from the decision to the end of its write.

        The time from the load to its sample is at most the span of one sample.
        """
        stages = {"decision-to-write": seconds}
        sampled = [(read.sampled, read.span) for read in snapshot.inputs if read.sampled is not None]
        if sampled:
            at, span = max(sampled, key=itemgetter(0))
            stages["sample-to-decision"] = max(0.0, (snapshot.observation.time_of_day(now) - at) / SECOND)
            if span is not None:
                stages["load-to-sample"] = span / SECOND
                self._reported_of(state.key).series.show_duration(sum(stages.values()))
        for stage, length in stages.items():
            self._monitoring.scaler_stages.labels(stage).observe(length)
