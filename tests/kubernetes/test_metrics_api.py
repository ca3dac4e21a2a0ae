"""Asking another adapter through the API server.

Paths, values, and what becomes of everything that goes wrong.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.errors import KubernetesError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.metrics_api import Described, MetricsAPI
from adapter.model.timestamps import SECOND, read_instant
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import error_of
from tests.support.clock import FakeClock
from tests.support.tls import Authority

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
VERSIONS = {CUSTOM: "v1beta2", EXTERNAL: "v1beta1", RESOURCE: "v1beta1"}
TIME = "2026-11-20T12:00:00Z"


class Adapter:
    """The adapter behind the API server: remembers what it is asked, answers what a test says.

    Versions that are `missing` are not found.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200
        self.body: Any = {}
        self.missing: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.raw_path)
        await self.gate.wait()
        if request.path.split("/")[3] in self.missing:
            return web.Response(status=404, text="404 page not found")
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return web.Response(status=self.status, body=body, content_type="application/json")

    def refuse(self, code: int, reason: str, message: str) -> None:
        """Answer as an API server refuses."""
        self.status = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


class Aggregation:
    """A cluster, the adapter that it asks, and the client. `port` is the adapter's."""

    def __init__(self, adapter: Adapter, cluster: Cluster, client: KubernetesClient, port: int) -> None:
        self.adapter = adapter
        self.cluster = cluster
        self.client = client
        self.port = port
        self.clock = FakeClock()
        self.api = MetricsAPI(client, self.clock)

    @property
    def looks(self) -> int:
        """How often discovery of metrics.k8s.io was read."""
        return sum(request.path == f"/apis/{RESOURCE}" for request in self.cluster.requests)

    def asked_versions(self) -> list[str]:
        """Return the versions of metrics.k8s.io that the adapter was asked for, and forget them."""
        asked = [path.split("/")[3] for path in self.adapter.asked if path.startswith(f"/apis/{RESOURCE}/")]
        self.adapter.asked.clear()
        return asked


def register(cluster: Cluster, port: int) -> None:
    named = {"name": "adapter", "namespace": "outside"}
    spec = {"type": "ExternalName", "externalName": "localhost"}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": spec})
    for group, version in VERSIONS.items():
        register_version(cluster, f"{version}.{group}", port)


def register_version(cluster: Cluster, name: str, port: int, priority: int = 100) -> None:
    version, _, group = name.partition(".")
    spec = {
        "group": group,
        "versionPriority": priority,
        "version": version,
        "service": {"name": "adapter", "namespace": "outside", "port": port},
        "insecureSkipTLSVerify": True,
    }
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    cluster.create({**kind, "metadata": {"name": name}, "spec": spec})


@contextlib.asynccontextmanager
async def asking(
    authority: Authority, *, registered: bool = True, seconds: float = 5.0
) -> AsyncIterator[Aggregation]:
    adapter = Adapter()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", adapter.handle)
    context = authority.server_context()
    context.verify_mode = ssl.CERT_NONE
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=context, shutdown_timeout=0.1)

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    try:
        async with Cluster() as cluster:
            configuration = credentials.ClientConfiguration(cluster.url)
            async with await kubernetes.connect(
                configuration, sleep=no_pause, random=lambda: 0.0, timeout=seconds
            ) as client:
                if registered:
                    assert server.port is not None
                    register(cluster, server.port)
                yield Aggregation(adapter, cluster, client, server.port or 0)
    finally:
        adapter.gate.set()
        await server.close()


@pytest.fixture
async def aggregation(authority: Authority) -> AsyncIterator[Aggregation]:
    async with asking(authority) as aggregation:
        yield aggregation


Ask = Callable[[MetricsAPI], Awaitable[Sequence[Any]]]

