"""What fields mean that FastPathAutoscalers share with HorizontalPodAutoscalers, in our words.

Kubernetes declares them: `adapter/model/autoscaling/hpa.py` has their types and limits, and here are their
descriptions, rules between them, and bounds that only API servers need.
"""

from adapter.model.autoscaling import fastpath_autoscaler, hpa
from adapter.model.objects import api_selectors
from adapter.model.objects.api_selectors import APISelector, MatchExpression
from scripts.generate import crd_parts as parts
from scripts.generate import declarations
from scripts.generate.crd_parts import JSON, Table, field

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_RESOURCE = rf"cpu|memory|ephemeral-storage|hugepages-{_QUALIFIED}|{_LABEL}(\.{_LABEL})*/{_QUALIFIED}"


def _target(*rules: JSON, required: str = "") -> JSON:
    return field("is the target value of the metric.", *rules, required=required)


_SOURCES = {
    f"{one.name[0].upper()}{one.name[1:]}": one.name for one in declarations.fields(hpa.MetricSpec)[1:]
}
"""The types of metrics with the fields of their sources."""
_RESOURCE_TARGET = _target(
    parts.rule(
        "has(self.averageUtilization) != has(self.averageValue)",
        "needs averageUtilization or averageValue, and not both",
    ),
)
_METRIC = field("identifies the metric by name and selector.")
_DEFAULTS = hpa.to_plain(hpa.with_defaults(hpa.HorizontalPodAutoscalerSpec()))
_SELECTOR: Table = {
    APISelector: {
        "matchLabels": field(
            "are labels with the value that each must have.",
            maxProperties=api_selectors.MOST_PARTS,
            additionalProperties={"type": "string", "maxLength": api_selectors.LONGEST_VALUE},
        ),
        "matchExpressions": field(
            "are label selector requirements, all of which must hold.", maxItems=api_selectors.MOST_PARTS
        ),
    },
    MatchExpression: {
        "": field("One condition on one label.", required="key operator"),
        "key": parts.text(
            "is the label key that the selector applies to.", maxLength=api_selectors.LONGEST_KEY
        ),
        "operator": parts.text(
            "is one of In, NotIn, Exists and DoesNotExist.", maxLength=api_selectors.LONGEST_KEY
        ),
        "values": field(
            "are the label values of In and NotIn; it is empty for Exists and DoesNotExist.",
            maxItems=api_selectors.MOST_PARTS,
            items={"maxLength": api_selectors.LONGEST_VALUE},
        ),
    },
}
_SELECTING = field(
    "is a label selector that limits the metric to series with these labels. If not set, only the name "
    "selects the series.",
    **{"x-kubernetes-map-type": "atomic"},
)

