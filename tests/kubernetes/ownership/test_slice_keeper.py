"""Scalers that share slices: what they write, want and log, and what their view knows.

Stories of who owns what, and for how long none does, are in `scripts/slices`.
"""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.ownership.lease import Fence, LeaseRecord
from adapter.kubernetes.ownership.lease_view import LABEL, WatchedLease
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from tests.support.slices import NAME, Process, SliceWorld, is_open


@pytest.fixture
def world() -> Iterator[SliceWorld]:
    with contextlib.closing(SliceWorld(0, MONITORING)) as world:
        yield world


# --- one thing at a time ------------------------------------------------------------------------------------

MONITORING = Monitoring()
FIVE = slices.name_of(NAME, 5)


def settle(world: SliceWorld, members: int = 1) -> list[Process]:
    """Let scalers join, and share the slices."""
    joined = [world.join() for _ in range(members)]
    world.run_until(world.is_fair)
    return joined


def put_five(world: SliceWorld, holder: str) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    world.put(FIVE, {"metadata": {"name": FIVE, "labels": {LABEL: NAME}}, "spec": spec})


def owner(world: SliceWorld, number: int) -> Process:
    ((process, _),) = world.writers[number]
    return process


def test_one_scaler_owns_all_and_writes_no_more_than_a_leader(world: SliceWorld) -> None:
    alone = world.join()
    assert world.run_until(world.is_fair) < 1
    assert world.shares() == [slices.COUNT]
    assert {world.holder(slices.name_of(NAME, number)) for number in range(slices.COUNT)} == {alone.identity}
    before, calls = len(world.log), alone.calls
    world.run(60)
    assert len(world.log) - before == 30 + 6, "the renewals of its own Lease, and of that of the installation"
    assert alone.calls - calls == 30 + 6 + 12, "those, and looks at the Lease of the installation"


def test_the_fence_of_a_slice_that_was_given_up_is_closed(world: SliceWorld) -> None:
    (first,) = settle(world)
    fences = {number: fence for number, ((_, fence),) in world.writers.items()}
    settle(world)
    assert len(first.owned) == 32
    assert {number for number, fence in fences.items() if is_open(fence)} == set(first.owned)


def watch_free(world: SliceWorld) -> float:
    """Let time pass until the shares are fair; return the largest number of slices that were free at once."""
    most = 0

    def is_fair() -> bool:
        nonlocal most
        most = max(most, len(world.free))
        return world.is_fair()

    world.run_until(is_fair)
    return most


def test_one_that_leaves_hands_over_few_slices_at_once_which_others_want_before(world: SliceWorld) -> None:
    first, second, third = settle(world, 3)
    owned = set(first.owned)
    first.leave()
    world.run(0.5)
    assert set(first.owned) == owned
    expected = [second.wanted[-1], third.wanted[-1]]
    assert owned <= expected[0] | expected[1]
    assert not owned & expected[0] & expected[1]
    assert watch_free(world) <= 2
    assert expected == [set(second.owned), set(third.owned)]


def test_one_that_joins_wants_its_share_before_it_is_released(world: SliceWorld) -> None:
    (first,) = settle(world)
    second = world.join()
    world.run(5)
    assert len(first.owned) == slices.COUNT
    assert watch_free(world) <= 2
    assert second.wanted[0] == second.wanted[-1] == set(second.owned)


def test_one_that_comes_back_is_prepared_anew_before_others_release_its_share(world: SliceWorld) -> None:
    ready = asyncio.Event()
    ready.set()

    async def prepare() -> None:
        await ready.wait()

    first, second = world.join(prepare=prepare), world.join()
    world.run_until(world.is_fair)
    ready.clear()
    first.freeze(60)
    world.run(61)
    assert world.holder(first.lease) == ""
    assert first.wanted[-1] == set(), "what it has may be outdated"
    first.loop.call_soon(ready.set)
    world.run(1)
    assert len(first.wanted[-1]) == slices.COUNT // 2
    assert len(second.owned) == slices.COUNT
    world.run_until(world.is_fair)
    assert first.wanted[-1] == set(first.owned)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), KubernetesError(500, "x", "of the work")])
def test_an_error_of_the_work_ends_the_process(world: SliceWorld, error: Exception) -> None:
    async def fail(number: int, fence: Fence) -> None:
        await asyncio.sleep(3 if number == 5 else 100)
        raise error

    process = world.join()
    process.work = fail
    world.run(4)
    assert process.task.done()
    raised = process.task.exception()
    while isinstance(raised, BaseExceptionGroup):
        (raised,) = raised.exceptions
    assert raised is error
    assert world.holder(process.lease) == ""


def test_work_that_ends_by_itself_begins_again(world: SliceWorld) -> None:
    process = world.join()
    ends = []

    async def end(number: int, fence: Fence) -> None:
        ends.append(number)
        await asyncio.sleep(1 if number == 5 else 100)

    process.work = end
    world.run(3)
    assert ends.count(5) == 3
    assert ends.count(6) == 1


