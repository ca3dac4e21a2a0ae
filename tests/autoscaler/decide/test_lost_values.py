"""Ready pods that lose their values: a metric of pods scales up on the values that are left, not down."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.guards.fallback import Absence
from adapter.autoscaler.decide.guards.lost_values import LATELY
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    PodsReading,
    Reading,
    Unavailable,
    Ways,
)
from adapter.model.autoscaling import status
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST, PAUSED, Fallback
from adapter.model.timestamps import SECOND, Span, write_instant
from fastpath_forecast.simulate import deciders
from tests.autoscaler.decide.synced import GONE, SyncedScaler, condition
from tests.support.answers import answers
from tests.support.controller import LIVE
from tests.support.scaling import (
    NOW,
    autoscaler,
    cpu_metric,
    external_metric,
    object_metric,
    pod,
    pods,
    pods_metric,
)

LATE = LATELY // SECOND
LOADED, IDLE = 15_000, 5_000
HALF = {f"web-{number}": LOADED if number < 5 else IDLE for number in range(10)}
"""Ten pods that need ten: five are loaded, five are not."""
LEFT = {name: value for name, value in HALF.items() if value == IDLE}
FEWER = "fewer pods are cached than the target has"


def eager(window: int = 0) -> dict[str, Any]:
    return {"behavior": {"scaleDown": {"stabilizationWindowSeconds": window}}}


def container_metric(utilization: int) -> dict[str, Any]:
    source = cpu_metric(utilization).pop("resource") | {"container": "app"}
    return {"type": "ContainerResource", "containerResource": source}


def losing(*metrics: dict[str, Any], window: int = 0, replicas: int = 10) -> SyncedScaler:
    return SyncedScaler(replicas, metrics or [pods_metric("10")], **eager(window))


def why_blocked(scaler: SyncedScaler) -> str:
    """Return why the metrics do not scale, "" if they do."""
    assert scaler.last is not None
    found = condition(scaler.last, status.SCALING_ACTIVE)
    return "" if found is None or found[0] == "True" else found[2] or ""


@pytest.fixture
def story() -> SyncedScaler:
    """An autoscaler whose ten pods all had a value at 0 seconds."""
    made = losing()
    made.at(0, HALF)
    return made


def test_the_message_says_how_many_since_when_and_does_not_change_with_time(story: SyncedScaler) -> None:
    assert story.counts((1, 12), LEFT) == [10, 10]
    assert why_blocked(story) == (
        "the HPA was unable to compute the replica count: unable to get metric load: 5 of 10 Ready pods "
        "lack a value that they had until 2026-11-20T12:00:01Z: it may scale up, not down"
    )
    assert story.last is not None
    assert "5 of 10 Ready pods lack a value" in "\n".join(step.text() for step in story.last.trace)
    assert not story.last.status_changed


LOADED_LEFT_OUT = PodsReading(LEFT, left_out={name: 11_000 for name in HALF if name not in LEFT})
_Steps = list[tuple[float, Reading | Mapping[str, int], int]]
ABSENT: _Steps = [(at, GONE, 10) for at in range(1, 2 * LATE, 60)]
OVERDUE: _Steps = [(at, PodsReading(LEFT, overdue="partial"), 10) for at in range(1, 2 * LATE, 60)]
AFTER_OUTAGE: _Steps = [(2 * LATE, LEFT, 10), (3 * LATE - 1, LEFT, 10), (3 * LATE, LEFT, 8)]
STORIES: dict[str, _Steps] = {
    "the pods that are left may scale up": [(1, dict.fromkeys(LEFT, 30_000), 15)],
    "Kubernetes' formula holds after the bound": [(1, LEFT, 10), (LATE + 0.9, LEFT, 10), (LATE + 1, LEFT, 8)],
    "a raise after the block is not delayed": [(1, LEFT, 10), (2, dict.fromkeys(HALF, 20_000), 20)],
    "the values come back": [(1, LEFT, 10), (2, dict.fromkeys(HALF, IDLE), 5)],
    "each loss has the whole bound": [
        (1, LEFT, 10),
        (LATE, HALF, 10),
        (LATE + 1, LEFT, 10),
        (2 * LATE, LEFT, 10),
        (2 * LATE + 1, LEFT, 8),
    ],
    "a value that was left out is not lost": [(1, LOADED_LEFT_OUT, 8), (2, LEFT, 8)],
    "after absent values the bound begins at the first whole reading": [*ABSENT, *AFTER_OUTAGE],
    "so it does after overdue values": [*OVERDUE, *AFTER_OUTAGE],
}
"""What ten pods that all had a value at 0 seconds have afterwards, and the counts."""


@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_what_blocks_and_for_how_long(steps: _Steps, story: SyncedScaler) -> None:
    assert [story.at(at, reading).replicas for at, reading, _ in steps] == [count for *_, count in steps]
    assert bool(why_blocked(story)) == (story.replicas == 10)


def test_the_stabilization_window_begins_at_the_last_blocked_decision() -> None:
    story = losing(window=300)
    story.at(0, HALF)
    counts = story.counts(range(1, LATE + 300), LEFT)
    assert set(counts) == {10}
    assert story.at(LATE + 300, LEFT).replicas == 8


def test_of_several_ways_the_usual_one_loses_values(story: SyncedScaler) -> None:
    usual = PodsReading(LEFT)
    assert story.at(1, Ways((usual, usual))).replicas == 10
    assert "5 of 10 Ready pods lack a value" in why_blocked(story)
    assert story.at(2, Ways((usual, PodsReading(dict.fromkeys(HALF, 2 * IDLE))))).replicas == 10
    assert story.at(3, Ways((usual, PodsReading(dict.fromkeys(HALF, LOADED))))).replicas == 15


def test_pods_are_lost_one_after_the_other(story: SyncedScaler) -> None:
    values = dict(HALF)
    for at in range(5):
        del values[f"web-{at}"]
        assert story.at(at * 100 + 1, values).replicas == 10
    assert story.at(LATE + 400, values).replicas == 10
    assert story.at(LATE + 401, values).replicas == 8


@pytest.mark.parametrize("changed", answers("decide/lost_values", "other pods"))
def test_other_pods_without_a_value_are_kubernetes_own(changed: dict[str, Any] | None) -> None:
    story, plain = losing(), losing()
    story.at(0, HALF)
    listed = [] if changed is None else [pod(f"web-{number}", **changed) for number in range(5)]
    story.pods = plain.pods = [*listed, *(pod(name) for name in LEFT)]
    assert story.at(1, LEFT).replicas == plain.at(1, LEFT).replicas < 10


def test_a_pod_that_never_had_a_value_does_not_block() -> None:
    story = losing()
    assert story.at(0, LEFT).replicas == 8


def test_after_a_start_the_stabilization_window_protects() -> None:
    """Another leader does not know which pods had values; its first recommendation is the current count."""
    story = losing(window=300)
    story.at(0, HALF)
    story.memory, story.last = memories.remember(story.memory.status), None
    assert story.counts((1, 300), LEFT) == [10, 10]
    assert story.at(301, LEFT).replicas == 8


def test_after_a_start_the_stabilization_window_begins_with_the_first_value() -> None:
    """A scaler that went on would have seen the load while this one has no values yet."""
    story = losing(window=20)
    assert story.counts(range(30), GONE) == [10] * 30
    assert [story.at(at, seen).replicas for at, seen in ((30, LEFT), (40, GONE), (49, LEFT))] == [10] * 3
    assert story.at(50, LEFT).replicas == 8


@pytest.mark.parametrize(
    ("meanwhile", "count"), [({"ready": "False"}, 10), ({"deleting": True}, 8)], ids=["unready", "replaced"]
)
def test_a_pod_that_is_ready_again_still_blocks_but_not_a_new_one_of_its_name(
    meanwhile: dict[str, Any], count: int
) -> None:
    story = losing(window=30)
    story.at(0, HALF)
    ready = story.pods = pods(10)
    story.at(1, LEFT)
    story.pods = [*(pod(f"web-{number}", **meanwhile) for number in range(5)), *ready[5:]]
    story.at(2, LEFT)
    story.pods = ready
    assert story.at(40, LEFT).replicas == count


@pytest.mark.parametrize("lost_before", [False, True])
def test_pods_that_the_cache_lacks_are_not_gone(story: SyncedScaler, *, lost_before: bool) -> None:
    if lost_before:
        story.at(1, LEFT)
    story.pods = []
    story.at(2, PodsReading(LEFT, overdue=FEWER))
    story.pods = pods(10)
    assert story.at(3, LEFT).replicas == 10
    assert story.at(LATE + 3, LEFT).replicas == 8


def test_no_more_pods_are_kept_than_the_cache_lacks(story: SyncedScaler) -> None:
    story.pods = [pod(f"new-{number}") for number in range(8)]
    story.at(1, PodsReading(LEFT, overdue=FEWER))
    (reporting,) = story.memory.history.reporting.values()
    assert reporting == (("web-0", "web-1"), {})


def test_an_overdue_reading_is_remembered() -> None:
    """The first readings of Prometheus are overdue: its sample interval is not known yet."""
    story = losing()
    story.at(0, PodsReading(HALF, overdue="its sample interval is not known yet"))
    assert story.at(1, LEFT).replicas == 10


def test_an_overdue_reading_keeps_its_own_reason(story: SyncedScaler) -> None:
    story.at(1, LEFT)
    story.at(2, PodsReading(LEFT, overdue="the answer is partial"))
    assert why_blocked(story).endswith("the answer is partial: it may scale up, not down")


def test_values_of_unknown_pods_are_not_kept() -> None:
    story = losing()
    story.at(0, HALF | {f"other-{number}": 10_000 for number in range(100)})
    (reporting,) = story.memory.history.reporting.values()
    assert reporting.pods == tuple(HALF)
    assert story.at(1, HALF).replicas == 10


@pytest.mark.parametrize("lost", [0, 1])
def test_one_of_two_metrics_loses_values(lost: int) -> None:
    metrics = [pods_metric("10"), pods_metric("10", name="other")]
    story = losing(*metrics)
    low = dict.fromkeys(HALF, 2_000)
    for at, loaded in enumerate((HALF, LEFT)):
        readings = [low, low]
        readings[lost] = loaded
        assert story.at(at, *readings).replicas == 10
    assert f"metric {('load', 'other')[lost]}: 5 of 10 Ready pods" in why_blocked(story)


def test_two_selectors_of_one_metric_are_apart() -> None:
    selected = pods_metric("10")
    selected["pods"]["metric"]["selector"] = {"matchLabels": {"verb": "GET"}}
    story = losing(pods_metric("10"), selected)
    story.at(0, HALF, LEFT)
    assert story.at(1, LEFT, LEFT).replicas == 10
    assert len(story.memory.history.reporting) == 2


def test_metrics_of_no_pods_have_no_part() -> None:
    story = losing(external_metric(averageValue="1"))
    assert story.at(0, ExternalReading((10_000,))).replicas == 10
    assert story.memory.history.reporting == {}
    assert story.at(1, ExternalReading((3_000,))).replicas == 3


def test_metrics_that_left_the_spec_are_forgotten(story: SyncedScaler) -> None:
    story.spec = autoscaler([pods_metric("10", name="other")], LIVE, **eager())
    story.at(1, HALF)
    assert list(story.memory.history.reporting) == ["pods other nil"]


def test_another_target_of_the_metric_forgets_nothing(story: SyncedScaler) -> None:
    story.spec = autoscaler([pods_metric("12")], LIVE, **eager())
    assert story.at(1, LEFT).replicas == 10


@pytest.mark.parametrize("container", ["", "app"])
def test_a_resource_metric_loses_values(container: str) -> None:
    story = losing(container_metric(100) if container else cpu_metric(100))
    whole = {name: value // 10 for name, value in HALF.items()}
    left = {name: whole[name] for name in LEFT}
    assert story.at(0, usages(whole)).replicas == 10
    assert story.at(1, usages(left)).replicas == 10
    assert "unable to get metrics for resource cpu: 5 of 10 Ready pods lack a value" in why_blocked(story)


def test_a_pause_forgets_nothing(story: SyncedScaler) -> None:
    story.constrain(mode=PAUSED)
    story.at(1, GONE)
    story.constrain(mode=AUTO)
    assert story.at(2, LEFT).replicas == 10


def test_an_hpa_is_decided_as_kubernetes_decides() -> None:
    story = losing()
    story.constrain(mode=BOOST, boost=Boost(BOOST))
    story.at(0, HALF)
    story.at(1, LEFT)
    assert story.memory.history.reporting == {}
    assert story.memory.status.desired_replicas == 8


def test_a_fallback_may_raise(story: SyncedScaler) -> None:
    story.constrain(fallback=Fallback("Floor", Span(SECOND), 12))
    story.change(absence=Absence(NOW))
    assert story.at(1, LEFT).replicas == 12


def test_a_clock_that_is_set_keeps_the_bound(story: SyncedScaler) -> None:
    story.at(1, LEFT)
    by = 1000 * SECOND
    assert story.at(LATE, LEFT, set_by=by).replicas == 10
    assert f"a value that they had until {write_instant(NOW + SECOND + by)}" in why_blocked(story)
    assert story.at(LATE + 1, LEFT, set_by=by).replicas == 8


def test_the_end_of_a_block_is_known(story: SyncedScaler) -> None:
    story.at(1, LEFT)
    history = story.memory.history
    assert deciders.next_boundary(story.spec, history, NOW + SECOND) == NOW + SECOND + LATELY
    assert deciders.next_boundary(story.spec, history, NOW + SECOND + LATELY) > NOW + SECOND + LATELY


# -- properties ----------------------------------------------------------------------------------------------


@given(values=st.lists(st.integers(0, 40_000), min_size=1, max_size=12), data=st.data())
def test_lost_values_never_lower_a_decision(values: list[int], data: st.DataObject) -> None:
    """A raise may be smaller: Kubernetes counts a pod without a value as 0 when scaling up."""
    whole = {f"web-{number}": value for number, value in enumerate(values)}
    names = data.draw(st.sets(st.sampled_from(sorted(whole))))
    left = {name: value for name, value in whole.items() if name not in names}
    at_target = dict.fromkeys(whole, 10_000)
    full, part = losing(replicas=len(values)), losing(replicas=len(values))
    full.at(0, at_target)
    part.at(0, at_target)
    wanted, count = full.at(1, whole).replicas, part.at(1, left).replicas
    assert count >= min(wanted, len(values))
    assert not names or count >= len(values)


@given(
    syncs=st.lists(
        st.tuples(
            st.floats(0.1, 400), st.dictionaries(st.sampled_from(sorted(HALF)), st.integers(0, 20_000))
        ),
        max_size=20,
    )
)
def test_a_pod_that_had_a_value_blocks_for_the_bound(syncs: list[tuple[float, dict[str, int]]]) -> None:
    """What blocks is worked out here from the times of the values alone."""
    story, at = losing(), 0.0
    story.at(0, HALF)
    since: dict[str, float | None] = dict.fromkeys(HALF)
    for pause, values in syncs:
        at += pause
        before, story.pods = story.replicas, pods(10)
        if values:
            for name in list(since):
                if name not in values and since[name] is None:
                    since[name] = at
            since |= dict.fromkeys(values)
            since = {name: when for name, when in since.items() if when is None or at - when < LATE}
        after = story.at(at, values or GONE).replicas
        if values and any(when is not None for when in since.values()):
            assert after >= before


def usages(values: Mapping[str, int]) -> PodsReading:
    return PodsReading(values, dict.fromkeys(values, (NOW, 15 * SECOND)))


WHOLE: dict[str, tuple[dict[str, Any], Reading]] = {
    "pods": (pods_metric("10"), PodsReading(HALF)),
    "cpu": (cpu_metric(100), usages({name: value // 10 for name, value in HALF.items()})),
    "container": (container_metric(100), usages({name: value // 10 for name, value in HALF.items()})),
    "object of all": (object_metric("AverageValue", averageValue="10"), ObjectReading(100_000)),
    "object": (object_metric("Value", value="10"), ObjectReading(10_000)),
    "external": (external_metric(type="AverageValue", averageValue="10"), ExternalReading((40_000, 60_000))),
}
"""Metrics that need ten pods."""


def faults(whole: Reading) -> st.SearchStrategy[Reading]:
    """Return readings that lack data, in the ways in which the sources tell so."""
    always = [whole, GONE]
    if not isinstance(whole, PodsReading):
        assert isinstance(whole, ObjectReading | ExternalReading)
        value = 1 if isinstance(whole, ObjectReading) else (1,)
        negative = -1 if isinstance(whole, ObjectReading) else (90_000, -1)
        part = msgspec.structs.replace(whole, overdue="partial")
        always += [msgspec.structs.replace(each, **{_field(whole): value}) for each in (part,)]
        always.append(msgspec.structs.replace(whole, **{_field(whole): negative}))
        return st.sampled_from(always)
    values = whole.values

    def without(names: set[str]) -> Reading:
        return msgspec.structs.replace(
            whole, values={name: value for name, value in values.items() if name not in names}
        )

    def negative_at(name: str) -> Reading:
        return msgspec.structs.replace(whole, values={**values, name: -1})

    names = st.sampled_from(sorted(values))
    return st.one_of(st.sampled_from(always), st.sets(names).map(without), names.map(negative_at))


def _field(reading: ObjectReading | ExternalReading) -> str:
    return "value" if isinstance(reading, ObjectReading) else "values"


@given(data=st.data(), names=st.sets(st.sampled_from(sorted(WHOLE)), min_size=1, max_size=3))
def test_missing_data_takes_no_needed_pod_away(data: st.DataObject, names: set[str]) -> None:
    """The load stays; within the bound anything may be missing, in one metric or in several."""
    chosen = [WHOLE[name] for name in sorted(names)]
    story = losing(*(metric for metric, _ in chosen))
    assert story.at(0, *(whole for _, whole in chosen)).replicas == 10
    for at in data.draw(st.lists(st.integers(1, LATE), max_size=8, unique=True).map(sorted)):
        readings = [data.draw(faults(whole)) for _, whole in chosen]
        if data.draw(st.booleans()):
            story.pods = data.draw(st.sampled_from([[], pods(5)]))
            readings = [
                each if isinstance(each, Unavailable) else msgspec.structs.replace(each, overdue=FEWER)
                for each in readings
            ]
        assert story.at(at, *readings).replicas >= 10
        story.replicas, story.pods = 10, pods(10)
