"""Decides what one sync of an autoscaler does: replicas, conditions, events and metric statuses.

`decide` mirrors ``reconcileAutoscaler`` of Kubernetes 1.36 without its reads and writes: the observation, the
history and the time are arguments, and the result says what to write. It is the only place that computes
these values.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide import behavior
from adapter.autoscaler.decide import pending as pending_capacity
from adapter.autoscaler.decide.behavior import Normalized
from adapter.autoscaler.decide.calculator import Proposal, Situation
from adapter.autoscaler.decide.history import History, with_event
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, Observation, Unavailable
from adapter.autoscaler.decide.pending import PendingState
from adapter.autoscaler.decide.prepared_spec import PreparedMetric, PreparedSpec
from adapter.autoscaler.decide.trace import Step
from adapter.errors import BadRequestError
from adapter.model import label_selectors, memo
from adapter.model.autoscaling import status as conditions
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, MetricStatus
from adapter.model.autoscaling.status import (
    ABLE_TO_SCALE,
    SCALED_TO_ZERO,
    SCALING_ACTIVE,
    SCALING_LIMITED,
    Conditions,
)
from adapter.model.label_selectors import LabelSelector
from adapter.model.timestamps import Instant

_ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
_BELOW_MIN = "Current number of replicas below Spec.MinReplicas"
_FALLBACK = "fallback while metrics are absent"
_NO_METRIC = MetricStatus("")
_OVERDUE = "Overdue"


class Event(NamedTuple):
    """An event about the autoscaler, of type Normal or Warning."""

    type: str
    reason: str
    message: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one sync.

    `replicas` is the count afterwards; `rescale` says whether to write it, and `reason` why. `status` is the
    status afterwards, to be written if `status_changed`. `error` is the error that ends the sync, "" without
    one; some metrics may have failed all the same. `history` is the next sync's, once this decision is
    carried out. `desired` is the count that was decided, also if it is withheld or cannot be written, and
    None if no count was decided: the status then repeats the previous one.

    `absent` are the descriptions of the metrics without a value, None if no metric was computed. `wanted` is
    what the metrics ask for before limits, None if one is absent or none was computed. `covered` is by how
    much pending capacity has reduced that, None without the option. `spec` is what it was made with, None if
    no spec was used. `draining` is since when scale-downs wait for pods to become idle, None if this one does
    not.
    """

    replicas: int
    rescale: bool = False
    reason: str = ""
    status: HorizontalPodAutoscalerStatus
    status_changed: bool
    events: tuple[Event, ...]
    error: str = ""
    history: History
    trace: tuple[Step, ...]
    desired: int | None = None
    absent: tuple[str, ...] | None = None
    wanted: int | None = None
    covered: int | None = None
    spec: PreparedSpec | None = None
    draining: int | None = None


class _Sync(msgspec.Struct):
    """The state of one sync while it is computed.

    `statuses` are those of the metrics, None if none was computed. `error` is that of the sync, and before it
    ends that of the metrics that failed. `lasting` is what the windows remember in place of `wanted`.
    """

    spec: PreparedSpec
    observation: Observation
    history: History
    now: int
    conditions: Conditions
    events: list[Event] = []
    steps: list[Step] = []
    statuses: tuple[MetricStatus, ...] | None = None
    error: str = ""
    absent: tuple[str, ...] | None = None
    wanted: int | None = None
    lasting: int | None = None
    covered: int | None = None

    def warn(self, reason: str, message: str) -> None:
        self.events.append(Event("Warning", reason, message))

    def end(self, desired: int | None, *, rescale: bool = False, reason: str = "") -> Decision:
        """Return the decision: `desired` is to be written with `rescale`; None if no count was decided.

        Without a decided count, and if it could not be written, the status keeps the previous one.
        """
        before, current = self.observation.status, self.observation.replicas
        after = desired if rescale and desired is not None else current
        time = self.observation.time_of_day(self.now)
        status = HorizontalPodAutoscalerStatus(
            last_scale_time=Instant(time) if rescale else before.last_scale_time,
            current_replicas=current,
            desired_replicas=after if desired == after else before.desired_replicas,
            current_metrics=self.statuses,
            conditions=self.conditions.listed(),
        )
        self.steps.append(Step("result", {"current": current, "replicas": after, "reason": reason}))
        return Decision(
            replicas=after,
            rescale=rescale,
            reason=reason,
            status=status,
            status_changed=not conditions.same_status(before, status),
            events=tuple(self.events),
            error=self.error,
            history=self.history,
            trace=tuple(self.steps),
            desired=desired,
            absent=self.absent,
            wanted=self.wanted,
            covered=self.covered,
            spec=self.spec,
        )


