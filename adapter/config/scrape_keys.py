"""The `scrape` key of a rule: how the pods' own endpoints are scraped, and within which limits.

The settings as a frozen value, and their checks. Whether the query of the rule can be evaluated from scrapes
is decided in `rules.scrape`. Which endpoints an external rule reads is in `endpoint_keys`. Nothing that can
be abused is on by default: no credentials, no pods in the node's network, and bounded bytes, lines and time.
"""

import ipaddress
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import yaml

from adapter.config import endpoint_keys
from adapter.config.endpoint_keys import EndpointSource, is_name
from adapter.config.yaml import reader
from adapter.config.yaml.decode import Decoder, Fields, Leaf, Shape
from adapter.model import timestamps

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its own identity, which is never sent to another pod."""


MAX_BYTES = 4 * 1024 * 1024
MAX_LINES = 50_000
MAX_SERIES = 2000
"""Default limits of a body."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A bearer token from a file, for pods of the listed namespaces only."""

    token_file: str
    namespaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndpointTLS:
    """How a pod's certificate is checked: CA file ("" for the system's), server name ("" for the address)."""

    ca_file: str = ""
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Access:
    """How a pod is scraped. Rules with equal access share the scrapes of a pod.

    `port` is a number or the name of a container port, for a Service that of one of its ports. Durations are
    seconds, sizes bytes after unzipping; `max_series` counts the series that rules use.
    """

    port: str
    path: str = "/metrics"
    scheme: str = "http"
    interval: float = 1.0
    timeout: float = 1.0
    host_network: bool = False
    credentials: Credentials | None = None
    tls: EndpointTLS | None = None
    max_bytes: int = MAX_BYTES
    max_lines: int = MAX_LINES
    max_series: int = MAX_SERIES


@dataclass(frozen=True, slots=True)
class ScrapeConfig:
    """The `scrape` key: `window` is the range of a counter's rate, in seconds.

    `source` says which endpoints an external rule reads; None for a rule about pods.
    """

    access: Access
    window: float = 5.0
    source: EndpointSource | None = None


_Default = TypeVar("_Default", float, None)


class KeyRange(NamedTuple):
    """Least and greatest value of a setting: seconds, bytes or lines."""

    least: float
    greatest: float


BOUNDS: Mapping[str, KeyRange] = {
    "interval": KeyRange(0.1, 60),
    "window": KeyRange(0.2, 600),
    "timeout": KeyRange(0.05, 60),
}
COUNTS: Mapping[str, KeyRange] = {
    "maxBytes": KeyRange(1024, 16 * 1024 * 1024),
    "maxLines": KeyRange(10, 1_000_000),
    "maxSeries": KeyRange(1, 10_000),
}
"""Bounds that leave room for other pods in the memory that all share; see docs/reference/limits.md."""

LONGEST_TIMEOUT = 10.0
"""The default of `timeout` if the interval is longer, as in Prometheus; seconds."""

WINDOW_INTERVALS = 5
"""The default of `window`, in intervals."""

CREDENTIALS = Shape("credentials", {"tokenFile": Leaf.TEXT, "namespaces": Leaf.NODE})
TLS = Shape("tls", {"caFile": Leaf.TEXT, "serverName": Leaf.TEXT, "insecureSkipVerify": Leaf.BOOLEAN})
SHAPE = Shape(
    "scrape",
    {
        "interval": Leaf.TEXT,
        "window": Leaf.TEXT,
        "timeout": Leaf.TEXT,
        "port": Leaf.TEXT,
        "path": Leaf.TEXT,
        "scheme": Leaf.TEXT,
        "tls": TLS,
        "credentials": CREDENTIALS,
        "hostNetwork": Leaf.BOOLEAN,
        "maxBytes": Leaf.TEXT,
        "maxLines": Leaf.TEXT,
        "maxSeries": Leaf.TEXT,
        "service": endpoint_keys.SERVICE,
        "pods": endpoint_keys.PODS,
        "honorLabels": Leaf.BOOLEAN,
    },
    notes={
        "targetPort": "expected port: a number, or the name of a port",
        "namespace": "belongs in service or pods",
        "selector": "belongs in pods",
        "headers": "headers are not sent; a token comes from credentials.tokenFile",
        "bearerTokenFile": "expected credentials.tokenFile, with the namespaces whose pods may see the token",
        "tokenFile": "belongs in credentials, with the namespaces whose pods may see the token",
    },
)

VOCABULARY: Mapping[str, str] = {
    **{key: "in scrape" for key in SHAPE.fields if key != "window"},
    **dict.fromkeys(CREDENTIALS.fields, "in scrape.credentials"),
    **dict.fromkeys(TLS.fields, "in scrape.tls"),
    "selector": "in scrape.pods",
}
"""Where each key belongs. The caller adds `window`, which is also a key of resourceRules."""


def read(fields: Fields, decoder: Decoder, *, external: bool = False) -> ScrapeConfig | None:
    """Return the settings; None after a fault. `external`: those of an external rule."""
    if fields.broken:
        return None
    before = len(decoder.faults)
    source = endpoint_keys.read(fields, decoder, external=external)
    interval = read_duration(fields, "interval", decoder, BOUNDS, 1.0)
    default = min(WINDOW_INTERVALS * interval, BOUNDS["window"].greatest)
    window = read_duration(fields, "window", decoder, BOUNDS, default)
    default = min(interval, LONGEST_TIMEOUT)
    timeout = read_duration(fields, "timeout", decoder, BOUNDS, default)
    if len(decoder.faults) == before:
        if window < 2 * interval:
            decoder.refuse(fields, "window", "expected at least two intervals: a rate needs two scrapes")
        if timeout > interval:
            decoder.refuse(
                fields,
                "timeout",
                "expected at most the interval: a pod is scraped by one request at a time",
            )
    access = Access(
        _port(fields, decoder, source),
        _path(fields, decoder),
        _scheme(fields, decoder),
        interval,
        timeout,
        fields.text("hostNetwork") == "true",
        _credentials(fields, decoder, source),
        _tls(fields, decoder),
        _count(fields, "maxBytes", decoder, MAX_BYTES),
        _count(fields, "maxLines", decoder, MAX_LINES),
        _count(fields, "maxSeries", decoder, MAX_SERIES),
    )
    return ScrapeConfig(access, window, source) if len(decoder.faults) == before else None


