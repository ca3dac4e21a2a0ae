"""The document of a HorizontalPodAutoscaler that no scaler knows, from what doctor read of it.

Counts and conditions are those of the object, values those of its status. Of a limit the status says which
one applied, not since when: the next change is known as far as the history shows it.
"""

import operator
from collections.abc import Iterator, Sequence

import msgspec

from adapter.autoscaler.decide import calculator
from adapter.autoscaler.decide.calculator import Proposal, Situation
from adapter.autoscaler.decide.observation import Band, ObjectReading, Settings
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.decide.trace import Step, number
from adapter.autoscaler.explain.debug import moment
from adapter.model.autoscaling import hpa
from adapter.model.autoscaling import view as views
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from adapter.model.autoscaling.status import compare, describe_value
from adapter.model.objects.pods import PodFacts
from adapter.model.timestamps import SECOND, read_nanoseconds
from fastpath_tools.doctor import metric_hops
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Facts, State, seconds
from fastpath_tools.live import impossible
from fastpath_tools.live.facts import MetricFacts, SeriesFacts, SourceFacts, Unread
from fastpath_tools.ui.sentence import UNKNOWN, values

_LIMITED = {
    "TooManyReplicas": Restraint.HIGHEST,
    "TooFewReplicas": Restraint.LOWEST,
    "ScaleUpLimit": Restraint.LIMITED,
    "ScaleDownLimit": Restraint.LIMITED,
}
_HELD = frozenset({"ScaleDownStabilized", "ScaleUpStabilized"})


_MOST_PODS = 100_000
"""How many pods are counted: any client that may write a status chooses the number."""


def build(examination: Examination, history: views.HistoryView | None = None) -> views.AutoscalerView:
    """Return the document; `history` is that of Prometheus, None without one."""
    facts = examination.facts
    spec, now = hpa.with_defaults(facts.hpa.spec), facts.now
    status = facts.hpa.status or hpa.HorizontalPodAutoscalerStatus()
    metrics = tuple(_metric(examination, place) for place in range(len(facts.metrics)))
    band = impossible.prepare(facts.hpa).band
    shown = zip(metrics, facts.metrics, strict=True)
    proposals = [_propose(facts, read, band) for metric, read in shown if metric.ratio is not None]
    demands = [proposal.replicas for proposal in proposals]
    restraint = _restraint(facts, proposals)
    limits = views.LimitsView(min=spec.min_replicas or 0, max=spec.max_replicas)
    view = views.AutoscalerView(
        version=views.VERSION,
        kind=HPA_KIND,
        namespace=facts.hpa.metadata.namespace,
        name=facts.hpa.metadata.name,
        time=moment(now),
        mode=facts.mode,
        writing=False,
        decided_since=None,
        target=_target(facts, status),
        limits=limits,
        metrics=metrics,
        next=None,
        history=history,
        ahead=(),
        status={
            "currentReplicas": status.current_replicas,
            "desiredReplicas": status.desired_replicas,
            "conditions": [
                {name: getattr(condition, name) for name in ("type", "status", "reason", "message")}
                for condition in facts.conditions
            ],
        },
        recommendations={},
        writers=views.WritersView(paused_until=None, paused_by="", reversals=()),
        ready_times={},
        last=views.LastDecisionView(
            time=moment(now),
            inputs=(),
            trace=tuple(_ladder(facts, metrics, demands)),
            error="",
            limited_by="" if restraint is None else restraint.value,
            # a ratio alone says too much while new pods are not Ready
            demand=status.desired_replicas if restraint is Restraint.FOLLOWS else max(demands, default=None),
        ),
        journal=(),
    )
    return msgspec.structs.replace(view, next=_next(view, facts, restraint))


def _target(facts: Facts, status: hpa.HorizontalPodAutoscalerStatus) -> views.TargetView:
    reference, target = facts.hpa.spec.scale_target_ref, facts.target
    if isinstance(target, Unread):
        view = views.TargetView(kind=reference.kind, name=reference.name)
        if not any((one.type, one.status) == ("AbleToScale", "True") for one in facts.conditions):
            return msgspec.structs.replace(view, error=target.why)
        # the controller reads it, and says how many there are
        count = status.current_replicas
        return msgspec.structs.replace(view, replicas=count, status_replicas=count)
    return views.TargetView(
        kind=reference.kind,
        name=reference.name,
        replicas=target.replicas,
        status_replicas=status.current_replicas,
        ready=None if target.unread else len(target.ready),
        selector=target.selector,
        manager="" if target.writer is None else target.writer.manager,
    )


# -- metrics -------------------------------------------------------------------------------------------------


def _metric(examination: Examination, place: int) -> views.MetricView:
    metric, chain = examination.facts.metrics[place], examination.chains[place]
    status = _status(examination.facts, metric)
    current, target, ratio = describe_value(metric.spec, status)
    faults = [hop.text for hop in chain.hops if hop.state is State.FAULT]
    age = _age(metric)
    return views.MetricView(
        name=metric.label,
        current=UNKNOWN if faults else current,
        target=target,
        ratio=None if faults else ratio,
        age=age,
        overdue="" if age is None else _overdue(metric, age),
        fault=faults[0] if faults else "",
    )


def _status(facts: Facts, metric: MetricFacts) -> hpa.MetricStatus:
    """Return the status of a metric, an empty one where the object has none."""
    if not facts.has_value(metric.spec) or facts.hpa.status is None:
        return hpa.MetricStatus()
    return (facts.hpa.status.current_metrics or ())[(facts.hpa.spec.metrics or ()).index(metric.spec)]


