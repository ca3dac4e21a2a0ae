"""The cluster that an end-to-end test talks to, through kubectl: a real control plane, or the sandbox.

The module hides the differences between the two: a test cannot distinguish them, so the same assertions hold
on both. `controlplane` starts the programs.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from adapter.model.clock import Clock
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from tests.support import adapter as support
from tests.support.adapter import RunningAdapter
from tests.support.kubectl import TOKEN, Finished, Kubectl
from tests.support.objects import definition, plain, role_of
from tests.support.processor import limited
from tests.world.controlplane import ControlPlane

WIDGETS = "widgets.e2e.fastpath.io"
_GROUP, _PLURAL = WIDGETS.partition(".")[2], WIDGETS.partition(".")[0]

Document = dict[str, Any]


class Config:
    """A user's kubeconfig, as what an adapter is pointed at."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def kubeconfig(self, path: Path) -> Path:
        """Copy the file to `path`."""
        path.write_bytes(self._file.read_bytes())
        return path


class Backend(Protocol):
    """What differs."""

    @property
    def sandbox(self) -> Cluster | None:
        """The sandbox, where it is one."""
        ...

    def kubeconfig(self, path: Path) -> Path:
        """Write the administrator's kubeconfig."""
        ...

    async def caller_token(self, cluster: "ClusterUnderTest") -> str:
        """Return the token of a user that may read everything from an adapter."""
        ...

    async def install_widgets(self, cluster: "ClusterUnderTest") -> None:
        """Serve the custom kind `WIDGETS`."""
        ...

    async def limit(
        self, cluster: "ClusterUnderTest", allowed: Mapping[str, Collection[str]], path: Path
    ) -> Path:
        """Write the kubeconfig of a user who may only do this: verbs by plural of the core group."""
        ...

    async def crash(self) -> None:
        """Let the API server go away, connections and all."""
        ...

    async def recover(self) -> None:
        """Have it back at the same address with the same objects."""
        ...


class ClusterUnderTest:
    """A cluster, as its administrator sees it. `namespace` exists and is this test's own."""

    def __init__(self, backend: Backend, kubectl: Kubectl, directory: Path) -> None:
        self.backend = backend
        self.namespace = f"shop-{uuid.uuid4().hex[:8]}"
        self.token = ""
        self.admin_kubeconfig = backend.kubeconfig(directory / "admin.kubeconfig")
        self.admin = Config(self.admin_kubeconfig)
        self._kubectl = kubectl
        self.directory = directory

    async def open(self) -> None:
        """Make the namespace, and a user that may ask adapters."""
        await self.create(plain("Namespace", self.namespace))
        self.token = await self.backend.caller_token(self)

    @contextlib.asynccontextmanager
    async def adapter(
        self,
        prometheus: str,
        *arguments: str,
        lister: Config | None = None,
        reviewer: Config | None = None,
        clock: Clock | None = None,
    ) -> AsyncIterator[RunningAdapter]:
        """Run an adapter with rules.yaml; it reads objects as `lister` and asks about callers as `reviewer`,
        by default the administrator.
        """
        reviewing = (reviewer or self.admin).kubeconfig(self.directory / "reviewer.kubeconfig")
        reviews = (f"--authentication-kubeconfig={reviewing}", f"--authorization-kubeconfig={reviewing}")
        running = support.running(
            self.directory,
            lister or self.admin,
            prometheus,
            *reviews,
            *arguments,
            clock=clock,
            token=self.token,
        )
        async with running as adapter:
            yield adapter

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as administrator and return what it prints; the test fails with its words."""
        finished = await self.run(self.admin_kubeconfig, *arguments, stdin=stdin)
        assert finished.status == 0, finished.stderr
        return finished.stdout

    async def run(self, kubeconfig: Path, *arguments: str, stdin: str = "") -> Finished:
        """Run kubectl as the user of a kubeconfig."""
        return await self._kubectl.run_with(kubeconfig, *arguments, stdin=stdin)

    async def create(self, *documents: Document) -> None:
        """Create objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        await self.kubectl("create", "--validate=false", "-f", "-", stdin=text)

    async def names(self, kind: str, selector: str = "", namespace: str | None = None) -> list[str]:
        """Return what ``kubectl get KIND -l SELECTOR`` lists, in order; cluster-scoped: `namespace` ""."""
        where = self.namespace if namespace is None else namespace
        chosen = [*(["-n", where] if where else []), *(["-l", selector] if selector else [])]
        listed = await self.kubectl("get", kind, "-o", "name", *chosen)
        return [line.rpartition("/")[2] for line in listed.split()]

    async def limited(self, **allowed: Collection[str]) -> Config:
        """Return the kubeconfig of a user with these verbs by plural of the core group, in all namespaces."""
        return Config(await self.backend.limit(self, allowed, self.directory / "limited.kubeconfig"))

    async def is_allowed(self, kubeconfig: Path, path: str) -> bool:
        """Say whether the user of a kubeconfig may read `path`."""
        return (await self.run(kubeconfig, "get", "--raw", path)).status == 0


