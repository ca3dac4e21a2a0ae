"""Examples of the autoscaler's arithmetic, worked by hand from Kubernetes' rules, each with its derivation.

Numbers 1 to 28 are proposals of one metric, 29 to 56 what becomes of proposals, 57 quantities.
"""

from typing import Any

import pytest

from adapter.autoscaler.decide import behavior, calculator
from adapter.autoscaler.decide.behavior import Policy, ReplicaLimits, Rules
from adapter.autoscaler.decide.calculator import Proposal
from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.history import History, Recommendation, RecommendationList
from adapter.autoscaler.decide.numbers import INT32_MAX, INT32_MIN, INT64_MIN
from adapter.autoscaler.decide.observation import (
    Band,
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
    band,
)
from adapter.model import quantity
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import read
from adapter.model.timestamps import NEVER, SECOND
from tests.support.scaling import (
    NOW,
    Story,
    autoscaler,
    conditions_of,
    cpu_metric,
    external_metric,
    object_metric,
    pod,
    pods,
    pods_metric,
    reading,
    remembered,
    situation,
)

UNREADY: dict[str, Any] = {"started": 10.0, "ready": "False", "ready_for": 5.0}


def _proposal(outcome: Proposal | Unavailable) -> Proposal:
    assert isinstance(outcome, Proposal)
    return outcome


# --- 1 to 20: metrics of pods ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "measured", "target", "spec", "replicas", "utilization"),
    [
        pytest.param(pods(27, cpu="200m"), reading(*[140] * 27), 30, 27, 64, 70, id="1 the double above 63"),
        pytest.param(pods(10), reading(*[550] * 10), 50, 10, 10, 55, id="2 a ratio of 1.1 is tolerated"),
        pytest.param(pods(3, cpu="300m"), reading(*[182] * 3), 55, 3, 3, 60, id="3 per cent are truncated"),
        pytest.param(pods(3, cpu="2"), reading(600, 1000, 1400), 30, 3, 5, 50, id="6 average over requests"),
        pytest.param(
            [*pods(3, cpu="500m"), pod("web-3", cpu="500m", **UNREADY)],
            reading(450, 450, 450, 500),
            50,
            4,
            6,
            90,
            id="7 unready count as 0 on the way up",
        ),
        pytest.param(
            [pod("web-0", cpu="2"), pod("web-1", cpu="2", **UNREADY), pod("web-2", cpu="2", **UNREADY)],
            reading(800, 800, 800),
            30,
            3,
            3,
            40,
            id="8 zeros turn the direction",
        ),
        pytest.param(
            [*pods(3), *(pod(f"web-{number}", **UNREADY) for number in range(3, 10))],
            reading(*[400] * 10),
            80,
            10,
            2,
            40,
            id="9 unready stay out on the way down",
        ),
        pytest.param(
            pods(6, cpu="200m"),
            reading(120, 120, 120, 120, None, None),
            150,
            6,
            4,
            60,
            id="10 missing at the target",
        ),
        pytest.param(
            pods(6, cpu="200m"),
            reading(40, 40, 40, 40, None, None),
            50,
            6,
            6,
            20,
            id="11 missing at the request",
        ),
        pytest.param(
            pods(4), reading(800, 800, None, None), 50, 4, 4, 80, id="12 missing at 0 turn the direction"
        ),
        pytest.param(pods(4), reading(1600, 1600, None, None), 50, 4, 7, 160, id="13 missing at 0 still up"),
        pytest.param(pods(5), reading(*[900] * 5), 60, 10, 8, 90, id="15 fewer pods than asked for"),
        pytest.param(
            [*pods(4), pod("web-4", phase="Succeeded"), pod("web-5", phase="Succeeded")],
            reading(100, 100, 100, 100, None, None),
            50,
            4,
            4,
            10,
            id="17 completed pods are missing",
        ),
    ],
)
def test_cpu_utilization(
    listed: list[PodFacts], measured: PodsReading, target: int, spec: int, replicas: int, utilization: int
) -> None:
    found = _proposal(
        calculator.resource_replicas(measured, target, "cpu", "", "cpu", situation(spec, listed))
    )

    assert (found.replicas, found.utilization) == (replicas, utilization)


