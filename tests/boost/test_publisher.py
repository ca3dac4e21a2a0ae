"""Publishing floors: accepted or not published, nothing lost, nothing late; and two hundred terms under a
script of faults.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from adapter.boost.publisher import CHECK, FloorWriter
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes import client
from adapter.kubernetes.write.config_map import WRITTEN_FROM
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling.floor import LABEL, Floor, config_map_name, decode_floors, encode_floor
from tests.boost.configmaps import JSON, Store, lagging
from tests.boost.floorterms import NAMESPACE, Checker, FloorProcess, config_map, end, entry, leading, watching
from tests.support.writing import HandFence

pytestmark = pytest.mark.looptime

NAME = "fastpath-floors-slice-00"


def published(store: Store, name: str = NAME) -> dict[str, int]:
    return {uid: each.replicas for uid, each in decode_floors(store.texts(name)).items()}


# --- publishing ---------------------------------------------------------------------------------------------


async def test_the_first_floor_makes_the_config_map(process: FloorProcess) -> None:
    process.rate = 0.1  # one write: a start that has nothing to write leaves it to the first floor
    async with asyncio.timeout(5), leading(process) as writer:
        assert process.store.objects == {}
        assert process.line.writes == []
        await writer.publish(entry("a", 8))
    metadata = process.store.objects[NAME]["metadata"]
    assert (metadata["namespace"], metadata["labels"]) == (NAMESPACE, {"fastpath.io/floors": "true"})
    assert published(process.store) == {"a": 8}
    assert process.writes("success") == 1
    async with leading(process, number=7) as writer:
        await writer.publish(entry("b", 9))
    assert list(process.store.objects) == [NAME, "fastpath-floors-slice-07"]


async def test_publications_at_one_time_share_a_write(process: FloorProcess) -> None:
    async with leading(process) as writer:
        await asyncio.gather(*(writer.publish(entry(str(number), 8)) for number in range(50)))
        assert process.line.writes == ["POST"]
        process.line.delay = lambda: 0.1
        first = asyncio.create_task(writer.publish(entry("a", 8)))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(writer.publish(entry(f"b{number}", 8))) for number in range(50)]
        await first
        await asyncio.gather(*rest)
        assert process.line.writes == ["POST", "PUT", "PUT"]
    assert len(published(process.store)) == 101
    assert process.line.gets == 1, "what was written needs no reading"


async def test_nothing_of_a_former_leader_lands_after_a_new_one_has_begun(process: FloorProcess) -> None:
    """Whatever a network holds back: it was made from a version that is no more."""
    other = FloorProcess(process.store)
    gate = HandFence()
    async with leading(process, gate) as old:
        await old.publish(entry("a", 8))
        process.line.late = lambda: 3.0
        gate.left = 1.0
        old.want("a", None)
        lost = asyncio.create_task(old.publish(entry("b", 9)))
        await asyncio.sleep(0.5)
        gate.passes = 0
        async with leading(other) as new:
            assert decode_floors(process.store.texts(NAME)) == {"a": entry("a", 8)}
            await asyncio.sleep(5)
            assert published(process.store) == {"a": 8}
            await new.publish(entry("c", 3))
        with pytest.raises(KubernetesError, match="no answer"):
            await lost
    assert published(process.store) == {"a": 8, "c": 3}


async def test_a_start_that_cannot_read_may_be_tried_again(process: FloorProcess) -> None:
    process.store.post(config_map(entry("a", 5)))
    process.store.edit(NAME, lambda document: document["data"].update(b="?"))
    writer = FloorWriter(process.open_term(WriteKind.FLOOR).slot)
    with pytest.raises(
        KubernetesError,
        match=f"the ConfigMap {NAMESPACE}/{NAME} holds an entry that is not a floor .*; delete",
    ):
        await writer.start()
    process.line.cut = True
    with pytest.raises(KubernetesError, match="no answer within 5 s"):
        await writer.start()
    process.line.cut = False
    process.store.edit(NAME, lambda document: document["data"].pop("b"))
    process.line.answer = 500
    with pytest.raises(KubernetesError, match="refused by the test"):
        await writer.start()
    process.line.answer = 0
    assert await writer.start() == {"a": entry("a", 5)}


# --- others write too ---------------------------------------------------------------------------------------


async def test_entries_of_others_stay_and_ours_win(process: FloorProcess) -> None:
    def change(document: JSON) -> None:
        document["metadata"]["labels"]["team"] = "shop"
        document["metadata"]["annotations"]["note"] = "hands off"
        document["binaryData"] = {"x": "AA=="}
        document["data"] |= {"a": encode_floor(entry("a", 1)), "theirs": encode_floor(entry("theirs", 2))}

    async with leading(process) as writer:
        await writer.publish(entry("a", 8))
        process.store.edit(NAME, change)
        await writer.publish(entry("b", 9))
        assert process.line.writes == ["POST", "PUT", "PUT"]
    assert published(process.store) == {"a": 8, "b": 9, "theirs": 2}
    stored = process.store.objects[NAME]
    assert stored["metadata"]["labels"] == {"fastpath.io/floors": "true", "team": "shop"}
    assert stored["metadata"]["annotations"].keys() == {"note", WRITTEN_FROM}
    assert stored["binaryData"] == {"x": "AA=="}


async def test_floors_that_another_client_takes_away_are_restored(process: FloorProcess) -> None:
    async with leading(process) as writer:
        await writer.publish(entry("a", 8))
        process.store.delete(NAME)
        await asyncio.sleep(CHECK + 0.1)
        assert published(process.store) == {"a": 8}
        process.store.delete(NAME)
        await writer.publish(entry("b", 9))
        assert published(process.store) == {"a": 8, "b": 9}
        process.store.edit(NAME, lambda document: document.update(data={}))
        await asyncio.sleep(CHECK + 0.1)
        assert published(process.store) == {"a": 8, "b": 9}
        process.store.edit(NAME, lambda document: document["metadata"].pop("labels"))
        await asyncio.sleep(CHECK + 0.1)
        assert process.store.objects[NAME]["metadata"]["labels"] == {LABEL: "true"}
        writes = len(process.line.writes)
        process.store.edit(NAME, lambda document: document["data"].update(c=encode_floor(entry("c", 1))))
        await asyncio.sleep(10)
        assert len(process.line.writes) == writes, "what is not ours is not fought over"


async def test_a_problem_of_a_slice_ends_with_the_slice(process: FloorProcess) -> None:
    async with leading(process) as writer:
        process.line.answer = 403
        with pytest.raises(KubernetesError):
            await writer.publish(entry("a", 8))
        assert process.problems.active()
    assert process.problems.active() == {}


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 422, 429, 500])
async def test_a_refused_write_leaves_the_former_floors(process: FloorProcess, status: int) -> None:
    async with leading(process) as writer:
        await writer.publish(entry("a", 5))
        process.line.answer = status
        for uid in ("a", "b"):
            with pytest.raises(KubernetesError, match="refused by the test"):
                await writer.publish(entry(uid, 9))
        # of this slice: that another one is published does not end it
        subject = f"{NAMESPACE}/{config_map_name(0)}"
        assert process.problems.active() == {("floor-write", subject): "refused by the test"}
        process.line.answer = 0
        await asyncio.sleep(30)
        assert published(process.store) == {"a": 5}
        await writer.publish(entry("a", 9))
        assert process.problems.active() == {}
    assert published(process.store) == {"a": 9}


@pytest.mark.parametrize("known", [False, True], ids=["without a floor before", "with a floor before"])
@pytest.mark.parametrize("late", [0.0, 2.0, 2.6, 10.0])
async def test_an_unanswered_publication_is_withdrawn(
    process: FloorProcess, late: float, *, known: bool
) -> None:
    """It may be stored, or be stored later: what was there before is restored, so that nothing can come after
    it.
    """
    gate = HandFence()
    gate.left = 1.0
    async with leading(process, gate) as writer:
        if known:
            await writer.publish(entry("a", 5))
        process.line.late = lambda: late
        process.line.deaf = lambda: True
        with pytest.raises(KubernetesError, match="no answer"):
            await writer.publish(entry("a", 9))
        process.line.late = lambda: 0.0
        process.line.deaf = lambda: False
        await asyncio.sleep(15)
        assert published(process.store) == ({"a": 5} if known else {})
        assert process.problems.active() == {}


@pytest.mark.parametrize(
    ("content", "reason"), [(b"<html>", "Decode"), (b"{}", "Decode"), (b"", "Forbidden")]
)
async def test_a_config_map_that_cannot_be_read(process: FloorProcess, content: bytes, reason: str) -> None:
    async def get(_: str) -> client.ResponseBody:
        if not content:
            raise KubernetesError(403, "Forbidden", "no right to get configmaps")
        return client.ResponseBody("text/html", content)

    process.line.get = get  # type: ignore[method-assign,assignment]  # a proxy in between
    with pytest.raises(KubernetesError) as caught:
        await FloorWriter(process.open_term(WriteKind.FLOOR).slot).start()
    assert caught.value.reason == reason


async def test_an_unawaited_floor_is_written_until_it_is_accepted(process: FloorProcess) -> None:
    async with leading(process) as writer:
        await writer.publish(entry("a", 8))
        process.line.answer = 500
        writer.want("a", None)
        await asyncio.sleep(60)
        assert published(process.store) == {"a": 8}
        assert 5 <= len(process.line.writes) <= 15
        start = process.clock.monotonic()
        process.line.answer = 0
        await writer.publish(entry("b", 9))
        assert process.clock.monotonic() - start < 0.1, "a caller does not wait for the pause"
    assert published(process.store) == {"b": 9}


async def test_the_latest_counts(process: FloorProcess) -> None:
    async with leading(process) as writer:
        await writer.publish(entry("a", 3))
        process.line.delay = lambda: 0.1
        first = asyncio.create_task(writer.publish(entry("b", 1)))
        await asyncio.sleep(0.01)
        replaced = asyncio.create_task(writer.publish(entry("a", 4)))
        await asyncio.sleep(0.01)
        latest = asyncio.create_task(writer.publish(entry("a", 5)))
        dropped = asyncio.create_task(writer.publish(entry("c", 5)))
        await asyncio.sleep(0.01)
        writer.want("c", None)
        writer.want("b", None)  # its write is under way
        await asyncio.gather(first, latest)
        for each in (replaced, dropped):
            with pytest.raises(KubernetesError, match="a newer one has replaced it"):
                await each
        await asyncio.sleep(1)
    assert published(process.store) == {"a": 5}


async def test_a_caller_that_is_cancelled_in_time_publishes_nothing(process: FloorProcess) -> None:
    async with leading(process) as writer:
        process.line.delay = lambda: 0.1
        first = asyncio.create_task(writer.publish(entry("a", 1)))
        await asyncio.sleep(0.01)
        gone = asyncio.create_task(writer.publish(entry("b", 1)))
        await asyncio.sleep(0.01)
        gone.cancel()
        await first
        await asyncio.sleep(1)
        assert published(process.store) == {"a": 1}
        under_way = asyncio.create_task(writer.publish(entry("a", 2)))
        await asyncio.sleep(0.15)
        under_way.cancel()
        await asyncio.sleep(1)
        assert published(process.store) == {"a": 2}, (
            "as documented: a caller that is cancelled has to say what it wants"
        )
        writer.want("a", entry("a", 1))
        await asyncio.sleep(1)
    assert published(process.store) == {"a": 1}


def large(uid: str, replicas: int = 5, namespace: str = "shop") -> Floor:
    """Return an entry of which two have room in a ConfigMap, three in none, and of a namespace one."""
    return msgspec.structs.replace(entry(uid, replicas), namespace=namespace, name="x" * 400_000)


async def test_more_than_a_config_map_holds_is_refused(process: FloorProcess) -> None:
    async with leading(process) as writer:
        results = await asyncio.gather(
            *(writer.publish(large(uid, namespace=f"of-{uid}")) for uid in "abc"), return_exceptions=True
        )
        assert results[:2] == [None, None]
        assert isinstance(results[2], KubernetesError)
        assert (results[2].status, results[2].reason) == (0, "TooLarge")
        assert str(results[2]).startswith(f"the ConfigMap {NAMESPACE}/{NAME} would hold more than")
        assert published(process.store) == {"a": 5, "b": 5}
        await writer.publish(large("a", 6, namespace="of-a"))
        writer.want("b", None)
        await writer.publish(large("c", namespace="of-c"))
    assert published(process.store) == {"a": 6, "c": 5}


async def test_a_namespace_with_many_raises_leaves_room_for_others(process: FloorProcess) -> None:
    async with leading(process) as writer:
        results = await asyncio.gather(
            *(writer.publish(large(uid)) for uid in ("a", "b")), return_exceptions=True
        )
        assert [isinstance(each, KubernetesError) for each in results] == [False, True]
        assert str(results[1]).endswith("of the namespace shop")
        await writer.publish(large("v", namespace="victim"))
    assert published(process.store) == {"a": 5, "v": 5}

    async with leading(process) as writer:  # what was published before counts for the next owner too
        with pytest.raises(KubernetesError, match="of the namespace shop"):
            await writer.publish(large("c"))
        writer.want("a", None)
        await writer.publish(large("c"))
    assert published(process.store) == {"c": 5, "v": 5}


# --- the fence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "passes", [0, 1, 2], ids=["when its turn is asked for", "when sent", "at the first byte"]
)
async def test_a_shut_fence_lets_nothing_through(process: FloorProcess, passes: int) -> None:
    gate = HandFence()
    async with leading(process, gate) as writer:
        await writer.publish(entry("a", 5))
        gate.passes = passes
        with pytest.raises(NotLeadingError):
            await writer.publish(entry("a", 9))
        writer.want("a", None)
        await asyncio.sleep(30)
        assert published(process.store) == {"a": 5}
        assert process.line.writes == ["POST"]
        assert process.writes("fenced") >= 1
        gate.passes = None
        await asyncio.sleep(11)
        assert published(process.store) == {}, "a fence that opens again was never lost"


async def test_callers_that_wait_are_told_when_the_term_ends(process: FloorProcess) -> None:
    process.line.delay = lambda: 0.5
    async with leading(process) as writer:
        waiting = [asyncio.create_task(writer.publish(entry("a", 8)))]
        await asyncio.sleep(0.2)
        waiting.append(asyncio.create_task(writer.publish(entry("b", 8))))
        await asyncio.sleep(0.1)
    for each in waiting:
        with pytest.raises(NotLeadingError, match="this process no longer owns the slice"):
            await each
    with pytest.raises(NotLeadingError, match="this process no longer owns the slice"):
        await writer.publish(entry("c", 8))


# --- two hundred terms --------------------------------------------------------------------------------------


class Replicas:
    """Three processes that lead in turn, all of which are asked all the time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = Store()
        self.processes = [FloorProcess(self.store) for _ in range(3)]
        self.checker = Checker()
        self.uids = [f"u{number}" for number in range(12)]
        self.terms = self.published = self.refused = 0
        for each in self.processes:
            each.line.delay = lagging(self.rng)
            each.line.late = lagging(self.rng, 0.0, 0.05, 4.0)
            each.line.deaf = lambda: self.rng.random() < 0.03

    async def lead(self) -> None:
        """Live through a term: adopt, publish and take back, until the fence shuts at any moment."""
        process, gate = self.rng.choice(self.processes), HandFence()
        gate.left = self.rng.uniform(0.5, 2.0)
        term = process.open_term(WriteKind.FLOOR, gate)
        writer, writing = FloorWriter(term.slot), asyncio.create_task(term.outbox.run())
        adopted = await self.adopt(writer)
        for (
            uid,
            each,
        ) in self.held().items():  # what was under way when its predecessor ended may have come true
            assert adopted[uid].replicas >= each.replicas
            assert adopted[uid].until >= each.until
        works = [asyncio.create_task(self.work(writer, uid)) for uid in self.uids]
        await asyncio.sleep(self.rng.uniform(0.5, 4.0))
        gate.passes = self.rng.choice([0, 0, 1, 2])
        if self.rng.random() < 0.5:
            await asyncio.sleep(self.rng.uniform(0, 0.1))
        await end(*works)
        writer.close()
        await term.outbox.drain(term.slot.number)
        await end(writing)
        self.terms += 1

    def held(self) -> dict[str, Floor]:
        return dict(self.checker.held(self.processes[0].clock.wall()))

    async def adopt(self, writer: FloorWriter) -> dict[str, Floor]:
        while True:
            with contextlib.suppress(KubernetesError):
                return dict(await writer.start())
            await asyncio.sleep(0.1)

    async def work(self, writer: FloorWriter, uid: str) -> None:
        clock = self.processes[0].clock
        while True:
            await asyncio.sleep(self.rng.expovariate(1.0))
            held = self.held().get(uid)
            if held is not None and self.rng.random() < 0.4:
                self.checker.release(uid)
                writer.want(uid, None)
                continue
            least = held.replicas if held is not None else 0
            made = entry(
                uid, least + 1 + self.rng.randrange(8), lasts=self.rng.uniform(2, 60), since=clock.wall()
            )
            if held is not None and made.until < held.until:
                continue
            try:
                await writer.publish(made)
            except (KubernetesError, NotLeadingError):
                self.refused += 1
            else:
                self.published += 1
                self.checker.hold(made, clock.wall())

    async def ask(self, process: FloorProcess) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(8.0))
            await self.checker.ask(process, self.rng.choice(self.uids))

    async def disturb(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(0.12))
            line = self.rng.choice(self.processes).line
            line.cut = True
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))
            line.cut = False