QUESTIONS: dict[str, tuple[Ask, str, str]] = {
    "pods": (
        lambda api: api.pods("shop", "load", "app=web,tier in (a,b)", "queue=a"),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/"
            "pods/%2A/load?labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29&metricLabelSelector=queue%3Da"
        ),
        "pods.custom.metrics.k8s.io *",
    ),
    "pods without selectors": (
        lambda api: api.pods("shop", "http_requests/s", "", ""),
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/http_requests%2Fs",
        "pods.custom.metrics.k8s.io *",
    ),
    "an object": (
        lambda api: api.described(Described("Ingresses.networking.k8s.io", "shop", "Main"), "Hits", "a=b"),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/"
            "ingresses.networking.k8s.io/Main/Hits?metricLabelSelector=a%3Db"
        ),
        "Ingresses.networking.k8s.io.custom.metrics.k8s.io Main",
    ),
    "a namespace": (
        lambda api: api.described(Described("namespaces", "shop", "shop"), "hits", ""),
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits",
        "metrics.custom.metrics.k8s.io hits",
    ),
    "external": (
        lambda api: api.external("shop", "Queue_Depth", "a=b"),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth?labelSelector=a%3Db",
        "Queue_Depth.external.metrics.k8s.io",
    ),
    "resource": (
        lambda api: api.resource("shop", "app=web"),
        "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb",
        "pods.metrics.k8s.io",
    ),
}

EACH = pytest.mark.parametrize("name", QUESTIONS)

DESCRIBED = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/services"


@EACH
async def test_questions_go_as_the_native_controller_sends_them(aggregation: Aggregation, name: str) -> None:
    ask, target, _ = QUESTIONS[name]
    assert await ask(aggregation.api) == ()
    # what a path or a query may hold both plainly and escaped is the same to every server
    assert [unquote(asked) for asked in aggregation.adapter.asked] == [unquote(target)]


@pytest.mark.parametrize(
    "name", ["web?labelSelector=a", "web#x", "a b", "system:node", 'a"b', "ä", "a;b=c&d"]
)
async def test_the_name_of_an_object_stays_one_segment_of_the_path(
    aggregation: Aggregation, name: str
) -> None:
    assert await aggregation.api.described(Described("services", "shop", name), "hits", "") == ()
    (asked,) = aggregation.adapter.asked
    assert not {"?", "#"} & set(asked)
    assert unquote(asked) == f"{DESCRIBED}/{name}/hits"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../pods/x", "a%2Fb"])
async def test_a_name_that_leads_elsewhere_is_not_asked_for(aggregation: Aggregation, name: str) -> None:
    with pytest.raises(KubernetesError, match="invalid resource name"):
        await aggregation.api.described(Described("services", "shop", name), "hits", "")
    assert aggregation.adapter.asked == []


@EACH
@pytest.mark.parametrize("body", [{"items": []}, {"items": None}, {}], ids=["empty", "null", "left out"])
async def test_an_empty_answer_is_no_value_and_no_error(
    aggregation: Aggregation, name: str, body: Any
) -> None:
    aggregation.adapter.body = body
    assert await QUESTIONS[name][0](aggregation.api) == ()


async def test_custom_values(aggregation: Aggregation) -> None:
    described = {"kind": "Pod", "namespace": "shop", "name": "web-0", "apiVersion": "/v1"}
    named = {"metric": {"name": "load", "selector": None}}
    aggregation.adapter.body = {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta2",
        "metadata": {},
        "items": [
            {"describedObject": described, **named, "timestamp": TIME, "windowSeconds": 60, "value": "1500m"},
            {"describedObject": described | {"name": "web-1"}, **named, "timestamp": None, "value": "0"},
        ],
    }
    first, second = await aggregation.api.pods("shop", "load", "", "")

    assert (first.described_object.name, first.value.milli) == ("web-0", 1500)
    assert (first.timestamp, first.span) == (read_instant(TIME), 60)
    assert (second.described_object.name, second.value.milli) == ("web-1", 0)
    assert (second.timestamp, second.span) == (None, None)


