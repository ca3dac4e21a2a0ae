"""Caches of objects: `ObjectCache` keeps the objects of one kind as its reflectors show them."""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from adapter.kubernetes.cache.filling import T
from adapter.kubernetes.cache.reflector import Reflector, ReflectorContext
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import ObjectCodec, Unreadable
from adapter.model.label_selectors import EVERYTHING, LabelSelector
from adapter.model.resources import APIResource
from adapter.model.steps import Steps
from adapter.telemetry.problems import Defects

STEP = 50
"""Number of callbacks between two points at which the event loop may do other work: a callback may cause
work itself.
"""

_T = TypeVar("_T")


def in_steps(
    items: Iterable[_T], act: Callable[[_T], None], defects: Defects, step: int = STEP
) -> Steps[None]:
    """Call `act` for each item; yield after every `step` calls, where other work may run.

    An exception of one call is noted, and keeps no other item from its call.
    """
    for count, item in enumerate(items, 1):
        try:
            act(item)
        except Exception as error:  # noqa: BLE001 - the defect of one item is no other item's
            defects.note("unexpected error about one object", error, ascii(item))
        if count % step == 0:
            yield


class ReflectedCache:
    """A cache that `reflector` fills while `run` runs."""

    reflector: Reflector[Any]
    _announced = False

    async def run(self) -> None:
        await self.reflector.run()

    @property
    def synced(self) -> bool:
        """Whether the first list is in. A list that is refused never is."""
        return self.reflector.synced

    def _is_first_sync(self) -> bool:
        """Tell, once, that the first list is in."""
        is_first = not self._announced and self.synced
        self._announced |= is_first
        return is_first


class ObjectCache(ReflectedCache, Generic[T]):
    """The objects of one kind by namespace and name, while `run` runs.

    `changed` is called with namespace and name of each object that was added, removed or replaced by one that
    is not the `same`, from when the first list is in, at first `step` objects at a time. With `listed`,
    which is called at the end of each list and yields wherever other work may run, it is called at once.
    `batched` is called after each batch of events of a watch.
    `lost` returns what to put for an object that cannot be read, from that and its last state; without it the
    last state stays.
    """

    def __init__(
        self,
        context: ReflectorContext,
        changed: Callable[[str, str], None],
        *,
        same: Callable[[T, T], bool] = operator.eq,
        lost: Callable[[Unreadable, T | None], T | None] = lambda _, last: last,
        step: int = STEP,
        listed: Callable[[], Iterator[None]] | None = None,
        batched: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._changed = changed
        self._same = same
        self._lost = lost
        self._step = step
        self._listed = listed
        self.end_batch = batched
        self._announced = listed is not None
        self._objects: dict[str, dict[str, T]] = {}
        self._size = 0

    def reflect(
        self,
        codec: ObjectCodec[T],
        resource: APIResource,
        namespace: str = "",
        *,
        optional: bool = False,
        selector: LabelSelector = EVERYTHING,
    ) -> None:
        """Have a reflector of a namespace, or of all, fill the cache."""
        source = ListWatch(codec, resource, namespace, selector, optional=optional)
        name = f"{resource.group_resource}{f' in {namespace}' if namespace else ''} (scaler)"
        self.reflector = Reflector(source, self, self._context, name)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for objects in self._objects.values():
            yield from objects.values()

    def find(self, namespace: str, name: str) -> T | None:
        return self._objects.get(namespace, {}).get(name)

    def put(self, obj: T) -> None:
        objects = self._objects.setdefault(obj.namespace, {})
        old = objects.get(obj.name)
        self._size += old is None
        objects[obj.name] = obj
        if self._announced and (old is None or not self._same(old, obj)):
            self._changed(obj.namespace, obj.name)

    def lose(self, lost: Unreadable) -> None:
        kept = self._lost(lost, self.find(lost.namespace, lost.name))
        if kept is not None:
            self.put(kept)

    def remove(self, namespace: str, name: str) -> None:
        objects = self._objects.get(namespace, {})
        if objects.pop(name, None) is None:
            return
        self._size -= 1
        if not objects:
            del self._objects[namespace]
        if self._announced:
            self._changed(namespace, name)

    def count(self, namespace: str) -> int:
        return len(self._objects.get(namespace, ())) if namespace else self._size

    def listing(self, namespace: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for within in [namespace] if namespace else list(self._objects):
            if (objects := self._objects.get(within)) is not None:
                yield within, tuple(objects)

    def listed(self, namespace: str) -> Iterator[None]:  # noqa: ARG002 - there is one list
        if self._listed is not None:
            yield from self._listed()
        elif self._is_first_sync():
            keys = [(obj.namespace, obj.name) for obj in self]
            defects = self._context.problems.defects
            yield from in_steps(keys, lambda key: self._changed(*key), defects, self._step)
