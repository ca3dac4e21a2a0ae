"""Whole objects of one kind, mirrored: what the scaler reads beyond names and labels.

What lives here: `Mirror`, the reflector of whole objects, and `Collection`, the plain store of what is kept of them. Not here: what is
kept of which kind (`podwatch`, `targetkinds`, `autoscalers`). The law: what is kept is decoded straight into its own small form; the
object as it came is gone with the step that decoded it.
"""

import contextlib
import operator
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from adapter.kubernetes.cache.reflector import Kept, Loop, Named, Surroundings
from adapter.kubernetes.codec import Form, ObjectEvent
from adapter.model.resources import APIResource

STEP = 50
"""How many are told of a change between two points at which other work may run: being told may make work."""

T = TypeVar("T", bound=Named)
T_contra = TypeVar("T_contra", contravariant=True)
_T = TypeVar("_T")


class WholeClient(Protocol):
    """How whole objects are listed and watched; `kubernetes.KubernetesClient` says what the arguments mean."""

    async def list_whole(
        self,
        form: Form[_T],
        resource: APIResource,
        deliver: Callable[[list[_T]], None],
        *,
        namespace: str,
        fields: str,
        resource_version: str,
    ) -> str:
        """Hand what is kept of every object to `deliver`; return the version of the list."""
        ...

    def watch_whole(
        self,
        form: Form[_T],
        resource: APIResource,
        *,
        namespace: str,
        fields: str,
        resource_version: str,
        duration: float,
        silence: float,
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[ObjectEvent[_T]]]]:
        """Open a watch."""
        ...


class Keeper(Kept, Protocol[T_contra]):
    """Where a mirror puts what it sees."""

    def put(self, each: T_contra) -> None:
        """Add an object or replace it."""
        ...

    def settle(self) -> None:
        """Note that a batch of events is in: what changed may be told now."""
        ...

    def listed(self) -> Iterator[None]:
        """Note that a list is in, and tell what changed; yield wherever other work may run."""
        ...


class Mirror(Loop[T, ObjectEvent[T]]):
    """Keeps `store` equal to the objects of one kind, as `form` keeps them, in one namespace or ("") in all.

    `fields` is a field selector as text. `name` is what logs and self-metrics call it.
    """

    wanted = True

    def __init__(
        self,
        form: Form[T],
        resource: APIResource,
        client: WholeClient,
        surroundings: Surroundings,
        store: Keeper[T],
        *,
        name: str,
        namespace: str = "",
        fields: str = "",
    ) -> None:
        super().__init__(resource, surroundings, store, name)
        self.name = name
        self.namespace = namespace
        self._form = form
        self._client = client
        self._store = store
        self._fields = fields

    async def _fetch(self, deliver: Callable[[list[T]], None]) -> str:
        return await self._client.list_whole(
            self._form,
            self.resource,
            deliver,
            namespace=self.namespace,
            fields=self._fields,
            resource_version=self._version,
        )

    def _open(
        self, duration: float
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[list[ObjectEvent[T]]]]:
        return self._client.watch_whole(
            self._form,
            self.resource,
            namespace=self.namespace,
            fields=self._fields,
            resource_version=self._version,
            duration=duration,
            silence=self._periods.silence,
        )

    def _put(self, each: T) -> None:
        self._store.put(each)

    def _apply(self, event: ObjectEvent[T]) -> None:
        if event.object is not None and event.type == "DELETED":
            self._store.remove(event.object.namespace, event.object.name)
        elif event.object is not None:
            self._store.put(event.object)
        self._version = event.version or self._version

    def _settle(self) -> None:
        self._store.settle()

    def _finish(self) -> Iterator[None]:
        return self._store.listed()


def in_steps(each: Iterable[_T], act: Callable[[_T], None]) -> Iterator[None]:
    """Do something for each; yield wherever other work may run."""
    for count, one in enumerate(each, 1):
        act(one)
        if count % STEP == 0:
            yield


class Collection(Generic[T]):
    """Objects by namespace and name. `changed` is called with both for each that came, went or is not the `same` any more.

    `listed` is called when a list is in, and yields wherever other work may run.
    """

    def __init__(
        self,
        changed: Callable[[str, str], None],
        listed: Callable[[], Iterator[None]] = lambda: iter(()),
        same: Callable[[T, T], bool] = operator.eq,
    ) -> None:
        self._changed = changed
        self.listed = listed
        self._same = same
        self._objects: dict[str, dict[str, T]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for objects in self._objects.values():
            yield from objects.values()

    def find(self, namespace: str, name: str) -> T | None:
        """Return an object, None if it is not there."""
        return self._objects.get(namespace, {}).get(name)

    def put(self, each: T) -> None:
        """Add an object or replace it."""
        objects = self._objects.setdefault(each.namespace, {})
        old = objects.get(each.name)
        self._size += old is None
        objects[each.name] = each
        if old is None or not self._same(old, each):
            self._changed(each.namespace, each.name)

    def remove(self, namespace: str, name: str) -> None:
        """Forget an object; nothing happens if it is not there."""
        objects = self._objects.get(namespace, {})
        if objects.pop(name, None) is None:
            return
        self._size -= 1
        if not objects:
            del self._objects[namespace]
        self._changed(namespace, name)

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield namespaces with their names, each as they are when their turn comes."""
        for namespace in list(self._objects):
            if (found := self._objects.get(namespace)) is not None:
                yield namespace, tuple(found)

    def settle(self) -> None:
        """Nothing to do: changes were told as they came."""


class Part(Generic[T]):
    """The objects of one namespace ("" for all) in a collection that several mirrors fill, as the mirror of it sees them."""

    def __init__(self, whole: Collection[T], namespace: str) -> None:
        self._whole = whole
        self._namespace = namespace
        self.put = whole.put
        self.remove = whole.remove
        self.settle = whole.settle
        self.listed = whole.listed

    def __len__(self) -> int:
        return sum(len(names) for _, names in self.listing()) if self._namespace else len(self._whole)

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the namespace with its names."""
        return (each for each in self._whole.listing() if self._namespace in {"", each[0]})
