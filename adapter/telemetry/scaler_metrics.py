"""The metrics of the scaler as a whole: its Lease, its writes and its decisions."""

from adapter.telemetry.declarations import DASHBOARD_BUCKETS, LAG_BUCKETS, counter, gauge, histogram

_STAGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 15, 30, 60, 120)

WRITE_TYPES = "floor scale status event"


class ScalerMetrics:
    """Leadership, writes, and how fast decisions are made."""

    leader = gauge(
        "leader_election_master_status",
        "1 while this process holds the lease, else 0. The name is Kubernetes'.",
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
        "Writes that wait in the queue, in order of priority: floor, scale, status, event.",
        type=WRITE_TYPES,
    )
    events_dropped = counter(
        "fastpath_events_dropped_total",
        "Events that were not written, by reason: too many similar events for one object (spam), a full "
        "queue (queue), refused by the API server (refused), no longer the leader (fenced), an unexpected "
        "error (unexpected).",
        reason="spam queue refused fenced unexpected",
    )

    scaler_autoscalers = gauge("fastpath_scaler_autoscalers", "Autoscalers that this process runs.")
    forecast_values = gauge(
        "fastpath_forecast_history_values",
        "Values of histories that the forecast worker keeps in memory, 8 bytes each.",
    )
    scaler_decisions = counter(
        "fastpath_scaler_decisions_total", "Decisions by direction.", direction="up down none"
    )
    scaler_limited = counter(
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
