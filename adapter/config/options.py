"""The options of `fastpath serve` and `fastpath scale`, and their commands.

Names and defaults are those of prometheus-adapter v0.12 where it has the option (its own flags, those of the
Kubernetes API server library, klog's); a default that differs says so in its help. In the values durations
are seconds, sizes bytes, and "" stands for an option that is not given.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self
from urllib.parse import urlsplit

from adapter.config import checks
from adapter.config.https_options import SecurityOptions, ServingOptions
from adapter.config.option_fields import REMOVED, WITHOUT_EFFECT, Command, CommandOptions, option
from adapter.config.pflag import Flag, FlagType
from adapter.config.rules_config import RulesConfig
from adapter.config.scaler_options import ScalerOptions
from adapter.errors import Fault
from adapter.model import timestamps

_rules = partial(option, group="Rules and discovery")
_rules_duration = partial(_rules, FlagType.DURATION, check=checks.not_negative)
_prometheus = partial(option, group="Prometheus")
_prometheus_text = partial(_prometheus, FlagType.TEXT)
_prometheus_duration = partial(_prometheus, FlagType.DURATION, check=checks.above_zero)
_prometheus_pairs = partial(_prometheus, FlagType.PAIRS, "", secret=True)
_prometheus_file = partial(_prometheus_text, "", metavar="file")
_process = partial(option, group="Process")


@dataclass(frozen=True, kw_only=True)
class RulesOptions(CommandOptions):
    """Rules, the discovery of their series, and the use of answers."""

    config: tuple[str, ...] = _rules(
        FlagType.ARRAY,
        "",
        "Rules file, or a folder whose *.yaml, *.yml and *.json files are joined in the order of their "
        "names. Can be repeated. Required.",
        metavar="path",
        check=checks.rules_paths,
    )
    strict_config: bool = _rules(
        FlagType.BOOL,
        "false",
        "Refuse to start when any rule is faulty, as prometheus-adapter does; else faulty rules are "
        "reported and left out.",
    )
    metrics_relist_interval: float = _rules_duration(
        "10m0s", "Time between two discoveries of series.", check=checks.above_zero
    )
    metrics_max_age: float = _rules_duration(
        "0s", "How far discovery looks back; 0 means the relist interval."
    )
    discovery_max_bytes: int = _rules(
        FlagType.SIZE,
        "256MiB",
        "Maximum size of the list of series of one rule; if it is larger, the discovery of that rule fails.",
    )
    metrics_ttl: float = _rules_duration(
        "1s",
        "How long an answer of Prometheus is cached. An answer that took longer than half of that is cached "
        "for twice the time it took. A rule's ttl takes precedence.",
    )
    metrics_max_answer_age: float = _rules_duration(
        "30s",
        "Maximum age of an answer that is served while Prometheus cannot be reached. A rule's maxAge takes "
        "precedence.",
    )
    scrape_max_per_second: int = _rules(
        FlagType.INT,
        "2000",
        "Maximum number of scrapes of pods a second; beyond it all scrape intervals are stretched by "
        "the same factor.",
        check=checks.positive,
    )
    scrape_pod_cidrs: tuple[str, ...] = _rules(
        FlagType.LIST,
        "",
        "The networks of the pods: no other address is scraped. Without it every address may be scraped, "
        "except loopback, link-local and metadata addresses; loopback is scraped only if a loopback network "
        "is named here.",
        metavar="cidrs",
        check=checks.pod_cidrs,
    )

    @property
    def look_back(self) -> float:
        return self.metrics_max_age or self.metrics_relist_interval

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        yield from super().notices(given)
        if self.metrics_ttl > self.metrics_max_answer_age:
            yield "--metrics-ttl is above --metrics-max-answer-age: answers are used up to the latter"


@dataclass(frozen=True, kw_only=True)
class PrometheusOptions(CommandOptions):
    """The connection to Prometheus.

    Address, headers and parameters may hold credentials: they are never printed.
    """

    prometheus_url: str = _prometheus_text(
        "https://localhost",
        "Base URL of Prometheus or a compatible engine.",
        metavar="url",
        check=checks.prometheus_url,
        secret=True,
    )
    prometheus_verb: Literal["GET", "POST"] = _prometheus_text(
        "GET",
        "HTTP method of queries: GET or POST. A query that is too long for GET is sent with POST.",
        metavar="verb",
        choices=("GET", "POST"),
    )
    prometheus_headers: tuple[tuple[str, str], ...] = _prometheus_pairs(
        "Header sent with each request to Prometheus. Can be repeated.", name="prometheus-header"
    )
    prometheus_query_params: tuple[tuple[str, str], ...] = _prometheus_pairs(
        "Parameter added to each request to Prometheus. Can be repeated.", name="prometheus-query-param"
    )
    prometheus_timeout: float = _prometheus_duration(
        "8s", "Maximum time that one API request waits for Prometheus, attempts and pauses included."
    )
    prometheus_attempt_timeout: float = _prometheus_duration(
        "5s", "Maximum time of one HTTP request to Prometheus; never more than --prometheus-timeout."
    )
    prometheus_max_answer_bytes: int = _prometheus(
        FlagType.SIZE,
        "64MiB",
        "Maximum memory for one answer of Prometheus, and for all answers together that are being read; a "
        "larger answer is a failed query.",
    )
    prometheus_token_file: str = _prometheus_file(
        "File with a bearer token for Prometheus; read again when it changes."
    )
    prometheus_basic_auth_file: str = _prometheus_file(
        "File with user:password on one line for Prometheus; read again when it changes."
    )
    prometheus_ca_file: str = _prometheus_file(
        "The only certificate authorities trusted for Prometheus; without it those of the system. Takes "
        "precedence over both prometheus-auth flags and disables proxies. Read again when it changes."
    )
    prometheus_client_tls_cert_file: str = _prometheus_file(
        "Client certificate for Prometheus; needs its key and --prometheus-ca-file. Read again when it "
        "changes."
    )
    prometheus_client_tls_key_file: str = _prometheus_file(
        "Key of the client certificate for Prometheus; read again when it changes."
    )
    prometheus_auth_incluster: bool = _prometheus(
        FlagType.BOOL, "false", "Authenticate to Prometheus with the pod's service account."
    )
    prometheus_auth_config: str = _prometheus_file(
        "Kubeconfig with the credentials for Prometheus; the files that it names are read again when "
        "they change."
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if self.prometheus_auth_incluster and self.prometheus_auth_config:
            expected = "cannot be combined with --prometheus-auth-incluster"
            yield Fault("--prometheus-auth-config", "", expected)
        if self.prometheus_token_file and self.prometheus_basic_auth_file:
            expected = "cannot be combined with --prometheus-token-file"
            yield Fault("--prometheus-basic-auth-file", "", expected)
        attempt, total = self.prometheus_attempt_timeout, self.prometheus_timeout
        if "prometheus_attempt_timeout" in given and attempt > total > 0:
            most = timestamps.format_go_duration(total)
            expected = f"expected at most --prometheus-timeout, which is {most}"
            yield Fault(
                "--prometheus-attempt-timeout", f'"{timestamps.format_go_duration(attempt)}"', expected
            )

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        yield from super().notices(given)
        client = self.prometheus_client_tls_cert_file, self.prometheus_client_tls_key_file
        if any(client) and not (all(client) and self.prometheus_ca_file):
            yield (
                "the client certificate for Prometheus is not used: it needs "
                "--prometheus-client-tls-cert-file, --prometheus-client-tls-key-file and --prometheus-ca-file"
            )
        if self.prometheus_ca_file and (self.prometheus_auth_incluster or self.prometheus_auth_config):
            yield "--prometheus-ca-file wins: the credentials of the prometheus-auth flags are not used"
        if self.prometheus_verb == "GET" and urlsplit(self.prometheus_url).query:
            yield "the query text of --prometheus-url is not sent with GET: use --prometheus-query-param"

    def resolved(self) -> Self:
        attempt = min(self.prometheus_attempt_timeout, self.prometheus_timeout)
        return replace(super().resolved(), prometheus_attempt_timeout=attempt)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(CommandOptions):
    lister_kubeconfig: str = option(
        FlagType.TEXT,
        "",
        "Kubeconfig of the API server where described objects are listed; without it the pod's service "
        "account.",
        group="Kubernetes API server",
        metavar="file",
    )


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(CommandOptions):
    access_log: str = _process(
        FlagType.TEXT,
        "",
        "Log each request as a line of JSON: stdout, stderr, or a file, which is opened again for each "
        "write. Tokens and headers are never logged.",
        metavar="destination",
    )
    verbosity: int = _process(
        FlagType.INT,
        "0",
        "Log level: 6 logs each request to Prometheus, 8 its body, 10 registry misses.",
        name="v",
        shorthand="v",
        metavar="level",
        check=checks.not_negative,
    )


# Fields and help follow the bases from the last to the first.
@dataclass(frozen=True, kw_only=True)
class Options(
    SecurityOptions,
    ScalerOptions,
    ProcessOptions,
    ServingOptions,
    ClusterOptions,
    PrometheusOptions,
    RulesOptions,
):
    @property
    def serves_floors(self) -> bool:
        return self.serve_floors or self.scaler

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        if not self.config:
            yield Fault("--config", "", checks.rules_paths(("",)))


# -- flags of prometheus-adapter without effect --------------------------------------------------------------


def _rows(group: str, *rows: tuple[str, FlagType, str, str]) -> tuple[Flag, ...]:
    return tuple(
        Flag(name=name, type=type_, default=default, help=text, group=group)
        for name, type_, default, text in rows
    )


def _audit_rows(
    backend: str, mode: str, size: str, wait: str, throttle: str, qps: str, burst: str
) -> tuple[Flag, ...]:
    prefix = f"audit-{backend}"
    return _rows(
        WITHOUT_EFFECT,
        (f"{prefix}-mode", FlagType.TEXT, mode, "When audit events are sent."),
        (f"{prefix}-batch-buffer-size", FlagType.INT, "10000", "Audit events kept before sending."),
        (f"{prefix}-batch-max-size", FlagType.INT, size, "Audit events in a batch."),
        (f"{prefix}-batch-max-wait", FlagType.DURATION, wait, "Time before a batch is sent."),
        (f"{prefix}-batch-throttle-enable", FlagType.BOOL, throttle, "Limit the rate of batches."),
        (f"{prefix}-batch-throttle-qps", FlagType.FLOAT, qps, "Batches per second."),
        (f"{prefix}-batch-throttle-burst", FlagType.INT, burst, "Batches at once."),
        (f"{prefix}-truncate-enabled", FlagType.BOOL, "false", "Cut large audit events."),
        (f"{prefix}-truncate-max-batch-size", FlagType.INT, "10485760", "Bytes of a batch."),
        (f"{prefix}-truncate-max-event-size", FlagType.INT, "102400", "Bytes of an audit event."),
    )


_NO_THROTTLE = "there is no such throttle here."
_LOGGING = "Old logging flag."

IGNORED = (
    *_rows(
        WITHOUT_EFFECT,
        ("client-qps", FlagType.FLOAT, "5", f"API server client: requests per second; {_NO_THROTTLE}"),
        ("client-burst", FlagType.INT, "10", f"API server client: burst; {_NO_THROTTLE}"),
        (
            "discovery-interval",
            FlagType.DURATION,
            "0s",
            "No effect in prometheus-adapter either; unknown kinds are looked up on demand.",
        ),
        ("disable-http2", FlagType.BOOL, "false", "This server has no HTTP/2."),
        ("disable-http2-serving", FlagType.BOOL, "false", "This server has no HTTP/2."),
        ("http2-max-streams-per-connection", FlagType.INT, "0", "This server has no HTTP/2."),
        ("profiling", FlagType.BOOL, "true", "There are no Go profiles here."),
        ("contention-profiling", FlagType.BOOL, "false", "There are no Go profiles here."),
        ("debug-socket-path", FlagType.TEXT, "", "There are no Go profiles here."),
        ("enable-priority-and-fairness", FlagType.BOOL, "false", "Requests are not queued by priority here."),
        ("vmodule", FlagType.TEXT, "", "Log levels by Go file."),
        ("log-flush-frequency", FlagType.DURATION, "5s", "Logs are written at once here."),
        ("audit-policy-file", FlagType.TEXT, "", "Audit policy; there is no audit log here."),
        ("audit-log-path", FlagType.TEXT, "", "Audit log file."),
        ("audit-log-compress", FlagType.BOOL, "false", "Compress old audit logs."),
        ("audit-log-format", FlagType.TEXT, "json", "Audit log format."),
        ("audit-log-maxage", FlagType.INT, "0", "Days to keep audit logs."),
        ("audit-log-maxbackup", FlagType.INT, "0", "Number of audit logs to keep."),
        ("audit-log-maxsize", FlagType.INT, "0", "Megabytes of an audit log."),
        ("audit-log-version", FlagType.TEXT, "audit.k8s.io/v1", "Version of logged audit events."),
        ("audit-webhook-config-file", FlagType.TEXT, "", "Kubeconfig of the audit webhook."),
        ("audit-webhook-initial-backoff", FlagType.DURATION, "10s", "First retry of the audit webhook."),
        ("audit-webhook-version", FlagType.TEXT, "audit.k8s.io/v1", "Version of sent audit events."),
    ),
    *_audit_rows("log", "blocking", "1", "0s", "false", "0", "0"),
    *_audit_rows("webhook", "batch", "400", "30s", "true", "10", "15"),
    *_rows(
        REMOVED,
        ("add_dir_header", FlagType.BOOL, "false", _LOGGING),
        ("alsologtostderr", FlagType.BOOL, "false", _LOGGING),
        ("log_backtrace_at", FlagType.TEXT, ":0", _LOGGING),
        ("log_dir", FlagType.TEXT, "", _LOGGING),
        ("log_file", FlagType.TEXT, "", _LOGGING),
        ("log_file_max_size", FlagType.INT, "1800", _LOGGING),
        ("logtostderr", FlagType.BOOL, "true", _LOGGING),
        ("one_output", FlagType.BOOL, "false", _LOGGING),
        ("skip_headers", FlagType.BOOL, "false", _LOGGING),
        ("skip_log_headers", FlagType.BOOL, "false", _LOGGING),
        ("stderrthreshold", FlagType.TEXT, "2", _LOGGING),
    ),
)
"""Their values are checked. Manifests in use carry them, also those that v0.11 removed."""

# -- the commands --------------------------------------------------------------------------------------------

SERVE = Command(
    verb="serve",
    options=Options,
    usage="--config=PATH [flags]",
    about="""\
