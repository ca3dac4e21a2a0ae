"""`fastpath serve --scaler`: the metrics APIs and the scaler in one process, sharing what they read."""

import asyncio
from pathlib import Path

import pytest
import yaml

from adapter.model.autoscaling import slices
from fastpath_tools import explain
from fastpath_tools.live import scaler_access
from tests.scenarios.test_scale import (
    SCRAPED,
    FastpathProcess,
    ScaledCluster,
    autoscaler,
    happens,
    scaling,
    world,
)
from tests.support.adapter import running
from tests.support.tools import free_port
from tests.support.waiting import until

__all__ = ["world"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


async def test_one_process_answers_and_scales(tmp_path: Path, world: ScaledCluster) -> None:
    world.cluster.create(autoscaler())
    (tmp_path / "rules.yaml").write_text(SCRAPED.replace("PORT", str(world.port)))
    local = f"127.0.0.1:{free_port()}"
    paces = ["--metrics-relist-interval=5s", "--metrics-max-age=60s"]
    arguments = ["--scaler", f"--local-address={local}", "--scrape-pod-cidrs=127.0.0.0/8", *paces]
    async with running(tmp_path, world.cluster, world.prometheus.url, *arguments) as adapter:
        await happens(lambda: world.conditions().get("ScalingActive") == ("True", "ValidMetricFound"))
        world.load = 25.0
        await happens(lambda: world.replicas() == 5)

        answer = await adapter.get("/debug/fastpath/autoscalers/default/web")
        assert answer.status == 200
        assert any(entry["outcome"] == "written" for entry in answer.body["journal"])
        missing = await adapter.get("/debug/fastpath/autoscalers/default/missing")
        assert missing.status == 404
        options, _ = explain.COMMAND.parse(["default/web", f"--server=http://{local}"])
        told = await scaler_access.fetch(options, options.namespace)
        assert told["journal"] == answer.body["journal"], "for who may forward ports of the pod"
        assert await adapter.metric_lines("fastpath_ready{") == {'fastpath_ready{command="serve"}': 1.0}
    assert yaml.safe_load(SCRAPED)["rules"]


async def test_a_second_scaler_answers_from_its_own_scrapes_and_takes_its_share(
    tmp_path: Path, world: ScaledCluster
) -> None:
    """Prometheus knows nothing of these pods, and the first scaler owns all slices until the second joins."""
    assert slices.slice_of("default") >= slices.COUNT / 2, "else the first one keeps the slice"
    world.cluster.create(autoscaler())
    world.load = 7.5
    (tmp_path / "leader").mkdir()
    (tmp_path / "rules.yaml").write_text(SCRAPED.replace("PORT", str(world.port)))
    paces = ["--metrics-relist-interval=5s", "--metrics-max-age=60s"]
    arguments = ["--scaler", "--local-address=", "--scrape-pod-cidrs=127.0.0.0/8", *paces]
    async with scaling(tmp_path / "leader", world, pod="leader") as leader:
        await until_leading(leader)
        async with running(tmp_path, world.cluster, world.prometheus.url, *arguments) as follower:
            path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/%2A/load"
            answer = await follower.wait_for(
                path, lambda answer: answer.status == 200 and len(answer.values) == 2
            )
            assert set(answer.values.values()) == {"7500m"}

            world.load = 8.5
            await follower.wait_for(path, lambda answer: set(answer.values.values()) == {"8500m"})
            shown = "/debug/fastpath/autoscalers/default/web"
            await follower.wait_for(shown, lambda answer: answer.status == 200)


RESOURCES = """\
resourceRules:
  cpu:
    containerQuery: 'sum(usage_cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(usage_cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}}
    containerLabel: container
  memory:
    containerQuery: 'sum(usage_memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(usage_memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}}
    containerLabel: container
  window: 1m
"""


def requests_for_pods(world: ScaledCluster) -> dict[str, int]:
    """Return how often all pods were listed and watched."""
    verbs = [each.verb for each in world.cluster.requests if (each.resource, each.namespace) == ("pods", "")]
    return {verb: verbs.count(verb) for verb in ("list", "watch")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], 2, id="names, and the running ones for resource metrics"),
        pytest.param(["--scaler", "--local-address="], 1, id="one cache for these and the scaler"),
    ],
)
async def test_all_pods_are_watched_as_rarely_as_can_be(
    tmp_path: Path, world: ScaledCluster, arguments: list[str], expected: int
) -> None:
    world.cluster.create(autoscaler())
    world.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "job", "namespace": "default", "labels": {"app": "job"}},
            "spec": {"containers": [{"name": "main"}]},
        }
    )
    world.cluster.patch("Pod", "job", {"status": {"phase": "Succeeded"}})
    world.load = 7.5
    (tmp_path / "rules.yaml").write_text(SCRAPED.replace("PORT", str(world.port)) + RESOURCES)
    paces = ["--metrics-relist-interval=5s", "--metrics-max-age=60s", "--scrape-pod-cidrs=127.0.0.0/8"]
    async with running(tmp_path, world.cluster, world.prometheus.url, *paces, *arguments) as adapter:
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)
        path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/%2A/load"
        values = 2 if arguments else 0  # the scaler scrapes the pods; Prometheus knows neither
        await adapter.wait_for(
            path, lambda answer: (len(answer.values) if answer.status == 200 else 0) == values
        )
        await until(lambda: world.cluster.open_watches and requests_for_pods(world)["watch"] == expected)
        single = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/"
        assert (await adapter.get(f"{single}job")).body["message"] == 'pods "job" not found', "it has ended"
        assert requests_for_pods(world) == {"list": expected, "watch": expected}


async def until_leading(leader: FastpathProcess) -> None:
    status = 503
    while status == 503:
        status, _ = await leader.get("/debug/fastpath/autoscalers/default/web")
        await asyncio.sleep(0.05)
