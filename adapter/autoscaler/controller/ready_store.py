"""Stores the ready-time ledgers of a slice for its next owner, with what was learned of own usages.

An entry is one ledger of JSON.
"""

import asyncio
import math
from collections.abc import Mapping
from functools import partial

from adapter.autoscaler.controller import term_store
from adapter.autoscaler.controller.registry import OwnedSlice
from adapter.autoscaler.controller.term_store import StoredKind, TermEntry, TermStore
from adapter.kubernetes.write.config_map import StoreSlot
from adapter.kubernetes.write.outbox import SendTime
from adapter.model.ready_times import MOST_PODS, ReadyLedger, decode_ledger, encode_ledger

KIND = StoredKind(
    name="fastpath-ready-times",
    label="fastpath.io/ready-times",
    fault="ready-times",
    unread="the ready times of the previous owner cannot be read; those of this one are not stored",
    unwritten="ready times cannot be stored; the next owner begins with older ones",
    unexpected="unexpected error about the ready times of an autoscaler",
    period=60.0,
    retry=60.0,
    kept=10,
    in_a_row=50,
)

LEAST_PODS = 3
"""How many pods of each ledger are stored at least, where there are too many ledgers for all of theirs."""


class ReadyTimesStore(TermStore):
    def __init__(self, owned: OwnedSlice, slot: StoreSlot) -> None:
        super().__init__(slot, KIND)
        self._owned = owned
        self._most = MOST_PODS
        self._due = SendTime(-math.inf)  # it is read when the term begins

    async def inherit(self, texts: Mapping[str, str]) -> None:
        ledgers: dict[str, ReadyLedger] = {}
        for count, (uid, text) in enumerate(texts.items(), 1):
            with self._problems.defects.contain(KIND.unexpected, uid):
                try:
                    ledgers[uid] = decode_ledger(text)
                except ValueError as error:
                    self.report(uid, error)
            if count % KIND.in_a_row == 0:
                await asyncio.sleep(0)
        self._owned.inherit(ledgers)

    def is_unclaimed(self, uid: str) -> bool:
        return uid in self._owned.inherited

    async def encode(self) -> dict[str, str]:
        """Return an entry for each ledger, of fewer pods where those of all have no room."""
        while True:
            most = self._most
            texts = await self.encode_each(
                TermEntry(
                    uid,
                    (ledger, ledger.changes, tuple(ledger.usages.items()), most),
                    partial(encode_ledger, ledger, most),
                )
                for uid, ledger in list(self._owned.ledgers())
            )
            size = sum(map(len, (*texts, *texts.values())))
            if size <= term_store.LIMIT or most == LEAST_PODS:
                return texts
            self._most = max(LEAST_PODS, most // 2)
