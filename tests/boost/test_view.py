"""The view of published floors: never an old 0, never back to what was, and an error where nothing can be said."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from adapter.boost import view as floors
from adapter.boost.floor import LABEL, FloorEntry, encode_entry
from adapter.boost.floor_maps import ReadMap
from adapter.boost.view import CONFIRM, STALE, FloorView
from adapter.errors import KubernetesError, NotSyncedError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.model.timestamps import SECOND, FineInstant
from adapter.sandbox.apiserver.cluster import Cluster
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.configmaps import JSON, Store
from tests.support.election import WALL
from tests.support.floorterms import NAMESPACE, Process, watching
from tests.support.waiting import other_work, until
from tests.support.writing import SystemClock

pytestmark = pytest.mark.looptime


def entry(uid: str, replicas: int, *, lasts: float = 600.0) -> FloorEntry:
    end = FineInstant(round((WALL + lasts) * SECOND))
    return FloorEntry("shop", f"web-{uid}", uid, replicas, end, seen="7")


def config_map(*entries: FloorEntry, name: str = "fastpath-floors") -> JSON:
    texts = {each.uid: encode_entry(each) for each in entries}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: "true"}},
        "data": texts,
    }


def publish(*entries: FloorEntry, name: str = "fastpath-floors") -> Callable[[JSON], None]:
    """Return a change of a ConfigMap to these entries."""
    return lambda document: document.update(data=config_map(*entries, name=name)["data"])


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def process(store: Store) -> Process:
    return Process(store)


@pytest.fixture
async def running(process: Process) -> AsyncIterator[Process]:
    """Give a process whose view will have read an entry of 5 for `a` once it has `begun`; it ends after the test."""
    process.store.post(config_map(entry("a", 5)))
    yield process
    await process.stop()


async def begun(process: Process) -> None:
    """Run the view: in the test itself, for a fixture's time is not the test's."""
    process.begin()
    await asyncio.sleep(1)


def refusal(view: FloorView) -> str:
    with pytest.raises(NotSyncedError) as caught:
        view.find("a")
    with pytest.raises(NotSyncedError, match=r".") as again:
        view.entries()
    assert str(again.value) == str(caught.value) == view.fault()
    return str(caught.value)


# --- what is known -----------------------------------------------------------------------------------------------------


async def test_before_the_first_list_nothing_is_said(process: Process) -> None:
    assert refusal(process.view) == "the floors of autoscalers have not been read yet"
    with pytest.raises(NotSyncedError, match="not read in this process"):
        await process.view.confirm()


async def test_why_the_first_list_failed_is_said(process: Process) -> None:
    process.line.list_answer = 403
    async with watching(process):
        await asyncio.sleep(1)
        assert (
            refusal(process.view) == "the floors of autoscalers have not been read yet: refused by the test"
        )
        assert process.faults.active() == {("floor-read", ""): "refused by the test"}
        process.line.list_answer = 0
        await asyncio.sleep(1)
        assert process.view.find("a") is None
        assert process.faults.active() == {}


async def test_what_is_published_is_found(running: Process) -> None:
    await begun(running)
    assert running.view.find("a") == entry("a", 5)
    assert running.view.find("b") is None
    assert dict(running.view.entries()) == {"a": entry("a", 5)}
    assert running.view.fault() == ""


async def test_nothing_published_is_no_fault(process: Process) -> None:
    async with watching(process):
        await asyncio.sleep(1)
        assert process.view.find("a") is None
        assert dict(process.view.entries()) == {}


async def test_other_config_maps_are_none_of_ours(process: Process) -> None:
    other = config_map(entry("a", 5), name="rules")
    del other["metadata"]["labels"]
    process.store.post(other)
    async with watching(process):
        await asyncio.sleep(1)
        assert process.view.find("a") is None


async def test_a_watch_tells_at_once_and_subscribers_are_told_what_changed(running: Process) -> None:
    await begun(running)
    told: list[str] = []
    end = running.view.subscribe(told.append)
    lists = running.line.lists
    running.store.edit("fastpath-floors", publish(entry("a", 5), entry("b", 8)))
    await asyncio.sleep(0.1)
    assert running.view.find("b") == entry("b", 8)
    running.store.edit("fastpath-floors", publish(entry("a", 6), entry("b", 8)))
    await asyncio.sleep(0.1)
    assert running.view.find("a") == entry("a", 6)
    running.store.delete("fastpath-floors")
    await asyncio.sleep(0.1)
    assert (running.view.find("a"), running.view.find("b")) == (None, None)
    assert told[:2] == ["b", "a"]
    assert sorted(told[2:]) == ["a", "b"]
    assert running.line.lists == lists
    end()
    running.store.post(config_map(entry("a", 5)))
    await asyncio.sleep(0.1)
    assert running.view.find("a") == entry("a", 5)
    assert len(told) == 4


async def test_a_silent_watch_is_made_up_for_within_five_seconds(running: Process) -> None:
    await begun(running)
    running.line.frozen = True
    for replicas in range(6, 16):
        running.store.edit("fastpath-floors", publish(entry("a", replicas)))
        await asyncio.sleep(5)
        assert running.view.find("a") == entry("a", replicas)


async def test_a_cut_watch_begins_anew(running: Process) -> None:
    await begun(running)
    for replicas in range(6, 16):
        running.line.cut_watches()
        running.store.edit("fastpath-floors", publish(entry("a", replicas)))
        await asyncio.sleep(1)
        assert running.view.find("a") == entry("a", replicas)
    assert running.line.watches == 11


async def test_where_there_is_no_watch_there_are_lists(process: Process) -> None:
    process.line.watch_answer = 403
    process.store.post(config_map(entry("a", 5)))
    async with watching(process):
        await asyncio.sleep(1)
        assert ("floor-watch", "") in process.faults.active()
        process.store.edit("fastpath-floors", publish(entry("a", 6)))
        await asyncio.sleep(5)
        assert process.view.find("a") == entry("a", 6)
        process.line.watch_answer = 0
        await asyncio.sleep(60)
        assert process.faults.active() == {}


async def test_a_version_the_server_has_forgotten_is_no_fault(running: Process) -> None:
    await begun(running)
    running.store.version += 5
    running.store.compacted = running.store.version
    running.line.cut_watches()
    await asyncio.sleep(6)
    assert running.faults.active() == {}
    assert running.line.watches == 2
    assert (
        running.monitoring.registry.get_sample_value("fastpath_faults_total", {"fault": "floor-watch"})
        is None
    )


# --- how old it may be ---------------------------------------------------------------------------------------------------


async def test_a_view_that_no_list_has_confirmed_for_ten_seconds_answers_nothing(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 0.5
    await asyncio.sleep(8)  # every list takes a second by now
    sent = running.view._sent
    confirmed = running.view._confirmed
    assert confirmed is not None
    assert sent - confirmed <= 4.5
    running.line.cut = True
    await asyncio.sleep(confirmed + STALE - running.clock.monotonic() - 0.01)
    latest = running.view._confirmed
    assert latest is not None
    await asyncio.sleep(max(0.0, latest + STALE - running.clock.monotonic() - 0.01))
    assert running.view.find("a") == entry("a", 5)
    await asyncio.sleep(0.02)
    assert refusal(running.view) == "the floors of autoscalers were last read 10 s ago: no answer within 3 s"
    running.line.cut = False
    await asyncio.sleep(6)
    assert running.view.find("a") == entry("a", 5)


async def test_the_age_counts_from_when_the_list_was_asked_for(process: Process) -> None:
    process.line.delay = lambda: 1.4
    async with watching(process):
        await asyncio.sleep(6.9)  # the second list, asked for at 4 s, has come
        process.line.cut = True
        await asyncio.sleep(STALE - 2.95)
        assert process.view.find("a") is None
        await asyncio.sleep(0.1)
        assert "10 s ago" in refusal(process.view)


# --- a read of one's own ---------------------------------------------------------------------------------------------------


async def test_a_confirmation_sees_what_no_watch_has_told(running: Process) -> None:
    await begun(running)
    running.line.frozen = True
    running.store.edit("fastpath-floors", publish(entry("a", 5), entry("b", 8)))
    assert running.view.find("b") is None
    await running.view.confirm()
    assert running.view.find("b") == entry("b", 8)


async def test_those_who_ask_together_share_one_list(running: Process) -> None:
    await begun(running)
    lists = running.line.lists
    await asyncio.gather(*(running.view.confirm() for _ in range(100)))
    assert running.line.lists == lists + 1


async def test_a_list_that_had_begun_confirms_nothing(running: Process) -> None:
    """Its answer may be from before the question."""
    await begun(running)
    running.line.frozen = True
    running.line.delay = lambda: 0.1
    first = asyncio.create_task(running.view.confirm())
    await asyncio.sleep(0.15)  # it has seen the store, and is on its way back
    running.store.edit("fastpath-floors", publish(entry("b", 8)))
    lists = running.line.lists
    later = [asyncio.create_task(running.view.confirm()) for _ in range(10)]
    await first
    assert running.view.find("b") is None
    await asyncio.gather(*later)
    assert running.view.find("b") == entry("b", 8)
    assert running.line.lists == lists + 1


async def test_those_who_ask_one_after_another_share_too(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 0.1
    lists = running.line.lists
    asking = []
    for _ in range(50):
        asking.append(asyncio.create_task(running.view.confirm()))
        await asyncio.sleep(0.02)
    await asyncio.gather(*asking)
    assert running.line.lists <= lists + 7


async def test_a_list_that_is_stuck_holds_up_no_other(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 2.5
    stuck = asyncio.create_task(running.view.confirm())
    await asyncio.sleep(0.01)
    running.line.delay = lambda: 0.0
    start = running.clock.monotonic()
    await running.view.confirm()
    assert running.clock.monotonic() - start < 0.3
    with pytest.raises(NotSyncedError, match="within 2 s"):
        await stuck


async def test_nobody_waits_longer_than_two_seconds(running: Process) -> None:
    await begun(running)
    running.line.cut = True
    start = running.clock.monotonic()
    with pytest.raises(NotSyncedError, match="could not be read within 2 s"):
        await running.view.confirm()
    assert running.clock.monotonic() - start == pytest.approx(CONFIRM, abs=0.01)
    assert running.view.find("a") == entry("a", 5), "what is above 0 is answered from what is known"


async def test_a_list_that_is_refused_confirms_nothing(running: Process) -> None:
    await begun(running)
    running.line.list_answer = 503
    with pytest.raises(NotSyncedError, match="cannot be read: refused by the test"):
        await running.view.confirm()


async def test_who_goes_takes_nobody_along(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 0.1
    one, other = (asyncio.create_task(running.view.confirm()) for _ in range(2))
    await asyncio.sleep(0.05)
    one.cancel()
    await other
    assert one.cancelled()


async def test_who_waits_when_the_process_ends_is_told(process: Process) -> None:
    process.line.delay = lambda: 0.5
    async with watching(process):
        await asyncio.sleep(2)
        begun = asyncio.create_task(process.view.confirm())
        await asyncio.sleep(0.1)
        behind = asyncio.create_task(process.view.confirm())
        await asyncio.sleep(0.1)
    for each in (begun, behind):
        with pytest.raises(NotSyncedError, match="the process ends"):
            await each
    with pytest.raises(NotSyncedError):
        await process.view.confirm()


# --- what cannot be read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="cut off"),
        pytest.param('{"replicas": "many"}', id="a text"),
        pytest.param("8", id="plain"),
    ],
)
async def test_an_entry_that_cannot_be_read_is_no_0(running: Process, text: str) -> None:
    await begun(running)
    running.store.edit("fastpath-floors", lambda document: document["data"].update(c=text))
    await asyncio.sleep(0.1)
    assert refusal(running.view).startswith(
        "the entry c of the ConfigMap fastpath/fastpath-floors cannot be read: not a floor: "
    )
    await asyncio.sleep(5)
    assert ("floor-read", "") in running.faults.active()
    running.store.edit("fastpath-floors", publish(entry("a", 5)))
    await asyncio.sleep(5)
    assert running.view.find("a") == entry("a", 5)
    assert running.faults.active() == {}


async def test_a_version_that_is_no_number_is_an_error(running: Process) -> None:
    await begun(running)
    with pytest.raises(KubernetesError, match="'v7' is no number"):
        running.view.take(ReadMap("fastpath-floors", "v7", {}))
    assert running.view.find("a") == entry("a", 5)


# --- several shards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        pytest.param(entry("a", 5), entry("a", 8), 8, id="the greater"),
        pytest.param(entry("a", 5), entry("a", 8, lasts=-1), 5, id="the one that holds"),
        pytest.param(entry("a", 5, lasts=-3), entry("a", 8, lasts=-1), 8, id="the later where none holds"),
        pytest.param(entry("a", 5), entry("a", 0), 5, id="not the one without a floor"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
async def test_of_two_entries_for_one_autoscaler(
    process: Process, one: FloorEntry, other: FloorEntry, wins: int, *, turned: bool
) -> None:
    pair = [one, other][:: -1 if turned else 1]
    for number, each in enumerate(pair, 1):
        process.store.post(config_map(each, entry(f"own-{number}", 2), name=f"fastpath-floors-{number}-of-2"))
    async with watching(process):
        await asyncio.sleep(1)
        found = process.view.find("a")
        assert found is not None
        assert found.replicas == wins
        assert process.view.entries() == {"a": found, "own-1": entry("own-1", 2), "own-2": entry("own-2", 2)}


# --- never back ----------------------------------------------------------------------------------------------------------------


async def test_what_was_written_is_known_at_once(running: Process) -> None:
    await begun(running)
    running.line.frozen = True
    running.store.edit("fastpath-floors", publish(entry("a", 9)))
    written = running.store.objects["fastpath-floors"]
    running.view.take(ReadMap("fastpath-floors", written["metadata"]["resourceVersion"], written["data"]))
    assert running.view.find("a") == entry("a", 9)
    running.view.take(ReadMap("fastpath-floors", "101", {}))
    assert running.view.find("a") == entry("a", 9)
    assert running.view.stored("fastpath-floors") == (102, written["data"])


async def test_a_list_that_comes_late_takes_nothing_back(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 0.2
    confirming = asyncio.create_task(running.view.confirm())
    await asyncio.sleep(0.3)  # the list is made
    running.line.delay = lambda: 0.0
    running.store.edit("fastpath-floors", publish(entry("a", 9)))
    await asyncio.sleep(0.05)
    assert running.view.find("a") == entry("a", 9)
    await confirming
    assert running.view.find("a") == entry("a", 9)


async def test_a_list_that_comes_late_brings_nothing_back_that_is_gone(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 0.2
    confirming = asyncio.create_task(running.view.confirm())
    await asyncio.sleep(0.3)
    running.line.delay = lambda: 0.0
    running.store.delete("fastpath-floors")
    await asyncio.sleep(0.05)
    assert running.view.find("a") is None
    await confirming
    assert running.view.find("a") is None


async def test_a_list_that_comes_late_takes_nothing_away_that_is_new(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 0.2
    confirming = asyncio.create_task(running.view.confirm())
    await asyncio.sleep(0.3)
    running.line.delay = lambda: 0.0
    running.store.post(config_map(entry("b", 9), name="fastpath-floors-2-of-2"))
    await asyncio.sleep(0.05)
    await confirming
    assert running.view.find("b") == entry("b", 9)


async def test_a_late_event_takes_nothing_back(running: Process) -> None:
    await begun(running)
    running.line.delay = lambda: 1.0
    running.store.edit("fastpath-floors", publish(entry("a", 9)))
    await asyncio.sleep(0)
    running.line.delay = lambda: 0.0
    running.store.delete("fastpath-floors")
    await running.view.confirm()
    assert running.view.find("a") is None
    for _ in range(15):
        await asyncio.sleep(0.1)
        assert running.view.find("a") is None


async def test_a_store_that_was_put_back_is_believed(running: Process) -> None:
    """Versions begin to count again from there, so all that was known is void."""
    await begun(running)
    told: list[str] = []
    before, version = dict(running.store.objects), running.store.version
    running.store.edit("fastpath-floors", publish(entry("a", 9), entry("b", 9)))
    await running.view.confirm()
    running.view.subscribe(told.append)
    running.store.set_back(before, version)
    await running.view.confirm()
    assert (running.view.find("a"), running.view.find("b")) == (entry("a", 5), None)
    assert set(told) == {"a", "b"}
    running.store.edit("fastpath-floors", publish(entry("a", 7)))
    await running.view.confirm()
    assert running.view.find("a") == entry("a", 7)


@pytest.mark.looptime(False)
async def test_many_entries_are_read_in_steps(process: Process) -> None:
    process.store.post(config_map(*(entry(str(number), 2) for number in range(2500))))
    async with watching(process), other_work() as turns:
        while not process.line.lists or process.view.fault():  # noqa: ASYNC110 - it ends by itself
            await asyncio.sleep(0)
        assert len(process.view.entries()) == 2500
        assert turns.count >= 5
        await until(lambda: process.line.watches)
        told = turns.count
        process.store.edit("fastpath-floors", publish(*(entry(str(number), 3) for number in range(2500))))
        while process.view.entries()["7"].replicas == 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        assert turns.count >= told + 5


# --- over HTTP -------------------------------------------------------------------------------------------------------------


@pytest.mark.looptime(False)
async def test_over_http() -> None:
    monitoring, clock = Monitoring(), SystemClock()
    async with Cluster() as cluster:
        configuration = credentials.build_configuration(cluster.url)
        async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
            faults = ProblemLog(monitoring, clock)
            view = FloorView(client, clock, NAMESPACE, faults)
            task = asyncio.create_task(view.run())
            try:
                await until(lambda: cluster.open_watches == 1)
                assert view.find("a") is None
                cluster.create(config_map(entry("a", 5)))
                cluster.create(
                    config_map(entry("a", 50)) | {"metadata": {"name": "x", "namespace": NAMESPACE}}
                )
                other = config_map(entry("a", 50))
                other["metadata"]["namespace"] = "other"
                cluster.create(other)
                await until(lambda: view.find("a") == entry("a", 5))
                cluster.freeze_watches()
                cluster.patch("configmaps", "fastpath-floors", config_map(entry("b", 8)), NAMESPACE)
                await view.confirm()
                assert view.find("b") == entry("b", 8)
                cluster.thaw_watches()
                cluster.cut_watches()
                await until(lambda: cluster.open_watches == 1)
                cluster.delete("configmaps", "fastpath-floors", NAMESPACE)
                await until(lambda: view.find("b") is None)
                asked = [each for each in cluster.requests if each.verb in {"list", "watch"}]
                assert {each.query.get("labelSelector") for each in asked} == {"fastpath.io/floors=true"}
                assert {each.path for each in asked} == {"/api/v1/namespaces/fastpath/configmaps"}
                assert all("resourceVersion" not in each.query for each in asked if each.verb == "list")
            finally:
                task.cancel()
                await asyncio.wait({task})


def test_the_periods_leave_room() -> None:
    """A list that takes as long as it may is followed by another before what it replaced is too old."""
    assert floors.RELIST + floors.LIST_SECONDS + floors.RETRY < STALE
    assert floors.RELIST + 1 <= 5
    assert json.loads(encode_entry(entry("a", 5)))["uid"] == "a"


async def test_a_floor_by_a_clock_that_was_ahead_ends_ten_minutes_after_it_was_seen(
    store: Store, process: Process
) -> None:
    """When no scaler runs any more nothing else ends it. Lists and changes of other entries do not make it younger, changes of its own do."""
    store.post(config_map(entry("a", 5, lasts=3 * 3600), entry("b", 7, lasts=3 * 3600)))
    async with watching(process):
        await asyncio.sleep(300)
        store.edit("fastpath-floors", publish(entry("a", 5, lasts=3 * 3600), entry("b", 8, lasts=3 * 3600)))
        await asyncio.sleep(299)
        assert (process.known("a"), process.known("b")) == (5, 8)
        await asyncio.sleep(2)
        assert (await process.answer("a"), process.known("b")) == (0, 8)
        assert {uid: each.replicas for uid, each in process.view.entries().items()} == {"a": 0, "b": 8}
        await asyncio.sleep(300)
        assert (process.known("a"), process.known("b")) == (0, 0)


async def test_a_clock_of_the_reader_that_is_set_ends_no_floor_and_keeps_none(
    store: Store, process: Process
) -> None:
    """A floor holds for ten minutes at most by the reader's monotonic clock, and until its end by its time of day."""
    store.post(config_map(entry("a", 5)))
    async with watching(process):
        await asyncio.sleep(1)
        process.clock.shift = -3600.0
        await asyncio.sleep(590)
        assert process.known("a") == 5
        await asyncio.sleep(20)
        assert process.known("a") == 0
