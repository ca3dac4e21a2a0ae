"""Pending capacity over time: a queue, pods that take a minute to start, and the production decision.

Each second of a run the pods work, load arrives, and an autoscaler decides from the queue; new pods are Ready
after their start-up time. Every run is compared with the same run whose pods are Ready at once: what exact
arithmetic asks for then is what is needed. The option may ask for a fifth more, whatever the start-up time.
"""

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from adapter.autoscaler.decide import guarded, pending
from adapter.autoscaler.decide.conflicts import ConflictState, ScaleObservation
from adapter.autoscaler.decide.guarded import Constraints, Memory
from adapter.autoscaler.decide.observation import ExternalReading, Observation, Unavailable
from adapter.autoscaler.decide.prepared_spec import PreparedSpec, prepare
from adapter.model.autoscaling.pending_capacity import PendingCapacity
from adapter.model.pods import PodFacts
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND
from tests.support.controller import LIVE
from tests.support.scaling import NOW, external_metric, hpa

TARGET = 10
"""Items of the queue for each pod."""

THROUGHPUT = 1.0
"""Items that one Ready pod works off in a second."""

STARTUP = 60
MINUTES = 10
NEVER_READY = 10**6

NO_LIMIT = {"scaleUp": {"policies": [{"type": "Pods", "value": 100_000, "periodSeconds": 1}]}}
Load = Callable[[int], float]


class Run(NamedTuple):
    """One run: replicas, queue and Ready pods after each second, and the last trace that shows a credit."""

    replicas: list[int]
    queue: list[float]
    ready: list[int]
    text: str

    @property
    def most(self) -> int:
        return max(self.replicas)

    def drained(self, after: int) -> int | None:
        """Return the first second after which the queue is what exact arithmetic keeps for the Ready pods."""
        for second in range(after, len(self.queue)):
            if self.queue[second] <= 1.1 * TARGET * self.ready[second]:
                return second
        return None


class Workload:
    """A queue and the pods that work it off, by when they were made and are Ready, in seconds."""

    def __init__(self, count: int, queue: float, startup: Callable[[], float]) -> None:
        self.queue = queue
        self.made: list[tuple[float, float]] = [(-10_000.0, 0.0)] * count
        self._startup = startup

    def ready(self, second: int) -> int:
        return sum(second >= made + startup for made, startup in self.made)

    def scale(self, replicas: int, second: int) -> None:
        more = replicas - len(self.made)
        self.made = self.made[:replicas] + [(float(second), self._startup()) for _ in range(more)]

    def pods(self, second: int) -> list[PodFacts]:
        return [
            PodFacts(
                f"web-{number}",
                "Running" if second >= made + startup else "Pending",
                ready="True" if second >= made + startup else "False",
                ready_since=NOW + round((made + startup) * SECOND),
                created=NOW + int(made) * SECOND,
            )
            for number, (made, startup) in enumerate(self.made)
        ]


def spec_of(throughput: float | None, target: float = TARGET, **spec: Any) -> PreparedSpec:
    metric = external_metric("jobs", averageValue=str(target))
    listed = () if throughput is None else (PendingCapacity("jobs", read(str(throughput))),)
    scaler = hpa([metric], minReplicas=1, maxReplicas=100_000, **({"behavior": {}} | spec))
    return prepare(scaler, LIVE, listed)


def simulate(
    load: Load,
    *,
    option: float | None = THROUGHPUT,
    count: int = 10,
    queue: float | None = None,
    startup: Callable[[], float] | float = STARTUP,
    learned: float | None = STARTUP,
    seconds: int = MINUTES * 60,
    target: float = TARGET,
    behavior: dict[str, Any] | None = None,
    new_leader_at: int = -1,
    inherits: bool = True,
    absent: range = range(0),
    every: int = 1,
) -> Run:
    """Run with the option if it has a throughput. `learned` is the start-up time that the ledger tells."""
    scaler = spec_of(option, target, behavior=behavior or {})
    begin = startup if callable(startup) else lambda: startup
    workload = Workload(count, target * count if queue is None else queue, begin)
    memory, constraints = Memory(conflicts=ConflictState(known=count)), Constraints()
    run = Run([], [], [], "")
    text = ""
    for second in range(seconds):
        now = NOW + second * SECOND
        ready = workload.ready(second)
        if second == new_leader_at:
            credits = pending.credits_of(memory.history.pending) if inherits else ()
            memory = guarded.remember(memory.status, pending=pending.state_of(credits, now))
        if second % every == 0:
            replicas = len(workload.made)
            reading = ExternalReading([round(workload.queue * 1000)])
            seen = Observation(
                replicas,
                replicas,
                "app=web",
                workload.pods(second),
                [Unavailable("Down", "no value") if second in absent else reading],
                ready_within=None if learned is None else round(learned * SECOND),
            )
            memory, _ = guarded.observe(scaler, memory, ScaleObservation(replicas, "fastpath"), now)
            made = guarded.decide(scaler, seen, memory, now, constraints)
            memory, _ = guarded.commit(memory, made, seen, now, constraints)
            workload.scale(made.replicas, second)
            text = next((each.text() for each in made.trace if each.name == "pending"), text)
        run.replicas.append(len(workload.made))
        run.ready.append(ready)
        run.queue.append(workload.queue)
        workload.queue = max(0.0, workload.queue + load(second) - THROUGHPUT * ready)
    return run._replace(text=text)


def steady(load: float) -> Load:
    return lambda _: load


def ramp(first: float, last: float, seconds: int) -> Load:
    return lambda second: first + (last - first) * min(1.0, second / seconds)


def bursts(low: float, high: float, length: int, period: int) -> Load:
    return lambda second: high if second % period < length else low


if __name__ == "__main__":
    CASES = {
        "10->20": (steady(20), {}),
        "1->20": (steady(20), {"count": 1}),
        "1->20 nolimit": (steady(20), {"count": 1, "behavior": NO_LIMIT}),
        "1->100 nolimit": (steady(100), {"count": 1, "behavior": NO_LIMIT}),
        "10->100": (steady(100), {}),
        "ramp": (ramp(10, 50, 300), {}),
        "batch": (steady(10), {"queue": 2000}),
        "batch nolimit": (steady(10), {"queue": 2000, "behavior": NO_LIMIT}),
        "bursts": (bursts(10, 40, 60, 300), {}),
        "T2": (steady(20), {"target": 2}),
        "T100": (steady(20), {"target": 100, "count": 1}),
        "x2": (steady(20), {"option": 2.0}),
        "/2": (steady(20), {"option": 0.5}),
    }
    for name, (load, more) in CASES.items():
        instant = simulate(load, **more | {"startup": 0, "option": None}, seconds=1200)
        exact = simulate(load, **more | {"option": None}, seconds=1200)
        aware = simulate(load, **more, seconds=1200)
        print(name, "instant", instant.most, "exact", exact.most, exact.drained(60), "option", aware.most, max(aware.replicas[:600]), aware.drained(60), aware.text)
