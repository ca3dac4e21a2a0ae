"""The scaler's own watch of pods in the place of an object index: running pods, and nothing else."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model.resources import BUILTIN, APIResource
from adapter.model.selectors.label_selectors import EVERYTHING, LabelSelector
from adapter.provider.pod_objects import PodObjects

_found = BUILTIN.lookup("pods")
assert _found is not None
PODS: APIResource = _found


class Pod(NamedTuple):
    namespace: str
    name: str
    phase: str
    labels: Mapping[str, str] = MappingProxyType({})


class Watch:
    """Pods as a watch has them."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self.synced = True

    def select(self, namespace: str, selector: LabelSelector) -> tuple[Pod, ...]:
        if not self.synced:
            raise NotSyncedError("pods")
        return tuple(pod for pod in self.pods if pod.namespace == namespace)

    def find(self, namespace: str, name: str) -> Pod | None:
        return next((pod for pod in self.select(namespace, EVERYTHING) if pod.name == name), None)

    def __len__(self) -> int:
        return len(self.pods)


async def test_running_pods_alone() -> None:
    watch: Any = Watch(
        Pod("shop", "a", "Running", {"app": "web"}), Pod("shop", "b", "Pending"), Pod("other", "a", "Running")
    )
    objects = PodObjects(watch)

    assert await objects.select(PODS, "shop", EVERYTHING) == (LabeledObject("shop", "a", {"app": "web"}),)
    assert await objects.find(PODS, "shop", "a") == LabeledObject("shop", "a", {"app": "web"})
    assert await objects.find(PODS, "shop", "b") is None
    assert await objects.find(PODS, "shop", "c") is None
    assert objects.count(PODS) == 3
    watch.synced = False
    with pytest.raises(NotSyncedError):
        await objects.select(PODS, "shop", EVERYTHING)
