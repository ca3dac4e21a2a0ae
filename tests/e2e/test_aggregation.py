"""The adapter behind an aggregation layer: registration, kubectl, real autoscalers, refusals, rotation.

The same cases run on the sandbox and, where KUBEBUILDER_ASSETS names one, on a real control plane; what the
sandbox has no controllers for runs on the real one only. Values come from a real Prometheus.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.kubernetes import apiservices
from adapter.server import tls
from tests.e2e import aggregation
from tests.e2e.aggregation import PATHS, RESOURCE_RULES, Direct, Registered
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.support.certificates import Signer
from tests.support.processor import limited
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.support.tls import Authority
from tests.world.controllers import well

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

RULES = (
    """

rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'hits{namespace!="",service!=""}'
  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'backlog{namespace!="",queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""
    + RESOURCE_RULES
)
MIB = 1024 * 1024


@pytest.fixture
async def prometheus(prometheus_server: PrometheusFactory) -> PrometheusServer:
    return await asyncio.to_thread(prometheus_server)


@pytest.fixture(autouse=True)
def rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)


async def write(prometheus: PrometheusServer, name: str, value: float, **labels: str) -> None:
    now = time.time()  # noqa: TID251 - a real Prometheus looks at real time
    await asyncio.to_thread(prometheus.write, Written({"__name__": name, **labels}, value, now))


async def write_all(prometheus: PrometheusServer, namespace: str, pod: str) -> None:
    """Write a sample for each API: three times what the autoscalers below want of one pod."""
    await write(prometheus, "load", 3, namespace=namespace, pod=pod)
    await write(prometheus, "hits", 6, namespace=namespace, service="web")
    await write(prometheus, "backlog", 30, namespace=namespace, queue="orders")
    await write(prometheus, "cores", 0.15, namespace=namespace, pod=pod, container="main")
    await write(prometheus, "working_set_bytes", 64 * MIB, namespace=namespace, pod=pod, container="main")


async def make_well(cluster: ClusterUnderTest, pod: str) -> None:
    """Do what a kubelet does once a pod's containers run."""
    status = json.dumps({"status": well()})
    where = ("pod", pod, "-n", cluster.namespace)
    await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", status)


async def make_pod(cluster: ClusterUnderTest, prometheus: PrometheusServer) -> None:
    """Make the pod web-0 and all its metrics."""
    metadata = {"name": "web-0", "namespace": cluster.namespace, "labels": {"app": "web"}}
    spec = {"containers": [{"name": "main", "image": "registry.example/none:1"}]}
    await cluster.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, service(cluster)
    )
    await make_well(cluster, "web-0")
    await write_all(prometheus, cluster.namespace, "web-0")


