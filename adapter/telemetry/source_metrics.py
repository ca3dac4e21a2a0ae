"""The metrics of the sources of values: rules, cached objects, Prometheus, discovery and direct scrapes."""

from adapter.telemetry.declarations import DASHBOARD_BUCKETS, SHORT_BUCKETS, counter, gauge, histogram

_QUERY_BUCKETS = (*SHORT_BUCKETS, 0.25, 0.5, 1, 2, 3, 5, 8, 10)
_SCRAPE_BUCKETS = (*SHORT_BUCKETS, 0.25, 0.5, 1, 2.5, 5, 10)

_RULE_APIS = "custom external resource"
_FAILED_READS = "unreachable timeout status"
_QUERY_OUTCOMES = f"success {_FAILED_READS} query decode type size partial cancelled"


class SourceMetrics:
    """What is read, and how reading it fares."""

    # configuration
    rules_loaded = gauge("fastpath_rules_loaded", "Rules in use.", api=_RULE_APIS)
    rules_skipped = gauge("fastpath_rules_skipped", "Rules left out because of an error.", api=_RULE_APIS)
    config_faults = gauge("fastpath_config_faults", "Errors in the configuration in use.")
    config_reloads = counter(
        "fastpath_config_reloads_total", "Changed configuration files, by outcome.", outcome="applied refused"
    )
    config_success = gauge(
        "fastpath_config_last_success_timestamp_seconds", "Time at which the configuration in use was loaded."
    )

    # the object index
    informer_objects = gauge("fastpath_informer_objects", "Objects in the cache.", "resource")
    informer_synced = gauge(
        "fastpath_informer_synced", "1 once the first list is complete, else 0.", "resource"
    )
    informer_relists = counter(
        "fastpath_informer_relists_total", "Completed lists, including the first.", "resource"
    )
    informer_event = gauge(
        "fastpath_informer_last_event_timestamp_seconds",
        "Time of the last event or bookmark of the watch. The time since is the age of the watch.",
        "resource",
    )
    informer_events = counter(
        "fastpath_informer_events_total", "Watch events, including bookmarks.", "resource"
    )
    informer_errors = counter(
        "fastpath_informer_errors_total", "Failed lists and watches, by reason.", "resource reason"
    )

    # Prometheus
    queries = counter(
        "fastpath_prometheus_queries_total",
        "Instant queries by type and outcome.",
        type="alone merged sweep age",
        outcome=_QUERY_OUTCOMES,
    )
    query_duration = histogram(
        "fastpath_prometheus_query_duration_seconds",
        "Time of an instant query, from requesting a connection to the decoded response.",
        buckets=_QUERY_BUCKETS,
    )
    client_duration = histogram(
        "prometheus_adapter_prometheus_client_request_duration_seconds",
        "Duration of a request to Prometheus until its body is read. The name is prometheus-adapter's.",
        "path server",
        buckets=DASHBOARD_BUCKETS,
    )
    query_retries = counter(
        "fastpath_prometheus_query_retries_total",
        "Queries sent again because Prometheus had closed the idle connection.",
    )
    query_posts = counter(
        "fastpath_prometheus_query_posts_total",
        "Queries sent as POST because the GET URL would have been too long.",
    )
    query_warnings = counter(
        "fastpath_prometheus_query_warnings_total",
        "Warnings in responses of Prometheus. A response with a warning may lack a part of the data.",
    )
    pending_query_bytes = gauge(
        "fastpath_prometheus_pending_query_bytes",
        "Memory of requests that wait for Prometheus, including those whose clients have disconnected.",
    )
    prometheus_response_bytes = gauge(
        "fastpath_prometheus_response_bytes",
        "Estimated memory of the responses of Prometheus that are being read.",
    )
    queries_waiting = gauge("fastpath_prometheus_queries_waiting", "Queries that wait for a free connection.")

    # discovery
    lookups = counter(
        "fastpath_discovery_lookups_total",
        "Lookups of unknown metrics, by outcome: sent to Prometheus, or skipped by the rate limit (limited).",
        outcome="sent limited",
    )
    discovery_attempt = gauge(
        "fastpath_discovery_last_attempt_timestamp_seconds", "Time of the last discovery, successful or not."
    )
    discovery_success = gauge(
        "fastpath_discovery_last_success_timestamp_seconds",
        "Time of the last discovery in which every series list was read.",
    )
    discovery_duration = gauge("fastpath_discovery_duration_seconds", "Duration of the last discovery.")
    discovery_failures = counter(
        "fastpath_discovery_failures_total",
        "Series lists that could not be read, by reason.",
        reason="unreachable timeout status query decode size worker",
    )
    discovery_series = gauge("fastpath_discovery_series", "Series in the last discovery.")
    discovery_bytes = gauge("fastpath_discovery_bytes", "Bytes of the series lists in the last discovery.")
    discovery_worker_memory = gauge(
        "fastpath_discovery_worker_peak_memory_bytes",
        "Peak resident memory of the last discovery worker process.",
    )
    rules_stale = gauge(
        "fastpath_discovery_rules_stale", "Rules whose series the last discovery could not refresh."
    )

    # direct scrapes
    scrapes = counter(
        "fastpath_scrapes_total",
        "Pod scrapes by outcome.",
        outcome=f"success {_FAILED_READS} size decode series budget credentials",
    )
    scrape_duration = histogram(
        "fastpath_scrape_duration_seconds",
        "Duration of a scrape, from the request to the complete body or the failure.",
        buckets=_SCRAPE_BUCKETS,
    )
    scrape_targets = gauge("fastpath_scrape_targets", "Pod endpoints that are scraped.")
    scrape_endpoints_refused = counter(
        "fastpath_scrape_endpoints_refused_total",
        "Endpoints of external rules that are not scraped: not a pod of the rule's namespace, another "
        "address than the pod's, in the node's network, or too many (limit).",
        reason="foreign address host-network limit",
    )
    scrape_stretch = gauge(
        "fastpath_scrape_interval_stretch_ratio",
        "Factor by which --scrape-max-per-second stretches every scrape interval; 1 is as configured.",
    )
    scrape_seconds = counter(
        "fastpath_scrape_processing_seconds_total", "Time spent on processing scraped bodies."
    )
    scrape_slowed = gauge(
        "fastpath_scrape_slowed_targets",
        "Pod endpoints that are scraped less often because their bodies take too long to process.",
    )
    scrape_bodies = gauge(
        "fastpath_scrape_bodies_bytes", "Bytes of scraped bodies that are being read or processed."
    )
    scraped_series = gauge(
        "fastpath_scraped_series_bytes", "Estimated memory of the series kept from scraped pods."
    )
    scraped_values = counter(
        "fastpath_scraped_values_total",
        "Values requested for scraped pods, by source: a scrape, an overdue scrape, Prometheus as a "
        "fallback, or none (absent).",
        source="scrape overdue prometheus absent",
    )
