"""The fleet read from a sandbox cluster, and from scalers behind a forwarded port."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from adapter.compose.clock import SystemClock
from adapter.errors import KubernetesError, RunError
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.autoscaling.view import VERSION, FleetView
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui.fleet import FleetRow, Problem
from fastpath_tools.ui.fleet_page import FleetPage
from fastpath_tools.ui.fleet_reading import Fleet, FleetReader
from fastpath_tools.ui.options import COMMAND
from fastpath_tools.ui.pages import Templates
from scripts.generate import crd
from tests.support import doctor
from tests.support.answering import AnsweringServer, forward
from tests.support.waiting import running, until
from tests.tools.ui.autoscaler_views import ENTRY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(30)]


class FleetScaler(AnsweringServer):
    """The debug endpoint of a scaler: shows `entries`, or answers with `status`."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = [ENTRY]

    async def answer(self, _: web.BaseRequest) -> web.Response:
        if self.status != 200:
            return web.json_response({"message": "no such path"}, status=self.status)
        view = FleetView(version=VERSION, time="2026-11-27T00:00:00.000Z", autoscalers=self.entries)
        return web.Response(body=msgspec.json.encode(view))


@pytest.fixture
async def scaler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FleetScaler]:
    """Serve it behind a kubectl that notes each of its runs."""
    async with FleetScaler() as shown:
        forward(tmp_path, monkeypatch, shown)
        yield shown


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(yaml.safe_load(crd.PATH.read_text()))
        cluster.create(deployment("web", "shop", 2))
        yield cluster


Opened = Callable[..., Awaitable[FleetReader]]


@pytest.fixture
async def opened(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Opened]:
    """Return what opens a reader of the cluster, as with arguments on the command line."""
    async with AsyncExitStack() as stack:

        async def open_reader(*arguments: str) -> FleetReader:
            kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
            options = COMMAND.parse([f"--kubeconfig={kubeconfig}", *arguments])[0]
            return FleetReader(await Doctor.open(options, stack), options.target[0])

        yield open_reader


def lead(cluster: Cluster, namespace: str = "shop", holder: str = "scaler-1_0123") -> None:
    """Have a Pod own the slice of a namespace, and renew its membership."""
    now = timestamp(time.time())  # noqa: TID251 - the reader compares with the real clock
    for name in (
        slices.name_of("fastpath-scaler", slices.slice_of(namespace)),
        f"fastpath-scaler-member-{holder}",
    ):
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now}
        metadata = {"name": name.replace("_", "-"), "namespace": "fastpath"}
        if any(lease["metadata"]["name"] == metadata["name"] for lease in cluster.list("Lease")):
            continue
        cluster.create(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        )


def fpa(name: str) -> dict[str, Any]:
    document = doctor.hpa(name, doctor.CPU)
    return document | {"apiVersion": "fastpath.io/v1alpha1", "kind": KIND}


async def read_until(reader: FleetReader, condition: Callable[[dict[str, FleetRow]], object]) -> Fleet:
    """Read as a page does until a condition holds of the lines by name."""
    while not condition(by_name(fleet := await reader.read())):  # noqa: ASYNC110 - a value that is renewed
        await asyncio.sleep(0.05)
    return fleet


def by_name(fleet: Fleet) -> dict[str, FleetRow]:
    return {row.name: row for row in fleet.rows}


async def test_a_cluster_without_a_scaler(cluster: Cluster, opened: Opened) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU))
    cluster.create(fpa("fast"))
    reader = await opened()
    fleet = await reader.read()
    assert [row.name for row in fleet.rows] == ["fast", "web"]
    assert fleet.notes == []
    rows = by_name(fleet)
    assert rows["fast"].fault == "no scaler runs for it: no scaler has a Lease in any namespace"
    assert rows["web"].problems == ()
    assert rows["web"].reaction is None


async def test_what_scalers_decide_comes_from_them(
    cluster: Cluster, scaler: FleetScaler, opened: Opened, tmp_path: Path
) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU, mode="boost"))
    cluster.create(doctor.hpa("plain", doctor.CPU))
    lead(cluster)
    lead(cluster, "fastpath")
    reader = await opened()
    rows = by_name(await reader.read())
    assert (rows["web"].floor, rows["web"].is_capped, rows["web"].age) == (7, True, 0.8)
    assert rows["plain"].age is None
    assert scaler.paths == ["/debug/fastpath/autoscalers"], "one process owns both slices"
    assert (tmp_path / "calls").read_text().count("port-forward") == 1