async def test_external_values(aggregation: Aggregation) -> None:
    aggregation.adapter.body = {
        "items": [
            {
                "metricName": "queue",
                "metricLabels": {"a": "b"},
                "timestamp": TIME,
                "window": 30,
                "value": "2k",
            },
            {"metricName": "queue", "metricLabels": None, "timestamp": TIME, "value": "-1"},
        ]
    }
    first, second = await aggregation.api.external("shop", "queue", "")

    assert (first.value.milli, first.window, first.timestamp) == (2_000_000, 30, read_instant(TIME))
    assert (second.value.milli, second.window) == (-1000, None)


async def test_usages(aggregation: Aggregation) -> None:
    usage = {"cpu": "250m", "memory": "64Mi"}
    aggregation.adapter.body = {
        "items": [
            {
                "metadata": {"name": "web-0", "namespace": "shop"},
                "timestamp": TIME,
                "window": "15.5s",
                "containers": [{"name": "app", "usage": usage}],
            }
        ]
    }
    (found,) = await aggregation.api.resource("shop", "app=web")

    assert (found.metadata.name, found.timestamp, found.window) == (
        "web-0",
        read_instant(TIME),
        31 * SECOND // 2,
    )
    (container,) = found.containers or ()
    assert {name: quantity.milli for name, quantity in (container.usage or {}).items()} == {
        "cpu": 250,
        "memory": 2**26 * 1000,
    }


@EACH
@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (404, "NotFound", "the server could not find the metric load for pods"),
        (403, "Forbidden", 'pods.custom.metrics.k8s.io "*" is forbidden: User "x" cannot get it'),
        (500, "InternalError", "Internal error occurred: unable to fetch metrics"),
        (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    ],
)
async def test_refusals_keep_the_words_of_the_other_side(
    aggregation: Aggregation, name: str, code: int, reason: str, message: str
) -> None:
    aggregation.adapter.refuse(code, reason, message)
    raised = await error_of(QUESTIONS[name][0](aggregation.api))

    assert (raised.status, raised.reason) == (code, reason)
    assert str(raised) == message


@EACH
async def test_a_group_that_is_not_served_is_not_found(authority: Authority, name: str) -> None:
    async with asking(authority, registered=False) as aggregation:
        raised = await error_of(QUESTIONS[name][0](aggregation.api))

        assert raised.status == 404
        assert str(raised) == f"the server could not find the requested resource (get {QUESTIONS[name][2]})"


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (401, b"", "the server has asked for the client to provide credentials"),
        (403, b"not you", "not you"),
        (429, b"", "the server has received too many requests and has asked us to try again later"),
        (500, b"broken\n", 'an error on the server ("broken") has prevented the request from succeeding'),
        (502, b"", 'an error on the server ("unknown") has prevented the request from succeeding'),
        (503, b"<html>", "the server is currently unable to handle the request"),
        (418, b"", "the server responded with the status code 418 but did not return more information"),
    ],
)
async def test_an_answer_that_is_no_status_is_worded_by_its_code(
    aggregation: Aggregation, code: int, body: bytes, words: str
) -> None:
    aggregation.adapter.status, aggregation.adapter.body = code, body
    raised = await error_of(aggregation.api.external("shop", "queue", ""))

    assert raised.status == code
    assert str(raised) == f"{words} (get queue.external.metrics.k8s.io)"


WRONG = {
    "nothing": b"",
    "no JSON": b"<html>",
    "no list": b'{"items": {}}',
    "no quantity": b'{"items": [{"value": "much"}]}',
    "too many levels": b'{"items": [' + b'{"a":' * 1500 + b"1" + b"}" * 1500 + b"]}",
    "no usage": b'{"items": [{"containers": [{"usage": {"cpu": "much"}}]}]}',
}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        pytest.param(name, body, id=f"{name}, {wrong}")
        for name in QUESTIONS
        for wrong, body in WRONG.items()
        if wrong != ("no quantity" if name == "resource" else "no usage")
    ],
)
async def test_an_answer_that_is_no_list_of_values(aggregation: Aggregation, name: str, body: bytes) -> None:
    aggregation.adapter.body = body
    raised = await error_of(QUESTIONS[name][0](aggregation.api))

    assert (raised.status, raised.reason) == (0, "Decode")
    assert "the response is not a list of values" in str(raised)


