"""The metrics of the scaler as a whole (its Lease, writes and decisions), and those of one autoscaler."""

from adapter.telemetry.declarations import (
    DASHBOARD_BUCKETS,
    LAG_BUCKETS,
    GaugeTable,
    counter,
    counter_table,
    gauge,
    gauge_table,
    histogram,
)

_STAGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 15, 30, 60, 120)

WRITE_TYPES = "floor scale cost status event"
AUTOSCALER_LABELS = "kind namespace name"


def _gauge(name: str, text: str, *labels: str) -> GaugeTable:
    """Declare a gauge of an autoscaler; `labels` are those beside its own."""
    return gauge_table(name, text, " ".join((AUTOSCALER_LABELS, *labels)))


class ScalerMetrics:
    """Leadership, writes, and how fast decisions are made."""

    leader = gauge(
        "leader_election_master_status",
        "1 while this process holds its lease and so is one of the scalers, else 0. The name is Kubernetes'.",
        "name",
    )
    slices = gauge(
        "fastpath_scaler_slices",
        "Slices that this process owns, of 64 in all. The name is that of the Leases.",
        "name",
    )
    lease_renewals = counter(
        "fastpath_lease_renewals_total",
        "Attempts to acquire or renew the lease, by outcome: success, conflict (another process changed it "
        "first), failed (no valid response in time).",
        outcome="success conflict failed",
    )
    writes = counter(
        "fastpath_writes_total",
        "Writes by type and outcome. A fenced write was not sent because the Lease may be lost.",
        type=WRITE_TYPES,
        outcome="success conflict refused failed fenced",
    )
    write_duration = histogram(
        "fastpath_write_duration_seconds",
        "Duration of a write, from leaving the queue to its response.",
        buckets=DASHBOARD_BUCKETS,
        type=WRITE_TYPES,
    )
    write_queue = gauge(
        "fastpath_write_queue_length",
        "Writes that wait in the queue, in order of priority: floor, scale, cost, status, event.",
        type=WRITE_TYPES,
    )
    events_dropped = counter(
        "fastpath_events_dropped_total",
        "Events that were not written, by reason: too many similar events for one object (spam), a full "
        "queue (queue), refused by the API server (refused), no longer the owner (fenced), an unexpected "
        "error (unexpected).",
        reason="spam queue refused fenced unexpected",
    )

    scaler_autoscalers = gauge("fastpath_scaler_autoscalers", "Autoscalers that this process runs.")
    forecast_values = gauge(
        "fastpath_forecast_history_values",
        "Values of histories that the forecast worker keeps in memory, 8 bytes each.",
    )
    scaler_decisions = counter_table(
        "fastpath_scaler_decisions_total", "Decisions by direction.", direction="up down none"
    )
    scaler_limited = counter_table(
        "fastpath_scaler_limited_decisions_total",
        "Decisions in which a limit or a scaling policy changed the count that the metrics asked for.",
    )
    scaler_defects = counter(
        "fastpath_scaler_unexpected_errors_total",
        "Decisions, writes, queries, forecasts and schedules that ended in an unexpected error. The log has "
        "the traceback, once for each object.",
    )
    query_period_stretch = gauge(
        "fastpath_scaler_query_period_stretch_ratio",
        "Factor by which --prometheus-max-queries-per-second stretches the query period, the largest of the "
        "last second; 1 is as configured.",
    )
    scaler_lag = histogram(
        "fastpath_scaler_lag_seconds", "Delay of a decision after its due time.", buckets=LAG_BUCKETS
    )
    scaler_sample_age = histogram(
        "fastpath_scaler_sample_age_seconds",
        "Age of the oldest sample in a decision that changed the replica count or was kept from doing so.",
        buckets=_STAGE_BUCKETS,
    )
    scaler_stages = histogram(
        "fastpath_scaler_stage_seconds",
        "Duration of the stages of a scale: from the load to its sample (at most), from the sample to the "
        "decision, from the decision to the response to the write.",
        buckets=_STAGE_BUCKETS,
        stage="load-to-sample sample-to-decision decision-to-write",
    )


class AutoscalerMetrics:
    """What the last decision on an autoscaler saw and decided.

    The series of an autoscaler end with it, or with the term of the owner. All have the same first labels,
    so that any two can be joined. Their number is bounded by the autoscalers that the process runs.
    """

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
    direction_changes = counter_table(
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
