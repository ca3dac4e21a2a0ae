"""`fastpath scale` beside `fastpath serve --serve-floors`: two accounts, each with the manifests' rights.

The requests of both are recorded and held against the rendered roles.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support import adapter as support
from tests.support import rendered
from tests.support.adapter import RunningAdapter
from tests.support.rendered import MANIFESTS, Rights, Want
from tests.support.tools import free_port
from tests.support.waiting import until
from tests.world.owners import are_shared
from tests.world.workloads import BOOSTED, HASTY, HOME, LIMITS, NAMESPACE, OWN, STANDIN_FLAGS
from tests.world.world import World, scaling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WAIT = 40.0
USERS = {"token-of-the-scaler": "fastpath-scaler", "token-of-the-server": "fastpath"}
FLOOR = (
    f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/"
    f"fastpath_replicas?labelSelector=autoscaler%3D{BOOSTED}"
)


@pytest.fixture
async def world(shop: World) -> World:
    await shop.pair()
    shop.sandbox.tokens = USERS | {"none": "admin"}  # the kubeconfig of the administrator has it
    return shop


def kubeconfig(cluster: Cluster, directory: Path, user: str) -> Path:
    (token,) = (token for token, name in USERS.items() if name == user)
    return cluster.kubeconfig(directory / user, token)


@contextlib.asynccontextmanager
async def serving(world: World, directory: Path) -> AsyncIterator[RunningAdapter]:
    """Run the metrics APIs, as the container of theirs does."""
    (directory / "rules.yaml").write_text(world.rules)
    account = f"--lister-kubeconfig={kubeconfig(world.sandbox, directory, 'fastpath')}"
    port = free_port()
    arguments = (account, "--serve-floors", f"--health-probe-bind-address=127.0.0.1:{port}")
    async with support.running(
        directory, world.sandbox, world.prometheus.url, *STANDIN_FLAGS, *arguments
    ) as adapter:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            assert response.status == 200, "probes may have a port of their own here too"
        yield adapter


def wants(world: World, user: str) -> set[Want]:
    ours = [each for each in world.sandbox.requests if each.user_agent == "fastpath-adapter"]
    return {Want.of(each) for each in ours if each.user == user}


async def test_one_scales_and_the_other_serves_its_floors(tmp_path: Path, world: World) -> None:
    account = kubeconfig(world.sandbox, tmp_path, "fastpath-scaler")
    async with (
        scaling(world, tmp_path / "leader", account),
        scaling(world, tmp_path / "standby", account),
        serving(world, tmp_path) as adapter,
    ):
        at_rest = await adapter.wait_for(FLOOR, lambda answer: answer.status == 200)
        assert at_rest.body["items"][0]["value"] == "0"
        path = (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/"
            f"{NAMESPACE}/pods/%2A/busy?labelSelector=app%3D{OWN}"
        )
        await adapter.wait_for(path, lambda answer: answer.status == 200 and len(answer.values) == LIMITS[0])
        world.begin()
        await until(lambda: world.replicas(BOOSTED) == 6 and world.replicas(OWN) == 6, WAIT)
        held = await adapter.get(FLOOR)
        assert held.body["items"][0]["value"] == "6", "a raise is published before it is made"
        reasons = {event["reason"] for event in world.sandbox.list("Event", NAMESPACE)}
        assert "SuccessfulRescale" in reasons
        await until(
            lambda: world.sandbox.get("fpa", OWN, NAMESPACE).get("status", {}).get("desiredReplicas") == 6,
            WAIT,
        )

    objects = rendered.render(MANIFESTS / "overlays" / "scaler")
    for user in USERS.values():
        rights = Rights(objects, user, HOME)
        assert [want for want in sorted(wants(world, user)) if not rights.allow(want)] == [], user
    written = {(want.verb, want.resource) for want in wants(world, "fastpath-scaler")}
    for done in (
        ("create", "leases"),
        ("update", "leases"),
        ("watch", "leases"),
        ("create", "configmaps"),
        ("update", "configmaps"),
        ("update", "deployments/scale"),
        ("patch", "fastpathautoscalers/status"),
        ("create", "events"),
    ):
        assert done in written, "or this test sees too little"
    reviews = {"tokenreviews", "subjectaccessreviews"}
    answered = {
        (want.verb, want.resource) for want in wants(world, "fastpath") if want.resource not in reviews
    }
    assert {verb for verb, _ in answered} <= {"", "get", "list", "watch"}
    assert {("watch", "configmaps"), ("watch", "horizontalpodautoscalers")} <= answered


async def test_a_scaler_reads_the_objects_of_a_slice_when_it_takes_that(tmp_path: Path, world: World) -> None:
    """It reads everything once, and of what it takes later the namespaces. The owner of the slice ends."""
    account = kubeconfig(world.sandbox, tmp_path, "fastpath-scaler")
    leases = world.seen["leases"]
    async with (
        scaling(world, tmp_path / "1", account, *HASTY) as first,
        scaling(world, tmp_path / "2", account, *HASTY) as second,
        scaling(world, tmp_path / "3", account, *HASTY) as third,
    ):
        await world.run(lambda: are_shared(leases.values(), 3))
        page = f"/debug/fastpath/autoscalers/{NAMESPACE}/{OWN}"
        (owner,) = [each for each in (first, second, third) if "target" in (await each.get(page))[1]]
        world.sandbox.requests.clear()
        await owner.end()
        await world.run(lambda: are_shared(leases.values(), 2))
        world.begin()
        await world.run(lambda: world.replicas(BOOSTED) == world.replicas(OWN) == 6)
    ours = [each for each in world.sandbox.requests if each.user == "fastpath-scaler"]
    listed = {each.resource for each in ours if each.verb == "list" and each.namespace == NAMESPACE}
    kinds = {"pods", "deployments", "fastpathautoscalers", "horizontalpodautoscalers", "fastpathschedules"}
    assert {"pods", "fastpathautoscalers", "horizontalpodautoscalers"} <= listed <= kinds
