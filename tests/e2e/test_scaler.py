"""`fastpath scale` as a process in a cluster: a Deployment follows its FastPathAutoscaler; kubectl shows it.

The same cases run on the sandbox and, where KUBEBUILDER_ASSETS names one with controllers, on a real control
plane, there with the rights of the shipped manifests and no others. Values come from a real Prometheus.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapter.model.autoscaling import fastpath_autoscaler
from scripts.generate import crd
from tests.e2e import aggregation, conftest
from tests.e2e.aggregation import NAMESPACE, SERVICE
from tests.e2e.clusters import ClusterUnderTest, Config, Document
from tests.e2e.conftest import Fronted
from tests.e2e.test_aggregation import RULES as RESOURCE_RULES
from tests.e2e.test_aggregation import deployment, get, make_well, until, write
from tests.support import rendered
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.rendered import MANIFESTS, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

EVERYWHERE = pytest.mark.parametrize("fronted", conftest.WITH_WORKLOADS, indirect=True)
ALONE = pytest.mark.parametrize("own_fronted", conftest.WITH_WORKLOADS, indirect=True)
NAME = f"{fastpath_autoscaler.PLURAL}.{fastpath_autoscaler.GROUP}"
QUEUE = (
    "&LabelSelector{MatchLabels:map[string]string{queue: "
    "orders,},MatchExpressions:[]LabelSelectorRequirement{},}"
)
RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'demand{namespace!="",deployment!=""}'
  resources:
    overrides: {namespace: {resource: namespace}, deployment: {group: apps, resource: deployment}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'backlog{namespace!="",queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""
BACKLOG = {
    "type": "External",
    "external": {
        "metric": {"name": "backlog", "selector": {"matchLabels": {"queue": "orders"}}},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
LOAD = {
    "type": "Pods",
    "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


class Scene(NamedTuple):
    """A cluster with a Prometheus, and a folder for what runs there."""

    cluster: ClusterUnderTest
    backend: aggregation.FrontedBackend
    prometheus: PrometheusServer
    directory: Path


@pytest.fixture
async def prometheus(prometheus_server: PrometheusFactory) -> PrometheusServer:
    return await asyncio.to_thread(prometheus_server)


@pytest.fixture
async def scene(fronted: Fronted, prometheus: PrometheusServer, tmp_path: Path) -> AsyncIterator[Scene]:
    """Return a cluster with the kind, where Deployments get their pods."""
    async with _set(fronted, prometheus, tmp_path) as scene:
        yield scene


@pytest.fixture
async def own_scene(
    own_fronted: Fronted, prometheus: PrometheusServer, tmp_path: Path
) -> AsyncIterator[Scene]:
    """Return one that a test may let crash: no other test uses it."""
    async with _set(own_fronted, prometheus, tmp_path) as scene:
        yield scene


@contextlib.asynccontextmanager
async def _set(fronted: Fronted, prometheus: PrometheusServer, directory: Path) -> AsyncIterator[Scene]:
    cluster, backend = fronted
    await cluster.kubectl("apply", "--validate=false", "-f", str(crd.PATH))
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=30s")
    async with backend.workloads():
        yield Scene(cluster, backend, prometheus, directory)


def autoscaler(cluster: ClusterUnderTest, metric: Document, **spec: Any) -> Document:
    return {
        "apiVersion": f"{fastpath_autoscaler.GROUP}/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": "web", "namespace": cluster.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 8,
            "metrics": [metric],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            **spec,
        },
    }


class Backlog:
    """The length of the queue, scraped twice a second; without new samples nothing would shrink."""

    def __init__(self) -> None:
        self.length = 0.0


@contextlib.asynccontextmanager
async def queueing(scene: Scene, length: float) -> AsyncIterator[Backlog]:
    backlog = Backlog()
    backlog.length = length

    async def report() -> None:
        while True:
            await write(
                scene.prometheus, "backlog", backlog.length, namespace=scene.cluster.namespace, queue="orders"
            )
            await asyncio.sleep(0.5)

    task = asyncio.create_task(report(), name="backlog")
    try:
        yield backlog
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def admit(scene: Scene) -> Config:
    """Return the kubeconfig of the scaler's account with the rights of the overlay."""
    objects = await asyncio.to_thread(rendered.render, MANIFESTS / "overlays" / "scaler")
    return await scene.backend.admit(scene.cluster, objects, "fastpath-scaler", NAMESPACE)


