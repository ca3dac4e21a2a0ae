"""Which objects a scaler keeps: those of its slices.

The API server sends the objects of all namespaces. A reflector with a `Scope` drops those of other slices
before they are decoded, and remembers only in which namespaces they are. So memory and work fall with the
number of scalers. When a slice comes, its namespaces are listed, and not everything again.

Where nothing is remembered there is nothing to drop: a scaler that owns all slices looks at no head of an
object, and pays nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from adapter.model.autoscaling import slices

FIRST_PLAN = 5.0
"""Seconds that a first list waits to learn the slices. A scaler that waits longer for its share is ready
without one."""

MOST_NAMESPACES = 200
"""If slices with more namespaces come at once, all objects are listed in place of each namespace."""

_NONE: frozenset[int] = frozenset()


class Scope:
    """The slices whose objects are kept, of all reflectors that share it."""

    def __init__(self) -> None:
        self.slices = _NONE
        self._known = asyncio.Event()
        self._completed = asyncio.Event()
        self._coverages: set[Coverage] = set()

    def set(self, numbers: Collection[int]) -> None:
        """Have the objects of these slices kept, and no others."""
        self._known.set()
        if self.slices != numbers:
            self.slices = frozenset(numbers)
            for coverage in self._coverages:
                coverage.changed()

    async def wait_for_plan(self) -> None:
        """Wait until the slices are known, for a time."""
        try:
            async with asyncio.timeout(FIRST_PLAN):
                await self._known.wait()
        except TimeoutError:
            self._known.set()

    async def wait_for(self, number: int) -> None:
        """Wait until all reflectors whose first list is in have the objects of a slice."""
        while not all(coverage.has(number) for coverage in self._coverages):
            self._completed.clear()
            await self._completed.wait()

    @contextmanager
    def applied(self, coverage: "Coverage") -> Iterator[None]:
        """Have a reflector follow the scope."""
        self._coverages.add(coverage)
        try:
            yield
        finally:
            self._coverages.discard(coverage)
            self._completed.set()

    def completed(self) -> None:
        """Note that a reflector has the objects of more slices."""
        self._completed.set()


class Coverage:
    """The slices of which one reflector has the objects. `changed` is called when the scope has changed.

    `kept` are the slices whose objects are not dropped, and `complete` those of them that were listed.
    """

    def __init__(self, scope: Scope) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.is_synced = False
        self.scope = scope
        self.kept = self.complete = _NONE
        self._dropped: defaultdict[int, set[str]] = defaultdict(set)
        """The namespaces of other slices."""
        self._listed: dict[str, int] = {}
        """The versions of the lists of namespaces that the watch has not reached yet."""

    @property
    def is_whole(self) -> bool:
        return len(self.kept) == slices.COUNT

    def keeps(self, namespace: str) -> bool:
        """Tell whether the objects of a namespace are kept; "" is that of cluster-scoped objects."""
        number = slices.slice_of(namespace)
        if number in self.kept or not namespace:
            return True
        self._dropped[number].add(namespace)
        return False

    def has(self, number: int) -> bool:
        """Tell whether the objects of a slice are there. Before the first list a reflector has no answers."""
        return not self.is_synced or number in self.complete

    # -- lists of everything ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a list of everything. Until its end the slices that are new are not complete."""
        self.kept = self.scope.slices
        self.complete &= self.kept
        self._dropped.clear()
        self._listed.clear()

    def end(self) -> None:
        """End a list of everything."""
        self._complete(self.kept)

    # -- slices that come and go -----------------------------------------------------------------------------

    def drop(self, namespaces: Collection[str]) -> Iterator[str]:
        """Stop keeping slices that the scope has no more; yield which of `namespaces` are of these."""
        gone, self.kept = self.kept - self.scope.slices, self.kept & self.scope.slices
        self.complete &= self.kept
        if gone:
            yield from (namespace for namespace in namespaces if not self.keeps(namespace))

    @property
    def differs(self) -> bool:
        """Whether the scope has changed since it was followed."""
        return not self.complete == self.kept == self.scope.slices

    @property
    def missing(self) -> frozenset[int]:
        """The slices of the scope whose objects are not there yet."""
        return self.scope.slices - self.complete

    def namespaces_of(self, numbers: frozenset[int]) -> list[str]:
        return sorted(name for number in numbers for name in self._dropped.get(number, ()))

    def keep(self, numbers: frozenset[int]) -> None:
        self.kept |= numbers

    def note_list(self, namespace: str, version: str) -> None:
        """Note the version of a list of one namespace: the watch is behind it."""
        if version.isdecimal():
            self._listed[namespace] = int(version)

    def is_listed(self, namespace: str, version: str) -> bool:
        """Tell whether an event was before the list of its namespace."""
        if not self._listed or not version.isdecimal():
            return False
        if int(version) > max(self._listed.values()):
            self._listed.clear()
        return int(version) <= self._listed.get(namespace, 0)

    def end_namespaces(self, numbers: frozenset[int]) -> None:
        """Note that all namespaces of these slices were listed."""
        for number in numbers:
            self._dropped.pop(number, None)
        self._complete(self.complete | numbers)

    def _complete(self, numbers: frozenset[int]) -> None:
        self.complete = numbers
        self.scope.completed()
