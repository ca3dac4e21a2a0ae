"""The metrics of a process and of its server: requests, authentication, authorization and caches."""

from adapter.telemetry.declarations import LAG_BUCKETS, SHORT_BUCKETS, counter, gauge, histogram

_REQUEST = "verb group version resource subresource scope"

_REQUEST_BUCKETS = (0.0005, *SHORT_BUCKETS, 0.2, 0.4, 0.8, 1.5, 3, 5, 8, 15, 30, 60)
_REVIEW_BUCKETS = (*SHORT_BUCKETS, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30)
_FRESHNESS_BUCKETS = tuple(round(1.364**step, 3) for step in range(20))

CACHES = "routes bodies users tokens accesses texts objects sweeps batches selections"


class ServerMetrics:
    """Requests to the server, their authentication, and the process."""

    requests = counter(
        "apiserver_request_total",
        "Requests to the metrics APIs by status code. Resource and subresource are always *.",
        f"{_REQUEST} code",
    )
    request_duration = histogram(
        "apiserver_request_duration_seconds",
        "Time from reading a request to writing its response.",
        _REQUEST,
        buckets=_REQUEST_BUCKETS,
    )
    inflight = gauge(
        "apiserver_current_inflight_requests", "Requests in flight.", request_kind="readOnly mutating"
    )
    requests_refused = counter(
        "fastpath_requests_refused_total",
        "Requests rejected with 429, by the limit that was exceeded: concurrent requests (requests), clients "
        "that wait for a review (clients), concurrent reviews (reviews), queries that wait for Prometheus "
        "(queries), memory of responses (responses).",
        limit="requests clients reviews queries responses",
    )
    connections = gauge("fastpath_connections", "Open client connections.")
    connections_closed = counter(
        "fastpath_connections_closed_total",
        "Client connections that Fastpath closed, by reason: too many connections (limit), no complete "
        "request in time (timeout), headers above the limit (headers), the memory limit of long heads "
        "(memory), a response that was not read in time or whose memory was needed (unread), a TLS handshake "
        "that took too long or was displaced by another (handshake).",
        reason="limit timeout headers memory unread handshake",
    )
    handshakes = gauge("fastpath_connection_handshakes", "Client connections in their TLS handshake.")
    response_bytes = gauge(
        "fastpath_response_bytes",
        "Memory of responses that are being encoded or sent, beyond the first 32 KiB of each.",
    )
    requests_waiting = gauge(
        "fastpath_requests_waiting", "Requests without a client certificate that wait in the fair queue."
    )
    access_log_dropped = counter(
        "fastpath_access_log_dropped_total",
        "Access log lines that were dropped because the reader of the log was too slow or writing failed.",
    )
    freshness = histogram(
        "metrics_apiserver_metric_freshness_seconds",
        "Age of the served values, from their timestamp to the response.",
        "group",
        buckets=_FRESHNESS_BUCKETS,
    )
    responses = counter(
        "fastpath_responses_total",
        "Responses with values by source: a query of their own, a query already in flight (joined), the "
        "cache, a query for all objects (sweep), or the last answer while Prometheus fails (stale).",
        source="query joined cache sweep stale",
    )
    dropped = counter(
        "fastpath_values_dropped_total",
        "Samples (for pods and nodes: usages) left out of a response, by reason; never served as zero.",
        reason="nan infinite negative overflow incomplete stale duplicate histogram",
    )

    # authentication and authorization
    authentication_attempts = counter(
        "authentication_attempts",
        "Requests by the result of authentication. Anonymous requests count as success.",
        result="success failure error",
    )
    authorization_attempts = counter(
        "authorization_attempts_total",
        "Requests by the result of authorization.",
        result="allowed denied no-opinion error",
    )
    token_cache = counter(
        "authentication_token_cache_request_total",
        "Lookups in the cache of token reviews.",
        status="hit miss",
    )
    access_cache = counter(
        "fastpath_access_review_cache_total", "Lookups in the cache of access reviews.", status="hit miss"
    )
    token_reviews = counter(
        "apiserver_delegated_authn_request_total",
        "Token reviews by HTTP status code; <error> if there was no response.",
        "code",
    )
    token_review_duration = histogram(
        "apiserver_delegated_authn_request_duration_seconds",
        "Duration of a token review including retries.",
        "code",
        buckets=_REVIEW_BUCKETS,
    )
    access_reviews = counter(
        "apiserver_delegated_authz_request_total",
        "Access reviews by HTTP status code; <error> if there was no response.",
        "code",
    )
    access_review_duration = histogram(
        "apiserver_delegated_authz_request_duration_seconds",
        "Duration of an access review including retries.",
        "code",
        buckets=_REVIEW_BUCKETS,
    )
    trust_generation = gauge(
        "fastpath_trust_generation",
        "Number of changes of the CA certificates for client certificates; 0 while none are known.",
    )

    # what is kept
    cache_entries = gauge(
        "fastpath_cache_entries",
        "Entries of each cache. docs/reference/limits.md describes the caches.",
        cache=CACHES,
    )
    cache_used = gauge(
        "fastpath_cache_used_ratio", "Used share of the capacity of each cache; 1 is full.", cache=CACHES
    )
    cache_evictions = counter(
        "fastpath_cache_evictions_total", "Entries evicted from a full cache.", cache=CACHES
    )

    # the process
    ready = gauge(
        "fastpath_ready",
        "1 if /readyz succeeds, else 0. The label command is serve or scale, as on the command line.",
        "command",
    )
    certificate_expiration = gauge(
        "fastpath_certificate_expiration_timestamp_seconds",
        "Time at which a serving certificate in use expires, by its file.",
        "file",
    )
    apiservice_owned = gauge(
        "fastpath_apiservice_owned",
        "1 if an APIService of the groups in --serve-groups sends requests to this Fastpath, else 0. Absent "
        "if the APIService cannot be read, and for a version that does not exist while another one of its "
        "group does.",
        "apiservice",
    )
    faults = counter(
        "fastpath_faults_total", "Occurrences of problems. The log reports each problem once.", "fault"
    )
    faults_active = gauge("fastpath_faults_active", "Problems that persist.", "fault")
    loop_lag = histogram(
        "fastpath_event_loop_lag_seconds", "Delay of event loop timers.", buckets=LAG_BUCKETS
    )
    build = gauge(
        "fastpath_build_info",
        "Always 1. The labels hold the version and the Python version.",
        "version python",
    )
