"""Two slices in one process: limits are for the process, and each gauge counts both slices."""

import asyncio
from typing import cast

import pytest

from adapter.kubernetes.write import events, status
from adapter.kubernetes.write.events import EventOutlet, Regarding
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.status import StatusOutlet, StatusUpdate
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import LoopClock
from tests.support.waiting import running
from tests.support.writing import HandWriter

pytestmark = pytest.mark.looptime


class Slices:
    """Two slices of a process, those of the namespaces a and b."""

    def __init__(self) -> None:
        clock, self.monitoring = LoopClock(), Monitoring()
        problems = ProblemLog(self.monitoring, clock)
        self.writer = HandWriter()
        self.writer.ends.clear()
        limiter = WriteRateLimiter(1_000_000.0, clock, self.monitoring)
        self.outbox = Outbox(limiter, clock, self.monitoring, problems.defects)
        for namespace in "ab":
            self.outbox.begin(slices.slice_of(namespace), cast("Writer", self.writer))
        self.statuses = StatusOutlet(self.outbox, clock, problems)
        self.events = EventOutlet(self.outbox, clock, lambda: 0.0, self.monitoring, problems)

    def submit(self, namespace: str, number: int, replicas: int = 3) -> None:
        wanted = HorizontalPodAutoscalerStatus(desired_replicas=replicas)
        path = f"{namespace}/{number}"
        update = StatusUpdate(namespace, str(number), "uid", path, "1", wanted, dict)
        self.statuses.put(update, HorizontalPodAutoscalerStatus())

    def record(self, namespace: str, number: int) -> None:
        about = Regarding("v1", "FastPathAutoscaler", namespace, str(number), "uid")
        self.events.record(about, "Normal", "SuccessfulRescale", "New size: 3")

    def paths(self) -> list[str]:
        """Return where writes were sent that have ended."""
        return [sent.path for sent in self.writer.sent]

    def waiting(self, kind: WriteKind) -> float | None:
        return self.monitoring.registry.get_sample_value("fastpath_write_queue_length", {"type": kind.label})

    def dropped(self, reason: str) -> float | None:
        return self.monitoring.registry.get_sample_value("fastpath_events_dropped_total", {"reason": reason})


async def test_the_gauge_counts_all_slices_and_none_that_was_handed_over() -> None:
    both = Slices()
    for number in range(3):
        both.submit("a", number)
        both.record("a", number)
    both.submit("b", 0)
    both.record("b", 0)
    assert both.waiting(WriteKind.STATUS) == 4
    assert both.waiting(WriteKind.EVENT) == 4
    await both.outbox.drain(slices.slice_of("a"), 0.1)
    assert both.waiting(WriteKind.STATUS) == 1
    assert both.waiting(WriteKind.EVENT) == 1
    assert both.dropped("fenced") == 3


async def test_statuses_are_written_at_once_for_all_slices_together() -> None:
    both = Slices()
    for number in range(20):
        both.submit("a", number)
        both.submit("b", number)
    async with running(both.outbox.run()):
        await asyncio.sleep(1)
        assert both.writer.under_way == status.AT_ONCE
        await both.outbox.drain(slices.slice_of("b"), 0.1)
        await asyncio.sleep(1)
        assert both.writer.under_way == status.AT_ONCE
        both.writer.ends.set()
        await asyncio.sleep(1)
        assert {f"a/{number}" for number in range(20)} == set(both.paths()), "no write outlives its term"


async def test_events_wait_for_all_slices_together_and_the_largest_namespace_loses_its_latest() -> None:
    both = Slices()
    for number in range(events.QUEUED):
        both.record("a", number)
    both.record("b", 0)
    both.record("a", 0)
    assert both.waiting(WriteKind.EVENT) == events.QUEUED
    assert both.dropped("queue") == 2
    both.writer.ends.set()
    async with running(both.outbox.run()):
        await asyncio.sleep(1)
    assert len(both.paths()) == events.QUEUED
    assert both.paths()[1] == "/api/v1/namespaces/b/events", "namespaces take turns"


async def test_a_slice_that_comes_back_goes_on_with_the_counts_of_events() -> None:
    both, number = Slices(), slices.slice_of("a")
    both.writer.ends.set()
    async with running(both.outbox.run()):
        both.record("a", 0)
        await asyncio.sleep(1)
        await both.outbox.drain(number)
        both.record("a", 0)
        await asyncio.sleep(1)
        assert both.dropped("fenced") == 1
        both.outbox.begin(number, cast("Writer", both.writer))
        both.record("a", 0)
        await asyncio.sleep(1)
    first, second = both.paths()
    assert second.startswith(f"{first}/")
