"""`fastpath preflight` against the sandbox cluster, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict
from fastpath_sandbox.apiserver.server import Cluster
from tests.support import rendered
from tests.support.rendered import JSON, Objects
from tests.support.verbs import Finished, Verb

HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
UNKNOWN = (
    "fastpath preflight: whether the HPA controller may get * of custom.metrics.k8s.io is unknown: "
    "you may not create SubjectAccessReviews"
)
READ = "the HPA controller may get * of custom.metrics.k8s.io\n"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb("preflight", cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


def _register(
    cluster: Cluster,
    name: str,
    namespace: str,
    service: str,
    *,
    available: str = "True",
    reason: str = "Passed",
    message: str = "",
    **spec: Any,
) -> None:
    version, _, group = name.partition(".")
    cluster.create(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"namespace": namespace, "name": service, "port": 443},
                **spec,
            },
            "status": {
                "conditions": [
                    {"type": "Available", "status": available, "reason": reason, "message": message}
                ]
            },
        }
    )


async def test_a_free_cluster(run: Verb) -> None:
    custom = "v1beta1.custom.metrics.k8s.io    free\nv1beta2.custom.metrics.k8s.io    free\n"
    others = "v1beta1.external.metrics.k8s.io  free\nv1beta1.metrics.k8s.io           free\n"
    stable = "v1.metrics.k8s.io                free\n"
    assert await run() == Finished(0, f"{custom}{others}{stable}{READ}", "")


async def test_one_json_document(cluster: Cluster, run: Verb) -> None:
    free = json.loads((await run("-o", "json")).out)
    assert [service["owner"] for service in free["apiServices"]] == ["free"] * 5
    assert (free["rights"], free["problems"]) == ([READ.strip()], [])
    _register(cluster, "v1beta2.custom.metrics.k8s.io", "monitoring", "prometheus-adapter")
    finished = await run("--output=json")
    document = json.loads(finished.out)
    assert finished.status == 1
    service = document["apiServices"][1]
    assert (service["name"], service["owner"]) == ("v1beta2.custom.metrics.k8s.io", "foreign")
    assert service["state"].startswith("prometheus-adapter (Service monitoring/prometheus-adapter:443, ")
    assert document["problems"] == [f"{service['name']} belongs to {service['state']}: {service['advice']}"]
    assert finished.err == f"fastpath preflight: {document['problems'][0]}\n"


@pytest.mark.parametrize("condition", [{}, {"type": "Available"}, {"type": "Available", "status": "Mars"}])
async def test_a_condition_with_an_unknown_status(
    cluster: Cluster, run: Verb, condition: dict[str, str]
) -> None:
    _register(cluster, "v1beta1.custom.metrics.k8s.io", "fastpath", "fastpath")
    status = {"status": {"conditions": [condition]}}
    cluster.patch("APIService", "v1beta1.custom.metrics.k8s.io", status)
    finished = await run()
    assert (finished.status, "ours (" in finished.out) == (0, True), finished


async def test_our_own(cluster: Cluster, run: Verb) -> None:
    for each in rendered.read_base().all("APIService"):
        cluster.create({**each, "spec": {**each["spec"], "caBundle": "Y2E="}})
    finished = await run()
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.splitlines()[0] == (
        "v1beta1.custom.metrics.k8s.io    ours (Service fastpath/fastpath:443, "
        "not available (no condition Available yet), certificate checked with caBundle)"
    )


async def test_our_own_that_cannot_be_reached(cluster: Cluster, run: Verb) -> None:
    _register(
        cluster,
        "v1beta1.custom.metrics.k8s.io",
        "fastpath",
        "fastpath",
        available="False",
        reason="FailedDiscoveryCheck",
        message="failing or missing response from https://10.0.0.1:6443: connection refused",
    )
    finished = await run()
    assert finished.status == 1
    assert "not available (FailedDiscoveryCheck)" in finished.out
    assert finished.err == (
        "fastpath preflight: v1beta1.custom.metrics.k8s.io is not available: the API server says: failing or "
        "missing response from https://10.0.0.1:6443: connection refused: look at the pods first, with "
        "kubectl -n fastpath get pods\n"
    )


async def test_a_server_that_is_not_known_may_be_fastpath(cluster: Cluster, run: Verb) -> None:
    _register(cluster, "v1beta1.custom.metrics.k8s.io", "metrics", "adapter")
    hint = "if that is Fastpath, give --namespace=metrics --service=adapter; else run both side by side"
    assert hint in (await run()).err
    _register(cluster, "v1beta2.custom.metrics.k8s.io", "monitoring", "prometheus-adapter")
    (line,) = [line for line in (await run()).err.splitlines() if "v1beta2.custom" in line]
    assert "--service" not in line


EXPIRED = "x509: certificate has expired or is not yet valid"


async def test_a_certificate_that_has_expired_is_one_line(cluster: Cluster, run: Verb) -> None:
    names = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io", "v1beta1.metrics.k8s.io")
    for second, name in enumerate(names):
        version, _, group = name.partition(".")
        url = f"https://10.0.0.1:443/apis/{group}/{version}"
        times = f"current time 2026-11-29T11:28:0{second}Z is after 2026-11-28T00:00:00Z"
        message = f'failing or missing response from {url}: Get "{url}": tls: failed to verify certificate: '
        _register(
            cluster,
            name,
            "fastpath",
            "fastpath",
            available="False",
            reason="FailedDiscoveryCheck",
            message=f"{message}{EXPIRED}: {times}",
        )
    finished = await run()
    assert finished.status == 1
    (unavailable,) = [line for line in finished.err.splitlines() if "not available" in line]
    assert unavailable == (
        f"fastpath preflight: {', '.join(names)} are not available: the API server says: {EXPIRED}: "
        "renew the certificate: docs/guides/deploy.md#certificates"
    )


async def test_ours_is_named_by_the_flags(cluster: Cluster, run: Verb) -> None:
    _register(cluster, "v1beta1.custom.metrics.k8s.io", "metrics", "adapter")
    assert (await run()).status == 1
    assert (await run("--namespace=metrics", "--service=adapter")).status == 0


async def test_a_foreign_one_is_named_and_refused(cluster: Cluster, run: Verb) -> None:
    _register(
        cluster,
        "v1beta1.custom.metrics.k8s.io",
        "monitoring",
        "prometheus-adapter",
        insecureSkipTLSVerify=True,
    )
    facts = (
        "prometheus-adapter (Service monitoring/prometheus-adapter:443, available, certificate not checked "
        "(insecureSkipTLSVerify))"
    )
    finished = await run()
    assert finished.status == 1
    assert finished.out.splitlines()[:2] == [
        f"v1beta1.custom.metrics.k8s.io    {facts}",
        "v1beta2.custom.metrics.k8s.io    free",
    ]
    assert finished.err == (
        f"fastpath preflight: v1beta1.custom.metrics.k8s.io belongs to {facts}: run both side by side "
        "and switch over as "
        "docs/guides/migrate-from-prometheus-adapter.md says; or leave it out: no custom.metrics.k8s.io in "
        "--groups and no component for it\n"
    )


async def test_each_foreign_one_has_its_line(cluster: Cluster, run: Verb) -> None:
    _register(
        cluster, "v1beta1.external.metrics.k8s.io", "keda", "keda-operator-metrics-apiserver", caBundle="Y2E="
    )
    _register(cluster, "v1beta1.metrics.k8s.io", "kube-system", "metrics-server", insecureSkipTLSVerify=True)
    finished = await run("--groups=custom.metrics.k8s.io,external.metrics.k8s.io,metrics.k8s.io")
    assert finished.status == 1
    lines = finished.err.splitlines()
    assert len(lines) == 2
    assert "v1beta1.external.metrics.k8s.io belongs to KEDA (" in lines[0]
    assert "certificate checked with caBundle" in lines[0]
    assert "v1beta1.metrics.k8s.io belongs to metrics-server (" in lines[1]


async def test_half_a_migration_of_resource_metrics(cluster: Cluster, run: Verb) -> None:
    """Each version has its owner's line, and a warning says which client reads which."""
    _register(cluster, "v1beta1.metrics.k8s.io", "kube-system", "metrics-server")
    _register(cluster, "v1.metrics.k8s.io", "fastpath", "fastpath", versionPriority=200)
    finished = await run()
    assert finished.status == 1
    shown = dict(line.split(maxsplit=1) for line in finished.out.splitlines() if line.startswith("v1"))
    assert shown["v1beta1.metrics.k8s.io"].startswith("metrics-server (")
    assert shown["v1.metrics.k8s.io"].startswith("ours (")
    belongs, warning = finished.err.splitlines()
    assert belongs.startswith("fastpath preflight: v1beta1.metrics.k8s.io belongs to metrics-server (")
    assert warning.startswith("fastpath preflight: metrics.k8s.io has two servers: v1 belongs to Fastpath")
    assert "kubectl top reads v1 from 1.37 on" in warning

    cluster.delete("APIService", "v1beta1.metrics.k8s.io")
    finished = await run()
    assert finished.status == 0
    assert finished.err.startswith("fastpath preflight: only v1 of metrics.k8s.io is registered, to Fastpath")
    _register(cluster, "v1beta1.metrics.k8s.io", "fastpath", "fastpath")
    assert (await run())[::2] == (0, "")


