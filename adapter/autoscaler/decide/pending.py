"""Pending capacity: a queue counts less what pods that are starting would have worked off.

With a target for each pod, the HPA arithmetic asks for queue / target pods. While those pods start, the queue
grows by what they would work off if they were Ready, and that growth asks for more pods, although enough are
starting: the pods multiply with the start-up time. The remedy is a Smith predictor. Each metric with the
option has a *credit*, what the pending pods would have worked off so far, and raises are decided from the
queue less the credit: the queue as it would be had the pods been Ready at once.

- The credit grows by the throughput of a pod, for each pending pod and second. A pod is pending while it is
  asked for and not Ready, and for the learned start-up time at most: a pod that never becomes Ready must not
  block scaling.
- The credit stays once the pods are Ready, because the backlog that they found is no new demand. It leaks
  with a time constant of `LEAK` start-up times, so working off the backlog costs about a tenth of the pods
  that were pending.
- The credit never exceeds what the queue has beyond the target of the replicas that are asked for, so a queue
  that asks for no raise ends it. Nor does it outlast zero replicas.

The option only withholds raises. A count that the metric would keep or lower stays as it is, and a raise
becomes at most what exact arithmetic asks for.

It needs a value of the whole target and a target for each pod: an Object or External metric with
averageValue. A target of type Value multiplies the ready pods by a ratio, so a queue winds it up even if pods
start at once. The values of Pods and resource metrics are no queue that other pods work off.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler.decide.calculator import Proposal, Situation
from adapter.autoscaler.decide.numbers import INT64_MAX
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, Observation, Unavailable
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND, FineInstant

LEAK = 10
"""The time constant of the leak, in start-up times.

