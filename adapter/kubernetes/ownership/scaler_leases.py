"""The Leases that the scalers with a common name have: whose slice each is, and access to all of them.

- A slice is free if its Lease has no holder, or one that does not hold its own Lease by now. Both Leases are
  read at the API server, in this order, because what the view shows may be old. A member whose Lease has not
  changed for its duration stays one until another scaler has cleared that Lease, in the version that has not
  changed. By then its fence is closed, and it cannot renew what was cleared.
- To make the Lease of a slice takes nothing: it has no holder at first. The watch shows all changes in their
  order. So one that has seen a Lease deleted knows whose slice it was, and one that has seen no scaler before
  knows that it has no owner. These take it at once, others when it has not changed for its duration.
- The Lease of a member that was deleted is made again by its owner. It counts as gone when it was missing for
  its duration.

Each scaler clears the Leases of members that are late, and deletes those of memberships that ended long ago.
A problem of a Lease ends when an attempt succeeds, or when the Lease has changed: another scaler may have
done what this one could not.
"""

import asyncio
import contextlib
import math
from collections.abc import Collection, Iterator

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.ownership.lease import RELEASED, KubernetesLeases, Lease, LeaseRecord
from adapter.kubernetes.ownership.lease_view import LABEL, LeaseView, Member, WatchedLease
from adapter.kubernetes.ownership.membership import MemberSettings
from adapter.model.autoscaling import slices

FAULT = "slices"

RETRY = 0.5
"""Seconds until a write that failed is repeated, and until a Lease is looked at again."""

AT_ONCE = 16
"""The number of Leases of slices that are written at once."""

UNSETTLED = "?"
"""In a plan, the owner of a slice that is neither free nor kept."""

_TIDY_AFTER = 600.0
"""Seconds after the end of a membership, until its Lease is deleted: its slices have other owners by then."""


