"""Schedules by autoscaler, from a cluster: they come, change and go, and boundaries wake the loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.schedules.book import ScheduleBook
from adapter.bounds.schedule import windows
from adapter.bounds.timeline import NO_BOUNDS, NO_LEAD, Bounds, Lead, SpansOfDay
from adapter.errors import NotSyncedError
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.kinds import FASTPATH_SCHEDULES
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import reflecting
from tests.support.scaling import NOW
from tests.support.schedules import document
from tests.support.waiting import until

HPA, OWN = Key("shop", "web", is_native=True), Key("shop", "api")
TARGETS = [{"kind": each.kind, "name": each.name} for each in (HPA, OWN)]
DAY = {"name": "day", "from": "08:00", "to": "18:00", "minReplicas": 5, "maxReplicas": 9}
DAY_LONG = 24 * 3600 * SECOND
CAP = {"name": "cap", "from": "08:00", "to": "18:00", "maxReplicas": 7}


class BookListener:
    """What a book tells, and the time of a test."""

    def __init__(self) -> None:
        self.time: int = NOW
        self.touched: list[Key] = []
        self.namespaces: set[str] = set()

    def note_namespace(self, namespace: str) -> None:
        self.namespaces.add(namespace)

    def note(self, keys: Iterable[Key]) -> None:
        self.touched += sorted(keys)


class SchedulesAtWork:
    """A book of the schedules of a cluster."""

    def __init__(self, cluster: Cluster, book: ScheduleBook, problems: ProblemLog, controller: Any) -> None:
        self.cluster, self.book, self.problems = cluster, book, problems
        self.controller = controller

    def create(self, *windows: dict[str, Any], name: str = "office", **spec: Any) -> None:
        made = document(*windows, **{"targets": TARGETS} | spec)
        made["metadata"]["name"] = name
        self.cluster.create(made)

    def bounds(self, key: Key, lead: Lead = NO_LEAD) -> Bounds | None:
        """Return the bounds, None also while they are being computed."""
        with contextlib.suppress(NotSyncedError):
            found, _ = self.book.bounds_of(key, self.controller.time, lead)
            return None if found == NO_BOUNDS else found
        return None

    def is_computed(self, key: Key = OWN) -> bool:
        with contextlib.suppress(NotSyncedError):
            return bool(self.book.applied(key)) and bool(
                self.book.bounds_of(key, self.controller.time, NO_LEAD)
            )
        return False

    def active(self, key: Key = OWN) -> tuple[str, ...]:
        found = self.bounds(key)
        return () if found is None else found.windows


@contextlib.asynccontextmanager
async def watching(cluster: Cluster) -> AsyncIterator[SchedulesAtWork]:
    async with reflecting(cluster.url) as context:
        controller: Any = BookListener()
        book = ScheduleBook(context, context.problems, controller)
        task = asyncio.create_task(book.cache.run(), name="schedules")
        try:
            yield SchedulesAtWork(cluster, book, context.problems, controller)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def bench() -> AsyncIterator[SchedulesAtWork]:
    async with Cluster() as cluster:
        cluster.create(FASTPATH_SCHEDULES)
        async with watching(cluster) as made:
            await until(lambda: made.book.synced)
            yield made


async def test_a_cluster_without_the_kind_has_no_schedules() -> None:
    async with Cluster() as cluster, watching(cluster) as made:
        await until(lambda: made.book.synced)
        assert made.bounds(OWN) is None


async def test_schedules_come_change_and_go(bench: SchedulesAtWork) -> None:
    bench.create(DAY)
    await until(lambda: bench.active() == ("shop/office day",))
    bench.create(CAP, name="limit")
    await until(lambda: bench.active() == ("shop/limit cap", "shop/office day"))
    found = bench.bounds(OWN)
    assert found is not None
    assert (found.min, found.max) == (5, 7)
    assert bench.book.applied(HPA)
    assert [applied.metadata.name for applied in bench.book.applied(OWN)] == ["limit", "office"]
    assert bench.book.applied(Key("shop", "other")) == ()

    bench.cluster.patch("fastpathschedule", "limit", {"spec": {"targets": TARGETS[:1]}}, "shop")
    await until(lambda: bench.active() == ("shop/office day",))
    bench.cluster.delete("fastpathschedule", "office", "shop")
    await until(lambda: not bench.book.applied(OWN))
    assert bench.book.bounds_of(OWN, NOW, NO_LEAD) == (NO_BOUNDS, None)
    bench.cluster.delete("fastpathschedule", "limit", "shop")
    await until(lambda: not bench.book.applied(HPA))


async def test_an_hpa_has_no_ceiling(bench: SchedulesAtWork) -> None:
    bench.create(DAY)
    bench.create(CAP, name="limit", targets=[{"kind": HPA.kind, "name": "other"}])
    await until(lambda: bench.bounds(HPA) is not None)
    found = bench.bounds(HPA)
    assert found is not None
    assert (found.min, found.max) == (5, None)
    assert bench.bounds(HPA._replace(name="other")) is None


async def test_one_that_cannot_be_used_is_reported_and_stays_as_it_was(bench: SchedulesAtWork) -> None:
    bench.create(DAY)
    await until(lambda: bench.active() == ("shop/office day",))
    bench.cluster.patch("fastpathschedule", "office", {"spec": {"timeZone": "Nowhere"}}, "shop")
    await until(lambda: bench.problems.active() != {})
    assert bench.active() == ("shop/office day",)
    assert "spec.timeZone: Nowhere" in bench.problems.active()["schedule", "shop/office"]
    bench.cluster.patch("fastpathschedule", "office", {"spec": {"timeZone": "Asia/Tokyo"}}, "shop")
    await until(lambda: bench.active() == ())
    assert bench.problems.active() == {}


async def test_one_that_cannot_be_read_costs_no_other(
    bench: SchedulesAtWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create(DAY, name="bad")
    await until(lambda: bench.active() == ("shop/bad day",))
    begins_a_day = windows.begins_a_day

    def failing(schedule: Any) -> int:
        if len(schedule.windows) == 2:
            raise RecursionError
        return begins_a_day(schedule)

    monkeypatch.setattr(windows, "begins_a_day", failing)
    bench.cluster.patch("fastpathschedule", "bad", {"spec": {"windows": [DAY, CAP]}}, "shop")
    bench.create(CAP, name="good")
    await until(lambda: bench.active() == ("shop/bad day", "shop/good cap"))
    await until(lambda: ("schedule", "shop/bad") in bench.problems.active())
    assert "RecursionError" in bench.problems.active()["schedule", "shop/bad"]


async def test_one_that_begins_too_often_is_refused(bench: SchedulesAtWork) -> None:
    """All autoscalers share the loop that evaluates it."""
    often = {"cron": "*/2 * * * *", "for": "1m", "minReplicas": 2}
    bench.create(*[often] * 3)
    await until(lambda: bench.problems.active() != {})
    assert bench.problems.active()["schedule", "shop/office"] == (
        "spec.windows: 2160: expected windows that begin at most 2000 times a day together; each begin counts"
    )
    bench.create(*[often] * 2, DAY, name="less")
    await until(lambda: bench.bounds(OWN) is not None)


async def test_a_look_ahead_computes_nothing_and_delays_no_decision(bench: SchedulesAtWork) -> None:
    bench.create({"name": "noon", "from": "12:30", "to": "12:45", "minReplicas": 5, "maxReplicas": 9})
    await until(bench.is_computed)
    now = NOW + DAY_LONG - 75 * 60 * SECOND  # the spans of the day end after the window that is ahead

    (begin, within), (end, after) = bench.book.bounds_ahead(OWN, now, now + 61 * 60 * SECOND, NO_LEAD)

    assert [(begin - now) // SECOND, (end - now) // SECOND] == [45 * 60, 60 * 60]
    assert ((within.min, within.max), after) == ((5, 9), NO_BOUNDS)
    assert bench.book._renewals == {}
    assert bench.bounds(OWN) is None
    assert bench.book.bounds_ahead(HPA, now, begin + SECOND, NO_LEAD)[0][1].max is None
    assert bench.book.bounds_ahead(OWN, now, NOW + 3 * DAY_LONG, NO_LEAD)[-1][0] <= NOW + DAY_LONG
    assert bench.book.bounds_ahead(Key("shop", "none"), now, now + DAY_LONG, NO_LEAD) == ()


async def test_at_most_32_changes_are_ahead(bench: SchedulesAtWork) -> None:
    bench.create({"cron": "*/2 * * * *", "for": "1m", "minReplicas": 2})
    await until(bench.is_computed)
    assert len(bench.book.bounds_ahead(OWN, NOW, NOW + DAY_LONG, NO_LEAD)) == 32


async def test_changes_wake_the_loop(bench: SchedulesAtWork) -> None:
    controller = bench.controller
    bench.create(DAY)
    await until(lambda: controller.touched == [OWN, HPA])
    assert controller.namespaces == {"shop"}
    assert bench.bounds(OWN) is None  # being computed
    await until(lambda: controller.touched == 2 * [OWN, HPA])
    assert bench.active() == ("shop/office day",)
    bench.cluster.delete("fastpathschedule", "office", "shop")
    await until(lambda: controller.touched == 3 * [OWN, HPA])


async def test_a_defect_in_the_spans_of_one_is_logged_once(
    bench: SchedulesAtWork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renew = SpansOfDay.renew

    def breaks(part: SpansOfDay, instant: int) -> Any:
        return 1 // 0 if part.schedule.name == "shop/bad" else renew(part, instant)

    monkeypatch.setattr(SpansOfDay, "renew", breaks)
    bench.create(DAY, name="bad", targets=TARGETS[:1])
    bench.create(DAY, targets=TARGETS[1:])
    await until(lambda: bench.active() == ("shop/office day",))
    for _ in range(3):
        assert bench.bounds(HPA) is None
        await asyncio.sleep(0.01)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
