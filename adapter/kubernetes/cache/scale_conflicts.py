"""Knows which autoscalers have the same target, so that none of ours scales a target that another one scales.

HPAs come from their cache. FastPathAutoscalers are put in by the source that reads them; if they come from
files, those of the cluster are watched too.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from adapter.kubernetes.cache.hpa_cache import (
    FASTPATH,
    HPACache,
    WatchedHPA,
    keep_hpa,
    reflectors,
    same_hpa,
)
from adapter.kubernetes.cache.list_watch import ReflectorContext
from adapter.kubernetes.cache.reflector import Reflector, ReflectorStatus
from adapter.kubernetes.cache.store import TypedStore, in_steps
from adapter.kubernetes.codec import ObjectCodec
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference


class TargetKey(NamedTuple):
    """The object that an autoscaler scales, in whatever version of its group."""

    namespace: str
    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, namespace: str, reference: CrossVersionObjectReference) -> "TargetKey":
        group = reference.api_version.rpartition("/")[0]
        return cls(namespace, group, reference.kind.lower(), reference.name)


class _Owners:
    """Maps autoscalers to their targets, and back."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, str, str], TargetKey] = {}
        self._owners: dict[TargetKey, set[tuple[str, str, str]]] = {}

    def put(self, kind: str, namespace: str, name: str, target: TargetKey | None) -> list[TargetKey]:
        """Set the target of an autoscaler, None if it is gone; return the targets with other autoscalers."""
        owner = (kind, namespace, name)
        old = self._targets.get(owner)
        if old == target:
            return []
        if old is not None:
            del self._targets[owner]
            self._owners[old].discard(owner)
            if not self._owners[old]:
                del self._owners[old]
        if target is not None:
            self._targets[owner] = target
            self._owners.setdefault(target, set()).add(owner)
        return [each for each in (old, target) if each is not None]

    def targets(self) -> Iterable[TargetKey]:
        return self._owners

    def of(self, target: TargetKey) -> set[tuple[str, str, str]]:
        return self._owners.get(target, set())


class ScaleConflicts:
    """The autoscalers of each target, while `run` runs.

    With `objects` the FastPathAutoscalers of the cluster count too, if there is such a kind. `changed` is
    called with each target whose autoscalers changed, once the first lists are in.
    """

    def __init__(
        self,
        context: ReflectorContext,
        changed: Callable[[TargetKey], None] = lambda _: None,
        namespaces: Sequence[str] = ("",),
        *,
        objects: bool = False,
    ) -> None:
        self.changed = changed
        self.hpas = HPACache(context, namespaces, self._listed)
        self.hpas.follow(self._note_hpa)
        self._owners = _Owners()
        self._told = False
        self._objects: TypedStore[WatchedHPA] = TypedStore(self._note_object, self._listed, same_hpa)
        self._reflectors: list[Reflector[WatchedHPA]] = []
        if objects:
            codec = ObjectCodec(msgspec.Raw, keep_hpa)
            self._reflectors = reflectors(codec, FASTPATH, context, self._objects, namespaces, optional=True)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hpas.run(), name="HPA cache")
            for each in self._reflectors:
                group.create_task(each.run(), name=f"reflector of {each.name}")

    @property
    def synced(self) -> bool:
        return self.hpas.synced and all(each.synced for each in self._reflectors)

    def status(self) -> tuple[ReflectorStatus, ...]:
        return (*self.hpas.status(), *(each.status() for each in self._reflectors))

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Add a FastPathAutoscaler of ours, or note its change."""
        meta = autoscaler.metadata
        target = TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref)
        self._tell(self._owners.put(KIND, meta.namespace, meta.name, target))

    def remove(self, namespace: str, name: str) -> None:
        """Remove a FastPathAutoscaler of ours."""
        self._tell(self._owners.put(KIND, namespace, name, None))

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...] | None:
        """Return the other autoscalers of its target as ``Kind/name``, sorted; None before the first list."""
        if not self.synced:
            return None
        meta = autoscaler.metadata
        itself = (autoscaler.kind, meta.namespace, meta.name)
        owners = self._owners.of(TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref))
        return tuple(
            sorted(f"{kind}/{name}" for kind, namespace, name in owners if (kind, namespace, name) != itself)
        )

    def _note_hpa(self, found: WatchedHPA | None, namespace: str, name: str) -> None:
        self._note(HPA_KIND, namespace, name, found)

    def _note_object(self, namespace: str, name: str) -> None:
        # not under the kind alone, because one in a file may have the same name
        self._note(f"{KIND}.{GROUP}", namespace, name, self._objects.find(namespace, name))

    def _note(self, kind: str, namespace: str, name: str, found: WatchedHPA | None) -> None:
        target = None if found is None else TargetKey.of(namespace, found.target)
        self._tell(self._owners.put(kind, namespace, name, target))

    def _tell(self, targets: list[TargetKey]) -> None:
        if self._told:
            for target in targets:
                self.changed(target)

    def _listed(self) -> Iterator[None]:
        if not self._told and self.synced:
            self._told = True
            yield from in_steps(tuple(self._owners.targets()), self.changed)
