"""Who owns the slices of namespaces, as Leases say."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from adapter.kubernetes import credentials
from adapter.model.autoscaling import slices

NAME = "fastpath-scaler"
Leases = Iterable[dict[str, Any]]


def owners(leases: Leases) -> dict[int, str]:
    """Return the identity that owns each slice; slices without an owner are left out."""
    holders = {lease["metadata"]["name"]: lease["spec"].get("holderIdentity") or "" for lease in leases}
    members = {holder for name, holder in holders.items() if "-member-" in name}
    return {
        number: holder
        for name, holder in holders.items()
        if (number := slices.parse_name(NAME, name)) is not None and holder and holder in members
    }


def owner_of(leases: Leases, namespace: str) -> str:
    """Return the Pod that owns the slice of a namespace, "" for none."""
    return credentials.pod_of(owners(leases).get(slices.slice_of(namespace), ""))


def are_shared(leases: Leases, scalers: int) -> bool:
    """Tell whether so many scalers own fair shares of all slices."""
    counts = Counter(owners(leases).values())
    return (
        len(counts) == scalers
        and counts.total() == slices.COUNT
        and max(counts.values()) - min(counts.values()) < 2
    )
