"""Leader election: the rules as pure functions, and `Elector`, which follows, leads and releases.

The rules are client-go's. A candidate never compares the times in a record with its own clock, because clocks
differ. It remembers when it first saw the present record, and takes the lease over once the record has stayed
the same for the lease duration.

Three things differ from client-go. A leader that ends in order releases the lease, and followers watch it, so
a hand-over does not take a retry period. Every call has a timeout. A leader that loses the lease follows
again; the process does not exit.
"""

import asyncio
import contextlib
import enum
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.lease import (
    ClockReading,
    KubernetesLeases,
    Lease,
    LeaseFence,
    LeaseRecord,
    micro_time,
    read_clocks,
)
from adapter.model.clock import Clock
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

JITTER = 1.2
"""Jitter of a follower without a watch: it waits for one to 2.2 retry periods, as in client-go."""

FAULT = "lease"
_ATTEMPTS = 3
_log = logging.getLogger(__name__)

Lead = Callable[[LeaseFence], Awaitable[None]]
"""The work of a leader, called with the fence of its term and cancelled at its end. It must leave no write
in flight.
"""


@dataclass(frozen=True, slots=True)
class Election:
    """The settings of an election, with Kubernetes' names and defaults. All times are in seconds.

    `identity` is the Pod's name, an underscore and a UUID; `lease_name` is the name of the Lease in logs and
    metrics.
    """

    identity: str
    lease_name: str
    lease_duration: float = 15.0
    """Time after the last observed change at which others take over. The Lease contains it in whole
    seconds.
    """

    renew_deadline: float = 10.0
    """Time for which a leader goes on without a successful renewal."""

    retry_period: float = 2.0
    """Interval between attempts, and between renewals."""

    @property
    def attempt(self) -> float:
        """Timeout of one call: half the renew deadline, as in kube-controller-manager."""
        return self.renew_deadline / 2

    @property
    def tolerance(self) -> float:
        """How far the clocks may diverge. With the renew deadline it stays below the lease duration."""
        return (self.lease_duration - self.renew_deadline) / 2


def pod_of(identity: str) -> str:
    """Return the name of the Pod in an identity."""
    return identity.rpartition("_")[0] or identity


# -- the rules -----------------------------------------------------------------------------------------------


class Sighting(NamedTuple):
    """A record, and when it was first seen (monotonic seconds). `lease` is None if the Lease was deleted."""

    record: LeaseRecord
    since: float
    lease: Lease | None


def sight(before: Sighting | None, lease: Lease | None, now: float) -> Sighting | None:
    """Return the sighting after a Lease was read or written, None if there never was one.

    An unchanged record keeps the time at which it was first seen. A deleted Lease binds its followers for the
    rest of its duration, because its holder does not know yet.
    """
    if lease is None:
        return None if before is None else before._replace(lease=None)
    if before is not None and before.record == lease.record:
        return before._replace(lease=lease)
    return Sighting(lease.record, now, lease)


