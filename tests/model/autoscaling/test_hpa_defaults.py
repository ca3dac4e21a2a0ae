import pytest

from adapter.model.autoscaling import hpa
from adapter.model.quantity import read

_UP = (hpa.HPAScalingPolicy("Pods", 4, 15), hpa.HPAScalingPolicy("Percent", 100, 15))
_DOWN = (hpa.HPAScalingPolicy("Percent", 100, 15),)


@pytest.mark.parametrize("metrics", [None, ()])
def test_without_metrics_cpu_at_eighty_per_cent(metrics: tuple[hpa.MetricSpec, ...] | None) -> None:
    spec = hpa.with_defaults(hpa.HorizontalPodAutoscalerSpec(max_replicas=3, metrics=metrics))

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
    metrics = (hpa.MetricSpec("Pods"),)

    spec = hpa.with_defaults(hpa.HorizontalPodAutoscalerSpec(min_replicas=0, max_replicas=3, metrics=metrics))

    assert (spec.min_replicas, spec.metrics, spec.behavior) == (0, metrics, None)


def test_an_empty_behavior_is_filled() -> None:
    behavior = hpa.with_defaults(
        hpa.HorizontalPodAutoscalerSpec(behavior=hpa.HorizontalPodAutoscalerBehavior())
    ).behavior

    assert behavior is not None
    assert behavior.scale_up == hpa.HPAScalingRules(0, "Max", _UP)
    assert behavior.scale_down == hpa.HPAScalingRules(None, "Max", _DOWN)


def test_each_field_is_filled_by_itself() -> None:
    given = hpa.HorizontalPodAutoscalerBehavior(
        scale_up=hpa.HPAScalingRules(select_policy="Min", tolerance=read("0")),
        scale_down=hpa.HPAScalingRules(stabilization_window_seconds=0, policies=()),
    )

    behavior = hpa.with_defaults(hpa.HorizontalPodAutoscalerSpec(behavior=given)).behavior

    assert behavior is not None
    assert behavior.scale_up == hpa.HPAScalingRules(0, "Min", _UP, read("0"))
    # an empty list is there, and refused later
    assert behavior.scale_down == hpa.HPAScalingRules(0, "Max", ())
    kept = hpa.HPAScalingRules(60, "Max", _DOWN)
    again = hpa.with_defaults(
        hpa.HorizontalPodAutoscalerSpec(behavior=hpa.HorizontalPodAutoscalerBehavior(kept, kept))
    ).behavior
    assert again == hpa.HorizontalPodAutoscalerBehavior(kept, kept)
