"""Generate the CustomResourceDefinition in manifests/crd: ``python -m tests.support.crd`` rewrites the file.

A structural schema repeats a few parts many times: quantities, selectors, targets. Each is written once here.
Only features of Kubernetes 1.27 are used: no `fieldPath`, no `reason`, no quantities in CEL. Lengths and
counts have bounds so that the cost of every rule has one. tests/model/autoscaling/test_schema.py compares the
schema with the program.
"""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.timestamps import write_span

PATH = Path(__file__).parents[2] / "manifests/chart/files/crd/fastpathautoscalers.yaml"

JSON = dict[str, Any]

_INT32 = 2**31 - 1
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_ANY = r"([0-9]+(\.[0-9]*)?|\.[0-9]*)"
_POSITIVE = r"([0-9]*[1-9][0-9]*(\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
_SUFFIX = r"([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
_DURATION = rf"^\+?({_NUMBER}(ns|us|ms|s|m|h))+$"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


def _rule(rule: str, message: str) -> JSON:
    return {"rule": rule, "message": message}


def _object(about: str, properties: JSON, required: str = "", *rules: JSON) -> JSON:
    shape: JSON = {"type": "object", "description": about, "properties": properties}
    if required:
        shape["required"] = required.split()
    if rules:
        shape["x-kubernetes-validations"] = list(rules)
    return shape


def _list(about: str, items: JSON, **more: Any) -> JSON:
    return {"type": "array", "description": about, "items": items, "x-kubernetes-list-type": "atomic"} | more


def _text(about: str, *rules: JSON, **more: Any) -> JSON:
    shape = {"type": "string", "description": about, "maxLength": 253} | more
    return shape | ({"x-kubernetes-validations": list(rules)} if rules else {})


def _choice(about: str, *values: str, **more: Any) -> JSON:
    return _text(about, enum=list(values), maxLength=max(map(len, values)), **more)


def _count(about: str, least: int, most: int = _INT32, **more: Any) -> JSON:
    return {
        "type": "integer",
        "format": "int32",
        "description": about,
        "minimum": least,
        "maximum": most,
    } | more


def _segment(about: str, *rules: JSON) -> JSON:
    rule = _rule(
        "!self.contains('/') && !self.contains('%') && self != '.' && self != '..'",
        "must not contain '/' or '%', nor be '.' or '..'",
    )
    return _text(about, rule, *rules, minLength=1)


def _quantity(about: str, number: str, **more: Any) -> JSON:
    return {
        "description": about,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": f"^{number}{_SUFFIX}$",
        "maxLength": 64,
    } | more


def _positive(about: str) -> JSON:
    return _quantity(about, rf"\+?{_POSITIVE}", minimum=1)


def _measured(about: str) -> JSON:
    return _quantity(about, f"[+-]?{_ANY}")


def _duration(about: str, bounds: tuple[int, int], **more: Any) -> JSON:
    least, greatest = (_short(bound) for bound in bounds)
    rule = _rule(
        f"duration(self) >= duration('{least}') && duration(self) <= duration('{greatest}')",
        f"must be from {least} to {greatest}",
    )
    return _text(about, rule, pattern=_DURATION, maxLength=32, **more)


def _short(span: int) -> str:
    """Return a span without the zeros that Go writes: ``1h`` for ``1h0m0s``."""
    text = write_span(span)
    for zeros in ("m0s", "h0m"):
        text = text[: -len(zeros) + 1] if text.endswith(zeros) else text
    return text


# --- what occurs more than once ----------------------------------------------------------------------------


def _selector() -> JSON:
    expression = _object(
        "One condition on one label.",
        {
            "key": {"type": "string", "description": "The label."},
            "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
            "values": _list("The values of In and NotIn.", {"type": "string"}),
        },
        "key operator",
    )
    labels = {
        "type": "object",
        "description": "Labels and their values.",
        "additionalProperties": {"type": "string"},
    }
    return _object(
        "Narrows the metric to series with these labels.",
        {"matchLabels": labels, "matchExpressions": _list("Conditions, all of which hold.", expression)},
    ) | {"x-kubernetes-map-type": "atomic"}


def _metric() -> JSON:
    floor = _rule(
        f"self != '{fastpath_autoscaler.FLOOR_METRIC}'",
        f"{fastpath_autoscaler.FLOOR_METRIC} is only for boosted HorizontalPodAutoscalers; remove this "
        "metric",
    )
    return _object("The metric.", {"name": _segment("Its name.", floor), "selector": _selector()}, "name")