async def test_a_new_state_of_scaler_and_objects_is_seen(
    cluster: Cluster, scaler: FleetScaler, opened: Opened, tmp_path: Path
) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU, mode="boost"))
    lead(cluster)
    reader = await opened()
    assert (await reader.read()).rows[0].desired == 7
    scaler.entries = [msgspec.structs.replace(ENTRY, desired=9, fault="<b>")]
    cluster.create(doctor.hpa("new", doctor.CPU))
    fleet = await read_until(reader, lambda rows: rows["web"].desired == 9 and "new" in rows)
    assert by_name(fleet)["web"].fault == "<b>"
    assert (tmp_path / "calls").read_text().count("port-forward") == 1


async def test_a_scaler_that_has_no_such_endpoint_is_a_note(
    cluster: Cluster, scaler: FleetScaler, opened: Opened
) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU, mode="boost"))
    lead(cluster)
    scaler.status = 404
    reader = await opened()
    fleet = await reader.read()
    url = f"http://127.0.0.1:{scaler.port}/debug/fastpath/autoscalers"
    assert fleet.notes == [f"what a scaler decides cannot be read: {url}: no such path"]
    assert fleet.rows[0].boost_text == "not boosted"


async def test_a_port_that_failed_is_forwarded_again(
    cluster: Cluster, scaler: FleetScaler, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpath_tools.live.scaler_access.REFORWARD", 0.0)
    cluster.create(doctor.hpa("web", doctor.CPU, mode="boost"))
    lead(cluster)
    program = tmp_path / "kubectl"
    working = program.read_text()
    program.write_text(working.replace(str(scaler.port), "1"))
    reader = await opened()
    fleet = await reader.read()
    assert fleet.notes[0].startswith("what a scaler decides cannot be read: http://127.0.0.1:1/debug")
    program.write_text(working)
    fleet = await read_until(reader, lambda rows: rows["web"].desired == 7)
    assert fleet.notes == []


async def test_without_the_right_to_list_in_the_whole_cluster(cluster: Cluster, opened: Opened) -> None:
    cluster.forbid("list", "horizontalpodautoscalers")
    reader = await opened()
    with pytest.raises(RunError, match="listing HPAs cluster-wide is forbidden; pass a namespace"):
        await reader.read()


async def test_an_api_server_that_fails(cluster: Cluster, opened: Opened) -> None:
    cluster.forbid("list", "horizontalpodautoscalers", "shop")
    reader = await opened("shop")
    async with running(reader.examine()):
        with pytest.raises(KubernetesError, match="forbidden"):
            await reader.read()


async def test_leases_that_may_not_be_listed(cluster: Cluster, scaler: FleetScaler, opened: Opened) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU, mode="boost"))
    cluster.create(fpa("fast"))
    cluster.forbid("list", "leases")
    reader = await opened()
    fleet = await reader.read()
    assert by_name(fleet)["fast"].fault == "", "whether a scaler runs for it is not known"
    assert fleet.notes[0].startswith(
        "what a scaler decides cannot be read: leases.coordination.k8s.io is forb"
    )
    reader = await opened(f"--server=http://127.0.0.1:{scaler.port}")
    fleet = await reader.read()
    assert (by_name(fleet)["web"].desired, fleet.notes) == (7, [])


async def test_fast_path_autoscalers_that_may_not_be_listed(
    cluster: Cluster, scaler: FleetScaler, opened: Opened
) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU, mode="boost"))
    cluster.forbid("list", "fastpathautoscalers")
    lead(cluster)
    fast = msgspec.structs.replace(ENTRY, kind=KIND, name="fast", mode="Auto")
    scaler.entries = [ENTRY, fast, msgspec.structs.replace(fast, namespace="other")]
    reader = await opened("shop")
    fleet = await reader.read()
    assert sorted((row.namespace, row.name) for row in fleet.rows) == [("shop", "fast"), ("shop", "web")]
    assert fleet.notes[0].startswith(f"{KIND}s cannot be listed: ")


def _wants(count: int) -> Callable[[dict[str, FleetRow]], bool]:
    return lambda rows: "web" in rows and rows["web"].desired == count


