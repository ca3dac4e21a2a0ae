"""What the owner of a slice stores for the next one: an entry for each autoscaler, in a ConfigMap.

An owner reads the ConfigMap in the beginning of its term, and writes what has changed once a period and when
the term ends in order. So what a period changed at most is lost with an owner that dies. Until it has read
the ConfigMap it does not write it. An entry is a text under the uid of the autoscaler. Entries that no
autoscaler has are kept for a while: boosted HorizontalPodAutoscalers are found later in a term.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.write.config_map import StoredInTerm, StoreSlot
from adapter.kubernetes.write.outbox import IDLE, SendTime
from adapter.model.autoscaling import slices

LIMIT = 900_000
"""Limit on the bytes of all entries; the API server takes a mebibyte."""


class StoredKind(NamedTuple):
    """A kind of entries: `name` and `label` are those of its ConfigMap, `fault` that of its problems.

    `unread` and `unwritten` say what a failed read or write leads to. `period` is in seconds, as is `retry`
    after a failed read, and `kept` is for how many periods of a term an entry without an autoscaler is kept.
    After encoding or decoding so many entries `in_a_row`, about 3 ms, other tasks may run.
    """

    name: str
    label: str
    fault: str
    unread: str
    unwritten: str
    unexpected: str
    period: float
    retry: float
    kept: int
    in_a_row: int


class TermEntry(NamedTuple):
    """An entry: while `version` is equal, `encode` need not be called again."""

    uid: str
    version: object
    encode: Callable[[], str]


class TermStore(StoredInTerm):
    """The stored entries of a slice, for one term. A subclass knows who has what is stored."""

    def __init__(self, slot: StoreSlot, kind: StoredKind) -> None:
        super().__init__(slot, slices.name_of(kind.name, slot.number), kind.label, adopts=False)
        self.kind = kind
        self._encoded: dict[str, tuple[object, str]] = {}
        self._stored: Mapping[str, str] | None = None
        """What is stored as far as this term knows; None before it was read."""
        self._saves = 0
        self._due = IDLE
        self._is_ending = False

    @abstractmethod
    async def inherit(self, texts: Mapping[str, str]) -> None:
        """Take what the owner before has stored."""

    @abstractmethod
    def is_unclaimed(self, uid: str) -> bool:
        """Tell whether the autoscaler of an inherited entry was not found yet."""

    @abstractmethod
    async def encode(self) -> dict[str, str]:
        """Return all entries, those first that are to be stored where not all have room."""

    def due(self, now: float) -> SendTime:
        return SendTime(now) if self._is_ending else self._due

    async def write(self) -> None:
        """Read what is stored, or if that was done store what there is."""
        with self._problems.defects.contain(self.kind.unexpected):
            await (self.load if self._stored is None else self.save)()
        pause = self.kind.retry if self._stored is None else self.kind.period
        self._due = IDLE if self._is_ending else SendTime(self._clock.monotonic() + pause)
        self._is_ending = False

    def ends(self) -> bool:
        self._is_ending = self._stored is not None
        return self._is_ending

    def close(self) -> None:
        self._problems.resolve(self.kind.fault, subject=self._config_map.name)

    async def load(self) -> None:
        try:
            texts = await self._config_map.read()
        except errors.KubernetesError as error:
            self._report(self.kind.unread, str(error))
            return
        self._problems.resolve(self.kind.fault, subject=self._config_map.name)
        await self.inherit(texts)
        self._stored = texts

    async def save(self) -> None:
        self._saves += 1
        texts = await self._select()
        if texts == self._stored:
            return
        try:
            await self._config_map.update(lambda _: (texts, False))
        except errors.NotLeadingError:
            return  # the next owner stores its own
        except errors.KubernetesError as error:
            self._report(self.kind.unwritten, str(error))
        else:
            self._stored = texts
            self._problems.resolve(self.kind.fault, subject=self._config_map.name)

    def report(self, uid: str, fault: object) -> None:
        """Report an entry that cannot be used."""
        message = "an entry that the previous owner has stored is ignored"
        self._report(message, f"ConfigMap {self._config_map.name}, {uid}: {fault}")

    def _report(self, message: str, text: str) -> None:
        self._problems.report(self.kind.fault, message, text, subject=self._config_map.name)

    async def _select(self) -> Mapping[str, str]:
        """Return the entries that have room."""
        texts = await self.encode()
        if self._saves <= self.kind.kept and self._stored is not None:
            texts |= {uid: text for uid, text in self._stored.items() if self.is_unclaimed(uid)}
        room, kept = LIMIT, {}
        for uid, text in texts.items():
            room -= len(uid) + len(text)
            if room >= 0:
                kept[uid] = text
        return kept

    async def encode_each(self, entries: Iterator[TermEntry]) -> dict[str, str]:
        """Return the texts of entries, and those of before where nothing has changed."""
        former, self._encoded = self._encoded, {}
        for count, entry in enumerate(entries, 1):
            with self._problems.defects.contain(self.kind.unexpected, entry.uid):
                known = former.get(entry.uid)
                if known is None or known[0] != entry.version:
                    known = entry.version, entry.encode()
                    if count % self.kind.in_a_row == 0:
                        await asyncio.sleep(0)
                self._encoded[entry.uid] = known
        return {uid: text for uid, (_, text) in self._encoded.items()}
