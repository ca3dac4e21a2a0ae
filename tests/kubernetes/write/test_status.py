"""Writing statuses: urgent and pending ones, and that only the latest is written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.write import status as statuswriter
from adapter.kubernetes.write.status import StatusUpdate, StatusWriter, StatusWriters, is_urgent
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus, MetricStatus
from adapter.model.timestamps import Instant
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.clock import LoopClock
from tests.support.waiting import until
from tests.support.writing import Desk, desk_on

PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{}/status"
READY = Condition("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")
CALM = HorizontalPodAutoscalerStatus(current_replicas=2, desired_replicas=2, conditions=(READY,))


def change(**fields: Any) -> HorizontalPodAutoscalerStatus:
    return msgspec.structs.replace(CALM, **fields)


def condition(**fields: Any) -> HorizontalPodAutoscalerStatus:
    return change(conditions=(msgspec.structs.replace(READY, **fields),))


@pytest.mark.parametrize(
    ("wanted", "urgent"),
    [
        pytest.param(CALM, False, id="the same"),
        pytest.param(change(current_replicas=3), True, id="current replicas"),
        pytest.param(change(desired_replicas=3), True, id="desired replicas"),
        pytest.param(change(last_scale_time=Instant(7)), True, id="written and written back"),
        pytest.param(condition(status="False"), True, id="a condition's status"),
        pytest.param(condition(reason="Other"), True, id="a condition's reason"),
        pytest.param(condition(message="other words"), False, id="a condition's message"),
        pytest.param(change(conditions=(READY, READY)), True, id="one condition more"),
        pytest.param(change(conditions=None), True, id="no conditions"),
        pytest.param(change(current_metrics=(MetricStatus("Pods"),)), False, id="a metric's value"),
        pytest.param(change(observed_generation=7), False, id="the generation"),
    ],
)
def test_what_may_not_wait(wanted: HorizontalPodAutoscalerStatus, *, urgent: bool) -> None:
    assert is_urgent(CALM, wanted) is urgent


@contextlib.asynccontextmanager
async def running(writer: StatusWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run())
    yield
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


# --- when a status is written -------------------------------------------------------------------------------


class Queue:
    """A status writer in fake time, whose writes take a tenth of a second each; some fail at first."""

    def __init__(self, failures: int = 0) -> None:
        self.paths: list[str] = []
        self.failures = failures
        self.given_back = 0
        self.granted: Callable[[], object] = lambda: None
        clock, monitoring = LoopClock(), Monitoring()
        problems, shared = ProblemLog(monitoring, clock), StatusWriters(monitoring)
        self.writer = StatusWriter(self, clock, problems, shared)  # type: ignore[arg-type]  # all it calls

    async def acquire(self, _: WriteKind) -> None:
        await asyncio.sleep(0.1)
        self.granted()

    def give_back(self) -> None:
        self.given_back += 1

    async def send(self, _kind: WriteKind, _method: str, path: str, _content: bytes, **_: object) -> None:
        await asyncio.sleep(0.05)
        if self.failures:
            self.failures -= 1
            raise KubernetesError(500, "InternalError", "made up")
        self.paths.append(path)

    def submit(
        self,
        status: HorizontalPodAutoscalerStatus,
        name: str = "web",
        *,
        namespace: str = "default",
        seen: HorizontalPodAutoscalerStatus = CALM,
    ) -> None:
        self.writer.submit(StatusUpdate(namespace, name, "uid", name, "1", status, dict), seen)


@pytest.mark.looptime
async def test_what_matters_is_written_at_once_and_of_the_rest_the_latest_after_a_period() -> None:
    queue = Queue()
    async with running(queue.writer):
        queue.submit(change(desired_replicas=3), "urgent")
        for generation in range(5):
            queue.submit(change(observed_generation=generation))
            await asyncio.sleep(1)
        assert queue.paths == ["urgent"]
        await asyncio.sleep(statuswriter.PERIOD - 6)
        assert queue.paths == ["urgent"]
        await asyncio.sleep(statuswriter.PERIOD)
        assert queue.paths == ["urgent", "web"]


@pytest.mark.looptime
async def test_what_says_the_same_and_what_is_forgotten_is_not_written() -> None:
    queue = Queue()
    async with running(queue.writer):
        for status in (CALM, change(observed_generation=1), CALM):
            queue.submit(status)
        queue.submit(change(observed_generation=1), "gone")
        queue.writer.forget("default", "gone")
        await asyncio.sleep(3 * statuswriter.PERIOD)
    assert queue.paths == []


@pytest.mark.looptime
async def test_a_status_that_becomes_urgent_while_it_waits_goes_at_once() -> None:
    queue = Queue()
    async with running(queue.writer):
        queue.submit(change(observed_generation=1))
        queue.submit(change(desired_replicas=3))
        await asyncio.sleep(1)
    assert queue.paths == ["web"]


@pytest.mark.looptime
async def test_for_a_period_after_a_write_it_counts_and_then_what_another_client_has_written() -> None:
    queue, wanted = Queue(), change(desired_replicas=3)
    async with running(queue.writer):
        queue.submit(wanted)
        await asyncio.sleep(1)
        queue.submit(wanted, seen=CALM)
        queue.submit(change(desired_replicas=3, observed_generation=2))
        await asyncio.sleep(statuswriter.PERIOD - 2)
        assert len(queue.paths) == 1
        await asyncio.sleep(3)
        assert len(queue.paths) == 2
        await asyncio.sleep(statuswriter.PERIOD)
        queue.submit(wanted, seen=wanted)
        await asyncio.sleep(1)
        assert len(queue.paths) == 2
        queue.submit(wanted, seen=CALM)
        await asyncio.sleep(1)
        assert len(queue.paths) == 3


@pytest.mark.looptime
async def test_hours_of_failures_are_no_end() -> None:
    queue = Queue(failures=1100)
    for name in ("web", "api"):
        queue.submit(change(desired_replicas=3), name)
    async with running(queue.writer):
        await asyncio.sleep(1100 * statuswriter.RETRY_LIMIT)
    assert sorted(queue.paths) == ["api", "web"]


@pytest.mark.looptime
async def test_urgent_ones_pass_a_backlog_and_what_was_forgotten_stops_no_other() -> None:
    queue, names = Queue(), [f"web-{number}" for number in range(12)]
    for name in names:
        queue.submit(change(observed_generation=1), name)
    async with running(queue.writer):
        await asyncio.sleep(statuswriter.PERIOD + 0.05)
        assert queue.paths == []
        queue.submit(change(desired_replicas=3), "urgent")
        queue.writer.forget("default", names.pop(0))
        await asyncio.sleep(2)
    assert queue.paths[0] == "urgent"
    assert sorted(queue.paths[1:]) == sorted(names)


@pytest.mark.looptime
@pytest.mark.parametrize("turns", [0, 1], ids=["before it is taken", "before it is written"])
async def test_one_that_goes_just_when_its_turn_has_come_stops_no_other(turns: int) -> None:
    queue = Queue()

    def forget() -> None:
        queue.granted = lambda: None
        gone = "default", "web"
        if turns:
            asyncio.get_running_loop().call_soon(queue.writer.forget, *gone)
        else:
            queue.writer.forget(*gone)

    queue.granted = forget
    async with running(queue.writer):
        queue.submit(change(desired_replicas=3))
        await asyncio.sleep(0.11)
        queue.submit(change(desired_replicas=4), "api")
        await asyncio.sleep(1)
    assert (queue.paths, queue.given_back) == (["api"], 1)


@pytest.mark.looptime
async def test_a_status_that_changes_while_it_is_written_is_written_again() -> None:
    queue = Queue()
    async with running(queue.writer):
        queue.submit(change(desired_replicas=3))
        await asyncio.sleep(0.12)
        queue.submit(change(desired_replicas=4))
        await asyncio.sleep(1)
    assert queue.paths == ["web", "web"]


@pytest.mark.looptime
@pytest.mark.parametrize("urgent", [True, False])
async def test_the_statuses_of_a_tenant_with_many_autoscalers_delay_those_of_another_by_one_turn(
    *, urgent: bool
) -> None:
    queue = Queue()
    status = change(desired_replicas=3) if urgent else change(observed_generation=1)
    for number in range(100):
        queue.submit(status, f"web{number}", namespace="greedy")
    queue.submit(status, "victim", namespace="victim")
    async with running(queue.writer):
        await asyncio.sleep(0 if urgent else statuswriter.PERIOD)
        await asyncio.sleep(0.5)
    assert "victim" in queue.paths
    assert len(queue.paths) <= 6


# --- at the cluster -----------------------------------------------------------------------------------------


class StatusOffice:
    """A status writer at work on a cluster, and the autoscalers there."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.failed: list[KubernetesError] = []
        self.is_broken = False
        shared = StatusWriters(desk.monitoring)
        self.writer = StatusWriter(desk.writer, desk.clock, desk.faults, shared, self.note)

    def note(self, _: StatusUpdate, error: KubernetesError) -> None:
        if self.is_broken:
            raise ZeroDivisionError
        self.failed.append(error)

    def make(self, *names: str) -> None:
        for name in names:
            self.desk.cluster.create(
                {
                    "apiVersion": "autoscaling/v2",
                    "kind": "HorizontalPodAutoscaler",
                    "metadata": {"name": name},
                    "spec": {"maxReplicas": 5},
                }
            )

    def submit(
        self,
        status: HorizontalPodAutoscalerStatus,
        name: str = "web",
        seen: HorizontalPodAutoscalerStatus | None = CALM,
        uid: str = "",
        version: str = "",
    ) -> None:
        metadata = self.desk.cluster.get("hpa", name)["metadata"]
        update = StatusUpdate(
            "default",
            name,
            uid or metadata["uid"],
            PATH.format(name),
            version or metadata["resourceVersion"],
            status,
            lambda: {"currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas},
        )
        self.writer.submit(update, seen)

    def status(self, name: str = "web") -> Any:
        return self.desk.cluster.get("hpa", name).get("status")

    @property
    def patches(self) -> list[str]:
        return [each.name for each in self.desk.cluster.requests if each.verb == "patch"]


@pytest.fixture
async def office(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StatusOffice]:
    """Give an office whose periods are a hundredth of the real ones."""
    monkeypatch.setattr(statuswriter, "PERIOD", 0.15)
    monkeypatch.setattr(statuswriter, "RETRY", 0.01)
    monkeypatch.setattr(statuswriter, "RETRY_LIMIT", 0.15)
    async with Cluster() as cluster, desk_on(cluster) as desk:
        office = StatusOffice(desk)
        office.make("web", "api")
        async with running(office.writer):
            yield office


async def test_a_recreated_object_starts_from_its_own_status(office: StatusOffice) -> None:
    office.submit(change(desired_replicas=3))
    await until(office.status)
    office.desk.cluster.delete("hpa", "web")
    office.make("web")
    office.submit(change(desired_replicas=3), seen=None)
    await until(office.status)


async def test_the_whole_status_is_replaced(office: StatusOffice) -> None:
    office.desk.cluster.patch(
        "hpa", "web", {"status": {"lastScaleTime": "2026-01-01T00:00:00Z", "currentReplicas": 9}}
    )
    office.submit(change(desired_replicas=3))
    await until(lambda: office.patches)
    await until(lambda: office.status() == {"currentReplicas": 2, "desiredReplicas": 3})


async def test_a_newer_version_is_no_obstacle(office: StatusOffice) -> None:
    """A user edits the spec while a status is on its way."""
    office.submit(change(desired_replicas=3), version="1")
    await until(office.status)
    assert office.desk.writes("status", "conflict") == 1
    assert office.status()["desiredReplicas"] == 3
    assert not office.failed


async def test_another_object_of_that_name_gets_nothing(office: StatusOffice) -> None:
    office.submit(change(desired_replicas=3), uid="00000000-0000-0000-0000-000000000000")
    await until(lambda: office.desk.writes("status", "conflict"))
    await asyncio.sleep(0.05)
    assert office.status() is None
    assert not office.failed
    assert not office.desk.faults.active()


async def test_an_object_that_is_gone_is_forgotten(office: StatusOffice) -> None:
    office.submit(change(desired_replicas=3))
    office.desk.cluster.delete("hpa", "web")
    await until(lambda: office.desk.writes("status", "refused"))
    await asyncio.sleep(0.05)
    assert office.desk.writes("status", "refused") == 1
    assert not office.desk.faults.active()


async def test_a_status_that_was_not_taken_stays_wanted(office: StatusOffice) -> None:
    office.desk.cluster.fail(500, "patch", "horizontalpodautoscalers/status", 3)
    office.submit(change(desired_replicas=3))
    await until(lambda: office.failed)
    assert ("status-write", "default/web") in office.desk.faults.active()
    office.submit(change(desired_replicas=4))
    await until(office.status)
    assert office.status()["desiredReplicas"] == 4, "the latest by then"
    await until(lambda: not office.desk.faults.active())
    assert [error.status for error in office.failed] == [500] * 3


@pytest.mark.parametrize("passes", [0, 2], ids=["for its slot", "on its way"])
async def test_a_shut_fence_holds_statuses_back(office: StatusOffice, passes: int) -> None:
    office.desk.gate.passes = passes
    office.submit(change(desired_replicas=3))
    await until(lambda: office.desk.writes("status", "fenced"))
    assert office.status() is None
    office.desk.gate.passes = None
    await until(office.status)


async def test_what_could_not_be_written_of_a_forgotten_object_is_over(office: StatusOffice) -> None:
    office.desk.cluster.fail(500, "patch", "horizontalpodautoscalers/status", 100)
    office.submit(change(desired_replicas=3))
    await until(office.desk.faults.active)
    office.desk.cluster.delay(0.1, "patch")
    asked = len(office.patches)
    await until(lambda: len(office.patches) > asked)
    office.writer.forget("default", "web")  # while a write of it is under way
    failed = office.desk.writes("status", "failed")
    await until(lambda: office.desk.writes("status", "failed") > failed)
    await asyncio.sleep(0)
    assert not office.desk.faults.active()


async def test_the_orderly_end_writes_what_is_urgent(cluster: Cluster, desk: Desk) -> None:
    office = StatusOffice(desk)
    office.make("web", "api")
    cluster.delay(0.1, "patch")
    async with running(office.writer):
        office.submit(change(desired_replicas=3))
        office.submit(change(observed_generation=3), "api")
        await until(lambda: office.patches)
    await office.writer.drain(1.0)
    await until(office.status)
    assert office.status()["desiredReplicas"] == 3
    assert office.status("api") is None


async def test_the_orderly_end_is_bounded(cluster: Cluster, desk: Desk) -> None:
    office = StatusOffice(desk)
    office.make("web")
    cluster.delay(10, "patch")
    office.submit(change(desired_replicas=3))
    async with asyncio.timeout(0.5):
        await office.writer.drain(0.05)


async def test_an_unreadable_object_is_a_failure(cluster: Cluster, desk: Desk) -> None:
    office = StatusOffice(desk)
    office.make("web")
    cluster.fail(409, "patch", "horizontalpodautoscalers/status")
    cluster.forbid("get", "horizontalpodautoscalers/status")
    office.submit(change(desired_replicas=3))
    await office.writer.drain(0.2)
    assert [error.status for error in office.failed[:1]] == [403]
    assert not office.desk.faults.active(), "with the term its faults are over"


async def test_a_defect_in_what_follows_a_refusal_is_contained(office: StatusOffice) -> None:
    office.is_broken = True
    office.desk.cluster.fail(500, "patch", "horizontalpodautoscalers/status", 1)
    office.submit(change(current_replicas=3))
    await until(office.status)
    assert office.desk.sample("fastpath_scaler_unexpected_errors_total") == 1


async def test_a_defect_in_one_status_keeps_no_other_from_being_written(
    office: StatusOffice, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks() -> Any:
        raise ZeroDivisionError

    metadata = office.desk.cluster.get("hpa", "api")["metadata"]
    update = StatusUpdate(
        "default", "api", metadata["uid"], PATH.format("api"), "", change(current_replicas=9), breaks
    )
    office.writer.submit(update, CALM)
    await until(lambda: caplog.records)
    office.submit(change(current_replicas=3))
    await until(office.status)
    await until(lambda: office.desk.sample("fastpath_scaler_unexpected_errors_total") > 2)  # it is retried
    assert [record.message for record in caplog.records] == [
        "unexpected error while writing the status of an autoscaler"
    ]
    office.submit(change(current_replicas=4), "api")
    await until(lambda: office.status("api"))