def test_7_reports_the_first_average() -> None:
    listed = [*pods(3, cpu="500m"), pod("web-3", cpu="500m", **UNREADY)]

    found = _proposal(
        calculator.resource_replicas(reading(450, 450, 450, 500), 50, "cpu", "", "cpu", situation(4, listed))
    )

    assert (found.utilization, found.average, found.value) == (90, 450, None)


@pytest.mark.parametrize(
    ("count", "values", "target", "spec", "replicas", "average"),
    [
        pytest.param(3, [1100, 1100, 1101], 1000, 3, 3, 1100, id="4 the average is truncated"),
        pytest.param(3, [249, 250, 999], 250, 3, 6, 499, id="5 and its quotient rounded up"),
        pytest.param(
            3, [10_000, 10_000, None], 17_000, 2, 2, 10_000, id="14 a surge does not turn the direction"
        ),
        pytest.param(3, [10**15] * 3, 1, 3, INT32_MIN, 10**15, id="28 out of 32 bits"),
    ],
)
def test_pods_metric(
    count: int, values: list[int | None], target: int, spec: int, replicas: int, average: int
) -> None:
    found = _proposal(
        calculator.raw_resource_replicas(reading(*values), target, "", "load", situation(spec, pods(count)))
    )

    assert (found.replicas, found.average, found.utilization) == (replicas, average, None)


def test_16_a_value_of_an_unknown_pod_is_averaged() -> None:
    measured = PodsReading({"web-0": 10_000, "web-1": 10_000, "other": 40_000})

    found = _proposal(calculator.raw_resource_replicas(measured, 10_000, "", "load", situation(2, pods(2))))

    assert (found.replicas, found.average) == (4, 20_000)


def test_18_a_sum_that_wraps() -> None:
    tebibyte = 2**40 * 1000

    found = _proposal(
        calculator.resource_replicas(
            reading(*[tebibyte] * 100), 80, "memory", "", "memory", situation(100, pods(100, memory="1Ti"))
        )
    )

    assert (found.replicas, found.utilization) == (-83, -67)


def test_19_sidecars_count() -> None:
    def asks(name: str, cpu: str, restart: str | None = None) -> Container:
        return Container(name, ResourceRequirements({"cpu": read(cpu)}), restart)

    listed = [
        PodFacts(
            each.name,
            started=each.started,
            ready="True",
            containers=(asks("app", "100m"),),
            init_containers=(asks("mesh", "50m", "Always"), asks("setup", "5")),
        )
        for each in pods(3)
    ]

    found = _proposal(
        calculator.resource_replicas(reading(150, 150, 150), 80, "cpu", "", "cpu", situation(3, listed))
    )

    assert (found.replicas, found.utilization) == (4, 100)


def test_20_overhead_counts_for_pods_that_ask_as_a_whole() -> None:
    whole = {"cpu": read("800m")}
    listed = [pod(f"web-{number}", pod_requests=whole, overhead={"cpu": read("200m")}) for number in range(4)]

    found = _proposal(
        calculator.resource_replicas(reading(*[600] * 4), 50, "cpu", "", "cpu", situation(4, listed))
    )

    assert (found.replicas, found.utilization) == (5, 60)


# --- 21 to 28: single values -------------------------------------------------------------------------------


def test_21_a_value_times_the_ready_pods() -> None:
    found = _proposal(
        calculator.object_metric_replicas(ObjectReading(90_000), 30_000, "hits", situation(3, pods(5)))
    )

    assert (found.replicas, found.value) == (15, 90_000)


