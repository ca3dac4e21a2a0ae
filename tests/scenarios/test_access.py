"""Who gets in: the whole adapter against a cluster over real HTTPS, whose authorities and reviews change."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

import aiohttp
import pytest

from adapter.compose import app
from adapter.config.options import SERVE
from adapter.errors import InputError
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict, TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support import adapter as support
from tests.support.adapter import DecodedAnswer, RunningAdapter
from tests.support.certificates import NAME, UNUSUAL, Identity, Signer, config_map, config_map_object
from tests.support.clock import ShiftedClock
from tests.support.kubectl import TOKEN
from tests.support.objects import plain
from tests.support.processor import limited
from tests.support.serving import careless_context
from tests.support.tls import Authority

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60), pytest.mark.usefixtures("rules")]

RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
  ttl: 10ms
  maxAge: 100ms
"""
LOAD = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/web-0/load"
DISCOVERY = "/apis/custom.metrics.k8s.io/v1beta2"

PROXY, CLIENTS = Signer("front-proxy-ca"), Signer("kubernetes")
AGGREGATOR = PROXY.issue("front-proxy-client")
CHECK = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
HPA = {
    "X-Remote-User": "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "X-Remote-Group": "system:authenticated",
}


def publish(cluster: Cluster, entries: Mapping[str, str]) -> None:
    if any(each["metadata"]["name"] == NAME for each in cluster.list("ConfigMap", "kube-system")):
        cluster.update(cluster.get("ConfigMap", NAME, "kube-system") | {"data": dict(entries)})
    else:
        cluster.create(config_map_object(dict(entries)))


