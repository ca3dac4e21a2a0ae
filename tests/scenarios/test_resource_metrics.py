"""kubectl and the resource metrics API, as people meet them: a real Prometheus, straight at the adapter."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support import adapter as support
from tests.support.kubectl import Kubectl
from tests.support.objects import plain
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.world.workloads import CLOCK

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

RULES = (Path(__file__).parents[1] / "data" / "rules" / "pods-and-nodes.yaml").read_text()
MIB = 1024 * 1024

# Cores and bytes by namespace, pod and container; and those of the nodes.
PODS = {
    ("shop", "web-0", "main"): (0.25, 100 * MIB),
    ("shop", "web-0", "side"): (0.05, 10 * MIB),
    ("shop", "web-1", "main"): (0.5, 200 * MIB),
    ("shop", "done-0", "main"): (0.1, 1 * MIB),
    ("bank", "vault-0", "main"): (1.0, 300 * MIB),
}
NODES = {"node-a": (1.5, 2048 * MIB), "node-b": (0.5, 1024 * MIB)}


def _write(prometheus: PrometheusServer) -> None:
    now = CLOCK.wall()
    samples = [
        Written({"__name__": "load", "namespace": "shop", "pod": "web-0"}, 1, now),
        Written({"__name__": "queue_depth", "namespace": "shop", "queue": "mail"}, 5, now),
    ]
    used: dict[tuple[tuple[str, str], ...], tuple[float, float]] = {
        (("namespace", namespace), ("pod", pod), ("container", container)): usage
        for (namespace, pod, container), usage in PODS.items()
    }
    used |= {(("instance", node), ("id", "/")): usage for node, usage in NODES.items()}
    for labels, (cpu, memory) in used.items():
        of_cpu = {"__name__": "container_cpu_usage_seconds_total", **dict(labels)}
        samples += [Written(of_cpu, cpu * (120 - age), now - age) for age in range(120, -1, -15)]
        samples.append(
            Written({"__name__": "container_memory_working_set_bytes", **dict(labels)}, memory, now)
        )
    prometheus.write(*samples)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        for name in NODES:
            cluster.create(plain("Node", name))
        for namespace, name, phase in (
            ("shop", "web-0", "Running"),
            ("shop", "web-1", "Running"),
            ("shop", "done-0", "Succeeded"),
            ("bank", "vault-0", "Running"),
        ):
            labels = {"app": name.partition("-")[0]}
            cluster.create(plain("Pod", name, namespace, labels, status={"phase": phase}))
        yield cluster


@pytest.fixture
async def prometheus(prometheus_server: PrometheusFactory) -> PrometheusServer:
    prometheus = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(_write, prometheus)
    return prometheus


async def rows(kubectl: Kubectl, server: str, *arguments: str) -> list[list[str]]:
    finished = await kubectl.run(server, *arguments)
    assert finished.status == 0, finished.stderr
    assert not finished.stderr
    return [line.split() for line in finished.stdout.splitlines()]


def near(shown: str, cores: float) -> bool:
    """Whether `kubectl top` shows about so many cores: a rate over real time is not exact."""
    return abs(int(shown.removesuffix("m")) / 1000 - cores) < 0.02 * cores


async def test_kubectl_shows_usages(
    tmp_path: Path, cluster: Cluster, prometheus: PrometheusServer, kubectl: Kubectl
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    log = tmp_path / "access.log"
    flags = (f"--access-log={log}", "--serve-v1-preview")
    async with support.running(tmp_path, cluster, prometheus.url, *flags) as adapter:

        async def ask(*arguments: str) -> list[list[str]]:
            return await rows(kubectl, adapter.url, *arguments)

        head, *found = await ask("top", "pods", "-n", "shop")
        assert head == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
        assert [(name, memory) for name, _, memory in found] == [("web-0", "110Mi"), ("web-1", "200Mi")]
        assert all(near(cpu, cores) for (_, cpu, _), cores in zip(found, (0.3, 0.5), strict=True))
        _, *containers = await ask("top", "pod", "web-0", "-n", "shop", "--containers")
        parts = [("web-0", "main", "100Mi"), ("web-0", "side", "10Mi")]
        assert [(pod, name, memory) for pod, name, _, memory in containers] == parts
        _, *everywhere = await ask("top", "pods", "-A", "--sort-by=memory")
        assert [name for _, name, _, _ in everywhere] == ["vault-0", "web-1", "web-0"]
        _, *selected = await ask("top", "pods", "-A", "-l", "app=vault")
        assert [name for _, name, _, _ in selected] == ["vault-0"]
        head, *found = await ask("get", "nodes.metrics.k8s.io")
        assert [(name, memory) for name, _, memory, _ in found] == [("node-a", "2Gi"), ("node-b", "1Gi")]
        for version in ("v1", "v1beta1"):
            which = f"--api-version=metrics.k8s.io/{version}"
            finished = await kubectl.run(adapter.url, "explain", "podmetrics.containers.usage", which)
            assert f"VERSION:    {version}\n" in finished.stdout
            assert "What is used of cpu and memory." in finished.stdout
        assert "Server Version: vtest" in (await kubectl.run(adapter.url, "version")).stdout
        ended = await kubectl.run(adapter.url, "top", "pod", "done-0", "-n", "shop")
        assert ended.stderr.strip() == 'Error from server (NotFound): pods "done-0" not found'
        preview = await adapter.get("/apis/custom.metrics.k8s.io/v1/namespaces/shop/pods/%2A/load")
        assert (preview.body["apiVersion"], preview.values) == ("custom.metrics.k8s.io/v1", {"web-0": "1"})
        token = adapter.headers["Authorization"].removeprefix("Bearer ")
    text = await asyncio.to_thread(log.read_text)
    lines = [json.loads(line) for line in text.splitlines()]
    about = [line for line in lines if line["path"] == "/apis/metrics.k8s.io/v1/nodes"]
    assert [(line["verb"], line["code"], line["user"]) for line in about] == [("list", 200, "someone")]
    assert all(line["bytes"] > 0 and line["latencySeconds"] > 0 and line["auditID"] for line in about)
    assert token not in text


async def test_resource_rules_come_and_go(
    tmp_path: Path, cluster: Cluster, prometheus: PrometheusServer
) -> None:
    """The group is served from the first rules on, and stays; without rules, or with faulty ones, it says
    that it has none.
    """
    rules, path = tmp_path / "rules.yaml", "/apis/metrics.k8s.io/v1beta1/nodes"
    without = RULES.partition("resourceRules")[0]
    rules.write_text(without)
    async with support.running(tmp_path, cluster, prometheus.url) as adapter:
        assert (await adapter.get(path)).status == 404
        assert not [request for request in cluster.requests if request.resource == "nodes"], (
            "not mirrored in vain"
        )
        await asyncio.to_thread(rules.write_text, RULES)
        listed = await adapter.wait_for(path, lambda answer: answer.status == 200)
        assert [item["metadata"]["name"] for item in listed.body["items"]] == sorted(NODES)
        loaded = await adapter.metric_lines("fastpath_rules_loaded")
        assert loaded['fastpath_rules_loaded{api="resource"}'] == 1
        await asyncio.to_thread(rules.write_text, without)
        refused = await adapter.wait_for(path, lambda answer: answer.status == 503)
        assert refused.body["message"] == "no resource rules are in force"
        assert (await adapter.get("/apis/metrics.k8s.io/v1beta1")).status == 200, (
            "an APIService may stand for it"
        )
    await asyncio.to_thread(rules.write_text, RULES.replace("(rate(", "(<<rate(", 1))
    async with support.running(tmp_path, cluster, prometheus.url) as adapter:
        assert (await adapter.get(path)).status == 503
        skipped = await adapter.metric_lines("fastpath_rules_skipped")
        assert skipped['fastpath_rules_skipped{api="resource"}'] == 1
        assert (await adapter.pods("shop", "load")).status == 200, "the other rules serve"
