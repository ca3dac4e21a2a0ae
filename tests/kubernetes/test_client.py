"""The API server's client: lists, watches, connections, and who we are. `scripts/requests` has the rest."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import client_exceptions, http_exceptions, web

from adapter import errors
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials, transport
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata, WatchEvent
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.objects.resources import APIResource
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes import apiclient
from tests.kubernetes.apiclient import PODS, answering, error_of, listening, pod, resource
from tests.kubernetes.test_credentials import write_kubeconfig
from tests.support.clock import FakeClock
from tests.support.tls import Authority
from tests.support.waiting import Pauses, until

DEPLOYMENTS = resource("deployments")
SOURCE = ListWatch(PARTIAL_METADATA, PODS)


def connected(host: str) -> contextlib.AbstractAsyncContextManager[KubernetesClient]:
    return apiclient.connected(host, Pauses(), random=0.5)


async def listed(
    client: KubernetesClient, what: APIResource = PODS, resource_version: str = "0", **options: Any
) -> tuple[list[str], str]:
    objects: list[PartialMetadata] = []
    source = ListWatch(PARTIAL_METADATA, what, **options)
    version = await client.list_objects(source, objects.extend, resource_version=resource_version)
    return [listed.name for listed in objects], version


async def test_the_start_of_a_body() -> None:
    """What a pod answers through the API server may have no end."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65536)
        return response

    async with answering(handle) as host, connected(host) as client:
        path = "/api/v1/namespaces/shop/pods/web:80/proxy/metrics"
        assert await client.get_start(path, 100_000) == b"x" * 100_000


# -- what goes wrong -----------------------------------------------------------------------------------------

"""What Go's decoder still takes. It is cut down, and then it is no list."""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    """The server that they name would receive a review with a user's token, and be trusted."""
    heard: list[web.Request] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        heard.append(request)
        return web.json_response(
            {"kind": "PodList", "items": [], "metadata": {}, "status": {"allowed": True}}
        )

    async with answering(elsewhere) as other:

        async def move(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"{other}/x"})

        async with answering(move) as host, connected(host) as client:
            raised = await error_of(
                client.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "secret"}})
            )
            assert raised.status == status
            raised = await error_of(listed(client))
            assert raised.status == status
    assert heard == []


async def test_a_token_that_cannot_be_sent() -> None:
    async def header() -> str:
        return "Bearer two\nlines"

    configuration = credentials.ClientConfiguration("http://127.0.0.1:1", authorization=header)
    async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
        await error_of(listed(client))


async def test_however_many_answers_are_slow_another_request_is_sent() -> None:
    """What watches many namespaces, and asks a metrics API that hangs, is to renew its Lease all the same."""
    waiting, enough = 0, asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        nonlocal waiting
        if request.path == "/slow":
            waiting += 1
            await enough.wait()
        return web.json_response({})

    async with answering(handle) as host, connected(host) as client, asyncio.TaskGroup() as group:
        for _ in range(120):
            group.create_task(client.get("/slow"))
        await until(lambda: waiting == 120)
        assert (await client.get("/quick")).content == b"{}"
        enough.set()


async def test_a_closed_client_says_so() -> None:
    async with connected("http://127.0.0.1:1") as client:
        pass
    with pytest.raises(errors.KubernetesError, match="the client is closed"):
        await client.get("/api")


async def test_closing_ends_what_is_in_flight() -> None:
    heard, ends = asyncio.Event(), asyncio.Event()

    async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        await ends.wait()
        writer.close()

    async with listening(hang) as host, connected(host) as client:
        call = asyncio.create_task(client.get("/api"), name="call")
        await heard.wait()
        await client.close()
        await error_of(call)
        ends.set()


def exceptions_of(*modules: Any) -> list[type[Exception]]:
    return [
        member
        for module in modules
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Exception) and member.__module__.startswith(module.__name__.partition(".")[0])
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.__name__)
        for kind in exceptions_of(client_exceptions, http_exceptions, msgspec)
        # websockets only
        if kind is not client_exceptions.WSMessageTypeError
    ],
)
def test_no_exception_of_a_library_is_unmapped(kind: type[Exception]) -> None:
    assert issubclass(kind, transport.FOREIGN)