class Secured(Cluster):
    """A cluster over HTTPS; its kubeconfig names the authority's file."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(tls=authority.server_context())
        self._authority = authority

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        text = super().kubeconfig(path, token).read_text()
        path.write_text(
            text.replace("insecure-skip-tls-verify: true", f"certificate-authority: {self._authority.file}")
        )
        return path


@pytest.fixture
async def cluster(authority: Authority) -> AsyncIterator[Cluster]:
    """Return a cluster over HTTPS that publishes both authorities and knows one token."""
    async with Secured(authority) as cluster:
        cluster.create(plain("Pod", "web-0", "shop"))
        cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == TOKEN, "someone", ("devs",))
        publish(cluster, config_map(PROXY.pem, CLIENTS.pem))
        yield cluster


class CertifiedCaller:
    """Asks with a certificate over one connection that stays open."""

    def __init__(self, adapter: RunningAdapter, directory: Path, shown: Identity | None) -> None:
        context = careless_context(None if shown is None else shown.write(directory))
        self._url = adapter.url
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=1))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, headers: Mapping[str, str]) -> DecodedAnswer:
        """Return the answer; of a handshake that fails status 0."""
        try:
            async with self._session.get(f"{self._url}{path}", headers=headers) as response:
                return await DecodedAnswer.of(response)
        except aiohttp.ClientError:
            return DecodedAnswer(0, None)


async def test_the_aggregator_and_an_autoscaler(
    tmp_path: Path, cluster: Cluster, prometheus: Prometheus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    async with (
        support.running(tmp_path, cluster, prometheus.url) as adapter,
        CertifiedCaller(adapter, tmp_path, AGGREGATOR) as proxy,
    ):
        cluster.reviews.received.clear()
        assert (await proxy.get(DISCOVERY, CHECK)).status == 200
        assert cluster.reviews.received == [], "the availability check needs no review"
        assert (await proxy.get(LOAD, HPA)).body["items"][0]["value"] == "7"
        (review,) = cluster.reviews.received
        assert review["spec"] == {
            "user": HPA["X-Remote-User"],
            "groups": ["system:authenticated"],
            "resourceAttributes": {
                "verb": "get",
                "group": "custom.metrics.k8s.io",
                "version": "v1beta2",
                "resource": "pods",
                "subresource": "load",
                "name": "web-0",
                "namespace": "shop",
            },
        }
        assert (await adapter.get(LOAD)).status == 200
        heard = repr(list(prometheus.requests))
        assert prometheus.requests
        for secret in (TOKEN, HPA["X-Remote-User"], "X-Remote", "x-remote"):
            assert secret not in heard, "what a caller shows goes to no backend"
        assert TOKEN not in repr([record.__dict__ for record in caplog.records])


async def test_without_trust_it_is_not_ready_and_does_not_end(
    tmp_path: Path, cluster: Cluster, prometheus: Prometheus, caplog: pytest.LogCaptureFixture
) -> None:
    for verb in ("list", "get"):
        cluster.forbid(verb, "configmaps")
    async with (
        support.running(tmp_path, cluster, prometheus.url, until_ready=False, admitted=False) as adapter,
        CertifiedCaller(adapter, tmp_path, AGGREGATOR) as proxy,
    ):
        known = ("[+]discovery-attempted ok", "[+]caches-synced ok")
        unready = await adapter.wait_for(
            "/readyz?verbose", lambda answer: all(text in answer.body for text in known)
        )
        assert unready.status == 500
        assert "[-]trust failed: reason withheld" in unready.body
        await adapter.wait_for(
            "/metrics", lambda answer: 'fastpath_faults_active{fault="informer' in answer.body
        )
        assert (await adapter.get("/livez")).status == 200
        assert (await proxy.get(DISCOVERY, CHECK)).status == 0
        said = repr([record.__dict__ for record in caplog.records])
        assert "bind the Role extension-apiserver-authentication-reader in kube-system" in said
        for verb in ("list", "get"):
            cluster.allow(verb, "configmaps")
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)
        assert (await proxy.get(DISCOVERY, CHECK)).status == 200


async def test_the_api_server_is_away(tmp_path: Path, cluster: Cluster, prometheus: Prometheus) -> None:
    clock = ShiftedClock()
    async with (
        support.running(tmp_path, cluster, prometheus.url, clock=clock) as adapter,
        CertifiedCaller(adapter, tmp_path, AGGREGATOR) as proxy,
        CertifiedCaller(adapter, tmp_path, None) as stranger,
    ):
        assert (await proxy.get(LOAD, HPA)).status == 200
        assert (await adapter.get(LOAD)).status == 200
        await cluster.down()
        assert (await proxy.get(LOAD, HPA)).status == 200, "what was allowed is, for its time"
        clock.advance(11)
        # another pod's value, so that a refresh of what is in the cache is not taken for its query
        failed = await proxy.get(LOAD.replace("web-0", "web-1"), HPA)
        assert (failed.status, failed.body["reason"]) == (500, "InternalError")
        assert failed.body["message"] == "Internal error occurred: unable to review access"
        assert "127.0.0.1" not in str(failed.body)
        asked = [str(dict(each.parameters)) for each in prometheus.requests if each.path == "/api/v1/query"]
        assert any("web-0" in query for query in asked)
        assert not any("web-1" in query for query in asked), "no query reached Prometheus"
        assert (await adapter.get(LOAD)).status == 401
        assert (await stranger.get(LOAD, {})).status == 500
        assert (await stranger.get("/livez", {})).status == 200
        assert (await stranger.get("/readyz", {})).status == 200
        assert (await proxy.get(DISCOVERY, CHECK)).status == 200, (
            "availability does not depend on a call back"
        )
        await cluster.up()
        assert (await proxy.get(LOAD, HPA)).status == 200
        assert (await adapter.get(LOAD)).status == 200


async def test_files_are_followed(tmp_path: Path, cluster: Cluster, prometheus: Prometheus) -> None:
    cluster.delete("ConfigMap", NAME, "kube-system")
    new = Signer("new-front-proxy-ca")
    (tmp_path / "proxy.crt").write_text(PROXY.pem)
    (tmp_path / "clients.crt").write_text(CLIENTS.pem)
    flags = [
        f"--requestheader-client-ca-file={tmp_path / 'proxy.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Who",
        "--requestheader-uid-headers=X-Id",
        f"--client-ca-file={tmp_path / 'clients.crt'}",
    ]
    async with (
        support.running(tmp_path, cluster, prometheus.url, *flags, admitted=False) as adapter,
        CertifiedCaller(adapter, tmp_path, AGGREGATOR) as proxy,
        CertifiedCaller(adapter, tmp_path, new.issue("front-proxy-client")) as new_proxy,
        CertifiedCaller(adapter, tmp_path, CLIENTS.issue("alice")) as alice,
    ):
        cluster.reviews.received.clear()
        assert (await proxy.get(LOAD, {"X-Who": "bob", "X-Id": "7"})).status == 200
        assert (await alice.get(LOAD, {"X-Who": "bob"})).status == 200
        assert (await proxy.get(LOAD, HPA)).status == 401
        assert [review["spec"]["user"] for review in cluster.reviews.received] == ["bob", "alice"]
        assert cluster.reviews.received[0]["spec"]["uid"] == "7"
        assert (await new_proxy.get(LOAD, {"X-Who": "bob"})).status == 0
        (tmp_path / "proxy.crt").write_text(new.pem)
        await adapter.wait_for("/metrics", lambda answer: "fastpath_trust_generation 3.0" in answer.body)
        assert (await new_proxy.get(LOAD, {"X-Who": "bob"})).status == 200
        assert (await proxy.get(LOAD, {"X-Who": "bob"})).status == 401
        (tmp_path / "proxy.crt").write_text("half a file")
        await adapter.wait_for(
            "/metrics", lambda answer: 'fastpath_faults_active{fault="trust-file"} 1.0' in answer.body
        )
        assert (await new_proxy.get(LOAD, {"X-Who": "bob"})).status == 200
        assert not [request for request in cluster.requests if request.resource == "configmaps"], (
            "nothing to look up"
        )


async def test_without_look_up_a_token_is_the_only_way(
    tmp_path: Path, cluster: Cluster, prometheus: Prometheus
) -> None:
    async with (
        support.running(tmp_path, cluster, prometheus.url, "--authentication-skip-lookup") as adapter,
        CertifiedCaller(adapter, tmp_path, AGGREGATOR) as proxy,
    ):
        assert (await adapter.get(LOAD)).status == 200
        cluster.reviews.access = lambda spec: AccessReviewVerdict(spec["user"] != "system:anonymous")
        assert (await proxy.get(LOAD, CHECK)).status == 403, (
            "no certificate is requested, so the client sends no certificate"
        )
        assert not [request for request in cluster.requests if request.resource == "configmaps"]


async def test_tolerance(tmp_path: Path, cluster: Cluster, prometheus: Prometheus) -> None:
    cluster.forbid("list", "configmaps")
    flag = "--authentication-tolerate-lookup-failure"
    async with (
        support.running(tmp_path, cluster, prometheus.url, flag) as adapter,
        CertifiedCaller(adapter, tmp_path, AGGREGATOR) as proxy,
    ):
        assert (await adapter.get(LOAD)).status == 200
        assert (await proxy.get(LOAD, CHECK)).status == 0
        cluster.allow("list", "configmaps")
        await adapter.wait_for("/metrics", lambda answer: "fastpath_trust_generation 1.0" in answer.body)
        assert (await proxy.get(LOAD, CHECK)).status == 200


async def test_reviews_by_another_api_server(
    tmp_path: Path, cluster: Cluster, prometheus: Prometheus
) -> None:
    async with Cluster() as other, Cluster() as third:
        other.reviews.token = lambda spec: TokenVerdict(spec["token"] == TOKEN, "else")
        publish(other, config_map(PROXY.pem))
        cluster.delete("ConfigMap", NAME, "kube-system")
        flags = [
            f"--authentication-kubeconfig={other.kubeconfig(tmp_path / 'authentication')}",
            f"--authorization-kubeconfig={third.kubeconfig(tmp_path / 'authorization')}",
        ]
        async with support.running(tmp_path, cluster, prometheus.url, *flags, admitted=False) as adapter:
            cluster.reviews.received.clear()
            assert (await adapter.get(LOAD)).status == 200
        assert {review["kind"] for review in other.reviews.received} == {"TokenReview"}
        assert {review["kind"] for review in third.reviews.received} == {"SubjectAccessReview"}
        assert cluster.reviews.received == []


async def test_cache_times_are_flags(tmp_path: Path, cluster: Cluster, prometheus: Prometheus) -> None:
    flags = [
        "--authentication-token-webhook-cache-ttl=0s",
        "--authorization-webhook-cache-authorized-ttl=0s",
        "--authorization-webhook-cache-unauthorized-ttl=1h",
    ]
    async with support.running(tmp_path, cluster, prometheus.url, *flags) as adapter:
        for _ in range(2):
            cluster.reviews.received.clear()
            assert (await adapter.get(LOAD)).status == 200
            assert [review["kind"] for review in cluster.reviews.received] == [
                "TokenReview",
                "SubjectAccessReview",
            ]
        cluster.reviews.access = lambda _: AccessReviewVerdict(allowed=False)
        assert (await adapter.get(LOAD)).status == 403
        cluster.reviews.access = lambda _: AccessReviewVerdict(allowed=True)
        assert (await adapter.get(LOAD)).status == 403


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        *(
            (f"{use}-kubeconfig", "a kubeconfig file; there is no such file")
            for use in ("authentication", "authorization")
        ),
        ("client-ca-file", "expected a file with PEM certificates: No such file"),
    ],
)
async def test_a_file_that_is_not_there(tmp_path: Path, cluster: Cluster, flag: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"--{flag}: .*{expected}"):
        async with support.running(tmp_path, cluster, "http://127.0.0.1:1", f"--{flag}={tmp_path / 'none'}"):
            pass


@pytest.mark.parametrize("given", ["authentication", "neither"])
async def test_without_an_api_server_it_does_not_start(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Whatever the address: callers are never served without authorization."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    flags = [f"--config={tmp_path / 'rules.yaml'}", f"--cert-dir={tmp_path}", "--bind-address=127.0.0.1"]
    if given == "authentication":
        flags.append(f"--authentication-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}")
    options, _ = SERVE.parse(flags)
    missing = "authorization" if given == "authentication" else "authentication"
    words = (
        f"--{missing}-kubeconfig: expected a kubeconfig file, here or with --lister-kubeconfig, or to run "
        "in a pod"
    )
    with pytest.raises(InputError, match=words):
        await app.run(options, "test", asyncio.Event())


async def test_an_authority_with_an_unknown_key_does_not_end_the_process(
    tmp_path: Path, cluster: Cluster, prometheus: Prometheus
) -> None:
    """Neither at the start nor when it is published later."""
    odd = config_map(PROXY.pem + UNUSUAL, CLIENTS.pem + UNUSUAL, requestheader_allowed_names=[])
    publish(cluster, odd)
    async with support.running(tmp_path, cluster, prometheus.url) as adapter, limited(5):
        unsupported = 'fastpath_faults_active{fault="trust-unsupported"}'
        assert (await adapter.metric_lines(unsupported))[unsupported] == 1
        publish(cluster, config_map(PROXY.pem, CLIENTS.pem))
        await adapter.wait_for("/metrics", lambda answer: f"{unsupported} 0.0" in answer.body)
        publish(cluster, odd)
        await adapter.wait_for("/metrics", lambda answer: f"{unsupported} 1.0" in answer.body)
