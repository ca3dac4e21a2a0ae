"""An autoscaler from sync to sync, as the loop decides it: for tests of what decisions do over time."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.conflicts import OWN, ConflictState, ScaleObservation
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import Observation, PodsReading, Reading, Unavailable
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.autoscaler.decide.sync import Decision
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling import fastpath_autoscaler, status
from adapter.model.objects.pods import PodFacts
from adapter.model.timestamps import SECOND
from tests.support.controller import LIVE, QUEUE, fpa, wanted
from tests.support.scaling import NOW, pods

GONE = Unavailable("NoMetrics", "no metrics")
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
"""A behavior that scales down at once."""

Wish = int | Reading | Mapping[str, int] | None
"""What a metric shows: a count that the queue asks for, None for no value; a reading; values of pods."""


class SyncedScaler:
    """What is decided is written at once, and all pods are Ready unless `pods` says otherwise.

    Each decision is compared with the one that is made without the last decision. A `legacy` one has no
    `behavior`.
    """

    def __init__(
        self,
        replicas: int = 10,
        metrics: Sequence[dict[str, Any]] = QUEUE,
        constraints: Constraints | None = None,
        *,
        legacy: bool = False,
        **spec: Any,
    ) -> None:
        scaler = fpa(metrics, **spec)
        self.spec = prepare(scaler if legacy else fastpath_autoscaler.with_defaults(scaler), LIVE)
        self.constraints = constraints or Constraints.of(scaler.spec)
        self.memory = Memory(conflicts=ConflictState(known=replicas, own_zero=not replicas))
        self.replicas, self.manager = replicas, OWN
        self.pods: Sequence[PodFacts] | None = None
        self.now: int = NOW
        self.last: Decision | None = None
        self.told: list[str] = []

    def observe(self, *wishes: Wish, **seen: Any) -> Observation:
        """Return what a sync sees whose metrics show this."""
        readings: list[Reading] = []
        for wish in wishes:
            if isinstance(wish, Mapping):
                readings.append(PodsReading(wish))
            else:
                readings.append(GONE if wish is None else wanted(wish) if isinstance(wish, int) else wish)
        listed = pods(self.replicas) if self.pods is None else self.pods
        facts: dict[str, Any] = {
            "status_replicas": self.replicas,
            "selector": "app=web",
            "status": self.memory.status,
        }
        return Observation(self.replicas, pods=listed, readings=readings, **facts | seen)

    def constrain(self, **changes: Any) -> None:
        self.constraints = msgspec.structs.replace(self.constraints, **changes)

    def change(self, **memory: Any) -> None:
        self.memory = msgspec.structs.replace(self.memory, **memory)

    def decide(
        self, *wishes: Wish, bounds: Bounds | None = None, after: float = 1.0, **seen: Any
    ) -> Decision:
        """Decide some seconds after the last sync, within these bounds."""
        self.now += round(after * SECOND)
        self.constrain(bounds=bounds)
        limits, observed = self.constraints, self.observe(*wishes, **seen)
        scale = ScaleObservation(self.replicas, self.manager)
        self.memory, _ = memories.observe(self.spec, self.memory, scale, self.now, limits.boost)
        made = guarded.decide(self.spec, observed, self.memory, self.now, limits, self.last)
        again = guarded.decide(self.spec, observed, self.memory, self.now, limits)
        assert msgspec.structs.replace(made, spec=None) == msgspec.structs.replace(again, spec=None)
        self.memory, events = memories.commit(
            self.memory, made, observed, self.now, limits.boost, limits.fallback
        )
        self.told += [f"{event.type} {event.reason}: {event.message}" for event in events]
        self.replicas, self.last = made.replicas, made
        return made

    def at(self, seconds: float, *wishes: Wish, **seen: Any) -> Decision:
        """Decide so many seconds after NOW."""
        self.now = NOW + round(seconds * SECOND)
        return self.decide(*wishes, after=0, **seen)

    def counts(self, seconds: Sequence[float], *wishes: Wish) -> list[int]:
        """Return the counts at these times while the metrics show the same."""
        return [self.at(second, *wishes).replicas for second in seconds]


def condition(made: Decision, kind: str) -> tuple[str, str | None, str | None] | None:
    """Return status, reason and message of a condition."""
    found = status.find(made.status.conditions, kind)
    return None if found is None else (found.status, found.reason, found.message)
