"""What Fastpath says about itself: every self-metric in one table, the log's form, and faults that are said once.

Not here: who counts what and when; the HTTP route. The law: a metric exists only as a row of `METRICS`, its name carries its
unit, its label values are bounded (by the row, or by the kinds and groups of the cluster), and nothing is global: each
`Monitoring` has a registry of its own. Names that dashboards know from API servers and from prometheus-adapter are kept.
"""

import itertools
import json
import logging
import platform
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol, TextIO

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from adapter.model.clock import Clock

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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
    "lanes",
    "selections",
)


class Metric(NamedTuple):
    """A row of the table.

    `attribute` is where `Monitoring` holds it. `values` lists the values of each label where they are known beforehand, so
    that the series exist from the start at zero; an empty tuple means the label is bounded by the cluster, not by us.
    """

    attribute: str
    type: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()


METRICS: tuple[Metric, ...] = (
    # the metrics APIs
    Metric("requests", "counter", "apiserver_request_total", "Requests to the metrics APIs by their answer; resource and subresource are always * to bound the series.", (*_REQUEST, "code")),
    Metric("request_duration", "histogram", "apiserver_request_duration_seconds", "Time from reading a request to writing its answer.", _REQUEST, _REQUEST_BUCKETS),
    Metric("inflight", "gauge", "apiserver_current_inflight_requests", "Requests being answered now.", ("request_kind",), values=(("readOnly", "mutating"),)),
    Metric("too_many", "counter", "fastpath_requests_refused_total", "Requests answered with 429, by what there was too much of: questions under way, callers who wait for a review, reviews under way, questions that wait for Prometheus, memory of answers under way.", ("limit",), values=(("questions", "callers", "reviews", "queries", "answers"),)),
    Metric("connections", "gauge", "fastpath_connections", "Connections of callers that are open."),
    Metric("connections_cut", "counter", "fastpath_connections_cut_total", "Connections of clients that were ended, by reason: too many connections (flood), no whole request in time (silence), a request with larger headers than allowed (headers), more memory for requests of all connections than allowed (memory), an answer that was not taken in time, or while its memory was needed (unread), a TLS handshake that took too long or gave way to another (handshake).", ("reason",), values=(("flood", "silence", "headers", "memory", "unread", "handshake"),)),
    Metric("handshakes", "gauge", "fastpath_connection_handshakes", "Connections of clients in their TLS handshake."),
    Metric("head_bytes", "gauge", "fastpath_request_head_bytes", "Estimated memory for the heads of requests, from their first byte until they are answered."),
    Metric("answer_bytes", "gauge", "fastpath_answer_bytes", "Memory for answers that are encoded or sent, beyond the first 32 KiB of each."),
    Metric("requests_waiting", "gauge", "fastpath_requests_waiting", "Requests of clients without a client certificate that wait for their turn."),
    Metric("access_log_dropped", "counter", "fastpath_access_log_dropped_total", "Lines of the access log that were not written: the log's reader does not keep up, or writing fails."),
    Metric("freshness", "histogram", "metrics_apiserver_metric_freshness_seconds", "Age of the values served, from their timestamp to the answer.", ("group",), _FRESHNESS_BUCKETS),
    Metric("answers", "counter", "fastpath_answers_total", "Questions answered, by where the answer came from: a query of its own, one already in flight, an answer kept, a sweep, or the last answer while Prometheus fails.", ("source",), values=(("query", "joined", "cache", "sweep", "stale"),)),
    Metric("dropped", "counter", "fastpath_values_dropped_total", "Samples (of pods and nodes: usages) that were left out of an answer, by reason; never served as zero.", ("reason",), values=(("nan", "infinite", "negative", "overflow", "incomplete", "stale", "duplicate", "histogram"),)),
    # who asks, and may they
    Metric("authentication_attempts", "counter", "authentication_attempts", "Requests by whether their caller could be named; who shows no credentials is named anonymous.", ("result",), values=(("success", "failure", "error"),)),
    Metric("authorization_attempts", "counter", "authorization_attempts_total", "Requests by what authorization said.", ("result",), values=(("allowed", "denied", "no-opinion", "error"),)),
    Metric("token_cache", "counter", "authentication_token_cache_request_total", "Look-ups of token reviews that are kept.", ("status",), values=(("hit", "miss"),)),
    Metric("access_cache", "counter", "fastpath_access_review_cache_total", "Look-ups of access reviews that are kept.", ("status",), values=(("hit", "miss"),)),
    Metric("token_reviews", "counter", "apiserver_delegated_authn_request_total", "Token reviews by HTTP status, <error> where there was none.", ("code",)),
    Metric("token_review_duration", "histogram", "apiserver_delegated_authn_request_duration_seconds", "Time of a token review with its retries.", ("code",), _REVIEW_BUCKETS),
    Metric("access_reviews", "counter", "apiserver_delegated_authz_request_total", "Access reviews by HTTP status, <error> where there was none.", ("code",)),
    Metric("access_review_duration", "histogram", "apiserver_delegated_authz_request_duration_seconds", "Time of an access review with its retries.", ("code",), _REVIEW_BUCKETS),
    Metric("trust_generation", "gauge", "fastpath_trust_generation", "How often the authorities of client certificates have changed; 0 while none are known."),
    # what is kept
    Metric("cache_entries", "gauge", "fastpath_cache_entries", "What is kept, by cache; docs/limits.md says what each of them keeps.", ("cache",), values=(CACHES,)),
    Metric("cache_used", "gauge", "fastpath_cache_used_ratio", "The share of its room that a cache has taken; 1 is full.", ("cache",), values=(CACHES,)),
    Metric("cache_evictions", "counter", "fastpath_cache_evictions_total", "What a full cache had to drop to keep something else; it is asked or worked out anew.", ("cache",), values=(CACHES,)),
    # Prometheus
    Metric("queries", "counter", "fastpath_prometheus_queries_total", "Instant queries by kind and outcome.", ("kind", "outcome"), values=(QUERY_KINDS, OUTCOMES)),
    Metric("query_duration", "histogram", "fastpath_prometheus_query_duration_seconds", "Time of an instant query from asking for a connection to the decoded answer.", (), _QUERY_BUCKETS),
    Metric("client_duration", "histogram", "prometheus_adapter_prometheus_client_request_duration_seconds", "Time of a request to Prometheus until its body is read, under the name prometheus-adapter gives it.", ("path", "server"), _DASHBOARD_BUCKETS),
    Metric("query_retries", "counter", "fastpath_prometheus_query_retries_total", "Queries sent again because Prometheus had closed the idle connection they were sent on."),
    Metric("query_posts", "counter", "fastpath_prometheus_query_long_total", "Queries sent as POST because the GET would have been too long."),
    Metric("query_warnings", "counter", "fastpath_prometheus_query_warnings_total", "Warnings in the answers of Prometheus: an answer with a warning may lack a part of the data."),
    Metric("questions_waiting", "gauge", "fastpath_prometheus_questions_bytes", "Memory for questions that wait for Prometheus, those whose callers have left included."),
    Metric("answers_reading", "gauge", "fastpath_prometheus_answers_bytes", "Memory for the answers of Prometheus that are being read, estimated."),
    Metric("connections_waiting", "gauge", "fastpath_prometheus_queries_waiting", "Queries waiting for a free connection."),
    # discovery
    Metric("lookups", "counter", "fastpath_discovery_lookups_total", "Metrics that nobody knew when they were asked for, by whether Prometheus was asked for their series or had been too lately.", ("outcome",), values=(("asked", "limited"),)),
    Metric("discovery_attempt", "gauge", "fastpath_discovery_last_attempt_timestamp_seconds", "When the series were last asked for, successfully or not."),
    Metric("discovery_success", "gauge", "fastpath_discovery_last_success_timestamp_seconds", "When all series lists were last read without a failure."),
    Metric("discovery_duration", "gauge", "fastpath_discovery_duration_seconds", "How long the last discovery took."),
    Metric("discovery_failures", "counter", "fastpath_discovery_failures_total", "Series lists that could not be read.", ("kind",), values=(("unreachable", "timeout", "status", "query", "decode", "size", "worker"),)),
    Metric("discovery_series", "gauge", "fastpath_discovery_series", "Series in the last discovery."),
    Metric("discovery_bytes", "gauge", "fastpath_discovery_bytes", "Bytes of the series lists in the last discovery."),
    Metric("discovery_worker_memory", "gauge", "fastpath_discovery_worker_peak_memory_bytes", "Largest resident memory of the last discovery worker."),
    Metric("discovery_voided", "gauge", "fastpath_discovery_rules_voided", "Rules whose series could not be refreshed by the last discovery."),
    # direct scrapes
    Metric("scrapes", "counter", "fastpath_scrapes_total", "Scrapes of pods by outcome.", ("outcome",), values=(SCRAPE_OUTCOMES,)),
    Metric("scrape_duration", "histogram", "fastpath_scrape_duration_seconds", "Time of a scrape from the request to the body, or to giving up.", (), _SCRAPE_BUCKETS),
    Metric("scrape_targets", "gauge", "fastpath_scrape_targets", "Endpoints of pods that are scraped."),
    Metric("scrape_stretch", "gauge", "fastpath_scrape_interval_stretch_ratio", "What every scrape interval is multiplied by to stay within --scrape-max-per-second; 1 is as configured."),
    Metric("scrape_seconds", "counter", "fastpath_scrape_processing_seconds_total", "Time that processing the bodies of scraped pods has taken."),
    Metric("scrape_slowed", "gauge", "fastpath_scrape_slowed_targets", "Endpoints of pods that are scraped less often because processing their bodies takes more than their share of time."),
    Metric("scrape_bodies", "gauge", "fastpath_scrape_bodies_bytes", "Bytes of the bodies of scraped pods that are being read or processed."),
    Metric("scraped_series", "gauge", "fastpath_scraped_series_bytes", "Estimated memory for the series that are kept of scraped pods."),
    Metric("scraped_values", "counter", "fastpath_scraped_values_total", "Values of scraped pods that were asked for, by where they came from: a scrape, an overdue one, Prometheus instead, or nowhere.", ("source",), values=(("scrape", "overdue", "prometheus", "absent"),)),
    # configuration
    Metric("rules_loaded", "gauge", "fastpath_rules_loaded", "Rules in force.", ("api",), values=(("custom", "external", "resource"),)),
    Metric("rules_skipped", "gauge", "fastpath_rules_skipped", "Rules left out because of a fault.", ("api",), values=(("custom", "external", "resource"),)),
    Metric("config_faults", "gauge", "fastpath_config_faults", "Faults in the configuration in force."),
    Metric("config_reloads", "counter", "fastpath_config_reloads_total", "Changed configuration files, by what became of them.", ("outcome",), values=(("applied", "refused"),)),
    Metric("config_success", "gauge", "fastpath_config_last_success_timestamp_seconds", "When the configuration in force was loaded."),
    # the object index
    Metric("informer_objects", "gauge", "fastpath_informer_objects", "Objects in the index.", ("resource",)),
    Metric("informer_synced", "gauge", "fastpath_informer_synced", "1 when the first list is in, else 0.", ("resource",)),
    Metric("informer_relists", "counter", "fastpath_informer_relists_total", "Lists read, the first included.", ("resource",)),
    Metric("informer_event", "gauge", "fastpath_informer_last_event_timestamp_seconds", "When the watch last delivered an event or a bookmark; the age of the watch is the time since.", ("resource",)),
    Metric("informer_events", "counter", "fastpath_informer_events_total", "Events of watches that were taken in, bookmarks included.", ("resource",)),
    Metric("informer_errors", "counter", "fastpath_informer_errors_total", "Lists and watches that failed or ended before their time.", ("resource", "reason")),
    # leadership and writes
    Metric("leader", "gauge", "leader_election_master_status", "1 while this process leads the lease, else 0; under the name Kubernetes gives it.", ("name",)),
    Metric("lease_renewals", "counter", "fastpath_lease_renewals_total", "Attempts to take or renew the lease, by what came of them: the record changed, somebody else was quicker, or there was no good answer in time.", ("outcome",), values=(("success", "conflict", "failed"),)),
    Metric("writes", "counter", "fastpath_writes_total", "Writes of the scaler by kind and outcome; fenced ones were not sent, because the lease might have been lost.", ("kind", "outcome"), values=(WRITE_KINDS, ("success", "conflict", "refused", "failed", "fenced"))),
    Metric("write_duration", "histogram", "fastpath_write_duration_seconds", "Time of a write from leaving the queue to its answer.", ("kind",), _DASHBOARD_BUCKETS, (WRITE_KINDS,)),
    Metric("write_queue", "gauge", "fastpath_write_queue_length", "Writes that wait for their turn: floor before scale before status before event.", ("kind",), values=(WRITE_KINDS,)),
    Metric("events_dropped", "counter", "fastpath_events_dropped_total", "Events that were not written: too many alike about one object, too many waiting, refused by the API server, or no longer leading.", ("reason",), values=(("spam", "queue", "refused", "fenced"),)),
    # decisions
    Metric("scaler_autoscalers", "gauge", "fastpath_scaler_autoscalers", "Autoscalers at work in this process."),
    Metric("scaler_desired", "gauge", "fastpath_scaler_desired_replicas", "Replicas that an autoscaler wants.", ("namespace", "name")),
    Metric("scaler_current", "gauge", "fastpath_scaler_current_replicas", "Replicas that the target of an autoscaler asked for when last decided.", ("namespace", "name")),
    Metric("recommended", "gauge", "fastpath_recommended_replicas", "Replicas that would be right for a HorizontalPodAutoscaler that is advised or boosted.", ("namespace", "horizontalpodautoscaler")),
    Metric("recommended_difference", "gauge", "fastpath_recommended_replicas_difference", "By how much that is more than its target asked for when last decided.", ("namespace", "horizontalpodautoscaler")),
    Metric("floor", "gauge", "fastpath_floor_replicas", "The floor of a boosted HorizontalPodAutoscaler while a raise is held, else 0.", ("namespace", "horizontalpodautoscaler")),
    Metric("scaler_decisions", "counter", "fastpath_scaler_decisions_total", "Decisions by what they did.", ("direction",), values=(("up", "down", "none"),)),
    Metric("scaler_limited", "counter", "fastpath_scaler_limited_decisions_total", "Decisions that a limit or a policy kept from what the metrics asked for."),
    Metric("scaler_defects", "counter", "fastpath_scaler_unexpected_errors_total", "Decisions, writes and questions to Prometheus that ended in an unexpected error; the log has it."),
    Metric("scaler_question_stretch", "gauge", "fastpath_scaler_question_stretch_ratio", "By how much waiting for --prometheus-max-queries-per-second stretches the period of a question, the longest of the last second; 1 is as configured."),
    Metric("scaler_lag", "histogram", "fastpath_scaler_lag_seconds", "How much later than due an autoscaler was decided.", (), _LAG_BUCKETS),
    Metric("scaler_sample_age", "histogram", "fastpath_scaler_sample_age_seconds", "Age of the oldest sample behind a decision that changed a count or was kept from it.", (), _STAGE_BUCKETS),
    Metric("scaler_stages", "histogram", "fastpath_scaler_stage_seconds", "How long the stages of a change of a count took: from the load to its sample at most, from the sample to the decision, from the decision to the answer to its write.", ("stage",), _STAGE_BUCKETS, values=(STAGES,)),
    # the process
    Metric("faults", "counter", "fastpath_faults_total", "Faults met, each time they are met; the log says each once.", ("fault",)),
    Metric("faults_active", "gauge", "fastpath_faults_active", "Faults that have not ended.", ("fault",)),
    Metric("loop_lag", "histogram", "fastpath_event_loop_lag_seconds", "How much later than asked the event loop wakes a timer.", (), _LAG_BUCKETS),
    Metric("build", "gauge", "fastpath_build_info", "Always 1; the labels say what runs.", ("version", "python")),
)  # fmt: skip


