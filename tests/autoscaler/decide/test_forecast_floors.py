"""The floor of a forecast does nothing at zero and lowers nothing. `scripts/forecasts` has what it raises."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import guarded, record
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.guards.conflicts import ConflictState
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import NO_STATUS, ExternalReading, Observation
from adapter.autoscaler.decide.record import DecisionInputs
from adapter.bounds.forecast.verdict import UNJUDGED, Readiness
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling.fastpath_autoscaler import (
    ADVISE,
    AUTO,
    BOOST,
    PAUSED,
    Fallback,
    FastPathAutoscalerSpec,
)
from adapter.model.autoscaling.floor import LONGEST_FORECAST, LONGEST_SCHEDULED, Floor
from adapter.model.autoscaling.forecast import ForecastSpec
from adapter.model.timestamps import SECOND, FineInstant
from tests.autoscaler.decide.test_scheduled import OFFICE, scaled
from tests.support.controller import LIVE, QUEUE, fpa
from tests.support.scaling import NOW, pods

ON = Boost(BOOST, digest="one")
_BELOW = "Current number of replicas below Spec.MinReplicas"
QUIET = Bounds(None, 6, ("shop/office quiet",))
SOON = Bounds(20, None, (), ("shop/office business",))


def forecast(replicas: int, beside: Bounds | None = None) -> Bounds:
    if beside is None:
        return Bounds(None, None, (), forecast=replicas)
    return msgspec.structs.replace(beside, forecast=replicas)


def test_a_write_that_failed_changes_nothing_of_what_is_decided() -> None:
    """Also where a pause that began meanwhile withholds the raise of the metrics: the forecast decides."""
    loop = scaled(10)
    paused = ConflictState(known=10, pause=SECOND, paused_until=NOW + SECOND, paused_by="kubectl")
    seen = Observation(10, 10, "app=web", pods(10), [ExternalReading([15000])])
    failed = msgspec.structs.replace(seen, write_error="etcd is away")
    limits = Constraints(bounds=forecast(12))
    made = guarded.decide(loop.spec, failed, loop.memory, NOW, limits)
    assert (made.replicas, made.rescale) == (10, False)
    assert "New size: 15" in made.events[0].message
    memory = msgspec.structs.replace(loop.memory, conflicts=paused)
    for observation in (seen, failed):
        assert guarded.decide(loop.spec, observation, memory, NOW, limits).desired == 12


@pytest.mark.parametrize(
    ("wanted", "reason"), [(11, _BELOW), (12, _BELOW), (13, "external metric queue(nil) above target")]
)
def test_a_forecast_is_the_reason_up_to_its_own_count(wanted: int, reason: str) -> None:
    made = scaled(10).decide(wanted, bounds=forecast(12))
    assert (made.replicas, made.reason) == (max(12, wanted), reason)


# -- at zero -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True], ids=["with behavior", "without"])
def test_a_floor_that_falls_at_zero_does_not_wake(*, legacy: bool) -> None:
    """A write of the scaler may land after it has decided on a later forecast."""
    loop = scaled(0, minReplicas=0, legacy=legacy)
    loop.change(lowest=12)
    assert loop.decide(0, bounds=forecast(12)).replicas == 0
    assert loop.decide(0).replicas == 0


@given(
    floors=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    beside=st.sampled_from([None, QUIET, Bounds(0, None, ("shop/office none",))]),
    wanted=st.integers(0, 3),
)
def test_at_zero_the_decision_is_that_without_a_forecast(
    floors: list[int], beside: Bounds | None, wanted: int
) -> None:
    """Also with a minimum of 0 that a schedule sets itself."""
    one, other = scaled(0, minReplicas=0), scaled(0, minReplicas=0)
    for floor in floors:
        made = one.decide(wanted, bounds=forecast(floor, beside) if floor else beside)
        plain = other.decide(wanted, bounds=beside)
        assert (made.replicas, made.reason, made.trace) == (plain.replicas, plain.reason, plain.trace)
        one.replicas = other.replicas = 0
        one.memory = other.memory = Memory(conflicts=ConflictState(known=0, own_zero=True))


@given(
    floor=st.integers(1, 60),
    ceiling=st.none() | st.integers(0, 40),
    current=st.integers(1, 35),
    wanted=st.integers(0, 50),
)
def test_a_forecast_lowers_nothing_and_exceeds_no_bound(
    floor: int, ceiling: int | None, current: int, wanted: int
) -> None:
    beside = None if ceiling is None else Bounds(None, ceiling, ("a/b c",))
    made = scaled(current, maxReplicas=30).decide(wanted, bounds=forecast(floor, beside))
    plain = scaled(current, maxReplicas=30).decide(wanted, bounds=beside)
    most = min(30, 30 if ceiling is None else max(1, ceiling))
    assert made.replicas == max(plain.replicas, min(floor, most))


# -- boosted HPAs --------------------------------------------------------------------------------------------


def test_what_is_published_of_a_forecast_ends_after_ten_minutes() -> None:
    made = boosting.scheduled_floor(forecast(12), 40, None, NOW)
    assert made == Floor(forecast=12, forecast_until=FineInstant(NOW + LONGEST_FORECAST))
    assert boosting.scheduled_floor(forecast(50), 40, None, NOW).forecast == 40
    both = boosting.scheduled_floor(forecast(12, OFFICE), 40, None, NOW)
    assert (both.scheduled, both.scheduled_until) == (20, NOW + 3600 * SECOND)
    assert (both.forecast, both.forecast_until) == (12, NOW + LONGEST_FORECAST)


@pytest.mark.parametrize(
    ("before", "after", "until"),
    [(12, 0, 600), (12, 300, 600), (12, 301, 301 + 600), (12, -1, -1 + 600), (11, 0, 600), (11, 7, 7 + 600)],
    ids=["same", "half is left", "less than half", "clock set back", "another number", "another, later"],
)
def test_the_floor_of_a_forecast_is_renewed_when_half_is_left(before: int, after: int, until: int) -> None:
    first = boosting.scheduled_floor(forecast(before), 40, None, NOW)
    made = boosting.scheduled_floor(forecast(12), 40, first, NOW + after * SECOND)
    assert made == Floor(forecast=12, forecast_until=FineInstant(NOW + until * SECOND))


def test_the_floor_of_a_schedule_does_not_depend_on_the_forecast() -> None:
    week = msgspec.structs.replace(OFFICE, until=NOW // SECOND + 7 * 86400)
    first = boosting.scheduled_floor(forecast(30, week), 40, None, NOW)
    assert (first.scheduled, first.scheduled_until) == (20, NOW + LONGEST_SCHEDULED)
    later = boosting.scheduled_floor(forecast(31, week), 40, first, NOW + 400 * SECOND)
    assert (later.scheduled, later.scheduled_until) == (20, first.scheduled_until)


@pytest.mark.parametrize("bounds", [forecast(12), forecast(12, OFFICE)])
@pytest.mark.parametrize("replicas", [0, 3])
def test_a_recorded_decision_is_made_again(bounds: Bounds, replicas: int) -> None:
    spec: dict[str, Any] = {"minReplicas": 0, "maxReplicas": 40, "behavior": {}}
    subject = fpa(QUEUE, **spec)
    seen = Observation(replicas, replicas, "app=web", pods(replicas), [ExternalReading([2000])], NO_STATUS)
    memory = Memory(conflicts=ConflictState(known=replicas, own_zero=not replicas), lowest=15)
    inputs = DecisionInputs(subject, LIVE, NOW, seen, memory, Constraints(bounds=bounds))
    made = record.record(inputs, record.decide_again(inputs))
    assert made.replicas == ((12 if replicas else 2) if bounds.min is None else 20)
    read_back = record.convert(msgspec.json.decode(record.encode(made)))
    assert read_back.inputs.constraints == Constraints(bounds=bounds)
    again = record.decide_again(read_back.inputs)
    assert (again.replicas, again.rescale, again.reason) == (made.replicas, made.rescale, made.reason)
    assert again.trace == record.decide_again(inputs).trace


_ACTING = Readiness(holds=True, reason="Acting", message="day")
_SYNC = st.tuples(
    st.sampled_from([10, None, 3, 20, 0]),
    st.sampled_from([forecast(12), forecast(2, OFFICE), forecast(12, QUIET), OFFICE, SOON, None]),
    st.sampled_from([_ACTING, _ACTING._replace(reason="Withheld"), UNJUDGED, None]),
    st.sampled_from([15, 3, 30, 0, None]),
    st.sampled_from([AUTO, AUTO, AUTO, ADVISE, PAUSED]),
    st.sampled_from([400, 1]),
)
_Sync = tuple[int | None, Bounds | None, Readiness | None, int | None, str, int]


@given(syncs=st.lists(_SYNC, min_size=3, max_size=8), is_boosted=st.booleans())
def test_the_last_decision_changes_nothing(syncs: list[_Sync], *, is_boosted: bool) -> None:
    """`SyncedScaler` compares each decision with the one that is made without it."""
    loop = scaled(10, minReplicas=0)
    for replicas, bounds, readiness, wanted, mode, after in syncs:
        loop.constrain(readiness=readiness, mode=BOOST if is_boosted else mode)
        loop.constrain(boost=ON if is_boosted else None)
        loop.replicas = loop.replicas if replicas is None else replicas
        for _ in range(2):
            loop.decide(wanted, bounds=bounds, after=after)


def test_constraints_have_the_condition_of_a_forecast_that_the_spec_asks_for() -> None:
    hold = Fallback("Hold")
    spec = FastPathAutoscalerSpec(mode=ADVISE, fallback=hold, forecast=ForecastSpec())
    assert Constraints.of(spec, UNJUDGED) == Constraints(ADVISE, fallback=hold, readiness=UNJUDGED)
    without = msgspec.structs.replace(spec, forecast=None)
    assert Constraints.of(without, UNJUDGED) == Constraints(ADVISE, fallback=hold)
