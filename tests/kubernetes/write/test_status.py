"""Writing statuses: urgent and pending ones, and that only the latest is written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
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


# --- at the cluster -----------------------------------------------------------------------------------------


class Office:
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
async def office(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    """Give an office whose periods are a hundredth of the real ones."""
    monkeypatch.setattr(statuswriter, "PERIOD", 0.15)
    monkeypatch.setattr(statuswriter, "RETRY", 0.01)
    monkeypatch.setattr(statuswriter, "RETRY_LIMIT", 0.15)
    async with Cluster() as cluster, desk_on(cluster) as desk:
        office = Office(desk)
        office.make("web", "api")
        async with running(office.writer):
            yield office


@contextlib.asynccontextmanager
async def running(writer: StatusWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run())
    yield
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


async def test_what_matters_is_written_at_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuswriter, "PERIOD", 3600.0)
    office.submit(change(desired_replicas=3))
    await until(office.status)
    assert office.status() == {"currentReplicas": 2, "desiredReplicas": 3}
    await until(lambda: office.desk.writes("status", "success") == 1)


async def test_the_rest_waits_and_only_the_latest_is_written(office: Office) -> None:
    for generation in range(5):
        office.submit(change(observed_generation=generation))
        await asyncio.sleep(0.01)
    assert office.patches == []
    await until(lambda: office.patches)
    await asyncio.sleep(0.2)
    assert office.patches == ["web"]


async def test_what_says_the_same_is_not_written(office: Office) -> None:
    office.submit(CALM)
    office.submit(change(observed_generation=1))
    office.submit(CALM)
    await asyncio.sleep(0.25)
    assert office.patches == []


async def test_a_status_that_becomes_urgent_while_it_waits_goes_at_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuswriter, "PERIOD", 3600.0)
    office.submit(change(observed_generation=1))
    office.submit(change(desired_replicas=3))
    await until(lambda: office.patches)


@pytest.mark.looptime
async def test_after_a_write_small_changes_wait_a_period() -> None:
    counter, writer = counted()
    async with running(writer):
        for status in (change(desired_replicas=3), change(desired_replicas=3, observed_generation=2)):
            writer.submit(StatusUpdate("default", "web", "uid", "default/web", "1", status, dict), CALM)
            await asyncio.sleep(1)
        await asyncio.sleep(statuswriter.PERIOD - 3)
        assert len(counter.paths) == 1
        await asyncio.sleep(2)
        assert len(counter.paths) == 2


async def test_after_a_write_what_another_client_has_written_counts(office: Office) -> None:
    wanted = change(desired_replicas=3)
    office.submit(wanted)
    await until(lambda: office.patches)
    await asyncio.sleep(0.2)
    office.submit(wanted, seen=wanted)
    await asyncio.sleep(0.05)
    assert len(office.patches) == 1
    office.submit(wanted, seen=CALM)
    await until(lambda: len(office.patches) == 2)


async def test_a_recreated_object_starts_from_its_own_status(office: Office) -> None:
    office.submit(change(desired_replicas=3))
    await until(office.status)
    office.desk.cluster.delete("hpa", "web")
    office.make("web")
    office.submit(change(desired_replicas=3), seen=None)
    await until(office.status)


async def test_the_whole_status_is_replaced(office: Office) -> None:
    office.desk.cluster.patch(
        "hpa", "web", {"status": {"lastScaleTime": "2026-01-01T00:00:00Z", "currentReplicas": 9}}
    )
    office.submit(change(desired_replicas=3))
    await until(lambda: office.patches)
    await until(lambda: office.status() == {"currentReplicas": 2, "desiredReplicas": 3})


async def test_a_newer_version_is_no_obstacle(office: Office) -> None:
    """A user edits the spec while a status is on its way."""
    office.submit(change(desired_replicas=3), version="1")
    await until(office.status)
    assert office.desk.writes("status", "conflict") == 1
    assert office.status()["desiredReplicas"] == 3
    assert not office.failed


async def test_another_object_of_that_name_gets_nothing(office: Office) -> None:
    office.submit(change(desired_replicas=3), uid="00000000-0000-0000-0000-000000000000")
    await until(lambda: office.desk.writes("status", "conflict"))
    await asyncio.sleep(0.05)
    assert office.status() is None
    assert not office.failed
    assert not office.desk.faults.active()


async def test_an_object_that_is_gone_is_forgotten(office: Office) -> None:
    office.submit(change(desired_replicas=3))
    office.desk.cluster.delete("hpa", "web")
    await until(lambda: office.desk.writes("status", "refused"))
    await asyncio.sleep(0.05)
    assert office.desk.writes("status", "refused") == 1
    assert not office.desk.faults.active()


async def test_a_status_that_was_not_taken_stays_wanted(office: Office) -> None:
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
async def test_a_shut_fence_holds_statuses_back(office: Office, passes: int) -> None:
    office.desk.gate.passes = passes
    office.submit(change(desired_replicas=3))
    await until(lambda: office.desk.writes("status", "fenced"))
    assert office.status() is None
    office.desk.gate.passes = None
    await until(office.status)


async def test_a_forgotten_object_is_not_written(office: Office) -> None:
    office.submit(change(observed_generation=1))
    office.writer.forget("default", "web")
    await asyncio.sleep(0.2)
    assert office.patches == []


async def test_what_could_not_be_written_of_a_forgotten_object_is_over(office: Office) -> None:
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


class Counter:
    """A writer that takes a tenth of a second for each turn, and remembers the paths."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.failures = 0

    async def acquire(self, _: WriteKind) -> None:
        await asyncio.sleep(0.1)

    def give_back(self) -> None:
        pass

    async def send(self, _kind: WriteKind, _method: str, path: str, _content: bytes, **_: object) -> None:
        if self.failures:
            self.failures -= 1
            raise KubernetesError(500, "InternalError", "made up")
        self.paths.append(path)


