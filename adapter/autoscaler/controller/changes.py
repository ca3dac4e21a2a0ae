"""What may have changed for autoscalers: caches, scrapes and polls put it, and the loop takes it.

It is the only way from what an autoscaler reads up to its decision, so nothing below knows what decides. A
change is noted for any autoscaler: the loop ignores those that this process does not decide.
"""

import asyncio
from collections.abc import Hashable, Iterable

from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.interfaces import Key
from adapter.model.autoscaling import slices


class Changes:
    """The autoscalers that have changed since the loop has looked, each once."""

    def __init__(self) -> None:
        self._keys: dict[Key, None] = {}
        self._events: list[tuple[Key, Event]] = []
        self._noted = [asyncio.Event() for _ in range(slices.COUNT)]
        self.wake = asyncio.Event()
        """Set when there is something to take."""

    def note(self, keys: Iterable[Key]) -> None:
        """Note that inputs of these autoscalers have changed, or that metrics could not be fetched."""
        self._keys |= dict.fromkeys(keys)
        self.wake.set()

    def note_scraped(self, owner: Hashable) -> None:
        """Note that a pod was scraped for an autoscaler."""
        if isinstance(owner, Key):
            self._keys[owner] = None
            self.wake.set()

    def note_event(self, key: Key, event: Event) -> None:
        """Note what is to be recorded on an autoscaler."""
        self._events.append((key, event))
        self.wake.set()

    def take(self) -> tuple[Iterable[Key], Iterable[tuple[Key, Event]]]:
        """Return what was noted, and forget it."""
        taken = self._keys, self._events
        self._keys, self._events = {}, []
        self.wake.clear()
        return taken

    def note_namespace(self, namespace: str) -> None:
        """Note a namespace with autoscalers or schedules."""
        self._noted[slices.slice_of(namespace)].set()

    async def wait_for_any(self, number: int) -> None:
        """Wait until a namespace of a slice was noted."""
        await self._noted[number].wait()
