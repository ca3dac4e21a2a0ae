"""Events at the API server: their form, their counts, and what happens when they cannot be written."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapter.kubernetes.write import events
from adapter.kubernetes.write.events import EventOutlet, Regarding
from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.waiting import running, until
from tests.support.writing import Desk, desk_on

SLICE = slices.slice_of("default")
WEB = Regarding("fastpath.io/v1alpha1", "FastPathAutoscaler", "default", "web", "uid-1", "42")


class EventOffice:
    """A recorder at work on a cluster."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.recorder = EventOutlet(desk.outbox, lambda: 0.0, desk.monitoring, desk.faults)

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


async def test_what_the_correlator_holds_back_is_dropped(office: EventOffice) -> None:
    for _ in range(40):
        office.say("again")
    await until(lambda: office.dropped("spam") == 15)
    assert [event["count"] for event in office.events()] == [25]


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


@pytest.mark.parametrize(("why", "lost"), [("refused", "refused"), ("gone", "refused"), ("fence", "fenced")])
async def test_what_is_refused_is_not_sent_again(office: EventOffice, why: str, lost: str) -> None:
    """That a namespace is gone, or a slice has another owner, is no fault."""
    if why == "refused":
        office.desk.cluster.forbid("create", "events")
    office.desk.gate.passes = 0 if why == "fence" else None
    office.say("one", about=WEB._replace(namespace="gone") if why == "gone" else WEB)
    await until(lambda: office.dropped(lost))
    assert set(office.desk.faults.active()) == ({("event-write", "")} if why == "refused" else set())
    assert (office.events(), office.desk.asked("create", "events")) == ([], 0 if why == "fence" else 1)


async def test_a_long_text_is_cut(office: EventOffice) -> None:
    office.say("x" * 5000)
    await until(office.events)
    assert office.events()[0]["message"] == "x" * 1024


async def test_a_term_ends_with_what_is_recorded(office: EventOffice) -> None:
    office.desk.cluster.delay(0.1, "create", "events")
    office.say("one")
    office.say("two")
    await office.desk.outbox.drain(SLICE, 1.0)
    assert {(event["message"], event["count"]) for event in office.events()} == {("one", 1), ("two", 1)}


async def test_what_a_term_could_not_write_is_lost_and_no_fault_after_it(office: EventOffice) -> None:
    office.desk.cluster.fail(503, "create", "events", 100)
    office.say("one")
    office.say("two")
    await until(office.desk.faults.active)
    await office.desk.outbox.drain(SLICE, 0.05)
    assert office.dropped("fenced") == 2
    assert not office.desk.faults.active()


async def test_an_event_with_a_defect_is_lost(office: EventOffice) -> None:
    office.say("\ud800")  # it cannot be encoded
    office.say("good")
    await until(office.events)
    assert [event["message"] for event in office.events()] == ["good"]
    assert office.dropped("unexpected") == 1


async def test_of_too_many_the_largest_namespace_loses_its_latest(desk: Desk) -> None:
    office = EventOffice(desk)
    for number in range(events.QUEUED):
        office.say(str(number))
    office.say("other", about=WEB._replace(namespace="other"))
    office.say("late")
    assert desk.sample("fastpath_write_queue_length", type="event") == events.QUEUED
    assert office.dropped("queue") == 2
    latest = [each.waiting[-1].message for each in office.recorder.values()]
    assert latest == [str(events.QUEUED - 2), "other"]


async def test_a_slice_that_comes_back_goes_on_with_the_counts(office: EventOffice) -> None:
    office.say("again")
    await until(office.events)
    await office.desk.outbox.drain(SLICE)
    office.say("again")
    assert office.dropped("fenced") == 1
    office.desk.outbox.begin(SLICE, office.desk.writer)
    office.say("again")
    await until(lambda: office.events()[0]["count"] == 2)
