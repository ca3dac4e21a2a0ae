"""The objects of one namespace, as watches show them, with the audit of all writes of counts.

It does what kubelets do, so that pods run.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Self

import aiohttp

from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, PLURAL
from tests.support.waiting import running
from tests.world import controllers, watching
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.loads import Loads
from tests.world.naive import MANAGER
from tests.world.scalewrites import Audit, Place
from tests.world.workloads import CLOCK, HOLD, HOME

WAIT = 90.0
STARTUP = 0.3
"""Seconds until a pod is ready."""


class Condition(NamedTuple):
    status: str
    reason: str
    message: str


class View(Loads):
    """What a story sees. `startup` gives the seconds until a pod is ready."""

    def __init__(
        self,
        cluster: ClusterUnderTest,
        session: aiohttp.ClientSession,
        startup: float | Callable[[], float] = STARTUP,
    ) -> None:
        super().__init__(cluster.namespace)
        self.cluster = cluster
        self.startup = startup
        self.audit = Audit(CLOCK.wall, HOLD)
        # it raises for steps alone, which are right for good, and a starved controller reverses them late
        self.naive = Audit(CLOCK.wall, WAIT, booster=MANAGER)
        self.seen: defaultdict[str, dict[str, Document]] = defaultdict(dict)
        """The objects of the cluster by plural and name."""
        self._session = session
        self._starting: dict[str, tuple[float, str]] = {}

    @property
    def is_real(self) -> bool:
        return self.cluster.backend.sandbox is None

    def place(self, name: str) -> Place:
        return Place(self.namespace, name)

    def replicas(self, name: str) -> int:
        """Return what a Deployment is told to have."""
        return self.audit.count(self.place(name))

    def autoscaler(self, name: str) -> Document:
        """Return the autoscaler of a name, of either kind."""
        return self.seen["horizontalpodautoscalers"].get(name) or self.seen[PLURAL].get(name) or {}

    def condition(self, name: str, kind: str) -> Condition:
        """Return a condition of an autoscaler or a schedule; status "" while it has none of the kind."""
        of = self.autoscaler(name) or self.seen["fastpathschedules"].get(name) or {}
        for each in of.get("status", {}).get("conditions") or ():
            if each["type"] == kind:
                return Condition(each["status"], each["reason"], each["message"])
        return Condition("", "", "")

    def is_active(self, name: str) -> bool:
        """Tell whether the metrics of an autoscaler are read."""
        return self.condition(name, "ScalingActive").status == "True"

    def is_right(self, name: str) -> bool:
        """Tell whether a count is within tolerance of what the load needs."""
        return abs(self.need(name) / max(1, self.replicas(name)) - 1) <= 0.1

    def floor(self, name: str) -> int:
        """Return the floor that is published for a workload now."""
        return self.audit.published(self.place(name), CLOCK.wall())

    def floors(self) -> list[str]:
        """Return the workloads with a floor."""
        return [name for name in self.workloads if self.floor(name)]

    def events(self, name: str) -> list[Document]:
        return [each for each in self.seen["events"].values() if each["involvedObject"]["name"] == name]

    def told(self, name: str, *reasons: str) -> list[str]:
        """Return the messages of events about an autoscaler, each as often as it was told."""
        found = [each for each in self.events(name) if each["reason"] in reasons]
        return [each["message"] for each in found for _ in range(each.get("count") or 1)]

    async def patch(self, path: str, change: Document, **parameters: str) -> None:
        """Merge a change into what is at a path."""
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(
            path, params=parameters, data=json.dumps(change), headers=headers
        ) as response:
            assert response.status in {200, 404}, await response.text()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Self]:
        """Follow the cluster, and start its pods, until the block ends."""
        of_home = {"labelSelector": f"{floors.LABEL}=true"}
        watches = [
            self._watch(f"{self._within('/apis/apps/v1')}/deployments", self._saw_target),
            self._watch(
                f"{self._within('/apis/autoscaling/v2')}/horizontalpodautoscalers", self._saw_autoscaler
            ),
            self._watch(f"{self._within(f'/apis/{GROUP}/v1alpha1')}/{PLURAL}"),
            self._watch(f"{self._within(f'/apis/{GROUP}/v1alpha1')}/fastpathschedules"),
            self._watch(f"/api/v1/namespaces/{HOME}/configmaps", self._saw_floors, **of_home),
            self._watch(f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"),
            self._watch(f"{self._within('/api/v1')}/events"),
            self._watch(f"{self._within('/api/v1')}/pods", self._saw_pod),
            self._start_pods(),
        ]
        async with running(*watches):
            yield self

    def _within(self, api: str) -> str:
        return f"{api}/namespaces/{self.namespace}"

    async def _watch(
        self, path: str, saw: Callable[[str, Document], None] | None = None, **parameters: str
    ) -> None:
        known = self.seen[path.rpartition("/")[2]]

        def see(kind: str, document: Document) -> None:
            name = document["metadata"]["name"]
            if kind == "DELETED" or "deletionTimestamp" in document["metadata"]:
                known.pop(name, None)
            else:
                known[name] = document
            if saw is not None:
                saw(kind, document)

        await watching.follow(self._session, path, see, **parameters)

    def _saw_target(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self.audit.saw_target(document)
            self.naive.saw_target(document)

    def _saw_autoscaler(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self.audit.saw_autoscaler(document)
            self.naive.saw_autoscaler(document)

    def _saw_floors(self, kind: str, document: Document) -> None:
        if kind != "DELETED":
            self.audit.saw_floors(document)

    def _saw_pod(self, kind: str, document: Document) -> None:
        name, status = document["metadata"]["name"], document["status"]
        app = document["metadata"].get("labels", {}).get("app", "")
        if kind == "DELETED" or "deletionTimestamp" in document["metadata"]:
            self._starting.pop(name, None)
            self.pod_ends(name)
        elif kind == "ADDED" and not status.get("podIP") and app in self.workloads:
            seconds = self.startup if isinstance(self.startup, int | float) else self.startup()
            self._starting[name] = CLOCK.monotonic() + seconds, app

    async def _start_pods(self) -> None:
        """Do what kubelets do once containers run: pods take their share at that moment."""
        while True:
            now = CLOCK.monotonic()
            for name in [name for name, (due, _) in self._starting.items() if due <= now]:
                if name not in self._starting:  # it ended meanwhile
                    continue
                _, app = self._starting.pop(name)
                address = self.free.popleft()
                self.pod_runs(name, app, address)
                status = controllers.started(self.seen["pods"][name], address, is_real=self.is_real)
                await self.patch(f"{self._within('/api/v1')}/pods/{name}/status", {"status": status})
            await asyncio.sleep(0.02)
