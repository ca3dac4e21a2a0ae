"""The autoscalers of a simulation: an HPA with its controller, and the scaler of Fastpath, alone or as boost.

Each holds the state that the production code keeps, and calls that code: `decision.decide` for the HPA
controller; `guarded`, `boost` and their memory for Fastpath. `decide` returns the count to write, None for
none. What a decision reads of another autoscaler is its `beacon`.
"""

from collections.abc import Callable, Sequence

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, decision, guarded, lost_values
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.calculator import Situation
from adapter.autoscaler.decide.conflicts import ConflictState, ScaleObservation
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.guarded import Constraints, Memory
from adapter.autoscaler.decide.history import History, RecommendationQueues
from adapter.autoscaler.decide.observation import (
    NO_STATUS,
    ExternalReading,
    Observation,
    Reading,
    Unavailable,
)
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.simulate.schedules import NO_SCHEDULE, SimulatedSchedule
from adapter.simulate.workload import SELECTOR, Workload

NATIVE_MANAGER = "kube-controller-manager"
_AUTOSCALER = ("simulated/autoscaler",)


def next_boundary(spec: PreparedSpec, history: History, now: int) -> int:
    """Return the first instant after `now` at which the history alone may change a decision, in nanoseconds.

    That is when a recommendation leaves a window, or a change leaves the period of a policy.
    """
    if spec.throughputs:
        return now + 1  # the credit of pending capacity changes all the time
    recommendations = history.recommendations
    assert isinstance(recommendations, RecommendationQueues)
    periods: set[int] = set()
    if spec.up is None or spec.down is None:
        windows = {spec.settings.downscale_stabilization + 1}  # an entry of exactly that age still counts
    else:
        windows = {spec.up.window, spec.down.window}
        periods = {policy.period for rules in (spec.up, spec.down) for policy in rules.policies}
    ends = [
        entry.at + window for entry in (*recommendations.high, *recommendations.low) for window in windows
    ]
    ends += [event.at + period for event in (*history.ups, *history.downs) for period in periods]
    if (end := lost_values.next_end(history.reporting, now)) is not None:
        ends.append(end)
    return min((end for end in ends if end > now), default=now + histories.KEPT)


def _observe(
    workload: Workload,
    readings: Sequence[Reading],
    status: HorizontalPodAutoscalerStatus,
    within: int | None = None,
) -> Observation:
    """Return what a decision sees; `within` is the start-up time that the scaler has learned."""
    return Observation(
        workload.replicas,
        len(workload.pods),
        SELECTOR,
        workload.pods,
        readings,
        status=status,
        selected_by=_AUTOSCALER,
        ready_within=within,
    )


def _remember(replicas: int) -> Memory:
    """Return the memory of a scaler that has known the count for long."""
    return Memory(conflicts=ConflictState(known=replicas))


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
        self._history = History(RecommendationQueues())
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
    holds_floor = False

    def __init__(
        self,
        spec: PreparedSpec,
        constraints: Constraints,
        replicas: int,
        within: int,
        schedule: SimulatedSchedule = NO_SCHEDULE,
    ) -> None:
        """`within` is the learned start-up time in nanoseconds."""
        self.spec = spec
        self._within = within
        self._schedule = schedule
        self.last: Decision | None = None
        self._memory = _remember(replicas)
        self._constraints = constraints

    def beacon(self, now: int) -> int:  # noqa: ARG002 - there is nothing beside it
        return 0

    def decide(
        self,
        workload: Workload,
        readings: Sequence[Reading],
        beacon: int,  # noqa: ARG002 - there is nothing beside it
        now: int,
    ) -> int | None:
        constraints = self._constraints._replace(bounds=self._schedule.at(now))
        scale = ScaleObservation(workload.replicas, conflicts.OWN)
        self._memory, _ = guarded.observe(self.spec, self._memory, scale, now, constraints.boost)
        observation = _observe(workload, readings, self._memory.status, self._within)
        outcome = guarded.decide(self.spec, observation, self._memory, now, constraints, self.last)
        self._memory, _ = guarded.commit(self._memory, outcome, observation, now, constraints)
        self.last = outcome
        return outcome.replicas if outcome.rescale else None

    def observe(self, replicas: int, now: int) -> None:
        """Do nothing: no other client writes the target of a FastPathAutoscaler."""

    def boundary(self, now: int) -> int:
        return min(next_boundary(self.spec, self._memory.history, now), self._schedule.next_change(now))


