"""What the value of a flag must be beyond its type.

Each check returns a sentence "expected ...", and "" for a good value.
"""

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from adapter.model.objects import pod_networks

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def expect(what: str, is_good: Callable[..., bool]) -> Callable[..., str]:
    """Return a check with one sentence."""
    return lambda value: "" if is_good(value) else f"expected {what}"


def one_of(*words: str) -> Callable[..., str]:
    return expect(f"{', '.join(words[:-1])} or {words[-1]}", words.__contains__)


above_zero = expect("a duration above 0", lambda seconds: seconds > 0)
positive = expect("a number above 0", lambda number: number > 0)
not_negative = expect("0 or more", lambda number: number >= 0)
is_given = expect("a path", bool)
rules_paths = expect("the path of a rules file, or of a folder of them", all)


def is_label(name: str) -> bool:
    """Whether a text is a DNS label, as the names of namespaces, Services and ports are."""
    return _LABEL.fullmatch(name) is not None


label = expect("a name of lower-case letters, digits and dashes, at most 63", is_label)


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # urlsplit drops line breaks in silence, so look at what was written
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return good and text.isprintable() and " " not in text and not _BROKEN_ESCAPE.search(text)


prometheus_url = expect("a URL such as http://prometheus.monitoring.svc:9090", is_url)


def pod_cidrs(cidrs: tuple[str, ...]) -> str:
    try:
        pod_networks.parse_networks(cidrs)
    except ValueError as error:
        return str(error)
    return ""


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
