"""Workloads of all metric kinds under changing loads, with their autoscalers.

Durations are those of a cluster divided by about fifteen: the native controller looks once a second.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapter.autoscaler.decide.observation import Settings
from adapter.compose.clock import SystemClock
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, KIND
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.model.timestamps import SECOND
from fastpath_sandbox.apiserver.workloads import deployment

CLOCK = SystemClock()
NAMESPACE = "shop"
HOME = "fastpath"
"""The namespace of Fastpath itself."""
BOOSTED, OWN = "boosted", "own"
"""Names of the two workloads of `World.pair`."""
PERIOD = 1.0
"""Of the native controller."""
HOLD = 3.0
LIMITS = (2, 12)
UNIT = 10.0
"""How much load one pod takes."""
LOW, HIGH = 2 * UNIT, 6 * UNIT
STABILIZATION = 5
"""Longer than metrics are late: with less the native controller swings by itself."""
SETTINGS = Settings(
    cpu_initialization_period=0, initial_readiness_delay=0, downscale_stabilization=STABILIZATION * SECOND
)
"""Of the stand-in of the native controller."""
FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--metrics-relist-interval=2s",
    "--metrics-max-age=60s",
)
STANDIN_FLAGS = (
    *FLAGS,
    f"--horizontal-pod-autoscaler-downscale-stabilization={STABILIZATION}s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
)
"""Those of Fastpath that have to be the same as SETTINGS."""
HASTY = (
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)
"""Flags for short leases."""
CORES = 0.005
"""What one of a load costs; a pod asks for 0.1, so that its share is half of what it asked for."""

RATIOS = ("saturation", "pressure")
"""The metrics that are of one pod and not of all."""

Document = dict[str, Any]
Load = Callable[[float], float]
"""The load at so many seconds after its beginning; before that it is what it is at a negative number."""


# --- loads -------------------------------------------------------------------------------------------------


def step(low: float = LOW, high: float = HIGH) -> Load:
    """Return a load that is high from its beginning on."""
    return lambda after: low if after < 0 else high


def level(pods: int) -> Load:
    """Return a load that needs so many pods."""
    return lambda _: max(0.0, pods - 0.5) * UNIT


def spike(width: float = 2.0) -> Load:
    """Return a load with a spike that is shorter than the native controller's delay."""
    return lambda after: HIGH if 0 <= after < width else LOW


def _sawtooth(after: float) -> float:
    """Climb and fall at once, twice, and stay half way then."""
    tooth, position = divmod(after, 4.0)
    return LOW if after < 0 else LOW + (HIGH - LOW) * (position / 4.0 if tooth < 2 else 0.5)


SHAPES: dict[str, Load] = {"step": step(), "spike": spike(), "sawtooth": _sawtooth}


# --- metrics -----------------------------------------------------------------------------------------------


def _custom(kind: str, name: str, target: str, of: str = "") -> Document:
    amount = {"type": target, "value" if target == "Value" else "averageValue": f"{UNIT:g}"}
    source: Document = {"metric": {"name": name}, "target": amount}
    if kind == "Object":
        source["describedObject"] = {"apiVersion": "v1", "kind": "Service", "name": of}
    if kind == "External":
        source["metric"]["selector"] = {"matchLabels": {"queue": of}}
    return {"type": kind, kind.lower(): source}


def _cpu(*, percent: bool, container: str = "") -> Document:
    target: Document = {"type": "AverageValue", "averageValue": f"{UNIT * CORES * 1000:g}m"}
    if percent:
        target = {"type": "Utilization", "averageUtilization": 50}
    if container:
        source = {"name": "cpu", "container": container, "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


METRICS: dict[str, Callable[[str], list[Document]]] = {
    "pods-scraped": lambda _: [_custom("Pods", "load", "AverageValue")],
    "pods": lambda _: [_custom("Pods", "busy", "AverageValue")],
    "object-average": lambda name: [_custom("Object", "hits", "AverageValue", name)],
    "object-value": lambda name: [_custom("Object", "saturation", "Value", name)],
    "external-average": lambda name: [_custom("External", "backlog", "AverageValue", name)],
    "external-value": lambda name: [_custom("External", "pressure", "Value", name)],
    "cpu-percent": lambda _: [_cpu(percent=True)],
    "cpu": lambda _: [_cpu(percent=False)],
    "container-cpu": lambda name: [_cpu(percent=True, container=name)],
    "several": lambda name: [
        _custom("Pods", "load", "AverageValue"),
        _custom("External", "backlog", "AverageValue", name),
    ],
}
"""The metrics of a workload by kind, from its name. Each of them wants a pod for UNIT of load."""

HEARD_AT_ONCE = ("object-value", "external-value")
"""The kinds that rest on RATIOS alone."""

AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
"""The behavior of an autoscaler that shrinks without waiting."""
BEHAVIOR = {
    "scaleUp": {
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 1},
            {"type": "Percent", "value": 100, "periodSeconds": 1},
        ]
    },
    "scaleDown": {"stabilizationWindowSeconds": STABILIZATION},
}


