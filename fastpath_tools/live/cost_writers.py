"""Which other field managers write the deletion cost of pods, as the API server keeps it field by field."""

from collections.abc import Iterable

from adapter.kubernetes.write.deletion_costs import MANAGER
from adapter.model.autoscaling.scale_down import COST_ANNOTATION
from fastpath_tools.live.api_objects import ManagedFields, PodDocument


def find(pods: Iterable[PodDocument]) -> tuple[tuple[str, str], ...]:
    """Return each field manager that owns a cost, but for ours, with the first pod where it does."""
    writers: dict[str, str] = {}
    for pod in pods:
        for entry in pod.metadata.managed_fields or ():
            if entry.manager != MANAGER and _has_cost(entry):
                writers.setdefault(entry.manager, pod.metadata.name)
    return tuple(writers.items())


def _has_cost(entry: ManagedFields) -> bool:
    fields = entry.fields_v1
    for key in ("f:metadata", "f:annotations", f"f:{COST_ANNOTATION}"):
        if not isinstance(fields, dict) or key not in fields:
            return False
        fields = fields[key]
    return True
