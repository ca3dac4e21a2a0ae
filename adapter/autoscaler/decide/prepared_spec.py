"""Prepares the spec of an autoscaler: targets in thousandths, rules in nanoseconds, texts built once.

`prepare` runs when a spec changes, `decision.decide` at every sync. A `PreparedMetric` knows how its metric
is computed, described and reported; `decision` combines the proposals.

With the setting `strict` a metric refuses values that upstream's arithmetic would accept, but that are
impossible: values below zero and numbers that overflow. An overdue value may scale up or keep the replicas;
if it asks for fewer, it counts as unavailable, or while the pods settle as one that asks for the same.
"""

import hashlib
import operator
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

import msgspec

from adapter.autoscaler.decide import calculator
from adapter.autoscaler.decide import roster as rosters
from adapter.autoscaler.decide.behavior import Policy, ReplicaLimits, Rules
from adapter.autoscaler.decide.calculator import Compute, Proposal, Situation
from adapter.autoscaler.decide.guards.pending import Queue
from adapter.autoscaler.decide.numbers import INT32_MAX, INT64_MAX
from adapter.autoscaler.decide.observation import (
    SETTLING,
    Band,
    ExternalReading,
    ObjectReading,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
    Ways,
)
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling import hpa, pending_capacity
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.objects import api_selectors
from adapter.model.quantity import Format, from_milli
from adapter.model.timestamps import SECOND

_NEGATIVE = "negative values are not used"
_OVERFLOW = "a number exceeds 64 or 32 bits"

Values = PodsReading | ObjectReading | ExternalReading
Report = Callable[[hpa.MetricValueStatus], hpa.MetricStatus]


class PreparedMetric(msgspec.Struct, frozen=True, weakref=True):
    """One metric of a spec.

    `description` names it in conditions and events. `failure` is the reason of its event. Errors have
    prefixes: `fetching` that of a missing reading, `computing` that of any error in the event, and before
    that `aggregate` in the error of the sync. `blank` is the error of a metric that can never be computed, ""
    for any other. `queue` is the metric as pending capacity sees it, None without that option. `source` names
    what the metric reads of each pod, "" for a metric of no pods.
    """

    description: str
    failure: str
    fetching: str
    aggregate: str
    compute: Compute
    report: Report
    computing: str = ""
    memory: bool = False
    blank: str = ""
    queue: Queue | None = None
    source: str = ""

    def propose(self, reading: Reading, situation: Situation) -> Proposal | Unavailable:
        """Return the proposal of the metric, or why it has none.

        Of several ways the one that asks for the most replicas counts.
        """
        if self.blank:
            return Unavailable("InvalidSource", self.blank)
        if isinstance(reading, Unavailable):
            return Unavailable(reading.reason, self.fetching + reading.message)
        if not isinstance(reading, Ways):
            return self._evaluate(reading, situation)
        usual, *others = reading.ways
        best = self._evaluate(usual, situation)
        for way in others:
            best = _higher(best, self._evaluate(way, situation), usual, situation)
        return best

    def _evaluate(self, reading: Values, situation: Situation) -> Proposal | Unavailable:
        """Return what one reading asks for, or why it is not used.

        An overdue value that would scale down is withheld: the status shows it all the same.
        """
        strict, least = situation.settings.strict, _least(reading)
        if strict and (refusal := _NEGATIVE if least < 0 else _refuse(reading)):
            return Unavailable("Unusable", self.fetching + refusal)
        outcome = self.compute(reading, situation)
        if isinstance(outcome, Unavailable):
            return outcome
        if least < 0:
            negative = Step("negative", (self.description, least))
            outcome = msgspec.structs.replace(outcome, steps=(negative, *outcome.steps))
        # What cannot be right comes first: it is an error, and what is only late may still raise.
        if strict and (outcome.overflowed or not 0 <= outcome.replicas < INT32_MAX):
            return Unavailable("Unusable", self.fetching + _OVERFLOW)
        if strict and _is_without_base(reading, outcome, situation):
            return Unavailable(
                "NoReadyPods", f"{self.fetching}no pod is ready, so the load per pod is unknown"
            )
        if reading.overdue == SETTLING and outcome.replicas < situation.replicas:
            steps = (*outcome.steps, Step("settling", (situation.replicas,)))
            return msgspec.structs.replace(
                outcome, replicas=situation.replicas, lasting=outcome.remembered, steps=steps
            )
        if reading.overdue and outcome.replicas < situation.replicas:
            text = f"{self.fetching}{reading.overdue}: it may scale up, not down"
            return msgspec.structs.replace(outcome, withheld=text)
        return outcome

    def status(self, proposal: Proposal) -> hpa.MetricStatus:
        """Return the status with the value: memory in powers of 1024 if that is exact."""
        form = Format.BINARY_SI if self.memory else Format.DECIMAL_SI
        value, average = proposal.value, proposal.average
        current = hpa.MetricValueStatus(
            None if value is None else from_milli(value),
            None if average is None else from_milli(average, form),
            proposal.utilization,
        )
        return self.report(current)


