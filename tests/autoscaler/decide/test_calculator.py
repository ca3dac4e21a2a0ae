"""Edges of the calculators beyond the conformance cases: each row breaks when one of their lines changes."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.autoscaler.decide import calculator
from adapter.autoscaler.decide.calculator import Measurement, Proposal, UtilizationAverage, ValueAverage
from adapter.autoscaler.decide.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from adapter.autoscaler.decide.observation import (
    Band,
    ExternalReading,
    ObjectReading,
    PodsReading,
    Unavailable,
)
from adapter.autoscaler.decide.trace import Step
from tests.support.answers import answers
from tests.support.scaling import pod, pods, reading, situation

UNREADY: dict[str, Any] = {"started": 10.0, "ready": "False", "ready_for": 5.0}
KINDS: dict[str, dict[str, Any]] = {
    "ready": {},
    "unready": UNREADY,
    "deleting": {"deleting": True},
    "failed": {"phase": "Failed"},
    "without a request": {"cpu": None},
    "failed without a request": {"cpu": None, "phase": "Failed"},
    "0 cpu": {"cpu": "0"},
    "100m cpu": {"cpu": "100m"},
    "-100m cpu": {"cpu": "-100m"},
}
"""Pods of these tests, and what is special about each."""


def _listed(kinds: dict[str, int]) -> list[Any]:
    """Return so many pods of each kind, all numbered in order."""
    each = [KINDS[kind] for kind, count in kinds.items() for _ in range(count)]
    return [pod(f"web-{number}", **facts) for number, facts in enumerate(each)]


def _cpu(
    listed: list[Any], measured: PodsReading, target: int, spec: int, **seen: Any
) -> Proposal | Unavailable:
    return calculator.resource_replicas(measured, target, "cpu", "", "cpu", situation(spec, listed, **seen))


def _load(
    listed: list[Any], measured: PodsReading, target: int, spec: int, **seen: Any
) -> Proposal | Unavailable:
    return calculator.raw_resource_replicas(measured, target, "", "load", situation(spec, listed, **seen))


def _replicas(outcome: Proposal | Unavailable) -> int:
    assert isinstance(outcome, Proposal)
    return outcome.replicas


def _step(outcome: Proposal | Unavailable, name: str) -> Step:
    assert isinstance(outcome, Proposal)
    return next(step for step in outcome.steps if step.name == name)


NO_REQUESTS = Unavailable("NoRequests", "no metrics returned matched known pods")


@pytest.mark.parametrize(("kinds", "values", "reason", "message"), answers("decide/calculator", "refused"))
def test_utilization_that_cannot_be_computed(
    kinds: dict[str, int], values: list[int | None], reason: str, message: str
) -> None:
    assert _cpu(_listed(kinds), reading(*values), 50, 2) == Unavailable(reason, message)


@pytest.mark.parametrize(
    ("kinds", "values", "spec", "tolerance", "replicas", "last"), answers("decide/calculator", "utilization")
)
def test_utilization(
    kinds: dict[str, int], values: list[int | None], spec: int, tolerance: float, replicas: int, last: str
) -> None:
    band = Band(1 - tolerance, 1 + tolerance)
    outcome = _cpu(_listed(kinds), reading(*values), 50, spec, tolerated=band)

    assert isinstance(outcome, Proposal)
    assert (outcome.replicas, outcome.steps[-1].name) == (replicas, last)


def test_requests_of_one_container() -> None:
    found = calculator.resource_replicas(reading(500, 500), 50, "cpu", "app", "cpu", situation(2, pods(2)))
    missing = calculator.resource_replicas(reading(500, 500), 50, "cpu", "log", "cpu", situation(2, pods(2)))

    assert _replicas(found) == 2
    assert missing == Unavailable("MissingRequest", "container log not found in Pod web-0")


@pytest.mark.parametrize(("value", "target", "ratio"), [(500, 500, "1"), (0, 0, "nan")])
def test_a_missing_pod_may_add_nothing(value: int, target: int, ratio: str) -> None:
    repair = _step(_load(pods(2), reading(value), target, 4), "repair")

    assert repair.text() == f"nothing to add: ratio {ratio} over 1 pod"


def test_sums_averages_and_percentages_wrap_and_truncate() -> None:
    assert UtilizationAverage({"a": 1000, "b": 1000}, 50).measure(
        {"a": INT64_MAX, "b": INT64_MAX}
    ) == Measurement(0.0, -1, 0, True)
    full = UtilizationAverage({"a": INT64_MAX, "b": INT64_MAX}, 50)
    assert full.measure({"a": 3, "b": 4}) == Measurement(-7.0, 3, -350, False)
    assert UtilizationAverage({"a": 1}, 1).measure({"a": 21_474_837}) == Measurement(
        -2_147_483_596.0, 21_474_837, -2_147_483_596, True
    )
    whole = UtilizationAverage({"a": 3, "b": 3}, 60)
    assert whole.measure({"a": 2, "b": 1, "c": 99}) == Measurement(50 / 60, 1, 50, False)
    assert whole.measure({"a": 2, "c": 99}) == Measurement(66 / 60, 2, 66, False)
    assert whole.measure({"c": 99}) == NO_REQUESTS
    assert ValueAverage(500, memory=False).measure({"a": -3, "b": -4}) == Measurement(
        -3 / 500, -3, None, False
    )


def test_what_a_pod_without_a_sample_counts() -> None:
    assert UtilizationAverage({"a": 3, "b": 3}, 60).absent("a") == 3
    assert UtilizationAverage({"a": 7}, 150).absent("a") == 10
    assert UtilizationAverage({"a": 2**62}, 100).absent("a") == 0
    assert ValueAverage(500, memory=False).absent("anything") == 500
    wrapped = _step(_load(pods(2), reading(5000, None), -5000, 3), "repair")
    assert wrapped.facts["ratio"] == 0, "the thousandths of a target may wrap below zero"


@pytest.mark.parametrize(
    ("value", "target", "spec", "ready", "replicas"), answers("decide/calculator", "values")
)
def test_values(value: int, target: int, spec: int, ready: int, replicas: int) -> None:
    readings: list[ObjectReading | ExternalReading] = [ObjectReading(value), ExternalReading([value])]
    for whole in readings:
        outcome = calculator.ratio_replicas(whole, target, "queue", situation(spec, pods(ready)))
        assert isinstance(outcome, Proposal)
        assert (outcome.replicas, outcome.value, outcome.average, outcome.utilization) == (
            replicas,
            value,
            None,
            None,
        )


@pytest.mark.parametrize(("values", "total"), answers("decide/calculator", "sums"))
def test_sums_end_at_the_highest_number(values: list[int], total: int) -> None:
    found = calculator.ratio_replicas(ExternalReading(values), 1000, "queue", situation(2, pods(1)))

    assert isinstance(found, Proposal)
    assert found.value == total


@pytest.mark.parametrize(
    ("ready_then", "value", "spec", "replicas", "words"), answers("decide/calculator", "lagging")
)
def test_a_value_that_lags(ready_then: int | None, value: int, spec: int, replicas: int, words: str) -> None:
    known = ready_then is not None and ready_then < 8 and value > 30_000 and spec
    text = f"the value is from when {ready_then} pods were ready: counted with these, not with 8"
    readings: list[ObjectReading | ExternalReading] = [
        ObjectReading(value, ready_then),
        ExternalReading([value], ready_then),
    ]
    for whole in readings:
        outcome = calculator.ratio_replicas(whole, 30_000, "queue", situation(spec, pods(8)))
        assert isinstance(outcome, Proposal)
        assert (outcome.replicas, outcome.steps[-1].text()) == (replicas, words)
        assert [step.text() for step in outcome.steps if step.name == "lagging"] == ([text] if known else [])


@pytest.mark.parametrize(
    ("most_then", "value", "spec", "replicas", "lags"), answers("decide/calculator", "shrinks")
)
def test_a_shrink_counts_with_the_pods_of_the_sample(
    most_then: int, value: int, spec: int, replicas: int, *, lags: bool
) -> None:
    seen = situation(spec, pods(4))
    measured = PodsReading({f"web-{number}": value for number in range(4)}, most_then=most_then)
    text = f"the value is from when {most_then} pods were ready: counted with these, not with 4"
    for outcome in (
        calculator.ratio_replicas(ObjectReading(value, most_then=most_then), 30_000, "hits", seen),
        calculator.ratio_replicas(ExternalReading([value], most_then=most_then), 30_000, "queue", seen),
        calculator.raw_resource_replicas(measured, 30_000, "", "load", seen),
    ):
        assert isinstance(outcome, Proposal)
        assert outcome.replicas == replicas
        assert [step.text() for step in outcome.steps if step.name == "lagging"] == ([text] if lags else [])


def test_missing_pods_and_a_sample_of_more_pods() -> None:
    measured = PodsReading({"web-0": 10_000, "web-1": 10_000}, most_then=8)

    made = calculator.raw_resource_replicas(measured, 30_000, "", "load", situation(6, pods(4)))

    assert _replicas(made) == 6, "8 pods at two thirds of the target"


@pytest.mark.parametrize(
    ("values", "left_out", "replicas", "ratio"), answers("decide/calculator", "left out")
)
def test_pods_that_are_left_out(values: list[int], left_out: list[int], replicas: int, ratio: str) -> None:
    known = {f"web-{number}": value * 1000 for number, value in enumerate(values)}
    others = {f"web-{number}": value * 1000 for number, value in enumerate(left_out, len(values))}
    reading = PodsReading(known, left_out=others)

    made = calculator.raw_resource_replicas(reading, 30_000, "", "load", situation(4, pods(4)))

    assert isinstance(made, Proposal)
    assert made.replicas == replicas
    assert [step.text() for step in made.steps[:2]] == [
        "load: 2 pods ready",
        "2 pods left out: ready after the oldest sample",
    ]
    (repair,) = (step for step in made.steps if step.name == "repair")
    assert f"ratio {ratio} over 4 pods" in repair.text()


@pytest.mark.parametrize("gone", [{"deleting": True}, {"phase": "Failed"}, {"phase": "Pending"}], ids=str)
def test_a_pod_that_was_left_out_and_has_ended_counts_no_more(gone: dict[str, Any]) -> None:
    seen = situation(4, [*pods(3), pod("web-3", **gone)])
    known = {"web-0": 6_000, "web-1": 6_000}

    proposals = [
        calculator.raw_resource_replicas(PodsReading(known, left_out=others), 30_000, "", "load", seen)
        for others in ({"web-2": 6_000, "web-3": 90_000}, {"web-2": 6_000})
    ]

    assert proposals[0] == proposals[1]


VALUES = st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=1, max_size=12)


@given(VALUES, st.sets(st.integers(0, 11)), st.integers(1, 30))
def test_nothing_is_scaled_down_because_a_pod_was_left_out(
    values: list[int | None], out: set[int], replicas: int
) -> None:
    seen = situation(replicas, pods(len(values)))
    known = {f"web-{number}": value * 1000 for number, value in enumerate(values) if value is not None}
    left_out = {f"web-{number}": known[f"web-{number}"] for number in out if f"web-{number}" in known}
    rest = {name: value for name, value in known.items() if name not in left_out}
    assume(rest)

    whole = calculator.raw_resource_replicas(PodsReading(known), 30_000, "", "load", seen)
    cut = calculator.raw_resource_replicas(PodsReading(rest, left_out=left_out), 30_000, "", "load", seen)

    assert isinstance(whole, Proposal)
    assert isinstance(cut, Proposal)
    assert cut.replicas >= min(whole.replicas, replicas)


@pytest.mark.parametrize(
    ("values", "target", "replicas", "average"), answers("decide/calculator", "averages")
)
def test_external_averages_at_the_edge(values: list[int], target: int, replicas: int, average: int) -> None:
    found = calculator.per_pod_replicas(ExternalReading(values), target, "queue", situation(3))

    assert isinstance(found, Proposal)
    assert found.replicas == replicas
    assert found.average is not None
    assert math.isclose(found.average, average, rel_tol=1e-15)


def test_memory_is_said_in_bytes() -> None:
    listed = pods(2, memory="1Gi")

    memory = calculator.raw_resource_replicas(
        reading(300, 300), 200, "memory", "memory", situation(2, listed)
    )
    others = [
        calculator.raw_resource_replicas(reading(300, 300), 200, resource, resource, situation(2, listed))
        for resource in ("cpu", "storage")
    ]

    assert _step(memory, "average").facts["bytes"] is True
    assert [_step(other, "average").facts["bytes"] for other in others] == [False, False]


_NUMBERS = st.integers(-5000, 5000) | st.sampled_from([INT64_MAX, INT64_MIN, 2**62, 0])


@given(
    values=st.lists(st.none() | _NUMBERS, min_size=1, max_size=6),
    target=st.integers(0, 2**40),
    spec=st.integers(0, 2**31 - 1),
    exist=st.integers(0, 2**31 - 1),
    not_ready=st.integers(0, 3),
)
def test_any_numbers_give_a_proposal_or_a_reason(
    values: list[int | None], target: int, spec: int, exist: int, not_ready: int
) -> None:
    unready = range(len(values), len(values) + not_ready)
    listed = [*pods(len(values), cpu="100m"), *(pod(f"web-{number}", **UNREADY) for number in unready)]
    seen = situation(spec, listed, exist=exist)
    known = [value for value in values if value is not None] or [0]

    outcomes = [
        calculator.resource_replicas(reading(*values), min(target, 2**31 - 1) or 1, "cpu", "", "cpu", seen),
        calculator.raw_resource_replicas(reading(*values), target, "cpu", "cpu", seen),
        calculator.ratio_replicas(ObjectReading(known[0], exist), target, "hits", seen),
        calculator.per_pod_replicas(ObjectReading(known[0]), target, "hits", seen),
        calculator.ratio_replicas(ExternalReading(known, exist), target, "queue", seen),
        calculator.per_pod_replicas(ExternalReading(known), target, "queue", seen),
    ]

    for outcome in outcomes:
        if isinstance(outcome, Proposal):
            assert INT32_MIN <= outcome.replicas <= INT32_MAX
            assert all(step.text() for step in outcome.steps)
        else:
            assert outcome.message