# -- lists ---------------------------------------------------------------------------------------------------


async def test_list_from_a_cluster(cluster: Cluster, client: KubernetesClient) -> None:
    cluster.create(pod("b", app="web"))
    cluster.create(pod("a", app="db"))
    cluster.create(pod("c", "other", app="web"))
    found: list[PartialMetadata] = []
    version = await client.list_objects(SOURCE, found.extend)
    assert [(each.namespace, each.name, each.labels) for each in found] == [
        ("default", "a", {"app": "db"}),
        ("default", "b", {"app": "web"}),
        ("other", "c", {"app": "web"}),
    ]
    assert version == str(cluster.store.version)
    assert (await listed(client, namespace="other"))[0] == ["c"]
    assert (await listed(client, selector=parse_selector("app in (web),app!=db")))[0] == ["b", "c"]
    assert (await listed(client, DEPLOYMENTS))[0] == []
    request = cluster.requests[0]
    assert request.accept == (
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    )
    assert request.query == {"resourceVersion": "0", "limit": "500"}


async def test_pages_are_followed(cluster: Cluster, client: KubernetesClient) -> None:
    for number in range(1203):
        cluster.create(pod(f"pod-{number:04}"))
    names, version = await listed(client, resource_version="")
    assert names == [f"pod-{number:04}" for number in range(1203)]
    assert version == str(cluster.store.version)
    pages = [request.query for request in cluster.requests]
    assert len(pages) == 3
    assert pages[0] == {"limit": "500"}
    assert set(pages[1]) == {"limit", "continue"}


async def test_a_list_that_must_not_be_older_has_no_limit(cluster: Cluster, client: KubernetesClient) -> None:
    version = str(cluster.store.version)
    await listed(client, resource_version=version)
    assert cluster.requests[0].query == {"resourceVersion": version}


async def test_pages_that_expire_are_read_as_one(cluster: Cluster, client: KubernetesClient) -> None:
    for number in range(600):
        cluster.create(pod(f"pod-{number:04}"))
    found: list[str] = []

    def deliver(objects: list[PartialMetadata]) -> None:
        if objects and not found:
            cluster.create(pod("later"))
            cluster.compact()
        found.extend(each.name for each in objects)

    version = await client.list_objects(SOURCE, deliver, resource_version="")
    assert set(found) == {f"pod-{number:04}" for number in range(600)} | {"later"}
    assert version == str(cluster.store.version)
    assert [set(request.query) for request in cluster.requests] == [{"limit"}, {"limit", "continue"}, set()]


# -- watches -------------------------------------------------------------------------------------------------


async def take(
    watch: AsyncIterator[list[WatchEvent[PartialMetadata]]], count: int
) -> list[WatchEvent[PartialMetadata]]:
    events: list[WatchEvent[PartialMetadata]] = []
    async for batch in watch:
        events += batch
        if len(events) >= count:
            break
    return events


async def test_watch_from_a_cluster() -> None:
    async with Cluster(bookmark_interval=0.05) as cluster, connected(cluster.url) as client:
        _, version = await listed(client)
        async with client.watch_objects(SOURCE, resource_version=version, duration=300.4, silence=1) as watch:
            cluster.create(pod("a", app="web"))
            cluster.patch("Pod", "a", {"metadata": {"labels": {"app": "db"}}})
            cluster.delete("Pod", "a")
            events = await take(watch, 4)
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
        assert [getattr(event.object, "labels", None) for event in events[:3]] == [
            {"app": "web"},
            {"app": "db"},
            {"app": "db"},
        ]
        assert events[3].version == str(cluster.store.version)
        request = cluster.requests[-1]
        assert request.verb == "watch"
        assert (
            request.accept == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        )
        assert request.query == {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "300",
        }


