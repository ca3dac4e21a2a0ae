"""The object cache: one reflector per kind that is needed, and the lister that answers from them.

What lives here: `ObjectLister`, and what it says of objects beside their names. Not here: how a kind is mirrored (`reflector`) and indexed (`objectstore`). The law: until the
first list of a kind is in, the answer is "not synced", never "no such objects"; after it, answers come from the cache and no
question costs the API server anything.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from adapter import errors
from adapter.kubernetes.cache.reflector import Reflector, ReflectorStatus, Surroundings
from adapter.kubernetes.cache.store import Store
from adapter.model.metrics import GroupResource
from adapter.model.resources import APIResource
from adapter.model.selectors.label_selectors import LabelSelector

_STEP = 1_000
"""How many objects are described between two points at which other work may run."""


class Described(msgspec.Struct, frozen=True, gc=False):
    """An object and its labels, which others may share. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class ObjectLister:
    """Names of objects by label selector. Owns the reflectors, which run while it is entered or `run` runs.

    `kinds` are mirrored from the start, others from when they are first asked for. `fields` is a field selector as text: of all
    kinds only the objects that match it are mirrored.
    """

    def __init__(
        self, surroundings: Surroundings, kinds: Sequence[APIResource] = (), *, fields: str = ""
    ) -> None:
        self._surroundings = surroundings
        self._fields = fields
        self._kinds = {resource.group_resource: resource for resource in kinds}
        self._reflectors: dict[GroupResource, Reflector] = {}
        self._tasks: dict[GroupResource, asyncio.Task[None]] = {}
        self._required: set[GroupResource] = set()
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        self.start(self._kinds.values())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        assert group is not None
        # the group would wrap the block's own exception; only of a cancellation it needs to know, which may be its own
        cancelled = isinstance(value, asyncio.CancelledError)
        await group.__aexit__(kind if cancelled else None, value if cancelled else None, None)

    async def run(self) -> None:
        """Mirror until cancelled. A reflector that breaks, which only a mistake of ours can do, ends it with that exception."""
        async with self:
            await asyncio.Event().wait()

    def start(self, kinds: Iterable[APIResource]) -> None:
        """Mirror these kinds too; those already mirrored go on, unless they are now to be read in another version.

        Before the lister runs this adds to the kinds it starts with.
        """
        for resource in kinds:
            self._required.add(resource.group_resource)
            if self._group is None:
                self._kinds[resource.group_resource] = resource
            else:
                self._reflector_of(resource)

    def _reflector_of(self, resource: APIResource) -> Reflector:
        key = resource.group_resource
        found = self._reflectors.get(key)
        if found is not None and found.resource.version == resource.version:
            return found
        if self._group is None:
            raise errors.NotSyncedError(f"{key} cannot be listed: the object cache is not running")
        if found is not None:
            self._tasks[key].cancel()
        reflector = self._reflectors[key] = Reflector(resource, self._surroundings, self._fields)
        self._tasks[key] = self._group.create_task(reflector.run(), name=f"reflector of {key}")
        return reflector

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match, in the API server's list order.

        `namespace` None asks in all namespaces, where names may come twice. Who asks first for a kind waits for its first
        list. Raise `errors.NotSyncedError` if that does not come in time or the API server cannot be reached, and
        `errors.KubernetesError` if it refuses the list (403 names verb and resource).
        """
        return await self._names((await self._synced(resource)).store, namespace, selector)

    async def select(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[Described, ...]:
        """Return the objects that match, by namespace, then name; otherwise as `names`."""
        store = (await self._synced(resource)).store
        found: list[Described] = []
        for each in store.namespaces() if namespace is None else [namespace]:
            for count, name in enumerate(await self._names(store, each, selector), 1):
                labels = store.labels(each, name)
                if labels is not None:  # else it went away while we looked
                    found.append(Described(each, name, labels))
                if count % _STEP == 0:
                    await asyncio.sleep(0)
        return tuple(found)

    async def find(self, resource: APIResource, namespace: str, name: str) -> Described | None:
        """Return one object, None if there is none of that name; raises as `names`."""
        labels = (await self._synced(resource)).store.labels(namespace, name)
        return Described(namespace, name, labels) if labels is not None else None

    def count(self, resource: APIResource) -> int:
        """Return how many objects of a kind are known; 0 before the first list."""
        reflector = self._reflectors.get(resource.group_resource)
        return len(reflector.store) if reflector else 0

    async def _synced(self, resource: APIResource) -> Reflector:
        """Return the reflector of a kind with its first list in, not too old where it cannot be watched."""
        reflector = self._reflector_of(resource)
        if not reflector.synced:
            await self._wait_for_first_list(reflector)
        await reflector.freshen()
        return reflector

    @staticmethod
    async def _names(store: Store, namespace: str | None, selector: LabelSelector) -> tuple[str, ...]:
        known = store.known(namespace, selector)
        if known is not None:
            return known
        steps = store.select(namespace, selector)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                answer: tuple[str, ...] = end.value
                return answer
            await asyncio.sleep(0)

    async def _wait_for_first_list(self, reflector: Reflector) -> None:
        what = reflector.resource.group_resource
        try:
            async with asyncio.timeout(self._surroundings.periods.first_list):
                await reflector.attempted.wait()
        except TimeoutError:
            raise errors.NotSyncedError(f"{what}: the first list is not in yet") from None
        if reflector.synced:
            return
        error = reflector.error
        if error is not None and _is_refusal(error):
            raise errors.KubernetesError(error.status, error.reason, str(error)) from error
        raise errors.NotSyncedError(f"{what}: the first list is not in yet: {error}") from error

    def status(self) -> tuple[ReflectorStatus, ...]:
        """Return what every cache says of itself, in the order in which they were started."""
        return tuple(reflector.status() for reflector in self._reflectors.values())

    def unsynced(self) -> tuple[GroupResource, ...]:
        """Return the kinds of `start` whose first list is neither in nor refused: what readiness waits for.

        A refused kind, and one mirrored only because somebody asked for it, fails its own questions; waiting for it would take
        all others down with it.
        """
        return tuple(
            key
            for key, reflector in self._reflectors.items()
            if key in self._required
            and not reflector.synced
            and not (reflector.error and _is_refusal(reflector.error))
        )


def _is_refusal(error: errors.KubernetesError) -> bool:
    """Tell whether asking again will not help: the API server understood and said no."""
    return 400 <= error.status < 500 and error.status != 429