async def test_a_group_that_is_not_wanted_is_shown_and_does_not_count(cluster: Cluster, run: Verb) -> None:
    _register(cluster, "v1beta1.metrics.k8s.io", "kube-system", "metrics-server")
    finished = await run()
    assert (finished.status, finished.err) == (0, "")
    assert "v1beta1.metrics.k8s.io           metrics-server (" in finished.out
    assert "metrics.k8s.io" not in (await run("--groups=custom.metrics.k8s.io")).out.replace(
        "custom.metrics.k8s.io", ""
    )


async def test_every_group_that_is_registered_to_us_counts(cluster: Cluster, run: Verb) -> None:
    """After a component is applied its group is judged without a flag."""
    for name in ("v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"):
        _register(cluster, name, "fastpath", "fastpath")
    finished = await run()
    assert (finished.status, finished.err) == (0, "")
    assert "v1beta1.external.metrics.k8s.io  ours (" in finished.out
    assert "the HPA controller may list * of external.metrics.k8s.io\n" in finished.out
    cluster.reviews.access = lambda spec: AccessReviewVerdict(spec.get("user") != HPA)
    assert "may not list * of external.metrics.k8s.io: kubectl create" in (await run()).err


async def test_the_labels_of_the_service_and_the_helm_release_tell_more(cluster: Cluster, run: Verb) -> None:
    _register(cluster, "v1beta1.custom.metrics.k8s.io", "monitoring", "scaling")
    annotations = {"meta.helm.sh/release-name": "pa", "meta.helm.sh/release-namespace": "monitoring"}
    cluster.patch("APIService", "v1beta1.custom.metrics.k8s.io", {"metadata": {"annotations": annotations}})
    assert "belongs to an unknown server (" in (await run()).err
    labels = {"app.kubernetes.io/name": "prometheus-adapter"}
    metadata = {"name": "scaling", "namespace": "monitoring", "labels": labels}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    said = (await run()).err
    assert "belongs to prometheus-adapter (" in said
    assert "Helm release monitoring/pa)" in said


