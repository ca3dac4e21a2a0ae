"""What `fastpath preflight` and `fastpath doctor` say where scalers do not share their work."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.kubernetes.ownership import installation_lock
from adapter.kubernetes.ownership.lease_view import LABEL
from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from scripts.generate import crd
from tests.support.doctor import HANDSHAKE, REQUESTS, Doctor, hpa
from tests.support.ownerleases import owner_leases
from tests.support.verbs import Verb

pytestmark = pytest.mark.timeout(20)

SEEN = (
    "Leases of scalers in namespaces fastpath (pods scaler-0), other (pods scaler-1, scaler-2): "
    "they share no slices, and all write the same targets"
)
ADVICE = "keep one installation: scale the Deployment of the other one to zero, or uninstall it; "
UNKNOWN = "is not known: leases.coordination.k8s.io is forbidden"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(deployment("web", "shop", 2))
        yield cluster


@pytest.fixture
def doctor(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


@pytest.fixture
def preflight(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb("preflight", cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


def renew(
    cluster: Cluster, namespace: str, number: int, *, name: str = "fastpath-scaler", ago: float = 0.0
) -> str:
    """Create the Lease of a scaler with what the names of its Leases begin with; return its name."""
    now = time.time()  # noqa: TID251  # the commands compare with the real clock
    spec = {
        "holderIdentity": f"scaler-{number}_{number}",
        "leaseDurationSeconds": 15,
        "renewTime": timestamp(now - ago),
    }
    lease = owner_leases("shop", spec, namespace)[1]
    lease["metadata"] |= {"name": f"{name}-member-{number}", "labels": {LABEL: name}}
    cluster.create(lease)
    return str(lease["metadata"]["name"])


def install_two(cluster: Cluster) -> None:
    renew(cluster, "other", 2)
    renew(cluster, "other", 1)
    renew(cluster, "fastpath", 0)


def hold(cluster: Cluster, holder: str) -> None:
    """Create the Lease of the installation that scales."""
    lease = owner_leases("shop", {"holderIdentity": holder}, installation_lock.NAMESPACE)[1]
    lease["metadata"] |= {"name": installation_lock.NAME, "labels": {}}
    cluster.create(lease)


def own_slice(cluster: Cluster, namespace: str, number: int) -> None:
    """Have a scaler own the slice of the namespace shop."""
    lease = owner_leases("shop", {"holderIdentity": f"scaler-{number}_{number}"}, namespace)[0]
    lease["metadata"]["labels"] = {LABEL: "fastpath-scaler"}
    cluster.create(lease)


BACK = (
    "the installation in namespace fastpath scales; "
    "scalers in namespace other (pods scaler-1, scaler-2) stand back"
)


def fpa(cluster: Cluster, mode: str = "Auto") -> None:
    cluster.create(yaml.safe_load(crd.PATH.read_text()))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    cluster.create(
        {
            "apiVersion": "fastpath.io/v1alpha1",
            "kind": "FastPathAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"scaleTargetRef": reference, "maxReplicas": 8, "mode": mode},
        }
    )


async def test_preflight_names_namespaces_and_pods(cluster: Cluster, preflight: Verb) -> None:
    renew(cluster, "fastpath", 3)
    assert (await preflight())[::2] == (0, "")
    cluster.delete("Lease", "fastpath-scaler-member-3", "fastpath")
    install_two(cluster)
    finished = await preflight()
    assert finished.status == 1
    (line,) = finished.err.splitlines()
    assert line.startswith(f"fastpath preflight: {SEEN}: {ADVICE}")
    assert "a user of a namespace can make such Leases too" in line
    other = await preflight("--namespace=other")
    assert "namespaces other (pods scaler-1, scaler-2), fastpath (pods scaler-0)" in other.err


async def test_preflight_names_the_installation_that_stands_back(cluster: Cluster, preflight: Verb) -> None:
    install_two(cluster)
    own_slice(cluster, "fastpath", 0)
    hold(cluster, "fastpath/fastpath-scaler")
    finished = await preflight()
    assert (finished.status, finished.err) == (0, "")
    assert f"{BACK}\n" in finished.out
    cluster.forbid("list", "leases", "")
    finished = await preflight()
    assert (finished.status, finished.err.count("is not known")) == (0, 1)
    assert f"{BACK}\n" in finished.out, "kube-system is one of the namespaces that may be read"
    cluster.forbid("list", "leases", installation_lock.NAMESPACE)
    finished = await preflight()
    assert finished.status == 1
    assert SEEN in finished.err, "without the Lease both seem to write"


async def test_one_that_owns_slices_does_not_stand_back(cluster: Cluster, preflight: Verb) -> None:
    """As an older version, which does not know of the Lease; the Lease of a slice alone is no scaler."""
    install_two(cluster)
    hold(cluster, "fastpath/fastpath-scaler")
    own_slice(cluster, "other", 9)
    assert (await preflight()).status == 0
    cluster.patch(
        "Lease",
        slices.name_of("fastpath-scaler", slices.slice_of("shop")),
        {"spec": {"holderIdentity": "scaler-2_2"}},
        namespace="other",
    )
    finished = await preflight()
    assert finished.status == 1
    assert SEEN in finished.err
    assert "stand back" not in finished.out


async def test_of_three_two_stand_back(cluster: Cluster, preflight: Verb) -> None:
    install_two(cluster)
    renew(cluster, "fastpath", 7, name="canary")
    hold(cluster, "fastpath/canary")
    finished = await preflight()
    assert finished.status == 0
    assert (
        "the installation in namespace fastpath as canary scales; scalers in namespaces "
        "fastpath (pods scaler-0), other (pods scaler-1, scaler-2) stand back\n"
    ) in finished.out


async def test_doctor_notes_the_installation_that_stands_back(cluster: Cluster, doctor: Doctor) -> None:
    install_two(cluster)
    lead(cluster)
    hold(cluster, "fastpath/fastpath-scaler")
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    finished = await doctor("shop/web", "-o", "json")
    assert "scalers" not in finished.hops()
    assert finished.err == f"fastpath doctor: {BACK}\n"


async def test_scalers_with_leases_of_another_name_do_not_share(cluster: Cluster, preflight: Verb) -> None:
    renew(cluster, "fastpath", 0)
    renew(cluster, "fastpath", 1, name="canary")
    finished = await preflight()
    assert finished.status == 1
    assert "in namespaces fastpath (pods scaler-0), fastpath as canary (pods scaler-1)" in finished.err


@pytest.mark.parametrize(
    ("ago", "holder"),
    [(80.0, "scaler-1_1"), (-80.0, "scaler-1_1"), (0.0, "")],
    ids=["late", "of the future", "released"],
)
async def test_a_lease_that_is_not_renewed_does_not_count(
    cluster: Cluster, preflight: Verb, ago: float, holder: str
) -> None:
    renew(cluster, "fastpath", 0)
    name = renew(cluster, "other", 1, ago=ago)
    cluster.patch("Lease", name, {"spec": {"holderIdentity": holder}}, namespace="other")
    assert (await preflight())[::2] == (0, "")
    live = {"spec": {"holderIdentity": "scaler-1_1", "renewTime": timestamp(time.time())}}  # noqa: TID251  # as above
    cluster.patch("Lease", name, live, namespace="other")
    assert (await preflight()).status == 1


async def test_leases_of_others_do_not_count(cluster: Cluster, preflight: Verb) -> None:
    renew(cluster, "fastpath", 0)
    for name, labels in (
        ("fastpath-scaler-member-1", {}),
        ("fastpath-scaler-slice-00", {LABEL: "fastpath-scaler"}),
        ("another", {LABEL: "fastpath-scaler"}),
    ):
        made = renew(cluster, "other", 9)
        lease = cluster.get("Lease", made, "other")
        cluster.delete("Lease", made, "other")
        cluster.create(
            {
                "apiVersion": lease["apiVersion"],
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "other", "labels": labels},
                "spec": lease["spec"],
            }
        )
    assert (await preflight())[::2] == (0, "")


async def test_what_preflight_may_not_list(cluster: Cluster, preflight: Verb) -> None:
    install_two(cluster)
    cluster.forbid("list", "leases", "")
    assert SEEN in (await preflight()).err, "each of the namespaces may be read"
    cluster.forbid("list", "leases", "other")
    finished = await preflight()
    assert finished.status == 0
    note = f"fastpath preflight: whether two installations scale the same targets {UNKNOWN}"
    assert finished.err.startswith(note)
    cluster.forbid("list", "leases")
    assert (await preflight()).err.startswith(note)


async def test_no_pod_of_a_forged_lease_fills_the_terminal(cluster: Cluster, preflight: Verb) -> None:
    renew(cluster, "fastpath", 0)
    name = renew(cluster, "other", 1)
    hostile = {"spec": {"holderIdentity": "\u202e\x1b[2J" + "a" * 100_000}}
    cluster.patch("Lease", name, hostile, namespace="other")
    said = (await preflight()).err
    assert "\\u202e\\u001b[2Jaaaa" in said
    assert len(said) < 1000
    assert len(said.splitlines()) == 1


def lead(cluster: Cluster) -> None:
    """Have the scaler in the namespace fastpath own the slice of the namespace shop."""
    now = timestamp(time.time())  # noqa: TID251  # as above
    spec = {"holderIdentity": "scaler-0_0", "leaseDurationSeconds": 15, "renewTime": now}
    cluster.create(owner_leases("shop", spec)[0])


@pytest.mark.parametrize("mode", ["boost", "advise", ""])
async def test_doctor_says_it_first_of_a_boosted_hpa(cluster: Cluster, doctor: Doctor, mode: str) -> None:
    """Also before a fault of another hop; without boost no scaler writes the target."""
    install_two(cluster)
    lead(cluster)
    cluster.delete("Deployment", "web", "shop")
    cluster.create(hpa("web", REQUESTS, *([HANDSHAKE] if mode else []), mode=mode))
    finished = await doctor("shop/web", "-o", "json")
    found: dict[str, Any] = json.loads(finished.out)
    assert (finished.status, finished.err) == (1, "")
    assert (found["diagnosis"] == SEEN) is (mode == "boost")
    assert found["change"].startswith(ADVICE) is (mode == "boost")
    assert ("scalers" in finished.hops()) is (mode == "boost")
    assert any("does not exist" in hop["finding"] for hop in found["before"])


@pytest.mark.parametrize("mode", ["Auto", "Advise", "Paused"])
async def test_doctor_says_it_first_of_a_fast_autoscaler(cluster: Cluster, doctor: Doctor, mode: str) -> None:
    install_two(cluster)
    lead(cluster)
    fpa(cluster, mode)
    found = json.loads((await doctor("shop/web", "-o", "json")).out)
    assert (found["diagnosis"] == SEEN) is (mode == "Auto")
    assert found["change"].startswith(ADVICE) is (mode == "Auto")


async def test_what_doctor_may_not_list(cluster: Cluster, doctor: Doctor) -> None:
    renew(cluster, "fastpath", 0)
    lead(cluster)
    cluster.create(hpa("web", REQUESTS, HANDSHAKE, mode="boost"))
    cluster.create(hpa("plain", REQUESTS))
    cluster.forbid("list", "leases", "")
    finished = await doctor("shop/web", "-o", "json")
    assert "scalers" not in finished.hops()
    assert finished.err.startswith(
        f"fastpath doctor: whether a second installation scales the same targets {UNKNOWN}"
    )
    assert finished.err.count("\n") == 1
    assert (await doctor("shop/plain", "-o", "json")).err == "", "no scaler writes its target"
    renew(cluster, "shop", 1)
    seen = await doctor("shop/web", "-o", "json")
    assert "fastpath (pods scaler-0), shop (pods scaler-1)" in json.loads(seen.out)["diagnosis"]