@dataclass(slots=True)
class Workload:
    """A Deployment of its own name with its autoscaler.

    `way` is how the latter reads its floor, "" where it is not boosted; `own` makes it a FastPathAutoscaler.
    """

    name: str
    metrics: str
    load: Load
    way: str = model.EXTERNAL
    spec: Document = field(default_factory=lambda: {"behavior": BEHAVIOR})
    replicas: int = LIMITS[0]
    own: bool = False
    hold: str = f"{HOLD:g}s"
    annotations: dict[str, str] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    """What each ready pod takes of the load, as a weight."""

    @property
    def ready(self) -> int:
        return len(self.parts)

    def share(self, pod: str) -> float:
        """Return the share of a ready pod, from 0 to 1."""
        return self.parts[pod] / sum(self.parts.values())

    def objects(self, namespace: str, *, autoscaled: bool = True) -> list[Document]:
        """Return all that there is of it in a cluster."""
        spec = {"clusterIP": "None", "ports": [{"port": 80}]}
        service: Document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name}}
        found = [service | {"spec": spec}, self.deployment(), *([self.autoscaler()] if autoscaled else [])]
        for each in found:
            each["metadata"]["namespace"] = namespace
        return found

    def autoscaler(self) -> Document:
        metrics = METRICS[self.metrics](self.name)
        annotations = dict(self.annotations)
        if self.way:
            annotations |= {model.MODE_ANNOTATION: "boost", model.HOLD_ANNOTATION: self.hold}
            metrics = [*metrics, handshake(self.name, self.way)]
        return {
            "apiVersion": f"{GROUP}/v1alpha1" if self.own else "autoscaling/v2",
            "kind": KIND if self.own else "HorizontalPodAutoscaler",
            "metadata": {"name": self.name, "annotations": annotations},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "minReplicas": LIMITS[0],
                "maxReplicas": LIMITS[1],
                "metrics": metrics,
                **self.spec,
            },
        }

    def second(self, *, own: bool) -> Document:
        """Return another autoscaler of the same Deployment, of ours or an HPA."""
        twin = Workload(self.name, self.metrics, self.load, "", {}, own=own).autoscaler()
        twin["metadata"]["name"] = f"second-{self.name}"
        return twin

    def deployment(self) -> Document:
        """Return the Deployment; its container is named as it is and asks for cpu."""
        made: Document = deployment(self.name, replicas=self.replicas)
        container = made["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        return made


def handshake(name: str, way: str) -> Document:
    """Return the metric by which an autoscaler reads its floor."""
    plain: Document = msgspec.to_builtins(model.handshake(name, way), enc_hook=encode_scalar)
    return plain


def fleet(count: int, *, boosted: bool = True, prefix: str = "web") -> list[Workload]:
    """Return so many workloads: metric kinds and load shapes in turn, and both forms of the handshake.

    A third of them has no behavior: the native controller uses its legacy algorithm there.
    """
    kinds, shapes = list(METRICS), list(SHAPES)
    ways = (model.EXTERNAL, model.OBJECT)
    return [
        Workload(
            f"{prefix}-{number:02}-{shapes[number % len(shapes)]}",
            kinds[number % len(kinds)],
            SHAPES[shapes[number % len(shapes)]],
            ways[number % 2] if boosted else "",
            {} if number % 3 == 2 else {"behavior": BEHAVIOR},
        )
        for number in range(count)
    ]


def jumping(workloads: Iterable[Workload]) -> list[str]:
    """Return the workloads whose load jumps, and which a native controller with late metrics notices late."""
    return [
        each.name for each in workloads if "sawtooth" not in each.name and each.metrics not in HEARD_AT_ONCE
    ]