@pytest.mark.looptime
async def test_hours_of_failures_are_no_end() -> None:
    counter, writer = counted()
    counter.failures = 1100
    for name in ("web", "api"):
        status = change(desired_replicas=3)
        writer.submit(StatusUpdate("default", name, "uid", name, "1", status, dict), CALM)
    async with running(writer):
        await asyncio.sleep(1100 * statuswriter.RETRY_LIMIT)
    assert sorted(counter.paths) == ["api", "web"]


@pytest.mark.looptime
async def test_urgent_ones_pass_a_backlog_and_what_was_forgotten_stops_no_other() -> None:
    counter, writer = counted()
    names = [f"web-{number}" for number in range(12)]
    for name in names:
        status = change(observed_generation=1)
        writer.submit(StatusUpdate("default", name, "uid", name, "1", status, dict), CALM)
    async with running(writer):
        await asyncio.sleep(statuswriter.PERIOD + 0.05)
        assert counter.paths == []
        status = change(desired_replicas=3)
        writer.submit(StatusUpdate("default", "urgent", "uid", "urgent", "1", status, dict), CALM)
        writer.forget("default", names.pop(0))
        await asyncio.sleep(2)
    assert counter.paths[0] == "urgent"
    assert sorted(counter.paths[1:]) == sorted(names)


def counted() -> tuple[Counter, StatusWriter]:
    clock, monitoring, counter = LoopClock(), Monitoring(), Counter()
    # all it calls
    problems, shared = ProblemLog(monitoring, clock), StatusWriters(monitoring)
    return counter, StatusWriter(counter, clock, problems, shared)  # type: ignore[arg-type]


@pytest.mark.looptime
@pytest.mark.parametrize("urgent", [True, False])
async def test_the_statuses_of_a_tenant_with_many_autoscalers_delay_those_of_another_by_one_turn(
    *, urgent: bool
) -> None:
    counter, writer = counted()
    status = change(desired_replicas=3) if urgent else change(observed_generation=1)
    keys = [("greedy", f"web{number}") for number in range(100)] + [("victim", "web")]
    for namespace, name in keys:
        writer.submit(StatusUpdate(namespace, name, "uid", f"{namespace}/{name}", "1", status, dict), CALM)
    async with running(writer):
        await asyncio.sleep(0 if urgent else statuswriter.PERIOD)
        await asyncio.sleep(0.5)

    assert "victim/web" in counter.paths
    assert len(counter.paths) <= 6


async def test_the_orderly_end_writes_what_is_urgent(cluster: Cluster, desk: Desk) -> None:
    office = Office(desk)
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
    office = Office(desk)
    office.make("web")
    cluster.delay(10, "patch")
    office.submit(change(desired_replicas=3))
    async with asyncio.timeout(0.5):
        await office.writer.drain(0.05)


async def test_an_unreadable_object_is_a_failure(cluster: Cluster, desk: Desk) -> None:
    office = Office(desk)
    office.make("web")
    cluster.fail(409, "patch", "horizontalpodautoscalers/status")
    cluster.forbid("get", "horizontalpodautoscalers/status")
    office.submit(change(desired_replicas=3))
    await office.writer.drain(0.2)
    assert [error.status for error in office.failed[:1]] == [403]
    assert not office.desk.faults.active(), "with the term its faults are over"


async def test_a_defect_in_what_follows_a_refusal_is_contained(office: Office) -> None:
    office.is_broken = True
    office.desk.cluster.fail(500, "patch", "horizontalpodautoscalers/status", 1)
    office.submit(change(current_replicas=3))
    await until(office.status)
    assert office.desk.sample("fastpath_scaler_unexpected_errors_total") == 1


async def test_a_defect_in_one_status_keeps_no_other_from_being_written(
    office: Office, caplog: pytest.LogCaptureFixture
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
