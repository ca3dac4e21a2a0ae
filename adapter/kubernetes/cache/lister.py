"""`ObjectLister` answers which objects match a label selector, from one reflector for each kind.

Only names and labels are kept. In a process that also scales, the scaler's `PodCache` answers for pods, so
that these are watched once. Until the first list of a kind is in, the answer is "not synced", never "no such
objects"; after it, a question costs the API server nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from adapter import errors
from adapter.kubernetes.cache.label_index import LabelIndex
from adapter.kubernetes.cache.pods import PODS, RUNNING, PodCache
from adapter.kubernetes.cache.reflector import Reflector, ReflectorContext
from adapter.kubernetes.cache.store import ReflectedCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata, Unreadable
from adapter.model.label_selectors import LabelSelector
from adapter.model.metrics import GroupResource
from adapter.model.resources import APIResource

STEP = 1_000
"""Objects handled between two points at which other work may run."""


class LabeledObject(msgspec.Struct, frozen=True, gc=False):
    """An object with its labels, which it may share. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class MetadataCache(ReflectedCache):
    """Names and labels of the objects of one kind, in an index that answers label selectors."""

    def __init__(self, source: ListWatch[PartialMetadata], context: ReflectorContext) -> None:
        self.index = LabelIndex(context.monitoring)
        self.resource = source.resource
        self.remove = self.index.remove
        self.count = self.index.count
        self.listing = self.index.listing
        name = f"{self.resource.group_resource}{f'[{source.fields}]' if source.fields else ''}"
        self.reflector = Reflector(source, self, context, name, on_demand=True)

    def put(self, obj: PartialMetadata) -> None:
        self.index.put(obj.namespace, obj.name, obj.labels)

    def lose(self, lost: Unreadable) -> None:
        """Do nothing: the last labels count."""

    def end_batch(self) -> None: ...

    def listed(self, namespace: str) -> Iterator[None]:  # noqa: ARG002 - nothing follows
        return iter(())


async def _select(
    index: LabelIndex,
    namespace: str | None,
    selector: LabelSelector,
    find_labels: Callable[[str, str], Mapping[str, str] | None],
) -> tuple[LabeledObject, ...]:
    objects: list[LabeledObject] = []
    for within in index.namespaces() if namespace is None else [namespace]:
        for count, name in enumerate(await index.find_names(within, selector), 1):
            labels = find_labels(within, name)
            if labels is not None:  # else it was deleted in the meantime
                objects.append(LabeledObject(within, name, labels))
            if count % STEP == 0:
                await asyncio.sleep(0)
    return tuple(objects)


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
        self._fields = fields
        self._required: dict[GroupResource, APIResource] = {}
        self._caches: dict[GroupResource, MetadataCache | PodCache] = {}
        if pods is not None:
            self._caches[PODS.group_resource] = pods
        self._tasks: dict[GroupResource, asyncio.Task[None]] = {}
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
        if isinstance(known, PodCache) or (known is not None and known.resource.version == resource.version):
            return known
        if self._group is None:
            raise errors.NotSyncedError(f"{key} cannot be listed: the object cache is not running")
        if known is not None:
            self._tasks[key].cancel()
        source = ListWatch(PARTIAL_METADATA, resource, fields=self._fields)
        cache = self._caches[key] = MetadataCache(source, self._context)
        self._tasks[key] = self._group.create_task(cache.run(), name=f"reflector of {key}")
        return cache

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
        return await _select(index, namespace, selector, index.labels)

    async def find(self, resource: APIResource, namespace: str, name: str) -> LabeledObject | None:
        """Return one object, None if it does not exist; errors as `names`."""
        labels = (await self._synced(resource)).labels(namespace, name)
        return LabeledObject(namespace, name, labels) if labels is not None else None

    def count(self, resource: APIResource) -> int:
        """Return the number of objects of a kind, 0 before the first list."""
        cache = self._caches.get(resource.group_resource)
        return cache.count("") if cache is not None else 0

    async def _synced(self, resource: APIResource) -> LabelIndex:
        cache = self._start(resource)
        await cache.reflector.wait_synced()
        return cache.index

    def unsynced(self) -> tuple[GroupResource, ...]:
        """Return the kinds of `start` whose first list is neither in nor refused: readiness waits for these.

        A refused kind fails only the questions about it. If readiness waited for it, all other kinds would be
        unavailable too.
        """
        return tuple(
            key
            for key, cache in self._caches.items()
            if key in self._required and not cache.synced and not cache.reflector.refused
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
        await self._cache.reflector.wait_synced()
        return await _select(self._cache.index, namespace, selector, self._find_labels)

    async def find(
        self,
        resource: APIResource,  # noqa: ARG002 - as above
        namespace: str,
        name: str,
    ) -> LabeledObject | None:
        """Return one pod, None if it does not exist or is not running; errors as `ObjectLister.names`."""
        await self._cache.reflector.wait_synced()
        labels = self._find_labels(namespace, name)
        return LabeledObject(namespace, name, labels) if labels is not None else None

    def _find_labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        pod = self._cache.find(namespace, name)
        return pod.labels if pod is not None and pod.phase == RUNNING else None

    def count(self, resource: APIResource) -> int:  # noqa: ARG002 - as above
        """Return the number of running pods, 0 before the first list."""
        return self._cache.running
