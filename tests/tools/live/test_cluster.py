"""`fastpath doctor` against the sandbox cluster over HTTP, with a metrics server behind APIServices."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.autoscaler import ready_store
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.floor import Demotion, Floor, encode_floor
from adapter.model.timestamps import SECOND, FineInstant
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_tools.live.cluster import option_values
from fastpath_tools.live.sources import selectors_of
from scripts.generate import crd
from tests.support import doctor
from tests.support.doctor import CPU, HANDSHAKE, REQUESTS, Doctor, hpa
from tests.support.ownerleases import owner_leases
from tests.support.tls import Authority

pytestmark = pytest.mark.timeout(20)

SLICE = slices.name_of("fastpath-scaler", slices.slice_of("shop"))

RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
- seriesQuery: 'hits{namespace!="",ingress!=""}'
  resources:
    overrides: {namespace: {resource: namespace}, ingress: {resource: ingress, group: networking.k8s.io}}
  metricsQuery: 'max_over_time(<<.Series>>{<<.LabelMatchers>>}[30s])'
- seriesQuery: 'tenants{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
externalRules:
- seriesQuery: 'queue_depth{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""
QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_depth", "selector": {"matchLabels": {"queue": "mail"}}},
        "target": {"type": "AverageValue", "averageValue": "5"},
    },
}
HITS: dict[str, Any] = {
    "type": "Object",
    "object": {
        "metric": {"name": "hits"},
        "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"},
        "target": {"type": "Value", "value": "100"},
    },
}
TENANTS: dict[str, Any] = {
    "type": "Object",
    "object": {
        "metric": {"name": "tenants"},
        "describedObject": {"apiVersion": "v1", "kind": "Namespace", "name": "shop"},
        "target": {"type": "Value", "value": "100"},
    },
}
GROUPS = {
    "v1beta2.custom.metrics.k8s.io": "fastpath",
    "v1beta1.external.metrics.k8s.io": "fastpath",
    "v1beta1.metrics.k8s.io": "metrics-server",
}


class Behind:
    """The server behind the APIServices: values for what it is asked.

    `floor` None answers as a stopped Fastpath.
    """

    def __init__(self) -> None:
        self.floor: str | None = "0"
        self.targets: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path
        if path == "/apis":
            return web.json_response({"items": []})
        self.targets.append(request.raw_path)
        if path.endswith("/fastpath_replicas") and self.floor is None:
            return web.json_response(
                {
                    "kind": "Status",
                    "status": "Failure",
                    "message": "stopped",
                    "reason": "ServiceUnavailable",
                    "code": 503,
                },
                status=503,
            )
        if path.startswith("/apis/metrics.k8s.io"):
            # ages are real
            item = {"metadata": {"name": "web-0"}, "timestamp": timestamp(time.time() - 8), "window": "15s"}  # noqa: TID251
            return web.json_response({"items": [item, item]})
        value = self.floor if path.endswith("/fastpath_replicas") else "7"
        if path.startswith("/apis/external"):
            return web.json_response({"items": [{"metricName": "m", "value": value}]})
        count = 2 if "/pods/" in path else 1
        return web.json_response({"items": [{"describedObject": {"name": "o"}, "value": value}] * count})


class Proxying(Cluster):
    """A cluster whose API server proxies to pods: `exposed` are bodies by POD:PORT and path."""

    def __init__(self) -> None:
        super().__init__()
        self.exposed: dict[str, str] = {}

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        place = request.path.partition("/namespaces/shop/pods/")[2]
        if place in self.exposed:
            return web.Response(text=self.exposed[place])
        return await super()._handle(request)


@pytest.fixture
async def cluster() -> AsyncIterator[Proxying]:
    async with Proxying() as cluster:
        cluster.create(doctor.web(2))
        workloads = Workloads(cluster, startup=12.0)
        workloads.step(EPOCH)
        workloads.step(EPOCH + 12)
        yield cluster


@pytest.fixture
async def server(cluster: Cluster, authority: Authority) -> AsyncIterator[Behind]:
    """Serve the three APIs, each by a Service of its own kind."""
    made = Behind()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    names = ("fastpath.fastpath.svc", "metrics-server.kube-system.svc")
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=authority.server_context(authority.issue(*names)))
    assert server.port is not None
    for name, service in GROUPS.items():
        namespace = "fastpath" if service == "fastpath" else "kube-system"
        register(cluster, name, namespace, service, server.port, authority)
    yield made
    await server.close()


def register(
    cluster: Cluster, name: str, namespace: str, service: str, port: int, authority: Authority
) -> None:
    known = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in cluster.list("Service")}
    if (namespace, service) not in known:
        spec = {"type": "ExternalName", "externalName": "localhost", "selector": {"app": service}}
        cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service, "namespace": namespace},
                "spec": spec,
            }
        )
    place = {"namespace": namespace, "name": service, "port": port}
    doctor.register(cluster, name, place, authority.file.read_bytes())


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


def serve_rules(cluster: Cluster, name: str = "fastpath", *, path: str = "/etc/rules/rules.yaml") -> None:
    """Have a pod behind the Service read its rules from a ConfigMap."""
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "the-rules", "namespace": "fastpath"},
            "data": {"rules.yaml": RULES, "other": "not: rules"},
        }
    )
    container = {
        "name": "adapter",
        "args": ["serve", f"--config={path}", "--secure-port=6443"],
        "volumeMounts": [{"name": "rules", "mountPath": "/etc/rules"}],
    }
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "fastpath-0", "namespace": "fastpath", "labels": {"app": name}},
            "spec": {
                "containers": [container],
                "volumes": [{"name": "rules", "configMap": {"name": "the-rules"}}],
            },
        }
    )


def lead(
    cluster: Cluster,
    *,
    holder: str = "scaler-0_1",
    name: str = "",
    namespace: str = "fastpath",
) -> None:
    """Create the Lease `name`, without it those of a scaler that owns the slice of the namespace shop."""
    now = time.time()  # noqa: TID251  # the command compares with the real clock
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": timestamp(now)}
    leases = owner_leases("shop", spec, namespace)
    if name:
        leases = [leases[0] | {"metadata": {"name": name, "namespace": namespace}}]
    for lease in leases:
        cluster.create(lease)


# -- the way is read
# ------------------------------------------------------------------------------------------------------


async def test_all_kinds_of_metrics_are_asked_as_the_hpa_asks(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    serve_rules(cluster)
    cluster.create(hpa("web", REQUESTS, CPU, QUEUE, HITS, TENANTS))
    finished = await run("shop/web", "-o", "json")
    assert (finished.status, finished.err) == (0, "")
    found = json.loads(finished.out)
    assert [each["metric"] for each in found["metrics"]] == [
        "http_requests_per_second",
        "cpu",
        "queue_depth",
        "hits",
        "tenants",
    ]
    windows = {
        each["metric"]: hop.get("mostSeconds")
        for each in found["metrics"]
        for hop in each["hops"]
        if hop["hop"] == "window"
    }
    assert windows == {
        "http_requests_per_second": 120.0,
        "cpu": 15.0,
        "queue_depth": 0.0,
        "hits": 30.0,
        "tenants": 0.0,
    }
    assert set(server.targets) == {
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/"
            "pods/*/http_requests_per_second?labelSelector=app%3Dweb"
        ),
        "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb",
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth?labelSelector=queue%3Dmail",
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/ingresses.networking.k8s.io/main/hits",
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/tenants",
    }
    hops = finished.hops()
    assert hops["pod start"]["usualSeconds"] == 12.0
    assert hops["pod start"]["finding"] == (
        "from creation to ready, 2 pods: 0 s until scheduled, 12 s until containers run, 0 s until Ready"
    )
    cpu_scrape = found["metrics"][1]["hops"][0]["finding"]
    assert cpu_scrape.startswith("metrics-server has a new value about every 15 s")
    scrape = found["metrics"][0]["hops"][0]
    assert scrape["finding"] == "how often Prometheus scrapes is not known: give --prometheus-url"
    assert scrape["usualSeconds"] is None


@pytest.mark.parametrize(
    ("reference", "forbidden", "diagnosis"),
    [
        ({"kind": "Deployment", "name": "wep"}, "", "Deployment wep does not exist"),
        (
            {"kind": "DaemonSet", "name": "agent"},
            "",
            "DaemonSet agent has no scale subresource, so nothing can scale it",
        ),
        ({"kind": "DaemonSet", "name": "agend"}, "", "DaemonSet agend does not exist"),
        (
            {"kind": "DaemonSet", "name": "agent"},
            "daemonsets",
            "DaemonSet agent does not exist or has no scale subresource; you may not get it",
        ),
    ],
)
async def test_a_target_without_a_scale(
    cluster: Cluster, run: Doctor, reference: dict[str, str], forbidden: str, diagnosis: str
) -> None:
    metadata = {"name": "agent", "namespace": "shop"}
    cluster.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata})
    document = hpa("web", REQUESTS)
    document["spec"]["scaleTargetRef"] = reference | {"apiVersion": "apps/v1"}
    cluster.create(document)
    if forbidden:
        cluster.forbid("get", forbidden, "shop")
    hops = await run.hops()
    assert hops["pod start"]["finding"] == f"the pods are not known: {diagnosis}"
    assert ("spec" in hops) == (not forbidden)


USAGE_RULE = "resourceRules: {cpu: {scrape: {port: metrics}}}\n"


async def test_what_pods_expose_is_read_through_the_api_server(
    cluster: Proxying, server: Behind, run: Doctor
) -> None:
    serve_rules(cluster)
    cluster.create(hpa("web", CPU))
    pod = cluster.list("Pod", "shop")[0]["metadata"]["name"]
    cluster.exposed[f"{pod}:8080/proxy/metrics"] = "process_cpu_seconds_total 3.5\n"
    finished = await run("shop/web")
    assert "; the pods expose process_cpu_seconds_total at port http\n" in finished.out
    assert "and boost it: install components/scaler first (docs/guides/deploy.md#the-scaler)" in finished.out
    lead(cluster)
    finished = await run("shop/web")
    assert (
        "change:    have Fastpath scrape the pods: resourceRules.cpu.scrape: {port: http}, and boost it: "
        "kubectl -n shop get hpa web -o yaml | fastpath boost - | kubectl apply -f - (saves 19 s)\n"
    ) in finished.out
    cluster.exposed.clear()
    assert "the pods were not seen to expose process_cpu_seconds_total\n" in (await run("shop/web")).out


@pytest.mark.integration
async def test_whether_the_usage_of_pods_counts_is_what_the_leader_shows(
    cluster: Proxying, server: Behind, run: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked through a port that kubectl forwards, once."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(USAGE_RULE)
    lead(cluster)
    cluster.create(hpa("web", CPU, HANDSHAKE, mode="boost"))
    condition = {"type": "FastUsage", "status": "False", "reason": "TooLittle", "message": "condition"}
    given = {"metric": "cpu", "values": {}, "overdue": "", "ageSeconds": 1, "notFaster": "1 of 2 is not"}
    document = {"status": {"conditions": [condition]}, "last": {"inputs": [given]}}

    async def show(request: web.Request) -> web.Response:
        assert request.path == "/debug/fastpath/autoscalers/shop/web"
        return web.json_response(document)

    app = web.Application()
    app.router.add_get("/{path:.*}", show)
    monkeypatch.setenv("PATH", "")
    unknown = (await run.hops(f"--config={rules}"))["scrape"]
    async with TestServer(app, host="127.0.0.1") as scaler:
        kubectl = tmp_path / "kubectl"
        words = f"Forwarding from 127.0.0.1:{scaler.port} -> 10254"
        kubectl.write_text(f"#!/bin/sh\necho \"$@\" >>{tmp_path}/calls\necho '{words}'\nexec sleep 60\n")
        kubectl.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        slow = await run.hops(f"--config={rules}")
        condition["status"] = "True"
        fast = await run.hops(f"--config={rules}")
    assert unknown["state"] == "unknown"
    assert "kubectl is not installed" in unknown["finding"]
    assert slow["scrape"]["finding"].endswith("; the pods' own usage does not count: 1 of 2 is not")
    assert (slow["scrape"]["state"], slow["decision"]["mostSeconds"]) == ("warning", 15.0)
    assert fast["scrape"]["finding"].startswith(
        "Fastpath scrapes the pods every 1 s (resourceRules.cpu.scrape)"
    )
    assert (fast["scrape"]["mostSeconds"], fast["decision"]["mostSeconds"]) == (1.0, 1.0)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[-2:] for call in calls] == [["pod/scaler-0", ":10254"]] * 2


async def test_a_resize_that_is_not_actuated(cluster: Proxying, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    cluster.create(hpa("web", CPU))
    pod = cluster.list("Pod", "shop")[0]
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
    pod["status"]["conditions"].append({"type": "PodResizeInProgress", "status": "True"})
    for status in pod["status"]["containerStatuses"]:
        status["resources"] = {"requests": {"cpu": "250m"}}
    cluster.update(pod)
    requests = (await run.hops())["requests"]
    assert requests["state"] == "warning"
    assert requests["finding"] == (
        "the utilization is of the requests in the spec, cpu 500m; the resize of 1 of 2 pods is not "
        "actuated, and 250m is in effect there (PodResizeInProgress)"
    )


async def test_nothing_is_changed(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    cluster.create(hpa("web", REQUESTS, CPU, HANDSHAKE, mode="boost"))
    await run("shop/web")
    assert {each.method for each in cluster.requests} == {"GET"}


async def test_rules_from_files_win(cluster: Cluster, server: Behind, run: Doctor, tmp_path: Path) -> None:
    cluster.create(hpa("web", REQUESTS))
    untold = await run("shop/web", "-o", "json")
    assert "give them with --config" in untold.hops()["scrape"]["finding"]
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("[2m]", "[45s]"))
    told = await run("shop/web", "-o", "json", f"--config={rules}")
    assert told.hops()["window"]["mostSeconds"] == 45.0


@pytest.mark.parametrize("path", ["/etc/rules", "/etc/rules/"])
async def test_a_folder_of_rules(cluster: Cluster, server: Behind, run: Doctor, path: str) -> None:
    serve_rules(cluster, path=path)
    cluster.create(hpa("web", REQUESTS))
    assert (await run("shop/web", "-o", "json")).hops()["window"]["mostSeconds"] == 120.0


async def test_a_metric_that_no_rule_makes(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    strange = json.loads(json.dumps(REQUESTS).replace("http_requests_per_second", "strange"))
    cluster.create(hpa("web", strange))
    assert (await run("shop/web", "-o", "json")).hops()["scrape"][
        "finding"
    ] == "no rule that was read makes strange for pods"


async def test_a_prometheus_that_does_not_answer(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    cluster.create(hpa("web", REQUESTS))
    hops = (await run("shop/web", "-o", "json", "--prometheus-url=http://127.0.0.1:1")).hops()
    assert hops["scrape"]["finding"].startswith("cannot query Prometheus: ")
    assert hops["window"]["mostSeconds"] == 120.0


@pytest.mark.parametrize(
    ("written", "instead", "metric", "finding"),
    [
        ("queue_depth{", "other{", QUEUE, "no rule that was read makes the external metric queue_depth"),
        (
            "namespace: {resource: namespace}, pod",
            "pod",
            REQUESTS,
            "rules[0] has no label for namespaces",
        ),
        ("(rate(<<.Series>>", "(rate(<<.Nothing>>", REQUESTS, "the query of the metric cannot be made: "),
    ],
    ids=["no rule", "no namespaces", "no query"],
)
async def test_rules_that_make_no_query(
    cluster: Cluster,
    server: Behind,
    run: Doctor,
    tmp_path: Path,
    written: str,
    instead: str,
    metric: dict[str, Any],
    finding: str,
) -> None:
    rules = tmp_path / "rules.yaml"
    assert written in RULES
    rules.write_text(RULES.replace(written, instead))
    cluster.create(hpa("web", metric))
    told = (await run("shop/web", "-o", "json", f"--config={rules}")).hops()["scrape"]
    assert (told["state"], told["finding"].startswith(finding)) == ("unknown", True), told


async def test_a_rule_that_scrapes_pods(
    cluster: Cluster, server: Behind, run: Doctor, tmp_path: Path
) -> None:
    lead(cluster)
    rules = tmp_path / "rules.yaml"
    direct = "(<<.GroupBy>>)'\n  scrape: {port: metrics, interval: 2s}"
    rules.write_text(RULES.replace("(<<.GroupBy>>)'", direct, 1))
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    hops = (await run("shop/web", "-o", "json", f"--config={rules}")).hops()
    assert (hops["scrape"]["mostSeconds"], hops["window"]["mostSeconds"]) == (2.0, 10.0)


@pytest.mark.parametrize(
    ("query", "selectors"),
    [
        ('sum(rate(a{b="c"}[1m] offset 5m)) by (pod)', ['a{b="c"}']),
        ('a{x!="y"} / on(pod) b{z=~"1|2",w!~"q"}', ['a{x!="y"}', 'b{z=~"1|2",w!~"q"}']),
        ('{__name__="a"} + {__name__="a"}', ['{__name__="a"}']),
        ("time()", []),
        ("sum(", []),
        ('x{"a.io/b"="c"}', ['x{"a.io/b"="c"}']),
    ],
)
def test_selectors_of_a_query(query: str, selectors: list[str]) -> None:
    assert selectors_of(query) == selectors


@pytest.mark.parametrize(
    ("command", "seconds", "says"),
    [
        (["kube-controller-manager"], 15.0, "the default: Pod kcm does not set it"),
        (
            ["kube-controller-manager", "--horizontal-pod-autoscaler-sync-period=5s"],
            5.0,
            "horizontal-pod-autoscaler-sync-period of Pod kcm",
        ),
    ],
)
async def test_the_period_of_the_controller(
    cluster: Cluster, run: Doctor, command: list[str], seconds: float, says: str
) -> None:
    labels = {"component": "kube-controller-manager"}
    metadata = {"name": "kcm", "namespace": "kube-system", "labels": labels}
    spec = {"containers": [{"name": "kcm", "command": command}]}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.create(hpa("web", CPU))
    decision = (await run("shop/web", "-o", "json")).hops()["decision"]
    assert (decision["mostSeconds"], says in decision["finding"]) == (seconds, True)
    said = (await run("shop/web", "-o", "json", "--horizontal-pod-autoscaler-sync-period=30s")).hops()[
        "decision"
    ]
    assert (said["mostSeconds"], "from --horizontal-pod-autoscaler-sync-period" in said["finding"]) == (
        30.0,
        True,
    )


# -- boosting ------------------------------------------------------------------------------------------------
# -------------


async def test_a_boosted_one(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    lead(cluster)
    server.floor = "6"
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    finished = await run("shop/web", "-o", "json")
    assert finished.hops()["boost"]["finding"] == "the handshake works; the floor is 6"
    assert finished.hops()["decision"]["mostSeconds"] == 1.0
    assert finished.status == 0


async def test_a_stopped_fastpath(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    server.floor = None
    cluster.create(hpa("web", CPU, HANDSHAKE, mode="boost"))
    finished = await run("shop/web")
    assert finished.status == 1
    assert (
        "diagnosis: Fastpath is stopped or unreachable: the HPA scales up but not down (stopped"
        in finished.out
    ), finished.out
    assert "fastpath boost --remove" in finished.out
    table = await run()
    assert "Fastpath is stopped or unreachable: the HPA scales up but not down" in table.out


async def test_the_way_of_an_object_handshake(cluster: Cluster, server: Behind, run: Doctor) -> None:
    lead(cluster)
    server.floor = "4"
    handshake = {
        "type": "Object",
        "object": {
            "metric": {"name": "fastpath_replicas"},
            "describedObject": {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "name": "web",
            },
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }
    cluster.create(hpa("web", CPU, handshake, mode="boost"))
    assert "the floor is 4" in (await run("shop/web", "-o", "json")).hops()["boost"]["finding"]
    asked = (
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/"
        "horizontalpodautoscalers.autoscaling/web/fastpath_replicas"
    )
    assert asked in server.targets


async def test_a_server_that_is_not_known_may_be_fastpath(
    cluster: Cluster, server: Behind, run: Doctor, authority: Authority
) -> None:
    cluster.delete("APIService", "v1beta2.custom.metrics.k8s.io")
    register(cluster, "v1beta2.custom.metrics.k8s.io", "metrics", "adapter", 1, authority)
    cluster.create(hpa("web", REQUESTS))
    hops = await run.hops()
    assert hops["metrics API"]["finding"].startswith(
        "an unknown server has no value of http_requests_per_second"
    )
    change = hops["metrics API"]["change"]
    assert change.startswith(
        "if that is Fastpath, give --namespace=metrics --service=adapter; fastpath check "
    )


async def test_a_demoted_one(cluster: Cluster, server: Behind, run: Doctor) -> None:
    lead(cluster)
    made = cluster.create(hpa("web", CPU, HANDSHAKE, mode="boost"))
    uid = made["metadata"]["uid"]
    until = FineInstant(round((time.time() + 600) * SECOND))  # noqa: TID251  # the command compares with the real clock
    entry = Floor("shop", "web", uid, demoted=Demotion(until, "kustomize-controller"))
    metadata = {"name": "fastpath-floors", "namespace": "fastpath", "labels": {"fastpath.io/floors": "true"}}
    cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {uid: encode_floor(entry)}}
    )
    assert (
        "kustomize-controller reverted raises"
        in (await run("shop/web", "-o", "json")).hops()["boost"]["finding"]
    )


@pytest.mark.parametrize(
    ("stored", "finding"),
    [
        (
            '{"pods":[[0,0,2,30,0],[0,0,2,40,1]]}',
            (
                "from creation to ready, 2 pods: 0 s until scheduled, 2 s until containers run, "
                "28 s until Ready, no node fitted at first for 1"
            ),
        ),
        ('{"pods":[]}', "from creation to ready, 2 pods: 0 s until scheduled, 12 s until containers run, "),
        ("{", "from creation to ready, 2 pods: 0 s until scheduled, 12 s until containers run, "),
    ],
    ids=["a ledger", "an empty one", "not a ledger"],
)
async def test_the_times_of_the_scaler_come_before_those_of_the_pods(
    cluster: Cluster, server: Behind, run: Doctor, stored: str, finding: str
) -> None:
    uid = cluster.create(hpa("web", CPU))["metadata"]["uid"]
    metadata = {
        "name": ready_store.KIND.name,
        "namespace": "fastpath",
        "labels": {ready_store.KIND.label: "true"},
    }
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {uid: stored}})

    assert (await run("shop/web", "-o", "json")).hops()["pod start"]["finding"].startswith(finding)


async def test_events_tell_how_long_images_were_pulled(cluster: Cluster, server: Behind, run: Doctor) -> None:
    cluster.create(hpa("web", CPU))
    pulled = 'Successfully pulled image "web:1" in 9.5s (9.5s including waiting). Image size: 7 bytes.'
    for number, pod in enumerate(cluster.list("Pod", "shop")):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"pulled-{number}", "namespace": "shop"},
            "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": "shop"},
            "reason": "Pulled",
            "message": pulled,
        }
        cluster.create(event)
    finding = (await run("shop/web", "-o", "json")).hops()["pod start"]["finding"]
    assert finding.endswith("0 s until Ready, image pulls took 9.5 s in 2 of the pods")


async def test_the_lease_of_a_slice_holds_while_its_owner_does(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    cluster.create(hpa("web", CPU, HANDSHAKE, mode="boost"))
    lease, other = (slices.name_of("fastpath-scaler", slices.slice_of(name)) for name in ("shop", "fastpath"))
    lead(cluster, name="fastpath-scaler-member-scaler-0")
    lead(cluster, name=other)
    lead(cluster, name="another")

    async def finding() -> str:
        return str((await run("shop/web", "-o", "json")).hops()["boost"]["finding"])

    assert await finding() == "no scaler runs for it: its slice has no Lease in any namespace"
    lead(cluster, name=lease)
    assert await finding() == "the handshake works; no floor is set"
    cluster.delete("Lease", "fastpath-scaler-member-scaler-0", "fastpath")
    assert await finding() == f"no scaler runs for it: the Lease fastpath/{lease} has no holder"


# -- other autoscalers
# ----------------------------------------------------------------------------------------------------


async def test_a_rival_and_an_owner(cluster: Cluster, run: Doctor) -> None:
    cluster.create(hpa("web", CPU))
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "1"}
    cluster.create(hpa("keda-web", CPU, ownerReferences=[owner]))
    assert (await run("shop/web", "-o", "json")).hops()["autoscaler"][
        "finding"
    ] == "Deployment web is also scaled by keda-web"
    cluster.delete("HorizontalPodAutoscaler", "web", "shop")
    owned = (await run("shop/keda-web", "-o", "json")).hops()["autoscaler"]
    assert "KEDA's ScaledObject web owns it" in owned["finding"]


async def test_an_owner_keeps_an_autoscaler_from_being_boosted(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    lead(cluster)
    marked = hpa("web", CPU, HANDSHAKE, mode="boost")
    marked["metadata"]["labels"] = {"scaledobject.keda.sh/name": "web"}
    cluster.create(marked)
    hops = (await run("shop/web", "-o", "json")).hops()
    assert (
        hops["boost"]["finding"]
        == "advice only, not boosted: it belongs to the ScaledObject web, which writes its spec"
    )
    assert hops["decision"]["finding"].startswith("the HPA decides every 15 s")


async def test_all_autoscalers_are_a_table(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    cluster.create(hpa("web", REQUESTS))
    other = hpa("idle", CPU)
    other["metadata"]["namespace"] = "elsewhere"
    cluster.create(other)
    everything = await run()
    assert [line.split()[0] for line in everything.out.splitlines()] == [
        "autoscaler",
        "shop/web",
        "elsewhere/idle",
    ]
    one = await run("elsewhere")
    assert [line.split()[0] for line in one.out.splitlines()] == ["autoscaler", "elsewhere/idle"]
    assert [each["name"] for each in json.loads((await run("-o", "json")).out)] == ["idle", "web"]


async def test_one_that_is_not_there(cluster: Cluster, run: Doctor) -> None:
    finished = await run("shop/missing")
    assert (finished.status, finished.out) == (1, "")
    assert finished.err == (
        "fastpath doctor: there is no HorizontalPodAutoscaler and no FastPathAutoscaler shop/missing\n"
    )


@pytest.mark.parametrize("place", ["nowhere", "nowhere/web"])
async def test_a_namespace_that_is_not_there(cluster: Cluster, run: Doctor, place: str) -> None:
    cluster.create(hpa("web", CPU))
    finished = await run(place)
    assert finished == (1, "", "fastpath doctor: there is no namespace nowhere\n")


async def test_nothing_to_examine_says_where(cluster: Cluster, run: Doctor) -> None:
    none = "there are no HorizontalPodAutoscalers and no FastPathAutoscalers in"
    assert await run() == (0, f"{none} the cluster\n", "")
    assert await run("shop") == (0, f"{none} namespace shop\n", "")
    assert await run("shop", "-o", "json") == (0, "[]\n", "")
    cluster.forbid("get", "namespaces")
    assert await run("nowhere") == (0, f"{none} namespace nowhere\n", "")


@pytest.mark.parametrize("place", ["shop", "shop/web"])
async def test_files_of_rules_are_opened_first(
    cluster: Cluster, run: Doctor, tmp_path: Path, place: str
) -> None:
    finished = await run(place, f"--config={tmp_path}/nofile.yaml")
    assert (finished.status, finished.out) == (2, "")
    assert f"{tmp_path}/nofile.yaml" in finished.err
    assert not cluster.requests


# -- FastPathAutoscalers
# --------------------------------------------------------------------------------------------------


def fpa(cluster: Cluster, name: str, *, target: str = "web", mode: str = "Auto", **condition: str) -> None:
    """Create the kind if it is not there, and an autoscaler of it.

    `condition` is one that is not as at rest.
    """
    if not any(
        each["metadata"]["name"].startswith("fastpath") for each in cluster.list("CustomResourceDefinition")
    ):
        cluster.create(yaml.safe_load(crd.PATH.read_text()))
    found = {
        "AbleToScale": {"status": "True", "reason": "ReadyForNewScale"},
        "ScalingActive": {"status": "True", "reason": "ValidMetricFound"},
        "ScalingLimited": {"status": "False", "reason": "DesiredWithinRange"},
    }
    if condition:
        found[condition.pop("type")] = condition
    cluster.create(
        {
            "apiVersion": "fastpath.io/v1alpha1",
            "kind": "FastPathAutoscaler",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
                "minReplicas": 2,
                "maxReplicas": 8,
                "mode": mode,
            },
            "status": {
                "currentReplicas": 4,
                "conditions": [{"type": kind, **each} for kind, each in found.items()],
            },
        }
    )


async def test_another_kind_of_autoscaler_on_the_target_is_the_diagnosis(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    serve_rules(cluster)
    lead(cluster)
    fpa(cluster, "fast", type="AbleToScale", status="False", reason="ForeignAutoscaler", message="said")
    cluster.create(hpa("web", REQUESTS))
    native = await run("shop/web")
    assert native.status == 1
    assert (
        "diagnosis: Deployment web also has FastPathAutoscaler fast, which does not scale while" in native.out
    )
    assert (
        "change:    delete one of them: kubectl -n shop delete hpa web, or kubectl -n shop delete fpa fast\n"
        in native.out
    )
    assert "boost it" not in native.out.partition("diagnosis:")[2]
    fast = await run("shop/fast", "-o", "json")
    found = json.loads(fast.out)
    assert (fast.status, found["kind"], found["state"]) == (1, "FastPathAutoscaler", "fault")
    assert found["diagnosis"] == (
        "Deployment web is also scaled by HorizontalPodAutoscaler web, so Fastpath does not scale it"
    )
    assert found["change"] == "keep only one autoscaler for Deployment web"


async def test_beside_a_fast_autoscaler_nothing_is_raised(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    serve_rules(cluster)
    lead(cluster)
    fpa(cluster, "fast")
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    assert (await run("shop/web", "-o", "json")).hops()["decision"]["mostSeconds"] == 15.0


async def test_a_fast_autoscaler_alone_is_not_unknown(cluster: Cluster, run: Doctor) -> None:
    lead(cluster)
    fpa(cluster, "web")
    finished = await run("shop/web")
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.splitlines() == [
        "shop/web is a FastPathAutoscaler: fastpath explain shop/web",
        "it scales Deployment web: 4 replicas, 2 to 8; mode Auto",
        "",
        (
            "diagnosis: its conditions report no problem; cpu: the pods were not seen to expose "
            "process_cpu_seconds_total; pods take p50 12 s, p95 12 s to Ready "
            "(2 pods: 0 s until scheduled, 12 s until containers run, 0 s until Ready)"
        ),
    ]
    assert {each.method for each in cluster.requests} == {"GET"}


async def test_both_kinds_are_listed(cluster: Cluster, server: Behind, run: Doctor) -> None:
    serve_rules(cluster)
    lead(cluster)
    for target in ("api", "idle"):
        cluster.create(deployment(target, "shop", 2))
    fpa(
        cluster,
        "web",
        target="api",
        mode="Paused",
        type="ScalingActive",
        status="False",
        reason="ScalingPaused",
    )
    fpa(cluster, "fast", target="idle")
    cluster.create(hpa("web", REQUESTS))
    finished = await run()
    assert finished.status == 0
    rows = [line.split()[:2] for line in finished.out.splitlines()[1:]]
    assert rows == [["shop/web", "-"], ["shop/fast", "fast-scaler"], ["shop/web", "fast-scaler"]]
    assert "FastPathAutoscaler: fastpath explain shop/fast" in finished.out
    assert "fast-scaler (paused)" in finished.out
    assert [each["kind"] for each in json.loads((await run("shop", "-o", "json")).out)] == [
        "HorizontalPodAutoscaler",
        "FastPathAutoscaler",
        "FastPathAutoscaler",
    ]
    both = await run("shop/web")
    assert "shop/web scales Deployment web" in both.out
    assert "shop/web is a FastPathAutoscaler" in both.out
    assert len(json.loads((await run("shop/web", "-o", "json")).out)) == 2


@pytest.mark.parametrize(
    ("condition", "state", "diagnosis"),
    [
        (
            {"type": "AbleToScale", "status": "False", "reason": "ForeignWriter", "message": "argocd"},
            "fault",
            "AbleToScale is False (ForeignWriter): argocd",
        ),
        (
            {"type": "AbleToScale", "status": "False", "reason": "AdviseOnly", "message": "advised"},
            "warning",
            "AbleToScale is False (AdviseOnly): advised",
        ),
        (
            {"type": "ScalingActive", "status": "False", "reason": "FailedGetPodsMetric", "message": "none"},
            "fault",
            "ScalingActive is False (FailedGetPodsMetric): none",
        ),
        (
            {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"},
            "warning",
            "it recommends more than maxReplicas, 8",
        ),
    ],
)
async def test_conditions_of_a_fast_autoscaler(
    cluster: Cluster, run: Doctor, condition: dict[str, str], state: str, diagnosis: str
) -> None:
    lead(cluster)
    fpa(cluster, "web", **condition)
    finished = await run("shop/web", "-o", "json")
    found = json.loads(finished.out)
    assert (found["state"], found["diagnosis"]) == (state, diagnosis)
    assert finished.status == (1 if state == "fault" else 0)


async def test_a_fast_autoscaler_whose_pods_expose_their_usage(
    cluster: Proxying, server: Behind, run: Doctor, tmp_path: Path
) -> None:
    lead(cluster)
    fpa(cluster, "web", type="FastUsage", status="False", reason="TooMuch", message="it shows twice as much")
    cluster.patch("FastPathAutoscaler", "web", {"spec": {"metrics": [CPU]}}, namespace="shop")
    rules = tmp_path / "rules.yaml"
    rules.write_text(USAGE_RULE)
    found = json.loads((await run("shop/web", "-o", "json", f"--config={rules}")).out)
    assert found["state"] == "warning"
    assert (
        "; cpu: the pods' own usage does not count: it shows twice as much; pods take" in found["diagnosis"]
    )
    assert found["change"].startswith("correct port, container or query in resourceRules.cpu.scrape")


async def test_a_fast_autoscaler_that_nothing_decides(cluster: Cluster, run: Doctor) -> None:
    fpa(cluster, "web")
    finished = await run("shop/web")
    assert finished.status == 1
    assert "diagnosis: no scaler runs for it: no scaler has a Lease in any namespace" in finished.out
    lead(cluster)
    cluster.patch("FastPathAutoscaler", "web", {"status": {"conditions": []}}, namespace="shop")
    assert "diagnosis: the scaler has not set conditions yet" in (await run("shop/web")).out


async def test_a_scaler_in_the_namespace_of_the_autoscaler(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    """Its Lease, its floors and its ready times are where it runs, not where the server is."""
    fpa(cluster, "web", type="AbleToScale", status="True", reason="ReadyForNewScale")
    lead(cluster, namespace="shop")
    lead(cluster, namespace="kube-node-lease", name="node-1")
    found = json.loads((await run("shop/web", "-o", "json")).out)
    assert found["state"] == "ok"
    assert found["diagnosis"].startswith("its conditions report no problem;")
    cluster.forbid("list", "leases", "")
    found = json.loads((await run("shop/web", "-o", "json")).out)
    assert found["diagnosis"].startswith("its conditions report no problem;")


async def test_a_lease_of_another_namespace_proves_nothing(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    """Users who may edit one namespace can create Leases there, and ConfigMaps."""
    fpa(cluster, "web", type="AbleToScale", status="True", reason="ReadyForNewScale")
    lead(cluster, namespace="tenant")
    found = json.loads((await run("shop/web", "-o", "json")).out)
    assert found["diagnosis"] == (
        f"no scaler runs for it: the Lease tenant/{SLICE} is not in the namespace of Fastpath, which "
        "--namespace gives"
    )
    found = json.loads((await run("shop/web", "-o", "json", "--namespace=tenant")).out)
    assert found["state"] == "ok", "unless it is named"


async def test_a_floor_of_another_namespace_is_not_shown(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    lead(cluster)
    lead(cluster, namespace="tenant")
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    uid = cluster.get("HorizontalPodAutoscaler", "web", "shop")["metadata"]["uid"]
    until = FineInstant(round((time.time() + 600) * SECOND))  # noqa: TID251  # as above
    text = encode_floor(Floor("shop", "web", uid, demoted=Demotion(until, "tenant")))
    for place, finding in (
        ("tenant", "the handshake works; no floor is set"),
        ("fastpath", "advice only until"),
    ):
        metadata = {"name": "floors", "namespace": place, "labels": {"fastpath.io/floors": "true"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {uid: text}})
        assert (await run.hops())["boost"]["finding"].startswith(finding)


@pytest.mark.parametrize(
    ("namespace", "diagnosis"),
    [
        ("shop", f"no scaler runs for it: the Lease shop/{SLICE} has no holder"),
        pytest.param("fastpath", "", id="our own clock is behind"),
    ],
)
async def test_a_lease_of_the_future_has_no_holder_unless_it_is_trusted(
    cluster: Cluster, server: Behind, run: Doctor, namespace: str, diagnosis: str
) -> None:
    fpa(cluster, "web", type="AbleToScale", status="True", reason="ReadyForNewScale")
    lead(cluster, namespace=namespace)
    ahead = timestamp(time.time() + 3600)  # noqa: TID251  # as above
    cluster.patch("Lease", "fastpath-scaler-member-1", {"spec": {"renewTime": ahead}}, namespace=namespace)
    found = json.loads((await run("shop/web", "-o", "json")).out)
    assert (found["diagnosis"] if diagnosis else found["state"]) == (diagnosis or "ok")


async def test_leases_that_may_not_be_listed_prove_nothing(cluster: Cluster, run: Doctor) -> None:
    fpa(cluster, "web")
    cluster.patch("FastPathAutoscaler", "web", {"status": {"conditions": []}}, namespace="shop")
    cluster.forbid("list", "leases", "")
    cluster.forbid("list", "namespaces")
    finished = await run("shop/web")
    assert finished.status == 0
    assert (
        "diagnosis: the scaler has not set conditions yet: no scaler has a Lease in namespaces fastpath, "
        "shop, and those of other namespaces cannot be listed: leases.coordination.k8s.io is forbidden"
    ) in finished.out.replace("\n", " ").replace("  ", " "), finished.out


async def test_no_right_to_see_fast_autoscalers_is_said(
    cluster: Cluster, server: Behind, run: Doctor
) -> None:
    serve_rules(cluster)
    fpa(cluster, "fast")
    cluster.create(hpa("web", REQUESTS))
    cluster.forbid("list", "fastpathautoscalers")
    finished = await run("shop/web")
    assert finished.status == 0
    assert finished.err.startswith("fastpath doctor: FastPathAutoscalers cannot be read: ")
    missing = await run("shop/fast")
    assert missing.status == 1
    assert (
        "there is no HorizontalPodAutoscaler shop/fast, and FastPathAutoscalers cannot be read: "
        in missing.err
    )


# -- few rights
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "resource", "hop", "state"),
    [
        ("get", "deployments/scale", "pod start", "unknown"),
        ("list", "pods", "pod start", "unknown"),
        ("list", "leases", "boost", "unknown"),
        ("list", "configmaps", "boost", "ok"),
        ("get", "configmaps", "scrape", "unknown"),
        ("get", "apiservices", "decision", "unknown"),
    ],
)
async def test_what_may_not_be_read_is_said(
    cluster: Cluster, server: Behind, run: Doctor, verb: str, resource: str, hop: str, state: str
) -> None:
    serve_rules(cluster)
    lead(cluster)
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    cluster.forbid(verb, resource)
    finished = await run("shop/web", "-o", "json")
    assert finished.hops()[hop]["state"] == state, finished.out
    assert finished.status == 0


async def test_no_right_to_see_all_autoscalers(cluster: Cluster, run: Doctor) -> None:
    cluster.forbid("list", "horizontalpodautoscalers")
    finished = await run()
    assert finished.status == 1
    assert finished.err.startswith(
        "fastpath doctor: listing HPAs cluster-wide is forbidden; pass a namespace: "
    )


async def test_the_cluster_cannot_be_asked(cluster: Cluster, run: Doctor) -> None:
    await cluster.down(refuse=False)
    finished = await run("shop/web")
    assert (finished.status, finished.out) == (1, "")
    assert "503" in finished.err


# -- small things
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--period=5s"], "5s"),
        (["--period", "5s"], "5s"),
        (["--periods=5s"], ""),
        (["--period=1s", "--period=2s"], "2s"),
        ([], ""),
    ],
)
def test_flags_of_a_command_line(words: list[str], value: str) -> None:
    assert ["", *option_values(words, "--period")][-1] == value


async def test_the_version_that_the_hpa_controller_reads(
    cluster: Cluster, server: Behind, run: Doctor, authority: Authority
) -> None:
    """Also where v1 is registered to another server, which has other values."""
    (port,) = {
        each["spec"]["service"]["port"]
        for each in cluster.list("APIService")
        if each["metadata"]["name"] == "v1beta1.metrics.k8s.io"
    }
    register(cluster, "v1.metrics.k8s.io", "fastpath", "fastpath", port, authority)
    cluster.create(hpa("web", CPU))
    hops = (await run("shop/web", "-ojson")).hops()
    assert [target.split("/")[3] for target in server.targets if "/metrics.k8s.io/" in target] == ["v1beta1"]
    assert hops["metrics API"]["state"] == "warning"
    assert (
        "v1 belongs to Fastpath (fastpath/fastpath), v1beta1 to metrics-server"
        in (hops["metrics API"]["finding"])
    )

    cluster.delete("APIService", "v1beta1.metrics.k8s.io")
    hops = (await run("shop/web", "-ojson")).hops()
    assert "only v1 of metrics.k8s.io is registered, to Fastpath" in hops["metrics API"]["finding"]


async def test_a_rule_that_scrapes_endpoints(
    cluster: Cluster, server: Behind, run: Doctor, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    scrape = "\n  scrape: {service: {namespace: queues, name: exporter}, port: metrics}\n"
    rules.write_text(RULES.rstrip() + scrape)
    cluster.create(hpa("web", QUEUE, HANDSHAKE, mode="boost"))
    lead(cluster)

    async def told() -> tuple[str, str]:
        found = (await run("shop/web", "-o", "json", f"--config={rules}")).hops()["scrape"]
        return found["state"], found["finding"]

    nothing = "Service queues/exporter has no EndpointSlice: it does not exist, or has no selector"
    assert await told() == ("fault", nothing)
    cluster.create(deployment("exporter", "queues"))
    Workloads(cluster, startup=0.0).step(EPOCH)
    (pod,) = (each["metadata"]["name"] for each in cluster.list("Pod", "queues"))
    reference = {"kind": "Pod", "namespace": "queues", "name": pod}
    made = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "exporter-1",
            "namespace": "queues",
            "labels": {"kubernetes.io/service-name": "exporter"},
        },
        "addressType": "IPv6",
        "ports": [{"name": "metrics", "port": 9090}],
        "endpoints": [{"addresses": ["fd00::1"], "targetRef": reference}],
    }
    cluster.create(made)
    scrapes = "Fastpath scrapes Service queues/exporter every 1 s (externalRules[0])"
    assert await told() == ("ok", f"{scrapes}, 1 endpoint")
    cluster.create(
        made
        | {
            "metadata": made["metadata"] | {"name": "by-hand"},  # type: ignore[operator] # a mapping
            "endpoints": [{"addresses": ["fd00::2"]}],
        }
    )
    missing = "fd00::2 is not the address of a pod of namespace queues"
    assert await told() == ("warning", f"{scrapes}; may scale up, not down: {missing}")
    cluster.forbid("list", "endpointslices")
    state, finding = await told()
    assert (state, finding.startswith(f"{scrapes}; its endpoints cannot be read: ")) == ("unknown", True)
    rules.write_text(RULES.rstrip() + scrape.replace("service:", "pods:").replace("name:", "selector:"))
    assert await told() == ("fault", "there are no pods of namespace queues with exporter")
