"""All flags of `fastpath serve`, as data: prometheus-adapter's complete set, then our own.

Law: names, kinds and defaults of the first part are those of prometheus-adapter v0.12 (its own flags, those of the
Kubernetes API server library, klog's); a default that differs says so in its help. Flags that v0.11 removed stay accepted,
because manifests in the wild carry them.
"""

from collections.abc import Iterator, Mapping

from adapter.config.leader_flags import SCALER, leader_flags
from adapter.config.pflag import Effect, Flag, Kind
from adapter.config.scaler_flags import scaler_flags
from adapter.config.security_flags import security_flags

RULES = "Rules and discovery"
PROMETHEUS = "Prometheus"
CLUSTER = "Kubernetes API server"
SERVING = "Serving"
PROCESS = "Process"
NO_EFFECT = "Accepted without effect"
REMOVED = "Accepted, though prometheus-adapter removed them in v0.11"


def _used() -> Iterator[Flag]:
    yield Flag(
        "config",
        Kind.ARRAY,
        "",
        "Rules file, or a folder whose *.yaml, *.yml and *.json files are joined in the order of their names. Can be repeated. Required.",
        RULES,
        "config",
        metavar="path",
    )
    yield Flag(
        "strict-config",
        Kind.BOOL,
        "false",
        "Refuse to start when any rule is faulty, as prometheus-adapter does; "
        "else faulty rules are reported and left out.",
        RULES,
        "strict_config",
    )
    yield Flag(
        "metrics-relist-interval",
        Kind.DURATION,
        "10m0s",
        "Time between two discoveries of series.",
        RULES,
        "metrics_relist_interval",
    )
    yield Flag(
        "metrics-max-age",
        Kind.DURATION,
        "0s",
        "How far discovery looks back; 0 means the relist interval.",
        RULES,
        "metrics_max_age",
    )
    yield Flag(
        "discovery-max-bytes",
        Kind.SIZE,
        "256MiB",
        "Largest list of series that one rule may cause; a larger one voids that rule's discovery.",
        RULES,
        "discovery_max_bytes",
    )
    yield Flag(
        "metrics-ttl",
        Kind.DURATION,
        "1s",
        "How long an answer is used again; one that takes more than half of it to come, for twice as long as it took. A rule's ttl wins.",
        RULES,
        "metrics_ttl",
    )
    yield Flag(
        "metrics-max-answer-age",
        Kind.DURATION,
        "30s",
        "How old an answer may be that is given while Prometheus cannot be asked. A rule's maxAge wins.",
        RULES,
        "metrics_max_answer_age",
    )

    yield Flag(
        "scrape-max-per-second",
        Kind.INT,
        "2000",
        "Most scrapes of pods a second; beyond it all intervals are stretched alike.",
        RULES,
        "scrape_max_per_second",
    )
    yield Flag(
        "scrape-pod-cidrs",
        Kind.LIST,
        "",
        "The networks of the pods: no other address is scraped. Without it any address is, but loopback, link-local and "
        "metadata addresses; loopback is scraped only where a loopback network is named here.",
        RULES,
        "scrape_pod_cidrs",
        metavar="cidrs",
    )

    yield Flag(
        "prometheus-url",
        Kind.TEXT,
        "https://localhost",
        "Base URL of Prometheus or a compatible engine.",
        PROMETHEUS,
        "prometheus_url",
        metavar="url",
    )
    yield Flag(
        "prometheus-verb",
        Kind.TEXT,
        "GET",
        "HTTP method of queries: GET or POST.",
        PROMETHEUS,
        "prometheus_verb",
        metavar="verb",
    )
    yield Flag(
        "prometheus-header",
        Kind.PAIRS,
        "",
        "Header sent with each request to Prometheus. Can be repeated.",
        PROMETHEUS,
        "prometheus_headers",
    )
    yield Flag(
        "prometheus-query-param",
        Kind.PAIRS,
        "",
        "Parameter added to each request to Prometheus. Can be repeated.",
        PROMETHEUS,
        "prometheus_query_params",
    )
    yield Flag(
        "prometheus-timeout",
        Kind.DURATION,
        "8s",
        "How long one API request may wait for Prometheus in all.",
        PROMETHEUS,
        "prometheus_timeout",
    )
    yield Flag(
        "prometheus-attempt-timeout",
        Kind.DURATION,
        "5s",
        "How long one HTTP request to Prometheus may take.",
        PROMETHEUS,
        "prometheus_attempt_timeout",
    )
    yield Flag(
        "prometheus-max-answer-bytes",
        Kind.SIZE,
        "64MiB",
        "Most memory that an answer of Prometheus may take, and all answers together that are being read; "
        "a larger one counts as a failed query.",
        PROMETHEUS,
        "prometheus_max_answer_bytes",
    )
    yield Flag(
        "prometheus-token-file",
        Kind.TEXT,
        "",
        "File with a bearer token for Prometheus; read again when it changes.",
        PROMETHEUS,
        "prometheus_token_file",
        metavar="file",
    )
    yield Flag(
        "prometheus-basic-auth-file",
        Kind.TEXT,
        "",
        "File with user:password on one line for Prometheus; read again when it changes.",
        PROMETHEUS,
        "prometheus_basic_auth_file",
        metavar="file",
    )
    yield Flag(
        "prometheus-ca-file",
        Kind.TEXT,
        "",
        "The only certificate authorities trusted for Prometheus. Wins over both "
        "prometheus-auth flags and switches proxies off. Read again when it changes.",
        PROMETHEUS,
        "prometheus_ca_file",
        metavar="file",
    )
    yield Flag(
        "prometheus-client-tls-cert-file",
        Kind.TEXT,
        "",
        "Client certificate for Prometheus; needs its key and --prometheus-ca-file. Read again when it changes.",
        PROMETHEUS,
        "prometheus_client_tls_cert_file",
        metavar="file",
    )
    yield Flag(
        "prometheus-client-tls-key-file",
        Kind.TEXT,
        "",
        "Key of the client certificate for Prometheus; read again when it changes.",
        PROMETHEUS,
        "prometheus_client_tls_key_file",
        metavar="file",
    )
    yield Flag(
        "prometheus-auth-incluster",
        Kind.BOOL,
        "false",
        "Use the pod's service account towards Prometheus.",
        PROMETHEUS,
        "prometheus_auth_incluster",
    )
    yield Flag(
        "prometheus-auth-config",
        Kind.TEXT,
        "",
        "Kubeconfig whose credentials are used towards Prometheus; the files that it names are read again when they change.",
        PROMETHEUS,
        "prometheus_auth_config",
        metavar="file",
    )

    yield Flag(
        "lister-kubeconfig",
        Kind.TEXT,
        "",
        "Kubeconfig of the API server where described objects are listed; without it the pod's service account.",
        CLUSTER,
        "lister_kubeconfig",
        metavar="file",
    )

    yield Flag(
        "bind-address",
        Kind.ADDRESS,
        "0.0.0.0",  # noqa: S104 - prometheus-adapter's default; every caller is authenticated
        "IP address to listen on; 0.0.0.0 and :: stand for all of the machine.",
        SERVING,
        "bind_address",
    )
    yield Flag(
        "secure-port",
        Kind.PORT,
        "443",
        "Port to serve HTTPS on; 0 takes any free one.",
        SERVING,
        "secure_port",
    )
    yield Flag(
        "serve-groups",
        Kind.LIST,
        "",
        "API groups that are served even while no rule needs them: custom.metrics.k8s.io, external.metrics.k8s.io, "
        "metrics.k8s.io.",
        SERVING,
        "serve_groups",
        metavar="groups",
    )
    yield Flag(
        "cert-dir",
        Kind.TEXT,
        "apiserver.local.config/certificates",
        "Folder for the self-signed serving pair that is made when none is given.",
        SERVING,
        "cert_dir",
        metavar="folder",
    )
    yield Flag(
        "tls-cert-file",
        Kind.TEXT,
        "",
        "Serving certificate with its chain; read again when it changes.",
        SERVING,
        "tls_cert_file",
        metavar="file",
    )
    yield Flag(
        "tls-private-key-file",
        Kind.TEXT,
        "",
        "Key of the serving certificate.",
        SERVING,
        "tls_private_key_file",
        metavar="file",
    )
    yield Flag(
        "tls-cipher-suites",
        Kind.LIST,
        "",
        "Cipher suites for TLS 1.2 by Go's names; those of TLS 1.3 are always on.",
        SERVING,
        "tls_cipher_suites",
        metavar="suites",
    )
    yield Flag(
        "tls-min-version",
        Kind.TEXT,
        "",
        "Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13; without it TLS 1.2.",
        SERVING,
        "tls_min_version",
        metavar="version",
    )
    yield Flag(
        "tls-sni-cert-key",
        Kind.CERTIFICATES,
        "",
        "Further serving pair for the names it carries or that follow it. Can be repeated.",
        SERVING,
        "tls_sni_cert_keys",
    )
    yield Flag(
        "permit-port-sharing",
        Kind.BOOL,
        "false",
        "Let several processes listen on the port (SO_REUSEPORT).",
        SERVING,
        "permit_port_sharing",
    )
    yield Flag(
        "permit-address-sharing",
        Kind.BOOL,
        "false",
        "Take the port while old connections linger (SO_REUSEADDR). It is always set, as by Go.",
        SERVING,
        "permit_address_sharing",
    )
    yield Flag(
        "shutdown-delay",
        Kind.DURATION,
        "0s",
        "Time between becoming unready and closing the listener.",
        SERVING,
        "shutdown_delay",
    )

    yield Flag(
        "access-log",
        Kind.TEXT,
        "",
        "Log each request as a line of JSON: stdout, stderr, or a file, which is opened anew for each write. Tokens and headers are "
        "never logged.",
        PROCESS,
        "access_log",
        metavar="destination",
    )
    yield Flag(
        "v",
        Kind.INT,
        "0",
        "Log level: 6 logs each request to Prometheus, 8 its body, 10 registry misses.",
        PROCESS,
        "verbosity",
        shorthand="v",
        metavar="level",
    )
    yield Flag(
        "autoscalers",
        Kind.TEXT,
        "",
        "Folder of *.yaml, *.yml and *.json files with FastPathAutoscalers or HorizontalPodAutoscalers to run in place of "
        "the FastPathAutoscalers of the cluster; read again when they change.",
        SCALER,
        "autoscalers",
        metavar="path",
    )


