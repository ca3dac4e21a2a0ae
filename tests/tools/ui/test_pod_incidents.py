"""Pods that do not get Ready, in the views of an HPA, a boosted one and a FastPathAutoscaler.

The first sentence of the page, the line of the list, and doctor's diagnosis name the cause, and none of them
advises to add pods. All causes: tests/golden/doctor. When each counts: tests/tools/live/test_unready.py.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui import sentence
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader
from fastpath_tools.ui.fleet import Problem
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.options import UiOptions
from tests.golden.stored_clusters import StoredCluster
from tests.support.waiting import running

FOLDER = Path(__file__).parents[2] / "golden" / "doctor"
NOW = 1_795_435_200.0
KINDS = {"plain": ("limited",), "boosted": ("limited", "boosted"), "fast": ("limited-fast",)}
SCRAPE_FAULT = "web-5d9: 10.1.2.3:9102: Connection refused"
ADDING = ("raise spec.maxReplicas", "raise maxReplicas")


@pytest.fixture
async def cluster(stop_clock: Callable[[float], None]) -> AsyncIterator[StoredCluster]:
    stop_clock(NOW)
    async with StoredCluster(NOW - 600) as cluster:
        yield cluster


def load(cluster: StoredCluster, *names: str) -> None:
    names = ("servers", "rules", "leader", *names)
    cluster.load((FOLDER / f"{name}.yaml").read_text() for name in names)


def options(cluster: StoredCluster, folder: Path, **given: object) -> UiOptions:
    return UiOptions(kubeconfig=str(cluster.kubeconfig(folder / "kubeconfig")), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("incident", "cause"),
    [
        ("containers-that-fail/image-not-found", "container app: ImagePullBackOff: Back-off pulling image"),
        ("pods-that-are-refused/quota-condition-of-the-set", "new pods are refused since 11:57:55 UTC"),
    ],
)
async def test_every_view_names_the_cause(
    cluster: StoredCluster, kind: str, incident: str, cause: str, tmp_path: Path
) -> None:
    load(cluster, "revisions", *KINDS[kind], incident)
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(options(cluster, tmp_path), stack)
        examined = await doctor.examine("shop", "web")
        [found] = examined.fpas or examined.hpas
        reading = await AutoscalerReader(doctor, "shop", "web").read()
        fleet = FleetReader(doctor, "shop")
        async with running(fleet.examine()):
            [row] = (await fleet.read()).rows
            while cause not in row.finding:
                [row] = (await fleet.read()).rows
    why = sentence.describe(reading.view, reading.examination)
    assert found.state.value == "fault"
    assert cause in found.diagnosis
    assert cause in why.cause
    assert row.problems[0] is Problem.FAULT
    assert Problem.MAXIMUM not in row.problems
    for advice in ADDING:
        assert advice not in f"{found.change} {why.advice} {found}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scraped", ["", "  scrape: {port: 9102}\n"], ids=["a rule of Prometheus", "scraped"])
async def test_a_scrape_that_fails_comes_before_the_maximum(
    cluster: StoredCluster, kind: str, scraped: str, tmp_path: Path
) -> None:
    """The pods listen at another port than the rule names, and only the scaler scrapes them."""
    load(cluster, "web", *KINDS[kind])
    shown = {"metrics": [{"name": "pods metric http_requests_per_second", "scrapeFault": SCRAPE_FAULT}]}

    async def show(_: web.Request) -> web.Response:
        return web.json_response(shown)

    scaler = web.Application()
    scaler.router.add_get("/debug/fastpath/autoscalers/shop/web", show)
    rules = tmp_path / "scraped.yaml"
    given = cluster.get("ConfigMap", "the-rules", "fastpath")["data"]["rules.yaml"]
    rules.write_text(given.replace("- seriesQuery: 'hits", f"{scraped}- seriesQuery: 'hits"))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TestServer(scaler))
        opened = options(cluster, tmp_path, config=(str(rules),), server=str(server.make_url("")))
        doctor = await Doctor.open(opened, stack)
        examined = await doctor.examine("shop", "web")
        reading = await AutoscalerReader(doctor, "shop", "web").read()
    [found] = examined.fpas or examined.hpas
    why = sentence.describe(reading.view, reading.examination)
    if not scraped or kind == "plain":
        assert SCRAPE_FAULT not in str((found.diagnosis, why))
        return
    cause = f"a scrape for http_requests_per_second fails: {SCRAPE_FAULT}"
    advice = "correct the port in scrape of its rule, or what listens there"
    assert (found.state.value, found.diagnosis, found.change) == ("fault", cause, advice)
    assert (why.cause, why.advice) == (cause, advice)


async def test_what_may_not_be_listed_is_a_note(cluster: StoredCluster, tmp_path: Path) -> None:
    """The states of the containers are enough for the cause."""
    load(cluster, "revisions", "limited", "containers-that-fail/image-not-found")
    cluster.forbid("list", "replicasets", "shop")
    cluster.forbid("list", "events", "shop")
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(options(cluster, tmp_path), stack)
        reading = await AutoscalerReader(doctor, "shop", "web").read()
    why = sentence.describe(reading.view, reading.examination)
    assert "container app: ImagePullBackOff" in why.cause
    notes = [note.partition(", ")[0] for note in reading.notes]
    assert notes[:2] == ["ReplicaSets cannot be listed", "events cannot be listed"]
