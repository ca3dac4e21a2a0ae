"""Generate the CustomResourceDefinitions in manifests/chart/files/crd: ``python -m tests.support.crd``.

This module has that of FastPathAutoscaler. A structural schema repeats a few parts many times: quantities,
selectors, targets. Each is written once here or in `crd_parts`. tests/model/autoscaling/test_schema.py
compares the schema with the program.
"""

from collections.abc import Mapping

from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.forecast import ForecastSpec
from tests.support import crd_parts as parts
from tests.support import crd_schedules
from tests.support.crd_parts import JSON

PATH = parts.FOLDER / "fastpathautoscalers.yaml"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


# --- what occurs more than once ----------------------------------------------------------------------------


def _selector() -> JSON:
    expression = parts.object_(
        "One condition on one label.",
        {
            "key": {"type": "string", "description": "key is the label key that the selector applies to."},
            "operator": {
                "type": "string",
                "description": "operator is one of In, NotIn, Exists and DoesNotExist.",
            },
            "values": parts.list_(
                "values are the label values of In and NotIn; it is empty for Exists and DoesNotExist.",
                {"type": "string"},
            ),
        },
        "key operator",
    )
    labels = {
        "type": "object",
        "description": "matchLabels are labels with the value that each must have.",
        "additionalProperties": {"type": "string"},
    }
    return parts.object_(
        "selector is a label selector that limits the metric to series with "
        "these labels. If not set, only the name selects the series.",
        {
            "matchLabels": labels,
            "matchExpressions": parts.list_(
                "matchExpressions are label selector requirements, all of which must hold.", expression
            ),
        },
    ) | {"x-kubernetes-map-type": "atomic"}


def _metric() -> JSON:
    floor = parts.rule(
        f"self != '{fastpath_autoscaler.FLOOR_METRIC}'",
        f"{fastpath_autoscaler.FLOOR_METRIC} is only for boosted HorizontalPodAutoscalers; remove this "
        "metric",
    )
    return parts.object_(
        "metric identifies the metric by name and selector.",
        {"name": parts.segment("name is the name of the metric.", floor), "selector": _selector()},
        "name",
    )


def _reference(about: str, *rules: JSON) -> JSON:
    version = parts.text(
        "apiVersion is the API group and version of the object, such as apps/v1; only the group is used.",
        pattern="^[^/]*(/[^/]*)?$",
        maxLength=320,
    )
    properties = {
        "apiVersion": version,
        "kind": parts.segment("kind is the kind of the object, such as Deployment."),
        "name": parts.segment("name is the name of the object, in the namespace of the autoscaler."),
    }
    return parts.object_(about, properties, "kind name", *rules)


def _target(needed: str, *rules: JSON) -> JSON:
    properties = {
        "type": parts.choice(
            "type is the type of the target: Utilization, Value or AverageValue.",
            "Utilization",
            "Value",
            "AverageValue",
        ),
        "value": parts.positive(
            "value is the target value of the metric, as a quantity such as 100 or 500m."
        ),
        "averageValue": parts.positive(
            "averageValue is the target value of the metric, averaged over all "
            "pods, as a quantity such as 100 or 500m."
        ),
        "averageUtilization": parts.count(
            "averageUtilization is the target value of the resource, averaged over "
            "all pods, as a percentage of what the pods request.",
            1,
        ),
    }
    return parts.object_("target is the target value of the metric.", properties, needed, *rules)


_ONE_OF_RESOURCE = parts.rule(
    "has(self.averageUtilization) != has(self.averageValue)",
    "needs averageUtilization or averageValue, and not both",
)
_ONE_OF_EXTERNAL = parts.rule(
    "has(self.value) != has(self.averageValue)", "needs value or averageValue, and not both"
)
_ANY_OF_OBJECT = parts.rule("has(self.value) || has(self.averageValue)", "needs value or averageValue")


def _container_resource_name() -> JSON:
    standard = f"cpu|memory|ephemeral-storage|hugepages-{_QUALIFIED.removesuffix('?')}?"
    rule = parts.rule("!self.startsWith('requests.')", "must not begin with 'requests.'")
    return parts.text(
        "name is the name of the resource: cpu, memory, or another resource that a container can request.",
        rule,
        pattern=rf"^({standard}|{_LABEL}(\.{_LABEL})*/{_QUALIFIED})$",
        maxLength=63,
    )


