"""The metrics that Fastpath exposes about itself, one declaration for each.

A metric is declared as an attribute of `Monitoring`; documentation and tests read the same declarations
through `METRICS`. Names carry their unit, and label values are bounded: by the declaration, or by the kinds
and groups of the cluster. Names that dashboards know from API servers and from prometheus-adapter are kept.
"""

import itertools
import platform
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from adapter.telemetry import exposition

_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope")
_REQUEST_BUCKETS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.8,
    1.5,
    3,
    5,
    8,
    15,
    30,
    60,
)
_QUERY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 10)
_SCRAPE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_DASHBOARD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_REVIEW_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30)
_SAMPLES_AT_ONCE = 50

_LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_FRESHNESS_BUCKETS = tuple(round(1.364**step, 3) for step in range(20))

_STAGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 15, 30, 60, 120)

STAGES = ("load-to-sample", "sample-to-decision", "decision-to-write")
QUERY_KINDS = ("alone", "merged", "sweep", "age")
WRITE_KINDS = ("floor", "scale", "status", "event")
SCRAPE_OUTCOMES = (
    "success",
    "unreachable",
    "timeout",
    "status",
    "size",
    "decode",
    "series",
    "budget",
    "credentials",
)
OUTCOMES = (
    "success",
    "unreachable",
    "timeout",
    "status",
    "query",
    "decode",
    "type",
    "size",
    "partial",
    "cancelled",
)
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


@dataclass(slots=True)
class Metric:
    """The declaration of a metric.

    `values` lists the values of each label if they are known beforehand, so that their series exist from the
    start at zero. Without it the labels are bounded by the cluster.
    """

    type: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    attribute: str = ""

    def __set_name__(self, _: object, name: str) -> None:
        self.attribute = name

    def build(self, registry: prometheus_client.CollectorRegistry) -> Counter | Gauge | Histogram:
        """Return the metric, registered."""
        metric: Counter | Gauge | Histogram
        if self.type == "counter":
            metric = Counter(self.name, self.help, self.labels, registry=registry)
        elif self.type == "gauge":
            metric = Gauge(self.name, self.help, self.labels, registry=registry)
        else:
            metric = Histogram(self.name, self.help, self.labels, registry=registry, buckets=self.buckets)
        if self.values:
            for combination in itertools.product(*self.values):
                metric.labels(*combination)
        return metric


# `Any`, as for `dataclasses.field`: the attribute is a declaration on the class and the metric on an
# instance.
def _counter(
    name: str, text: str, labels: tuple[str, ...] = (), values: tuple[tuple[str, ...], ...] = ()
) -> Any:
    return Metric("counter", name, text, labels, values=values)


def _gauge(
    name: str, text: str, labels: tuple[str, ...] = (), values: tuple[tuple[str, ...], ...] = ()
) -> Any:
    return Metric("gauge", name, text, labels, values=values)