def _higher(
    best: Proposal | Unavailable, other: Proposal | Unavailable, usual: PodsReading, situation: Situation
) -> Proposal | Unavailable:
    """Return the higher of two proposals; it lowers the count if both may."""
    if isinstance(other, Unavailable):
        return best
    if isinstance(best, Unavailable):
        why = usual.overdue or best.message
    elif other.replicas < best.replicas:
        return best.beside(other)
    else:
        why, other = best.withheld, other.beside(best)
    if other.replicas >= situation.replicas:
        return other
    return msgspec.structs.replace(other, withheld=other.withheld or why)


def _refuse(reading: Values) -> str:
    """Return why values that are not negative are rejected, "" if they are not."""
    return _OVERFLOW if isinstance(reading, ExternalReading) and sum(reading.values) > INT64_MAX else ""


def _least(reading: Values) -> int:
    """Return the lowest sample of a reading, 0 without one."""
    if isinstance(reading, ObjectReading):
        return reading.value
    return min(reading.values.values() if isinstance(reading, PodsReading) else reading.values, default=0)


def _is_without_base(reading: Values, outcome: Proposal, situation: Situation) -> bool:
    """Tell whether a value was multiplied by zero ready pods: the result says nothing about the load."""
    if isinstance(reading, PodsReading) or not outcome.value or not situation.replicas:
        return False
    return outcome.replicas < situation.replicas and not rosters.prepare(situation.pods).ready


class PreparedSpec(msgspec.Struct, frozen=True):
    """What `decide` needs of a spec. `up` and `down` are None for the legacy algorithm.

    `target` is ``Kind/namespace/name``. `has_outer_metric` says whether a metric is of type Object or
    External: only these can scale a workload up from zero. `throughputs` are those of pending capacity, in
    thousandths a second for each pod, by the name of the metric. `opening` are the first steps of each trace.
    `lowest` and `highest` say what sets the limits.
    """

    target: str
    limits: ReplicaLimits
    metrics: tuple[PreparedMetric, ...]
    band: Band
    settings: Settings
    has_outer_metric: bool
    up: Rules | None = None
    down: Rules | None = None
    throughputs: Mapping[str, int] = {}
    opening: tuple[Step, ...] = ()
    lowest: Restraint = Restraint.LOWEST
    highest: Restraint = Restraint.HIGHEST
    sources: tuple[str, ...] = ()
    """What each metric reads of each pod."""

    @property
    def longest_periods(self) -> tuple[int, int]:
        """The longest periods of the policies up and down; 0 without policies."""
        return self.up.longest_period if self.up else 0, self.down.longest_period if self.down else 0


_METRICS: WeakValueDictionary[bytes, PreparedMetric] = WeakValueDictionary()
_RULES: WeakValueDictionary[tuple[object, ...], Rules] = WeakValueDictionary()
"""Those in use, which autoscalers share: many of a cluster have the same."""


