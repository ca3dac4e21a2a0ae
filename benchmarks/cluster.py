"""The sandbox cluster as a process: `python -m benchmarks.cluster KUBECONFIG APPS PODS_PER_APP OWNER [PAIR]`.

The pods carry the labels of pods of OWNER, a Deployment or a StatefulSet; those of a StatefulSet have one
label of their own. With PAIR, a folder with ``tls.crt`` and ``tls.key``, it serves over TLS. The process
writes the kubeconfig once all pods exist, and runs until it is ended.
"""

import asyncio
import os
import ssl
import sys
from pathlib import Path

import uvloop

from benchmarks import load
from benchmarks.stage import App, make_apps
from fastpath_sandbox.apiserver.reviews import TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.objects import plain


async def main(kubeconfig: Path, apps: int, pods_per_app: int, owner: str, pair: Path | None) -> None:
    tls = None
    if pair is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    cluster = Cluster(log_size=1000, tls=tls)
    cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == load.TOKEN, "benchmark")
    for app in make_apps(apps, pods_per_app):
        for pod in app.pods:
            cluster.create(_pod(app, pod, owner))
    async with cluster:
        written = cluster.kubeconfig(kubeconfig.with_suffix(".new"))
        os.replace(written, kubeconfig)  # noqa: PTH105 - whole or not at all
        await asyncio.Event().wait()


def _pod(app: App, name: str, owner: str) -> dict[str, object]:
    """Return a pod with the metadata that pods of its owner have."""
    part = "app.kubernetes.io"
    labels = {
        "app": app.name,
        f"{part}/instance": app.name,
        f"{part}/name": "app",
        f"{part}/version": "1.4.2",
    }
    if owner == "StatefulSet":
        reference: dict[str, object] = {"kind": "StatefulSet", "name": app.name}
        labels["controller-revision-hash"] = f"{app.name}-7c9f8d6b5"
        labels["statefulset.kubernetes.io/pod-name"] = name
    else:
        reference = {"kind": "ReplicaSet", "name": f"{app.name}-7c9f8d6b5"}
        labels["pod-template-hash"] = "7c9f8d6b5"
    reference |= {"apiVersion": "apps/v1", "blockOwnerDeletion": True, "controller": True}
    reference["uid"] = "6f4b1f9c-5f7e-4a55-9a3c-0d8f2b7f0a11"
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    pod = plain("Pod", name, app.namespace, labels, spec={})
    pod["metadata"] |= {"annotations": annotations, "ownerReferences": [reference]}
    return pod


if __name__ == "__main__":
    pair = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], pair))
