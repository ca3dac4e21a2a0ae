"""Pods that do not get Ready, of an HPA, a boosted one and a FastPathAutoscaler.

The first sentence of the page, the line of the list, and doctor's diagnosis name the cause, and none of them
advises to add pods.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.model.autoscaling.fastpath_autoscaler import KIND
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui import sentence
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader
from fastpath_tools.ui.fleet import Problem
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.options import UiOptions
from scripts.generate import crd
from tests.support import incidents, pod_incidents
from tests.support.doctor import HANDSHAKE, REQUESTS, hpa
from tests.support.incidents import Incident, incident, measured
from tests.support.pod_incidents import INCIDENTS, SETS, PodIncident, shifted
from tests.support.tls import Authority
from tests.support.waiting import running, until

pytestmark = pytest.mark.timeout(120)
LISTED = ("image not found", "readiness 503", "no room", "quota, condition of the set", "evicted")
"""Incidents for which the list is read too, which takes longest."""

LIMITED = {
    "type": "ScalingLimited",
    "status": "True",
    "reason": "TooManyReplicas",
    "message": "the desired replica count is more than the maximum replica count",
}


@pytest.fixture
async def shop(tmp_path: Path, authority: Authority) -> AsyncIterator[Incident]:
    async with incident(tmp_path, authority) as shop:
        shop.cluster.create(yaml.safe_load(crd.PATH.read_text()))
        shop.cluster.scale("Deployment", "web", 8, "shop", manager="kube-controller-manager")
        shop.lead()
        yield shop


def autoscale(shop: Incident, kind: str) -> None:
    """Create the autoscaler of Deployment web, which wants more pods than its maximum."""
    metrics = [REQUESTS, HANDSHAKE] if kind == "boosted" else [REQUESTS]
    document = hpa("web", *metrics, mode="boost" if kind == "boosted" else "")
    counts = {"currentReplicas": 8, "desiredReplicas": 8, "currentMetrics": measured("17")}
    document["status"] |= counts
    document["status"]["conditions"].append(LIMITED)
    fast = {"apiVersion": "fastpath.io/v1alpha1", "kind": KIND} if kind == "fast" else {}
    shop.cluster.create(document | fast)


def put(shop: Incident, case: PodIncident) -> None:
    """Replace the pods of Deployment web, its ReplicaSets and all events by those of an incident."""
    for kind in ("Pod", "ReplicaSet", "Event"):
        for document in shop.cluster.list(kind, "shop"):
            shop.cluster.delete(kind, document["metadata"]["name"], "shop")
    ago = round(incidents.now()) - pod_incidents.NOW
    sets = case.sets or SETS
    for document in (*case.pods, *sets, *case.events):
        shop.cluster.create(shifted(document, ago))
    conditions = shifted(sets[0]["status"]["conditions"], ago)  # its Deployment has them too
    shop.cluster.patch("Deployment", "web", {"status": {"conditions": conditions}}, "shop")


async def check_line(doctor: Doctor, cause: str) -> None:
    fleet = FleetReader(doctor, "shop")
    async with running(fleet.examine()):
        await fleet.read()
        await until(lambda: fleet._examined)
        [row] = (await fleet.read()).rows
    assert cause in row.finding
    assert row.problems[0] is Problem.FAULT
    assert Problem.MAXIMUM not in row.problems


@pytest.mark.parametrize("kind", ["plain", "boosted", "fast"])
async def test_every_view_names_the_cause(shop: Incident, kind: str, tmp_path: Path) -> None:
    autoscale(shop, kind)
    kubeconfig = str(shop.cluster.kubeconfig(tmp_path / "kubeconfig"))
    for name, case in INCIDENTS.items():
        if "deletionTimestamp" in str(case.pods):  # only a deletion sets it
            continue
        put(shop, case)
        cause = case.cause.partition(" since ")[0] if " since " in case.cause else case.cause
        async with AsyncExitStack() as stack:
            doctor = await Doctor.open(UiOptions(kubeconfig=kubeconfig), stack)
            examined = await doctor.examine("shop", "web")
            found = examined.fpas[0] if examined.fpas else examined.hpas[0]
            assert cause in found.diagnosis, name
            assert case.advice in found.change, name
            assert found.state.value == "fault", name
            if name in LISTED:
                await check_line(doctor, cause)
            reading = await AutoscalerReader(doctor, "shop", "web").read()
        why = sentence.describe(reading.view, reading.examination)
        assert cause in why.cause, name
        for advice in (found.change, why.advice, str(found)):
            assert "raise spec.maxReplicas" not in advice, name
            assert "raise maxReplicas" not in advice, name


SCRAPE_FAULT = "web-5d9: 10.1.2.3:9102: Connection refused"


@pytest.mark.parametrize("kind", ["plain", "boosted", "fast"])
@pytest.mark.parametrize("scraped", ["", "  scrape: {port: 9102}\n"], ids=["a rule of Prometheus", "scraped"])
async def test_a_scrape_that_fails_comes_before_the_maximum(
    shop: Incident, kind: str, scraped: str, tmp_path: Path
) -> None:
    """The pods listen at another port than the rule names, and only the scaler scrapes them."""
    autoscale(shop, kind)
    shown = {"metrics": [{"name": "pods metric http_requests_per_second", "scrapeFault": SCRAPE_FAULT}]}

    async def show(_: web.Request) -> web.Response:
        return web.json_response(shown)

    scaler = web.Application()
    scaler.router.add_get("/debug/fastpath/autoscalers/shop/web", show)
    rules = tmp_path / "scraped.yaml"
    rules.write_text(incidents.RULES.replace("externalRules:", f"{scraped}externalRules:"))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TestServer(scaler))
        kubeconfig = str(shop.cluster.kubeconfig(tmp_path / "kubeconfig"))
        options = UiOptions(kubeconfig=kubeconfig, config=(str(rules),), server=str(server.make_url("")))
        doctor = await Doctor.open(options, stack)
        examined = await doctor.examine("shop", "web")
        reading = await AutoscalerReader(doctor, "shop", "web").read()
    found = examined.fpas[0] if examined.fpas else examined.hpas[0]
    why = sentence.describe(reading.view, reading.examination)
    if not scraped or kind == "plain":
        assert SCRAPE_FAULT not in str((found.diagnosis, why))
        return
    cause = f"a scrape for http_requests_per_second fails: {SCRAPE_FAULT}"
    advice = "correct the port in scrape of its rule, or what listens there"
    assert (found.state.value, found.diagnosis, found.change) == ("fault", cause, advice)
    assert (why.cause, why.advice) == (cause, advice)


async def test_what_may_not_be_listed_is_a_note(shop: Incident) -> None:
    """The states of the containers are enough for the cause."""
    autoscale(shop, "plain")
    put(shop, INCIDENTS["image not found"])
    shop.cluster.forbid("list", "replicasets", "shop")
    shop.cluster.forbid("list", "events", "shop")
    reading = await shop.read()
    why = sentence.describe(reading.view, reading.examination)
    assert "container app: ImagePullBackOff" in why.cause
    notes = [note.partition(", ")[0] for note in reading.notes]
    assert notes[:2] == ["ReplicaSets cannot be listed", "events cannot be listed"]
