"""Workloads that shrink to half when the load falls, while their pods are unevenly busy, and deletion costs.

What a pod then has of the load is drawn from a log-normal distribution: a fifth of the pods have about five
sixths.
"""

import random

from adapter.model.autoscaling import scale_down
from adapter.model.objects.pods import COST_ANNOTATION as COST
from tests.world.clusters import Document
from tests.world.workloads import Workload, level
from tests.world.world import World

MANAGER = "fastpath-idle-scale-down"
KINDS = ("fast-idle", "boosted-idle")
"""A FastPathAutoscaler and a boosted HPA, both of which remove the idlest pods first."""
_SPREAD = 2.3
WINDOW = 5
"""The stabilization window, in seconds: longer than what is foreseen of the HPA controller, and than all pods
take to be scraped once the load has moved."""


def fall(workload: Workload, seed: str) -> None:
    """Let the load need half of the pods, and move it between them."""
    dice = random.Random(seed)
    workload.load = level(workload.replicas // 2)
    for pod in workload.parts:
        workload.parts[pod] = dice.lognormvariate(0, _SPREAD)


def workload(kind: str, name: str, pods: int, seconds: int = WINDOW) -> Workload:
    """Return a workload of a kind that needs the pods that it has, which is the most that it may have."""
    spec: Document = {"minReplicas": 1, "maxReplicas": pods}
    spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": seconds}}
    if kind == "boosted-idle":
        annotations = {scale_down.ANNOTATION: "idle"}
        return Workload(name, "pods-scraped", level(pods), spec=spec, replicas=pods, annotations=annotations)
    spec["scaleDown"] = {"prefer": "Idle"}
    return Workload(name, "pods-scraped", level(pods), "", spec, pods, own=True)


def costs(world: World, app: str) -> dict[str, str]:
    """Return the deletion costs that pods of a workload have."""
    return {
        name: document["metadata"]["annotations"][COST]
        for name, document in world.seen["pods"].items()
        if document["metadata"]["labels"]["app"] == app
        and COST in document["metadata"].get("annotations", ())
    }


def is_settled(world: World, app: str) -> bool:
    """Tell whether the pods of a workload run and were scraped, and its autoscaler decides."""
    made = world.workloads[app]
    return (
        made.ready == made.replicas
        and world.scrapes[app] > 3 * made.replicas
        and world.is_active(app)
        and world.replicas(app) == made.replicas
    )
