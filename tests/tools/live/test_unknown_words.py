"""Words of an autoscaler that this version does not know, such as types of a newer API, or that are missing.

The verbs that read a cluster say so in one sentence, and show everything else as they do without that word.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import main
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui.autoscaler_page import AutoscalerPage
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.options import UiOptions
from fastpath_tools.ui.pages import Templates
from scripts.generate import crd
from tests.support import doctor
from tests.support.waiting import running
from tests.tools.ownerleases import owner_leases

pytestmark = pytest.mark.timeout(60)

LOAD = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "name": "web"}
RULES = {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}
METRICS: tuple[dict[str, Any], ...] = (
    doctor.CPU,
    {"type": "ContainerResource", "containerResource": doctor.CPU["resource"] | {"container": "app"}},
    {"type": "Pods", "pods": LOAD},
    {"type": "Object", "object": LOAD | {"describedObject": SERVICE}},
    {"type": "External", "external": LOAD},
)
Place = tuple[str | int, ...]


def places(tree: Any, path: Place = ()) -> Iterator[Place]:
    """Yield where an autoscaler has a word of a fixed set."""
    if isinstance(tree, dict | list):
        for name, below in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(below, (*path, name))
    elif path[-1] in {"type", "selectPolicy", "status"}:
        yield path


def plain(kind: str) -> dict[str, Any]:
    document = doctor.hpa("plain", *METRICS)
    document["spec"]["behavior"] = {"scaleUp": RULES, "scaleDown": RULES}
    document["status"]["currentMetrics"] = [{"type": "Resource"}]
    if kind == KIND:
        document |= {"apiVersion": "fastpath.io/v1alpha1", "kind": KIND}
        document["spec"]["fallback"] = {"type": "Floor", "after": "60s", "replicas": 3}
    copied: dict[str, Any] = json.loads(json.dumps(document))
    return copied


def write(place: Place) -> str:
    """Return a place as the API server does: ``spec.metrics[0].type``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)[1:]


def variants(kind: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield an autoscaler as it should be, and with an unknown, an empty and no word at each place."""
    yield (), plain(kind)
    for place in places(plain(kind)):
        for word in ("Mars", "", None) if kind == HPA_KIND else ("Mars",):
            document = plain(kind)
            parent: Any = document
            for step in place[:-1]:
                parent = parent[step]
            parent[place[-1]] = word
            if word is None:
                del parent[place[-1]]
            name = f"{write(place)}.{'missing' if word is None else word or 'empty'}"
            document["metadata"]["name"] = name.lower().replace("[", "-").replace("]", "")
            yield place, document


EVERY = {
    kind: {document["metadata"]["name"]: (place, document) for place, document in variants(kind)}
    for kind in (HPA_KIND, KIND)
}


@pytest.fixture(params=EVERY)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def kubeconfig(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setenv("PATH", "")  # no scaler is asked, which the sandbox has no pods for
    async with Cluster() as cluster:
        cluster.create(yaml.safe_load(crd.PATH.read_text()))
        at = timestamp(time.time())  # noqa: TID251  # the verbs compare with the real clock
        holding = {"holderIdentity": "scaler-0_1", "leaseDurationSeconds": 600, "renewTime": at}
        for lease in owner_leases("shop", holding):
            cluster.create(lease)
        metadata = {"name": "web", "namespace": "shop"}
        cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
        for name, (_, document) in EVERY[kind].items():
            workload = deployment(name, "shop", 1)
            [container] = workload["spec"]["template"]["spec"]["containers"]
            container |= {"name": "app", "resources": {"requests": {"cpu": "100m"}}}
            cluster.create(workload)
            document["spec"]["scaleTargetRef"]["name"] = name
            cluster.create(document)
        for seconds in (0, 1):
            Workloads(cluster, startup=1.0).step(EPOCH + seconds)
        yield str(cluster.kubeconfig(tmp_path / "kubeconfig"))


def shown(document: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """Return the hops of each metric with their states."""
    return [[(hop["hop"], hop["state"]) for hop in metric["hops"]] for metric in document["metrics"]]


async def test_doctor(kind: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["doctor", "shop", f"--kubeconfig={kubeconfig}"]
    await asyncio.to_thread(main.main, [*command, "-o", "json"])
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert set(found) == set(EVERY[kind])
    if kind == KIND:
        assert {one["state"] for one in found.values()} == {"ok"}, (
            "the conditions say what the scaler refuses"
        )
        return
    await asyncio.to_thread(main.main, command)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(found)
    for name, (place, _) in EVERY[kind].items():
        finding = next((hop["finding"] for hop in found[name]["before"] if hop["hop"] == "field"), "")
        behavior, _ = found[name]["after"]
        if place[:1] != ("spec",) or name.endswith("selectpolicy.missing"):  # that has a default
            assert (finding, behavior["state"]) == ("", "ok"), name
        else:
            assert finding.startswith(f"{write(place)}: "), name
            assert (behavior["finding"] == finding) == ("scaleUp" in place)
        hops, expected = shown(found[name]), shown(found["plain"])
        if place[1:2] == ("metrics",) and len(place) == 4:
            index = int(place[2])
            assert "fault" not in dict(hops.pop(index)).values(), name
            expected.pop(index)
            texts = [hop["finding"] for hop in found[name]["metrics"][index]["hops"]]
            assert "the type of the metric" in texts[0]
        assert hops == expected, name


async def test_the_list(kind: str, kubeconfig: str) -> None:
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(UiOptions(kubeconfig=kubeconfig), stack)
        reader = FleetReader(doctor, "shop")
        async with running(reader.examine()):
            rows = (await reader.read()).rows
            assert {row.name for row in rows} == set(EVERY[kind])
            while any(row.reaction is None for row in rows):
                await asyncio.sleep(0.01)
                rows = (await reader.read()).rows


@pytest.mark.parametrize("kind", [HPA_KIND], indirect=True)
async def test_the_pages(kind: str, kubeconfig: str) -> None:
    """Of the words that are unknown: a page takes a tenth of a second."""
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(UiOptions(kubeconfig=kubeconfig), stack)
        for name, (place, _) in EVERY[kind].items():
            if name.endswith("mars") and place[0] == "spec":
                page = AutoscalerPage(
                    doctor, Templates("/token/", "prod"), FleetReader(doctor, "shop"), "shop", name
                )
                text = " ".join(section.html for section in (await page.read({})).sections)
                assert f"{write(place)}: " in text


@pytest.mark.parametrize("kind", [HPA_KIND], indirect=True)
@pytest.mark.parametrize("verb", ["simulate", "forecast"])
async def test_loads(kubeconfig: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They need each metric, so that they name a word that is not known and stop."""
    for name, (place, _) in EVERY[HPA_KIND].items():
        if name.endswith("mars") and place[0] == "spec":
            given = [f"--kubeconfig={kubeconfig}", "--namespace=shop", f"--name={name}", "--pod-start=2s"]
            command = [verb, *given, "--prometheus-url=http://127.0.0.1:1"]
            assert await asyncio.to_thread(main.main, command) == 2
            [line] = capsys.readouterr().err.splitlines()
            assert line.startswith(f"fastpath {verb}: {HPA_KIND} shop/{name}: {write(place)}: ")
