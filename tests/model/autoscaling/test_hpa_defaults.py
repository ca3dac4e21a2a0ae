import pytest

from adapter.model.autoscaling.hpa import (
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricSpec,
    with_defaults,
)
from adapter.model.quantity import read

_UP = (HPAScalingPolicy("Pods", 4, 15), HPAScalingPolicy("Percent", 100, 15))
_DOWN = (HPAScalingPolicy("Percent", 100, 15),)


@pytest.mark.parametrize("metrics", [None, ()])
def test_without_metrics_cpu_at_eighty_per_cent(metrics: tuple[MetricSpec, ...] | None) -> None:
    spec = with_defaults(HorizontalPodAutoscalerSpec(max_replicas=3, metrics=metrics))

    assert spec.min_replicas == 1
    assert spec.metrics is not None
    assert len(spec.metrics) == 1
    source = spec.metrics[0].resource
    assert source is not None
    assert (spec.metrics[0].type, source.name, source.target.type, source.target.average_utilization) == (
        "Resource",
        "cpu",
        "Utilization",
        80,
    )


def test_given_fields_stay() -> None:
    metrics = (MetricSpec("Pods"),)

    spec = with_defaults(HorizontalPodAutoscalerSpec(min_replicas=0, max_replicas=3, metrics=metrics))

    assert (spec.min_replicas, spec.metrics, spec.behavior) == (0, metrics, None)


def test_an_empty_behavior_is_filled() -> None:
    behavior = with_defaults(HorizontalPodAutoscalerSpec(behavior=HorizontalPodAutoscalerBehavior())).behavior

    assert behavior is not None
    assert behavior.scale_up == HPAScalingRules(0, "Max", _UP)
    assert behavior.scale_down == HPAScalingRules(None, "Max", _DOWN)


def test_each_field_is_filled_by_itself() -> None:
    given = HorizontalPodAutoscalerBehavior(
        scale_up=HPAScalingRules(select_policy="Min", tolerance=read("0")),
        scale_down=HPAScalingRules(stabilization_window_seconds=0, policies=()),
    )

    behavior = with_defaults(HorizontalPodAutoscalerSpec(behavior=given)).behavior

    assert behavior is not None
    assert behavior.scale_up == HPAScalingRules(0, "Min", _UP, read("0"))
    # an empty list is there, and refused later
    assert behavior.scale_down == HPAScalingRules(0, "Max", ())
    kept = HPAScalingRules(60, "Max", _DOWN)
    again = with_defaults(
        HorizontalPodAutoscalerSpec(behavior=HorizontalPodAutoscalerBehavior(kept, kept))
    ).behavior
    assert again == HorizontalPodAutoscalerBehavior(kept, kept)