def test_the_owner_of_a_slice_is_known_to_all(world: SliceWorld) -> None:
    first, second = world.join(), world.join()
    assert first.keeper.find_owner(5) == ""
    world.run_until(world.is_fair)
    world.run(1)
    assert {first.keeper.find_owner(5), second.keeper.find_owner(5)} == {owner(world, 5).identity}
    second.kill()
    world.run_until(lambda: world.holder(second.lease) == "")
    gone = next(n for n in range(slices.COUNT) if world.holder(slices.name_of(NAME, n)) == second.identity)
    world.run_until(lambda: first.keeper.find_owner(gone) == "", 1)
    assert first.keeper.find_owner(gone) == ""


# --- writes that go wrong -----------------------------------------------------------------------------------


def test_a_problem_of_one_lease_lasts_until_that_lease_changes(world: SliceWorld) -> None:
    def refuse(name: str) -> None:
        if name in {FIVE, slices.name_of(NAME, 6)}:
            raise KubernetesError(503, "ServiceUnavailable", "refused")

    process = world.join()
    world.before_write = refuse
    world.run(3)
    assert len(process.owned) == slices.COUNT - 2
    assert process.problems.active().keys() == {("slices", FIVE), ("slices", slices.name_of(NAME, 6))}
    put_five(world, "pod-9_x")
    world.run(1)
    assert process.problems.active().keys() == {("slices", slices.name_of(NAME, 6))}
    world.before_write = lambda _name: None
    # what is missing may be that of the other, until that has been gone for long enough
    assert world.run_until(lambda: process.problems.active() == {}) < 20


# --- Leases that a person changes ---------------------------------------------------------------------------


CHANGED = "the Lease of a slice was changed or deleted, not by its owner"


def test_a_slice_that_a_person_took_from_its_owner_is_logged_once(
    world: SliceWorld, caplog: pytest.LogCaptureFixture
) -> None:
    settle(world)
    world.run(1)
    world.edit(FIVE, holderIdentity="pod-9_x")
    world.run(5)
    (record,) = (record for record in caplog.records if record.message == CHANGED)
    assert record.facts == {"lease": FIVE, "holder": "pod-9_x"}  # type: ignore[attr-defined]
    world.delete(slices.name_of(NAME, 7))
    world.run(5)
    assert caplog.messages.count(CHANGED) == 2


# --- the view -----------------------------------------------------------------------------------------------


class Shown:
    """A view that shows what a test says."""

    def __init__(self, world: SliceWorld, *listed: WatchedLease) -> None:
        self.view = world.join().view
        self.list(*listed)

    def list(self, *leases: WatchedLease) -> None:
        for lease in self.view.slices():
            self.view.cache.remove("default", lease.name)
        for lease in leases:
            self.view.cache.put(lease)
        assert list(self.view.cache.listed("default")) == [None]

    def events(self, *leases: WatchedLease | None) -> None:
        for lease in leases:
            if lease is None:
                self.view.cache.remove("default", FIVE)
            else:
                self.view.cache.put(lease)
        self.view.cache.end_batch()


def five(version: str, holder: str = "", duration: int = 15) -> WatchedLease:
    return WatchedLease("default", FIVE, version, LeaseRecord(holder, duration))


def test_a_slice_whose_lease_is_made_has_no_owner_if_no_scaler_was_there(world: SliceWorld) -> None:
    shown = Shown(world)
    shown.events(five("1"))
    assert shown.view.find_former(five("1")) == ""
    shown.list(five("1"))
    assert shown.view.find_former(five("1")) == "", "it is the same"
    assert shown.view.find_former(five("2")) is None


def test_a_slice_whose_lease_is_made_may_be_that_of_a_scaler_whose_lease_of_it_was_not_seen(
    world: SliceWorld,
) -> None:
    shown = Shown(world, WatchedLease("default", slices.name_of(NAME, 6), "1", LeaseRecord("pod-9_x", 15)))
    shown.events(five("2"))
    assert shown.view.find_former(five("2")) is None


@pytest.mark.parametrize(
    ("before", "former"),
    [
        ([five("1", "pod-9_x")], "pod-9_x"),
        ([five("1", "pod-9_x"), five("2", duration=1)], ""),
        ([five("1", "pod-9_x"), None, five("2")], "pod-9_x"),
        ([five("1", "pod-9_x"), None, five("2"), None, five("3"), five("4", "pod-8_x")], "pod-8_x"),
        ([five("1"), five("2")], None),
    ],
)
def test_a_slice_whose_lease_is_made_again_has_the_owner_of_before(
    world: SliceWorld, before: list[WatchedLease | None], former: str | None
) -> None:
    shown = Shown(world)
    shown.events(*before)
    shown.events(None, five("9"))
    assert shown.view.find_former(five("9")) == former


def test_a_list_does_not_tell_the_owner_of_before(world: SliceWorld) -> None:
    shown = Shown(world, five("1", "pod-9_x"))
    shown.list()
    shown.events(five("3"))
    assert shown.view.find_former(five("3")) is None
    shown.events(five("4", "pod-9_x"), None)
    shown.list(five("6"))
    assert shown.view.find_former(five("6")) is None


def test_a_member_that_only_seems_late_is_left_alone(world: SliceWorld) -> None:
    first, second = settle(world, 2)
    world.run(1)
    second.stalled = True
    calls = second.calls
    world.run(60)
    assert len(first.owned) == slices.COUNT
    assert world.leases[first.lease]["spec"]["leaseTransitions"] == 0
    assert second.calls - calls < 2 * slices.COUNT + 60 / 0.5, (
        "it releases its slices, and looks again and again"
    )
