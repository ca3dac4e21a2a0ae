"""Ready pods that lose their values: a metric of pods scales up on the values that are left, not down."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import guarded, lost_values
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.guarded import Constraints, Memory
from adapter.autoscaler.decide.lost_values import LATELY
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
)
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, PAUSED
from adapter.model.pods import PodFacts
from adapter.model.timestamps import SECOND
from adapter.simulate import deciders
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

LIVE = Settings(scale_to_zero=True, strict=True)
LATE = LATELY // SECOND
LOADED, IDLE = 15_000, 5_000
HALF = {f"web-{number}": LOADED if number < 5 else IDLE for number in range(10)}
"""Ten pods that need ten: five are loaded, five are not."""
LEFT = {name: value for name, value in HALF.items() if value == IDLE}
GONE = Unavailable("NoMetrics", "nothing")
FEWER = "fewer pods are cached than the target has"


def eager(window: int = 0) -> dict[str, Any]:
    return {"behavior": {"scaleDown": {"stabilizationWindowSeconds": window}}}


def container_metric(utilization: int) -> dict[str, Any]:
    source = cpu_metric(utilization).pop("resource") | {"container": "app"}
    return {"type": "ContainerResource", "containerResource": source}


class Story:
    """An autoscaler that is decided second by second; what is decided is written at once."""

    def __init__(
        self, *metrics: dict[str, Any], replicas: int = 10, window: int = 0, mode: str = "Auto"
    ) -> None:
        self.spec = autoscaler(metrics or [pods_metric("10")], LIVE, **eager(window))
        self.replicas = replicas
        self.pods: Sequence[PodFacts] = pods(replicas)
        self.constraints = Constraints(mode)
        self.memory = Memory()
        self.made: Decision | None = None

    def observe(self, *readings: Reading | Mapping[str, int]) -> Observation:
        seen = [PodsReading(each) if isinstance(each, Mapping) else each for each in readings]
        return Observation(
            self.replicas, self.replicas, "app=web", self.pods, seen, status=self.memory.status
        )

    def sync(self, at: float, *readings: Reading | Mapping[str, int]) -> int:
        """Decide on readings or on plain values, `at` seconds after NOW; return the count."""
        now, observation = NOW + round(at * SECOND), self.observe(*readings)
        self.made = guarded.decide(self.spec, observation, self.memory, now, self.constraints, self.made)
        self.memory, _ = guarded.commit(self.memory, self.made, observation, now, self.constraints)
        self.replicas = self.made.replicas
        return self.replicas

    def message(self) -> str:
        """Return why the metrics do not scale, "" if they do."""
        found = {each.type: each for each in self.memory.status.conditions or ()}["ScalingActive"]
        return "" if found.status == "True" else found.message or ""


@pytest.fixture
def story() -> Story:
    """An autoscaler whose ten pods all had a value at 0 seconds."""
    made = Story()
    made.sync(0, HALF)
    return made


def test_the_pods_that_are_left_do_not_scale_down() -> None:
    story = Story()
    assert story.sync(0, HALF) == 10
    assert [story.sync(at, LEFT) for at in (1, 12, LATE)] == [10, 10, 10]
    assert story.message() == (
        "the HPA was unable to compute the replica count: unable to get metric load: 5 of 10 Ready pods "
        "lack a value that they had until 2026-11-20T12:00:01Z: it may scale up, not down"
    )
    assert story.made is not None
    assert "5 of 10 Ready pods lack a value" in "\n".join(step.text() for step in story.made.trace)


def test_the_message_does_not_change_with_time(story: Story) -> None:
    story.sync(1, LEFT)
    story.sync(2, LEFT)
    assert story.made is not None
    assert not story.made.status_changed


def test_the_pods_that_are_left_may_scale_up(story: Story) -> None:
    assert story.sync(1, dict.fromkeys(LEFT, 30_000)) == 15


def test_kubernetes_formula_holds_after_the_bound(story: Story) -> None:
    story.sync(1, LEFT)
    assert story.sync(LATE + 0.9, LEFT) == 10
    assert story.sync(LATE + 1, LEFT) == 8
    assert not story.message()


def test_the_stabilization_window_begins_at_the_last_blocked_decision() -> None:
    story = Story(window=300)
    story.sync(0, HALF)
    counts = [story.sync(at, LEFT) for at in range(1, LATE + 300)]
    assert set(counts) == {10}
    assert story.sync(LATE + 300, LEFT) == 8


def test_a_raise_after_the_block_is_not_delayed(story: Story) -> None:
    story.sync(1, LEFT)
    assert story.sync(2, dict.fromkeys(HALF, 20_000)) == 20


def test_the_values_come_back(story: Story) -> None:
    story.sync(1, LEFT)
    assert story.sync(2, dict.fromkeys(HALF, IDLE)) == 5
    assert not story.message()


def test_each_loss_has_the_whole_bound(story: Story) -> None:
    story.sync(1, LEFT)
    story.sync(LATE, HALF)
    assert story.sync(LATE + 1, LEFT) == 10
    assert story.sync(2 * LATE, LEFT) == 10
    assert story.sync(2 * LATE + 1, LEFT) == 8


def test_pods_are_lost_one_after_the_other(story: Story) -> None:
    values = dict(HALF)
    for at in range(5):
        del values[f"web-{at}"]
        assert story.sync(at * 100 + 1, values) == 10
    assert story.sync(LATE + 400, values) == 10
    assert story.sync(LATE + 401, values) == 8


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"deleting": True}, id="being deleted"),
        pytest.param({"ready": "False"}, id="not Ready"),
        pytest.param({"ready": None}, id="Ready unknown"),
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"phase": "Succeeded"}, id="completed"),
        pytest.param(None, id="gone"),
    ],
)
def test_other_pods_without_a_value_are_kubernetes_own(changed: dict[str, Any] | None) -> None:
    story, plain = Story(), Story()
    story.sync(0, HALF)
    listed = [] if changed is None else [pod(f"web-{number}", **changed) for number in range(5)]
    story.pods = plain.pods = [*listed, *(pod(name) for name in LEFT)]
    assert story.sync(1, LEFT) == plain.sync(1, LEFT) < 10


def test_a_pod_that_never_had_a_value_does_not_block() -> None:
    story = Story()
    assert story.sync(0, LEFT) == 8


def test_after_a_start_the_stabilization_window_protects() -> None:
    """Another leader does not know which pods had values; its first recommendation is the current count."""
    story = Story(window=300)
    story.sync(0, HALF)
    story.memory, story.made = guarded.remember(story.memory.status), None
    assert [story.sync(at, LEFT) for at in (1, 300)] == [10, 10]
    assert story.sync(301, LEFT) == 8


def test_a_pod_that_is_ready_again_still_blocks() -> None:
    story = Story(window=30)
    story.sync(0, HALF)
    ready, unready = story.pods, [pod(f"web-{number}", ready="False") for number in range(5)]
    story.sync(1, LEFT)
    story.pods = [*unready, *ready[5:]]
    story.sync(2, LEFT)
    story.pods = ready
    assert story.sync(40, LEFT) == 10


def test_a_new_pod_of_a_former_name_does_not_block() -> None:
    story = Story(window=30)
    story.sync(0, HALF)
    ready = story.pods
    story.pods = [*(pod(f"web-{number}", deleting=True) for number in range(5)), *ready[5:]]
    story.sync(1, LEFT)
    story.pods = ready
    assert story.sync(40, LEFT) == 8


@pytest.mark.parametrize(
    "reading", [GONE, PodsReading(LEFT, overdue="the answer is partial")], ids=["absent", "overdue"]
)
def test_the_bound_begins_at_the_first_whole_reading(reading: Reading, story: Story) -> None:
    """After an outage the values come back one after the other."""
    for at in range(1, 2 * LATE, 60):
        assert story.sync(at, reading) == 10
    assert story.sync(2 * LATE, LEFT) == 10
    assert story.sync(3 * LATE - 1, LEFT) == 10
    assert story.sync(3 * LATE, LEFT) == 8


@pytest.mark.parametrize("lost_before", [False, True])
def test_pods_that_the_cache_lacks_are_not_gone(story: Story, *, lost_before: bool) -> None:
    if lost_before:
        story.sync(1, LEFT)
    story.pods = []
    story.sync(2, PodsReading(LEFT, overdue=FEWER))
    story.pods = pods(10)
    assert story.sync(3, LEFT) == 10
    assert story.sync(LATE + 3, LEFT) == 8


def test_no_more_pods_are_kept_than_the_cache_lacks(story: Story) -> None:
    story.pods = [pod(f"new-{number}") for number in range(8)]
    story.sync(1, PodsReading(LEFT, overdue=FEWER))
    (reporting,) = story.memory.history.reporting.values()
    assert reporting == (("web-0", "web-1"), {})


def test_an_overdue_reading_is_remembered() -> None:
    """The first readings of Prometheus are overdue: its sample interval is not known yet."""
    story = Story()
    story.sync(0, PodsReading(HALF, overdue="its sample interval is not known yet"))
    assert story.sync(1, LEFT) == 10


def test_an_overdue_reading_keeps_its_own_reason(story: Story) -> None:
    story.sync(1, LEFT)
    story.sync(2, PodsReading(LEFT, overdue="the answer is partial"))
    assert story.message().endswith("the answer is partial: it may scale up, not down")


def test_a_value_that_was_left_out_is_not_lost(story: Story) -> None:
    loaded = {name: 11_000 for name in HALF if name not in LEFT}
    assert story.sync(1, PodsReading(LEFT, left_out=loaded)) == 8
    assert story.sync(2, LEFT) == 8


def test_values_of_unknown_pods_are_not_kept() -> None:
    story = Story()
    story.sync(0, HALF | {f"other-{number}": 10_000 for number in range(100)})
    (reporting,) = story.memory.history.reporting.values()
    assert reporting.pods == tuple(HALF)
    assert story.sync(1, HALF) == 10


@pytest.mark.parametrize("lost", [0, 1])
def test_one_of_two_metrics_loses_values(lost: int) -> None:
    metrics = [pods_metric("10"), pods_metric("10", name="other")]
    story = Story(*metrics)
    low = dict.fromkeys(HALF, 2_000)
    for at, loaded in enumerate((HALF, LEFT)):
        readings = [low, low]
        readings[lost] = loaded
        assert story.sync(at, *readings) == 10
    assert f"metric {('load', 'other')[lost]}: 5 of 10 Ready pods" in story.message()


def test_two_selectors_of_one_metric_are_apart() -> None:
    selected = pods_metric("10")
    selected["pods"]["metric"]["selector"] = {"matchLabels": {"verb": "GET"}}
    story = Story(pods_metric("10"), selected)
    story.sync(0, HALF, LEFT)
    assert story.sync(1, LEFT, LEFT) == 10
    assert len(story.memory.history.reporting) == 2


def test_metrics_of_no_pods_have_no_part() -> None:
    story = Story(external_metric(averageValue="1"))
    assert story.sync(0, ExternalReading((10_000,))) == 10
    assert story.memory.history.reporting == {}
    assert story.sync(1, ExternalReading((3_000,))) == 3


def test_metrics_that_left_the_spec_are_forgotten(story: Story) -> None:
    story.spec = autoscaler([pods_metric("10", name="other")], LIVE, **eager())
    story.sync(1, HALF)
    assert list(story.memory.history.reporting) == ["pods other nil"]


def test_another_target_of_the_metric_forgets_nothing(story: Story) -> None:
    story.spec = autoscaler([pods_metric("12")], LIVE, **eager())
    assert story.sync(1, LEFT) == 10


@pytest.mark.parametrize("container", ["", "app"])
def test_a_resource_metric_loses_values(container: str) -> None:
    story = Story(container_metric(100) if container else cpu_metric(100))
    whole = {name: value // 10 for name, value in HALF.items()}
    left = {name: whole[name] for name in LEFT}
    assert story.sync(0, usages(whole)) == 10
    assert story.sync(1, usages(left)) == 10
    assert "unable to get metrics for resource cpu: 5 of 10 Ready pods lack a value" in story.message()


def test_a_pause_forgets_nothing(story: Story) -> None:
    story.constraints = Constraints(PAUSED)
    story.sync(1, GONE)
    story.constraints = Constraints()
    assert story.sync(2, LEFT) == 10


def test_an_hpa_is_decided_as_kubernetes_decides() -> None:
    story = Story(mode=BOOST)
    story.constraints = Constraints(BOOST, boost=Boost(BOOST))
    story.sync(0, HALF)
    story.sync(1, LEFT)
    assert story.memory.history.reporting == {}
    assert story.memory.status.desired_replicas == 8


def test_a_fallback_may_raise(story: Story) -> None:
    observation = story.observe(PodsReading(LEFT))
    seen = msgspec.structs.replace(observation, fallback=12)
    made = guarded.decide(story.spec, seen, story.memory, NOW + SECOND, story.constraints)
    assert made.replicas == 12


def test_a_clock_that_is_set_keeps_the_bound(story: Story) -> None:
    story.sync(1, LEFT)
    story.memory = guarded.shifted(story.memory, 1000 * SECOND)
    assert story.sync(LATE + 1000, LEFT) == 10
    assert story.sync(LATE + 1001, LEFT) == 8


def test_the_end_of_a_block_is_known(story: Story) -> None:
    assert lost_values.next_end(story.memory.history.reporting, NOW) is None
    story.sync(1, LEFT)
    reporting = story.memory.history.reporting
    assert lost_values.next_end(reporting, NOW + SECOND) == NOW + SECOND + LATELY
    assert lost_values.next_end(reporting, NOW + SECOND + LATELY) is None
    assert deciders.next_boundary(story.spec, story.memory.history, NOW + SECOND) == NOW + SECOND + LATELY


# -- properties ----------------------------------------------------------------------------------------------


@given(values=st.lists(st.integers(0, 40_000), min_size=1, max_size=12), data=st.data())
def test_lost_values_never_lower_a_decision(values: list[int], data: st.DataObject) -> None:
    """A raise may be smaller: Kubernetes counts a pod without a value as 0 when scaling up."""
    whole = {f"web-{number}": value for number, value in enumerate(values)}
    names = data.draw(st.sets(st.sampled_from(sorted(whole))))
    left = {name: value for name, value in whole.items() if name not in names}
    at_target = dict.fromkeys(whole, 10_000)
    full, part = Story(replicas=len(values)), Story(replicas=len(values))
    full.sync(0, at_target)
    part.sync(0, at_target)
    wanted, count = full.sync(1, whole), part.sync(1, left)
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
def test_a_pod_that_had_a_value_blocks_for_the_bound(
    syncs: list[tuple[float, dict[str, int]]],
) -> None:
    """What blocks is worked out here from the times of the values alone."""
    story, at = Story(), 0.0
    story.sync(0, HALF)
    since: dict[str, float | None] = dict.fromkeys(HALF)
    for pause, values in syncs:
        at += pause
        before = story.replicas
        story.pods = pods(10)
        story.replicas = before
        if values:
            for name in list(since):
                if name not in values and since[name] is None:
                    since[name] = at
            since |= dict.fromkeys(values)
            since = {name: when for name, when in since.items() if when is None or at - when < LATE}
        after = story.sync(at, values or GONE)
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
    story = Story(*(metric for metric, _ in chosen))
    assert story.sync(0, *(whole for _, whole in chosen)) == 10
    for at in data.draw(st.lists(st.integers(1, LATE), max_size=8, unique=True).map(sorted)):
        readings = [data.draw(faults(whole)) for _, whole in chosen]
        if data.draw(st.booleans()):
            story.pods = data.draw(st.sampled_from([[], pods(5)]))
            readings = [
                each if isinstance(each, Unavailable) else msgspec.structs.replace(each, overdue=FEWER)
                for each in readings
            ]
        assert story.sync(at, *readings) >= 10
        story.replicas, story.pods = 10, pods(10)
