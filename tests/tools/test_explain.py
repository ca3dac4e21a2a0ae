"""`fastpath explain` asks the scaler that decides, which may not answer. Outputs: tests/golden/explain."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.explain import debug
from adapter.autoscaler.explain.debug import encode, show
from adapter.errors import RunError
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.ready_times import Outcome, PodStart
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.listener import Listener
from fastpath_tools import explain
from fastpath_tools.live import scaler_access
from scripts.generate import crd
from tests.support.answering import AnsweringServer, forward
from tests.support.answers import answers
from tests.support.controller import Bench, fpa, shown_document
from tests.support.processor import limited
from tests.support.scaling import external_metric
from tests.support.tls import Authority

QUEUE = [external_metric(averageValue="1")]


def parse(arguments: list[str]) -> explain.ExplainOptions:
    return explain.COMMAND.parse(arguments)[0]


async def shown() -> dict[str, Any]:
    bench = Bench()
    bench.sources.readings["queue"] = ExternalReading([7000])
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    bench.server.set("web", 9, "kubectl")
    bench.sources.opened[0].reading = ExternalReading([9000])
    await bench.step(1)
    document = shown_document(bench.controller)
    bench.close()
    return document


async def test_a_journal_in_words() -> None:
    lines = explain.render(await shown())

    assert lines[0] == "default/web (Auto) scales Deployment web"
    assert "  target: spec.replicas 9, status.replicas 9, last set by kubectl" in lines
    assert any("AbleToScale True (ReadyForNewScale)" in line for line in lines)
    assert any("scaled from 4 to 7: external metric queue(nil) above target" in line for line in lines)
    assert any("stayed at 9" in line and "kubectl had changed the replicas by +2" in line for line in lines)
    assert "  external metric queue(nil): 7 (age unknown)" in lines


async def test_how_long_pods_take_to_be_ready() -> None:
    bench = Bench()
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    (following,) = bench.pods.followings
    assert following.started is not None
    for start in (
        PodStart(1_000, 3_000, 9_000, 23_000, unschedulable=True),
        PodStart(1_000, 4_000, 9_000, 22_500, pull_failed=True),
        Outcome.RESTARTED,
        Outcome.ENDED,
    ):
        following.started(start)
    bench.pods.starting = StartingPods(3, no_node=1, crashing=1)
    await bench.step()

    document = shown_document(bench.controller)

    assert document["readyTimes"] == {
        "pods": 2,
        "seconds": {
            "scheduled": {"p50": 1, "p95": 1},
            "initialized": {"p50": 2, "p95": 3},
            "started": {"p50": 8, "p95": 8},
            "ready": {"p50": 13.5, "p95": 14},
            "total": {"p50": 22.5, "p95": 23},
        },
        "unschedulable": 1,
        "pullFailed": 1,
        "leftOut": {"restarted": 1, "ended": 1, "incoherent": 0},
        "starting": {"pods": 3, "noNode": 1, "pullFails": 0, "crashing": 1},
    }


def test_who_does_not_lead_says_who_does() -> None:
    answer = show(None, "default", "web", "scaler-1")
    document = msgspec.json.decode(answer.body)

    assert answer.status == 503
    assert document["details"] == {"leader": "scaler-1"}
    assert "query Pod scaler-1" in document["message"]


def test_an_autoscaler_that_is_not_there() -> None:
    bench = Bench()

    assert show(bench.controller, "default", "missing", "").status == 404


def test_times_have_milliseconds() -> None:
    assert debug.moment(1_500_000_000) == "1970-01-01T00:00:01.500Z"


@pytest.fixture
async def scaler() -> AsyncIterator[AnsweringServer]:
    """Give a server that answers as a scaler does."""
    async with AnsweringServer() as scaler:
        yield scaler


async def read(options: explain.ExplainOptions) -> dict[str, Any]:
    return await scaler_access.fetch(options, options.namespace)


async def ask(url: str) -> dict[str, Any]:
    return await read(parse(["shop/web", f"--server={url}"]))


async def test_a_server_is_asked(scaler: AnsweringServer) -> None:
    scaler.body = encode(await shown())

    document = await ask(scaler.url + "/")

    assert scaler.paths == ["/debug/fastpath/autoscalers/shop/web"]
    assert document["name"] == "web"


async def test_a_refusal_is_one_sentence(scaler: AnsweringServer) -> None:
    scaler.status, scaler.body = show(None, "shop", "web", "scaler-1")

    with pytest.raises(RunError, match="query Pod scaler-1"):
        await ask(scaler.url)


async def test_what_is_no_scaler(scaler: AnsweringServer) -> None:
    scaler.body = b"<html>"

    with pytest.raises(RunError, match="not a response of a Fastpath scaler"):
        await ask(scaler.url)


@pytest.fixture
async def secure(authority: Authority) -> AsyncIterator[str]:
    """Give the address of the scaler behind a certificate as `fastpath serve`'s, like a forwarded port."""
    context = authority.server_context(authority.issue("fastpath.fastpath.svc"))
    async with AnsweringServer(encode(await shown()), tls=context) as scaler:
        yield scaler.url


