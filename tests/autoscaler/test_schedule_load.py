"""Schedules that one tenant fills to their limits: no step holds the loop, and others have their bounds."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.schedules import book as books
from adapter.autoscaler.schedules import status
from adapter.autoscaler.schedules.book import ScheduleBook
from adapter.autoscaler.schedules.status import Lookout, ScheduleStatus, TargetState
from adapter.bounds.timeline import NO_BOUNDS, NO_LEAD, Bounds, BoundsTimeline, Lead, SpansOfDay
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.schedules import keep_schedule
from adapter.model.start_ups import StartUps
from adapter.model.timestamps import SECOND
from tests.bounds.schedule_reading import utc
from tests.kubernetes.apiclient import unconnected
from tests.support import steps
from tests.support.clock import ShiftedClock
from tests.support.schedules import document
from tests.support.waiting import until

VICTIM = Key("quiet", "api")
MORNING = utc("2026-10-23T06:00:00")  # two days before clocks are set back in Europe
LONGEST = 0.1
"""The longest step that passes, in seconds of processor time; without limits steps take seconds."""


class FollowingAutoscalers:
    """Autoscalers that follow the bounds of a book when they are touched, and at boundaries."""

    def __init__(self, book: ScheduleBook, keys: Iterable[Key]) -> None:
        self.time: int = MORNING * SECOND
        self._book = book
        self.states: dict[Key, Any] = {key: SimpleNamespace(bounds=NO_BOUNDS, boundary=None) for key in keys}
        self.known: set[Key] = set()
        """Those whose bounds were known when they were decided last."""

    def move(self, seconds: int) -> None:
        """Let time pass, or set the clock back, with which all are decided."""
        self.time += seconds * SECOND
        for key, state in self.states.items():
            if seconds < 0 or (state.boundary is not None and state.boundary <= self.time):
                self.touch(key)

    def touch(self, key: Key) -> None:
        """Decide an autoscaler in a step of its own."""
        asyncio.get_running_loop().call_soon(self._decide, key)

    def note_namespace(self, namespace: str) -> None: ...

    def answered(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.touch(key)

    def _decide(self, key: Key) -> None:
        state = self.states.get(key)
        if state is None:
            return
        self.known.discard(key)
        state.boundary = None
        with contextlib.suppress(NotSyncedError):
            state.bounds, state.boundary = self._book.bounds_of(key, self.time, NO_LEAD)
            self.known.add(key)


class Forwarded:
    """Tells what changes at once."""

    to: FollowingAutoscalers | None = None

    def note_namespace(self, namespace: str) -> None:
        """Note nothing."""

    def note(self, keys: Iterable[Key]) -> None:
        if self.to is not None:
            self.to.answered(keys)


class SchedulesUnderLoad:
    """A book that follows a controller, and schedules that come to it."""

    def __init__(self, keys: Iterable[Key]) -> None:
        context = unconnected(ShiftedClock())
        self.changes = Forwarded()
        changes: Any = self.changes
        self.book = ScheduleBook(context, context.problems, changes)
        self.controller = FollowingAutoscalers(self.book, keys)
        self.store = self.book.cache
        self.store.synced = True
        for _ in self.store.listed(""):
            pass

    def put(self, name: str, *windows: dict[str, Any], namespace: str = "noisy", **spec: Any) -> None:
        self.store.put(keep_schedule(raw(name, *windows, namespace=namespace, **spec)))

    def delete(self, name: str, namespace: str = "noisy") -> None:
        self.store.remove(namespace, name)

    def bounds(self, key: Key) -> Bounds | None:
        found: Bounds = self.controller.states[key].bounds
        return None if found == NO_BOUNDS else found

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        self.changes.to = self.controller
        yield
        self.changes.to = None


def raw(name: str, *windows: dict[str, Any], namespace: str = "noisy", **spec: Any) -> msgspec.Raw:
    tree = document(*windows, **spec)
    tree["metadata"] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return msgspec.Raw(msgspec.json.encode(tree))


def targets(*names: str) -> list[dict[str, str]]:
    return [{"kind": "FastPathAutoscaler", "name": name} for name in names]


def put_victim(bench: SchedulesUnderLoad) -> None:
    """Put the window of the other tenant, which begins in a minute."""
    window = {"cron": "1 6 * * *", "for": "1h", "minReplicas": 7}
    bench.put("office", window, namespace="quiet", zone="UTC", targets=targets("api"))


async def test_many_schedules_for_many_autoscalers() -> None:
    """100 schedules for all of 100 autoscalers, each with 100 windows that begin 12 times a day."""
    names = [f"web-{number}" for number in range(100)]
    noisy = [Key("noisy", name) for name in names]
    bench = SchedulesUnderLoad([VICTIM, *noisy])
    listed = [
        {"cron": f"{number % 60} */2 * * *", "for": "59m", "minReplicas": number} for number in range(1, 101)
    ]
    spec: dict[str, Any] = {"zone": "UTC", "targets": targets(*names)}
    found = [keep_schedule(raw(f"many-{number:03}", *listed, **spec)) for number in range(100)]
    with bench.following(), steps.measured() as taken:
        for each in found:
            bench.store.put(each)
            await asyncio.sleep(0)
        put_victim(bench)
        await until(lambda: VICTIM in bench.controller.known)
        bench.controller.move(60)
        await until(lambda: bench.bounds(VICTIM) is not None)
        await until(lambda: bench.controller.known >= set(noisy))
        bench.controller.move(3600)
        await until(lambda: bench.bounds(VICTIM) is None)
        await until(lambda: all(_excess(bench.bounds(key))[:4] == "100 " for key in noisy))
    assert taken.longest < LONGEST
    assert _excess(bench.bounds(noisy[0])) == (
        "100 FastPathSchedules with 10000 windows that begin 120000 times a day select it: expected at most "
        "500 windows that begin at most 5000 times; by name, noisy/many-004 and those after it do not "
        "count, and it is not scaled down"
    )


def _excess(bounds: Bounds | None) -> str:
    return "" if bounds is None else bounds.excess


async def test_schedules_that_are_too_many_count_again_when_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first by name count, whichever came first."""
    monkeypatch.setattr(books, "MOST_WINDOWS", 3)
    monkeypatch.setattr(books, "MOST_BEGINS", 200)
    key, native = Key("noisy", "web"), Key("noisy", "web", is_native=True)
    day = {"from": "00:00", "to": "24:00"}
    both = [{"kind": each.kind, "name": "web"} for each in (key, native)]
    bench = SchedulesUnderLoad([key, native])

    def shown(of: Key = key) -> tuple[int | None, int | None, bool]:
        bounds = bench.bounds(of)
        assert bounds is not None
        return bounds.min, bounds.max, bool(bounds.excess)

    with bench.following():
        bench.put("c", day | {"minReplicas": 9}, targets=both)
        bench.put("b", day | {"minReplicas": 3, "maxReplicas": 8}, day, targets=both)
        await until(lambda: bench.bounds(key) is not None and shown() == (9, 9, False))
        bench.put("a", day | {"maxReplicas": 4}, targets=both)
        await until(lambda: shown() == (3, 4, True))
        assert shown(native) == (3, None, True)
        bench.delete("b")
        await until(lambda: shown() == (9, 9, False))
        bench.put("b", {"cron": "*/5 * * * *", "for": "1m", "maxReplicas": 2}, targets=both)
        await until(lambda: shown() == (None, 4, True))
        assert shown(native) == (None, None, True)
        bench.delete("b")
        await until(lambda: shown() == (9, 9, False))
        for name in "ac":
            bench.delete(name)
        await until(lambda: bench.bounds(key) is None)
        assert bench.book.applied(key) == ()