def _without_effect() -> Iterator[Flag]:
    """Yield the rest of prometheus-adapter's set: (name, kind, default, help)."""
    yield from _rows(
        NO_EFFECT,
        Effect.NONE,
        (
            "client-qps",
            Kind.FLOAT,
            "5",
            "API server client: requests per second; there is no such throttle here.",
        ),
        ("client-burst", Kind.INT, "10", "API server client: burst; there is no such throttle here."),
        (
            "discovery-interval",
            Kind.DURATION,
            "0s",
            "No effect in prometheus-adapter either; unknown kinds are looked up when met.",
        ),
        ("disable-http2", Kind.BOOL, "false", "HTTP/2 is never spoken here."),
        ("disable-http2-serving", Kind.BOOL, "false", "HTTP/2 is never spoken here."),
        ("http2-max-streams-per-connection", Kind.INT, "0", "HTTP/2 is never spoken here."),
        ("profiling", Kind.BOOL, "true", "There are no Go profiles here."),
        ("contention-profiling", Kind.BOOL, "false", "There are no Go profiles here."),
        ("debug-socket-path", Kind.TEXT, "", "There are no Go profiles here."),
        ("enable-priority-and-fairness", Kind.BOOL, "false", "Requests are not queued by priority here."),
        ("vmodule", Kind.TEXT, "", "Log levels by Go file."),
        ("log-flush-frequency", Kind.DURATION, "5s", "Logs are written at once here."),
        ("audit-policy-file", Kind.TEXT, "", "Audit policy; there is no audit log here."),
        ("audit-log-path", Kind.TEXT, "", "Audit log file."),
        ("audit-log-compress", Kind.BOOL, "false", "Compress old audit logs."),
        ("audit-log-format", Kind.TEXT, "json", "Audit log format."),
        ("audit-log-maxage", Kind.INT, "0", "Days to keep audit logs."),
        ("audit-log-maxbackup", Kind.INT, "0", "Number of audit logs to keep."),
        ("audit-log-maxsize", Kind.INT, "0", "Megabytes of an audit log."),
        ("audit-log-version", Kind.TEXT, "audit.k8s.io/v1", "Version of logged audit events."),
        ("audit-webhook-config-file", Kind.TEXT, "", "Kubeconfig of the audit webhook."),
        ("audit-webhook-initial-backoff", Kind.DURATION, "10s", "First retry of the audit webhook."),
        ("audit-webhook-version", Kind.TEXT, "audit.k8s.io/v1", "Version of sent audit events."),
    )
    for backend, mode, size, wait, throttle, qps, burst in (
        ("log", "blocking", "1", "0s", "false", "0", "0"),
        ("webhook", "batch", "400", "30s", "true", "10", "15"),
    ):
        prefix = f"audit-{backend}"
        yield from _rows(
            NO_EFFECT,
            Effect.NONE,
            (f"{prefix}-mode", Kind.TEXT, mode, "When audit events are sent."),
            (f"{prefix}-batch-buffer-size", Kind.INT, "10000", "Audit events kept before sending."),
            (f"{prefix}-batch-max-size", Kind.INT, size, "Audit events in a batch."),
            (f"{prefix}-batch-max-wait", Kind.DURATION, wait, "Time before a batch is sent."),
            (f"{prefix}-batch-throttle-enable", Kind.BOOL, throttle, "Limit the rate of batches."),
            (f"{prefix}-batch-throttle-qps", Kind.FLOAT, qps, "Batches per second."),
            (f"{prefix}-batch-throttle-burst", Kind.INT, burst, "Batches at once."),
            (f"{prefix}-truncate-enabled", Kind.BOOL, "false", "Cut large audit events."),
            (f"{prefix}-truncate-max-batch-size", Kind.INT, "10485760", "Bytes of a batch."),
            (f"{prefix}-truncate-max-event-size", Kind.INT, "102400", "Bytes of an audit event."),
        )
    yield from _rows(
        REMOVED,
        Effect.REMOVED,
        ("add_dir_header", Kind.BOOL, "false", "Old logging flag."),
        ("alsologtostderr", Kind.BOOL, "false", "Old logging flag."),
        ("log_backtrace_at", Kind.TEXT, ":0", "Old logging flag."),
        ("log_dir", Kind.TEXT, "", "Old logging flag."),
        ("log_file", Kind.TEXT, "", "Old logging flag."),
        ("log_file_max_size", Kind.INT, "1800", "Old logging flag."),
        ("logtostderr", Kind.BOOL, "true", "Old logging flag."),
        ("one_output", Kind.BOOL, "false", "Old logging flag."),
        ("skip_headers", Kind.BOOL, "false", "Old logging flag."),
        ("skip_log_headers", Kind.BOOL, "false", "Old logging flag."),
        ("stderrthreshold", Kind.TEXT, "2", "Old logging flag."),
    )


def _rows(group: str, effect: Effect, *rows: tuple[str, Kind, str, str]) -> Iterator[Flag]:
    for name, kind, default, text in rows:
        yield Flag(name, kind, default, text, group, effect=effect)


TABLE: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (*_used(), *scaler_flags(), *leader_flags(), *security_flags(), *_without_effect())
}
"""Every flag by its name, in the order of the help text."""
