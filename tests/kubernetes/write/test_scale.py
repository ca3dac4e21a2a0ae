"""Scales are read, and written onto the version that the count was decided from."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.client import ResponseBody
from adapter.kubernetes.transport import RESET
from adapter.kubernetes.write.scale import (
    ScaleState,
    ScaleWriter,
    is_superseded,
    may_be_ours,
)
from adapter.kubernetes.write.writer import Writer, WriteRateLimiter
from adapter.telemetry.metrics import Monitoring
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.support.election import LoopClock
from tests.support.writing import Desk, Gate, desk_on

WEB = ScaleTarget(2, 2, "app=web", "", "", "/apis/apps/v1/namespaces/default/deployments/web/scale")


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with Cluster() as cluster, desk_on(cluster) as desk:
        cluster.create(deployment("web", replicas=2))
        yield desk


def version(desk: Desk) -> str:
    found: str = desk.cluster.get("deployments", "web")["metadata"]["resourceVersion"]
    return found


def replicas(desk: Desk) -> int:
    found: int = desk.cluster.get("deployments", "web")["spec"]["replicas"]
    return found


async def write(desk: Desk, replicas: int, resource_version: str) -> str:
    scales = ScaleWriter(desk.writer)
    await scales.acquire(WEB)
    return await scales.put_scale(WEB._replace(resource_version=resource_version), replicas)


async def test_one_put_and_no_get(desk: Desk) -> None:
    seen = await write(desk, 5, version(desk))
    assert replicas(desk) == 5
    assert seen == version(desk)
    assert (desk.asked("update", "deployments/scale"), desk.asked("get", "deployments/scale")) == (1, 0)
    assert desk.cluster.requests[-1].query["fieldManager"] == "fastpath"
    (entry,) = desk.cluster.get("deployments", "web")["metadata"]["managedFields"]
    assert (entry["manager"], entry["subresource"]) == ("fastpath", "scale")
    assert desk.writes("scale", "success") == 1
    assert desk.sample("fastpath_write_duration_seconds_count", type="scale") == 1


async def test_a_scale_is_read(desk: Desk) -> None:
    uid = desk.cluster.get("deployments", "web")["metadata"]["uid"]
    scale = await ScaleWriter(desk.writer).get_scale(WEB)
    assert scale == ScaleState(2, 0, "app=web", version(desk), uid)


async def test_the_version_after_a_write_serves_the_next(desk: Desk) -> None:
    seen = await write(desk, 5, version(desk))
    await write(desk, 6, seen)
    assert replicas(desk) == 6


async def test_scaling_to_zero(desk: Desk) -> None:
    await write(desk, 0, version(desk))
    assert replicas(desk) == 0


async def test_a_former_version_is_a_conflict(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")
    with pytest.raises(KubernetesError) as caught:
        await write(desk, 5, stale)
    assert is_superseded(caught.value)
    assert not may_be_ours(caught.value)
    assert replicas(desk) == 7
    assert desk.writes("scale", "conflict") == 1


async def test_an_overloaded_server_is_asked_again_with_a_new_decision(desk: Desk) -> None:
    desk.cluster.fail(429, "update", "deployments/scale")
    with pytest.raises(KubernetesError) as caught:
        await write(desk, 5, version(desk))
    assert is_superseded(caught.value)
    assert not may_be_ours(caught.value)


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_a_server_error_is_the_callers_affair(desk: Desk, code: int) -> None:
    desk.cluster.fail(code, "update", "deployments/scale")
    with pytest.raises(KubernetesError) as caught:
        await write(desk, 5, version(desk))
    assert caught.value.status == code
    assert not is_superseded(caught.value)
    assert desk.writes("scale", "failed") == 1


async def test_a_lost_answer_may_be_ours(desk: Desk) -> None:
    """The write succeeded; the retry of the HTTP client meets a conflict, and the scale shows the count."""
    desk.cluster.lose_answers("update", "deployments/scale", 1)
    scales = ScaleWriter(desk.writer)
    await scales.get_scale(WEB)  # over the connection that will break
    with pytest.raises(KubernetesError) as caught:
        await write(desk, 5, version(desk))
    assert is_superseded(caught.value)
    assert may_be_ours(caught.value)
    assert (await scales.get_scale(WEB)).replicas == replicas(desk) == 5


async def test_a_connection_that_breaks_is_looked_after() -> None:
    error = KubernetesError(0, RESET, "cut")
    assert is_superseded(error)
    assert may_be_ours(error)


async def test_a_target_that_is_gone(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.delete("deployments", "web")
    with pytest.raises(KubernetesError) as caught:
        await write(desk, 5, stale)
    assert caught.value.status == 404
    assert desk.writes("scale", "refused") == 1


async def test_an_answer_that_is_no_scale(desk: Desk) -> None:
    with pytest.raises(KubernetesError, match="response is not a Scale object"):
        await ScaleWriter(desk.writer).get_scale(WEB._replace(path="/version"))


# --- the fence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [0, 1, 2], ids=["when asked for", "when sent", "at the first byte"])
async def test_a_shut_fence_lets_nothing_through(desk: Desk, passes: int) -> None:
    desk.gate.passes = passes
    before = version(desk)
    with pytest.raises(NotLeadingError):
        await write(desk, 5, before)
    assert version(desk) == before
    assert desk.asked("update", "deployments/scale") == 0
    assert desk.writes("scale", "fenced") == 1


async def test_a_write_in_the_queue_is_fenced_when_its_turn_comes(desk: Desk) -> None:
    desk.budget.pause(0.05)
    task = asyncio.create_task(write(desk, 5, version(desk)))
    await asyncio.sleep(0)
    desk.gate.passes = 0
    with pytest.raises(NotLeadingError):
        await task
    assert replicas(desk) == 2


async def test_a_delayed_write_of_a_former_leader_cannot_undo_its_successors(desk: Desk) -> None:
    """Whatever a network holds back: it was made against a version that is no more."""
    stale = version(desk)
    await write(desk, 6, stale)
    late = msgspec.json.encode(
        {"metadata": {"name": "web", "resourceVersion": stale}, "spec": {"replicas": 3}}
    )
    with pytest.raises(KubernetesError) as caught:
        await desk.writer.client.write("PUT", WEB.path, late, seconds=1, check=lambda: None)
    assert caught.value.status == 409
    assert replicas(desk) == 6


class Scales:
    """Takes every write at once."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def write(self, _method: str, path: str, _content: bytes, **_: object) -> ResponseBody:
        self.paths.append(path)
        return ResponseBody("application/json", b'{"metadata": {"resourceVersion": "2"}}')


@pytest.mark.looptime
async def test_a_tenant_with_a_thousand_scales_to_write_delays_another_by_one_turn() -> None:
    scales, monitoring = Scales(), Monitoring()
    budget = WriteRateLimiter(10.0, LoopClock(), monitoring)
    # all it calls
    writer = ScaleWriter(Writer(scales, Gate(), budget, LoopClock(), monitoring))  # type: ignore[arg-type]

    async def scale(namespace: str, name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/replicationcontrollers/{name}/scale"
        target = WEB._replace(path=path, resource_version="1")
        await writer.acquire(target)
        await writer.put_scale(target, 5)

    tasks = [asyncio.create_task(scale("greedy", f"web{number}")) for number in range(1000)]
    await asyncio.sleep(1.05)
    tasks.append(asyncio.create_task(scale("victim", "web")))
    await asyncio.sleep(0.25)
    assert any("/victim/" in path for path in scales.paths)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
