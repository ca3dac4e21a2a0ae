"""The `scrape` key of a rule: how the pods' own endpoints are scraped, and within which limits.

The shapes and the checks of the settings. Whether the query of the rule can be evaluated from scrapes is
decided in `rules.scrape`. Nothing that can be abused is on by default: no credentials, no pods in the
node's network, and bounded bytes, lines and time.

An external metric describes no object, so an external rule itself says where its series are: the endpoints of
one Service, or the pods that a label selector matches, in one named namespace. Nothing in an autoscaler can
change that.
"""

import ipaddress
import posixpath
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import yaml

from adapter import errors
from adapter.config import checks, rules_config
from adapter.config.yaml import reader
from adapter.config.yaml.decode import Fields, Leaf, Shape
from adapter.model import timestamps
from adapter.model.objects import label_selectors
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its own identity, which is never sent to another pod."""

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

_SERVICE = Shape("service", {"namespace": Leaf.TEXT, "name": Leaf.TEXT})
_PODS = Shape("pods", {"namespace": Leaf.TEXT, "selector": Leaf.TEXT})
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
        "service": _SERVICE,
        "pods": _PODS,
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

_ONLY_EXTERNAL = frozenset({"service", "pods", "honorLabels"})
USAGE_SHAPE = Shape(
    "scrape",
    {
        **{key: kind for key, kind in SHAPE.fields.items() if key not in _ONLY_EXTERNAL},
        "query": Leaf.TEXT,
        "container": Leaf.TEXT,
    },
    notes=SHAPE.notes,
)
"""The `scrape` key of `resourceRules.cpu`."""

VOCABULARY: Mapping[str, str] = {
    **dict.fromkeys(("query", "container"), "in the scrape of resourceRules.cpu"),
    **{key: "in scrape" for key in SHAPE.fields if key != "window"},
    **dict.fromkeys(CREDENTIALS.fields, "in scrape.credentials"),
    **dict.fromkeys(TLS.fields, "in scrape.tls"),
    "selector": "in scrape.pods",
}
"""Where each key belongs. The caller adds `window`, which is also a key of resourceRules."""


def read(
    fields: Fields | None, *, external: bool = False, intervals: int = WINDOW_INTERVALS
) -> rules_config.ScrapeConfig | None:
    """Return the settings; None without them and after a fault.

    `external`: those of an external rule. `intervals`: the default of `window`.
    """
    if fields is None or fields.broken:
        return None
    before = len(fields.decoder.faults)
    source = _source(fields, external=external)
    interval = read_duration(fields, "interval", BOUNDS, 1.0)
    longest = BOUNDS["window"].greatest
    window = read_duration(fields, "window", BOUNDS, min(intervals * interval, longest))
    timeout = read_duration(fields, "timeout", BOUNDS, min(interval, LONGEST_TIMEOUT))
    if len(fields.decoder.faults) == before:
        if window < 2 * interval:
            fields.refuse("window", "expected at least two intervals: a rate needs two scrapes")
        if timeout > interval:
            expected = "expected at most the interval: a pod is scraped by one request at a time"
            fields.refuse("timeout", expected)
    access = rules_config.Access(
        _port(fields, source),
        _path(fields),
        _scheme(fields),
        interval,
        timeout,
        fields.text("hostNetwork") == "true",
        _credentials(fields, source),
        _tls(fields),
        _count(fields, "maxBytes", rules_config.MAX_BYTES),
        _count(fields, "maxLines", rules_config.MAX_LINES),
        _count(fields, "maxSeries", rules_config.MAX_SERIES),
    )
    return rules_config.ScrapeConfig(access, window, source) if len(fields.decoder.faults) == before else None


def _source(fields: Fields, *, external: bool) -> rules_config.EndpointSource | None:
    """Return the source of an external rule; None after a fault, and for a rule about pods."""
    given = [key for key in ("service", "pods") if key in fields.structs]
    if not external:
        for key in given:
            expected = "belongs on external rules: a rule in rules is read from the pods that it describes"
            fields.structs[key].fault("", expected)
        if "honorLabels" in fields.scalars:
            fields.refuse("honorLabels", "has no effect in rules: the series of a pod belong to that pod")
        return None
    if len(given) != 1:
        fields.fault(
            "both service and pods" if given else "neither service nor pods",
            "expected exactly one of service: {namespace, name} and pods: {namespace, selector}: they say "
            "where the series are",
        )
        return None
    inner = fields.structs[given[0]]
    if inner.broken:
        return None
    before = len(fields.decoder.faults)
    namespace = inner.text("namespace")
    if not checks.is_label(namespace):
        inner.refuse("namespace", "expected the name of one namespace")
    service, selector = "", EVERYTHING
    if "service" in given:
        service = inner.text("name")
        if not checks.is_label(service):
            inner.refuse("name", "expected the name of a Service in that namespace")
    else:
        selector = _pod_selector(inner)
    if len(fields.decoder.faults) > before:
        return None
    return rules_config.EndpointSource(namespace, service, selector, fields.text("honorLabels") == "true")


def _pod_selector(fields: Fields) -> LabelSelector:
    expected = "expected a label selector as for kubectl -l, such as app=epp"
    try:
        selector = label_selectors.parse_selector(fields.text("selector"))
    except errors.BadRequestError as error:
        fields.refuse("selector", f"{expected}: {error.message}")
        return EVERYTHING
    if selector == EVERYTHING:
        fields.refuse("selector", f"{expected}, which is not empty")
    return selector


def _port(fields: Fields, source: rules_config.EndpointSource | None) -> str:
    text = fields.text("port")
    number = text.isascii() and text.isdigit()
    of_service = source is not None and source.service != ""
    # the API server's rule: names of container ports have at most 15 characters, those of Services 63
    name = checks.is_label(text) and (of_service or len(text) <= 15)
    good = 0 < int(text[:6]) < 65536 if number else name
    if not good:
        whose = "of a port of the Service" if of_service else "of a container port"
        fields.refuse("port", f"expected a port number, or the name {whose} such as metrics")
    return text


def _path(fields: Fields) -> str:
    text = fields.text("path") or "/metrics"
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text or "#" in text:
        fields.refuse("path", "expected the path of a URL such as /metrics, with its query if it has one")
    return text


def _scheme(fields: Fields) -> str:
    text = fields.text("scheme") or "http"
    if text not in {"http", "https"}:
        fields.refuse("scheme", "expected http or https")
    return text


def _credentials(
    fields: Fields, source: rules_config.EndpointSource | None
) -> rules_config.Credentials | None:
    inner = fields.structs.get("credentials")
    if inner is None or inner.broken:
        return None
    path = inner.text("tokenFile")
    if not path.startswith("/"):
        inner.refuse("tokenFile", "expected the absolute path of a file that holds a token")
    elif is_own_identity(path):
        expected = "the pod's own service account token is never sent to pods: expected another file"
        inner.refuse("tokenFile", expected)
    namespaces = _namespaces(inner)
    if source is not None and namespaces and source.namespace not in namespaces:
        place = reader.join(inner.path, "namespaces")
        expected = f"expected {source.namespace} among them: no other pods are scraped by this rule"
        fields.decoder.fault(place, ", ".join(sorted(namespaces)), expected, inner.line)
    return rules_config.Credentials(path, namespaces)


def is_own_identity(path: str) -> bool:
    """Return whether a path is below the mount of the pod's own service account token, by its text."""
    normal = posixpath.normpath(path)
    own = (SERVICE_ACCOUNT, SERVICE_ACCOUNT.removeprefix("/var"))  # /var/run is a link to /run
    return any(normal == folder or normal.startswith(f"{folder}/") for folder in own)


