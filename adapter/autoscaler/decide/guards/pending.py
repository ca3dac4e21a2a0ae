"""Pending capacity: a queue counts less what pods that are starting would have worked off.

With a target for each pod, the HPA arithmetic asks for queue / target pods. While those pods start, the queue
grows by what they would work off if they were Ready, and that growth asks for more pods, although enough are
starting: the pods multiply with the start-up time. The remedy is a Smith predictor. Each metric with the
option has a *credit*, what the pending pods would have worked off so far, and raises are decided from the
queue less the credit: the queue as it would be had the pods been Ready at once.

- The credit grows by the throughput of a pod, for each pending pod and second. A raise adds *slots*, one for
  each replica that it asks for. A slot is pending until a pod is Ready for it, and for the learned start-up
  time at most, of which `MOST_WITHIN` counts. It is as old as its raise on the scaler's own clock, and not as
  old as a pod: a pod that restarts, or is evicted and made again, takes no new slot.
- The credit stays once the pods are Ready, because the backlog that they found is no new demand. It leaks
  with a time constant of `LEAK` start-up times, so working off the backlog costs about a tenth of the pods
  that were pending.
- A slot without a Ready pod is overdue `HOLD` after the start-up time. The credit of all slots without a
  Ready pod is withdrawn then. So pods that never become Ready withhold a raise for a start-up time and `HOLD`
  at most: a slot that is not overdue is younger, and without a slot they withhold nothing.
- The credit never exceeds what the queue has beyond the target of the replicas that are asked for, so a queue
  that asks for no raise ends it. Nor does it outlast zero replicas.

The option only withholds raises. A count that the metric would keep or lower stays as it is, and a raise
becomes at most what exact arithmetic asks for.

It needs a value of the whole target and a target for each pod: an Object or External metric with
averageValue. A target of type Value multiplies the ready pods by a ratio, so a queue winds it up even if pods
start at once. The values of Pods and resource metrics are no queue that other pods work off.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.calculator import Compute, Proposal, Situation
from adapter.autoscaler.decide.numbers import INT64_MAX
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, Observation, is_active
from adapter.autoscaler.decide.trace import Step
from adapter.bounds.timeline import MOST_LEAD
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

MOST_WITHIN = MOST_LEAD * SECOND
"""Of a longer start-up time so much counts.

