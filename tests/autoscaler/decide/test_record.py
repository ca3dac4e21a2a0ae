"""Records of decisions: what JSON gives back is what was recorded, to the nanosecond."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide import decision, guarded, observation, prepared_spec, record
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.boost import Boost, Boosting
from adapter.autoscaler.decide.guards.conflicts import ConflictState, OwnWrite
from adapter.autoscaler.decide.guards.fallback import Absence
from adapter.autoscaler.decide.guards.lost_values import Reporting
from adapter.autoscaler.decide.history import History, Recommendation, Recommendations, ScaleEvent
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.record import DecisionInputs, DecisionRecord
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import Fallback, FastPathAutoscalerStatus
from adapter.model.autoscaling.floor import Demotion, Floor
from adapter.model.autoscaling.hpa import (
    Condition,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    with_defaults,
)
from adapter.model.objects.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import read
from adapter.model.timestamps import NEVER, SECOND, FineInstant, Instant, Span
from tests.support.controller import fpa
from tests.support.scaling import NOW, cpu_metric, external_metric, object_metric

ODD = NOW + 123_456_789
"""An instant that whole seconds do not hold."""
PODS = (
    PodFacts(
        "web-0",
        "Running",
        {"app": "web"},
        started=Instant(ODD),
        ready="True",
        ready_since=Instant(ODD),
        containers=(Container("app", ResourceRequirements({"cpu": read("250m")})),),
        overhead={"cpu": read("1u")},
    ),
    PodFacts("web-1", "Pending", ready_since=NEVER),
)
METRICS = [
    cpu_metric(50),
    object_metric("Value", value="1"),
    external_metric(type="AverageValue", averageValue="3"),
    external_metric("other", value="3"),
]
READINGS = (
    observation.PodsReading({"web-0": 200}, {"web-0": (ODD, 15 * SECOND)}, "late", 2),
    observation.ObjectReading(5000, 2, most_then=3),
    observation.ExternalReading((1, 2), None),
    observation.Unavailable("NoMetrics", "no metrics"),
)
STATUS = HorizontalPodAutoscalerStatus(
    last_scale_time=Instant(ODD),
    current_replicas=2,
    desired_replicas=3,
    conditions=(Condition("AbleToScale", "True", "SucceededRescale", last_transition_time=Instant(ODD)),),
)
MEMORY = Memory(
    STATUS,
    History(
        Recommendations((Recommendation(9, ODD - SECOND),), (Recommendation(2, ODD - SECOND),)),
        (ScaleEvent(2, ODD - 5, inherited=True),),
        (ScaleEvent(1, ODD - 9, outdated=True),),
        reporting={"pods load nil": Reporting(("web-0", "web-2"), {"web-1": ODD - 4})},
    ),
    ConflictState(2, OwnWrite(1, 2), (ODD - 7,), SECOND, ODD - 1, "kubectl"),
    Absence(ODD - 3, 4, active=True),
    Boosting(
        Floor(
            "default", "web", "uid", 3, FineInstant(ODD), 2, FineInstant(ODD), FineInstant(ODD), hold=Span(7)
        ),
        (FineInstant(ODD),),
        Demotion(FineInstant(ODD - 1), "kubectl", "digest"),
    ),
)


def recorded(constraints: Constraints, **facts: Any) -> DecisionRecord:
    status = FastPathAutoscalerStatus(current_replicas=7)
    autoscaler = msgspec.structs.replace(fpa(METRICS), status=status)
    settings = observation.Settings(scale_to_zero=True, strict=True)
    seen = observation.Observation(2, 2, "app=web", PODS, READINGS, STATUS, ("default/web",), **facts)
    inputs = DecisionInputs(autoscaler, settings, ODD, seen, MEMORY, constraints)
    spec = prepared_spec.prepare(fastpath_autoscaler.with_defaults(autoscaler), settings)
    return record.record(inputs, guarded.decide(spec, seen, MEMORY, ODD, constraints))


def test_what_json_gives_back_is_what_was_recorded() -> None:
    for constraints in (
        Constraints(),
        Constraints("Advise", (), Fallback("Floor", Span(30 * SECOND + 1), 4)),
        Constraints("Boost", boost=Boost("boost", hold=Span(31 * SECOND), shown=2)),
    ):
        made = recorded(constraints)
        text = record.encode(made)
        read_back = record.convert(msgspec.json.decode(text))
        assert record.encode(read_back) == text
        assert read_back.inputs.now == ODD
        assert read_back.inputs.memory == made.inputs.memory
        assert read_back.inputs.constraints == made.inputs.constraints
        again = record.decide_again(read_back.inputs)
        assert (again.replicas, again.rescale, again.reason) == (made.replicas, made.rescale, made.reason)


def test_a_record_tells_by_what_the_clock_was_set_if_it_was() -> None:
    assert b"set_by" not in record.encode(recorded(Constraints()))
    made = recorded(Constraints(), set_by=-SECOND)
    assert record.convert(msgspec.json.decode(record.encode(made))).inputs.observation.set_by == -SECOND


def test_a_decision_of_the_hpa_controller_has_no_guards() -> None:
    """It has the legacy algorithm without `behavior`, and the mode of a FastPathAutoscaler does not count."""
    made = recorded(Constraints("Paused"))
    again = record.decide_again(msgspec.structs.replace(made.inputs, constraints=None))
    hpa = HorizontalPodAutoscaler(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        made.inputs.autoscaler.metadata,
        with_defaults(fastpath_autoscaler.plain_spec(made.inputs.autoscaler.spec)),
    )
    seen = msgspec.structs.replace(made.inputs.observation, status=MEMORY.status)
    spec = prepared_spec.prepare(hpa, made.inputs.settings)
    plain = decision.decide(spec, seen, MEMORY.history, ODD)
    assert msgspec.structs.replace(again, spec=None) == msgspec.structs.replace(plain, spec=None)
    assert again.replicas > made.replicas == 2


def test_the_weight_grows_with_the_pods() -> None:
    inputs = recorded(Constraints()).inputs
    seen = msgspec.structs.replace(inputs.observation, pods=PODS * 50)
    assert msgspec.structs.replace(inputs, observation=seen).weight == 50 * inputs.weight > 0


def test_labels_and_the_status_of_the_object_are_left_out() -> None:
    made = recorded(Constraints())
    assert made.inputs.autoscaler.status is None
    assert made.inputs.autoscaler.metadata.uid == ""
    assert all(not pod.labels for pod in made.inputs.observation.pods)
    assert b"uid-1" not in record.encode(made)


def test_a_capped_decision_stays_capped() -> None:
    made = recorded(Constraints())
    free = record.decide_again(made.inputs)
    capped = record.decide_again(msgspec.structs.replace(made.inputs, most=free.replicas - 1))
    assert capped.replicas == free.replicas - 1


def test_a_record_of_before_that_has_one_way_within_the_other_is_read() -> None:
    made = recorded(Constraints())
    usual, *others = READINGS
    usage = observation.PodsReading({"web-0": 900, "web-1": 900})
    seen = msgspec.structs.replace(
        made.inputs.observation, readings=(observation.Ways((usual, usage)), *others)
    )
    whole = msgspec.structs.replace(made, inputs=msgspec.structs.replace(made.inputs, observation=seen))
    text = record.encode(whole)
    tree = msgspec.json.decode(text)
    known = tree["inputs"]["observation"]["readings"]
    (first, second) = known[0]["ways"]
    known[0] = first | {"faster": second}
    assert record.encode(record.convert(tree)) == text


def test_a_document_that_is_no_record_is_refused() -> None:
    trees: tuple[object, ...] = ({}, [], {"inputs": {"observation": {"readings": 3}}})
    for tree in trees:
        with pytest.raises(msgspec.ValidationError):
            record.convert(tree)
