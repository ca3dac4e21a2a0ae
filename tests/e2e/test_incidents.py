"""Incidents on a real control plane: the first sentence of an autoscaler's page names the cause.

The HPA controller writes the conditions and events, the controllers of Deployments and ReplicaSets make pods,
and Fastpath serves the metrics through the aggregation layer.
"""

import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fastpath_sandbox.apiserver.workloads import deployment
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader
from fastpath_tools.ui.options import COMMAND
from tests.e2e.conftest import WITH_CONTROLLERS
from tests.support.objects import api_service, plain
from tests.support.processor import limited
from tests.tools.ui.autoscaler_views import explain
from tests.world.clusters import ClusterUnderTest
from tests.world.view import WAIT
from tests.world.workloads import HIGH, LOW, UNIT, Load, Workload, level
from tests.world.world import QUEUE, World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

LONG = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}}}


async def open_access(cluster: ClusterUnderTest, stack: AsyncExitStack, *flags: str) -> Doctor:
    options, _ = COMMAND.parse([cluster.namespace, f"--kubeconfig={cluster.admin_kubeconfig}", *flags])
    return await Doctor.open(options, stack)


async def wait_for(doctor: Doctor, cluster: ClusterUnderTest, name: str, text: str) -> str:
    """Return the sentence about an autoscaler once its first one matches."""
    reader, shown = AutoscalerReader(doctor, cluster.namespace, name), ""
    try:
        async with limited(WAIT):
            while re.search(text, shown.split(". ", maxsplit=1)[0]) is None:
                reading = await reader.read()
                shown = explain(reading.view, reading.examination)
    except TimeoutError:
        pytest.fail(f"{name} shows {shown!r}, not {text!r}")
    return shown


def canary(namespace: str) -> dict[str, Any]:
    """Return a Deployment whose pods have the labels of Deployment stable."""
    document = deployment("stable-canary", namespace, 1, {"app": "stable"})
    document["spec"]["selector"] = {"matchLabels": {"app": "stable", "track": "canary"}}
    document["spec"]["template"]["metadata"]["labels"] = {"app": "stable", "track": "canary"}
    return document


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_causes_that_the_controllers_show(world: World, tmp_path: Path) -> None:
    cluster = world.cluster
    loads: dict[str, Load] = {
        "maximum": level(20),
        "tolerance": lambda _: 2.1 * UNIT,
        "window": lambda after: HIGH if after < 0 else LOW,
        "stable": lambda _: LOW,
        "reverted": lambda _: HIGH,
        "mislabelled": lambda _: LOW,
    }
    for name, load in loads.items():
        world.hpa(name, load=load, way="", spec=LONG if name == "window" else {})
    world.hpa("bare", "cpu-percent", lambda _: LOW, way="", spec={})
    await world.create(canary(cluster.namespace))
    namespaced = f"--namespace={cluster.namespace}"
    path = "/spec/metrics/0/external/metric/selector/matchLabels/queue"
    wrong = f'[{{"op": "replace", "path": "{path}", "value": "mail"}}]'
    await cluster.kubectl("patch", "hpa", "mislabelled", namespaced, "--type=json", f"--patch={wrong}")
    bare = '[{"op": "remove", "path": "/spec/template/spec/containers/0/resources"}]'
    await cluster.kubectl("patch", "deployment", "bare", namespaced, "--type=json", f"--patch={bare}")
    await world.serve()
    async with AsyncExitStack() as stack:
        doctor = await open_access(cluster, stack, f"--config={tmp_path / 'rules.yaml'}")

        async def first(name: str, text: str) -> str:
            return await wait_for(doctor, cluster, name, text)

        shown = await first("maximum", r"^12 replicas.*: maxReplicas is reached; backlog asks for 20$")
        assert "Raise maxReplicas, now 12." in shown
        await first(
            "tolerance", r"^2 replicas: within tolerance: backlog is 10.5 at a target of 10, ratio 1.05$"
        )
        await first("mislabelled", r"^2 replicas: Fastpath .*backlog.*")
        await first("bare", r"^2 replicas: container bare of Deployment bare has no request for cpu")
        await first(
            "stable",
            r"the selector app=stable of Deployment stable also matches 1 pod of Deployment stable-canary",
        )
        await first("window", r"^6 replicas: ")
        await first("reverted", r"^6 replicas: ")
        world.begin()
        await first("window", r"^6 replicas: the stabilization window holds the count; backlog asks for 2$")
        await revert(cluster, "reverted")
        await first(
            "reverted", r"argocd-controller (lowered|set) the replicas of Deployment reverted to 2 at "
        )


async def revert(cluster: ClusterUnderTest, name: str) -> None:
    """Apply a count as GitOps tools do."""
    applied = (
        f'{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "{name}", '
        f'"namespace": "{cluster.namespace}", "labels": {{"from": "git"}}}}, "spec": {{"replicas": 2}}}}'
    )
    flags = ("--server-side", "--force-conflicts", "--field-manager=argocd-controller")
    await cluster.kubectl("apply", *flags, "-f", "-", stdin=applied)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_a_quota_that_refuses_pods(world: World, tmp_path: Path) -> None:
    cluster = world.cluster
    world.hpa("web", way="", spec={})
    await world.create()
    # no controller of quotas runs here: its part is the status
    await cluster.create(plain("ResourceQuota", "few", cluster.namespace, spec={"hard": {"pods": "3"}}))
    status = '{"status": {"hard": {"pods": "3"}, "used": {"pods": "2"}}}'
    patch = ("--subresource=status", "--type=merge", f"--patch={status}")
    await cluster.kubectl("patch", "quota", "few", f"--namespace={cluster.namespace}", *patch)
    await world.serve()
    async with AsyncExitStack() as stack:
        doctor = await open_access(cluster, stack, f"--config={tmp_path / 'rules.yaml'}")
        await wait_for(doctor, cluster, "web", "^2 replicas: ")
        world.begin()
        refused = "new pods are refused since .* exceeded quota: few, requested: pods=1, used: pods=3"
        cause = rf"^\d replicas, 3 of them ready: Deployment web has 3 of \d replicas: {refused}"
        shown = await wait_for(doctor, cluster, "web", cause)
        assert "Raise the ResourceQuota of the namespace" in shown


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_an_adapter_that_is_down(cluster: ClusterUnderTest) -> None:
    service = {"name": "absent", "namespace": cluster.namespace}
    name = "v1beta1.external.metrics.k8s.io"
    web = Workload("web", QUEUE, lambda _: LOW, "", {})
    await cluster.create(*web.objects(cluster.namespace))
    async with AsyncExitStack() as stack:
        doctor = await open_access(cluster, stack)
        await wait_for(doctor, cluster, "web", "no APIService is registered for external.metrics.k8s.io")
        absent = plain("Service", "absent", cluster.namespace, spec={"ports": [{"port": 443}]})
        await cluster.create(absent, api_service(name, service))
        try:
            down = await open_access(cluster, stack)
            await wait_for(down, cluster, "web", "external.metrics.k8s.io is not available: .*")
        finally:
            await cluster.kubectl("delete", "apiservice", name)