def _reference(about: str, *rules: JSON) -> JSON:
    version = _text(
        "API group and version, such as apps/v1; only the group matters.",
        pattern="^[^/]*(/[^/]*)?$",
        maxLength=320,
    )
    properties = {
        "apiVersion": version,
        "kind": _segment("Kind, such as Deployment."),
        "name": _segment("Name of the object, in the same namespace."),
    }
    return _object(about, properties, "kind name", *rules)


def _target(needed: str, *rules: JSON) -> JSON:
    properties = {
        "type": _choice("How the value is meant.", "Utilization", "Value", "AverageValue"),
        "value": _positive("The value to hold."),
        "averageValue": _positive("The value per pod to hold."),
        "averageUtilization": _count("Per cent of what the pods request, on average.", 1),
    }
    return _object("What the metric is held at.", properties, needed, *rules)


_ONE_OF_RESOURCE = _rule(
    "has(self.averageUtilization) != has(self.averageValue)",
    "needs averageUtilization or averageValue, and not both",
)
_ONE_OF_EXTERNAL = _rule(
    "has(self.value) != has(self.averageValue)", "needs value or averageValue, and not both"
)
_ANY_OF_OBJECT = _rule("has(self.value) || has(self.averageValue)", "needs value or averageValue")


def _container_resource_name() -> JSON:
    standard = f"cpu|memory|ephemeral-storage|hugepages-{_QUALIFIED.removesuffix('?')}?"
    rule = _rule("!self.startsWith('requests.')", "must not begin with 'requests.'")
    return _text(
        "cpu, memory, or another resource that a container can request.",
        rule,
        pattern=rf"^({standard}|{_LABEL}(\.{_LABEL})*/{_QUALIFIED})$",
        maxLength=63,
    )


# --- spec --------------------------------------------------------------------------------------------------


def _metrics() -> JSON:
    resource = _target("type", _ONE_OF_RESOURCE)
    container = _text("The container.", pattern=f"^{_LABEL}$", maxLength=63)
    described = _reference("The object that the metric describes.")
    sources = {
        "Resource": _object(
            "Cpu, memory or the like of the pods.",
            {"name": _text("The resource.", minLength=1), "target": resource},
            "name target",
        ),
        "ContainerResource": _object(
            "Cpu, memory or the like of one container in each pod.",
            {"container": container, "name": _container_resource_name(), "target": resource},
            "container name target",
        ),
        "Pods": _object(
            "A custom metric of the pods, averaged.",
            {"metric": _metric(), "target": _target("type averageValue")},
            "metric target",
        ),
        "Object": _object(
            "A custom metric of one object.",
            {"describedObject": described, "metric": _metric(), "target": _target("type", _ANY_OF_OBJECT)},
            "describedObject metric target",
        ),
        "External": _object(
            "A metric of no object of the cluster.",
            {"metric": _metric(), "target": _target("type", _ONE_OF_EXTERNAL)},
            "metric target",
        ),
    }
    fields = {kind: kind[0].lower() + kind[1:] for kind in sources}
    rules = [
        _rule(
            f"self.type == '{kind}' ? has(self.{field}) : !has(self.{field})",
            f"{field} is needed for type {kind}, and for no other",
        )
        for kind, field in fields.items()
    ]
    properties = {"type": _choice("Which of the sources is given.", *sources)}
    properties |= {fields[kind]: source for kind, source in sources.items()}
    items = _object("A metric and what it is held at.", properties, "type", *rules)
    default = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    about = (
        "What the replicas are computed from; the highest count wins. Without any: cpu at 80 % of what is "
        "requested."
    )
    return _list(about, items, maxItems=fastpath_autoscaler.MOST_METRICS, default=[default])


def _behavior() -> JSON:
    policy = _object(
        "At most so much change in so much time.",
        {
            "type": _choice("What value counts.", "Pods", "Percent"),
            "value": _count("Pods, or per cent of the replicas.", 1),
            "periodSeconds": _count("The time.", 1, 1800),
        },
        "type value periodSeconds",
    )
    most = fastpath_autoscaler.MOST_POLICIES
    rules = {
        "stabilizationWindowSeconds": _count("How far back recommendations count.", 0, 3600),
        "selectPolicy": _choice("Which policy counts; Max if absent.", "Max", "Min", "Disabled"),
        "policies": _list("The policies.", policy, minItems=1, maxItems=most),
        "tolerance": _quantity(
            "By how much a metric may miss its target, such as 50m.", rf"\+?{_ANY}", minimum=0
        ),
    }
    return _object(
        "How fast the replicas may change. What is absent is as in a HorizontalPodAutoscaler with an empty "
        "behavior.",
        {"scaleUp": _object("Upwards.", rules), "scaleDown": _object("Downwards.", rules)},
    )


