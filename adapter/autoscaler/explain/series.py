"""The metrics of one autoscaler and of its forecast, from its first decision until it is removed.

A decision is made up to twenty times in a period, so series are only touched if one of them has changed. What
is unknown has no series: a demand without values is a gap in a graph, not the last number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide import roster as rosters
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.observation import Unavailable
from adapter.autoscaler.decide.sync import Decision
from adapter.autoscaler.inputs.snapshot import MetricInput, Snapshot
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.minimum import Day
from adapter.bounds.forecast.verdict import Verdict
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED
from adapter.model.ready_times import ReadyTimes
from adapter.model.timestamps import SECOND
from adapter.telemetry.declarations import GaugeTable
from adapter.telemetry.metrics import Monitoring

_EXPLAINING = ((ABLE_TO_SCALE, "False"), (SCALING_ACTIVE, "False"), (SCALING_LIMITED, "True"))
"""The conditions that explain a decision, and their status then; the first one counts."""


class ForecastSeries:
    """The series of one forecast, which exist while its autoscaler asks for one."""

    def __init__(self, monitoring: Monitoring, key: Key) -> None:
        self._labels = key.labels
        self._tables = (
            monitoring.forecast_minimum,
            monitoring.forecast_ready,
            monitoring.forecast_acting,
            monitoring.forecast_verdict_time,
            monitoring.forecast_coverage,
            monitoring.forecast_extra,
        )

    def show(self, minimum: int, verdict: Verdict | None, day: Day | None, *, ready: bool) -> None:
        is_judged = verdict is not None and not verdict.missing
        values = (
            minimum,
            int(ready),
            int(bool(verdict and verdict.chosen)),
            verdict.at if verdict and is_judged else None,
            None if day is None else day.coverage,
            None if day is None else day.share,
        )
        for table, value in zip(self._tables, values, strict=True):
            table.put(self._labels, value)

    def remove(self) -> None:
        for table in self._tables:
            table.put(self._labels, None)


@dataclass(slots=True, eq=False)
class AutoscalerSeries:
    """The series of one autoscaler. `show` exposes a decision, `remove` ends them all."""

    monitoring: Monitoring
    labels: tuple[str, str, str]
    """Kind, namespace and name."""
    _shown: tuple[float | None, ...] = ()
    _conditions: Sequence[Condition] | None = None
    _reason: str = ""
    _replicas: int | None = None
    _direction: int = 0
    _times: ReadyTimes | None = None

    def __post_init__(self) -> None:
        self.monitoring.direction_changes.values.setdefault(self.labels, 0)

    def show(self, state: AutoscalerState, choice: Decision, snapshot: Snapshot | None, now: int) -> None:
        """Expose a decision that was made at `now`; without a `snapshot` it looked at nothing."""
        status, desired = choice.status, choice.desired
        current = ready = None
        if snapshot is not None:
            current, ready = status.current_replicas, rosters.prepare(snapshot.observation.pods).ready
        absent = self._show_age(() if snapshot is None else snapshot.inputs)
        lowest, highest = state.spec.prepared.limits
        shown: tuple[float | None, ...]
        shown = (absent, ready, lowest, highest, choice.wanted, choice.covered, desired, current)
        if state.spec.boost is not None:
            memory = state.memory.boost
            demotion = boosting.active_demotion(memory, state.spec.boost, now)
            difference = None if desired is None or current is None else desired - current
            floor = 0 if memory.floor is None else memory.floor.replicas
            shown = (*shown[:-1], difference, floor, 0 if demotion is None else 1)
        if shown != self._shown:
            self._shown = shown
            tables = _tables(self.monitoring, is_native=state.spec.boost is not None)
            for table, value in zip(tables, shown, strict=True):
                table.put(self.labels, value)
        if (times := state.ready_times) is not self._times:
            self._show_times(times)
        if status.conditions is not self._conditions:
            self._conditions = status.conditions
            self._show_reason(_reason_of(status))
        if current is not None and not current == choice.replicas == self._replicas:
            self._follow(current)
            self._follow(choice.replicas)

    def _show_age(self, inputs: Sequence[MetricInput]) -> int:
        """Expose the time of the oldest sample, and return how many metrics have no value.

        If all metrics lack a value, the time of the last value stays, so that its age grows.
        """
        absent, sampled = 0, None
        for metric in inputs:
            absent += isinstance(metric.reading, Unavailable)
            if (time := metric.sampled) is not None and (sampled is None or time < sampled):
                sampled = time
        if sampled is not None:
            self.monitoring.value_time.values[self.labels] = sampled / SECOND
        elif not inputs:
            self.monitoring.value_time.put(self.labels, None)
        return absent

    def show_duration(self, seconds: float) -> None:
        """Expose how long the last scale took, from the load to the response to its write."""
        self.monitoring.last_scale_duration.put(self.labels, seconds)

    def remove(self) -> None:
        monitoring = self.monitoring
        self._show_times(None)
        self._show_reason("")
        tables = {*_tables(monitoring, is_native=False), *_tables(monitoring, is_native=True)}
        own = monitoring.value_time, monitoring.last_scale_duration, monitoring.direction_changes
        for table in (*tables, *own):
            table.put(self.labels, None)

    def _show_times(self, times: ReadyTimes | None) -> None:
        table, before, after = self.monitoring.ready_time, _series_of(self._times), _series_of(times)
        for labels in {**before, **after}:
            table.put((*self.labels, *labels), after.get(labels))
        self.monitoring.ready_time_pods.put(self.labels, None if times is None else times.count)
        self._times = times

    def _show_reason(self, reason: str) -> None:
        if reason == self._reason:
            return
        if self._reason:
            self.monitoring.reason.put((*self.labels, self._reason), None)
        if reason:
            self.monitoring.reason.put((*self.labels, reason), 1)
        self._reason = reason

    def _follow(self, replicas: int) -> None:
        """Count a change of direction if the target has `replicas` now."""
        before, self._replicas = self._replicas, replicas
        if before is None or replicas == before:
            return
        direction = 1 if replicas > before else -1
        if self._direction == -direction:
            self.monitoring.direction_changes.values[self.labels] += 1
        self._direction = direction


def _tables(monitoring: Monitoring, *, is_native: bool) -> tuple[GaugeTable, ...]:
    """Return the gauges of each decision, in the order of `AutoscalerSeries.show`."""
    shared = (
        monitoring.absent_metrics,
        monitoring.ready_pods,
        monitoring.min_replicas,
        monitoring.max_replicas,
        monitoring.demand,
        monitoring.pending_capacity,
    )
    if not is_native:
        return (*shared, monitoring.desired_replicas, monitoring.current_replicas)
    return (
        *shared,
        monitoring.recommended_replicas,
        monitoring.recommended_difference,
        monitoring.floor_replicas,
        monitoring.boost_demoted,
    )


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
