"""`ObjectLister` answers which objects match a label selector, from one reflector for each kind.

Only names and labels are kept. In a process that also scales, the scaler's `PodCache` answers for pods, so
that these are watched once. Until the first list of a kind is in, the answer is "not synced", never "no such
objects"; after it, a question costs the API server nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from adapter import errors
from adapter.kubernetes.cache.label_index import LabelIndex
from adapter.kubernetes.cache.pods import PODS, RUNNING, PodCache
from adapter.kubernetes.cache.reflector import ListWatch, Reflector, ReflectorContext, ReflectorStatus
from adapter.kubernetes.cache.store import MetadataStore
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata
from adapter.model.label_selectors import LabelSelector
from adapter.model.metrics import GroupResource
from adapter.model.resources import APIResource

_STEP = 1_000
"""Objects handled between two points at which other work may run."""


class LabeledObject(msgspec.Struct, frozen=True, gc=False):
    """An object with its labels, which it may share. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class ObjectLister:
    """Names and labels of objects by label selector. Its reflectors run while `run` runs.

    The reflector of a kind begins with `start` or with the first question. `fields` is a field selector as
    text that restricts the objects of all kinds. `pods`, which runs by itself, answers for pods in place of a
    reflector.
    """

    def __init__(
        self,
        context: ReflectorContext,
        *,
        fields: str = "",
        pods: PodCache | None = None,
    ) -> None:
        self._context = context
        self._pods = pods
        self._fields = fields
        self._kinds: dict[GroupResource, APIResource] = {}  # to start once it runs
        self._reflectors: dict[GroupResource, Reflector[PartialMetadata]] = {}
        self._indexes: dict[GroupResource, LabelIndex] = {}
        self._tasks: dict[GroupResource, asyncio.Task[None]] = {}
        self._required: set[GroupResource] = set()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the reflectors until cancelled. An unexpected exception of one ends it with that exception."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                self.start(self._kinds.values())
                await asyncio.Event().wait()
            finally:
                self._group = None

    def start(self, kinds: Iterable[APIResource]) -> None:
        """Start the reflectors of these kinds, at once or when the lister starts.

        A reflector that runs already goes on, unless the kind is to be read in another version now.
        """
        for resource in kinds:
            self._required.add(resource.group_resource)
            if self._is_shared(resource):
                continue
            if self._group is None:
                self._kinds[resource.group_resource] = resource
            else:
                self._start(resource, resource.group_resource)

    def _is_shared(self, resource: APIResource) -> bool:
        return self._pods is not None and resource.group_resource == PODS.group_resource

    def _start(self, resource: APIResource, key: GroupResource) -> Reflector[PartialMetadata]:
        running = self._reflectors.get(key)
        if running is not None and running.source.resource.version == resource.version:
            return running
        if self._group is None:
            raise errors.NotSyncedError(f"{key} cannot be listed: the object cache is not running")
        if running is not None:
            self._tasks[key].cancel()
        index = self._indexes[key] = LabelIndex(self._context.monitoring)
        reflector = self._reflectors[key] = Reflector(
            ListWatch(PARTIAL_METADATA, resource, fields=self._fields),
            MetadataStore(index),
            self._context,
            f"{key}[{self._fields}]" if self._fields else str(key),
            on_demand=True,
        )
        self._tasks[key] = self._group.create_task(reflector.run(), name=f"reflector of {key}")
        return reflector

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match, in the API server's list order.

        `namespace` None asks for all namespaces; a name may then occur twice. The first question about a kind
        waits for its first list. Errors as `Reflector.wait_synced`.
        """
        return await (await self._synced(resource)).find_names(namespace, selector)

    async def select(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[LabeledObject, ...]:
        """Return the objects that match, by namespace, then name; otherwise as `names`."""
        index = await self._synced(resource)
        objects: list[LabeledObject] = []
        for within in index.namespaces() if namespace is None else [namespace]:
            for count, name in enumerate(await index.find_names(within, selector), 1):
                labels = index.labels(within, name)
                if labels is not None:  # else it was deleted in the meantime
                    objects.append(LabeledObject(within, name, labels))
                if count % _STEP == 0:
                    await asyncio.sleep(0)
        return tuple(objects)

    async def find(self, resource: APIResource, namespace: str, name: str) -> LabeledObject | None:
        """Return one object, None if it does not exist; errors as `names`."""
        labels = (await self._synced(resource)).labels(namespace, name)
        return LabeledObject(namespace, name, labels) if labels is not None else None

    def count(self, resource: APIResource) -> int:
        """Return the number of objects of a kind, 0 before the first list."""
        if self._pods is not None and self._is_shared(resource):
            return len(self._pods)
        index = self._indexes.get(resource.group_resource)
        return len(index) if index is not None else 0

    async def _synced(self, resource: APIResource) -> LabelIndex:
        if self._pods is not None and self._is_shared(resource):
            await self._pods.wait_synced()
            return self._pods.index
        key = resource.group_resource
        reflector = self._start(resource, key)
        index = self._indexes[key]
        await reflector.wait_synced()
        return index

    def status(self) -> tuple[ReflectorStatus, ...]:
        """Return the state of each reflector, in the order in which they were started."""
        return tuple(reflector.status() for reflector in self._reflectors.values())

    def unsynced(self) -> tuple[GroupResource, ...]:
        """Return the kinds of `start` whose first list is neither in nor refused: readiness waits for these.

        A refused kind fails only the questions about it. If readiness waited for it, all other kinds would be
        unavailable too.
        """
        caches: dict[GroupResource, Reflector[PartialMetadata] | PodCache] = {**self._reflectors}
        if self._pods is not None:
            caches[PODS.group_resource] = self._pods
        return tuple(
            key
            for key, cache in caches.items()
            if key in self._required and not cache.synced and not cache.refused
        )


class RunningPods:
    """The running pods of a `PodCache`, in place of an `ObjectLister` with that field selector."""

    def __init__(self, cache: PodCache) -> None:
        self._cache = cache

    async def select(
        self,
        resource: APIResource,  # noqa: ARG002 - it is always pods
        namespace: str | None,
        selector: LabelSelector,
    ) -> tuple[LabeledObject, ...]:
        """Return the running pods that match, by namespace, then name; errors as `ObjectLister.names`."""
        cache = self._cache
        await cache.wait_synced()
        pods: list[LabeledObject] = []
        for within in cache.index.namespaces() if namespace is None else [namespace]:
            for count, name in enumerate(await cache.index.find_names(within, selector), 1):
                pod = cache.find(within, name)
                if pod is not None and pod.phase == RUNNING:
                    pods.append(LabeledObject(pod.namespace, pod.name, pod.labels))
                if count % _STEP == 0:
                    await asyncio.sleep(0)
        return tuple(pods)

    async def find(
        self,
        resource: APIResource,  # noqa: ARG002 - as above
        namespace: str,
        name: str,
    ) -> LabeledObject | None:
        """Return one pod, None if it does not exist or is not running; errors as `ObjectLister.names`."""
        await self._cache.wait_synced()
        pod = self._cache.find(namespace, name)
        if pod is None or pod.phase != RUNNING:
            return None
        return LabeledObject(pod.namespace, pod.name, pod.labels)

    def count(self, resource: APIResource) -> int:  # noqa: ARG002 - as above
        """Return the number of running pods, 0 before the first list."""
        return self._cache.running
