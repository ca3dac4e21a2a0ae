"""Which pods go first, in a spec and in an annotation: what is refused, and the sentences."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import limits, scale_down
from adapter.model.autoscaling.scale_down import (
    IDLE,
    PATH,
    Drain,
    ScaleDown,
    read_annotation,
    write_annotation,
)
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND, Span
from tests.support.answers import answers
from tests.support.scaling import cpu_metric, external_metric, hpa, pods_metric

NEEDED = "is needed, because no metric of spec.metrics has a value for each pod"
CPU, LOAD, QUEUE = cpu_metric(), pods_metric(), external_metric("queue", averageValue="10")


def metrics(*given_: dict[str, Any]) -> Any:
    return hpa(given_).spec.metrics


@pytest.mark.parametrize(
    ("name", "given_", "kind"),
    [
        pytest.param(None, [QUEUE, LOAD, CPU], "Pods", id="the first with values of pods"),
        pytest.param("cpu", [LOAD, CPU], "Resource", id="a resource by its name"),
        pytest.param("connections", [LOAD, CPU], "Pods", id="one that is not in the spec"),
        pytest.param("queue", [QUEUE], "Pods", id="one that is external in the spec"),
    ],
)
def test_pods_are_ranked_by(name: str | None, given_: list[dict[str, Any]], kind: str) -> None:
    listed = metrics(*given_)
    found = scale_down.find_metric(ScaleDown(IDLE, metric=name), listed)
    assert found is not None
    assert found.type == kind
    scraped = scale_down.scraped_metrics(ScaleDown(IDLE, metric=name), listed)
    assert scraped == (listed if found in listed else (*listed, found))


def test_without_the_option_nothing_more_is_scraped() -> None:
    assert scale_down.scraped_metrics(None, metrics(CPU)) == metrics(CPU)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            ScaleDown("Busy", "a"),
            'spec.scaleDown.prefer: Unsupported value: "Busy": supported values: "Idle"',
        ),
        (ScaleDown(IDLE), f"spec.scaleDown.metric: Required value: {NEEDED}"),
        (ScaleDown(IDLE, metric=""), "spec.scaleDown.metric: Required value: must specify a metric name"),
        (ScaleDown(IDLE, metric="a/b"), "spec.scaleDown.metric: Invalid value: \"a/b\": may not contain '/'"),
        (
            ScaleDown(IDLE, metric="a", drain=Drain(read("-1"))),
            'spec.scaleDown.drain.value: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            ScaleDown(IDLE, metric="a", drain=Drain(read("10E"))),
            'spec.scaleDown.drain.value: Invalid value: "10E": must be at most 9223372036854775807m',
        ),
        (
            ScaleDown(IDLE, metric="a", drain=Drain(timeout=Span(SECOND // 2))),
            'spec.scaleDown.drain.timeout: Invalid value: "500ms": must be from 1s to 1h0m0s',
        ),
    ],
)
def test_faults(spec: ScaleDown, fault: str) -> None:
    faults = *limits.check(spec, PATH), *scale_down.check(spec, metrics(QUEUE))
    assert [str(each) for each in faults] == [fault]


def test_the_default_metric_has_values_of_pods() -> None:
    assert list(scale_down.check(ScaleDown(IDLE), ())) == []


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("idle", ScaleDown(IDLE)),
        (" Idle ", ScaleDown(IDLE)),
        ("idle, metric=connections", ScaleDown(IDLE, metric="connections")),
    ],
)
def test_annotations(text: str, spec: ScaleDown) -> None:
    assert read_annotation(text, metrics(CPU)) == spec
    assert read_annotation(write_annotation(spec)) == spec


@pytest.mark.parametrize(("text", "sentence"), answers("autoscaling/scale_down", "faulty annotations"))
def test_faults_of_annotations(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        read_annotation(text, metrics(QUEUE))


@given(st.text())
def test_any_metric_is_read_as_it_is_written(name: str) -> None:
    spec = ScaleDown(IDLE, metric=name)
    if not any(limits.check(spec, PATH)) and name.strip() == name and len(name) < 400:
        assert read_annotation(write_annotation(spec)) == spec
