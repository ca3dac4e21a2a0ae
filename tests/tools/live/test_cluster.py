"""`fastpath doctor` beside a cluster over HTTP: what it asks. What it prints: tests/golden/doctor."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_tools.live.cluster import option_values
from fastpath_tools.live.sources import selectors_of
from tests.golden.stored_clusters import StoredCluster
from tests.support.answering import AnsweringServer, forward
from tests.support.answers import answers
from tests.support.doctor import Doctor

GOLDEN = Path(__file__).parents[2] / "golden" / "doctor"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with StoredCluster(EPOCH) as cluster:
        files = ("web", "servers", "rules", "leader", "boosted-cpu")
        cluster.load((GOLDEN / f"{name}.yaml").read_text() for name in files)
        yield cluster


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(cluster.kubeconfig(tmp_path / "kubeconfig"), capsys)


@pytest.mark.integration
async def test_whether_the_usage_of_pods_counts_is_what_the_leader_shows(
    cluster: Cluster, run: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked through a port that kubectl forwards, once."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("resourceRules: {cpu: {scrape: {port: metrics}}}\n")
    now = timestamp(time.time())  # noqa: TID251  # the command compares with the real clock
    for lease in cluster.list("Lease", "fastpath"):
        cluster.update(lease | {"spec": lease["spec"] | {"renewTime": now}})
    condition = {"type": "FastUsage", "status": "False", "reason": "TooLittle", "message": "condition"}
    given = {"metric": "cpu", "values": {}, "overdue": "", "ageSeconds": 1, "notFaster": "1 of 2 is not"}
    document = {"status": {"conditions": [condition]}, "last": {"inputs": [given]}}

    async with AnsweringServer(json.dumps(document).encode()) as scaler:
        calls = forward(tmp_path, monkeypatch, scaler)
        slow = await run.hops(f"--config={rules}")
        condition["status"] = "True"
        scaler.body = json.dumps(document).encode()
        fast = await run.hops(f"--config={rules}")
    assert slow["scrape"]["finding"].endswith("; the pods' own usage does not count: 1 of 2 is not")
    assert (slow["scrape"]["state"], slow["decision"]["mostSeconds"]) == ("warning", 15.0)
    assert fast["scrape"]["finding"].startswith(
        "Fastpath scrapes the pods every 1 s (resourceRules.cpu.scrape)"
    )
    assert (fast["scrape"]["mostSeconds"], fast["decision"]["mostSeconds"]) == (1.0, 1.0)
    assert set(scaler.paths) == {"/debug/fastpath/autoscalers/shop/web"}
    assert [call.split()[-2:] for call in calls.read_text().splitlines()] == [["pod/scaler-0", ":10254"]] * 2


async def test_nothing_is_changed(cluster: Cluster, run: Doctor) -> None:
    await run("shop/web")
    assert {each.method for each in cluster.requests} == {"GET"}


async def test_the_cluster_cannot_be_asked(cluster: Cluster, run: Doctor) -> None:
    await cluster.down(refuse=False)
    finished = await run("shop/web")
    assert (finished.status, finished.out) == (1, "")
    assert "503" in finished.err


@pytest.mark.parametrize(("query", "selectors"), answers("live/cluster", "selectors"))
def test_selectors_of_a_query(query: str, selectors: list[str]) -> None:
    assert selectors_of(query) == selectors


@pytest.mark.parametrize(("words", "value"), answers("live/cluster", "flags"))
def test_flags_of_a_command_line(words: list[str], value: str) -> None:
    assert ["", *option_values(words, "--period")][-1] == value
