"""The pods of the scaler's own watch as the objects whose usage is asked for: spares a process that only scales a second watch of pods."""

from adapter.kubernetes.cache.lister import LabeledObject
from adapter.kubernetes.cache.pods import PodCache
from adapter.model.resources import APIResource
from adapter.model.selectors.label_selectors import LabelSelector


class PodObjects:
    """Pods whose phase is Running; there are no other objects here."""

    def __init__(self, watch: PodCache) -> None:
        self._watch = watch

    async def select(
        self,
        resource: APIResource,  # noqa: ARG002 - there are only pods
        namespace: str | None,
        selector: LabelSelector,
    ) -> tuple[LabeledObject, ...]:
        """Return the pods of a namespace that match; NotSyncedError."""
        found = self._watch.select(namespace or "", selector)
        return tuple(
            LabeledObject(pod.namespace, pod.name, pod.labels) for pod in found if pod.phase == "Running"
        )

    async def find(self, resource: APIResource, namespace: str, name: str) -> LabeledObject | None:  # noqa: ARG002 - as above
        """Return one pod; NotSyncedError."""
        pod = self._watch.find(namespace, name)
        return (
            None
            if pod is None or pod.phase != "Running"
            else LabeledObject(pod.namespace, pod.name, pod.labels)
        )

    def count(self, resource: APIResource) -> int:  # noqa: ARG002 - as above
        """Return how many pods are known."""
        return len(self._watch)
