"""An adapter behind the aggregation layer of the sandbox or a real control plane, as manifests register it.

The module registers the adapter, and holds users, their rights and the front proxy's certificates, with the
differences between the two clusters. The objects are those of manifests/. Only the address of the Service
changes, because the adapter runs outside of the cluster, on loopback.
"""

import asyncio
import base64
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import aiohttp
from yarl import URL

from adapter.server import tls
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict, TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools import certs
from tests.support import certificates, rendered
from tests.support.adapter import RunningAdapter
from tests.support.certificates import Signer
from tests.support.kubectl import TOKEN
from tests.support.objects import local_service, role_of
from tests.support.processor import limited
from tests.support.rendered import Objects, Want
from tests.support.tls import Authority
from tests.world.clusters import Backend, ClusterUnderTest, Config, Document, RealBackend, SandboxBackend
from tests.world.controlplane import ControlPlane, write_kubeconfig
from tests.world.frontproxy import FrontProxy
from tests.world.mount import Mount

NAMESPACE = SERVICE = "fastpath"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
GROUP_VERSIONS = (
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
    "v1beta1.metrics.k8s.io",
    "v1.metrics.k8s.io",
)


def path_of(group_version: str) -> str:
    """Return the path of what an APIService registers."""
    version, _, group = group_version.partition(".")
    return f"/apis/{group}/{version}"


PATHS = tuple(path_of(name) for name in GROUP_VERSIONS)

RESOURCE_RULES = """\
resourceRules:
  cpu:
    containerQuery: 'sum by (<<.GroupBy>>) (cores{container!="",<<.LabelMatchers>>})'
    nodeQuery: 'sum by (<<.GroupBy>>) (cores{id="/",<<.LabelMatchers>>})'
    resources: &resources
      overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}
    containerLabel: container
  memory:
    containerQuery: 'sum by (<<.GroupBy>>) (working_set_bytes{container!="",<<.LabelMatchers>>})'
    nodeQuery: 'sum by (<<.GroupBy>>) (working_set_bytes{id="/",<<.LabelMatchers>>})'
    resources: *resources
    containerLabel: container
  window: 1m
"""
"""Rules for the usage of pods and nodes, of series that tests write."""

_RIGHTS = (
    "Namespace",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
)
_ADMIN = "admin"
_DENIED_TTL = "100ms"
_POLL_SECONDS = 0.2


class FrontedBackend(Backend, Protocol):
    """What clusters with an aggregation layer do differently."""

    authority: Authority
    """Whose client certificates are users."""
    proxy: FrontProxy

    async def admit(
        self, cluster: ClusterUnderTest, objects: Objects, account: str, namespace: str
    ) -> Config:
        """Make a service account with the rights of rendered manifests, and return its kubeconfig."""
        ...

    async def admit_adapter(self, cluster: ClusterUnderTest, objects: Objects) -> Config:
        """Do that for the adapter, and return when it may do the first things."""
        ...

    def user(self, name: str, path: Path) -> Path:
        """Write the kubeconfig of a user of the cluster who has no rights yet."""
        ...

    async def grant(self, cluster: ClusterUnderTest, user: str, rule: Document) -> None:
        """Let a user do what a rule of a role says, in the test's namespace."""
        ...

    async def publish(self, cluster: ClusterUnderTest, *signers: Signer) -> None:
        """Have exactly these authorities of front proxies in the ConfigMap; returns when they are."""
        ...

    async def wait_available(
        self, cluster: ClusterUnderTest, group_versions: Sequence[str] = GROUP_VERSIONS
    ) -> None:
        """Return when the cluster finds the server behind each of these APIServices."""
        ...