async def test_turns_of_an_hpa_are_counted_while_it_is_looked_at(cluster: Cluster, opened: Opened) -> None:
    document = doctor.hpa("web", doctor.CPU)
    reader = await opened()
    for turns, count in enumerate((4, 5, 4), start=-1):
        document["status"]["desiredReplicas"] = count
        cluster.update(document) if turns >= 0 else cluster.create(document)
        fleet = await read_until(reader, _wants(count))
        assert fleet.rows[0].reversals == max(turns, 0)


# -- examinations --------------------------------------------------------------------------------------------


async def test_reaction_times_are_examined_while_the_page_is_read(cluster: Cluster, opened: Opened) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        cluster.create(doctor.hpa(name, doctor.CPU))
    reader = await opened()
    async with running(reader.examine()):
        assert all(row.reaction is None for row in (await reader.read()).rows)
        fleet = await read_until(reader, lambda rows: all(row.reaction for row in rows.values()))
    reaction = fleet.rows[0].reaction
    assert reaction is not None
    assert (reaction.seconds, reaction.whole, reaction.boosted) == (7.5, False, False)


async def test_one_read_starts_a_few_examinations_only(cluster: Cluster, opened: Opened) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        cluster.create(doctor.hpa(name, doctor.CPU))
    reader = await opened()
    async with running(reader.examine()):
        await reader.read()
        await until(lambda: len(reader._examined) == 4)
        requests = len(cluster.requests)
        await asyncio.sleep(0.3)  # an examination takes less
        assert len(cluster.requests) == requests
        await reader.read()
        await until(lambda: len(reader._examined) == 6)


async def test_the_line_says_what_the_page_says(
    cluster: Cluster, scaler: FleetScaler, opened: Opened
) -> None:
    """Of an HPA, a boosted one and a FastPathAutoscaler, while the pods of their targets cannot start."""
    workloads = Workloads(cluster, startup=12.0)
    for name, document in (
        ("plain", doctor.hpa("plain", doctor.REQUESTS)),
        ("boosted", doctor.hpa("boosted", doctor.REQUESTS, mode="boost")),
        ("fast", fpa("fast")),
    ):
        cluster.create(deployment(name, "shop", 2))
        document["spec"]["scaleTargetRef"]["name"] = name
        document["spec"]["metrics"] = [doctor.REQUESTS]
        cluster.create(document)
    workloads.step(EPOCH)
    status = {"name": "web", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    for pod in cluster.list("Pod", "shop"):
        cluster.patch("Pod", pod["metadata"]["name"], {"status": {"containerStatuses": [status]}}, "shop")
    lead(cluster)
    scaler.entries = []
    reader = await opened()
    async with running(reader.examine()):
        fleet = await read_until(
            reader, lambda rows: len(rows) == 3 and all(r.ready == 0 for r in rows.values())
        )
    for row in fleet.rows:
        assert row.problems == (Problem.FAULT,)
        assert "container web: ErrImagePull: not found" in row.finding, row.name
    assert sum(not row.problems for row in fleet.rows) == 0


async def test_a_line_that_changed_is_examined_first(cluster: Cluster, opened: Opened) -> None:
    names = ("a", "b", "c", "d", "e")
    for name in names:
        cluster.create(doctor.hpa(name, doctor.CPU))
    reader = await opened()
    await reader.read()
    rows = {row.name: row for row in reader._rows}
    now = reader._doctor.clock.monotonic()
    for place, name in enumerate(names):
        reader._examined[rows[name].key] = now - 400 + place, rows[name], None
    reader._rows = [rows[name]._replace(desired=9) if name == "d" else rows[name] for name in names]
    assert [row.name for row in reader._due()] == ["d", "a", "b", "c", "e"]
    reader._examined[rows["d"].key] = now, rows["d"], None
    assert [row.name for row in reader._due()] == ["a", "b", "c", "e"]


# -- the page ------------------------------------------------------------------------------------------------


async def test_the_page_shows_what_was_read_and_its_form_selected(cluster: Cluster, opened: Opened) -> None:
    cluster.create(doctor.hpa("web", doctor.CPU))
    cluster.create(fpa("fast"))
    reader = await opened()
    page = FleetPage(reader, Templates("/token/"), SystemClock())
    content = await page.read({"problem": "fault"})
    assert [section.name for section in content.sections] == ["summary", "select", "fleet"]
    lines = content.sections[-1].html
    assert ">fast</a>" in lines
    assert ">web</a>" not in lines