def _fallback() -> JSON:
    rules = [
        _rule(
            f"self.type == '{kind}' ? has(self.{field}) : !has(self.{field})",
            f"{field} is needed for type {kind}, and for no other",
        )
        for kind, field in (
            (fastpath_autoscaler.FLOOR, "replicas"),
            (fastpath_autoscaler.LAST_GOOD, "lastGoodFor"),
        )
    ]
    properties = {
        "type": _choice(
            "Hold keeps the replicas; Floor keeps at least replicas; LastGood keeps at least what the "
            "metrics asked for last.",
            *fastpath_autoscaler.FALLBACKS,
        ),
        "after": _duration(
            "How long a metric has to be absent.",
            fastpath_autoscaler.AFTERS,
            default=_short(fastpath_autoscaler.AFTER),
        ),
        "replicas": _count("The floor.", 1),
        "lastGoodFor": _duration(
            "For how long the last good count is kept.", fastpath_autoscaler.LAST_GOOD_FORS
        ),
    }
    about = (
        "What holds when a metric has been absent for a while. It keeps or raises the replicas, it never "
        "lowers them."
    )
    return _object(about, properties, "type", *rules)


_PENDING_RULE = (
    "!has(self.pendingCapacity) || self.pendingCapacity.all(p, "
    "self.metrics.filter(m, has(m.external) && m.external.metric.name == p.metric && "
    "has(m.external.target.averageValue) || has(m.object) && m.object.metric.name == p.metric && "
    "m.object.target.type == 'AverageValue' && has(m.object.target.averageValue)).size() == 1)"
)
_PENDING_NEEDS = "one Object or External metric of that name in metrics, with averageValue"


def _pending_capacity() -> JSON:
    properties = {
        "metric": _segment(
            "The name of a metric of spec.metrics: an Object or External metric with a target of type "
            "AverageValue, and the only metric of this name."
        ),
        "podThroughput": _positive(
            "How many units of the metric one Ready pod works off in a second, such as 2 or 500m. A smaller "
            "value than the true one withholds less; a greater one asks for too few pods until those that "
            "are starting are Ready."
        ),
    }
    items = _object("A queue and what a pod works off.", properties, "metric podThroughput")
    about = (
        "Queues that count less what pods that are starting would have worked off. Pods that were asked for "
        "and are not Ready let a queue grow; for their learned start-up time that growth asks for no more "
        "pods. This only withholds raises: it never asks for more pods than exact arithmetic, and never "
        "scales down. It has no effect before a pod of the target was seen to start."
    )
    return _list(about, items, maxItems=fastpath_autoscaler.MOST_METRICS) | {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["metric"],
    }


def _spec() -> JSON:
    group = _rule(
        "self.kind == 'ReplicationController' || (has(self.apiVersion) && "
        "self.apiVersion.matches('^[^/]+/'))",
        "apiVersion must name an API group, such as apps/v1",
    )
    properties = {
        "scaleTargetRef": _reference("What is scaled.", group),
        "minReplicas": _count("The fewest replicas; 0 needs an Object or External metric.", 0, default=1),
        "maxReplicas": _count("The most replicas.", 1),
        "metrics": _metrics(),
        "behavior": _behavior(),
        "syncPeriod": _duration(
            "The longest time between two decisions.",
            fastpath_autoscaler.SYNC_PERIODS,
            default=_short(fastpath_autoscaler.SYNC_PERIOD),
        ),
        "mode": _choice(
            "Auto scales; Advise decides and tells, but does not scale; Paused does nothing.",
            *fastpath_autoscaler.MODES,
            default=fastpath_autoscaler.AUTO,
        ),
        "fallback": _fallback(),
        "pendingCapacity": _pending_capacity(),
    }
    rules = [
        _rule(
            "self.minReplicas <= self.maxReplicas", "maxReplicas must be greater than or equal to minReplicas"
        ),
        _rule(
            "self.minReplicas > 0 || self.metrics.exists(m, m.type == 'Object' || m.type == 'External')",
            "minReplicas 0 needs an Object or External metric",
        ),
        _rule(
            "!has(self.fallback) || !has(self.fallback.replicas) || self.fallback.replicas <= "
            "self.maxReplicas",
            "fallback.replicas must be less than or equal to maxReplicas",
        ),
        _rule(_PENDING_RULE, "pendingCapacity needs, for each metric, " + _PENDING_NEEDS),
    ]
    about = "The spec of an autoscaling/v2 HorizontalPodAutoscaler, and how Fastpath goes about it."
    return _object(about, properties, "scaleTargetRef maxReplicas", *rules)


