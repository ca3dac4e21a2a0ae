"""What is prepared of pods equals what a walk over them finds, for any pods, values and times."""

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from adapter.autoscaler.decide import observation, roster
from adapter.model.objects.pods import Container, PodFacts, PodList, ResourceRequirements
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND

_NAMES = ("a", "b", "c")
_TIMES = st.integers(0, 700).map(lambda seconds: seconds * SECOND)
_PODS = st.builds(
    PodFacts,
    st.sampled_from(_NAMES),  # repeated ones too, as a document may have them
    st.sampled_from(("Running", "Running", "Pending", "Failed", "Succeeded")),
    deleting=st.sampled_from((False, False, False, True)),
    started=st.one_of(_TIMES, st.none()),
    ready=st.sampled_from(("True", "True", "True", "False", None)),
    ready_since=_TIMES,
    containers=st.sampled_from(
        [(Container("app", ResourceRequirements({"cpu": read(text)})),) for text in ("1", "500m")]
        + [(Container("app"),)]
    ),
)
_READINGS = st.builds(
    observation.PodsReading,
    st.dictionaries(st.sampled_from((*_NAMES, "gone")), st.integers(0, 9)),
    st.dictionaries(st.sampled_from(_NAMES), st.tuples(_TIMES, _TIMES)),
)


@given(
    st.lists(_PODS, max_size=4).map(PodList),
    st.lists(st.tuples(_READINGS, _TIMES, st.booleans()), min_size=1, max_size=4),
)
def test_groups_are_those_of_a_walk_at_any_time(
    pods: PodList[PodFacts], decisions: list[tuple[observation.PodsReading, int, bool]]
) -> None:
    settings = observation.Settings()
    for reading, now, cpu in decisions:
        prepared = roster.prepare(pods)
        found = astuple(roster.group(pods, reading, settings, now, cpu=cpu))
        walked = astuple(observation.group_pods(pods, reading, settings, now, cpu=cpu))
        assert [found[0], *map(list, found[1:])] == [walked[0], *map(list, walked[1:])]
        assert prepared.ready == observation.count_ready(pods)


def test_cpu_counts_from_the_nanosecond_at_which_the_initialization_period_ends() -> None:
    pods = PodList(
        PodFacts(name, ready="True", started=at, ready_since=at) for name, at in (("a", 7), ("b", 9))
    )
    reading = observation.PodsReading({"a": 1, "b": 1})  # without samples, so no pod counts within the period

    def count(period: int, now: int) -> int:
        settings = observation.Settings(cpu_initialization_period=period)
        return roster.group(pods, reading, settings, now, cpu=True).ready

    assert [count(300, now) for now in (306, 307, 308, 309)] == [0, 1, 1, 2]
    assert [count(0, 309), count(301, 309), count(303, 309)] == [2, 1, 0]


@pytest.mark.parametrize(
    "others", [[], [PodFacts("b", ready="True", started=0)]], ids=["alone", "beside another"]
)
def test_a_pod_without_a_start_is_not_ready_however_late_it_is(others: list[PodFacts]) -> None:
    pods = PodList([PodFacts("a", ready="True"), *others])
    for now in (SECOND, 3600 * SECOND):
        groups = roster.group(
            pods, observation.PodsReading({"a": 1, "b": 1}), observation.Settings(), now, cpu=True
        )
        assert "a" in groups.unready


@given(st.lists(_PODS, max_size=4).map(PodList), st.sampled_from(("", "app", "other")))
def test_requests_are_those_of_a_walk(pods: PodList[PodFacts], container: str) -> None:
    walked = {pod.name: observation.read_request(pod, "cpu", container) for pod in pods}
    refused = [
        found
        for pod in pods
        if isinstance(found := observation.read_request(pod, "cpu", container), observation.Unavailable)
    ]
    for _ in range(2):
        assert roster.read_requests(pods, "cpu", container) == (refused[0] if refused else walked)


def test_a_roster_is_kept_with_a_list_that_never_changes() -> None:
    pods = PodList([PodFacts("a")])
    assert roster.prepare(pods) is roster.prepare(pods)
    changing = [PodFacts("a")]
    assert roster.prepare(changing).count == 1
    changing.append(PodFacts("b"))
    assert roster.prepare(changing).count == 2


class _TrackedPod(PodFacts, frozen=True, weakref=True):
    """A pod whose end can be seen."""


def test_pods_that_were_replaced_are_freed_without_a_garbage_collection() -> None:
    pods = PodList([_TrackedPod("a", ready="True", started=0)])
    roster.group(pods, observation.PodsReading({"a": 1}), observation.Settings(), SECOND, cpu=True)
    roster.read_requests(pods, "cpu", "")
    former = weakref.ref(pods[0])
    del pods
    assert former() is None


def test_requests_that_autoscalers_ask_for_one_after_the_other_do_not_pile_up() -> None:
    pods = PodList([PodFacts("a")])
    for number in range(100):
        refused = roster.read_requests(pods, "cpu", f"app-{number}")
        assert isinstance(refused, observation.Unavailable)
        assert refused.message == f"container app-{number} not found in Pod a"
    assert len(roster.prepare(pods).requests) <= 32
