"""The replica calculator: one metric's reading to a replica proposal and the numbers for the status.

The law is ``replica_calculator.go`` of Kubernetes 1.36, operation for operation: sums are 64-bit integers that wrap, ratios are
doubles, what becomes an integer does so by rounding up, and where upstream overflows the result is what amd64 makes of it.
Which metrics there are and what follows from several of them is `decision`'s; rates and windows are `behavior`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from adapter.autoscaler.decide import numbers
from adapter.autoscaler.decide import readiness as podgroups
from adapter.autoscaler.decide.numbers import INT32_MAX, INT64_MAX
from adapter.autoscaler.decide.observation import (
    Band,
    ExternalReading,
    ObjectReading,
    PodsReading,
    Settings,
    Unavailable,
)
from adapter.autoscaler.decide.trace import Step
from adapter.model.pods import PodFacts

_NO_PODS = Unavailable("NoPods", "no pods returned by selector while calculating replica count")
_NO_SAMPLES = Unavailable("NoSamples", "did not receive metrics for targeted pods (pods might be unready)")
_NO_REQUESTS = Unavailable("NoRequests", "no metrics returned matched known pods")


class Situation(NamedTuple):
    """What all calculators look at beside the reading: `replicas` is what the scale asks for, `status_replicas` what it has."""

    replicas: int
    status_replicas: int
    pods: Sequence[PodFacts]
    band: Band
    settings: Settings
    now: int


class Proposal(NamedTuple):
    """The replicas that one metric asks for, and what it measured: `utilization` in per cent, the others in thousandths.

    `overflowed` says that a sum or a percentage had no place in its bits, so that the replicas mean nothing.
    """

    replicas: int
    steps: tuple[Step, ...]
    utilization: int | None = None
    average: int | None = None
    value: int | None = None
    overflowed: bool = False


class Measured(NamedTuple):
    """An average over pods and its ratio to the target."""

    ratio: float
    average: int
    utilization: int | None = None
    overflowed: bool = False


class Gauge(Protocol):
    """How an average over pods is taken and what a pod without a sample counts on the way down."""

    @property
    def stand_in(self) -> str:
        """Say in words what a missing pod counts on the way down."""
        ...

    def measure(self, values: Mapping[str, int]) -> Measured | Unavailable:
        """Average values of pods."""
        ...

    def absent(self, pod: str) -> int:
        """Return what a pod without a sample counts on the way down."""
        ...

    def step(self, measured: Measured) -> Step:
        """Return the step that tells of the average."""
        ...


class Utilization(NamedTuple):
    """Average in per cent of the requests. The percentage is truncated before the ratio is formed; unknown pods are left out."""

    requested: Mapping[str, int]
    target: int

    @property
    def stand_in(self) -> str:
        """Say in words what a missing pod counts on the way down."""
        return f"as {max(100, self.target)} % of its request"

    def measure(self, values: Mapping[str, int]) -> Measured | Unavailable:
        """Average values of pods."""
        requested = self.requested
        total = asked = count = 0
        for name, value in values.items():
            if name in requested:
                total += value
                asked += requested[name]
                count += 1
        hundredfold = total * 100
        total, asked = numbers.w64(total), numbers.w64(asked)
        if asked == 0:
            return _NO_REQUESTS
        quotient = numbers.quot(numbers.w64(total * 100), asked)
        share = numbers.w32(quotient)
        overflowed = share != quotient or hundredfold > INT64_MAX
        return Measured(numbers.ratio(share, self.target), numbers.quot(total, count), share, overflowed)

    def absent(self, pod: str) -> int:
        """Return what a pod without a sample counts on the way down."""
        return numbers.quot(numbers.w64(self.requested[pod] * max(100, self.target)), 100)

    def step(self, measured: Measured) -> Step:
        """Return the step that tells of the average."""
        return Step(
            "utilization", {"measured": measured.utilization, "target": self.target, "ratio": measured.ratio}
        )


class Average(NamedTuple):
    """Plain average over all values, unknown pods included; `memory` is said in bytes."""

    target: int
    memory: bool

    @property
    def stand_in(self) -> str:
        """Say in words what a missing pod counts on the way down."""
        return "as the target"

    def measure(self, values: Mapping[str, int]) -> Measured | Unavailable:
        """Average values of pods."""
        total = sum(values.values())
        average = numbers.quot(numbers.w64(total), len(values))
        return Measured(numbers.ratio(average, self.target), average, None, total > INT64_MAX)

    def absent(self, pod: str) -> int:  # noqa: ARG002 - every pod counts the same here
        """Return what a pod without a sample counts on the way down."""
        return self.target

    def step(self, measured: Measured) -> Step:
        """Return the step that tells of the average."""
        facts = {
            "measured": measured.average,
            "target": self.target,
            "ratio": measured.ratio,
            "bytes": self.memory,
        }
        return Step("average", facts)


def by_utilization(
    reading: PodsReading, target: int, resource: str, container: str, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas for a resource held at `target` per cent of what the pods, or one container in each, request."""
    counted = _counted(reading, situation, cpu=resource == "cpu")
    if isinstance(counted, Unavailable):
        return counted
    requested = _requested(situation.pods, resource, container)
    if isinstance(requested, Unavailable):
        return requested
    return _by_pods(counted, Utilization(requested, target), reading.most_then, metric, situation)