# --- spec --------------------------------------------------------------------------------------------------


def _metrics() -> JSON:
    resource = _target("type", _ONE_OF_RESOURCE)
    container = parts.text(
        "container is the name of the container in the pods of the target.",
        pattern=f"^{_LABEL}$",
        maxLength=63,
    )
    described = _reference("describedObject is the object that the metric describes.")
    sources = {
        "Resource": parts.object_(
            "resource is a resource metric of the pods, such as cpu or memory, as "
            "the sum of their containers.",
            {
                "name": parts.text("name is the name of the resource, such as cpu.", minLength=1),
                "target": resource,
            },
            "name target",
        ),
        "ContainerResource": parts.object_(
            "containerResource is a resource metric of one container in each pod of the target.",
            {"container": container, "name": _container_resource_name(), "target": resource},
            "container name target",
        ),
        "Pods": parts.object_(
            "pods is a custom metric of each pod of the target. The values are "
            "averaged before they are compared to the target.",
            {"metric": _metric(), "target": _target("type averageValue")},
            "metric target",
        ),
        "Object": parts.object_(
            "object is a custom metric of one object of the cluster, such as hits per second of an Ingress.",
            {"describedObject": described, "metric": _metric(), "target": _target("type", _ANY_OF_OBJECT)},
            "describedObject metric target",
        ),
        "External": parts.object_(
            "external is a metric that is not associated with an object of the "
            "cluster, such as the length of a queue.",
            {"metric": _metric(), "target": _target("type", _ONE_OF_EXTERNAL)},
            "metric target",
        ),
    }
    fields = {kind: kind[0].lower() + kind[1:] for kind in sources}
    rules = [
        parts.rule(
            f"self.type == '{kind}' ? has(self.{field}) : !has(self.{field})",
            f"{field} is needed for type {kind}, and for no other",
        )
        for kind, field in fields.items()
    ]
    properties = {
        "type": parts.choice(
            "type is the type of metric source. The field of this source must be set, and no other.", *sources
        )
    }
    properties |= {fields[kind]: source for kind, source in sources.items()}
    items = parts.object_("One metric source and its target.", properties, "type", *rules)
    default = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    about = (
        "metrics are the metrics that the number of replicas is computed from. The highest number of all "
        "metrics is used. Defaults to an average cpu utilization of 80 % of the requests."
    )
    return parts.list_(about, items, maxItems=fastpath_autoscaler.MOST_METRICS, default=[default])


def _behavior() -> JSON:
    policy = parts.object_(
        "A limit of the change within a period.",
        {
            "type": parts.choice(
                "type is the unit of value: Pods, or Percent of the current replicas.", "Pods", "Percent"
            ),
            "value": parts.count("value is the largest change within the period, in the unit of type.", 1),
            "periodSeconds": parts.count(
                "periodSeconds is the length of the period in seconds, from 1 to 1800.", 1, 1800
            ),
        },
        "type value periodSeconds",
    )
    most = fastpath_autoscaler.MOST_POLICIES
    rules = {
        "stabilizationWindowSeconds": parts.count(
            "stabilizationWindowSeconds is the number of seconds, from 0 to 3600, "
            "of which past "
            "recommendations are considered. Defaults to 0 for scaleUp, and for scaleDown to the flag "
            "--horizontal-pod-autoscaler-downscale-stabilization, which defaults to "
            "300 seconds.",
            0,
            3600,
        ),
        "selectPolicy": parts.choice(
            "selectPolicy is the policy that is used of several: Max, the largest "
            "change, Min, the smallest, or Disabled, no scaling in this direction. "
            "Defaults to Max.",
            "Max",
            "Min",
            "Disabled",
        ),
        "policies": parts.list_(
            "policies limit the change of the number of replicas. Defaults for "
            "scaleUp to the larger of 4 pods and 100 % in 15 seconds, and for "
            "scaleDown to 100 % in 15 seconds.",
            policy,
            minItems=1,
            maxItems=most,
        ),
        "tolerance": parts.quantity(
            "tolerance is the deviation of a metric from its target, as a share of "
            "the target such as 50m, within which the number of replicas is not "
            "changed. Defaults to the flag --horizontal-pod-autoscaler-tolerance, "
            "which defaults to 0.1.",
            rf"\+?{parts.ANY}",
            minimum=0,
        ),
    }
    return parts.object_(
        "behavior limits how fast the number of replicas changes in each direction. Fields that are not set "
        "have the defaults of a HorizontalPodAutoscaler.",
        {
            "scaleUp": parts.object_("scaleUp is the scaling policy for more replicas.", rules),
            "scaleDown": parts.object_("scaleDown is the scaling policy for fewer replicas.", rules),
        },
    )


