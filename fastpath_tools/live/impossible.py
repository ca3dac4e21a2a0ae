"""What an autoscaler asks for that its target and its pods can never give, as their objects say it.

Pure. Such a cause comes before what a controller makes of it: waiting does not end it, only an edit does.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from adapter.autoscaler.decide import prepared_spec
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.model.autoscaling import validation
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, MetricTarget, with_defaults
from adapter.model.quantity import Quantity
from fastpath_tools.live.facts import ContainerFacts, TargetFacts, Unread

_RESOURCES = ("cpu", "memory")
"""What metrics.k8s.io has."""

_OWNERS = ("Deployment ", "Rollout ", "DeploymentConfig ")
"""Kinds that set the count of the workloads that they make."""


class Impossible(NamedTuple):
    """What cannot be, and the edit that ends it."""

    text: str
    change: str


def find(autoscaler: HorizontalPodAutoscaler, target: TargetFacts | Unread) -> Impossible | None:
    """Return the first cause, None for none; `autoscaler` has the spec, of whichever kind it is."""
    return next(_causes(autoscaler, target), None)


def find_unknown(autoscaler: HorizontalPodAutoscaler, field: str = "spec") -> str:
    """Return what is wrong with the first type or selectPolicy below a field that this version does not know.

    The API server may be newer, and then it is right. "" if all are known.
    """
    violations = validation.validate(replace(autoscaler, spec=with_defaults(autoscaler.spec)), stored=True)
    unknown = (one for one in violations if one.path.endswith((".type", ".selectPolicy")))
    return next((str(one) for one in unknown if one.path.startswith(f"{field}.")), "")


def prepare(autoscaler: HorizontalPodAutoscaler) -> PreparedSpec:
    """Prepare an autoscaler without its metrics, whose types may be newer than this version."""
    spec = replace(with_defaults(autoscaler.spec), metrics=())
    return prepared_spec.prepare(replace(autoscaler, spec=spec), Settings())


def _causes(autoscaler: HorizontalPodAutoscaler, target: TargetFacts | Unread) -> Iterator[Impossible]:
    spec = with_defaults(autoscaler.spec)
    name = f"{spec.scale_target_ref.kind} {spec.scale_target_ref.name}"
    if isinstance(target, Unread):
        if target.change:
            yield Impossible(target.why, target.change)
        return
    if target.owner.startswith(_OWNERS):
        text = f"{name} belongs to {target.owner}, which sets its count"
        yield Impossible(text, f"name {target.owner} in spec.scaleTargetRef")
    least = 1 if spec.min_replicas is None else spec.min_replicas
    if least > spec.max_replicas > 0:
        text = f"minReplicas, {least}, is above maxReplicas, {spec.max_replicas}"
        yield Impossible(text, "raise spec.maxReplicas, or lower spec.minReplicas")
    if not target.selector:
        text = f"the Scale of {name} has no selector, so its pods are not known"
        yield Impossible(text, f"have the kind {spec.scale_target_ref.kind} set status.selector of its Scale")
    high = prepare(autoscaler).band.high
    for place, metric in enumerate(spec.metrics or ()):
        source = metric.resource or metric.container_resource
        if source is None:
            continue
        field, container = f"spec.metrics[{place}]", getattr(source, "container", "")
        if source.name not in _RESOURCES:
            text = f"{field} is of resource {source.name}, and metrics.k8s.io has only cpu and memory"
            yield Impossible(text, "use cpu or memory, or a metric of pods")
            continue
        counted = [one for one in target.containers if container in {"", one.name}]
        if container and target.containers and not counted:
            names = ", ".join(one.name for one in target.containers)
            text = f"no pod of {name} has a container {container}, which {field} names: they have {names}"
            yield Impossible(text, f"correct the container in {field}")
        yield from _unreachable(field, name, source.name, source.target, counted, high)


def _unreachable(
    field: str,
    name: str,
    resource: str,
    target: MetricTarget,
    containers: Sequence[ContainerFacts],
    high: float,
) -> Iterator[Impossible]:
    """Yield why a usage has no utilization, or never exceeds its target: containers end at their limits."""
    requests = [one.requests.get(resource) for one in containers]
    limits = [one.limits.get(resource) for one in containers]
    share = target.average_utilization
    if share is not None and None in requests:
        lacking = containers[requests.index(None)].name
        text = f"container {lacking} of {name} has no request for {resource}, of which {field} is a share"
        yield Impossible(text, f"set resources.requests.{resource} of container {lacking}")
    elif containers and None not in limits:
        most = _sum(limits)
        goal = 0.0
        if share is not None:
            goal = _sum(requests) * share / 100
        elif target.average_value is not None:
            goal = float(target.average_value.approximate())
        if goal and most <= goal * high:
            text = (
                f"the limits of {name} end {resource} at {100 * most / goal:.0f} % of the target of {field}, "
                "so it never asks for more pods"
            )
            yield Impossible(text, f"lower the target of {field}, or raise the limits")


def _sum(quantities: Sequence[Quantity | None]) -> float:
    return float(sum(one.approximate() for one in quantities if one is not None))
