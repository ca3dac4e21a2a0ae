"""`ObjectLister` answers which objects match a label selector, from one reflector for each kind.

Only names and labels are kept. In a process that also scales, the scaler's `PodCache` answers for pods, so
that these are watched once. Until the first list of a kind is in, the answer is "not synced", never "no such
objects"; after it, a question costs the API server nothing.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from adapter import errors
from adapter.kubernetes.cache.pods import PODS, RUNNING, PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scope import SliceScope
from adapter.kubernetes.cache.store import LabeledCache, ObjectCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata
from adapter.model.metrics import GroupResource
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.resources import APIResource, known_kind

STEP = 1_000
"""Objects handled between two points at which other work may run."""

RUNNING_PODS = f"status.phase={RUNNING}"
"""The field selector of pods whose phase is Running."""

_NAMESPACES = known_kind("v1", "Namespace", namespaced=False)


class LabeledObject(msgspec.Struct, frozen=True, gc=False):
    """An object with its labels, which it may share. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class MetadataCache(LabeledCache[PartialMetadata]):
    """Names and labels of the objects of one kind."""

    def __init__(self, source: ListWatch[PartialMetadata], context: ReflectorContext) -> None:
        name = f"{source.resource.group_resource}{f'[{source.fields}]' if source.fields else ''}"
        super().__init__(source, context, name, on_demand=True)

    def put(self, obj: PartialMetadata) -> None:
        self.index.put(obj.namespace, obj.name, obj.labels)

    def remove(self, namespace: str, name: str) -> None:
        self.index.remove(namespace, name)


class ObjectLister:
    """Names and labels of objects by label selector. Its reflectors run while `run` runs.

    The reflector of a kind begins with `start` or with the first question. `fields` is a field selector as
    text that restricts the objects of all kinds. `pods`, which runs by itself, answers for pods in place of a
    reflector. With `fields`, which are `RUNNING_PODS` then, `select`, `find` and `count` see those that run.
    """

    def __init__(self, context: ReflectorContext, *, fields: str = "", pods: PodCache | None = None) -> None:
        self._context = context
        self._fields = fields
        self._required: dict[GroupResource, APIResource] = {}
        self._caches: dict[GroupResource, MetadataCache | PodCache] = {}
        if pods is not None:
            self._caches[PODS.group_resource] = pods
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the reflectors until cancelled. An unexpected exception of one ends it with that exception."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                self.start(tuple(self._required.values()))
                await asyncio.Event().wait()
            finally:
                self._group = None

    def start(self, kinds: Iterable[APIResource]) -> None:
        """Start the reflectors of these kinds, at once or when the lister starts.

        A reflector that runs already goes on, unless the kind is to be read in another version now.
        """
        for resource in kinds:
            self._required[resource.group_resource] = resource
            if self._group is not None:
                self._start(resource)

    def _start(self, resource: APIResource) -> MetadataCache | PodCache:
        key = resource.group_resource
        known = self._caches.get(key)
        if known is not None and (
            isinstance(known, PodCache) or known.source.resource.version == resource.version
        ):
            return known
        if self._group is None:
            raise errors.NotSyncedError(f"{key} cannot be listed: the object cache is not running")
        if known is not None:
            known.stop()
        source = ListWatch(PARTIAL_METADATA, resource, fields=self._fields)
        cache = self._caches[key] = MetadataCache(source, self._context)
        cache.start(self._group)
        return cache

    async def _synced(self, resource: APIResource) -> MetadataCache | PodCache:
        cache = self._start(resource)
        await cache.wait_synced()
        return cache

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match, in the API server's list order.

        `namespace` None asks for all namespaces; a name may then occur twice. The first question about a kind
        waits for its first list. Errors as `Reflector.wait_synced`.
        """
        return await (await self._synced(resource)).index.find_names(namespace, selector)

    async def select(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[LabeledObject, ...]:
        """Return the objects that match, by namespace, then name; otherwise as `names`."""
        cache = await self._synced(resource)
        objects: list[LabeledObject] = []
        for within in cache.index.namespaces() if namespace is None else [namespace]:
            for count, name in enumerate(await cache.index.find_names(within, selector), 1):
                labels = self._find_labels(cache, within, name)
                if labels is not None:  # else it was deleted in the meantime
                    objects.append(LabeledObject(within, name, labels))
                if count % STEP == 0:
                    await asyncio.sleep(0)
        return tuple(objects)

    async def find(self, resource: APIResource, namespace: str, name: str) -> LabeledObject | None:
        """Return one object, None if it does not exist; errors as `names`."""
        labels = self._find_labels(await self._synced(resource), namespace, name)
        return LabeledObject(namespace, name, labels) if labels is not None else None

    def _find_labels(
        self, cache: MetadataCache | PodCache, namespace: str, name: str
    ) -> Mapping[str, str] | None:
        if not self._fields or isinstance(cache, MetadataCache):
            return cache.index.labels(namespace, name)
        pod = cache.find(namespace, name)
        return pod.labels if pod is not None and pod.phase == RUNNING else None

    def count(self, resource: APIResource) -> int:
        """Return the number of objects of a kind, 0 before the first list."""
        cache = self._caches.get(resource.group_resource)
        if cache is None:
            return 0
        return cache.running if self._fields and isinstance(cache, PodCache) else cache.count()

    def unsynced(self) -> tuple[GroupResource, ...]:
        """Return the kinds of `start` whose first list is neither in nor refused: readiness waits for these.

        A refused kind fails only the questions about it. If readiness waited for it, all other kinds would be
        unavailable too.
        """
        return tuple(
            key
            for key, cache in self._caches.items()
            if key in self._required and not cache.synced and not cache.refused
        )


class NamespaceNames(ObjectCache[PartialMetadata]):
    """Tells a scope which namespaces there are, while `run` runs.

    The API server filters by ranges of the hash of a namespace (`shardSelector`, KEP-5866), and a slice is no
    range. But a single namespace is one. See `scope.Coverage`.
    """

    def __init__(self, watching: ReflectorContext, scope: SliceScope) -> None:
        self._scope = scope
        source, watching = ListWatch(PARTIAL_METADATA, _NAMESPACES), replace(watching, scope=None)
        super().__init__(source, watching, self._follow, same=lambda *_: True, listed=self._learn)
        scope.names_attempted = self.attempted

    def _follow(self, _: str, name: str) -> None:
        self._scope.note_namespace(name, exists=self.find("", name) is not None)

    def _learn(self) -> Iterator[None]:
        self._scope.know_namespaces()
        return iter(())
