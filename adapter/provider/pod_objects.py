"""The pods of the scaler's own watch as objects of resource metrics.

A process that only scales needs no second watch of pods.
"""

from adapter.kubernetes.cache.lister import Described
from adapter.kubernetes.cache.pods import PodWatch
from adapter.model.resources import APIResource
from adapter.model.selectors.label_selectors import LabelSelector


class PodObjects:
    """The pods whose phase is Running, and no other objects."""

    def __init__(self, watch: PodWatch) -> None:
        self._watch = watch

    async def select(
        self,
        resource: APIResource,  # noqa: ARG002 - there are only pods
        namespace: str | None,
        selector: LabelSelector,
    ) -> tuple[Described, ...]:
        """Return the pods of a namespace that match; NotSyncedError."""
        found = self._watch.select(namespace or "", selector)
        return tuple(
            Described(pod.namespace, pod.name, pod.labels) for pod in found if pod.phase == "Running"
        )

    async def find(self, resource: APIResource, namespace: str, name: str) -> Described | None:  # noqa: ARG002 - as above
        """Return one pod; NotSyncedError."""
        pod = self._watch.find(namespace, name)
        return (
            None if pod is None or pod.phase != "Running" else Described(pod.namespace, pod.name, pod.labels)
        )

    def count(self, resource: APIResource) -> int:  # noqa: ARG002 - as above
        """Return how many pods are known."""
        return len(self._watch)