def test_22_no_pod_is_ready() -> None:
    listed = pods(3, ready="False")

    assert (
        _proposal(
            calculator.object_metric_replicas(ObjectReading(90_000), 10_000, "hits", situation(3, listed))
        ).replicas
        == 0
    )


@pytest.mark.parametrize("kind", ["object", "external"])
def test_23_within_tolerance_what_exists_is_adopted(kind: str) -> None:
    seen = situation(10, exist=12)
    if kind == "object":
        found = calculator.object_per_pod_replicas(ObjectReading(120_000), 10_000, "hits", seen)
    else:
        found = calculator.external_per_pod_replicas(ExternalReading([120_000]), 10_000, "queue", seen)

    assert _proposal(found).replicas == 12


@pytest.mark.parametrize(
    ("values", "target", "exist", "replicas", "average"),
    [
        pytest.param([70_000], 20_000, 3, 4, 23_334, id="24 rounded up"),
        pytest.param([-500], 10_000, 3, INT32_MAX, 2**63 - 1, id="26 a negative sum is the highest number"),
        pytest.param([-500, 5000], 10_000, 3, INT32_MAX, 2**63 - 1, id="26 also on the way"),
        pytest.param([5000, -500], 10_000, 3, 1, 1500, id="26 but not when it never is negative"),
        pytest.param([5000], 2000, 0, 3, INT64_MIN, id="27 nothing exists"),
    ],
)
def test_external_average(values: list[int], target: int, exist: int, replicas: int, average: int) -> None:
    seen = situation(3, exist=exist)

    found = _proposal(calculator.external_per_pod_replicas(ExternalReading(values), target, "queue", seen))

    assert (found.replicas, found.average) == (replicas, average)


def test_25_series_are_added_up() -> None:
    found = _proposal(
        calculator.external_metric_replicas(
            ExternalReading([1500, 2500, -500]), 1000, "queue", situation(2, pods(2))
        )
    )

    assert (found.replicas, found.value) == (7, 3500)


def test_28_the_same_numbers_clamp_as_a_value() -> None:
    found = calculator.object_metric_replicas(ObjectReading(10**15), 1, "hits", situation(3, pods(3)))

    assert _proposal(found).replicas == INT32_MAX


# --- 29 to 35: recommendations -----------------------------------------------------------------------------

WIDE = ReplicaLimits(1, 10**6)
MIN5 = 300 * SECOND


def test_29_and_30_a_recommendation_may_raise_only_without_behavior() -> None:
    seen = Observation(4, 4, "app=web", pods(4), [ExternalReading([4000])])
    metrics = [external_metric(averageValue="1")]
    past = remembered((10, 100))

    legacy = decide(autoscaler(metrics), seen, past, NOW)
    modern = decide(autoscaler(metrics, behavior={}), seen, past, NOW)

    assert (legacy.replicas, legacy.events[0].message) == (8, "New size: 8; reason: ")
    assert (modern.replicas, modern.rescale, modern.events) == (4, False, ())


def test_31_twice_in_a_sync_without_behavior() -> None:
    story = Story(1, maxReplicas=50)

    assert story.follow(0, 60, 15, 100) == [4, 8, 16, 32, 50]


def test_32_the_first_count_holds_five_minutes() -> None:
    story = Story(10)

    assert story.follow(0, 315, 15, 3) == [10] * 21 + [3]


def test_33_with_behavior_not_at_five_minutes_themselves() -> None:
    story = Story(10, behavior={})

    assert story.follow(0, 300, 15, 3) == [10] * 20 + [3]


def test_34_the_window_of_the_way_up() -> None:
    story = Story(4, behavior={"scaleUp": {"stabilizationWindowSeconds": 300}})

    assert story.follow(0, 300, 15, 10) == [4] * 20 + [8]


