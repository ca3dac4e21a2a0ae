"""`fastpath doctor` on a whole chain: a real Prometheus, the adapter behind the cluster's APIServices, and
the command as people run it.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from adapter.compose.clock import SystemClock
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads
from tests.support import adapter as support
from tests.support import certificates
from tests.support import doctor as doctors
from tests.support.adapter import RunningAdapter
from tests.support.doctor import HANDSHAKE, REQUESTS, Doctor, hpa, register
from tests.support.objects import plain
from tests.support.prometheus import PrometheusFactory, PrometheusServer, VictoriaMetricsServer
from tests.support.remotewrite import Written
from tests.tools.ownerleases import owner_leases

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

CLOCK = SystemClock()
STARTUP = 7
EVERY = 15
RULES = (Path(__file__).parents[1] / "data" / "rules" / "doctor.yaml").read_text()
QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue_depth"}, "target": {"type": "AverageValue", "averageValue": "5"}},
}
GROUPS = ("v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")

Engine = PrometheusServer | VictoriaMetricsServer


def write(prometheus: Engine, pods: list[str]) -> None:
    """Write eight minutes of requests, a sample every 15 s, and a queue that is read twice a minute."""
    now = CLOCK.wall()
    samples = []
    for pod in pods:
        labels = {"__name__": "http_requests_total", "namespace": "shop", "pod": pod}
        samples += [Written(labels, 10 * (480 - age), now - age) for age in range(480, -1, -EVERY)]
    samples += [Written({"__name__": "queue_depth"}, 5, now - age) for age in range(480, -1, -30)]
    prometheus.write(*samples)


def install(cluster: Cluster, port: int, rules: str = RULES) -> None:
    """Put the adapter behind the cluster as the manifests do: Service, pods with a ConfigMap, APIServices."""
    service = {"type": "ExternalName", "externalName": "localhost", "selector": {"app": "fastpath"}}
    cluster.create(plain("Service", "fastpath", "fastpath", spec=service))
    cluster.create(plain("ConfigMap", "fastpath", "fastpath", data={"rules.yaml": rules}))
    container = {
        "name": "fastpath",
        "args": ["serve", "--config=/etc/fastpath/rules", "--scaler"],
        "volumeMounts": [{"name": "rules", "mountPath": "/etc/fastpath/rules"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "rules", "configMap": {"name": "fastpath"}}]}
    cluster.create(plain("Pod", "fastpath-0", "fastpath", {"app": "fastpath"}, spec=spec))
    for name in GROUPS:
        register(cluster, name, {"name": "fastpath", "namespace": "fastpath", "port": port})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    authority = certificates.Signer("front-proxy-ca")
    shown = authority.issue("front-proxy-client").write(tmp_path)
    moment = [CLOCK.wall() - 3600.0]
    async with Cluster(proxy_certificate=shown, now=lambda: moment[0]) as cluster:
        cluster.create(certificates.config_map_object(certificates.config_map(authority.pem)))
        cluster.create(doctors.web(2))
        workloads = Workloads(cluster, startup=STARTUP)
        workloads.step(moment[0])
        moment[0] += STARTUP
        workloads.step(moment[0])
        yield cluster


@pytest.fixture
async def prometheus(cluster: Cluster, prometheus_server: PrometheusFactory) -> PrometheusServer:
    server = await asyncio.to_thread(prometheus_server)
    await asyncio.to_thread(write, server, [pod["metadata"]["name"] for pod in cluster.list("Pod", "shop")])
    return server


@contextlib.asynccontextmanager
async def installed(
    tmp_path: Path, cluster: Cluster, prometheus: Engine, *arguments: str, rules: str = RULES
) -> AsyncIterator[RunningAdapter]:
    """Run the adapter behind the cluster until the block ends."""
    (tmp_path / "rules.yaml").write_text(rules)
    async with support.running(tmp_path, cluster, prometheus.url, *arguments) as adapter:
        install(cluster, int(adapter.url.rpartition(":")[2]), rules)
        yield adapter


@pytest.fixture
def doctor(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(cluster.kubeconfig(tmp_path / "mine"), capsys)


async def test_the_whole_chain(
    tmp_path: Path, cluster: Cluster, prometheus: PrometheusServer, doctor: Doctor
) -> None:
    cluster.create(hpa("web", REQUESTS))
    async with installed(tmp_path, cluster, prometheus):
        status, text, _ = await doctor("shop/web", f"--prometheus-url={prometheus.url}")
        assert status == 0, text
        lines = text.splitlines()
        assert lines[0] == "shop/web scales Deployment web: 2 replicas, 2 to 8; not boosted"
        # the sum has what was measured: how long an answer took, how old a sample was
        longest = r"diagnosis: most of 8\d s is window, 60 s: "
        advice = r"rules\[0\] looks back over 2 m, 8 samples; 4 are enough"
        assert any(re.fullmatch(longest + advice, line) for line in lines), text
        assert "change:    shorten the range of rules[0] to [60s] (saves 30 s)" in lines

        hops = await doctor.hops(f"--prometheus-url={prometheus.url}")
        assert {name: hop["state"] for name, hop in hops.items()} == {
            "autoscaler": "ok",
            "scrape": "ok",
            "window": "warning",
            "metrics API": "ok",
            "decision": "ok",
            "behavior": "ok",
            "pod start": "ok",
        }
        assert hops["scrape"]["mostSeconds"] == pytest.approx(EVERY, abs=1)
        assert "; the newest sample is " in hops["scrape"]["finding"]
        assert hops["window"]["mostSeconds"] == 120
        assert hops["metrics API"]["finding"].startswith("Fastpath answered in ")
        assert hops["pod start"]["usualSeconds"] == STARTUP

        blind = await doctor.hops()
        assert blind["scrape"]["usualSeconds"] is None
        assert blind["window"]["mostSeconds"] == 120, "the rules say that by themselves"

        cluster.delete("HorizontalPodAutoscaler", "web", "shop")
        cluster.create(hpa("web", QUEUE))
        hops = await doctor.hops(f"--prometheus-url={prometheus.url}")
        assert hops["scrape"]["mostSeconds"] == pytest.approx(30, abs=2)
        assert (hops["scrape"]["state"], hops["window"]["finding"]) == ("warning", "the latest sample")
        _, text, _ = await doctor("shop/web", f"--prometheus-url={prometheus.url}")
        assert "change:    scrape the series of externalRules[0] every 5 s" in text

        await asyncio.to_thread(prometheus.kill)
        hops = await doctor.hops(f"--prometheus-url={prometheus.url}")
        assert hops["scrape"]["state"] == "unknown"
        assert hops["scrape"]["finding"].startswith("cannot query Prometheus: ")


async def test_a_real_victoriametrics(
    tmp_path: Path,
    cluster: Cluster,
    victoriametrics: VictoriaMetricsServer,
    doctor: Doctor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It answers for 30 s ago by default (search.latencyOffset), and for now with nocache=1."""
    pods = [pod["metadata"]["name"] for pod in cluster.list("Pod", "shop")]
    await asyncio.to_thread(write, victoriametrics, pods)
    url, now = f"--prometheus-url={victoriametrics.url}", "--prometheus-query-param=nocache=1"
    cluster.create(hpa("web", REQUESTS))

    async def run(*arguments: str) -> str:
        capsys.readouterr()
        assert await asyncio.to_thread(main.main, arguments) == 0, capsys.readouterr()
        return capsys.readouterr().out

    # a range of two minutes could be shortened, which saves as much
    async with installed(tmp_path, cluster, victoriametrics, now, rules=RULES.replace("2m", "1m")) as adapter:
        answer = await adapter.pods("shop", "http_requests_per_second", "app=web")
        assert (answer.status, answer.values) == (200, dict.fromkeys(pods, "10"))
        queue = await adapter.get("/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth")
        assert [each["value"] for each in queue.body["items"]] == ["5"]

        hops = await doctor.hops(url)
        assert hops["engine"]["usualSeconds"] == pytest.approx(30, abs=1)
        assert hops["scrape"]["mostSeconds"] == pytest.approx(EVERY, abs=1)
        _, text, _ = await doctor("shop/web", url)
        assert "change:    give --prometheus-query-param=nocache=1 to Fastpath" in text
        hops = await doctor.hops(url, now)
        assert "engine" not in hops
        assert (hops["scrape"]["state"], hops["window"]["mostSeconds"]) == ("ok", 60)
        assert hops["scrape"]["mostSeconds"] == pytest.approx(EVERY, abs=1)

    checked = await run("check", str(tmp_path / "rules.yaml"), url, now)
    assert "0 warnings" in checked
    asked = ("--why=http_requests_per_second", f"--object=pods/shop/{pods[0]}")
    told = await run("check", str(tmp_path / "rules.yaml"), url, now, *asked)
    assert told.endswith(f"http_requests_per_second of pods/shop/{pods[0]} is served: 10\n")