def _age(metric: MetricFacts) -> float | None:
    series = metric.source.series if isinstance(metric.source, SourceFacts) else None
    if isinstance(series, SeriesFacts) and series.age is not None:
        return max(series.age, 0.0)
    return None if isinstance(metric.answer, Unread) else metric.answer.age


def _overdue(metric: MetricFacts, age: float) -> str:
    """Return why a value of an age is too old, "" if it is not."""
    series = metric.source.series if isinstance(metric.source, SourceFacts) else None
    interval = series.interval if isinstance(series, SeriesFacts) else None
    if not metric_hops.is_stale(age, interval):
        return ""
    return "there is no newer sample" if interval is None else f"a sample comes every {seconds(interval)}"


# -- the decision --------------------------------------------------------------------------------------------


def _decided_on(facts: Facts) -> int:
    """Return the replicas at the last decision: the status is of then, and the target may have more since."""
    return (facts.hpa.status or hpa.HorizontalPodAutoscalerStatus()).current_replicas or 0


def _propose(facts: Facts, metric: MetricFacts, band: Band) -> Proposal:
    """Return what a metric with a value asks for, as the controller computes it for the pods that it saw.

    Of a total the status has the part of each pod, rounded up: it is the smallest total of which that is so.
    """
    (value, target), pods = compare(metric.spec, _status(facts, metric)) or (0, 1), _decided_on(facts)
    ready = 0 if isinstance(facts.target, Unread) else len(facts.target.ready)
    counted = [PodFacts("", ready="True")] * min(min(ready, pods) or pods, _MOST_PODS)
    situation = Situation(pods, pods, counted, band, Settings(), facts.now)
    source, calculate = metric.spec.object or metric.spec.external, calculator.ratio_replicas
    if source is not None and source.target.type == "AverageValue":
        value, calculate = max(0, (value - 1) * pods + 1), calculator.per_pod_replicas
    proposal = calculate(ObjectReading(value), target, metric.label, situation)
    assert isinstance(proposal, Proposal), "there are pods, or the count is 0"
    return proposal


def _restraint(facts: Facts, proposals: Sequence[Proposal]) -> Restraint | None:
    """Return what keeps the count by the conditions, None without conditions."""
    conditions = {condition.type: condition for condition in facts.conditions}
    able, active, limited = (
        conditions.get(kind, hpa.Condition()) for kind in ("AbleToScale", "ScalingActive", "ScalingLimited")
    )
    if not conditions:
        return None
    if active.reason == "ScalingDisabled":
        return Restraint.DISABLED
    if "False" in {able.status, active.status}:
        return Restraint.FAILED if able.status == "False" else Restraint.ABSENT
    if limited.status == "True" and limited.reason in _LIMITED:
        return _LIMITED[limited.reason]
    if able.reason in _HELD:
        return Restraint.HELD
    highest = max(proposals, key=operator.attrgetter("replicas"), default=Proposal(0, ()))
    demand = highest.replicas
    if highest.tolerated:
        return Restraint.TOLERATED
    # a condition is as old as the last decision, the spec may be newer
    spec, target = facts.hpa.spec, facts.target
    least = 1 if spec.min_replicas is None else spec.min_replicas
    replicas = _decided_on(facts) if isinstance(target, Unread) else target.replicas
    if demand > spec.max_replicas == replicas:
        return Restraint.HIGHEST
    return Restraint.LOWEST if 0 < demand < least == replicas else Restraint.FOLLOWS


def _ladder(facts: Facts, metrics: Sequence[views.MetricView], demands: Sequence[int]) -> Iterator[str]:
    """Yield what each metric asks for, and the conditions: the steps between are the controller's own."""
    rest = iter(demands)
    for metric in metrics:
        if metric.ratio is None:
            yield Step("unavailable", (metric.name, metric.fault or "no value")).text()
        else:
            ratio = number(round(metric.ratio, 4))
            value = "{}, target {}".format(*values(metric))
            yield f"{metric.name}: {value}: ratio {ratio}, asks for {next(rest)}"
    for condition in facts.conditions:
        yield f"{condition.type} {condition.status} ({condition.reason}): {condition.message}"


def _next(view: views.AutoscalerView, facts: Facts, restraint: Restraint | None) -> views.NextChange | None:
    """Return the next change: when the stabilization window ends, or at the next decision."""
    status, replicas = facts.hpa.status, view.target.replicas
    if status is None or replicas is None:
        return None
    if restraint is Restraint.HELD and view.history is not None:
        known = [point for point in view.history.points if point.demand is not None]
        held = [place for place, point in enumerate(known) if (point.demand or 0) >= replicas]
        if not held or held[-1] + 1 >= len(known):
            return None
        ended, demand = known[held[-1] + 1].at, known[-1].demand or 0
        goal = min(max(demand, view.limits.min), view.limits.max)
        at = read_nanoseconds(ended) + round(_window(facts) * SECOND)
        return views.NextChange(replicas=goal, at=moment(at), released=restraint.value)
    if restraint is Restraint.FOLLOWS and status.desired_replicas != replicas:
        at = facts.now + round(facts.period.seconds * SECOND)
        return views.NextChange(replicas=status.desired_replicas, at=moment(at), released="")
    return None


def _window(facts: Facts) -> float:
    """Return the stabilization window of a scale-down in seconds."""
    behavior = hpa.with_defaults(facts.hpa.spec).behavior
    rules = None if behavior is None else behavior.scale_down
    window = None if rules is None else rules.stabilization_window_seconds
    return Settings().downscale_stabilization / SECOND if window is None else float(window)
