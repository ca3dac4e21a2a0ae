"""The metrics that Fastpath exposes about itself, one declaration for each, and their text format.

A metric is declared as an attribute of `Monitoring`; documentation and tests read the same declarations
through `METRICS`. Names carry their unit, and label values are bounded: by the declaration, or by the kinds
and groups of the cluster. Names that dashboards know from API servers and from prometheus-adapter are kept.
"""

import functools
import itertools
import platform
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REQUEST = "verb group version resource subresource scope"
_AUTOSCALER = "kind namespace name"
"""The labels of one autoscaler of either kind. Its series end with it, or with the term of the leader."""

_SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
_REQUEST_BUCKETS = (0.0005, *_SHORT_BUCKETS, 0.2, 0.4, 0.8, 1.5, 3, 5, 8, 15, 30, 60)
_QUERY_BUCKETS = (*_SHORT_BUCKETS, 0.25, 0.5, 1, 2, 3, 5, 8, 10)
_SCRAPE_BUCKETS = (*_SHORT_BUCKETS, 0.25, 0.5, 1, 2.5, 5, 10)
_REVIEW_BUCKETS = (*_SCRAPE_BUCKETS, 15, 30)
_DASHBOARD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_FRESHNESS_BUCKETS = tuple(round(1.364**step, 3) for step in range(20))
_STAGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 15, 30, 60, 120)

WRITE_KINDS = ("floor", "scale", "status", "event")
CACHES = (
    "routes",
    "bodies",
    "users",
    "tokens",
    "accesses",
    "texts",
    "objects",
    "sweeps",
    "batches",
    "selections",
)
_RULE_APIS = ("custom", "external", "resource")
_FAILED_READS = ("unreachable", "timeout", "status")
_QUERY_OUTCOMES = ("success", *_FAILED_READS, "query", "decode", "type", "size", "partial", "cancelled")

_SAMPLES_AT_ONCE = 50


_MetricT = TypeVar("_MetricT", Counter, Gauge, Histogram)


@dataclass(slots=True)
class Metric:
    """The declaration of a metric.

    `values` lists the values of each label if they are known beforehand, so that their series exist from the
    start at zero. Without it the labels are bounded by the cluster.
    """

    kind: type[Counter | Gauge | Histogram]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    attribute: str = ""

    def __set_name__(self, _: object, name: str) -> None:
        self.attribute = name

    @property
    def type(self) -> str:
        return self.kind.__name__.lower()

    def build(self, registry: prometheus_client.CollectorRegistry) -> Counter | Gauge | Histogram:
        buckets: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        metric = self.kind(self.name, self.help, self.labels, registry=registry, **buckets)
        if self.values:
            for combination in itertools.product(*self.values):
                metric.labels(*combination)
        return metric


def _declare(
    kind: type[_MetricT],
    name: str,
    text: str,
    labels: str = "",
    /,
    buckets: tuple[float, ...] = (),
    **values: tuple[str, ...],
) -> _MetricT:
    """Declare a metric by its help and its labels, or by the values of each label.

    As with `dataclasses.field`, the attribute is the declaration on the class and the metric on an instance.
    """
    declared: Any = Metric(kind, name, text, (*labels.split(), *values), buckets, tuple(values.values()))
    metric: _MetricT = declared
    return metric


_counter = functools.partial(_declare, Counter)
_gauge = functools.partial(_declare, Gauge)
_histogram = functools.partial(_declare, Histogram)


class Cache(Protocol):
    """A cache whose size is exposed."""

    @property
    def currsize(self) -> float: ...

    @property
    def maxsize(self) -> float: ...

    def __len__(self) -> int: ...


