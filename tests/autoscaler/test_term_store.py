"""What an owner stores for the next one, whatever it is: when it is read and written, and every fault."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest

from adapter.autoscaler.controller.term_store import LIMIT, StoredKind, TermEntry, TermStore
from adapter.kubernetes.write.config_map import StoreSlot
from adapter.kubernetes.write.outbox import SendTime
from adapter.kubernetes.write.writer import WriteKind
from tests.boost.configmaps import Store
from tests.boost.floorterms import NAMESPACE, StoringProcess
from tests.support.scripts import Scripts

pytestmark = pytest.mark.looptime

NAME = "notes-slice-00"
PERIOD, KEPT = 60.0, 3
KIND = StoredKind(
    "notes", "fastpath.io/notes", "notes", "unread", "unwritten", "a defect", PERIOD, PERIOD, KEPT, in_a_row=2
)


class Owner:
    """An owner with a text for each uid, and what it has inherited and no autoscaler has asked for."""

    def __init__(self, **texts: str) -> None:
        self.texts = dict(texts)
        self.inherited: dict[str, str] = {}
        self.encoded: list[str] = []

    def encode(self, uid: str) -> str:
        self.encoded.append(uid)
        if self.texts[uid] == "defect":
            raise ZeroDivisionError
        return self.texts[uid]


class Notes(TermStore):
    def __init__(self, owner: Owner, slot: StoreSlot) -> None:
        super().__init__(slot, KIND)
        self._owner, self._due = owner, SendTime(-math.inf)

    async def inherit(self, texts: Mapping[str, str]) -> None:
        self._owner.inherited.update(texts)

    def is_unclaimed(self, uid: str) -> bool:
        return uid in self._owner.inherited

    async def encode(self) -> dict[str, str]:
        owner = self._owner
        return await self.encode_each(
            TermEntry(uid, text, partial(owner.encode, uid)) for uid, text in owner.texts.items()
        )


class TermScript:
    """What a line of a script does, and what is said then."""

    def __init__(self) -> None:
        self.store = Store()
        self.process = StoringProcess(self.store)
        self.term = contextlib.AsyncExitStack()

    def post(self, label: str, *texts: str) -> None:
        """Have a ConfigMap, with the `label` of its kind or `without`."""
        labels = {KIND.label: "true"} if label == "label" else {}
        metadata = {"name": NAME, "namespace": NAMESPACE, "labels": labels}
        self.store.post({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": read(texts)})

    def unlabel(self) -> None:
        self.store.edit(NAME, lambda document: document["metadata"]["labels"].clear())

    async def own(self, *texts: str) -> None:
        self.owner = Owner(**read(texts))
        term = self.process.open_term(WriteKind.STATUS)
        await self.term.enter_async_context(term.running())
        Notes(self.owner, term.slot).submit()

    async def end(self) -> None:
        await self.term.aclose()

    def have(self, *texts: str) -> None:
        self.owner.texts.update(read(texts))

    def claim(self) -> None:
        """Have autoscalers ask for all that was inherited."""
        self.owner.inherited.clear()

    def line(self, state: str) -> None:
        """Have the server not answer, refuse with a status, or do as it is told."""
        self.process.line.cut = state == "cut"
        self.process.line.answer = int(state) if state.isdigit() else 0

    def fence(self, passes: str) -> None:
        self.process.gate.passes = int(passes)

    async def sleep(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    def stored(self) -> str:
        return " ".join(f"{uid}={text}" for uid, text in self.store.texts(NAME).items()) or "nothing"

    def inherited(self) -> str:
        return " ".join(f"{uid}={text}" for uid, text in self.owner.inherited.items()) or "nothing"

    def writes(self) -> str:
        return " ".join(self.process.line.writes) or "none"

    def reported(self) -> str:
        return "; ".join(self.process.problems.active().values()) or "nothing"


def read(texts: Iterable[str]) -> dict[str, str]:
    return dict(each.split("=") for each in texts)


SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "term-store")


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, script: TermScript, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, script, pytestconfig)


@pytest.fixture
async def script() -> AsyncIterator[TermScript]:
    script = TermScript()
    async with script.term:
        yield script


async def test_it_writes_once_a_period_and_only_what_has_changed(script: TermScript) -> None:
    await script.own()
    await asyncio.sleep(PERIOD + 1)
    assert script.writes() == "none"
    script.have("b=same")
    for second in range(60):
        script.have(f"a={second}")
        await asyncio.sleep(2)
    await asyncio.sleep(10 * PERIOD)
    await script.end()
    assert script.writes() == "POST PUT"
    assert script.process.line.gets == 1
    assert script.owner.encoded == ["b", "a", "a"]


async def test_the_first_entries_have_room(script: TermScript) -> None:
    most = "1" * (LIMIT - 1)
    await script.own(f"a={most}", f"b={'1' * (LIMIT + 1)}", f"c={most}", "d=1")
    await asyncio.sleep(1)
    await script.end()
    assert script.store.texts(NAME) == {"a": most}


def test_the_limit_leaves_room_for_what_else_is_in_the_object() -> None:
    assert LIMIT < 1024 * 1024 * 0.9
