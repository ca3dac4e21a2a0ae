"""The memory of the bodies that are read or parsed at one time, which all scraped pods share.

A body is charged from its first byte until it is parsed. If the budget is exceeded, the namespace that holds
most loses its largest body: that scrape fails, and all others go on.
"""

from collections.abc import Callable

from adapter.errors import ScrapeError
from adapter.model.fairness import Ledger

BODIES_BYTES = 48 * 1024 * 1024
"""Budget of all bodies that are read or parsed at one time."""

NAMESPACE_BODIES_BYTES = 24 * 1024 * 1024
"""The part of it that the pods of one namespace may use."""


class BodyBuffer:
    """One body while it is read and parsed. `lost` is called with the reason if it has to give way.

    `seconds` is the time that parsing it has taken, heads and chunks among it.
    """

    def __init__(self, budget: "BodyBudget", namespace: str) -> None:
        self._budget = budget
        self.namespace = namespace
        self.seconds = 0.0
        self._parts: list[bytes] = []
        self._size = 0
        self._reason = ""
        self.lost: Callable[[str], None] = lambda _: None

    def add(self, part: bytes) -> None:
        """Add a part. Raises ScrapeError if the body had to give way."""
        if not self._reason:
            self._parts.append(part)
            self._size += len(part)
        self.hold(0)
        self.check()

    def hold(self, unparsed: int) -> None:
        """Charge so many bytes that have arrived and are not parsed yet, beside the parts."""
        if not self._reason:
            self._budget.charge(self.namespace, self, self._size + unparsed)

    def check(self) -> None:
        """Raise ScrapeError if the body had to give way."""
        if self._reason:
            raise ScrapeError("budget", self._reason)

    def content(self) -> bytes:
        """Return all parts as one and release them. Raises ScrapeError as `check` does."""
        self.check()
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def lose(self, reason: str) -> None:
        """Drop the parts, because other scrapes need the room; the scrape fails with the reason."""
        self._reason = reason
        self._parts = []
        self.lost(reason)

    def close(self) -> None:
        self._parts, self._size = [], 0
        self._budget.charge(self.namespace, self, 0)


class BodyBudget:
    def __init__(self, room: int = BODIES_BYTES, namespace_room: int = NAMESPACE_BODIES_BYTES) -> None:
        self._ledger: Ledger[BodyBuffer] = Ledger("bodies", room, namespace_room)

    @property
    def size(self) -> int:
        return self._ledger.total

    def open(self, namespace: str) -> BodyBuffer:
        """Return a buffer for the body of a pod of a namespace, which the caller closes in any case."""
        return BodyBuffer(self, namespace)

    def charge(self, namespace: str, buffer: BodyBuffer, size: int) -> None:
        """Note the size of a body; while it is too much, the namespace that holds most loses its largest."""
        is_over = self._ledger.put(namespace, buffer, size)
        while is_over and (loss := self._ledger.loss(namespace)) is not None:
            self._ledger.put(loss.holder.namespace, loss.holder, 0)
            loss.holder.lose(loss.reason)
