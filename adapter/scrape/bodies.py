"""The bodies of scraped pods that are held at a time, within one budget for all namespaces.

A body is charged from its first byte until it is parsed. Where the budget is exceeded, the namespace that
holds most loses its largest body: that scrape fails, whatever stage it is in, and the scrapes of others go
on.
"""

from collections.abc import Callable

from adapter.errors import ScrapeError
from adapter.model.fairness import Ledger

BODIES_BYTES = 48 * 1024 * 1024
"""Bytes of all bodies that are being read or parsed at a time."""

NAMESPACE_BODIES_BYTES = 24 * 1024 * 1024
"""Bytes of these that the pods of one namespace may have."""


class Buffer:
    """One body while it is read and parsed. `lost` is called with the reason if it has to give way."""

    def __init__(self, bodies: "Bodies | None" = None, namespace: str = "") -> None:
        """Without `bodies` nothing else is read beside it."""
        self._bodies = bodies
        self.namespace = namespace
        self._parts: list[bytes] = []
        self._size = 0
        self._reason = ""
        self.lost: Callable[[str], None] = _ignore

    def add(self, part: bytes) -> None:
        """Take in a part. Raises ScrapeError if the body had to give way."""
        if not self._reason:
            self._parts.append(part)
            self._size += len(part)
            if self._bodies is not None:
                self._bodies.charge(self.namespace, self, self._size)
        if self._reason:
            raise ScrapeError("budget", self._reason)

    def content(self) -> bytes:
        """Return all parts as one, without keeping them. Raises ScrapeError as `add` does."""
        if self._reason:
            raise ScrapeError("budget", self._reason)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def lose(self, reason: str) -> None:
        """Give way."""
        self._reason = reason
        self._parts = []
        self.lost(reason)

    def close(self) -> None:
        """Give the bytes back."""
        self._parts = []
        if self._bodies is not None:
            self._bodies.charge(self.namespace, self, 0)


class Bodies:
    """All bodies together."""

    def __init__(self, room: int = BODIES_BYTES, namespace_room: int = NAMESPACE_BODIES_BYTES) -> None:
        self._ledger: Ledger[Buffer] = Ledger("bodies", room, namespace_room)

    @property
    def size(self) -> int:
        """Return how many bytes are held."""
        return self._ledger.total

    def open(self, namespace: str) -> Buffer:
        """Return where the body of a pod of a namespace is read into; close it in any case."""
        return Buffer(self, namespace)

    def charge(self, namespace: str, buffer: Buffer, size: int) -> None:
        """Note the size of a body; cut the largest bodies of the namespace that holds most if that is too much."""
        self._ledger.put(namespace, buffer, size)
        while (loss := self._ledger.loss(namespace)) is not None:
            self._release(loss.holder)
            loss.holder.lose(loss.reason)

    def _release(self, buffer: Buffer) -> None:
        self._ledger.put(buffer.namespace, buffer, 0)


def _ignore(_: str) -> None:
    """Nothing more depends on the body than its reader."""
