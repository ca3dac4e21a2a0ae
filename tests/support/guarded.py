"""A FastPathAutoscaler that is decided within its constraints, one decision after another."""

from typing import Any

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import Observation, Reading, Settings, Unavailable
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.timestamps import SECOND
from tests.support.controller import QUEUE, fpa, wanted
from tests.support.scaling import NOW, pods


class GuardedScaler:
    """Its QUEUE wishes for replicas, None for no value. What is decided is done, unless its write fails."""

    def __init__(self, replicas: int = 4, **spec: Any) -> None:
        autoscaler = fpa(QUEUE, **spec)
        self.spec = prepare(fastpath_autoscaler.with_defaults(autoscaler), Settings())
        self.constraints = Constraints.of(autoscaler.spec)
        self.memory, self.now, self.replicas = Memory(), int(NOW), replicas
        self.seen = self._observe(replicas)

    def _observe(self, wish: int | None, **seen: Any) -> Observation:
        reading: Reading = Unavailable("NoMetrics", "none") if wish is None else wanted(wish)
        return Observation(self.replicas, self.replicas, "app=web", pods(self.replicas), [reading], **seen)

    def decide(
        self, wish: int | None, idle: int | None = None, *, after: float = 1, error: str = ""
    ) -> Decision:
        self.now += int(after * SECOND)
        seen = self.seen = self._observe(wish, idle=idle, write_error=error)
        made = guarded.decide(self.spec, seen, self.memory, self.now, self.constraints)
        if not error:
            self.memory, _ = memories.commit(
                self.memory, made, seen, self.now, self.constraints.boost, self.constraints.fallback
            )
            self.replicas = made.replicas
        return made

    def follow(self, wish: int | None, seconds: int) -> None:
        """Decide once a second."""
        for _ in range(seconds):
            self.decide(wish)
