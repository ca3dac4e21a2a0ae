"""The one door: what every write has in common."""

import asyncio

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.write import writer
from adapter.kubernetes.write.writer import WriteKind
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.kubernetes.apiclient import error_of
from tests.support.answers import answers
from tests.support.writing import Desk

PATH = "/apis/apps/v1/namespaces/default/deployments/web/scale"
BODY = b'{"metadata": {"name": "web"}, "spec": {"replicas": 3}}'


@pytest.fixture(autouse=True)
def web(cluster: Cluster) -> None:
    cluster.create(deployment("web"))


async def test_the_field_manager_and_the_time_limit_are_sent(desk: Desk) -> None:
    await desk.writer.send(WriteKind.SCALE, "PUT", PATH, BODY)
    assert desk.cluster.requests[-1].query == {"fieldManager": "fastpath", "timeout": "5000ms"}


async def test_another_field_manager_is_sent(desk: Desk) -> None:
    await desk.writer.send(WriteKind.SCALE, "PUT", PATH, BODY, manager="another")
    assert desk.cluster.requests[-1].query["fieldManager"] == "another"


async def test_a_write_takes_no_longer_than_the_fence_leaves(desk: Desk) -> None:
    desk.gate.left = 0.05
    desk.cluster.delay(10, "update")
    caught = await error_of(desk.writer.send(WriteKind.SCALE, "PUT", PATH, BODY))
    assert caught.reason == "Timeout"
    assert writer.may_have_been_applied(caught)
    assert desk.cluster.requests[-1].query["timeout"] == "50ms"


@pytest.mark.parametrize(("code", "outcome"), answers("kubernetes/writer", "every outcome is counted"))
async def test_every_outcome_is_counted(desk: Desk, code: int, outcome: str) -> None:
    if code == 403:
        desk.cluster.forbid("update", "deployments/scale")
    elif code in {404, 422}:
        pass
    else:
        desk.cluster.fail(code, "update", "deployments/scale")
    path = PATH.replace("web", "gone") if code == 404 else PATH
    body = BODY.replace(b"3", b"-3") if code == 422 else BODY
    caught = await error_of(
        desk.writer.send(WriteKind.SCALE, "PUT", path, body.replace(b"web", b"gone") if code == 404 else body)
    )
    assert caught.status == code
    assert desk.writes("scale", outcome) == 1


async def test_a_cancelled_write_is_counted_as_failed(desk: Desk) -> None:
    desk.cluster.delay(10, "update")
    write = asyncio.create_task(desk.writer.send(WriteKind.SCALE, "PUT", PATH, BODY))
    await asyncio.sleep(0.05)
    write.cancel()
    await asyncio.wait([write])
    assert desk.writes("scale", "failed") == 1


@pytest.mark.parametrize("kind", [WriteKind.SCALE, WriteKind.EVENT])
async def test_a_pause_that_the_server_asks_for_is_made_by_this_kind_and_those_below(
    desk: Desk, kind: WriteKind
) -> None:
    class Busy:
        async def write(self, *_: object, **__: object) -> None:
            raise KubernetesError(429, "TooManyRequests", "later", retry_after=60)

    desk.writer.client = Busy()  # type: ignore[assignment]  # an API server that limits requests
    await error_of(desk.writer.send(kind, "POST", PATH, BODY))
    async with asyncio.timeout(0.5):
        for other in WriteKind:
            if other < kind:
                await desk.writer.acquire(other)
    turn = asyncio.create_task(desk.writer.acquire(WriteKind.EVENT))
    await asyncio.sleep(0.05)
    assert not turn.done()
    turn.cancel()
    await asyncio.wait([turn])


@pytest.mark.parametrize(
    ("status", "reason", "made"), answers("kubernetes/writer", "whether a failed write may have been applied")
)
def test_whether_a_failed_write_may_have_been_applied(status: int, reason: str, *, made: bool) -> None:
    assert writer.may_have_been_applied(KubernetesError(status, reason, "")) is made
