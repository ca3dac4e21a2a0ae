"""The autoscalers of a simulation: an HPA with its controller, and the scaler of Fastpath, alone or as boost.

Each holds the state that the production code keeps, and calls that code: `decision.decide` for the HPA
controller; `guarded`, `memory` and `boost` for Fastpath. `decide` returns the count to write, None for
none. What a decision reads of another autoscaler is its `beacon`.
"""

from collections.abc import Callable, Sequence

import msgspec

from adapter.autoscaler.decide import decision, guarded
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards import conflicts, removal
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.guards.conflicts import ConflictState, ScaleObservation
from adapter.autoscaler.decide.guards.lost_values import LATELY
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import NO_STATUS, ExternalReading, Observation, Reading
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from fastpath_forecast.simulate.ranking import Ranking
from fastpath_forecast.simulate.schedules import NO_SCHEDULE, SimulatedSchedule
from fastpath_forecast.simulate.workload import SELECTOR, Workload

NATIVE_MANAGER = "kube-controller-manager"
_AUTOSCALER = ("simulated/autoscaler",)


def next_boundary(spec: PreparedSpec, history: History, now: int) -> int:
    """Return the first instant after `now` at which the history alone may change a decision, in nanoseconds.

    That is when a recommendation leaves a window, or a change leaves the period of a policy. What was
    recommended now does not leave it: the decisions until then recommend the same.
    """
    if spec.throughputs:
        return now + 1  # the credit of pending capacity changes all the time
    high, low = history.recommendations.high, history.recommendations.low
    periods: set[int] = set()
    if spec.up is None or spec.down is None:
        windows = {spec.settings.downscale_stabilization + 1}  # an entry of exactly that age still counts
    else:
        windows = {spec.up.window, spec.down.window}
        periods = {policy.period for rules in (spec.up, spec.down) for policy in rules.policies}
    last = -1 if high and high[-1].at == now else None
    ends = [entry.at + window for entry in (*high[:last], *low[:last]) for window in windows]
    ends += [event.at + period for event in (*history.ups, *history.downs) for period in periods]
    ends += [since + LATELY for known in history.reporting.values() for since in known.lost.values()]
    return min((end for end in ends if end > now), default=now + histories.KEPT)


def _observe(
    workload: Workload,
    readings: Sequence[Reading],
    status: HorizontalPodAutoscalerStatus,
    within: int | None = None,
    idle: int | None = None,
) -> Observation:
    """Return what a decision sees; `within` is the learned start-up time, and `idle` pods may go at once."""
    return Observation(
        workload.replicas,
        len(workload.pods),
        SELECTOR,
        workload.pods,
        readings,
        status=status,
        selected_by=_AUTOSCALER,
        ready_within=within,
        idle=idle,
    )


class NativeDecider:
    """An HPA and its controller. The beacon of a boosted HPA is the floor that it reads."""

    knows_pods = False
    """Whether readings tell how many pods were ready when the values were measured."""

    holds_floor = False
    """Whether it holds a raised count by a floor."""

    def __init__(self, spec: PreparedSpec, with_floor: PreparedSpec | None = None) -> None:
        """`with_floor` is the spec with the metric of the floor as its last, for a boosted HPA."""
        self.spec = spec
        self._whole = with_floor or spec
        self._history = History()
        self.status = NO_STATUS
        self.last: Decision | None = None
        """The last decision that was computed."""
        self.read_floor: Callable[[int], int] = lambda _: 0

    def beacon(self, now: int) -> int:
        return self.read_floor(now)

    def decide(self, workload: Workload, readings: Sequence[Reading], beacon: int, now: int) -> int | None:
        if self._whole is not self.spec:
            readings = (*readings, ExternalReading((beacon * 1000,)))
        observation = _observe(workload, readings, self.status)
        outcome = decision.decide(self._whole, observation, self._history, now)
        self._history, self.status, self.last = outcome.history, outcome.status, outcome
        return outcome.replicas if outcome.rescale else None

    def observe(self, replicas: int, now: int) -> None:
        """Do nothing: the controller does not remember the counts of other clients."""

    def boundary(self, now: int) -> int:
        return next_boundary(self._whole, self._history, now)