async def test_the_certificate_is_checked_for_the_name_that_is_given(
    secure: str, authority: Authority
) -> None:
    flags = ["shop/web", f"--server={secure}", f"--ca-file={authority.file}"]
    named = parse([*flags, "--tls-server-name=fastpath.fastpath.svc"])
    assert (await read(named))["name"] == "web"

    with pytest.raises(RunError, match="--tls-server-name gives the name to check") as raised:
        await read(parse(flags))
    assert "object at" not in str(raised.value)
    with pytest.raises(RunError, match="is not accepted: Hostname mismatch"):
        await read(parse([*flags, "--tls-server-name=other.svc"]))


async def test_an_unknown_authority_names_the_flag(secure: str) -> None:
    with pytest.raises(RunError, match="; --ca-file gives the certificates to trust, such as apiserver"):
        await read(parse(["shop/web", f"--server={secure}"]))


async def test_a_redirect_is_not_followed(scaler: AnsweringServer) -> None:
    async def away(_: web.BaseRequest) -> web.Response:
        raise web.HTTPFound(f"{scaler.url}/elsewhere")

    async with Listener(away, "127.0.0.1", 0) as redirecting:
        with pytest.raises(RunError, match="302: not a response of a Fastpath scaler"):
            await ask(redirecting.url)
    assert scaler.paths == []


# --- the leader
# -----------------------------------------------------------------------------------------------------------


def lease_of(namespace: str) -> str:
    return slices.name_of("fastpath-scaler", slices.slice_of(namespace))


SLICE = lease_of("shop")


def lease(cluster: Cluster, holder: str, name: str = SLICE) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    metadata = {"name": name, "namespace": "fastpath"}
    cluster.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    )


