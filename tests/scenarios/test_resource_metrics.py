"""kubectl and the resource metrics API, as people meet them: a real Prometheus, straight at the adapter and
through a cluster's aggregator.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support import adapter as support
from tests.support import certificates
from tests.support.adapter import RunningAdapter
from tests.support.kubectl import Kubectl
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
externalRules:
- seriesQuery: 'queue_depth'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
resourceRules:
  cpu:
    containerQuery: >-
      sum by (<<.GroupBy>>) (rate(container_cpu_usage_seconds_total{container!="",<<.LabelMatchers>>}[2m]))
    nodeQuery: >-
      sum by (<<.GroupBy>>) (rate(container_cpu_usage_seconds_total{id="/",<<.LabelMatchers>>}[2m]))
    resources:
      overrides: {instance: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}
    containerLabel: container
  memory:
    containerQuery: >-
      sum by (<<.GroupBy>>) (container_memory_working_set_bytes{container!="",<<.LabelMatchers>>})
    nodeQuery: 'sum by (<<.GroupBy>>) (container_memory_working_set_bytes{id="/",<<.LabelMatchers>>})'
    resources:
      overrides: {instance: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}
    containerLabel: container
  window: 2m
"""
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
GROUPS = {
    "v1.metrics.k8s.io": 200,
    "v1beta1.metrics.k8s.io": 100,
    "v1beta1.custom.metrics.k8s.io": 100,
    "v1beta2.custom.metrics.k8s.io": 200,
    "v1beta1.external.metrics.k8s.io": 100,
}


def _write(prometheus: PrometheusServer) -> None:
    now = time.time()  # noqa: TID251  # a real Prometheus looks at real time
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


def _pod(namespace: str, name: str, phase: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": phase}}


def _register(cluster: Cluster, port: int) -> None:
    """Put the adapter behind the cluster, as on a real one whose adapter listens on loopback."""
    service = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": "fastpath", "namespace": "fastpath"}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    for name, priority in GROUPS.items():
        version, _, group = name.partition(".")
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": priority,
            "insecureSkipTLSVerify": True,
            "service": metadata | {"port": port},
        }
        cluster.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": spec,
            }
        )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    authority = certificates.Signer("front-proxy-ca")
    shown = authority.issue("front-proxy-client").write(tmp_path)
    async with Cluster(proxy_certificate=shown) as cluster:
        cluster.create(certificates.config_map_object(certificates.config_map(authority.pem)))
        for name, (cpu, memory) in {"node-a": ("4", "4Gi"), "node-b": ("2", "4Gi")}.items():
            capacity = {"cpu": cpu, "memory": memory}
            status = {"allocatable": capacity, "capacity": capacity}
            cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        for number in range(2):
            cluster.create(_pod("shop", f"web-{number}", "Running", app="web"))
        cluster.create(_pod("shop", "done-0", "Succeeded", app="done"))
        cluster.create(_pod("bank", "vault-0", "Running", app="vault"))
        yield cluster


@pytest.fixture
async def adapter(
    tmp_path: Path, cluster: Cluster, prometheus_server: PrometheusFactory
) -> AsyncIterator[RunningAdapter]:
    prometheus = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(_write, prometheus)
    (tmp_path / "rules.yaml").write_text(RULES)
    async with support.running(tmp_path, cluster, prometheus.url) as adapter:
        _register(cluster, int(adapter.url.rpartition(":")[2]))
        yield adapter


async def rows(kubectl: Kubectl, server: str, *arguments: str) -> list[list[str]]:
    finished = await kubectl.run(server, *arguments)
    assert finished.status == 0, finished.stderr
    assert not finished.stderr
    return [line.split() for line in finished.stdout.splitlines()]


@pytest.fixture(params=["at the adapter", "through the cluster"])
def server(request: pytest.FixtureRequest, adapter: RunningAdapter, cluster: Cluster) -> str:
    return adapter.url if request.param == "at the adapter" else cluster.url


def near(shown: str, cores: float) -> bool:
    """Whether `kubectl top` shows about so many cores: a rate over real time is not exact."""
    return abs(int(shown.removesuffix("m")) / 1000 - cores) < 0.02 * cores


async def test_top_pods(kubectl: Kubectl, server: str) -> None:
    head, *found = await rows(kubectl, server, "top", "pods", "-n", "shop")
    assert head == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert [(name, memory) for name, _, memory in found] == [("web-0", "110Mi"), ("web-1", "200Mi")]
    assert [near(cpu, cores) for (_, cpu, _), cores in zip(found, (0.3, 0.5), strict=True)] == [True, True]
    head, *containers = await rows(kubectl, server, "top", "pods", "-n", "shop", "--containers")
    assert head == ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert [(pod, name) for pod, name, _, _ in containers] == [
        ("web-0", "main"),
        ("web-0", "side"),
        ("web-1", "main"),
    ]
    _, *containers = await rows(kubectl, server, "top", "pod", "web-0", "-n", "shop", "--containers")
    assert [(pod, name, memory) for pod, name, _, memory in containers] == [
        ("web-0", "main", "100Mi"),
        ("web-0", "side", "10Mi"),
    ]
    _, *everywhere = await rows(kubectl, server, "top", "pods", "-A", "--sort-by=memory")
    assert [(namespace, name) for namespace, name, _, _ in everywhere] == [
        ("bank", "vault-0"),
        ("shop", "web-1"),
        ("shop", "web-0"),
    ]
    _, *selected = await rows(kubectl, server, "top", "pods", "-A", "-l", "app=vault")
    assert [name for _, name, _, _ in selected] == ["vault-0"]