def _fallback() -> JSON:
    rules = [
        parts.rule(
            f"self.type == '{kind}' ? has(self.{field}) : !has(self.{field})",
            f"{field} is needed for type {kind}, and for no other",
        )
        for kind, field in (
            (fastpath_autoscaler.FLOOR, "replicas"),
            (fastpath_autoscaler.LAST_GOOD, "lastGoodFor"),
        )
    ]
    properties = {
        "type": parts.choice(
            "type is what happens while a metric has no value: Hold keeps the "
            "current number of replicas, Floor "
            "keeps at least the number in replicas, and LastGood keeps at least the number that the metrics "
            "asked for last.",
            *fastpath_autoscaler.FALLBACKS,
        ),
        "after": parts.duration(
            "after is how long a metric has no value before the fallback applies, as a duration such as 90s.",
            fastpath_autoscaler.AFTERS,
            default=parts.short(fastpath_autoscaler.AFTER),
        ),
        "replicas": parts.count("replicas is the lower limit for the number of replicas of type Floor.", 1),
        "lastGoodFor": parts.duration(
            "lastGoodFor is how long the last number is kept of type LastGood, as a duration such as 30m.",
            fastpath_autoscaler.LAST_GOOD_FORS,
        ),
    }
    about = (
        "fallback is what happens when a metric has had no value for a while. It keeps or raises the number "
        "of replicas and never lowers it. If not set, the number of replicas is kept."
    )
    return parts.object_(about, properties, "type", *rules)


_PENDING_RULE = (
    "!has(self.pendingCapacity) || self.pendingCapacity.all(p, "
    "self.metrics.filter(m, has(m.external) && m.external.metric.name == p.metric && "
    "has(m.external.target.averageValue) || has(m.object) && m.object.metric.name == p.metric && "
    "m.object.target.type == 'AverageValue' && has(m.object.target.averageValue)).size() == 1)"
)
_PENDING_NEEDS = "one Object or External metric of that name in metrics, with averageValue"


def _pending_capacity() -> JSON:
    properties = {
        "metric": parts.segment(
            "metric is the name of a metric in spec.metrics: an Object or External "
            "metric with a target of type "
            "AverageValue, and the only metric of this name."
        ),
        "podThroughput": parts.positive(
            "podThroughput is how many units of the metric one Ready pod works off "
            "in a second, such as 2 or 500m. A smaller "
            "value than the true one withholds less; a greater one asks for too few pods until those that "
            "are starting are Ready."
        ),
    }
    items = parts.object_("A queue and the throughput of a pod.", properties, "metric podThroughput")
    about = (
        "pendingCapacity are queues whose value is reduced by the work that starting pods would have done by "
        "now if they had been Ready at once. A queue grows while pods that were already requested start; "
        "within their learned start-up time that growth requests no more pods. "
        "This only withholds raises: it never requests more pods than without "
        "it, and never "
        "scales down. It has no effect before a pod of the target was seen to start."
    )
    return parts.list_(about, items, maxItems=fastpath_autoscaler.MOST_METRICS) | {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["metric"],
    }


