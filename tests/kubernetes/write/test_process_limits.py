"""What the writers of all slices share: limits are for the process, and the gauge counts all slices."""

import asyncio
from typing import cast

import pytest

from adapter.kubernetes.write import events, status
from adapter.kubernetes.write.events import EventBacklog, EventRecorder, Regarding
from adapter.kubernetes.write.status import StatusUpdate, StatusWriter, StatusWriters
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import LoopClock
from tests.support.waiting import running
from tests.support.writing import HandWriter

pytestmark = pytest.mark.looptime


class Slices:
    """Two slices of a process, the namespaces a and b."""

    def __init__(self) -> None:
        clock, self.monitoring = LoopClock(), Monitoring()
        problems = ProblemLog(self.monitoring, clock)
        self.writer = HandWriter()
        self.writer.ends.clear()
        used = cast("Writer", self.writer)
        shared, backlog = StatusWriters(self.monitoring), EventBacklog(self.monitoring)
        self.statuses = {name: StatusWriter(used, clock, problems, shared) for name in "ab"}
        self.events = {
            name: EventRecorder(used, clock, lambda: 0.0, self.monitoring, problems, backlog) for name in "ab"
        }

    def submit(self, namespace: str, number: int, replicas: int = 3) -> None:
        wanted = HorizontalPodAutoscalerStatus(desired_replicas=replicas)
        path = f"{namespace}/{number}"
        update = StatusUpdate(namespace, str(number), "uid", path, "1", wanted, dict)
        self.statuses[namespace].submit(update, HorizontalPodAutoscalerStatus())

    def record(self, namespace: str, number: int) -> None:
        about = Regarding("v1", "FastPathAutoscaler", namespace, str(number), "uid")
        self.events[namespace].record(about, "Normal", "SuccessfulRescale", "New size: 3")

    def paths(self) -> list[str]:
        """Return where writes were sent that have ended."""
        return [sent.path for sent in self.writer.sent]

    def waiting(self, kind: WriteKind) -> float | None:
        return self.monitoring.registry.get_sample_value("fastpath_write_queue_length", {"type": kind.label})

    def dropped(self, reason: str) -> float | None:
        return self.monitoring.registry.get_sample_value("fastpath_events_dropped_total", {"reason": reason})


async def test_the_gauge_counts_all_slices_and_none_that_was_handed_over() -> None:
    slices = Slices()
    for number in range(3):
        slices.submit("a", number)
        slices.record("a", number)
    slices.submit("b", 0)
    slices.record("b", 0)
    assert slices.waiting(WriteKind.STATUS) == 4
    assert slices.waiting(WriteKind.EVENT) == 4
    await asyncio.gather(slices.statuses["a"].drain(0.1), slices.events["a"].drain(0.1))
    assert slices.waiting(WriteKind.STATUS) == 1
    assert slices.waiting(WriteKind.EVENT) == 1
    assert slices.dropped("fenced") == 3


async def test_statuses_are_written_at_once_for_all_slices_together() -> None:
    slices = Slices()
    for number in range(20):
        slices.submit("a", number)
        slices.submit("b", number)
    async with running(slices.statuses["a"].run()):
        async with running(slices.statuses["b"].run()):
            await asyncio.sleep(1)
            assert slices.writer.under_way == status.AT_ONCE
        slices.writer.ends.set()
        await asyncio.sleep(1)
        assert {f"a/{number}" for number in range(20)} <= set(slices.paths()), (
            "a slice that ends keeps no other from writing"
        )


async def test_events_wait_for_all_slices_together_and_the_largest_namespace_loses_its_latest() -> None:
    slices = Slices()
    for number in range(events.QUEUED):
        slices.record("a", number)
    slices.record("b", 0)
    slices.record("a", 0)
    assert slices.waiting(WriteKind.EVENT) == events.QUEUED
    assert slices.dropped("queue") == 2
    slices.writer.ends.set()
    async with running(slices.events["b"].run()):
        await asyncio.sleep(1)
    assert slices.paths() == ["/api/v1/namespaces/b/events"]


async def test_repeated_events_are_remembered_by_the_process() -> None:
    """A slice that comes back goes on with the counts."""
    slices = Slices()
    slices.writer.ends.set()
    for _ in range(2):
        slices.record("a", 0)
    async with running(slices.events["a"].run()):
        await asyncio.sleep(1)
    first, second = slices.paths()
    assert second.startswith(f"{first}/")
