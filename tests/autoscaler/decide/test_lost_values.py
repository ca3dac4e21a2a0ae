"""Ready pods that lose their values: a metric of pods scales up on the values that are left, not down.

`scripts/lost-values` has for how long.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, Fallback
from adapter.model.timestamps import SECOND, Span
from fastpath_forecast.simulate import deciders
from tests.autoscaler.decide.synced import GONE, SyncedScaler, condition
from tests.support.answers import answers
from tests.support.scaling import NOW, cpu_metric, external_metric, object_metric, pod, pods, pods_metric

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


def test_a_value_that_was_left_out_is_not_lost(story: SyncedScaler) -> None:
    left_out = {name: 11_000 for name in HALF if name not in LEFT}
    assert story.at(1, PodsReading(LEFT, left_out=left_out)).replicas == 8
    assert story.at(2, LEFT).replicas == 8


def test_after_overdue_values_the_bound_begins_at_the_first_whole_reading(story: SyncedScaler) -> None:
    for at in range(1, 2 * LATE, 60):
        assert story.at(at, PodsReading(LEFT, overdue="partial")).replicas == 10
    assert story.counts((2 * LATE, 3 * LATE - 1, 3 * LATE), LEFT) == [10, 10, 8]


def test_of_several_ways_the_usual_one_loses_values(story: SyncedScaler) -> None:
    usual = PodsReading(LEFT)
    assert story.at(1, Ways((usual, usual))).replicas == 10
    assert "5 of 10 Ready pods lack a value" in why_blocked(story)
    assert story.at(2, Ways((usual, PodsReading(dict.fromkeys(HALF, 2 * IDLE))))).replicas == 10
    assert story.at(3, Ways((usual, PodsReading(dict.fromkeys(HALF, LOADED))))).replicas == 15


@pytest.mark.parametrize("changed", answers("decide/lost_values", "other pods"))
def test_other_pods_without_a_value_are_kubernetes_own(changed: dict[str, Any] | None) -> None:
    story, plain = losing(), losing()
    story.at(0, HALF)
    listed = [] if changed is None else [pod(f"web-{number}", **changed) for number in range(5)]
    story.pods = plain.pods = [*listed, *(pod(name) for name in LEFT)]
    assert story.at(1, LEFT).replicas == plain.at(1, LEFT).replicas < 10


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


def test_two_selectors_of_one_metric_are_apart() -> None:
    selected = pods_metric("10")
    selected["pods"]["metric"]["selector"] = {"matchLabels": {"verb": "GET"}}
    story = losing(pods_metric("10"), selected)
    story.at(0, HALF, LEFT)
    assert story.at(1, LEFT, LEFT).replicas == 10
    assert len(story.memory.history.reporting) == 2


@pytest.mark.parametrize("container", ["", "app"])
def test_a_resource_metric_loses_values(container: str) -> None:
    story = losing(container_metric(100) if container else cpu_metric(100))
    whole = {name: value // 10 for name, value in HALF.items()}
    left = {name: whole[name] for name in LEFT}
    assert story.at(0, usages(whole)).replicas == 10
    assert story.at(1, usages(left)).replicas == 10
    assert "unable to get metrics for resource cpu: 5 of 10 Ready pods lack a value" in why_blocked(story)


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