class SandboxBackend:
    """The sandbox cluster.

    It has one user, so a limited user limits everybody's reads; writing stays allowed.
    """

    def __init__(self, sandbox: Cluster) -> None:
        self.sandbox = sandbox

    def kubeconfig(self, path: Path) -> Path:
        return self.sandbox.kubeconfig(
            path, token="none"
        )  # without one kubectl asks for a name at the terminal

    async def caller_token(self, _: ClusterUnderTest) -> str:
        support.admit(self.sandbox)
        return TOKEN

    async def install_widgets(self, _: ClusterUnderTest) -> None:
        self.sandbox.add_kind(Kind(_GROUP, "v1", _PLURAL, "Widget", namespaced=True))

    async def limit(self, _: ClusterUnderTest, allowed: Mapping[str, Collection[str]], path: Path) -> Path:
        for kind in self.sandbox.kinds:
            if (
                kind.plural == "configmaps"
            ):  # with one of them an adapter judges its callers; none is listed for anything else
                continue
            for verb in ("get", "list", "watch"):
                if verb not in allowed.get(kind.plural, ()):
                    self.sandbox.forbid(verb, kind.plural)
        return self.kubeconfig(path)

    async def crash(self) -> None:
        await self.sandbox.down()

    async def recover(self) -> None:
        await self.sandbox.up()


class RealBackend:
    """A control plane."""

    sandbox = None

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def kubeconfig(self, path: Path) -> Path:
        return self._plane.kubeconfig(path)

    async def caller_token(self, cluster: ClusterUnderTest) -> str:
        namespace = cluster.namespace
        await cluster.kubectl("create", "serviceaccount", "caller", "-n", namespace)
        rights = ("--clusterrole=cluster-admin", f"--serviceaccount={namespace}:caller")
        await cluster.kubectl("create", "clusterrolebinding", f"caller-{namespace}", *rights)
        issued = await cluster.kubectl("create", "token", "caller", "-n", namespace, "--duration=1h")
        kubeconfig = self._plane.token_kubeconfig(cluster.directory / "caller.kubeconfig", issued.strip())
        await self._until_allowed(cluster, kubeconfig, "/api/v1/nodes?limit=1")
        return issued.strip()

    async def account(self, cluster: ClusterUnderTest, name: str, namespace: str) -> Config:
        """Return the kubeconfig of a ServiceAccount, with a token."""
        token = await cluster.kubectl("create", "token", name, "-n", namespace, "--duration=1h")
        return Config(
            self._plane.token_kubeconfig(cluster.directory / f"{namespace}.{name}.kubeconfig", token.strip())
        )

    async def install_widgets(self, cluster: ClusterUnderTest) -> None:
        await cluster.create(definition(WIDGETS, "Widget"))
        await cluster.kubectl("wait", "--for=condition=Established", f"crd/{WIDGETS}", "--timeout=30s")

    async def limit(
        self, cluster: ClusterUnderTest, allowed: Mapping[str, Collection[str]], path: Path
    ) -> Path:
        user = f"limited-{cluster.namespace}"
        rules = [
            {"apiGroups": [""], "resources": [plural], "verbs": sorted(verbs)}
            for plural, verbs in allowed.items()
        ]
        await cluster.create(*role_of(user, user, rules))
        await asyncio.to_thread(self._plane.kubeconfig, path, user, "e2e")
        await self._until_allowed(cluster, path, *(f"/api/v1/{plural}?limit=1" for plural in allowed))
        return path

    async def _until_allowed(self, cluster: ClusterUnderTest, kubeconfig: Path, *paths: str) -> None:
        """Wait for the authorizer, which follows roles by a watch of its own."""
        async with limited(20):
            for path in paths:
                while not await cluster.is_allowed(kubeconfig, path):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.1)

    async def crash(self) -> None:
        await asyncio.to_thread(self._plane.kill_api_server)

    async def recover(self) -> None:
        await asyncio.to_thread(self._plane.start_api_server)