class Cache(Protocol):
    """What is watched of a cache: how much it has, of how much."""

    @property
    def currsize(self) -> float:
        """Return what its entries weigh together."""
        ...

    @property
    def maxsize(self) -> float:
        """Return what they may weigh."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...


class Monitoring:
    """The self-metrics of one process (or one test): an attribute for each row of `METRICS`, all in a registry of its own."""

    requests: Counter
    request_duration: Histogram
    inflight: Gauge
    too_many: Counter
    connections: Gauge
    connections_cut: Counter
    handshakes: Gauge
    head_bytes: Gauge
    answer_bytes: Gauge
    requests_waiting: Gauge
    access_log_dropped: Counter
    freshness: Histogram
    answers: Counter
    dropped: Counter
    authentication_attempts: Counter
    authorization_attempts: Counter
    token_cache: Counter
    access_cache: Counter
    token_reviews: Counter
    token_review_duration: Histogram
    access_reviews: Counter
    access_review_duration: Histogram
    trust_generation: Gauge
    cache_entries: Gauge
    cache_used: Gauge
    cache_evictions: Counter
    queries: Counter
    query_duration: Histogram
    client_duration: Histogram
    query_retries: Counter
    query_posts: Counter
    query_warnings: Counter
    questions_waiting: Gauge
    answers_reading: Gauge
    connections_waiting: Gauge
    lookups: Counter
    discovery_attempt: Gauge
    discovery_success: Gauge
    discovery_duration: Gauge
    discovery_failures: Counter
    discovery_series: Gauge
    discovery_bytes: Gauge
    discovery_worker_memory: Gauge
    discovery_voided: Gauge
    scrapes: Counter
    scrape_duration: Histogram
    scrape_targets: Gauge
    scrape_stretch: Gauge
    scrape_seconds: Counter
    scrape_slowed: Gauge
    scrape_bodies: Gauge
    scraped_series: Gauge
    scraped_values: Counter
    rules_loaded: Gauge
    rules_skipped: Gauge
    config_faults: Gauge
    config_reloads: Counter
    config_success: Gauge
    informer_objects: Gauge
    informer_synced: Gauge
    informer_relists: Counter
    informer_event: Gauge
    informer_events: Counter
    informer_errors: Counter
    leader: Gauge
    lease_renewals: Counter
    writes: Counter
    write_duration: Histogram
    write_queue: Gauge
    events_dropped: Counter
    scaler_autoscalers: Gauge
    scaler_desired: Gauge
    scaler_current: Gauge
    recommended: Gauge
    recommended_difference: Gauge
    floor: Gauge
    scaler_decisions: Counter
    scaler_limited: Counter
    scaler_defects: Counter
    scaler_question_stretch: Gauge
    scaler_lag: Histogram
    scaler_sample_age: Histogram
    scaler_stages: Histogram
    faults: Counter
    faults_active: Gauge
    loop_lag: Histogram
    build: Gauge

    def __init__(self, version: str = "unknown") -> None:
        self.registry = prometheus_client.CollectorRegistry(auto_describe=False)
        for row in METRICS:
            setattr(self, row.attribute, _build_metric(row, self.registry))
        prometheus_client.ProcessCollector(registry=self.registry)
        self._caches: dict[str, list[weakref.ref[Cache]]] = {}
        self.build.labels(version=version, python=platform.python_version()).set(1)

    def watch_cache(self, name: str, cache: Cache) -> Counter:
        """Show how full a cache is whenever somebody looks; return the counter of what it has to drop.

        Several caches may share a name, and are shown together. None of them is kept alive by this.
        """
        watched = self._caches.get(name)
        if watched is None:
            watched = self._caches[name] = []
            self.cache_entries.labels(name).set_function(lambda: sum(map(len, _alive(watched))))
            self.cache_used.labels(name).set_function(lambda: _used(_alive(watched)))
        watched[:] = [each for each in watched if each() is not None]
        watched.append(weakref.ref(cache))
        return self.cache_evictions.labels(name)

    def exposition(self) -> str:
        """Return all metrics in the text format of `CONTENT_TYPE`, without the creation times prometheus_client adds."""
        return b"".join(self.exposition_pieces()).decode()

    def exposition_pieces(self) -> Iterator[bytes]:
        """Yield the same in pieces of about a millisecond: many autoscalers have thousands of series."""
        for family in _AsPublished(self.registry).collect():
            samples = family.samples
            for start in range(0, max(len(samples), 1), _SAMPLES_AT_ONCE):
                family.samples = samples[start : start + _SAMPLES_AT_ONCE]
                text = prometheus_client.generate_latest(_Part(family))
                # the lines of help and type stand in the first piece alone
                yield text if start == 0 else text.split(b"\n", 2)[2]


class _Part(Collector):
    """A family, or some samples of one, as `generate_latest` takes it."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def _alive(watched: Iterable[weakref.ref[Cache]]) -> list[Cache]:
    return [cache for each in watched if (cache := each()) is not None]