# -- the version of custom.metrics.k8s.io --------------------------------------------------------------------

OLD, NEW = f"v1beta1.{CUSTOM}", f"v1beta2.{CUSTOM}"


def loads(version: str) -> dict[str, Any]:
    """Return the answer to a question for `load`, as a version has it."""
    names = {"metricName": "load", "window": 60} if version == "v1beta1" else {"windowSeconds": 60}
    described = {"kind": "Pod", "namespace": "shop", "name": "web-0", "apiVersion": "/v1"}
    return {"items": [{"describedObject": described, "timestamp": TIME, "value": "1500m"} | names]}


async def read_load(aggregation: Aggregation) -> list[str]:
    """Return the versions that were asked for the pods' load, which has its value."""
    asked = len(aggregation.adapter.asked)
    (value,) = await aggregation.api.pods("shop", "load", "", "")
    assert (value.described_object.name, value.value.milli, value.span) == ("web-0", 1500, 60)
    return [path.split("/")[3] for path in aggregation.adapter.asked[asked:]]


@contextlib.asynccontextmanager
async def serving_custom(authority: Authority, **priorities: int) -> AsyncIterator[Aggregation]:
    """Yield a cluster in which these versions of custom.metrics.k8s.io are registered."""
    async with asking(authority) as aggregation:
        aggregation.cluster.delete("APIService", NEW)
        for version, priority in priorities.items():
            register_version(aggregation.cluster, f"{version}.{CUSTOM}", aggregation.port, priority)
        yield aggregation


@pytest.mark.parametrize(
    ("priorities", "version"),
    [
        ({"v1beta1": 100}, "v1beta1"),
        ({"v1beta2": 100}, "v1beta2"),
        ({"v1beta1": 100, "v1beta2": 200}, "v1beta2"),
        ({"v1beta1": 200, "v1beta2": 100}, "v1beta1"),
        ({"v1": 300, "v1beta1": 200, "v1beta2": 100}, "v1beta1"),
    ],
    ids=["v1beta1 alone", "v1beta2 alone", "both", "both, v1beta1 preferred", "a version that is not known"],
)
async def test_custom_metrics_are_read_in_the_version_that_discovery_prefers(
    authority: Authority, priorities: dict[str, int], version: str
) -> None:
    """As the HPA controller reads them, so prometheus-adapter is read, which serves v1beta1 alone."""
    async with serving_custom(authority, **priorities) as aggregation:
        aggregation.adapter.body = loads(version)
        assert [await read_load(aggregation), await read_load(aggregation)] == [[version], [version]]
        looks = [request for request in aggregation.cluster.requests if request.path == f"/apis/{CUSTOM}"]
        assert len(looks) == 1


async def test_a_custom_metric_that_does_not_exist_is_no_missing_version(authority: Authority) -> None:
    async with serving_custom(authority, v1beta1=100, v1beta2=200) as aggregation:
        aggregation.adapter.refuse(404, "NotFound", "the server could not find the metric load for pods")
        for _ in range(2):
            with pytest.raises(KubernetesError, match="could not find the metric load"):
                await aggregation.api.pods("shop", "load", "", "")
        assert {path.split("/")[3] for path in aggregation.adapter.asked} == {"v1beta2"}


# -- the version of metrics.k8s.io --------------------------------------------------------------------------

USED = {"items": [{"metadata": {"name": "web-0"}, "timestamp": TIME, "window": "15s", "containers": []}]}
STABLE, BETA = f"v1.{RESOURCE}", f"v1beta1.{RESOURCE}"


@contextlib.asynccontextmanager
async def reading(authority: Authority, *names: str) -> AsyncIterator[Aggregation]:
    """Yield a cluster in which only these APIServices of metrics.k8s.io are registered."""
    async with asking(authority) as aggregation:
        aggregation.adapter.body = USED
        if BETA not in names:
            aggregation.cluster.delete("APIService", BETA)
        if STABLE in names:
            register_version(aggregation.cluster, STABLE, aggregation.port)
        yield aggregation


