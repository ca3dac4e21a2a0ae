"""Helm against a real API server: each action runs in a process of its own, as its command line does.

What Helm opens, connections to the API server among it, ends with the process.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chart import charts
from tests.support.rendered import ROOT

if TYPE_CHECKING:
    from tests.world.clusters import ClusterUnderTest

JSON = dict[str, Any]

_OURS = ("fastpath", "prometheus-adapter")
"""What the names of installed objects begin with."""

_KINDS = ("clusterrole", "clusterrolebinding", "customresourcedefinition", "role", "rolebinding")


async def policy_kinds(cluster: "ClusterUnderTest") -> list[str]:
    """Return the kinds of ValidatingAdmissionPolicies that the API server announces: none before 1.30."""
    found = json.loads(await cluster.kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1"))
    names = [each["singularName"] for each in found["resources"] if "/" not in each["name"]]
    return sorted(name for name in names if name.startswith("validatingadmissionpolicy"))


async def remove_leftovers(cluster: "ClusterUnderTest") -> None:
    """Delete what other tests left: Helm takes over no object that it has not created."""
    for kind in (*_KINDS, *await policy_kinds(cluster)):
        where = "kube-system" if kind in {"role", "rolebinding"} else ""
        names = [name for name in await cluster.names(kind, namespace=where) if name.startswith(_OURS)]
        if names:
            scope = ("-n", where) if where else ()
            await cluster.kubectl("delete", kind, *names, *scope, "--wait=true", "--timeout=60s")


class HelmError(Exception):
    """Helm refused; carries its words."""


class Helm:
    """Helm as the user of a kubeconfig, in one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        charts.require()
        self._config = {"kubeconfig_path": str(kubeconfig), "namespace": namespace}
        self._namespace = namespace

    async def install(self, chart: Path, name: str, values: JSON) -> JSON:
        """`helm install`. Returns the release."""
        return await self._run("install", str(chart), name, values, namespace=self._namespace)

    async def upgrade(self, chart: Path, name: str, values: JSON, *, reuse_values: bool = False) -> JSON:
        """`helm upgrade`, with or without `--reuse-values`. Returns the release."""
        namespace = self._namespace
        return await self._run(
            "upgrade", str(chart), name, values, namespace=namespace, reuse_values=reuse_values
        )

    async def rollback(self, name: str, revision: int) -> None:
        """`helm rollback`."""
        await self._run("rollback", name, version=revision)

    async def uninstall(self, name: str) -> None:
        """`helm uninstall`."""
        await self._run("uninstall", name)

    async def _run(self, action: str, *arguments: Any, **options: Any) -> JSON:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.e2e.helm",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate(
            json.dumps([self._config, action, arguments, options]).encode()
        )
        if process.returncode:
            raise HelmError(stderr.decode())
        result: JSON = json.loads(stdout)
        return result


def main() -> None:
    """Do what standard input says, and print the result as JSON."""
    helm = charts.require()
    config, action, arguments, options = json.load(sys.stdin)
    try:
        with helm.Config(**config) as client:
            result = getattr(client, action)(*arguments, **options)
    except helm.HelmError as error:
        sys.exit(str(error))
    json.dump(result or {}, sys.stdout)


if __name__ == "__main__":
    main()