Upstream's tolerance lets a queue exceed its target by a tenth before it raises, and the leak costs another
tenth of the pending pods: together they stay below 1.2 times the pods that are needed.
"""

ASSUMED = 60 * SECOND
"""The start-up time by which an inherited credit leaks while none is learned, as when a term begins."""

_UNCOUNTED = "pending pods are not counted, because"
_UNLEARNED = f"{_UNCOUNTED} no start-up time of the pods is known yet"
_UNSURE = f"{_UNCOUNTED} the pods may be out of date: "

Credits = Mapping[str, float]
"""What each metric counts less, in thousandths, by the name of the metric."""


class PendingState(NamedTuple):
    """What is remembered between two decisions; `at` is the time of the last one.

    `replicas` was the count then, and `raised_at` when it was last raised. `pods` were pending, None if that
    is unknown: the state is that of a former leader, or the pods were not known for certain.
    """

    at: int
    credited: Credits
    pods: int | None = None
    replicas: int = 0
    raised_at: int = 0


def follow(
    state: PendingState | None, throughputs: Mapping[str, int], observation: Observation, now: int
) -> PendingState:
    """Return the state at `now`, before the values of the metrics are known.

    `throughputs` are what one Ready pod works off in a second, in thousandths, by the name of the metric.
    """
    within, replicas = observation.ready_within, observation.replicas
    before = state or PendingState(now, {})
    raised_at = before.raised_at
    if before.pods is not None and replicas > before.replicas:
        raised_at = now
    if not replicas:
        return PendingState(now, {}, 0, replicas, raised_at)
    elapsed = max(0, now - before.at)
    left = math.exp(-elapsed / (LEAK * (within or ASSUMED)))
    credited = {name: before.credited.get(name, 0.0) * left for name in throughputs}
    if within is None or observation.unsure_of_pods:
        return PendingState(now, credited, None, replicas, raised_at)
    ages = _pending_ages(observation, within, raised_at, now)
    if before.pods is None:
        # What pods pend for now is a lower bound of the credit, whatever is known of the time before.
        pod_seconds = sum(ages) / SECOND
        credited = {name: max(credited[name], each * pod_seconds) for name, each in throughputs.items()}
    else:
        # The pods that were pending then, not those of now: a change is decided at once.
        pod_seconds = before.pods * min(elapsed, within) / SECOND
        credited = {name: credited[name] + each * pod_seconds for name, each in throughputs.items()}
    return PendingState(now, credited, len(ages), replicas, raised_at)


def asked(state: PendingState, replicas: int) -> PendingState:
    """Return the state after its decision was written: the count is asked for since then."""
    pods = None if state.pods is None else max(0, state.pods + replicas - state.replicas)
    raised_at = state.at if replicas > state.replicas else state.raised_at
    return state._replace(pods=pods, replicas=replicas, raised_at=raised_at)


def _pending_ages(observation: Observation, within: int, raised_at: int, now: int) -> list[int]:
    """Return for how long each pending pod has been asked for, the newest ones first.

    Pods beyond spec.replicas, the surge of a rollout, replace others: they are no capacity to come.
    """
    existing = ready = 0
    young = []
    for pod in observation.pods:
        if pod.deleting or pod.phase in _ENDED:
            continue
        existing += 1
        if pod.running_and_ready:
            ready += 1
        elif pod.created is not None and (age := max(0, now - pod.created)) < within:
            young.append(age)
    young.sort()
    if (since := now - raised_at) < within:
        young[:0] = [since] * (observation.replicas - existing)
    return young[: max(0, observation.replicas - ready)]


_ENDED = frozenset({"Failed", "Succeeded"})


class Queue(NamedTuple):
    """A metric with pending capacity: its name, and its target for each pod in thousandths."""

    name: str
    target: int

    def kept(self, replicas: int, low: float) -> float:
        """Return the smallest value for which exact arithmetic keeps so many replicas.

        That is within the tolerance, whose lower bound is `low`, or rounds up to the count.
        """
        return self.target * min(low * replicas, replicas - 1)


class CreditedProposal(NamedTuple):
    """The proposal of a metric, and the credit that it has left."""

    proposal: Proposal
    credit: float


Compute = Callable[[Any, Situation], Proposal | Unavailable]


def withhold(
    queue: Queue,
    proposal: Proposal,
    reading: ObjectReading | ExternalReading,
    compute: Compute,
    state: PendingState,
    observation: Observation,
    situation: Situation,
) -> CreditedProposal:
    """Return the proposal of a metric with at most the raise that the queue less its credit asks for.

    `compute` computed the proposal from the reading. Value and average of the proposal stay as measured.
    """
    name = queue.name
    value = reading.value if isinstance(reading, ObjectReading) else min(sum(reading.values), INT64_MAX)
    beyond = value - queue.kept(situation.replicas, situation.band.low)
    credit = max(0.0, min(state.credited.get(name, 0.0), beyond))
    if proposal.replicas <= situation.replicas or not situation.replicas:
        return CreditedProposal(proposal, credit)
    steps = proposal.steps
    if observation.ready_within is None:
        steps = (*steps, Step("pendingUnknown", {"metric": name, "message": _UNLEARNED}))
    elif why := observation.unsure_of_pods:
        steps = (*steps, Step("pendingUnknown", {"metric": name, "message": f"{_UNSURE}{why}"}))
    if not (whole := int(credit)):
        return CreditedProposal(proposal._replace(steps=steps), credit)
    rest = value - whole
    if isinstance(reading, ObjectReading):
        reading = msgspec.structs.replace(reading, value=rest)
    else:
        reading = msgspec.structs.replace(reading, values=(rest,))
    reduced = compute(reading, situation)
    assert isinstance(reduced, Proposal)  # a target for each pod needs no pods
    replicas = min(proposal.replicas, max(situation.replicas, reduced.replicas))
    told = {"metric": name, "value": value, "credit": whole, "rest": rest, "pods": state.pods}
    told |= {"replicas": replicas, "exact": proposal.replicas}
    return CreditedProposal(
        proposal._replace(replicas=replicas, steps=(*steps, Step("pending", told))), credit
    )


def shifted(state: PendingState | None, by: int) -> PendingState | None:
    """Return the state on a clock that was set forward by so many nanoseconds (back where negative)."""
    return None if state is None else state._replace(at=state.at + by, raised_at=state.raised_at + by)


# -- the record for the next leader --------------------------------------------------------------------------


def credits_of(state: PendingState | None) -> tuple[BacklogCredit, ...]:
    """Return the credits for the status: whole thousandths above zero."""
    if state is None:
        return ()
    return tuple(
        BacklogCredit(name, from_milli(int(credit)), FineInstant(state.at))
        for name, credit in state.credited.items()
        if credit >= 1
    )


def state_of(credited: Iterable[BacklogCredit] | None, now: int) -> PendingState | None:
    """Return the state that a status tells at `now`; a time in the future counts as now."""
    listed = {each.metric: each for each in credited or () if each.credit.sign == 1}
    if not listed:
        return None
    at = min(now, max(each.time for each in listed.values()))
    return PendingState(int(at), {name: float(each.credit.milli) for name, each in listed.items()})
