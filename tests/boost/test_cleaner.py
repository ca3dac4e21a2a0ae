"""What versions without slices have left behind: served until it has ended, then deleted, and never more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.boost import publisher
from adapter.boost.publisher import CLEANUP_PROBLEM, FloorCleaner
from adapter.kubernetes.write.writer import Writer, WriteRateLimiter
from adapter.model.autoscaling.floor import Demotion, Floor, encode_floor
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.configmaps import Store
from tests.support.floorterms import FloorProcess, config_map, watching
from tests.support.writing import Gate

pytestmark = pytest.mark.looptime


class Leftovers:
    """A store with what former versions have left, and a process that owns the first slice and sees it."""

    def __init__(self) -> None:
        self.store = Store()
        self.process = FloorProcess(self.store)
        self.gate = Gate()
        clock, monitoring = self.process.clock, self.process.monitoring
        client: Any = self.process.line  # all it calls
        writer = Writer(client, self.gate, WriteRateLimiter(1000.0, clock, monitoring), clock, monitoring)
        self.cleaner = FloorCleaner(writer, self.process.view, clock, self.process.faults)

    def entry(self, replicas: int = 0, seconds: float = 0.0, **fields: object) -> Floor:
        until = FineInstant(round((self.process.clock.wall() + seconds) * SECOND))
        entry = Floor("shop", "web", "uid", replicas, until)
        return entry if not fields else Floor("shop", "web", "uid", replicas, until, **fields)  # type: ignore[arg-type]  # by name

    def put(self, name: str, *entries: Floor) -> None:
        data = {f"uid-{number}": encode_floor(entry) for number, entry in enumerate(entries)}
        self.store.post(config_map(name=name) | {"data": data})

    @property
    def names(self) -> list[str]:
        return sorted(self.store.objects)


@asynccontextmanager
async def placed() -> AsyncIterator[Leftovers]:
    made = Leftovers()
    async with watching(made.process):
        await asyncio.sleep(0.1)
        yield made


async def test_only_ended_config_maps_are_deleted() -> None:
    async with placed() as place:
        place.put("fastpath-floors", place.entry(5, -1))
        place.put("fastpath-floors-1-of-3")
        place.put("fastpath-floors-2-of-3", place.entry(5, -1), place.entry(7, 300))
        demoted = Demotion(FineInstant(round((place.process.clock.wall() + 300) * SECOND)))
        place.put("fastpath-floors-3-of-3", place.entry(demoted=demoted))
        place.put("fastpath-floors-slice-00", place.entry(5, -1))
        place.put("fastpath-floors-slice-63")
        place.put("fastpath-floors-of-mine")
        task = asyncio.create_task(place.cleaner.run())

        await asyncio.sleep(publisher.CLEAN + 1)
        others = ["fastpath-floors-of-mine", "fastpath-floors-slice-00", "fastpath-floors-slice-63"]
        assert place.names == ["fastpath-floors-2-of-3", "fastpath-floors-3-of-3", *others]
        await asyncio.sleep(300)
        assert place.names == others
        assert place.process.line.writes == ["DELETE"] * 4
        assert place.process.faults.active() == {}
        task.cancel()
        await asyncio.wait([task])


async def test_a_floor_by_a_clock_that_was_ahead_is_over_after_ten_minutes() -> None:
    async with placed() as place:
        place.put("fastpath-floors-2-of-3", place.entry(5, 3 * 3600))
        await place.cleaner.clean()
        await asyncio.sleep(599)
        await place.cleaner.clean()
        assert place.names == ["fastpath-floors-2-of-3"]

        await asyncio.sleep(2)
        await place.cleaner.clean()
        assert place.names == []


async def test_a_config_map_written_since_stays() -> None:
    async with placed() as place:
        place.put("fastpath-floors-1-of-3", place.entry(5, -1))
        text = encode_floor(place.entry(9, 300))

        def publish() -> float:
            place.store.edit("fastpath-floors-1-of-3", lambda document: document["data"].update(uid=text))
            return 0.0

        place.process.line.late = publish  # while the DELETE is under way
        await place.cleaner.clean()
        assert place.process.line.writes == ["DELETE"]
        assert place.names == ["fastpath-floors-1-of-3"]
        assert place.process.faults.active() == {}


async def test_without_the_right_it_is_said_once_and_what_to_do() -> None:
    async with placed() as place:
        place.put("fastpath-floors-1-of-3", place.entry(5, -1))
        place.process.line.answer = 403
        await asyncio.sleep(0.1)
        for _ in range(2):
            await place.cleaner.clean()
        (text,) = place.process.faults.active().values()
        assert text.endswith("or run: kubectl delete configmap fastpath-floors-1-of-3 -n fastpath")

        place.process.line.answer = 500
        await place.cleaner.clean()
        (text,) = place.process.faults.active().values()
        assert text.endswith("refused by the test")

        place.process.line.answer = 0
        await place.cleaner.clean()
        assert (place.names, place.process.faults.active()) == ([], {})


@pytest.mark.parametrize("shut", [True, False], ids=["the fence is shut", "floors cannot be read"])
async def test_it_waits_for_the_next_look(*, shut: bool) -> None:
    async with placed() as place:
        place.put("fastpath-floors-1-of-3", place.entry(5, -1))
        await asyncio.sleep(0.1)
        if shut:
            place.gate.passes = 0
        else:
            place.process.line.cut = True
            await asyncio.sleep(30)
        await place.cleaner.clean()
        assert place.names == ["fastpath-floors-1-of-3"]
        assert (CLEANUP_PROBLEM, "") not in place.process.faults.active()
