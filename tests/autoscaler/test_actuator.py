"""What is decided reaches the API server as a status and events of the autoscaler."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.decide.sync import Event
from adapter.kubernetes.write import status as statuswriter
from adapter.kubernetes.write.events import EventOutlet
from adapter.kubernetes.write.status import StatusOutlet
from adapter.model.autoscaling.documents import decode_object
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, PastChange
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, MetricStatus, decode_scalar
from adapter.model.timestamps import FineInstant, read_instant
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.clock import ShiftedClock
from tests.support.waiting import running, until
from tests.support.writing import Desk, desk_on

CRD = Path(__file__).parents[2] / "manifests/chart/files/crd/fastpathautoscalers.yaml"
RAISED = Event("Normal", "SuccessfulRescale", "New size: 5; reason: queue above target")


class ActuatorOnCluster:
    """A cluster with an autoscaler and its target, and the actuator that write about it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.clock = ShiftedClock()
        self.cluster = desk.cluster
        statuses = StatusOutlet(desk.outbox, desk.faults)
        events = EventOutlet(desk.outbox, lambda: 0.0, desk.monitoring, desk.faults)
        self.actuator = Actuator(desk.outbox, statuses, events)
        for document in yaml.safe_load_all(CRD.read_text()):
            self.cluster.create(document)
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        self.cluster.create(
            {
                "apiVersion": "fastpath.io/v1alpha1",
                "kind": "FastPathAutoscaler",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"scaleTargetRef": reference, "maxReplicas": 8},
            }
        )

    @property
    def autoscaler(self) -> FastPathAutoscaler:
        found = decode_object(msgspec.json.encode(self.cluster.get("FastPathAutoscaler", "web", "default")))
        assert isinstance(found, FastPathAutoscaler)
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("FastPathAutoscaler", "web", "default").get("status", {})
        return found


@pytest.fixture
async def world() -> AsyncIterator[ActuatorOnCluster]:
    async with Cluster() as cluster, desk_on(cluster) as desk:
        made = ActuatorOnCluster(desk)
        async with running(desk.outbox.run()):
            yield made


def status(desired: int) -> HorizontalPodAutoscalerStatus:
    document = {
        "currentReplicas": 2,
        "desiredReplicas": desired,
        "lastScaleTime": "2026-11-20T12:00:00Z",
        "conditions": [{"type": "AbleToScale", "status": "True", "reason": "SucceededRescale"}],
    }
    return msgspec.convert(document, HorizontalPodAutoscalerStatus, dec_hook=decode_scalar)


async def test_a_status_with_what_policies_count(world: ActuatorOnCluster) -> None:
    at = FineInstant(read_instant("2026-11-20T12:00:00Z") + 5_000_000)
    world.actuator.status(world.autoscaler, status(5), (PastChange(3, at),))
    await until(world.status)

    written = world.status()
    assert (written["currentReplicas"], written["desiredReplicas"]) == (2, 5)
    assert [each["type"] for each in written["conditions"]] == ["AbleToScale"]
    (change,) = written["recentChanges"]
    assert change["change"] == 3
    assert change["time"].startswith("2026-11-20T12:00:00.005")
    seen = world.autoscaler.status
    assert seen is not None
    assert seen.recent_changes == (PastChange(3, at),), "the next owner reads what was written"

    requests = len(world.cluster.requests)
    world.actuator.status(world.autoscaler, status(5), ())
    await asyncio.sleep(0.05)
    assert len(world.cluster.requests) == requests, "what is there already is not written again"


ABLE = "the HPA controller was able to update the target scale to 5"


async def test_conditions_name_the_autoscaler_and_that_is_no_reason_to_write(
    world: ActuatorOnCluster,
) -> None:
    """The next owner decides in upstream's words, and reads ours: that is the same status."""
    (condition,) = status(5).conditions or ()
    decided = replace(status(5), conditions=(replace(condition, message=ABLE),))
    world.actuator.status(world.autoscaler, decided, ())
    await until(world.status)

    (written,) = world.status()["conditions"]
    assert (written["reason"], written["message"]) == (
        "SucceededRescale",
        "the autoscaler was able to update the target scale to 5",
    )

    world.actuator.forget(world.autoscaler)
    world.clock.advance(statuswriter.PERIOD)  # a difference of messages alone is due at once
    world.actuator.status(world.autoscaler, decided, ())
    assert world.desk.sample("fastpath_write_queue_length", type="status") == 0
    assert decided.conditions is not None
    assert decided.conditions[0].message == ABLE, "decisions keep upstream's text"


def measured(utilization: int) -> HorizontalPodAutoscalerStatus:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}}
    metrics = msgspec.convert([cpu], tuple[MetricStatus, ...], dec_hook=decode_scalar)
    return replace(status(5), current_metrics=metrics)


async def test_the_targets_column_is_written_with_the_status_and_is_no_reason_to_write(
    world: ActuatorOnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.actuator.status(world.autoscaler, status(5), ())
    await until(world.status)
    assert world.status()["targets"] == "cpu: <unknown>/80%", (
        "the default metric, which the sandbox does not fill in"
    )

    patches = world.desk.asked("patch", "fastpathautoscalers/status")
    for utilization in range(60, 65):
        world.actuator.status(world.autoscaler, measured(utilization), ())
        await asyncio.sleep(0.01)
    assert world.desk.asked("patch", "fastpathautoscalers/status") == patches, (
        "numbers wait for the period of a status"
    )

    monkeypatch.setattr(statuswriter, "PERIOD", 0.0)
    world.actuator.status(world.autoscaler, measured(66), ())
    await until(lambda: world.status().get("targets") == "cpu: 66%/80%")
    assert world.desk.asked("patch", "fastpathautoscalers/status") == patches + 1


async def test_events_are_about_the_object(world: ActuatorOnCluster) -> None:
    world.actuator.event(world.autoscaler, RAISED)
    await until(lambda: world.cluster.list("events"))

    (event,) = world.cluster.list("events")
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["uid"]) == (
        "FastPathAutoscaler",
        "web",
        world.autoscaler.metadata.uid,
    )
    assert (event["type"], event["reason"], event["message"]) == RAISED
