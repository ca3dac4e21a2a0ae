"""The Leases of a scaler that owns the slice of a namespace, as documents."""

from collections.abc import Mapping
from typing import Any

from adapter.kubernetes.ownership.lease_view import LABEL
from adapter.model.autoscaling import slices

NAME = "fastpath-scaler"


def owner_leases(owned: str, spec: Mapping[str, Any], namespace: str = "fastpath") -> list[dict[str, Any]]:
    """Return the Lease of the slice of the namespace `owned`, and that of its holder."""
    return [
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: NAME}},
            "spec": dict(spec),
        }
        for name in (slices.name_of(NAME, slices.slice_of(owned)), f"{NAME}-member-1")
    ]
