"""One autoscaler of a simulation with its scrapes: when it decides, and which decisions need no computing.

A simulation need not compute a decision at every second. The same observation gives the same count until
either a measured value leaves the range in which its metric proposes the same, or the history changes by
itself (`Decider.boundary`). A metric's proposal never falls when its value grows, so where two values
propose the same, all between them do. Decisions in between only record their recommendation again. In a
window the newest entry of a count hides the older ones, so the last of them records for all, and it is
computed before the next that matters.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from adapter.autoscaler.decide.calculator import Situation
from adapter.autoscaler.decide.observation import PodsReading, Reading, Unavailable, Ways
from adapter.autoscaler.inputs.idleness import SAMPLES
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate.deciders import Decider
from fastpath_forecast.simulate.metrics import SimulatedMetric, to_milli
from fastpath_forecast.simulate.workload import Workload

_MOST_SITUATIONS = 4096
"""Bound of the memory for ranges."""


class Signal:
    """One metric of one chain of scrapes.

    It is scraped at the seconds `phase`, `phase + interval` and so on. `window` is over how many seconds a
    value is the mean: 0 for a gauge, whose value is that of the last second. The increases of the counters of
    all pods add up to the load, and a rate divides them by the window, so the rates of the pods add up to the
    mean of the load. NaN is no value. Before second 0 the load was always `first`.
    """

    def __init__(
        self,
        interval: int,
        phase: int,
        window: int,
        first: float,
        ready: int = 0,
        *,
        is_total: bool,
        lag: int = 0,
    ) -> None:
        """Read the whole load if `is_total`, else the share of each of the `ready` pods.

        A window may end `lag` seconds before its scrape.
        """
        self.interval = interval
        self.window = max(1, window)
        self._reach = self.window + SAMPLES * interval + lag
        self.due = phase
        self.taken = phase - interval
        """The second of the last scrape."""
        self._is_total = is_total
        self._ready = ready
        self._steps: deque[tuple[int, float]] = deque([(-self._reach, first)])
        self.value = self._value(first)
        """What the last scrape showed."""

    def is_settled(self, ready: int) -> bool:
        """Whether further scrapes show the same value until the load or the ready pods change."""
        covered = self.taken - self._steps[-1][0] >= self.window - 1
        return covered and (self._is_total or self._ready == ready)

    def record(self, second: int, load: float) -> None:
        """Record the load from this second on."""
        steps = self._steps
        last = steps[-1][1]
        if load == last or (math.isnan(load) and math.isnan(last)):
            return
        steps.append((second, load))
        oldest = second - self._reach
        while len(steps) > 1 and steps[1][0] <= oldest:
            steps.popleft()

    def scrape(self, second: int, ready: int) -> None:
        """Scrape at this second, whose load is noted."""
        self.taken = second
        self.due = second + self.interval
        self._ready = ready
        self.value = self._value(self._mean(second))

    def skip(self, second: int) -> None:
        """Do the scrapes before this second at once; the signal is settled."""
        if second > self.due:
            self.taken = self.due + (second - 1 - self.due) // self.interval * self.interval
            self.due = self.taken + self.interval

    def samples(self) -> Iterator[tuple[int, float]]:
        """Yield the seconds of the last scrapes, the oldest first, and the load that each showed."""
        for place in reversed(range(SAMPLES)):
            second = self.taken - place * self.interval
            yield second, self._mean(second)

    def _value(self, load: float) -> float:
        if self._is_total:
            return load
        return load / self._ready if self._ready else math.nan

    def _mean(self, second: int) -> float:
        """Return the mean of the load over the window that ends with a second; NaN if all of it is a gap."""
        begin, end = second - self.window + 1, second + 1
        start, load = self._steps[-1]
        if start <= begin:
            return load
        total, known = 0.0, 0
        for start, load in reversed(self._steps):
            if start >= end:
                continue  # after the window
            since = max(start, begin)
            if not math.isnan(load):
                total += (end - since) * load
                known += end - since
            end = since
            if since == begin:
                break
        return total / known if known else math.nan


class Sight(NamedTuple):
    """What a decision sees: values in thousandths, when each was taken, and how many pods were ready then.

    `then` are the most and the fewest.
    """

    millis: tuple[int | None, ...]
    taken: tuple[int, ...]
    then: tuple[tuple[int, int], ...]
    beacon: int


class Chain:
    """A decider that looks at its signals every `period` seconds, the first time at `phase`.

    A metric has the signal at its place in `signals`. One that is measured by two ways has a second in
    `faster`: its reading has the values of both, and the decision takes what asks for more replicas.
    """

    def __init__(
        self,
        decider: Decider,
        metrics: Sequence[SimulatedMetric],
        signals: Sequence[Signal],
        period: int,
        phase: int,
        epoch: int,
        *,
        faster: Mapping[int, Signal],
    ) -> None:
        """`epoch` is second 0 in nanoseconds."""
        self.decider = decider
        self.signals = (*signals, *faster.values())
        self._places: tuple[int, ...] = (*range(len(signals)), *faster)  # the metric of each signal
        self._faster = {place: len(signals) + index for index, place in enumerate(faster)}
        self.period = period
        self.due = phase
        self.decisions = 0
        """How many decisions were computed."""
        self._metrics = metrics
        self._epoch = epoch
        self._ready: deque[tuple[int, int]] = deque()  # the ready pods from each second on
        self._spans = [signal.window + signal.interval for signal in self.signals]
        self._proposals: dict[tuple[int, object], dict[int | None, tuple[int, int]]] = {}
        self._last: tuple[object, Sight] | None = None
        """Situation and sight of the last decision, None if that has written a count."""
        self._boundary = 0
        self._skipped: tuple[int, Sight] | None = None

    @property
    def reason(self) -> str:
        """Why the last decision asked for its count."""
        return "" if self.decider.last is None else self.decider.last.reason

    def observe(self, count: int, second: int) -> None:
        """Take in a count that another chain has written."""
        self.decider.observe(count, self._epoch + second * SECOND)

    # -- what is measured ------------------------------------------------------------------------------------

    def measure(self, second: int, loads: Sequence[float], ready: int) -> None:
        """Note the loads of a second, and do the scrapes that are due."""
        for place, signal in zip(self._places, self.signals, strict=True):
            signal.record(second, loads[place])
            if signal.due == second:
                signal.scrape(second, ready)
        if not self._ready or self._ready[-1][1] != ready:
            self._ready.append((second, ready))

    def _observe(self, second: int, workload: Workload) -> tuple[object, Sight]:
        """Return the situation of a decision, and what it sees."""
        ready, latest = self._ready, second - self.period
        while len(ready) > 1 and ready[1][0] <= latest - max(self._spans):
            ready.popleft()
        then = {span: self._ready_since(latest - span) for span in set(self._spans)}
        sight = Sight(
            tuple(to_milli(signal.value) for signal in self.signals),
            tuple(signal.taken for signal in self.signals),
            tuple(then[span] for span in self._spans),
            self.decider.beacon(self._epoch + second * SECOND),
        )
        sampled = tuple(workload.count_ready_since(taken) for taken in sight.taken)
        covered = tuple(
            workload.count_ready_since(signal.taken - signal.window) if self._metrics[place].is_cpu else 0
            for place, signal in zip(self._places, self.signals, strict=True)
        )
        counted = (workload.replicas, workload.ready, sampled, covered, sight[2:])
        return (workload.version, counted), sight

    def _ready_since(self, begin: int) -> tuple[int, int]:
        """Return the most and the fewest pods that were ready at once since a second."""
        counts: list[int] = []
        for since, count in reversed(self._ready):
            counts.append(count)
            if since <= begin:
                break
        return max(counts), min(counts)

    # -- deciding --------------------------------------------------------------------------------------------

    def decide(self, second: int, workload: Workload) -> int | None:
        """Decide at a second; return the count to write, None for none."""
        self.due = second + self.period
        situation, sight = self._observe(second, workload)
        if self._can_skip(second, situation, sight, workload):
            self._skipped = (second, sight)
            return None
        self.catch_up(workload)
        count = self._compute(second, sight, workload)
        self._last = None if count is not None else (situation, sight)
        return count

    def _compute(self, second: int, sight: Sight, workload: Workload) -> int | None:
        self.decisions += 1
        now = self._epoch + second * SECOND
        readings = [self._reading(place, sight, workload) for place in range(len(self._metrics))]
        count = self.decider.decide(workload, readings, sight.beacon, now)
        self._boundary = self.decider.boundary(now)
        return count

    def catch_up(self, workload: Workload) -> None:
        """Compute the last decision that was skipped: before the next one, and before the pods change."""
        if self._skipped is not None:
            (second, sight), self._skipped = self._skipped, None
            count = self._compute(second, sight, workload)
            assert count is None, "a skipped decision would have changed the count"

    def _reading(self, place: int, sight: Sight, workload: Workload) -> Reading:
        """Return the reading of a metric, as `autoscaler.usage` puts two together."""
        reading = self._measured(place, sight, sight.millis[place], workload)
        if (index := self._faster.get(place)) is None:
            return reading
        faster = self._measured(index, sight, sight.millis[index], workload)
        if not isinstance(faster, PodsReading):
            return reading
        return Ways.beside(reading, faster)

    def _measured(self, index: int, sight: Sight, milli: int | None, workload: Workload) -> Reading:
        """Return the reading of one signal."""
        metric, taken = self._metrics[self._places[index]], sight.taken[index]
        (most, least), then = sight.then[index], self.decider.knows_pods
        return metric.reading(
            milli,
            workload.sampled(taken),
            (self._epoch + taken * SECOND, self.signals[index].window * SECOND),
            ready_then=least if then else None,
            most_then=most if then else 0,
        )

    def _can_skip(self, second: int, situation: object, sight: Sight, workload: Workload) -> bool:
        if (
            self._last is None
            or self._epoch + second * SECOND >= self._boundary
            or self._last[0] != situation
        ):
            return False
        for index, (milli, before) in enumerate(zip(sight.millis, self._last[1].millis, strict=True)):
            if milli == before:
                continue
            if milli is None or before is None:
                return False
            if self._propose(index, milli, second, sight, workload) != self._propose(
                index, before, second, sight, workload
            ):
                return False
        return True

    def _propose(self, index: int, milli: int, second: int, sight: Sight, workload: Workload) -> int | None:
        """Return what a metric proposes at a value of a signal, from a range of values where one is known.

        Of two signals of one metric neither may change what it proposes.
        """
        counted = self._last and self._last[0]
        known = self._proposals.get((index, counted))
        if known is None:
            if len(self._proposals) >= _MOST_SITUATIONS:
                self._proposals.clear()
            known = self._proposals[index, counted] = {}
        for proposed, (low, high) in known.items():
            if low <= milli <= high:
                return proposed
        reading = self._measured(index, sight, milli, workload)
        proposal = None
        if not isinstance(reading, Unavailable):
            spec, pods, now = self.decider.spec, workload.pods, self._epoch + second * SECOND
            situation = Situation(workload.replicas, len(pods), pods, spec.band, spec.settings, now)
            outcome = spec.metrics[self._places[index]].propose(reading, situation)
            if not isinstance(outcome, Unavailable) and not outcome.withheld:
                proposal = outcome.replicas
        low, high = known.get(proposal, (milli, milli))
        known[proposal] = (min(low, milli), max(high, milli))
        return proposal

    # -- skipping time ---------------------------------------------------------------------------------------

    def idle_until(self, second: int, workload: Workload) -> float:
        """Return the next second with a scrape or a decision that matters if nothing changes until then."""
        soon = min(self.due, *(signal.due for signal in self.signals))
        if self._last is None or not all(signal.is_settled(workload.ready) for signal in self.signals):
            return soon
        situation, sight = self._observe(second, workload)
        seen = self._last[1] if self._skipped is None else self._skipped[1]
        if situation != self._last[0] or len(self._ready) > 1 or seen.millis != sight.millis:
            return soon
        boundary = -((self._epoch - self._boundary) // SECOND)
        if not self.decider.knows_pods:  # else an HPA may read its floor, which ends between its decisions
            boundary = self.due + -(-max(0, boundary - self.due) // self.period) * self.period
        return max(second + 1, boundary)

    def skip(self, second: int) -> None:
        """Do everything before a second at once; `idle_until` is not before it."""
        for signal in self.signals:
            signal.skip(second)
        if self.due < second:
            assert self._last is not None
            last = self.due + (second - 1 - self.due) // self.period * self.period
            seen = self._last[1] if self._skipped is None else self._skipped[1]
            self._skipped = (last, seen._replace(taken=tuple(signal.taken for signal in self.signals)))
            self.due = last + self.period
