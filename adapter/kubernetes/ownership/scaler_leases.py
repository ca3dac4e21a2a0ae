"""The Leases that the scalers with a common name have: access to them, and the problems of each.

Each scaler clears the Leases of members that are late, and deletes those of memberships that ended long ago.
A problem of a Lease ends when an attempt succeeds, or when the Lease has changed: another scaler may have
done what this one could not.
"""

import asyncio
import contextlib
import math
from collections.abc import Iterator

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.ownership.lease import KubernetesLeases, Lease
from adapter.kubernetes.ownership.lease_view import LABEL, LeaseView, Member, WatchedLease
from adapter.kubernetes.ownership.membership import MemberSettings, released

FAULT = "slices"

RETRY = 0.5
"""Seconds until a write that failed is repeated, and until a Lease is looked at again."""

AT_ONCE = 16
"""The number of Leases of slices that are written at once."""

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
        self._client = watching.client
        self._namespace = namespace
        self._problems = watching.problems
        self._clearing: set[str] = set()
        self.failed: dict[str, str] = {}
        """Leases that could not be read or written, with the version that the view showed then."""

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
        leases = self.lease(member.lease)
        try:
            with self.attempt(member.lease):
                lease = await leases.fetch(self.settings.attempt)
                if lease is not None and lease.record == member.record:
                    lease = await self.clear(leases, lease)
                if lease is not None:
                    self.view.learn(member.lease, lease.record)
                    self.view.changed()
            await asyncio.sleep(RETRY)
        finally:
            self._clearing.discard(member.lease)
            self.view.changed()

    def tidy(self, group: asyncio.TaskGroup) -> None:
        """Delete the Leases of memberships that have ended long ago."""
        for lease in self.view.ended(_TIDY_AFTER):
            group.create_task(self._delete(lease), name=f"delete {lease.name}")

    async def _delete(self, lease: WatchedLease) -> None:
        with self.attempt(lease.name):
            await self.lease(lease.name).delete(lease.version, self.settings.attempt)

    async def clear(self, leases: KubernetesLeases, lease: Lease) -> Lease:
        """Remove the holder of a Lease in the version that was read."""
        record = released(lease.record, self.clock.wall())
        return await leases.replace(lease, record, self.settings.attempt)

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
            if error.status not in {404, 409}:
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