@contextlib.asynccontextmanager
async def replicas(seed: int) -> AsyncIterator[Replicas]:
    them = Replicas(seed)
    async with watching(*them.processes):
        await asyncio.sleep(1)
        tasks = [asyncio.create_task(them.disturb())]
        tasks += [asyncio.create_task(them.ask(each)) for each in them.processes]
        try:
            yield them
        finally:
            await end(*tasks)
            for each in them.processes:
                each.line.cut = False
                await end(*(task for task in each.line.under_way))  # type: ignore[arg-type]  # what they return is theirs


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
async def test_through_two_hundred_terms_no_old_0_is_answered(seed: int) -> None:
    async with replicas(seed) as them:
        while them.terms < 50:
            await them.lead()
    assert them.checker.wrong == []
    assert them.published > 200
    assert them.refused > 20
    assert them.checker.floors > 500
    assert them.checker.zeros > 200  # a story has 290 to 540
    assert them.checker.errors < (them.checker.floors + them.checker.zeros) / 4


async def test_a_write_that_ends_in_a_defect_is_repeated(
    process: FloorProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with leading(process) as writer:
        await writer.publish(entry("a", 8))
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_merge", lambda _: 1 // 0)
            writer.want("a", entry("a", 7))
            with pytest.raises(KubernetesError, match="an unexpected error: see the log"):
                await writer.publish(entry("b", 9))
            await asyncio.sleep(5)
        assert published(process.store) == {"a": 8}
        await asyncio.sleep(15)
        assert published(process.store) == {"a": 7}, "what was wanted is published, the refused raise is not"
        await writer.publish(entry("b", 9))
    assert published(process.store) == {"a": 7, "b": 9}
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "unexpected error while publishing floors"
    ]
