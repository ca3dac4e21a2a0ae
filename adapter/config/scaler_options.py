"""The options of the scaler.

How it decides, where it shows its state, and how it shares the work. Options that
kube-controller-manager or the Kubernetes controllers have keep their names and defaults here: the settings of
the HPA controller cannot be read from a cluster.
"""

import ipaddress
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.config import checks
from adapter.config.option_fields import CommandOptions, option
from adapter.config.pflag import FlagType
from adapter.config.yaml import reader
from adapter.errors import Fault
from adapter.model.timestamps import format_go_duration

_scaler = partial(option, group="Scaler")
_switch = partial(_scaler, FlagType.BOOL)
_text = partial(_scaler, FlagType.TEXT)
_duration = partial(_scaler, FlagType.DURATION, check=checks.not_negative)
_number = partial(_scaler, FlagType.FLOAT, metavar="number", check=checks.positive)
_bind_address = partial(_text, "", metavar="address", check=checks.bind_address)

_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_JITTER = 1.2  # client-go's: a retry comes up to this factor late


# the Lease object has whole seconds
_lease_duration = checks.expect(
    "whole seconds, at least 1s", lambda seconds: seconds >= 1 and seconds == int(seconds)
)
_resource_lock = checks.expect(
    "leases: Kubernetes has removed other kinds of locks", lambda kind: kind == "leases"
)
# what the names of Leases begin with
_lease_name = checks.expect(
    "the name of a Lease: lower case letters, digits, - and .",
    lambda name: len(name) <= 180 and _LEASE_NAME.fullmatch(name) is not None,
)


def _local_address(text: str) -> str:
    """Check an address of this machine only: it is served without authentication."""
    host, _, port = text.rpartition(":")
    try:
        good = not text or (ipaddress.ip_address(host.strip("[]")).is_loopback and 0 <= int(port) <= 65535)
    except ValueError:
        good = False
    return "" if good else "expected a loopback address and a port such as 127.0.0.1:10254"


@dataclass(frozen=True, kw_only=True)
class ScalerOptions(CommandOptions):
    scaler: bool = _switch("false", "Run the scaler in this process; `fastpath scale` runs it alone.")
    serve_floors: bool = _switch(
        "false",
        "Serve fastpath_replicas, the floors of boosted HorizontalPodAutoscalers, in a process that does not "
        "scale; with --scaler it is served anyway.",
    )
    prometheus_max_queries_per_second: float = _number(
        "20",
        "Maximum number of queries a second that the scaler sends; beyond it queries wait, each namespace "
        "with an equal share.",
    )
    horizontal_pod_autoscaler_sync_period: float = _duration(
        "15s",
        "Time between two requests for a metric that another adapter serves. How often the scaler decides is "
        "set in each autoscaler.",
        check=checks.above_zero,
    )
    horizontal_pod_autoscaler_tolerance: float = _number(
        "0.1",
        "How far a ratio may be from 1 before the scaler changes the replicas; an autoscaler's own "
        "tolerance takes precedence.",
        check=checks.not_negative,
    )
    horizontal_pod_autoscaler_downscale_stabilization: float = _duration(
        "5m0s", "Scale-down stabilization window of autoscalers that do not set one; cut to whole seconds."
    )
    horizontal_pod_autoscaler_cpu_initialization_period: float = _duration(
        "5m0s", "Time after the start of a pod in which its cpu counts only while it is ready."
    )
    horizontal_pod_autoscaler_initial_readiness_delay: float = _duration(
        "30s", "Time after the start of a pod in which becoming unready counts as never having been ready."
    )
    local_address: str = _text(
        "127.0.0.1:10254",
        "Loopback address where the scaler serves health, self-metrics and journal; empty disables it.",
        metavar="address",
        check=_local_address,
    )
    autoscaler_history: bool = _switch(
        "true",
        "Keep the changes of the last hour of each autoscaler, which `fastpath ui` draws: 2 KiB on average.",
    )
    journal_entries: int = _scaler(
        FlagType.INT,
        "100",
        "How many decisions of each autoscaler the journal keeps at most, the newest ones.",
        check=checks.expect("a number from 1 to 20000", lambda count: 1 <= count <= 20_000),
    )
    journal_records: bool = _switch(
        "false",
        "Keep with each decision of the journal everything that it was made from, so that `fastpath simulate "
        "--replay` can make it again. Takes memory: about 400 bytes for each pod and metric of a decision.",
    )
    health_probe_bind_address: str = _bind_address(
        "Address for kubelet's probes: /livez and /readyz over plain HTTP and nothing else, such as :8081; "
        "empty or 0 disables it."
    )
    metrics_bind_address: str = _bind_address(
        "Address where `fastpath scale` serves /metrics and the journal over HTTPS, such as :8443; empty "
        "or 0 disables it. Callers are authenticated and authorized as by `fastpath serve`, which has both "
        "on --secure-port."
    )
    leader_elect: bool = _switch(
        "true",
        "Scale only the slices of namespaces that this process owns under Leases. Without it the process "
        "owns all, and nothing keeps two processes from scaling the same objects.",
    )
    leader_elect_lease_duration: float = _duration(
        "15s",
        "How long other processes wait after the last renewal they saw before they take over; whole seconds.",
        check=_lease_duration,
    )
    leader_elect_renew_deadline: float = _scaler(
        FlagType.DURATION, "10s", "How long a process continues without a renewal; below the lease duration."
    )
    leader_elect_retry_period: float = _duration(
        "2s",
        "Time between two renewals of the Lease of a process; 1.2 times it is below the renew deadline.",
        check=checks.above_zero,
    )
    leader_elect_resource_lock: str = _text(
        "leases", "Kind of object that is locked: only leases.", metavar="kind", check=_resource_lock
    )
    leader_elect_resource_name: str = _text(
        "fastpath-scaler",
        "What the names of the Leases begin with: those of slices go on with -slice-00 to -slice-63, those "
        "of scalers with -member- and a UUID.",
        metavar="name",
        check=_lease_name,
    )
    leader_elect_resource_namespace: str = _text(
        "",
        "Namespace of the Leases; without it that of the pod, or outside of a cluster that of the context of "
        "the kubeconfig. The ConfigMaps are always there.",
        metavar="namespace",
    )
    kube_api_write_qps: float = _number(
        "50",
        "Maximum number of writes a second, not counting the lease. Scales come first, then statuses, then "
        "events; each gets a tenth at least.",
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with the three times of a Lease together, in client-go's order."""
        yield from super().faults(given)
        lease, deadline = self.leader_elect_lease_duration, self.leader_elect_renew_deadline
        retry = self.leader_elect_retry_period
        if _lease_duration(lease) or retry <= 0:
            return
        if lease <= deadline:
            least = format_go_duration(deadline)
            expected = f"expected more than --leader-elect-renew-deadline, which is {least}"
            yield Fault("--leader-elect-lease-duration", _shown(lease), expected)
        elif deadline <= _JITTER * retry:
            least = format_go_duration(retry)
            expected = f"expected more than {_JITTER} times --leader-elect-retry-period, which is {least}"
            yield Fault("--leader-elect-renew-deadline", _shown(deadline), expected)


def _shown(seconds: float) -> str:
    return reader.shown_text(format_go_duration(seconds))
