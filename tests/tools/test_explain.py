"""`fastpath explain`: the journal in words, from a scaler that answers and from one that does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from adapter.autoscaler import debug
from adapter.autoscaler.debug import encode, show
from adapter.autoscaler.decide.observation import ExternalReading, Unavailable
from adapter.cli import main
from adapter.errors import InputError, RunError
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.kubernetes.cache.scale_targets import Unfound
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.ready_times import Outcome, PodStart
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_tools import explain
from fastpath_tools.live import scaler_access
from scripts.generate import crd
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
    bench.controller.close()
    return document


async def test_a_journal_in_words() -> None:
    lines = explain.render(await shown())

    assert lines[0] == "default/web (Auto) scales Deployment web"
    assert "  target: spec.replicas 9, status.replicas 9, last set by kubectl" in lines
    assert any("AbleToScale True (ReadyForNewScale)" in line for line in lines)
    assert any("scaled from 4 to 7: external metric queue(nil) above target" in line for line in lines)
    assert any("stayed at 9" in line and "kubectl had changed the replicas by +2" in line for line in lines)
    assert "  external metric queue(nil): 7 (age unknown)" in lines


async def text_of(bench: Bench) -> str:
    """Return what is shown of the autoscaler after one step."""
    await bench.step()
    document = shown_document(bench.controller)
    bench.controller.close()
    return "\n".join(explain.render(document))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, ": no decision: no metric has a value; stays 2\n"),
        ({"mode": "Paused"}, ": no decision: nothing is written: scaling is paused by spec.mode; stays 2\n"),
    ],
)
async def test_a_decision_without_a_count_names_none(spec: dict[str, Any], said: str) -> None:
    bench = Bench()
    bench.sources.readings["queue"] = Unavailable("NoMetrics", "no metrics")
    bench.put(fpa(QUEUE, **spec), replicas=2)
    text = await text_of(bench)
    assert said in text
    assert "would have scaled" not in text


async def test_without_a_scale_no_count_is_known() -> None:
    bench = Bench()
    bench.put(fpa(QUEUE))
    bench.server.cached["web"] = Unfound('deployments.apps "web" not found')
    said = 'no decision: the scale could not be read: deployments.apps "web" not found\n'
    assert said in await text_of(bench)


async def test_a_count_that_could_not_be_written_is_named() -> None:
    bench = Bench()
    bench.sources.readings["queue"] = ExternalReading([7000])
    bench.server.fail = "forbidden"
    bench.put(fpa(QUEUE), replicas=4)
    assert "could not scale from 4 to 7" in await text_of(bench)


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
    lines = explain.render(document)

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
    at = lines.index("  time to Ready (last 2 pods): p50 22.5 s, p95 23 s")
    assert lines[at + 1 : at + 9] == [
        "    created to scheduled: p50 1 s, p95 1 s",
        "    scheduled to containers started: p50 8 s, p95 8 s",
        "      of which init containers: p50 2 s, p95 3 s",
        "    containers started to Ready: p50 13.5 s, p95 14 s",
        "    of 1 pod no node fitted at first",
        "    of 1 pod an image could not be pulled at first",
        "  pods without a time to Ready: 1 restarted before they were Ready, 1 ended before they were Ready",
        "  3 pods never Ready yet: 1 not scheduled, 1 whose containers were restarted",
    ]


async def test_before_the_first_pod_there_is_no_line_of_times() -> None:
    document = await shown()
    lines = explain.render(document)

    assert document["readyTimes"] == {
        "pods": 0,
        "leftOut": {"restarted": 0, "ended": 0, "incoherent": 0},
        "starting": {"pods": 0, "noNode": 0, "pullFails": 0, "crashing": 0},
    }
    assert not [line for line in lines if "Ready (" in line or "never Ready" in line]


async def test_a_scaler_of_before_shows_no_times() -> None:
    document = await shown()
    del document["readyTimes"]

    assert explain.render(document)[0] == "default/web (Auto) scales Deployment web"


async def test_pods_are_not_known_before_the_target() -> None:
    bench = Bench()
    bench.put(fpa(QUEUE))

    document = shown_document(bench.controller)

    assert document["readyTimes"]["starting"] is None
    assert "never Ready" not in " ".join(explain.render(document))


@pytest.mark.parametrize(
    ("released", "line"),
    [
        ("held by stabilization", "  next: 3 at T if the load stays (held by stabilization until then)"),
        (
            "held by a schedule until S, then by stabilization",
            "  next: 3 at T if the load stays (held by a schedule until S, then by stabilization)",
        ),
    ],
)
async def test_what_holds_the_count_until_the_next_change(released: str, line: str) -> None:
    bench = Bench()
    bench.put(fpa(QUEUE))
    document = shown_document(bench.controller)
    document["next"] = {"replicas": 3, "at": "T", "released": released}

    assert line in explain.render(document)


async def test_an_hpa_that_is_advised_has_no_handshake_to_miss() -> None:
    bench = Bench()
    bench.put(fpa(QUEUE, mode="Advise"))
    document = shown_document(bench.controller)
    document["boost"] = {"fault": "no handshake", "floor": None, "demotedUntil": None, "demotedBy": ""}

    lines = explain.render(document)

    assert "  advise: writes nothing; to begin: fastpath boost" in lines
    assert not any("not boosted" in line for line in lines)


@pytest.mark.parametrize(
    ("boost", "line"),
    [
        ({"fault": "no handshake"}, "  not boosted: no handshake"),
        (
            {"demotedUntil": "2026-11-20T13:00:00.000Z", "demotedBy": "argocd"},
            "  advice only until 2026-11-20T13:00:00.000Z: argocd reverted a raise",
        ),
        (
            {"floor": {"replicas": 8, "raised": "T1", "until": "T2", "shown": None}},
            "  floor 8 since T1, until T2: not in the HPA's status yet",
        ),
        (
            {"floor": {"replicas": 8, "raised": "T1", "until": "T2", "shown": "T3"}},
            "  floor 8 since T1, until T2: in the HPA's status since T3",
        ),
    ],
)
async def test_what_stands_beside_a_native_autoscaler(boost: dict[str, Any], line: str) -> None:
    nothing: dict[str, Any] = {
        "fault": "",
        "floor": None,
        "demotedUntil": None,
        "demotedBy": "",
        "reversals": [],
    }
    told = explain.render(await shown() | {"boost": nothing | boost})

    assert line in told
    assert len(told) == len(explain.render(await shown())) + 1


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


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        (
            "--server=127.0.0.1:10254",
            "--server: 127.0.0.1:10254: expected a URL such as http://127.0.0.1:10254",
        ),
        ("--server=ftp://a", "--server: ftp://a: expected a URL"),
        ("--server=http://", "--server: http://: expected a URL"),
        ("--server=http://a:99999", "--server: http://a:99999: expected a URL"),
        ("--server=http://a?b=c", "--server: http://a?b=c: expected a URL"),
        ("--server=http://a b", "--server: http://a b: expected a URL"),
        ("--port=0", '--port: "0": expected a port from 1 to 65535'),
        ("--port=65536", '--port: "65536": expected a port from 1 to 65535'),
    ],
)
def test_flags_that_are_wrong(capsys: pytest.CaptureFixture[str], flag: str, said: str) -> None:
    assert main.main(["explain", "shop/web", flag]) == 2
    assert capsys.readouterr().err.startswith(f"fastpath explain: {said}")


@pytest.mark.parametrize(
    ("flag", "content", "said"),
    [
        ("--ca-file", None, "expected a readable file: No such file or directory"),
        ("--ca-file", b"no certificate", "expected a file with certificates in PEM form"),
        ("--token-file", None, "expected a readable file: No such file or directory"),
        ("--token-file", b"\xff", "expected a readable file: it is not UTF-8 text"),
        ("--token-file", b" \n", "expected a file with one bearer token"),
        ("--token-file", b"one\ntwo\n", "expected a file with one bearer token"),
        ("--token-file", b"one two", "expected a file with one bearer token"),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / "given"
    if content is not None:
        path.write_bytes(content)
    assert main.main(["explain", "shop/web", "--server=http://127.0.0.1:1", f"{flag}={path}"]) == 2
    assert capsys.readouterr().err == f"fastpath explain: {flag}: {path}: {said}\n"


@pytest.mark.parametrize("name", ["web", "/web", "shop/", "a/b/c"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InputError, match="expected namespace and name"):
        explain.main([name])


class Scaler:
    """Answers as a scaler does."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.asked.append(request.path)
        self.tokens.append(request.headers.get("Authorization", ""))
        return web.Response(status=self.status, body=self.body)


