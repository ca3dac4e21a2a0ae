"""Autoscalers on CPU, of pods that are real processes and expose their own usage, beside the real controller.

The metrics API is held while the loads step. So what is written then was decided on what the pods expose, and
the HPA controller, which sees no step yet, would take it back without the floor.
"""

import asyncio
import functools
from pathlib import Path

import pytest

from adapter.model.autoscaling.status import FAST_USAGE
from tests.e2e import nodes
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.nodes import KINDS, Nodes
from tests.e2e.test_aggregation import until
from tests.world import aggregation, watching
from tests.world.scalewrites import BOOSTER, NATIVE
from tests.world.workloads import HOME
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

PERIOD = 4.0
CALM, HIGH, REQUEST = 0.1, 0.3, 0.2
"""The cores of a workload, and of a pod's request."""
NEEDED = 3
"""HIGH over the target, which is 60 % of the request. One pod under CALM is at 0.83 of the target: the HPA
controller would take back every raise for that."""
CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
RULES = "resourceRules: {cpu: {scrape: {port: PORT, interval: 500ms, window: 2s}}}"
FLAGS = ("--scaler", "--local-address=", "--scrape-pod-cidrs=127.0.0.0/8")


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_a_step_is_answered_before_the_metrics_api_serves_it(
    fronted: Fronted, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", HOME)  # as the manifests do: leases and floors are there
    (cluster, backend), audit = fronted, world.audit
    async with (
        watching.connect(cluster) as session,
        (pods := Nodes(session, cluster.namespace, PERIOD, backend.authority.server_context())).running(),
    ):
        await asyncio.to_thread((tmp_path / "rules.yaml").write_text, RULES.replace("PORT", str(pods.port)))
        registering = aggregation.register(
            cluster,
            backend,
            tmp_path,
            "http://127.0.0.1:9",  # no rule asks it
            *FLAGS,
            components=("external", "resource", "scaler-in-process"),
            group_versions=("v1beta1.external.metrics.k8s.io",),
        )
        async with registering as registered:
            await aggregation.apply(cluster, *nodes.registration(nodes.METRICS, HOME, pods.metrics.port))
            await backend.wait_available(cluster, [nodes.METRICS])
            for kind in KINDS:
                pods.use(kind, CALM)
                await cluster.create(*nodes.workload(kind, kind, cluster.namespace, REQUEST))

            async def is_fast(name: str) -> bool:
                """Tell whether an autoscaler has the usage that the pods expose."""
                answer = await registered.adapter.get(f"/debug/fastpath/autoscalers/{world.namespace}/{name}")
                conditions = (answer.body.get("status") or {}).get("conditions") or ()
                return (FAST_USAGE, "True") in {(each["type"], each["status"]) for each in conditions}

            async def more_syncs(count: int) -> None:
                """Return after the HPA controller has read the CPU of the boosted workload so often more."""
                before = pods.metrics.asked[CONTROLLER, "boosted"]
                await world.run(lambda: pods.metrics.asked[CONTROLLER, "boosted"] >= before + count)

            for name in ("boosted", "fast"):
                await until(bool, functools.partial(is_fast, name))
            assert audit.writes == []

            pods.metrics.held = True
            for name in KINDS:
                pods.use(name, HIGH)
            await world.run(lambda: all(pods.count(name) == NEEDED for name in ("boosted", "fast")))
            await more_syncs(5)
            assert pods.metrics.cores("boosted") < 1.5 * CALM, "what the HPA controller reads is still calm"
            written = {(write.target.name, write.by) for write in audit.writes}
            assert written == {("boosted", BOOSTER), ("fast", BOOSTER)}

            pods.metrics.held = False
            await world.run(lambda: pods.count("plain") == NEEDED)
            await world.run(lambda: pods.metrics.cores("boosted") > 0.9 * HIGH)
            await more_syncs(5)
            assert {write.by for write in audit.of("plain")} == {NATIVE}
            assert [
                write for write in audit.writes if write.after < write.before or write.after > NEEDED
            ] == []
            assert [write for write in audit.unpublished if write.target.name == "boosted"] == []
            await cluster.kubectl("delete", "hpa,fpa,deployments.apps", "--all", "-n", cluster.namespace)
