"""The scaler in the test's process: files and objects that change and break, and its own reports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from adapter.compose.clock import SystemClock
from adapter.compose.scaler import LISTED_SECONDS
from adapter.kubernetes.ownership import installation_lock
from adapter.kubernetes.ownership.lease import micro_time
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict
from fastpath_sandbox.apiserver.workloads import deployment
from tests.scenarios.test_scale import SCRAPED, ScaledCluster, autoscaler, happens, world
from tests.support.adapter import RunningScaler, admit, running, running_scaler
from tests.support.clock import ShiftedClock
from tests.support.kubectl import TOKEN
from tests.support.processor import limited
from tests.support.tools import free_port

__all__ = ["world"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue_depth"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
USAGES = """
resourceRules:
  cpu:
    containerQuery: 'sum(load{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}
    containerLabel: container
"""


@contextlib.asynccontextmanager
async def scaling(
    tmp_path: Path, world: ScaledCluster, *arguments: str, rules: str = SCRAPED
) -> AsyncIterator[RunningScaler]:
    kubeconfig = world.cluster.kubeconfig(tmp_path / "kubeconfig")
    rules = rules.replace("PORT", str(world.port))
    flags = ("--metrics-relist-interval=5s", "--metrics-max-age=60s", "--scrape-pod-cidrs=127.0.0.0/8")
    async with running_scaler(
        tmp_path, rules, world.prometheus.url, kubeconfig, *flags, *arguments
    ) as running:
        yield running


async def test_objects_come_change_break_and_go(
    tmp_path: Path, world: ScaledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.create(deployment("api", "default", 2))
    async with scaling(tmp_path, world, "--leader-elect=false") as running:
        await running.shows("fastpath_scaler_autoscalers 0.0")
        world.cluster.create(autoscaler())
        world.load = 25.0
        await happens(lambda: world.replicas() == 5)
        await running.shows("fastpath_scrape_targets 5.0")

        other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
        world.cluster.patch("FastPathAutoscaler", "web", {"spec": {"scaleTargetRef": other}}, "default")
        await happens(lambda: world.replicas("api") > 2)
        await running.shows("fastpath_scaler_autoscalers 1.0")

        world.cluster.delete("FastPathAutoscaler", "web", "default")
        await running.shows("fastpath_scaler_autoscalers 0.0")
        await running.shows("fastpath_scrape_targets 0.0")


async def test_a_refused_status_is_reported(tmp_path: Path, world: ScaledCluster) -> None:
    world.cluster.faults.forbid("patch", "fastpathautoscalers/status")
    world.cluster.create(autoscaler())
    async with scaling(tmp_path, world):
        await happens(lambda: "FailedUpdateStatus" in world.events())


async def test_cpu_of_running_pods_by_rules_of_ours(tmp_path: Path, world: ScaledCluster) -> None:
    """Pods come from the scaler's own watch: there is no other in this process."""
    world.cluster.create(autoscaler(metrics=[CPU]))
    async with scaling(tmp_path, world, rules=SCRAPED + USAGES):
        await happens(lambda: world.conditions().get("ScalingActive", ("", ""))[0] == "False")
        condition = next(each for each in world.status()["conditions"] if each["type"] == "ScalingActive")
        assert condition["reason"] == "FailedGetResourceMetric"


async def test_readiness_does_not_wait_for_the_lease(tmp_path: Path, world: ScaledCluster) -> None:
    """A slow API server delays the end of the scaler; the process is not ready from the beginning of that."""
    world.cluster.create(autoscaler(metrics=[QUEUE]))
    world.queue = 60.0
    async with scaling(tmp_path, world) as running:
        await happens(lambda: world.replicas() == 6)
        assert (await running.get("/readyz"))[0] == 200
        world.cluster.delay(3.0, "*", "leases")
        running.stop.set()
        async with limited(30):
            while (await running.get("/readyz"))[0] == 200:  # noqa: ASYNC110 - another page announces nothing
                await asyncio.sleep(0.05)
        status, text = await running.get("/readyz?verbose")
        assert (status, "[-]shutdown failed" in text) == (500, True)


async def test_a_scaler_leaves_the_slices_to_another_until_it_has_listed_all(
    tmp_path: Path, world: ScaledCluster
) -> None:
    def acquired() -> list[str]:
        """Return when each member took part first."""
        leases = world.cluster.list("Lease", "default")
        return [each["spec"]["acquireTime"] for each in leases if "-member-" in each["metadata"]["name"]]

    async with scaling(tmp_path, world) as first:
        await first.shows('fastpath_scaler_slices{name="fastpath-scaler"} 64.0')
        world.cluster.forbid("list", "pods")
        folder = tmp_path / "second"
        folder.mkdir()
        async with scaling(folder, world) as second:
            synced = 'informer_synced{resource="horizontalpodautoscalers.autoscaling (scaler)"} 1.0'
            await second.shows(synced)
            allowed = micro_time(SystemClock().wall())
            world.cluster.allow("list", "pods")
            for scaler in (first, second):
                await scaler.shows('fastpath_scaler_slices{name="fastpath-scaler"} 32.0')
            earlier, later = sorted(acquired())
            assert earlier < allowed < later


