"""Membership: a Lease of its own, which a scaler renews for as long as it takes part.

No other process takes this Lease. It counts because other scalers clear it when it has not changed for its
duration (`slice_keeper`). So a membership ends when a renewal finds the Lease cleared, when none has
succeeded for the renew deadline, or when the clocks have diverged: the machine may have slept, and a Lease
that was deleted meanwhile has been missed by others. The process then joins again. Nothing of the former
membership can write, because each one has a fence of its own.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.ownership.lease import KubernetesLeases, Lease, next_record
from adapter.kubernetes.ownership.lease_view import LEAVING, WatchedLease
from adapter.kubernetes.ownership.term import ClockReading, LeaseFence, read_clocks
from adapter.telemetry.logs import facts

FAULT = "lease"
_log = logging.getLogger(__name__)

_KEPT = 16
"""The number of renewals that the view may show late."""

Serve = Callable[[LeaseFence], Awaitable[None]]
"""The work of a member, called with the fence of its membership and cancelled at its end. It must leave no
write in flight. Its end is that of the membership.
"""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Who a scaler is, and the times of its Lease, named as in Kubernetes' leader election.

    All times are in seconds. `identity` is the Pod's name, an underscore and a UUID. `lease_name` is what the
    names of the Leases begin with, and what scalers that share have in common.
    """

    identity: str
    lease_name: str
    lease_duration: float = 15.0
    """Time after the last observed change at which others clear the Lease, which has it in whole seconds."""

    renew_deadline: float = 10.0
    """Time for which a member goes on without a successful renewal."""

    retry_period: float = 2.0
    """Interval between attempts, and between renewals."""

    pod: str = ""
    """The uid of the Pod, "" if it is not known. A Pod has one container with a scaler."""

    @property
    def attempt(self) -> float:
        """Timeout of one attempt: half the renew deadline, as in kube-controller-manager."""
        return self.renew_deadline / 2

    @property
    def tolerance(self) -> float:
        """How far the clocks may diverge. With the renew deadline it stays below the lease duration."""
        return (self.lease_duration - self.renew_deadline) / 2

    @property
    def settling(self) -> float:
        """For how long the members are the same before slices move for the sake of equal shares alone.

        In a rolling update the pod that comes then takes the slices of the one that leaves, and no others.
        """
        return self.renew_deadline


