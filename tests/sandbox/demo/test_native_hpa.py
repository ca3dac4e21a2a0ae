"""The native controller against a sandbox cluster and a metrics server that records its requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from adapter.kubernetes import client as kubernetes
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.kubernetes.metrics_api import MetricsAPI
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.demo import native_hpa
from fastpath_sandbox.demo.native_hpa import Adapter, HPAKey, NativeController
from tests.support import scaling
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.waiting import running, until

KEY = HPAKey("shop", "web")
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"


DISCOVERY = {
    "/apis/custom.metrics.k8s.io": {
        "versions": [{"version": "v1beta2"}, {"version": "v1beta1"}],
        "preferredVersion": {"version": "v1beta2"},
    }
}


class Metrics:
    """Responses of the metrics APIs by path, else 404; records the paths with queries, without discovery."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        self.asked.append(request.path_qs)
        self.meanwhile()
        found = self.answers.get(request.path)
        if found is None:
            status = {"kind": "Status", "reason": "NotFound", "code": 404, "message": "nothing here"}
            return web.json_response(status, status=404)
        return web.json_response(found)

    def show_pods(self, cluster: Cluster, value: str) -> None:
        """Let every pod have a value."""
        items = [
            {
                "describedObject": {"kind": "Pod", "namespace": "shop", "name": pod["metadata"]["name"]},
                "metric": {"name": "load"},
                "value": value,
            }
            for pod in cluster.list("Pod", "shop")
        ]
        self.answers[f"{CUSTOM}/pods/*/load"] = {"kind": "MetricValueList", "items": items}