def decide(spec: PreparedSpec, observation: Observation, history: History, now: int) -> Decision:
    """Decide what one sync does at `now` nanoseconds. The same arguments always give the same decision."""
    current, (lowest, highest) = observation.replicas, spec.limits
    before = Conditions(observation.status.conditions or (), observation.time_of_day(now))
    sync = _Sync(spec, observation, history, now, before, steps=[*spec.opening])
    sync.conditions.set(ABLE_TO_SCALE, holds=True, reason="SucceededGetScale")
    facts = {
        "target": spec.target,
        "replicas": current,
        "statusReplicas": observation.status_replicas,
        "min": lowest,
        "max": highest,
    }
    sync.steps.append(Step("start", facts))
    if history.recommendations.empty:
        first = history.recommendations.recorded(current, now)
        sync.history = msgspec.structs.replace(history, recommendations=first)
        sync.steps.append(Step("first", {"replicas": current}))
    if current == 0:
        gate = spec.settings.scale_to_zero
        came_to_zero = gate and conditions.holds(observation.status.conditions, SCALED_TO_ZERO)
        if came_to_zero and (lowest != 0 or spec.has_outer_metric):
            return _follow_metrics(sync, from_zero=True)
        # Another client scaled the target to zero.
        sync.conditions.set(SCALING_ACTIVE, holds=False, reason="ScalingDisabled")
        if not gate:
            sync.conditions.remove(SCALED_TO_ZERO)
        sync.steps.append(Step("disabled", {"why": ", and not by this autoscaler" if gate else ""}))
        return sync.end(0)
    if lowest <= current <= highest:
        return _follow_metrics(sync, from_zero=False)
    bound, side, what, reason = lowest, "below", "minimum", _BELOW_MIN
    if current > highest:
        bound, side, what, reason = highest, "above", "maximum", _ABOVE_MAX
    sync.steps.append(Step("bounds", {"current": current, "side": side, "bound": bound, "what": what}))
    return _rescale(sync, bound, reason)


def _follow_metrics(sync: _Sync, *, from_zero: bool) -> Decision:
    current, lowest = sync.observation.replicas, sync.spec.limits.lowest
    proposed, description = _compute_metrics(sync)
    least = sync.observation.fallback if sync.absent else 0
    if proposed is None:
        sync.warn("FailedComputeMetricsReplicas", sync.error)
        whole = "failed to compute desired number of replicas based on listed metrics for"
        sync.error = f"{whole} {sync.spec.target}: {sync.error}"
        if least <= current:
            return sync.end(None)
    desired = max(0, proposed or 0)
    reason = ""  # Set before limits, as upstream: a raise by past recommendations alone has none.
    if least > max(desired, current):
        desired, reason = least, _FALLBACK
        sync.steps.append(Step("fallback", {"replicas": least}))
    elif desired > current:
        reason = f"{description} above target"
    elif desired < current:
        reason = "All metrics below target"
    normalized = _normalize(sync, desired)
    replicas = normalized.replicas
    if from_zero and lowest != 0 and replicas < lowest:
        replicas, reason = lowest, reason or _BELOW_MIN
        sync.steps.append(Step("raised", {"replicas": replicas}))
    if replicas == current:
        sync.conditions.set(ABLE_TO_SCALE, holds=True, reason=normalized.stabilized)
        return sync.end(current)
    return _rescale(sync, replicas, reason)


def _normalize(sync: _Sync, desired: int) -> Normalized:
    """Apply windows and limits, set their condition, and record the recommendation.

    If the pods of the time of the sample have raised it, it is recorded without them. They protect from this
    sample, which a window would remember for its whole length: each shrink would wait for another window.
    """
    spec, now, history = sync.spec, sync.now, sync.history
    current, limits = sync.observation.replicas, spec.limits
    if spec.up is None or spec.down is None:
        window = spec.settings.downscale_stabilization
        normalized = behavior.normalize_legacy(desired, current, limits, window, history.recommendations, now)
    else:
        normalized = behavior.normalize(desired, current, limits, spec.up, spec.down, history, now)
    remembered = desired if sync.lasting is None or desired != sync.wanted else min(desired, sync.lasting)
    recommendations = history.recommendations.recorded(remembered, now)
    sync.history = msgspec.structs.replace(history, recommendations=recommendations)
    sync.conditions.set(SCALING_LIMITED, holds=normalized.is_limited, reason=normalized.limited)
    sync.steps += normalized.steps
    return normalized