Serves the custom, external and resource metrics APIs of Kubernetes from Prometheus, by the rules of
a prometheus-adapter configuration; with --scaler it scales as well. It takes every flag of
prometheus-adapter.
""",
    ignored=IGNORED,
    hidden=frozenset({"serve-v1-preview"}),
    takes_any_argument=True,
)

SCALE = Command(
    verb="scale",
    options=Options,
    usage="--config=PATH [flags]",
    about="""\
Scales alone: runs the scaler of `fastpath serve --scaler` without the metrics APIs. It takes every
flag of `fastpath serve`. The flags about callers and certificates count for --metrics-bind-address.
""",
    ignored=IGNORED,
    hidden=frozenset(
        {"secure-port", "bind-address", "serve-groups", "permit-port-sharing", "permit-address-sharing"}
    )
    | {"shutdown-delay", "access-log", "scaler", "serve-floors", "serve-v1-preview"},
    takes_any_argument=True,
)


def check_max_age(options: RulesOptions, config: RulesConfig) -> Fault | None:
    """Return a fault if metrics could vanish between two discoveries.

    As in prometheus-adapter, only custom rules are a reason: with external rules alone nothing is checked.
    """
    if not config.rules or options.look_back >= options.metrics_relist_interval:
        return None
    interval = timestamps.format_go_duration(options.metrics_relist_interval)
    given = timestamps.format_go_duration(options.metrics_max_age)
    expected = (
        f"expected at least --metrics-relist-interval, which is {interval}, or metrics vanish in between"
    )
    return Fault("--metrics-max-age", given, expected)