def _used(caches: list[Cache]) -> float:
    room = sum(cache.maxsize for cache in caches)
    return sum(cache.currsize for cache in caches) / room if room else 0.0


_BARE_COUNTERS = frozenset(
    row.name for row in METRICS if row.type == "counter" and not row.name.endswith("_total")
)
"""Counters that API servers expose without the suffix which prometheus_client insists on."""


class _AsPublished(Collector):
    """A registry as Prometheus' text format wants it: `_created` would be one more gauge for every series."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            if family.name in _BARE_COUNTERS:
                family.type = "unknown"  # as a counter it would be written with the suffix
                family.samples = [sample._replace(name=family.name) for sample in family.samples]
            yield family


def _build_metric(row: Metric, registry: prometheus_client.CollectorRegistry) -> Counter | Gauge | Histogram:
    metric: Counter | Gauge | Histogram
    if row.type == "counter":
        metric = Counter(row.name, row.help, row.labels, registry=registry)
    elif row.type == "gauge":
        metric = Gauge(row.name, row.help, row.labels, registry=registry)
    else:
        metric = Histogram(row.name, row.help, row.labels, registry=registry, buckets=row.buckets)
    if row.values:
        for combination in itertools.product(*row.values):
            metric.labels(*combination)
    return metric


# -- the log ---------------------------------------------------------------------------------------------------------


def facts(**values: object) -> dict[str, dict[str, object]]:
    """Return the `extra` of a log call: ``log.info("series read", extra=facts(series=12, selector=text))``."""
    return {"facts": values}


def _facts_of(record: logging.LogRecord) -> Mapping[str, object]:
    found = getattr(record, "facts", None)
    return found if isinstance(found, dict) else {}


def moment(seconds: float) -> str:
    """Return epoch seconds as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """One line a record: time, level, logger, constant message, facts as ``key=value``; a traceback follows on its own lines.

    A value with blanks, quotes, an equals sign or control characters is quoted as JSON, so foreign text cannot fake a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        parts = [moment(record.created), record.levelname, f"{record.name}:", record.getMessage()]
        parts += [f"{key}={_render_fact(value)}" for key, value in _facts_of(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JSONFormatter(logging.Formatter):
    """One JSON object a record: ``time``, ``level``, ``logger``, ``message``, ``exception``, and the facts under ``facts``."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        entry: dict[str, object] = {
            "time": moment(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if found := _facts_of(record):
            entry["facts"] = dict(found)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _render_fact(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    plain = text.isprintable() and text.isascii() and not any(mark in text for mark in " \"'=")
    return text if plain and text else json.dumps(text, ensure_ascii=not text.isprintable())


TRACE = 5
"""The level of bodies and registry misses, below DEBUG."""


def level_of(verbosity: int) -> int:
    """Return the level of the flag ``--v`` as prometheus-adapter's users know it: 6 shows every request, 8 and up all."""
    if verbosity >= 8:
        return TRACE
    return logging.DEBUG if verbosity >= 6 else logging.INFO


def configure_logging(verbosity: int, json: bool = False, stream: TextIO | None = None) -> None:  # noqa: FBT001, FBT002 - the flag's own name
    """Send the log of the whole process to `stream` (standard error if None); other packages speak from WARNING up.

    Called again it replaces its own handler, and no other.
    """
    logging.addLevelName(TRACE, "TRACE")
    handler = _OwnHandler(stream or sys.stderr)
    handler.setFormatter(JSONFormatter() if json else TextFormatter())
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, _OwnHandler)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("adapter").setLevel(level_of(verbosity))


class _OwnHandler(logging.StreamHandler[TextIO]):
    """Marks the handler that `configure_logging` may replace."""


# -- faults that are said once ------------------------------------------------------------------------------------------

_TEXTS_REMEMBERED = 16


@dataclass(slots=True)
class _ActiveFault:
    since: float
    message: str
    latest: str
    count: int = 0
    texts: set[str] = field(default_factory=set)


class FaultLog:
    """Says a fault when it starts, when its text is one not yet said of it, and when it ends; counts it every time.

    A fault is known by `fault` (one of few words, the metric's label) and `subject` (which rule, selector, kind; "" if there
    is only one). At most 16 texts are said of one fault, so a text with a changing part cannot flood the log.
    """

    def __init__(self, monitoring: Monitoring, clock: Clock, logger: logging.Logger | None = None) -> None:
        self._monitoring = monitoring
        self._clock = clock
        self._logger = logger or logging.getLogger("adapter.faults")
        self._active: dict[tuple[str, str], _ActiveFault] = {}

    def met(
        self, fault: str, message: str, text: str, *, subject: str = "", told: str = "", **details: object
    ) -> None:
        """Note that the fault is there: `message` is constant, `text` is what a change is judged by, `details` are facts.

        `told` is what callers of the health checks are told in place of `text`, where that holds an address.
        """
        self._monitoring.faults.labels(fault).inc()
        key = (fault, subject)
        active = self._active.get(key)
        if active is None:
            active = self._active[key] = _ActiveFault(self._clock.monotonic(), message, text)
            self._monitoring.faults_active.labels(fault).inc()
        active.count += 1
        active.latest = told or text
        if text in active.texts or len(active.texts) >= _TEXTS_REMEMBERED:
            return
        active.texts.add(text)
        self._logger.warning(message, extra=facts(fault=fault, **_subject(subject), error=text, **details))

    def ended(self, fault: str, *, subject: str = "") -> None:
        """Note that the fault is not there (any more); says so if it was, with its length and how often it was met."""
        active = self._active.pop((fault, subject), None)
        if active is None:
            return
        self._monitoring.faults_active.labels(fault).dec()
        seconds = round(self._clock.monotonic() - active.since, 3)
        what = facts(
            fault=fault, **_subject(subject), was=active.message, seconds=seconds, times=active.count
        )
        self._logger.info("fault ended", extra=what)

    def active(self) -> dict[tuple[str, str], str]:
        """Return the latest text of every fault that has not ended, by fault and subject, oldest first."""
        return {key: active.latest for key, active in self._active.items()}


def _subject(subject: str) -> dict[str, object]:
    return {"subject": subject} if subject else {}
