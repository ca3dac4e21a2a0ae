"""Scalers that share slices: what they write, want and log, and what their view knows.

Stories of who owns what, and for how long none does, are in `scripts/slices`.
"""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.ownership.lease import LeaseRecord
from adapter.kubernetes.ownership.lease_view import WatchedLease
from adapter.kubernetes.ownership.term import Term
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


def test_the_term_of_a_slice_that_was_given_up_has_ended(world: SliceWorld) -> None:
    (first,) = settle(world)
    terms = {number: term for number, ((_, term),) in world.writers.items()}
    settle(world)
    assert len(first.owned) == 32
    assert {number for number, term in terms.items() if is_open(term)} == set(first.owned)


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


@pytest.mark.parametrize("error", [RuntimeError("a defect"), KubernetesError(500, "x", "of the work")])
def test_an_error_of_the_work_ends_the_process(world: SliceWorld, error: Exception) -> None:
    async def fail(term: Term) -> None:
        await asyncio.sleep(3 if term.number == 5 else 100)
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

    async def end(term: Term) -> None:
        ends.append(term.number)
        await asyncio.sleep(1 if term.number == 5 else 100)

    process.work = end
    world.run(3)
    assert ends.count(5) == 3
    assert ends.count(6) == 1


# --- the view -----------------------------------------------------------------------------------------------


class Shown:
    """A view that shows what a test says."""

    def __init__(self, world: SliceWorld, *listed: WatchedLease) -> None:
        self.view = world.join().view
        self.list(*listed)

    def list(self, *leases: WatchedLease) -> None:
        for lease in list(self.view.cache):
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
