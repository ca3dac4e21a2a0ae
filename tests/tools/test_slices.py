"""`fastpath slices` against the sandbox cluster."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.doctor import CPU, hpa
from tests.support.verbs import Verb


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb("slices", cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


def lease(cluster: Cluster, name: str, holder: str, ago: float = 0.0) -> None:
    at = timestamp(time.time() - ago)  # noqa: TID251 - the command compares with the real clock
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at, "acquireTime": at}
    metadata = {"name": f"fastpath-scaler-{name}", "namespace": "fastpath"}
    cluster.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    )


async def test_each_scaler_has_a_line(cluster: Cluster, run: Verb) -> None:
    lease(cluster, "member-1", "scaler-a_1")
    lease(cluster, "member-2", "scaler-b_2", ago=3600)
    lease(cluster, "member-3", "")
    for number in range(slices.COUNT):
        lease(cluster, f"slice-{number:02d}", "scaler-a_1" if number % 2 else "scaler-b_2", ago=7200)
    cluster.create(hpa("web", CPU, mode="boost") | {"apiVersion": "autoscaling/v2"})
    cluster.create(hpa("plain", CPU))
    done = await run()
    assert (done.status, done.err) == (0, "")
    head, *lines = (line.split() for line in done.out.splitlines())
    assert head == ["SCALER", "SLICES", "AUTOSCALERS", "LAST", "CHANGE", "RENEWED"]
    of_shop = ["1", "0"] if slices.slice_of("shop") % 2 else ["0", "1"]
    assert [line[:3] for line in lines] == [
        ["scaler-a", "32", of_shop[0]],
        ["scaler-b", "32", of_shop[1]],
    ]
    assert ["(late)" in line for line in lines] == [False, True]


async def test_a_slice_without_an_owner_is_a_failure(cluster: Cluster, run: Verb) -> None:
    lease(cluster, "member-1", "scaler-a_1")
    for number in range(slices.COUNT):
        if number != 7:
            lease(cluster, f"slice-{number:02d}", "scaler-gone_9" if number == 9 else "scaler-a_1")
    done = await run()
    assert done.status == 1
    assert done.out.splitlines()[-2:] == [
        "without an owner: 07, 09 (0 autoscalers)",
        "held by scaler-gone_9, which is no scaler: 09",
    ]
    lease(cluster, "member-9", "")
    last = (await run()).out.splitlines()[-1]
    assert last == "held by scaler-gone_9, left by a scaler that is gone; taken within 15 s: 09"

    document: dict[str, Any] = json.loads((await run("-o", "json")).out)
    assert [scaler["pod"] for scaler in document["scalers"]] == ["scaler-a"]
    assert document["slices"][7] == {
        "number": 7,
        "owner": "",
        "seconds": None,
        "autoscalers": 0,
        "holder": "",
    }
    assert document["slices"][8]["owner"] == "scaler-a"
    assert document["slices"][9]["holder"] == "scaler-gone_9"


async def test_a_container_that_starts_again_counts_its_own_slices(cluster: Cluster, run: Verb) -> None:
    """It is another scaler in the same Pod, until the Lease of the former one has expired."""
    lease(cluster, "member-1", "scaler-a_1")
    lease(cluster, "member-2", "scaler-a_2")
    for number in range(slices.COUNT):
        lease(cluster, f"slice-{number:02d}", "scaler-a_2" if number < 3 else "scaler-a_1")
    rows = [line.split()[:2] for line in (await run()).out.splitlines()[1:]]
    assert sorted(rows) == [["scaler-a", "3"], ["scaler-a", "61"]]


async def test_kinds_that_the_cluster_does_not_have_count_nothing(cluster: Cluster, run: Verb) -> None:
    cluster.fail(404, "list", "fastpathautoscalers")
    done = await run()
    assert (done.status, done.err) == (1, "")
    head, *lines = done.out.splitlines()
    assert head.split()[0] == "SCALER"
    assert lines[0] == "no scaler has a Lease here: --namespace gives the namespace that scalers run in"


async def test_a_refused_list_is_said(cluster: Cluster, run: Verb) -> None:
    cluster.forbid("list", "leases")
    done = await run()
    assert done.status == 1
    assert "leases" in done.err
