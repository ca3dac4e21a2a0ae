"""The options of `fastpath serve` and `fastpath scale`.

Names and defaults are those of prometheus-adapter v0.12 where it has the option (its own flags, those of the
Kubernetes API server library, klog's); a default that differs says so in its help. In the values durations
are seconds, sizes bytes, and "" stands for an option that is not given.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self
from urllib.parse import urlsplit

from adapter.config import checks, ciphers
from adapter.config.flags import Command, CommandOptions, flags_of, option
from adapter.config.ignored_flags import IGNORED
from adapter.config.pflag import Flag, FlagType, NamedPair
from adapter.config.rules_file import RulesConfig
from adapter.config.scaler_options import ScalerOptions
from adapter.config.security_options import SecurityOptions
from adapter.errors import Fault
from adapter.model import timestamps

_rules = partial(option, group="Rules and discovery")
_prometheus = partial(option, group="Prometheus")
_serving = partial(option, group="Serving")
_process = partial(option, group="Process")


@dataclass(frozen=True, kw_only=True)
class RulesOptions(CommandOptions):
    """Rules, the discovery of their series, and the use of answers."""

    config: tuple[str, ...] = _rules(
        FlagType.ARRAY,
        "",
        "Rules file, or a folder whose *.yaml, *.yml and *.json files are joined in the order of their "
        "names. "
        "Can be repeated. Required.",
        metavar="path",
        check=checks.rules_paths,
    )
    strict_config: bool = _rules(
        FlagType.BOOL,
        "false",
        "Refuse to start when any rule is faulty, as prometheus-adapter does; else faulty rules are "
        "reported and left out.",
    )
    metrics_relist_interval: float = _rules(
        FlagType.DURATION,
        "10m0s",
        "Time between two discoveries of series.",
        check=checks.above_zero,
    )
    metrics_max_age: float = _rules(
        FlagType.DURATION,
        "0s",
        "How far discovery looks back; 0 means the relist interval.",
        check=checks.not_negative,
    )
    discovery_max_bytes: int = _rules(
        FlagType.SIZE,
        "256MiB",
        "Largest list of series that one rule may cause; a larger one voids that rule's discovery.",
    )
    metrics_ttl: float = _rules(
        FlagType.DURATION,
        "1s",
        "How long an answer of Prometheus is used for further requests. An answer that takes longer "
        "than half of it "
        "is used for twice the time it took. A rule's ttl wins.",
        check=checks.not_negative,
    )
    metrics_max_answer_age: float = _rules(
        FlagType.DURATION,
        "30s",
        "Maximum age of an answer that is served while Prometheus cannot be reached. A rule's maxAge wins.",
        check=checks.not_negative,
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
        "The networks of the pods: no other address is scraped. Without it every address may be "
        "scraped, except "
        "loopback, link-local and metadata addresses; loopback is scraped only if a loopback network is "
        "named here.",
        metavar="cidrs",
        check=checks.pod_cidrs,
    )

    @property
    def look_back(self) -> float:
        """Seconds that discovery looks back, never 0."""
        return self.metrics_max_age or self.metrics_relist_interval

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        """Yield sentences about values that have no effect."""
        yield from super().notices(given)
        if self.metrics_ttl > self.metrics_max_answer_age:
            yield "--metrics-ttl is above --metrics-max-answer-age: answers are used up to the latter"


@dataclass(frozen=True, kw_only=True)
class PrometheusOptions(CommandOptions):
    """The connection to Prometheus.

    Address, headers and parameters may hold credentials: they are never printed.
    """

    prometheus_url: str = _prometheus(
        FlagType.TEXT,
        "https://localhost",
        "Base URL of Prometheus or a compatible engine.",
        metavar="url",
        check=checks.prometheus_url,
        secret=True,
    )
    prometheus_verb: Literal["GET", "POST"] = _prometheus(
        FlagType.TEXT,
        "GET",
        "HTTP method of queries: GET or POST. A query that is too long for GET is sent with POST.",
        metavar="verb",
        check=checks.one_of("GET", "POST"),
    )
    prometheus_headers: tuple[tuple[str, str], ...] = _prometheus(
        FlagType.PAIRS,
        "",
        "Header sent with each request to Prometheus. Can be repeated.",
        name="prometheus-header",
        secret=True,
    )
    prometheus_query_params: tuple[tuple[str, str], ...] = _prometheus(
        FlagType.PAIRS,
        "",
        "Parameter added to each request to Prometheus. Can be repeated.",
        name="prometheus-query-param",
        secret=True,
    )
    prometheus_timeout: float = _prometheus(
        FlagType.DURATION,
        "8s",
        "Maximum time that one API request waits for Prometheus, attempts and pauses included.",
        check=checks.above_zero,
    )
    prometheus_attempt_timeout: float = _prometheus(
        FlagType.DURATION,
        "5s",
        "Maximum time of one HTTP request to Prometheus; never more than --prometheus-timeout.",
        check=checks.above_zero,
    )
    prometheus_max_answer_bytes: int = _prometheus(
        FlagType.SIZE,
        "64MiB",
        "Maximum memory for one answer of Prometheus, and for all answers together that are being read; "
        "a larger "
        "answer is a failed query.",
    )
    prometheus_token_file: str = _prometheus(
        FlagType.TEXT,
        "",
        "File with a bearer token for Prometheus; read again when it changes.",
        metavar="file",
    )
    prometheus_basic_auth_file: str = _prometheus(
        FlagType.TEXT,
        "",
        "File with user:password on one line for Prometheus; read again when it changes.",
        metavar="file",
    )
    prometheus_ca_file: str = _prometheus(
        FlagType.TEXT,
        "",
        "The only certificate authorities trusted for Prometheus; without it those of the system. Wins "
        "over both "
        "prometheus-auth flags and switches proxies off. Read again when it changes.",
        metavar="file",
    )
    prometheus_client_tls_cert_file: str = _prometheus(
        FlagType.TEXT,
        "",
        "Client certificate for Prometheus; needs its key and --prometheus-ca-file. Read again when it "
        "changes.",
        metavar="file",
    )
    prometheus_client_tls_key_file: str = _prometheus(
        FlagType.TEXT,
        "",
        "Key of the client certificate for Prometheus; read again when it changes.",
        metavar="file",
    )
    prometheus_auth_incluster: bool = _prometheus(
        FlagType.BOOL,
        "false",
        "Authenticate to Prometheus with the pod's service account.",
    )
    prometheus_auth_config: str = _prometheus(
        FlagType.TEXT,
        "",
        "Kubeconfig with the credentials for Prometheus; the files that it names are read again when "
        "they change.",
        metavar="file",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with values together."""
        yield from super().faults(given)
        if self.prometheus_auth_incluster and self.prometheus_auth_config:
            expected = "expected not to be given with --prometheus-auth-incluster"
            yield Fault("--prometheus-auth-config", "", expected)
        if self.prometheus_token_file and self.prometheus_basic_auth_file:
            expected = "expected not to be given with --prometheus-token-file"
            yield Fault("--prometheus-basic-auth-file", "", expected)
        attempt, total = self.prometheus_attempt_timeout, self.prometheus_timeout
        if "prometheus_attempt_timeout" in given and attempt > total > 0:
            most = timestamps.format_go_duration(total)
            expected = f"expected at most --prometheus-timeout, which is {most}"
            yield Fault(
                "--prometheus-attempt-timeout", f'"{timestamps.format_go_duration(attempt)}"', expected
            )

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        """Yield sentences about values that have no effect."""
        yield from super().notices(given)
        client = self.prometheus_client_tls_cert_file, self.prometheus_client_tls_key_file
        if any(client) and not (all(client) and self.prometheus_ca_file):
            yield (
                "the client certificate for Prometheus is not used: it needs "
                "--prometheus-client-tls-cert-file, "
                "--prometheus-client-tls-key-file and --prometheus-ca-file"
            )
        if self.prometheus_ca_file and (self.prometheus_auth_incluster or self.prometheus_auth_config):
            yield "--prometheus-ca-file wins: the credentials of the prometheus-auth flags are not used"
        if self.prometheus_verb == "GET" and urlsplit(self.prometheus_url).query:
            yield "the query text of --prometheus-url is not sent with GET: use --prometheus-query-param"

    def resolved(self) -> Self:
        """Return the options with the values that follow from others."""
        attempt = min(self.prometheus_attempt_timeout, self.prometheus_timeout)
        return replace(super().resolved(), prometheus_attempt_timeout=attempt)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(CommandOptions):
    """The connection to the API server."""

    lister_kubeconfig: str = option(
        FlagType.TEXT,
        "",
        "Kubeconfig of the API server where described objects are listed; without it the pod's service "
        "account.",
        group="Kubernetes API server",
        metavar="file",
    )


