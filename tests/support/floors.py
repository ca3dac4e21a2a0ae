"""Floors as a test publishes them, and autoscalers as a cache has them."""

import asyncio
from collections.abc import Mapping

from adapter.boost.floor import FloorEntry
from adapter.boost.provider import Watched
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.clock import WALL


class FakeAutoscalers:
    """Meets `adapter.boost.provider.FindAutoscaler`."""

    def __init__(self, known: Mapping[tuple[str, str], Watched]) -> None:
        self.known = dict(known)
        self.error: Exception | None = None

    def __call__(self, namespace: str, name: str) -> Watched | None:
        if self.error is not None:
            raise self.error
        return self.known.get((namespace, name))


class FakeFloors:
    """Meets `adapter.boost.provider.Floors`: what is published is known once it has come, by itself or by a read."""

    def __init__(self) -> None:
        self.reads = 0
        self.stale: Exception | None = None
        self.unread: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._published: dict[str, FloorEntry] = {}
        self._known: dict[str, FloorEntry] = {}

    def publish(self, *entries: FloorEntry) -> None:
        """Publish these and nothing else; nobody knows yet."""
        self._published = {each.uid: each for each in entries}

    def arrive(self) -> None:
        """Let what is published be known."""
        self._known = dict(self._published)

    def find(self, uid: str) -> FloorEntry | None:
        return self.entries().get(uid)

    def entries(self) -> Mapping[str, FloorEntry]:
        if self.stale is not None:
            raise self.stale
        return self._known

    async def confirm(self) -> None:
        self.reads += 1
        await self.gate.wait()
        if self.unread is not None:
            raise self.unread
        self.arrive()


def entry(
    replicas: int,
    uid: str = "1",
    *,
    namespace: str = "shop",
    name: str = "web",
    until: float = WALL + 60,
    seen: str = "100",
) -> FloorEntry:
    """Return an entry of ``shop/web`` that holds a minute from where a `FakeClock` begins; `until` in epoch seconds."""
    end = FineInstant(round(until * 1000) * (SECOND // 1000))
    return FloorEntry(namespace, name, uid, replicas, end, seen=seen)
