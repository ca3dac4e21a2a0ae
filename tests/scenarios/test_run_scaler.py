"""The scaler in the test's process: objects that change and go, its health, and its own reports."""

import asyncio
import json
from pathlib import Path

import pytest
from cryptography import x509

from adapter.cli import main
from adapter.compose.scaler import LISTED_SECONDS
from adapter.kubernetes.ownership import installation_lock
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict
from tests.support.adapter import admit
from tests.support.clock import ShiftedClock
from tests.support.kubectl import TOKEN
from tests.support.processor import limited
from tests.support.tools import free_port
from tests.world.workloads import AT_ONCE, NAMESPACE, OWN, level
from tests.world.world import World, scaling, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

PAGE = f"/debug/fastpath/autoscalers/{NAMESPACE}/{OWN}"


async def test_objects_come_change_and_go(
    tmp_path: Path, shop: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was decided meanwhile is replayed from the journal, as `fastpath explain` reads it."""
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    shop.hpa("other", way="")
    flags = ("--leader-elect=false", "--journal-records")
    async with scaling(shop, tmp_path / "scaler", None, *flags) as running:
        await running.shows("fastpath_scaler_autoscalers 0.0")
        shop.fpa(OWN, "pods-scraped", level(2), behavior=AT_ONCE)
        await shop.run(lambda: shop.is_active(OWN))
        shop.load(OWN, level(5))
        await shop.run(lambda: shop.replicas(OWN) == 5)
        await running.shows("fastpath_scrape_targets 5.0")
        server = f"--server=http://127.0.0.1:{running.port}"
        explain = ["explain", f"{NAMESPACE}/{OWN}", server, "--output=json"]
        assert await asyncio.to_thread(main.main, explain) == 0
        (tmp_path / "journal.json").write_text(capsys.readouterr().out)

        shop.sandbox.patch("FastPathAutoscaler", OWN, {"spec": {"scaleTargetRef": other}}, NAMESPACE)
        await running.shows("fastpath_scrape_targets 2.0")
        shop.sandbox.delete("FastPathAutoscaler", OWN, NAMESPACE)
        await running.shows("fastpath_scaler_autoscalers 0.0")
        await running.shows("fastpath_scrape_targets 0.0")

    replay = ["simulate", f"--replay={tmp_path / 'journal.json'}", "-o", "json"]
    assert await asyncio.to_thread(main.main, replay) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["differences"], done["first"]) == (0, None)
    assert done["decisions"] > 1


async def test_a_refused_status_is_reported(tmp_path: Path, shop: World) -> None:
    shop.sandbox.faults.forbid("patch", "fastpathautoscalers/status")
    shop.fpa(OWN)
    async with scaling(shop, tmp_path / "scaler"):
        await shop.run(lambda: shop.told(OWN, "FailedUpdateStatus"))


async def test_readiness_does_not_wait_for_the_lease(tmp_path: Path, shop: World) -> None:
    """A slow API server delays the end of the scaler; the process is not ready from the beginning of that.

    Probes have an address of their own, where nothing else is served.
    """
    web = shop.fpa(OWN)
    await shop.run(lambda: web.ready)
    shop.sandbox.faults.forbid("list", "pods")
    port = free_port()
    probe = f"--health-probe-bind-address=127.0.0.1:{port}"
    async with scaling(shop, tmp_path / "scaler", None, probe) as running:
        probes = running.at(port)
        status, text = await probes.get("/readyz")
        assert (status, "[-]caches-synced failed" in text) == (500, True)
        shop.sandbox.faults.allow("list", "pods")
        await shop.run(lambda: shop.is_active(OWN))
        assert [(await each.get("/readyz"))[0] for each in (running, probes)] == [200, 200]
        assert await probes.get("/livez") == (200, "ok")
        for path in ("/metrics", PAGE, "/readyz/caches-synced"):
            assert (await probes.get(path))[0] == 404
        shop.sandbox.delay(3.0, "*", "leases")
        running.stop.set()
        async with limited(30):
            while (await running.get("/readyz"))[0] == 200:  # noqa: ASYNC110 - another page announces nothing
                await asyncio.sleep(0.05)
        status, text = await running.get("/readyz?verbose")
        assert (status, "[-]shutdown failed" in text) == (500, True)


async def test_a_server_whose_scaler_stands_back_is_ready_and_names_the_holder(
    tmp_path: Path, shop: World
) -> None:
    spec = {"holderIdentity": "other/fastpath-scaler", "leaseDurationSeconds": 60}
    metadata = {"name": installation_lock.NAME, "namespace": installation_lock.NAMESPACE}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    shop.sandbox.create(lease | {"metadata": metadata, "spec": spec})
    held = "the Lease kube-system/fastpath-scaler is held by other/fastpath-scaler"
    async with serving(shop, tmp_path, "--scaler") as adapter:
        await adapter.wait_for("/readyz/installation", lambda answer: held in str(answer.body))
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)
        told = await adapter.get("/readyz?verbose")
        assert "[-]installation failed: reason withheld (informational)" in str(told.body)


async def test_a_server_whose_scaler_never_listed_a_kind_is_not_ready(tmp_path: Path, shop: World) -> None:
    shop.hpa(OWN)
    await shop.run(lambda: shop.autoscaler(OWN))
    shop.sandbox.forbid("list", "horizontalpodautoscalers")
    clock = ShiftedClock()
    async with serving(shop, tmp_path, "--scaler", clock=clock) as adapter:
        clock.advance(LISTED_SECONDS)
        failed = await adapter.get("/readyz?verbose")
        assert failed.status == 500
        assert "[-]scaler-caches-synced failed" in str(failed.body)
        shop.sandbox.allow("list", "horizontalpodautoscalers")
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)


async def test_metrics_over_the_network_are_for_callers_with_the_right(tmp_path: Path, shop: World) -> None:
    shop.fpa(OWN)
    await shop.create()
    admit(shop.sandbox)
    shop.sandbox.reviews.access = lambda spec: AccessReviewVerdict(
        spec["user"] == "someone" and spec["nonResourceAttributes"]["path"] == "/metrics"
    )
    port = free_port()
    arguments = [
        f"--metrics-bind-address=127.0.0.1:{port}",
        f"--cert-dir={tmp_path / 'certificates'}",
        "--authentication-skip-lookup",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ]
    async with scaling(shop, tmp_path / "scaler", None, *arguments) as running:
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
        groups = "/apis/custom.metrics.k8s.io/v1beta2"
        refused = (("/metrics", ""), ("/metrics", "another"), (PAGE, TOKEN), (groups, TOKEN), ("/livez", ""))
        assert [(await get(*each))[0] for each in refused] == [403, 401, 403, 403, 200]
        shop.sandbox.reviews.access = lambda _: AccessReviewVerdict(allowed=True)
        assert (await get(PAGE, TOKEN))[0] == 200
        assert (await get(groups, TOKEN))[0] == 404, "no API group is served there"
