"""The verbs that read a cluster, on the clusters that people have: no false fault, and advice that works.

What is advised is done, and `fastpath doctor` has nothing against the result.
"""

import re
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.options import UiOptions
from tests.support import doctor
from tests.support.doctor import REQUESTS
from tests.support.tls import Authority
from tests.support.verbs import Printed, printed
from tests.tools.ownerleases import owner_leases

pytestmark = pytest.mark.timeout(60)

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
FASTPATH = ("fastpath", "fastpath")
ADAPTER = ("monitoring", "prometheus-adapter")
KEDA = ("keda", "keda-operator-metrics-apiserver")
REGISTERED = dict.fromkeys((f"v1beta1.{CUSTOM}", f"v1beta2.{CUSTOM}", f"v1beta1.{EXTERNAL}"), FASTPATH)
RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
"""
COMMAND = re.compile(r"kubectl -n shop get hpa web -o yaml \| fastpath boost (.*)- \| kubectl apply -f -")


class ClusterKind(NamedTuple):
    """A kind of cluster: who has which APIService, and what `fastpath doctor shop/web` has to say there.

    `renewed` is how long ago the scaler renewed its Lease, None without a scaler. `change` is a part of what
    is advised, "" for no advice to boost. `preflight` is its status.
    """

    servers: Mapping[str, tuple[str, str]]
    renewed: float | None = None
    floors: bool = False
    forbidden: Collection[tuple[str, str]] = ()
    status: int = 0
    diagnosis: str = "most of "
    change: str = ""
    preflight: int = 0


KINDS = {
    "no adapter": ClusterKind(
        {},
        status=1,
        diagnosis=f"no APIService is registered for {CUSTOM}",
        change="install a metrics adapter: docs/guides/deploy.md",
    ),
    "prometheus-adapter": ClusterKind({f"v1beta1.{CUSTOM}": ADAPTER}, preflight=1),
    "prometheus-adapter and KEDA": ClusterKind(
        {f"v1beta1.{CUSTOM}": ADAPTER, f"v1beta1.{EXTERNAL}": KEDA}, preflight=1
    ),
    "KEDA beside Fastpath": ClusterKind(
        REGISTERED | {f"v1beta1.{EXTERNAL}": KEDA}, renewed=1.0, floors=True, change="--handshake object -"
    ),
    "Fastpath without a scaler": ClusterKind(REGISTERED, change="boost it: install components/scaler first"),
    "Fastpath without floors": ClusterKind(
        REGISTERED, renewed=1.0, change="boost it: install components/scaler first"
    ),
    "Fastpath with a scaler": ClusterKind(REGISTERED, renewed=1.0, floors=True, change="fastpath boost - |"),
    "a scaler that is gone": ClusterKind(
        REGISTERED, renewed=3600.0, floors=True, change="boost it: have the scaler run first: scaler-0_1 last"
    ),
    "rights of one namespace": ClusterKind(
        REGISTERED,
        renewed=1.0,
        floors=True,
        forbidden=[
            ("list", "leases"),
            ("list", "namespaces"),
            ("get", "apiservices"),
            ("list", "horizontalpodautoscalers"),
            ("list", "fastpathautoscalers"),
        ],
    ),
}


class FloorsServer:
    """A metrics server: custom metrics in the `versions` that are registered to it, and floors."""

    def __init__(self, versions: Collection[str], *, floors: bool) -> None:
        self.versions = versions
        self.floors = floors

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/apis":
            return web.json_response({"items": []})
        _, _, group, version, *rest = request.path.split("/")
        if f"{version}.{group}" not in self.versions:
            return web.Response(status=404, text="404 page not found\n")
        at = timestamp(time.time() - 2)  # noqa: TID251  # the verbs compare with the real clock
        if rest[-1] == "fastpath_replicas" and self.floors:
            named = {"metricName": rest[-1], "describedObject": {"name": "web"}}
            return web.json_response({"items": [named | {"timestamp": at, "value": "0"}]})
        if rest[-1] == "http_requests_per_second":
            pods = [{"describedObject": {"name": f"web-{number}"}} for number in range(2)]
            return web.json_response({"items": [pod | {"timestamp": at, "value": "7"} for pod in pods]})
        message = f"the server could not find the metric {rest[-1]}"
        document = {
            "kind": "Status",
            "status": "Failure",
            "message": message,
            "reason": "NotFound",
            "code": 404,
        }
        return web.json_response(document, status=404)


class Scene:
    """A cluster of a kind, with HPA web of Deployment web in namespace shop; verbs run beside it."""

    def __init__(
        self, kind: ClusterKind, cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.kind = kind
        self.cluster = cluster
        self.folder = folder
        self.kubeconfig = cluster.kubeconfig(folder / "kubeconfig")
        self._capsys = capsys

    async def run(self, *arguments: str, connected: bool = True) -> Printed:
        flags = [f"--kubeconfig={self.kubeconfig}"] if connected else []
        return await printed(self._capsys, *arguments, *flags)

    async def examine(self) -> dict[str, Any]:
        """Return what `fastpath doctor shop/web` says, with its status."""
        document: dict[str, Any] = yaml.safe_load((await self.run("doctor", "shop/web", "-o", "json")).out)
        return document

    def rights(self) -> str:
        """Return the namespace that the user has to name, "" for a user of the whole cluster."""
        return "shop" if self.kind.forbidden else ""


@pytest.fixture(params=KINDS)
async def scene(
    request: pytest.FixtureRequest,
    authority: Authority,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Scene]:
    kind: ClusterKind = KINDS[request.param]
    monkeypatch.setenv("PATH", "")  # no scaler is asked, which the sandbox has no pods for
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster())
        cluster.create(deployment("web", "shop", 2))
        for seconds in (0, 12):
            Workloads(cluster, startup=12.0).step(EPOCH + seconds)
        for place in set(kind.servers.values()):
            names = {name for name, owner in kind.servers.items() if owner == place}
            application = web.Application()
            server = FloorsServer(names, floors=kind.floors and place == FASTPATH)
            application.router.add_route("*", "/{path:.*}", server.handle)
            running = TestServer(application, host="127.0.0.1", scheme="https")
            await running.start_server(ssl=authority.server_context())
            stack.push_async_callback(running.close)
            metadata = dict(zip(("namespace", "name"), place, strict=True))
            spec = {"type": "ExternalName", "externalName": "localhost"}
            cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
            for name in names:
                doctor.register(cluster, name, metadata | {"port": running.port})
        if kind.renewed is not None:
            at = timestamp(time.time() - kind.renewed)  # noqa: TID251  # as above
            holding: dict[str, Any] = {
                "holderIdentity": "scaler-0_1",
                "leaseDurationSeconds": 15,
                "renewTime": at,
            }
            for lease in owner_leases("shop", holding):
                cluster.create(lease)
        for verb, resource in kind.forbidden:
            cluster.forbid(verb, resource, "")
        cluster.create(doctor.hpa("web", REQUESTS))
        yield Scene(kind, cluster, tmp_path, capsys)


async def test_doctor(scene: Scene) -> None:
    finished = await scene.run("doctor", "shop/web")
    assert finished.status == scene.kind.status, finished.out
    found = await scene.examine()
    assert found["diagnosis"].startswith(scene.kind.diagnosis)
    assert scene.kind.change in found["change"]
    if not scene.kind.change:
        assert "boost" not in found["change"]
    listed = await scene.run("doctor", *filter(None, [scene.rights()]))
    assert (listed.status, listed.out.count("shop/web")) == (scene.kind.status, 1), listed.out


async def test_what_doctor_advises_does_no_harm(scene: Scene) -> None:
    command = COMMAND.search((await scene.examine())["change"])
    is_advised = scene.kind.change in {"fastpath boost - |", "--handshake object -"}
    assert is_advised == (command is not None)
    if command is None:
        return
    manifest = scene.folder / "web.yaml"
    manifest.write_text(yaml.safe_dump(scene.cluster.get("HorizontalPodAutoscaler", "web", "shop")))
    boosted = await scene.run("boost", str(manifest), *command[1].split(), connected=False)
    assert (boosted.status, "components/scaler" in boosted.err) == (0, True)
    manifest.write_text(boosted.out)
    assert (await scene.run("check", str(manifest), connected=False)).status == 0
    scene.cluster.update(yaml.safe_load(boosted.out))
    after = await scene.examine()
    assert after["state"] != "fault", after
    assert after["before"][0]["finding"] == "the handshake works; no floor is set"


async def test_the_pages(scene: Scene) -> None:
    options = UiOptions(kubeconfig=str(scene.kubeconfig))
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(options, stack)
        rows = (await FleetReader(doctor, scene.rights()).read()).rows
        assert [(row.namespace, row.name, row.fault) for row in rows] == [("shop", "web", "")]
        reading = await AutoscalerReader(doctor, "shop", "web").read()
        assert reading.examination.diagnosis.startswith(scene.kind.diagnosis)


async def test_preflight(scene: Scene) -> None:
    finished = await scene.run("preflight")
    if scene.kind.forbidden:
        assert (finished.status, "is forbidden" in finished.err) == (1, True)
        return
    assert finished.status == scene.kind.preflight, finished
    for name, place in scene.kind.servers.items():
        (line,) = [line for line in finished.out.splitlines() if line.startswith(name)]
        assert ("ours" in line) == (place == FASTPATH)


async def test_check(scene: Scene) -> None:
    rules = scene.folder / "rules.yaml"
    rules.write_text(RULES)
    arguments = ("check", str(rules), f"--lister-kubeconfig={scene.kubeconfig}")
    finished = await scene.run(*arguments, connected=False)
    assert (finished.status, "0 warnings" in finished.out) == (0, True), finished


async def test_slices(scene: Scene) -> None:
    finished = await scene.run("slices")
    assert finished.status == 1, "the other slices have no owner"
    assert ("is forbidden" in finished.err) == bool(scene.kind.forbidden)


async def test_explain(scene: Scene) -> None:
    finished = await scene.run("explain", "shop/web")
    assert finished.status == 1
    said = "no scaler owns the slice: there is no Lease fastpath/"
    if scene.kind.renewed is not None:
        said = "kubectl is not installed: forward port 10254 of Pod scaler-0 and give --server"
    assert finished.err.startswith(f"fastpath explain: {said}")
