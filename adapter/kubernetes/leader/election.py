"""Who leads: a pure verdict on the record of a Lease, and a thin loop that acts on it.

What lives here: when a lease may be taken, kept, given up. Not here: the Lease on the wire (`leases`), what may be written while it is
held (`fence`). The law is client-go's: nobody compares the times in a record with a clock of its own; a record that was seen to stay
the same for as long as it says is abandoned. Three things are ours: a lease is given back at once at an orderly end and its followers
watch it, so a hand-over takes no retry period; every call is bounded; a leader that lost the lease follows again and need not die.
"""

import asyncio
import contextlib
import enum
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from adapter import errors
from adapter.config.options import Options
from adapter.kubernetes.leader import fence as fences
from adapter.kubernetes.leader.fence import LeaseFence
from adapter.kubernetes.leader.lease import Lease, LeaseRecord, LeaseStore, micro_time
from adapter.model.clock import Clock
from adapter.model.shards import parse_shard
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

JITTER = 1.2
"""A follower waits between one retry period and 2.2 of them, as client-go's; only while it has no watch."""

FAULT = "lease"
_LOOKS = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Election:
    """The settings of one election, with Kubernetes' names and defaults. All times are seconds.

    `identity` is the Pod's name, an underscore, and something that no other process has; `lease_name` names the Lease in the log and
    in metrics.
    """

    identity: str
    lease_name: str
    lease_duration: float = 15.0
    """How long others wait after the last change they saw before they take over; what the Lease says, in whole seconds."""

    renew_deadline: float = 10.0
    """How long a leader goes on without a renewal."""

    retry_period: float = 2.0
    """Time between two attempts, and between two renewals."""

    @property
    def attempt(self) -> float:
        """Return how long one call may take: half the renew deadline, as kube-controller-manager's lease client."""
        return self.renew_deadline / 2

    @property
    def tolerance(self) -> float:
        """Return how far the two clocks may part; with what a write may take they stay below the lease duration."""
        return (self.lease_duration - self.renew_deadline) / 2


def election_of(options: Options, identity: str) -> Election:
    """Return the election that the settings ask for: that of the process' shard."""
    return Election(
        identity,
        parse_shard(options.shard).lease_name(options.leader_elect_resource_name),
        options.leader_elect_lease_duration,
        options.leader_elect_renew_deadline,
        options.leader_elect_retry_period,
    )


def pod_of(identity: str) -> str:
    """Return the name of the Pod that an identity speaks of."""
    return identity.rpartition("_")[0] or identity


# -- the verdict -------------------------------------------------------------------------------------------------------


class Sighting(NamedTuple):
    """What a Lease says, and since when (monotonic seconds) it has been seen to say it. `lease` is None once it was deleted."""

    record: LeaseRecord
    since: float
    lease: Lease | None


def sight(before: Sighting | None, lease: Lease | None, now: float) -> Sighting | None:
    """Return the sighting of a Lease just read or written, None while there never was one.

    What says the same as before has been seen since then. A deleted Lease binds its followers for the rest of its time: whoever
    held it does not know yet.
    """
    if lease is None:
        return None if before is None else before._replace(lease=None)
    if before is not None and before.record == lease.record:
        return before._replace(lease=lease)
    return Sighting(lease.record, now, lease)


class Move(enum.Enum):
    """What a candidate may do now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class Verdict(NamedTuple):
    """A move; for WAIT the seconds after which the record, if it stays as it is, is abandoned."""

    move: Move
    wait: float = 0.0


def judge(seen: Sighting | None, identity: str, now: float) -> Verdict:
    """Judge what was seen at `now`, in monotonic seconds; None stands for a Lease that nobody ever saw."""
    if seen is None:
        return Verdict(Move.CREATE)
    record = seen.record
    if record.holder != identity:
        left = seen.since + record.duration - now
        if record.holder and left > 0:
            return Verdict(Move.WAIT, left)
    if seen.lease is None:
        return Verdict(Move.CREATE)
    return Verdict(Move.RENEW if record.holder == identity else Move.TAKE)


def next_record(seen: Sighting | None, election: Election, wall: float) -> LeaseRecord:
    """Return the record of a candidate that creates, takes or renews; a renewal keeps since when it is held, and by which leader."""
    stamp = micro_time(wall)
    duration = int(election.lease_duration)
    if seen is None:
        return LeaseRecord(election.identity, duration, stamp, stamp, 0)
    before = seen.record
    if before.holder == election.identity:
        return LeaseRecord(election.identity, duration, before.acquired, stamp, before.transitions)
    return LeaseRecord(election.identity, duration, stamp, stamp, before.transitions + 1)


def released(record: LeaseRecord, wall: float) -> LeaseRecord:
    """Return the record of a lease given back: nobody's, and good for a second in case somebody reads only that."""
    stamp = micro_time(wall)
    return LeaseRecord("", 1, stamp, stamp, record.transitions)


