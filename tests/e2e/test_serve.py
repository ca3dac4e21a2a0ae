"""The adapter against a whole cluster: what it says of objects is what kubectl says of them.

Every test runs on the sandbox and, where KUBEBUILDER_ASSETS names one, on a real control plane; values come
from a real Prometheus.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.adapter import DecodedAnswer, RunningAdapter
from tests.support.clock import ShiftedClock
from tests.support.objects import plain
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.world.clusters import WIDGETS, ClusterUnderTest, Document

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(180)]

RULES = f"""
rules:
- seriesQuery: 'load{{namespace!="",pod!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
- seriesQuery: 'hits{{namespace!="",service!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, service: {{resource: service}}}}}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
- seriesQuery: 'heat{{namespace!="",widget!=""}}'
  resources:
    overrides:
      namespace: {{resource: namespace}}
      widget: {{group: {WIDGETS.partition(".")[2]}, resource: widget}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
"""
KEPT = ("--authentication-token-webhook-cache-ttl=10m", "--authorization-webhook-cache-authorized-ttl=10m")
PODS = [f"web-{number}" for number in range(50)]
LABELS = {
    name: {
        "app": "ab"[number % 2],
        "version": str(number % 5),
        **({"tier": "front"} if number % 3 == 0 else {}),
        **({"example.com/canary": ""} if number % 7 == 0 else {}),
    }
    for number, name in enumerate(PODS)
}
SELECTORS = [
    "",
    "app=a",
    "app==a",
    "app!=a",
    "tier!=front",
    "app in (a,b)",
    "version in (1,3,9)",
    "version notin (1,3)",
    "tier notin (front)",
    "tier",
    "!tier",
    "version>2",
    "version<2",
    "example.com/canary",
    "example.com/canary=",
    "app=b,version notin (0),!tier,version>1",
    "no-pod=has",
]


@pytest.fixture
async def prometheus(prometheus_server: PrometheusFactory) -> PrometheusServer:
    return await asyncio.to_thread(prometheus_server)


@pytest.fixture(autouse=True)
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


async def _write(
    prometheus: PrometheusServer, name: str, label: str, values: Mapping[str, float], namespace: str
) -> None:
    now = time.time()  # noqa: TID251 - a real Prometheus looks at real time
    samples = [
        Written({"__name__": name, "namespace": namespace, label: each}, value, now)
        for each, value in values.items()
    ]
    await asyncio.to_thread(prometheus.write, *samples)


def _object(kind: str, name: str, namespace: str, labels: Mapping[str, str] | None = None) -> Document:
    document = plain(kind, name, namespace, labels)
    if kind == "Pod":
        document["spec"] = {"containers": [{"name": "main", "image": "registry.example/none:1"}]}
    elif kind == "Service":
        document["spec"] = {"clusterIP": "None", "ports": [{"port": 80}]}
    elif kind == "Widget":
        document["apiVersion"] = f"{WIDGETS.partition('.')[2]}/v1"
    return document


def _loads(namespace: str, selector: str = "") -> str:
    query = f"?labelSelector={quote(selector)}" if selector else ""
    return f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/%2A/load{query}"


async def _make_pods(cluster: ClusterUnderTest, prometheus: PrometheusServer) -> dict[str, str]:
    """Make PODS, each with a load of its own; return the values that are right."""
    await cluster.create(*(_object("Pod", name, cluster.namespace, LABELS[name]) for name in PODS))
    await _write(
        prometheus, "load", "pod", {name: 1.0 + number for number, name in enumerate(PODS)}, cluster.namespace
    )
    return {name: str(1 + number) for number, name in enumerate(PODS)}


async def test_selectors_and_order_are_those_of_kubectl(
    tmp_path: Path, cluster: ClusterUnderTest, prometheus: PrometheusServer
) -> None:
    right = await _make_pods(cluster, prometheus)
    async with cluster.adapter(prometheus.url) as adapter:
        for selector in SELECTORS:
            listed = await cluster.names("pods", selector)
            answer = await adapter.get(_loads(cluster.namespace, selector))
            if selector == "no-pod=has":
                assert (listed, answer.status) == ([], 404)
                continue
            assert [item["describedObject"]["name"] for item in answer.body["items"]] == listed, selector
            assert answer.values == {name: right[name] for name in listed}, selector
        described = (await adapter.get(_loads(cluster.namespace))).body["items"][0]["describedObject"]
        assert described == {
            "kind": "Pod",
            "namespace": cluster.namespace,
            "name": "web-0",
            "apiVersion": "/v1",
        }


async def _until(adapter: RunningAdapter, path: str, values: Mapping[str, str]) -> None:
    await adapter.wait_for(path, lambda answer: answer.status == 200 and answer.values == values)


async def test_metrics_of_namespaces(
    tmp_path: Path, cluster: ClusterUnderTest, prometheus: PrometheusServer
) -> None:
    """The sum of a namespace, and namespaces by selector in kubectl's order: "x-a" before "xa"."""
    team = {"team": cluster.namespace}
    names = [f"{cluster.namespace}{end}" for end in ("xa", "x-a", "x")]
    await cluster.create(*(_object("Namespace", name, "", team) for name in names))
    for number, name in enumerate(names, 1):
        await _write(prometheus, "load", "pod", {"one": number, "two": 10 * number}, name)
    root = "/apis/custom.metrics.k8s.io/v1beta2/namespaces"
    async with cluster.adapter(prometheus.url) as adapter:
        one = await adapter.get(f"{root}/{names[1]}/metrics/load")
        assert one.values == {names[1]: "22"}
        selector = f"team={cluster.namespace}"
        path = f"{root}/%2A/metrics/load?labelSelector={quote(selector)}"
        found = await adapter.get(path)
        listed = await cluster.names("namespaces", selector, namespace="")
        assert listed == [names[2], names[1], names[0]]
        assert [item["describedObject"]["name"] for item in found.body["items"]] == listed
        assert found.values == {names[0]: "11", names[1]: "22", names[2]: "33"}


async def test_a_custom_kind_installed_while_running(
    tmp_path: Path, own_cluster: ClusterUnderTest, prometheus: PrometheusServer
) -> None:
    """Its rule is left out and reported until the kind is there; then it serves, without a restart."""
    namespace = own_cluster.namespace
    await own_cluster.create(_object("Pod", "a", namespace))
    await _write(prometheus, "load", "pod", {"a": 1}, namespace)
    await _write(prometheus, "heat", "widget", {"oven": 200, "lamp": 60}, namespace)
    clock = ShiftedClock()
    base = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/{WIDGETS}"
    async with own_cluster.adapter(prometheus.url, clock=clock) as adapter:
        assert (await adapter.get(f"{base}/oven/heat")).status == 404
        assert (await adapter.get(f"{base}/%2A/heat")).status == 500
        assert "[-]rules failed" in (await adapter.get("/readyz?verbose")).body
        await own_cluster.backend.install_widgets(own_cluster)
        await own_cluster.create(
            _object("Widget", "oven", namespace, {"room": "kitchen"}),
            _object("Widget", "lamp", namespace, {"room": "hall"}),
        )
        async with _passing(clock, 11):  # an unknown kind has discovery read again, every 10 s at most
            await _until(adapter, f"{base}/%2A/heat?labelSelector=room%3Dkitchen", {"oven": "200"})
        answer = await adapter.get(f"{base}/%2A/heat")
        assert [item["describedObject"]["name"] for item in answer.body["items"]] == await own_cluster.names(
            WIDGETS
        )
        assert answer.body["items"][0]["describedObject"]["apiVersion"] == f"{WIDGETS.partition('.')[2]}/v1"
        assert (await adapter.get(f"{base}/oven/heat")).values == {"oven": "200"}
        document = await adapter.get("/apis/custom.metrics.k8s.io/v1beta2")
        assert f"{WIDGETS}/heat" in {resource["name"] for resource in document.body["resources"]}
        assert "[+]rules ok" in (await adapter.get("/readyz?verbose")).body
        await own_cluster.kubectl("delete", WIDGETS, "lamp", "-n", namespace, "--wait=false")
        await _until(adapter, f"{base}/%2A/heat", {"oven": "200"})


@contextlib.asynccontextmanager
async def _passing(clock: ShiftedClock, seconds: float) -> AsyncIterator[None]:
    """Let so many seconds of the clock pass again and again, each half second, until the end of the block."""

    async def step() -> None:
        while True:
            clock.monotonic_shift += seconds
            await asyncio.sleep(0.5)

    task = asyncio.create_task(step(), name="clock")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _said(caplog: pytest.LogCaptureFixture, message: str) -> list[str]:
    return [
        str(record.__dict__["facts"]["error"]) for record in caplog.records if record.getMessage() == message
    ]


async def test_a_user_who_may_read_pods_only(
    tmp_path: Path, cluster: ClusterUnderTest, prometheus: PrometheusServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Pods and services by name work; services by selector fail, and the log names the missing right."""
    namespace = cluster.namespace
    await cluster.create(_object("Pod", "a", namespace), _object("Service", "web", namespace))
    await _write(prometheus, "load", "pod", {"a": 1}, namespace)
    await _write(prometheus, "hits", "service", {"web": 7}, namespace)
    limited = await cluster.limited(pods=("get", "list", "watch"))
    services = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/services"
    async with cluster.adapter(prometheus.url, lister=limited) as adapter:
        assert (await adapter.get(_loads(namespace))).values == {"a": "1"}
        assert (await adapter.get(f"{services}/web/hits")).values == {"web": "7"}
        for _ in range(3):
            refused = await adapter.get(f"{services}/%2A/hits")
            assert refused.status == 500
            assert refused.body["message"] == "Internal error occurred: unable to list matching resources"
        (said,) = _said(caplog, "objects cannot be listed")
        assert "cannot list services: 403 Forbidden" in said
        ready = await adapter.get("/readyz?verbose")
        assert (ready.status, "[-]objects failed" in ready.body) == (200, True)
        assert (await adapter.get(_loads(namespace))).values == {"a": "1"}


async def test_the_api_server_restarts_under_load(
    tmp_path: Path, own_cluster: ClusterUnderTest, prometheus: PrometheusServer
) -> None:
    """While it is away answers come from what was watched; what changed meanwhile is there afterwards.

    Never a wrong number.

    Callers are known all the while: what the API server said of them is remembered.
    """
    cluster = own_cluster
    right = await _make_pods(cluster, prometheus)
    path = _loads(cluster.namespace, "app=a")
    seen: list[DecodedAnswer] = []
    async with cluster.adapter(prometheus.url, *KEPT) as adapter:
        chosen = {name: right[name] for name in await cluster.names("pods", "app=a")}
        assert (await adapter.get(path)).values == chosen
        async with _asking(adapter, path, seen):
            for _ in range(2):
                await cluster.backend.crash()
                await adapter.wait_for("/readyz?verbose", lambda answer: "[-]objects failed" in answer.body)
                assert (await adapter.get("/readyz")).status == 200
                await cluster.backend.recover()
                await adapter.wait_for(
                    "/readyz?verbose", lambda answer: "[+]objects ok" in answer.body, seconds=60
                )
        assert len(seen) > 50
        assert {answer.status for answer in seen} == {200}
        assert all(answer.values == chosen for answer in seen)
        gone = next(iter(chosen))
        await cluster.kubectl("delete", "pod", gone, "-n", cluster.namespace, "--wait=false")
        await _until(adapter, path, {name: value for name, value in chosen.items() if name != gone})
        assert list((await adapter.get(path)).values) == await cluster.names("pods", "app=a")


@contextlib.asynccontextmanager
async def _asking(adapter: RunningAdapter, path: str, seen: list[DecodedAnswer]) -> AsyncIterator[None]:
    """Ask all the time, four at once, until the end of the block."""
    stop = asyncio.Event()

    async def ask() -> None:
        while not stop.is_set():
            seen.append(await adapter.get(path))

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(ask(), name=f"asker {number}")
        try:
            yield
        finally:
            stop.set()
