"""Workloads that shrink to half when the load falls, while their pods are unevenly busy, and deletion costs.

What a pod then has of the load and of the connections of its workload is drawn from two log-normal
distributions: a fifth of the pods have about five sixths. Connections say nothing about the load.
"""

import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Mapping

import aiohttp
import yaml

from adapter.model.autoscaling import boost, scale_down
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, PLURAL
from tests.e2e import stage, watching
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.support import sharing
from tests.support.boosting import UNIT, Load, Parts, Workload
from tests.support.waiting import running, until

COST = scale_down.COST_ANNOTATION
MANAGER = "fastpath-idle-scale-down"
IDLE: Mapping[str, Document | None] = {
    "fast": None,
    "fast-idle": {"prefer": "Idle"},
    "fast-connections": {"prefer": "Idle", "metric": "connections"},
    "boosted": None,
    "boosted-idle": {"prefer": "Idle"},
}
"""What the autoscalers of each kind say about pods to remove."""

_SPREAD = 2.3
WINDOW = 5
"""The stabilization window, in seconds: longer than what is foreseen of the HPA controller, and than all pods
take to be scraped once the load has moved."""


def level(pods: int) -> Load:
    """Return a load that needs so many pods."""
    return lambda _: (pods - 0.5) * UNIT


def fall(workload: Workload, seed: str) -> None:
    """Let the load need half of the pods, and move it between them."""
    dice = random.Random(seed)
    workload.load = level(workload.replicas // 2)
    for pod in workload.parts:
        workload.parts[pod] = Parts(dice.lognormvariate(0, _SPREAD), dice.lognormvariate(0, _SPREAD))


def workload(kind: str, name: str, pods: int, seconds: int = WINDOW) -> Workload:
    """Return a workload of a kind that needs the pods that it has, which is the most that it may have."""
    is_boosted = kind.startswith("boosted")
    window = {"stabilizationWindowSeconds": seconds}
    spec: Document = {"minReplicas": 1, "maxReplicas": pods, "behavior": {"scaleDown": window}}
    if IDLE[kind] and not is_boosted:
        spec["scaleDown"] = IDLE[kind]
    return Workload(name, "pods-scraped", level(pods), boost.EXTERNAL if is_boosted else "", spec, pods)


def objects(made: Workload, kind: str, namespace: str) -> list[Document]:
    found = sharing.objects(made, namespace)
    if made.way and IDLE[kind]:
        found[-1]["metadata"]["annotations"][scale_down.ANNOTATION] = "idle"
    return found


class World(stage.World):
    """These workloads on a control plane, their autoscalers of both kinds, and their pods as stored."""

    def __init__(self, cluster: ClusterUnderTest, session: aiohttp.ClientSession) -> None:
        super().__init__(cluster, session)
        self.pods: dict[str, Document] = {}

    @property
    def rules(self) -> str:
        """Return Fastpath's rules for what is shown, connections too."""
        rules = yaml.safe_load(super().rules)
        first = rules["rules"][0]
        rules["rules"].append(first | {"seriesQuery": first["seriesQuery"].replace("load", "connections")})
        return yaml.safe_dump(rules)

    async def add_kinds(self, workloads: Iterable[tuple[Workload, str]]) -> None:
        """Create workloads, each with an autoscaler of its kind."""
        namespace = self.cluster.namespace
        documents = []
        for made, kind in workloads:
            self.show(made, namespace)
            documents += objects(made, kind, namespace)
        await self.cluster.create(*documents)

    async def clear(self) -> None:
        """Delete the workloads, their autoscalers and pods; return when none of them runs."""
        within = f"namespaces/{self.cluster.namespace}"
        for path in (
            f"/apis/{GROUP}/v1alpha1/{within}/{PLURAL}",
            f"/apis/autoscaling/v2/{within}/horizontalpodautoscalers",
            f"/apis/apps/v1/{within}/deployments",
            f"/apis/apps/v1/{within}/replicasets",
            f"/api/v1/{within}/pods",
        ):
            async with self._session.delete(path) as response:
                assert response.status == 200, await response.text()
        await until(lambda: not self.pods, stage.WAIT)

    def costs(self, app: str) -> dict[str, str]:
        """Return the deletion costs that pods of a workload have."""
        return {
            name: document["metadata"]["annotations"][COST]
            for name, document in self.pods.items()
            if document["metadata"]["labels"]["app"] == app
            and COST in document["metadata"].get("annotations", ())
        }

    def is_settled(self, app: str) -> bool:
        """Tell whether the pods of a workload run and were scraped, and its autoscaler decides."""
        made = self.workloads[app]
        return (
            made.ready == made.replicas
            and self.scrapes[app] > 3 * made.replicas
            and self.is_active(app)
            and self.replicas(app) == made.replicas
        )

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{self.cluster.namespace}/{PLURAL}"
        async with super().watching(), running(watching.follow(self._session, path, self._saw_own)):
            yield

    def _saw_own(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self._hpas[document["metadata"]["name"]] = document

    def _saw_pod(self, kind: str, document: Document) -> None:
        super()._saw_pod(kind, document)
        if kind == "DELETED" or "deletionTimestamp" in document["metadata"]:
            self.pods.pop(document["metadata"]["name"], None)
        else:
            self.pods[document["metadata"]["name"]] = document
