"""The replica calculator: from one metric's reading to a replica proposal and the numbers for the status.

It mirrors ``replica_calculator.go`` of Kubernetes 1.36 operation for operation: sums are 64-bit integers that
wrap, ratios are doubles, results are rounded up, and an overflow gives the number that amd64 gives.
`decision` combines the proposals of several metrics; `behavior` applies windows and policies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from adapter.autoscaler.decide import numbers
from adapter.autoscaler.decide import roster as rosters
from adapter.autoscaler.decide.numbers import INT32_MAX, INT64_MAX
from adapter.autoscaler.decide.observation import (
    Band,
    ExternalReading,
    Groups,
    ObjectReading,
    PodsReading,
    Settings,
    Unavailable,
)
from adapter.autoscaler.decide.trace import Step
from adapter.model.objects.pods import PodFacts

_NO_PODS = Unavailable("NoPods", "no pods returned by selector while calculating replica count")
_NO_SAMPLES = Unavailable("NoSamples", "did not receive metrics for targeted pods (pods might be unready)")
_NO_REQUESTS = Unavailable("NoRequests", "no metrics returned matched known pods")


class Situation(msgspec.Struct, frozen=True):
    """What a calculation depends on beside the reading: `replicas` is the scale's spec, `time` of day."""

    replicas: int
    status_replicas: int
    pods: Sequence[PodFacts]
    band: Band
    settings: Settings
    time: int


class Proposal(msgspec.Struct, frozen=True):
    """The replicas that one metric asks for; `utilization` is in per cent, the other values in thousandths.

    `overflowed` says that a sum or a percentage exceeded its integer type, so that `replicas` is meaningless.
    `withheld` is why the proposal must not be used although the value is known, "" if it may be. `lasting` is
    what a stabilization window remembers of it, None for `replicas`: without the pods of the time of the
    sample, which only keep this sample from lowering the count again. `tolerated` says that the ratio is
    within tolerance.
    """

    replicas: int
    steps: tuple[Step, ...]
    utilization: int | None = None
    average: int | None = None
    value: int | None = None
    overflowed: bool = False
    withheld: str = ""
    lasting: int | None = None
    tolerated: bool = False

    @property
    def remembered(self) -> int:
        return self.replicas if self.lasting is None else self.lasting

    def beside(self, other: "Proposal") -> "Proposal":
        """Return the proposal when it counts in place of another, which a window remembers too."""
        lasting = max(self.remembered, other.remembered)
        return self if lasting == self.remembered else msgspec.structs.replace(self, lasting=lasting)


Compute = Callable[[Any, Situation], Proposal | Unavailable]
"""Computes a metric; its argument is the reading of the metric's own type."""


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """An average over pods and its ratio to the target."""

    ratio: float
    average: int
    utilization: int | None = None
    overflowed: bool = False


class UtilizationAverage(msgspec.Struct, frozen=True):
    """The average in per cent of the requests; mirrors ``GetResourceUtilizationRatio``.

    The percentage is truncated before the ratio is formed. Pods without a known request are left out.
    """

    requested: Mapping[str, int]
    target: int

    @property
    def missing_as(self) -> str:
        """What a pod without a sample counts when scaling down, as text."""
        return f"as {max(100, self.target)} % of its request"

    def measure(self, values: Mapping[str, int]) -> Measurement | Unavailable:
        requested = self.requested
        if values.keys() == requested.keys():
            total, request, count = sum(values.values()), sum(requested.values()), len(values)
        else:
            known = [name for name in values if name in requested]
            total, request, count = (
                sum(map(values.__getitem__, known)),
                sum(map(requested.__getitem__, known)),
                len(known),
            )
        hundredfold = total * 100
        total, request = numbers.w64(total), numbers.w64(request)
        if request == 0:
            return _NO_REQUESTS
        quotient = numbers.quot(numbers.w64(total * 100), request)
        share = numbers.w32(quotient)
        overflowed = share != quotient or hundredfold > INT64_MAX
        return Measurement(numbers.ratio(share, self.target), numbers.quot(total, count), share, overflowed)

    def absent(self, pod: str) -> int:
        """Return what a pod without a sample counts when scaling down."""
        return numbers.quot(numbers.w64(self.requested[pod] * max(100, self.target)), 100)

    def step(self, measured: Measurement) -> Step:
        return Step("utilization", (measured.utilization, self.target, measured.ratio))


