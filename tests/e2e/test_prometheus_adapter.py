"""The verbs where a real prometheus-adapter serves the custom metrics, and Fastpath is not installed."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.support import tools
from tests.support.objects import api_service, local_service
from tests.support.verbs import Verb
from tests.world.aggregation import apply
from tests.world.clusters import ClusterUnderTest
from tests.world.workloads import level
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

VARIABLE = "PROMETHEUS_ADAPTER"
NAME = "v1beta1.custom.metrics.k8s.io"
RULES = """
rules:
- seriesQuery: 'busy{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""


@contextlib.asynccontextmanager
async def real_adapter(
    cluster: ClusterUnderTest, url: str, folder: Path, *arguments: str
) -> AsyncIterator[int]:
    """Run prometheus-adapter with the rules.yaml of a folder; yields its port."""
    port, kubeconfig = tools.free_port(), cluster.admin_kubeconfig
    users = [f"--{use}-kubeconfig={kubeconfig}" for use in ("lister", "authentication", "authorization")]
    with (folder / "prometheus-adapter.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            os.environ[VARIABLE],
            *(f"--config={folder / 'rules.yaml'}", f"--prometheus-url={url}", *users),
            *(f"--secure-port={port}", "--metrics-relist-interval=2s", *arguments),
            stdout=log,
            stderr=log,
        )
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def registered(fronted: Fronted, url: str, folder: Path) -> AsyncIterator[None]:
    """Run prometheus-adapter and register it as its chart does, in v1beta1 alone."""
    cluster, backend = fronted
    (folder / "rules.yaml").write_text(RULES)
    pair = backend.authority.issue(f"prometheus-adapter.{cluster.namespace}.svc")
    flags = [f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"]
    flags += ["--bind-address=127.0.0.1", "--metrics-max-age=5m"]
    metadata = {"name": "prometheus-adapter", "namespace": cluster.namespace}
    async with real_adapter(cluster, url, folder, *flags) as port:
        registration = api_service(NAME, metadata | {"port": port}, backend.authority.file.read_bytes())
        try:
            await apply(cluster, local_service(**metadata), registration)
            await backend.wait_available(cluster, [NAME])
            yield
        finally:
            await cluster.kubectl("delete", "apiservice", NAME, "--ignore-not-found")


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no program")
@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_doctor_reads_what_the_hpa_reads(
    tmp_path: Path, fronted: Fronted, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.hpa("web", "pods", level(3), way="")
    await world.create()
    async with registered(fronted, world.prometheus.url, tmp_path):
        await world.run(lambda: world.replicas("web") == 3)
        finished = await Verb("doctor", world.cluster.admin_kubeconfig, capsys)(f"{world.namespace}/web")
        preflight = await Verb("preflight", world.cluster.admin_kubeconfig, capsys)()
    assert "prometheus-adapter answered in " in finished.out
    assert "boost" not in finished.out.partition("change:")[2]
    assert (preflight.status, f"{NAME} belongs to prometheus-adapter" in preflight.err) == (1, True)
