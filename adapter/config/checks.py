"""What the value of a flag must be beyond its type.

Each check returns a sentence "expected ...", and "" for a good value.
"""

import difflib
import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from adapter.config import ciphers
from adapter.config.yaml import reader
from adapter.model import pod_networks
from adapter.model.autoscaling import shards

SERVABLE_GROUPS = ("custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io")
"""The API groups that can be served."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's token
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def above_zero(seconds: float) -> str:
    """Check a duration."""
    return "" if seconds > 0 else "expected a duration above 0"


def positive(number: float) -> str:
    """Check a number."""
    return "" if number > 0 else "expected a number above 0"


def not_negative(number: float) -> str:
    """Check a number or a duration."""
    return "" if number >= 0 else "expected 0 or more"


def one_of(*words: str) -> Callable[[str], str]:
    """Return the check of a text that has to be one of a few words."""
    expected = f"expected {', '.join(words[:-1])} or {words[-1]}"
    return lambda text: "" if text in words else expected


def is_given(text: str) -> str:
    """Check a path."""
    return "" if text else "expected a path"


def rules_paths(paths: tuple[str, ...]) -> str:
    """Check the paths of rules files."""
    return "" if all(paths) else "expected the path of a rules file, or of a folder of them"


def label(name: str) -> str:
    """Check the name of a namespace or a Service."""
    good = _LABEL.fullmatch(name)
    return "" if good else "expected a name of lower-case letters, digits and dashes, at most 63"


def is_url(text: str) -> bool:
    """Tell whether a text is an http or https URL."""
    try:
        parts = urlsplit(text)
        # urlsplit drops line breaks in silence, so look at what was written
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return good and text.isprintable() and " " not in text and not _BROKEN_ESCAPE.search(text)


def prometheus_url(url: str) -> str:
    """Check the base URL of Prometheus."""
    return "" if is_url(url) else "expected a URL such as http://prometheus.monitoring.svc:9090"


def open_paths(paths: tuple[str, ...]) -> str:
    """Check paths of the server that need no authorization."""
    if any("*" in path[:-1] for path in paths):
        return "expected a * at the end of a path only"
    return "" if all(paths) else "expected paths such as /healthz, none of them empty"


def header_names(names: tuple[str, ...]) -> str:
    """Check names of HTTP headers, or beginnings of them."""
    good = all(_HEADER_NAME.fullmatch(name.strip()) for name in names)
    return "" if good else "expected names of headers such as x-remote-user"


def served_groups(groups: tuple[str, ...]) -> str:
    """Check API groups to serve."""
    for group in groups:
        if group not in SERVABLE_GROUPS:
            near = difflib.get_close_matches(group, SERVABLE_GROUPS, n=1, cutoff=0.3)
            return f"expected {', '.join(SERVABLE_GROUPS)}" + (f"; did you mean {near[0]}?" if near else "")
    return ""


def cipher_suites(names: tuple[str, ...]) -> str:
    """Check Go's names of cipher suites."""
    unknown = [name for name in names if name not in ciphers.OPENSSL_NAMES]
    if not unknown:
        return ""
    near = difflib.get_close_matches(unknown[0], ciphers.OPENSSL_NAMES, n=1)
    example = "expected Go's names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    advice = f"did you mean {near[0]}?" if near else example
    return f"{reader.shown_text(unknown[0])} is no cipher suite, {advice}"


def tls_version(version: str) -> str:
    """Check Go's name of a TLS version; "" stands for the default."""
    known = version in {"", *ciphers.MIN_VERSIONS}
    return "" if known else f"expected one of {', '.join(ciphers.MIN_VERSIONS)}"


def pod_cidrs(cidrs: tuple[str, ...]) -> str:
    """Check the networks of the pods."""
    try:
        pod_networks.parse_networks(cidrs)
    except ValueError as error:
        return str(error)
    return ""


def lease_duration(seconds: float) -> str:
    """Check a lease duration; the Lease object has whole seconds."""
    return "" if seconds >= 1 and seconds == int(seconds) else "expected whole seconds, at least 1s"


def resource_lock(kind: str) -> str:
    """Check the kind of object that the leader locks."""
    return "" if kind == "leases" else "expected leases; other kinds of locks are gone from Kubernetes"


def lease_name(name: str) -> str:
    """Check the name of a Lease, which a shard's number is appended to."""
    good = len(name) <= 240 and _LEASE_NAME.fullmatch(name)
    return "" if good else "expected the name of a Lease: lower case letters, digits, - and ."


def shard(text: str) -> str:
    """Check a shard such as 2/3."""
    try:
        shards.parse_shard(text)
    except ValueError as error:
        return f"expected {error}"
    return ""


def local_address(text: str) -> str:
    """Check an address of this machine only: it is served without authentication."""
    host, _, port = text.rpartition(":")
    try:
        good = not text or (ipaddress.ip_address(host.strip("[]")).is_loopback and 0 <= int(port) <= 65535)
    except ValueError:
        good = False
    return "" if good else "expected a loopback address and a port such as 127.0.0.1:10254"


def split_bind_address(text: str) -> tuple[str, int] | None:
    """Return host and port of a bind address; the host "" is every address of the machine. None for nowhere.

    ValueError for anything else. The forms are controller-runtime's: ``:8081``, ``10.0.0.1:8081``,
    ``[::1]:8081``, ``0``.
    """
    if text in {"", "0"}:
        return None
    host, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdigit()) or int(number) > 65535:
        raise ValueError(text)
    if not host:
        return "", int(number)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (ipaddress.ip_address(bare).version == 6) is (bare == host):
        raise ValueError(text)
    return bare, int(number)


def bind_address(text: str) -> str:
    """Check a bind address as `split_bind_address` reads it."""
    try:
        split_bind_address(text)
    except ValueError:
        return (
            "expected a port with or without an IP address before it, such as :8081 or 10.0.0.1:8081, "
            "or 0 for nowhere"
        )
    return ""


def port_number(number: Any) -> str:
    """Check a port to connect to."""
    return "" if 1 <= number <= 65535 else "expected a port from 1 to 65535"