@pytest.fixture
async def scaler() -> AsyncIterator[Scaler]:
    made = Scaler()
    runner = web.ServerRunner(web.Server(made.handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def read(options: explain.ExplainOptions) -> dict[str, Any]:
    return await scaler_access.fetch(options, options.namespace)


async def ask(url: str) -> dict[str, Any]:
    return await read(parse(["shop/web", f"--server={url}"]))


async def test_a_server_is_asked(scaler: Scaler) -> None:
    scaler.body = encode(await shown())

    document = await ask(scaler.url + "/")

    assert scaler.asked == ["/debug/fastpath/autoscalers/shop/web"]
    assert document["name"] == "web"


async def test_a_refusal_is_one_sentence(scaler: Scaler) -> None:
    scaler.status, scaler.body = show(None, "shop", "web", "scaler-1")

    with pytest.raises(RunError, match="query Pod scaler-1"):
        await ask(scaler.url)


async def test_what_is_no_scaler(scaler: Scaler) -> None:
    scaler.body = b"<html>"

    with pytest.raises(RunError, match="not a response of a Fastpath scaler"):
        await ask(scaler.url)


async def test_no_server_listens() -> None:
    with pytest.raises(RunError) as raised:
        await ask("http://127.0.0.1:1")
    url = "http://127.0.0.1:1/debug/fastpath/autoscalers/shop/web"
    assert str(raised.value) == f"{url}: cannot connect to 127.0.0.1:1: Connection refused"


@pytest.fixture
async def secure(scaler: Scaler, authority: Authority) -> AsyncIterator[str]:
    """Give the address of the scaler behind a certificate as `fastpath serve`'s, like a forwarded port."""
    scaler.body = encode(await shown())
    runner = web.ServerRunner(web.Server(scaler.handle))
    await runner.setup()
    context = authority.server_context(authority.issue("fastpath.fastpath.svc"))
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


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


async def test_a_redirect_is_not_followed(scaler: Scaler) -> None:
    async def away(_: web.BaseRequest) -> web.Response:
        raise web.HTTPFound(f"{scaler.url}/elsewhere")

    runner = web.ServerRunner(web.Server(away))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with pytest.raises(RunError, match="302: not a response of a Fastpath scaler"):
        await ask(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()
    assert scaler.asked == []


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
    program.write_text(f'#!/bin/sh\necho "$@" >{folder}/arguments\n{script}\n')
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.integration
@pytest.mark.timeout(30)
async def test_the_pod_that_leads_is_asked_through_a_forwarded_port(
    tmp_path: Path, scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = scaler.url.rpartition(":")[2]
    path = kubectl(tmp_path, f"echo 'Forwarding from 127.0.0.1:{port} -> 10254'\nexec sleep 60")
    monkeypatch.setenv("PATH", path)
    scaler.body = encode(await shown())
    async with Cluster() as cluster:
        lease(cluster, "scaler-1_0123")
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        options = parse(["shop/web", f"--kubeconfig={kubeconfig}"])
        document = await read(options)

    assert document["name"] == "web"
    assert (tmp_path / "arguments").read_text().split() == [
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(
            {"faster": {"values": {"web-1": 410, "web-2": 500}, "overdue": ""}},
            "0.41, 0.5 by the pods' own usage (0.8 s old); 0.25, 0.3 from the metrics API; the one that asks "
            "for more replicas counts",
            id="both",
        ),
        pytest.param(
            {
                "faster": {"values": {"web-1": 410}, "overdue": "the scrape of web-1 is overdue"},
                "values": {},
                "overdue": "no answer yet",
            },
            "0.41 by the pods' own usage (0.8 s old, the scrape of web-1 is overdue); no answer yet",
            id="that of the pods alone",
        ),
        pytest.param(
            {"notFaster": "1 of 2 processes is not in it", "ageSeconds": 42},
            "0.25, 0.3 (42 s old); the pods' own usage does not count: 1 of 2 processes is not in it",
            id="not that of the pods",
        ),
        pytest.param(
            {"scrapeFault": "web-1: 10.1.2.3:9102: Connection refused", "ageSeconds": 42},
            "0.25, 0.3 (42 s old); not scraped: web-1: 10.1.2.3:9102: Connection refused",
            id="a scrape that fails",
        ),
        pytest.param(
            {"unavailable": "no metrics; not scraped: web-1: no", "scrapeFault": "web-1: no"},
            "no value: no metrics; not scraped: web-1: no",
            id="a scrape that fails, named already",
        ),
    ],
)
async def test_which_usage_counted(given: dict[str, Any], said: str) -> None:
    document = await shown()
    document["last"]["inputs"] = [CPU_USAGE | given]
    assert f"  cpu resource utilization (percentage of request): {said}" in explain.render(document)


async def test_a_usage_that_is_neither_here_nor_there() -> None:
    document = await shown()
    document["last"]["inputs"] = [
        {"metric": "cpu", "unavailable": "no metrics", "ageSeconds": None, "notFaster": "no"}
    ]
    said = "  cpu: no value: no metrics; the pods' own usage does not count: no"
    assert said in explain.render(document)


@pytest.mark.integration
@pytest.mark.timeout(30)
async def test_requests_that_count_while_a_resize_is_not_actuated(
    tmp_path: Path,
    scaler: Scaler,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    port = scaler.url.rpartition(":")[2]
    path = kubectl(tmp_path, f"echo 'Forwarding from 127.0.0.1:{port} -> 10254'\nexec sleep 60")
    monkeypatch.setenv("PATH", path)
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
    scaler: Scaler,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    port = scaler.url.rpartition(":")[2]
    path = kubectl(tmp_path, f"echo 'Forwarding from 127.0.0.1:{port} -> 10254'\nexec sleep 60")
    monkeypatch.setenv("PATH", path)
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


async def test_an_hpa_that_no_scaler_decides_is_explained_by_doctor(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        given = ["shop/web", f"--kubeconfig={kubeconfig}"]
        with pytest.raises(RunError, match="; fastpath doctor shop/web needs no scaler"):
            await asyncio.to_thread(explain.main, given)


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
@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("echo Hello; exec sleep 60", "Hello", id="other words"),
        pytest.param("exec sleep 60", "no answer in time", id="none"),
        pytest.param("exec >&-; exec sleep 60", "no answer in time", id="nor will there be any"),
        pytest.param("trap '' TERM; echo Hello; exec sleep 60", "Hello", id="deaf"),
    ],
)
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


@pytest.mark.parametrize(
    ("holder", "why"),
    [
        (None, f"there is no Lease fastpath/{SLICE}; --namespace gives the namespace"),
        ("", f"the Lease fastpath/{SLICE} has no holder"),
    ],
)
async def test_no_replica_leads(tmp_path: Path, holder: str | None, why: str) -> None:
    async with Cluster() as cluster:
        if holder is not None:
            lease(cluster, holder)
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        with pytest.raises(RunError, match=f"no scaler owns the slice: {why}"):
            await read(parse(["shop/web", f"--kubeconfig={kubeconfig}"]))


async def test_the_whole_command_in_words_and_as_json(
    scaler: Scaler, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    scaler.body = encode(await shown())
    (tmp_path / "token").write_text("secret\n")
    given = ["default/web", f"--server={scaler.url}", f"--token-file={tmp_path / 'token'}"]

    assert await asyncio.to_thread(explain.main, given) == 0
    assert capsysbinary.readouterr().out.startswith(b"default/web (Auto) scales Deployment web\n")
    assert await asyncio.to_thread(explain.main, [*given, "-o", "json"]) == 0
    assert msgspec.json.decode(capsysbinary.readouterr().out)["name"] == "web"
    assert scaler.tokens == ["Bearer secret"] * 2


def test_what_there_may_be_to_say() -> None:
    document: dict[str, Any] = {
        "namespace": "shop",
        "name": "web",
        "mode": "Paused",
        "target": {"kind": "Deployment", "name": "web", "error": "not found"},
        "status": {},
        "writers": {"pausedUntil": "2026-11-20T12:05:00.000Z", "pausedBy": "argocd"},
        "last": None,
        "journal": [
            {
                "time": "2026-11-20T12:00:00.000Z",
                "currentReplicas": 2,
                "desiredReplicas": desired,
                "outcome": outcome,
                "reason": "",
                "error": "conflict" if outcome == "failed" else "",
                "inputs": [{"metric": "queue", "ageSeconds": None, **value}],
                "trace": [],
            }
            for desired, outcome, value in (
                (2, "none", {"unavailable": "no metrics"}),
                (5, "none", {"value": 1500, "overdue": "late"}),
                (5, "failed", {"values": list(range(0, 12000, 1000)), "overdue": ""}),
            )
        ],
    }

    text = "\n".join(explain.render(document))
    for words in (
        "target: not found",
        "scaling suspended until 2026-11-20T12:05:00.000Z: argocd",
        "stayed at 2",
        "queue: no value: no metrics",
        "would have scaled from 2 to 5",
        "queue: 1.5 (age unknown, late)",
        "could not scale from 2 to 5",
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more (age unknown)",
        "error: conflict",
    ):
        assert words in text


def _entry(second: int, *inputs: str) -> dict[str, Any]:
    return {
        "time": f"2026-11-20T12:00:{second:02}.000Z",
        "currentReplicas": second,
        "desiredReplicas": second,
        "outcome": "none",
        "reason": "",
        "error": "",
        "inputs": [{"metric": each, "ageSeconds": None, "unavailable": "late"} for each in inputs],
        "trace": ["not fresh: web-1", "not fresh: web-1"],
    }


def test_the_newest_decisions_come_first() -> None:
    document: dict[str, Any] = {
        "namespace": "shop",
        "name": "web",
        "mode": "Auto",
        "target": {"kind": "Deployment", "name": "web", "error": "not found"},
        "status": {},
        "writers": {"pausedUntil": None, "pausedBy": ""},
        "last": None,
        "journal": [_entry(1), _entry(2), _entry(3, "queue", "queue")],
    }
    lines = explain.render(document)
    assert [line[17:19] for line in lines if "stayed at" in line] == ["03", "02", "01"]
    assert lines[3:6] == [
        "2026-11-20T12:00:03.000Z: stayed at 3",
        "  queue: no value: late",
        "  not fresh: web-1",
    ], "what is the same stands once"
    assert [line[17:19] for line in explain.render(document, 2) if "stayed at" in line] == ["03", "02"]
    assert parse(["shop/web", "--last=2"]).last == 2


def test_former_spellings_are_deprecated() -> None:
    options, notices = explain.COMMAND.parse(["shop/web", "--lease-namespace=ops", "--json"])
    assert (options.namespace, options.output, options.key) == ("ops", "json", ("shop", "web"))
    assert notices == (
        "Flag --lease-namespace has been deprecated, use --namespace",
        "Flag --json has been deprecated, use -o json",
    )