SPEC: Table = {
    **_SELECTOR,
    hpa.HorizontalPodAutoscalerSpec: {
        "scaleTargetRef": field(
            "is the workload that is scaled; it needs a scale subresource.",
            parts.rule(
                "self.kind == 'ReplicationController' || (has(self.apiVersion) && "
                "self.apiVersion.matches('^[^/]+/'))",
                "apiVersion must name an API group, such as apps/v1",
            ),
        ),
        "minReplicas": field(
            "is the lower limit for the number of replicas to which the autoscaler can scale down. It may be "
            "0 if an Object or External metric is configured.",
            default=_DEFAULTS["minReplicas"],
        ),
        "maxReplicas": field(
            "is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot "
            "be less than minReplicas."
        ),
        "metrics": field(
            "are the metrics that the number of replicas is computed from. The highest number of all metrics "
            "is used. Defaults to an average cpu utilization of 80 % of the requests.",
            maxItems=fastpath_autoscaler.MOST_METRICS,
            default=[*_DEFAULTS["metrics"]],
        ),
        "behavior": field(
            "limits how fast the number of replicas changes in each direction. Fields that are not set have "
            "the defaults of a HorizontalPodAutoscaler."
        ),
    },
    hpa.CrossVersionObjectReference: {
        "apiVersion": parts.text(
            "is the API group and version of the object, such as apps/v1; only the group is used.",
            pattern="^[^/]*(/[^/]*)?$",
            maxLength=320,
        ),
        "kind": field("is the kind of the object, such as Deployment."),
        "name": field("is the name of the object, in the namespace of the autoscaler."),
    },
    hpa.MetricSpec: {
        "": field(
            "One metric source and its target.",
            *(parts.needed(name, kind) for kind, name in _SOURCES.items()),
        ),
        "type": parts.choice(
            "is the type of metric source. The field of this source must be set, and no other.", *_SOURCES
        ),
        "resource": field(
            "is a resource metric of the pods, such as cpu or memory, as the sum of their containers."
        ),
        "containerResource": field("is a resource metric of one container in each pod of the target."),
        "pods": field(
            "is a custom metric of each pod of the target. The values are averaged before they are compared "
            "to the target."
        ),
        "object": field(
            "is a custom metric of one object of the cluster, such as hits per second of an Ingress."
        ),
        "external": field(
            "is a metric that is not associated with an object of the cluster, such as the length of a queue."
        ),
    },
    hpa.ResourceMetricSource: {
        "name": field("is the name of the resource, such as cpu."),
        "target": _RESOURCE_TARGET,
    },
    hpa.ContainerResourceMetricSource: {
        "container": parts.text(
            "is the name of the container in the pods of the target.", pattern=f"^{_LABEL}$", maxLength=63
        ),
        "name": parts.text(
            "is the name of the resource: cpu, memory, or another resource that a container can request.",
            parts.rule("!self.startsWith('requests.')", "must not begin with 'requests.'"),
            pattern=f"^({_RESOURCE})$",
            maxLength=63,
        ),
        "target": _RESOURCE_TARGET,
    },
    hpa.PodsMetricSource: {"metric": _METRIC, "target": _target(required="type averageValue")},
    hpa.ObjectMetricSource: {
        "describedObject": field("is the object that the metric describes."),
        "metric": _METRIC,
        "target": _target(
            parts.rule("has(self.value) || has(self.averageValue)", "needs value or averageValue")
        ),
    },
    hpa.ExternalMetricSource: {
        "metric": _METRIC,
        "target": _target(
            parts.rule(
                "has(self.value) != has(self.averageValue)", "needs value or averageValue, and not both"
            ),
        ),
    },
    hpa.MetricIdentifier: {
        "name": field(
            "is the name of the metric.",
            parts.rule(
                f"self != '{fastpath_autoscaler.FLOOR_METRIC}'",
                f"{fastpath_autoscaler.FLOOR_METRIC} is only for boosted HorizontalPodAutoscalers; remove "
                "this metric",
            ),
        ),
        "selector": _SELECTING,
    },
    hpa.MetricTarget: {
        "type": field("is the type of the target: Utilization, Value or AverageValue."),
        "value": field("is the target value of the metric, as a quantity such as 100 or 500m."),
        "averageValue": field(
            "is the target value of the metric, averaged over all pods, as a quantity such as 100 or 500m."
        ),
        "averageUtilization": field(
            "is the target value of the resource, averaged over all pods, as a percentage of what the pods "
            "request."
        ),
    },
    hpa.HorizontalPodAutoscalerBehavior: {
        "scaleUp": field("is the scaling policy for more replicas."),
        "scaleDown": field("is the scaling policy for fewer replicas."),
    },
    hpa.HPAScalingRules: {
        "stabilizationWindowSeconds": field(
            "is the number of seconds, from 0 to 3600, of which past recommendations are considered. "
            "Defaults to 0 for scaleUp, and for scaleDown to the flag "
            "--horizontal-pod-autoscaler-downscale-stabilization, which defaults to 300 seconds."
        ),
        "selectPolicy": field(
            "is the policy that is used of several: Max, the largest change, Min, the smallest, or Disabled, "
            "no scaling in this direction. Defaults to Max."
        ),
        "policies": field(
            "limit the change of the number of replicas. Defaults for scaleUp to the larger of 4 pods and "
            "100 % in 15 seconds, and for scaleDown to 100 % in 15 seconds.",
            maxItems=fastpath_autoscaler.MOST_POLICIES,
        ),
        "tolerance": field(
            "is the deviation of a metric from its target, as a share of the target such as 50m, within "
            "which the number of replicas is not changed. Defaults to the flag "
            "--horizontal-pod-autoscaler-tolerance, which defaults to 0.1."
        ),
    },
    hpa.HPAScalingPolicy: {
        "": field("A limit of the change within a period."),
        "type": field("is the unit of value: Pods, or Percent of the current replicas."),
        "value": field("is the largest change within the period, in the unit of type."),
        "periodSeconds": field("is the length of the period in seconds, from 1 to 1800."),
    },
}

_CURRENT = field("is the current value of the metric.")
_MEASURED = {"metric": field("identifies the metric."), "current": _CURRENT}

STATUS: Table = {
    **_SELECTOR,
    hpa.HorizontalPodAutoscalerStatus: {
        "observedGeneration": field("is the last generation that was observed."),
        "lastScaleTime": field("is when this autoscaler last changed the number of replicas."),
        "currentReplicas": parts.count("is the number of replicas as last observed.", 0),
        "desiredReplicas": parts.count(
            "is the last number of replicas that was computed, 0 before the first.", 0
        ),
        "currentMetrics": field("are the values of the metrics at the last decision."),
        "conditions": field("are the conditions of the autoscaler.", **parts.by("type")),
    },
    hpa.MetricStatus: {
        "": field("A metric."),
        "type": field("is the type of metric source, empty if the metric has no value."),
    }
    | {name: field("is the metric of this type in spec.metrics.") for name in _SOURCES.values()},
    hpa.ResourceMetricStatus: {"current": _CURRENT},
    hpa.ContainerResourceMetricStatus: {"current": _CURRENT},
    hpa.PodsMetricStatus: _MEASURED,
    hpa.ObjectMetricStatus: _MEASURED
    | {"describedObject": field("is the object that the metric describes.")},
    hpa.ExternalMetricStatus: _MEASURED,
    hpa.CrossVersionObjectReference: {},
    hpa.MetricIdentifier: {"selector": _SELECTING},
    hpa.MetricValueStatus: {
        "value": parts.measured("is the current value of the metric."),
        "averageValue": parts.measured("is the current value, averaged over all pods."),
        "averageUtilization": field(
            "is the current value of the resource, averaged over all pods, as a percentage of the requests."
        ),
    },
    hpa.Condition: {
        "": field("One condition.", required="type status"),
        "type": field("is the type of the condition, such as AbleToScale."),
        "status": field("is the status of the condition: True, False or Unknown."),
        "reason": field("is the reason for the last transition, as one word."),
        "message": field("is the reason for the last transition, as a sentence."),
        "lastTransitionTime": field("is when status last changed."),
    },
}
