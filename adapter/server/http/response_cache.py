"""The cache of encoded responses, and the representations of a body that callers accept.

An autoscaler with many HPAs asks the same few targets all the time, so the bytes of an answer are kept by
target and representation. Two things end their use. The values of an answer have a time until which they are
fresh. And every answer belongs to a generation, the number of the registry snapshot it was made from: rules
that change, or metrics that appear and disappear, begin a new generation, and responses of any other are
never sent. The generation is read *before* the provider is asked. Read afterwards, a registry that changes
while the question is under way would give its number to an answer from the one before.

Responses do not belong to callers: every request is authorized before the cache is looked at. Failures are
not kept.
"""

import asyncio
import gzip
from collections.abc import Callable
from typing import NamedTuple

from adapter.model.clock import Clock
from adapter.server.api import encoding
from adapter.server.http import negotiation
from adapter.server.http.budgets import Charge
from adapter.server.http.negotiation import Representation
from adapter.telemetry.metrics import BoundedCache, Monitoring

LONGEST_KEY = 4096
"""Bytes of a target that is kept; an entry counts for as much beside its body."""

_INDENTED = 4  # times the length of a body that its indented form may have; measured 2.6


class EncodedResponse(NamedTuple):
    """A response before it becomes aiohttp's. An empty content type goes with an empty body."""

    status: int
    body: bytes
    content_type: str = negotiation.JSON
    headers: tuple[tuple[str, str], ...] = ()


class _CachedResponse(NamedTuple):
    response: EncodedResponse
    generation: int
    fresh_until: float


class ResponseCache:
    """Keeps responses within `kept_bytes`.

    `generation` returns the number of the registry snapshot in force.
    """

    def __init__(
        self, generation: Callable[[], int], clock: Clock, own_metrics: Monitoring, kept_bytes: int
    ) -> None:
        self._generation = generation
        self._clock = clock
        self._kept_bytes = kept_bytes
        self._entries: BoundedCache[tuple[str, Representation], _CachedResponse] = BoundedCache(
            "bodies", own_metrics, kept_bytes, lambda kept: len(kept.response.body) + LONGEST_KEY
        )

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, target: str, representation: Representation) -> EncodedResponse | None:
        """Return the response for a target if it may still be sent."""
        kept = self._entries.get((target, representation))
        if kept is None or kept.generation != self._generation():
            return None
        return kept.response if self._clock.monotonic() < kept.fresh_until else None

    def keep(
        self,
        target: str,
        representation: Representation,
        response: EncodedResponse,
        generation: int,
        fresh_until: float,
    ) -> None:
        """Keep a response of a generation until `fresh_until` (monotonic seconds), unless it is too large."""
        too_large = len(response.body) + LONGEST_KEY > self._kept_bytes
        if not too_large and len(target) <= LONGEST_KEY and self._clock.monotonic() < fresh_until:
            self._entries[target, representation] = _CachedResponse(response, generation, fresh_until)


async def represent(body: bytes, representation: Representation, charge: Charge) -> EncodedResponse:
    """Return a body in the representation asked for.

    A large body is indented and compressed in a thread, and its copies are charged.
    """
    is_large = len(body) > negotiation.COMPRESS_ABOVE
    if representation.pretty and is_large:
        charge.grow(_INDENTED * len(body))
        body = await asyncio.to_thread(encoding.indent, body)
        charge.resize(len(body))
    elif representation.pretty:
        body = encoding.indent(body)
    if representation.compressed and is_large:
        charge.grow(len(body))
        body = await asyncio.to_thread(gzip.compress, body, compresslevel=1, mtime=0)
        headers = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
        return EncodedResponse(200, body, headers=headers)
    return EncodedResponse(200, body)
