"""The adapter as its users meet it: real Prometheus, real TLS, kubectl, a cluster over real HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support import adapter as support
from tests.support.kubectl import Kubectl
from tests.support.objects import plain
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.world.workloads import CLOCK

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

RULES = (Path(__file__).parents[1] / "data" / "rules" / "every-api.yaml").read_text()
PODS = {"web-0": 10.0, "web-1": 20.0, "web-2": 30.0}


def _loads(now: float) -> list[Written]:
    return [
        Written({"__name__": "load", "namespace": "shop", "pod": pod}, rate, now)
        for pod, rate in PODS.items()
    ]


def _write(prometheus: PrometheusServer) -> None:
    """Write what the rules ask for: counters that grew by rates in PODS, gauges, queues."""
    now = CLOCK.wall()
    samples = _loads(now)
    for pod, rate in PODS.items():
        labels = {"__name__": "http_requests_total", "namespace": "shop", "pod": pod}
        samples += [Written(labels, rate * (60 - age), now - age) for age in (60, 45, 30, 15, 0)]
    samples.append(
        Written({"__name__": "hits", "namespace": "shop", "ingress": "main", "service": "web"}, 7.5, now)
    )
    for queue, depth in {"mail": 5, "orders": 9, "": 3}.items():
        labels = {"__name__": "queue_depth", "namespace": "shop"} | ({"queue": queue} if queue else {})
        samples.append(Written(labels, depth, now))
    prometheus.write(*samples)


def _rewrite(rules: Path, text: str) -> None:
    rules.write_text(text)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(plain("Namespace", "shop"))
        for name in PODS:
            cluster.create(plain("Pod", name, "shop", {"app": "web"}))
        cluster.create(plain("Pod", "other-0", "shop", {"app": "other"}))
        yield cluster


@pytest.fixture
async def prometheus(prometheus_server: PrometheusFactory) -> PrometheusServer:
    server = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(_write, server)
    return server


async def test_kubectl_reads_metrics_once_prometheus_has_series(
    tmp_path: Path,
    rules: Path,
    cluster: Cluster,
    prometheus_server: PrometheusFactory,
    kubectl: Kubectl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Prometheus starts after the adapter, and scrapes after its start: log and health checks say so."""
    prometheus = prometheus_server(start=False)
    often = ("--metrics-relist-interval=1s", "--metrics-max-age=10m")
    async with support.running(tmp_path, cluster, prometheus.url, *often) as adapter:
        verbose = (await adapter.get("/readyz?verbose")).body
        assert ("[-]discovery failed" in verbose, "[+]series ok" in verbose) == (True, True), verbose
        await asyncio.to_thread(prometheus.start)
        described = await adapter.wait_for("/readyz/series", lambda answer: answer.status == 500)
        assert re.fullmatch(
            r"internal server error: 4 rules have no series yet: rules\[0\], rules\[1\], rules\[2\], "
            r"externalRules\[0\]; series are (listed again in 1 s|being listed)\n",
            described.body,
        ), described.body
        verbose = await adapter.get("/readyz?verbose")
        assert (verbose.status, "[-]series failed: reason withheld (informational)" in verbose.body) == (
            200,
            True,
        )
        await asyncio.to_thread(_write, prometheus)
        await adapter.wait_for("/readyz/series", lambda answer: answer.status == 200)
        reported = [record for record in caplog.records if record.message == "rule has no series"]
        assert [vars(record)["facts"]["rules"] for record in reported] == [
            "rules[0]",
            "rules[1]",
            "rules[2]",
            "externalRules[0]",
        ]
        custom = "/apis/custom.metrics.k8s.io/v1beta2"
        pods = await kubectl.get_raw(
            adapter.url, f"{custom}/namespaces/shop/pods/*/http_requests_per_second?labelSelector=app%3Dweb"
        )
        values = {item["describedObject"]["name"]: item["value"] for item in pods["items"]}
        assert values.keys() == PODS.keys()
        for name, rate in PODS.items():
            assert float(values[name].removesuffix("m")) / (
                1000 if values[name].endswith("m") else 1
            ) == pytest.approx(rate, rel=0.2)
        for path in ("ingresses.networking.k8s.io/main", "services/web", "metrics"):
            found = await kubectl.get_raw(adapter.url, f"{custom}/namespaces/shop/{path}/hits")
            assert [item["value"] for item in found["items"]] == ["7500m"], path
        described = (await kubectl.get_raw(adapter.url, f"{custom}/namespaces/shop/services/web/hits"))[
            "items"
        ][0]
        assert described["describedObject"] == {
            "kind": "Service",
            "namespace": "shop",
            "name": "web",
            "apiVersion": "/v1",
        }


async def test_rules_of_a_group_come_and_go(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: PrometheusServer
) -> None:
    """One that is added to a group that was not served serves it; when the last one goes the group stays."""
    group = "/apis/external.metrics.k8s.io/v1beta1"
    queue = f"{group}/namespaces/shop/queue_depth?labelSelector={quote('queue notin (mail)')}"
    without = RULES.partition("externalRules")[0]
    _rewrite(rules, without)
    async with support.running(tmp_path, cluster, prometheus.url) as adapter:
        assert (await adapter.get(queue)).status == 404
        _rewrite(rules, RULES)
        found = await adapter.wait_for(queue, lambda answer: answer.status == 200)
        depths = {item["metricLabels"].get("queue", ""): item["value"] for item in found.body["items"]}
        assert depths == {"orders": "9", "": "3"}
        _rewrite(rules, without)
        document = await adapter.wait_for(group, lambda answer: "queue_depth" not in str(answer.body))
        assert document.status == 200
        assert [entry["name"] for entry in document.body["resources"]] == ["externalmetrics"]


async def test_prometheus_dies_and_comes_back(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: PrometheusServer
) -> None:
    """Never a wrong number or a zero; the fault is visible while it lasts; recovery needs no action."""
    right = {"web-0": "10", "web-1": "20", "web-2": "30"}
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/load?labelSelector=app%3Dweb"
    seen: list[support.DecodedAnswer] = []

    def is_refused(answer: support.DecodedAnswer) -> bool:
        seen.append(answer)
        return answer.status != 200

    async with support.running(tmp_path, cluster, prometheus.url) as adapter:
        assert (await adapter.get(path)).values == right
        await asyncio.to_thread(prometheus.kill)
        failed = await adapter.wait_for(path, is_refused)
        told = "Internal error occurred: unable to fetch metrics: Prometheus does not answer since 20"
        assert (failed.status, failed.body["message"].startswith(told)) == (500, True)
        assert all(answer.values == right for answer in seen[:-1])
        verbose = await adapter.get("/readyz?verbose")
        assert (verbose.status, "[-]prometheus failed" in verbose.body) == (200, True)
        faults = await adapter.metric_lines("fastpath_faults_active")
        assert faults['fastpath_faults_active{fault="prometheus"}'] == 1
        await asyncio.to_thread(prometheus.start)
        await asyncio.to_thread(prometheus.write, *_loads(CLOCK.wall()))
        await adapter.wait_for(path, lambda answer: answer.status == 200 and answer.values == right)
        assert "[+]prometheus ok" in (await adapter.get("/readyz?verbose")).body
