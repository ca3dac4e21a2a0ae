"""Generate the CustomResourceDefinitions in manifests/chart/files/crd: ``python -m scripts.generate.crd``.

This module has the table of FastPathAutoscaler, and `crd_parts` makes the schema of it.
tests/model/autoscaling/test_schema.py compares the schema with the program.
"""

from adapter.model.autoscaling import fastpath_autoscaler, hpa, scale_down
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscalerSpec,
    FastPathAutoscalerStatus,
    PastChange,
)
from adapter.model.autoscaling.forecast import ForecastSpec
from adapter.model.autoscaling.pending_capacity import BacklogCredit, PendingCapacity
from adapter.model.autoscaling.scale_down import Drain, ScaleDown
from adapter.model.objects import api_selectors
from adapter.model.objects.api_selectors import APISelector, MatchExpression
from scripts.generate import crd_parts as parts
from scripts.generate import crd_schedules
from scripts.generate.crd_parts import JSON, Table, field

PATH = parts.FOLDER / "fastpathautoscalers.yaml"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_RESOURCE = rf"cpu|memory|ephemeral-storage|hugepages-{_QUALIFIED}|{_LABEL}(\.{_LABEL})*/{_QUALIFIED}"


def _needed(field: str, kind: str) -> JSON:
    return parts.rule(
        f"self.type == '{kind}' ? has(self.{field}) : !has(self.{field})",
        f"{field} is needed for type {kind}, and for no other",
    )


def _target(needed: str, *rules: JSON) -> JSON:
    return field("is the target value of the metric.", *rules, required=needed)


_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_RESOURCE_TARGET = _target(
    "type",
    parts.rule(
        "has(self.averageUtilization) != has(self.averageValue)",
        "needs averageUtilization or averageValue, and not both",
    ),
)
_METRIC = field("identifies the metric by name and selector.", required="name")
_DEFAULT_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_SHARE = parts.matching("([1-9][0-9]?|100)%", "must be from 1% to 100%, without a fraction")
_DEFAULTS = ForecastSpec()

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