class FrontedSandbox(SandboxBackend):
    """A sandbox over TLS, whose users have tokens; it authorizes them by rules such as roles have."""

    def __init__(self, sandbox: Cluster, authority: Authority, proxy: FrontProxy) -> None:
        super().__init__(sandbox)
        self.authority = authority
        self.proxy = proxy
        self._grants: list[tuple[str, str, Document]] = []
        sandbox.tokens = {TOKEN: _ADMIN}
        sandbox.reviews.token = self._review_token
        sandbox.reviews.access = self._review_access
        published = certificates.config_map(proxy.signer.pem, authority.file.read_text())
        sandbox.create(certificates.config_map_object(published))

    def kubeconfig(self, path: Path) -> Path:
        return self._write(path, TOKEN)

    async def caller_token(self, _: ClusterUnderTest) -> str:
        return TOKEN

    async def admit(
        self, cluster: ClusterUnderTest, objects: Objects, account: str, namespace: str
    ) -> Config:
        known = await cluster.names("namespaces", namespace="")
        if new := [each for each in objects.all("Namespace") if each["metadata"]["name"] not in known]:
            await cluster.create(*new)
        return cluster.admin

    async def admit_adapter(self, cluster: ClusterUnderTest, objects: Objects) -> Config:
        return await self.admit(cluster, objects, SERVICE, NAMESPACE)

    def user(self, name: str, path: Path) -> Path:
        assert self.sandbox.tokens is not None
        self.sandbox.tokens[f"token-of-{name}"] = name
        return self._write(path, f"token-of-{name}")

    async def grant(self, cluster: ClusterUnderTest, user: str, rule: Document) -> None:
        self._grants.append((user, cluster.namespace, rule))

    async def publish(self, _: ClusterUnderTest, *signers: Signer) -> None:
        found = self.sandbox.get("ConfigMap", certificates.NAME, "kube-system")
        found["data"]["requestheader-client-ca-file"] = "".join(signer.pem for signer in signers)
        self.sandbox.update(found)

    async def wait_available(
        self, cluster: ClusterUnderTest, group_versions: Sequence[str] = GROUP_VERSIONS
    ) -> None:
        for name in group_versions:  # asked for each time: there is nothing to wait for
            await cluster.kubectl("get", "--raw", path_of(name))

    def _write(self, path: Path, token: str) -> Path:
        return write_kubeconfig(path, self.sandbox.url, self.authority.file, {"token": token})

    def _review_token(self, spec: Document) -> TokenVerdict:
        user = (self.sandbox.tokens or {}).get(spec["token"], "")
        return TokenVerdict(bool(user), user)

    def _review_access(self, spec: Document) -> AccessReviewVerdict:
        want = _want(spec)
        return AccessReviewVerdict(
            spec["user"] == _ADMIN
            or any(
                user == spec["user"] and namespace == want.namespace and rendered.covers(rule, want)
                for user, namespace, rule in self._grants
            )
        )


