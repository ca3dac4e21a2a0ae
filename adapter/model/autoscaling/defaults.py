"""The defaults that the API server sets in an autoscaler, on writing and on reading.

Mirrors ``pkg/apis/autoscaling/v2/defaults.go`` of 1.36. The scale-down window and the tolerances are no
defaults of the API: the controller fills them in at each sync.
"""

from msgspec.structs import replace

from adapter.model.autoscaling.hpa import (
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
)

_METRICS = (
    MetricSpec(
        type="Resource",
        resource=ResourceMetricSource(
            name="cpu", target=MetricTarget(type="Utilization", average_utilization=80)
        ),
    ),
)
_UP = HPAScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(HPAScalingPolicy("Pods", 4, 15), HPAScalingPolicy("Percent", 100, 15)),
)
_DOWN = HPAScalingRules(select_policy="Max", policies=(HPAScalingPolicy("Percent", 100, 15),))


def with_defaults(spec: HorizontalPodAutoscalerSpec) -> HorizontalPodAutoscalerSpec:
    """Return the spec as the API server stores it.

    An absent `behavior` stays absent, for that chooses the legacy algorithm; an empty one is filled. An empty
    list of policies is there, and so not filled.
    """
    behavior = spec.behavior
    return replace(
        spec,
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        metrics=spec.metrics or _METRICS,
        behavior=behavior
        and HorizontalPodAutoscalerBehavior(
            _filled(behavior.scale_up, _UP), _filled(behavior.scale_down, _DOWN)
        ),
    )


def _filled(rules: HPAScalingRules | None, defaults: HPAScalingRules) -> HPAScalingRules:
    if rules is None:
        return defaults
    window = rules.stabilization_window_seconds
    return HPAScalingRules(
        stabilization_window_seconds=defaults.stabilization_window_seconds if window is None else window,
        select_policy=defaults.select_policy if rules.select_policy is None else rules.select_policy,
        policies=defaults.policies if rules.policies is None else rules.policies,
        tolerance=rules.tolerance,
    )