class Monitoring:
    """The metrics of one process, or of one test, in a registry of their own."""

    # the metrics APIs
    requests = _counter(
        "apiserver_request_total",
        "Requests to the metrics APIs by status code. Resource and subresource are always * to bound "
        "the series.",
        f"{_REQUEST} code",
    )
    request_duration = _histogram(
        "apiserver_request_duration_seconds",
        "Time from reading a request to writing its response.",
        _REQUEST,
        buckets=_REQUEST_BUCKETS,
    )
    inflight = _gauge(
        "apiserver_current_inflight_requests",
        "Requests in flight.",
        request_kind=("readOnly", "mutating"),
    )
    too_many = _counter(
        "fastpath_requests_refused_total",
        "Requests rejected with 429, by the limit that was exceeded: concurrent requests (questions), "
        "callers that wait for a review (callers), concurrent reviews (reviews), queries that wait for "
        "Prometheus (queries), memory of responses (answers).",
        limit=("questions", "callers", "reviews", "queries", "answers"),
    )
    connections = _gauge("fastpath_connections", "Open client connections.")
    connections_cut = _counter(
        "fastpath_connections_cut_total",
        "Client connections that Fastpath closed, by reason: too many connections (flood), no complete "
        "request in time (silence), headers above the limit (headers), the memory limit of long "
        "request heads (memory), a response that was not read in time or whose memory was needed (unread), a "
        "TLS handshake that took too long or was displaced by another (handshake).",
        reason=("flood", "silence", "headers", "memory", "unread", "handshake"),
    )
    handshakes = _gauge("fastpath_connection_handshakes", "Client connections in their TLS handshake.")
    answer_bytes = _gauge(
        "fastpath_answer_bytes",
        "Memory of responses that are being encoded or sent, beyond the first 32 KiB of each.",
    )
    requests_waiting = _gauge(
        "fastpath_requests_waiting",
        "Requests of clients without a client certificate that wait for their turn.",
    )
    access_log_dropped = _counter(
        "fastpath_access_log_dropped_total",
        "Access log lines that were dropped because the reader of the log was too slow or writing failed.",
    )
    freshness = _histogram(
        "metrics_apiserver_metric_freshness_seconds",
        "Age of the served values, from their timestamp to the response.",
        "group",
        buckets=_FRESHNESS_BUCKETS,
    )
    answers = _counter(
        "fastpath_answers_total",
        "Served requests for values by source: a query of their own, a query already in flight (joined), the "
        "cache, a merged query (sweep), or the last answer while Prometheus fails (stale).",
        source=("query", "joined", "cache", "sweep", "stale"),
    )
    dropped = _counter(
        "fastpath_values_dropped_total",
        "Samples (for pods and nodes: usages) left out of an answer, by reason. They are never served "
        "as zero.",
        reason=("nan", "infinite", "negative", "overflow", "incomplete", "stale", "duplicate", "histogram"),
    )

    # authentication and authorization
    authentication_attempts = _counter(
        "authentication_attempts",
        "Requests by the result of authentication. A request without credentials is anonymous and "
        "counts as success.",
        result=("success", "failure", "error"),
    )
    authorization_attempts = _counter(
        "authorization_attempts_total",
        "Requests by the result of authorization.",
        result=("allowed", "denied", "no-opinion", "error"),
    )
    token_cache = _counter(
        "authentication_token_cache_request_total",
        "Lookups in the cache of token reviews.",
        status=("hit", "miss"),
    )
    access_cache = _counter(
        "fastpath_access_review_cache_total",
        "Lookups in the cache of access reviews.",
        status=("hit", "miss"),
    )
    token_reviews = _counter(
        "apiserver_delegated_authn_request_total",
        "Token reviews by HTTP status code; <error> if there was no response.",
        "code",
    )
    token_review_duration = _histogram(
        "apiserver_delegated_authn_request_duration_seconds",
        "Duration of a token review including retries.",
        "code",
        buckets=_REVIEW_BUCKETS,
    )
    access_reviews = _counter(
        "apiserver_delegated_authz_request_total",
        "Access reviews by HTTP status code; <error> if there was no response.",
        "code",
    )
    access_review_duration = _histogram(
        "apiserver_delegated_authz_request_duration_seconds",
        "Duration of an access review including retries.",
        "code",
        buckets=_REVIEW_BUCKETS,
    )
    trust_generation = _gauge(
        "fastpath_trust_generation",
        "Number of changes of the CA certificates for client certificates; 0 while none are known.",
    )

    # what is kept
    cache_entries = _gauge(
        "fastpath_cache_entries",
        "Entries of each cache. docs/reference/limits.md describes the caches.",
        cache=CACHES,
    )
    cache_used = _gauge(
        "fastpath_cache_used_ratio", "Used share of the capacity of each cache; 1 is full.", cache=CACHES
    )
    cache_evictions = _counter(
        "fastpath_cache_evictions_total", "Entries evicted from a full cache.", cache=CACHES
    )

    # Prometheus
    queries = _counter(
        "fastpath_prometheus_queries_total",
        "Instant queries by kind and outcome.",
        kind=("alone", "merged", "sweep", "age"),
        outcome=_QUERY_OUTCOMES,
    )
    query_duration = _histogram(
        "fastpath_prometheus_query_duration_seconds",
        "Time of an instant query, from requesting a connection to the decoded answer.",
        buckets=_QUERY_BUCKETS,
    )
    client_duration = _histogram(
        "prometheus_adapter_prometheus_client_request_duration_seconds",
        "Duration of a request to Prometheus until its body is read. The name is prometheus-adapter's.",
        "path server",
        buckets=_DASHBOARD_BUCKETS,
    )
    query_retries = _counter(
        "fastpath_prometheus_query_retries_total",
        "Queries sent again because Prometheus had closed the idle connection.",
    )
    query_posts = _counter(
        "fastpath_prometheus_query_long_total",
        "Queries sent as POST because the GET URL would have been too long.",
    )
    query_warnings = _counter(
        "fastpath_prometheus_query_warnings_total",
        "Warnings in answers of Prometheus. An answer with a warning may lack a part of the data.",
    )
    questions_waiting = _gauge(
        "fastpath_prometheus_questions_bytes",
        "Memory of requests that wait for Prometheus, including those whose clients have disconnected.",
    )
    answers_reading = _gauge(
        "fastpath_prometheus_answers_bytes",
        "Estimated memory of the answers of Prometheus that are being read.",
    )
    connections_waiting = _gauge(
        "fastpath_prometheus_queries_waiting", "Queries that wait for a free connection."
    )

    # discovery
    lookups = _counter(
        "fastpath_discovery_lookups_total",
        "On-demand lookups of unknown metrics, by outcome: sent to Prometheus (asked), or skipped "
        "because of the rate limit (limited).",
        outcome=("asked", "limited"),
    )
    discovery_attempt = _gauge(
        "fastpath_discovery_last_attempt_timestamp_seconds", "Time of the last discovery, successful or not."
    )
    discovery_success = _gauge(
        "fastpath_discovery_last_success_timestamp_seconds",
        "Time of the last discovery in which every series list was read.",
    )
    discovery_duration = _gauge("fastpath_discovery_duration_seconds", "Duration of the last discovery.")
    discovery_failures = _counter(
        "fastpath_discovery_failures_total",
        "Series lists that could not be read, by kind of failure.",
        kind=("unreachable", "timeout", "status", "query", "decode", "size", "worker"),
    )
    discovery_series = _gauge("fastpath_discovery_series", "Series in the last discovery.")
    discovery_bytes = _gauge("fastpath_discovery_bytes", "Bytes of the series lists in the last discovery.")
    discovery_worker_memory = _gauge(
        "fastpath_discovery_worker_peak_memory_bytes",
        "Peak resident memory of the last discovery worker process.",
    )
    discovery_voided = _gauge(
        "fastpath_discovery_rules_voided", "Rules whose series the last discovery could not refresh."
    )

    # direct scrapes
    scrapes = _counter(
        "fastpath_scrapes_total",
        "Pod scrapes by outcome.",
        outcome=("success", *_FAILED_READS, "size", "decode", "series", "budget", "credentials"),
    )
    scrape_duration = _histogram(
        "fastpath_scrape_duration_seconds",
        "Duration of a scrape, from the request to the complete body or the failure.",
        buckets=_SCRAPE_BUCKETS,
    )
    scrape_targets = _gauge("fastpath_scrape_targets", "Pod endpoints that are scraped.")
    scrape_endpoints_refused = _counter(
        "fastpath_scrape_endpoints_refused_total",
        "Endpoints of external rules that are not scraped: not a pod of the rule's namespace, another "
        "address than the pod's, in the node's network, or too many.",
        reason=("foreign", "address", "host-network", "many"),
    )
    scrape_stretch = _gauge(
        "fastpath_scrape_interval_stretch_ratio",
        "Factor by which --scrape-max-per-second stretches every scrape interval; 1 is as configured.",
    )
    scrape_seconds = _counter(
        "fastpath_scrape_processing_seconds_total", "Time spent on processing scraped bodies."
    )
    scrape_slowed = _gauge(
        "fastpath_scrape_slowed_targets",
        "Pod endpoints that are scraped less often because processing their bodies exceeds their share "
        "of time.",
    )
    scrape_bodies = _gauge(
        "fastpath_scrape_bodies_bytes", "Bytes of scraped bodies that are being read or processed."
    )
    scraped_series = _gauge(
        "fastpath_scraped_series_bytes", "Estimated memory of the series kept from scraped pods."
    )
    scraped_values = _counter(
        "fastpath_scraped_values_total",
        "Values requested for scraped pods, by source: a scrape, an overdue scrape, Prometheus as a "
        "fallback, or none (absent).",
        source=("scrape", "overdue", "prometheus", "absent"),
    )

    # configuration
    rules_loaded = _gauge("fastpath_rules_loaded", "Rules in use.", api=_RULE_APIS)
    rules_skipped = _gauge("fastpath_rules_skipped", "Rules left out because of an error.", api=_RULE_APIS)
    config_faults = _gauge("fastpath_config_faults", "Errors in the configuration in use.")
    config_reloads = _counter(
        "fastpath_config_reloads_total",
        "Changed configuration files, by outcome.",
        outcome=("applied", "refused"),
    )
    config_success = _gauge(
        "fastpath_config_last_success_timestamp_seconds", "Time at which the configuration in use was loaded."
    )

    # the object index
    informer_objects = _gauge("fastpath_informer_objects", "Objects in the cache.", "resource")
    informer_synced = _gauge(
        "fastpath_informer_synced", "1 once the first list is complete, else 0.", "resource"
    )
    informer_relists = _counter(
        "fastpath_informer_relists_total", "Completed lists, including the first.", "resource"
    )
    informer_event = _gauge(
        "fastpath_informer_last_event_timestamp_seconds",
        "Time of the last event or bookmark of the watch. The time since is the age of the watch.",
        "resource",
    )
    informer_events = _counter(
        "fastpath_informer_events_total", "Watch events, including bookmarks.", "resource"
    )
    informer_errors = _counter(
        "fastpath_informer_errors_total", "Failed lists and watches, by reason.", "resource reason"
    )

    # leadership and writes
    leader = _gauge(
        "leader_election_master_status",
        "1 while this process holds the lease, else 0. The name is Kubernetes'.",
        "name",
    )
    lease_renewals = _counter(
        "fastpath_lease_renewals_total",
        "Attempts to acquire or renew the lease, by outcome: success, conflict (another process changed "
        "it first), failed (no valid response in time).",
        outcome=("success", "conflict", "failed"),
    )
    writes = _counter(
        "fastpath_writes_total",
        "Writes of the scaler by kind and outcome. A fenced write was not sent because the lease might "
        "have been lost.",
        kind=WRITE_KINDS,
        outcome=("success", "conflict", "refused", "failed", "fenced"),
    )
    write_duration = _histogram(
        "fastpath_write_duration_seconds",
        "Duration of a write, from leaving the queue to its response.",
        buckets=_DASHBOARD_BUCKETS,
        kind=WRITE_KINDS,
    )
    write_queue = _gauge(
        "fastpath_write_queue_length",
        "Writes that wait in the queue, in order of priority: floor, scale, status, event.",
        kind=WRITE_KINDS,
    )
    events_dropped = _counter(
        "fastpath_events_dropped_total",
        "Events that were not written, by reason: too many similar events for one object (spam), a full "
        "queue (queue), refused by the API server (refused), no longer the leader (fenced), an unexpected "
        "error (unexpected).",
        reason=("spam", "queue", "refused", "fenced", "unexpected"),
    )

    # decisions
    scaler_autoscalers = _gauge("fastpath_scaler_autoscalers", "Autoscalers that this process runs.")
    scaler_desired = _gauge(
        "fastpath_scaler_desired_replicas",
        "Desired replicas of an autoscaler; none if the last decision has no count.",
        "namespace name",
    )
    scaler_current = _gauge(
        "fastpath_scaler_current_replicas",
        "spec.replicas of the scale target at the last decision.",
        "namespace name",
    )
    recommended = _gauge(
        "fastpath_recommended_replicas",
        "Recommended replicas for a HorizontalPodAutoscaler that is advised or boosted; none if the last "
        "decision has no count.",
        "namespace horizontalpodautoscaler",
    )
    recommended_difference = _gauge(
        "fastpath_recommended_replicas_difference",
        "Recommended replicas minus spec.replicas of the scale target at the last decision.",
        "namespace horizontalpodautoscaler",
    )
    floor = _gauge(
        "fastpath_floor_replicas",
        "The floor of a boosted HorizontalPodAutoscaler while Fastpath holds a scale-up, else 0.",
        "namespace horizontalpodautoscaler",
    )
    boost_demoted = _gauge(
        "fastpath_boost_demoted",
        "1 while a HorizontalPodAutoscaler is only advised because another field manager reverted two "
        "raises, else 0.",
        "namespace horizontalpodautoscaler",
    )
    demand = _gauge(
        "fastpath_autoscaler_demand_replicas",
        "Replicas that the metrics of an autoscaler ask for, before minReplicas, maxReplicas and scaling "
        "policies. Absent while a metric has no value.",
        _AUTOSCALER,
    )
    covered = _gauge(
        "fastpath_autoscaler_pending_capacity_replicas",
        "Replicas by which pending capacity reduces what the metrics of an autoscaler ask for. Absent "
        "without that option.",
        _AUTOSCALER,
    )
    min_replicas = _gauge("fastpath_autoscaler_min_replicas", "minReplicas of an autoscaler.", _AUTOSCALER)
    max_replicas = _gauge("fastpath_autoscaler_max_replicas", "maxReplicas of an autoscaler.", _AUTOSCALER)
    ready_pods = _gauge(
        "fastpath_autoscaler_ready_pods",
        "Running and ready pods that the selector of the scale target matches.",
        _AUTOSCALER,
    )
    absent_metrics = _gauge(
        "fastpath_autoscaler_metrics_absent",
        "Metrics of an autoscaler without a value at the last decision. They block scaling down.",
        _AUTOSCALER,
    )
    value_time = _gauge(
        "fastpath_autoscaler_value_timestamp_seconds",
        "Time of the oldest sample that the last decision used. The time since is the age of the value. "
        "Absent if decisions use no metric, as while the autoscaler is paused.",
        _AUTOSCALER,
    )
    reason = _gauge(
        "fastpath_autoscaler_reason",
        "Always 1. The label reason is that of the condition that explains the last decision: AbleToScale "
        "or ScalingActive if False, else ScalingLimited if True, else AbleToScale.",
        f"{_AUTOSCALER} reason",
    )
    direction_changes = _counter(
        "fastpath_autoscaler_direction_changes_total",
        "Changes of spec.replicas of the scale target, by any client, in the opposite direction of the "
        "change before.",
        _AUTOSCALER,
    )
    last_scale_duration = _gauge(
        "fastpath_autoscaler_last_scale_duration_seconds",
        "Time from the load to the response to the write (at most), of the last Scale that Fastpath wrote.",
        _AUTOSCALER,
    )
    ready_time = _gauge(
        "fastpath_autoscaler_ready_time_seconds",
        "How long the last pods of the scale target took until they were Ready, by part (created to "
        "scheduled, to containers started, to Ready, and the total) and quantile. Absent before the first "
        "pod.",
        f"{_AUTOSCALER} part quantile",
    )
    ready_time_pods = _gauge(
        "fastpath_autoscaler_ready_time_pods",
        "Pods from which fastpath_autoscaler_ready_time_seconds is computed, at most 50.",
        _AUTOSCALER,
    )
    forecast_floor = _gauge(
        "fastpath_forecast_floor_replicas",
        "The floor that a forecast gives an autoscaler, 0 for none. Always 0 in mode Advise.",
        _AUTOSCALER,
    )
    forecast_ready = _gauge(
        "fastpath_forecast_ready",
        "1 if there is a verdict on the forecasts of an autoscaler and its history can be read, else 0. The "
        "condition ForecastReady says why.",
        _AUTOSCALER,
    )
    forecast_acting = _gauge(
        "fastpath_forecast_acting",
        "1 if the last verdict lets a forecast act, else 0. In mode Advise it gives no floor all the same.",
        _AUTOSCALER,
    )
    forecast_verdict_time = _gauge(
        "fastpath_forecast_verdict_timestamp_seconds",
        "End of the history that the last verdict looked at. The time since is the age of the verdict. "
        "Absent before the first verdict.",
        _AUTOSCALER,
    )
    forecast_coverage = _gauge(
        "fastpath_forecast_coverage_ratio",
        "Share of the minutes of the last day in which the demand stayed within its forecast bound. Absent "
        "while too few are known.",
        _AUTOSCALER,
    )
    forecast_extra = _gauge(
        "fastpath_forecast_extra_ratio",
        "Pods of the last day that the floor of a forecast adds, as a share of those without it. maxExtra "
        "bounds it.",
        _AUTOSCALER,
    )
    forecast_values = _gauge(
        "fastpath_forecast_history_values",
        "Values of histories that the process of forecasts keeps in memory, 8 bytes each.",
    )
    scaler_decisions = _counter(
        "fastpath_scaler_decisions_total", "Decisions by direction.", direction=("up", "down", "none")
    )
    scaler_limited = _counter(
        "fastpath_scaler_limited_decisions_total",
        "Decisions in which a limit or a scaling policy changed the count that the metrics asked for.",
    )
    scaler_defects = _counter(
        "fastpath_scaler_unexpected_errors_total",
        "Decisions, writes, queries, forecasts and schedules that ended in an unexpected error. The log has "
        "the traceback, once for each object.",
    )
    scaler_question_stretch = _gauge(
        "fastpath_scaler_question_stretch_ratio",
        "Factor by which --prometheus-max-queries-per-second stretches the query period, the largest of "
        "the last second; 1 is as configured.",
    )
    scaler_lag = _histogram(
        "fastpath_scaler_lag_seconds", "Delay of a decision after its due time.", buckets=_LAG_BUCKETS
    )
    scaler_sample_age = _histogram(
        "fastpath_scaler_sample_age_seconds",
        "Age of the oldest sample in a decision that changed the replica count or was kept from doing so.",
        buckets=_STAGE_BUCKETS,
    )
    scaler_stages = _histogram(
        "fastpath_scaler_stage_seconds",
        "Duration of the stages of a scale: from the load to its sample (at most), from the sample to "
        "the decision, from the decision to the response to the write.",
        buckets=_STAGE_BUCKETS,
        stage=("load-to-sample", "sample-to-decision", "decision-to-write"),
    )

    # the process
    ready = _gauge(
        "fastpath_ready",
        "1 if /readyz succeeds, else 0. The label command is serve or scale, as on the command line.",
        "command",
    )
    certificate_expiration = _gauge(
        "fastpath_certificate_expiration_timestamp_seconds",
        "Time at which a serving certificate in use expires, by its file.",
        "file",
    )
    apiservice_ours = _gauge(
        "fastpath_apiservice_ours",
        "1 if an APIService of the groups in --serve-groups sends requests to this Fastpath, else 0. "
        "Absent for a version that is not registered beside another one of its group, and if the APIService "
        "cannot be read.",
        "apiservice",
    )
    faults = _counter(
        "fastpath_faults_total", "Occurrences of problems. The log reports each problem once.", "fault"
    )
    faults_active = _gauge("fastpath_faults_active", "Problems that persist.", "fault")
    loop_lag = _histogram(
        "fastpath_event_loop_lag_seconds", "Delay of event loop timers.", buckets=_LAG_BUCKETS
    )
    build = _gauge(
        "fastpath_build_info",
        "Always 1. The labels hold the version and the Python version.",
        "version python",
    )

    def __init__(self, version: str = "unknown") -> None:
        self.registry = prometheus_client.CollectorRegistry(auto_describe=False)
        for metric in METRICS:
            setattr(self, metric.attribute, metric.build(self.registry))
        prometheus_client.ProcessCollector(registry=self.registry)
        self._caches: dict[str, list[weakref.ref[Cache]]] = {}
        self.build.labels(version=version, python=platform.python_version()).set(1)

    def watch_cache(self, name: str, cache: Cache) -> Counter:
        """Expose the size of a cache; return the counter of its evictions.

        Caches that share a name are added up. The caches are referenced weakly.
        """
        watched = self._caches.get(name)
        if watched is None:
            watched = self._caches[name] = []
            self.cache_entries.labels(name).set_function(lambda: sum(map(len, _alive(watched))))
            self.cache_used.labels(name).set_function(lambda: _used(_alive(watched)))
        watched[:] = [reference for reference in watched if reference() is not None]
        watched.append(weakref.ref(cache))
        return self.cache_evictions.labels(name)

    def exposition(self) -> str:
        return b"".join(self.exposition_pieces()).decode()

    def exposition_pieces(self) -> Iterator[bytes]:
        """Yield the text in pieces of at most 50 samples, about a millisecond each."""
        for family in self._families():
            samples = family.samples
            for start in range(0, max(len(samples), 1), _SAMPLES_AT_ONCE):
                family.samples = samples[start : start + _SAMPLES_AT_ONCE]
                text = prometheus_client.generate_latest(_FamilyCollector(family))
                # only the first piece of a family has the lines HELP and TYPE
                yield text if start == 0 else text.split(b"\n", 2)[2]

    def _families(self) -> Iterator[Family]:
        """Yield the metrics without what prometheus_client adds to them."""
        for family in self.registry.collect():
            # a `_created` sample would be one more gauge for every series
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            if family.name in _BARE_COUNTERS:
                family.type = "unknown"  # the type counter would be written with the suffix
                family.samples = [sample._replace(name=family.name) for sample in family.samples]
            yield family


METRICS = tuple(metric for metric in vars(Monitoring).values() if isinstance(metric, Metric))

# API servers expose these without the suffix `_total`, which prometheus_client always adds.
_BARE_COUNTERS = frozenset(
    metric.name for metric in METRICS if metric.type == "counter" and not metric.name.endswith("_total")
)


def _alive(watched: Iterable[weakref.ref[Cache]]) -> list[Cache]:
    return [cache for reference in watched if (cache := reference()) is not None]


def _used(caches: list[Cache]) -> float:
    room = sum(cache.maxsize for cache in caches)
    return sum(cache.currsize for cache in caches) / room if room else 0.0


class _FamilyCollector(Collector):
    """One family in the form that `generate_latest` takes."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family
