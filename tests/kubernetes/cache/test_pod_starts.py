"""The starts of pods: recorded lists of pods, with figures computed by hand, and what no list may do.

A line of a file in ``tests/data/ready-times`` is a PodList, as ``kubectl get pods -o json`` gives it.
"""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kubernetes.cache import pod_codec
from adapter.kubernetes.cache.pod_starts import (
    CRASHING,
    NO_NODE,
    PULL_FAILED,
    PULLING,
    STARTING,
    UNSCHEDULABLE,
    StartingPods,
)
from adapter.kubernetes.cache.pods import PodCache
from adapter.model.label_selectors import parse_selector
from adapter.model.ready_times import LeftOut, Outcome, Percentiles, PodStart, ReadyLedger, ReadyTimes
from tests.kubernetes.apiclient import unconnected
from tests.support.answers import answers

JSON = dict[str, Any]
DATA = Path(__file__).parents[2] / "data" / "ready-times"
WEB = parse_selector("app=web")


class HandFedPods:
    """A cache that is fed lists by hand, and the ledger of the pods ``app=web`` of the namespace shop."""

    def __init__(self) -> None:
        self.cache = PodCache(unconnected())
        self.ledger = ReadyLedger()
        self.told = 0
        self.follow(self.ledger.note)

    def follow(self, started: Callable[[PodStart | Outcome], None]) -> None:
        self.cache.follow("shop", WEB, "shop/web", self._note, started)

    def _note(self) -> None:
        self.told += 1

    def list(self, pods: Sequence[JSON]) -> None:
        """Take a list: pods that are not in it are gone."""
        listed = {pod["metadata"]["name"] for pod in pods}
        for namespace, names in list(self.cache.listing("")):
            for name in set(names) - listed:
                self.cache.remove(namespace, name)
        self.put(*pods)
        if not self.cache.synced:
            self.cache.reflectors[0].synced = True
            list(self.cache.listed(""))

    def put(self, *pods: JSON) -> None:
        for pod in pods:
            self.cache.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(pod)))
        self.cache.end_batch()

    def times(self) -> ReadyTimes:
        times = self.ledger.times()
        assert times is not None
        return times

    def starting(self) -> dict[str, int]:
        """Return the flags of the pods that have never been Ready."""
        return {pod.name: pod.starting for pod in self.cache.select("shop", WEB) if pod.starting}


def recorded(name: str) -> list[list[JSON]]:
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["items"] for line in lines]


def after(name: str) -> HandFedPods:
    watched = HandFedPods()
    for pods in recorded(name):
        watched.list(pods)
    return watched


# -- recorded lists ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "total", "scheduled", "started", "ready", "counts"),
    answers("kubernetes/pod_starts", "ready times of recorded lists"),
)
def test_ready_times_of_recorded_lists(
    name: str,
    total: tuple[int, int],
    scheduled: tuple[int, int],
    started: tuple[int, int],
    ready: tuple[int, int],
    counts: tuple[int, int, int],
) -> None:
    count, unschedulable, pull_failed = counts
    assert after(name).times() == ReadyTimes(
        total=Percentiles(*total),
        scheduled=Percentiles(*scheduled),
        started=Percentiles(*started),
        ready=Percentiles(*ready),
        initialized=Percentiles(0, 0),
        count=count,
        unschedulable=unschedulable,
        pull_failed=pull_failed,
    )


def test_a_crash_loop_is_only_counted() -> None:
    watched = after("crash-loop")

    times = watched.times()
    assert (times.count, times.total) == (1, Percentiles(6, 6))
    assert watched.ledger.left_out() == LeftOut(restarted=1, ended=0, incoherent=0)
    assert watched.starting() == {"web-b": STARTING | CRASHING}


def test_pods_that_were_never_ready_are_only_counted_and_a_second_ready_is_no_start() -> None:
    watched = after("never-ready")

    assert watched.ledger.times() is None
    assert watched.ledger.left_out() == LeftOut(restarted=0, ended=2, incoherent=0)
    assert watched.starting() == {"web-a": STARTING}


