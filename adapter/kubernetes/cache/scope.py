"""Which objects a scaler keeps: those of its slices.

The API server sends the objects of all namespaces. A reflector with a `SliceScope` drops those of other
slices before they are decoded, and remembers only in which namespaces they are. So memory and work fall with
the number of scalers. When a slice comes, its namespaces are listed, and not everything again.

A scaler that owns all slices has nothing to drop. It looks at no head of an object, and pays nothing.

An API server with sharded lists and watches (KEP-5866) does not even send what is dropped. Each request names
the namespaces of the slices, by the range of hashes that has no other. Other API servers ignore that. A
namespace that is made later is listed like one of a slice that comes.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

from adapter.model.autoscaling import slices

FIRST_PLAN = 5.0
"""Seconds that a first list waits to learn the slices. A scaler that waits longer for its share is ready
without one."""

MOST_NAMESPACES = 200
"""If new slices have more namespaces, and more than a quarter of all, everything is listed in their place."""

MOST_SELECTED = 1000
"""A request that names more namespaces would be longer than 113 kB."""

UNSELECTIVE = frozenset({400, 413, 414, 422, 431})
"""Statuses of a request that names too many namespaces, or names them to a server that does not know how."""

_NONE: frozenset[int] = frozenset()


class SliceScope:
    """The slices whose objects are kept, of all reflectors that share it."""

    def __init__(self) -> None:
        self.slices = _NONE
        self._known = asyncio.Event()
        self.completed = asyncio.Event()
        """Set when a reflector has the objects of more slices."""
        self.coverages: set[Coverage] = set()
        """Those of the reflectors whose first list is in."""
        self.names_attempted: asyncio.Event | None = None
        """Set once the list of namespaces was attempted, for which first lists wait; None without one."""
        self._names: defaultdict[int, set[str]] = defaultdict(set)
        self._knows_names = False
        self._own_names: frozenset[str] | None = None

    @classmethod
    def of_everything(cls) -> "SliceScope":
        scope = cls()
        scope.set(range(slices.COUNT))
        return scope

    def set(self, numbers: Collection[int]) -> None:
        """Have the objects of these slices kept, and no others."""
        self._known.set()
        if self.slices != numbers:
            self.slices = frozenset(numbers)
            self._notify()

    def _notify(self) -> None:
        self._own_names = None
        for coverage in self.coverages:
            coverage.end_wait()

    async def wait_for_plan(self) -> None:
        """Wait until the slices are known, and the namespaces if they can be, for a time."""
        try:
            async with asyncio.timeout(FIRST_PLAN):
                await self._known.wait()
                if self.names_attempted is not None:
                    await self.names_attempted.wait()
        except TimeoutError:
            self._known.set()

    # -- namespaces ------------------------------------------------------------------------------------------

    def note_namespace(self, name: str, *, exists: bool) -> None:
        number = slices.slice_of(name)
        (self._names[number].add if exists else self._names[number].discard)(name)
        if number in self.slices and self._knows_names:
            self._notify()

    def know_namespaces(self) -> None:
        """Note that all namespaces are known."""
        if not self._knows_names:
            self._knows_names = True
            self._notify()

    def own_names(self) -> frozenset[str] | None:
        """Return the namespaces of the slices, None if they are not known."""
        if self._own_names is None and self._knows_names:
            self._own_names = frozenset[str]().union(*(self._names[number] for number in self.slices))
        return self._own_names

    def count_names(self) -> int:
        """Return the number of all namespaces, 0 if they are not known."""
        return sum(map(len, self._names.values()))

    # -- reflectors ------------------------------------------------------------------------------------------

    async def wait_for(self, number: int) -> None:
        """Wait until all reflectors whose first list is in have the objects of a slice."""
        await self._wait_until(lambda coverage: number in coverage.complete)

    async def wait_complete(self) -> None:
        """Wait until all reflectors whose first list is in have the objects of the slices, and no others."""
        await self._wait_until(lambda coverage: not coverage.differs)

    async def _wait_until(self, is_so: Callable[["Coverage"], bool]) -> None:
        while not all(map(is_so, self.coverages)):
            self.completed.clear()
            await self.completed.wait()

    def discard(self, coverage: "Coverage") -> None:
        self.coverages.discard(coverage)
        self.completed.set()


class Coverage:
    """The slices of which one reflector has the objects.

    `kept` are the slices whose objects are not dropped, and `complete` those of them that were listed.
    """

    def __init__(self, scope: SliceScope) -> None:
        self.kept, self.complete = scope.slices, _NONE
        self._scope = scope
        self._names: frozenset[str] | None = None
        """The namespaces of the slices when the scope was last followed, None if they were not known."""
        self._selected: frozenset[str] = frozenset()
        """The namespaces that the selector names."""
        self.selector = ""
        """What limits lists and watches to these, "" for nothing."""
        self._is_refused = False
        self._waiting: asyncio.Timeout | None = None
        self._dropped: defaultdict[int, set[str]] = defaultdict(set)
        """The namespaces of other slices."""
        self._listed: dict[str, int] = {}
        """The versions of the lists of namespaces that the watch has not reached yet."""

    @asynccontextmanager
    async def applied(self) -> AsyncIterator[None]:
        """Follow the scope within; begin when the slices are known."""
        await self._scope.wait_for_plan()
        try:
            yield
        finally:
            self._scope.discard(self)

    def join(self) -> None:
        """Have the scope wait for this reflector: its first list is in, and it has answers."""
        self._scope.coverages.add(self)

    @property
    def is_whole(self) -> bool:
        return len(self.kept) == slices.COUNT

    def _select(self, names: frozenset[str] | None, stored: Collection[str] = ()) -> None:
        """Have lists and watches name the namespaces that are known, and those of `stored` objects."""
        self._names, self._selected = names, (names or frozenset()).union(stored)
        self.selector = self._format_selector(None if names is None else self._selected, self.kept)

    def _format_selector(self, names: frozenset[str] | None, kept: frozenset[int]) -> str:
        if len(kept) == slices.COUNT or names is None or len(names) > MOST_SELECTED or self._is_refused:
            return ""
        hashes = sorted(map(slices.fnv1a, names)) or [0]  # without a namespace, that of none
        ranges = (f"'{digest:#018x}', '{digest + 1:#018x}'" for digest in hashes)
        return " || ".join(f"shardRange(object.metadata.namespace, {text})" for text in ranges)

    def refuse_selector(self) -> None:
        """Note that the API server does not take the selector."""
        self._is_refused = bool(self.selector) or self._is_refused

    def keeps(self, namespace: str) -> bool:
        """Tell whether the objects of a namespace are kept; "" is that of cluster-scoped objects."""
        number = slices.slice_of(namespace)
        if number in self.kept or not namespace:
            return True
        self._dropped[number].add(sys.intern(namespace))  # each kind has it
        return False

    # -- lists of everything ---------------------------------------------------------------------------------

    def begin(self, namespaces: Iterable[str]) -> None:
        """Begin a list of everything. Until its end the slices that are new are not complete.

        `namespaces` have objects. They are listed even if the watch of namespaces is late and does not know
        them: an object that is missing from the list would be removed.
        """
        self.kept, names = self._scope.slices, self._scope.own_names()
        unlisted = (names or frozenset()) - self._selected
        self.complete = (self.complete & self.kept) - {slices.slice_of(name) for name in unlisted}
        self._select(names, [name for name in namespaces if slices.slice_of(name) in self.kept])
        self._dropped.clear()
        self._listed.clear()

    def end(self) -> None:
        """End a list of everything."""
        self._complete(self.kept)

    # -- slices that come and go -----------------------------------------------------------------------------

    @property
    def differs(self) -> bool:
        """Whether the scope has changed since it was followed."""
        is_same = self.complete == self.kept == self._scope.slices
        return not is_same or self._names != self._scope.own_names()

    async def follow(
        self,
        namespaces: Callable[[], Collection[str]],
        remove: Callable[[str], Awaitable[None]],
        read: Callable[[str], Awaitable[str]] | None,
    ) -> bool:
        """Follow the scope: remove what is out of it, and list what is new; False to list everything.

        `namespaces` returns those that have objects. `read` lists one of them and returns the version; it is
        None where there is no watch. A watch then goes on where it ended, which is before those lists.
        """
        while self.differs:
            names = self._scope.own_names()
            gone, self.kept = self.kept - self._scope.slices, self.kept & self._scope.slices
            self.complete &= self.kept
            for namespace in namespaces() if gone else ():
                if not self.keeps(namespace):
                    await remove(namespace)
            missing = self._scope.slices - self.complete
            new = self._new_namespaces(missing, names)
            if self.selector and not self._format_selector(names, self.kept | missing):
                return False  # a namespace that is not known yet was not sent, and would not be listed later
            if missing or new:
                if read is None or self._are_many(new, namespaces):
                    return False
                self.kept |= missing
                for namespace in new:
                    if (version := await read(namespace)).isdecimal():
                        self._listed[namespace] = int(version)
                for number in missing:
                    self._dropped.pop(number, None)
            self._select(names)
            self._complete(self.complete | missing)
        return True

    def _new_namespaces(self, missing: frozenset[int], names: frozenset[str] | None) -> Sequence[str]:
        """Return the namespaces to be listed: of missing slices, and those that a selector did not name."""
        new = {name for number in missing for name in self._dropped[number]}
        for name in (names or frozenset()) - self._selected:
            if self.selector or slices.slice_of(name) in missing:
                new.add(name)
        return sorted(new)

    def _are_many(self, new: Collection[str], namespaces: Callable[[], Collection[str]]) -> bool:
        if len(new) <= MOST_NAMESPACES:
            return False
        known = self._scope.count_names() or len(namespaces()) + sum(map(len, self._dropped.values()))
        return 4 * len(new) > known

    def is_listed(self, namespace: str, version: str) -> bool:
        """Tell whether an event was before the list of its namespace."""
        if not self._listed or not version.isdecimal():
            return False
        if int(version) > max(self._listed.values()):
            self._listed.clear()
        return int(version) <= self._listed.get(namespace, 0)

    @asynccontextmanager
    async def until_it_changes(self) -> AsyncIterator[None]:
        """Cancel what is awaited within when the scope changes."""
        try:
            async with asyncio.timeout(0 if self.differs else None) as limit:
                self._waiting = limit
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._waiting = None

    def end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())
            self._waiting = None

    def _complete(self, numbers: frozenset[int]) -> None:
        self.complete = numbers
        self._scope.completed.set()
