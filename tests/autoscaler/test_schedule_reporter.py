"""Statuses of schedules: written when they change, by the owner of their slice, and again when refused."""

import asyncio
import functools
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.schedules.reporter import RETRY, ScheduleReporter
from adapter.bounds.timeline import NO_BOUNDS, NO_LEAD, Bounds, Lead
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.schedules import WatchedSchedule, keep_schedule
from adapter.kubernetes.write.outbox import Outbox
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.clock import Clock
from adapter.model.start_ups import StartUps
from adapter.model.timestamps import SECOND
from adapter.scrape.schedule import FairTurns
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import LoopClock, TickingClock
from tests.support.controller import fpa
from tests.support.scaling import NOW
from tests.support.schedules import document
from tests.support.waiting import running
from tests.support.writing import HandWriter, open_outbox

pytestmark = pytest.mark.looptime

LUNCH = {"name": "lunch", "from": "12:30", "to": "14:00", "minReplicas": 5}  # NOW is 13:00 in Berlin
OWN = [{"kind": "FastPathAutoscaler", "name": "web"}]
SLICE = slices.slice_of("shop")
BAD, GOOD, LATE = (
    next(name for number in itertools.count() if slices.slice_of(name := f"{word}-{number}") == SLICE)
    for word in ("bad", "good", "late")
)
"""Namespaces in the slice of shop."""

PATH = "/apis/fastpath.io/v1alpha1/namespaces/shop/fastpathschedules/office/status"


class HandCache:
    def __init__(self) -> None:
        self.synced = True
        self.found: list[WatchedSchedule] = []

    def __iter__(self) -> Iterator[WatchedSchedule]:
        return iter(self.found)

    def put(self, *windows: dict[str, Any], generation: int = 1, **spec: Any) -> None:
        tree = document(*windows, **{"targets": OWN} | spec)
        tree["metadata"] |= {"uid": "uid-1", "generation": generation}
        self.found = [keep_schedule(msgspec.Raw(msgspec.json.encode(tree)))]


class ReporterAtWork:
    def __init__(self, number: int = SLICE, clock: Clock | None = None) -> None:
        self.cache, self.writer = HandCache(), HandWriter()
        self.clock = LoopClock()
        book: Any = SimpleNamespace(cache=self.cache, turns=FairTurns(clock or self.clock))
        self.problems = ProblemLog(Monitoring(), self.clock)
        self.time: int = NOW
        self.own: FastPathAutoscaler | None = fpa()
        self.state: Any = SimpleNamespace(
            spec=SimpleNamespace(violations=()),
            ready_times=None,
            lead=NO_LEAD,
            bounds=SimpleNamespace(now=NO_BOUNDS),
        )
        self.book = book
        self.controller: Any = SimpleNamespace(
            loop=SimpleNamespace(clock=SimpleNamespace(time_of_day=lambda: self.time)),
            find=lambda _: self.state,
            find_slice=lambda namespace: number if slices.slice_of(namespace) == number else None,
        )

    def _find(self, key: Key) -> FastPathAutoscaler | None:
        assert key.name == "web"
        return self.own

    @functools.cached_property
    def _opened(self) -> tuple[Outbox, ScheduleReporter]:
        """What reads the time of the loop, which begins with the test."""
        outbox = open_outbox(self.writer, self.problems, self.clock)
        reporter = ScheduleReporter(outbox, self.book, self.problems, lambda *_: None, self._find)
        return outbox, reporter

    async def _write(self) -> None:
        outbox, reporter = self._opened
        self.writer.sent.clear()
        await reporter.submit_all(self.controller)
        async with running(outbox.run()):
            await asyncio.sleep(0.1)

    async def pass_by(self) -> list[str]:
        """Write what has changed, and return the namespaces whose statuses were sent."""
        await self._write()
        return [sent.path.split("/")[5] for sent in self.writer.sent]

    async def write(self) -> list[dict[str, Any]]:
        """Write what has changed, and return the statuses that were sent."""
        await self._write()
        assert all((sent.method, sent.path) == ("PATCH", PATH) for sent in self.writer.sent)
        assert all(sent.document["metadata"] == {"uid": "uid-1"} for sent in self.writer.sent)
        return [sent.document["status"] for sent in self.writer.sent]


@pytest.fixture
def bench() -> ReporterAtWork:
    return ReporterAtWork()


async def test_a_status_is_written_when_it_changes(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH)
    (first,) = await bench.write()
    assert (first["active"], first["minReplicas"]) == ("lunch", 5)
    assert first["nextBoundary"] == {"time": "2026-11-20T13:00:00Z", "window": "lunch", "edge": "end"}
    assert await bench.write() == []
    bench.time += 3600 * SECOND
    (after,) = await bench.write()
    assert (after["active"], after["minReplicas"]) == ("", None)
    assert after["nextBoundary"]["edge"] == "begin"
    bench.cache.put(LUNCH | {"minReplicas": 6}, generation=2)
    assert [each["observedGeneration"] for each in await bench.write()] == [2]