async def test_a_leftover_may_be_deleted(cluster: Cluster, run: Verb) -> None:
    name = "v1beta1.custom.metrics.k8s.io"
    _register(cluster, name, "gone", "gone", available="False", reason="ServiceNotFound")
    finished = await run()
    assert finished.status == 1
    assert finished.err.endswith(f"kubectl delete apiservice {name}\n")


async def test_a_controller_without_rights_learns_how_to_get_them(cluster: Cluster, run: Verb) -> None:
    def verdict(spec: dict[str, Any]) -> AccessReviewVerdict:
        return AccessReviewVerdict(spec.get("user") != HPA)

    cluster.reviews.access = verdict
    finished = await run("--groups=custom.metrics.k8s.io,external.metrics.k8s.io,metrics.k8s.io")
    assert finished.status == 0
    lines = finished.err.splitlines()
    assert lines[0] == (
        "fastpath preflight: the HPA controller may not get * of custom.metrics.k8s.io: kubectl create "
        "clusterrolebinding "
        "fastpath-custom-metrics-reader-hpa --clusterrole=fastpath-custom-metrics-reader "
        "--serviceaccount=kube-system:horizontal-pod-autoscaler"
    )
    assert [line.partition("may not ")[2].partition(":")[0] for line in lines[1:]] == [
        "list * of external.metrics.k8s.io",
        "list pods of metrics.k8s.io",
    ]
    asked = [review["spec"] for review in cluster.reviews.received if review["kind"] == "SubjectAccessReview"]
    assert asked[0]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    ]


