"""The columns that ``kubectl get`` prints, by kind.

Every kind has at least Name and Age. A cell without a value shows what kubectl shows, ``<none>`` or ``0``.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any

from adapter.sandbox.apiserver.storage.kinds import Kind

JSON = dict[str, Any]
Column = tuple[str, str, Callable[[JSON], Any]]


def _status(field: str, absent: Any) -> Callable[[JSON], Any]:
    return lambda document: document.get("status", {}).get(field, absent)


def _spec(field: str, absent: Any) -> Callable[[JSON], Any]:
    return lambda document: document.get("spec", {}).get(field, absent)


def _pod_ready(document: JSON) -> str:
    containers = document.get("spec", {}).get("containers") or []
    statuses = document.get("status", {}).get("containerStatuses") or []
    return f"{sum(bool(entry.get('ready')) for entry in statuses)}/{len(containers)}"


def _pod_phase(document: JSON) -> str:
    if "deletionTimestamp" in document["metadata"]:
        return "Terminating"
    return str(document.get("status", {}).get("phase", "Unknown"))


def _replicas_ready(document: JSON) -> str:
    return (
        f"{document.get('status', {}).get('readyReplicas', 0)}/{document.get('spec', {}).get('replicas', 1)}"
    )


def _reference(document: JSON) -> str:
    target = document.get("spec", {}).get("scaleTargetRef") or {}
    return f"{target.get('kind', '<none>')}/{target.get('name', '<none>')}"


def _node_ready(document: JSON) -> str:
    conditions = document.get("status", {}).get("conditions") or []
    ready: JSON = next((entry for entry in conditions if entry.get("type") == "Ready"), {})
    return {"True": "Ready", "False": "NotReady"}.get(ready.get("status", ""), "Unknown")


def _involved(document: JSON) -> str:
    involved = document.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


_COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "pods"): (("Ready", "string", _pod_ready), ("Status", "string", _pod_phase)),
    ("", "nodes"): (("Status", "string", _node_ready),),
    ("", "namespaces"): (("Status", "string", _status("phase", "Active")),),
    ("", "services"): (
        ("Type", "string", _spec("type", "ClusterIP")),
        ("Cluster-IP", "string", _spec("clusterIP", "<none>")),
    ),
    ("", "configmaps"): (("Data", "string", lambda document: len(document.get("data") or {})),),
    ("", "events"): (
        ("Type", "string", lambda document: document.get("type", "")),
        ("Reason", "string", lambda document: document.get("reason", "")),
        ("Object", "string", _involved),
        ("Message", "string", lambda document: document.get("message", "")),
    ),
    ("apps", "deployments"): (
        ("Ready", "string", _replicas_ready),
        ("Up-to-date", "string", _status("updatedReplicas", 0)),
        ("Available", "string", _status("availableReplicas", 0)),
    ),
    ("apps", "statefulsets"): (("Ready", "string", _replicas_ready),),
    ("apps", "replicasets"): (
        ("Desired", "integer", _spec("replicas", 1)),
        ("Current", "integer", _status("replicas", 0)),
        ("Ready", "integer", _status("readyReplicas", 0)),
    ),
    ("autoscaling", "horizontalpodautoscalers"): (
        ("Reference", "string", _reference),
        ("MinPods", "string", _spec("minReplicas", 1)),
        ("MaxPods", "string", _spec("maxReplicas", "<none>")),
        ("Replicas", "string", _status("currentReplicas", 0)),
    ),
    ("coordination.k8s.io", "leases"): (("Holder", "string", _spec("holderIdentity", "<none>")),),
}


def definitions(kind: Kind) -> list[JSON]:
    middle = _COLUMNS.get((kind.group, kind.plural), ())
    columns = [
        ("Name", "string", "name"),
        *((name, type_, "") for name, type_, _ in middle),
        ("Age", "string", ""),
    ]
    return [
        {"name": name, "type": type_, "format": format_, "description": "", "priority": 0}
        for name, type_, format_ in columns
    ]


def cells(kind: Kind, document: JSON, now: float) -> list[Any]:
    """Return the cells of an object; `now` is epoch seconds, for the age."""
    middle = _COLUMNS.get((kind.group, kind.plural), ())
    return [document["metadata"]["name"], *(cell(document) for _, _, cell in middle), _age(document, now)]


def _age(document: JSON, now: float) -> str:
    created = dt.datetime.fromisoformat(document["metadata"]["creationTimestamp"])
    seconds = max(0, int(now - created.timestamp()))
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"
