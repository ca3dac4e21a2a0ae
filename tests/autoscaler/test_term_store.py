"""What an owner stores for the next one, whatever it is: when it is read and written, and every fault."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest

from adapter.autoscaler.term_store import LIMIT, StoredKind, TermEntry, TermStore
from adapter.kubernetes.write.config_map import StoreSlot
from adapter.kubernetes.write.outbox import SendTime
from adapter.kubernetes.write.writer import WriteKind
from tests.boost.configmaps import JSON, Store
from tests.boost.floorterms import NAMESPACE, StoringProcess

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


class NotesProcess(StoringProcess):
    """A process that owns a slice for a time."""

    def reported(self) -> str:
        return "; ".join(self.problems.active().values())

    @contextlib.asynccontextmanager
    async def owning(self, owner: Owner, *, number: int = 0) -> AsyncIterator[Notes]:
        """Run a term to its orderly end."""
        term = self.open_term(WriteKind.STATUS, number=number)
        notes = Notes(owner, term.slot)
        async with term.running():
            notes.submit()
            yield notes


def config_map(*, labelled: bool = True, **texts: str) -> JSON:
    labels = {KIND.label: "true"} if labelled else {}
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}


@pytest.fixture
def process(store: Store) -> NotesProcess:
    return NotesProcess(store)


async def test_the_next_owner_has_what_the_last_one_stored(store: Store, process: NotesProcess) -> None:
    async with process.owning(Owner(a="1", b="2")):
        await asyncio.sleep(1)
    following = Owner(a="3")
    async with NotesProcess(store).owning(following):
        await asyncio.sleep(1)
        assert following.inherited == {"a": "1", "b": "2"}
        following.inherited.clear()
    assert store.texts(NAME) == {"a": "3"}


async def test_it_writes_once_a_period_and_only_what_has_changed(process: NotesProcess) -> None:
    owner = Owner()
    async with process.owning(owner):
        await asyncio.sleep(PERIOD + 1)
        assert process.line.writes == []
        owner.texts["b"] = "same"
        for second in range(60):
            owner.texts["a"] = str(second)
            await asyncio.sleep(2)
        await asyncio.sleep(10 * PERIOD)
    assert process.line.writes == ["POST", "PUT"]
    assert process.line.gets == 1
    assert owner.encoded == ["b", "a", "a"]


async def test_an_owner_that_dies_loses_a_period_at_most(store: Store, process: NotesProcess) -> None:
    owner = Owner(a="1")
    async with process.owning(owner):
        await asyncio.sleep(PERIOD + 1)
        owner.texts["a"] = "2"
        process.line.cut = True  # its last write is lost
    assert store.texts(NAME) == {"a": "1"}


async def test_what_no_autoscaler_has_is_kept_for_some_periods(store: Store, process: NotesProcess) -> None:
    """A boosted HPA is found later."""
    store.post(config_map(gone="1"))
    async with process.owning(Owner(a="2")):
        await asyncio.sleep(KEPT * PERIOD + 1)
        assert store.texts(NAME) == {"gone": "1", "a": "2"}
        await asyncio.sleep(PERIOD)
        assert store.texts(NAME) == {"a": "2"}


async def test_a_foreign_config_map_is_reported_and_left_alone(store: Store, process: NotesProcess) -> None:
    foreign = store.post(config_map(labelled=False, settings="theirs"))
    async with process.owning(Owner(a="1")):
        await asyncio.sleep(3 * PERIOD)
        assert process.reported() == (
            f"the ConfigMap fastpath/{NAME} lacks the label fastpath.io/notes=true, so it is not used: "
            "delete it, or add the label"
        )
    assert store.objects[NAME] == foreign
    assert process.reported() == ""


async def test_one_that_becomes_foreign_is_left_alone(store: Store, process: NotesProcess) -> None:
    owner = Owner(a="1")
    async with process.owning(owner):
        await asyncio.sleep(PERIOD + 1)
        store.edit(NAME, lambda document: document["metadata"]["labels"].clear())
        owner.texts["a"] = "2"
        await asyncio.sleep(PERIOD)
        assert "lacks the label" in process.reported()
    assert store.texts(NAME) == {"a": "1"}


async def test_what_was_not_read_is_not_replaced(store: Store, process: NotesProcess) -> None:
    store.post(config_map(b="2"))
    process.line.cut = True
    async with process.owning(Owner(a="1")):
        await asyncio.sleep(2 * PERIOD)
        assert "no answer within 5 s" in process.reported()
        assert process.line.writes == []
        process.line.cut = False
        await asyncio.sleep(PERIOD + 10)
        assert process.reported() == ""

    process.line.cut = True
    async with process.owning(Owner()):
        await asyncio.sleep(1)
        process.line.cut = False  # after the only look of this term
    assert store.texts(NAME) == {"a": "1", "b": "2"}


async def test_a_refused_write_is_reported_and_repeated(store: Store, process: NotesProcess) -> None:
    async with process.owning(Owner(a="1")):
        await asyncio.sleep(1)
        process.line.answer = 403
        await asyncio.sleep(PERIOD)
        assert process.reported() != ""
        process.line.answer = 0
        await asyncio.sleep(PERIOD)
        assert process.reported() == ""
        assert store.texts(NAME) == {"a": "1"}


async def test_without_the_lease_nothing_is_written(store: Store, process: NotesProcess) -> None:
    async with process.owning(Owner(a="1")):
        await asyncio.sleep(1)
        process.gate.passes = 0
        await asyncio.sleep(PERIOD)
        assert process.reported() == ""
    assert store.objects == {}


async def test_the_first_entries_have_room(store: Store, process: NotesProcess) -> None:
    most = "1" * (LIMIT - 1)
    async with process.owning(Owner(a=most, b="1" * (LIMIT + 1), c=most, d="1")):
        await asyncio.sleep(1)
    assert store.texts(NAME) == {"a": most}


def test_the_limit_leaves_room_for_what_else_is_in_the_object() -> None:
    assert LIMIT < 1024 * 1024 * 0.9


async def test_a_defect_in_one_entry_keeps_no_other_from_being_stored(
    store: Store, process: NotesProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with process.owning(Owner(bad="defect", a="1")):
        await asyncio.sleep(PERIOD + 1)
        assert store.texts(NAME) == {"a": "1"}
    assert {record.levelname for record in caplog.records} == {"ERROR"}
