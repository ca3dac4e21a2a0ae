"""The metrics of one autoscaler and of its forecast, from its first decision until it is removed.

A decision is made up to twenty times in a period, so a series is only touched if its value has changed. What
is unknown has no series: a demand without values is a gap in a graph, not the last number.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import Gauge

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.observation import Unavailable
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.snapshot import Snapshot
from adapter.autoscaler.state import AutoscalerState
from adapter.bounds.forecast.minimum import Day
from adapter.bounds.forecast.verdict import Verdict
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED
from adapter.model.pods import PodFacts
from adapter.model.ready_times import ReadyTimes
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring

_EXPLAINING = ((ABLE_TO_SCALE, "False"), (SCALING_ACTIVE, "False"), (SCALING_LIMITED, "True"))
"""The conditions that explain a decision, and their status then; the first one counts."""


class _LabelledSeries:
    def __init__(self, monitoring: Monitoring, key: Key) -> None:
        self._monitoring = monitoring
        self._labels = (key.kind, key.namespace, key.name)
        self._shown: dict[Gauge, float] = {}

    def remove(self) -> None:
        for gauge in list(self._shown):
            self._set(gauge, None)

    def _set(self, gauge: Gauge, value: float | None) -> None:
        """Set a series to a value, or end it if the value is None."""
        if value is None:
            if self._shown.pop(gauge, None) is not None:
                gauge.remove(*self._labels)
        elif self._shown.get(gauge) != value:
            self._shown[gauge] = value
            gauge.labels(*self._labels).set(value)


class ForecastSeries(_LabelledSeries):
    """The series of one forecast, which exist while its autoscaler asks for one."""

    def show(self, minimum: int, verdict: Verdict | None, day: Day | None, *, ready: bool) -> None:
        monitoring = self._monitoring
        is_judged = verdict is not None and not verdict.missing
        self._set(monitoring.forecast_minimum, minimum)
        self._set(monitoring.forecast_ready, int(ready))
        self._set(monitoring.forecast_acting, int(bool(verdict and verdict.chosen)))
        self._set(monitoring.forecast_verdict_time, verdict.at if verdict and is_judged else None)
        self._set(monitoring.forecast_coverage, None if day is None else day.coverage)
        self._set(monitoring.forecast_extra, None if day is None else day.share)


class AutoscalerSeries(_LabelledSeries):
    """The series of one autoscaler. `show` exposes a decision, `remove` ends them all."""

    def __init__(self, monitoring: Monitoring, key: Key) -> None:
        super().__init__(monitoring, key)
        self._reason = ""
        self._pods: Sequence[PodFacts] = ()
        self._ready = 0
        self._replicas: int | None = None
        self._direction = 0
        self._times: ReadyTimes | None = None
        self._changes = monitoring.direction_changes.labels(*self._labels)

    def show(self, state: AutoscalerState, choice: Decision, snapshot: Snapshot | None, now: int) -> None:
        """Expose a decision that was made at `now`; without a `snapshot` it looked at nothing."""
        monitoring = self._monitoring
        desired = choice.desired
        current = None if snapshot is None else choice.status.current_replicas
        if state.boost is None:
            self._set(monitoring.desired_replicas, desired)
            self._set(monitoring.current_replicas, current)
        else:
            memory = state.memory.boost
            difference = None if desired is None or current is None else desired - current
            demotion = boosting.active_demotion(memory, state.boost, now)
            self._set(monitoring.recommended_replicas, desired)
            self._set(monitoring.recommended_difference, difference)
            self._set(monitoring.floor_replicas, 0 if memory.floor is None else memory.floor.replicas)
            self._set(monitoring.boost_demoted, 0 if demotion is None else 1)
        lowest, highest = state.prepared.limits
        self._set(monitoring.min_replicas, lowest)
        self._set(monitoring.max_replicas, highest)
        self._set(monitoring.demand, choice.wanted)
        self._set(monitoring.pending_capacity, choice.covered)
        self._show_times(state.ready_times)
        self._show_reason(_reason_of(choice.status))
        self._show_inputs(snapshot)
        if current is not None:
            self._follow(current)
            self._follow(choice.replicas)

    def show_duration(self, seconds: float) -> None:
        """Expose how long the last scale took, from the load to the response to its write."""
        self._set(self._monitoring.last_scale_duration, seconds)

    def remove(self) -> None:
        self._show_times(None)
        super().remove()
        self._show_reason("")
        self._monitoring.direction_changes.remove(*self._labels)

    def _show_times(self, times: ReadyTimes | None) -> None:
        if times is self._times:
            return
        gauge, before, after = self._monitoring.ready_time, _series_of(self._times), _series_of(times)
        for labels in before.keys() - after.keys():
            gauge.remove(*self._labels, *labels)
        for labels, seconds in after.items():
            gauge.labels(*self._labels, *labels).set(seconds)
        self._set(self._monitoring.ready_time_pods, None if times is None else times.count)
        self._times = times

    def _show_inputs(self, snapshot: Snapshot | None) -> None:
        """Expose the pods and metrics that a decision used.

        If all metrics lack a value, the time of the last value stays, so that its age grows.
        """
        monitoring = self._monitoring
        inputs = () if snapshot is None else snapshot.inputs
        sampled = [metric.sampled for metric in inputs if metric.sampled is not None]
        if sampled or not inputs:
            self._set(monitoring.value_time, min(sampled) / SECOND if sampled else None)
        absent = sum(isinstance(metric.reading, Unavailable) for metric in inputs)
        self._set(monitoring.absent_metrics, absent)
        if snapshot is None:
            self._set(monitoring.ready_pods, None)
            return
        pods = snapshot.observation.pods
        if pods is not self._pods:  # counting thousands of pods for each decision would double its cost
            self._pods = pods
            self._ready = sum(pod.running_and_ready for pod in pods)
        self._set(monitoring.ready_pods, self._ready)

    def _show_reason(self, reason: str) -> None:
        if reason == self._reason:
            return
        if self._reason:
            self._monitoring.reason.remove(*self._labels, self._reason)
        if reason:
            self._monitoring.reason.labels(*self._labels, reason).set(1)
        self._reason = reason

    def _follow(self, replicas: int) -> None:
        """Count a change of direction if the target has `replicas` now."""
        before, self._replicas = self._replicas, replicas
        if before is None or replicas == before:
            return
        direction = 1 if replicas > before else -1
        if self._direction == -direction:
            self._changes.inc()
        self._direction = direction


def _series_of(times: ReadyTimes | None) -> Mapping[tuple[str, str], float]:
    if times is None:
        return {}
    return {
        (part, quantile): seconds
        for part in ("scheduled", "started", "ready", "total")
        if (percentiles := getattr(times, part)) is not None
        for quantile, seconds in zip(("0.5", "0.95"), percentiles, strict=True)
    }


def _reason_of(status: HorizontalPodAutoscalerStatus) -> str:
    """Return the reason of the condition that explains a decision, "" without any condition."""
    for kind, holds in _EXPLAINING:
        condition = statuses.find(status.conditions, kind)
        if condition is not None and condition.status == holds:
            return condition.reason or ""
    condition = statuses.find(status.conditions, ABLE_TO_SCALE)
    return "" if condition is None else condition.reason or ""
