"""Writes the deletion costs of pods, by server-side apply with a field manager of their own.

The API server keeps, field by field, who has written what. So a cost of another writer is never overwritten:
an apply that is not forced gets a conflict. And an apply without the annotation removes our cost, and nothing
of anybody else, even if it is not known whether there is one.
"""

import msgspec

from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.objects.pods import COST_ANNOTATION

MANAGER = "fastpath-idle-scale-down"

AT_ONCE = 16
"""The number of costs that a process writes at once."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML


async def apply(writer: Writer, namespace: str, pod: str, cost: int | None) -> None:
    """Set the cost of a pod, or with None take ours back, with a write slot.

    Raises KubernetesError and NotLeadingError. Status 409: the pod has a cost of another writer. 404 and 422:
    there is no such pod; an apply would create it, and is refused because it names no container.
    """
    metadata: dict[str, object] = {"name": pod, "namespace": namespace}
    if cost is not None:
        metadata["annotations"] = {COST_ANNOTATION: str(cost)}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    await writer.send(
        WriteKind.COST,
        "PATCH",
        f"/api/v1/namespaces/{namespace}/pods/{pod}",
        msgspec.json.encode(document),
        content_type=_APPLY,
        manager=MANAGER,
    )