@dataclass(frozen=True, kw_only=True)
class ServingOptions(CommandOptions):
    """The HTTPS server of the metrics APIs."""

    bind_address: str = _serving(
        FlagType.ADDRESS,
        "0.0.0.0",  # noqa: S104 - prometheus-adapter's default; every caller is authenticated
        "IP address to listen on; 0.0.0.0 and :: stand for all of the machine.",
    )
    secure_port: int = _serving(FlagType.PORT, "443", "Port to serve HTTPS on; 0 takes any free one.")
    serve_groups: tuple[str, ...] = _serving(
        FlagType.LIST,
        "",
        "API groups that are served even while no rule needs them: custom.metrics.k8s.io, "
        "external.metrics.k8s.io, "
        "metrics.k8s.io.",
        metavar="groups",
        check=checks.served_groups,
    )
    cert_dir: str = _serving(
        FlagType.TEXT,
        "apiserver.local.config/certificates",
        "Folder for the self-signed serving pair that is made when none is given.",
        metavar="folder",
    )
    tls_cert_file: str = _serving(
        FlagType.TEXT,
        "",
        "Serving certificate with its chain; read again when it changes.",
        metavar="file",
    )
    tls_private_key_file: str = _serving(
        FlagType.TEXT,
        "",
        "Key of the serving certificate.",
        metavar="file",
    )
    tls_cipher_suites: tuple[str, ...] = _serving(
        FlagType.LIST,
        "",
        "Cipher suites for TLS 1.2 by Go's names; those of TLS 1.3 are always on.",
        metavar="suites",
        check=checks.cipher_suites,
    )
    tls_min_version: str = _serving(
        FlagType.TEXT,
        "",
        "Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13; without it TLS 1.2.",
        metavar="version",
        check=checks.tls_version,
    )
    tls_sni_cert_keys: tuple[NamedPair, ...] = _serving(
        FlagType.CERTIFICATES,
        "",
        "Further serving pair for the names it carries or that follow it. Can be repeated.",
        name="tls-sni-cert-key",
    )
    permit_port_sharing: bool = _serving(
        FlagType.BOOL,
        "false",
        "Let several processes listen on the port (SO_REUSEPORT).",
    )
    permit_address_sharing: bool = _serving(
        FlagType.BOOL,
        "false",
        "Take the port while old connections linger (SO_REUSEADDR). It is always set, as by Go.",
    )
    shutdown_delay: float = _serving(
        FlagType.DURATION,
        "0s",
        "Time between becoming unready and closing the listener, for load balancers to notice.",
        check=checks.not_negative,
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with values together."""
        yield from super().faults(given)
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            missing = "--tls-private-key-file" if self.tls_cert_file else "--tls-cert-file"
            yield Fault(missing, "", "missing: certificate and key are given together")
        suites = self.tls_cipher_suites
        if not suites or self.tls_min_version == "VersionTLS13" or checks.cipher_suites(suites):
            return
        if not ciphers.openssl_cipher_list(suites):
            expected = (
                "expected a suite for TLS 1.2 that is still built; for TLS 1.3 alone give "
                "--tls-min-version=VersionTLS13"
            )
            yield Fault("--tls-cipher-suites", f'"{",".join(suites)}"', expected)


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(CommandOptions):
    """Logs."""

    access_log: str = _process(
        FlagType.TEXT,
        "",
        "Log each request as a line of JSON: stdout, stderr, or a file, which is opened again for each "
        "write. Tokens "
        "and headers are never logged.",
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
    """All options of `fastpath serve`, and of `fastpath scale`."""

    @property
    def serves_floors(self) -> bool:
        """Whether the metric of the floors is served.

        If asked for, or if this process scales the cluster's objects.
        """
        return self.serve_floors or (self.scaler and not self.autoscalers)

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with values together."""
        yield from super().faults(given)
        if not self.config:
            yield Fault("--config", "", checks.rules_paths(("",)))


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
    | {"shutdown-delay", "access-log", "scaler", "serve-floors"},
    takes_any_argument=True,
)


def serve_flags_without(options: type[CommandOptions]) -> tuple[Flag, ...]:
    """Return the flags of `fastpath serve` that do not set a field of other options."""
    known: Mapping[str, Flag] = flags_of(options)
    return tuple(flag for name, flag in SERVE.table.items() if name not in known)


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