async def read(aggregation: Aggregation) -> list[str]:
    """Return the versions that were asked for one list; the list has its pod."""
    (found,) = await aggregation.api.resource("shop", "app=web")
    assert found.metadata.name == "web-0"
    return aggregation.asked_versions()


@pytest.mark.parametrize(
    ("names", "version"),
    [((BETA,), "v1beta1"), ((STABLE,), "v1"), ((BETA, STABLE), "v1")],
    ids=["v1beta1 alone", "v1 alone", "both"],
)
async def test_v1_is_read_where_it_is_registered(
    authority: Authority, names: tuple[str, ...], version: str
) -> None:
    async with reading(authority, *names) as aggregation:
        assert [await read(aggregation), await read(aggregation)] == [[version], [version]]
        assert aggregation.looks == 1


async def test_many_reads_of_a_deregistered_version_share_one_look(authority: Authority) -> None:
    async with reading(authority, BETA, STABLE) as aggregation:
        await read(aggregation)
        aggregation.cluster.delete("APIService", STABLE)
        found = await asyncio.gather(
            *(aggregation.api.resource("shop", f"app={number}") for number in range(10))
        )
        assert [len(each) for each in found] == [1] * 10
        assert aggregation.asked_versions() == ["v1beta1"] * 10
        assert aggregation.looks == 2


async def test_a_registered_version_that_the_server_does_not_have(authority: Authority) -> None:
    """After a minute it is tried again, and each time the values come from the other version."""
    async with reading(authority, BETA, STABLE) as aggregation:
        aggregation.adapter.missing = {"v1"}
        assert await read(aggregation) == ["v1", "v1beta1"]
        assert await read(aggregation) == ["v1beta1"]
        aggregation.clock.advance(60.0)
        assert await read(aggregation) == ["v1", "v1beta1"]
        aggregation.adapter.missing = {"v1beta1"}
        assert await read(aggregation) == ["v1beta1", "v1"]


async def test_a_group_that_is_gone_is_an_error_and_never_no_usage(authority: Authority) -> None:
    async with reading(authority, BETA) as aggregation:
        await read(aggregation)
        aggregation.cluster.delete("APIService", BETA)
        for _ in range(3):
            with pytest.raises(KubernetesError, match="could not find the requested resource"):
                await aggregation.api.resource("shop", "app=web")
        register_version(aggregation.cluster, STABLE, aggregation.port)
        assert await read(aggregation) == ["v1"], "found as soon as it is there"


async def test_a_version_that_is_not_available_is_not_left(authority: Authority) -> None:
    """The other version may be another server's, with other values; the error says what is wrong."""
    async with reading(authority, BETA, STABLE) as aggregation:
        aggregation.adapter.refuse(503, "ServiceUnavailable", "not now")
        for _ in range(2):
            with pytest.raises(KubernetesError, match="not now"):
                await aggregation.api.resource("shop", "app=web")
        assert set(aggregation.asked_versions()) == {"v1"}


@pytest.mark.parametrize("names", [(BETA,), (STABLE,)], ids=["v1beta1", "v1"])
async def test_where_discovery_may_not_be_read(authority: Authority, names: tuple[str, ...]) -> None:
    async with reading(authority, *names) as aggregation:
        aggregation.cluster.faults.forbidden_paths.add(f"/apis/{RESOURCE}")
        version = names[0].partition(".")[0]
        assert await read(aggregation) == [version]
        assert await read(aggregation) == [version]
        aggregation.clock.advance(60.0)
        assert await read(aggregation) == [version]


async def test_one_version_alone_needs_no_discovery(authority: Authority) -> None:
    """As the HPA controller of Kubernetes 1.36 reads."""
    async with reading(authority, BETA, STABLE) as aggregation:
        (found,) = await MetricsAPI(aggregation.client, aggregation.clock, ("v1beta1",)).resource("shop", "")
        assert found.metadata.name == "web-0"
        assert (aggregation.asked_versions(), aggregation.looks) == (["v1beta1"], 0)
