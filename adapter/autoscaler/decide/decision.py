"""Decides what one sync of an autoscaler does: replicas, conditions, events and metric statuses.

`decide` mirrors ``reconcileAutoscaler`` of Kubernetes 1.36 without its reads and writes: the observation, the
history and the time are arguments, and the result says what to write. It is the only place that computes
these values.
"""

from collections.abc import Sequence

import msgspec

from adapter.autoscaler.decide import behavior
from adapter.autoscaler.decide.behavior import Normalized, ReplicaLimits
from adapter.autoscaler.decide.calculator import Proposal, Situation
from adapter.autoscaler.decide.guards import pending as pending_capacity
from adapter.autoscaler.decide.guards.pending import PendingState
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, Observation, Unavailable
from adapter.autoscaler.decide.prepared_spec import PreparedMetric, PreparedSpec
from adapter.autoscaler.decide.restraint import HIGHEST, LOWEST, Restraint
from adapter.autoscaler.decide.sync import Decision, Sync
from adapter.autoscaler.decide.trace import Step
from adapter.errors import BadRequestError
from adapter.model import memo
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, MetricStatus
from adapter.model.autoscaling.status import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED
from adapter.model.objects import label_selectors
from adapter.model.objects.label_selectors import LabelSelector

_ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
_BELOW_MIN = "Current number of replicas below Spec.MinReplicas"
_FALLBACK = "fallback while metrics are absent"
_NO_METRIC = MetricStatus("")
_OVERDUE = "Overdue"


def decide(spec: PreparedSpec, observation: Observation, history: History, now: int) -> Decision:
    """Decide what one sync does at `now` nanoseconds. The same arguments always give the same decision."""
    sync = Sync.begin(spec, observation, observation.status, history, now)
    follow(sync)
    sync.conclude()
    return sync.close(spec)


def follow(sync: Sync) -> None:
    """Decide the count of a sync."""
    spec, history = sync.spec, sync.history
    current, (lowest, highest) = sync.observation.replicas, spec.limits
    sync.is_decided = True
    if not sync.conditions.holds(ABLE_TO_SCALE):  # it begins now, even if it ends with this sync
        sync.conditions.set(ABLE_TO_SCALE, holds=True, reason=sync.able)
    seen = spec.target, current, sync.observation.status_replicas, lowest, highest
    sync.steps.append(Step("start", seen))
    if history.recommendations.empty:
        sync.record(current)
        sync.steps.append(Step("first", (current,)))
    if current == 0:
        gate = spec.settings.scale_to_zero
        came_to_zero = gate and sync.conditions.holds(SCALED_TO_ZERO)
        if came_to_zero and (lowest != 0 or spec.has_outer_metric):
            _follow_metrics(sync, from_zero=True)
            return
        # Another client scaled the target to zero.
        sync.conditions.set(SCALING_ACTIVE, holds=False, reason="ScalingDisabled")
        if not gate:
            sync.conditions.remove(SCALED_TO_ZERO)
        sync.steps.append(Step("disabled", (", and not by this autoscaler" if gate else "",)))
        sync.restraint = Restraint.DISABLED
        sync.settle(0)
        return
    if lowest <= current <= highest:
        _follow_metrics(sync, from_zero=False)
        return
    bound, side, what, sync.reason = lowest, "below", "minimum", _BELOW_MIN
    if current > highest:
        bound, side, what, sync.reason = highest, "above", "maximum", _ABOVE_MAX
    sync.steps.append(Step("bounds", (current, side, bound, what)))
    sync.limit = spec.highest if current > highest else spec.lowest
    sync.settle(bound)


def _follow_metrics(sync: Sync, *, from_zero: bool) -> None:
    current, lowest = sync.observation.replicas, sync.spec.limits.lowest
    proposed, description = _compute_metrics(sync)
    least = sync.fallback if sync.absent else 0
    if proposed is None:
        sync.warn("FailedComputeMetricsReplicas", sync.error)
        whole = "failed to compute desired number of replicas based on listed metrics for"
        sync.error = f"{whole} {sync.spec.target}: {sync.error}"
        if least <= current:
            return
    desired = max(0, proposed or 0)
    # Set before limits, as upstream: a raise by past recommendations alone has none.
    if least > max(desired, current):
        desired, sync.reason = least, _FALLBACK
        sync.steps.append(Step("fallback", (least,)))
    elif desired > current:
        sync.reason = f"{description} above target"
    elif desired < current:
        sync.reason = "All metrics below target"
    normalized = _normalize(sync, desired)
    replicas = normalized.replicas
    if from_zero and lowest != 0 and replicas < lowest:
        replicas, sync.reason = lowest, sync.reason or _BELOW_MIN
        sync.steps.append(Step("raised", (replicas,)))
    sync.settle(replicas)
    if replicas == current:
        sync.able = normalized.stabilized


