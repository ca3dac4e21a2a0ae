"""The adapter behind an aggregation layer: registration, kubectl, real autoscalers, refusals, rotation.

The same cases run on the sandbox and, where KUBEBUILDER_ASSETS names one, on a real control plane; what the
sandbox has no controllers for runs on the real one only. Values come from a real Prometheus.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.kubernetes import apiservices
from adapter.server import tls
from tests.e2e.conftest import WITH_CONTROLLERS, WITH_WORKLOADS, Fronted
from tests.support import tools
from tests.support.certificates import Signer
from tests.support.objects import plain
from tests.support.processor import limited
from tests.support.tls import Authority
from tests.world import aggregation
from tests.world.aggregation import PATHS, Direct, Registered
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.workloads import Workload
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]
EVERYWHERE = pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)


async def serve(world: World) -> Workload:
    """Have one pod, whose load is six, and rules for that."""
    await asyncio.to_thread((world.directory / "rules.yaml").write_text, world.rules)
    web = Workload("web", "pods", lambda _: 6.0, way="", replicas=1)
    world.declare([web], autoscaled=False)
    await world.run(lambda: web.ready == 1)
    return web


@pytest.fixture
async def registered(tmp_path: Path, fronted: Fronted, world: World) -> AsyncIterator[Registered]:
    await serve(world)
    async with aggregation.register(*fronted, tmp_path, world.prometheus.url) as registered:
        yield registered


@pytest.fixture
async def own_registered(tmp_path: Path, own_fronted: Fronted, own_world: World) -> AsyncIterator[Registered]:
    await serve(own_world)
    async with aggregation.register(*own_fronted, tmp_path, own_world.prometheus.url) as registered:
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


@EVERYWHERE
async def test_kubectl_reads_every_group(registered: Registered, world: World) -> None:
    cluster, (pod,) = registered.cluster, world.workloads["web"].parts
    for path in PATHS:
        document = await read(cluster, path)
        assert (document["kind"], document["groupVersion"]) == (
            "APIResourceList",
            path.removeprefix("/apis/"),
        )
    beneath = f"namespaces/{cluster.namespace}"
    for path in PATHS[:2]:
        [item] = (await read(cluster, f"{path}/{beneath}/pods/%2A/busy?labelSelector=app%3Dweb"))["items"]
        assert (item["describedObject"]["name"], item["value"]) == (pod, "6")
        [item] = (await read(cluster, f"{path}/{beneath}/services/web/hits"))["items"]
        assert (item["describedObject"]["kind"], item["value"]) == ("Service", "6")
    [item] = (await read(cluster, f"{PATHS[2]}/{beneath}/backlog?labelSelector=queue%3Dweb"))["items"]
    assert (item["metricLabels"], item["value"]) == ({"queue": "web"}, "6")
    for path in PATHS[3:]:
        listed = await read(cluster, f"{path}/{beneath}/pods")
        assert listed["apiVersion"] == path.removeprefix("/apis/")
        [item] = listed["items"]
        assert item["containers"] == [{"name": "web", "usage": {"cpu": "30m", "memory": "1Mi"}}]

    versions = (await cluster.kubectl("api-versions")).split()
    assert {path.removeprefix("/apis/") for path in PATHS} <= set(versions)
    # the aggregator reads what a server has some time after it has found the server, and calls a group stale
    # until then
    wanted = {"backlog.external.metrics.k8s.io", "pods.metrics.k8s.io", "nodes.metrics.k8s.io"}
    await until(
        lambda found: (found.status, found.stderr) == (0, "") and wanted <= set(found.stdout.split()),
        lambda: cluster.run(cluster.admin_kubeconfig, "api-resources", "-o", "name"),
    )


@EVERYWHERE
@pytest.mark.parametrize(
    ("path", "rule", "refusal"),
    [
        (
            f"{PATHS[0]}/namespaces/{{ns}}/pods/%2A/busy",
            {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["pods/busy"], "verbs": ["get"]},
            (
                'pods.custom.metrics.k8s.io "*" is forbidden: User "{user}" cannot get resource "pods/busy" '
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


@EVERYWHERE
async def test_only_a_front_proxy_speaks_for_users(registered: Registered) -> None:
    """The API server's headers count with its certificate; without it no caller is an administrator."""
    path = f"{PATHS[0]}/namespaces/{registered.cluster.namespace}/pods/%2A/busy"
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
@pytest.mark.parametrize("own_fronted", WITH_WORKLOADS, indirect=True)
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


@EVERYWHERE
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
    tmp_path: Path, fronted: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter has the rights of the manifests, and no flag names its Service."""
    monkeypatch.setenv("POD_NAMESPACE", aggregation.NAMESPACE)
    monkeypatch.setattr(apiservices, "PERIOD", 0.2)
    cluster, _ = fronted
    (tmp_path / "rules.yaml").write_text("rules: []\n")

    def ours(**values: float) -> dict[str, float]:
        found = dict.fromkeys(aggregation.GROUP_VERSIONS, 1.0) | values
        return {f'fastpath_apiservice_owned{{apiservice="{name}"}}': value for name, value in found.items()}

    async with aggregation.register(*fronted, tmp_path, "http://127.0.0.1:9") as registered:

        async def shown() -> dict[str, float]:
            return await registered.adapter.metric_lines("fastpath_apiservice_owned{")

        await until(lambda found: found == ours(), shown)
        taken = aggregation.GROUP_VERSIONS[0]
        change = json.dumps({"spec": {"service": {"name": "prometheus-adapter"}}})
        await cluster.kubectl("patch", "apiservice", taken, "--type=merge", "-p", change)
        await until(lambda found: found == ours(**{taken: 0.0}), shown)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_a_namespace_is_deleted(registered: Registered) -> None:
    """Its end asks every group what there is in it, and waits for groups that do not answer.

    What is in it goes all the same. It ends when the groups answer again, or are not registered any more.
    """
    cluster, names = registered.cluster, aggregation.GROUP_VERSIONS
    gone = await end_namespace(cluster, "answered")
    await cluster.kubectl("wait", "--for=delete", gone, "--timeout=60s")
    for remedy in ("start-again", "delete-apiservices"):
        await lead_to(cluster, tools.free_port())
        services = [f"apiservice/{name}" for name in names]
        await cluster.kubectl("wait", "--for=condition=Available=False", *services, "--timeout=60s")
        stuck = await end_namespace(cluster, remedy)
        failed = "--for=condition=NamespaceDeletionDiscoveryFailure=True"
        await cluster.kubectl("wait", failed, stuck, "--timeout=60s")
        assert await cluster.names("configmaps", namespace=stuck.partition("/")[2]) == []
        if remedy == "start-again":
            await lead_to(cluster, registered.port)
        else:
            await cluster.kubectl("delete", "apiservice", *names)
        await cluster.kubectl("wait", "--for=delete", stuck, "--timeout=90s")


async def end_namespace(cluster: ClusterUnderTest, why: str) -> str:
    """Make a namespace with something in it, and begin to delete it; return what kubectl calls it."""
    name = f"{cluster.namespace}-{why}"
    await cluster.create(plain("Namespace", name), plain("ConfigMap", "something", name))
    await cluster.kubectl("delete", "namespace", name, "--wait=false")
    return f"namespace/{name}"


async def lead_to(cluster: ClusterUnderTest, port: int) -> None:
    """Have all APIServices lead to a port of loopback."""
    change = json.dumps({"spec": {"service": {"port": port}}})
    for name in aggregation.GROUP_VERSIONS:
        await cluster.kubectl("patch", "apiservice", name, "--type=merge", "-p", change)
