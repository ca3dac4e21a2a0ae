"""Floors as a test publishes them, and autoscalers as a cache has them."""

import asyncio
from collections.abc import Mapping

from adapter.boost.provider import ObservedHPA
from adapter.boost.view import KnownFloor, PublishedFloors
from adapter.model.autoscaling.floor import Floor
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.clock import WALL

_JUST_NOW = 1e9
"""Later than any monotonic time of a test."""


class FakeAutoscalers:
    """The HPAs of a cache, by namespace and name."""

    def __init__(self, known: Mapping[tuple[str, str], ObservedHPA]) -> None:
        self.known = dict(known)
        self.error: Exception | None = None

    def __call__(self, namespace: str, name: str) -> ObservedHPA | None:
        if self.error is not None:
            raise self.error
        return self.known.get((namespace, name))


class FakeFloors:
    """In place of a `FloorView`: what is published is known once a read brings it."""

    def __init__(self) -> None:
        self.reads = 0
        self.stale = False
        self.unread: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._published: tuple[Floor, ...] = ()
        self._known: tuple[Floor, ...] = ()

    def publish(self, *entries: Floor) -> None:
        """Publish these and nothing else, without a read of them yet."""
        self._published = entries

    def arrive(self) -> None:
        self._known = self._published

    async def current(self) -> PublishedFloors:
        self.reads += 1
        await self.gate.wait()
        if self.unread is not None:
            raise self.unread
        self.arrive()
        return self._floors()

    def recent(self) -> PublishedFloors | None:
        return None if self.stale else self._floors()

    def _floors(self) -> PublishedFloors:
        known = {each.uid: KnownFloor(each.uid, "", each, since=_JUST_NOW) for each in self._known}
        return PublishedFloors(0.0, {"fastpath-floors": ("1", known)})


def entry(
    replicas: int,
    uid: str = "1",
    *,
    namespace: str = "shop",
    name: str = "web",
    until: float = WALL + 60,
    seen: str = "100",
) -> Floor:
    """Return an entry of ``shop/web`` that holds a minute from where a `FakeClock` begins; `until` in epoch
    seconds.
    """
    end = FineInstant(round(until * 1000) * (SECOND // 1000))
    return Floor(namespace, name, uid, replicas, end, seen=seen)
