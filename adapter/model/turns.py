"""Fair turns: items that share one budget, taken round-robin over namespaces and over the owners in each.

A first-come, first-served queue gives each tenant as much of a budget as it asks for, so the one that asks
for most makes all others wait. Here a turn goes to the namespace whose last turn is longest ago, within it
to the owner whose last turn is longest ago, and takes one item. An owner without items is passed over, so
no turn is lost. That is max-min fairness: a namespace that asks for less than an equal share gets all it
asks for, at most one round late, and the others divide the rest equally; the same holds for owners within a
namespace. A namespace cannot get more by having more owners, nor an owner by having more items.

An item may have several owners. It waits once for each, and the first turn takes it for all, so sharing
never makes an owner wait longer than asking alone would.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Turns(Generic[Item]):
    """The items that wait, each under its owners."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[Hashable, OrderedDict[Item, None]]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many items wait, each counted once for each of its owners."""
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
        """Have an item wait for a turn of an owner. A namespace or an owner that is new comes last."""
        self._namespaces.setdefault(namespace, OrderedDict()).setdefault(owner, OrderedDict())[item] = None

    def discard(self, namespace: str, owner: Hashable, item: Item) -> None:
        """Remove an item of an owner, if it is there."""
        owners = self._namespaces.get(namespace)
        items = owners.get(owner) if owners is not None else None
        if owners is None or items is None:
            return
        items.pop(item, None)
        if not items:
            del owners[owner]
        if not owners:
            del self._namespaces[namespace]

    def next(self, urgency: Callable[[Item], float] | None = None) -> tuple[str, Hashable, Item]:
        """Return the namespace and the owner whose turn it is, and the owner's most urgent item.

        Without `urgency` that is its oldest. The turn is used: namespace and owner come last from now on. The item stays until it is discarded.
        LookupError if nothing waits.
        """
        namespace, owners = _first(self._namespaces)
        owner, items = _first(owners)
        self._namespaces.move_to_end(namespace)
        owners.move_to_end(owner)
        return namespace, owner, max(items, key=urgency) if urgency is not None else next(iter(items))


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _first(mapping: OrderedDict[_Key, _Value]) -> tuple[_Key, _Value]:
    for item in mapping.items():
        return item
    raise LookupError("nothing waits")