async def test_spans_are_computed_for_another_day_before_they_end() -> None:
    """Over many days, at a step of the clock back, and forward over a day."""
    bench = SchedulesUnderLoad([VICTIM])
    with bench.following():
        put_victim(bench)
        await until(lambda: VICTIM in bench.controller.known)
        for hours in [*[1] * 50, -30, 30, -1, 100, 1]:
            bench.controller.move(hours * 3600)
            is_active = (bench.controller.time // SECOND // 60) % 1440 in range(361, 421)
            await until(lambda: (bench.bounds(VICTIM) is not None) is is_active)  # noqa: B023 - awaited here


# -- any document that the API server accepts ----------------------------------------------------------------

ZONES = {
    "Europe/Berlin": "2026-10-25",
    "America/New_York": "2026-11-01",
    "Australia/Lord_Howe": "2026-10-04",
    "Africa/El_Aaiun": "2028-01-23",
    "Pacific/Apia": "2011-12-30",
    "UTC": "2026-06-01",
}
"""Zones, and a day on which their clock is set."""

MINUTES = st.sampled_from(["*", "*/2", "*/7", "0", "0,59", "1-58/3", ",".join(map(str, range(0, 60, 2)))])
HOURS = st.sampled_from(["*", "*/2", "0", "1-4", "8-18", ",".join(map(str, range(24)))])
DAYS = st.sampled_from(["*", "*/2", "28-31", "L", "1"])
WEEKDAYS = st.sampled_from(["*", "1-5", "5L", "1#2", "0,6"])
LENGTHS = st.sampled_from(["1s", "59s", "60s", "61s", "59m", "1h", "25h", "744h"])
CRONS = st.builds(
    lambda minute, hour, day, weekday, length: {"cron": f"{minute} {hour} {day} * {weekday}", "for": length},
    *(MINUTES, HOURS, DAYS, WEEKDAYS, LENGTHS),
)
DAILY = st.builds(
    lambda minute, to: {"from": f"{minute // 60:02}:{minute % 60:02}:30", "to": to},
    *(st.integers(0, 1439), st.sampled_from(["00:00", "02:30", "12:00:01", "24:00"])),
)
SINGLE = st.builds(
    lambda year, end: {"start": f"{year}-01-01T00:00", "end": f"{end}-12-31T24:00"},
    *(st.integers(1971, 2026), st.integers(2026, 9998)),
)
BOUNDS = st.sampled_from(
    [{"minReplicas": 0}, {"minReplicas": 2**31 - 1}, {"maxReplicas": 1}, {"minReplicas": 3, "maxReplicas": 4}]
)
WINDOWS = st.builds(lambda times, bounds: times | bounds, st.one_of(CRONS, CRONS, DAILY, SINGLE), BOUNDS)


SELDOM = st.builds(
    lambda minute, hour, length, bounds: {"cron": f"{minute} {hour} * * *", "for": length} | bounds,
    *(st.integers(0, 59), st.sampled_from(["4-23", "*/2", "1-3", "3"]), LENGTHS, BOUNDS),
)
"""Windows of which a hundred are within the limits."""


@st.composite
def hostile(draw: st.DrawFn) -> tuple[msgspec.Raw, int]:
    """Return a schedule within the bounds of its CRD, and an instant around a change of its clock."""
    zone = draw(st.sampled_from(sorted(ZONES)))
    count = draw(st.sampled_from([1, 2, 100, 100]))
    few = draw(st.lists(SELDOM if count == 100 else WINDOWS, min_size=1, max_size=4))
    listed = [few[number % len(few)] | {"name": f"{number:0253}"} for number in range(count)]
    days = [
        str(date(2026, 1, 1) + timedelta(days=number)) for number in range(draw(st.sampled_from([0, 1000])))
    ]
    spec: dict[str, Any] = {
        "ready": "ByStart",
        "except": days,
        "targets": targets(*(f"{each:0253}" for each in range(100))),
    }
    middle = utc(ZONES[zone]) + draw(st.integers(-35, 35)) * 86_400
    return raw("any", *listed, zone=zone, **spec), middle


def _finish(taken: steps.Steps, work: Iterator[None]) -> Any:
    """Do work step by step, and return what comes out."""
    while True:
        with taken.step():
            try:
                next(work)
            except StopIteration as ended:
                return ended.value


@pytest.mark.timeout(60)
@settings(deadline=None, derandomize=True, max_examples=60, suppress_health_check=list(HealthCheck))
@given(hostile())
def test_no_step_is_long_whatever_a_tenant_writes(case: tuple[msgspec.Raw, int]) -> None:
    """Each pass: reading the object, its spans, the bounds of a target, and all that a status tells."""
    text, now = case
    taken = steps.Steps()
    with taken.step():
        found = keep_schedule(text).schedule
    if found is not None:
        spans = SpansOfDay(found.schedule)
        _finish(taken, spans.renew(now))
        timeline, instant, lead = BoundsTimeline((), [spans]), now, Lead(StartUps.of([30, 700, 40]))
        for _ in range(50):
            with taken.step():
                timeline.at(instant, lead)
                instant = timeline.next_change(instant, lead)
            if not spans.covers(instant):
                break
        lookout = Lookout(found.schedule)
        for later in (0, 60, 3600, 86_400):
            outlook = _finish(taken, lookout.look(now + later))
            with taken.step():
                states = {target: TargetState() for target in found.targets}
                status.describe(found, 1, states, outlook, ScheduleStatus(), now + later)
    event("refused" if found is None else "accepted")
    event(f"{taken.longest * 1000 // 5 * 5} ms")
    assert taken.longest < LONGEST