@contextlib.asynccontextmanager
async def scaling(
    scene: Scene,
    config: Config,
    *arguments: str,
    pod: str = "scaler-0",
    namespace: str = NAMESPACE,
    program: Sequence[str] = ("-m", "adapter"),
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a scaler; it ends in order with the block, unless it has ended before."""
    rules = scene.directory / "rules.yaml"
    rules.write_text(RULES)
    flags = [
        f"--config={rules}",
        f"--lister-kubeconfig={config.kubeconfig(scene.directory / f'{pod}.kubeconfig')}",
        f"--prometheus-url={scene.prometheus.url}",
        "--local-address=",
        "--metrics-relist-interval=2s",
        "--metrics-max-age=5m",
        *arguments,
    ]
    file = scene.directory / f"{pod}.log"
    with file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(*program, "scale", *flags),
            stdout=log,
            stderr=log,
            env=os.environ | {"POD_NAME": pod, "POD_NAMESPACE": namespace, "PYTHONPATH": str(ROOT)},
        )
    try:
        yield process
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        assert await process.wait() in {0, -signal.SIGKILL}
    except BaseException:
        sys.stderr.write(file.read_text())
        raise
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def status(cluster: ClusterUnderTest) -> Any:
    return (await get(cluster, "fpa", "web")).get("status", {})


async def replicas(cluster: ClusterUnderTest, kind: str = "deployments.apps") -> int:
    found: int = (await get(cluster, kind, "web"))["spec"]["replicas"]
    return found


async def wait_condition(cluster: ClusterUnderTest, *wanted: str) -> None:
    """Wait for a condition: type, status, reason."""

    def has(found: Any) -> bool:
        return wanted in {
            (each["type"], each["status"], each["reason"]) for each in found.get("conditions", ())
        }

    await until(has, lambda: status(cluster))


async def wait_replicas(cluster: ClusterUnderTest, wanted: int) -> None:
    """Wait until the Deployment has been told to have so many, has them, and the status says so."""

    async def ask() -> Any:
        target = await get(cluster, "deployments.apps", "web")
        said = await status(cluster)
        has = target["spec"]["replicas"], target["status"].get("replicas", 0)
        return *has, said.get("currentReplicas"), said.get("desiredReplicas"), said.get("conditions")

    await until(lambda found: found[:4] == (wanted,) * 4, ask)


@EVERYWHERE
async def test_a_deployment_follows_a_queue(scene: Scene) -> None:
    cluster = scene.cluster
    async with queueing(scene, 20) as backlog, scaling(scene, await admit(scene)):
        await cluster.create(deployment(cluster), autoscaler(cluster, BACKLOG))
        await wait_replicas(cluster, 2)
        await wait_condition(cluster, "ScalingActive", "True", "ValidMetricFound")
        backlog.length = 50
        await wait_replicas(cluster, 5)
        backlog.length = 30
        await wait_replicas(cluster, 3)
        described = await until(
            lambda text: text.count("SuccessfulRescale") == 3,
            lambda: cluster.kubectl("describe", "fpa", "web", "-n", cluster.namespace),
        )
    words = " ".join(described.split())
    above = f"external metric backlog({QUEUE}) above target"
    for size, why in ((2, above), (5, above), (3, "All metrics below target")):
        assert f"fastpath New size: {size}; reason: {why}" in words, described
    for line in (
        "Current Replicas: 3",
        "Desired Replicas: 3",
        "Type: AbleToScale",
        "Type: ScalingActive",
        "Type: ScalingLimited",
        "Average Value: 10",
    ):
        assert line in words, described
    target = await get(cluster, "deployments.apps", "web", "--show-managed-fields")
    fields = {each["manager"]: each["fieldsV1"] for each in target["metadata"]["managedFields"]}
    owners = [manager for manager, each in fields.items() if "f:replicas" in each.get("f:spec", {})]
    assert owners == ["fastpath"]


@EVERYWHERE
async def test_a_deployment_follows_its_pods(scene: Scene) -> None:
    cluster = scene.cluster

    async def report(count: int, load: float) -> bool:
        """Make every pod well, and have it report a load; tell whether there are so many."""
        names = await cluster.names("pods", "app=web")
        for name in names:
            await make_well(cluster, name)
            await write(scene.prometheus, "load", load, namespace=cluster.namespace, pod=name)
        return len(names) == count

    async with scaling(scene, await admit(scene)):
        await cluster.create(deployment(cluster))
        await until(bool, lambda: report(1, 30))
        await cluster.create(autoscaler(cluster, LOAD))
        await until(lambda found: found == 3, lambda: replicas(cluster))
        await until(bool, lambda: report(3, 10))
        await wait_replicas(cluster, 3)
        found = await until(lambda found: found.get("currentMetrics"), lambda: status(cluster))
        assert [each["type"] for each in found["currentMetrics"]] == ["Pods"]


@EVERYWHERE
@pytest.mark.parametrize("kind", ["HorizontalPodAutoscaler", "FastPathAutoscaler"])
async def test_a_target_with_a_second_autoscaler_is_left_alone(scene: Scene, kind: str) -> None:
    cluster = scene.cluster
    second = autoscaler(cluster, BACKLOG)
    second["metadata"]["name"] = "second"
    if kind == "HorizontalPodAutoscaler":
        del second["spec"]["behavior"]
        second |= {"apiVersion": "autoscaling/v2", "kind": kind}
    async with queueing(scene, 40), scaling(scene, await admit(scene)):
        await cluster.create(deployment(cluster), second, autoscaler(cluster, BACKLOG))
        await wait_condition(cluster, "AbleToScale", "False", "ForeignAutoscaler")
        assert await replicas(cluster) == 1
        await cluster.kubectl("delete", kind, "second", "-n", cluster.namespace)
        await wait_replicas(cluster, 4)


@EVERYWHERE
async def test_to_zero_and_back(scene: Scene) -> None:
    cluster = scene.cluster
    async with queueing(scene, 0) as backlog, scaling(scene, await admit(scene)):
        await cluster.create(deployment(cluster), autoscaler(cluster, BACKLOG, minReplicas=0))
        await wait_replicas(cluster, 0)
        backlog.length = 20
        await wait_replicas(cluster, 2)


@EVERYWHERE
async def test_a_target_that_comes_late(scene: Scene) -> None:
    cluster = scene.cluster
    async with queueing(scene, 20), scaling(scene, await admit(scene)):
        await cluster.create(autoscaler(cluster, BACKLOG))
        await wait_condition(cluster, "AbleToScale", "False", "FailedGetScale")
        await cluster.create(deployment(cluster))
        await wait_replicas(cluster, 2)
        wanted = {"FailedGetScale", "SuccessfulRescale"}
        await until(
            lambda found: wanted <= {each["reason"] for each in found["items"]},
            lambda: get(cluster, "events"),
        )


GADGETS = "gadgets.e2e.fastpath.io"


@EVERYWHERE
async def test_a_kind_of_ones_own(scene: Scene) -> None:
    """With its replicas elsewhere than a Deployment's, and a role such as
    manifests/chart/files/rbac/scaler-targets/rbac.yaml asks for.
    """
    cluster = scene.cluster
    plural, _, group = GADGETS.partition(".")
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.present",
                "labelSelectorPath": ".status.selector",
            },
        },
    }
    names = {"plural": plural, "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": GADGETS},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    gadget = {
        "apiVersion": f"{group}/v1",
        "kind": "Gadget",
        "metadata": {"name": "web", "namespace": cluster.namespace},
        "spec": {"size": 1},
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
    await cluster.create(definition)
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{GADGETS}", "--timeout=30s")
    await scene.backend.admit(cluster, rendered.Objects([role]), SERVICE, NAMESPACE)
    present = json.dumps({"status": {"present": 1, "selector": "app=web"}})
    target = {"apiVersion": gadget["apiVersion"], "kind": "Gadget", "name": "web"}
    async with queueing(scene, 30), scaling(scene, await admit(scene)):
        await cluster.create(gadget)
        where = (GADGETS, "web", "-n", cluster.namespace)
        await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", present)
        await cluster.create(autoscaler(cluster, BACKLOG, scaleTargetRef=target))

        async def size() -> Any:
            return (await get(cluster, GADGETS, "web"))["spec"]["size"]

        await until(lambda found: found == 3, size)


@EVERYWHERE
async def test_scalers_share_the_slices_and_take_them_over(scene: Scene) -> None:
    """At once from one that ends in order, and after the lease from one that is killed."""
    cluster, config = scene.cluster, await admit(scene)

    async def shares() -> Counter[str]:
        """Return how many slices each pod owns."""
        text = await cluster.kubectl(
            *("get", "leases", "-n", NAMESPACE, "-l", "fastpath.io/scaler=fastpath-scaler"),
            *("-o", r"jsonpath={range .items[*]}{.metadata.name}={.spec.holderIdentity}{'\n'}{end}"),
        )
        found = [line.partition("=") for line in text.splitlines()]
        return Counter(identity.partition("_")[0] for name, _, identity in found if "-slice-" in name)

    async with queueing(scene, 20) as backlog, contextlib.AsyncExitStack() as stack:
        await cluster.create(deployment(cluster), autoscaler(cluster, BACKLOG))
        async with scaling(scene, config, pod="first"):
            await wait_replicas(cluster, 2)
            await until(lambda found: found == {"first": 64}, shares)
            second = await stack.enter_async_context(scaling(scene, config, pod="second"))
            await until(lambda found: found == {"first": 32, "second": 32}, shares)
        await until(lambda found: found == {"second": 64}, shares)
        backlog.length = 30
        await wait_replicas(cluster, 3)
        async with scaling(scene, config, pod="third"):
            await until(lambda found: found == {"second": 32, "third": 32}, shares)
            second.kill()
            await until(lambda found: found == {"third": 64}, shares)
            backlog.length = 40
            await wait_replicas(cluster, 4)


HOLD = 6
"""Seconds after which another installation takes over here, in place of 60."""

HASTY = f"""
import runpy
from adapter.kubernetes.ownership import installation_lock
installation_lock.HOLD = {HOLD}
runpy.run_module("adapter", run_name="__main__", alter_sys=True)
"""


def move(objects: rendered.Objects, namespace: str) -> rendered.Objects:
    """Return the rights of a second installation: in a namespace and with names of its own."""
    moved = rendered.Objects(json.loads(json.dumps(objects.documents)))
    for each in moved.documents:
        meta = each["metadata"]
        if "Role" in each["kind"]:
            meta["name"] += f"-{namespace}"
        if meta.get("namespace") == NAMESPACE:
            meta["namespace"] = namespace
        for subject in each.get("subjects", ()):
            subject["namespace"] = namespace
        if "roleRef" in each and not each["roleRef"]["name"].startswith(("system:", "extension-")):
            each["roleRef"]["name"] += f"-{namespace}"
    moved.one("Namespace")["metadata"]["name"] = namespace
    return moved


@EVERYWHERE
async def test_one_of_two_installations_scales(scene: Scene) -> None:
    """The other one says so, and takes over when the first one was killed."""
    cluster, config = scene.cluster, await admit(scene)
    objects = await asyncio.to_thread(rendered.render, MANIFESTS / "overlays" / "scaler")
    other = await scene.backend.admit(cluster, move(objects, "trial"), "fastpath-scaler", "trial")

    async def holder() -> str:
        lease = ("lease", "fastpath-scaler", "-n", "kube-system")
        return await cluster.kubectl("get", *lease, "-o", "jsonpath={.spec.holderIdentity}")

    async def said() -> str:
        return await asyncio.to_thread((scene.directory / "trial.log").read_text)

    async with queueing(scene, 20) as backlog, contextlib.AsyncExitStack() as stack:
        await cluster.create(deployment(cluster), autoscaler(cluster, BACKLOG))
        first = await stack.enter_async_context(scaling(scene, config, pod="first", program=("-c", HASTY)))
        await wait_replicas(cluster, 2)
        assert await holder() == f"{NAMESPACE}/fastpath-scaler"
        await stack.enter_async_context(
            scaling(scene, other, pod="trial", namespace="trial", program=("-c", HASTY))
        )
        await until(lambda text: f"is held by {NAMESPACE}/fastpath-scaler" in text, said)
        backlog.length = 30
        await wait_replicas(cluster, 3)
        assert await holder() == f"{NAMESPACE}/fastpath-scaler"
        first.kill()
        await until(lambda found: found == "trial/fastpath-scaler", holder)
        backlog.length = 40
        await wait_replicas(cluster, 4)
        assert "could not be read or written" not in await said()


@ALONE
async def test_the_api_server_restarts(own_scene: Scene) -> None:
    """What happens to the queue meanwhile is followed as soon as it is back."""
    cluster = own_scene.cluster
    async with queueing(own_scene, 20) as backlog, scaling(own_scene, await admit(own_scene)) as process:
        await cluster.create(deployment(cluster), autoscaler(cluster, BACKLOG))
        await wait_replicas(cluster, 2)
        await cluster.backend.crash()
        backlog.length = 50
        await asyncio.sleep(3)
        await cluster.backend.recover()
        await wait_replicas(cluster, 5)
        assert process.returncode is None


CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


@EVERYWHERE
async def test_cpu_of_another_server_in_the_version_that_it_has(scene: Scene) -> None:
    """In v1 while that is registered, and in v1beta1 from then on; the scaler goes on."""
    cluster = scene.cluster
    (scene.directory / "rules.yaml").write_text(RESOURCE_RULES)
    scaler = scene._replace(directory=scene.directory / "scaler")
    scaler.directory.mkdir()

    async def report(cores: float) -> int:
        """Make every pod well, and have it use so many cores; return how many there are."""
        names = await cluster.names("pods", "app=web")
        for name in names:
            await make_well(cluster, name)
            of_pod = {"namespace": cluster.namespace, "pod": name, "container": "main"}
            await write(scene.prometheus, "cores", cores, **of_pod)
            await write(scene.prometheus, "working_set_bytes", 2**20, **of_pod)
        return len(names)

    await cluster.create(deployment(cluster))
    await until(lambda count: count == 1, lambda: report(0.15))
    rights = await admit(scene)
    served = aggregation.register(cluster, scene.backend, scene.directory, scene.prometheus.url)
    async with served as server, scaling(scaler, rights, "--horizontal-pod-autoscaler-sync-period=1s"):
        await cluster.create(autoscaler(cluster, CPU))
        await until(lambda found: found == 3, lambda: replicas(cluster))
        assert await server.asked_versions() == {"v1"}
        await until(lambda count: count == 3, lambda: report(0.05))
        await cluster.kubectl("delete", "apiservice", "v1.metrics.k8s.io")
        await until(lambda found: "v1beta1" in found, server.asked_versions)
        await report(0.08)
        await until(lambda found: found == 5, lambda: replicas(cluster))