class BoostDecider:
    """The scaler of Fastpath beside an HPA: it raises, and holds what it raised by a floor.

    Its beacon is the count that the status of the HPA shows.
    """

    knows_pods = True

    def __init__(
        self,
        spec: PreparedSpec,
        native: NativeDecider,
        hold: int | None,
        period: int,
        spans: Sequence[int],
        replicas: int,
        within: int,
        schedule: SimulatedSchedule = NO_SCHEDULE,
    ) -> None:
        """`hold` and `period` are those of `Boost`; a sample of each metric covers `spans` nanoseconds.

        The `schedule` has no maximums.
        """
        self.spec = spec
        self.last: Decision | None = None
        self._native = native
        self._schedule = schedule
        native.read_floor = self._read_floor
        self._memory = _remember(replicas)
        self._hold, self._period, self._spans = hold, period, spans
        self._within = within

    def beacon(self, now: int) -> int:  # noqa: ARG002 - the status changes with the decisions of the HPA
        status = self._native.status
        return min(status.current_replicas, status.desired_replicas)

    def decide(self, workload: Workload, readings: Sequence[Reading], beacon: int, now: int) -> int | None:
        boost = self._boost(beacon)
        constraints = Constraints(BOOST, boost=boost, bounds=self._schedule.at(now))
        boosted = boosting.follow(
            self._memory.boost, boost, now, most=self.spec.limits.highest, band=self.spec.band
        )
        self._memory = msgspec.structs.replace(self._memory, boost=boosted)
        observation = _observe(workload, readings, self._memory.status, self._within)
        outcome = guarded.decide(self.spec, observation, self._memory, now, constraints, self.last)
        if outcome.rescale:
            raised = boosting.begin(
                self._memory.boost, workload.replicas, outcome.replicas, boost, self._spans, now
            )
            assert raised.floor is not None
            raised = msgspec.structs.replace(raised, floor=msgspec.structs.replace(raised.floor, stands=True))
            self._memory = msgspec.structs.replace(self._memory, boost=raised)
        self._memory, _ = guarded.commit(self._memory, outcome, observation, now, constraints)
        self.last = outcome
        return outcome.replicas if outcome.rescale else None

    def observe(self, replicas: int, now: int) -> None:
        """Take in a count that the HPA controller has written."""
        scale = ScaleObservation(replicas, NATIVE_MANAGER)
        boost = self._boost(self.beacon(now))
        self._memory, _ = guarded.observe(self.spec, self._memory, scale, now, boost)

    @property
    def holds_floor(self) -> bool:
        return self._memory.boost.floor is not None

    def _boost(self, shown: int) -> Boost:
        return Boost(BOOST, hold=self._hold, shown=shown, period=self._period)

    def _read_floor(self, now: int) -> int:
        """Return the floor of a raise or of the schedule, the greater of them."""
        highest = self.spec.limits.highest
        raised = floors.floor_of(self._memory.boost.floor, now, highest)
        return max(raised, min(highest, self._schedule.at(now).lowest))

    def boundary(self, now: int) -> int:
        """While a raise is held every decision counts: its floor ends by time."""
        if self.holds_floor:
            return now + 1
        return min(next_boundary(self.spec, self._memory.history, now), self._schedule.next_change(now))


Decider = NativeDecider | ScalerDecider | BoostDecider


def propose(spec: PreparedSpec, index: int, workload: Workload, reading: Reading, now: int) -> int | None:
    """Return what one metric proposes, None if its reading is not used."""
    if isinstance(reading, Unavailable):
        return None
    pods = workload.pods
    situation = Situation(workload.replicas, len(pods), pods, spec.band, spec.settings, now)
    outcome = spec.metrics[index].propose(reading, situation)
    return None if isinstance(outcome, Unavailable) or outcome.withheld else outcome.replicas