class ScalerLeases:
    """Reads and writes the Leases of a group of scalers, as one of them."""

    def __init__(self, watching: ReflectorContext, namespace: str, settings: MemberSettings) -> None:
        self.view = LeaseView(watching, namespace, settings.lease_name)
        self.settings = settings
        self.clock = watching.clock
        self.room = asyncio.Semaphore(AT_ONCE)
        """Held while the Lease of a slice is written."""
        self.outdated: dict[int, tuple[str, float]] = {}
        """Versions of slices, "" for none, that the view may still show although there is a newer one, and
        until when: the same may be true again, for a Lease that was made and deleted meanwhile.
        """
        self.failed: dict[str, str] = {}
        """Leases that could not be read or written, with the version that the view showed then."""
        self._client = watching.client
        self._namespace = namespace
        self._problems = watching.problems
        self._clearing: set[str] = set()

    # -- whose slice it is -----------------------------------------------------------------------------------

    def note_outdated(self, number: int, version: str) -> None:
        self.outdated[number] = version, self.clock.monotonic() + self.settings.lease_duration / 2

    def find_owner(self, number: int, members: Collection[str]) -> str:
        """Return whose slice this is, "" for one that is free, or whose Lease is to be made."""
        me, seen = self.settings.identity, self.view.find_slice(number)
        version, until = self.outdated.get(number, ("", 0.0))
        if version == read_version(seen) and self.clock.monotonic() < until:
            return UNSETTLED
        self.outdated.pop(number, None)
        if seen is None:
            return ""
        former = self.view.find_former(seen)
        if former in {"", me}:
            # of one that was made, others may not know it: any that does takes it
            return me if seen.record.duration > RELEASED else ""
        if self._is_unclaimed(seen):
            return ""
        if former is None:
            return UNSETTLED
        lease = self.view.find(self.member_name(former))
        is_old = self._lasts(self.member_name(former), read_version(lease), seen.record)
        if former in members:
            return former
        return "" if is_old or lease is not None else UNSETTLED

    async def is_free(self, seen: WatchedLease) -> bool:
        """Return whether the membership has ended in which a slice was taken."""
        former = self.view.find_former(seen)
        if former in {"", self.settings.identity} or self._is_unclaimed(seen):
            return True
        if former is None:
            return False
        # The slice was read before: if its owner is no member now, the membership has ended in which it took
        # this version. Had the owner been read first, it could have joined and taken the slice in between.
        lease = await self.lease(self.member_name(former)).fetch(self.settings.attempt)
        is_old = self._lasts(self.member_name(former), read_version(lease), seen.record)
        return is_old if lease is None else lease.record.holder != former

    def _is_unclaimed(self, seen: WatchedLease) -> bool:
        """Return whether a Lease that was made has no holder for so long that each owner has seen it."""
        return not seen.record.holder and self._lasts(seen.name, seen.version, seen.record)

    def _lasts(self, name: str, version: str, record: LeaseRecord) -> bool:
        """Return whether a Lease had this version, "" for none, at all looks of a duration."""
        return self.view.look(name, version, record.duration / 2) >= record.duration

    # -- members ---------------------------------------------------------------------------------------------

    def has_others(self, *, staying: bool = True) -> bool:
        """Return whether there is another member, by default one that stays."""
        now, me = self.clock.monotonic(), self.settings.identity
        live = (one for one in self.view.members() if one.expires > now and not (staying and one.leaves))
        return any(one.record.holder != me and not self._is_former(one) for one in live)

    def _is_former(self, member: Member) -> bool:
        """Whether another member was in the container of this one: a process begins when that has ended."""
        return member.pod == self.settings.pod != ""

    def clear_late(self, group: asyncio.TaskGroup) -> float:
        """Clear the Leases of members that are late, or have ended; return the seconds to the next look."""
        now, wait = self.clock.monotonic(), math.inf
        for member in self.view.members():
            left = member.expires - now
            if member.record.holder == self.settings.identity:
                continue
            if left <= 0 or self._is_former(member):
                left = RETRY
                if member.lease not in self._clearing:
                    self._clearing.add(member.lease)
                    group.create_task(self._clear_member(member), name=f"clear {member.lease}")
            wait = min(wait, left)
        return wait

    async def _clear_member(self, member: Member) -> None:
        """Clear the Lease of a member that is late, or learn that it is not."""
        store, seconds = self.lease(member.lease), self.settings.attempt
        try:
            with self.attempt(member.lease):
                # What is read is cleared in its version, so a renewal that lands in between is a conflict.
                lease = await store.fetch(seconds)
                if lease is not None and lease.record == member.record:
                    lease = await store.clear(lease, self.clock.wall(), seconds)
                if lease is not None:
                    self.view.learn(member.lease, lease.record)
                    self.view.changed()
            await asyncio.sleep(RETRY)
        finally:
            self._clearing.discard(member.lease)
            self.view.changed()

    def tidy(self, group: asyncio.TaskGroup) -> None:
        """Delete the Leases of memberships that have ended long ago."""
        for lease in self.view.cache:
            if lease.record.holder or slices.parse_name(self.settings.lease_name, lease.name) is not None:
                continue
            if self.view.look(lease.name, lease.version) >= _TIDY_AFTER:
                self.view.forget(lease.name)  # if it is not deleted now, it is in as long a time again
                group.create_task(self._delete(lease), name=f"delete {lease.name}")

    async def _delete(self, lease: WatchedLease) -> None:
        with self.attempt(lease.name):
            await self.lease(lease.name).delete(lease.version, self.settings.attempt)

    # -- access ----------------------------------------------------------------------------------------------

    def member_name(self, identity: str) -> str:
        """Return the name of the Lease of a member, which no other process has."""
        return f"{self.settings.lease_name}-member-{identity.rpartition('_')[2]}"

    def lease(self, name: str) -> KubernetesLeases:
        return KubernetesLeases(self._client, self._namespace, name, {LABEL: self.settings.lease_name})

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Report an error of the block as a problem of a Lease, but no conflict; end the block."""
        try:
            yield
        except errors.KubernetesError as error:
            if error.status != 409:
                self.failed[name] = self.show_version(name)
                message = "a Lease could not be read or written"
                self._problems.report(FAULT, message, str(error), subject=name)
                return
        self._end_problem(name)

    def end_problems(self) -> None:
        """End the problems of Leases that have changed: what could not be done may be done by another."""
        for name, version in list(self.failed.items()):
            if self.show_version(name) != version:
                self._end_problem(name)

    def _end_problem(self, name: str) -> None:
        self.failed.pop(name, None)
        self._problems.resolve(FAULT, subject=name)

    def show_version(self, name: str) -> str:
        return read_version(self.view.find(name))


def read_version(lease: Lease | WatchedLease | None) -> str:
    return "" if lease is None else lease.version
