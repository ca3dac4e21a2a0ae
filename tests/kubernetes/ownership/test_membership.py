"""The Lease of a scaler's own, with the API server and the clocks of `support.slices`."""

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.ownership.lease import KubernetesLeases, LeaseFence, LeaseRecord
from adapter.kubernetes.ownership.membership import MemberSettings, Membership, Serve, next_record, released
from tests.support.slices import NAME, Process, SliceWorld

ME = MemberSettings("web-1_a", NAME)


def test_records() -> None:
    stamp, wall = "2023-11-14T22:13:20.250000Z", 1_700_000_000.25
    mine = LeaseRecord("web-1_a", 15, "since", "t0", 3)
    assert next_record(None, ME, wall) == LeaseRecord("web-1_a", 15, stamp, stamp, 0)
    assert next_record(mine, ME, wall) == LeaseRecord("web-1_a", 15, "since", stamp, 3)
    assert next_record(LeaseRecord("web-2_b", 15, "since", "t0", 3), ME, wall) == LeaseRecord(
        "web-1_a", 15, stamp, stamp, 4
    )
    assert released(mine, wall) == LeaseRecord("", 1, stamp, stamp, 3)


def test_no_scaler_clears_the_lease_while_a_write_may_be_under_way() -> None:
    """What a write may take, and how far the clock may be off unseen, stay below the lease duration."""
    assert ME.renew_deadline + ME.tolerance < ME.lease_duration


class Member(Process):
    """A scaler that owns no slices."""

    def __init__(self, world: SliceWorld, retry_period: float = 2.0) -> None:
        super().__init__(world, "pod", MemberSettings("", NAME, retry_period=retry_period))
        world.processes.append(self)
        self.serve: Serve = self.stay
        self.fences: list[LeaseFence] = []
        self.ended = 0

    async def _main(self) -> None:
        leases = KubernetesLeases(self.context.client, "default", self.lease)
        await Membership(leases, self.settings, self.context).run(self._serve, self._pass, self._pass)

    async def _pass(self) -> None:
        """Prepare nothing, and leave at once."""

    async def _serve(self, fence: LeaseFence) -> None:
        self.fences.append(fence)
        try:
            await self.serve(fence)
        finally:
            self.ended += 1

    async def stay(self, _fence: LeaseFence) -> NoReturn:
        while True:
            await asyncio.Event().wait()

    def start(self) -> None:
        self.world.run_until(lambda: bool(self.fences), 1)

    def stop(self) -> float:
        self.leave()
        return self.world.run_until(self.task.done)

    @property
    def is_member(self) -> bool:
        """Whether it may write, and says so."""
        assert self.sample("leader_election_master_status", name=NAME) == (len(self.fences) > self.ended)
        return len(self.fences) > self.ended and self.fences[-1].left() > 0

    @property
    def holder(self) -> str:
        return self.world.holder(self.lease)

    def sample(self, metric: str, **labels: str) -> float:
        return self.monitoring.registry.get_sample_value(metric, labels) or 0.0

    def renewals(self, outcome: str) -> float:
        return self.sample("fastpath_lease_renewals_total", outcome=outcome)


def take(world: SliceWorld, seconds: float) -> None:
    """Let a request take so long, and its response."""
    world.dice = cast("random.Random", SimpleNamespace(choice=lambda _: seconds))


@pytest.fixture
def world() -> Iterator[SliceWorld]:
    world = SliceWorld()
    try:
        yield world
    finally:
        world.close()


@pytest.fixture
def member(world: SliceWorld) -> Member:
    return Member(world)


def test_a_renewal_is_one_call_in_each_retry_period(world: SliceWorld, member: Member) -> None:
    member.start()
    calls = member.calls
    world.run(61)
    assert (member.is_member, member.holder) == (True, member.identity)
    assert member.calls - calls == member.renewals("success") - 1 == 30
    assert world.leases[member.lease]["spec"]["leaseDurationSeconds"] == 15


def test_the_lease_is_released_after_the_work_has_ended(world: SliceWorld, member: Member) -> None:
    holders: list[str] = []

    async def work(fence: LeaseFence) -> NoReturn:
        try:
            await member.stay(fence)
        finally:
            await asyncio.sleep(1.5)
            fence.check()
            holders.append(member.holder)

    member.serve = work
    member.start()
    world.run(5)
    assert 1.5 < member.stop() < 1.7
    assert holders == [member.identity]
    assert (member.holder, member.fences[0].closed, member.is_member) == ("", True, False)


def test_work_that_does_not_end_cannot_write_after_the_renew_deadline(
    world: SliceWorld, member: Member
) -> None:
    found: list[tuple[float, str]] = []

    async def work(fence: LeaseFence) -> NoReturn:
        try:
            await member.stay(fence)
        finally:
            await asyncio.sleep(30)
            found.append((fence.left(), member.holder))

    member.serve = work
    member.start()
    member.stop()
    assert found == [(0.0, member.identity)]
    assert member.holder == ""