@pytest.mark.parametrize(
    ("current", "wanted", "stable"),
    [(5, 9, 5), (5, 2, 5), (10, 2, 8), (2, 9, 3)],
)
def test_35_no_further_than_all_agree(current: int, wanted: int, stable: int) -> None:
    free = (Policy(percent=True, value=1000, period=SECOND),)
    up, down = Rules(120 * SECOND, "Max", free), Rules(MIN5, "Max", free)

    found = behavior.normalize(wanted, current, WIDE, up, down, remembered((3, 100), (8, 40)), NOW)

    assert found.replicas == stable


# --- 36 to 49: policies ------------------------------------------------------------------------------------


def _rules(*policies: tuple[str, int, int], select: str = "Max") -> Rules:
    listed = (Policy(kind == "Percent", value, period * SECOND) for kind, value, period in policies)
    return Rules(0, select, tuple(listed))


@pytest.mark.parametrize(
    ("current", "wanted", "rules", "replicas", "limited"),
    [
        pytest.param(
            100, 200, _rules(("Percent", 10, 60)), 111, "ScaleUpLimit", id="36 100 x 1.1 in doubles"
        ),
        pytest.param(20, 0, _rules(("Percent", 80, 60)), 3, "ScaleDownLimit", id="37 20 x 0.2 in doubles"),
        pytest.param(5, 1, _rules(("Percent", 10, 60)), 4, "ScaleDownLimit", id="38 truncated"),
        pytest.param(1, 0, _rules(("Percent", 10, 60)), 0, "DesiredWithinRange", id="38 to nothing"),
        pytest.param(3, 10, _rules(("Percent", 10, 60)), 4, "ScaleUpLimit", id="39 rounded up"),
        pytest.param(
            10, 99, _rules(("Pods", 4, 60), ("Percent", 50, 60)), 15, "ScaleUpLimit", id="40 up Max"
        ),
        pytest.param(
            10,
            99,
            _rules(("Pods", 4, 60), ("Percent", 50, 60), select="Min"),
            14,
            "ScaleUpLimit",
            id="40 up Min",
        ),
        pytest.param(
            10, 0, _rules(("Pods", 4, 60), ("Percent", 50, 60)), 5, "ScaleDownLimit", id="40 down Max"
        ),
        pytest.param(
            10,
            0,
            _rules(("Pods", 4, 60), ("Percent", 50, 60), select="Min"),
            6,
            "ScaleDownLimit",
            id="40 down Min",
        ),
        pytest.param(
            5, 9, _rules(("Pods", 4, 60), select="Disabled"), 5, "ScaleUpLimit", id="48 disabled up"
        ),
    ],
)
def test_policies(current: int, wanted: int, rules: Rules, replicas: int, limited: str) -> None:
    limits = ReplicaLimits(0, 10**6)

    found = behavior.normalize(wanted, current, limits, rules, rules, History(), NOW)

    assert (found.replicas, found.limited) == (replicas, limited)
    assert found.is_limited is (limited != "DesiredWithinRange")


@pytest.mark.parametrize(
    ("current", "wanted", "rules", "past", "replicas"),
    [
        pytest.param(
            10,
            30,
            _rules(("Percent", 100, 60)),
            remembered(ups=[(4, 30)], downs=[(6, 50)]),
            24,
            id="41 both directions",
        ),
        pytest.param(
            5,
            50,
            _rules(("Pods", 4, 15), ("Percent", 100, 15)),
            remembered(ups=[(4, 10)]),
            5,
            id="42 the period is used up",
        ),
        pytest.param(
            5,
            50,
            _rules(("Pods", 4, 15), ("Percent", 100, 15)),
            remembered(ups=[(4, 20)]),
            10,
            id="42 and over",
        ),
        pytest.param(
            5,
            50,
            _rules(("Pods", 4, 15), ("Percent", 100, 15)),
            remembered(ups=[(4, 15)]),
            10,
            id="43 over at 15.000 s",
        ),
        pytest.param(
            5,
            50,
            _rules(("Pods", 4, 15), ("Percent", 100, 15)),
            remembered(ups=[(4, 14.999)]),
            5,
            id="43 not at 14.999 s",
        ),
        pytest.param(
            100,
            0,
            _rules(("Percent", 50, 120)),
            remembered(downs=[(2, 10), (4, 20), (6, 30)]),
            56,
            id="44 half of what there was",
        ),
        pytest.param(
            100,
            0,
            _rules(("Percent", 10, 120)),
            remembered(downs=[(10, 10), (10, 20), (10, 30)]),
            100,
            id="45 more than allowed is gone already",
        ),
    ],
)
def test_policies_count_what_was_changed(
    current: int, wanted: int, rules: Rules, past: History, replicas: int
) -> None:
    assert behavior.normalize(wanted, current, WIDE, rules, rules, past, NOW).replicas == replicas