def _requested(pods: Iterable[PodFacts], resource: str, container: str) -> dict[str, int] | Unavailable:
    """Return the requests of all pods, those that do not count included; one that has none fails the metric."""
    requested: dict[str, int] = {}
    for pod in pods:
        request = podgroups.request_of(pod, resource, container)
        if isinstance(request, Unavailable):
            return request
        requested[pod.name] = request
    return requested


def by_average(
    reading: PodsReading, target: int, resource: str, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas for a value held at `target` thousandths for each pod; `resource` is empty for a custom metric."""
    counted = _counted(reading, situation, cpu=resource == "cpu")
    if isinstance(counted, Unavailable):
        return counted
    return _by_pods(counted, Average(target, resource == "memory"), reading.most_then, metric, situation)


class _Counted(NamedTuple):
    """The values that count, and the groups of the pods."""

    values: Mapping[str, int]
    groups: podgroups.Groups


def _counted(reading: PodsReading, situation: Situation, *, cpu: bool) -> _Counted | Unavailable:
    """Leave out the values of pods that are going or not ready."""
    if not situation.pods:
        return _NO_PODS
    groups = podgroups.group_pods(situation.pods, reading, situation.settings, situation.now, cpu=cpu)
    values = reading.values
    if groups.unready or groups.ignored:
        left_out = {*groups.unready, *groups.ignored}
        values = {name: value for name, value in values.items() if name not in left_out}
    return _Counted(values, groups) if values else _NO_SAMPLES


def _by_pods(
    counted: _Counted, gauge: Gauge, most_then: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas from an average over pods, whose number is the base: never what the scale asks for.

    What the first average says is what is reported, whatever the repair does to it.
    """
    values, groups = counted
    measured = gauge.measure(values)
    if isinstance(measured, Unavailable):
        return measured
    ratio, overflowed = measured.ratio, measured.overflowed
    told = {"metric": metric, "ready": groups.ready}
    told |= {"unready": len(groups.unready), "missing": len(groups.missing), "ignored": len(groups.ignored)}
    steps: tuple[Step, ...] = (Step("pods", told), gauge.step(measured))
    up_unready = bool(groups.unready) and ratio > 1.0
    if not up_unready and not groups.missing:
        if situation.band.holds(ratio):
            replicas, last = _stay(ratio, situation)
        else:
            replicas, last = _grow(ratio, groups.ready)
        lessened = _lessen(ratio, groups.ready, most_then, replicas, situation)
    else:
        repaired = dict(values)
        if ratio < 1.0:
            repaired.update({name: gauge.absent(name) for name in groups.missing})
        elif ratio > 1.0:
            repaired.update(dict.fromkeys(groups.missing, 0))
        if up_unready:
            repaired.update(dict.fromkeys(groups.unready, 0))
        again = gauge.measure(repaired)
        if isinstance(again, Unavailable):
            return again
        overflowed = overflowed or again.overflowed
        counts = {
            "missing": len(groups.missing) if ratio < 1.0 or ratio > 1.0 else 0,
            "missingAs": gauge.stand_in if ratio < 1.0 else "as 0",
            "unready": len(groups.unready) if up_unready else 0,
        }
        steps += (Step("repair", {**counts, "ratio": again.ratio, "pods": len(repaired)}),)
        replicas, last = _repaired(ratio, again.ratio, len(repaired), situation)
        lessened = _lessen(again.ratio, len(repaired), most_then, replicas, situation)
    if lessened is not None:
        replicas, (*before, last) = lessened
        steps = (*steps, *before)
    return Proposal(replicas, (*steps, last), measured.utilization, measured.average, overflowed=overflowed)


def _repaired(first: float, ratio: float, pods: int, situation: Situation) -> tuple[int, Step]:
    """Decide from a repaired average: neither it nor the number of pods may turn the direction round."""
    if situation.band.holds(ratio):
        return _stay(ratio, situation)
    if (first < 1.0 < ratio) or (first > 1.0 > ratio):
        return situation.replicas, Step(
            "turned", {"first": first, "ratio": ratio, "replicas": situation.replicas}
        )
    replicas, step = _grow(ratio, pods)
    if (ratio < 1.0 and replicas > situation.replicas) or (ratio > 1.0 and replicas < situation.replicas):
        return _crowd(pods, replicas, situation)
    return replicas, step


def _stay(ratio: float, situation: Situation) -> tuple[int, Step]:
    return situation.replicas, _tolerated(ratio, situation.band, situation.replicas, exist=False)


def _tolerated(ratio: float, band: Band, replicas: int, *, exist: bool) -> Step:
    """Return the step that tells why nothing changes; `exist` where the replicas are those that exist, not those asked for."""
    facts = {"ratio": ratio, "low": band.low, "high": band.high, "replicas": replicas, "exist": exist}
    return Step("tolerated", facts)


def _crowd(pods: int, proposed: int, situation: Situation) -> tuple[int, Step]:
    facts = {"pods": pods, "proposed": proposed, "replicas": situation.replicas}
    return situation.replicas, Step("crowded", facts)


def _lessen(
    ratio: float, counted: int, most_then: int, replicas: int, situation: Situation
) -> tuple[int, tuple[Step, ...]] | None:
    """Return a shrink as it is with the pods that there were when the metric was sampled; None where that changes nothing.

    The pods that a shrink has left still show the load of before it. Multiplied by their own number it would ask for
    fewer pods at every decision, until there is a sample of now.
    """
    if replicas >= situation.replicas or most_then <= counted:
        return None
    lagging = Step("lagging", {"readyThen": most_then, "ready": counted})
    replicas, last = _grow(ratio, most_then)
    if replicas > situation.replicas:
        replicas, last = _crowd(most_then, replicas, situation)
    return replicas, (lagging, last)


def _grow(ratio: float, base: int) -> tuple[int, Step]:
    """Multiply pods by a ratio; what has no place in 32 bits becomes the lowest number there is, which the minimum then raises."""
    product = ratio * base
    replicas = numbers.ceil32(product)
    return replicas, Step(
        "proposal", {"base": base, "ratio": ratio, "product": product, "replicas": replicas}
    )


# --- a value for the whole target ------------------------------------------------------------------------------------


def by_object_value(
    reading: ObjectReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas for the value of an object held at `target` thousandths: the ready pods times the ratio."""
    return _by_value(reading.value, reading, target, metric, situation)


def by_external_value(
    reading: ExternalReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas for the sum of an external metric held at `target` thousandths: the ready pods times the ratio."""
    return _by_value(_capped_sum(reading.values), reading, target, metric, situation)


def _capped_sum(values: Iterable[int]) -> int:
    """Return the sum, cut at the highest 64-bit number, from which nothing is added any more; a negative one wraps."""
    total = 0
    for value in values:
        if value > 0 and total > INT64_MAX - value:
            return INT64_MAX
        total = numbers.w64(total + value)
    return total


def _by_value(
    value: int, reading: ObjectReading | ExternalReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Multiply the ready pods by the ratio; from zero, the ratio alone. Tolerance applies unless the scale asks for zero."""
    ratio = numbers.ratio(value, target)
    steps: tuple[Step, ...] = (
        Step(
            "value", {"metric": metric, "measured": value, "target": target, "replicas": None, "ratio": ratio}
        ),
    )
    if situation.replicas == 0:
        replicas, last = _grow(ratio, 1)
    elif situation.band.holds(ratio):
        replicas, last = _stay(ratio, situation)
    elif not situation.pods:
        return Unavailable("NoPods", f"unable to calculate ready pods: {_NO_PODS.message}")
    else:
        ready, ready_then = podgroups.count_ready(situation.pods), reading.ready_then
        base = ready if ready_then is None or ratio <= 1.0 else min(ready_then, ready)
        product = ratio * base
        replicas = INT32_MAX if product > INT32_MAX else numbers.ceil32(product)
        last = Step("proposal", {"base": base, "ratio": ratio, "product": product, "replicas": replicas})
        if base < ready:
            steps += (Step("lagging", {"readyThen": base, "ready": ready}),)
            if replicas < situation.replicas:
                replicas, last = _crowd(base, replicas, situation)
        if lessened := _lessen(ratio, ready, reading.most_then, replicas, situation):
            replicas, (*before, last) = lessened
            steps = (*steps, *before)
    return Proposal(replicas, (*steps, last), value=value)


# --- a value for each replica ----------------------------------------------------------------------------------------


def by_object_average(
    reading: ObjectReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas so that each has `target` thousandths of an object's value. Within tolerance: as many as there are."""
    return _by_share(reading.value, target, metric, situation, cut=False)


def by_external_average(
    reading: ExternalReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Propose replicas so that each has `target` thousandths of an external metric's sum.

    A running sum below zero is taken for an overflow: it counts as the highest number and nothing is added any more.
    """
    usage = 0
    for value in reading.values:
        usage = numbers.w64(usage + value)
        if usage < 0:
            usage = INT64_MAX
            break
    return _by_share(usage, target, metric, situation, cut=True)


def _by_share(usage: int, target: int, metric: str, situation: Situation, *, cut: bool) -> Proposal:
    """Divide a value by the target for each replica; `cut` where upstream cuts off what integers do not hold."""
    exist = situation.status_replicas
    ratio = numbers.ratio(usage, float(target) * float(exist))
    steps = (_shared(metric, usage, target, exist, ratio),)
    average = INT64_MAX if cut and float(usage) >= 2.0**63 else numbers.ceil64(numbers.ratio(usage, exist))
    if situation.band.holds(ratio):
        return Proposal(
            exist, (*steps, _tolerated(ratio, situation.band, exist, exist=True)), average=average
        )
    quotient = numbers.ratio(usage, target)
    replicas = INT32_MAX if cut and quotient > INT32_MAX else numbers.ceil32(quotient)
    return Proposal(replicas, (*steps, _quotient(usage, target, quotient, replicas)), average=average)


def _shared(metric: str, usage: int, target: int, exist: int, ratio: float) -> Step:
    facts = {"metric": metric, "measured": usage, "target": target, "replicas": exist, "ratio": ratio}
    return Step("value", facts)


def _quotient(usage: int, target: int, quotient: float, replicas: int) -> Step:
    return Step("quotient", {"measured": usage, "target": target, "product": quotient, "replicas": replicas})
