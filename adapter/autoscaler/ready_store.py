"""Stores the ready-time ledgers of a shard for the next leader, in a ConfigMap of their own.

A leader reads the ConfigMap when its term begins, and writes what has changed once a minute and when the
term ends in order. So the starts of a minute at most are lost with a leader that dies. Until it has read the
ConfigMap it does not write it. An entry is one ledger of JSON under the uid of the autoscaler. Entries that
no autoscaler has are kept for a while: boosted HorizontalPodAutoscalers are found later in a term.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from adapter import errors
from adapter.autoscaler.registry import Controller
from adapter.boost.config_map import OwnConfigMap
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling.shards import Shard
from adapter.model.ready_times import MOST_PODS, ReadyLedger, decode_ledger, encode_ledger
from adapter.telemetry.problems import ProblemLog

NAME = "fastpath-ready-times"
LABEL = "fastpath.io/ready-times"

PERIOD = 60.0
"""Seconds between two writes, and between two attempts to read."""

KEPT_PERIODS = 10
"""For how many periods of a term an entry without an autoscaler is kept."""

LIMIT = 900_000
"""Limit on the bytes of all entries; the API server takes a mebibyte."""

LEAST_PODS = 3
"""How many pods of each ledger are stored at least, where there are too many ledgers for all of theirs."""

PROBLEM = "ready-times"

_UNEXPECTED = "unexpected error about the ready times of an autoscaler"

_STEP = 50
"""How many ledgers are encoded or decoded before other tasks may run: about 3 ms."""


class _Encoded(NamedTuple):
    ledger: ReadyLedger
    changes: int
    most: int
    text: str


class ReadyTimesStore:
    """The stored ledgers of a shard, for one term."""

    def __init__(self, writer: Writer, namespace: str, shard: Shard, problems: ProblemLog) -> None:
        name = shard.lease_name(NAME)
        self._config_map = OwnConfigMap(writer, namespace, name, LABEL, WriteKind.STATUS, adopts=False)
        self._problems = problems
        self._encoded: dict[str, _Encoded] = {}
        self._stored: Mapping[str, str] | None = None
        """What is stored as far as this term knows; None before it was read."""
        self._most = MOST_PODS
        self._saves = 0

    async def run(self, controller: Controller) -> None:
        """Give the controller the ledgers of the previous leader, then store its own, until cancelled."""
        while True:
            with self._problems.defects.contain(_UNEXPECTED):
                await (self.load if self._stored is None else self.save)(controller)
            await asyncio.sleep(PERIOD)

    async def drain(self, controller: Controller, seconds: float) -> None:
        """Store what has changed, within some seconds: the term ends."""
        try:
            async with asyncio.timeout(seconds):
                with self._problems.defects.contain(_UNEXPECTED):
                    await self.save(controller)
        except TimeoutError:
            pass  # the next leader has what was stored a minute ago
        finally:
            self._problems.resolve(PROBLEM)

    async def load(self, controller: Controller) -> None:
        try:
            texts = await self._config_map.read()
        except errors.KubernetesError as error:
            message = (
                "the ready times of the previous leader cannot be read; those of this one are not stored"
            )
            self._problems.report(PROBLEM, message, str(error))
            return
        self._problems.resolve(PROBLEM)
        ledgers: dict[str, ReadyLedger] = {}
        for count, (uid, text) in enumerate(texts.items(), 1):
            try:
                ledgers[uid] = decode_ledger(text)
            except ValueError as error:
                message = "an entry of the stored ready times is ignored"
                self._problems.report(PROBLEM, message, f"ConfigMap {self._config_map.name}, {uid}: {error}")
            except Exception as error:  # noqa: BLE001 - the other entries are read all the same
                self._problems.defects.note(_UNEXPECTED, error, uid)
            if count % _STEP == 0:
                await asyncio.sleep(0)
        controller.inherit(ledgers)
        self._stored = texts

    async def save(self, controller: Controller) -> None:
        if self._stored is None:
            return
        self._saves += 1
        texts = await self._encode(controller)
        if texts == self._stored:
            return
        try:
            await self._config_map.update(lambda _: (texts, False))
        except errors.NotLeadingError:
            return  # the next leader stores its own
        except errors.KubernetesError as error:
            message = "ready times cannot be stored; the next leader begins with older ones"
            self._problems.report(PROBLEM, message, str(error))
        else:
            self._stored = texts
            self._problems.resolve(PROBLEM)

    async def _encode(self, controller: Controller) -> Mapping[str, str]:
        """Return an entry for each ledger, of fewer pods where those of all have no room."""
        while True:
            texts = await self._encode_newest(controller, self._most)
            if sum(map(len, texts)) + sum(map(len, texts.values())) <= LIMIT or self._most == LEAST_PODS:
                break
            self._most = max(LEAST_PODS, self._most // 2)
        room, kept = LIMIT, {}
        for uid, text in texts.items():
            room -= len(uid) + len(text)
            if room >= 0:
                kept[uid] = text
        return kept

    async def _encode_newest(self, controller: Controller, most: int) -> dict[str, str]:
        texts: dict[str, str] = {}
        former, self._encoded = self._encoded, {}
        for count, (uid, ledger) in enumerate(list(controller.ledgers()), 1):
            with self._problems.defects.contain(_UNEXPECTED, uid):
                known = former.get(uid)
                if known is None or known.ledger is not ledger or known[1:3] != (ledger.changes, most):
                    known = _Encoded(ledger, ledger.changes, most, encode_ledger(ledger, most))
                    if count % _STEP == 0:
                        await asyncio.sleep(0)
                self._encoded[uid] = known
                texts[uid] = known.text
        if self._saves <= KEPT_PERIODS and self._stored is not None:
            return {uid: text for uid, text in self._stored.items() if uid in controller.inherited} | texts
        return texts