def test_46_an_event_is_forgotten_though_the_other_direction_would_count_it() -> None:
    down = {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 300}], "stabilizationWindowSeconds": 0}
    story = Story(4, behavior={"scaleUp": {}, "scaleDown": down})

    assert story.sync(0, 8).replicas == 8
    assert story.sync(60, 10).replicas == 10
    assert len(story.history.ups) == 1
    assert story.sync(120, 1).replicas == 5


def test_47_above_the_maximum_policies_do_not_matter() -> None:
    down = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    story = Story(50, maxReplicas=10, behavior={"scaleDown": down})

    decision = story.sync(0, 50)

    assert decision.replicas == 10
    assert [event.change for event in decision.history.downs] == [40]
    assert set(conditions_of(decision)) == {"AbleToScale"}


# --- 49 to 51: tolerances ----------------------------------------------------------------------------------


def _tolerant(**behavior_rules: dict[str, object]) -> Band:
    return autoscaler([cpu_metric()], behavior=behavior_rules).band


@pytest.mark.parametrize(
    ("tolerated", "target", "usage", "replicas"),
    [
        pytest.param(_tolerant(scaleUp={"tolerance": "0"}), 50, 510, 11, id="49 none"),
        pytest.param(
            _tolerant(scaleUp={"tolerance": "360m"}), 25, 340, 14, id="51 1.36 is above 1 + 360m in doubles"
        ),
    ],
)
def test_tolerance_up(tolerated: Band, target: int, usage: int, replicas: int) -> None:
    seen = situation(10, pods(10), tolerated=tolerated)

    assert (
        _proposal(
            calculator.resource_replicas(reading(*[usage] * 10), target, "cpu", "", "cpu", seen)
        ).replicas
        == replicas
    )


@pytest.mark.parametrize(("usage", "replicas"), [(960, 20), (940, 19)])
def test_50_tolerance_down(usage: int, replicas: int) -> None:
    seen = situation(20, pods(20), tolerated=_tolerant(scaleDown={"tolerance": "50m"}))

    assert (
        _proposal(calculator.resource_replicas(reading(*[usage] * 20), 100, "cpu", "", "cpu", seen)).replicas
        == replicas
    )


# --- 52 to 56: several metrics and zero --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "replicas", "active"),
    [
        (3, 5, ("False", "FailedGetPodsMetric")),
        (5, 5, ("True", "ValidMetricFound")),
        (7, 7, ("True", "ValidMetricFound")),
    ],
)
def test_52_a_metric_that_fails_blocks_only_the_way_down(
    wanted: int, replicas: int, active: tuple[str, str]
) -> None:
    metrics = [pods_metric(), external_metric(averageValue="1")]
    readings: list[Reading] = [Unavailable("NoMetrics", "nothing"), ExternalReading([wanted * 1000])]
    seen = Observation(5, 5, "app=web", pods(5), readings)

    decision = decide(autoscaler(metrics), seen, remembered((5, 1000)), NOW)

    assert decision.replicas == replicas
    assert conditions_of(decision)["ScalingActive"] == active
    assert decision.error