def _rescale(sync: _Sync, replicas: int, reason: str) -> Decision:
    """Return a decision with a new count, or with the error if it could not be written."""
    spec, observation = sync.spec, sync.observation
    current = observation.replicas
    if problem := observation.write_error:
        sync.warn("FailedRescale", f"New size: {replicas}; reason: {reason}; error: {problem}")
        text = f"the HPA controller was unable to update the target scale: {problem}"
        sync.conditions.set(ABLE_TO_SCALE, holds=False, reason="FailedUpdateScale", message=text)
        sync.steps.append(Step("failed", {"done": "written", "message": problem}))
        sync.error = f"failed to rescale {spec.target}: {problem}"
        return sync.end(replicas)
    text = f"the HPA controller was able to update the target scale to {replicas}"
    sync.conditions.set(ABLE_TO_SCALE, holds=True, reason="SucceededRescale", message=text)
    sync.events.append(Event("Normal", "SuccessfulRescale", f"New size: {replicas}; reason: {reason}"))
    ups, downs = sync.history.ups, sync.history.downs
    if spec.up is not None and spec.down is not None:
        if replicas > current:
            ups = with_event(ups, replicas - current, sync.now, spec.up.longest_period)
        else:
            downs = with_event(downs, current - replicas, sync.now, spec.down.longest_period)
        sync.history = msgspec.structs.replace(sync.history, ups=ups, downs=downs)
    if spec.settings.scale_to_zero:
        to_zero = replicas == 0 and spec.limits.lowest == 0 and spec.has_outer_metric
        reason_of_zero = "ScaledToZero" if to_zero else "NotScaledToZero"
        sync.conditions.set(SCALED_TO_ZERO, holds=to_zero, reason=reason_of_zero)
    else:
        sync.conditions.remove(SCALED_TO_ZERO)
    return sync.end(replicas, rescale=True, reason=reason)


def without_scale(
    spec: PreparedSpec, status: HorizontalPodAutoscalerStatus, error: str, history: History, time: int
) -> Decision:
    """Return the decision of a sync at a time of day whose scale could not be read: event and condition."""
    after = Conditions(status.conditions or (), time)
    text = f"the HPA controller was unable to get the target's current scale: {error}"
    after.set(ABLE_TO_SCALE, holds=False, reason="FailedGetScale", message=text)
    status_after = msgspec.structs.replace(status, conditions=after.listed())
    return Decision(
        replicas=status.current_replicas,
        status=status_after,
        status_changed=not conditions.same_status(status, status_after),
        events=(Event("Warning", "FailedGetScale", error),),
        error=f"failed to query scale subresource for {spec.target}: {error}",
        history=history,
        trace=(Step("failed", {"done": "read", "message": error}),),
    )


# -- the metrics together ------------------------------------------------------------------------------------


LONGEST_SELECTOR = 16 * 1024
MOST_COMMAS = 256
"""Limits of the selector of a scale, in characters and commas: every sync parses it."""

SELECTORS_BYTES = 8 * 1024 * 1024
"""Memory for parsed selectors."""


def _weigh_selector(text: str) -> int:
    return 300 + 4 * len(text) + 250 * text.count(",")


@memo.remember(SELECTORS_BYTES, _weigh_selector)
def _parse(selector: str) -> LabelSelector | str:
    """Return a selector, or why its text is invalid."""
    if len(selector) > LONGEST_SELECTOR or selector.count(",") > MOST_COMMAS:
        return f"it has more than {LONGEST_SELECTOR} characters or {MOST_COMMAS} commas"
    try:
        return label_selectors.parse_selector(selector, later=True)
    except BadRequestError as error:
        return error.message


@memo.remember_short(32_768, longest=128)
def _is_readable(selector: str) -> bool:
    """Tell whether a selector can be parsed; more of these answers are kept than of selectors."""
    return not isinstance(_parse(selector), str)


def read_selector(text: str) -> LabelSelector | None:
    """Return the selector of a scale, None if `decide` rejects its text, as it does an empty one."""
    parsed = _parse(text) if text else ""
    return None if isinstance(parsed, str) else parsed


def _check_selector(sync: _Sync) -> bool:
    """Tell whether the pods of the target can be selected; else report why not."""
    observation = sync.observation
    if not observation.selector:
        error, message = "selector is required", "the HPA target's scale is missing a selector"
        event, reason = "SelectorRequired", "InvalidSelector"
    elif not _is_readable(observation.selector):
        parsed = _parse(observation.selector)
        error = message = f"couldn't convert selector into a corresponding internal selector object: {parsed}"
        event = reason = "InvalidSelector"
    elif len(observation.selected_by) > 1:
        names = " ".join(observation.selected_by)
        error = message = (
            f"pods by selector {observation.selector} are controlled by multiple HPAs: [{names}]"
        )
        event = reason = "AmbiguousSelector"
    else:
        return True
    sync.error = error
    sync.warn(event, error)
    sync.conditions.set(SCALING_ACTIVE, holds=False, reason=reason, message=message)
    sync.steps.append(Step("selector", {"message": error}))
    return False


