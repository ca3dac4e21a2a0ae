"""What keeps pods of a target from getting Ready, from pods as the kubelet and the controllers write them."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.timestamps import SECOND
from fastpath_tools.live import unready
from fastpath_tools.live.api_objects import ObjectEvent, PodDocument, WorkloadDocument
from fastpath_tools.live.facts import UnreadyPods
from tests.support import pod_incidents
from tests.support.pod_incidents import INCIDENTS, NOW, OLD_PODS, SETS, A, B, PodIncident, ready, running


def read(
    incident: PodIncident, *, usual: float = 60.0, later: float = 0.0, **changes: Any
) -> UnreadyPods | None:
    incident = incident._replace(**changes)
    pods = msgspec.convert(list(incident.pods), list[PodDocument], dec_hook=decode_scalar)
    sets = msgspec.convert(list(incident.sets or SETS), list[WorkloadDocument], dec_hook=decode_scalar)
    events = msgspec.convert(list(incident.events), list[ObjectEvent], dec_hook=decode_scalar)
    target = unready.PodTarget("Deployment web", incident.replicas, sets, usual)
    return unready.find(target, pods, events, round((NOW + later) * SECOND))


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_cause_of_an_incident(name: str) -> None:
    incident = INCIDENTS[name]
    cause = read(incident)
    assert cause is not None
    assert incident.cause in cause.text
    assert incident.advice in cause.change
    assert cause.is_late
    assert "\n" not in cause.text


@pytest.mark.parametrize("name", [name for name, incident in INCIDENTS.items() if "event" not in name])
def test_without_events_the_states_decide(name: str) -> None:
    assert read(INCIDENTS[name], events=()) is not None


def test_all_is_well() -> None:
    healthy = PodIncident([ready(f"web-{letter}") for letter in "abcdefgh"], "", "")
    assert read(healthy) is None
    once = ready("web-a", restarts=1, lastState=pod_incidents.terminated(1))
    assert read(healthy, pods=[once, *healthy.pods[1:]]) is None, "one restart of a Ready pod"
    long_ago = ready("web-a", restarts=9, lastState=pod_incidents.terminated(1, ago=700))
    assert read(healthy, pods=[long_ago, *healthy.pods[1:]]) is None
    done = pod_incidents.pod("web-job", phase="Succeeded")
    assert read(healthy, pods=[done, *healthy.pods]) is None


def test_pods_that_start_as_usual_are_no_problem() -> None:
    starting = PodIncident(pod_incidents.both(running(), phase="Running"), "", "")
    assert read(starting, usual=130.0) is None
    assert read(starting, usual=120.0) is not None


def test_a_failure_is_late_after_the_usual_time() -> None:
    incident = INCIDENTS["image not found"]
    early, late = read(incident, usual=130.0), read(incident, usual=130.0, later=10)
    assert early is not None
    assert late is not None
    assert (early.is_late, late.is_late) == (False, True)
    assert early.text == late.text


def test_a_node_that_does_not_report_is_no_matter_of_time() -> None:
    cause = read(INCIDENTS["node NotReady"], usual=1000.0, events=())
    assert cause is not None
    assert not cause.is_late
    assert cause.text.endswith("node node-1: it does not report")


def test_the_newest_version_comes_first() -> None:
    old = [one | {"status": INCIDENTS["crash loop"].pods[0]["status"]} for one in OLD_PODS]
    cause = read(INCIDENTS["image not found"], pods=[*INCIDENTS["image not found"].pods[:2], *old])
    assert cause is not None
    assert "ImagePullBackOff" in cause.text
    assert cause.pod in {A, B}


def test_a_failure_comes_before_pods_that_only_take_long() -> None:
    slow = pod_incidents.both(running(), phase="Running")[:2]
    crashing = [one | {"status": INCIDENTS["crash loop"].pods[0]["status"]} for one in OLD_PODS]
    cause = read(PodIncident([*slow, *crashing], "", ""))
    assert cause is not None
    assert "revision 1" in cause.text


def test_pods_of_others_do_not_count() -> None:
    other = pod_incidents.pod("job-1", "job", containerStatuses=[pod_incidents.waiting("ErrImagePull")])
    healthy = [ready(f"web-{letter}") for letter in "abcdefgh"]
    assert read(PodIncident([other, *healthy], "", "")) is None


def test_a_stateful_set_names_its_revision() -> None:
    one = pod_incidents.pod("web-3", "web", containerStatuses=[pod_incidents.waiting("ErrImagePull", "gone")])
    one["metadata"]["labels"] = {"app": "web", "controller-revision-hash": "web-7f"}
    itself = {"metadata": {"name": "web", "namespace": "shop"}}
    cause = read(PodIncident([one], "", "", sets=[itself], replicas=1))
    assert cause is not None
    assert f"(revision web-7f, image {pod_incidents.IMAGE}): container app: ErrImagePull: gone" in cause.text


def test_terminating_pods_matter_only_where_they_are_waited_for() -> None:
    gone = pod_incidents.held()
    healthy = [ready(f"web-{letter}") for letter in "abcdefgh"]
    assert read(PodIncident([*gone, *healthy], "", "")) is None


@pytest.mark.parametrize("text", ["x" * 5, "99999999999999999999", "-1", "2"])
def test_a_revision_is_a_number(text: str) -> None:
    annotations = {"deployment.kubernetes.io/revision": text}
    document = {"metadata": {"name": "web-1", "annotations": annotations}}
    one = msgspec.convert(document, WorkloadDocument, dec_hook=decode_scalar)
    assert unready.revision(one) == (2 if text == "2" else 0)


def test_a_long_message_is_bounded() -> None:
    text = unready.tidy("a (b (c) d) " * 80 + "\n end. ")
    assert text == " ".join(["a"] * 80) + " end"
    assert len(unready.tidy("x" * 1000)) == 603
