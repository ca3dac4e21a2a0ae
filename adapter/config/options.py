"""Every setting of `fastpath serve`, as one frozen value.

Here: the settings that have an effect, their units and defaults, and the checks between a setting and the rules. Not here:
how they are written on a command line (`flags`, `flagtable`), and flags that are only accepted.

Law: names and defaults are prometheus-adapter's where it has the setting. Durations are seconds, sizes bytes, "" means not
given.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from adapter import errors
from adapter.config.rules_file import RulesConfig
from adapter.model import durations

SERVABLE_GROUPS = ("custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io")
"""The API groups that can be served."""

MIB = 1024 * 1024


class NamedPair(NamedTuple):
    """A certificate and key for some server names; without `names`, for those in the certificate."""

    certificate: str
    key: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings. Under each: unit, meaning, what the default does."""

    config: tuple[str, ...] = ()
    """Rules files and folders of them, joined in this order. The command line requires one."""

    strict_config: bool = False
    """Whether one faulty rule stops the start, as in prometheus-adapter; else it is reported and left out."""

    serve_groups: tuple[str, ...] = ()
    """API groups that are served even without a rule for them; () serves those the rules need, as prometheus-adapter."""

    prometheus_url: str = field(default="https://localhost", repr=False)
    """Base URL of Prometheus; may carry user and password, so it is never printed."""

    prometheus_verb: Literal["GET", "POST"] = "GET"
    """HTTP method of queries. A GET that would be too long goes as POST in any case."""

    prometheus_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Name and value of headers sent with each request to Prometheus; may be secrets, so they are never printed."""

    prometheus_query_params: tuple[tuple[str, str], ...] = ()
    """Name and value of parameters added to each request to Prometheus."""

    prometheus_max_answer_bytes: int = 64 * MIB
    """Most bytes of memory for one answer of Prometheus, and for all answers together that are being read."""

    prometheus_token_file: str = ""
    """File with a bearer token, read again when it changes."""

    prometheus_basic_auth_file: str = ""
    """File with `user:password` on one line, read again when it changes."""

    prometheus_ca_file: str = ""
    """The only certificate authorities trusted for Prometheus; switches proxies off. "" trusts the system's."""

    prometheus_client_tls_cert_file: str = ""
    """Client certificate for Prometheus; used only with its key and a CA file."""

    prometheus_client_tls_key_file: str = ""
    """Key of the client certificate."""

    prometheus_auth_incluster: bool = False
    """Whether to use the pod's service account towards Prometheus."""

    prometheus_auth_config: str = ""
    """Kubeconfig whose credentials are used towards Prometheus."""

    prometheus_timeout: float = 8.0
    """Seconds that one API request may wait for Prometheus in all."""

    prometheus_attempt_timeout: float = 5.0
    """Seconds that one HTTP request to Prometheus may take; never more than `prometheus_timeout`."""

    metrics_relist_interval: float = 600.0
    """Seconds between the end of one discovery of series and the start of the next."""

    metrics_max_age: float = 0.0
    """Seconds that discovery looks back; 0 means the relist interval. See `look_back`."""

    discovery_max_bytes: int = 256 * MIB
    """Bytes that the list of series of one rule may have; more voids that rule's discovery."""

    metrics_ttl: float = 1.0
    """Seconds during which an answer is used again; a rule's `ttl` wins."""

    metrics_max_answer_age: float = 30.0
    """Seconds after which an answer is not given any more when Prometheus cannot be asked; a rule's `maxAge` wins."""

    scrape_max_per_second: int = 2000
    """Scrapes a second of all pods together; where the rules ask for more, every interval is stretched by the same factor."""

    scrape_pod_cidrs: tuple[str, ...] = ()
    """Networks of the pods that may be scraped; none for every address that is not refused by its kind."""

    lister_kubeconfig: str = ""
    """Kubeconfig for the API server; "" uses the pod's service account."""

    authentication_kubeconfig: str = ""
    """Kubeconfig for token reviews and the look-up of authorities; "" uses the pod's service account, else `lister_kubeconfig`."""

    authentication_skip_lookup: bool = False
    """Whether to leave the cluster's ConfigMap with the authorities of client certificates alone."""

    authentication_tolerate_lookup_failure: bool = False
    """Whether to be ready although the ConfigMap cannot be read; only tokens name a caller then."""

    authentication_token_webhook_cache_ttl: float = 10.0
    """Seconds that the answer of a token review is used again; 0 asks each time."""

    anonymous_auth: bool = True
    """Whether who shows no credentials is system:anonymous, whose rights the API server knows; else it gets 401."""

    client_ca_file: str = ""
    """Authorities of client certificates, read again when it changes; "" takes those of the ConfigMap."""

    requestheader_client_ca_file: str = ""
    """Authorities of front proxies, read again when it changes; "" takes those of the ConfigMap with its names and headers."""

    requestheader_allowed_names: tuple[str, ...] = ()
    """Common names that a front proxy may have; () allows any. Counts only with `requestheader_client_ca_file`."""

    requestheader_username_headers: tuple[str, ...] = ("x-remote-user",)
    """Headers that name the user, the first with a value counts; only with `requestheader_client_ca_file`."""

    requestheader_uid_headers: tuple[str, ...] = ()
    """Headers with the user's uid; () believes none. Only with `requestheader_client_ca_file`."""

    requestheader_group_headers: tuple[str, ...] = ("x-remote-group",)
    """Headers with the user's groups; only with `requestheader_client_ca_file`."""

    requestheader_extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)
    """Beginnings of headers with more about the user; only with `requestheader_client_ca_file`."""

    authorization_kubeconfig: str = ""
    """Kubeconfig for access reviews; "" uses the pod's service account, else `lister_kubeconfig`."""

    authorization_always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    """Paths that need no authorization; one that ends with * stands for all that begin with it."""

    authorization_webhook_cache_authorized_ttl: float = 10.0
    """Seconds that a permission is used again; 0 asks each time."""

    authorization_webhook_cache_unauthorized_ttl: float = 10.0
    """Seconds that a refusal is used again; 0 asks each time."""

    bind_address: str = "0.0.0.0"  # noqa: S104 - prometheus-adapter's default; every caller is authenticated
    """IP address to listen on; the default is every IPv4 address of the machine."""

    secure_port: int = 443
    """Port to listen on; 0 takes any free one."""

    cert_dir: str = "apiserver.local.config/certificates"
    """Folder for the self-signed pair that is made when no serving certificate is given."""

    tls_cert_file: str = ""
    """Serving certificate with its chain; read again when it changes."""

    tls_private_key_file: str = ""
    """Key of the serving certificate."""

    tls_cipher_suites: tuple[str, ...] = ()
    """Go names of the suites allowed below TLS 1.3; () leaves the choice to OpenSSL. See `ciphers`."""

    tls_min_version: str = ""
    """Lowest TLS version in Go's spelling, such as VersionTLS12; "" is TLS 1.2."""

    tls_sni_cert_keys: tuple[NamedPair, ...] = ()
    """Further serving pairs, by the name the client asks for."""

    permit_port_sharing: bool = False
    """Whether several processes may listen on the port (SO_REUSEPORT)."""

    permit_address_sharing: bool = False
    """Whether the port may be taken while old connections linger (SO_REUSEADDR)."""

    autoscalers: str = ""
    """Folder with the autoscalers to run in place of the objects of the cluster; "" runs those."""

    scaler: bool = False
    """Whether `fastpath serve` scales as well."""

    serve_floors: bool = False
    """Whether the floors of boosted autoscalers are served where nothing is scaled; see `serves_floors`."""

    prometheus_max_queries_per_second: float = 20.0
    """Queries a second that the scaler causes; beyond it questions wait for their turn."""

    horizontal_pod_autoscaler_sync_period: float = 15.0
    """Seconds between two questions for a metric that another adapter serves, as the native controller asks."""

    horizontal_pod_autoscaler_tolerance: float = 0.1
    """How far a ratio may be from 1 before anything is changed; an autoscaler's own tolerance wins."""

    horizontal_pod_autoscaler_downscale_stabilization: float = 300.0
    """Seconds that the highest recommendation holds where an autoscaler does not say; cut to whole ones."""

    horizontal_pod_autoscaler_cpu_initialization_period: float = 300.0
    """Seconds after a pod's start in which its cpu counts only while it is ready."""

    horizontal_pod_autoscaler_initial_readiness_delay: float = 30.0
    """Seconds after a pod's start in which becoming unready counts as never having been ready."""

    local_address: str = "127.0.0.1:10254"
    """Where the scaler shows its health, its self-metrics and its journal, on this machine alone; "" nowhere."""

    health_probe_bind_address: str = ""
    """Where kubelet's probes are answered, as `scalerflags.split_bind_address` reads it; "" nowhere."""

    metrics_bind_address: str = ""
    """Where `fastpath scale` serves self-metrics and journal over HTTPS; "" nowhere."""

    leader_elect: bool = True
    """Whether the scaler writes only while it holds the Lease."""

    leader_elect_lease_duration: float = 15.0
    """Seconds that others wait after the last renewal they saw before they take over; whole ones."""

    leader_elect_renew_deadline: float = 10.0
    """Seconds that a leader goes on without a renewal; below the lease duration."""

    leader_elect_retry_period: float = 2.0
    """Seconds between two attempts to take or renew the lease."""

    leader_elect_resource_lock: str = "leases"
    """What is locked; there is no other kind."""

    leader_elect_resource_name: str = "fastpath-scaler"
    """Name of the Lease, or what the names of the shards' Leases begin with."""

    leader_elect_resource_namespace: str = ""
    """Namespace of the Lease; "" takes that of the pod."""

    shard: str = "1/1"
    """Which part of the autoscalers this process answers for, as `model.shards` reads it."""

    kube_api_write_qps: float = 50.0
    """Writes a second of the scaler, the lease apart; after a pause a second's worth at once."""

    access_log: str = ""
    """Where each request is logged as a line of JSON: `stdout`, `stderr`, or a file; "" logs none."""

    shutdown_delay: float = 0.0
    """Seconds between becoming unready and closing the listener, for load balancers to notice."""

    verbosity: int = 0
    """Log level of `-v`: 6 logs each request to Prometheus, 8 its body, 10 registry misses."""

    @property
    def look_back(self) -> float:
        """Seconds that discovery looks back, never 0."""
        return self.metrics_max_age or self.metrics_relist_interval

    @property
    def serves_floors(self) -> bool:
        """Whether the metric of the floors is served: where that is asked for, and where the cluster's autoscalers are scaled."""
        return self.serve_floors or (self.scaler and not self.autoscalers)


def check_max_age(options: Options, config: RulesConfig) -> errors.Fault | None:
    """Return a fault if metrics could vanish between two discoveries.

    As upstream, only custom rules are a reason: with external rules alone nothing is checked.
    """
    if not config.rules or options.look_back >= options.metrics_relist_interval:
        return None
    interval = durations.format_go_duration(options.metrics_relist_interval)
    written = durations.format_go_duration(options.metrics_max_age)
    expected = (
        f"expected at least --metrics-relist-interval, which is {interval}, or metrics vanish in between"
    )
    return errors.Fault("--metrics-max-age", written, expected)