def _namespaces(fields: Fields) -> frozenset[str]:
    node = fields.nodes.get("namespaces")
    place = reader.join(fields.path, "namespaces")
    expected = "expected a list of the namespaces whose pods may see the token"
    if node is None:
        fields.refuse("namespaces", expected)
        return frozenset()
    entries = node.value if isinstance(node, yaml.SequenceNode) else []
    names = [reader.text_of(entry) for entry in entries if isinstance(entry, yaml.ScalarNode)]
    valid = frozenset(name for name in names if name is not None and checks.is_label(name))
    if not valid or len(valid) != len(entries):
        fields.decoder.fault(
            place, reader.shown(node), f"{expected}, each once and by its name", reader.line_of(node)
        )
    return valid


def _tls(fields: Fields) -> rules_config.EndpointTLS | None:
    inner = fields.structs.get("tls")
    if inner is None:
        return None
    if fields.text("scheme") != "https":
        inner.fault("", "has no effect without scheme: https")
    name = inner.text("serverName")
    if name and not _is_host(name):
        inner.refuse("serverName", "expected the name in the pods' certificates such as web.shop.svc")
    return rules_config.EndpointTLS(inner.text("caFile"), name, inner.text("insecureSkipVerify") != "true")


def _is_host(text: str) -> bool:
    """Return whether TLS accepts a server name; with any other a scrape raises an unexpected error."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return len(text) <= 253 and all(
            checks.is_label(label.replace("_", "-")) for label in text.lower().split(".")
        )
    return True


def read_duration(
    fields: Fields, key: str, bounds: Mapping[str, KeyRange], default: _Default
) -> float | _Default:
    """Return a duration in seconds, `default` without the key and after a fault."""
    low, high = map(timestamps.format_go_duration, bounds[key])
    expected = f"expected a Go duration such as 500ms or 1m30s, from {low} to {high}"
    return _bounded(fields, key, timestamps.parse_go_duration, bounds[key], default, expected)


def _count(fields: Fields, key: str, default: int) -> int:
    least, greatest = COUNTS[key]
    expected = f"expected a whole number from {least:.0f} to {greatest:.0f}"
    return int(_bounded(fields, key, int, COUNTS[key], default, expected))


def _bounded(
    fields: Fields, key: str, parse: Callable[[str], float], limit: KeyRange, default: _Default, expected: str
) -> float | _Default:
    if key not in fields.scalars:
        return default
    try:
        number = parse(fields.text(key))
    except ValueError:
        number = -1.0
    if limit.least <= number <= limit.greatest:
        return number
    fields.refuse(key, expected)
    return default