def _at_zero(came_to_zero: str = "True") -> HorizontalPodAutoscalerStatus:
    return HorizontalPodAutoscalerStatus(
        conditions=(Condition("ScaledToZero", came_to_zero, "ScaledToZero", "x", NEVER),)
    )


GATE = Settings(scale_to_zero=True)


def test_53_without_the_gate_zero_is_the_end() -> None:
    seen = Observation(0, 0, "app=web", [], [ExternalReading([10**6])], _at_zero())

    decision = decide(autoscaler([external_metric(averageValue="1")], minReplicas=0), seen, History(), NOW)

    assert (decision.replicas, decision.rescale) == (0, False)
    assert conditions_of(decision)["ScalingActive"] == ("False", "ScalingDisabled")
    assert "ScaledToZero" not in conditions_of(decision)


@pytest.mark.parametrize(("value", "replicas"), [(20_000, 2), (15_000, 1), (1, 1)])
def test_54_back_from_zero_without_tolerance(value: int, replicas: int) -> None:
    scaler = autoscaler([object_metric("Value", value="15")], GATE, minReplicas=0)
    seen = Observation(0, 0, "app=web", [], [ObjectReading(value)], _at_zero())

    assert decide(scaler, seen, History(), NOW).replicas == replicas


@pytest.mark.parametrize(
    ("rules", "replicas"),
    [({}, 4), ({"scaleUp": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}, 0)],
    ids=["pods lift it", "per cent of nothing do not"],
)
def test_55_policies_from_zero(rules: dict[str, object], replicas: int) -> None:
    scaler = autoscaler([object_metric("Value", value="1")], GATE, minReplicas=0, behavior=rules)
    seen = Observation(0, 0, "app=web", [], [ObjectReading(5000)], _at_zero())

    assert decide(scaler, seen, History(), NOW).replicas == replicas


def test_56_zero_is_looked_at_before_the_minimum() -> None:
    seen = Observation(0, 0, "app=web", [], [ExternalReading([10**6])])

    decision = decide(autoscaler([external_metric(averageValue="1")], minReplicas=3), seen, History(), NOW)

    assert decision.replicas == 0
    assert conditions_of(decision)["ScalingActive"] == ("False", "ScalingDisabled")


# --- 57 and what goes with it ------------------------------------------------------------------------------


def test_57_quantities() -> None:
    assert read("1500u").milli == 2
    assert read("10P").milli == 0
    assert quantity.read("350m").approximate() == 0.35000000000000003


def test_the_classic_experiment() -> None:
    """Two replicas of 20m with a target of 20 %, measured at 515m: 258 computed, in steps of 4, 8 and 10."""
    scaler = autoscaler([cpu_metric(20)], maxReplicas=10)
    history, status, replicas = History(), HorizontalPodAutoscalerStatus(), 2
    seen_counts = []
    for second in range(0, 330, 15):
        usage = 515 if second == 0 else 0
        listed = pods(replicas, cpu="20m")
        seen = Observation(replicas, replicas, "app=web", listed, [reading(*[usage] * replicas)], status)
        decision = decide(scaler, seen, history, NOW + second * SECOND)
        if second == 0:
            assert [step.facts["replicas"] for step in decision.trace if step.name == "proposal"] == [258]
            assert decision.history.recommendations == RecommendationList(
                (Recommendation(2, NOW), Recommendation(258, NOW))
            )
        history, status, replicas = decision.history, decision.status, decision.replicas
        seen_counts.append(replicas)

    assert seen_counts == [4, 8] + [10] * 19 + [1]


def test_bands_are_inclusive_to_the_last_bit() -> None:
    tolerated = band(0.18, 0.1)

    assert tolerated.holds(1.1)
    assert not tolerated.holds(1.1000000000000003)
    assert not tolerated.holds(0.82)
    assert tolerated.holds(0.8200000000000001)
