"""Autoscalers, pods and syncs for tests of decisions: short to write, complete to decide on."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from adapter.autoscaler.decide.calculator import Situation
from adapter.autoscaler.decide.history import History, Recommendation, ScaleEvent, queued
from adapter.autoscaler.decide.observation import Band, PodsReading, Settings
from adapter.autoscaler.decide.prepared_spec import PreparedSpec, prepare
from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar, reshape, with_defaults
from adapter.model.autoscaling.pending_capacity import PendingCapacity
from adapter.model.objects.pods import Container, PodFacts, ResourceRequirements
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND, read_instant

NOW = read_instant("2026-11-20T12:00:00Z")
NOTHING: Mapping[str, Any] = MappingProxyType({})


def pod(
    name: str = "web-0",
    *,
    cpu: str | None = "1",
    memory: str | None = None,
    started: float | None = 3600,
    ready: str | None = "True",
    ready_for: float = 3500,
    phase: str = "Running",
    deleting: bool = False,
    containers: Sequence[Container] = (),
    **facts: Any,
) -> PodFacts:
    """Return a pod, by default of one container; `started` and `ready_for` are seconds before NOW."""
    requests = {name: read(text) for name, text in (("cpu", cpu), ("memory", memory)) if text is not None}
    return PodFacts(
        name,
        phase,
        deleting=deleting,
        started=None if started is None else NOW - int(started * SECOND),
        ready=ready,
        ready_since=NOW - int(ready_for * SECOND),
        containers=tuple(containers) or (Container("app", ResourceRequirements(requests)),),
        **facts,
    )


def pods(count: int, **facts: Any) -> list[PodFacts]:
    """Return pods ``web-0``, ``web-1`` and so on, all alike."""
    return [pod(f"web-{number}", **facts) for number in range(count)]


def reading(*values: int | None, ago: float = 15, window: float = 15) -> PodsReading:
    """Return what ``web-0``, ``web-1`` and so on measured, in thousandths; None is a pod without a sample."""
    known = {f"web-{number}": value for number, value in enumerate(values) if value is not None}
    return PodsReading(known, dict.fromkeys(known, (NOW - int(ago * SECOND), int(window * SECOND))))


def situation(
    replicas: int,
    listed: Sequence[PodFacts] = (),
    *,
    exist: int | None = None,
    tolerated: Band | None = None,
    settings: Settings | None = None,
) -> Situation:
    """Return what calculators look at; as many replicas exist as are asked for, unless said otherwise."""
    exist = replicas if exist is None else exist
    return Situation(replicas, exist, listed, tolerated or Band(0.9, 1.1), settings or Settings(), NOW)


Kind = TypeVar("Kind", bound=HorizontalPodAutoscaler | FastPathAutoscaler)


def document(
    metrics: Sequence[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] = NOTHING,
    /,
    kind: str = "FastPathAutoscaler",
    **spec: Any,
) -> dict[str, Any]:
    """Return an autoscaler of the Deployment of its name, ``shop/web`` unless `meta` says otherwise."""
    version = "autoscaling/v2" if kind == "HorizontalPodAutoscaler" else "fastpath.io/v1alpha1"
    metadata = {"name": "web", "namespace": "shop"} | dict(meta)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"]}
    spec = {"scaleTargetRef": target, "maxReplicas": 10} | spec
    if metrics:
        spec["metrics"] = list(metrics)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def read_spec(
    kind: type[Kind], metrics: Sequence[Mapping[str, Any]], meta: Mapping[str, Any] = NOTHING, **spec: Any
) -> Kind:
    return msgspec.convert(document(metrics, meta, kind=kind.__name__, **spec), kind, dec_hook=decode_scalar)


def hpa(metrics: Sequence[Mapping[str, Any]] = (), **spec: Any) -> HorizontalPodAutoscaler:
    """Return a defaulted autoscaler; `spec` are fields of the API."""
    made = read_spec(
        HorizontalPodAutoscaler, metrics, {"namespace": "default"}, **{"maxReplicas": 1000} | spec
    )
    return msgspec.structs.replace(made, spec=with_defaults(made.spec))


def with_pending(scaler: HorizontalPodAutoscaler, **throughputs: str) -> HorizontalPodAutoscaler:
    """Return an autoscaler with pending capacity: what one pod works off in a second, by metric."""
    listed = tuple(PendingCapacity(name, read(text)) for name, text in throughputs.items())
    spec = reshape(scaler.spec, FastPathAutoscalerSpec, pending_capacity=listed or None)
    return msgspec.structs.replace(scaler, spec=spec)


def autoscaler(
    metrics: Sequence[Mapping[str, Any]] = (), settings: Settings | None = None, **spec: Any
) -> PreparedSpec:
    """Return an autoscaler ready for decisions."""
    return prepare(hpa(metrics, **spec), settings or Settings())


def pods_metric(target: str = "1", name: str = "load") -> dict[str, Any]:
    return {
        "type": "Pods",
        "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": target}},
    }


def cpu_metric(utilization: int = 80) -> dict[str, Any]:
    """Return a metric of cpu in per cent of requests."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def external_metric(name: str = "queue", **target: str) -> dict[str, Any]:
    """Return an external metric with `value` or `averageValue`."""
    return {"type": "External", "external": {"metric": {"name": name}, "target": {"type": "Value", **target}}}


def object_metric(kind: str, **target: str) -> dict[str, Any]:
    """Return a metric of the Ingress ``main`` with a target of type `kind`."""
    described = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}
    source = {"metric": {"name": "hits"}, "describedObject": described, "target": {"type": kind, **target}}
    return {"type": "Object", "object": source}


def remembered(
    *entries: tuple[int, float],
    ups: Sequence[tuple[int, float]] = (),
    downs: Sequence[tuple[int, float]] = (),
) -> History:
    """Return a history of ``(count, seconds before NOW)``."""

    def at(age: float) -> int:
        return NOW - round(age * SECOND)

    return History(
        queued(Recommendation(count, at(age)) for count, age in entries),
        tuple(ScaleEvent(change, at(age)) for change, age in ups),
        tuple(ScaleEvent(change, at(age)) for change, age in downs),
    )


class StartingPods:
    """Pods by when they were made, and for how long each starts, in seconds after NOW."""

    def __init__(self, count: int, startup: Callable[[], float]) -> None:
        self.made: list[tuple[float, float]] = [(-10_000.0, 0.0)] * count
        self._startup = startup

    def ready(self, second: int) -> int:
        return sum(second >= made + startup for made, startup in self.made)

    def scale(self, replicas: int, second: int) -> None:
        more = replicas - len(self.made)
        self.made = self.made[:replicas] + [(float(second), self._startup()) for _ in range(more)]

    def created(self, made: int, startup: float, second: int) -> int:
        return made

    def pods(self, second: int) -> list[PodFacts]:
        return [
            PodFacts(
                f"web-{number}",
                "Running" if second >= made + startup else "Pending",
                ready="True" if second >= made + startup else "False",
                ready_since=NOW + round((made + startup) * SECOND),
                created=NOW + self.created(int(made), startup, second) * SECOND,
            )
            for number, (made, startup) in enumerate(self.made)
        ]


def conditions_of(decision: Decision) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {each.type: (each.status, each.reason) for each in decision.status.conditions or ()}