def _forecast() -> JSON:
    share = "([1-9][0-9]?|100)%"
    defaults = ForecastSpec()
    properties = {
        "mode": parts.choice(
            "mode is how the forecast is used: Advise only shows it; Floor also "
            "raises the lower limit for the "
            "number of replicas to it, while a replay of the last days shows that it helps.",
            *forecast_spec.MODES,
            default=defaults.mode,
        ),
        "history": parts.text(
            "history is how much of the past is read, from 7d to 35d, in days or hours.",
            parts.matching(
                "(([7-9]|[12][0-9]|3[0-5])d|(16[89]|1[7-9][0-9]|[2-7][0-9][0-9]|8[0-3][0-9]|840)h)",
                "must be from 7d to 35d, in days or hours such as 14d or 336h",
            ),
            maxLength=4,
            default=defaults.history,
        ),
        "horizon": parts.duration(
            "horizon is how far ahead the forecast raises the lower limit, as a "
            "duration. Auto is the learned time that pods take to be Ready.",
            forecast_spec.HORIZONS,
            word=forecast_spec.AUTO,
            default=defaults.horizon,
        ),
        "maxExtra": parts.text(
            "maxExtra is the upper limit for the pods that run because of the "
            "forecast, as a percentage from 1% to 100% of those that would run without it.",
            parts.matching(share, "must be from 1% to 100%, without a fraction"),
            maxLength=4,
            default=defaults.max_extra,
        ),
        "minGain": parts.text(
            "minGain is the part of the shortage of pods that the forecast must "
            "remove in a replay before it acts, as a percentage from 1% to 100%.",
            parts.matching(share, "must be from 1% to 100%, without a fraction"),
            maxLength=4,
            default=defaults.min_gain,
        ),
        "timeZone": parts.time_zone(
            "timeZone is the time zone in which days repeat, by its name in the tz database, such as "
            "Europe/Berlin.",
            default=defaults.time_zone,
        ),
        "holidays": parts.list_(
            "holidays are local dates whose load is unlike that of other days.",
            parts.date("A local date."),
            maxItems=forecast_spec.MOST_HOLIDAYS,
        ),
    }
    about = (
        "forecast is a forecast of the load from its history in Prometheus. It only raises the lower limit "
        "for the number of replicas, never above maxReplicas, and not at zero."
    )
    return parts.object_(about, properties)


