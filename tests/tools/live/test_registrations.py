"""Whose an APIService is, and what is said of it."""

from pathlib import Path
from typing import Any

import pytest

from adapter.model.objects.apiservices import Registration, ServiceReference, Trust
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools.live import cluster_options, registrations
from fastpath_tools.live.cluster_options import KubeconfigOptions
from fastpath_tools.live.registrations import Owner
from tests.support.answers import answers

OURS = ServiceReference("fastpath", "fastpath")


def _found(service: ServiceReference, **more: Any) -> Registration:
    return Registration(service, Trust.BUNDLE, "True", "Passed")._replace(**more)


def test_absent_is_free() -> None:
    finding = registrations.judge("v1beta1.custom.metrics.k8s.io", None, OURS)
    assert (finding.owner, finding.state, finding.advice) == (Owner.FREE, "free", "")


def test_ours_that_works_needs_nothing() -> None:
    finding = registrations.judge("v1beta1.custom.metrics.k8s.io", _found(OURS), OURS)
    assert (finding.owner, finding.advice) == (Owner.OURS, "")


def test_ours_is_ours_whatever_its_state() -> None:
    found = _found(OURS, available="False", reason="FailedDiscoveryCheck", trust=Trust.SYSTEM)
    finding = registrations.judge("v1beta1.custom.metrics.k8s.io", found, OURS)
    assert finding.owner is Owner.OURS
    assert finding.state == (
        "ours (Service fastpath/fastpath:443, not available (FailedDiscoveryCheck), certificate checked with "
        "the API server's system roots (no caBundle))"
    )


@pytest.mark.parametrize(
    "service",
    [ServiceReference("fastpath", "other"), ServiceReference("other", "fastpath")],
    ids=["another Service of our namespace", "our Service's name elsewhere"],
)
def test_ours_is_namespace_and_name_together(service: ServiceReference) -> None:
    assert registrations.judge("v1beta1.custom.metrics.k8s.io", _found(service), OURS).owner is Owner.FOREIGN


@pytest.mark.parametrize(("service", "labels", "owner"), answers("tools/registrations", "who it is"))
def test_who_it_is(service: str, labels: dict[str, str], owner: str) -> None:
    namespace, _, name = service.partition("/")
    found = _found(ServiceReference(namespace, name), labels=labels, trust=Trust.NONE, release="m/pa")
    finding = registrations.judge("v1beta1.external.metrics.k8s.io", found, OURS)
    assert finding.owner is Owner.FOREIGN
    assert finding.state == (
        f"{owner} (Service {service}:443, available, certificate not checked (insecureSkipTLSVerify), Helm "
        "release m/pa)"
    )
    assert owner in finding.advice


@pytest.mark.parametrize(("name", "words"), answers("tools/registrations", "what to do"))
def test_what_to_do_depends_on_the_group(name: str, words: str) -> None:
    finding = registrations.judge(name, _found(ServiceReference("a", "b")), OURS)
    assert words in finding.advice
    assert f"no {name.partition('.')[2]} in --groups" in finding.advice


@pytest.mark.parametrize(("service", "words"), answers("tools/registrations", "switched over"))
def test_external_metrics_of_prometheus_adapter_are_switched_over(service: str, words: str) -> None:
    finding = registrations.judge(
        "v1beta1.external.metrics.k8s.io", _found(ServiceReference("m", service)), OURS
    )
    assert finding.advice.startswith(words)


@pytest.mark.parametrize("reason", ["ServiceNotFound", "EndpointsNotFound", "MissingEndpoints"])
def test_one_that_nobody_serves_may_be_deleted(reason: str) -> None:
    found = _found(ServiceReference("a", "b"), available="False", reason=reason)
    finding = registrations.judge("v1beta1.metrics.k8s.io", found, OURS)
    assert finding.owner is Owner.FOREIGN
    assert finding.advice.endswith("kubectl delete apiservice v1beta1.metrics.k8s.io")


def test_one_without_a_condition_says_so_and_is_not_given_away() -> None:
    finding = registrations.judge(
        "v1beta1.metrics.k8s.io",
        Registration(ServiceReference("a", "b"), Trust.BUNDLE, reason="MissingEndpoints"),
        OURS,
    )
    assert "delete" in finding.advice
    finding = registrations.judge(
        "v1beta1.metrics.k8s.io", Registration(ServiceReference("a", "b"), Trust.BUNDLE), OURS
    )
    assert "not available (no condition Available yet)" in finding.state
    assert "delete" not in finding.advice


