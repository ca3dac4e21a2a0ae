"""The stores that reflectors fill: `ObjectStore` is what a reflector needs of one.

The cache of pods has a store of its own (`pods`), because it also keeps the members of every selection up to
date.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from adapter.kubernetes.cache.label_index import LabelIndex
from adapter.kubernetes.codec import PartialMetadata, Unreadable
from adapter.telemetry.defects import Defects

STEP = 50
"""Number of callbacks between two points at which the event loop may do other work: a callback may cause
work itself.
"""


class NamedObject(Protocol):
    """An object of any kind. `namespace` is "" for cluster-scoped objects."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedObject)
T_contra = TypeVar("T_contra", contravariant=True)
_T = TypeVar("_T")


class ObjectStore(Protocol[T_contra]):
    """The objects of one kind in memory, as a reflector fills them."""

    def __len__(self) -> int: ...

    def put(self, obj: T_contra) -> None:
        """Add an object or replace it."""

    def lose(self, lost: Unreadable) -> None:
        """Note that an object cannot be read. It is never removed for that."""

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object; an unknown one is ignored."""

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each namespace with the names in it. The store may change meanwhile."""

    def end_batch(self) -> None:
        """End a batch of events: changes may be reported now."""

    def listed(self) -> Iterator[None]:
        """End a list: report the changes, and yield wherever other work may run."""


def in_steps(
    items: Iterable[_T], act: Callable[[_T], None], defects: Defects, step: int = STEP
) -> Iterator[None]:
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


class MetadataStore:
    """Names and labels, in an index that answers label selectors."""

    def __init__(self, index: LabelIndex) -> None:
        self.index = index
        self.remove = index.remove
        self.listing = index.listing

    def __len__(self) -> int:
        return len(self.index)

    def put(self, obj: PartialMetadata) -> None:
        """Add an object or replace its labels."""
        self.index.put(obj.namespace, obj.name, obj.labels)

    def lose(self, lost: Unreadable) -> None:
        """Do nothing: the last labels count."""

    def end_batch(self) -> None:
        """Do nothing: an index reports no changes."""

    def listed(self) -> Iterator[None]:
        """Do nothing, as `end_batch`."""
        return iter(())


class TypedStore(Generic[T]):
    """Objects by namespace and name.

    `changed` is called with namespace and name of each object that was added, removed or replaced by one that
    is not the `same`. `listed` is called at the end of a list, and yields wherever other work may run. `lost`
    returns what to put for an object that cannot be read, from that and its last state; without it the last
    state stays.
    """

    def __init__(
        self,
        changed: Callable[[str, str], None],
        listed: Callable[[], Iterator[None]] = lambda: iter(()),
        same: Callable[[T, T], bool] = operator.eq,
        lost: Callable[[Unreadable, T | None], T | None] = lambda _, last: last,
    ) -> None:
        self._changed = changed
        self.listed = listed
        self._same = same
        self._lost = lost
        self._objects: dict[str, dict[str, T]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for objects in self._objects.values():
            yield from objects.values()

    def find(self, namespace: str, name: str) -> T | None:
        return self._objects.get(namespace, {}).get(name)

    def put(self, obj: T) -> None:
        """Add an object or replace it."""
        objects = self._objects.setdefault(obj.namespace, {})
        old = objects.get(obj.name)
        self._size += old is None
        objects[obj.name] = obj
        if old is None or not self._same(old, obj):
            self._changed(obj.namespace, obj.name)

    def lose(self, lost: Unreadable) -> None:
        """Put what counts in place of an object that cannot be read."""
        kept = self._lost(lost, self.find(lost.namespace, lost.name))
        if kept is not None:
            self.put(kept)

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object; an unknown one is ignored."""
        objects = self._objects.get(namespace, {})
        if objects.pop(name, None) is None:
            return
        self._size -= 1
        if not objects:
            del self._objects[namespace]
        self._changed(namespace, name)

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        for namespace in list(self._objects):
            if (objects := self._objects.get(namespace)) is not None:
                yield namespace, tuple(objects)

    def end_batch(self) -> None:
        """Do nothing: changes are reported one by one."""


class NamespaceView(Generic[T]):
    """One namespace ("" for all) of a store that several reflectors fill, each with the objects it lists.

    `listed` replaces that of the store.
    """

    def __init__(
        self, store: ObjectStore[T], namespace: str, listed: Callable[[], Iterator[None]] | None = None
    ) -> None:
        self._store = store
        self._namespace = namespace
        self.put = store.put
        self.lose = store.lose
        self.remove = store.remove
        self.end_batch = store.end_batch
        self.listed = listed or store.listed

    def __len__(self) -> int:
        return sum(len(names) for _, names in self.listing()) if self._namespace else len(self._store)

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return (space for space in self._store.listing() if self._namespace in {"", space[0]})