class FrontedControlPlane(RealBackend):
    """A control plane with its own aggregator; users have client certificates, and RBAC limits them."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.authority = plane.authority
        self.proxy = plane.front_proxy

    async def admit(
        self, cluster: ClusterUnderTest, objects: Objects, account: str, namespace: str
    ) -> Config:
        await apply(cluster, *(document for kind in _RIGHTS for document in objects.all(kind)))
        return await self.account(cluster, account, namespace)

    async def admit_adapter(self, cluster: ClusterUnderTest, objects: Objects) -> Config:
        config = await self.admit(cluster, objects, SERVICE, NAMESPACE)
        path = config.kubeconfig(cluster.directory / "adapter.kubeconfig")
        published = f"/api/v1/namespaces/kube-system/configmaps/{certificates.NAME}"
        await self._until_allowed(cluster, path, "/api/v1/pods?limit=1", published)
        return config

    def user(self, name: str, path: Path) -> Path:
        return self._plane.kubeconfig(path, name, "e2e")

    async def grant(self, cluster: ClusterUnderTest, user: str, rule: Document) -> None:
        name = f"{user}-{rule['verbs'][0]}-{rule['resources'][0].replace('/', '-')}"
        await cluster.create(*role_of(user, name, [rule], cluster.namespace))

    async def publish(self, cluster: ClusterUnderTest, *signers: Signer) -> None:
        """The API server adds its file's certificates to the published ones, and removes only expired ones.

        So this deletes what is published, and the server publishes what it knows. That may still be an old
        file, so the deletion repeats.
        """
        self.proxy.publish(*signers)
        wanted = sorted(signer.pem.strip() for signer in signers)
        where = ("configmap", certificates.NAME, "-n", "kube-system")
        async with limited(100):  # a changed file is seen at once, or within a minute
            while True:
                found = await cluster.run(cluster.admin_kubeconfig, "get", *where, "-o", "json")
                bundle = _published(found.stdout) if found.status == 0 else []
                if bundle == wanted:
                    return
                if set(bundle) > set(wanted):
                    await cluster.kubectl("delete", *where, "--ignore-not-found")
                await asyncio.sleep(_POLL_SECONDS)

    async def wait_available(
        self, cluster: ClusterUnderTest, group_versions: Sequence[str] = GROUP_VERSIONS
    ) -> None:
        names = [f"apiservice/{name}" for name in group_versions]
        await cluster.kubectl("wait", "--for=condition=Available=True", "--timeout=60s", *names)
        for name in names:
            described = json.loads(await cluster.kubectl("get", name, "-o", "json"))
            conditions = {each["type"]: each for each in described["status"]["conditions"]}
            assert conditions["Available"]["reason"] == "Passed", conditions


class Registered:
    """A running adapter that a cluster finds behind its group-versions."""

    def __init__(
        self, cluster: ClusterUnderTest, backend: FrontedBackend, adapter: RunningAdapter, serving: Mount
    ) -> None:
        self.cluster = cluster
        self.backend = backend
        self.adapter = adapter
        self._serving = serving

    @property
    def port(self) -> int:
        """Where the adapter listens."""
        return int(self.adapter.url.rpartition(":")[2])

    def serve(self, authority: Authority) -> None:
        """Put a certificate of an authority where the adapter reads its own."""
        pair = authority.issue(*certs.service_names(SERVICE, NAMESPACE))
        self._serving.put(tls_crt=pair.certificate.read_bytes(), tls_key=pair.key.read_bytes())

    async def asked_versions(self) -> set[str]:
        """Return the versions in which resource metrics have been requested, but for documents."""
        lines = await self.adapter.metric_lines("apiserver_request_total{")
        usages = [line for line in lines if re.search(r'[{,]group="metrics.k8s.io".*,resource="\w', line)]
        return {found[1] for line in usages if (found := re.search(r',version="(\w+)"', line))}

    async def served(self) -> str:
        """Return the certificate that the adapter shows, as PEM."""
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.port))

    async def trust(self, *authorities: Authority) -> None:
        """Have the cluster believe in serving certificates of these authorities."""
        bundle = b"".join(authority.file.read_bytes() for authority in authorities)
        change = json.dumps({"spec": {"caBundle": base64.b64encode(bundle).decode()}})
        for name in GROUP_VERSIONS:
            await self.cluster.kubectl("patch", "apiservice", name, "--type=merge", "-p", change)

    @contextlib.asynccontextmanager
    async def directly(self, shown: tls.CertificatePair | Path | None = None) -> AsyncIterator["Direct"]:
        """Talk directly to the adapter over one open connection, with a client certificate."""
        context = self.backend.authority.client_context(
            shown if isinstance(shown, tls.CertificatePair) else None
        )
        if isinstance(shown, Path):
            context.load_cert_chain(shown)
        connector = aiohttp.TCPConnector(limit=1, ssl=context, keepalive_timeout=600)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Direct(session, self.adapter.url)


class Direct:
    """One client's connection to an adapter."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Return the status and the message of a failure, or the text of a success.

        Raises aiohttp.ClientError when refused.
        """
        url = URL(self._url + path, encoded=True)
        async with self._session.get(url, headers=headers, server_hostname=SERVER_NAME) as response:
            text = await response.text()
            return response.status, text if response.status == 200 else json.loads(text)["message"]


async def apply(cluster: ClusterUnderTest, *documents: Document) -> None:
    """Apply objects on the server's side, which takes fields over from other managers."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    await cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-", stdin=text
    )


