"""Scales are read, and written onto the version that the count was decided from."""

import pytest

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.client import ResponseBody
from adapter.kubernetes.write.scale import ScaleWriter, is_superseded, may_be_ours
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.kubernetes.apiclient import error_of
from tests.support.answers import answers
from tests.support.writing import Desk

WEB = ScaleTarget(2, 2, "app=web", "", "", "/apis/apps/v1/namespaces/default/deployments/web/scale")


@pytest.fixture(autouse=True)
def web(cluster: Cluster) -> None:
    cluster.create(deployment("web", replicas=2))


def version(desk: Desk) -> str:
    found: str = desk.cluster.get("deployments", "web")["metadata"]["resourceVersion"]
    return found


def replicas(desk: Desk) -> int:
    found: int = desk.cluster.get("deployments", "web")["spec"]["replicas"]
    return found


async def write(desk: Desk, replicas: int, resource_version: str) -> str:
    scales = ScaleWriter(desk.outbox.find_writer)
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
    scale = await ScaleWriter(desk.outbox.find_writer).get_scale(WEB)
    assert scale == ScaleTarget(2, 0, "app=web", version(desk), "", WEB.path, uid)


async def test_a_former_version_is_a_conflict(desk: Desk) -> None:
    stale = version(desk)
    desk.cluster.scale("deployments", "web", 7, manager="kubectl")
    caught = await error_of(write(desk, 5, stale))
    assert is_superseded(caught)
    assert not may_be_ours(caught)
    assert replicas(desk) == 7
    assert desk.writes("scale", "conflict") == 1
    assert not desk.faults.active()


@pytest.mark.parametrize(("code", "superseded"), answers("kubernetes/scale", "a refusal of the server"))
async def test_a_refusal_of_the_server(desk: Desk, code: int, *, superseded: bool) -> None:
    desk.cluster.fail(code, "update", "deployments/scale")
    caught = await error_of(write(desk, 5, version(desk)))
    assert caught.status == code
    assert (is_superseded(caught), may_be_ours(caught)) == (superseded, False)
    assert desk.writes("scale", "failed") == 1


async def test_a_lost_answer_may_be_ours(desk: Desk) -> None:
    """The write succeeded; the retry of the HTTP client meets a conflict, and the scale shows the count."""
    desk.cluster.lose_answers("update", "deployments/scale", 1)
    scales = ScaleWriter(desk.outbox.find_writer)
    await scales.get_scale(WEB)  # over the connection that will break
    caught = await error_of(write(desk, 5, version(desk)))
    assert is_superseded(caught)
    assert may_be_ours(caught)
    assert (await scales.get_scale(WEB)).replicas == replicas(desk) == 5


class Bare:
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def get(self, _path: str) -> ResponseBody:
        return ResponseBody("application/json", self._content)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b'["major", "minor"]', "response is not a Scale object", id="something else"),
        # a PUT could not be bound to what was read
        pytest.param(b'{"metadata": {}}', "without a resource version", id="no version"),
    ],
)
async def test_an_answer_that_is_no_scale(desk: Desk, content: bytes, why: str) -> None:
    desk.writer.client = Bare(content)  # type: ignore[assignment]  # all that is called
    with pytest.raises(KubernetesError, match=why):
        await ScaleWriter(desk.outbox.find_writer).get_scale(WEB)


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


async def test_a_refused_scale_is_in_the_log_with_the_words_of_the_server(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.cluster.forbid("update", "deployments/scale")
    for _ in range(2):
        await error_of(write(desk, 5, version(desk)))
    (record,) = [each for each in caplog.records if each.message == "a write was refused"]
    shown = record.facts  # type: ignore[attr-defined]
    assert (shown["fault"], shown["subject"]) == ("scale-write", "default")
    assert shown["error"].startswith(f"PUT {WEB.path}: ")
    assert 'deployments.apps "web" is forbidden: User ' in shown["error"]