async def test_top_pods_by_field(kubectl: Kubectl, adapter: RunningAdapter, cluster: Cluster) -> None:
    """kubectl of 1.37 looks up the fields of pods in the cluster, so this goes through the cluster only."""
    _, *by_field = await rows(
        kubectl, cluster.url, "top", "pods", "-n", "shop", "--field-selector=metadata.name=web-1"
    )
    assert [name for name, _, _ in by_field] == ["web-1"]


async def test_top_nodes_with_shares_of_what_they_have(
    kubectl: Kubectl, adapter: RunningAdapter, cluster: Cluster
) -> None:
    """The shares come from the cluster's own nodes, so this goes through the cluster only."""
    head, *found = await rows(kubectl, cluster.url, "top", "nodes")
    assert [column.replace("(%)", "%") for column in head] == [
        "NAME",
        "CPU(cores)",
        "CPU%",
        "MEMORY(bytes)",
        "MEMORY%",
    ]
    shown = {name: (cpu, share, memory, memory_share) for name, cpu, share, memory, memory_share in found}
    assert shown.keys() == NODES.keys()
    assert near(shown["node-a"][0], 1.5)
    assert (shown["node-a"][1] in {"36%", "37%", "38%"}, *shown["node-a"][2:]) == (True, "2048Mi", "50%")
    assert shown["node-b"][2:] == ("1024Mi", "25%")


async def test_a_pod_that_ends_is_no_longer_measured(
    kubectl: Kubectl, adapter: RunningAdapter, cluster: Cluster
) -> None:
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
    assert {each["metadata"]["name"] for each in (await adapter.get(path)).body["items"]} == {
        "web-0",
        "web-1",
    }
    cluster.patch("Pod", "web-0", {"status": {"phase": "Succeeded"}}, "shop")
    await adapter.wait_for(
        path, lambda answer: [each["metadata"]["name"] for each in answer.body["items"]] == ["web-1"]
    )
    finished = await kubectl.run(adapter.url, "top", "pod", "web-0", "-n", "shop")
    assert (finished.status, finished.stderr.strip()) == (
        1,
        'Error from server (NotFound): pods "web-0" not found',
    )


async def test_get_shows_a_table(kubectl: Kubectl, server: str) -> None:
    head, *found = await rows(kubectl, server, "get", "podmetrics", "-n", "shop")
    assert head == ["NAME", "CPU", "MEMORY", "WINDOW"]
    assert [(name, memory, window) for name, _, memory, window in found] == [
        ("web-0", "110Mi", "2m0s"),
        ("web-1", "200Mi", "2m0s"),
    ]
    head, *found = await rows(kubectl, server, "get", "nodes.metrics.k8s.io")
    assert [(name, memory) for name, _, memory, _ in found] == [("node-a", "2Gi"), ("node-b", "1Gi")]
    [name] = await rows(kubectl, server, "get", "podmetrics", "web-0", "-n", "shop", "-o", "name")
    assert name == ["podmetrics.metrics.k8s.io/web-0"]


async def test_api_resources_lists_the_metrics(kubectl: Kubectl, server: str) -> None:
    _, *found = await rows(kubectl, server, "api-resources", "--no-headers=false", "--sort-by=name")
    kinds = {(name, version, kind) for name, version, namespaced, kind in (row[-4:] for row in found)}
    assert {
        ("nodes", "metrics.k8s.io/v1", "NodeMetrics"),
        ("pods", "metrics.k8s.io/v1", "PodMetrics"),
        ("queue_depth", "external.metrics.k8s.io/v1beta1", "ExternalMetricValueList"),
    } <= kinds
    versions = await kubectl.run(server, "api-versions")
    assert {f"{name.partition('.')[2]}/{name.partition('.')[0]}" for name in GROUPS} <= set(
        versions.stdout.split()
    )
    metrics = await kubectl.get_raw(server, "/apis/custom.metrics.k8s.io/v1beta2")
    assert [each["name"] for each in metrics["resources"]] == ["namespaces/load", "pods/load"]


