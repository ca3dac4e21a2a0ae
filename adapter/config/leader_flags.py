"""The flags of leader election and of the scaler's writes, as data: a part of the table in `flagtable`.

Law: names and defaults of the leader-elect flags are those of the Kubernetes controllers; `shard` and `kube-api-write-qps` are ours.
"""

import re
from collections.abc import Iterator

from adapter import errors
from adapter.config.options import Options
from adapter.config.pflag import Flag, Kind
from adapter.config.yaml import reader
from adapter.model import shards
from adapter.model.durations import format_go_duration

SCALER = "Scaler"
_JITTER = 1.2
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def leader_flags() -> Iterator[Flag]:
    """Yield who leads and how often it writes; each sets the option of its name."""
    for name, kind, default, text, metavar in (
        (
            "leader-elect",
            Kind.BOOL,
            "true",
            "Scale only while holding the Lease. Without it nothing keeps two processes from scaling the same objects.",
            "",
        ),
        (
            "leader-elect-lease-duration",
            Kind.DURATION,
            "15s",
            "How long others wait, after the last renewal they saw, before they take over; whole seconds.",
            "",
        ),
        (
            "leader-elect-renew-deadline",
            Kind.DURATION,
            "10s",
            "How long a leader goes on without a renewal; below the lease duration.",
            "",
        ),
        (
            "leader-elect-retry-period",
            Kind.DURATION,
            "2s",
            "Time between two attempts to take or renew the lease; 1.2 of it are below the renew deadline.",
            "",
        ),
        (
            "leader-elect-resource-lock",
            Kind.TEXT,
            "leases",
            "What is locked: leases and nothing else.",
            "kind",
        ),
        (
            "leader-elect-resource-name",
            Kind.TEXT,
            "fastpath-scaler",
            "Name of the Lease; that of a shard has -i-of-n behind it.",
            "name",
        ),
        (
            "leader-elect-resource-namespace",
            Kind.TEXT,
            "",
            "Namespace of the Lease; without it that of the pod.",
            "namespace",
        ),
        (
            "shard",
            Kind.TEXT,
            "1/1",
            "The part of the autoscalers to answer for, the i-th of n; all processes of one n go before any of another start.",
            "i/n",
        ),
        (
            "kube-api-write-qps",
            Kind.FLOAT,
            "50",
            "Writes a second of the scaler: Scales before statuses before events.",
            "number",
        ),
    ):
        yield Flag(name, kind, default, text, SCALER, name.replace("-", "_"), metavar=metavar)


def check_times(options: Options) -> errors.Fault | None:
    """Return what is wrong with the three times of the election together, in client-go's order; nothing where one is wrong by itself."""
    lease, deadline, retry = (
        options.leader_elect_lease_duration,
        options.leader_elect_renew_deadline,
        options.leader_elect_retry_period,
    )
    if check_lease_duration(lease) or retry <= 0:
        return None
    if lease <= deadline:
        expected = (
            f"expected more than --leader-elect-renew-deadline, which is {format_go_duration(deadline)}"
        )
        return _fault("--leader-elect-lease-duration", lease, expected)
    if deadline <= _JITTER * retry:
        expected = f"expected more than {_JITTER} times --leader-elect-retry-period, which is {format_go_duration(retry)}"
        return _fault("--leader-elect-renew-deadline", deadline, expected)
    return None


def _fault(flag: str, seconds: float, expected: str) -> errors.Fault:
    return errors.Fault(flag, reader.shown_text(format_go_duration(seconds)), expected)


def check_lease_duration(seconds: float) -> str:
    """Return what a lease duration has to be, "" for one that is: the Lease has whole seconds."""
    return "" if seconds >= 1 and seconds == int(seconds) else "expected whole seconds, at least 1s"


def check_lock(kind: str) -> str:
    """Return what a kind of lock has to be."""
    return "" if kind == "leases" else "expected leases; other kinds of locks are gone from Kubernetes"


def check_name(name: str) -> str:
    """Return what the name of a Lease has to be; a shard's number has to fit behind it."""
    good = len(name) <= 240 and _NAME.fullmatch(name)
    return "" if good else "expected the name of a Lease: lower case letters, digits, - and ."


def check_rate(rate: float) -> str:
    """Return what a rate has to be."""
    return "" if rate > 0 else "expected a number above 0"


def check_shard(text: str) -> str:
    """Return what a shard has to be."""
    try:
        shards.parse_shard(text)
    except ValueError as error:
        return f"expected {error}"
    return ""