def test_a_local_one_is_foreign() -> None:
    finding = registrations.judge(
        "v1beta1.metrics.k8s.io", Registration(None, Trust.SYSTEM, "True", "Local"), OURS
    )
    assert finding.owner is Owner.FOREIGN
    assert finding.state == "served by the API server itself, from a CustomResourceDefinition"
    assert "CustomResourceDefinitions of its group" in finding.advice


METRICS_SERVER = ServiceReference("kube-system", "metrics-server")


@pytest.mark.parametrize(
    ("stable", "beta"),
    [
        pytest.param(None, None, id="neither"),
        pytest.param(None, _found(METRICS_SERVER), id="v1beta1 alone"),
        pytest.param(_found(OURS), _found(OURS, available="False"), id="both ours"),
        pytest.param(_found(METRICS_SERVER), _found(METRICS_SERVER), id="both another server's"),
    ],
)
def test_resource_metrics_of_one_server_need_no_words(
    stable: Registration | None, beta: Registration | None
) -> None:
    assert registrations.describe_resource_versions(stable, beta, OURS) == ""


@pytest.mark.parametrize(
    ("stable", "beta", "first"),
    [
        pytest.param(200, 100, "v1", id="v1 has the priority"),
        pytest.param(100, 100, "v1", id="equal priorities"),
        pytest.param(100, 200, "v1beta1", id="v1beta1 has the priority"),
    ],
)
def test_resource_metrics_of_two_servers_and_who_reads_which(stable: int, beta: int, first: str) -> None:
    said = registrations.describe_resource_versions(
        _found(OURS, priority=stable), _found(METRICS_SERVER, priority=beta), OURS
    )
    assert said == (
        "metrics.k8s.io has two servers: v1 belongs to Fastpath (fastpath/fastpath), v1beta1 to "
        "metrics-server (kube-system/metrics-server). "
        f"kubectl top reads {first} from 1.37 on, and v1beta1 before; "
        "the HPA controller reads v1beta1 up to Kubernetes 1.37. Register both versions to one server"
    )


def test_two_servers_may_both_be_others() -> None:
    local = Registration(None, Trust.SYSTEM, "True", "Local")
    said = registrations.describe_resource_versions(local, _found(ServiceReference("a", "b")), OURS)
    assert "v1 belongs to the API server itself, v1beta1 to an unknown server (a/b)." in said


def test_v1_alone_is_not_enough_for_the_controller() -> None:
    said = registrations.describe_resource_versions(_found(OURS), None, OURS)
    assert said == (
        "only v1 of metrics.k8s.io is registered, to Fastpath (fastpath/fastpath): the HPA controller up to "
        "Kubernetes 1.37 and kubectl top up to 1.36 read v1beta1 and find no CPU and memory. "
        "Register v1beta1 too"
    )


@pytest.mark.parametrize(
    ("registration", "why"),
    [
        (Registration(None, Trust.BUNDLE), ""),
        (Registration(ServiceReference("fastpath", "fastpath"), Trust.BUNDLE, "True"), ""),
        (
            Registration(
                ServiceReference("fastpath", "fastpath"),
                Trust.BUNDLE,
                "False",
                message="Get https://10.0: x509: certificate has expired: current time 2026 is after 25",
            ),
            "x509: certificate has expired",
        ),
        (Registration(ServiceReference("fastpath", "fastpath"), Trust.BUNDLE), "no condition Available yet"),
    ],
    ids=["local", "available", "expired", "new"],
)
def test_why_the_api_server_does_not_reach_one(registration: Registration, why: str) -> None:
    assert registrations.why_unavailable(registration) == why


async def test_its_own_labels_win_over_its_services(tmp_path: Path) -> None:
    name, owner = "v1beta1.custom.metrics.k8s.io", {"namespace": "a", "name": "b"}
    labels = {"app": "service", "k8s-app": "service"}
    async with Cluster() as cluster:
        cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": {**owner, "labels": labels}})
        cluster.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name, "labels": {"app": "own"}},
                "spec": {"service": owner},
            }
        )
        options = KubeconfigOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        async with cluster_options.connect(options) as client:
            found = await registrations.fetch(client, name)
    assert found is not None
    assert found.labels == {"app": "own", "k8s-app": "service"}
