"""Bytes that are held for namespaces within one budget, and which holder loses when it is exceeded.

A namespace has at most a fixed part of the budget, so one namespace cannot exhaust it alone. Where many
together exceed the budget, the namespace that holds most loses first, and in it the largest holder.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Holder = TypeVar("Holder", bound=Hashable)


class Loss(NamedTuple, Generic[Holder]):
    """A holder that has to give way, and the reason as a sentence."""

    holder: Holder
    reason: str


class Ledger(Generic[Holder]):
    """Bytes by namespace and holder. `what` names them in reasons, such as "series kept"."""

    def __init__(self, what: str, room: int, namespace_room: int) -> None:
        self._what = what
        self._room = room
        self._namespace_room = namespace_room
        self._held: dict[str, dict[Holder, int]] = {}
        self._sums: dict[str, int] = {}
        self.total = 0

    def put(self, namespace: str, holder: Holder, size: int) -> None:
        """Note how many bytes a holder has now; 0 forgets the holder."""
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

    def loss(self, namespace: str) -> Loss[Holder] | None:
        """Return the holder that has to give way after a change in `namespace`, None while the budget is kept."""
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
        return f"the {self._what} of the scraped pods {whose} take more than {room} bytes"
