"""Caches of objects: `ObjectCache` keeps the objects of one kind as its reflectors show them."""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from adapter.kubernetes.cache.filling import T
from adapter.kubernetes.cache.label_index import LabelIndex
from adapter.kubernetes.cache.reflector import Reflector, ReflectorContext
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import Unreadable
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


@dataclass(frozen=True, slots=True)
class Budget(Generic[T]):
    """What the objects of a namespace may weigh together.

    One that is too much is kept as `refuse` returns it, without weight, until it is written again. `most` is
    for an object that is new, or was refused; `staying` for one that was let in.
    """

    weigh: Callable[[T], int]
    refuse: Callable[[T], T]
    most: int
    staying: int


class LabeledCache(Reflector[T]):
    """A cache whose objects label selectors find: `index` has the names and labels of all."""

    def __init__(
        self, source: ListWatch[T], context: ReflectorContext, name: str, *, on_demand: bool = False
    ) -> None:
        super().__init__(source, context, name, on_demand=on_demand)
        self.index = LabelIndex(context.monitoring)

    def count(self) -> int:
        return self.index.count()

    def listing(self, namespace: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        return self.index.listing(namespace)


class ObjectCache(Reflector[T]):
    """The objects of one kind by namespace and name, while `run` runs.

    `changed` is called with namespace and name of each object that was added, removed or replaced by one that
    is not the `same`, from when the first list is in, at first `step` objects at a time. With `listed`,
    which is called at the end of each list and yields wherever other work may run, it is called at once.
    `batched` is called after each batch of events of a watch. `lost` returns what to put for an object that
    cannot be read, from that and its last state; without it the last state stays.
    """

    def __init__(
        self,
        source: ListWatch[T],
        context: ReflectorContext,
        changed: Callable[[str, str], None],
        name: str = "",
        *,
        same: Callable[[T, T], bool] = operator.eq,
        lost: Callable[[Unreadable, T | None], T | None] = lambda _, last: last,
        step: int = STEP,
        listed: Callable[[], Iterator[None]] | None = None,
        batched: Callable[[], None] = lambda: None,
        budget: Budget[T] | None = None,
        remedy: str = "",
    ) -> None:
        within = f" in {source.namespace}" if source.namespace else ""
        name = name or f"{source.resource.group_resource}{within} (scaler)"
        super().__init__(source, context, name, remedy=remedy)
        self._changed = changed
        self._same = same
        self._lost = lost
        self._step = step
        self._listed = listed
        self._batched = batched
        self._budget = budget
        self._weights: Counter[str] = Counter()
        self._announced = listed is not None
        self._objects: dict[str, dict[str, T]] = {}
        self._size = 0

    def __iter__(self) -> Iterator[T]:
        for objects in self._objects.values():
            yield from objects.values()

    def find(self, namespace: str, name: str) -> T | None:
        return self._objects.get(namespace, {}).get(name)

    def put(self, obj: T) -> None:
        objects = self._objects.setdefault(obj.namespace, {})
        old = objects.get(obj.name)
        if self._budget is not None:
            obj = self._admit(obj, old, self._budget)
        self._size += old is None
        objects[obj.name] = obj
        if self._announced and (old is None or not self._same(old, obj)):
            self._changed(obj.namespace, obj.name)

    def _admit(self, obj: T, old: T | None, budget: Budget[T]) -> T:
        """Return what is kept of an object that replaces `old`, as the budget of its namespace allows."""
        before = 0 if old is None else budget.weigh(old)
        others = self._weights[obj.namespace] - before
        if others + budget.weigh(obj) > (budget.staying if before else budget.most):
            obj = budget.refuse(obj)
        self._weights[obj.namespace] = others + budget.weigh(obj)
        return obj

    def lose(self, lost: Unreadable) -> None:
        kept = self._lost(lost, self.find(lost.namespace, lost.name))
        if kept is not None:
            self.put(kept)

    def remove(self, namespace: str, name: str) -> None:
        objects = self._objects.get(namespace, {})
        old = objects.pop(name, None)
        if old is None:
            return
        self._size -= 1
        if self._budget is not None:
            self._weights[namespace] -= self._budget.weigh(old)
        if not objects:
            del self._objects[namespace]
            self._weights.pop(namespace, None)
        if self._announced:
            self._changed(namespace, name)

    def count(self) -> int:
        return self._size

    def listing(self, namespace: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for within in [namespace] if namespace else list(self._objects):
            if (objects := self._objects.get(within)) is not None:
                yield within, tuple(objects)

    def end_batch(self) -> None:
        self._batched()

    def listed(self, namespace: str) -> Iterator[None]:  # noqa: ARG002 - there is one list
        if self._listed is not None:
            return self._listed()
        keys = [] if self._announced else [(obj.namespace, obj.name) for obj in self]
        self._announced = True
        return in_steps(keys, lambda key: self._changed(*key), self._context.problems.defects, self._step)