def kubectl(folder: Path, script: str) -> str:
    """Put a program of that name into a folder; return a PATH that begins with it."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.integration
@pytest.mark.timeout(30)
async def test_the_pod_that_leads_is_asked_through_a_forwarded_port(
    tmp_path: Path, scaler: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = forward(tmp_path, monkeypatch, scaler)
    scaler.body = encode(await shown())
    async with Cluster() as cluster:
        lease(cluster, "scaler-1_0123")
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        options = parse(["shop/web", f"--kubeconfig={kubeconfig}"])
        document = await read(options)

    assert document["name"] == "web"
    assert calls.read_text().split() == [
        f"--kubeconfig={kubeconfig}",
        "--context=sandbox",
        "port-forward",
        "--namespace=fastpath",
        "pod/scaler-1",
        ":10254",
    ]


CPU_USAGE: dict[str, Any] = {
    "metric": "cpu resource utilization (percentage of request)",
    "values": {"web-1": 250, "web-2": 300},
    "overdue": "",
    "ageSeconds": 0.8,
}


@pytest.mark.integration
@pytest.mark.timeout(30)
async def test_requests_that_count_while_a_resize_is_not_actuated(
    tmp_path: Path,
    scaler: AnsweringServer,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    forward(tmp_path, monkeypatch, scaler)
    document = await shown()
    of_container = CPU_USAGE | {"metric": "cpu container resource utilization (percentage of request)"}
    document["last"]["inputs"] = [CPU_USAGE, of_container]
    document["target"]["selector"] = "app=web"
    scaler.body = encode(document)
    status = {
        "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "PodResizePending")],
        "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "250m"}}}],
    }
    container = {"name": "main", "resources": {"requests": {"cpu": "500m"}}}
    async with Cluster() as cluster:
        lease(cluster, "scaler-1_0123", lease_of("default"))
        create_target(cluster)
        metadata = {"name": "web-1", "namespace": "default", "labels": {"app": "web"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        cluster.create(pod | {"status": status})
        given = ["default/web", f"--kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"]
        assert await asyncio.to_thread(explain.main, given) == 0
        known = capsysbinary.readouterr().out.decode()
        cluster.forbid("list", "pods")
        assert await asyncio.to_thread(explain.main, given) == 0
        unknown = capsysbinary.readouterr().out.decode()
    said = (
        "the utilization is of the requests in the spec, cpu 500m; the resize of 1 of 1 pods is not "
        "actuated, and 250m is in effect there (PodResizePending)\n"
    )
    assert f"\n  {said}  container main: {said}" in known
    assert "\n  the pods of the target cannot be read: pods is forbidden" in unknown


def create_target(cluster: Cluster, kind: str = KIND) -> None:
    """Create autoscaler and Deployment default/web."""
    cluster.create(yaml.safe_load(crd.PATH.read_text()))
    cluster.create(deployment("web", "default", 1))
    version = "fastpath.io/v1alpha1" if kind == KIND else "autoscaling/v2"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metric = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    spec = {"scaleTargetRef": target, "maxReplicas": 8, "metrics": [{"type": "Pods", "pods": metric}]}
    metadata = {"name": "web", "namespace": "default"}
    cluster.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


@pytest.mark.integration
@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", [KIND, "HorizontalPodAutoscaler"])
async def test_what_keeps_pods_from_getting_ready_comes_first(
    kind: str,
    tmp_path: Path,
    scaler: AnsweringServer,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    forward(tmp_path, monkeypatch, scaler)
    scaler.body = encode(await shown() | {"kind": kind})
    async with Cluster() as cluster:
        lease(cluster, "scaler-1_0123", lease_of("default"))
        create_target(cluster, kind)
        Workloads(cluster, startup=12.0).step(EPOCH)
        [pod] = cluster.list("Pod", "default")
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        status = {"containerStatuses": [{"name": "web", "state": waiting}]}
        cluster.patch("Pod", pod["metadata"]["name"], {"status": status}, "default")
        given = ["default/web", f"--kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"]
        assert await asyncio.to_thread(explain.main, given) == 0
        lines = capsysbinary.readouterr().out.decode().splitlines()
    assert lines[1].startswith("  cause: 1 pod of Deployment web is not Ready since ")
    assert lines[1].endswith("): container web: ErrImagePull: not found")
    assert lines[2] == ("  change: correct the image in the pod template, or make it available to the nodes")


@pytest.mark.integration
@pytest.mark.timeout(30)
async def test_a_port_that_cannot_be_forwarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", kubectl(tmp_path, "echo 'pods \"scaler-1\" not found' >&2; exit 1"))
    async with Cluster() as cluster:
        lease(cluster, "scaler-1_0123")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        with pytest.raises(
            RunError, match='port 10254 of Pod scaler-1 cannot be forwarded: pods "scaler-1" not found'
        ):
            await read(parse(["shop/web"]))
        with pytest.raises(RunError, match="not found; fastpath doctor shop/web needs no scaler"):
            await asyncio.to_thread(explain.main, ["shop/web"])
        monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
        with pytest.raises(RunError, match="kubectl is not installed: forward port 10254 of Pod scaler-1"):
            await read(parse(["shop/web"]))


@pytest.mark.integration
@pytest.mark.timeout(30)
@pytest.mark.parametrize(("script", "said"), answers("tools/explain", "kubectl"))
async def test_a_kubectl_that_stays_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setenv("PATH", kubectl(tmp_path, script))
    monkeypatch.setattr(scaler_access, "SECONDS", 0.5)
    async with Cluster() as cluster:
        lease(cluster, "scaler-1_0123")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        async with limited(4):
            with pytest.raises(RunError, match=f"port 10254 of Pod scaler-1 cannot be forwarded: {said}"):
                await read(parse(["shop/web"]))


async def test_the_whole_command_in_words_and_as_json(
    scaler: AnsweringServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    scaler.body = encode(await shown())
    (tmp_path / "token").write_text("secret\n")
    given = ["default/web", f"--server={scaler.url}", f"--token-file={tmp_path / 'token'}"]

    assert await asyncio.to_thread(explain.main, given) == 0
    assert capsysbinary.readouterr().out.startswith(b"default/web (Auto) scales Deployment web\n")
    assert await asyncio.to_thread(explain.main, [*given, "-o", "json"]) == 0
    assert msgspec.json.decode(capsysbinary.readouterr().out)["name"] == "web"
    assert [asked.headers["Authorization"] for asked in scaler.requests] == ["Bearer secret"] * 2