@contextlib.asynccontextmanager
async def register(
    cluster: ClusterUnderTest,
    backend: FrontedBackend,
    directory: Path,
    prometheus: str,
    *arguments: str,
    components: Sequence[str] = ("external", "resource"),
    group_versions: Sequence[str] = GROUP_VERSIONS,
) -> AsyncIterator[Registered]:
    """Run an adapter with rules.yaml and register it; when the block ends it is not registered any more.

    Of the APIServices of the manifests only `group_versions` are applied.
    """
    folder = rendered.write_overlay(directory / "overlay", components)
    objects = await asyncio.to_thread(rendered.render, folder)
    config = await backend.admit_adapter(cluster, objects)
    serving = Mount(directory / "serving")
    pair = backend.authority.issue(*certs.service_names(SERVICE, NAMESPACE))
    serving.put(tls_crt=pair.certificate.read_bytes(), tls_key=pair.key.read_bytes())
    running = cluster.adapter(
        prometheus,
        f"--tls-cert-file={serving.folder / 'tls.crt'}",
        f"--tls-private-key-file={serving.folder / 'tls.key'}",
        *(argument for argument in objects.container["args"] if argument.startswith("--serve-groups=")),
        f"--authorization-webhook-cache-unauthorized-ttl={_DENIED_TTL}",
        *arguments,
        lister=config,
        reviewer=config,
    )
    async with running as adapter:
        registered = Registered(cluster, backend, adapter, serving)
        async with registering(cluster, backend, objects, registered.port, group_versions):
            yield registered


@contextlib.asynccontextmanager
async def registering(
    cluster: ClusterUnderTest,
    backend: FrontedBackend,
    objects: Objects,
    port: int,
    group_versions: Sequence[str] = GROUP_VERSIONS,
) -> AsyncIterator[None]:
    """Have a cluster find an adapter at a port of loopback until the block ends."""
    try:
        # a controller that finds an older version alone asks for that one, and for the newest later
        for names in (group_versions[:1], group_versions):
            await apply(cluster, *_registrations(objects, port, backend.authority, names))
            await backend.wait_available(cluster, names)
        yield
    finally:
        await cluster.kubectl("delete", "apiservice", *GROUP_VERSIONS, "--ignore-not-found")
        await cluster.kubectl("delete", "service", SERVICE, "-n", NAMESPACE, "--ignore-not-found")


def _registrations(
    objects: Objects, port: int, authority: Authority, group_versions: Sequence[str]
) -> Sequence[Document]:
    """Return the Service and the APIServices of the manifests, leading to a port of loopback."""
    local = local_service(SERVICE, NAMESPACE) | {"metadata": objects.one("Service")["metadata"]}
    bundle = base64.b64encode(authority.file.read_bytes()).decode()
    found = [local]
    found_names = {each["metadata"]["name"] for each in objects.all("APIService")}
    assert found_names == set(GROUP_VERSIONS)
    for each in objects.all("APIService"):
        if each["metadata"]["name"] not in group_versions:
            continue
        spec = each["spec"] | {"service": each["spec"]["service"] | {"port": port}, "caBundle": bundle}
        found.append(each | {"spec": spec})
    return found


def _want(spec: Document) -> Want:
    """Return what an access review asks about."""
    if "nonResourceAttributes" in spec:
        attributes = spec["nonResourceAttributes"]
        return Want(attributes["verb"], path=attributes["path"])
    attributes = spec["resourceAttributes"]
    parts = (attributes["resource"], attributes.get("subresource", ""))
    return Want(
        attributes["verb"],
        attributes.get("group", ""),
        "/".join(part for part in parts if part),
        attributes.get("namespace", ""),
        attributes.get("name", ""),
    )


def _published(text: str) -> list[str]:
    """Return the front proxies' authorities of a ConfigMap, one PEM text each, sorted."""
    bundle = json.loads(text).get("data", {}).get("requestheader-client-ca-file", "")
    end = "-----END CERTIFICATE-----"
    return sorted(f"{part.strip()}\n{end}" for part in bundle.split(end) if part.strip())
