"""What the annotations ask for, and when the handshake is right."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling import pending_capacity, scale_down
from adapter.model.autoscaling.boost import (
    EXTERNAL,
    HOLD_ANNOTATION,
    MODE_ANNOTATION,
    OBJECT,
    BoostAnnotations,
)
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, MetricSpec, decode_scalar
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import SECOND, Span
from tests.support.answers import answers

CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def metric(document: dict[str, Any]) -> MetricSpec:
    return msgspec.convert(document, MetricSpec, dec_hook=decode_scalar)


def hpa(
    *metrics: dict[str, Any] | MetricSpec, name: str = "web", annotations: dict[str, str] | None = None
) -> HorizontalPodAutoscaler:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 9,
    }
    found = msgspec.convert({"spec": spec}, HorizontalPodAutoscaler, dec_hook=decode_scalar)
    listed = tuple(each if isinstance(each, MetricSpec) else metric(each) for each in metrics)
    whole = msgspec.structs.replace(found.spec, metrics=listed or None)
    return HorizontalPodAutoscaler(metadata=Metadata(name, "shop", annotations=annotations), spec=whole)


ONE = {"type": "AverageValue", "averageValue": "1"}
ITSELF = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "web"}
NAMED = {"matchLabels": {"autoscaler": "web"}}


def external(selector: object = NAMED, target: object = ONE) -> dict[str, Any]:
    identifier = {"name": "fastpath_replicas"} | ({"selector": selector} if selector else {})
    return {"type": "External", "external": {"metric": identifier, "target": target}}


def itself(described: object = ITSELF, selector: object = None, target: object = ONE) -> dict[str, Any]:
    source = external(selector, target)["external"] | {"describedObject": described}
    return {"type": "Object", "object": source}


@pytest.mark.parametrize(
    ("annotations", "wishes"),
    [
        (None, BoostAnnotations("", None)),
        ({"other/mode": "boost"}, BoostAnnotations("", None)),
        ({MODE_ANNOTATION: "advise"}, BoostAnnotations(ADVISE, None)),
        ({MODE_ANNOTATION: "boost", HOLD_ANNOTATION: "45s"}, BoostAnnotations(BOOST, Span(45 * SECOND))),
        ({MODE_ANNOTATION: "boost", HOLD_ANNOTATION: "10m"}, BoostAnnotations(BOOST, Span(600 * SECOND))),
        ({HOLD_ANNOTATION: "45s"}, BoostAnnotations("", Span(45 * SECOND))),
    ],
)
def test_annotations(annotations: dict[str, str] | None, wishes: BoostAnnotations) -> None:
    assert model.read_annotations(annotations) == wishes


def test_a_mode_that_is_none() -> None:
    mode, _, faults, *_ = model.read_annotations({MODE_ANNOTATION: "Boost"})

    assert (mode, faults) == ("", ('annotation fastpath.io/mode: "Boost": expected advise or boost',))


@pytest.mark.parametrize("text", ["", "fast", "0s", "999ms", "10m1s", "-30s", "30"])
def test_a_hold_that_is_none(text: str) -> None:
    _, hold, faults, *_ = model.read_annotations({MODE_ANNOTATION: "boost", HOLD_ANNOTATION: text})

    expected = "expected a duration from 1s to 10m0s, such as 45s"
    assert (hold, faults) == (None, (f'annotation fastpath.io/hold: "{text}": {expected}',))


@pytest.mark.parametrize("way", [EXTERNAL, OBJECT])
@pytest.mark.parametrize("place", [0, 1])
def test_the_handshake_that_we_write_is_right(way: str, place: int) -> None:
    metrics: list[Any] = [CPU]
    metrics.insert(place, model.handshake("web", way))

    assert model.check_handshake("web", hpa(*metrics).spec).holds


@pytest.mark.parametrize(
    "document",
    [
        external(target={"type": "AverageValue", "averageValue": "1000m"}),
        itself(),
        itself(ITSELF | {"apiVersion": "autoscaling/v1"}),
    ],
)
def test_right_however_written(document: dict[str, Any]) -> None:
    assert model.check_handshake("web", hpa(document, CPU).spec).holds


TWO = {"type": "AverageValue", "averageValue": "2"}


@pytest.mark.parametrize(("document", "fault"), answers("autoscaling/boost", "wrong handshakes"))
def test_a_handshake_that_is_wrong_does_not_count(document: dict[str, Any], fault: str) -> None:
    found = model.check_handshake("web", hpa(CPU, document).spec)

    assert not found.holds
    assert fault in found.fault


def test_no_handshake() -> None:
    assert "spec.metrics has no fastpath_replicas" in model.check_handshake("web", hpa(CPU).spec).fault
    assert not model.check_handshake("web", hpa().spec).holds


def test_nothing_but_the_handshake() -> None:
    assert "nothing to decide from" in model.check_handshake("web", hpa(external()).spec).fault


def test_one_right_one_wrong() -> None:
    """The wrong one multiplies the floor, whatever the right one says: the autoscaler takes the greatest."""
    assert not model.check_handshake("web", hpa(CPU, external(target=TWO), external()).spec).holds


def test_what_is_decided_for() -> None:
    annotations = {MODE_ANNOTATION: "boost", "team": "x"}
    found = model.read_boosted(hpa(CPU, external(), annotations=annotations))

    assert found is not None
    kind = (found.autoscaler.api_version, found.autoscaler.kind)
    assert kind == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert found.autoscaler.spec.mode == BOOST
    assert found.autoscaler.spec.metrics == (metric(CPU),)
    assert found.handshake.holds
    assert found.autoscaler.metadata.name == "web"


def test_default_metrics_stay_default() -> None:
    found = model.read_boosted(hpa(annotations={MODE_ANNOTATION: "advise"}))

    assert found is not None
    assert found.autoscaler.spec.metrics is None


def test_autoscalers_without_a_request() -> None:
    assert model.read_boosted(hpa(CPU)) is None
    assert model.read_boosted(hpa(CPU, annotations={MODE_ANNOTATION: "yes"})) is None
    assert model.read_boosted(HorizontalPodAutoscaler()) is None


JOBS = {
    "type": "External",
    "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "5"}},
}


def test_every_change_has_another_digest() -> None:
    states = [
        hpa(CPU, annotations={MODE_ANNOTATION: "boost"}),
        hpa(CPU, annotations={MODE_ANNOTATION: "advise"}),
        hpa(CPU, annotations={MODE_ANNOTATION: "boost", HOLD_ANNOTATION: "45s"}),
        hpa(CPU, external(), annotations={MODE_ANNOTATION: "boost"}),
        hpa(JOBS, annotations={MODE_ANNOTATION: "boost", pending_capacity.ANNOTATION: "jobs=2"}),
        hpa(JOBS, annotations={MODE_ANNOTATION: "boost", pending_capacity.ANNOTATION: "jobs=3"}),
        hpa(annotations={MODE_ANNOTATION: "boost"}),
    ]
    digests = [found.digest for each in states if (found := model.read_boosted(each)) is not None]

    assert len(set(digests)) == len(states)
    again = model.read_boosted(hpa(CPU, annotations={MODE_ANNOTATION: "boost", "team": "y"}))
    assert again is not None
    assert again.digest == digests[0]


@given(st.dictionaries(st.sampled_from(model.ANNOTATIONS), st.text()))
def test_any_text_is_a_wish_or_a_fault(annotations: dict[str, str]) -> None:
    mode, hold, faults, options = model.read_annotations(annotations)

    assert mode in {"", ADVISE, BOOST}
    refused = {
        MODE_ANNOTATION: not mode,
        HOLD_ANNOTATION: hold is None,
        pending_capacity.ANNOTATION: options["pending_capacity"] is None,
        forecast_spec.ANNOTATION: options["forecast"] is None,
        scale_down.ANNOTATION: options["removal_order"] is None,
    }
    assert len(faults) == sum(refused[name] for name in annotations)


@pytest.mark.parametrize(("owners", "labels", "owner"), answers("autoscaling/boost", "owners"))
def test_who_owns_it(owners: list[tuple[str, str, str]], labels: dict[str, str] | None, owner: str) -> None:
    assert model.find_owner(owners, labels) == owner


def test_a_name_that_is_no_value_of_a_label() -> None:
    """The HPA controller refuses such a selector: it would never read the floor, and never scale down."""
    name = "w" * 64
    found = model.check_handshake(name, hpa(CPU, model.handshake(name, EXTERNAL)).spec)
    assert not found.holds
    assert found.fault.startswith("the name of the autoscaler is longer than the 63 characters of a label: ")
    assert model.check_handshake(name, hpa(CPU, model.handshake(name, OBJECT)).spec).holds
    assert model.check_handshake(name[1:], hpa(CPU, model.handshake(name[1:], EXTERNAL)).spec).holds