def _compute_metrics(sync: _Sync) -> tuple[int | None, str]:
    """Compute all metrics in the order of the spec; return the highest proposal and the name of its metric.

    The proposal is None if the metrics as a whole failed. A metric without a value blocks a scale-down only.
    """
    if not _check_selector(sync):
        return None, ""
    spec, observation = sync.spec, sync.observation
    situation = Situation(
        observation.replicas,
        observation.status_replicas,
        observation.pods,
        spec.band,
        spec.settings,
        observation.time_of_day(sync.now),
    )
    pending = _follow_pending(sync)
    best, exact, lasting, overdue, description = 0, 0, 0, 0, ""
    statuses: list[MetricStatus] = []
    failures: list[tuple[PreparedMetric, str]] = []
    for metric, reading in zip(spec.metrics, observation.readings, strict=True):
        if metric.blank:
            outcome: Proposal | Unavailable = Unavailable("InvalidSource", metric.blank)
        elif isinstance(reading, Unavailable):
            outcome = Unavailable(reading.reason, metric.fetching + reading.message)
        else:
            outcome = metric.propose(reading, situation)
        status = _NO_METRIC
        # An overdue value proposes a scale-down: the status shows the value, and the metric counts as absent.
        if isinstance(outcome, Proposal) and outcome.withheld:
            status = metric.status(outcome)
            sync.steps += outcome.steps
            outcome = Unavailable(_OVERDUE, outcome.withheld)
        # After the guard of overdue values, so that no credit is given for a value that does not count.
        if pending is not None and metric.queue is not None and isinstance(outcome, Proposal):
            assert isinstance(reading, ObjectReading | ExternalReading)
            exact = max(exact, outcome.replicas)
            outcome, credit = pending_capacity.withhold(
                metric.queue, outcome, reading, metric.compute, pending, observation, situation
            )
            pending = pending._replace(credited={**pending.credited, metric.queue.name: credit})
        if isinstance(outcome, Unavailable):
            problem = metric.computing + outcome.message
            sync.warn(metric.failure, problem)
            name = "overdue" if outcome.reason == _OVERDUE else "unavailable"
            overdue += outcome.reason == _OVERDUE
            sync.steps.append(Step(name, {"metric": metric.description, "message": outcome.message}))
            failures.append((metric, problem))
            statuses.append(status)
            continue
        sync.steps += outcome.steps
        statuses.append(metric.status(outcome))
        lasting = max(lasting, outcome.remembered)
        if best == 0 or outcome.replicas > best:
            best, description = outcome.replicas, metric.description
    if pending is not None:
        sync.history = msgspec.structs.replace(sync.history, pending=pending)
        sync.covered = max(0, exact - best)
    sync.absent = tuple(metric.description for metric, _ in failures)
    # With a metric missing the highest proposal is only a lower bound, and no recommendation.
    sync.wanted, sync.lasting = (None, None) if failures else (max(0, best), lasting)
    sync.statuses = tuple(statuses)
    return _conclude(sync, best, failures, overdue, description)


def _follow_pending(sync: _Sync) -> PendingState | None:
    """Return the state of pending capacity, None without the option."""
    before, throughputs = sync.history.pending, sync.spec.throughputs
    if throughputs:
        return pending_capacity.follow(before, throughputs, sync.observation, sync.now)
    if before is not None:
        sync.history = msgspec.structs.replace(sync.history, pending=None)
    return None


def _conclude(
    sync: _Sync, best: int, failures: Sequence[tuple[PreparedMetric, str]], overdue: int, description: str
) -> tuple[int | None, str]:
    count, current = len(sync.spec.metrics), sync.observation.replicas
    facts = {
        "failed": len(failures),
        "overdue": overdue,
        "metrics": count,
        "replicas": best,
        "metric": description,
    }
    if failures:
        metric, problem = failures[0]
        first = f"first error is: {metric.aggregate}{problem}"
        sync.error = f"invalid metrics ({len(failures)} invalid out of {count}), {first}"
        if len(failures) >= count or best < current:
            text = f"the HPA was unable to compute the replica count: {problem}"
            sync.conditions.set(SCALING_ACTIVE, holds=False, reason=metric.failure, message=text)
            del facts["metric"]
            sync.steps.append(Step("blocked", facts | {"current": current}))
            return None, ""
    text = f"the HPA was able to successfully calculate a replica count from {description}"
    sync.conditions.set(SCALING_ACTIVE, holds=True, reason="ValidMetricFound", message=text)
    sync.steps.append(Step("choice", facts))
    return best, description
