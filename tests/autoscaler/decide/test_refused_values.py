"""What live decisions do not believe."""

import pytest

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
)
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST
from tests.support.scaling import (
    NOW,
    autoscaler,
    cpu_metric,
    external_metric,
    hpa,
    object_metric,
    pod,
    pods,
    pods_metric,
)

LIVE = Settings(strict=True)
HUGE = 2**62

METRICS = {
    "pods": pods_metric(),
    "cpu": cpu_metric(),
    "object": object_metric("Value", value="1"),
    "external": external_metric(averageValue="1"),
}


def replicas(name: str, reading: Reading, settings: Settings = LIVE) -> int:
    scaler = autoscaler([METRICS[name]], settings, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    listed = pods(3) if name != "cpu" else [pod(f"web-{number}", cpu="1m") for number in range(3)]
    return decide(scaler, Observation(3, 3, "app=web", listed, [reading]), History(), NOW).replicas


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        pytest.param("pods", PodsReading({"web-0": 1000, "web-1": -1}), id="a pod below zero"),
        pytest.param(
            "pods", PodsReading(dict.fromkeys(["web-0", "web-1", "web-2"], HUGE)), id="a sum beyond 64 bits"
        ),
        pytest.param(
            "cpu", PodsReading(dict.fromkeys(["web-0", "web-1"], 10**14)), id="a percentage beyond 32 bits"
        ),
        pytest.param("object", ObjectReading(-1), id="an object below zero"),
        pytest.param("object", ObjectReading(HUGE), id="replicas beyond 32 bits"),
        pytest.param("external", ExternalReading([5, -1]), id="a series below zero"),
        pytest.param("external", ExternalReading([HUGE, HUGE]), id="a sum of series beyond 64 bits"),
    ],
)
def test_what_cannot_be_is_no_value(name: str, reading: Reading) -> None:
    assert replicas(name, reading) == 3


def test_nothing_is_refused_that_can_be() -> None:
    assert replicas("pods", PodsReading(dict.fromkeys(["web-0", "web-1", "web-2"], 2000))) == 6
    assert replicas("external", ExternalReading([5000])) == 5
    assert replicas("external", ExternalReading(())) == 1
    assert replicas("pods", PodsReading({})) == 3


@pytest.mark.parametrize(("value", "count"), [(9000, 7), (3000, 3), (1000, 3)])
def test_what_is_overdue_may_raise_and_not_shrink(value: int, count: int) -> None:
    assert replicas("external", ExternalReading([value], overdue="its sample is old")) == count


@pytest.mark.parametrize(
    ("value", "ready", "strict", "count"),
    [
        pytest.param(9000, "False", True, 3, id="a value multiplied by no pods is no value"),
        pytest.param(9000, "False", False, 1, id="which upstream takes for one"),
        pytest.param(0, "False", True, 1, id="nothing to do is nothing to do"),
        pytest.param(500, "True", True, 2, id="ready pods"),
    ],
)
def test_without_a_ready_pod_a_value_says_nothing(
    value: int, ready: str, *, strict: bool, count: int
) -> None:
    scaler = autoscaler(
        [METRICS["object"]],
        Settings(strict=strict),
        behavior={"scaleDown": {"stabilizationWindowSeconds": 0}},
    )
    observation = Observation(3, 3, "app=web", pods(3, ready=ready), [ObjectReading(value)])
    assert decide(scaler, observation, History(), NOW).replicas == count


@pytest.mark.parametrize("name", ["pods", "object", "external"])
def test_a_negative_sample_is_named_where_kubernetes_counts_with_it(name: str) -> None:
    """What upstream makes of the sum is no number to show."""
    readings: dict[str, Reading] = {
        "pods": PodsReading({"web-0": 1000, "web-1": -1500}),
        "object": ObjectReading(-1500),
        "external": ExternalReading([500, -1500]),
    }
    scaler = autoscaler([METRICS[name]])
    made = decide(scaler, Observation(3, 3, "app=web", pods(3), [readings[name]]), History(), NOW)
    texts = [step.text() for step in made.trace]
    assert any("the sample -1.5 is below zero; Kubernetes counts with it" in text for text in texts)
    assert not any("9223372036854775" in text for text in texts)


@pytest.mark.parametrize("reading", [ExternalReading([-1500]), ExternalReading([90_000, -1500])])
@pytest.mark.parametrize("boost", [None, Boost(BOOST)])
def test_a_negative_sample_neither_raises_nor_lowers_what_fastpath_decides(
    reading: ExternalReading, boost: Boost | None
) -> None:
    constraints = Constraints(AUTO if boost is None else BOOST, boost=boost)
    window = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    scaler = prepare(hpa([METRICS["external"]], behavior=window), LIVE)
    seen = Observation(3, 3, "app=web", pods(3), [reading])
    made = guarded.decide(scaler, seen, Memory(), NOW, constraints)
    assert (made.replicas, made.rescale) == (3, False)
    assert made.absent == ("external metric queue(nil)",)
