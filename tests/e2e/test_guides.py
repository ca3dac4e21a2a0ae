"""The guides that change which server has the metrics APIs, pasted line by line on a real API server.

Two autoscalers, on a custom and on an external metric, are looked at all the time. The old adapter is a real
prometheus-adapter where PROMETHEUS_ADAPTER names the program; else Fastpath stands in for it.
"""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from fastpath_tools import certs
from tests.docs.shell import PageShell
from tests.e2e.conftest import REAL_ONLY, Fronted
from tests.e2e.test_prometheus_adapter import VARIABLE, real_adapter
from tests.support import rendered, tools
from tests.support.adapter import RunningAdapter
from tests.support.objects import local_service, plain, role_of
from tests.support.rendered import ROOT
from tests.support.tls import Authority
from tests.support.waiting import running
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.world import QUEUE, World

GUIDES = ROOT / "docs" / "guides"
MIGRATION, UNINSTALL = (
    (GUIDES / name).read_text() for name in ("migrate-from-prometheus-adapter.md", "uninstall.md")
)
OLD = ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")
VERSIONS = ("v1beta2.custom.metrics.k8s.io", *OLD)
RULES = """
rules:
- seriesQuery: 'busy{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'backlog{namespace!="",queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""
HPA_CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("own_fronted", REAL_ONLY, indirect=True),
]


class ConditionWatch:
    """What the autoscalers said since the test began to look: never that a metric has no value."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.looks = 0
        self.faults: set[str] = set()

    async def run(self) -> None:
        while True:
            for name in self._world.workloads:
                condition = self._world.condition(name, "ScalingActive")
                if condition.status != "True":
                    self.faults.add(f"{name}: {condition.message}")
            self.looks += 1
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def stand_in(cluster: ClusterUnderTest, prometheus: str, authority: Authority) -> AsyncIterator[int]:
    """Run Fastpath in the place of prometheus-adapter; yields its port."""
    pair = authority.issue("prometheus-adapter.monitoring.svc")
    files = (f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}")
    async with cluster.adapter(
        prometheus, *files, "--serve-groups=custom.metrics.k8s.io,external.metrics.k8s.io"
    ) as adapter:
        yield port_of(adapter)


def port_of(adapter: RunningAdapter) -> int:
    return int(adapter.url.rpartition(":")[2])


ALL: Document = {
    "apiGroups": ["custom.metrics.k8s.io", "external.metrics.k8s.io"],
    "resources": ["*"],
    "verbs": ["*"],
}


def make_certificates(folder: Path) -> tuple[str, str]:
    """Make the certificates as the deploy guide does; return the flags for those of the folder's Secret."""
    folder.mkdir()
    groups = "--groups=custom.metrics.k8s.io,external.metrics.k8s.io"
    assert certs.main([groups, "--out-dir", str(folder / "certs")]) == 0
    data = yaml.safe_load((folder / "certs" / "secret.yaml").read_text())["data"]
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(base64.b64decode(data[name]))
    return f"--tls-cert-file={folder / 'tls.crt'}", f"--tls-private-key-file={folder / 'tls.key'}"


def make_overlay(folder: Path, port: int) -> None:
    """Write the kustomization of the deploy guide; Service and APIServices lead to `port` of loopback."""
    (kustomization,) = rendered.blocks((GUIDES / "deploy.md").read_text(), "yaml")
    (folder / "rules.yaml").write_text(RULES)
    document = yaml.safe_load(kustomization)
    local = [
        {"op": "replace", "path": "/spec", "value": {"type": "ExternalName", "externalName": "localhost"}}
    ]
    leads = [{"op": "replace", "path": "/spec/service/port", "value": port}]
    document["patches"] += [
        {"target": {"kind": "Service"}, "patch": json.dumps(local)},
        {"target": {"kind": "APIService"}, "patch": json.dumps(leads)},
    ]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    (folder.parent / "manifests").symlink_to(rendered.MANIFESTS)


async def test_there_and_back_and_removed(tmp_path: Path, own_fronted: Fronted, own_world: World) -> None:
    """No line makes an autoscaler lose its value, and what the old adapter has registered stays its own."""
    (cluster, backend), world = own_fronted, own_world
    prometheus = world.prometheus.url
    (tmp_path / "rules.yaml").write_text(RULES)
    fixed = {"minReplicas": 2, "maxReplicas": 2}
    for name, metrics in (("web", "pods"), ("worker", QUEUE)):
        world.hpa(name, metrics, way="", spec=fixed)
    await world.create()
    async with contextlib.AsyncExitStack() as stack:
        old = (
            real_adapter(cluster, prometheus, tmp_path, f"--cert-dir={tmp_path / 'theirs'}")
            if VARIABLE in os.environ
            else stand_in(cluster, prometheus, backend.authority)
        )
        port = await stack.enter_async_context(old)
        await cluster.create(
            plain("Namespace", "monitoring"),
            local_service("prometheus-adapter", "monitoring"),
            *role_of(HPA_CONTROLLER, "prometheus-adapter-metrics", [ALL]),
            *(rendered.prometheus_adapter_registration(name, port) for name in OLD),
        )
        await world.run(lambda: all(map(world.is_active, world.workloads)))
        watch = ConditionWatch(world)
        await stack.enter_async_context(running(watch.run()))

        folder = tmp_path / "fastpath"
        flags = (*make_certificates(folder), "--serve-groups=custom.metrics.k8s.io,external.metrics.k8s.io")
        ours = await stack.enter_async_context(cluster.adapter(prometheus, *flags))
        make_overlay(folder, port_of(ours))
        program = tools.require("kubectl", "kubernetes-client")
        shell = PageShell(folder, [program, f"--kubeconfig={cluster.admin_kubeconfig}"], waits=True)
        before = await registered(cluster)

        beside, switch, rest = rendered.blocks(MIGRATION, "sh")
        switch_back, rest_back = rendered.blocks(MIGRATION, "sh back")
        await shell.paste(*rendered.blocks(MIGRATION, "sh save"))
        for block in (beside, switch, rest):
            await shell.paste(block)
        assert (await registered(cluster)).keys() == {*VERSIONS}
        await available(cluster)
        looks = watch.looks
        for block in (rest_back, switch_back):
            await shell.paste(block)
        assert await registered(cluster) == before
        await shell.paste(*rendered.blocks(UNINSTALL, "sh remove"))
        assert await registered(cluster) == before
        assert "fastpath" not in await cluster.names("namespaces", namespace="")
        await world.run(lambda: watch.looks >= looks + 40)
        assert watch.faults == set()


async def registered(cluster: ClusterUnderTest) -> dict[str, Document]:
    """Return labels and spec of each APIService of the metrics APIs."""
    listed = json.loads(await cluster.kubectl("get", "apiservice", "-o", "json"))["items"]
    return {
        each["metadata"]["name"]: {"labels": each["metadata"]["labels"], "spec": each["spec"]}
        for each in listed
        if each["metadata"]["name"].endswith("metrics.k8s.io")
    }


async def available(cluster: ClusterUnderTest) -> None:
    names = [f"apiservice/{name}" for name in VERSIONS]
    await cluster.kubectl("wait", "--for=condition=Available=True", "--timeout=60s", *names)
