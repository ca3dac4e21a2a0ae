"""The flags of the scaler's decisions, as data: a part of the table in `flagtable`.

Law: what kube-controller-manager has a flag for has its name and default here, for its settings cannot be read from a cluster.
"""

import ipaddress
from collections.abc import Iterator

from adapter.config.pflag import Flag, Kind

_GROUP = "Scaler"
_HPA = "horizontal-pod-autoscaler"


def scaler_flags() -> Iterator[Flag]:
    """Yield how decisions are made and shown; each sets the option of its name."""
    for name, kind, default, text, metavar in (
        ("scaler", Kind.BOOL, "false", "Run the scaler in this process; `fastpath scale` runs it alone.", ""),
        (
            "serve-floors",
            Kind.BOOL,
            "false",
            (
                "Serve fastpath_replicas, the floors of boosted HorizontalPodAutoscalers, in a process that does not scale; with --scaler "
                "it is served anyway."
            ),
            "",
        ),
        (
            "prometheus-max-queries-per-second",
            Kind.FLOAT,
            "20",
            "Queries a second that the scaler causes; beyond it questions wait, each namespace with an equal share.",
            "number",
        ),
        (
            f"{_HPA}-sync-period",
            Kind.DURATION,
            "15s",
            "How often metrics that another adapter serves are asked for. How often is decided each autoscaler says itself.",
            "",
        ),
        (
            f"{_HPA}-tolerance",
            Kind.FLOAT,
            "0.1",
            "How far a ratio may be from 1 before anything is changed.",
            "number",
        ),
        (
            f"{_HPA}-downscale-stabilization",
            Kind.DURATION,
            "5m0s",
            "How long the highest recommendation holds where an autoscaler does not say.",
            "",
        ),
        (
            f"{_HPA}-cpu-initialization-period",
            Kind.DURATION,
            "5m0s",
            "How long after its start the cpu of a pod counts only while it is ready.",
            "",
        ),
        (
            f"{_HPA}-initial-readiness-delay",
            Kind.DURATION,
            "30s",
            "How long after its start a pod that becomes unready counts as never having been ready.",
            "",
        ),
        (
            "local-address",
            Kind.TEXT,
            "127.0.0.1:10254",
            "Where the scaler shows health, self-metrics and journal, on this machine alone; empty for nowhere.",
            "address",
        ),
        (
            "health-probe-bind-address",
            Kind.TEXT,
            "",
            (
                "Where kubelet's probes find /livez and /readyz, over plain HTTP and without anything else, such as :8081; "
                "empty or 0 for nowhere."
            ),
            "address",
        ),
        (
            "metrics-bind-address",
            Kind.TEXT,
            "",
            (
                "Where `fastpath scale` serves /metrics and the journal over HTTPS, such as :8443; empty or 0 for nowhere. "
                "Callers are authenticated and authorized as by `fastpath serve`, which has both on --secure-port."
            ),
            "address",
        ),
    ):
        yield Flag(name, kind, default, text, _GROUP, name.replace("-", "_"), metavar=metavar)


def check_local_address(text: str) -> str:
    """Return what a local address has to be: who asks there is not asked who they are."""
    host, _, port = text.rpartition(":")
    try:
        good = not text or (ipaddress.ip_address(host.strip("[]")).is_loopback and 0 <= int(port) <= 65535)
    except ValueError:
        good = False
    return "" if good else "expected a loopback address and a port such as 127.0.0.1:10254"


def split_bind_address(text: str) -> tuple[str, int] | None:
    """Return host and port of a bind address; the host "" is every address of the machine. None for nowhere.

    ValueError for anything else. The forms are controller-runtime's: ``:8081``, ``10.0.0.1:8081``, ``[::1]:8081``, ``0``.
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


def check_bind_address(text: str) -> str:
    """Return what a bind address has to be."""
    try:
        split_bind_address(text)
    except ValueError:
        return "expected a port with or without an IP address before it, such as :8081 or 10.0.0.1:8081, or 0 for nowhere"
    return ""


def check_not_negative(number: float) -> str:
    """Return what a number has to be."""
    return "" if number >= 0 else "expected 0 or more"