async def test_denied_is_not_allowed(cluster: Cluster, run: Verb) -> None:
    cluster.reviews.access = lambda _: AccessReviewVerdict(allowed=True, denied=True)
    assert "controller may not get" in (await run()).err


async def test_what_one_may_not_ask_is_said(cluster: Cluster, run: Verb) -> None:
    cluster.forbid("create", "subjectaccessreviews")
    cluster.reviews.access = lambda _: AccessReviewVerdict(allowed=False)
    finished = await run("--groups=custom.metrics.k8s.io,metrics.k8s.io")
    assert finished.status == 0
    assert finished.err.splitlines() == [
        (
            "fastpath preflight: you may not create APIServices: the user who applies the manifests must be "
            "allowed to"
        ),
        (
            "fastpath preflight: you may not patch APIServices: the user who applies the manifests must be "
            "allowed to"
        ),
        UNKNOWN,
    ]


async def test_nothing_is_changed(cluster: Cluster, run: Verb) -> None:
    _register(cluster, "v1beta1.custom.metrics.k8s.io", "monitoring", "prometheus-adapter")
    await run()
    asked = {(request.method, request.resource) for request in cluster.requests}
    assert asked == {
        ("GET", "apiservices"),
        ("GET", "deployments"),
        ("GET", "leases"),
        ("GET", "services"),
        ("POST", "selfsubjectaccessreviews"),
        ("POST", "subjectaccessreviews"),
    }


async def test_a_cluster_that_refuses_is_one_line_and_status_1(cluster: Cluster, run: Verb) -> None:
    cluster.forbid("get", "apiservices.apiregistration.k8s.io")
    finished = await run()
    assert (finished.status, finished.out) == (1, "")
    assert finished.err.startswith(
        "fastpath preflight: cannot get /apis/apiregistration.k8s.io/v1/apiservices/v1beta1."
    )
    assert "403 Forbidden" in finished.err
    assert finished.err.count("\n") == 1


async def test_kubeconfigs_are_found_as_kubectl_finds_them(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def run() -> tuple[int, str]:
        status = await asyncio.to_thread(main.main, ["preflight"])
        return status, capsys.readouterr().err

    status, said = await run()
    assert status == 2
    assert "--kubeconfig: expected a kubeconfig file: set KUBECONFIG or --kubeconfig, or run in a pod" in said
    (tmp_path / ".kube").mkdir()
    cluster.kubeconfig(tmp_path / ".kube" / "config")
    assert await run() == (0, "")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    status, said = await run()
    assert status == 2
    assert "absent: expected a kubeconfig file; there is no such file" in said
    cluster.kubeconfig(tmp_path / "given")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "given"))
    assert await run() == (0, "")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'given'}:{tmp_path / 'absent'}")
    assert await run() == (
        2,
        "fastpath preflight: $KUBECONFIG: names several files: expected one, or --kubeconfig\n",
    )


# -- a scaler that may patch pods ----------------------------------------------------------------------------

IDLE = "fastpath-idle-scale-down"
ACCOUNT = "ServiceAccount fastpath/fastpath-scaler"
UNLIMITED = f"fastpath preflight: {ACCOUNT} may patch pods, and so change their images: "
REMEDY = ": apply the component idle-scale-down again, or take the right away\n"
ADMISSION = ("admissionregistration.k8s.io", "v1")


