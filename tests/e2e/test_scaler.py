"""`fastpath scale` as a process in a cluster: Deployments follow their FastPathAutoscalers; kubectl shows it.

On a real control plane it has the rights of the shipped manifests and no others.
"""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.e2e import conftest
from tests.e2e.conftest import Fronted
from tests.e2e.test_aggregation import until
from tests.support import rendered
from tests.support.objects import definition, plain
from tests.world import aggregation
from tests.world.aggregation import SERVICE
from tests.world.owners import are_shared, owner_of
from tests.world.workloads import AT_ONCE, HASTY, HOME, Workload, level
from tests.world.world import QUEUE, World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]
EVERYWHERE = pytest.mark.parametrize("fronted", conftest.WITH_WORKLOADS, indirect=True)


async def follows(world: World, name: str, pods: int) -> None:
    """Let a load need so many pods, and wait until they are there and the status says so."""
    world.load(name, level(pods))

    def is_settled() -> bool:
        status = world.autoscaler(name).get("status", {})
        said = status.get("currentReplicas"), status.get("desiredReplicas")
        return (world.replicas(name), world.workloads[name].ready, *said) == (pods,) * 4

    await world.run(is_settled)


def reasons(world: World, name: str) -> set[str]:
    return {event["reason"] for event in world.events(name)}


@EVERYWHERE
async def test_deployments_follow_a_queue_and_their_pods(world: World) -> None:
    world.fpa("queue", load=level(2), behavior=AT_ONCE)
    world.fpa("pods", "pods-scraped", load=level(2), behavior=AT_ONCE)
    scaler = await world.scaler()
    for count in (2, 5, 3):
        for name in world.workloads:
            await follows(world, name, count)
            assert world.condition(name, "ScalingActive")[:2] == ("True", "ValidMetricFound")
    await world.run(lambda: len(world.told("queue", "SuccessfulRescale")) == 2)
    described = await world.cluster.kubectl("describe", "fpa", "queue", "-n", world.namespace)
    words = " ".join(described.split())
    selector = "MatchLabels:map[string]string{queue: queue,},MatchExpressions:[]LabelSelectorRequirement{},"
    above = f"external metric backlog(&LabelSelector{{{selector}}}) above target"
    for line in (
        f"fastpath New size: 5; reason: {above}",
        "fastpath New size: 3; reason: All metrics below target",
        "Current Replicas: 3",
        "Desired Replicas: 3",
        "Type: AbleToScale",
        "Type: ScalingActive",
        "Type: ScalingLimited",
        "Average Value: 10",
    ):
        assert line in words, described
    fields = world.seen["deployments"]["queue"]["metadata"]["managedFields"]
    owners = [each["manager"] for each in fields if "f:replicas" in each["fieldsV1"].get("f:spec", {})]
    assert owners == ["fastpath"]
    assert [each["type"] for each in world.autoscaler("pods")["status"]["currentMetrics"]] == ["Pods"]

    _, shown = await scaler.get(f"/debug/fastpath/autoscalers/{world.namespace}/queue")
    written = [entry for entry in shown["journal"] if entry["outcome"] == "written"]
    assert [(each["currentReplicas"], each["desiredReplicas"]) for each in written] == [(2, 5), (5, 3)]
    _, metrics = await scaler.get("/metrics")
    labels = f'kind="FastPathAutoscaler",name="queue",namespace="{world.namespace}"'
    assert f"fastpath_autoscaler_desired_replicas{{{labels}}} 3.0" in metrics
    assert 'fastpath_ready{command="scale"} 1.0' in metrics
    await scaler.end()
    # its membership is given back, so that the next one need not wait
    await world.run(lambda: owner_of(world.seen["leases"].values(), world.namespace) == "")


@EVERYWHERE
async def test_a_target_with_a_second_autoscaler_is_left_alone(world: World) -> None:
    plurals = {"beside-hpa": "hpa", "beside-own": "fpa"}
    for name, plural in plurals.items():
        workload = world.fpa(name, load=level(4), behavior=AT_ONCE)
        twin = workload.second(own=plural == "fpa")
        twin["metadata"]["namespace"] = world.namespace
        await world.create(twin)
    await world.scaler()
    foreign = ("False", "ForeignAutoscaler")
    await world.run(lambda: all(world.condition(name, "AbleToScale")[:2] == foreign for name in plurals))
    for name, plural in plurals.items():
        assert world.replicas(name) == 2
        await world.cluster.kubectl("delete", plural, f"second-{name}", "-n", world.namespace)
        await follows(world, name, 4)


@EVERYWHERE
async def test_to_zero_and_back_and_a_target_that_comes_late(world: World) -> None:
    world.fpa("zero", load=level(0), behavior=AT_ONCE, minReplicas=0)
    late = Workload("late", QUEUE, level(4), "", {"behavior": AT_ONCE}, own=True)
    world.show(late)
    *parts, autoscaler = late.objects(world.namespace)
    await world.create(autoscaler)
    await world.scaler()
    await follows(world, "zero", 0)
    await follows(world, "zero", 2)
    assert world.condition("late", "AbleToScale")[:2] == ("False", "FailedGetScale")
    await world.create(*parts)
    await follows(world, "late", 4)
    await world.run(lambda: {"FailedGetScale", "SuccessfulRescale"} <= reasons(world, "late"))


GADGETS = "gadgets.e2e.fastpath.io"