def prepare(autoscaler: hpa.HorizontalPodAutoscaler | FastPathAutoscaler, settings: Settings) -> PreparedSpec:
    """Prepare a valid autoscaler with its defaults filled in."""
    spec, meta = autoscaler.spec, autoscaler.metadata
    target = spec.scale_target_ref
    tolerance_down = tolerance_up = settings.tolerance
    up = down = None
    if behavior := spec.behavior:
        assert behavior.scale_up is not None
        assert behavior.scale_down is not None
        up, down = _rules(behavior.scale_up, settings), _rules(behavior.scale_down, settings)
        if behavior.scale_down.tolerance is not None:
            tolerance_down = behavior.scale_down.tolerance.approximate()
        if behavior.scale_up.tolerance is not None:
            tolerance_up = behavior.scale_up.tolerance.approximate()
    metrics = spec.metrics or ()
    pending = spec.pending_capacity if isinstance(spec, FastPathAutoscalerSpec) else None
    throughputs = {option.metric: option.pod_throughput.milli for option in pending or ()}
    prepared = tuple(_prepared(metric, meta.namespace, throughputs) for metric in metrics)
    return PreparedSpec(
        target=f"{target.kind}/{meta.namespace}/{target.name}",
        limits=ReplicaLimits(1 if spec.min_replicas is None else spec.min_replicas, spec.max_replicas),
        metrics=prepared,
        band=Band(1.0 - tolerance_down, 1.0 + tolerance_up),  # computed once in doubles, as upstream does
        settings=settings,
        has_outer_metric=any(metric.type in {"Object", "External"} for metric in metrics),
        up=up,
        down=down,
        throughputs=throughputs,
        sources=tuple(metric.source for metric in prepared),
    )


def _prepared(metric: hpa.MetricSpec, namespace: str, throughputs: Mapping[str, int]) -> PreparedMetric:
    prepared = _METRICS.setdefault(_identify(metric, namespace), _BY_TYPE[metric.type](metric, namespace))
    name, target = pending_capacity.name_of(metric), pending_capacity.target_of(metric)
    if target is None or name not in throughputs:
        return prepared
    return msgspec.structs.replace(prepared, queue=Queue(name, target.milli))


def _identify(metric: hpa.MetricSpec, namespace: str) -> bytes:
    """Return a key that is equal for metrics that are prepared alike: of quantities the thousandths count."""
    identity = metric, namespace if metric.type in {"Object", "External"} else ""
    written = msgspec.json.encode(identity, enc_hook=operator.attrgetter("milli"))
    return hashlib.blake2b(written, digest_size=15).digest()


def _rules(rules: hpa.HPAScalingRules, settings: Settings) -> Rules:
    """Return the rules of one direction; a window that is not set is the controller's, in whole seconds."""
    seconds = rules.stabilization_window_seconds
    window = settings.downscale_stabilization // SECOND if seconds is None else seconds
    policies = (
        Policy(policy.type == "Percent", policy.value, policy.period_seconds * SECOND)
        for policy in rules.policies or ()
    )
    prepared = window * SECOND, rules.select_policy or "Max", tuple(policies)
    return _RULES.setdefault(prepared, Rules(*prepared))


def _resource(metric: hpa.MetricSpec, _: str) -> PreparedMetric:
    """Prepare a resource of pods or of one container: by averageValue if that is set, else by utilization."""
    if metric.type == "Resource":
        assert metric.resource is not None
        name, container, target = metric.resource.name, "", metric.resource.target
        what, owner, failure = "resource", f"{name} resource", "FailedGetResourceMetric"

        def report(current: hpa.MetricValueStatus) -> hpa.MetricStatus:
            return hpa.MetricStatus("Resource", resource=hpa.ResourceMetricStatus(name, current))

    else:
        assert metric.container_resource is not None
        source = metric.container_resource
        name, container, target = source.name, source.container, source.target
        what, owner, failure = (
            "container resource",
            f"{container} container",
            "FailedGetContainerResourceMetric",
        )

        def report(current: hpa.MetricValueStatus) -> hpa.MetricStatus:
            status = hpa.ContainerResourceMetricStatus(name, container, current)
            return hpa.MetricStatus("ContainerResource", container_resource=status)

    raw, share = target.average_value, target.average_utilization
    if raw is not None:
        milli, measure, description = raw.milli, "usage", f"{name} resource"

        def compute(reading: PodsReading, situation: Situation) -> Proposal | Unavailable:
            return calculator.raw_resource_replicas(reading, milli, name, description, situation)

    else:
        assert share is not None
        measure, description = "utilization", f"{name} {what} utilization (percentage of request)"

        def compute(reading: PodsReading, situation: Situation) -> Proposal | Unavailable:
            return calculator.resource_replicas(reading, share, name, container, description, situation)

    return PreparedMetric(
        description,
        failure,
        f"unable to get metrics for resource {name}: ",
        f"failed to get {owner} metric value: ",
        compute,
        report,
        computing=f"failed to get {name} {measure}: ",
        memory=name == "memory",
        source=f"resource {name} {container}",
    )


