"""Ready times for the next owner: what is stored and when, what a new term takes over, and every fault."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.controller import ready_store, term_store
from adapter.autoscaler.controller.ready_store import KIND, ReadyTimesStore
from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.learned_usage import LearnedUsage
from adapter.model.ready_times import UNKNOWN, LeftOut, Outcome, PodStart, decode_ledger
from tests.boost.configmaps import JSON, Store
from tests.boost.floorterms import NAMESPACE, StoringProcess
from tests.support.controller import Bench, fpa

pytestmark = pytest.mark.looptime

NAME = "fastpath-ready-times-slice-00"
PERIOD = KIND.period


class ScalerProcess(StoringProcess):
    """One process: its caches and its line to the stored ConfigMaps."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.bench = Bench()

    @property
    def controller(self) -> Controller:
        return self.bench.controller

    async def put(self, name: str = "web", uid: str = "uid-1", target: str = "") -> AutoscalerState:
        self.bench.put(fpa(name=name, uid=uid), replicas=4)
        if target:
            self.bench.server.set(name, 4, uid=target)
        await self.bench.step(15)
        state = self.controller.find(Key("default", name))
        assert state is not None
        return state

    def start_pods(self, *seconds: int, name: str = "web") -> None:
        state = self.controller.find(Key("default", name))
        assert state is not None
        for each in seconds:
            state.target.ledger.note(PodStart(UNKNOWN, UNKNOWN, UNKNOWN, each * 1_000))

    def reported(self) -> str:
        return "; ".join(self.problems.active().values())


@contextlib.asynccontextmanager
async def leading(process: ScalerProcess) -> AsyncIterator[ReadyTimesStore]:
    """Run a term that ends in order."""
    term = process.open_term(WriteKind.STATUS)
    ready_times = ReadyTimesStore(process.bench.owned, term.slot)
    async with term.running():
        ready_times.submit()
        yield ready_times


def stored(store: Store) -> dict[str, list[int]]:
    """Return the totals of the stored ledgers, in seconds."""
    texts = store.texts(NAME)
    return {uid: [pod.ready // 1_000 for pod in decode_ledger(text).starts()] for uid, text in texts.items()}


def config_map(texts: dict[str, str]) -> JSON:
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": {KIND.label: "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}


def entry(*seconds: int, target: str = "uid-of-target") -> str:
    pods = [[-1, -1, -1, each, 0] for each in seconds]
    return msgspec.json.encode({"target": target, "pods": pods, "leftOut": [0, 1, 0]}).decode()


@pytest.fixture
def process(store: Store) -> ScalerProcess:
    return ScalerProcess(store)


async def test_the_next_leader_has_the_times_of_the_last(store: Store, process: ScalerProcess) -> None:
    await process.put()
    process.start_pods(20, 30, 40)
    process.bench.state.target.ledger.note(Outcome.RESTARTED)
    async with leading(process):
        await asyncio.sleep(1)

    following = ScalerProcess(store)
    other = await following.put()
    async with leading(following):
        await asyncio.sleep(1)
        assert other.target.ledger.is_empty, "nothing is taken over before the target is known to be the same"
        await following.bench.step(15)
        following.start_pods(50)

    assert other.ready_times is not None
    assert (other.ready_times.count, other.ready_times.total) == (4, (30, 50))
    assert other.target.ledger.left_out() == LeftOut(1, 0, 0)
    assert stored(store) == {"uid-1": [20, 30, 40, 50]}


@pytest.mark.parametrize("target", ["web-1", "web-2"])
async def test_what_was_learned_of_own_usage_is_for_the_same_target(
    store: Store, process: ScalerProcess, target: str
) -> None:
    await process.put(target="web-1")
    learned = {"cpu/": LearnedUsage("0123abcd", 1.7e9, (1.0, 0.98))}
    async with leading(process):
        await asyncio.sleep(PERIOD + 1)
        process.bench.state.target.ledger.usages.update(learned)

    following = ScalerProcess(store)
    other = await following.put(target=target)
    async with leading(following):
        await asyncio.sleep(1)
        await following.bench.step(15)
        assert other.target.ledger.usages == (learned if target == "web-1" else {})


async def test_an_autoscaler_that_comes_later_has_its_times(store: Store, process: ScalerProcess) -> None:
    store.post(config_map({"uid-1": entry(20, 30)}))
    async with leading(process):
        await asyncio.sleep(PERIOD * 2)
        state = await process.put()

    assert state.ready_times is not None
    assert state.ready_times.count == 2
    assert stored(store) == {"uid-1": [20, 30]}
    assert process.line.writes == []


async def test_times_of_another_object_of_that_name_are_dropped(store: Store, process: ScalerProcess) -> None:
    store.post(config_map({"uid-1": entry(20, 30, target="former")}))
    state = await process.put()
    async with leading(process):
        await asyncio.sleep(1)
        await process.bench.step(15)

    assert state.ready_times is None
    assert stored(store) == {}


async def test_a_target_that_is_replaced_begins_anew(store: Store, process: ScalerProcess) -> None:
    state = await process.put()
    process.start_pods(20)
    async with leading(process):
        await asyncio.sleep(PERIOD + 1)
        process.bench.server.set("web", 4, uid="another")
        await process.bench.step(15)
        process.start_pods(7)

    assert state.target.ledger.target == "another"
    assert stored(store) == {"uid-1": [7]}


async def test_a_corrupt_entry_is_reported_and_ignored(store: Store, process: ScalerProcess) -> None:
    store.post(config_map({"uid-1": "{", "uid-2": entry(20)}))
    first = await process.put()
    second = await process.put("other", "uid-2")
    async with leading(process):
        await asyncio.sleep(1)
        assert f"ConfigMap fastpath/{NAME}, uid-1: not a ledger: " in process.reported()
        await process.bench.step(15)
        assert first.ready_times is None
        assert second.ready_times is not None

    assert stored(store) == {"uid-2": [20]}


async def test_many_autoscalers_share_the_room(
    store: Store, process: ScalerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_store, "LIMIT", 10_000)
    for number in range(30):
        await process.put(f"web-{number}", f"uid-{number}")
        process.start_pods(*range(100, 150), name=f"web-{number}")
    async with leading(process):
        await asyncio.sleep(1)

    texts = store.texts(NAME)
    assert sum(len(uid) + len(text) for uid, text in texts.items()) <= 10_000
    assert {uid: totals[-1] for uid, totals in stored(store).items()} == {
        f"uid-{number}": 149 for number in range(30)
    }
    assert {len(totals) for totals in stored(store).values()} == {12}


async def test_a_defect_in_one_entry_keeps_no_other_from_being_read(
    store: Store, process: ScalerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.post(config_map({"uid-2": "bad", "uid-1": entry(30)}))

    def breaks(text: str) -> Any:
        return decode_ledger(text) if text != "bad" else 1 // 0

    monkeypatch.setattr(ready_store, "decode_ledger", breaks)
    async with leading(process):
        await asyncio.sleep(1)
        assert "uid-1" in process.bench.owned.inherited
    assert [record.levelname for record in caplog.records] == ["ERROR"]