The learned time is that of the slowest pods, and one that waited for a node may have taken an hour.
"""

HOLD = 60 * SECOND
"""How long a slot keeps its credit after the start-up time: a pod may take longer than those before it."""

MOST_SLOTS = 64
"""How many slots of different age are told apart."""


class Slots(NamedTuple):
    """What one raise has asked for and no pod is Ready for yet: since when, and how many pods."""

    since: int
    pods: int


class PendingState(NamedTuple):
    """What is remembered between two decisions; `at` is the time of the last one.

    `credited` is what each metric counts less, in thousandths, by its name. `replicas` was the count then.
    `pods` were pending, None if that is unknown: no start-up time was learned, or the pods were not known for
    certain. `slots` are those of the raises that were seen, the oldest first; None at the beginning of a
    term, which knows the pods but not their raises.
    """

    at: int
    credited: Mapping[str, float]
    pods: int | None = None
    replicas: int = 0
    slots: tuple[Slots, ...] | None = None


def follow(
    state: PendingState | None, throughputs: Mapping[str, int], observation: Observation, now: int
) -> PendingState:
    """Return the state at `now`, before the values of the metrics are known.

    `throughputs` are what one Ready pod works off in a second, in thousandths, by the name of the metric.
    """
    within, replicas = observation.ready_within, observation.replicas
    if within is not None:
        within = min(within, MOST_WITHIN)
    before = state or PendingState(now, {})
    if not replicas:
        return PendingState(now, {}, 0, replicas, ())
    elapsed = max(0, now - before.at)
    # The credit leaks, so that one that is wrong does not withhold a raise for good.
    left = math.exp(-elapsed / (LEAK * (within or ASSUMED)))
    credited = {name: before.credited.get(name, 0.0) * left for name in throughputs}
    slots = _with_count(before, replicas, now)
    # Without a start-up time or a sure count of pods nothing is added, and what was credited only leaks.
    if within is None or observation.unsure_of_pods:
        return PendingState(now, credited, None, replicas, slots)
    slots = _unready(_inherited_slots(observation, within, now) if slots is None else slots, observation)
    unready = sum(min(max(0, now - since), within) * pods for since, pods in slots) / SECOND
    if before.pods is None:
        # What pods pend for now is a lower bound of the credit, whatever is known of the time before.
        credited = {name: max(credited[name], rate * unready) for name, rate in throughputs.items()}
    else:
        # The pods that were pending then, not those of now: a change is decided at once.
        pod_seconds = before.pods * min(elapsed, within) / SECOND
        credited = {name: credited[name] + rate * pod_seconds for name, rate in throughputs.items()}
    kept = tuple(slot for slot in slots if now - slot.since < within + HOLD)
    if len(kept) < len(slots):
        # Of all slots, not of the overdue ones alone: slots of later raises would hide the same backlog.
        credited = {name: max(0.0, credited[name] - rate * unready) for name, rate in throughputs.items()}
    pending = sum(pods for since, pods in kept if now - since < within)
    return PendingState(now, credited, pending, replicas, kept)


def written(state: PendingState, replicas: int) -> PendingState:
    """Return the state after its decision was written: the count is asked for since then."""
    pods = None if state.pods is None else max(0, state.pods + replicas - state.replicas)
    return state._replace(pods=pods, replicas=replicas, slots=_with_count(state, replicas, state.at))


def _with_count(state: PendingState, replicas: int, now: int) -> tuple[Slots, ...] | None:
    """Return the slots when so many replicas are asked for, at most `MOST_SLOTS`."""
    slots, more = state.slots, replicas - state.replicas
    if slots is None or not more:
        return slots
    if more < 0:
        # A scale-down takes pods that are not Ready first.
        return _limited(slots, sum(pods for _, pods in slots) + more)
    slots = (*slots, Slots(now, more))
    if len(slots) <= MOST_SLOTS:
        return slots
    # The two whose raises are closest become one, as old as the older one.
    later = min(range(1, len(slots)), key=lambda place: slots[place].since - slots[place - 1].since)
    (since, pods), (_, added) = slots[later - 1 : later + 1]
    return (*slots[: later - 1], Slots(since, pods + added), *slots[later + 1 :])


def _limited(slots: Iterable[Slots], pods: int) -> tuple[Slots, ...]:
    """Return the first slots, of so many pods at most."""
    kept = []
    for slot in slots:
        if (taken := min(slot.pods, pods)) > 0:
            kept.append(Slots(slot.since, taken))
            pods -= taken
    return tuple(kept)


def _unready(slots: Sequence[Slots], observation: Observation) -> tuple[Slots, ...]:
    """Return the slots without a Ready pod: pods become Ready in the order of the raises."""
    ready = sum(pod.running_and_ready for pod in filter(is_active, observation.pods))
    return _limited(reversed(slots), observation.replicas - ready)[::-1]


def _inherited_slots(observation: Observation, within: int, now: int) -> tuple[Slots, ...]:
    """Return the slots of pods whose raises are not known: each is as old as its pod, which the API tells."""
    time = observation.time_of_day(now)
    created = Counter(
        now - min(time - pod.created, within + HOLD)
        for pod in filter(is_active, observation.pods)
        if not pod.running_and_ready and pod.created is not None
    )
    return tuple(Slots(min(since, now), pods) for since, pods in sorted(created.items()))


class Queue(NamedTuple):
    """A metric with pending capacity: its name, and its target for each pod in thousandths."""

    name: str
    target: int


def withhold(
    queue: Queue,
    proposal: Proposal,
    reading: ObjectReading | ExternalReading,
    compute: Compute,
    state: PendingState,
    observation: Observation,
    situation: Situation,
) -> tuple[Proposal, float]:
    """Return a proposal with at most the raise that the queue less its credit asks for, and the credit left.

    `compute` computed the proposal from the reading. Value and average of the proposal stay as measured.
    """
    name, current = queue.name, situation.replicas
    value = reading.value if isinstance(reading, ObjectReading) else min(sum(reading.values), INT64_MAX)
    # The smallest value for which exact arithmetic keeps the count: within tolerance, or rounded up to it.
    least = queue.target * min(situation.band.low * current, current - 1)
    credit = max(0.0, min(state.credited.get(name, 0.0), value - least))
    if proposal.replicas <= current or not current:
        return proposal, credit
    steps, why = proposal.steps, ""
    if observation.ready_within is None:
        why = "no start-up time of the pods is known yet"
    elif observation.unsure_of_pods:
        why = f"the pods may be out of date: {observation.unsure_of_pods}"
    if why:
        message = f"pending pods are not counted, because {why}"
        steps = (*steps, Step("pendingUnknown", (name, message)))
    if not (whole := int(credit)):
        return msgspec.structs.replace(proposal, steps=steps), credit
    rest = value - whole
    if isinstance(reading, ObjectReading):
        reading = msgspec.structs.replace(reading, value=rest)
    else:
        reading = msgspec.structs.replace(reading, values=(rest,))
    reduced = compute(reading, situation)
    assert isinstance(reduced, Proposal)  # a target for each pod needs no pods
    replicas = min(proposal.replicas, max(current, reduced.replicas))
    values = name, value, whole, rest, state.pods, replicas, proposal.replicas
    steps = (*steps, Step("pending", values))
    return msgspec.structs.replace(proposal, replicas=replicas, steps=steps), credit


# -- the record for the next owner --------------------------------------------------------------------------


def list_credits(state: PendingState | None, set_by: int = 0) -> tuple[BacklogCredit, ...]:
    """Return the credits for the status, with times of day: whole thousandths above zero."""
    if state is None:
        return ()
    return tuple(
        BacklogCredit(name, from_milli(int(credit)), FineInstant(state.at + set_by))
        for name, credit in state.credited.items()
        if credit >= 1
    )


def inherited_state(
    credited: Iterable[BacklogCredit] | None, now: int, set_by: int = 0
) -> PendingState | None:
    """Return the state that a status tells at `now`; a time in the future counts as now."""
    by_metric = {known.metric: known for known in credited or () if known.credit.sign == 1}
    if not by_metric:
        return None
    at = min(now, max(known.time for known in by_metric.values()) - set_by)
    return PendingState(int(at), {name: float(known.credit.milli) for name, known in by_metric.items()})