def service(cluster: ClusterUnderTest) -> Document:
    metadata = {"name": "web", "namespace": cluster.namespace}
    spec = {"clusterIP": "None", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@pytest.fixture
async def registered(
    tmp_path: Path, fronted: Fronted, prometheus: PrometheusServer
) -> AsyncIterator[Registered]:
    cluster, backend = fronted
    await make_pod(cluster, prometheus)
    async with aggregation.register(cluster, backend, tmp_path, prometheus.url) as registered:
        yield registered


@pytest.fixture
async def own_registered(
    tmp_path: Path, own_fronted: Fronted, prometheus: PrometheusServer
) -> AsyncIterator[Registered]:
    cluster, backend = own_fronted
    await make_pod(cluster, prometheus)
    async with aggregation.register(cluster, backend, tmp_path, prometheus.url) as registered:
        yield registered


async def read(cluster: ClusterUnderTest, path: str) -> Any:
    return json.loads(await cluster.kubectl("get", "--raw", path))


async def until(accept: Callable[[Any], object], ask: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Ask until the answer is accepted, and return it; fails with the last one."""
    found: Any = None
    try:
        async with limited(seconds):
            while True:
                found = await ask()
                if accept(found):
                    return found
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"it never came to that; last: {found}")


async def test_kubectl_reads_every_group(registered: Registered) -> None:
    cluster = registered.cluster
    for path in PATHS:
        document = await read(cluster, path)
        assert (document["kind"], document["groupVersion"]) == (
            "APIResourceList",
            path.removeprefix("/apis/"),
        )
    beneath = f"namespaces/{cluster.namespace}"
    for path in PATHS[:2]:
        [item] = (await read(cluster, f"{path}/{beneath}/pods/%2A/load?labelSelector=app%3Dweb"))["items"]
        assert (item["describedObject"]["name"], item["value"]) == ("web-0", "3")
        [item] = (await read(cluster, f"{path}/{beneath}/services/web/hits"))["items"]
        assert (item["describedObject"]["kind"], item["value"]) == ("Service", "6")
    [item] = (await read(cluster, f"{PATHS[2]}/{beneath}/backlog?labelSelector=queue%3Dorders"))["items"]
    assert (item["metricLabels"], item["value"]) == ({"queue": "orders"}, "30")
    for path in PATHS[3:]:
        listed = await read(cluster, f"{path}/{beneath}/pods")
        assert listed["apiVersion"] == path.removeprefix("/apis/")
        [item] = listed["items"]
        assert item["containers"] == [{"name": "main", "usage": {"cpu": "150m", "memory": "64Mi"}}]


async def test_kubectl_lists_and_tops(registered: Registered) -> None:
    cluster = registered.cluster
    versions = (await cluster.kubectl("api-versions")).split()
    assert {path.removeprefix("/apis/") for path in PATHS} <= set(versions)

    # the aggregator reads what a server has some time after it has found the server, and calls a group stale
    # until then
    wanted = {"backlog.external.metrics.k8s.io", "pods.metrics.k8s.io", "nodes.metrics.k8s.io"}
    await until(
        lambda found: (found.status, found.stderr) == (0, "") and wanted <= set(found.stdout.split()),
        lambda: cluster.run(cluster.admin_kubeconfig, "api-resources", "-o", "name"),
    )
    table = (await cluster.kubectl("top", "pods", "-n", cluster.namespace)).splitlines()
    assert [line.split() for line in table] == [
        ["NAME", "CPU(cores)", "MEMORY(bytes)"],
        ["web-0", "150m", "64Mi"],
    ]
    one = await cluster.kubectl(
        "top", "pod", "web-0", "-n", cluster.namespace, "--containers", "--no-headers"
    )
    assert one.split() == ["web-0", "main", "150m", "64Mi"]


@pytest.mark.parametrize(
    ("path", "rule", "refusal"),
    [
        (
            f"{PATHS[0]}/namespaces/{{ns}}/pods/%2A/load",
            {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["pods/load"], "verbs": ["get"]},
            (
                'pods.custom.metrics.k8s.io "*" is forbidden: User "{user}" cannot get resource "pods/load" '
                'in API group "custom.metrics.k8s.io" in the namespace "{ns}"'
            ),
        ),
        (
            f"{PATHS[2]}/namespaces/{{ns}}/backlog",
            {"apiGroups": ["external.metrics.k8s.io"], "resources": ["backlog"], "verbs": ["list"]},
            (
                'backlog.external.metrics.k8s.io is forbidden: User "{user}" cannot list resource "backlog" '
                'in API group "external.metrics.k8s.io" in the namespace "{ns}"'
            ),
        ),
        (
            f"{PATHS[3]}/namespaces/{{ns}}/pods",
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
            (
                'pods.metrics.k8s.io is forbidden: User "{user}" cannot list resource "pods" in API group '
                '"metrics.k8s.io" in the namespace "{ns}"'
            ),
        ),
    ],
    ids=["custom", "external", "resource"],
)
async def test_a_user_needs_the_right_itself(
    tmp_path: Path, registered: Registered, path: str, rule: Document, refusal: str
) -> None:
    """Through the cluster and past it, with the same words; a right that is given counts soon."""
    cluster, namespace = registered.cluster, registered.cluster.namespace
    jane, path = f"jane-{namespace}", path.format(ns=namespace)
    refusal = refusal.format(user=jane, ns=namespace)
    kubeconfig = registered.backend.user(jane, tmp_path / "jane.kubeconfig")
    shown = registered.backend.authority.issue(common_name=jane, organization="e2e")
    refused = await cluster.run(kubeconfig, "get", "--raw", path)
    assert (refused.status, refused.stderr.strip()) == (1, f"Error from server (Forbidden): {refusal}")
    async with registered.directly(shown) as direct:
        assert await direct.get(path) == (403, refusal)
        await registered.backend.grant(cluster, jane, rule)
        assert (await until(lambda found: found[0] == 200, lambda: direct.get(path)))[0] == 200
        other = path.replace(namespace, "default")
        assert (await direct.get(other))[0] == 403, "in that namespace alone"
    allowed = await until(
        lambda found: found.status == 0, lambda: cluster.run(kubeconfig, "get", "--raw", path)
    )
    assert len(json.loads(allowed.stdout)["items"]) == 1


async def test_only_a_front_proxy_speaks_for_users(registered: Registered) -> None:
    """The API server's headers count with its certificate; without it no caller is an administrator."""
    path = f"{PATHS[0]}/namespaces/{registered.cluster.namespace}/pods/%2A/load"
    claimed = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    async with registered.directly() as direct:
        status, message = await direct.get(path, claimed)
        assert (status, 'User "system:anonymous" cannot get' in message) == (403, True)
        assert (await direct.get(path, {"Authorization": "Bearer unknown"})) == (401, "Unauthorized")
    user = registered.backend.authority.issue(common_name="mallory", organization="e2e")
    async with registered.directly(user) as direct:
        status, message = await direct.get(path, claimed)
        assert (status, 'User "mallory" cannot get' in message) == (403, True)


CHECK = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
"""Who the API server says it is when it looks whether a server is there."""


async def answers(direct: Direct) -> str:
    """Return the status of a front proxy's request, or "refused" if the connection fails."""
    try:
        status, _ = await direct.get(PATHS[0], CHECK)
    except aiohttp.ClientError:
        return "refused"
    return str(status)


async def goes_through(cluster: ClusterUnderTest) -> bool:
    return (await cluster.run(cluster.admin_kubeconfig, "get", "--raw", PATHS[0])).status == 0


@pytest.mark.timeout(600)  # a real API server may take a minute to see that a file has changed, each time
async def test_the_front_proxy_changes_its_authority(tmp_path: Path, own_registered: Registered) -> None:
    """Both are trusted, then the new one alone, also over open connections; the adapter is not restarted."""
    cluster, backend = own_registered.cluster, own_registered.backend
    old, new = backend.proxy.signer, Signer("front-proxy-ca-2")
    mine, yours = (each.issue("front-proxy-client").write(tmp_path) for each in (old, new))
    async with own_registered.directly(mine) as open_before, own_registered.directly(yours) as fresh:
        assert (await answers(open_before), await answers(fresh)) == ("200", "refused")
        await backend.publish(cluster, old, new)
        await until(lambda found: found == "200", lambda: answers(fresh))
        assert await answers(open_before) == "200"
        backend.proxy.show(new)
        await backend.publish(cluster, new)
        await until(lambda found: found == "401", lambda: answers(open_before))
        assert await answers(fresh) == "200"
    async with own_registered.directly(mine) as again:
        assert await answers(again) in {"401", "refused"}
    # the API server opens connections with its new certificate when it has seen it, within a minute
    await until(bool, lambda: goes_through(cluster))
    await backend.wait_available(cluster)


async def test_the_serving_certificate_is_rolled(
    registered: Registered, authority: Authority, other_authority: Authority
) -> None:
    """First the bundle with both authorities, then the certificate, then the bundle without the old one."""
    cluster = registered.cluster
    before = await registered.served()
    await registered.trust(authority, other_authority)
    assert await goes_through(cluster)
    registered.serve(other_authority)
    await until(lambda found: found != before, registered.served, seconds=3 * tls.RELOAD_PERIOD)
    await until(bool, lambda: goes_through(cluster))
    await registered.trust(other_authority)
    await until(bool, lambda: goes_through(cluster))
    await registered.backend.wait_available(cluster)


async def test_the_adapter_notices_that_another_server_takes_an_apiservice(
    tmp_path: Path, fronted: Fronted, prometheus: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter has the rights of the manifests, and no flag names its Service."""
    monkeypatch.setenv("POD_NAMESPACE", aggregation.NAMESPACE)
    monkeypatch.setattr(apiservices, "PERIOD", 0.2)
    cluster, backend = fronted

    def ours(**values: float) -> dict[str, float]:
        found = dict.fromkeys(aggregation.GROUP_VERSIONS, 1.0) | values
        return {f'fastpath_apiservice_owned{{apiservice="{name}"}}': value for name, value in found.items()}

    async with aggregation.register(cluster, backend, tmp_path, prometheus.url) as registered:

        async def shown() -> dict[str, float]:
            return await registered.adapter.metric_lines("fastpath_apiservice_owned{")

        await until(lambda found: found == ours(), shown)
        taken = aggregation.GROUP_VERSIONS[0]
        change = json.dumps({"spec": {"service": {"name": "prometheus-adapter"}}})
        await cluster.kubectl("patch", "apiservice", taken, "--type=merge", "-p", change)
        await until(lambda found: found == ours(**{taken: 0.0}), shown)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_a_namespace_is_deleted(registered: Registered) -> None:
    """Its end asks every group what there is in it, and waits for groups that do not answer."""
    cluster = registered.cluster
    name = f"{cluster.namespace}-gone"
    await cluster.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "something", "namespace": name}},
    )
    await cluster.kubectl("delete", "namespace", name, "--timeout=60s")
    found = await cluster.kubectl("get", "namespace", name, "--ignore-not-found", "-o", "name")
    assert found == ""


METRICS: Mapping[str, Document] = {
    "Pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    "Object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
        "metric": {"name": "hits"},
        "target": {"type": "AverageValue", "averageValue": "2"},
    },
    "External": {
        "metric": {"name": "backlog", "selector": {"matchLabels": {"queue": "orders"}}},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
    "Resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
"""What an autoscaler looks at, by its kind: with the samples of `write_all` each of them wants three
replicas.
"""


def deployment(cluster: ClusterUnderTest) -> Document:
    container = {
        "name": "main",
        "image": "registry.example/none:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": cluster.namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def autoscaler(cluster: ClusterUnderTest, kind: str) -> Document:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": cluster.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [{"type": kind, kind.lower(): METRICS[kind]}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


async def get(cluster: ClusterUnderTest, *what: str) -> Any:
    return json.loads(await cluster.kubectl("get", *what, "-n", cluster.namespace, "-o", "json"))


async def wait_replicas(cluster: ClusterUnderTest, wanted: int) -> None:
    """Wait until the Deployment has been told to have so many; fails with what the autoscaler says."""

    async def ask() -> Any:
        found = await get(cluster, "deployments.apps,horizontalpodautoscalers.autoscaling")
        return {each["kind"]: each for each in found["items"]}

    await until(lambda found: found["Deployment"]["spec"]["replicas"] == wanted, ask)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
@pytest.mark.parametrize("kind", list(METRICS))
async def test_an_autoscaler_scales(
    tmp_path: Path, fronted: Fronted, prometheus: PrometheusServer, kind: str
) -> None:
    cluster, backend = fronted
    await cluster.create(deployment(cluster), service(cluster))
    pods = await until(lambda found: found["items"], lambda: get(cluster, "pods", "-l", "app=web"))
    [pod] = [each["metadata"]["name"] for each in pods["items"]]
    await make_well(cluster, pod)
    await write_all(prometheus, cluster.namespace, pod)
    async with aggregation.register(cluster, backend, tmp_path, prometheus.url):
        await cluster.create(autoscaler(cluster, kind))
        try:
            await check_scaling(cluster, prometheus, kind)
        finally:
            await cluster.kubectl("delete", "hpa", "web", "-n", cluster.namespace)


async def check_scaling(cluster: ClusterUnderTest, prometheus: PrometheusServer, kind: str) -> None:
    await wait_replicas(cluster, 3)
    await until(lambda found: len(found["items"]) == 3, lambda: get(cluster, "pods", "-l", "app=web"))
    wanted = {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}

    def is_active(found: Document) -> bool:
        return any(wanted.items() <= each.items() for each in found.get("status", {}).get("conditions", ()))

    found = await until(is_active, lambda: get(cluster, "hpa", "web"))
    assert [each["type"] for each in found["status"]["currentMetrics"]] == [kind]
    if kind in {"Object", "External"}:  # of the others the new pods would need samples too
        await write(prometheus, "hits", 4, namespace=cluster.namespace, service="web")
        await write(prometheus, "backlog", 20, namespace=cluster.namespace, queue="orders")
        await wait_replicas(cluster, 2)
