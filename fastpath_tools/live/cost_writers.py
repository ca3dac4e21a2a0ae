"""Which other field managers write the deletion cost of pods, as the API server keeps it field by field."""

from collections.abc import Iterable

from adapter.kubernetes.write.deletion_costs import MANAGER
from adapter.model.autoscaling.scale_down import COST_ANNOTATION
from fastpath_tools.live.api_objects import PodDocument


def find(pods: Iterable[PodDocument]) -> tuple[tuple[str, str], ...]:
    """Return each field manager that owns a cost, but for ours, with the first pod where it does."""
    writers: dict[str, str] = {}
    for pod in pods:
        for entry in pod.metadata.managed_fields or ():
            if entry.manager != MANAGER and entry.owns("metadata", "annotations", COST_ANNOTATION):
                writers.setdefault(entry.manager, pod.metadata.name)
    return tuple(writers.items())