class HandSyncedHPAs:
    """A cluster with two pods of one Deployment, and a controller that is synced by hand."""

    def __init__(self, cluster: Cluster, metrics: Metrics, controller: NativeController, url: str) -> None:
        self.cluster = cluster
        self.url = url
        self.metrics = metrics
        self.controller = controller

    def autoscale(self, *metrics: dict[str, Any], name: str = "web", **spec: Any) -> None:
        document = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2,
                "maxReplicas": 20,
                "metrics": list(metrics) or [PODS],
                **spec,
            },
        }
        self.cluster.create(document)

    def replicas(self) -> int:
        count: int = self.cluster.get("Deployment", "web", "shop")["spec"]["replicas"]
        return count

    def conditions(self) -> dict[str, tuple[str, str]]:
        status = self.cluster.get("HorizontalPodAutoscaler", "web", "shop").get("status", {})
        return {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", [])}


PODS = scaling.pods_metric("10")


@pytest.fixture
async def world() -> AsyncIterator[HandSyncedHPAs]:
    metrics = Metrics()
    async with Cluster() as cluster, RawTestServer(metrics.handle) as server:
        cluster.create(deployment("web", "shop", 2))
        Workloads(cluster, startup=0).step(EPOCH)
        url = str(server.make_url("")).rstrip("/")
        async with (
            await kubernetes.connect(ClientConfiguration(cluster.url), random=lambda: 0.0) as client,
            await kubernetes.connect(ClientConfiguration(url), random=lambda: 0.0) as asking,
        ):
            clock = FakeClock(EPOCH + 3600)
            controller = NativeController(
                client, MetricsAPI(asking, clock, ("v1beta1",)), clock, period=0.05, random=lambda: 0.0
            )
            await controller.start()
            yield HandSyncedHPAs(cluster, metrics, controller, url)


@pytest.mark.parametrize(("spec", "replicas"), answers("sandbox/native_hpa", "behaviors"))
async def test_scales_as_the_object_says(world: HandSyncedHPAs, spec: dict[str, Any], replicas: int) -> None:
    world.autoscale(**spec)
    world.metrics.show_pods(world.cluster, "50")

    await world.controller.sync(KEY)

    assert world.replicas() == replicas
    assert world.conditions()["AbleToScale"] == ("True", "SucceededRescale")
    assert world.conditions()["ScalingLimited"][0] == "True"
    assert world.metrics.asked == [f"{CUSTOM}/pods/*/load?labelSelector=app%3Dweb"]
    (entry,) = world.cluster.get("Deployment", "web", "shop")["metadata"]["managedFields"]
    assert (entry["manager"], entry["subresource"]) == ("kube-controller-manager", "scale")


async def test_remembers_what_it_recommended(world: HandSyncedHPAs) -> None:
    world.autoscale()
    world.metrics.show_pods(world.cluster, "20")
    await world.controller.sync(KEY)
    assert world.replicas() == 4
    world.metrics.show_pods(world.cluster, "1")

    made = await world.controller.sync(KEY)

    assert world.replicas() == 4
    assert made is not None
    assert [step.name for step in made.trace if "stabil" in step.name]
    assert world.conditions()["AbleToScale"] == ("True", "ScaleDownStabilized")


@pytest.mark.parametrize(("metric", "path", "item"), answers("sandbox/native_hpa", "questions"))
async def test_every_api_is_asked_as_the_controller_asks(
    world: HandSyncedHPAs, metric: dict[str, Any], path: str, item: dict[str, Any]
) -> None:
    world.autoscale(metric)
    text = json.dumps(item)
    names = [pod["metadata"]["name"] for pod in world.cluster.list("Pod", "shop")] if "PODS" in text else [""]
    items = [json.loads(text.replace("PODS", name)) for name in names]
    world.metrics.answers[path.partition("?")[0]] = {"items": items}

    await world.controller.sync(KEY)

    assert world.metrics.asked == [path]
    assert world.conditions()["ScalingActive"] == ("True", "ValidMetricFound")
    assert world.replicas() == 4  # what is needed: 35 of 10 each, or 350m of 100m each


@pytest.mark.parametrize(("spec", "forbidden", "condition"), answers("sandbox/native_hpa", "failures"))
async def test_what_fails_is_a_condition(
    world: HandSyncedHPAs, spec: dict[str, Any], forbidden: list[str], condition: list[str]
) -> None:
    world.autoscale(**spec)
    if forbidden[1] != "no metric":
        world.metrics.show_pods(world.cluster, "20")
        world.cluster.forbid(*forbidden)

    await world.controller.sync(KEY)

    kind, reason = condition
    assert world.conditions()[kind] == ("False", reason)
    assert world.replicas() == 2


def writes(world: HandSyncedHPAs) -> int:
    return sum(
        each.method == "PUT" and each.resource == "deployments/scale" for each in world.cluster.requests
    )


async def test_after_a_conflict_the_old_decision_is_written_again(world: HandSyncedHPAs) -> None:
    """A raise of the Deployment while metrics are read is overwritten with the earlier decision."""
    world.autoscale()
    world.metrics.show_pods(world.cluster, "20")
    world.metrics.meanwhile = lambda: world.cluster.scale("Deployment", "web", 12, "shop", manager="other")

    made = await world.controller.sync(KEY)

    assert made is not None
    assert made.rescale
    assert world.replicas() == 4
    assert writes(world) == 2
    assert len(world.metrics.asked) == 1
    assert world.conditions()["AbleToScale"] == ("True", "SucceededRescale")
    status = world.cluster.get("HorizontalPodAutoscaler", "web", "shop")["status"]
    assert (status["currentReplicas"], status["desiredReplicas"]) == (2, 4), (
        "who looks can tell that it knew of 2 alone"
    )


async def test_what_is_not_changed_conflicts_with_nothing(world: HandSyncedHPAs) -> None:
    world.autoscale()
    world.metrics.show_pods(world.cluster, "10")
    world.metrics.meanwhile = lambda: world.cluster.scale("Deployment", "web", 12, "shop", manager="other")

    await world.controller.sync(KEY)

    assert world.replicas() == 12
    assert writes(world) == 0


@pytest.mark.parametrize(("code", "times", "attempts", "replicas"), answers("sandbox/native_hpa", "attempts"))
async def test_attempts(world: HandSyncedHPAs, code: int, times: int, attempts: int, replicas: int) -> None:
    world.autoscale()
    world.metrics.show_pods(world.cluster, "20")
    world.cluster.fail(code, "update", "deployments/scale", times)

    await world.controller.sync(KEY)

    assert writes(world) == attempts
    assert world.replicas() == replicas
    reason = ("True", "SucceededRescale") if replicas == 4 else ("False", "FailedUpdateScale")
    assert world.conditions()["AbleToScale"] == reason


async def test_a_conflict_whose_scale_cannot_be_read_again(world: HandSyncedHPAs) -> None:
    """What was read at first is written again, and conflicts again."""
    world.autoscale()
    world.metrics.show_pods(world.cluster, "20")

    def meanwhile() -> None:
        world.cluster.scale("Deployment", "web", 12, "shop", manager="other")
        world.cluster.forbid("get", "deployments/scale")

    world.metrics.meanwhile = meanwhile

    await world.controller.sync(KEY)

    assert writes(world) == 5
    assert world.replicas() == 12


async def test_two_autoscalers_of_the_same_pods(world: HandSyncedHPAs) -> None:
    """The first one scales, as it is alone; then neither does, until one is deleted."""
    assert await world.controller.sync(KEY) is None, "there is no such object"
    world.autoscale()
    world.autoscale(name="second")
    world.metrics.show_pods(world.cluster, "20")

    await world.controller.sync(KEY)
    assert world.replicas() == 4
    made = await world.controller.sync(HPAKey("shop", "second"))
    assert made is not None
    assert "controlled by multiple HPAs: [shop/second shop/web]" in made.error
    await world.controller.sync(KEY)
    assert world.conditions()["ScalingActive"] == ("False", "AmbiguousSelector")

    async with running(world.controller.run()):
        world.cluster.delete("HorizontalPodAutoscaler", "second", "shop")
        await until(lambda: world.conditions()["ScalingActive"][0] == "True")


async def test_an_autoscaler_beyond_its_limits_looks_at_no_pods(world: HandSyncedHPAs) -> None:
    """It does not conflict with other autoscalers then, as upstream."""
    world.autoscale(minReplicas=3)
    world.autoscale(name="second")
    world.metrics.show_pods(world.cluster, "10")

    await world.controller.sync(KEY)
    assert world.replicas() == 3
    made = await world.controller.sync(HPAKey("shop", "second"))

    assert made is not None
    assert not made.error


async def test_a_list_that_cannot_be_read_changes_nothing(world: HandSyncedHPAs) -> None:
    world.autoscale()
    async with running(world.controller.run()):
        await until(lambda: world.metrics.asked)
        world.cluster.forbid("list", "horizontalpodautoscalers")
        await asyncio.sleep(0.1)

        world.metrics.show_pods(world.cluster, "20")

        await until(lambda: world.replicas() == 4)


async def test_objects_come_and_go(world: HandSyncedHPAs, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("unused: the server speaks plain HTTP")
    world.metrics.show_pods(world.cluster, "20")
    adapter = Adapter(world.url, authority, "token")
    kubeconfig = world.cluster.kubeconfig(tmp_path / "kubeconfig")
    async with native_hpa.running(
        kubeconfig, adapter, tmp_path, FakeClock(), period=0.05, random=lambda: 0.0
    ):
        world.autoscale()
        await until(lambda: world.replicas() == 4)

        world.cluster.delete("HorizontalPodAutoscaler", "web", "shop")
        await asyncio.sleep(0.15)
        world.metrics.asked.clear()
        await asyncio.sleep(0.15)

        assert world.metrics.asked == []