def lead(cluster: Cluster) -> None:
    """Have a scaler own the slice of namespace shop."""
    lease = {
        "holderIdentity": "fastpath-0_1",
        "leaseDurationSeconds": 15,
        "renewTime": timestamp(CLOCK.wall()),
    }
    for document in owner_leases("shop", lease):
        cluster.create(document)


async def test_boosted_and_fastpath_serves_no_floors(
    tmp_path: Path, cluster: Cluster, prometheus: PrometheusServer, doctor: Doctor
) -> None:
    """As without the component of the scaler. Boosting is advised once its floors are served."""
    first = "install components/scaler first (docs/guides/deploy.md#the-scaler)"
    url = f"--prometheus-url={prometheus.url}"
    cluster.create(hpa("web", QUEUE))
    lead(cluster)
    async with installed(tmp_path, cluster, prometheus):
        assert first in (await doctor.hops(url))["decision"]["change"]
        cluster.delete("HorizontalPodAutoscaler", "web", "shop")
        cluster.create(hpa("web", QUEUE, HANDSHAKE, mode="boost"))
        status, text, _ = await doctor("shop/web", url)
        assert status == 1
        assert "diagnosis: this Fastpath serves no floors: the HPA scales up but not down\n" in text
        assert f"change:    {first}, or remove the handshake with fastpath boost --remove\n" in text


async def test_boosted_and_then_fastpath_stops(
    tmp_path: Path, cluster: Cluster, prometheus: PrometheusServer, doctor: Doctor
) -> None:
    cluster.create(hpa("web", QUEUE, HANDSHAKE, mode="boost"))
    lead(cluster)
    url = f"--prometheus-url={prometheus.url}"
    async with installed(tmp_path, cluster, prometheus, "--serve-floors"):
        hops = await doctor.hops(url)
        assert hops["boost"]["finding"] == "the handshake works; no floor is set"
        assert hops["decision"]["mostSeconds"] == 1
    stopped = "Fastpath is stopped or unreachable: no metric has a value, so the HPA does not scale"
    status, text, _ = await doctor("shop/web", url)
    assert (status, f"diagnosis: {stopped}" in text) == (1, True)
    assert "fastpath boost --remove" in text
    status, table, _ = await doctor()
    assert (status, stopped in table) == (1, True)
