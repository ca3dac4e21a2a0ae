"""The real kubectl against the sandbox cluster."""

import pytest
import yaml

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.support.kubectl import Kubectl

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


async def run(kubectl: Kubectl, cluster: Cluster, *arguments: str, stdin: str = "") -> str:
    finished = await kubectl.run(cluster.url, *arguments, stdin=stdin)
    assert finished.status == 0, finished.stderr
    return finished.stdout


async def test_reading(cluster: Cluster, kubectl: Kubectl) -> None:
    body = {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": {"containers": [{"name": "a"}]},
        "status": {"phase": "Running"},
    }
    cluster.create(body | {"metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}}})
    table = (await run(kubectl, cluster, "get", "pods", "-A")).splitlines()
    assert table[0].split() == ["NAMESPACE", "NAME", "READY", "STATUS", "AGE"]
    assert table[1].split() == ["shop", "web-1", "0/1", "Running", "0s"]
    assert (
        await run(kubectl, cluster, "get", "po", "-n", "shop", "-l", "app=web", "-o", "name")
    ) == "pod/web-1\n"
    described = await run(kubectl, cluster, "get", "pod", "web-1", "-n", "shop", "-o", "yaml")
    assert yaml.safe_load(described)["metadata"]["labels"] == {"app": "web"}
    resources = await run(kubectl, cluster, "api-resources")
    assert "deployments" in resources
    assert "horizontalpodautoscalers" in resources
    missing = await kubectl.run(cluster.url, "get", "pod", "absent")
    assert (missing.status, missing.stderr.strip()) == (
        1,
        'Error from server (NotFound): pods "absent" not found',
    )


async def test_writing(cluster: Cluster, kubectl: Kubectl) -> None:
    manifest = deployment("web", replicas=2)
    apply = ("apply", "--validate=false", "-f", "-")
    assert "created" in await run(kubectl, cluster, *apply, stdin=yaml.safe_dump(manifest))
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:2"
    assert "configured" in await run(kubectl, cluster, *apply, stdin=yaml.safe_dump(manifest))
    assert "unchanged" in await run(kubectl, cluster, *apply, stdin=yaml.safe_dump(manifest))
    containers = cluster.get("deployments", "web")["spec"]["template"]["spec"]["containers"]
    assert [(entry["name"], entry["image"]) for entry in containers] == [("web", "registry.example/web:2")]
    await run(kubectl, cluster, "scale", "deploy", "web", "--replicas=5")
    assert cluster.get("deployments", "web")["spec"]["replicas"] == 5
    await run(kubectl, cluster, "label", "deploy", "web", "tier=front")
    assert cluster.get("deployments", "web")["metadata"]["labels"]["tier"] == "front"
    await run(kubectl, cluster, "delete", "deploy", "web")
    assert cluster.list("deployments") == []
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}}
    await run(kubectl, cluster, "create", "--validate=false", "-f", "-", stdin=yaml.safe_dump(namespace))
    assert [item["metadata"]["name"] for item in cluster.list("namespaces")] == [
        "default",
        "kube-system",
        "shop",
    ]


async def test_server_side_apply(cluster: Cluster, kubectl: Kubectl) -> None:
    manifest = yaml.safe_dump(deployment("web"))
    apply = ("apply", "--server-side", "--validate=false", "-f", "-")
    assert "serverside-applied" in await run(kubectl, cluster, *apply, stdin=manifest)
    assert "serverside-applied" in await run(kubectl, cluster, *apply, stdin=manifest)


async def test_without_aggregated_discovery(kubectl: Kubectl) -> None:
    async with Cluster(aggregated_discovery=False) as cluster:
        assert "default" in await run(kubectl, cluster, "get", "ns")
        assert "/apis/apps/v1" in {request.path for request in cluster.requests}


async def test_watching(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.create(deployment("web"))
    shown = await run(kubectl, cluster, "get", "deploy", "-w", "--request-timeout=1s")
    assert shown.split()[:4] == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE"]
    assert any(request.verb == "watch" for request in cluster.requests)


async def test_a_generator_is_told_what_to_do_instead(cluster: Cluster, kubectl: Kubectl) -> None:
    finished = await kubectl.run(cluster.url, "create", "namespace", "shop")
    assert finished.status == 1
    assert (
        "sandbox: protobuf is not read: send application/json; with kubectl use create -f" in finished.stderr
    )