@EVERYWHERE
async def test_a_kind_of_ones_own(world: World, fronted: Fronted) -> None:
    """With its replicas elsewhere than a Deployment's, and a role such as
    manifests/chart/files/rbac/scaler-targets/rbac.yaml asks for.
    """
    cluster = world.cluster
    plural, _, group = GADGETS.partition(".")
    paths = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.present",
        "labelSelectorPath": ".status.selector",
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"scaler-{GADGETS}", "labels": {"fastpath.io/aggregate-to-scaler": "true"}},
        "rules": [
            {"apiGroups": [group], "resources": [plural], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [group], "resources": [f"{plural}/scale"], "verbs": ["get", "update"]},
        ],
    }
    target = {"apiVersion": f"{group}/v1", "kind": "Gadget", "name": "web"}
    metadata = {"name": "web", "namespace": world.namespace}
    await cluster.create(definition(GADGETS, "Gadget", subresources={"status": {}, "scale": paths}))
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{GADGETS}", "--timeout=30s")
    granted = rendered.Objects([plain("Namespace", HOME), plain("ServiceAccount", SERVICE, HOME), role])
    await fronted.backend.admit(cluster, granted, SERVICE, HOME)
    await cluster.create(target | {"metadata": metadata, "spec": {"size": 1}})
    where = (GADGETS, "web", "-n", world.namespace)
    present = json.dumps({"status": {"present": 1, "selector": "app=web"}})
    await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", present)
    world.fpa("web", load=level(3), scaleTargetRef=target)
    await world.scaler()
    await until(
        lambda size: size == "3", lambda: cluster.kubectl("get", *where, "-o", "jsonpath={.spec.size}")
    )


@EVERYWHERE
async def test_scalers_share_the_slices_and_take_them_over(world: World) -> None:
    """At once from one that ends in order, and after the lease from one that is killed."""
    world.fpa("web", load=level(2), behavior=AT_ONCE)
    leases = world.seen["leases"]
    first = await world.scaler(*HASTY, pod="first")
    await world.run(lambda: are_shared(leases.values(), 1))
    second = await world.scaler(*HASTY, pod="second")
    await world.run(lambda: are_shared(leases.values(), 2))
    await first.end()
    await world.run(lambda: owner_of(leases.values(), world.namespace) == "second")
    await follows(world, "web", 3)
    await world.scaler(*HASTY, pod="third")
    await world.run(lambda: are_shared(leases.values(), 2))
    await second.end(signal.SIGKILL)
    await world.run(lambda: are_shared(leases.values(), 1))
    await follows(world, "web", 4)


SHORT_HOLD = """
from adapter.kubernetes.ownership import installation_lock
installation_lock.HOLD = 3  # seconds after which another installation takes over, in place of 60
"""


@EVERYWHERE
async def test_one_of_two_installations_scales(world: World, tmp_path: Path) -> None:
    """The other one says so, and takes over when the first one was killed."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(SHORT_HOLD)
    await world.cluster.create(plain("Namespace", "trial"))

    async def holder() -> str:
        lease = ("lease", "fastpath-scaler", "-n", "kube-system")
        return await world.cluster.kubectl("get", *lease, "-o", "jsonpath={.spec.holderIdentity}")

    world.fpa("web", load=level(3), behavior=AT_ONCE)
    first = await world.scaler(pod="first", modules=modules)
    await follows(world, "web", 3)
    trial = await world.scaler(pod="trial", modules=modules, home="trial", account=world.cluster.admin)
    await world.run(lambda: f"is held by {HOME}/fastpath-scaler" in trial.log)
    status, shown = await trial.get("/readyz?verbose")
    assert (status, "[-]installation failed" in shown) == (200, True)
    await follows(world, "web", 4)
    assert await holder() == f"{HOME}/fastpath-scaler"
    await first.end(signal.SIGKILL)
    await follows(world, "web", 5)
    assert await holder() == "trial/fastpath-scaler"
    assert "could not be read or written" not in trial.log


@pytest.mark.parametrize("own_fronted", conftest.WITH_WORKLOADS, indirect=True)
async def test_the_api_server_restarts(own_world: World) -> None:
    """What happens to the load meanwhile is followed as soon as it is back."""
    world = own_world
    world.fpa("web", load=level(3))
    await world.scaler()
    await follows(world, "web", 3)
    await world.run(lambda: all("podIP" in pod["status"] for pod in world.seen["pods"].values()))
    await world.cluster.backend.crash()
    world.load("web", level(5))
    await asyncio.sleep(3)
    await world.cluster.backend.recover()
    await follows(world, "web", 5)


@EVERYWHERE
async def test_cpu_of_another_server_in_the_version_that_it_has(
    world: World, fronted: Fronted, tmp_path: Path
) -> None:
    """In v1 while that is registered, and in v1beta1 from then on; the scaler goes on."""
    world.fpa("web", "cpu-percent", level(3))
    cluster, backend = fronted
    (tmp_path / "rules.yaml").write_text(world.rules)
    async with aggregation.register(cluster, backend, tmp_path, world.prometheus.url) as server:
        await world.scaler(rules=world.rules.partition("resourceRules:")[0])
        await follows(world, "web", 3)
        assert await server.asked_versions() == {"v1"}
        await cluster.kubectl("delete", "apiservice", "v1.metrics.k8s.io")
        await until(lambda found: "v1beta1" in found, server.asked_versions)
        await follows(world, "web", 5)