@pytest.mark.parametrize(("mode", "attempts"), [("cut", 2), ("deaf", 2), ("error", 4)])
def test_a_member_without_renewals_ends_at_the_renew_deadline_and_joins_again(
    world: SliceWorld, mode: str, attempts: int
) -> None:
    member = Member(world, retry_period=3.0)
    member.start()
    world.run(5)
    renewed = member.fences[0].sent.monotonic
    member.mode = mode
    world.run_until(lambda: not member.is_member)
    assert world.now - renewed == pytest.approx(10, abs=0.1)
    world.run(0.1)
    assert (member.ended, member.fences[0].closed) == (1, True)
    assert member.problems.active().keys() == {("lease", "")}
    assert member.renewals("failed") == attempts, "one may take half the deadline"
    world.run(5.1)
    assert member.renewals("failed") > attempts, "it does not release the Lease before it tries to join"
    world.run(5)
    member.mode = "good"
    world.run_until(lambda: member.is_member, 8)
    assert len(member.fences) == 2
    assert member.fences[0].closed, "what is left over from the first membership cannot write in the second"
    assert member.problems.active() == {}


@pytest.mark.parametrize("mode", ["cut", "deaf", "error"])
def test_renewals_may_fail_for_less_than_the_deadline(world: SliceWorld, member: Member, mode: str) -> None:
    member.start()
    member.mode = mode
    world.run(6)
    member.mode = "good"
    world.run(20)
    assert (len(member.fences), member.is_member, member.problems.active()) == (1, True, {})
    assert member.renewals("conflict") == (mode == "deaf"), "what was written without an answer is read"


@pytest.mark.parametrize("holder", ["", "web-9_x"])
def test_a_member_whose_lease_was_cleared_ends_and_joins_again(
    world: SliceWorld, member: Member, holder: str
) -> None:
    left: list[float] = []

    async def work(fence: LeaseFence) -> NoReturn:
        try:
            await member.stay(fence)
        finally:
            left.append(fence.left())

    member.serve = work
    member.start()
    world.run(3)
    world.edit(member.lease, holderIdentity=holder)
    assert world.run_until(lambda: member.ended > 0) < 2.1
    assert left == [0.0]
    world.run(1)
    assert (len(member.fences), member.holder) == (2, member.identity)
    assert world.leases[member.lease]["spec"]["leaseTransitions"] == 1


def test_a_deleted_lease_is_made_again(world: SliceWorld, member: Member) -> None:
    member.start()
    for _ in range(4):  # the answer is 404 or 409
        world.delete(member.lease)
        world.run(3)
    assert (member.holder, len(member.fences)) == (member.identity, 1)


def test_a_jump_of_the_clock_ends_a_membership(world: SliceWorld, member: Member) -> None:
    member.start()
    member.shift = 3600.0
    assert not member.is_member
    assert world.run_until(lambda: member.is_member) < 2.1
    assert (len(member.fences), member.fences[0].closed) == (2, True)


@pytest.mark.parametrize("holder", ["", "web-9_x"])
def test_after_a_conflict_the_lease_is_released_if_it_has_the_same_holder(
    world: SliceWorld, member: Member, holder: str
) -> None:
    member.start()
    holders = iter([holder or member.identity])

    def intervene(name: str) -> None:
        for other in holders:
            world.edit(name, holderIdentity=other)

    world.before_write = intervene
    member.stop()
    assert (member.holder, member.problems.active()) == (holder, {})


@pytest.mark.parametrize("mode", ["cut", "error"])
def test_a_release_is_tried_for_one_attempt(world: SliceWorld, member: Member, mode: str) -> None:
    member.start()
    member.mode = mode
    assert member.stop() < 5.1
    assert member.holder == member.identity
    assert ("lease", "") in member.problems.active()


@pytest.mark.parametrize("seconds", [0.5, 1.25, 1.75], ids=["reads", "is on its way", "has no answer"])
def test_one_that_ends_while_it_joins_keeps_nothing(
    world: SliceWorld, member: Member, seconds: float
) -> None:
    take(world, 0.5)
    world.run(seconds)
    member.stop()
    assert (member.holder, member.fences) == ("", [])
    assert (member.lease in world.leases) == (seconds > 1)


def test_an_error_of_the_work_after_a_loss_is_logged(
    world: SliceWorld, member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(fence: LeaseFence) -> NoReturn:
        try:
            await member.stay(fence)
        finally:
            raise RuntimeError("a defect at the end")

    member.serve = work
    member.start()
    world.edit(member.lease, holderIdentity="")
    world.run_until(lambda: len(member.fences) == 2, 3)
    assert "a defect at the end" in caplog.text
    assert member.is_member


def test_a_namespace_that_does_not_exist_is_a_problem(world: SliceWorld, member: Member) -> None:
    def refuse(_name: str) -> None:
        raise KubernetesError(404, "NotFound", 'namespaces "gone" not found')

    world.before_write = refuse
    world.run(3)
    assert 'namespaces "gone" not found' in member.problems.active()["lease", ""]
    world.before_write = lambda _name: None
    world.run_until(lambda: member.is_member, 3)
    assert member.problems.active() == {}


def test_one_that_meets_a_conflict_each_time_tries_again_later(world: SliceWorld, member: Member) -> None:
    world.put(member.lease, {"metadata": {"name": member.lease}, "spec": {"holderIdentity": ""}})
    world.before_write = world.annotate
    world.run(1.9)
    assert member.calls == 6, "it reads and writes three times"
    assert member.renewals("conflict") == 3
    world.before_write = lambda _name: None
    world.run_until(lambda: member.is_member, 1)
    assert member.is_member
