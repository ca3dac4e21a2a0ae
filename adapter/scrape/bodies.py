"""The bodies of answers while they arrive, and the memory that all scraped pods share for them.

A body is charged from its first byte until it is parsed. If the budget is exceeded, the namespace that holds
most loses its largest body: that scrape fails, and all others go on.
"""

import zlib
from collections.abc import Callable, Mapping

from adapter.config.rules_config import Access
from adapter.errors import ScrapeError
from adapter.model.fairness import Ledger
from adapter.model.steps import Steps
from adapter.rules import matchers

BODIES_BYTES = 48 * 1024 * 1024
"""Budget of all bodies that are read or parsed at one time."""

NAMESPACE_BODIES_BYTES = 24 * 1024 * 1024
"""The part of it that the pods of one namespace may use."""

_UNZIPPED_BYTES = 256 * 1024  # in one step of the event loop


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


class AnswerBody:
    """The body of one answer, unzipped into a buffer within the limits of its rule."""

    def __init__(self, buffer: BodyBuffer, access: Access) -> None:
        self.buffer = buffer
        self._access = access
        # both sides of gzip are bounded: a small body can unzip to gigabytes, a large one to nothing
        self._unread = self._left = access.max_bytes
        self._lines = access.max_lines
        self._unzip: zlib._Decompress | None = None
        self._is_delimited = False

    def begin(self, headers: Mapping[str, str]) -> None:
        """Take the head of the answer. Raises ScrapeError."""
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"identity", "", "gzip", "x-gzip"}:
            text = f"the body is encoded as {matchers.shorten(encoding)}, which was not requested"
            raise ScrapeError("decode", text)
        if encoding.endswith("gzip"):
            self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._is_delimited = "Content-Length" in headers or "Transfer-Encoding" in headers
        if int(headers.get("Content-Length", 0)) > self._unread:
            raise self._too_large()

    def take(self, chunk: bytes) -> Steps[None]:
        """Take a part, unzipped in steps: a kilobyte may unzip to a megabyte. Raises ScrapeError."""
        self._unread -= len(chunk)
        if self._unzip is None:
            self._add(chunk)
            return
        while True:
            try:
                part = self._unzip.decompress(chunk, _UNZIPPED_BYTES)
            except zlib.error as error:
                raise ScrapeError("decode", "the body is not valid gzip") from error
            if self._unzip.unused_data:
                raise ScrapeError("decode", "data follows the gzip body")
            self._add(part)
            chunk = self._unzip.unconsumed_tail
            if not chunk and len(part) < _UNZIPPED_BYTES:
                return
            yield

    def _add(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left < 0 or self._unread < 0:
            raise self._too_large()
        self._lines -= part.count(b"\n")
        if self._lines < 0:
            raise ScrapeError("size", f"the body has more than {self._access.max_lines} lines")
        self.buffer.add(part)

    def finish(self) -> bytes:
        """Return all of the body. Raises ScrapeError if it is not whole."""
        if self._unzip is not None and not self._unzip.eof:
            raise ScrapeError("decode", "the gzip body is truncated")
        content = self.buffer.content()
        # a connection that breaks looks like the end of a body without a length, a cut line like a
        # smaller value
        if content and not self._is_delimited and not content.endswith(b"\n"):
            raise ScrapeError(
                "decode", "the body ends within a line and has no length, so it may be truncated"
            )
        return content

    def _too_large(self) -> ScrapeError:
        return ScrapeError("size", f"the body is larger than {self._access.max_bytes} bytes")
