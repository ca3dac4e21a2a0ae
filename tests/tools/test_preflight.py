"""`fastpath preflight`: what it asks of a cluster, and of which. What it prints: tests/golden/preflight."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict
from fastpath_sandbox.apiserver.server import Cluster
from tests.support import rendered
from tests.support.verbs import Verb


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb("preflight", cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


async def test_what_is_asked(cluster: Cluster, run: Verb) -> None:
    for each in rendered.compose("scaler", "idle-scale-down").all("Deployment"):
        cluster.create(each)
    await run("--groups=custom.metrics.k8s.io")
    kinds = {(request.method, request.resource) for request in cluster.requests}
    assert {resource for method, resource in kinds if method != "GET"} == {
        "selfsubjectaccessreviews",
        "subjectaccessreviews",
    }
    reviews = (each["spec"] for each in cluster.reviews.received if each["kind"] == "SubjectAccessReview")
    asked: dict[str, Any] = {spec["user"]: spec for spec in reviews}
    assert asked["system:serviceaccount:kube-system:horizontal-pod-autoscaler"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    ]
    attributes = {"verb": "patch", "resource": "pods", "namespace": "fastpath"}
    assert asked["system:serviceaccount:fastpath:fastpath-scaler"]["resourceAttributes"] == attributes


async def test_denied_is_not_allowed(cluster: Cluster, run: Verb) -> None:
    cluster.reviews.access = lambda _: AccessReviewVerdict(allowed=True, denied=True)
    assert "controller may not get" in (await run()).err


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
    assert await run() == (0, "")
