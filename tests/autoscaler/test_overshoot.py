"""A ratio lags behind the pods it is divided by: a simulated load step, over windows and start-up times.

The metric is load by ready pods, averaged over its window as a rate is, and sampled every few seconds. New
pods are Pending until they have started. What is asserted is the overshoot: the most replicas there ever
were, over those that the load needs.
"""

import math
from functools import partial

import pytest

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.conflicts import ScaleObservation
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import ExternalReading, Observation
from adapter.autoscaler.inputs.feed import SourceAnswer
from adapter.autoscaler.inputs.sources import ReadContext, series_reading
from adapter.model.timestamps import SECOND
from tests.support.controller import LIVE
from tests.support.scaling import NOW, StartingPods, autoscaler, external_metric

BEFORE, FACTOR, SCRAPE = 10, 3.0, 5
LENGTH = 900


class LoadedPods(StartingPods):
    """Pods, and the metric that they make."""

    def __init__(self, startup: int, window: int) -> None:
        super().__init__(BEFORE, lambda: startup)
        self.window = window
        self.counts: list[int] = []
        self.samples: list[tuple[int, float]] = []

    def load(self, second: int) -> float:
        return BEFORE * (FACTOR if second >= 60 else 1.0)

    def step(self, second: int) -> None:
        self.counts.append(self.ready(second))
        if second % SCRAPE == 0:
            window = range(max(0, second - self.window + 1), second + 1)
            value = sum(self.load(each) / self.counts[each] for each in window) / len(window)
            self.samples.append((second, value))

    def least_ready(self, since: int, now: int) -> int:
        first = max(0, math.floor((since - NOW) / SECOND))
        return min(self.counts[first : (now - NOW) // SECOND + 1])


def simulate(startup: int, window: int, *, known: bool) -> tuple[int, int]:
    """Return the most replicas there ever were, and those at the end."""
    scaler = autoscaler([external_metric(value="1")], LIVE, minReplicas=1, maxReplicas=1000, behavior={})
    workload, memory, replicas, most = LoadedPods(startup, window), Memory(), BEFORE, 0
    circumstances = Constraints()
    for second in range(LENGTH):
        workload.step(second)
        now = NOW + second * SECOND
        taken, value = workload.samples[-1]
        milli = round(value * 1000)
        answer = SourceAnswer({}, {"": NOW + taken * SECOND}, (milli,), window * SECOND if known else None)
        context = ReadContext((), partial(workload.least_ready, now=now), now, float(second))
        reading = series_reading(answer, SCRAPE * SECOND, context, "")
        assert isinstance(reading, ExternalReading)
        memory, _ = memories.observe(scaler, memory, ScaleObservation(replicas, "fastpath"), now)
        seen = Observation(replicas, replicas, "app=web", workload.pods(second), [reading])
        made = guarded.decide(scaler, seen, memory, now, circumstances)
        memory, _ = memories.commit(memory, made, seen, now)
        if made.rescale:
            replicas = made.replicas
            workload.scale(replicas, second)
        most = max(most, replicas)
    return most, replicas


NEEDED = BEFORE * FACTOR


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("startup", "window", "known"), [(5, 120, True), (60, 120, True), (20, 15, True), (20, 60, False)]
)
def test_a_ratio_does_not_compound(startup: int, window: int, *, known: bool) -> None:
    most, last = simulate(startup, window, known=known)

    assert most <= 1.1 * NEEDED
    assert last >= 0.9 * NEEDED