async def test_get_raw_shows_what_is_served(kubectl: Kubectl, server: str) -> None:
    groups = await kubectl.get_raw(server, "/apis")
    served = {
        f"{each['name']}/{version['version']}" for each in groups["groups"] for version in each["versions"]
    }
    assert {
        "metrics.k8s.io/v1",
        "metrics.k8s.io/v1beta1",
        "custom.metrics.k8s.io/v1beta1",
        "external.metrics.k8s.io/v1beta1",
    } <= served
    group = await kubectl.get_raw(server, "/apis/metrics.k8s.io")
    assert (group["kind"], group["name"], group["preferredVersion"]["version"]) == (
        "APIGroup",
        "metrics.k8s.io",
        "v1",
    )
    for version in ("v1", "v1beta1"):
        path = f"/apis/metrics.k8s.io/{version}"
        listed = await kubectl.get_raw(server, path)
        assert [(each["name"], each["kind"], each["namespaced"]) for each in listed["resources"]] == [
            ("nodes", "NodeMetrics", False),
            ("pods", "PodMetrics", True),
        ]
        pods = await kubectl.get_raw(server, f"{path}/pods?labelSelector=app%3Dvault")
        assert [(each["metadata"]["name"], each["window"]) for each in pods["items"]] == [("vault-0", "2m0s")]
        nodes = await kubectl.get_raw(server, f"{path}/nodes")
        assert [(each["metadata"]["name"], each["usage"]["memory"]) for each in nodes["items"]] == [
            ("node-a", "2Gi"),
            ("node-b", "1Gi"),
        ]


async def test_get_raw_shows_the_specifications(kubectl: Kubectl, adapter: RunningAdapter) -> None:
    """Those of the adapter itself: the cluster's aggregator puts them together with its own."""
    old = await kubectl.get_raw(adapter.url, "/openapi/v2")
    assert old["swagger"] == "2.0"
    assert "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}" in old["paths"]
    root = await kubectl.get_raw(adapter.url, "/openapi/v3")
    for group_version in (
        "metrics.k8s.io/v1",
        "metrics.k8s.io/v1beta1",
        "custom.metrics.k8s.io/v1beta2",
        "external.metrics.k8s.io/v1beta1",
    ):
        path = root["paths"][f"apis/{group_version}"]["serverRelativeURL"]
        document = await kubectl.get_raw(adapter.url, path)
        assert document["openapi"].startswith("3.")
        assert any(each.startswith(f"/apis/{group_version}") for each in document["paths"])


async def test_explain_reads_the_specification(kubectl: Kubectl, adapter: RunningAdapter) -> None:
    for version in ("v1", "v1beta1"):
        which = f"--api-version=metrics.k8s.io/{version}"
        finished = await kubectl.run(adapter.url, "explain", "podmetrics.containers.usage", which)
        assert finished.status == 0, finished.stderr
        assert f"VERSION:    {version}\n" in finished.stdout
        assert "What is used of cpu and memory." in finished.stdout


async def test_version(kubectl: Kubectl, adapter: RunningAdapter) -> None:
    finished = await kubectl.run(adapter.url, "version")
    assert "Server Version: vtest" in finished.stdout


async def test_resource_rules_come_and_go(
    tmp_path: Path, cluster: Cluster, prometheus_server: PrometheusFactory
) -> None:
    """The group is served from the first rules on, and stays; without rules, or with faulty ones, it says
    that it has none.
    """
    prometheus = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(_write, prometheus)
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


async def test_previews_have_the_values_of_the_other_versions(
    tmp_path: Path, cluster: Cluster, prometheus_server: PrometheusFactory
) -> None:
    prometheus = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(_write, prometheus)
    (tmp_path / "rules.yaml").write_text(RULES)
    async with support.running(tmp_path, cluster, prometheus.url, "--serve-v1-preview") as adapter:
        for group, settled, rest in (
            ("custom.metrics.k8s.io", "v1beta2", "namespaces/shop/pods/%2A/load"),
            ("external.metrics.k8s.io", "v1beta1", "namespaces/shop/queue_depth"),
        ):
            older = (await adapter.get(f"/apis/{group}/{settled}/{rest}")).body
            preview = (await adapter.get(f"/apis/{group}/v1/{rest}")).body
            assert len(preview["items"]) == 1
            assert preview["apiVersion"] == f"{group}/v1"
            for each in (*older["items"], *preview["items"]):
                del each["timestamp"]
            assert preview == older | {"apiVersion": f"{group}/v1"}


async def test_the_access_log_has_every_request(
    tmp_path: Path, cluster: Cluster, prometheus_server: PrometheusFactory
) -> None:
    prometheus = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(_write, prometheus)
    (tmp_path / "rules.yaml").write_text(RULES)
    log = tmp_path / "access.log"
    async with support.running(tmp_path, cluster, prometheus.url, f"--access-log={log}") as adapter:
        for number in range(20):
            await adapter.get(f"/apis/metrics.k8s.io/v1/nodes?number={number}")
        token = adapter.headers["Authorization"].removeprefix("Bearer ")
    text = await asyncio.to_thread(log.read_text)
    lines = [json.loads(line) for line in text.splitlines()]
    about = [line for line in lines if line["path"] == "/apis/metrics.k8s.io/v1/nodes"]
    assert [(line["verb"], line["code"], line["user"]) for line in about] == [("list", 200, "someone")] * 20
    assert all(line["bytes"] > 0 and line["latencySeconds"] > 0 and line["auditID"] for line in about)
    assert token not in text
    assert "number=" not in text
