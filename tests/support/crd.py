"""Generate the CustomResourceDefinitions in manifests/chart/files/crd: ``python -m tests.support.crd``.

This module has that of FastPathAutoscaler. A structural schema repeats a few parts many times: quantities,
selectors, targets. Each is written once here or in `crd_parts`. tests/model/autoscaling/test_schema.py
compares the schema with the program.
"""

from collections.abc import Mapping

from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.forecasts import settings as forecast_settings
from adapter.model.forecasts import spec as forecast_spec
from adapter.model.forecasts.spec import ForecastSpec
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
            "key": {"type": "string", "description": "The label."},
            "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
            "values": parts.list_("The values of In and NotIn.", {"type": "string"}),
        },
        "key operator",
    )
    labels = {
        "type": "object",
        "description": "Labels and their values.",
        "additionalProperties": {"type": "string"},
    }
    return parts.object_(
        "Narrows the metric to series with these labels.",
        {
            "matchLabels": labels,
            "matchExpressions": parts.list_("Conditions, all of which hold.", expression),
        },
    ) | {"x-kubernetes-map-type": "atomic"}


def _metric() -> JSON:
    floor = parts.rule(
        f"self != '{fastpath_autoscaler.FLOOR_METRIC}'",
        f"{fastpath_autoscaler.FLOOR_METRIC} is only for boosted HorizontalPodAutoscalers; remove this "
        "metric",
    )
    return parts.object_(
        "The metric.", {"name": parts.segment("Its name.", floor), "selector": _selector()}, "name"
    )


def _reference(about: str, *rules: JSON) -> JSON:
    version = parts.text(
        "API group and version, such as apps/v1; only the group matters.",
        pattern="^[^/]*(/[^/]*)?$",
        maxLength=320,
    )
    properties = {
        "apiVersion": version,
        "kind": parts.segment("Kind, such as Deployment."),
        "name": parts.segment("Name of the object, in the same namespace."),
    }
    return parts.object_(about, properties, "kind name", *rules)


def _target(needed: str, *rules: JSON) -> JSON:
    properties = {
        "type": parts.choice("How the value is meant.", "Utilization", "Value", "AverageValue"),
        "value": parts.positive("The value to hold."),
        "averageValue": parts.positive("The value per pod to hold."),
        "averageUtilization": parts.count("Per cent of what the pods request, on average.", 1),
    }
    return parts.object_("What the metric is held at.", properties, needed, *rules)


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
        "cpu, memory, or another resource that a container can request.",
        rule,
        pattern=rf"^({standard}|{_LABEL}(\.{_LABEL})*/{_QUALIFIED})$",
        maxLength=63,
    )


# --- spec --------------------------------------------------------------------------------------------------


