"""Fairness between namespaces that share something: time, turns or memory.

`level` divides a room so that small demands are met before a large one gets more (max-min fairness).

`Turns` does the same for items that share one budget, such as queries. A first-come, first-served queue gives
each tenant as much of a budget as it asks for, so the one that asks for most makes all others wait. Here a
turn goes to the namespace whose last turn is longest ago, within it to the owner whose last turn is longest
ago, and takes one item. An owner without items is passed over, so no turn is lost. A namespace that asks for
less than an equal share gets all it asks for, at most one round late, and the others divide the rest equally.
The same holds for owners within a namespace. A namespace cannot get more by having more owners, nor an owner
by having more items. An item with several owners waits once for each, and the first turn takes it for all, so
sharing never makes an owner wait longer than asking alone would.

`Precedence` puts queues in an order, and lets no queue keep another from its turns.

`Ledger` counts bytes within one budget. A namespace has at most a fixed part of it. Where many together
exceed the budget, the namespace that holds most loses first, and in it the largest holder.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar


def level(demands: Collection[float], room: float) -> float:
    """Return the greatest share to which demands can be cut so that all of them fit the room.

    The result is infinite if the demands fit as they are. Demands are not negative, and the room is above
    zero.
    """
    if sum(demands) <= room:
        return math.inf
    # Where the smallest demands are met, the others share the rest evenly; meeting one demand too many lowers
    # the level.
    met = itertools.accumulate(sorted(demands)[:-1], initial=0.0)
    return max((room - demand) / (len(demands) - count) for count, demand in enumerate(met))


Item = TypeVar("Item", bound=Hashable)


class Turns(Generic[Item]):
    """The pending items, each under its owners."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[Hashable, OrderedDict[Item, None]]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of pending items, each counted once for each of its owners."""
        return sum(len(items) for owners in self._namespaces.values() for items in owners.values())

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def __iter__(self) -> Iterator[tuple[str, Hashable, Item]]:
        """Yield each item with its namespace and owner, once for each owner."""
        for namespace, owners in self._namespaces.items():
            for owner, items in owners.items():
                for item in items:
                    yield namespace, owner, item

    def add(self, namespace: str, owner: Hashable, item: Item) -> None:
        """Add an item that waits for a turn of an owner. A new namespace or owner comes last."""
        self._namespaces.setdefault(namespace, OrderedDict()).setdefault(owner, OrderedDict())[item] = None

    def discard(self, namespace: str, owner: Hashable, item: Item) -> None:
        owners = self._namespaces.get(namespace)
        items = owners.get(owner) if owners is not None else None
        if owners is None or items is None:
            return
        items.pop(item, None)
        if not items:
            del owners[owner]
        if not owners:
            del self._namespaces[namespace]

    def take(self, urgency: Callable[[Item], float] | None = None) -> Item:
        """Remove an item of the owner whose turn it is, and return it: the most urgent one of the owner.

        Without `urgency` that is its oldest item. The namespace and the owner come last now. Raises
        LookupError if there are no items.
        """
        if not self._namespaces:
            raise LookupError("nothing waits")
        namespace, owners = self._namespaces.popitem(last=False)
        owner, items = owners.popitem(last=False)
        item = next(iter(items)) if urgency is None else max(items, key=urgency)
        del items[item]
        if items:
            owners[owner] = items
        if owners:
            self._namespaces[namespace] = owners
        return item


LEAST_SHARE = 10
"""A queue that waits gets one of so many turns at least."""


class Precedence:
    """Chooses which of several queues has the next turn: the first that waits, or one that waited too long.

    With the order alone, a first queue that is never empty would keep the others waiting without end.
    """

    def __init__(self, queues: int) -> None:
        self._owed = [0] * queues
        """The turns that went to others while a queue waited, less `LEAST_SHARE - 1` for each of its own."""

    def choose(self, waiting: Sequence[object]) -> int | None:
        """Return the place of the queue whose turn it is, None if no queue waits: those that do are true."""
        places = [place for place, waits in enumerate(waiting) if waits]
        if not places:
            return None
        chosen = next((place for place in places if self._owed[place] >= LEAST_SHARE - 1), places[0])
        for place, waits in enumerate(waiting):
            owed = self._owed[place] + 1 if place != chosen else self._owed[place] - LEAST_SHARE + 1
            self._owed[place] = max(0, owed) if waits else 0
        return chosen


Holder = TypeVar("Holder", bound=Hashable)


class Loss(NamedTuple, Generic[Holder]):
    """A holder to evict, and the reason as a sentence."""

    holder: Holder
    reason: str


class Ledger(Generic[Holder]):
    """Bytes, or another `unit`, by namespace and holder. `what` is for reasons, such as "series kept"."""

    def __init__(self, what: str, room: int, namespace_room: int, unit: str = "bytes") -> None:
        self._what = what
        self._unit = unit
        self._room = room
        self._namespace_room = namespace_room
        self._held: dict[str, dict[Holder, int]] = {}
        self._sums: dict[str, int] = {}
        self.total = 0

    def put(self, namespace: str, holder: Holder, size: int) -> bool:
        """Set the bytes of a holder; 0 removes the holder. Tell whether there is a `loss` now."""
        held = self._held.setdefault(namespace, {})
        change = size - held.get(holder, 0)
        if size:
            held[holder] = size
        else:
            held.pop(holder, None)
        self.total += change
        self._sums[namespace] = self._sums.get(namespace, 0) + change
        if not held:
            del self._held[namespace], self._sums[namespace]
        return self._sums.get(namespace, 0) > self._namespace_room or self.total > self._room

    def loss(self, namespace: str) -> Loss[Holder] | None:
        """Return the holder to evict after a change in `namespace`, None while all is within the budget."""
        if self._sums.get(namespace, 0) > self._namespace_room:
            return Loss(
                self._largest(namespace), self._sentence(f"of namespace {namespace}", self._namespace_room)
            )
        if self.total > self._room:
            most = max(self._sums, key=self._sums.__getitem__)
            reason = (
                f"{self._sentence('of all namespaces', self._room)}, and namespace {most} has most of them"
            )
            return Loss(self._largest(most), reason)
        return None

    def _largest(self, namespace: str) -> Holder:
        held = self._held[namespace]
        return max(held, key=held.__getitem__)

    def _sentence(self, whose: str, room: int) -> str:
        return f"the {self._what} of the scraped pods {whose} take more than {room} {self._unit}"
