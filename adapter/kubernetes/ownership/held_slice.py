"""One slice in the hands of a scaler: its Lease is taken, the work is done, and the Lease is released.

A slice is taken in the version in which it was read, so of two that take it one gets a conflict. While it is
owned, its term lasts. That ends before the Lease is released, and at once when the view shows that the Lease
was deleted, or changed by another program.
"""

import asyncio
import logging

from adapter import errors
from adapter.kubernetes.ownership.lease import Lease, LeaseRecord, next_record, unowned
from adapter.kubernetes.ownership.scaler_leases import RETRY, ScalerLeases, read_version
from adapter.kubernetes.ownership.term import LeaseFence, Term, Work
from adapter.model.autoscaling import slices
from adapter.runtime.waits import wait_for
from adapter.telemetry.logs import facts

_log = logging.getLogger(__name__)


class HeldSlice:
    """A slice that is being taken, owned or released; it is given up once `surplus` is set."""

    def __init__(self, number: int, fence: LeaseFence, sight: LeaseFence, leases: ScalerLeases) -> None:
        """`fence` is that of the membership, and `sight` that of its view."""
        self.number = number
        self.surplus = asyncio.Event()
        self.term: Term | None = None
        """That of the work, while the slice is owned."""
        self._fence, self._sight = fence, sight
        self._leases = leases
        self._settings = leases.settings
        self._name = slices.name_of(leases.settings.lease_name, number)
        self._store = leases.lease(self._name)
        self._taken: tuple[LeaseRecord | None, float] = None, 0.0
        """What was written when the slice was taken, and when."""
        self._shown = asyncio.Event()
        """Set when the view has shown that."""
        self._moved = asyncio.Event()
        """Set when the view shows another owner."""

    async def run(self, work: Work) -> None:
        """Take the slice, do its work until it is given up, and release it."""
        lease: Lease | None = None
        with self._leases.attempt(self._name):
            async with self._leases.room:
                lease = await self._take()
        if lease is not None:
            self.term = Term(self.number, self._fence, self._sight)
            self._taken = lease.record, self._leases.clock.monotonic()
            self._shown.clear()
            await self._work(work, self.term)
            # While the Lease is released, the view still shows it as that of this scaler.
            self._leases.note_outdated(self.number, lease.version)
            is_free = await self._release(lease)
            if is_free and self.surplus.is_set() and self._leases.has_others():
                await wait_for(self._moved, RETRY)
        elif self.number not in self._leases.outdated:
            await asyncio.sleep(RETRY)

    def follow(self) -> None:
        """Follow the view: give the slice up if its Lease was deleted, or changed by another program."""
        seen, (record, since) = self._leases.view.find_slice(self.number), self._taken
        if seen is not None and seen.record.holder not in {"", self._settings.identity}:
            self._moved.set()
        if seen is not None and (seen.record == record or self.term is None):
            self._shown.set()
            return
        # A view that shows a renewal which was sent later shows also what was written before that.
        if self.term is not None and (self._shown.is_set() or self._sight.sent.monotonic > since):
            self.term.end()
            if not self.surplus.is_set():
                self._report_lost("" if seen is None else seen.record.holder)
            self.surplus.set()

    def _report_lost(self, holder: str) -> None:
        """Log that the slice was lost, but not to another member: that has ended this membership before."""
        if all(member.record.holder != holder for member in self._leases.view.members()):
            details = facts(lease=self._name, holder=holder)
            _log.warning("the Lease of a slice was changed or deleted, not by its owner", extra=details)

    async def _take(self) -> Lease | None:
        """Take the slice in the version that the view shows; None if it has another one, or is not free."""
        leases, store, seconds = self._leases, self._store, self._settings.attempt
        version = read_version(leases.view.find_slice(self.number))
        try:
            lease = await store.fetch(seconds)
            is_shown = version == read_version(lease)
            if is_shown and lease is None:
                # The view has to show what was made before it is taken: only then this scaler knows whose
                # slice it was, by the changes before that.
                record = unowned(self._settings.lease_duration, leases.clock.wall())
                lease = await store.write(None, record, seconds)
                await wait_for(self._shown, seconds)
            seen = leases.view.find_slice(self.number)
            if is_shown and lease is not None and seen is not None and lease.version == seen.version:
                version = lease.version
                if not await leases.is_free(seen):
                    return None
                me, duration = self._settings.identity, self._settings.lease_duration
                return await store.write(
                    lease, next_record(lease, me, duration, leases.clock.wall()), seconds
                )
            if lease is not None and not store.has_labels(lease):  # the view does not show it
                await store.write(lease, lease.record, seconds)
        except errors.KubernetesError as error:
            if error.status != 409:
                raise
        leases.note_outdated(self.number, version)
        return None

    async def _work(self, work: Work, term: Term) -> None:
        """Work until the slice is given up. An error of the work ends the membership, and the process."""
        working = asyncio.ensure_future(work(term))
        leaving = asyncio.create_task(self.surplus.wait(), name="surplus")
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The work ends, then the term in which it may write, and only then the Lease is released.
            for task in (working, leaving):
                task.cancel()
            await asyncio.wait({working, leaving})
            term.end()
            self.term = None
        if not working.cancelled():
            working.result()

    async def _release(self, lease: Lease) -> bool:
        """Release the slice; return whether it had the version in which it was taken."""
        cleared: Lease | None = None
        while True:
            with self._leases.attempt(self._name):
                async with self._leases.room:
                    wall, seconds = self._leases.clock.wall(), self._settings.attempt
                    cleared = await self._store.clear(lease, wall, seconds)
            if self._name not in self._leases.failed:
                return cleared is not None
            await asyncio.sleep(RETRY)
