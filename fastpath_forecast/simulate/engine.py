"""Runs one policy over a load, second by second.

In each second: pods whose start-up has ended serve; the load of the second is served or waits; the scrapes
that are due measure it; the decisions that are due see what was scraped so far. A count that is written takes
effect in the next second. Seconds in which nothing of that changes are counted at once.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate import elasticity
from fastpath_forecast.simulate.deciders import Decider, ScalerDecider
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.schedules import NO_SCHEDULE, SimulatedSchedule
from fastpath_forecast.simulate.workload import Workload

EPOCH = 1_700_000_000 * SECOND
"""Second 0 of a simulation without schedules, so that results do not depend on the day."""


@dataclass(slots=True)
class Figures:
    """Sums over the seconds of a run; pod seconds are replicas times seconds.

    `need` is the load in pods, not rounded. Pods that are starting are in `pod_seconds` and not in the ready
    ones, which `shortage` and `excess` compare with the need. `gap_seconds` are seconds without a known load,
    which count in `pod_seconds` alone. `under` and `over` are the sums of `elasticity`, in seconds.
    `busy_ended` is what the pods that scale-downs remove served in their last second: their part of the need.
    `busy_ended_idle` is the same if the idlest pods go.
    """

    shortage: float = 0.0
    excess: float = 0.0
    pod_seconds: float = 0.0
    need: float = 0.0
    short_seconds: int = 0
    changes: int = 0
    max_replicas: int = 0
    seconds_at_max: int = 0
    backlog_max: float = 0.0
    gap_seconds: int = 0
    known_seconds: int = 0
    under: float = 0.0
    over: float = 0.0
    under_seconds: int = 0
    over_seconds: int = 0
    busy_ended: float = 0.0
    busy_ended_idle: float = 0.0

    @property
    def theta_under(self) -> float:
        return self._percent(self.under)

    @property
    def theta_over(self) -> float:
        return self._percent(self.over)

    @property
    def time_under(self) -> float:
        return self._percent(self.under_seconds)

    @property
    def time_over(self) -> float:
        return self._percent(self.over_seconds)

    def _percent(self, seconds: float) -> float:
        return 100 * seconds / self.known_seconds if self.known_seconds else 0.0

    def add(self, seconds: int, need: float, ready: int, replicas: int, most: int) -> None:
        """Count seconds in which nothing changes; `most` is maxReplicas."""
        self.pod_seconds += seconds * replicas
        self.max_replicas = max(self.max_replicas, replicas)
        if replicas >= most:
            self.seconds_at_max += seconds
        if math.isnan(need):
            self.gap_seconds += seconds
            return
        self.known_seconds += seconds
        self.need += seconds * need
        demand = elasticity.demand(need)
        if demand > ready:
            self.under += seconds * (demand - ready) / demand
            self.under_seconds += seconds
        elif ready > demand:
            self.over += seconds * (ready - demand) / max(demand, 1)
            self.over_seconds += seconds
        if need > ready:
            self.shortage += seconds * (need - ready)
            self.short_seconds += seconds
        else:
            self.excess += seconds * (ready - need)


class CountChange(NamedTuple):
    """A count that was written: at which second, from which count to which, by which chain, and why."""

    second: int
    before: int
    after: int
    by: int
    reason: str = ""


class Observer(Protocol):
    """What is shown each second of a run."""

    def stretch(self, second: int, seconds: int, need: float, ready: int, replicas: int) -> None:
        """See the next seconds, in which nothing changes; the need is NaN in a gap."""

    def decided(self, place: int, decider: Decider) -> None:
        """See a decider after its decision; a decision that was not computed says the same as the last."""


class AnyChain(Protocol):
    """What decides on counts at the seconds `due`, from the loads that it has measured."""

    due: int
    decisions: int
    """How many decisions were computed."""

    @property
    def decider(self) -> Decider | None:
        """What an observer can read a trace of decisions from."""

    @property
    def reason(self) -> str:
        """Why the last decision asked for its count."""

    def measure(self, second: int, loads: Sequence[float], ready: int) -> None:
        """Do what is due of scrapes at a second."""

    def decide(self, second: int, workload: Workload) -> int | None:
        """Return the count to write, None for none."""

    def observe(self, count: int, second: int) -> None:
        """See a count that another chain has written."""

    def catch_up(self, workload: Workload) -> None:
        """Compute the last decision that was skipped, before the pods change."""

    def idle_until(self, second: int, workload: Workload) -> float:
        """Return the next second with a scrape or a decision that matters if nothing changes until then."""

    def skip(self, second: int) -> None:
        """Do everything before a second at once; `idle_until` is not before it."""


class Demand:
    """The loads of all metrics, and the backlog of each."""

    def __init__(self, loads: Sequence[Load], capacities: Sequence[float], *, carries: bool) -> None:
        """One pod serves `capacities` of the loads in a second; with `carries` what is not served waits."""
        self._values = [load.values for load in loads]
        self._ends = [array("q", [*load.starts[1:], load.seconds]) for load in loads]
        self._places = [0] * len(loads)
        self._capacities = capacities
        self._carries = carries
        self.seconds = min(load.seconds for load in loads)
        self._waiting = [0.0] * len(loads)
        self.loads = [load.values[0] for load in loads]

    @property
    def need(self) -> float:
        """The pods that serve the load of the second, NaN in a gap of any load."""
        return max(
            (load / capacity for load, capacity in zip(self.loads, self._capacities, strict=True)),
            key=lambda need: (math.isnan(need), need),
        )

    @property
    def next_change(self) -> int:
        """The second at which a load changes next."""
        return min(ends[place] for ends, place in zip(self._ends, self._places, strict=True))

    def advance(self, second: int) -> None:
        for index, ends in enumerate(self._ends):
            place = self._places[index]
            while ends[place] <= second:
                place += 1
            self._places[index] = place
            self.loads[index] = self._values[index][place]

    def serve(self, ready: int, seconds: int) -> float:
        """Serve seconds of the same load; return the most that waited of any metric."""
        if not self._carries:
            return 0.0
        most = 0.0
        for index, load in enumerate(self.loads):
            if not math.isnan(load):
                surplus = load - ready * self._capacities[index]
                before = self._waiting[index]
                after = self._waiting[index] = max(0.0, before + seconds * surplus)
                most = max(most, before + surplus, after)
        return most


class Run:
    """One run of a policy within maxReplicas, `most`, and a schedule. `epoch` is second 0 in nanoseconds."""

    def __init__(
        self,
        demand: Demand,
        workload: Workload,
        chains: Sequence[AnyChain],
        most: int,
        *,
        epoch: int = EPOCH,
        schedule: SimulatedSchedule = NO_SCHEDULE,
        observer: Observer | None = None,
    ) -> None:
        self.figures = Figures()
        self.changes: list[CountChange] = []
        self._demand = demand
        self._workload = workload
        self._chains = chains
        self._most = most
        self._epoch = epoch
        self._schedule = schedule
        self._observer = observer

    @property
    def decisions(self) -> int:
        """How many decisions were computed."""
        return sum(chain.decisions for chain in self._chains)

    def run(self) -> Figures:
        """Run to the end of the load, and return the figures."""
        second, end = 0, self._demand.seconds
        demand, workload = self._demand, self._workload
        while second < end:
            demand.advance(second)
            if workload.next_ready <= second:
                self._catch_up()
                workload.advance(second)
            self._count(second, 1)
            for chain in self._chains:
                chain.measure(second, demand.loads, workload.ready)
            for place, chain in enumerate(self._chains):
                if chain.due == second:
                    self._decide(second, place, chain)
            after = self._next(second, end)
            if after > second + 1:
                self._count(second + 1, after - second - 1)
                for chain in self._chains:
                    chain.skip(after)
            second = after
        return self.figures

    def _count(self, second: int, seconds: int) -> None:
        need, ready, replicas = self._demand.need, self._workload.ready, self._workload.replicas
        _, most = self._schedule.limits(0, self._most, self._epoch + second * SECOND)
        self.figures.add(seconds, need, ready, replicas, most)
        self.figures.backlog_max = max(self.figures.backlog_max, self._demand.serve(ready, seconds))
        if self._observer is not None:
            self._observer.stretch(second, seconds, need, ready, replicas)

    def _next(self, second: int, end: int) -> int:
        """Return the next second at which anything may change."""
        if self.changes and self.changes[-1].second == second:
            return second + 1  # the first second with the new count: signals note its ready pods
        # The floor that an HPA reads changes with the bounds of the schedule.
        bounded = (self._schedule.next_change(self._epoch + second * SECOND) - self._epoch) // SECOND
        after = min(end, self._demand.next_change, self._workload.next_ready, bounded)
        for chain in self._chains:
            if after <= second + 1:
                break
            after = min(after, chain.idle_until(second, self._workload))
        return max(second + 1, math.floor(after))

    def _decide(self, second: int, place: int, chain: AnyChain) -> None:
        before = self._workload.replicas
        count = chain.decide(second, self._workload)
        if self._observer is not None and chain.decider is not None:
            self._observer.decided(place, chain.decider)
        if count is None or count == before:
            return
        self._catch_up()
        now, scaler = self._epoch + second * SECOND, self._chains[-1].decider
        costs = scaler.rank(self._workload, count, now) if isinstance(scaler, ScalerDecider) else ()
        ended, need = self._workload.scale(count, second, costs), self._demand.need
        self.figures.busy_ended += 0.0 if math.isnan(need) else ended * need
        self.changes.append(CountChange(second, before, count, place, chain.reason))
        self.figures.changes += 1
        for other in self._chains:
            if other is not chain:
                other.observe(count, second)

    def _catch_up(self) -> None:
        for chain in self._chains:
            chain.catch_up(self._workload)
