"""Pending capacity over time: a queue, pods that take a minute to start, and the production decision.

Each second of a run the pods work, load arrives, and an autoscaler decides from the queue; new pods are Ready
after their start-up time. Every run is compared with the same run whose pods are Ready at once: what exact
arithmetic asks for then is what is needed. The option may ask for a fifth more, whatever the start-up time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import pending
from adapter.autoscaler.decide.guards.conflicts import ConflictState, ScaleObservation
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import ExternalReading, Observation
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.model.timestamps import SECOND
from tests.support.controller import LIVE
from tests.support.scaling import NOW, StartingPods, external_metric, hpa, with_pending

TARGET = 10
"""Items of the queue for each pod."""

THROUGHPUT = 1.0
"""Items that one Ready pod works off in a second."""

STARTUP = 60
MINUTES = 10

NO_LIMIT = {"scaleUp": {"policies": [{"type": "Pods", "value": 100_000, "periodSeconds": 1}]}}
Load = Callable[[int], float]


class Run(NamedTuple):
    """One run: replicas, queue and Ready pods in each second."""

    replicas: list[int]
    queue: list[float]
    ready: list[int]

    @property
    def most(self) -> int:
        return max(self.replicas)

    def drained(self, after: int) -> int | None:
        """Return the first second after which the queue is what exact arithmetic keeps for the Ready pods."""
        for second in range(after, len(self.queue)):
            if self.queue[second] <= 1.1 * TARGET * self.ready[second]:
                return second
        return None


NEVER = 10.0**6


class QueueWorkers(StartingPods):
    """Pods and the queue that they work off.

    A pod that is Ready `NEVER` is replaced by a new one each `replaced` seconds, 0 for not at all.
    """

    def __init__(self, count: int, queue: float, startup: Callable[[], float], replaced: int) -> None:
        super().__init__(count, startup)
        self.queue = queue
        self._replaced = replaced

    def created(self, made: int, startup: float, second: int) -> int:
        if not self._replaced or startup < NEVER:
            return made
        return second - (second - made) % self._replaced


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
    replaced: int = 0,
) -> Run:
    """Run with the option if it has a throughput. `learned` is the start-up time that the ledger tells."""
    least = 0 if count == 0 else 1
    metric = external_metric("jobs", averageValue=str(target))
    plain = hpa([metric], maxReplicas=100_000, behavior=behavior or {}, minReplicas=least)
    scaler = prepare(with_pending(plain, **({} if option is None else {"jobs": str(option)})), LIVE)
    begin = startup if callable(startup) else lambda: startup
    workload = QueueWorkers(count, target * count if queue is None else queue, begin, replaced)
    memory = Memory(conflicts=ConflictState(known=count, own_zero=count == 0))
    constraints = Constraints()
    run = Run([], [], [])
    for second in range(seconds):
        now = NOW + second * SECOND
        ready = workload.ready(second)
        if second == new_leader_at:
            credited = pending.list_credits(memory.history.pending) if inherits else ()
            memory = memories.remember(memory.status, pending=pending.inherited_state(credited, now))
        replicas = len(workload.made)
        seen = Observation(
            replicas,
            replicas,
            "app=web",
            workload.pods(second),
            [ExternalReading([round(workload.queue * 1000)])],
            ready_within=None if learned is None else round(learned * SECOND),
        )
        memory, _ = memories.observe(scaler, memory, ScaleObservation(replicas, "fastpath"), now)
        made = guarded.decide(scaler, seen, memory, now, constraints)
        memory, _ = memories.commit(memory, made, seen, now)
        workload.scale(made.replicas, second)
        run.replicas.append(len(workload.made))
        run.ready.append(ready)
        run.queue.append(workload.queue)
        workload.queue = max(0.0, workload.queue + load(second) - THROUGHPUT * ready)
    return run


def steady(load: float) -> Load:
    return lambda _: load


def ramp(first: float, last: float, seconds: int) -> Load:
    return lambda second: first + (last - first) * min(1.0, second / seconds)


def bursts(low: float, high: float, length: int, period: int) -> Load:
    return lambda second: high if second % period < length else low


CASES: dict[str, tuple[Load, dict[str, Any]]] = {
    "load doubles": (steady(20), {}),
    "from one pod": (steady(20), {"count": 1}),
    "from one pod, no policies": (steady(20), {"count": 1, "behavior": NO_LIMIT}),
    "from zero": (steady(20), {"count": 0, "behavior": NO_LIMIT}),
    "ten times the load": (steady(100), {}),
    "a hundred times, no policies": (steady(100), {"count": 1, "behavior": NO_LIMIT}),
    "a ramp over 5 minutes": (ramp(10, 50, 300), {}),
    "a batch of 2000": (steady(10), {"queue": 2000}),
    "10 minutes of work": (steady(0), {"queue": 6000}),
    "bursts": (bursts(10, 40, 60, 300), {}),
    "a target of 2": (steady(20), {"target": 2}),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("load", "more"), CASES.values(), ids=list(CASES))
def test_starts_cost_a_fifth_at_most(load: Load, more: dict[str, Any]) -> None:
    """Against pods that are Ready at once, and against exact arithmetic."""
    instant = simulate(load, **more | {"startup": 0, "option": None})
    exact, aware = simulate(load, **more | {"option": None}), simulate(load, **more)

    assert aware.most <= 1.2 * instant.most
    assert aware.most >= 0.9 * instant.most
    assert exact.most >= 2.5 * instant.most
    before_ready = zip(aware.replicas[:STARTUP], exact.replicas, strict=False)
    assert all(count <= most for count, most in before_ready), "it only withholds raises"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("more", "most"),
    [
        pytest.param({"option": 2 * THROUGHPUT}, 1.2, id="twice the throughput"),
        pytest.param({"option": THROUGHPUT / 2}, 1.7, id="half of the throughput"),
        pytest.param({"learned": STARTUP / 2}, 1.7, id="half of the start-up time"),
        pytest.param({"new_leader_at": 120, "inherits": False}, 2.4, id="a backlog that a new leader met"),
    ],
)
def test_a_wrong_figure_has_a_bounded_cost(more: dict[str, Any], most: float) -> None:
    """The figures of docs/decisions/pending-capacity.md; exact arithmetic asks for five times as many."""
    aware = simulate(steady(20), **more)

    assert 20 <= aware.most <= most * 20
    assert aware.drained(STARTUP) is not None


@pytest.mark.timeout(60)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.sampled_from([2, 30, 60, 150]),
    st.sampled_from([0, 1, 20, 70]),
    st.sampled_from([-1, 200]),
)
@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
def test_no_raise_is_withheld_longer_than_a_start_up_time_and_a_minute(
    loads: list[int], learned: int, replaced: int, new_leader_at: int
) -> None:
    """No new pod becomes Ready. What the queue asked for all that time is asked for, whatever the pods do."""
    run = simulate(
        lambda second: loads[second // 100 % len(loads)],
        startup=NEVER,
        learned=learned,
        replaced=replaced,
        new_leader_at=new_leader_at,
        behavior=NO_LIMIT,
        seconds=600,
    )

    late = learned + 60
    # The next owner does not know the raises of the former one.
    for second in range(max(0, new_leader_at) + late, len(run.queue)):
        kept = 1.1 * TARGET * run.replicas[second]
        assert min(run.queue[second - late : second + 1]) <= max(kept, TARGET), second
