"""A metric with a faster reading beside its usual one: that which asks for more replicas counts."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.calculator import Proposal
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.observation import PodsReading, Unavailable, Ways
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import autoscaler, cpu_metric, pods, reading, situation

CURRENT = 4


def propose(slow: PodsReading, faster: PodsReading | None) -> Proposal | Unavailable:
    (metric,) = autoscaler([cpu_metric(50)]).metrics  # half of the core that each pod requests
    both = slow if faster is None else Ways((slow, faster))
    return metric.propose(both, situation(CURRENT, pods(CURRENT)))


def of(usage: int, overdue: str = "") -> PodsReading:
    return msgspec.structs.replace(reading(*[usage] * CURRENT), overdue=overdue)


@pytest.mark.parametrize(("slow", "faster", "replicas"), answers("decide/two_readings", "values"))
def test_the_one_that_asks_for_more_counts(slow: int, faster: int, replicas: int) -> None:
    proposal = propose(of(slow), of(faster))

    assert isinstance(proposal, Proposal)
    assert (proposal.replicas, proposal.withheld) == (replicas, "")


def test_the_status_shows_the_values_that_count() -> None:
    proposal = propose(of(500), of(1000))

    assert isinstance(proposal, Proposal)
    assert (proposal.average, proposal.utilization) == (1000, 100)


@pytest.mark.parametrize(
    "slow", [of(125, "its answer is late"), PodsReading({})], ids=["overdue", "of no use"]
)
@pytest.mark.parametrize(("faster", "replicas"), [(1000, 8), (250, 2)])
def test_beside_a_usual_reading_that_may_not_lower_the_faster_one_raises_only(
    slow: PodsReading, faster: int, replicas: int
) -> None:
    proposal = propose(slow, of(faster))

    assert isinstance(proposal, Proposal)
    assert proposal.replicas == replicas
    assert bool(proposal.withheld) is (replicas < CURRENT)
    assert slow.overdue in proposal.withheld or replicas > CURRENT


def test_a_faster_reading_that_cannot_be_used_changes_nothing() -> None:
    assert propose(of(1000), PodsReading({})) == propose(of(1000), None)


def boosted(slow: PodsReading, faster: PodsReading) -> int:
    limits = Constraints(BOOST, boost=Boost(BOOST))
    scaler = SyncedScaler(CURRENT, [cpu_metric(50)], limits, maxReplicas=40)
    return scaler.decide(Ways((slow, faster)), after=0).replicas


@pytest.mark.parametrize(("slow", "faster", "replicas"), answers("decide/two_readings", "boosted"))
def test_a_boosted_hpa_is_raised_by_what_is_fresh(
    slow: tuple[int, str], faster: tuple[int, str], replicas: int
) -> None:
    assert boosted(of(*slow), of(*faster)) == replicas


USAGES = st.integers(1, 5000)
OVERDUE = st.sampled_from(["", "late"])


@given(USAGES, USAGES, OVERDUE, OVERDUE)
def test_never_fewer_replicas_than_without_the_faster_reading(
    slow: int, faster: int, slow_overdue: str, faster_overdue: str
) -> None:
    usual, later = of(slow, slow_overdue), of(faster, faster_overdue)
    alone, both = propose(usual, None), propose(usual, later)

    assert isinstance(alone, Proposal)
    assert isinstance(both, Proposal)
    assert both.replicas >= alone.replicas
    if both.replicas < CURRENT and not both.withheld:
        assert not alone.withheld
        assert not slow_overdue
        assert alone.replicas < CURRENT