class ValueAverage(msgspec.Struct, frozen=True, gc=False):
    """The average of all values, those of unknown pods included; mirrors ``GetMetricUsageRatio``."""

    target: int
    memory: bool

    @property
    def missing_as(self) -> str:
        return "as the target"

    def measure(self, values: Mapping[str, int]) -> Measurement | Unavailable:
        total = sum(values.values())
        average = numbers.quot(numbers.w64(total), len(values))
        return Measurement(numbers.ratio(average, self.target), average, None, total > INT64_MAX)

    def absent(self, pod: str) -> int:  # noqa: ARG002 - every pod counts the same
        return self.target

    def step(self, measured: Measurement) -> Step:
        return Step("average", (measured.average, self.target, measured.ratio, self.memory))


PodsAverage = UtilizationAverage | ValueAverage


def resource_replicas(
    reading: PodsReading, target: int, resource: str, container: str, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Compute replicas for a target utilization of a resource, in per cent; mirrors ``GetResourceReplicas``.

    `container` is "" for all containers of a pod.
    """
    counted = _count_pods(reading, situation, cpu=resource == "cpu")
    if isinstance(counted, Unavailable):
        return counted
    requested = rosters.read_requests(situation.pods, resource, container)
    if isinstance(requested, Unavailable):
        return requested
    return _replicas_for_pods(counted, UtilizationAverage(requested, target), reading, metric, situation)


def raw_resource_replicas(
    reading: PodsReading, target: int, resource: str, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Compute replicas for a target value for each pod, in thousandths; `resource` is "" for a custom metric.

    Mirrors ``GetRawResourceReplicas`` and ``GetMetricReplicas``.
    """
    counted = _count_pods(reading, situation, cpu=resource == "cpu")
    if isinstance(counted, Unavailable):
        return counted
    return _replicas_for_pods(counted, ValueAverage(target, resource == "memory"), reading, metric, situation)


_Counted = tuple[Mapping[str, int], Groups]
"""The values to average, and the groups of the pods."""


def _count_pods(reading: PodsReading, situation: Situation, *, cpu: bool) -> _Counted | Unavailable:
    """Group the pods, and drop the values of those that terminate or are not ready."""
    if not situation.pods:
        return _NO_PODS
    groups = rosters.group(situation.pods, reading, situation.settings, situation.time, cpu=cpu)
    values = reading.values
    if groups.unready or groups.ignored:
        left_out = {*groups.unready, *groups.ignored}
        values = {name: value for name, value in values.items() if name not in left_out}
    return (values, groups) if values else _NO_SAMPLES


def _replicas_for_pods(
    counted: _Counted, average: PodsAverage, reading: PodsReading, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Compute replicas from an average over pods; mirrors ``calcPlainMetricReplicas``.

    The base is the number of pods with a sample, not the scale's spec. The status reports the first average,
    before missing and unready pods are added. Our own addition: a pod whose value was left out counts at
    least that value when scaling down, so nothing is scaled down because it was left out.
    """
    values, groups = counted
    # such a pod may have ended since, or be Pending again: then it counts as its group does
    left_out = reading.left_out and {
        name: value for name, value in reading.left_out.items() if name in groups.missing
    }
    measured = average.measure(values)
    if isinstance(measured, Unavailable):
        return measured
    ratio, overflowed = measured.ratio, measured.overflowed
    missing = len(groups.missing) - len(left_out)
    pods = Step("pods", (metric, groups.ready, len(groups.unready), missing, len(groups.ignored)))
    steps: tuple[Step, ...] = (pods, average.step(measured))
    if left_out:
        steps = (pods, Step("leftOut", (len(left_out),)), steps[1])
    # Unready pods count in a scale-up only: as idle, because they may take load once they are Ready.
    up_unready = bool(groups.unready) and ratio > 1.0
    if not up_unready and not groups.missing:
        tolerated = situation.band.holds(ratio)
        replicas, last = _stay(ratio, situation) if tolerated else _multiply(ratio, groups.ready)
        lessened = _count_former_pods(ratio, groups.ready, reading.most_then, replicas, situation)
    else:
        repaired = dict(values)
        # The first ratio decides what a missing pod is worth, always against its direction: on target for a
        # scale-down, idle for a scale-up. So absent values can dampen a change, not cause one.
        if ratio < 1.0:
            repaired.update({name: average.absent(name) for name in groups.missing})
            repaired.update({name: max(repaired[name], value) for name, value in left_out.items()})
        elif ratio > 1.0:
            repaired.update(dict.fromkeys(groups.missing, 0))
        if up_unready:
            repaired.update(dict.fromkeys(groups.unready, 0))
        again = average.measure(repaired)
        if isinstance(again, Unavailable):
            return again
        overflowed = overflowed or again.overflowed
        missing = len(groups.missing) if ratio < 1.0 or ratio > 1.0 else 0
        missing_as = average.missing_as if ratio < 1.0 else "as 0"
        unready = len(groups.unready) if up_unready else 0
        steps += (Step("repair", (missing, missing_as, unready, again.ratio, len(repaired))),)
        tolerated = situation.band.holds(again.ratio)
        if tolerated:
            replicas, last = _stay(again.ratio, situation)
        else:
            replicas, last = _repaired(ratio, again.ratio, len(repaired), situation)
        lessened = _count_former_pods(again.ratio, len(repaired), reading.most_then, replicas, situation)
    lasting = None
    if lessened is not None:
        lasting, (replicas, (*before, last)) = replicas, lessened
        steps = (*steps, *before)
    return Proposal(
        replicas,
        (*steps, last),
        measured.utilization,
        measured.average,
        overflowed=overflowed,
        lasting=lasting,
        tolerated=tolerated,
    )


def _repaired(first: float, ratio: float, pods: int, situation: Situation) -> tuple[int, Step]:
    """Compute replicas after the repair, which may not reverse the direction of the first average."""
    if (first < 1.0 < ratio) or (first > 1.0 > ratio):
        return situation.replicas, Step("turned", (first, ratio, situation.replicas))
    replicas, step = _multiply(ratio, pods)
    if (ratio < 1.0 and replicas > situation.replicas) or (ratio > 1.0 and replicas < situation.replicas):
        return _stay_for_direction(pods, replicas, situation)
    return replicas, step


def _stay(ratio: float, situation: Situation) -> tuple[int, Step]:
    return situation.replicas, Step("tolerated", (ratio, *situation.band, situation.replicas, False))


def _stay_for_direction(pods: int, proposed: int, situation: Situation) -> tuple[int, Step]:
    return situation.replicas, Step("crowded", (pods, proposed, situation.replicas))


def _count_former_pods(
    ratio: float, counted: int, most_then: int, replicas: int, situation: Situation
) -> tuple[int, tuple[Step, ...]] | None:
    """Compute a scale-down with the number of pods at the time of the sample; None if that changes nothing.

    Our own addition, because decisions are more frequent than samples. After a scale-down the sample still
    shows the load per pod from before it. Multiplied by the pods that are left, it would scale down again at
    every decision until the next sample.
    """
    if replicas >= situation.replicas or most_then <= counted:
        return None
    lagging = Step("lagging", (most_then, counted))
    replicas, last = _multiply(ratio, most_then)
    if replicas > situation.replicas:
        replicas, last = _stay_for_direction(most_then, replicas, situation)
    return replicas, (lagging, last)


def _multiply(ratio: float, base: int) -> tuple[int, Step]:
    """Multiply pods by a ratio, and round up.

    Values outside int32 become INT32_MIN, as in Go; minReplicas then raises them.
    """
    product = ratio * base
    replicas = numbers.ceil32(product)
    return replicas, Step("proposal", (base, ratio, product, replicas))


# -- a value for the whole target ----------------------------------------------------------------------------


def ratio_replicas(
    reading: ObjectReading | ExternalReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Compute replicas for a target value of an object, or sum of an external metric.

    The ready pods are multiplied by the ratio, from zero one pod, and tolerance does not apply there. It
    mirrors ``GetObjectMetricReplicas``, ``GetExternalMetricReplicas`` and ``getUsageRatioReplicaCount``.
    Unlike upstream a scale-up counts at most the pods that were ready at the time of the sample
    (`ready_then`): a value that lags behind the pods would overshoot.
    """
    value = reading.value if isinstance(reading, ObjectReading) else _capped_sum(reading.values)
    ratio = numbers.ratio(value, target)
    steps: tuple[Step, ...] = (Step("value", (metric, value, target, None, ratio)),)
    lasting, tolerated = None, situation.replicas != 0 and situation.band.holds(ratio)
    if situation.replicas == 0:
        replicas, last = _multiply(ratio, 1)
    elif tolerated:
        replicas, last = _stay(ratio, situation)
    elif not situation.pods:
        return Unavailable("NoPods", f"unable to calculate ready pods: {_NO_PODS.message}")
    else:
        ready, ready_then = rosters.prepare(situation.pods).ready, reading.ready_then
        base = ready if ready_then is None or ratio <= 1.0 else min(ready_then, ready)
        product = ratio * base
        replicas = INT32_MAX if product > INT32_MAX else numbers.ceil32(product)
        last = Step("proposal", (base, ratio, product, replicas))
        if base < ready:
            steps += (Step("lagging", (base, ready)),)
            if replicas < situation.replicas:
                replicas, last = _stay_for_direction(base, replicas, situation)
        if lessened := _count_former_pods(ratio, ready, reading.most_then, replicas, situation):
            lasting, (replicas, (*before, last)) = replicas, lessened
            steps = (*steps, *before)
    return Proposal(replicas, (*steps, last), value=value, lasting=lasting, tolerated=tolerated)


def _capped_sum(values: Sequence[int]) -> int:
    """Return the sum, capped at INT64_MAX; a negative one wraps."""
    total = 0
    for value in values:
        if value > 0 and total > INT64_MAX - value:
            return INT64_MAX
        total = numbers.w64(total + value)
    return total


# -- a value for each replica --------------------------------------------------------------------------------


def per_pod_replicas(
    reading: ObjectReading | ExternalReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Divide the value of an object, or the sum of an external metric, by the target for each replica.

    It mirrors ``GetObjectPerPodMetricReplicas`` and ``GetExternalPerPodMetricReplicas``. As in the latter, a
    running sum below zero counts as an overflow and ends the addition at INT64_MAX, and the result is capped
    at INT32_MAX.
    """
    if isinstance(reading, ObjectReading):
        usage, cut = reading.value, False
    else:
        usage, cut = 0, True
        for value in reading.values:
            usage = numbers.w64(usage + value)
            if usage < 0:
                usage = INT64_MAX
                break
    exist = situation.status_replicas
    ratio = numbers.ratio(usage, float(target) * float(exist))
    steps: tuple[Step, ...] = (Step("value", (metric, usage, target, exist, ratio)),)
    average = INT64_MAX if cut and float(usage) >= 2.0**63 else numbers.ceil64(numbers.ratio(usage, exist))
    if situation.band.holds(ratio):
        steps = (*steps, Step("tolerated", (ratio, *situation.band, exist, True)))
        return Proposal(exist, steps, average=average, tolerated=True)
    quotient = numbers.ratio(usage, target)
    replicas = INT32_MAX if cut and quotient > INT32_MAX else numbers.ceil32(quotient)
    step = Step("quotient", (usage, target, quotient, replicas))
    return Proposal(replicas, (*steps, step), average=average)