def _normalize(sync: Sync, desired: int) -> Normalized:
    """Apply windows and limits, set their condition, and record the recommendation.

    If the pods of the time of the sample have raised it, it is recorded without them. They protect from this
    sample, which a window would remember for its whole length: each shrink would wait for another window.
    """
    spec, drain = sync.spec, sync.drain
    normalized = _within(sync, desired, spec.limits)
    sync.steps += normalized.steps
    if normalized.is_limited or not sync.absent:
        limit = normalized.restraint
        sync.limit = spec.lowest if limit is LOWEST else spec.highest if limit is HIGHEST else limit
    if drain is not None and normalized.replicas < drain.least:
        sync.undrained, sync.draining = normalized.replicas, drain.since
        sync.waiting, sync.restraint = drain.least - normalized.replicas, Restraint.DRAINING
        normalized = _within(sync, desired, ReplicaLimits(drain.least, spec.limits.highest))
    remembered = desired if sync.lasting is None or desired != sync.wanted else min(desired, sync.lasting)
    recommendations = sync.history.recommendations.recorded(remembered, sync.now)
    sync.history = msgspec.structs.replace(sync.history, recommendations=recommendations)
    sync.conditions.set(SCALING_LIMITED, holds=normalized.is_limited, reason=normalized.limited)
    if sync.waiting:
        text = f"{sync.waiting} of the pods that go are not idle yet"
        sync.conditions.set(SCALING_LIMITED, holds=True, reason="Draining", message=text)
    return normalized


def _within(sync: Sync, desired: int, limits: ReplicaLimits) -> Normalized:
    """Return a count within windows, policies and limits."""
    spec, current, history = sync.spec, sync.observation.replicas, sync.history
    if spec.up is None or spec.down is None:
        window = spec.settings.downscale_stabilization
        recommendations = history.recommendations
        return behavior.normalize_legacy(desired, current, limits, window, recommendations, sync.now)
    return behavior.normalize(desired, current, limits, spec.up, spec.down, history, sync.now)


def without_scale(
    spec: PreparedSpec, status: HorizontalPodAutoscalerStatus, error: str, history: History, time: int
) -> Decision:
    """Return the decision of a sync at a time of day whose scale could not be read: event and condition."""
    sync = Sync.begin(spec, Observation(status.current_replicas, 0, "", (), ()), status, history, time)
    sync.is_decided, sync.statuses = True, status.current_metrics
    sync.warn("FailedGetScale", error)
    text = f"the HPA controller was unable to get the target's current scale: {error}"
    sync.conditions.set(ABLE_TO_SCALE, holds=False, reason="FailedGetScale", message=text)
    sync.stop("failed", ("read", error), Restraint.FAILED)
    sync.error = f"failed to query scale subresource for {spec.target}: {error}"
    return sync.close(spec)


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


def _check_selector(sync: Sync) -> bool:
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
    sync.stop("selector", (error,), Restraint.FAILED)
    return False


def _compute_metrics(sync: Sync) -> tuple[int | None, str]:
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
        sync.time,
    )
    pending = _follow_pending(sync)
    best, exact, lasting, overdue, description = 0, 0, 0, 0, ""
    statuses: list[MetricStatus] = []
    failures: list[tuple[PreparedMetric, str]] = []
    for metric, reading in zip(spec.metrics, sync.readings, strict=True):
        outcome, status = metric.propose(reading, situation), _NO_METRIC
        if isinstance(outcome, Proposal):
            sync.tolerated |= outcome.tolerated
            if outcome.withheld:
                # It proposes a scale-down: the status shows the value, and the metric counts as absent.
                status = metric.status(outcome)
                sync.steps += outcome.steps
                outcome = Unavailable(_OVERDUE, outcome.withheld)
            elif pending is not None and metric.queue is not None:
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
            sync.steps.append(Step(name, (metric.description, outcome.message)))
            failures.append((metric, problem))
            statuses.append(status)
            continue
        sync.steps += outcome.steps
        statuses.append(metric.status(outcome))
        lasting = max(lasting, outcome.remembered)
        # As upstream: the first of equal proposals names the metric, and one of 0 only until another comes.
        if best == 0 or outcome.replicas > best:
            best, description = outcome.replicas, metric.description
    if pending is not None:
        sync.history = msgspec.structs.replace(sync.history, pending=pending)
        sync.covered = max(0, exact - best)
    sync.absent = ()
    if failures:
        sync.absent, sync.limit = tuple(metric.description for metric, _ in failures), Restraint.ABSENT
    # With a metric missing the highest proposal is only a lower bound, and no recommendation.
    sync.wanted, sync.lasting = (None, None) if failures else (max(0, best), lasting)
    sync.statuses = tuple(statuses)
    return _conclude(sync, best, failures, overdue, description)


def _follow_pending(sync: Sync) -> PendingState | None:
    """Return the state of pending capacity, None without the option."""
    before, throughputs = sync.history.pending, sync.spec.throughputs
    if throughputs:
        return pending_capacity.follow(before, throughputs, sync.observation, sync.now)
    if before is not None:
        sync.history = msgspec.structs.replace(sync.history, pending=None)
    return None


def _conclude(
    sync: Sync, best: int, failures: Sequence[tuple[PreparedMetric, str]], overdue: int, description: str
) -> tuple[int | None, str]:
    count, current = len(sync.spec.metrics), sync.observation.replicas
    values = len(failures), overdue, count, best
    if failures:
        metric, problem = failures[0]
        first = f"first error is: {metric.aggregate}{problem}"
        sync.error = f"invalid metrics ({len(failures)} invalid out of {count}), {first}"
        if len(failures) >= count or best < current:
            text = f"the HPA was unable to compute the replica count: {problem}"
            sync.conditions.set(SCALING_ACTIVE, holds=False, reason=metric.failure, message=text)
            sync.stop("blocked", (*values, current))
            return None, ""
    text = f"the HPA was able to successfully calculate a replica count from {description}"
    sync.conditions.set(SCALING_ACTIVE, holds=True, reason="ValidMetricFound", message=text)
    sync.steps.append(Step("choice", (*values, description)))
    return best, description
