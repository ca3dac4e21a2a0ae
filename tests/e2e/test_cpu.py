"""Autoscalers on CPU, of pods that are real processes and expose their own usage, beside the real controller.

The metrics API is held while the loads step. So what is written then was decided on what the pods expose, and
the HPA controller, which sees no step yet, would take it back without the floor.
"""

import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from adapter.model.autoscaling.status import FAST_USAGE
from scripts.generate import crd, crd_schedules
from tests.e2e import aggregation, nodes
from tests.e2e.aggregation import NAMESPACE
from tests.e2e.clusters import ClusterUnderTest
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.nodes import KINDS, Nodes
from tests.e2e.test_aggregation import until
from tests.support import waiting
from tests.support.adapter import RunningAdapter
from tests.support.scalewrites import BOOSTER, NATIVE, Audit
from tests.world import watching
from tests.world.workloads import CLOCK

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

WAIT = 90.0
PERIOD = 4.0
CALM, HIGH, REQUEST = 0.1, 0.3, 0.2
"""The cores of a workload, and of a pod's request."""
NEEDED = 3
"""HIGH over the target, which is 60 % of the request. One pod under CALM is at 0.83 of the target: the HPA
controller would take back every raise for that."""
CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
RULES = "resourceRules: {cpu: {scrape: {port: PORT, interval: 500ms, window: 2s}}}"
FLAGS = (
    "--scaler",
    "--local-address=",
    "--scrape-pod-cidrs=127.0.0.0/8",
)


class Scene(NamedTuple):
    """A workload of each kind, named like it, on a control plane with an adapter that scales."""

    cluster: ClusterUnderTest
    adapter: RunningAdapter
    pods: Nodes
    audit: Audit

    async def fast_usage(self, name: str) -> dict[str, str]:
        """Return the condition of an autoscaler's fast usage."""
        answer = await self.adapter.get(f"/debug/fastpath/autoscalers/{self.cluster.namespace}/{name}")
        conditions = (answer.body.get("status") or {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == FAST_USAGE), {})

    def syncs(self) -> int:
        """Return how often the HPA controller has read the CPU of the boosted workload."""
        return self.pods.metrics.asked[CONTROLLER, "boosted"]

    async def more_syncs(self, count: int) -> None:
        """Return after the HPA controller has looked at the boosted workload so many times more."""
        before = self.syncs()
        await waiting.until(lambda: self.syncs() >= before + count, WAIT)


@pytest.fixture
async def scene(fronted: Fronted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)  # as the manifests do: leases and floors are there
    cluster, backend = fronted
    audit = Audit(CLOCK.wall, WAIT)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(watching.connect(cluster))
        pods = Nodes(session, cluster.namespace, PERIOD, backend.authority.server_context())
        await stack.enter_async_context(pods.running())
        await stack.enter_async_context(watching.auditing(session, cluster.namespace, NAMESPACE, audit))
        for path in (crd.PATH, crd_schedules.PATH):
            await cluster.kubectl("apply", "--validate=false", "-f", str(path))
        (tmp_path / "rules.yaml").write_text(RULES.replace("PORT", str(pods.port)))
        registered = await stack.enter_async_context(
            aggregation.register(
                cluster,
                backend,
                tmp_path,
                "http://127.0.0.1:9",  # no rule asks it
                *FLAGS,
                components=("external", "resource", "scaler-in-process"),
                group_versions=("v1beta1.external.metrics.k8s.io",),
            )
        )
        await aggregation.apply(cluster, *nodes.registration(nodes.METRICS, NAMESPACE, pods.metrics.port))
        await backend.wait_available(cluster, [nodes.METRICS])
        for kind in KINDS:
            pods.use(kind, CALM)
            await cluster.create(*nodes.workload(kind, kind, cluster.namespace, REQUEST))
        yield Scene(cluster, registered.adapter, pods, audit)
        await cluster.kubectl("delete", "hpa,fpa,deployments.apps", "--all", "-n", cluster.namespace)


def _holds(condition: dict[str, str]) -> bool:
    return condition.get("status") == "True"


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_a_step_is_answered_before_the_metrics_api_serves_it(scene: Scene) -> None:
    pods, audit = scene.pods, scene.audit
    for name in ("boosted", "fast"):
        await until(_holds, functools.partial(scene.fast_usage, name))
    assert audit.writes == []

    pods.metrics.held = True
    for name in KINDS:
        pods.use(name, HIGH)
    await waiting.until(lambda: all(audit.raises(name) for name in ("boosted", "fast")), WAIT)
    await waiting.until(lambda: all(pods.count(name) == NEEDED for name in ("boosted", "fast")), WAIT)
    await scene.more_syncs(5)
    assert pods.metrics.cores("boosted") < 1.5 * CALM, "what the HPA controller reads is still calm"
    assert {(write.target.name, write.by) for write in audit.writes} == {
        ("boosted", BOOSTER),
        ("fast", BOOSTER),
    }

    pods.metrics.held = False
    await waiting.until(lambda: pods.count("plain") == NEEDED, WAIT)
    await waiting.until(lambda: pods.metrics.cores("boosted") > 0.9 * HIGH, WAIT)
    await scene.more_syncs(5)
    assert {write.by for write in audit.of("plain")} == {NATIVE}
    assert [write for write in audit.writes if write.after < write.before or write.after > NEEDED] == []
    assert [write for write in audit.unpublished if write.target.name == "boosted"] == []