def test_init_containers_are_part_of_started() -> None:
    times = after("init-containers").times()

    assert times.initialized == Percentiles(12, 12)
    assert times.started == Percentiles(15, 15)
    assert (times.ready, times.total) == (Percentiles(5, 5), Percentiles(20, 20))


def test_skewed_clocks_are_only_counted() -> None:
    watched = after("clock-skew")

    assert (watched.times().count, watched.times().total) == (1, Percentiles(7, 7))
    assert watched.ledger.left_out() == LeftOut(restarted=0, ended=0, incoherent=2)


@pytest.mark.parametrize(
    ("name", "lists", "flags"),
    [
        ("probe", 1, {"web-a": STARTING, "web-b": STARTING}),
        ("pull", 1, {"web-a": STARTING, "web-b": STARTING | PULLING | PULL_FAILED}),
        ("pull", 3, {"web-b": STARTING | PULL_FAILED}),
        ("node-wait", 1, {"web-a": STARTING | NO_NODE | UNSCHEDULABLE, "web-b": STARTING}),
        ("node-wait", 2, {"web-a": STARTING | UNSCHEDULABLE}),
        ("init-containers", 1, {"web-a": STARTING}),
        ("init-containers", 3, {}),
    ],
)
def test_flags_of_starting_pods(name: str, lists: int, flags: dict[str, int]) -> None:
    watched = HandFedPods()
    for pods in recorded(name)[:lists]:
        watched.list(pods)

    assert watched.starting() == flags


def test_starting_pods_of_a_subscription_are_counted() -> None:
    watched = HandFedPods()
    subscription = watched.cache.follow("shop", WEB, "shop/web", lambda: None)
    watched.list([*recorded("node-wait")[0], *recorded("crash-loop")[1][2:], recorded("pull")[0][1]])
    assert subscription.starting == StartingPods(pods=3, no_node=1, pulling=1, crashing=1)

    leaving = recorded("node-wait")[0][0]
    leaving["metadata"]["deletionTimestamp"] = "2026-03-02T10:01:00Z"
    watched.put(leaving)

    assert subscription.starting == StartingPods(pods=2, no_node=0, pulling=1, crashing=1)


def test_a_pod_may_wait_for_its_gates() -> None:
    pod = recorded("node-wait")[0][0]
    _condition(pod, "PodScheduled")["reason"] = "SchedulingGated"
    watched = HandFedPods()

    watched.list([pod])

    assert watched.starting() == {"web-a": STARTING | NO_NODE}


def test_conditions_that_cannot_be_read_are_not_known() -> None:
    watched = HandFedPods()
    watched.list(recorded("probe")[0][:1])
    ready = recorded("probe")[-1][0]
    _condition(ready, "PodScheduled")["status"] = "Unknown"
    _condition(ready, "Initialized")["lastTransitionTime"] = "soon"

    watched.put(ready)

    assert (watched.times().scheduled, watched.times().initialized) == (None, None)
    assert watched.times().total == Percentiles(14, 14)


# -- once ----------------------------------------------------------------------------------------------------


def test_pods_of_the_first_list_are_no_starts() -> None:
    watched = HandFedPods()

    watched.list(recorded("probe")[-1])
    watched.list(recorded("probe")[-1])

    assert watched.ledger.times() is None


def test_a_pod_that_came_while_the_watch_was_away_is_a_start() -> None:
    watched = HandFedPods()
    watched.list([])

    watched.list(recorded("probe")[-1])

    assert watched.times().count == 3


def failing_later() -> JSON:
    """Return a pod that was Ready at 10:00 and whose probe fails at 10:30."""
    pod = recorded("probe")[-1][0]
    _condition(pod, "Ready").update(status="False", lastTransitionTime="2026-03-02T10:30:00Z")
    return pod


def test_a_pod_is_recorded_once() -> None:
    watched = after("probe")
    ready = recorded("probe")[-1][0]
    failing = failing_later()

    watched.put(failing, ready, failing, ready)

    assert watched.times().count == 3


