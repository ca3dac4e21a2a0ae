"""The election.

The verdict as a table, the loop in the loop's own time, and two hundred killed leaders under a script of
faults.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes import leader_election
from adapter.kubernetes.leader_election import (
    Election,
    Elector,
    LeaseVerdict,
    Move,
    Sighting,
    judge,
    next_record,
    sight,
)
from adapter.kubernetes.lease import Lease, LeaseFence, LeaseRecord
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.election import Keeper, Line, LoopClock

ME, OTHER = "web-1_a", "web-2_b"


def record(holder: str = OTHER, duration: int = 15, renewed: str = "t0", transitions: int = 3) -> LeaseRecord:
    return LeaseRecord(holder, duration, "since", renewed, transitions)


def lease(what: LeaseRecord, version: str = "7") -> Lease:
    return Lease(what, version, {})


def seen(what: LeaseRecord, since: float = 100.0) -> Sighting:
    return Sighting(what, since, lease(what))


# --- the verdict --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sighting", "now", "verdict"),
    [
        pytest.param(None, 100.0, LeaseVerdict(Move.CREATE), id="there is no lease"),
        pytest.param(seen(record()), 100.0, LeaseVerdict(Move.WAIT, 15.0), id="held by another candidate"),
        pytest.param(seen(record()), 114.0, LeaseVerdict(Move.WAIT, 1.0), id="held for another second"),
        pytest.param(seen(record()), 115.0, LeaseVerdict(Move.TAKE), id="unchanged for as long as it says"),
        pytest.param(
            seen(record(duration=60)),
            159.0,
            LeaseVerdict(Move.WAIT, 1.0),
            id="the record's duration counts, not ours",
        ),
        pytest.param(seen(record(duration=0)), 100.0, LeaseVerdict(Move.TAKE), id="no duration"),
        pytest.param(seen(record("")), 100.0, LeaseVerdict(Move.TAKE), id="given back"),
        pytest.param(seen(record(ME)), 100.0, LeaseVerdict(Move.RENEW), id="ours"),
        pytest.param(
            seen(record(ME)),
            500.0,
            LeaseVerdict(Move.RENEW),
            id="ours though its time is over: the version will tell",
        ),
        pytest.param(
            Sighting(record(), 100.0, None),
            114.0,
            LeaseVerdict(Move.WAIT, 1.0),
            id="deleted while held by another",
        ),
        pytest.param(
            Sighting(record(), 100.0, None),
            115.0,
            LeaseVerdict(Move.CREATE),
            id="deleted, and its time is over",
        ),
        pytest.param(
            Sighting(record(ME), 100.0, None), 101.0, LeaseVerdict(Move.CREATE), id="ours was deleted"
        ),
        pytest.param(
            Sighting(record(""), 100.0, None), 101.0, LeaseVerdict(Move.CREATE), id="given back and deleted"
        ),
    ],
)
def test_verdict(sighting: Sighting | None, now: float, verdict: LeaseVerdict) -> None:
    assert judge(sighting, ME, now) == verdict


def test_an_equal_record_keeps_its_time_of_sight() -> None:
    first = sight(None, lease(record()), 100.0)
    assert first == Sighting(record(), 100.0, lease(record()))
    labelled = sight(first, lease(record(), "8"), 107.0)
    assert labelled is not None
    assert (labelled.since, labelled.lease) == (100.0, lease(record(), "8")), (
        "a label was added; the holder did nothing"
    )
    renewed = sight(labelled, lease(record(renewed="t1"), "9"), 110.0)
    assert renewed is not None
    assert renewed.since == 110.0


def test_a_deleted_lease_is_remembered_until_its_time_is_over() -> None:
    assert sight(None, None, 100.0) is None
    assert sight(seen(record(), 100.0), None, 105.0) == Sighting(record(), 100.0, None)


def test_records_of_a_candidate() -> None:
    election = Election(ME, "x")
    stamp = "2023-11-14T22:13:20.250000Z"
    wall = 1_700_000_000.25
    assert next_record(None, election, wall) == LeaseRecord(ME, 15, stamp, stamp, 0)
    assert next_record(seen(record()), election, wall) == LeaseRecord(ME, 15, stamp, stamp, 4)
    assert next_record(seen(record(ME)), election, wall) == LeaseRecord(ME, 15, "since", stamp, 3)
    assert leader_election.released(record(ME), wall) == LeaseRecord("", 1, stamp, stamp, 3)


def test_an_identity_names_its_pod() -> None:
    assert leader_election.pod_of("fastpath-7d9-abc_5f0c") == "fastpath-7d9-abc"
    assert leader_election.pod_of("laptop") == "laptop"


def test_no_other_replica_holds_the_lease_while_a_write_may_be_under_way() -> None:
    """What a write may take, and how far the clock may be off unseen, stay below the lease duration."""
    election = Election(ME, "x")
    assert election.renew_deadline + election.tolerance < election.lease_duration


# --- the loop -----------------------------------------------------------------------------------------------


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


Work = Callable[[LeaseFence], Awaitable[None]]


class Candidate:
    """One process: an elector, and what it does as a leader."""

    def __init__(
        self, keeper: Keeper, name: str, work: Work | None = None, clock: LoopClock | None = None
    ) -> None:
        self.line = Line(keeper)
        self.clock = clock or LoopClock()
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, self.clock)
        self.name = name
        self.terms: list[LeaseFence] = []
        self.ended = 0
        self._work = work or self._stay
        self.elector = Elector(
            self.line, Election(name, "x"), self.clock, lambda: 0.0, self.monitoring, self.faults
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.elector.run(self._lead), name=self.name)

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def _lead(self, fence: LeaseFence) -> None:
        self.terms.append(fence)
        try:
            await self._work(fence)
        finally:
            self.ended += 1

    async def _stay(self, _fence: LeaseFence) -> None:
        await asyncio.Event().wait()

    def sample(self, metric: str, **labels: str) -> float:
        return self.monitoring.registry.get_sample_value(metric, labels) or 0.0


@contextlib.asynccontextmanager
async def candidates(keeper: Keeper, *names: str) -> AsyncIterator[list[Candidate]]:
    """Start candidates one second after the other."""
    started = [Candidate(keeper, name) for name in names]
    try:
        for each in started:
            each.start()
            await asyncio.sleep(1)
        yield started
    finally:
        for each in started:
            await each.stop()


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], object], seconds: float = 60.0, step: float = 0.05) -> float:
    """Return how long it took, in the loop's time."""
    start = now()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - in the loop's time this costs nothing
            await asyncio.sleep(step)
    return now() - start