class Move(enum.Enum):
    """The next step of a candidate."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class LeaseVerdict(NamedTuple):
    """A move; for WAIT with the seconds after which the lease expires if the record does not change."""

    move: Move
    wait: float = 0.0


def judge(seen: Sighting | None, identity: str, now: float) -> LeaseVerdict:
    """Judge a sighting at `now` in monotonic seconds; None means that no Lease was ever seen."""
    if seen is None:
        return LeaseVerdict(Move.CREATE)
    record = seen.record
    if record.holder != identity:
        left = seen.since + record.duration - now
        if record.holder and left > 0:
            return LeaseVerdict(Move.WAIT, left)
    if seen.lease is None:
        return LeaseVerdict(Move.CREATE)
    return LeaseVerdict(Move.RENEW if record.holder == identity else Move.TAKE)


def next_record(seen: Sighting | None, election: Election, wall: float) -> LeaseRecord:
    """Return the record to write. A renewal keeps acquireTime and leaseTransitions."""
    stamp = micro_time(wall)
    duration = int(election.lease_duration)
    if seen is None:
        return LeaseRecord(election.identity, duration, stamp, stamp, 0)
    before = seen.record
    if before.holder == election.identity:
        return LeaseRecord(election.identity, duration, before.acquired, stamp, before.transitions)
    return LeaseRecord(election.identity, duration, stamp, stamp, before.transitions + 1)


def released(record: LeaseRecord, wall: float) -> LeaseRecord:
    """Return the record of a released lease: no holder, and as in client-go a duration of one second."""
    stamp = micro_time(wall)
    return LeaseRecord("", 1, stamp, stamp, record.transitions)


# -- the loop ------------------------------------------------------------------------------------------------


class Elector:
    """A candidate of an election."""

    def __init__(
        self,
        store: KubernetesLeases,
        election: Election,
        clock: Clock,
        random: Callable[[], float],
        monitoring: Monitoring,
        problems: ProblemLog,
    ) -> None:
        self._store = store
        self._election = election
        self._clock = clock
        self._random = random
        self._monitoring = monitoring
        self._problems = problems
        self._seen: Sighting | None = None
        self._fence: LeaseFence | None = None
        self._changed = asyncio.Event()
        self._unsure = False  # whether a write is in flight, or got no response
        self._is_leader = monitoring.leader.labels(election.lease_name)
        self._is_leader.set(0)

    @property
    def leading(self) -> bool:
        """Whether writes are allowed now."""
        return self._fence is not None and self._fence.left() > 0

    @property
    def holder(self) -> str:
        """The holder last seen in the Lease, "" for none."""
        return self._seen.record.holder if self._seen is not None else ""

    async def run(self, lead: Lead) -> None:
        """Follow and lead in turn until cancelled or `lead` ends; a lease that is held then is released."""
        while True:
            try:
                fence = await self._acquire()
            except asyncio.CancelledError:
                await self._give_up()
                raise
            if await self._lead(fence, lead):
                return

    # -- following -------------------------------------------------------------------------------------------

    async def _acquire(self) -> LeaseFence:
        """Wait until the lease expires or changes, or for a retry period, and try; return the new fence."""
        election = self._election
        watch: asyncio.Task[None] | None = None
        try:
            while True:
                self._changed.clear()
                sent = await self._attempt(election.attempt, leading=False)
                if sent is not None:
                    break
                watch = watch or asyncio.create_task(self._watch(), name="lease watch")
                seconds = self._jittered_period()
                verdict = judge(self._seen, election.identity, self._clock.monotonic())
                if verdict.move is Move.WAIT:
                    seconds = min(seconds, verdict.wait)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._changed.wait()
            self._fence = LeaseFence(
                self._clock, sent, hold=election.renew_deadline, tolerance=election.tolerance
            )
            self._is_leader.set(1)
            _log.info("leading", extra=facts(lease=election.lease_name, holder=election.identity))
            return self._fence
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.wait([watch])

    async def _watch(self) -> None:
        """Watch the Lease for changes. If watching is forbidden or fails, the retry period remains."""
        while True:
            if self._seen is not None and self._seen.lease is not None:
                with contextlib.suppress(errors.KubernetesError):
                    await self._store.watch(self._seen.lease.version, self._changed.set)
            await asyncio.sleep(self._jittered_period())

    def _jittered_period(self) -> float:
        return self._election.retry_period * (1 + JITTER * self._random())

    # -- leading ---------------------------------------------------------------------------------------------

    async def _lead(self, fence: LeaseFence, lead: Lead) -> bool:
        """Lead until the lease is lost (False) or `lead` ends by itself (True)."""
        election = self._election
        work = asyncio.ensure_future(lead(fence))
        lost = False
        started = fence.sent.monotonic
        try:
            while not lost:
                await asyncio.wait([work], timeout=self._until_renewal(fence, started))
                if work.done():
                    break
                started = self._clock.monotonic()
                seconds = min(election.attempt, fence.due)
                sent = await self._attempt(seconds, leading=True) if seconds > 0 else None
                if sent is not None:
                    fence.renewed(sent)
                else:
                    lost = fence.due <= 0 or self.holder != election.identity
        finally:
            await self._end(fence, work, lost=lost)
        if lost:
            return False
        work.result()
        return True

    def _until_renewal(self, fence: LeaseFence, started: float) -> float:
        """Return the seconds to the next attempt: a retry period after the last began, or the deadline.

        0 if the clocks have diverged since the last renewal and no attempt has been made since.
        """
        if not fence.left() and started <= fence.sent.monotonic:
            return 0.0
        return max(0.0, min(started + self._election.retry_period - self._clock.monotonic(), fence.due))

    async def _end(self, fence: LeaseFence, work: asyncio.Future[None], *, lost: bool) -> None:
        """End a term: first the work, which may still write unless the lease is lost, then the lease.

        If the work does not end in time, the lease is not released and has to expire.
        """
        election = self._election
        if lost:
            fence.close()
        work.cancel()
        ended, _ = await asyncio.wait([work], timeout=max(0.0, fence.due) or None)
        fence.close()
        self._fence = None
        self._is_leader.set(0)
        details = facts(lease=election.lease_name, holder=election.identity, lost=lost)
        _log.log(logging.WARNING if lost else logging.INFO, "no longer leading", extra=details)
        if not ended:
            await asyncio.wait([work])
        elif not lost:
            await self._release()
        if not work.cancelled() and (error := work.exception()) is not None and lost:
            _log.error("the work of the leader failed after the lease was lost", exc_info=error)

    async def _give_up(self) -> None:
        """End as a follower; release a lease that was just acquired, or may have been."""
        if self._fence is not None:
            self._fence.close()
            self._fence = None
            self._is_leader.set(0)
        if self._unsure:
            with contextlib.suppress(errors.KubernetesError):
                self._observe(await self._store.fetch(self._election.attempt))
        await self._release()

    async def _release(self) -> None:
        """Release the lease if it is ours, within the timeout of one attempt."""
        end = self._clock.monotonic() + self._election.attempt
        lease = self._lease
        try:
            while lease is not None and lease.record.holder == self._election.identity:
                if (left := end - self._clock.monotonic()) <= 0:
                    return
                try:
                    free = released(lease.record, self._clock.wall())
                    self._observe(await self._store.replace(lease, free, left))
                except errors.KubernetesError as error:
                    if error.status != 409:
                        raise
                else:
                    return
                lease = await self._store.fetch(_left(end, self._clock))
        except errors.KubernetesError as error:
            self._problems.report(FAULT, "the lease could not be released", str(error))

    # -- one attempt -----------------------------------------------------------------------------------------

    async def _attempt(self, seconds: float, *, leading: bool) -> ClockReading | None:
        """Try within `seconds` to acquire or renew; return when the confirmed write was sent, else None."""
        try:
            sent = await self._try_to_write(self._clock.monotonic() + seconds, leading=leading)
        except errors.KubernetesError as error:
            self._monitoring.lease_renewals.labels("failed").inc()
            self._problems.report(FAULT, "the lease could not be read or written", str(error))
            return None
        self._problems.resolve(FAULT)
        return sent

    async def _try_to_write(self, end: float, *, leading: bool) -> ClockReading | None:
        """Write against the version last seen if we hold the lease; else, or after a conflict, read it first.

        A leader that finds another holder does not take the lease: its term is over.
        """
        election, clock = self._election, self._clock
        reads = not leading
        for _ in range(_ATTEMPTS):
            if reads:
                self._observe(await self._store.fetch(_left(end, clock)))
            verdict = judge(self._seen, election.identity, clock.monotonic())
            if verdict.move is Move.WAIT or (leading and self.holder != election.identity):
                return None
            record = next_record(self._seen, election, clock.wall())
            sent = read_clocks(clock)
            self._unsure = True
            try:
                self._observe(
                    await self._store.create(record, _left(end, clock))
                    if self._lease is None
                    else await self._store.replace(self._lease, record, _left(end, clock))
                )
                self._unsure = False
            except errors.KubernetesError as error:
                # 404 on replace: the Lease was deleted; on create: the namespace does not exist
                if error.status not in {404, 409} or (error.status == 404 and self._lease is None):
                    raise
                self._monitoring.lease_renewals.labels("conflict").inc()
                reads = True
                continue
            self._monitoring.lease_renewals.labels("success").inc()
            return sent
        return None

    @property
    def _lease(self) -> Lease | None:
        """The Lease as last seen, None if it did not exist."""
        return self._seen.lease if self._seen is not None else None

    def _observe(self, lease: Lease | None) -> None:
        """Remember the Lease, and log a new holder."""
        before = self.holder
        self._seen = sight(self._seen, lease, self._clock.monotonic())
        if self.holder != before:
            _log.info(
                "lease holder", extra=facts(lease=self._election.lease_name, holder=self.holder, was=before)
            )


def _left(end: float, clock: Clock) -> float:
    return max(0.001, end - clock.monotonic())