def _port(fields: Fields, decoder: Decoder, source: EndpointSource | None) -> str:
    text = fields.text("port")
    number = text.isascii() and text.isdigit()
    of_service = source is not None and source.service != ""
    # the API server's rule: names of container ports have at most 15 characters, those of Services 63
    good = 0 < int(text[:6]) < 65536 if number else is_name(text, 63 if of_service else 15)
    if not good:
        whose = "of a port of the Service" if of_service else "of a container port"
        decoder.refuse(fields, "port", f"expected a port number, or the name {whose} such as metrics")
    return text


def _path(fields: Fields, decoder: Decoder) -> str:
    text = fields.text("path") or "/metrics"
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text or "#" in text:
        decoder.refuse(
            fields,
            "path",
            "expected the path of a URL such as /metrics, with its query if it has one",
        )
    return text


def _scheme(fields: Fields, decoder: Decoder) -> str:
    text = fields.text("scheme") or "http"
    if text not in {"http", "https"}:
        decoder.refuse(fields, "scheme", "expected http or https")
    return text


def _credentials(fields: Fields, decoder: Decoder, source: EndpointSource | None) -> Credentials | None:
    if "credentials" not in fields.structs:
        return None
    inner = fields.struct("credentials")
    if inner.broken:
        return None
    path = inner.text("tokenFile")
    if not path.startswith("/"):
        decoder.refuse(inner, "tokenFile", "expected the absolute path of a file that holds a token")
    elif is_own_identity(path):
        decoder.refuse(
            inner,
            "tokenFile",
            "the pod's own service account token is never sent to pods: expected another file",
        )
    namespaces = _namespaces(inner, decoder)
    if source is not None and namespaces and source.namespace not in namespaces:
        place = reader.join(inner.path, "namespaces")
        expected = f"expected {source.namespace} among them: no other pods are scraped by this rule"
        decoder.fault(place, ", ".join(sorted(namespaces)), expected, inner.line)
    return Credentials(path, namespaces)


def is_own_identity(path: str) -> bool:
    """Return whether a path is below the mount of the pod's own service account token, by its text."""
    normal = posixpath.normpath(path)
    own = (SERVICE_ACCOUNT, SERVICE_ACCOUNT.removeprefix("/var"))  # /var/run is a link to /run
    return any(normal == folder or normal.startswith(f"{folder}/") for folder in own)


def _namespaces(fields: Fields, decoder: Decoder) -> frozenset[str]:
    node = fields.nodes.get("namespaces")
    place = reader.join(fields.path, "namespaces")
    expected = "expected a list of the namespaces whose pods may see the token"
    if node is None:
        decoder.fault(place, "", f"missing: {expected}", fields.line)
        return frozenset()
    entries = node.value if isinstance(node, yaml.SequenceNode) else []
    names = [reader.text_of(entry) for entry in entries if isinstance(entry, yaml.ScalarNode)]
    valid = frozenset(name for name in names if name is not None and is_name(name))
    if not valid or len(valid) != len(entries):
        decoder.fault(
            place, reader.shown(node), f"{expected}, each once and by its name", reader.line_of(node)
        )
    return valid


def _tls(fields: Fields, decoder: Decoder) -> EndpointTLS | None:
    if "tls" not in fields.structs:
        return None
    inner = fields.struct("tls")
    if fields.text("scheme") != "https":
        decoder.fault(inner.path, "", "has no effect without scheme: https", inner.line)
    skip = inner.text("insecureSkipVerify") == "true"
    name = inner.text("serverName")
    if name and not _is_host(name):
        decoder.refuse(
            inner, "serverName", "expected the name in the pods' certificates such as web.shop.svc"
        )
    return EndpointTLS(inner.text("caFile"), name, not skip)


def _is_host(text: str) -> bool:
    """Return whether TLS accepts a server name; with any other a scrape raises an unexpected error."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return len(text) <= 253 and all(is_name(label.replace("_", "-")) for label in text.lower().split("."))
    return True


def read_duration(
    fields: Fields, key: str, decoder: Decoder, bounds: Mapping[str, KeyRange], default: _Default
) -> float | _Default:
    """Return a duration in seconds, `default` without the key and after a fault."""
    if key not in fields.scalars:
        return default
    try:
        seconds = timestamps.parse_go_duration(fields.text(key))
    except ValueError:
        seconds = -1.0
    if bounds[key].least <= seconds <= bounds[key].greatest:
        return seconds
    low, high = map(timestamps.format_go_duration, bounds[key])
    decoder.refuse(fields, key, f"expected a Go duration such as 500ms or 1m30s, from {low} to {high}")
    return default


def _count(fields: Fields, key: str, decoder: Decoder, default: int) -> int:
    if key not in fields.scalars:
        return default
    bounds = COUNTS[key]
    try:
        number = int(fields.text(key))
    except ValueError:
        number = -1
    if bounds.least <= number <= bounds.greatest:
        return number
    expected = f"expected a whole number from {bounds.least:.0f} to {bounds.greatest:.0f}"
    decoder.refuse(fields, key, expected)
    return default