class ScalerDecider:
    """The scaler of Fastpath for a FastPathAutoscaler."""

    knows_pods = True

    def __init__(
        self,
        spec: PreparedSpec,
        constraints: Constraints,
        replicas: int,
        within: int,
        schedule: SimulatedSchedule = NO_SCHEDULE,
    ) -> None:
        """`within` is the learned start-up time in nanoseconds. The scaler has known the count for long."""
        self.spec = spec
        self._constraints = constraints
        self._within = within
        self._schedule = schedule
        self._memory = Memory(conflicts=ConflictState(known=replicas))
        self.last: Decision | None = None
        self.ranking: Ranking | None = None
        """What ranks the pods for a scale-down, None if it removes the newest."""

    @property
    def holds_floor(self) -> bool:
        return self._memory.boost.floor is not None

    def beacon(self, now: int) -> int:  # noqa: ARG002 - there is nothing beside it
        return 0

    def decide(
        self,
        workload: Workload,
        readings: Sequence[Reading],
        beacon: int,  # noqa: ARG002 - there is nothing beside it
        now: int,
    ) -> int | None:
        scale = ScaleObservation(workload.replicas, conflicts.OWN)
        self._memory, _ = memories.observe(self.spec, self._memory, scale, now)
        return self._decide(workload, readings, self._constraints, now)

    def _decide(
        self, workload: Workload, readings: Sequence[Reading], constraints: Constraints, now: int
    ) -> int | None:
        constraints = msgspec.structs.replace(constraints, bounds=self._schedule.at(now))
        idle = None if self.ranking is None else self.ranking.count_idle(workload)
        observation = _observe(workload, readings, self._memory.status, self._within, idle)
        outcome = guarded.decide(self.spec, observation, self._memory, now, constraints, self.last)
        boost, rules = constraints.boost, constraints.fallback
        self._memory, _ = memories.commit(self._memory, outcome, observation, now, boost, rules)
        self.last = outcome
        return outcome.replicas if outcome.rescale else None

    def observe(self, replicas: int, now: int) -> None:
        """Do nothing: no other client writes the target of a FastPathAutoscaler."""

    def rank(self, workload: Workload, count: int, now: int) -> Sequence[str]:
        """Return the pods with a deletion cost when `count` is written, the lowest first."""
        if self.ranking is None or count >= workload.replicas:
            return ()
        foreseen = self._foresee(workload.replicas, count, now)
        return self.ranking.choose(workload, workload.replicas - foreseen, now)

    def _foresee(self, replicas: int, count: int, now: int) -> int:  # noqa: ARG002 - it is our own count
        """Return the count that was foreseen when `count` is written."""
        return count

    def boundary(self, now: int) -> int:
        """While a raise is held, or pods are waited for, every decision counts: both end by time."""
        if self.holds_floor or self._memory.draining is not None:
            return now + 1
        return min(next_boundary(self.spec, self._memory.history, now), self._schedule.next_change(now))


class BoostDecider(ScalerDecider):
    """The scaler of Fastpath beside an HPA: it raises, and holds what it raised by a floor.

    Its beacon is the count that the status of the HPA shows.
    """

    def __init__(
        self,
        spec: PreparedSpec,
        native: NativeDecider,
        boost: Boost,
        spans: Sequence[int],
        replicas: int,
        within: int,
        schedule: SimulatedSchedule = NO_SCHEDULE,
    ) -> None:
        """`spans` are the nanoseconds that samples of each metric cover; the `schedule` has no maximums."""
        super().__init__(spec, Constraints(BOOST, boost=boost), replicas, within, schedule)
        self._boost = boost
        self._spans = spans
        self._native = native
        native.read_floor = self._read_floor

    def beacon(self, now: int) -> int:  # noqa: ARG002 - the status changes with the decisions of the HPA
        status = self._native.status
        return min(status.current_replicas, status.desired_replicas)

    def decide(self, workload: Workload, readings: Sequence[Reading], beacon: int, now: int) -> int | None:
        boost, spec = self._boost._replace(shown=beacon), self.spec
        boosted = boosting.follow(self._memory.boost, boost, spec.band, now, most=spec.limits.highest)
        self._memory = msgspec.structs.replace(self._memory, boost=boosted)
        count = self._decide(workload, readings, msgspec.structs.replace(self._constraints, boost=boost), now)
        if count is not None:
            floor = boosting.begin(self._memory.boost, workload.replicas, count, boost, self._spans, now)
            self._memory = self._memory.with_floor(msgspec.structs.replace(floor, stands=True))
        return count

    def observe(self, replicas: int, now: int) -> None:
        """Take in a count that the HPA controller has written."""
        scale = ScaleObservation(replicas, NATIVE_MANAGER)
        boost = self._boost._replace(shown=self.beacon(now))
        self._memory, _ = memories.observe(self.spec, self._memory, scale, now, boost)

    def _foresee(self, replicas: int, count: int, now: int) -> int:  # noqa: ARG002 - the HPA's count
        if self.last is None:
            return replicas
        return removal.foresee(self.last, self._memory.boost, replicas, now + self._boost.period)

    def _read_floor(self, now: int) -> int:
        """Return the floor of a raise or of the schedule, the greater of them."""
        highest = self.spec.limits.highest
        raised = floors.floor_of(self._memory.boost.floor, now, highest)
        return max(raised, min(highest, self._schedule.at(now).lowest))


Decider = NativeDecider | ScalerDecider