async def test_probes_have_an_address_of_their_own(tmp_path: Path, world: ScaledCluster) -> None:
    port = free_port()
    async with scaling(tmp_path, world, f"--health-probe-bind-address=127.0.0.1:{port}") as running:
        await running.shows("leader_election_master_status")
        probes = running.at(port)
        async with limited(30):
            while (await probes.get("/readyz"))[0] != 200:  # noqa: ASYNC110 - readiness announces nothing
                await asyncio.sleep(0.05)
        assert await probes.get("/livez") == (200, "ok")
        for path in ("/metrics", "/debug/fastpath/autoscalers/default/web", "/readyz/caches-synced"):
            assert (await probes.get(path))[0] == 404


async def test_probes_say_what_is_not_synced(tmp_path: Path, world: ScaledCluster) -> None:
    world.cluster.faults.forbid("list", "pods")
    port = free_port()
    async with scaling(tmp_path, world, f"--health-probe-bind-address=127.0.0.1:{port}") as running:
        status, text = await running.at(port).get("/readyz")
        assert status == 500
        assert "[-]caches-synced failed" in text


def let_another_scale(world: ScaledCluster) -> None:
    spec = {"holderIdentity": "other/fastpath-scaler", "leaseDurationSeconds": 60}
    metadata = {"name": installation_lock.NAME, "namespace": installation_lock.NAMESPACE}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    world.cluster.create(lease | {"metadata": metadata, "spec": spec})


HELD = "the Lease kube-system/fastpath-scaler is held by other/fastpath-scaler"


async def test_a_scaler_that_stands_back_is_ready_and_names_the_holder(
    tmp_path: Path, world: ScaledCluster
) -> None:
    let_another_scale(world)
    async with scaling(tmp_path, world) as running:
        await running.shows('fastpath_faults_active{fault="installation"} 1.0')
        await running.shows('fastpath_ready{command="scale"} 1.0')
        await running.shows(HELD, "/readyz/installation")
        await running.shows('fastpath_scaler_slices{name="fastpath-scaler"} 0.0')


async def test_a_server_whose_scaler_stands_back_is_ready_and_names_the_holder(
    tmp_path: Path, world: ScaledCluster
) -> None:
    (tmp_path / "rules.yaml").write_text(SCRAPED.replace("PORT", str(world.port)))
    let_another_scale(world)
    flags = ("--scaler", "--local-address=")
    async with running(tmp_path, world.cluster, world.prometheus.url, *flags) as adapter:
        await adapter.wait_for("/readyz/installation", lambda answer: HELD in str(answer.body))
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)
        told = await adapter.get("/readyz?verbose")
        assert "[-]installation failed: reason withheld (informational)" in str(told.body)


async def test_a_server_whose_scaler_never_listed_a_kind_is_not_ready(
    tmp_path: Path, world: ScaledCluster
) -> None:
    (tmp_path / "rules.yaml").write_text(SCRAPED.replace("PORT", str(world.port)))
    world.cluster.forbid("list", "horizontalpodautoscalers")
    clock, flags = ShiftedClock(), ("--scaler", "--local-address=")
    async with running(tmp_path, world.cluster, world.prometheus.url, *flags, clock=clock) as adapter:
        clock.advance(LISTED_SECONDS)
        failed = await adapter.get("/readyz?verbose")
        assert failed.status == 500
        assert "[-]scaler-caches-synced failed" in str(failed.body)
        world.cluster.allow("list", "horizontalpodautoscalers")
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)


async def test_metrics_over_the_network_are_for_callers_with_the_right(
    tmp_path: Path, world: ScaledCluster
) -> None:
    world.cluster.create(autoscaler())
    admit(world.cluster)
    world.cluster.reviews.access = lambda spec: AccessReviewVerdict(
        spec["user"] == "someone" and spec["nonResourceAttributes"]["path"] == "/metrics"
    )
    port = free_port()
    arguments = [
        f"--metrics-bind-address=127.0.0.1:{port}",
        f"--cert-dir={tmp_path / 'certificates'}",
        "--authentication-skip-lookup",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ]
    async with scaling(tmp_path, world, *arguments) as running:
        await running.shows("fastpath_scaler_autoscalers 1.0")

        async def get(path: str, token: str = "") -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            url = f"https://127.0.0.1:{port}{path}"
            async with running.session.get(url, headers=headers, ssl=False) as response:
                return response.status, await response.text()

        status, text = await get("/metrics", TOKEN)
        assert status == 200
        assert "fastpath_scaler_autoscalers 1.0" in text
        assert 'fastpath_ready{command="scale"} 1.0' in text
        certificate = tmp_path / "certificates" / "apiserver.crt"
        expiration = f'fastpath_certificate_expiration_timestamp_seconds{{file="{certificate}"}} '
        (line,) = (line for line in text.splitlines() if line.startswith(expiration))
        found = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        assert float(line.removeprefix(expiration)) == found.not_valid_after_utc.timestamp()
        assert (await get("/metrics"))[0] == 403
        assert (await get("/metrics", "another"))[0] == 401
        assert (await get("/debug/fastpath/autoscalers/default/web", TOKEN))[0] == 403
        assert (await get("/apis/custom.metrics.k8s.io/v1beta2", TOKEN))[0] == 403
        assert (await get("/livez"))[0] == 200
        world.cluster.reviews.access = lambda _: AccessReviewVerdict(allowed=True)
        assert (await get("/debug/fastpath/autoscalers/default/web", TOKEN))[0] == 200
        assert (await get("/apis/custom.metrics.k8s.io/v1beta2", TOKEN))[0] == 404, (
            "no API group is served there"
        )