def _pods(metric: hpa.MetricSpec, _: str) -> PreparedMetric:
    source = metric.pods
    assert source is not None
    assert source.target.average_value is not None
    name, target = source.metric.name, source.target.average_value.milli
    description = f"pods metric {name}"
    return PreparedMetric(
        description,
        "FailedGetPodsMetric",
        f"unable to get metric {name}: ",
        "failed to get pods metric value: ",
        lambda reading, situation: _replicas_of_cuts(reading, target, description, situation),
        lambda current: hpa.MetricStatus("Pods", pods=hpa.PodsMetricStatus(source.metric, current)),
        blank=_selector_fault(source.metric),
        source=f"pods {name} {api_selectors.go_text(source.metric.selector)}",
    )


def _replicas_of_cuts(
    reading: PodsReading, target: int, metric: str, situation: Situation
) -> Proposal | Unavailable:
    """Return the highest proposal of all cuts through the samples, as of several metrics.

    So another cut never scales down, nor makes a raise smaller.
    """
    proposal = calculator.raw_resource_replicas(reading, target, "", metric, situation)
    if not reading.other_cut:
        return proposal
    other = calculator.raw_resource_replicas(reading.with_other_cut(), target, "", metric, situation)
    if isinstance(proposal, Unavailable) or isinstance(other, Unavailable) or other.overflowed:
        return proposal
    if other.replicas <= proposal.replicas:
        return proposal.beside(other)
    steps = tuple(Step("otherCut", step.values) if step.name == "leftOut" else step for step in other.steps)
    return msgspec.structs.replace(other.beside(proposal), steps=steps)


def _object(metric: hpa.MetricSpec, namespace: str) -> PreparedMetric:
    source = metric.object
    assert source is not None
    name, target, described = source.metric.name, source.target, source.described_object
    aggregate = "failed to get object metric value: "
    blank = _selector_fault(source.metric)
    description = f"{described.kind} metric {name}"
    calculate, milli = calculator.ratio_replicas, 0
    if target.type == "Value" and target.value is not None:
        milli = target.value.milli
    elif target.type == "AverageValue" and target.average_value is not None:
        # Upstream uses this name, and this prefix twice in errors.
        description = f"external metric {name}({api_selectors.go_text(source.metric.selector)})"
        aggregate += "" if blank else f"failed to get {name} object metric: "
        calculate, milli = calculator.per_pod_replicas, target.average_value.milli
    else:
        blank = (
            blank
            or "invalid object metric source: neither a value target nor an average value target was set"
        )
    return PreparedMetric(
        description,
        "FailedGetObjectMetric",
        # Upstream's order, with the error last.
        f"unable to get metric {name}: {described.kind} on {namespace} {described.name}/",
        aggregate,
        lambda reading, situation: calculate(reading, milli, description, situation),
        lambda current: hpa.MetricStatus(
            "Object", object=hpa.ObjectMetricStatus(source.metric, current, described)
        ),
        blank=blank,
    )


def _external(metric: hpa.MetricSpec, namespace: str) -> PreparedMetric:
    source = metric.external
    assert source is not None
    name, target = source.metric.name, source.target
    selector = api_selectors.go_text(source.metric.selector)
    description = f"external metric {name}({selector})"
    aggregate = f"failed to get {name} external metric value: "
    if target.average_value is not None:
        aggregate += f"failed to get {name} external metric: "
        calculate, milli = calculator.per_pod_replicas, target.average_value.milli
    else:
        assert target.value is not None
        aggregate += f"failed to get external metric {name}: "
        calculate, milli = calculator.ratio_replicas, target.value.milli
    return PreparedMetric(
        description,
        "FailedGetExternalMetric",
        f"unable to get external metric {namespace}/{name}/{selector}: ",
        aggregate,
        lambda reading, situation: calculate(reading, milli, description, situation),
        lambda current: hpa.MetricStatus(
            "External", external=hpa.ExternalMetricStatus(source.metric, current)
        ),
        blank=_selector_fault(source.metric),
    )


_BY_TYPE: dict[str, Callable[[hpa.MetricSpec, str], PreparedMetric]] = {
    "Resource": _resource,
    "ContainerResource": _resource,
    "Pods": _pods,
    "Object": _object,
    "External": _external,
}


def _selector_fault(metric: hpa.MetricIdentifier) -> str:
    """Return why the selector of a metric is invalid, "" if it is valid."""
    try:
        api_selectors.compile_selector(metric.selector)
    except ValueError as error:
        return str(error)
    return ""
