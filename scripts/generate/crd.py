"""Generate the CustomResourceDefinitions in manifests/chart/files/crd: ``python -m scripts.generate.crd``.

The struct of a kind declares its fields, with their limits and descriptions, and `crd_schema` makes a schema
of it. Here is what a struct does not say of a FastPathAutoscaler: rules between fields, in CEL.
`crd_kubernetes` describes the fields that a HorizontalPodAutoscaler has too.
tests/model/autoscaling/test_schema.py compares the schema with the program.
"""

from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscalerSpec,
    FastPathAutoscalerStatus,
    PastChange,
)
from adapter.model.autoscaling.forecast import ForecastSpec
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from scripts.generate import crd_kubernetes, crd_schedules, crd_schema
from scripts.generate import crd_parts as parts
from scripts.generate.crd_parts import JSON, Table, field

PATH = parts.FOLDER / "fastpathautoscalers.yaml"

_SPEC: Table = {
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
        ),
        "pendingCapacity": field("", **parts.by("metric")),
    },
    fastpath_autoscaler.Fallback: {
        "": field(
            "",
            parts.needed("replicas", fastpath_autoscaler.FLOOR),
            parts.needed("lastGoodFor", fastpath_autoscaler.LAST_GOOD),
        )
    },
    ForecastSpec: {"timeZone": parts.time_zone("", default=ForecastSpec().time_zone)},
}

_STATUS: Table = {
    FastPathAutoscalerStatus: {
        "": field("status is the result of the last decision, with the fields of a HorizontalPodAutoscaler.")
    },
    PastChange: {"": field("", required="change time")},
    BacklogCredit: {"": field("", required="metric credit time"), "credit": parts.measured("")},
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
    return crd_schema.definition(
        "Scales a workload as a HorizontalPodAutoscaler does, about a second after its load changed.",
        {
            "kind": fastpath_autoscaler.KIND,
            "plural": fastpath_autoscaler.PLURAL,
            "shortNames": ["fpa"],
            "categories": ["all"],
        },
        (FastPathAutoscalerSpec, crd_kubernetes.SPEC | _SPEC),
        (FastPathAutoscalerStatus, crd_kubernetes.STATUS | _STATUS),
        COLUMNS,
    )


if __name__ == "__main__":
    PATH.write_text(parts.render(definition()))
    crd_schedules.PATH.write_text(parts.render(crd_schedules.definition()))