def test_a_pod_that_is_not_ready_at_first_sight_may_have_been_before() -> None:
    """Its probe fails: Ready has been False since long after the pod was initialized."""
    failing = failing_later()
    watched = HandFedPods()

    watched.list([failing])
    watched.list(recorded("probe")[-1][:1])

    assert watched.ledger.times() is None


def test_a_ready_that_was_missed_is_no_start() -> None:
    """The watch was away when the pod was Ready first."""
    watched = HandFedPods()
    watched.list(recorded("probe")[0])
    failing = failing_later()

    watched.put(failing)
    watched.put(recorded("probe")[-1][0])

    assert watched.ledger.times() is None
    assert watched.ledger.left_out() == LeftOut(0, 0, 0)


def test_another_pod_of_the_same_name_is_a_start_of_its_own() -> None:
    """A pod of a StatefulSet was replaced while the watch was away."""
    watched = HandFedPods()
    watched.list(recorded("never-ready")[0][:1])
    replaced = recorded("probe")[0][0]
    replaced["metadata"]["name"] = "web-old"
    replaced["status"]["startTime"] = "2026-03-02T10:30:00Z"
    ready = recorded("probe")[-1][0]
    ready["metadata"]["name"] = "web-old"
    ready["status"]["startTime"] = "2026-03-02T10:30:00Z"

    watched.put(replaced)
    assert watched.starting() == {"web-old": STARTING}
    watched.put(ready)

    assert watched.times().total == Percentiles(14, 14)


def test_flags_change_without_a_decision() -> None:
    watched = HandFedPods()
    watched.list(recorded("pull")[0])
    told = watched.told
    failing = copy.deepcopy(recorded("pull")[0][0])
    failing["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] = "ErrImagePull"

    watched.put(failing)

    assert watched.starting()["web-a"] == STARTING | PULLING | PULL_FAILED
    assert watched.told == told


# -- hostile -------------------------------------------------------------------------------------------------


def _condition(pod: JSON, kind: str) -> JSON:
    found: JSON = next(each for each in pod["status"]["conditions"] if each["type"] == kind)
    return found


def _started(**change: Any) -> HandFedPods:
    """Show a pod starting, then Ready with a changed status."""
    watched = HandFedPods()
    watched.list(recorded("probe")[0][:1])
    ready = recorded("probe")[-1][0]
    ready["metadata"] |= change.pop("metadata", {})
    ready["status"] |= change
    watched.put(ready)
    return watched


@pytest.mark.parametrize(
    "created", ["", "yesterday", None, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-03-01T09:00:00Z"]
)
def test_absurd_creations_are_only_counted(created: str | None) -> None:
    watched = _started(metadata={"creationTimestamp": created})

    assert watched.ledger.times() is None
    assert watched.ledger.left_out() == LeftOut(0, 0, 1)


@pytest.mark.parametrize(
    "statuses", answers("kubernetes/pod_starts", "container statuses that cannot be read are not known")
)
def test_container_statuses_that_cannot_be_read_are_not_known(statuses: Any) -> None:
    times = _started(containerStatuses=statuses).times()

    assert (times.total, times.scheduled) == (Percentiles(14, 14), Percentiles(0, 0))
    assert (times.started, times.ready) == (None, None)


@given(
    st.dictionaries(
        st.sampled_from(["conditions", "containerStatuses", "initContainerStatuses", "phase", "startTime"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "status", "state", "waiting", "reason", "restartCount"]), inner
                )
            ),
            max_leaves=6,
        ),
    )
)
def test_no_status_of_containers_spoils_a_pod(status: JSON) -> None:
    """A pod is decoded whenever it was before its container statuses were read."""
    known = {key: status[key] for key in status if "Statuses" in key}
    watched = HandFedPods()

    watched.list([])
    watched.put({"metadata": {"name": "p", "namespace": "shop", "labels": {"app": "web"}}, "status": known})

    assert [pod.name for pod in watched.cache.select("shop", WEB)] == ["p"]
