"""A real control plane with its HPA controller, and Fastpath's programs behind its aggregation layer.

KUBEBUILDER_ASSETS names the folder with etcd, kube-apiserver and kube-controller-manager.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.stage import Stage
from scripts.generate import crd, crd_schedules
from tests.e2e import nodes
from tests.support.kubectl import Kubectl
from tests.support.tls import Authority
from tests.world import controlplane
from tests.world.aggregation import NAMESPACE, FrontedControlPlane, apply
from tests.world.clusters import ClusterUnderTest
from tests.world.frontproxy import NAME

FLOORS = "v1beta1.external.metrics.k8s.io"


class Opened(NamedTuple):
    plane: controlplane.ControlPlane
    backend: FrontedControlPlane
    cluster: ClusterUnderTest


def find_assets() -> Path:
    """Return the folder with the programs; the benchmark ends without it."""
    assets = controlplane.find_assets()
    if assets is None or controlplane.find_controllers() is None:
        sys.exit(f"{controlplane.VARIABLE} names no folder with etcd, kube-apiserver and the controllers")
    return assets


@contextlib.asynccontextmanager
async def opened(stage: Stage, assets: Path, period: float = 1.0) -> AsyncIterator[Opened]:
    """Run a control plane with Fastpath's kinds; its HPA controller looks every `period` seconds.

    With 0 that is the only controller, and has the defaults of Kubernetes.
    """
    plane = controlplane.ControlPlane(assets, stage.directory, Authority(stage.directory), period)
    await asyncio.to_thread(plane.__enter__)
    try:
        backend = FrontedControlPlane(plane)
        cluster = ClusterUnderTest(backend, Kubectl(stage.directory, plane.kubectl), stage.directory)
        await cluster.open()
        stage.token = cluster.token
        for path in (crd.PATH, crd_schedules.PATH):
            await cluster.kubectl("apply", "--validate=false", "-f", str(path))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield Opened(plane, backend, cluster)
    finally:
        await asyncio.to_thread(plane.close)


async def start_fastpath(
    stage: Stage,
    on: Opened,
    prometheus: str,
    rules: object,
    registered: Mapping[str, Any],
    *,
    scales: bool = True,
) -> None:
    """Start `fastpath serve`, and `fastpath scale` if it `scales`, and register what serves metrics.

    `registered` has the port behind each group-version, None for that of `fastpath serve`.
    """
    cluster = on.cluster
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    os.environ["POD_NAMESPACE"] = NAMESPACE
    proxies = (
        f"--requestheader-client-ca-file={on.plane.front_proxy.authorities}",
        f"--requestheader-allowed-names={NAME}",
    )
    kubeconfig = cluster.admin_kubeconfig
    served = await asyncio.to_thread(
        stage.start_adapter, kubeconfig, prometheus, rules, "--serve-floors", *proxies
    )
    if scales:
        await asyncio.to_thread(stage.start_scaler, kubeconfig, prometheus, rules)
    for name, port in registered.items():
        await apply(cluster, *nodes.registration(name, NAMESPACE, port or served.port))
    await cluster.kubectl(
        "wait",
        "--for=condition=Available=True",
        "--timeout=60s",
        *(f"apiservice/{name}" for name in registered),
    )
