"""Edges of the calculators beyond the conformance cases: each row breaks when one of their lines changes."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.autoscaler.decide import calculator
from adapter.autoscaler.decide.calculator import Proposal, UtilizationAverage, ValueAverage
from adapter.autoscaler.decide.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    PodsReading,
    Unavailable,
    band,
)
from adapter.autoscaler.decide.trace import Step
from tests.support.scaling import pod, pods, reading, situation

UNREADY: dict[str, Any] = {"started": 10.0, "ready": "False", "ready_for": 5.0}
NONE = band(0.0, 0.0)


def _unready(first: int, count: int) -> list[Any]:
    return [pod(f"web-{number}", **UNREADY) for number in range(first, first + count)]


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


# --- what cannot be computed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "measured", "reason", "message"),
    [
        pytest.param(
            [],
            reading(5),
            "NoPods",
            "no pods returned by selector while calculating replica count",
            id="no pods",
        ),
        pytest.param(
            _unready(0, 2),
            reading(5, 5),
            "NoSamples",
            "did not receive metrics for targeted pods (pods might be unready)",
            id="none of them ready",
        ),
        pytest.param(
            pods(2),
            PodsReading({}),
            "NoSamples",
            "did not receive metrics for targeted pods (pods might be unready)",
            id="no samples",
        ),
        pytest.param(
            [pod("web-0", phase="Failed"), pod("web-1", deleting=True)],
            reading(5, 5),
            "NoSamples",
            "did not receive metrics for targeted pods (pods might be unready)",
            id="all on their way out",
        ),
        pytest.param(
            pods(2, cpu=None),
            reading(5, 5),
            "MissingRequest",
            "missing request for cpu in container app of Pod web-0",
            id="no requests",
        ),
        pytest.param(
            [*pods(2), pod("web-2", cpu=None, phase="Failed")],
            reading(5, 5),
            "MissingRequest",
            "missing request for cpu in container app of Pod web-2",
            id="none of a pod that does not count",
        ),
        pytest.param(
            pods(2, cpu="0"),
            reading(5, 5),
            "NoRequests",
            "no metrics returned matched known pods",
            id="requests of 0",
        ),
        pytest.param(
            pods(2),
            PodsReading({"other": 5}),
            "NoRequests",
            "no metrics returned matched known pods",
            id="unknown pods",
        ),
    ],
)
def test_utilization_that_cannot_be_computed(
    listed: list[Any], measured: PodsReading, reason: str, message: str
) -> None:
    assert _cpu(listed, measured, 50, 2) == Unavailable(reason, message)


def test_a_repair_that_leaves_no_requests() -> None:
    listed = [pod("web-0", cpu="100m"), pod("web-1", cpu="-100m")]

    assert _cpu(listed, reading(10), 50, 2) == Unavailable(
        "NoRequests", "no metrics returned matched known pods"
    )


# --- averages over pods ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "measured", "target", "spec", "seen", "replicas", "last"),
    [
        pytest.param(pods(4), reading(*[500] * 4), 50, 4, {}, 4, "tolerated", id="as it should be"),
        pytest.param(
            pods(4), reading(*[450] * 4), 50, 7, {}, 7, "tolerated", id="the lower end is tolerated"
        ),
        pytest.param(pods(4), reading(*[440] * 4), 50, 7, {}, 4, "proposal", id="not what is below"),
        pytest.param(pods(4), reading(*[560] * 4), 50, 7, {}, 5, "proposal", id="nor above the upper"),
        pytest.param(
            pods(2),
            reading(500, 500),
            50,
            5,
            {"tolerated": NONE},
            5,
            "tolerated",
            id="no tolerance, as it should be",
        ),
        pytest.param(
            [*pods(2), *_unready(2, 2)],
            reading(500, 500, 900, 900),
            50,
            5,
            {},
            5,
            "tolerated",
            id="unready, nothing to raise",
        ),
        pytest.param(
            [*pods(2), *_unready(2, 2)],
            reading(250, 250, 900, 900),
            50,
            5,
            {},
            1,
            "proposal",
            id="unready stay out going down",
        ),
        pytest.param(
            [*pods(2), *_unready(2, 1)],
            reading(530, 530),
            50,
            3,
            {},
            3,
            "turned",
            id="unready at 0 turn even a tolerated one",
        ),
        pytest.param(
            [*pods(3), *_unready(3, 1)],
            reading(700, 700, 700),
            50,
            4,
            {},
            4,
            "tolerated",
            id="unready bring it within tolerance",
        ),
        pytest.param(
            [*pods(3), *_unready(3, 1)],
            reading(900, 900, 900),
            50,
            4,
            {},
            6,
            "proposal",
            id="unready count among the pods",
        ),
        pytest.param(
            [*pods(2), pod("web-2"), *_unready(3, 1)],
            reading(1600, 1600, None, 5),
            50,
            4,
            {},
            7,
            "proposal",
            id="unready and missing",
        ),
        pytest.param(
            pods(4), reading(200, 200, 200), 50, 4, {}, 4, "proposal", id="one missing at its request"
        ),
        pytest.param(pods(4), reading(100, 100, 100), 50, 4, {}, 3, "proposal", id="one missing, much lower"),
        pytest.param(
            pods(4), reading(300, 300, 300), 50, 4, {}, 4, "tolerated", id="one missing, a little lower"
        ),
        pytest.param(
            pods(3), reading(400, 400), 50, 3, {}, 3, "turned", id="the missing one turns it upwards"
        ),
        pytest.param(pods(6), reading(*[100] * 5), 50, 2, {}, 2, "crowded", id="more pods than asked for"),
        pytest.param(
            pods(2), reading(900), 50, 9, {"tolerated": NONE}, 9, "turned", id="fewer, and 0 turns it down"
        ),
        pytest.param(pods(3), reading(900, 900), 50, 9, {}, 9, "crowded", id="fewer pods than asked for"),
        pytest.param(
            pods(2),
            reading(500),
            50,
            7,
            {"tolerated": NONE},
            7,
            "tolerated",
            id="exactly right, the missing one adds nothing",
        ),
        pytest.param(
            [*pods(2), pod("web-2", deleting=True)],
            reading(800, 800, 9000),
            50,
            2,
            {},
            4,
            "proposal",
            id="ignored are ignored",
        ),
    ],
)
def test_utilization(
    listed: list[Any],
    measured: PodsReading,
    target: int,
    spec: int,
    seen: dict[str, Any],
    replicas: int,
    last: str,
) -> None:
    found = _cpu(listed, measured, target, spec, **seen)

    assert isinstance(found, Proposal)
    assert (found.replicas, found.steps[-1].name) == (replicas, last)


def test_requests_of_one_container() -> None:
    found = calculator.resource_replicas(reading(500, 500), 50, "cpu", "app", "cpu", situation(2, pods(2)))
    missing = calculator.resource_replicas(reading(500, 500), 50, "cpu", "log", "cpu", situation(2, pods(2)))

    assert _replicas(found) == 2
    assert missing == Unavailable("MissingRequest", "container log not found in Pod web-0")


def test_steps_tell_the_numbers() -> None:
    listed = [*pods(2), pod("web-2"), *_unready(3, 1), pod("web-4", deleting=True)]

    found = _cpu(listed, reading(1600, 1600, None, 5), 50, 4)

    assert isinstance(found, Proposal)
    assert [step.text() for step in found.steps] == [
        "cpu: 2 pods ready, 1 unready, 1 missing (no sample), 1 ignored (terminating or failed)",
        "average 160 % of requests, target 50 %: ratio 3.2",
        "1 pod without a sample counted as 0 and 1 pod not ready counted as 0: ratio 1.6 over 4 pods",
        "4 pods x 1.6 = 6.4, rounded up to 7",
    ]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            _cpu(pods(4), reading(100, 100, 100), 150, 4),
            "1 pod without a sample counted as 150 % of its request: ratio 0.3 over 4 pods",
        ),
        (
            _cpu(pods(4), reading(100, 100, 100), 50, 4),
            "1 pod without a sample counted as 100 % of its request: ratio 0.64 over 4 pods",
        ),
        (
            _load(pods(4), reading(100, 100, 100), 500, 4),
            "1 pod without a sample counted as the target: ratio 0.4 over 4 pods",
        ),
        (_load(pods(2), reading(700), 500, 2), "1 pod without a sample counted as 0: ratio 0.7 over 2 pods"),
        (_load(pods(2), reading(500), 500, 4), "nothing to add: ratio 1 over 1 pod"),
        (_load(pods(2), reading(0), 0, 4), "nothing to add: ratio nan over 1 pod"),
        (
            _load([*pods(1), *pods(0), pod("web-1", phase="Pending")], reading(900), 500, 4),
            "1 pod not ready counted as 0: ratio 0.9 over 2 pods",
        ),
    ],
)
def test_repairs_in_words(outcome: Proposal | Unavailable, words: str) -> None:
    assert _step(outcome, "repair").text() == words


def test_what_is_tolerated_in_words() -> None:
    assert (
        _step(_cpu(pods(4), reading(*[500] * 4), 50, 4), "tolerated").text()
        == "ratio 1 is within 0.9 to 1.1: stays 4"
    )


def test_sums_of_values_and_of_requests_wrap() -> None:
    assert UtilizationAverage({"a": 1000, "b": 1000}, 50).measure({"a": INT64_MAX, "b": INT64_MAX}) == (
        0.0,
        -1,
        0,
        True,
    )
    assert UtilizationAverage({"a": INT64_MAX, "b": INT64_MAX}, 50).measure({"a": 3, "b": 4}) == (
        -7.0,
        3,
        -350,
        False,
    )


def test_turns_in_words() -> None:
    turned = _step(_cpu(pods(4), reading(800, 800), 50, 4), "turned")
    crowded = _step(_cpu(pods(6), reading(*[100] * 5), 50, 2), "crowded")

    assert turned.text() == "the ratio goes from 1.6 to 0.8, which would reverse the direction: stays 4"
    assert crowded.text() == "6 pods would give 3, which would reverse the direction: stays 2"


def test_gauges_wrap_and_truncate() -> None:
    whole = UtilizationAverage({"a": 3, "b": 3}, 60)

    assert whole.measure({"a": 2, "b": 1, "c": 99}) == (50 / 60, 1, 50, False)
    assert whole.measure({"c": 99}) == Unavailable("NoRequests", "no metrics returned matched known pods")
    assert whole.absent("a") == 3
    assert UtilizationAverage({"a": 7}, 150).absent("a") == 10
    assert UtilizationAverage({"a": 2**62}, 100).absent("a") == 0
    assert ValueAverage(500, memory=False).measure({"a": -3, "b": -4}) == (-3 / 500, -3, None, False)
    assert ValueAverage(500, memory=False).absent("anything") == 500


def test_the_percentage_wraps_to_32_bits() -> None:
    measured = UtilizationAverage({"a": 1}, 1).measure({"a": 21_474_837})

    assert measured == (-2_147_483_596.0, 21_474_837, -2_147_483_596, True)


# --- single values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "target", "spec", "listed", "replicas"),
    [
        pytest.param(33_000, 30_000, 3, [], 3, id="tolerated without looking at pods"),
        pytest.param(27_000, 30_000, 3, [], 3, id="also below"),
        pytest.param(34_000, 30_000, 3, pods(4), 5, id="ready pods, not those asked for"),
        pytest.param(15_000, 30_000, 3, pods(5), 3, id="down"),
        pytest.param(31_000, 30_000, 0, [], 2, id="from zero no tolerance and no pods"),
        pytest.param(30_000, 30_000, 0, [], 1, id="from zero to one"),
        pytest.param(0, 30_000, 0, [], 0, id="from zero to zero"),
        pytest.param(INT64_MAX, 1, 0, [], INT32_MIN, id="from zero nothing is cut"),
        pytest.param(INT64_MAX, 1, 5, pods(5), INT32_MAX, id="else it is"),
        pytest.param(-90_000, 30_000, 3, pods(2), -6, id="below nothing"),
        pytest.param(INT64_MIN, 1, 5, pods(5), INT32_MIN, id="far below"),
        pytest.param(5, 0, 3, pods(2), INT32_MAX, id="a target of 0"),
        pytest.param(0, 0, 3, pods(2), INT32_MIN, id="nothing of nothing"),
    ],
)
def test_values(value: int, target: int, spec: int, listed: list[Any], replicas: int) -> None:
    seen = situation(spec, listed)

    one = calculator.object_metric_replicas(ObjectReading(value), target, "hits", seen)
    other = calculator.external_metric_replicas(ExternalReading([value]), target, "queue", seen)

    assert (_replicas(one), _replicas(other)) == (replicas, replicas)
    assert isinstance(one, Proposal)
    assert (one.value, one.average, one.utilization) == (value, None, None)


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1, 2, 3], 6),
        ([INT64_MAX, 1], INT64_MAX),
        ([INT64_MAX, 0], INT64_MAX),
        ([INT64_MAX - 1, 1], INT64_MAX),
        ([INT64_MAX, 1, -5], INT64_MAX),
        ([INT64_MAX, -5], INT64_MAX - 5),
        ([INT64_MIN, -1], INT64_MAX),
        ([-5, 3], -2),
    ],
)
def test_sums_end_at_the_highest_number(values: list[int], total: int) -> None:
    found = calculator.external_metric_replicas(ExternalReading(values), 1000, "queue", situation(2, pods(1)))

    assert isinstance(found, Proposal)
    assert found.value == total


@pytest.mark.parametrize(
    ("ready_then", "value", "spec", "replicas", "words"),
    [
        pytest.param(None, 60_000, 8, 16, "8 pods x 2 = 16", id="an unknown count"),
        pytest.param(5, 60_000, 8, 10, "5 pods x 2 = 10", id="a raise counts with those of then"),
        pytest.param(
            2,
            60_000,
            8,
            8,
            "2 pods would give 4, which would reverse the direction: stays 8",
            id="and never shrinks",
        ),
        pytest.param(4, 60_000, 8, 8, "4 pods x 2 = 8", id="it may come to what there is"),
        pytest.param(9, 60_000, 8, 16, "8 pods x 2 = 16", id="more were ready then"),
        pytest.param(8, 60_000, 8, 16, "8 pods x 2 = 16", id="as many were"),
        pytest.param(2, 15_000, 8, 4, "8 pods x 0.5 = 4", id="a shrink counts with those of now"),
        pytest.param(0, 60_000, 0, 2, "1 pod x 2 = 2", id="from zero"),
    ],
)
def test_a_value_that_lags(ready_then: int | None, value: int, spec: int, replicas: int, words: str) -> None:
    seen = situation(spec, pods(8))

    one = calculator.object_metric_replicas(ObjectReading(value, ready_then), 30_000, "hits", seen)
    other = calculator.external_metric_replicas(ExternalReading([value], ready_then), 30_000, "queue", seen)

    assert _replicas(one) == _replicas(other) == replicas
    assert isinstance(one, Proposal)
    assert one.steps[-1].text() == words
    lagging = [step.text() for step in one.steps if step.name == "lagging"]
    known = ready_then is not None and ready_then < 8 and value > 30_000 and spec
    said = f"the value is from when {ready_then} pods were ready: counted with these, not with 8"
    assert lagging == ([said] if known else [])


@pytest.mark.parametrize(
    ("most_then", "value", "spec", "replicas", "lags"),
    [
        pytest.param(0, 15_000, 4, 2, False, id="not known"),
        pytest.param(4, 15_000, 4, 2, False, id="as many were ready"),
        pytest.param(6, 15_000, 4, 3, True, id="more were ready then"),
        pytest.param(8, 15_000, 4, 4, True, id="it is worth what is left"),
        pytest.param(20, 15_000, 4, 4, True, id="it never becomes a raise"),
        pytest.param(20, 60_000, 4, 8, False, id="a raise counts with those of now"),
        pytest.param(20, 31_000, 4, 4, False, id="tolerated"),
        pytest.param(10, 45_000, 10, 10, True, id="pods that went away are no reason to shrink"),
    ],
)
def test_a_shrink_counts_with_the_pods_of_the_sample(
    most_then: int, value: int, spec: int, replicas: int, *, lags: bool
) -> None:
    seen = situation(spec, pods(4))
    values = {f"web-{number}": value for number in range(4)}
    whole = [
        calculator.object_metric_replicas(ObjectReading(value, most_then=most_then), 30_000, "hits", seen),
        calculator.external_metric_replicas(
            ExternalReading([value], most_then=most_then), 30_000, "queue", seen
        ),
        calculator.raw_resource_replicas(PodsReading(values, most_then=most_then), 30_000, "", "load", seen),
    ]

    for made in whole:
        assert isinstance(made, Proposal)
        assert made.replicas == replicas
        said = [step.text() for step in made.steps if step.name == "lagging"]
        text = f"the value is from when {most_then} pods were ready: counted with these, not with 4"
        assert said == ([text] if lags else [])


def test_missing_pods_and_a_sample_of_more_pods() -> None:
    measured = PodsReading({"web-0": 10_000, "web-1": 10_000}, most_then=8)

    made = calculator.raw_resource_replicas(measured, 30_000, "", "load", situation(6, pods(4)))

    assert _replicas(made) == 6, "8 pods at two thirds of the target"


@pytest.mark.parametrize(
    ("values", "left_out", "replicas", "ratio"),
    [
        pytest.param([60, 60], [60, 60], 4, "1", id="as 0 in a raise"),
        pytest.param([90, 90], [90, 90], 6, "1.5", id="as 0 in a raise beyond all pods"),
        pytest.param([6, 6], [6, 6], 3, "0.6", id="as the target in a shrink"),
        pytest.param([6, 6], [60, 6], 4, "0.85", id="as its own value in a shrink"),
        pytest.param([6, 6], [120, 6], 4, "1.35", id="its own value never raises"),
    ],
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
    ("values", "target", "replicas", "average"),
    [
        ([-1], 10_000, INT32_MAX, INT64_MAX),
        pytest.param([2**40], 1, INT32_MAX, 366_503_875_926, id="cut"),
        pytest.param([0], 0, INT32_MIN, 0, id="but nothing of nothing"),
        pytest.param([INT64_MAX, 1], 10**15, 9224, INT64_MAX, id="an overflow is the highest number"),
        pytest.param([INT64_MAX - 500], 10**15, 9224, INT64_MAX, id="what is 2^63 in doubles too"),
        pytest.param([INT64_MAX - 513], 10**15, 9224, (2**63 - 1024) // 3, id="not what is less"),
        pytest.param([2**62], 10**15, 4612, 2**62 // 3, id="less is divided"),
        pytest.param([0, 0], 10, 0, 0, id="0 is not below zero"),
    ],
)
def test_external_averages_at_the_edge(values: list[int], target: int, replicas: int, average: int) -> None:
    found = calculator.external_per_pod_replicas(ExternalReading(values), target, "queue", situation(3))

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


def test_values_in_words() -> None:
    adopted = calculator.object_per_pod_replicas(ObjectReading(33_000), 10_000, "hits", situation(9, exist=3))
    shared = calculator.external_per_pod_replicas(
        ExternalReading([5_001]), 10_000, "queue", situation(9, exist=1)
    )
    total = calculator.external_metric_replicas(
        ExternalReading([90_500]), 30_000, "queue", situation(3, pods(5))
    )

    assert isinstance(adopted, Proposal)
    assert isinstance(shared, Proposal)
    assert isinstance(total, Proposal)
    assert [step.text() for step in adopted.steps] == [
        "hits: 33, target 10 for each of 3 replicas: ratio 1.1",
        "ratio 1.1 is within 0.9 to 1.1: uses status.replicas, 3",
    ]
    assert [step.text() for step in shared.steps] == [
        "queue: 5.001, target 10 for each of 1 replica: ratio 0.5001",
        "5.001 / 10 = 0.5001, rounded up to 1",
    ]
    assert [step.text() for step in total.steps] == [
        "queue: 90.5, target 30: ratio 3.0167",
        "5 pods x 3.0167 = 15.0833, rounded up to 16",
    ]


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
    listed = [*pods(len(values), cpu="100m"), *_unready(len(values), not_ready)]
    seen = situation(spec, listed, exist=exist)
    known = [value for value in values if value is not None] or [0]

    outcomes = [
        calculator.resource_replicas(reading(*values), min(target, 2**31 - 1) or 1, "cpu", "", "cpu", seen),
        calculator.raw_resource_replicas(reading(*values), target, "cpu", "cpu", seen),
        calculator.object_metric_replicas(ObjectReading(known[0], exist), target, "hits", seen),
        calculator.object_per_pod_replicas(ObjectReading(known[0]), target, "hits", seen),
        calculator.external_metric_replicas(ExternalReading(known, exist), target, "queue", seen),
        calculator.external_per_pod_replicas(ExternalReading(known), target, "queue", seen),
    ]

    for outcome in outcomes:
        if isinstance(outcome, Proposal):
            assert INT32_MIN <= outcome.replicas <= INT32_MAX
            assert all(step.text() for step in outcome.steps)
        else:
            assert outcome.message