async def test_a_cancelled_watch_leaves_nothing(cluster: Cluster, client: KubernetesClient) -> None:
    async def follow() -> None:
        async with client.watch_objects(SOURCE, resource_version="5", duration=300, silence=60) as watch:
            async for _ in watch:
                pass

    task = asyncio.create_task(follow(), name="follow")
    await until(lambda: cluster.open_watches)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not cluster.open_watches)


# -- who we are ----------------------------------------------------------------------------------------------


async def test_certificates_and_tokens_of_a_kubeconfig(authority: Authority, tmp_path: Path) -> None:
    ca = authority.file.read_bytes()
    async with Cluster(tls=authority.server_context(), ca=ca, tokens={"secret": "me"}) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "config", token="secret")
        async with await connect_as(kubeconfig) as client:
            await listed(client)
        assert cluster.requests[-1].user == "me"
        async with await connect_as(cluster.kubeconfig(tmp_path / "config", token="other")) as client:
            raised = await error_of(listed(client))
        assert raised.status == 401


async def connect_as(kubeconfig: Path) -> KubernetesClient:
    clock = FakeClock()
    faults = ProblemLog(Monitoring(), clock)
    configuration = await credentials.load_configuration([kubeconfig], clock, faults)
    return await kubernetes.connect(configuration, sleep=Pauses(), random=lambda: 0.0, timeout=1.0)


async def test_a_server_that_we_do_not_trust(authority: Authority, other_authority: Authority) -> None:
    async with Cluster(tls=authority.server_context()) as cluster:
        configuration = credentials.ClientConfiguration(cluster.url)
        configuration.ca_file = str(other_authority.file)
        async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
            with pytest.raises(
                errors.KubernetesError, match=r"the certificate of .* is not accepted"
            ) as raised:
                await listed(client)
        assert raised.value.reason == "Unreachable"


async def test_client_certificates_of_a_kubeconfig(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("client", common_name="me")
    async with Cluster(tls=authority.server_context(client_certificates=True)) as cluster:
        user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        kubeconfig = write_kubeconfig(
            tmp_path / "config", user, server=cluster.url, **{"certificate-authority": str(authority.file)}
        )
        async with await connect_as(kubeconfig) as client:
            assert (await listed(client))[0] == []


@pytest.mark.parametrize("field", ["ca_file", "cert_file"])
async def test_certificates_that_are_none(field: str, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    for name in ("bad.pem", "absent.pem"):
        configuration = credentials.ClientConfiguration("https://127.0.0.1:1")
        setattr(configuration, field, str(tmp_path / name))
        with pytest.raises(errors.InputError, match="usable certificates") as raised:
            await kubernetes.connect(configuration, random=lambda: 0.0, flag="--kubeconfig")
        (fault,) = raised.value.faults
        assert (fault.path, fault.value) == ("--kubeconfig", str(tmp_path / name))
        assert "_ssl.c" not in fault.expected


@pytest.mark.parametrize("said_by", ["configuration", "environment"])
async def test_proxies_are_used(said_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name and password in its address, if there are any."""
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with listening(proxy) as address:
        configuration = credentials.ClientConfiguration("http://kubernetes.invalid:8080/prefix")
        url = address.replace("//", "//user:word@")
        if said_by == "environment":
            monkeypatch.setenv("http_proxy", url)
        else:
            configuration.proxy = url
        async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
            assert (await client.get("/api")).content == b"{}"
    assert seen[0].startswith(b"GET http://kubernetes.invalid:8080/prefix/api HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n" in seen[0]


async def test_what_every_request_says_of_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A netrc gives no credentials: who we are the kubeconfig says alone.

    And a file that is looked for at each request would cost more than the request.
    """
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password word\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response()

    async with answering(handle) as host, connected(host) as client:
        await client.get("/api")
    assert seen[0].headers["User-Agent"] == "fastpath-adapter"
    assert seen[0].headers["Accept-Encoding"] == "identity"
    assert aiohttp.hdrs.AUTHORIZATION not in seen[0].headers