_SPEC: Table = {
    **_SELECTOR,
    FastPathAutoscalerSpec: {
        "": field(
            "spec is the specification of an autoscaling/v2 HorizontalPodAutoscaler, with the additional "
            "fields of Fastpath.",
            parts.rule(
                "self.minReplicas <= self.maxReplicas",
                "maxReplicas must be greater than or equal to minReplicas",
            ),
            parts.rule(
                "self.minReplicas > 0 || self.metrics.exists(m, m.type == 'Object' || m.type == 'External')",
                "minReplicas 0 needs an Object or External metric",
            ),
            parts.rule(
                "!has(self.fallback) || !has(self.fallback.replicas) || self.fallback.replicas <= "
                "self.maxReplicas",
                "fallback.replicas must be less than or equal to maxReplicas",
            ),
            parts.rule(
                "!has(self.pendingCapacity) || self.pendingCapacity.all(p, "
                "self.metrics.filter(m, has(m.external) && m.external.metric.name == p.metric && "
                "has(m.external.target.averageValue) || has(m.object) && m.object.metric.name == p.metric && "
                "m.object.target.type == 'AverageValue' && has(m.object.target.averageValue)).size() == 1)",
                "pendingCapacity needs, for each metric, one Object or External metric of that name in "
                "metrics, with averageValue",
            ),
            parts.rule(
                "!has(self.scaleDown) || has(self.scaleDown.metric) || self.metrics.exists(m, "
                "m.type == 'Pods' || m.type == 'Resource' || m.type == 'ContainerResource')",
                "scaleDown.metric is needed, because no metric in metrics has a value for each pod",
            ),
            required="scaleTargetRef maxReplicas",
        ),
        "scaleTargetRef": field(
            "is the workload that is scaled; it needs a scale subresource.",
            parts.rule(
                "self.kind == 'ReplicationController' || (has(self.apiVersion) && "
                "self.apiVersion.matches('^[^/]+/'))",
                "apiVersion must name an API group, such as apps/v1",
            ),
        ),
        "minReplicas": parts.count(
            "is the lower limit for the number of replicas to which the autoscaler can scale down. It may be "
            "0 if an Object or External metric is configured.",
            0,
            default=1,
        ),
        "maxReplicas": parts.count(
            "is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot "
            "be less than minReplicas.",
            1,
        ),
        "metrics": field(
            "are the metrics that the number of replicas is computed from. The highest number of all metrics "
            "is used. Defaults to an average cpu utilization of 80 % of the requests.",
            maxItems=fastpath_autoscaler.MOST_METRICS,
            default=[_DEFAULT_METRIC],
        ),
        "behavior": field(
            "limits how fast the number of replicas changes in each direction. Fields that are not set have "
            "the defaults of a HorizontalPodAutoscaler."
        ),
        "syncPeriod": parts.duration(
            "is the longest time between two decisions, as a duration such as 5s.",
            fastpath_autoscaler.SYNC_PERIODS,
            default=parts.short(fastpath_autoscaler.SYNC_PERIOD),
        ),
        "mode": parts.choice(
            "is what the autoscaler does: Auto changes the number of replicas, Advise computes it and "
            "reports it in status and events without changing it, and Paused does neither.",
            *fastpath_autoscaler.MODES,
            default=fastpath_autoscaler.AUTO,
        ),
        "fallback": field(
            "is what happens when a metric has had no value for a while. It keeps or raises the number of "
            "replicas and never lowers it. If not set, the number of replicas is kept."
        ),
        "pendingCapacity": field(
            "are queues whose value is reduced by the work that starting pods would have done by now if they "
            "had been Ready at once. A queue grows while pods that were already requested start; within "
            "their learned start-up time that growth requests no more pods. This only withholds raises: it "
            "never requests more pods than without it, and never scales down. It has no effect before a pod "
            "of the target was seen to start.",
            maxItems=fastpath_autoscaler.MOST_METRICS,
            **parts.by("metric"),
        ),
        "forecast": field(
            "is a forecast of the load from its history in Prometheus. It only raises the lower limit for "
            "the number of replicas, never above maxReplicas, and not at zero."
        ),
        "scaleDown": field(
            "is which pods a scale-down removes first. If not set, Kubernetes chooses: not Ready pods, then "
            "by pod-deletion-cost, then the youngest."
        ),
    },
    hpa.CrossVersionObjectReference: {
        "": field("", required="kind name"),
        "apiVersion": parts.text(
            "is the API group and version of the object, such as apps/v1; only the group is used.",
            pattern="^[^/]*(/[^/]*)?$",
            maxLength=320,
        ),
        "kind": parts.segment("is the kind of the object, such as Deployment."),
        "name": parts.segment("is the name of the object, in the namespace of the autoscaler."),
    },
    hpa.MetricSpec: {
        "": field(
            "One metric source and its target.",
            *(_needed(name, kind) for kind, name in _SOURCES.items()),
            required="type",
        ),
        "type": parts.choice(
            "is the type of metric source. The field of this source must be set, and no other.", *_SOURCES
        ),
        "resource": field(
            "is a resource metric of the pods, such as cpu or memory, as the sum of their containers.",
            required="name target",
        ),
        "containerResource": field(
            "is a resource metric of one container in each pod of the target.",
            required="container name target",
        ),
        "pods": field(
            "is a custom metric of each pod of the target. The values are averaged before they are compared "
            "to the target.",
            required="metric target",
        ),
        "object": field(
            "is a custom metric of one object of the cluster, such as hits per second of an Ingress.",
            required="describedObject metric target",
        ),
        "external": field(
            "is a metric that is not associated with an object of the cluster, such as the length of a "
            "queue.",
            required="metric target",
        ),
    },
    hpa.ResourceMetricSource: {
        "name": parts.text("is the name of the resource, such as cpu.", minLength=1),
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
    hpa.PodsMetricSource: {"metric": _METRIC, "target": _target("type averageValue")},
    hpa.ObjectMetricSource: {
        "describedObject": field("is the object that the metric describes."),
        "metric": _METRIC,
        "target": _target(
            "type", parts.rule("has(self.value) || has(self.averageValue)", "needs value or averageValue")
        ),
    },
    hpa.ExternalMetricSource: {
        "metric": _METRIC,
        "target": _target(
            "type",
            parts.rule(
                "has(self.value) != has(self.averageValue)", "needs value or averageValue, and not both"
            ),
        ),
    },
    hpa.MetricIdentifier: {
        "name": parts.segment(
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
        "type": parts.choice(
            "is the type of the target: Utilization, Value or AverageValue.",
            "Utilization",
            "Value",
            "AverageValue",
        ),
        "value": parts.positive("is the target value of the metric, as a quantity such as 100 or 500m."),
        "averageValue": parts.positive(
            "is the target value of the metric, averaged over all pods, as a quantity such as 100 or 500m."
        ),
        "averageUtilization": parts.count(
            "is the target value of the resource, averaged over all pods, as a percentage of what the pods "
            "request.",
            1,
        ),
    },
    hpa.HorizontalPodAutoscalerBehavior: {
        "scaleUp": field("is the scaling policy for more replicas."),
        "scaleDown": field("is the scaling policy for fewer replicas."),
    },
    hpa.HPAScalingRules: {
        "stabilizationWindowSeconds": parts.count(
            "is the number of seconds, from 0 to 3600, of which past recommendations are considered. "
            "Defaults to 0 for scaleUp, and for scaleDown to the flag "
            "--horizontal-pod-autoscaler-downscale-stabilization, which defaults to 300 seconds.",
            0,
            3600,
        ),
        "selectPolicy": parts.choice(
            "is the policy that is used of several: Max, the largest change, Min, the smallest, or Disabled, "
            "no scaling in this direction. Defaults to Max.",
            "Max",
            "Min",
            "Disabled",
        ),
        "policies": field(
            "limit the change of the number of replicas. Defaults for scaleUp to the larger of 4 pods and "
            "100 % in 15 seconds, and for scaleDown to 100 % in 15 seconds.",
            minItems=1,
            maxItems=fastpath_autoscaler.MOST_POLICIES,
        ),
        "tolerance": parts.quantity(
            "is the deviation of a metric from its target, as a share of the target such as 50m, within "
            "which the number of replicas is not changed. Defaults to the flag "
            "--horizontal-pod-autoscaler-tolerance, which defaults to 0.1.",
            rf"\+?{parts.ANY}",
            minimum=0,
        ),
    },
    hpa.HPAScalingPolicy: {
        "": field("A limit of the change within a period.", required="type value periodSeconds"),
        "type": parts.choice(
            "is the unit of value: Pods, or Percent of the current replicas.", "Pods", "Percent"
        ),
        "value": parts.count("is the largest change within the period, in the unit of type.", 1),
        "periodSeconds": parts.count("is the length of the period in seconds, from 1 to 1800.", 1, 1800),
    },
    fastpath_autoscaler.Fallback: {
        "": field(
            "",
            _needed("replicas", fastpath_autoscaler.FLOOR),
            _needed("lastGoodFor", fastpath_autoscaler.LAST_GOOD),
            required="type",
        ),
        "type": parts.choice(
            "is what happens while a metric has no value: Hold keeps the current number of replicas, Floor "
            "keeps at least the number in replicas, and LastGood keeps at least the number that the metrics "
            "asked for last.",
            *fastpath_autoscaler.FALLBACKS,
        ),
        "after": parts.duration(
            "is how long a metric has no value before the fallback applies, as a duration such as 90s.",
            fastpath_autoscaler.AFTERS,
            default=parts.short(fastpath_autoscaler.AFTER),
        ),
        "replicas": parts.count("is the lower limit for the number of replicas of type Floor.", 1),
        "lastGoodFor": parts.duration(
            "is how long the last number is kept of type LastGood, as a duration such as 30m.",
            fastpath_autoscaler.LAST_GOOD_FORS,
        ),
    },
    PendingCapacity: {
        "": field("A queue and the throughput of a pod.", required="metric podThroughput"),
        "metric": parts.segment(
            "is the name of a metric in spec.metrics: an Object or External metric with a target of type "
            "AverageValue, and the only metric of this name."
        ),
        "podThroughput": parts.positive(
            "is how many units of the metric one Ready pod works off in a second, such as 2 or 500m. A "
            "smaller value than the true one withholds less; a greater one asks for too few pods until those "
            "that are starting are Ready."
        ),
    },
    ScaleDown: {
        "": field("", required="prefer"),
        "prefer": parts.choice(
            "is which Ready pods go first: Idle, those with the lowest values of a metric. The scaler writes "
            "their pod-deletion-cost right before a scale-down, which ReplicaSets follow.",
            scale_down.IDLE,
        ),
        "metric": parts.segment(
            "is the name of the metric. One that is not in spec.metrics is a custom metric of pods. Defaults "
            "to the first metric in spec.metrics that has a value for each pod."
        ),
        "drain": field(
            "makes a scale-down wait until the pods that go are idle. If not set, it does not wait."
        ),
    },
    Drain: {
        "value": parts.quantity(
            "is the value of the metric at or below which a pod is idle. Defaults to 0.",
            rf"\+?{parts.ANY}",
            minimum=0,
            default="0",
        ),
        "timeout": parts.duration(
            "is the longest time that a scale-down waits, as a duration such as 5m.",
            scale_down.TIMEOUTS,
            default=parts.short(Drain().timeout),
        ),
    },
    ForecastSpec: {
        "mode": parts.choice(
            "is how the forecast is used: Advise only shows it; Floor also raises the lower limit for the "
            "number of replicas to it, while a replay of the last days shows that it helps.",
            *forecast_spec.MODES,
            default=_DEFAULTS.mode,
        ),
        "history": parts.text(
            "is how much of the past is read, from 7d to 35d, in days or hours.",
            parts.matching(
                "(([7-9]|[12][0-9]|3[0-5])d|(16[89]|1[7-9][0-9]|[2-7][0-9][0-9]|8[0-3][0-9]|840)h)",
                "must be from 7d to 35d, in days or hours such as 14d or 336h",
            ),
            maxLength=4,
            default=_DEFAULTS.history,
        ),
        "horizon": parts.duration(
            "is how far ahead the forecast raises the lower limit, as a duration. Auto is the learned time "
            "that pods take to be Ready.",
            forecast_spec.HORIZONS,
            word=forecast_spec.AUTO,
            default=_DEFAULTS.horizon,
        ),
        "maxExtra": parts.text(
            "is the upper limit for the pods that run because of the forecast, as a percentage from 1% to "
            "100% of those that would run without it.",
            _SHARE,
            maxLength=4,
            default=_DEFAULTS.max_extra,
        ),
        "minGain": parts.text(
            "is the part of the shortage of pods that the forecast must remove in a replay before it acts, "
            "as a percentage from 1% to 100%.",
            _SHARE,
            maxLength=4,
            default=_DEFAULTS.min_gain,
        ),
        "timeZone": parts.time_zone(
            "is the time zone in which days repeat, by its name in the tz database, such as Europe/Berlin.",
            default=_DEFAULTS.time_zone,
        ),
        "holidays": field(
            "are local dates whose load is unlike that of other days.",
            items=parts.date("A local date."),
            maxItems=forecast_spec.MOST_HOLIDAYS,
        ),
    },
}

_CURRENT = field("is the current value of the metric.")
_MEASURED = {"metric": field("identifies the metric."), "current": _CURRENT}

_STATUS: Table = {
    **_SELECTOR,
    FastPathAutoscalerStatus: {
        "": field("status is the result of the last decision, with the fields of a HorizontalPodAutoscaler."),
        "observedGeneration": field("is the last generation that was observed."),
        "lastScaleTime": field("is when this autoscaler last changed the number of replicas."),
        "currentReplicas": parts.count("is the number of replicas as last observed.", 0),
        "desiredReplicas": parts.count(
            "is the last number of replicas that was computed, 0 before the first.", 0
        ),
        "currentMetrics": field("are the values of the metrics at the last decision."),
        "conditions": field("are the conditions of the autoscaler.", **parts.by("type")),
        "recentChanges": field("are the changes that scaling policies still count, oldest first."),
        "pendingCapacity": field("are the credits of the queues in spec.pendingCapacity."),
        "targets": field("are the current and the target value of each metric, for kubectl get."),
        "limitedBy": field("is what kept the count where it is, for kubectl get."),
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
    PastChange: {
        "": field("A change of the replicas.", required="change time"),
        "change": field("is the difference of the replicas, negative for fewer."),
        "time": field("is when that was."),
    },
    BacklogCredit: {
        "": field("A queue with pending capacity.", required="metric credit time"),
        "metric": field("is the name of the metric."),
        "credit": parts.measured(
            "is the work of starting pods that reduces the queue, in units of the metric."
        ),
        "time": field("is when that was."),
    },
}

COLUMNS = [
    parts.column("Kind", ".spec.scaleTargetRef.kind", about="Kind of the workload that is scaled."),
    parts.column("Reference", ".spec.scaleTargetRef.name", about="Name of the workload that is scaled."),
    parts.column("Targets", ".status.targets", about="Current and target value of each metric."),
    parts.column("MinPods", ".spec.minReplicas", "integer"),
    parts.column("MaxPods", ".spec.maxReplicas", "integer"),
    parts.column(
        "Replicas", ".status.currentReplicas", "integer", about="Number of replicas as last observed."
    ),
    parts.column(
        "Able",
        parts.condition("AbleToScale", "status"),
        about="Whether the replicas can be read and written.",
    ),
    parts.column(
        "Active", parts.condition("ScalingActive", "status"), about="Whether the metrics give a count."
    ),
    parts.column("Mode", ".spec.mode"),
    parts.column("Age", ".metadata.creationTimestamp", "date"),
    parts.column("Desired", ".status.desiredReplicas", "integer", wide=True),
    parts.column("LimitedBy", ".status.limitedBy", wide=True, about="What kept the count where it is."),
    parts.column(
        "AbleReason",
        parts.condition("AbleToScale", "reason"),
        wide=True,
        about="Why it is able to scale or not.",
    ),
    parts.column(
        "ActiveReason",
        parts.condition("ScalingActive", "reason"),
        wide=True,
        about="Why it is active or not.",
    ),
    parts.column(
        "Limited", parts.condition("ScalingLimited", "reason"), wide=True, about="What limits the replicas."
    ),
    parts.column("Period", ".spec.syncPeriod", wide=True),
    parts.column(
        "Scaled", ".status.lastScaleTime", "date", wide=True, about="When the replicas were last changed."
    ),
]


def definition() -> JSON:
    return parts.definition(
        "Scales a workload as a HorizontalPodAutoscaler does, about a second after its load changed.",
        {
            "kind": fastpath_autoscaler.KIND,
            "plural": fastpath_autoscaler.PLURAL,
            "shortNames": ["fpa"],
            "categories": ["all"],
        },
        (FastPathAutoscalerSpec, _SPEC),
        (FastPathAutoscalerStatus, _STATUS),
        COLUMNS,
    )


if __name__ == "__main__":
    PATH.write_text(parts.render(definition()))
    crd_schedules.PATH.write_text(parts.render(crd_schedules.definition()))