def _spec() -> JSON:
    group = parts.rule(
        "self.kind == 'ReplicationController' || (has(self.apiVersion) && "
        "self.apiVersion.matches('^[^/]+/'))",
        "apiVersion must name an API group, such as apps/v1",
    )
    properties = {
        "scaleTargetRef": _reference(
            "scaleTargetRef is the workload that is scaled; it needs a scale subresource.", group
        ),
        "minReplicas": parts.count(
            "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale "
            "down. It may be 0 if an Object or External metric is configured.",
            0,
            default=1,
        ),
        "maxReplicas": parts.count(
            "maxReplicas is the upper limit for the number of replicas to which the "
            "autoscaler can scale "
            "up. It cannot be less than minReplicas.",
            1,
        ),
        "metrics": _metrics(),
        "behavior": _behavior(),
        "syncPeriod": parts.duration(
            "syncPeriod is the longest time between two decisions, as a duration such as 5s.",
            fastpath_autoscaler.SYNC_PERIODS,
            default=parts.short(fastpath_autoscaler.SYNC_PERIOD),
        ),
        "mode": parts.choice(
            "mode is what the autoscaler does: Auto changes the number of replicas, Advise computes it and "
            "reports it in status and events without changing it, and Paused does neither.",
            *fastpath_autoscaler.MODES,
            default=fastpath_autoscaler.AUTO,
        ),
        "fallback": _fallback(),
        "pendingCapacity": _pending_capacity(),
        "forecast": _forecast(),
    }
    rules = [
        parts.rule(
            "self.minReplicas <= self.maxReplicas", "maxReplicas must be greater than or equal to minReplicas"
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
        parts.rule(_PENDING_RULE, "pendingCapacity needs, for each metric, " + _PENDING_NEEDS),
    ]
    about = (
        "spec is the specification of an autoscaling/v2 "
        "HorizontalPodAutoscaler, with the additional fields of Fastpath."
    )
    return parts.object_(about, properties, "scaleTargetRef maxReplicas", *rules)


# --- status ------------------------------------------------------------------------------------------------


def _status() -> JSON:
    current = parts.object_(
        "current is the current value of the metric.",
        {
            "value": parts.measured("value is the current value of the metric."),
            "averageValue": parts.measured("averageValue is the current value, averaged over all pods."),
            "averageUtilization": {
                "type": "integer",
                "format": "int32",
                "description": "averageUtilization is the current value of the resource, averaged over "
                "all pods, as a percentage of the requests.",
            },
        },
    )
    plain = {"type": "string"}
    metric = parts.object_("metric identifies the metric.", {"name": plain, "selector": _selector()})
    described = parts.object_(
        "describedObject is the object that the metric describes.",
        {"apiVersion": plain, "kind": plain, "name": plain},
    )
    sources: Mapping[str, JSON] = {
        "resource": {"name": plain, "current": current},
        "containerResource": {"container": plain, "name": plain, "current": current},
        "pods": {"metric": metric, "current": current},
        "object": {"describedObject": described, "metric": metric, "current": current},
        "external": {"metric": metric, "current": current},
    }
    items = {
        "type": {
            "type": "string",
            "description": "type is the type of metric source, empty if the metric has no value.",
        }
    }
    items |= {
        name: parts.object_(f"{name} is the metric of this type in spec.metrics.", properties)
        for name, properties in sources.items()
    }
    time = {"type": "string", "format": "date-time"}
    condition = parts.object_(
        "One condition.",
        {
            "type": plain | {"description": "type is the type of the condition, such as AbleToScale."},
            "status": plain
            | {"description": "status is the status of the condition: True, False or Unknown."},
            "reason": plain | {"description": "reason is the reason for the last transition, as one word."},
            "message": plain
            | {"description": "message is the reason for the last transition, as a sentence."},
            "lastTransitionTime": time | {"description": "lastTransitionTime is when status last changed."},
        },
        "type status",
    )
    change = parts.object_(
        "A change of the replicas.",
        {
            "change": {
                "type": "integer",
                "format": "int32",
                "description": "change is the difference of the replicas, negative for fewer.",
            },
            "time": time | {"description": "time is when that was."},
        },
        "change time",
    )
    credit = parts.object_(
        "A queue with pending capacity.",
        {
            "metric": plain | {"description": "metric is the name of the metric."},
            "credit": parts.measured(
                "credit is the work of starting pods that reduces the queue, in units of the metric."
            ),
            "time": time | {"description": "time is when that was."},
        },
        "metric credit time",
    )
    properties = {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "observedGeneration is the last generation that was observed.",
        },
        "lastScaleTime": time
        | {"description": "lastScaleTime is when this autoscaler last changed the number of replicas."},
        "currentReplicas": parts.count("currentReplicas is the number of replicas as last observed.", 0),
        "desiredReplicas": parts.count(
            "desiredReplicas is the last number of replicas that was computed, 0 before the first.", 0
        ),
        "currentMetrics": parts.list_(
            "currentMetrics are the values of the metrics at the last decision.",
            parts.object_("A metric.", items),
        ),
        "conditions": parts.list_("conditions are the conditions of the autoscaler.", condition)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "recentChanges": parts.list_(
            "recentChanges are the changes that scaling policies still count, oldest first.", change
        ),
        "pendingCapacity": parts.list_(
            "pendingCapacity are the credits of the queues in spec.pendingCapacity.", credit
        ),
        "targets": plain
        | {"description": "targets are the current and the target value of each metric, for kubectl get."},
    }
    return parts.object_(
        "status is the result of the last decision, with the fields of a HorizontalPodAutoscaler.", properties
    )


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
    about = "Scales a workload as a HorizontalPodAutoscaler does, about a second after its load changed."
    schema = parts.of_kind(about, _spec(), _status())
    return parts.definition(
        fastpath_autoscaler.KIND, fastpath_autoscaler.PLURAL, "fpa", schema, COLUMNS, categories=["all"]
    )


def render() -> str:
    return parts.render(definition())


if __name__ == "__main__":
    PATH.write_text(render())
    crd_schedules.PATH.write_text(crd_schedules.render())
