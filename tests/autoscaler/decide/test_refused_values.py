"""What live decisions do not believe."""

import pytest

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
)
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST
from tests.autoscaler.decide.synced import AT_ONCE, SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import (
    NOW,
    autoscaler,
    cpu_metric,
    external_metric,
    object_metric,
    pod,
    pods,
    pods_metric,
    reading,
)

LIVE = Settings(strict=True)

METRICS = {
    "pods": pods_metric(),
    "cpu": cpu_metric(),
    "object": object_metric("Value", value="1"),
    "external": external_metric(averageValue="1"),
}


def replicas(name: str, seen: Reading) -> int:
    scaler = autoscaler([METRICS[name]], LIVE, behavior=AT_ONCE)
    listed = pods(3) if name != "cpu" else [pod(f"web-{number}", cpu="1m") for number in range(3)]
    return decide(scaler, Observation(3, 3, "app=web", listed, [seen]), History(), NOW).replicas


def read(name: str, values: list[int]) -> Reading:
    """Return what pods, an object or series have."""
    if name == "object":
        return ObjectReading(values[0])
    return ExternalReading(values) if name == "external" else reading(*values)


@pytest.mark.parametrize(("name", "values"), answers("decide/refused_values", "impossible"))
def test_what_cannot_be_is_no_value(name: str, values: list[int]) -> None:
    assert replicas(name, read(name, values)) == 3


def test_nothing_is_refused_that_can_be() -> None:
    assert replicas("pods", reading(2000, 2000, 2000)) == 6
    assert replicas("external", ExternalReading([5000])) == 5
    assert replicas("external", ExternalReading(())) == 1
    assert replicas("pods", PodsReading({})) == 3


@pytest.mark.parametrize(("value", "count"), [(9000, 7), (3000, 3), (1000, 3)])
def test_what_is_overdue_may_raise_and_not_shrink(value: int, count: int) -> None:
    assert replicas("external", ExternalReading([value], overdue="its sample is old")) == count


@pytest.mark.parametrize(
    ("value", "ready", "strict", "count"), answers("decide/refused_values", "without a ready pod")
)
def test_without_a_ready_pod_a_value_says_nothing(
    value: int, ready: str, *, strict: bool, count: int
) -> None:
    scaler = autoscaler([METRICS["object"]], Settings(strict=strict), behavior=AT_ONCE)
    observation = Observation(3, 3, "app=web", pods(3, ready=ready), [ObjectReading(value)])
    assert decide(scaler, observation, History(), NOW).replicas == count


@pytest.mark.parametrize("name", ["pods", "object", "external"])
def test_a_negative_sample_is_named_where_kubernetes_counts_with_it(name: str) -> None:
    """What upstream makes of the sum is no number to show."""
    scaler, seen = autoscaler([METRICS[name]]), read(name, [-1500, 500])
    made = decide(scaler, Observation(3, 3, "app=web", pods(3), [seen]), History(), NOW)
    texts = [step.text() for step in made.trace]
    assert any("the sample -1.5 is below zero; Kubernetes counts with it" in text for text in texts)
    assert not any("9223372036854775" in text for text in texts)


@pytest.mark.parametrize("values", [[-1500], [90_000, -1500]])
@pytest.mark.parametrize("boost", [None, Boost(BOOST)])
def test_a_negative_sample_neither_raises_nor_lowers_what_fastpath_decides(
    values: list[int], boost: Boost | None
) -> None:
    constraints = Constraints(AUTO if boost is None else BOOST, boost=boost)
    made = SyncedScaler(3, [METRICS["external"]], constraints, behavior=AT_ONCE).decide(
        ExternalReading(values)
    )
    assert (made.replicas, made.rescale) == (3, False)
    assert made.absent == ("external metric queue(nil)",)