@pytest.fixture
def scaler(cluster: Cluster) -> Objects:
    """Install the Deployments of the scaler's overlay; return the objects of its component."""
    objects = rendered.compose("scaler", "idle-scale-down")
    for each in objects.all("Deployment"):
        cluster.create(each)
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        kind = "ValidatingAdmissionPolicy" + ("Binding" if plural.endswith("bindings") else "")
        cluster.add_kind(Kind(*ADMISSION, plural, kind, namespaced=False))
    return objects


async def _preflight(cluster: Cluster, run: Verb, *documents: JSON) -> Finished:
    for document in documents:
        cluster.create(document)
    return await run("--groups=custom.metrics.k8s.io")


async def test_a_scaler_without_the_component_may_not_patch_pods(
    cluster: Cluster, run: Verb, scaler: Objects
) -> None:
    cluster.reviews.access = lambda spec: AccessReviewVerdict("fastpath-scaler" not in spec.get("user", ""))
    finished = await _preflight(cluster, run)
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.endswith(f"{ACCOUNT} may not patch pods\n")
    asked = [review["spec"] for review in cluster.reviews.received if "fastpath-scaler" in str(review)]
    assert asked == [
        {
            "user": "system:serviceaccount:fastpath:fastpath-scaler",
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:fastpath",
                "system:authenticated",
            ],
            "resourceAttributes": {
                "verb": "patch",
                "group": "",
                "resource": "pods",
                "namespace": "fastpath",
            },
        }
    ]


async def test_a_scaler_that_the_policy_limits(cluster: Cluster, run: Verb, scaler: Objects) -> None:
    policy, binding = (scaler.one(f"ValidatingAdmissionPolicy{end}") for end in ("", "Binding"))
    finished = await _preflight(cluster, run, policy, binding)
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.endswith(f"{ACCOUNT} may change the deletion cost of pods alone\n")


@pytest.mark.parametrize("bound", [False, True])
async def test_a_scaler_that_nothing_limits_is_refused(
    cluster: Cluster, run: Verb, scaler: Objects, *, bound: bool
) -> None:
    kind, reason = "ValidatingAdmissionPolicy", f"ValidatingAdmissionPolicy {IDLE} has no binding"
    if bound:
        kind, reason = f"{kind}Binding", f"no {kind} of idle-scale-down is for this account"
    finished = await _preflight(cluster, run, scaler.one(kind))
    assert (finished.status, finished.err) == (1, f"{UNLIMITED}{reason}{REMEDY}")


async def test_policies_that_may_not_be_read_do_not_count(
    cluster: Cluster, run: Verb, scaler: Objects
) -> None:
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        cluster.create(scaler.one(kind))
    cluster.forbid("list", "validatingadmissionpolicybindings")
    finished = await _preflight(cluster, run)
    assert finished.status == 1
    assert f"{UNLIMITED}whether a ValidatingAdmissionPolicy limits that is not known: " in finished.err


async def test_an_older_kubernetes_has_no_policies(cluster: Cluster, run: Verb) -> None:
    for each in rendered.compose("scaler").all("Deployment"):
        cluster.create(each)
    finished = await _preflight(cluster, run)
    assert finished.status == 1
    reason = "the cluster has no ValidatingAdmissionPolicies, which Kubernetes has since 1.30"
    assert finished.err == f"{UNLIMITED}{reason}{REMEDY}"


async def test_rights_that_may_not_be_asked_for_are_unknown(
    cluster: Cluster, run: Verb, scaler: Objects
) -> None:
    cluster.forbid("create", "subjectaccessreviews")
    finished = await _preflight(cluster, run)
    assert finished.status == 0
    unknown = f"whether {ACCOUNT} may patch pods is unknown: you may not create SubjectAccessReviews"
    assert finished.err.splitlines()[-1] == f"fastpath preflight: {unknown}"
    cluster.forbid("list", "deployments")
    finished = await _preflight(cluster, run)
    assert finished.status == 0
    unknown = "whether a scaler of fastpath may patch pods is unknown: "
    assert f"fastpath preflight: {unknown}" in finished.err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["preflight", "--help"]) == 0
    assert "--kubeconfig" in capsys.readouterr().out
