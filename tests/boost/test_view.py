"""The view of published floors: each answer has a list that was sent after its request, or an error."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from adapter.boost.view import CONFIRM, STALE, FloorView, PublishedFloors
from adapter.compose.clock import SystemClock
from adapter.errors import NotSyncedError
from adapter.model.autoscaling.floor import Floor
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.server import Cluster
from tests.boost.configmaps import JSON, Store
from tests.boost.floorterms import NAMESPACE, FloorProcess, config_map, entry, watching
from tests.kubernetes.apiclient import connected
from tests.support.answers import answers
from tests.support.waiting import other_work

pytestmark = pytest.mark.looptime


def publish(*entries: Floor, name: str = "fastpath-floors-slice-00") -> Callable[[JSON], None]:
    """Return a change of a ConfigMap to these entries."""
    return lambda document: document.update(data=config_map(*entries, name=name)["data"])


@pytest.fixture
async def running(process: FloorProcess) -> AsyncIterator[FloorProcess]:
    """Give a process whose store has an entry of 5 for `a`, and whose view runs once it has `begun`."""
    process.store.post(config_map(entry("a", 5)))
    yield process
    await process.stop()


async def begun(process: FloorProcess) -> None:
    """Run the view: in the test itself, because the fixture has another clock."""
    process.begin()
    await asyncio.sleep(0)


async def refusal(view: FloorView) -> str:
    with pytest.raises(NotSyncedError) as caught:
        await view.current()
    return str(caught.value)


def found(floors: PublishedFloors) -> dict[str, int]:
    """Return the replicas of all floors by uid."""
    return {
        uid: each.floor.replicas for _, known in floors.config_maps.values() for uid, each in known.items()
    }


async def test_at_rest_nothing_is_read(running: FloorProcess) -> None:
    await begun(running)
    await asyncio.sleep(600)
    assert running.line.lists == 0


async def test_why_a_list_failed_is_said(process: FloorProcess) -> None:
    process.line.list_answer = 403
    async with watching(process):
        await asyncio.sleep(0)
        assert await refusal(process.view) == "the floors cannot be read: refused by the test"
        assert process.view.recent() is None
        assert process.problems.active() == {("floor-read", ""): "refused by the test"}
        process.line.list_answer = 0
        assert found(await process.view.current()) == {}
        assert process.problems.active() == {}


async def test_a_list_that_was_sent_before_a_request_does_not_answer_it(running: FloorProcess) -> None:
    """Its response may be from before the request."""
    await begun(running)
    running.line.delay = lambda: 0.1
    first = asyncio.create_task(running.view.current())
    await asyncio.sleep(0.15)  # it has seen the store, and is on its way back
    running.store.edit("fastpath-floors-slice-00", publish(entry("b", 8)))
    later = [asyncio.create_task(running.view.current()) for _ in range(10)]
    assert found(await first) == {"a": 5}
    assert [found(each) for each in await asyncio.gather(*later)] == [{"b": 8}] * 10
    assert running.line.lists == 2


async def test_a_list_that_is_stuck_holds_up_no_other(running: FloorProcess) -> None:
    await begun(running)
    running.line.delay = lambda: 2.5
    stuck = asyncio.create_task(running.view.current())
    await asyncio.sleep(0.01)
    running.line.delay = lambda: 0.0
    start = running.clock.monotonic()
    await running.view.current()
    assert running.clock.monotonic() - start < 0.3
    with pytest.raises(NotSyncedError, match="within 2 s"):
        await stuck


async def test_no_answer_waits_longer_than_two_seconds(running: FloorProcess) -> None:
    await begun(running)
    running.line.cut = True
    start = running.clock.monotonic()
    assert await refusal(running.view) == "cannot read the floors: no answer within 2 s"
    assert running.clock.monotonic() - start == pytest.approx(CONFIRM, abs=0.01)
    await asyncio.sleep(2)
    assert running.problems.active() == {("floor-read", ""): "no answer within 3 s"}


async def test_a_caller_that_is_cancelled_does_not_cancel_the_list_of_others(running: FloorProcess) -> None:
    await begun(running)
    running.line.delay = lambda: 0.1
    one, other = (asyncio.create_task(running.view.current()) for _ in range(2))
    await asyncio.sleep(0.05)
    one.cancel()
    await other
    assert one.cancelled()


async def test_callers_are_told_when_the_process_ends(process: FloorProcess) -> None:
    process.line.delay = lambda: 0.5
    async with watching(process):
        await asyncio.sleep(0)
        begun = asyncio.create_task(process.view.current())
        await asyncio.sleep(0.1)
        behind = asyncio.create_task(process.view.current())
        await asyncio.sleep(0.1)
    for each in (begun, behind):
        with pytest.raises(NotSyncedError, match="the process is shutting down"):
            await each
    with pytest.raises(NotSyncedError, match="this process does not read floors"):
        await process.view.current()


async def test_the_last_list_is_kept_for_ten_seconds_after_it_was_sent(running: FloorProcess) -> None:
    await begun(running)
    running.line.delay = lambda: 0.7
    await running.view.current()
    running.line.cut = True
    assert await refusal(running.view)
    await asyncio.sleep(STALE - 1.4 - CONFIRM - 0.01)
    recent = running.view.recent()
    assert recent is not None
    assert found(recent) == {"a": 5}
    await asyncio.sleep(0.02)
    assert running.view.recent() is None


async def test_a_late_response_does_not_replace_a_later_list(running: FloorProcess) -> None:
    await begun(running)
    running.line.delay = lambda: 0.9
    late = asyncio.create_task(running.view.current())
    await asyncio.sleep(1.0)  # it has seen the store, and is on its way back
    running.line.delay = lambda: 0.0
    running.store.edit("fastpath-floors-slice-00", publish(entry("a", 9)))
    assert found(await running.view.current()) == {"a": 9}
    assert found(await late) == {"a": 5}
    recent = running.view.recent()
    assert recent is not None
    assert found(recent) == {"a": 9}


@pytest.mark.parametrize("text", answers("boost/view", "an_entry_that_cannot_be_read_fails_the_read"))
async def test_an_entry_that_cannot_be_read_fails_the_read(running: FloorProcess, text: str) -> None:
    await begun(running)
    running.store.edit("fastpath-floors-slice-00", lambda document: document["data"].update(c=text))
    fault = "the entry c of the ConfigMap fastpath/fastpath-floors-slice-00 cannot be read: not a floor: "
    assert (await refusal(running.view)).startswith(f"the floors cannot be read: {fault}")
    assert running.problems.active()["floor-read", ""].startswith(fault)
    running.store.edit("fastpath-floors-slice-00", publish(entry("a", 5)))
    assert found(await running.view.current()) == {"a": 5}
    assert running.problems.active() == {}


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        pytest.param(entry("a", 5), entry("a", 8), 8, id="the greater"),
        pytest.param(entry("a", 5), entry("a", 8, lasts=-1), 5, id="the one that holds"),
        pytest.param(entry("a", 5, lasts=-3), entry("a", 8, lasts=-1), 0, id="neither"),
        pytest.param(entry("a", 5), entry("a", 0), 5, id="not the one without a floor"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
async def test_of_two_entries_for_one_autoscaler(
    process: FloorProcess, one: Floor, other: Floor, wins: int, *, turned: bool
) -> None:
    pair = [one, other][:: -1 if turned else 1]
    for number, each in enumerate(pair, 1):
        process.store.post(
            config_map(each, entry(f"own-{number}", 2), name=f"fastpath-floors-slice-{number:02d}")
        )
    async with watching(process):
        await asyncio.sleep(0)
        assert await process.answer("a") == wins
        assert (await process.answer("own-1"), await process.answer("own-2")) == (2, 2)


@pytest.mark.looptime(False)
async def test_many_entries_are_decoded_in_steps(process: FloorProcess) -> None:
    process.store.post(config_map(*(entry(str(number), 2) for number in range(2500))))
    async with watching(process), other_work() as turns:
        await asyncio.sleep(0)
        told = turns.count
        assert len(found(await process.view.current())) == 2500
        assert turns.count >= told + 5


@pytest.mark.looptime(False)
async def test_over_http() -> None:
    monitoring, clock = Monitoring(), SystemClock()
    async with Cluster() as cluster, connected(cluster.url) as client:
        view = FloorView(client, clock, NAMESPACE, ProblemLog(monitoring, clock))
        task = asyncio.create_task(view.run())
        await asyncio.sleep(0)
        assert found(await view.current()) == {}
        cluster.create(config_map(entry("a", 5)))
        cluster.create(config_map(entry("a", 50)) | {"metadata": {"name": "x", "namespace": NAMESPACE}})
        other = config_map(entry("a", 50))
        other["metadata"]["namespace"] = "other"
        cluster.create(other)
        assert found(await view.current()) == {"a": 5}
        cluster.patch("configmaps", "fastpath-floors-slice-00", config_map(entry("b", 8)), NAMESPACE)
        assert found(await view.current()) == {"a": 5, "b": 8}
        cluster.delete("configmaps", "fastpath-floors-slice-00", NAMESPACE)
        assert found(await view.current()) == {}
        requests = [request for request in cluster.requests if request.resource == "configmaps"]
        assert {request.verb for request in requests} == {"list"}
        assert {request.query.get("labelSelector") for request in requests} == {"fastpath.io/floors=true"}
        assert {request.path for request in requests} == {"/api/v1/namespaces/fastpath/configmaps"}
        assert all("resourceVersion" not in request.query for request in requests)
        task.cancel()
        await asyncio.wait({task})


async def test_a_floor_by_a_clock_that_was_ahead_ends_ten_minutes_after_it_was_first_read(
    store: Store, process: FloorProcess
) -> None:
    """If no scaler runs any more nothing else ends it. Reads and changes of other entries do not renew it,
    changes of its own do.
    """
    store.post(config_map(entry("a", 5, lasts=3 * 3600), entry("b", 7, lasts=3 * 3600)))
    async with watching(process):
        await asyncio.sleep(0)
        assert await process.answer("a") == 5
        await asyncio.sleep(300)
        store.edit(
            "fastpath-floors-slice-00", publish(entry("a", 5, lasts=3 * 3600), entry("b", 8, lasts=3 * 3600))
        )
        assert await process.answer("b") == 8
        await asyncio.sleep(299)
        assert (await process.answer("a"), await process.answer("b")) == (5, 8)
        await asyncio.sleep(2)
        assert (await process.answer("a"), await process.answer("b")) == (0, 8)
        await asyncio.sleep(300)
        assert (await process.answer("a"), await process.answer("b")) == (0, 0)