def _metrics() -> JSON:
    resource = _target("type", _ONE_OF_RESOURCE)
    container = parts.text("The container.", pattern=f"^{_LABEL}$", maxLength=63)
    described = _reference("The object that the metric describes.")
    sources = {
        "Resource": parts.object_(
            "Cpu, memory or the like of the pods.",
            {"name": parts.text("The resource.", minLength=1), "target": resource},
            "name target",
        ),
        "ContainerResource": parts.object_(
            "Cpu, memory or the like of one container in each pod.",
            {"container": container, "name": _container_resource_name(), "target": resource},
            "container name target",
        ),
        "Pods": parts.object_(
            "A custom metric of the pods, averaged.",
            {"metric": _metric(), "target": _target("type averageValue")},
            "metric target",
        ),
        "Object": parts.object_(
            "A custom metric of one object.",
            {"describedObject": described, "metric": _metric(), "target": _target("type", _ANY_OF_OBJECT)},
            "describedObject metric target",
        ),
        "External": parts.object_(
            "A metric of no object of the cluster.",
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
    properties = {"type": parts.choice("Which of the sources is given.", *sources)}
    properties |= {fields[kind]: source for kind, source in sources.items()}
    items = parts.object_("A metric and what it is held at.", properties, "type", *rules)
    default = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    about = (
        "What the replicas are computed from; the highest count wins. Without any: cpu at 80 % of what is "
        "requested."
    )
    return parts.list_(about, items, maxItems=fastpath_autoscaler.MOST_METRICS, default=[default])


def _behavior() -> JSON:
    policy = parts.object_(
        "At most so much change in so much time.",
        {
            "type": parts.choice("What value counts.", "Pods", "Percent"),
            "value": parts.count("Pods, or per cent of the replicas.", 1),
            "periodSeconds": parts.count("The time.", 1, 1800),
        },
        "type value periodSeconds",
    )
    most = fastpath_autoscaler.MOST_POLICIES
    rules = {
        "stabilizationWindowSeconds": parts.count("How far back recommendations count.", 0, 3600),
        "selectPolicy": parts.choice("Which policy counts; Max if absent.", "Max", "Min", "Disabled"),
        "policies": parts.list_("The policies.", policy, minItems=1, maxItems=most),
        "tolerance": parts.quantity(
            "By how much a metric may miss its target, such as 50m.", rf"\+?{parts.ANY}", minimum=0
        ),
    }
    return parts.object_(
        "How fast the replicas may change. What is absent is as in a HorizontalPodAutoscaler with an empty "
        "behavior.",
        {"scaleUp": parts.object_("Upwards.", rules), "scaleDown": parts.object_("Downwards.", rules)},
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
            "Hold keeps the replicas; Floor keeps at least replicas; LastGood keeps at least what the "
            "metrics asked for last.",
            *fastpath_autoscaler.FALLBACKS,
        ),
        "after": parts.duration(
            "How long a metric has to be absent.",
            fastpath_autoscaler.AFTERS,
            default=parts.short(fastpath_autoscaler.AFTER),
        ),
        "replicas": parts.count("The floor.", 1),
        "lastGoodFor": parts.duration(
            "For how long the last good count is kept.", fastpath_autoscaler.LAST_GOOD_FORS
        ),
    }
    about = (
        "What holds when a metric has been absent for a while. It keeps or raises the replicas, it never "
        "lowers them."
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
            "The name of a metric of spec.metrics: an Object or External metric with a target of type "
            "AverageValue, and the only metric of this name."
        ),
        "podThroughput": parts.positive(
            "How many units of the metric one Ready pod works off in a second, such as 2 or 500m. A smaller "
            "value than the true one withholds less; a greater one asks for too few pods until those that "
            "are starting are Ready."
        ),
    }
    items = parts.object_("A queue and what a pod works off.", properties, "metric podThroughput")
    about = (
        "Queues that count less what pods that are starting would have worked off. Pods that were asked for "
        "and are not Ready let a queue grow; for their learned start-up time that growth asks for no more "
        "pods. This only withholds raises: it never asks for more pods than exact arithmetic, and never "
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
            "Advise makes forecasts and shows them; Floor also raises the floor of the replicas to them, "
            "while a replay of the last days shows that it helps.",
            *forecast_settings.MODES,
            default=defaults.mode,
        ),
        "history": parts.text(
            "How much of the past is read, from 7d to 35d, in days or hours.",
            parts.matching(
                "(([7-9]|[12][0-9]|3[0-5])d|(16[89]|1[7-9][0-9]|[2-7][0-9][0-9]|8[0-3][0-9]|840)h)",
                "must be from 7d to 35d, in days or hours such as 14d or 336h",
            ),
            maxLength=4,
            default=defaults.history,
        ),
        "horizon": parts.duration(
            "How far ahead a floor looks. Auto is the learned time that pods take to be Ready.",
            forecast_spec.HORIZONS,
            word=forecast_settings.AUTO,
            default=defaults.horizon,
        ),
        "maxExtra": parts.text(
            "How many more pods may run for it, of those that would run without it.",
            parts.matching(share, "must be from 1% to 100%, without a fraction"),
            maxLength=4,
            default=defaults.max_extra,
        ),
        "minGain": parts.text(
            "How much of the shortage of pods it has to remove to act.",
            parts.matching(share, "must be from 1% to 100%, without a fraction"),
            maxLength=4,
            default=defaults.min_gain,
        ),
        "timeZone": parts.time_zone(
            "The time zone on whose clock days repeat, by its name in the tz database, such as "
            "Europe/Berlin.",
            default=defaults.time_zone,
        ),
        "holidays": parts.list_(
            "Local dates that are like no other day.",
            parts.date("A local date."),
            maxItems=forecast_spec.MOST_HOLIDAYS,
        ),
    }
    about = (
        "A forecast of the load, from its history in Prometheus. It only raises the floor of the replicas, "
        "never above maxReplicas, and not at zero."
    )
    return parts.object_(about, properties)


