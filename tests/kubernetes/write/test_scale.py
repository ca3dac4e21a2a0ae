"""Writing scales: onto the state that was decided from, and decided again for any other."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.client import ResponseBody
from adapter.kubernetes.write.client import Writer
from adapter.kubernetes.write.rate_limiter import WriteBudget
from adapter.kubernetes.write.scale import AGAIN, ScaleOf, ScaleSeen, ScaleWriter
from adapter.sandbox.apiserver.cluster import Cluster
from adapter.sandbox.apiserver.workloads import deployment
from adapter.telemetry.metrics import Monitoring
from tests.support.election import LoopClock
from tests.support.writing import Desk, Gate, desk_on

WEB = ScaleOf("/apis/apps/v1/namespaces/default/deployments/web/scale", "default", "web")


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


def never(_: ScaleSeen) -> int | None:
    pytest.fail("nobody has to decide again")


async def test_one_put_and_no_get(desk: Desk) -> None:
    seen = await ScaleWriter(desk.writer).write(WEB, 5, version(desk), never)
    assert replicas(desk) == 5
    uid = desk.cluster.get("deployments", "web")["metadata"]["uid"]
    assert seen == ScaleSeen(5, 0, "app=web", version(desk), uid)
    assert (desk.asked("update", "deployments/scale"), desk.asked("get", "deployments/scale")) == (1, 0)
    assert desk.cluster.requests[-1].query["fieldManager"] == "fastpath"
    (entry,) = desk.cluster.get("deployments", "web")["metadata"]["managedFields"]
    assert (entry["manager"], entry["subresource"]) == ("fastpath", "scale")
    assert desk.writes("scale", "success") == 1
    assert desk.sample("fastpath_write_duration_seconds_count", kind="scale") == 1


async def test_the_version_after_a_write_serves_the_next(desk: Desk) -> None:
    writer = ScaleWriter(desk.writer)
    seen = await writer.write(WEB, 5, version(desk), never)
    assert seen is not None
    assert await writer.write(WEB, 6, seen.resource_version, never) is not None
    assert replicas(desk) == 6


async def test_scaling_to_zero(desk: Desk) -> None:
    seen = await ScaleWriter(desk.writer).write(WEB, 0, version(desk), never)
    assert seen is not None
    assert (seen.replicas, replicas(desk)) == (0, 0)


async def test_after_a_conflict_it_is_decided_again_from_what_is_there(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")
    asked: list[ScaleSeen] = []

    def again(seen: ScaleSeen) -> int | None:
        asked.append(seen)
        return seen.replicas + 1

    seen = await ScaleWriter(desk.writer).write(WEB, 5, stale, again)
    assert seen is not None
    assert replicas(desk) == 8
    assert [each.replicas for each in asked] == [7]
    assert desk.writes("scale", "conflict") == 1


async def test_what_is_written_is_what_is_right_when_its_turn_has_come(desk: Desk) -> None:
    desk.budget.pause(0.05)
    wanted = [9]
    write = asyncio.create_task(
        ScaleWriter(desk.writer).write(WEB, 5, version(desk), never, lambda: wanted[-1])
    )
    await asyncio.sleep(0.01)
    wanted.append(4)
    assert (await write) is not None
    assert replicas(desk) == 4


async def test_nothing_is_written_if_nothing_is_right_any_more(desk: Desk) -> None:
    assert await ScaleWriter(desk.writer).write(WEB, 5, version(desk), never, lambda: None) is None
    assert replicas(desk) == 2


async def test_a_reading_after_a_write_without_an_answer_says_so(desk: Desk) -> None:
    asked: list[ScaleSeen] = []
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")

    def again(seen: ScaleSeen) -> int | None:
        asked.append(seen)
        return None

    await ScaleWriter(desk.writer).write(WEB, 5, stale, again)
    answers = [KubernetesError(0, "Reset", "cut"), KubernetesError(409, "Conflict", "another")]

    class Cut:
        get = desk.writer.client.get

        async def write(self, *_: object, **__: object) -> None:
            raise answers.pop(0)

    desk.writer.client = Cut()  # type: ignore[assignment]  # a connection that is cut on demand
    await ScaleWriter(desk.writer).write(WEB, 5, stale, again)
    assert [each.unsure for each in asked] == [False, True]


async def test_a_write_without_an_answer_is_told_of_though_the_reading_after_it_fails_too(desk: Desk) -> None:
    class Gone:
        async def write(self, *_: object, **__: object) -> None:
            raise KubernetesError(0, "Reset", "cut")

        async def get(self, _: str) -> None:
            raise KubernetesError(0, "Unreachable", "gone")

    desk.writer.client = Gone()  # type: ignore[assignment]  # an API server that goes away
    with pytest.raises(KubernetesError) as caught:
        await ScaleWriter(desk.writer).write(WEB, 5, "1", never)
    assert caught.value.reason == "Reset"


async def test_a_conflict_after_which_the_scale_cannot_be_read(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")
    desk.cluster.forbid("get", "deployments/scale")
    with pytest.raises(KubernetesError) as caught:
        await ScaleWriter(desk.writer).write(WEB, 5, stale, never)
    assert caught.value.status == 403


async def test_after_a_conflict_there_may_be_nothing_left_to_write(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")
    assert await ScaleWriter(desk.writer).write(WEB, 5, stale, lambda _: None) is None
    assert replicas(desk) == 7


async def test_it_is_decided_again_five_times_and_no_more(desk: Desk) -> None:
    asked = 0

    def again(_: ScaleSeen) -> int | None:
        nonlocal asked
        asked += 1
        return 5

    desk.cluster.fail(409, "update", "deployments/scale", 100)
    with pytest.raises(KubernetesError) as caught:
        await ScaleWriter(desk.writer).write(WEB, 5, version(desk), again)
    assert caught.value.status == 409
    assert asked == AGAIN == 5
    assert replicas(desk) == 2


async def test_an_overloaded_server_is_asked_again_with_a_new_decision(desk: Desk) -> None:
    desk.cluster.fail(429, "update", "deployments/scale", 2)
    seen = await ScaleWriter(desk.writer).write(WEB, 5, version(desk), lambda seen: seen.replicas + 2)
    assert seen is not None
    assert replicas(desk) == 4


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_a_server_error_is_the_callers_affair(desk: Desk, code: int) -> None:
    desk.cluster.fail(code, "update", "deployments/scale")
    with pytest.raises(KubernetesError) as caught:
        await ScaleWriter(desk.writer).write(WEB, 5, version(desk), never)
    assert caught.value.status == code
    assert desk.writes("scale", "failed") == 1


async def test_a_lost_answer_is_looked_after(desk: Desk) -> None:
    """The write was made; the retry of the HTTP client meets a conflict, and the look shows what is there."""
    desk.cluster.lose_answers("update", "deployments/scale", 1)
    asked: list[tuple[int, bool]] = []

    def again(seen: ScaleSeen) -> int | None:
        asked.append((seen.replicas, seen.unsure))
        return None

    await desk.writer.client.get(WEB.path)  # over the connection that will break
    assert await ScaleWriter(desk.writer).write(WEB, 5, version(desk), again) is None
    assert asked == [(5, True)]
    assert replicas(desk) == 5


async def test_without_a_version_the_scale_is_read_first(desk: Desk) -> None:
    seen = await ScaleWriter(desk.writer).write(WEB, 9, "", lambda seen: seen.replicas * 2)
    assert seen is not None
    assert replicas(desk) == 4


async def test_a_target_that_is_gone(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.delete("deployments", "web")
    with pytest.raises(KubernetesError) as caught:
        await ScaleWriter(desk.writer).write(WEB, 5, stale, never)
    assert caught.value.status == 404
    assert desk.writes("scale", "refused") == 1


async def test_an_answer_that_is_no_scale(desk: Desk) -> None:
    elsewhere = WEB._replace(path="/version")
    with pytest.raises(KubernetesError, match="the answer is no Scale"):
        await ScaleWriter(desk.writer).fetch(elsewhere)


# --- the fence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [0, 1, 2], ids=["when asked for", "when sent", "at the first byte"])
async def test_a_shut_fence_lets_nothing_through(desk: Desk, passes: int) -> None:
    desk.gate.passes = passes
    before = version(desk)
    with pytest.raises(NotLeadingError):
        await ScaleWriter(desk.writer).write(WEB, 5, before, never)
    assert version(desk) == before
    assert desk.asked("update", "deployments/scale") == 0
    assert desk.writes("scale", "fenced") == 1


async def test_the_fence_is_asked_again_after_a_conflict(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")

    def again(_: ScaleSeen) -> int | None:
        desk.gate.passes = 0
        return 5

    with pytest.raises(NotLeadingError):
        await ScaleWriter(desk.writer).write(WEB, 5, stale, again)
    assert replicas(desk) == 7


async def test_a_write_in_the_queue_is_fenced_when_its_turn_comes(desk: Desk) -> None:
    desk.budget.pause(0.05)
    write = asyncio.create_task(ScaleWriter(desk.writer).write(WEB, 5, version(desk), never))
    await asyncio.sleep(0)
    desk.gate.passes = 0
    with pytest.raises(NotLeadingError):
        await write
    assert replicas(desk) == 2


async def test_a_delayed_write_of_a_former_leader_cannot_undo_its_successors(desk: Desk) -> None:
    """Whatever a network holds back: it was made against a version that is no more."""
    stale = version(desk)
    await ScaleWriter(desk.writer).write(WEB, 6, stale, never)
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
    budget = WriteBudget(10.0, LoopClock(), monitoring)
    # all it calls
    writer = ScaleWriter(Writer(scales, Gate(), budget, LoopClock(), monitoring))  # type: ignore[arg-type]
    tasks = [
        asyncio.create_task(
            writer.write(ScaleOf(f"greedy/web{number}", "greedy", f"web{number}"), 5, "1", never)
        )
        for number in range(1000)
    ]
    await asyncio.sleep(1.05)
    tasks.append(asyncio.create_task(writer.write(ScaleOf("victim/web", "victim", "web"), 5, "1", never)))
    await asyncio.sleep(0.25)
    assert "victim/web" in scales.paths
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
