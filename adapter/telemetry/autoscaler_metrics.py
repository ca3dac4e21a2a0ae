"""The metrics of one autoscaler. Its series end with it, or with the term of the leader.

All have the same first labels, so that any two can be joined. Their number is bounded by the autoscalers that
the process runs.
"""

from prometheus_client import Gauge

from adapter.telemetry.declarations import counter, gauge

AUTOSCALER_LABELS = "kind namespace name"


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    """Declare a gauge of an autoscaler; `labels` are those beside its own."""
    return gauge(name, text, " ".join((AUTOSCALER_LABELS, *labels)))


class AutoscalerMetrics:
    """What the last decision on an autoscaler saw and decided."""

    desired_replicas = _gauge(
        "fastpath_autoscaler_desired_replicas",
        "Desired replicas of a FastPathAutoscaler. Absent if the last decision has no count.",
    )
    current_replicas = _gauge(
        "fastpath_autoscaler_current_replicas",
        "spec.replicas of the scale target of a FastPathAutoscaler at the last decision.",
    )
    recommended_replicas = _gauge(
        "fastpath_autoscaler_recommended_replicas",
        "Recommended replicas for an HPA. Absent if the last decision has no count.",
    )
    recommended_difference = _gauge(
        "fastpath_autoscaler_recommended_replicas_difference",
        "Recommended replicas minus spec.replicas of the scale target at the last decision.",
    )
    floor_replicas = _gauge(
        "fastpath_autoscaler_floor_replicas",
        "The floor of a boosted HPA while Fastpath holds a scale-up, else 0.",
    )
    boost_demoted = _gauge(
        "fastpath_autoscaler_boost_demoted",
        "1 while an HPA is only advised because another field manager reverted two raises, else 0.",
    )
    demand = _gauge(
        "fastpath_autoscaler_demand_replicas",
        "Replicas that the metrics of an autoscaler ask for, before minReplicas, maxReplicas and scaling "
        "policies. Absent while a metric has no value.",
    )
    pending_capacity = _gauge(
        "fastpath_autoscaler_pending_capacity_replicas",
        "Replicas that pendingCapacity subtracts from the demand. Absent if it is not set.",
    )
    min_replicas = _gauge("fastpath_autoscaler_min_replicas", "minReplicas of an autoscaler.")
    max_replicas = _gauge("fastpath_autoscaler_max_replicas", "maxReplicas of an autoscaler.")
    ready_pods = _gauge(
        "fastpath_autoscaler_ready_pods",
        "Running and ready pods that the selector of the scale target matches.",
    )
    absent_metrics = _gauge(
        "fastpath_autoscaler_metrics_absent",
        "Metrics of an autoscaler without a value at the last decision. They block scaling down.",
    )
    value_time = _gauge(
        "fastpath_autoscaler_value_timestamp_seconds",
        "Time of the oldest sample that the last decision used. The time since is the age of the value. "
        "Absent if decisions use no metric, as while the autoscaler is paused.",
    )
    reason = _gauge(
        "fastpath_autoscaler_reason",
        "Always 1. The label reason is that of the condition that explains the last decision: AbleToScale or "
        "ScalingActive if False, else ScalingLimited if True, else AbleToScale.",
        "reason",
    )
    direction_changes = counter(
        "fastpath_autoscaler_direction_changes_total",
        "Changes of spec.replicas of the scale target in the opposite direction of the change before.",
        AUTOSCALER_LABELS,
    )
    last_scale_duration = _gauge(
        "fastpath_autoscaler_last_scale_duration_seconds",
        "Time from the load to the response to the write, at most, of the last Scale that Fastpath wrote.",
    )
    ready_time = _gauge(
        "fastpath_autoscaler_ready_time_seconds",
        "Time until the latest pods of the scale target were Ready, by part (created to scheduled, to "
        "containers started, to Ready, and the total) and quantile. Absent before the first pod.",
        "part",
        "quantile",
    )
    ready_time_pods = _gauge(
        "fastpath_autoscaler_ready_time_pods",
        "Pods from which fastpath_autoscaler_ready_time_seconds is computed, at most 50.",
    )
    forecast_minimum = _gauge(
        "fastpath_forecast_floor_replicas",
        "The floor of a forecast for an autoscaler, 0 for none. Always 0 in mode Advise.",
    )
    forecast_ready = _gauge(
        "fastpath_forecast_ready",
        "1 if there is a verdict and the history can be read, else 0; see the condition ForecastReady.",
    )
    forecast_acting = _gauge(
        "fastpath_forecast_acting",
        "1 if the last verdict allows a forecast to act, else 0. In mode Advise the floor is 0 even so.",
    )
    forecast_verdict_time = _gauge(
        "fastpath_forecast_verdict_timestamp_seconds",
        "End of the history from which the last verdict is computed. The time since is the age of the "
        "verdict. Absent before the first verdict.",
    )
    forecast_coverage = _gauge(
        "fastpath_forecast_coverage_ratio",
        "Share of the last day in which the demand was within its forecast bound. Absent if unknown.",
    )
    forecast_extra = _gauge(
        "fastpath_forecast_extra_ratio",
        "Pods that the floor of a forecast added in the last day, as a share of those without it.",
    )
