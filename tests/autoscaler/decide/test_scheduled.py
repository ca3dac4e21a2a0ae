"""Bounds of schedules, in decisions and in floors of boosted HPAs. `scripts/bounds` has stories."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards.boost import Boost, Boosting
from adapter.autoscaler.decide.sync import Decision
from adapter.bounds.forecast.verdict import UNJUDGED
from adapter.bounds.timeline import NO_BOUNDS, Bounds
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import LONGEST_SCHEDULED, Demotion, Floor
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import SECOND, FineInstant
from tests.autoscaler.decide.synced import SyncedScaler, condition
from tests.support.scaling import NOW, pods

OFFICE = Bounds(20, None, ("shop/office business",), until=NOW // SECOND + 3600)
FORECAST = Bounds(forecast=20)
of_both = pytest.mark.parametrize("bounds", [OFFICE, FORECAST], ids=["window", "forecast"])
CAP = Bounds(None, 6, ("shop/office quiet",))
ON = Boost(BOOST, digest="one")


def scaled(replicas: int, **spec: Any) -> SyncedScaler:
    return SyncedScaler(replicas, **{"maxReplicas": 40} | spec)


def active(made: Decision) -> tuple[str, str | None, str | None] | None:
    return condition(made, "ScheduleActive")


@given(
    lowest=st.integers(1, 5),
    highest=st.integers(5, 30),
    floor=st.none() | st.integers(0, 40),
    ceiling=st.none() | st.integers(0, 40),
    current=st.integers(1, 35),
    wanted=st.integers(0, 50),
)
def test_the_decision_is_that_of_an_autoscaler_with_these_bounds(
    lowest: int, highest: int, floor: int | None, ceiling: int | None, current: int, wanted: int
) -> None:
    bounded, plain = scaled(current, maxReplicas=highest, minReplicas=lowest), scaled(current)
    made = bounded.decide(wanted, bounds=Bounds(floor, ceiling, ("a/b c",)))
    least = min(max(lowest, floor or 0), highest)
    most = max(least, min(highest, highest if ceiling is None else ceiling))
    plain.spec = msgspec.structs.replace(plain.spec, limits=ReplicaLimits(least, most))
    same = plain.decide(wanted)
    assert (made.replicas, made.rescale, made.reason) == (same.replicas, same.rescale, same.reason)
    assert made.trace[1:] == same.trace


@pytest.mark.parametrize(("bounds", "replicas"), [(None, 0), (CAP, 0), (OFFICE, 20), (FORECAST, 0)])
def test_without_a_value_only_a_minimum_of_bounds_wakes(bounds: Bounds | None, replicas: int) -> None:
    """Its zero is of a time at which minReplicas was 0."""
    assert scaled(0).decide(None, bounds=bounds).replicas == replicas


def test_a_maximum_forgets_no_recommendation() -> None:
    loop = scaled(10, behavior={"scaleUp": {"stabilizationWindowSeconds": 60}})
    script = ((10, None), (20, CAP), (20, None))
    assert [loop.decide(wanted, bounds=bounds).replicas for wanted, bounds in script] == [10, 6, 10]


def test_a_spec_within_bounds_is_made_again_when_something_changes() -> None:
    loop = scaled(20)
    first = loop.decide(20, bounds=OFFICE).spec
    assert first is not loop.spec
    assert loop.decide(25, bounds=OFFICE).spec is first
    assert loop.decide(25).spec is not first
    second = loop.decide(25, bounds=OFFICE).spec
    assert second is not first
    loop.constrain(readiness=UNJUDGED)
    third = loop.decide(25, bounds=OFFICE).spec
    assert third is not second
    assert loop.decide(25, bounds=OFFICE).spec is third
    loop.spec = msgspec.structs.replace(loop.spec, limits=ReplicaLimits(1, 22))
    made = loop.decide(25, bounds=OFFICE)
    assert (made.spec is third, made.replicas) == (False, 22)


def test_a_condition_that_another_client_has_removed_is_set_again() -> None:
    loop = scaled(20)
    loop.decide(20, bounds=OFFICE)
    loop.change(status=msgspec.structs.replace(loop.memory.status, conditions=()))
    assert active(loop.decide(20, bounds=OFFICE)) is not None


# -- boosted HPAs --------------------------------------------------------------------------------------------


def boosted(
    replicas: int, bounds: Bounds, memory: Boosting = boosting.NOTHING, boost: Boost = ON
) -> Decision:
    scaler = SyncedScaler(replicas, constraints=Constraints(boost.mode, boost=boost), maxReplicas=40)
    scaler.pods = pods(24)
    scaler.change(boost=memory)
    return scaler.decide(3, bounds=bounds, after=0, status_replicas=24)


@of_both
def test_a_boosted_hpa_is_raised_to_its_floor_exactly(bounds: Bounds) -> None:
    """Within the tolerance, and below the pods that exist: a metric would not raise there."""
    made = boosted(19, bounds)
    assert (made.replicas, made.rescale) == (20, True)
    assert not boosted(20, bounds).rescale
    assert not boosted(23, bounds).rescale


@of_both
def test_what_may_not_be_raised_is_not_raised_by_its_bounds(bounds: Bounds) -> None:
    demotion = Demotion(FineInstant(NOW + SECOND), "kubectl", "one")
    assert not boosted(3, bounds, Boosting(demotion=demotion)).rescale
    assert not boosted(3, bounds, boost=ON._replace(fault="no handshake")).rescale
    assert not boosted(0, bounds).rescale


def test_the_floor_that_is_published_ends_with_its_window() -> None:
    end = FineInstant(NOW + 3600 * SECOND)
    made = boosting.scheduled_floor(OFFICE, 40, None, NOW)
    assert made == Floor(scheduled=20, scheduled_until=end)
    assert boosting.scheduled_floor(OFFICE, 15, None, NOW) == Floor(scheduled=15, scheduled_until=end)
    assert boosting.scheduled_floor(CAP, 40, None, NOW) == Floor()
    assert boosting.scheduled_floor(NO_BOUNDS, 40, None, NOW) == Floor()


def test_a_long_window_is_published_again_before_readers_end_it() -> None:
    week = msgspec.structs.replace(OFFICE, until=NOW // SECOND + 7 * 86400)
    first = boosting.scheduled_floor(week, 40, None, NOW)
    assert first.scheduled_until == NOW + LONGEST_SCHEDULED
    half = LONGEST_SCHEDULED // 2
    assert boosting.scheduled_floor(week, 40, first, NOW + half) == first
    later = boosting.scheduled_floor(week, 40, first, NOW + half + 1)
    assert later.scheduled_until == NOW + half + 1 + LONGEST_SCHEDULED
    shorter = msgspec.structs.replace(OFFICE, until=NOW // SECOND + 60)
    assert boosting.scheduled_floor(shorter, 40, first, NOW).scheduled_until == NOW + 60 * SECOND


def test_floors_of_bounds_are_published_and_not_adopted() -> None:
    end = FineInstant(NOW + SECOND)
    bounds = Floor(scheduled=20, scheduled_until=end, forecast=12, forecast_until=end)
    meta = Metadata(name="web", namespace="shop", uid="uid-1", resource_version="7")
    published = boosting.published(boosting.NOTHING, meta, bounds)
    assert published is not None
    assert published == msgspec.structs.replace(bounds, namespace="shop", name="web", uid="uid-1", seen="7")
    assert boosting.adopt(published, NOW) == Boosting()
    raised = msgspec.structs.replace(published, replicas=8, until=end)
    assert boosting.adopt(raised, NOW).floor == Floor(replicas=8, until=end)