class Membership:
    """Makes a Lease, renews it, and releases it at the end."""

    def __init__(self, store: KubernetesLeases, settings: MemberSettings, watching: ReflectorContext) -> None:
        self._store = store
        self._settings = settings
        self._clock = watching.clock
        self._renewals = watching.monitoring.lease_renewals
        self._problems = watching.problems
        self._lease: Lease | None = None
        """The Lease as last read or written, None if it did not exist."""
        self._sent = deque[tuple[str, ClockReading]](maxlen=_KEPT)
        """The times that the last renewals wrote, and when they were sent."""
        self._is_member = watching.monitoring.leader.labels(settings.lease_name)
        self._is_member.set(0)

    async def run(
        self, serve: Serve, prepare: Callable[[], Awaitable[None]], leave: Callable[[], Awaitable[None]]
    ) -> NoReturn:
        """Join and serve, and again when the membership is lost, until cancelled or an error of `serve`.

        `prepare` comes before each membership, and `leave` before one that ends in order.
        """
        while True:
            await prepare()
            await self._renew(await self._join(), serve, leave)

    async def _join(self) -> LeaseFence:
        """Write the Lease; return the fence of the membership."""
        settings = self._settings
        try:
            while True:
                sent = await self._attempt(settings.attempt, joins=True)
                if sent is not None:
                    break
                await asyncio.sleep(settings.retry_period)
        except asyncio.CancelledError:
            await self._release()  # it may have been written
            raise
        self._is_member.set(1)
        _log.info("scaler joined", extra=facts(lease=settings.lease_name, holder=settings.identity))
        return LeaseFence(self._clock, sent, hold=settings.renew_deadline, tolerance=settings.tolerance)

    async def _renew(self, fence: LeaseFence, serve: Serve, leave: Callable[[], Awaitable[None]]) -> None:
        """Serve and renew until the membership is lost. Raise what `serve` ends with before."""
        settings = self._settings
        work = asyncio.ensure_future(serve(fence))
        is_lost = False
        started = fence.sent.monotonic
        try:
            while not is_lost:
                pause = min(started + settings.retry_period - self._clock.monotonic(), fence.due)
                await asyncio.wait([work], timeout=max(0.0, pause))
                if work.done():
                    break
                started = self._clock.monotonic()
                seconds = min(settings.attempt, fence.left())
                sent = await self._attempt(seconds, joins=False) if seconds > 0 else None
                # By the renewal before this one: a fence that closed meanwhile is not opened again.
                is_lost = not fence.left() or self._is_cleared()
                if sent is not None and not is_lost:
                    fence.renewed(sent)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(fence.left()):
                    await leave()
            raise
        finally:
            await self._end(fence, work, is_lost=is_lost)
        if not is_lost:
            work.result()

    async def announce_end(self) -> bool:
        """Tell the others that this member ends soon; return whether they may know."""
        self._store.labels[LEAVING] = "true"
        return await self._attempt(self._settings.attempt, joins=False) is not None

    async def _end(self, fence: LeaseFence, work: asyncio.Future[None], *, is_lost: bool) -> None:
        """End a membership: first the work, which may still write unless it is lost, then the Lease.

        In the other order, others would take the slices while this member still writes for them.
        """
        if is_lost:
            fence.close()
        work.cancel()
        await asyncio.wait([work])
        fence.close()
        self._is_member.set(0)
        details = facts(lease=self._settings.lease_name, holder=self._settings.identity, lost=is_lost)
        _log.log(logging.WARNING if is_lost else logging.INFO, "scaler left", extra=details)
        if not is_lost:
            await self._release()
        elif not work.cancelled():
            _log.error("the work of a member failed after its Lease was lost", exc_info=work.exception())

    async def _release(self) -> None:
        """Remove the holder if it is this process, within the timeout of one attempt."""
        end = self._clock.monotonic() + self._settings.attempt
        try:
            lease = await self._store.fetch(self._left(end))
            while lease is not None and lease.record.holder == self._settings.identity:
                try:
                    lease = await self._store.clear(lease, self._clock.wall(), self._left(end))
                except errors.KubernetesError as error:
                    if error.status != 409:
                        raise
                    lease = await self._store.fetch(self._left(end))
        except errors.KubernetesError as error:
            self._problems.report(FAULT, "the Lease could not be released", str(error))

    def note_shown(self, lease: WatchedLease | None, sight: LeaseFence) -> None:
        """Note that the view shows a renewal, and so what was written before that."""
        if lease is not None and (sent := dict(self._sent).get(lease.record.renewed)) is not None:
            sight.renewed(sent)

    # -- one attempt -----------------------------------------------------------------------------------------

    async def _attempt(self, seconds: float, *, joins: bool) -> ClockReading | None:
        """Try within `seconds` to join or renew; return when the confirmed write was sent, else None."""
        try:
            sent = await self._write(self._clock.monotonic() + seconds, joins=joins)
        except errors.KubernetesError as error:
            self._renewals.labels("failed").inc()
            self._problems.report(FAULT, "the Lease could not be read or written", str(error))
            return None
        self._problems.resolve(FAULT)
        return sent

    async def _write(self, end: float, *, joins: bool) -> ClockReading | None:
        """Renew the version last seen; to join, or after a conflict, read it first.

        A member that finds its Lease cleared does not write it: its membership is over.
        """
        store, settings = self._store, self._settings
        for reads in (joins, True, True):
            if reads:
                self._lease = await store.fetch(self._left(end))
            if not joins and self._is_cleared():
                return None
            record = next_record(self._lease, settings.identity, settings.lease_duration, self._clock.wall())
            # Noted before it is sent: if it lands and its answer is lost, the view may show it.
            sent = read_clocks(self._clock)
            self._sent.append((record.renewed, sent))
            try:
                self._lease = await store.write(self._lease, record, self._left(end))
            except errors.KubernetesError as error:
                if error.status != 409:
                    raise
                self._renewals.labels("conflict").inc()
            else:
                self._renewals.labels("success").inc()
                return sent
        return None

    def _is_cleared(self) -> bool:
        """Return whether another scaler removed the holder. A Lease that was deleted is made again."""
        return self._lease is not None and self._lease.record.holder != self._settings.identity

    def _left(self, end: float) -> float:
        return max(0.001, end - self._clock.monotonic())