def _histogram(
    name: str,
    text: str,
    labels: tuple[str, ...] = (),
    buckets: tuple[float, ...] = (),
    values: tuple[tuple[str, ...], ...] = (),
) -> Any:
    return Metric("histogram", name, text, labels, buckets, values)


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
    requests: Counter = _counter(
        "apiserver_request_total",
        "Requests to the metrics APIs by status code. Resource and subresource are always * to "
        "bound the series.",
        (*_REQUEST, "code"),
    )
    request_duration: Histogram = _histogram(
        "apiserver_request_duration_seconds",
        "Time from reading a request to writing its response.",
        _REQUEST,
        buckets=_REQUEST_BUCKETS,
    )
    inflight: Gauge = _gauge(
        "apiserver_current_inflight_requests",
        "Requests that are being answered.",
        ("request_kind",),
        values=(("readOnly", "mutating"),),
    )
    too_many: Counter = _counter(
        "fastpath_requests_refused_total",
        "Requests rejected with 429, by the limit that was exceeded: concurrent requests "
        "(questions), callers that wait for a review (callers), concurrent reviews (reviews), "
        "queries that wait for Prometheus (queries), memory of responses (answers).",
        ("limit",),
        values=(("questions", "callers", "reviews", "queries", "answers"),),
    )
    connections: Gauge = _gauge("fastpath_connections", "Open client connections.")
    connections_cut: Counter = _counter(
        "fastpath_connections_cut_total",
        "Client connections that Fastpath closed, by reason: too many connections (flood), no "
        "complete request in time (silence), headers above the limit (headers), the memory limit "
        "of request heads (memory), a response that was not read in time or whose memory was "
        "needed (unread), a TLS handshake that took too long or was displaced by another "
        "(handshake).",
        ("reason",),
        values=(("flood", "silence", "headers", "memory", "unread", "handshake"),),
    )
    handshakes: Gauge = _gauge("fastpath_connection_handshakes", "Client connections in their TLS handshake.")
    head_bytes: Gauge = _gauge(
        "fastpath_request_head_bytes",
        "Estimated memory of request heads, from the first byte of a request until it is answered.",
    )
    answer_bytes: Gauge = _gauge(
        "fastpath_answer_bytes",
        "Memory of responses that are being encoded or sent, beyond the first 32 KiB of each.",
    )
    requests_waiting: Gauge = _gauge(
        "fastpath_requests_waiting",
        "Requests of clients without a client certificate that wait for their turn.",
    )
    access_log_dropped: Counter = _counter(
        "fastpath_access_log_dropped_total",
        "Access log lines that were dropped because the reader of the log is too slow or writing failed.",
    )
    freshness: Histogram = _histogram(
        "metrics_apiserver_metric_freshness_seconds",
        "Age of the served values, from their timestamp to the response.",
        ("group",),
        buckets=_FRESHNESS_BUCKETS,
    )
    answers: Counter = _counter(
        "fastpath_answers_total",
        "Answered questions by source: a query of their own, a query already in flight (joined), "
        "the cache, a merged query (sweep), or the last answer while Prometheus fails (stale).",
        ("source",),
        values=(("query", "joined", "cache", "sweep", "stale"),),
    )
    dropped: Counter = _counter(
        "fastpath_values_dropped_total",
        "Samples (for pods and nodes: usages) left out of an answer, by reason. They are never "
        "served as zero.",
        ("reason",),
        values=(
            ("nan", "infinite", "negative", "overflow", "incomplete", "stale", "duplicate", "histogram"),
        ),
    )

    # authentication and authorization
    authentication_attempts: Counter = _counter(
        "authentication_attempts",
        "Requests by the result of authentication. A request without credentials is anonymous and"
        " counts as success.",
        ("result",),
        values=(("success", "failure", "error"),),
    )
    authorization_attempts: Counter = _counter(
        "authorization_attempts_total",
        "Requests by the result of authorization.",
        ("result",),
        values=(("allowed", "denied", "no-opinion", "error"),),
    )
    token_cache: Counter = _counter(
        "authentication_token_cache_request_total",
        "Lookups in the cache of token reviews.",
        ("status",),
        values=(("hit", "miss"),),
    )
    access_cache: Counter = _counter(
        "fastpath_access_review_cache_total",
        "Lookups in the cache of access reviews.",
        ("status",),
        values=(("hit", "miss"),),
    )
    token_reviews: Counter = _counter(
        "apiserver_delegated_authn_request_total",
        "Token reviews by HTTP status code; <error> if there was no response.",
        ("code",),
    )
    token_review_duration: Histogram = _histogram(
        "apiserver_delegated_authn_request_duration_seconds",
        "Duration of a token review including retries.",
        ("code",),
        buckets=_REVIEW_BUCKETS,
    )
    access_reviews: Counter = _counter(
        "apiserver_delegated_authz_request_total",
        "Access reviews by HTTP status code; <error> if there was no response.",
        ("code",),
    )
    access_review_duration: Histogram = _histogram(
        "apiserver_delegated_authz_request_duration_seconds",
        "Duration of an access review including retries.",
        ("code",),
        buckets=_REVIEW_BUCKETS,
    )
    trust_generation: Gauge = _gauge(
        "fastpath_trust_generation",
        "Number of changes of the CA certificates for client certificates; 0 while none are known.",
    )

    # what is kept
    cache_entries: Gauge = _gauge(
        "fastpath_cache_entries",
        "Entries of each cache. docs/reference/limits.md describes the caches.",
        ("cache",),
        values=(CACHES,),
    )
    cache_used: Gauge = _gauge(
        "fastpath_cache_used_ratio",
        "Used share of the capacity of each cache; 1 is full.",
        ("cache",),
        values=(CACHES,),
    )
    cache_evictions: Counter = _counter(
        "fastpath_cache_evictions_total", "Entries evicted from a full cache.", ("cache",), values=(CACHES,)
    )

    # Prometheus
    queries: Counter = _counter(
        "fastpath_prometheus_queries_total",
        "Instant queries by kind and outcome.",
        ("kind", "outcome"),
        values=(QUERY_KINDS, OUTCOMES),
    )
    query_duration: Histogram = _histogram(
        "fastpath_prometheus_query_duration_seconds",
        "Time of an instant query, from requesting a connection to the decoded answer.",
        buckets=_QUERY_BUCKETS,
    )
    client_duration: Histogram = _histogram(
        "prometheus_adapter_prometheus_client_request_duration_seconds",
        "Duration of a request to Prometheus until its body is read. The name is prometheus-adapter's.",
        ("path", "server"),
        buckets=_DASHBOARD_BUCKETS,
    )
    query_retries: Counter = _counter(
        "fastpath_prometheus_query_retries_total",
        "Queries sent again because Prometheus had closed the idle connection.",
    )
    query_posts: Counter = _counter(
        "fastpath_prometheus_query_long_total",
        "Queries sent as POST because the GET URL would have been too long.",
    )
    query_warnings: Counter = _counter(
        "fastpath_prometheus_query_warnings_total",
        "Warnings in answers of Prometheus. An answer with a warning may lack a part of the data.",
    )
    questions_waiting: Gauge = _gauge(
        "fastpath_prometheus_questions_bytes",
        "Memory of questions that wait for Prometheus, including those whose clients have disconnected.",
    )
    answers_reading: Gauge = _gauge(
        "fastpath_prometheus_answers_bytes",
        "Estimated memory of the answers of Prometheus that are being read.",
    )
    connections_waiting: Gauge = _gauge(
        "fastpath_prometheus_queries_waiting", "Queries that wait for a free connection."
    )

    # discovery
    lookups: Counter = _counter(
        "fastpath_discovery_lookups_total",
        "On-demand lookups of unknown metrics, by outcome: sent to Prometheus (asked), or skipped"
        " because of the rate limit (limited).",
        ("outcome",),
        values=(("asked", "limited"),),
    )
    discovery_attempt: Gauge = _gauge(
        "fastpath_discovery_last_attempt_timestamp_seconds", "Time of the last discovery, successful or not."
    )
    discovery_success: Gauge = _gauge(
        "fastpath_discovery_last_success_timestamp_seconds",
        "Time of the last discovery in which every series list was read.",
    )
    discovery_duration: Gauge = _gauge(
        "fastpath_discovery_duration_seconds", "Duration of the last discovery."
    )
    discovery_failures: Counter = _counter(
        "fastpath_discovery_failures_total",
        "Series lists that could not be read, by kind of failure.",
        ("kind",),
        values=(("unreachable", "timeout", "status", "query", "decode", "size", "worker"),),
    )
    discovery_series: Gauge = _gauge("fastpath_discovery_series", "Series in the last discovery.")
    discovery_bytes: Gauge = _gauge(
        "fastpath_discovery_bytes", "Bytes of the series lists in the last discovery."
    )
    discovery_worker_memory: Gauge = _gauge(
        "fastpath_discovery_worker_peak_memory_bytes",
        "Peak resident memory of the last discovery worker process.",
    )
    discovery_voided: Gauge = _gauge(
        "fastpath_discovery_rules_voided", "Rules whose series the last discovery could not refresh."
    )

    # direct scrapes
    scrapes: Counter = _counter(
        "fastpath_scrapes_total", "Pod scrapes by outcome.", ("outcome",), values=(SCRAPE_OUTCOMES,)
    )
    scrape_duration: Histogram = _histogram(
        "fastpath_scrape_duration_seconds",
        "Duration of a scrape, from the request to the complete body or the failure.",
        buckets=_SCRAPE_BUCKETS,
    )
    scrape_targets: Gauge = _gauge("fastpath_scrape_targets", "Pod endpoints that are scraped.")
    scrape_stretch: Gauge = _gauge(
        "fastpath_scrape_interval_stretch_ratio",
        "Factor by which --scrape-max-per-second stretches every scrape interval; 1 is as configured.",
    )
    scrape_seconds: Counter = _counter(
        "fastpath_scrape_processing_seconds_total", "Time spent on processing scraped bodies."
    )
    scrape_slowed: Gauge = _gauge(
        "fastpath_scrape_slowed_targets",
        "Pod endpoints that are scraped less often because processing their bodies exceeds their "
        "share of time.",
    )
    scrape_bodies: Gauge = _gauge(
        "fastpath_scrape_bodies_bytes", "Bytes of scraped bodies that are being read or processed."
    )
    scraped_series: Gauge = _gauge(
        "fastpath_scraped_series_bytes", "Estimated memory of the series kept from scraped pods."
    )
    scraped_values: Counter = _counter(
        "fastpath_scraped_values_total",
        "Values requested for scraped pods, by source: a scrape, an overdue scrape, Prometheus as"
        " a fallback, or none (absent).",
        ("source",),
        values=(("scrape", "overdue", "prometheus", "absent"),),
    )

    # configuration
    rules_loaded: Gauge = _gauge(
        "fastpath_rules_loaded", "Rules in use.", ("api",), values=(("custom", "external", "resource"),)
    )
    rules_skipped: Gauge = _gauge(
        "fastpath_rules_skipped",
        "Rules left out because of an error.",
        ("api",),
        values=(("custom", "external", "resource"),),
    )
    config_faults: Gauge = _gauge("fastpath_config_faults", "Errors in the configuration in use.")
    config_reloads: Counter = _counter(
        "fastpath_config_reloads_total",
        "Changed configuration files, by outcome.",
        ("outcome",),
        values=(("applied", "refused"),),
    )
    config_success: Gauge = _gauge(
        "fastpath_config_last_success_timestamp_seconds", "Time at which the configuration in use was loaded."
    )

    # the object index
    informer_objects: Gauge = _gauge("fastpath_informer_objects", "Objects in the cache.", ("resource",))
    informer_synced: Gauge = _gauge(
        "fastpath_informer_synced", "1 once the first list is complete, else 0.", ("resource",)
    )
    informer_relists: Counter = _counter(
        "fastpath_informer_relists_total", "Completed lists, including the first.", ("resource",)
    )
    informer_event: Gauge = _gauge(
        "fastpath_informer_last_event_timestamp_seconds",
        "Time of the last event or bookmark of the watch. The time since is the age of the watch.",
        ("resource",),
    )
    informer_events: Counter = _counter(
        "fastpath_informer_events_total", "Watch events, including bookmarks.", ("resource",)
    )
    informer_errors: Counter = _counter(
        "fastpath_informer_errors_total", "Failed lists and watches, by reason.", ("resource", "reason")
    )

    # leadership and writes
    leader: Gauge = _gauge(
        "leader_election_master_status",
        "1 while this process holds the lease, else 0. The name is Kubernetes'.",
        ("name",),
    )
    lease_renewals: Counter = _counter(
        "fastpath_lease_renewals_total",
        "Attempts to acquire or renew the lease, by outcome: success, conflict (another process "
        "changed it first), failed (no valid response in time).",
        ("outcome",),
        values=(("success", "conflict", "failed"),),
    )
    writes: Counter = _counter(
        "fastpath_writes_total",
        "Writes of the scaler by kind and outcome. A fenced write was not sent because the lease "
        "might have been lost.",
        ("kind", "outcome"),
        values=(WRITE_KINDS, ("success", "conflict", "refused", "failed", "fenced")),
    )
    write_duration: Histogram = _histogram(
        "fastpath_write_duration_seconds",
        "Duration of a write, from leaving the queue to its response.",
        ("kind",),
        buckets=_DASHBOARD_BUCKETS,
        values=(WRITE_KINDS,),
    )
    write_queue: Gauge = _gauge(
        "fastpath_write_queue_length",
        "Writes that wait in the queue, in order of priority: floor, scale, status, event.",
        ("kind",),
        values=(WRITE_KINDS,),
    )
    events_dropped: Counter = _counter(
        "fastpath_events_dropped_total",
        "Events that were not written, by reason: too many similar events for one object (spam), "
        "a full queue (queue), refused by the API server (refused), no longer the leader "
        "(fenced).",
        ("reason",),
        values=(("spam", "queue", "refused", "fenced"),),
    )

    # decisions
    scaler_autoscalers: Gauge = _gauge("fastpath_scaler_autoscalers", "Autoscalers that this process runs.")
    scaler_desired: Gauge = _gauge(
        "fastpath_scaler_desired_replicas", "Desired replicas of an autoscaler.", ("namespace", "name")
    )
    scaler_current: Gauge = _gauge(
        "fastpath_scaler_current_replicas",
        "spec.replicas of the scale target at the last decision.",
        ("namespace", "name"),
    )
    recommended: Gauge = _gauge(
        "fastpath_recommended_replicas",
        "Recommended replicas for a HorizontalPodAutoscaler that is advised or boosted.",
        ("namespace", "horizontalpodautoscaler"),
    )
    recommended_difference: Gauge = _gauge(
        "fastpath_recommended_replicas_difference",
        "Recommended replicas minus spec.replicas of the scale target at the last decision.",
        ("namespace", "horizontalpodautoscaler"),
    )
    floor: Gauge = _gauge(
        "fastpath_floor_replicas",
        "The floor of a boosted HorizontalPodAutoscaler while Fastpath holds a scale-up, else 0.",
        ("namespace", "horizontalpodautoscaler"),
    )
    scaler_decisions: Counter = _counter(
        "fastpath_scaler_decisions_total",
        "Decisions by direction.",
        ("direction",),
        values=(("up", "down", "none"),),
    )
    scaler_limited: Counter = _counter(
        "fastpath_scaler_limited_decisions_total",
        "Decisions in which a limit or a scaling policy changed the count that the metrics asked for.",
    )
    scaler_defects: Counter = _counter(
        "fastpath_scaler_unexpected_errors_total",
        "Decisions, writes and Prometheus queries that ended in an unexpected error. The log has "
        "the traceback.",
    )
    scaler_question_stretch: Gauge = _gauge(
        "fastpath_scaler_question_stretch_ratio",
        "Factor by which --prometheus-max-queries-per-second stretches the query period, the "
        "largest of the last second; 1 is as configured.",
    )
    scaler_lag: Histogram = _histogram(
        "fastpath_scaler_lag_seconds", "Delay of a decision after its due time.", buckets=_LAG_BUCKETS
    )
    scaler_sample_age: Histogram = _histogram(
        "fastpath_scaler_sample_age_seconds",
        "Age of the oldest sample in a decision that changed the replica count or was kept from doing so.",
        buckets=_STAGE_BUCKETS,
    )
    scaler_stages: Histogram = _histogram(
        "fastpath_scaler_stage_seconds",
        "Duration of the stages of a scale: from the load to its sample (at most), from the "
        "sample to the decision, from the decision to the response to the write.",
        ("stage",),
        buckets=_STAGE_BUCKETS,
        values=(STAGES,),
    )

    # the process
    faults: Counter = _counter(
        "fastpath_faults_total", "Occurrences of problems. The log reports each problem once.", ("fault",)
    )
    faults_active: Gauge = _gauge("fastpath_faults_active", "Problems that persist.", ("fault",))
    loop_lag: Histogram = _histogram(
        "fastpath_event_loop_lag_seconds", "Delay of event loop timers.", buckets=_LAG_BUCKETS
    )
    build: Gauge = _gauge(
        "fastpath_build_info",
        "Always 1. The labels hold the version and the Python version.",
        ("version", "python"),
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
        """Return all metrics in the text format."""
        return b"".join(self.exposition_pieces()).decode()

    def exposition_pieces(self) -> Iterator[bytes]:
        """Yield the text in pieces of about a millisecond, which do not block the event loop."""
        return exposition.render(self.registry, _BARE_COUNTERS)


METRICS = tuple(metric for metric in vars(Monitoring).values() if isinstance(metric, Metric))

_BARE_COUNTERS = frozenset(
    metric.name for metric in METRICS if metric.type == "counter" and not metric.name.endswith("_total")
)


def _alive(watched: Iterable[weakref.ref[Cache]]) -> list[Cache]:
    return [cache for reference in watched if (cache := reference()) is not None]


def _used(caches: list[Cache]) -> float:
    room = sum(cache.maxsize for cache in caches)
    return sum(cache.currsize for cache in caches) / room if room else 0.0