# --- status ------------------------------------------------------------------------------------------------


def _status() -> JSON:
    current = _object(
        "What was measured.",
        {
            "value": _measured("The value."),
            "averageValue": _measured("The value per pod."),
            "averageUtilization": {
                "type": "integer",
                "format": "int32",
                "description": "Per cent of what is requested.",
            },
        },
    )
    plain = {"type": "string"}
    metric = _object("The metric.", {"name": plain, "selector": _selector()})
    described = _object("The object.", {"apiVersion": plain, "kind": plain, "name": plain})
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
    items |= {name: _object("As in spec.metrics.", properties) for name, properties in sources.items()}
    time = {"type": "string", "format": "date-time"}
    condition = _object(
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
    change = _object(
        "A change of the replicas.",
        {
            "change": {"type": "integer", "format": "int32", "description": "By how many; down is negative."},
            "time": time | {"description": "When."},
        },
        "change time",
    )
    credit = _object(
        "A queue with pending capacity.",
        {
            "metric": plain | {"description": "Its name."},
            "credit": _measured("What starting pods would have worked off, in units of the metric."),
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
        "currentReplicas": _count("The replicas as last seen.", 0),
        "desiredReplicas": _count("The replicas as last decided.", 0),
        "currentMetrics": _list("What the metrics were when last looked at.", _object("A metric.", items)),
        "conditions": _list("What is and is not so.", condition)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "recentChanges": _list("Changes that policies still count, oldest first.", change),
        "pendingCapacity": _list("What queues with pending capacity count less.", credit),
        "targets": plain | {"description": "What each metric was and what it is held at, for kubectl get."},
    }
    return _object("What the last decision came to; as of a HorizontalPodAutoscaler.", properties)


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> JSON:
    column = {"name": name, "type": kind, "jsonPath": path}
    if about:
        column["description"] = about
    return column | ({"priority": 1} if wide else {})


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


COLUMNS = [
    _column("Kind", ".spec.scaleTargetRef.kind", about="Kind of what is scaled."),
    _column("Reference", ".spec.scaleTargetRef.name", about="Name of what is scaled."),
    _column("Targets", ".status.targets", about="What each metric was and what it is held at."),
    _column("MinPods", ".spec.minReplicas", "integer"),
    _column("MaxPods", ".spec.maxReplicas", "integer"),
    _column("Replicas", ".status.currentReplicas", "integer", about="The replicas as last seen."),
    _column(
        "Able", _condition("AbleToScale", "status"), about="Whether the replicas can be read and written."
    ),
    _column("Active", _condition("ScalingActive", "status"), about="Whether the metrics give a count."),
    _column("Mode", ".spec.mode"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Desired", ".status.desiredReplicas", "integer", wide=True),
    _column(
        "AbleReason", _condition("AbleToScale", "reason"), wide=True, about="Why it is able to scale or not."
    ),
    _column(
        "ActiveReason", _condition("ScalingActive", "reason"), wide=True, about="Why it is active or not."
    ),
    _column("Limited", _condition("ScalingLimited", "reason"), wide=True, about="What limits the replicas."),
    _column("Period", ".spec.syncPeriod", wide=True),
    _column(
        "Scaled", ".status.lastScaleTime", "date", wide=True, about="When the replicas were last changed."
    ),
]


def definition() -> JSON:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _spec(),
        "status": _status(),
    }
    about = "Scales a workload as a HorizontalPodAutoscaler does, about a second after its load changed."
    group, _, version = fastpath_autoscaler.API_VERSION.partition("/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{fastpath_autoscaler.PLURAL}.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": fastpath_autoscaler.KIND,
                "listKind": f"{fastpath_autoscaler.KIND}List",
                "plural": fastpath_autoscaler.PLURAL,
                "singular": fastpath_autoscaler.KIND.lower(),
                "shortNames": ["fpa"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": COLUMNS,
                    "schema": {"openAPIV3Schema": _object(about, properties, "spec")},
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes everything out: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> str:
    head = """\
        # The kind FastPathAutoscaler, for Kubernetes 1.27 and later. Made by `python -m tests.support.crd`.
        """
    return textwrap.dedent(head) + yaml.dump(
        definition(), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )


if __name__ == "__main__":
    PATH.write_text(render())
