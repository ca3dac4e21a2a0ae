"""Stores the ready-time ledgers of a slice for its next owner, with what was learned of own usages.

An entry is one ledger of JSON.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from adapter.autoscaler import term_store
from adapter.autoscaler.registry import Controller
from adapter.autoscaler.term_store import StoredKind, TermEntry, TermStore
from adapter.kubernetes.write.writer import Writer
from adapter.model.ready_times import MOST_PODS, ReadyLedger, decode_ledger, encode_ledger
from adapter.telemetry.problems import ProblemLog

KIND = StoredKind(
    name="fastpath-ready-times",
    label="fastpath.io/ready-times",
    fault="ready-times",
    unread="the ready times of the previous owner cannot be read; those of this one are not stored",
    unwritten="ready times cannot be stored; the next owner begins with older ones",
    unexpected="unexpected error about the ready times of an autoscaler",
    period=60.0,
    kept=10,
    in_a_row=50,
)

LEAST_PODS = 3
"""How many pods of each ledger are stored at least, where there are too many ledgers for all of theirs."""


class ReadyTimesStore(TermStore[Controller]):
    def __init__(self, writer: Writer, namespace: str, number: int, problems: ProblemLog) -> None:
        super().__init__(writer, namespace, number, problems, KIND)
        self._most = MOST_PODS

    async def inherit(self, controller: Controller, texts: Mapping[str, str]) -> None:
        ledgers: dict[str, ReadyLedger] = {}
        for count, (uid, text) in enumerate(texts.items(), 1):
            with self._problems.defects.contain(KIND.unexpected, uid):
                try:
                    ledgers[uid] = decode_ledger(text)
                except ValueError as error:
                    self.report(uid, error)
            if count % KIND.in_a_row == 0:
                await asyncio.sleep(0)
        controller.inherit(ledgers)

    def is_unclaimed(self, controller: Controller, uid: str) -> bool:
        return uid in controller.inherited

    async def encode(self, controller: Controller) -> dict[str, str]:
        """Return an entry for each ledger, of fewer pods where those of all have no room."""
        while True:
            most = self._most
            texts = await self.encode_each(
                TermEntry(
                    uid,
                    (ledger, ledger.changes, tuple(ledger.usages.items()), most),
                    partial(encode_ledger, ledger, most),
                )
                for uid, ledger in list(controller.ledgers())
            )
            size = sum(map(len, (*texts, *texts.values())))
            if size <= term_store.LIMIT or most == LEAST_PODS:
                return texts
            self._most = max(LEAST_PODS, most // 2)