async def test_what_the_target_is_like(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH)
    bench.own = None
    assert [each["conditions"][0]["reason"] for each in await bench.write()] == ["TargetNotFound"]
    bench.own = fpa(mode="Paused")
    assert [each["conditions"][0]["reason"] for each in await bench.write()] == ["Paused"]
    bench.own, bench.state.spec.violations = fpa(), ["spec.maxReplicas: must be greater than 0"]
    (invalid,) = await bench.write()
    assert invalid["targets"][0]["message"] == "spec.maxReplicas: must be greater than 0"
    bench.state.spec.violations = ()
    bench.state.bounds.now = Bounds(excess="12 FastPathSchedules select it")
    (many,) = await bench.write()
    assert (many["targets"][0]["reason"], many["targets"][0]["applied"]) == ("TooManyWindows", False)
    assert many["conditions"][0]["message"] == "FastPathAutoscaler/web: 12 FastPathSchedules select it"
    bench.state = None  # another process decides it
    assert [each["conditions"][0]["status"] for each in await bench.write()] == ["True"]


async def test_the_learned_lead_is_shown(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH, ready="ByStart")
    (first,) = await bench.write()
    assert "leadSeconds" not in first["targets"][0]
    start_ups = StartUps.of([40] * 50 + [50] * 49)  # 10 s more for each tenfold of pods
    bench.state.ready_times, bench.state.lead = object(), Lead(start_ups, lowest=1)
    bench.cache.put(LUNCH | {"minReplicas": 11}, ready="ByStart")
    (known,) = await bench.write()
    assert known["targets"][0]["leadSeconds"] == 60


async def test_one_that_cannot_be_used_is_told_so(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH, timeZone="Nowhere")
    (shown,) = await bench.write()
    assert (shown["conditions"][0]["status"], shown["conditions"][0]["reason"]) == ("False", "Invalid")
    assert await bench.write() == []


async def test_the_status_that_is_stored_is_not_written_again(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH)
    (first,) = await bench.write()
    other = ReporterAtWork()
    (found,) = bench.cache.found
    other.cache.found = [msgspec.structs.replace(found, status=msgspec.json.encode(first))]
    assert await other.write() == []


async def test_a_refused_write_is_repeated(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH)
    bench.writer.failure = KubernetesError(403, "Forbidden", "no")
    assert await bench.write() == []
    assert list(bench.problems.active()) == [("schedule-status", "shop/office")]
    bench.writer.failure = None
    assert await bench.write() == []
    await asyncio.sleep(RETRY)
    assert len(await bench.write()) == 1
    assert bench.problems.active() == {}


async def test_who_leads_no_more_or_is_gone_is_no_problem(bench: ReporterAtWork) -> None:
    bench.cache.put(LUNCH)
    for error in (NotLeadingError("over"), KubernetesError(404, "NotFound", "gone")):
        bench.writer.failure = error
        assert await bench.write() == []
        assert bench.problems.active() == {}


@pytest.mark.parametrize("number", [SLICE, SLICE + 1])
async def test_nothing_is_written_for_other_slices_or_before_the_first_list(number: int) -> None:
    bench = ReporterAtWork(number)
    bench.cache.put(LUNCH)
    bench.cache.synced = False
    assert await bench.write() == []
    bench.cache.synced = True
    assert len(await bench.write()) == (number == SLICE)


def many(namespace: str, count: int, *windows: dict[str, Any]) -> list[WatchedSchedule]:
    tree = document(*windows, targets=OWN)
    found = []
    for number in range(count):
        tree["metadata"] = {
            "name": f"office-{number}",
            "namespace": namespace,
            "uid": f"{namespace}-{number}",
        }
        found.append(keep_schedule(msgspec.Raw(msgspec.json.encode(tree))))
    return found


async def test_one_that_changes_while_it_is_looked_at() -> None:
    """What is computed for its former windows is dropped."""
    bench = ReporterAtWork(clock=TickingClock(1.0))
    bench.cache.put(*[LUNCH | {"name": f"window-{number}"} for number in range(100)])
    assert await bench.write() == []
    bench.cache.put(LUNCH | {"minReplicas": 6}, generation=2)
    written: list[dict[str, Any]] = []
    while not written:
        written = await bench.write()
    assert (written[0]["minReplicas"], written[0]["observedGeneration"]) == (6, 2)
    bench.cache.put(*[LUNCH | {"name": f"window-{number}"} for number in range(100)], generation=3)
    assert await bench.write() == []
    bench.cache.found = []
    for _ in range(300):
        assert await bench.write() == []


@pytest.mark.parametrize("broken", ["_follow_one", "_describe", "_find_target"])
async def test_a_defect_in_one_status_keeps_no_other_from_being_written(
    bench: ReporterAtWork, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    works = getattr(ScheduleReporter, broken)

    def breaks(reporter: ScheduleReporter, about: Any, *rest: Any) -> Any:
        if BAD in {about, getattr(getattr(about, "watched", about), "namespace", "")}:
            raise ZeroDivisionError
        return works(reporter, about, *rest)

    monkeypatch.setattr(ScheduleReporter, broken, breaks)
    bench.cache.found = [*many(BAD, 2, LUNCH), *many(GOOD, 2, LUNCH)]
    assert await bench.pass_by() == [GOOD] * 2
    bench.cache.found += many(LATE, 1, LUNCH)
    assert await bench.pass_by() == [LATE]
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2, "once for each schedule"