# -- the loop ----------------------------------------------------------------------------------------------------------

Lead = Callable[[LeaseFence], Awaitable[None]]
"""What a leader does: called with the fence of its term, cancelled when that ends. It ends with nothing left under way."""


class Elector:
    """One candidate. `holder` is who was last seen to hold the lease, "" for nobody."""

    def __init__(
        self,
        store: LeaseStore,
        election: Election,
        clock: Clock,
        random: Callable[[], float],
        monitoring: Monitoring,
        faults: ProblemLog,
    ) -> None:
        self._store = store
        self._election = election
        self._clock = clock
        self._random = random
        self._monitoring = monitoring
        self._faults = faults
        self._seen: Sighting | None = None
        self._fence: LeaseFence | None = None
        self._changed = asyncio.Event()
        self._unsure = False  # whether a write is under way, or was not answered
        monitoring.leader.labels(election.lease_name).set(0)

    @property
    def leading(self) -> bool:
        """Whether a write may be made now."""
        return self._fence is not None and self._fence.left() > 0

    @property
    def holder(self) -> str:
        """Return the identity last seen in the Lease, "" for none."""
        return self._seen.record.holder if self._seen is not None else ""

    async def run(self, lead: Lead) -> None:
        """Follow and lead by turns until cancelled, and give the lease back then if it is held.

        What `lead` raises ends it; so does its return.
        """
        while True:
            try:
                fence = await self._acquire()
            except asyncio.CancelledError:
                await self._give_up()
                raise
            if await self._lead(fence, lead):
                return

    # -- following -----------------------------------------------------------------------------------------------------

    async def _acquire(self) -> LeaseFence:
        """Return the fence of a new term, as soon as the lease is ours."""
        watch: asyncio.Task[None] | None = None
        try:
            while True:
                self._changed.clear()
                sent = await self._attempt(self._election.attempt, leading=False)
                if sent is not None:
                    return self._begin(sent)
                watch = watch or asyncio.create_task(self._watch(), name="lease watch")
                await self._wait_to_try()
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.wait([watch])

    async def _wait_to_try(self) -> None:
        """Wait until the lease is abandoned, has changed, or it is time to look at it."""
        seconds = self._election.retry_period * (1 + JITTER * self._random())
        verdict = judge(self._seen, self._election.identity, self._clock.monotonic())
        if verdict.move is Move.WAIT:
            seconds = min(seconds, verdict.wait)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _watch(self) -> None:
        """Look for changes of the Lease for ever. Where watching is not allowed or fails, the retry period is what remains."""
        while True:
            if self._seen is not None and self._seen.lease is not None:
                with contextlib.suppress(errors.KubernetesError):
                    await self._store.watch(self._seen.lease.version, self._changed.set)
            await asyncio.sleep(self._election.retry_period * (1 + JITTER * self._random()))

    def _begin(self, sent: fences.Reading) -> LeaseFence:
        election = self._election
        fence = LeaseFence(self._clock, sent, hold=election.renew_deadline, tolerance=election.tolerance)
        self._fence = fence
        self._monitoring.leader.labels(election.lease_name).set(1)
        _log.info("leading", extra=facts(lease=election.lease_name, holder=election.identity))
        return fence

    # -- leading -------------------------------------------------------------------------------------------------------

    async def _lead(self, fence: LeaseFence, lead: Lead) -> bool:
        """Lead until the lease is lost (False) or `lead` ends by itself (True)."""
        work = asyncio.ensure_future(lead(fence))
        lost = False
        started = fence.sent.monotonic
        try:
            while not lost:
                await asyncio.wait([work], timeout=self._until_renewal(fence, started))
                if work.done():
                    break
                started = self._clock.monotonic()
                renewed = await self._renew(fence)
                lost = not renewed and (fence.due <= 0 or self.holder != self._election.identity)
        finally:
            await self._end(fence, work, lost=lost)
        if lost:
            return False
        work.result()
        return True

    def _until_renewal(self, fence: LeaseFence, started: float) -> float:
        """Return the seconds until the next attempt, a retry period after the start of the last one, and never past the end.

        At once where the clocks have parted since the last renewal, unless that has been tried.
        """
        if not fence.left() and started <= fence.sent.monotonic:
            return 0.0
        return max(0.0, min(started + self._election.retry_period - self._clock.monotonic(), fence.due))

    async def _renew(self, fence: LeaseFence) -> bool:
        """Try once to renew; say whether it was confirmed."""
        seconds = min(self._election.attempt, fence.due)
        sent = await self._attempt(seconds, leading=True) if seconds > 0 else None
        if sent is not None:
            fence.renewed(sent)
        return sent is not None

    async def _end(self, fence: LeaseFence, work: asyncio.Future[None], *, lost: bool) -> None:
        """End a term: the work first, while it may still write unless the lease is lost, then the lease.

        Work that does not end in time keeps the lease from being given back: it will be abandoned when its time is over.
        """
        election = self._election
        if lost:
            fence.close()
        work.cancel()
        ended, _ = await asyncio.wait([work], timeout=max(0.0, fence.due) or None)
        fence.close()
        self._fence = None
        self._monitoring.leader.labels(election.lease_name).set(0)
        told = facts(lease=election.lease_name, holder=election.identity, lost=lost)
        _log.log(logging.WARNING if lost else logging.INFO, "no longer leading", extra=told)
        if not ended:
            await asyncio.wait([work])
        elif not lost:
            await self._release()
        if not work.cancelled() and (error := work.exception()) is not None and lost:
            _log.error("what the leader did has failed", exc_info=error)

    async def _give_up(self) -> None:
        """End as a follower; a lease that was just won, or may have been, is given back."""
        if self._fence is not None:
            self._fence.close()
            self._fence = None
            self._monitoring.leader.labels(self._election.lease_name).set(0)
        if self._unsure:
            with contextlib.suppress(errors.KubernetesError):
                self._note(await self._store.fetch(self._election.attempt))
        await self._release()

    async def _release(self) -> None:
        """Give the lease back if it is ours, within one attempt."""
        end = self._clock.monotonic() + self._election.attempt
        lease = self._lease
        while lease is not None and lease.record.holder == self._election.identity:
            left = end - self._clock.monotonic()
            if left <= 0:
                return
            try:
                freed = await self._store.replace(lease, released(lease.record, self._clock.wall()), left)
            except errors.KubernetesError as error:
                if error.status != 409:
                    self._faults.report(FAULT, "the lease could not be given back", str(error))
                    return
            else:
                self._note(freed)
                return
            try:
                lease = await self._store.fetch(max(0.001, end - self._clock.monotonic()))
            except errors.KubernetesError as error:
                self._faults.report(FAULT, "the lease could not be given back", str(error))
                return

    # -- one attempt ---------------------------------------------------------------------------------------------------

    async def _attempt(self, seconds: float, *, leading: bool) -> fences.Reading | None:
        """Try once, within `seconds`, to have the lease; return when the write that was confirmed had been sent, None for none."""
        try:
            sent = await self._try_to_write(self._clock.monotonic() + seconds, leading=leading)
        except errors.KubernetesError as error:
            self._monitoring.lease_renewals.labels("failed").inc()
            self._faults.report(FAULT, "the lease could not be read or written", str(error))
            return None
        self._faults.resolve(FAULT)
        return sent

    async def _try_to_write(self, end: float, *, leading: bool) -> fences.Reading | None:
        """Write onto what was last seen if that was ours, else look first; look as well where somebody else was quicker.

        A leader that finds the lease to be anybody's but its own takes nothing: its term is over.
        """
        election, clock = self._election, self._clock
        look = not leading
        for _ in range(_LOOKS):
            if look:
                self._note(await self._store.fetch(_left(end, clock)))
            verdict = judge(self._seen, election.identity, clock.monotonic())
            if verdict.move is Move.WAIT or (leading and self.holder != election.identity):
                return None
            record = next_record(self._seen, election, clock.wall())
            sent = fences.read(clock)
            self._unsure = True
            try:
                self._note(await self._write(record, _left(end, clock)))
                self._unsure = False
            except errors.KubernetesError as error:
                # one to be replaced may be gone; where one cannot be made for a 404 the namespace is not there
                if error.status not in {404, 409} or (error.status == 404 and self._lease is None):
                    raise
                self._monitoring.lease_renewals.labels("conflict").inc()
                look = True
                continue
            self._monitoring.lease_renewals.labels("success").inc()
            return sent
        return None

    async def _write(self, record: LeaseRecord, seconds: float) -> Lease:
        if self._lease is None:
            return await self._store.create(record, seconds)
        return await self._store.replace(self._lease, record, seconds)

    @property
    def _lease(self) -> Lease | None:
        """The Lease as last seen, None where it was not there."""
        return self._seen.lease if self._seen is not None else None

    def _note(self, lease: Lease | None) -> None:
        """Remember what the Lease says, and say once who holds it."""
        before = self.holder
        self._seen = sight(self._seen, lease, self._clock.monotonic())
        if self.holder != before:
            _log.info(
                "lease holder", extra=facts(lease=self._election.lease_name, holder=self.holder, was=before)
            )


def _left(end: float, clock: Clock) -> float:
    return max(0.001, end - clock.monotonic())