@pytest.mark.looptime
async def test_the_first_leads_and_the_second_follows(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1", "b_2") as (first, second):
        await asyncio.sleep(60)
        assert (first.elector.leading, second.elector.leading) == (True, False)
        assert second.elector.holder == "a_1"
        assert keeper.record is not None
        assert (keeper.record.duration, keeper.record.transitions) == (15, 0)
        assert first.sample("leader_election_master_status", name="x") == 1
        assert second.sample("leader_election_master_status", name="x") == 0
        assert first.line.calls.count("replace") == 30, "a renewal in each retry period"
        assert first.line.calls.count("fetch") == 1, "a renewal is one call"


@pytest.mark.looptime
async def test_an_orderly_end_hands_over_at_once(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1", "b_2") as (first, second):
        await asyncio.sleep(7.3)
        await first.stop()
        assert first.ended == 1
        assert keeper.holder == ""
        assert await until(lambda: second.elector.leading) < 0.2
        assert keeper.record is not None
        assert keeper.record.transitions == 1


@pytest.mark.looptime
async def test_without_a_watch_a_hand_over_takes_a_retry_period(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1", "b_2") as (first, second):
        second.line.can_watch = False
        keeper.put(keeper.record)  # ends the watch that is open
        await second.stop()
        second.start()
        await asyncio.sleep(7.3)
        await first.stop()
        assert await until(lambda: second.elector.leading) <= 2.1


@pytest.mark.looptime
async def test_the_lease_is_given_back_after_the_work_has_ended(keeper: Keeper) -> None:
    order: list[str] = []

    async def work(fence: LeaseFence) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.5)
            fence.check()
            order.append(f"written, held by {keeper.holder}")

    leader = Candidate(keeper, "a_1", work)
    leader.start()
    await asyncio.sleep(5)
    await leader.stop()
    assert order == ["written, held by a_1"]
    assert keeper.holder == ""
    with pytest.raises(NotLeadingError):
        leader.terms[0].check()


@pytest.mark.looptime
async def test_work_that_does_not_end_keeps_the_lease_from_being_given_back(keeper: Keeper) -> None:
    left: list[float] = []

    async def work(fence: LeaseFence) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(30)
            left.append(fence.left())

    leader = Candidate(keeper, "a_1", work)
    leader.start()
    await asyncio.sleep(5)
    await leader.stop()
    assert left == [0.0]
    assert keeper.holder == "a_1"


@pytest.mark.looptime
async def test_a_dead_leader_is_followed_after_the_lease_duration(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1", "b_2") as (first, second):
        await asyncio.sleep(6.5)
        first.line.cut = True
        renewed = keeper.record
        waited = await until(lambda: keeper.holder == "b_2")
        assert 13 <= waited <= 15.1, "fifteen seconds after the last renewal, not after the end"
        assert renewed is not None
        assert keeper.record is not None
        assert keeper.record.transitions == renewed.transitions + 1
        assert second.elector.leading
        assert not first.elector.leading
        assert first.ended == 1


@pytest.mark.looptime
async def test_a_leader_without_renewals_stops_at_the_renew_deadline(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1") as (leader,):
        await asyncio.sleep(5)
        sent = 4.0  # renewals go out every two seconds from the start
        leader.line.cut = True
        await until(lambda: not leader.elector.leading)
        assert now() == pytest.approx(sent + 10, abs=0.1)
        await until(lambda: leader.ended == 1, 0.2)
        assert leader.faults.active().keys() == {("lease", "")}
        assert leader.sample("fastpath_lease_renewals_total", outcome="failed") >= 2


@pytest.mark.looptime
async def test_a_leader_that_lost_the_lease_follows_and_leads_again(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1", "b_2") as (first, second):
        first.line.cut = True
        await until(lambda: second.elector.leading)
        first.line.cut = False
        await asyncio.sleep(10)
        await second.stop()
        await until(lambda: first.elector.leading)
        assert len(first.terms) == 2
        assert first.terms[0].closed, "what is left over from the first term cannot write in the second"
        assert not first.faults.active()


@pytest.mark.looptime
async def test_one_lost_answer_costs_nothing(keeper: Keeper) -> None:
    """The renewal was made, the leader does not know: the version is not the one it thinks, so it looks."""
    async with candidates(keeper, "a_1") as (leader,):
        leader.line.deaf = True
        await asyncio.sleep(4)
        leader.line.deaf = False
        await asyncio.sleep(20)
        assert len(leader.terms) == 1
        assert leader.sample("fastpath_lease_renewals_total", outcome="conflict") == 1


@pytest.mark.looptime
async def test_a_label_on_the_lease_costs_nothing(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1") as (leader,):
        for _ in range(5):
            keeper.put(keeper.record)
            await asyncio.sleep(4)
        assert len(leader.terms) == 1


@pytest.mark.looptime
@pytest.mark.parametrize("taken", [record("c_3"), record("")], ids=["another", "no holder"])
async def test_a_leader_that_reads_another_holder_stops_at_once(keeper: Keeper, taken: LeaseRecord) -> None:
    async with candidates(keeper, "a_1") as (leader,):
        await asyncio.sleep(3)
        keeper.put(taken)
        await until(lambda: leader.terms[0].closed, 2.1)


@pytest.mark.looptime
async def test_a_deleted_lease_is_made_again_by_its_holder(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1", "b_2") as (first, second):
        keeper.put(None)
        await asyncio.sleep(30)
        assert (keeper.holder, len(first.terms), len(second.terms)) == ("a_1", 1, 0)


@pytest.mark.looptime
async def test_an_api_server_that_is_slow_but_answers_costs_no_leadership(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1") as (leader,):
        leader.line.before = lambda: 4.0
        await asyncio.sleep(120)
        assert len(leader.terms) == 1


@pytest.mark.looptime
@pytest.mark.parametrize("status", [403, 500, 503])
async def test_refused_renewals_are_tried_until_the_deadline(keeper: Keeper, status: int) -> None:
    async with candidates(keeper, "a_1") as (leader,):
        leader.line.answer = status
        await asyncio.sleep(6)
        assert leader.terms[0].left() > 0
        leader.line.answer = 0
        await asyncio.sleep(4)
        assert len(leader.terms) == 1
        leader.line.answer = status
        await asyncio.sleep(12)
        assert leader.terms[0].closed
        leader.line.answer = 0
        await until(lambda: leader.elector.leading, 5)


@pytest.mark.looptime
async def test_a_jump_of_the_clock_is_mended_by_the_next_renewal(keeper: Keeper) -> None:
    async with candidates(keeper, "a_1") as (leader,):
        leader.clock.shift = 3600.0
        assert leader.terms[0].left() == 0
        assert await until(lambda: leader.elector.leading) <= 2.1
        assert len(leader.terms) == 1


@pytest.mark.looptime
@pytest.mark.parametrize("error", [None, RuntimeError("a defect")], ids=["by itself", "by an error"])
async def test_the_end_of_the_work_ends_the_election_and_gives_the_lease_back(
    keeper: Keeper, error: Exception | None
) -> None:
    async def work(_: LeaseFence) -> None:
        await asyncio.sleep(3)
        if error is not None:
            raise error

    leader = Candidate(keeper, "a_1", work)
    leader.start()
    assert leader.task is not None
    await asyncio.wait([leader.task])
    assert leader.task.exception() is error
    assert keeper.holder == ""


@pytest.mark.looptime
@pytest.mark.parametrize("conflicts", [True, False])
async def test_giving_back_is_bounded(keeper: Keeper, conflicts: bool) -> None:  # noqa: FBT001 - a row of a table
    leader = Candidate(keeper, "a_1")
    leader.start()
    await asyncio.sleep(3)
    if conflicts:
        keeper.put(keeper.record)  # it is ours still, in another version
        await leader.stop()
        assert keeper.holder == ""
        return
    leader.line.cut = True
    start = now()
    await leader.stop()
    assert now() - start <= 5.1
    assert ("lease", "") in leader.faults.active()


@pytest.mark.looptime
async def test_a_lease_that_cannot_be_read_at_the_end_is_left_to_its_time(keeper: Keeper) -> None:
    leader = Candidate(keeper, "a_1")
    leader.start()
    await asyncio.sleep(3)
    keeper.put(keeper.record)

    async def refuse(seconds: float) -> Lease | None:
        raise KubernetesError(503, "ServiceUnavailable", "no")

    leader.line.fetch = refuse  # type: ignore[method-assign]  # one call of a line fails
    await leader.stop()
    assert keeper.holder == "a_1"
    assert ("lease", "") in leader.faults.active()


@pytest.mark.looptime
@pytest.mark.parametrize("seconds", [1.5, 2.5], ids=["on its way", "made and not answered"])
async def test_a_candidate_that_stops_while_it_takes_the_lease_keeps_nothing(
    keeper: Keeper, seconds: float
) -> None:
    late = Candidate(keeper, "a_1")
    late.line.before = late.line.after = lambda: 0.5 if not late.line.calls[1:] else 1.0
    late.start()
    await asyncio.sleep(seconds)
    assert late.line.calls == ["fetch", "create"]
    await late.stop()
    assert keeper.holder == ""
    assert not late.terms


@pytest.mark.looptime
async def test_a_candidate_that_stops_when_it_has_won_gives_the_lease_back(keeper: Keeper) -> None:
    """The end of its watch is that moment: the lease is its own by then, and it does not lead yet."""
    keeper.put(record("c_3"))
    late = Candidate(keeper, "a_1")

    async def stubborn(version: str, changed: Callable[[], None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert keeper.holder == "a_1"
            assert late.task is not None
            late.task.cancel()

    late.line.watch = stubborn  # type: ignore[method-assign]  # see above
    late.start()
    await asyncio.sleep(5)
    keeper.put(record(""))
    assert late.task is not None
    await asyncio.wait([late.task])
    assert late.task.cancelled()
    assert keeper.holder == ""
    assert not late.terms


@pytest.mark.looptime
async def test_an_error_of_the_work_while_the_lease_is_lost_is_logged(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(_: LeaseFence) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("a defect at the end")

    leader = Candidate(keeper, "a_1", work)
    leader.start()
    await asyncio.sleep(3)
    keeper.put(record("c_3"))
    await until(lambda: leader.ended == 1, 3)
    await asyncio.sleep(0)
    assert "the work of the leader failed" in caplog.text
    await leader.stop()


@pytest.mark.looptime
async def test_a_namespace_that_is_not_there_is_said() -> None:
    """A Lease cannot be made in it, however often it is tried."""
    follower = Candidate(Keeper(), "a_1")

    async def nowhere(record: LeaseRecord, seconds: float) -> Lease:
        raise KubernetesError(
            404, "NotFound", 'cannot create leases: 404 NotFound: namespaces "gone" not found'
        )

    follower.line.create = nowhere  # type: ignore[method-assign]  # the API server's answer
    follower.start()
    await until(follower.faults.active, 5)
    ((name, _), text) = next(iter(follower.faults.active().items()))
    assert name == "lease"
    assert 'namespaces "gone" not found' in text
    await follower.stop()


@pytest.mark.looptime
async def test_a_candidate_that_is_always_late_follows(keeper: Keeper) -> None:
    """Another candidate writes after each read: it gives up after some attempts, and tries again later."""
    keeper.put(record(""))
    late = Candidate(keeper, "a_1")
    late.line.before = lambda: 0.01
    usual = late.line.replace

    async def too_late(lease: Lease, record: LeaseRecord, seconds: float) -> Lease:
        keeper.put(keeper.record)
        return await usual(lease, record, seconds)

    late.line.replace = too_late  # type: ignore[method-assign]  # others write in between
    late.line.can_watch = False
    late.start()
    await asyncio.sleep(1.9)
    assert late.line.calls == ["fetch", "replace"] * 3
    assert late.sample("fastpath_lease_renewals_total", outcome="conflict") == 3
    late.line.replace = usual  # type: ignore[method-assign]
    await until(lambda: late.elector.leading, 5)
    await late.stop()


# --- two hundred killed leaders -----------------------------------------------------------------------------

ENDS = ("crash", "orderly", "cut", "deaf", "jump")


class Succession:
    """Three candidates at any time that write as leaders do, and end one after the other.

    `attempts` has when a leader was let through its fence, `stale` every write that was made while another
    candidate held the lease.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.keeper = Keeper()
        self.attempts: list[tuple[float, str]] = []
        self.writes = 0
        self.stale: list[str] = []
        self.running: list[Candidate] = []
        self._made = 0

    def spawn(self) -> None:
        dice = self.dice
        self._made += 1
        clock = LoopClock(rate=1 + dice.uniform(-0.02, 0.02), wall=dice.uniform(1e9, 2e9))

        async def work(fence: LeaseFence) -> None:
            while True:
                with contextlib.suppress(NotLeadingError):
                    await self._write(candidate, fence)
                await asyncio.sleep(dice.uniform(0.1, 1.0))

        candidate = Candidate(self.keeper, f"pod-{self._made}_{self._made}", work, clock)
        candidate.line.before = candidate.line.after = lambda: dice.choice((0.0, 0.002, 0.05))
        candidate.line.can_watch = dice.random() < 0.8
        candidate.start()
        self.running.append(candidate)

    async def _write(self, candidate: Candidate, fence: LeaseFence) -> None:
        """Write as `Writer` does: within what the fence leaves, and it takes effect anywhere in that time."""
        left = min(fence.check(), 5.0) / candidate.clock.rate
        self.attempts.append((now(), candidate.name))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await asyncio.sleep(self.dice.choice((0.0, 0.001, 0.01, 0.2, left * self.dice.random())))
                if candidate.line.cut:
                    await asyncio.Event().wait()
                self.writes += 1
                if self.keeper.holder != candidate.name:
                    self.stale.append(
                        f"{now():.3f} {candidate.name} wrote, {self.keeper.holder!r} held the lease"
                    )

    def leader(self) -> Candidate | None:
        found = next((each for each in self.running if each.name == self.keeper.holder), None)
        return found if found is not None and found.elector.leading else None

    async def end(self, leader: Candidate, kind: str) -> float:
        """End a leader, and another process starts in its place.

        Return when it had its last chance to write.
        """
        ended = now()
        self.running.remove(leader)
        if kind == "orderly":
            await leader.stop()
        elif (
            kind == "deaf"
        ):  # its renewals arrive without a response: no candidate takes over before it stops
            leader.line.deaf = True
            await until(lambda: not leader.elector.leading)
            ended = now()
        elif kind == "jump":
            leader.clock.shift += self.dice.choice((-1, 1)) * self.dice.uniform(3, 3600)
        leader.line.cut = True
        self.spawn()
        return ended

    async def wait_for_successor(self, of: Candidate, ended: float) -> float:
        """Return the seconds from the end of one leader to the first attempt of the next."""
        await until(lambda: self.attempts[-1][1] != of.name and self.attempts[-1][0] >= ended)
        return next(at for at, name in self.attempts if at >= ended and name != of.name) - ended


@pytest.mark.looptime
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(2))
async def test_two_hundred_killed_leaders(seed: int) -> None:
    """A hundred from each seed, on slow networks and clocks of unequal pace.

    No write by who does not hold the lease, no long gap.
    """
    succession = Succession(seed)
    for _ in range(3):
        succession.spawn()
    gaps: list[float] = []
    while len(gaps) < 100:
        await asyncio.sleep(succession.dice.uniform(0.1, 5.0))
        leader = succession.leader()
        if leader is None or not any(name == leader.name for _, name in succession.attempts):
            continue
        ended = await succession.end(leader, ENDS[len(gaps) % len(ENDS)])
        gaps.append(await succession.wait_for_successor(leader, ended))
        await leader.stop()
    for each in succession.running:
        await each.stop()
    assert succession.stale == []
    assert succession.writes > 300
    assert max(gaps) <= 15 + 2
