"""APIServices of the sandbox cluster: the proxied requests and the discovery documents."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.answering import AnsweringServer
from tests.support.tls import Authority

GROUP = "things.example"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
RESOURCES = [{"resource": "things", "responseKind": {"group": GROUP, "version": "v1", "kind": "Thing"}}]


class Behind(AnsweringServer):
    """The server behind, which asks for certificates."""

    def __init__(self, authority: Authority, *names: str) -> None:
        context = authority.server_context(authority.issue(*names) if names else None)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(authority.file)
        super().__init__(b'{"kind":"Thing"}', tls=context)
        self.peers: list[Any] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peercert"))
        more = {"ETag": '"1"', "X-Own": "kept back"}
        return web.Response(status=self.status, body=self.body, headers=more, content_type="application/json")


def register(
    cluster: Cluster, port: int, *, service: dict[str, Any] | None = None, version: str = "v1", **spec: Any
) -> None:
    named = {"name": "things", "namespace": "outside"}
    if service is None:
        service = {"type": "ExternalName", "externalName": "localhost"}
    if version == "v1" and service:
        cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": service})
    whole = {"group": GROUP, "version": version, "service": named | {"port": port}, **spec}
    metadata = {"name": f"{version}.{GROUP}"}
    cluster.create(
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": whole}
    )


async def read(cluster: Cluster, path: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(cluster.url + path, encoded=True), headers=headers) as response,
    ):
        text = await response.text()
        found = json.loads(text) if text.startswith("{") else text
        return response.status, found, {name.lower(): value for name, value in response.headers.items()}


async def test_a_request_arrives_as_from_kube_apiserver(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue(common_name="front-proxy-client")
    shown = tmp_path / "proxy.pem"
    shown.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    async with (
        Behind(authority, "things.outside.svc") as server,
        Cluster(tokens={"jane-token": "jane"}, proxy_certificate=shown) as cluster,
    ):
        register(cluster, server.port, caBundle=base64.b64encode(authority.file.read_bytes()).decode())
        target = f"/apis/{GROUP}/v1/namespaces/a/things/%2A?labelSelector=a%3Db"
        status, body, headers = await read(
            cluster,
            target,
            Authorization="Bearer jane-token",
            Accept="application/json",
            **{
                "Audit-Id": "one",
                "X-Remote-User": "mallory",
                "X-Remote-Group": "system:masters",
                "Cookie": "c",
            },
        )
        assert (status, body, headers["etag"], "x-own" in headers) == (200, {"kind": "Thing"}, '"1"', False)
        assert [arrived.raw_path for arrived in server.requests] == [target], (
            "the path goes on as it was written"
        )
        arrived = server.requests[0].headers
        assert arrived.getall("X-Remote-User") == ["jane"]
        assert arrived.getall("X-Remote-Group") == ["system:authenticated"]
        assert (arrived.getall("Accept"), arrived.getall("Audit-Id")) == (["application/json"], ["one"])
        assert not {"Authorization", "Cookie"} & arrived.keys()
        [peer] = server.peers
        assert peer is not None


async def test_without_a_certificate_and_without_a_caller(authority: Authority) -> None:
    async with Behind(authority) as server, Cluster() as cluster:
        register(cluster, server.port, insecureSkipTLSVerify=True)
        server.status, server.body = 404, b"404 page not found\n"
        status, body, _ = await read(cluster, f"/apis/{GROUP}/v1")
        assert (status, body) == (404, "404 page not found\n")
        arrived = server.requests[0].headers
        assert arrived.getall("X-Remote-User") == ["system:anonymous"]
        assert arrived.getall("X-Remote-Group") == ["system:unauthenticated"]
        assert server.peers == [None]


@pytest.mark.parametrize("names", [("other.outside.svc",), ("localhost",)])
async def test_a_certificate_for_another_name_is_refused(
    authority: Authority, names: tuple[str, ...]
) -> None:
    async with Behind(authority, *names) as server, Cluster() as cluster:
        register(cluster, server.port, caBundle=base64.b64encode(authority.file.read_bytes()).decode())
        status, body, _ = await read(cluster, f"/apis/{GROUP}/v1")
        assert (status, body["reason"]) == (503, "ServiceUnavailable")
        assert "error trying to reach service" in body["message"]
        assert server.paths == []


@pytest.mark.parametrize("service", [{}, {"clusterIP": "10.0.0.1"}], ids=["no Service", "a cluster IP"])
async def test_a_service_without_an_address(service: dict[str, Any]) -> None:
    async with Cluster() as cluster:
        register(cluster, 1, service=service)
        status, body, _ = await read(cluster, f"/apis/{GROUP}/v1/things")
        assert (status, body["message"].endswith("externalName localhost")) == (501, True)
        found = await discovered(cluster)
        assert found == [{"version": "v1", "freshness": "Stale"}], "and the rest of discovery is there"


async def discovered(cluster: Cluster) -> list[Any]:
    status, document, _ = await read(cluster, "/apis", Accept=V2)
    assert status == 200
    [versions] = [item["versions"] for item in document["items"] if item["metadata"].get("name") == GROUP]
    assert isinstance(versions, list)
    return versions


async def test_discovery(authority: Authority) -> None:
    async with Behind(authority) as server, Cluster() as cluster:
        register(cluster, server.port, insecureSkipTLSVerify=True, versionPriority=10)
        register(cluster, server.port, insecureSkipTLSVerify=True, versionPriority=20, version="v2")
        entry = {"version": "v1", "freshness": "Current", "resources": RESOURCES}
        server.body = json.dumps({"items": [{"metadata": {"name": GROUP}, "versions": [entry]}]}).encode()
        assert await discovered(cluster) == [
            {"version": "v2", "resources": [], "freshness": "Current"},
            entry,
        ]
        assert server.paths == ["/apis"], "one question for all the groups of a server"
        assert server.requests[0].headers.getall("X-Remote-Group") == ["system:masters"]
        _, groups, _ = await read(cluster, "/apis")
        [group] = [each for each in groups["groups"] if each["name"] == GROUP]
        assert [each["version"] for each in group["versions"]] == ["v2", "v1"]
        assert (await read(cluster, f"/apis/{GROUP}"))[1]["preferredVersion"]["version"] == "v2"


@pytest.mark.parametrize(("status", "body"), [(503, b"{}"), (200, b"no json"), (0, b"")])
async def test_a_server_that_is_not_well(authority: Authority, status: int, body: bytes) -> None:
    async with Behind(authority) as server, Cluster() as cluster:
        register(cluster, server.port if status else 1, insecureSkipTLSVerify=True)
        server.status, server.body = status, body
        assert (await read(cluster, f"/apis/{GROUP}/v1"))[0] == (status or 503)
        assert await discovered(cluster) == [{"version": "v1", "freshness": "Stale"}]


async def test_what_the_cluster_serves_itself_stays_with_it() -> None:
    async with Cluster() as cluster:
        named = {"name": "v1.apps"}
        local = {"group": "apps", "version": "v1"}
        cluster.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": named,
                "spec": local,
            }
        )
        assert (await read(cluster, "/apis/apps/v1/deployments"))[0] == 200
        assert (await read(cluster, "/apis/none/v1"))[0] == 404