def _spec() -> JSON:
    group = parts.rule(
        "self.kind == 'ReplicationController' || (has(self.apiVersion) && "
        "self.apiVersion.matches('^[^/]+/'))",
        "apiVersion must name an API group, such as apps/v1",
    )
    properties = {
        "scaleTargetRef": _reference("What is scaled.", group),
        "minReplicas": parts.count(
            "The fewest replicas; 0 needs an Object or External metric.", 0, default=1
        ),
        "maxReplicas": parts.count("The most replicas.", 1),
        "metrics": _metrics(),
        "behavior": _behavior(),
        "syncPeriod": parts.duration(
            "The longest time between two decisions.",
            fastpath_autoscaler.SYNC_PERIODS,
            default=parts.short(fastpath_autoscaler.SYNC_PERIOD),
        ),
        "mode": parts.choice(
            "Auto scales; Advise decides and tells, but does not scale; Paused does nothing.",
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
    about = "The spec of an autoscaling/v2 HorizontalPodAutoscaler, and how Fastpath goes about it."
    return parts.object_(about, properties, "scaleTargetRef maxReplicas", *rules)


# --- status ------------------------------------------------------------------------------------------------


def _status() -> JSON:
    current = parts.object_(
        "What was measured.",
        {
            "value": parts.measured("The value."),
            "averageValue": parts.measured("The value per pod."),
            "averageUtilization": {
                "type": "integer",
                "format": "int32",
                "description": "Per cent of what is requested.",
            },
        },
    )
    plain = {"type": "string"}
    metric = parts.object_("The metric.", {"name": plain, "selector": _selector()})
    described = parts.object_("The object.", {"apiVersion": plain, "kind": plain, "name": plain})
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
            "description": "Which of the sources is given; empty where there was no value.",
        }
    }
    items |= {name: parts.object_("As in spec.metrics.", properties) for name, properties in sources.items()}
    time = {"type": "string", "format": "date-time"}
    condition = parts.object_(
        "One condition.",
        {
            "type": plain | {"description": "AbleToScale, ScalingActive, ScalingLimited or ScaledToZero."},
            "status": plain | {"description": "True, False or Unknown."},
            "reason": plain | {"description": "Why, in one word."},
            "message": plain | {"description": "Why, in a sentence."},
            "lastTransitionTime": time | {"description": "When status last changed."},
        },
        "type status",
    )
    change = parts.object_(
        "A change of the replicas.",
        {
            "change": {"type": "integer", "format": "int32", "description": "By how many; down is negative."},
            "time": time | {"description": "When."},
        },
        "change time",
    )
    credit = parts.object_(
        "A queue with pending capacity.",
        {
            "metric": plain | {"description": "Its name."},
            "credit": parts.measured("What starting pods would have worked off, in units of the metric."),
            "time": time | {"description": "When."},
        },
        "metric credit time",
    )
    properties = {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation that was acted on.",
        },
        "lastScaleTime": time | {"description": "When the replicas were last changed by this autoscaler."},
        "currentReplicas": parts.count("The replicas as last seen.", 0),
        "desiredReplicas": parts.count("The replicas as last decided.", 0),
        "currentMetrics": parts.list_(
            "What the metrics were when last looked at.", parts.object_("A metric.", items)
        ),
        "conditions": parts.list_("What is and is not so.", condition)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "recentChanges": parts.list_("Changes that policies still count, oldest first.", change),
        "pendingCapacity": parts.list_("What queues with pending capacity count less.", credit),
        "targets": plain | {"description": "What each metric was and what it is held at, for kubectl get."},
    }
    return parts.object_("What the last decision came to; as of a HorizontalPodAutoscaler.", properties)


COLUMNS = [
    parts.column("Kind", ".spec.scaleTargetRef.kind", about="Kind of what is scaled."),
    parts.column("Reference", ".spec.scaleTargetRef.name", about="Name of what is scaled."),
    parts.column("Targets", ".status.targets", about="What each metric was and what it is held at."),
    parts.column("MinPods", ".spec.minReplicas", "integer"),
    parts.column("MaxPods", ".spec.maxReplicas", "integer"),
    parts.column("Replicas", ".status.currentReplicas", "integer", about="The replicas as last seen."),
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
