"""What `fastpath doctor` reads for idle scale-down: the right to patch pods, their labels, other writers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.compose.clock import SystemClock
from adapter.kubernetes.write.deletion_costs import MANAGER
from adapter.model.objects.apiservices import ServiceReference
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_tools.live import cluster_options, targets
from fastpath_tools.live.api_objects import PodDocument
from fastpath_tools.live.cluster import LiveCluster
from fastpath_tools.live.cluster_options import KubeconfigOptions
from fastpath_tools.live.facts import PatchRight, Unread

pytestmark = pytest.mark.timeout(20)

USER = "system:serviceaccount:fastpath:fastpath-scaler"
COST = "controller.kubernetes.io/pod-deletion-cost"


def scaler(name: str = "fastpath-scaler", account: str = "fastpath-scaler") -> dict[str, Any]:
    container = {"name": "fastpath", "command": ["fastpath", "scale"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "fastpath"},
        "spec": {"template": {"spec": {"serviceAccountName": account, "containers": [container]}}},
    }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(deployment("web", "shop", 2))
        workloads = Workloads(cluster, startup=1.0)
        workloads.step(EPOCH)
        workloads.step(EPOCH + 1)
        yield cluster


@pytest.fixture
async def live(cluster: Cluster, tmp_path: Path) -> AsyncIterator[LiveCluster]:
    options = KubeconfigOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "kubeconfig")))
    async with cluster_options.connect(options) as client:
        service = ServiceReference("fastpath", "fastpath")
        yield LiveCluster(client, SystemClock(), service, "fastpath-scaler")


def forbid_patches(cluster: Cluster) -> None:
    cluster.reviews.access = lambda spec: AccessReviewVerdict(spec.get("user") != USER)


async def test_the_right_is_asked_for_in_the_namespace_of_the_target(
    cluster: Cluster, live: LiveCluster
) -> None:
    cluster.create(scaler())
    assert await live.patch_right("shop") == PatchRight("fastpath/fastpath-scaler", True, (1, 36))
    (review,) = [each["spec"] for each in cluster.reviews.received]
    assert (review["user"], review["resourceAttributes"]["namespace"]) == (USER, "shop")
    forbid_patches(cluster)
    assert await live.patch_right("other") == PatchRight("fastpath/fastpath-scaler", False, (1, 36))


async def test_of_several_scalers_one_without_the_right_counts(cluster: Cluster, live: LiveCluster) -> None:
    for name in ("a", "fastpath-scaler", "z"):
        cluster.create(scaler(name, name))
    forbid_patches(cluster)
    assert await live.patch_right("shop") == PatchRight("fastpath/fastpath-scaler", False, (1, 36))


async def test_a_right_that_cannot_be_read_is_unread(cluster: Cluster, live: LiveCluster) -> None:
    hint = "no Deployment of namespace fastpath runs a scaler; --namespace names another one"
    assert await live.patch_right("a") == Unread(hint)
    cluster.create(scaler())
    cluster.forbid("create", "subjectaccessreviews")
    assert await live.patch_right("b") == Unread("you may not create SubjectAccessReviews")
    cluster.forbid("list", "deployments")
    unread = await live.patch_right("c")
    assert isinstance(unread, Unread)
    assert "deployments" in unread.why


@pytest.mark.parametrize("version", ["not a version", ""])
async def test_a_version_that_is_none_is_unknown(
    cluster: Cluster, live: LiveCluster, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(scaler())
    monkeypatch.setattr("fastpath_sandbox.apiserver.server.VERSION", {"gitVersion": version})
    assert await live.patch_right("shop") == PatchRight("fastpath/fastpath-scaler", True, None)


async def test_a_version_that_may_not_be_read_is_unknown(cluster: Cluster, live: LiveCluster) -> None:
    cluster.create(scaler())
    cluster.faults.forbidden_paths.add("/version")
    assert await live.patch_right("shop") == PatchRight("fastpath/fastpath-scaler", True, None)


def pod(name: str, *managers: tuple[str, Any]) -> PodDocument:
    entries = [
        {"manager": manager, "fieldsType": "FieldsV1", "fieldsV1": fields} for manager, fields in managers
    ]
    return msgspec.convert({"metadata": {"name": name, "managedFields": entries}}, PodDocument)


def annotated(name: str) -> dict[str, Any]:
    return {"f:metadata": {"f:annotations": {".": {}, f"f:{name}": {}}}}


def test_writers_are_the_field_managers_of_the_cost() -> None:
    pods = [
        pod("a", ("kube-controller-manager", {"f:metadata": {"f:labels": {}}}), (MANAGER, annotated(COST))),
        pod("b", ("karpenter", annotated(COST)), ("kubectl", annotated("team"))),
        pod("c", ("karpenter", annotated(COST)), ("kubectl", annotated(COST))),
        pod("d", ("odd", None), ("odd", {"f:metadata": []}), ("odd", {"f:spec": {}})),
    ]
    assert targets.find_cost_writers(pods) == (("karpenter", "b"), ("kubectl", "c"))
    assert targets.find_cost_writers([msgspec.convert({"metadata": {"name": "e"}}, PodDocument)]) == ()
