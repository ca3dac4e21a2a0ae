"""Events at the API server: their form, their counts, and what happens when they cannot be written."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapter.kubernetes.write import events
from adapter.kubernetes.write.events import EventOutlet, Regarding
from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.waiting import running, until
from tests.support.writing import Desk, desk_on

WEB = Regarding("fastpath.io/v1alpha1", "FastPathAutoscaler", "default", "web", "uid-1", "42")


class EventOffice:
    """A recorder at work on a cluster."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.recorder = EventOutlet(desk.outbox, desk.clock, lambda: 0.0, desk.monitoring, desk.faults)

    def say(
        self, message: str, reason: str = "SuccessfulRescale", kind: str = "Normal", about: Regarding = WEB
    ) -> None:
        self.recorder.record(about, kind, reason, message)

    def events(self) -> list[dict[str, Any]]:
        return self.desk.cluster.list("events")

    def dropped(self, reason: str) -> float:
        return self.desk.sample("fastpath_events_dropped_total", reason=reason)


@pytest.fixture
async def office(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventOffice]:
    monkeypatch.setattr(events, "RETRY", 0.01)
    async with Cluster() as cluster, desk_on(cluster) as desk:
        office = EventOffice(desk)
        async with running(desk.outbox.run()):
            yield office


async def test_an_event_has_the_form_of_the_hpa_controllers(office: EventOffice) -> None:
    office.say("New size: 5; reason: pods metric requests above target")
    await until(office.events)
    (event,) = office.events()
    name = event["metadata"]["name"]
    assert name.startswith("web.")
    assert int(name.removeprefix("web."), 16) > 1e18
    assert event["involvedObject"] == {
        "kind": "FastPathAutoscaler",
        "namespace": "default",
        "name": "web",
        "uid": "uid-1",
        "apiVersion": "fastpath.io/v1alpha1",
        "resourceVersion": "42",
    }
    assert (event["type"], event["reason"]) == ("Normal", "SuccessfulRescale")
    assert event["message"] == "New size: 5; reason: pods metric requests above target"
    assert event["source"] == {"component": "fastpath"}
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["count"] == 1
    assert event["reportingComponent"] == "fastpath"


async def test_a_repeated_event_is_counted(office: EventOffice) -> None:
    for _ in range(3):
        office.say("no metrics", "FailedGetPodsMetric", "Warning")
    await until(lambda: office.events() and office.events()[0]["count"] == 3)
    assert len(office.events()) == 1


async def test_what_the_correlator_holds_back_is_dropped(office: EventOffice) -> None:
    for _ in range(40):
        office.say("again")
    await until(lambda: office.dropped("spam") == 15)
    assert office.events()[0]["count"] == 25


async def test_a_counted_event_whose_time_is_over_starts_again(office: EventOffice) -> None:
    office.say("again")
    await until(office.events)
    (event,) = office.events()
    office.desk.cluster.delete("events", event["metadata"]["name"])
    office.say("again")
    await until(office.events)
    assert office.events()[0]["count"] == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_while_the_server_fails_all_wait_in_their_order(office: EventOffice, status: int) -> None:
    office.desk.cluster.fail(status, "create", "events", 3)
    office.say("one")
    office.say("two")
    assert office.desk.sample("fastpath_write_queue_length", type="event") == 2
    await until(lambda: len(office.events()) == 2)
    named = sorted(office.events(), key=lambda event: event["metadata"]["name"])
    assert [event["message"] for event in named] == ["one", "two"]
    created = sorted(office.events(), key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert [event["message"] for event in created] == ["one", "two"]
    assert not office.desk.faults.active()


async def test_a_server_that_never_recovers_costs_the_event(office: EventOffice) -> None:
    office.desk.cluster.fail(503, "create", "events", events.TRIES)
    office.say("one")
    office.say("two")
    await until(office.events)
    assert [event["message"] for event in office.events()] == ["two"]
    assert office.dropped("refused") == 1


async def test_what_is_refused_is_not_sent_again(office: EventOffice) -> None:
    office.desk.cluster.forbid("create", "events")
    office.say("one")
    await until(lambda: office.dropped("refused"))
    assert ("event-write", "") in office.desk.faults.active()
    assert office.desk.asked("create", "events") == 1


async def test_a_namespace_that_is_gone_is_no_fault(office: EventOffice) -> None:
    office.say("one", about=WEB._replace(namespace="gone"))
    await until(lambda: office.dropped("refused"))
    assert not office.desk.faults.active()


async def test_nothing_is_written_behind_a_shut_fence(office: EventOffice) -> None:
    office.desk.gate.passes = 0
    office.say("one")
    await until(lambda: office.dropped("fenced"))
    assert office.events() == []


async def test_a_long_text_is_cut(office: EventOffice) -> None:
    office.say("x" * 5000)
    await until(office.events)
    assert office.events()[0]["message"] == "x" * 1024


async def test_the_orderly_end_writes_what_is_recorded(cluster: Cluster, desk: Desk) -> None:
    office = EventOffice(desk)
    cluster.delay(0.1, "create", "events")
    async with running(desk.outbox.run()):
        office.say("one")
        office.say("two")
        await until(lambda: desk.asked("create", "events"))
        await desk.outbox.drain(slices.slice_of("default"), 1.0)
    assert max((event["message"], event["count"]) for event in office.events()) == ("two", 1)
    assert {event["message"] for event in office.events()} == {"one", "two"}


async def test_the_orderly_end_is_bounded(cluster: Cluster, desk: Desk) -> None:
    office = EventOffice(desk)
    cluster.fail(503, "create", "events", 100)
    async with running(desk.outbox.run()), asyncio.timeout(0.5):
        office.say("one")
        await until(desk.faults.active)
        cluster.delay(10, "create", "events")
        office.say("two")
        await desk.outbox.drain(slices.slice_of("default"), 0.05)
    assert office.dropped("fenced") == 2
    assert not desk.faults.active(), "with the term its faults are over"


@pytest.mark.parametrize("broken", ["_document", "Correlator.correlate"])
async def test_an_event_with_a_defect_is_dropped_and_the_next_one_written(
    office: EventOffice, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, _, name = f"events.{broken}".rpartition(".")
    place = events if owner == "events" else events.Correlator
    works = getattr(place, name)

    def breaks(*given: Any) -> Any:
        if given[-1].message == "bad":
            raise ZeroDivisionError
        return works(*given)

    monkeypatch.setattr(place, name, breaks)
    for message in ("bad", "good", "bad", "better"):
        office.say(message, about=WEB)
    await until(lambda: len(office.events()) == 2)
    assert {event["message"] for event in office.events()} == {"good", "better"}
    assert office.dropped("unexpected") == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]
