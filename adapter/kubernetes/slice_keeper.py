"""The slices that this scaler owns: it joins the others, takes its fair share, and gives up what is above it.

A member holds a Lease of its own and renews it (`membership`). The Lease of a slice is written when the
owner changes, and holds for as long as that of its owner. So a scaler costs the API server as many writes as
one leader, however many slices it owns.

Two members never own a slice at once:

- A slice is taken in the version in which it was read, so of two that take it one gets a conflict.
- It is free if its Lease has no holder, or one that does not hold its own Lease by now. Both Leases are read
  at the API server, in this order, because what the view shows may be old. A member whose Lease has not
  changed for its duration stays one until another scaler has cleared that Lease, in the version that has not
  changed. By then its fence is closed, and it cannot renew what was cleared.
- A membership begins without slices. A scaler that was frozen for long takes them again, each in the version
  that it sees, or learns that another one has.
- A Lease that was deleted may have an owner that does not know yet. That of a member is made again by its
  owner. A slice is given up when the view shows that its Lease is gone, and taken when it has been missing
  for its duration, unless no other scaler is to be seen: only here it matters that a view is not older than
  that, and that no person deletes a Lease in the second in which two scalers begin or one is frozen.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from adapter import errors
from adapter.kubernetes.cache.leases import LABEL, LeaseView, Member, WatchedLease
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.lease import Fence, KubernetesLeases, Lease, LeaseFence, LeaseRecord, SliceFence
from adapter.kubernetes.membership import MemberSettings, Membership, next_record, released
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

FAULT = "slices"

_AT_ONCE = 16
"""The number of Leases of slices that are written at once."""

_JITTER = 1.2
"""A candidate of a version without slices waits for one to 2.2 retry periods."""

_RETRY = 0.5
"""Seconds until a write that failed is repeated, and until a Lease is looked at again."""

_TIDY_AFTER = 600.0
"""Seconds after the end of a membership, until its Lease is deleted: its slices have other owners by then."""

_LEAVING = "?"
"""In a plan, the owner of a slice that is neither free nor kept."""

Work = Callable[[int, Fence], Awaitable[None]]
"""What the owner of a slice does, cancelled when the slice is given up. It must leave no write in flight."""


@dataclass(slots=True, eq=False)
class _Held:
    """A slice that is being taken, owned or released; it is given up once `surplus` is set."""

    surplus: asyncio.Event = field(default_factory=asyncio.Event)
    is_owned: bool = False
    record: LeaseRecord | None = None
    """What was written when the slice was taken."""
    since: float = 0.0
    is_shown: bool = False
    """Whether the view has shown that."""


class SliceKeeper:
    """Owns slices of the scalers with a common name while `run` runs, and `view` is kept."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        settings: MemberSettings,
        view: LeaseView,
        clock: Clock,
        monitoring: Monitoring,
        problems: ProblemLog,
        wants: Callable[[Collection[int]], None] = lambda _: None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`wants` is called with the slices that are owned, or are to be taken now, when they may change.

        If there are other members, `prepare` returns when this one can do the work of an owner.
        """
        self._client = client
        self._namespace = namespace
        self._settings = settings
        self._view = view
        self._clock = clock
        self._problems = problems
        self._wants = wants
        self._prepare = prepare
        leases = self._leases(self._member_lease(settings.identity))
        self._membership = Membership(leases, settings, clock, monitoring, problems)
        self._held: dict[int, _Held] = {}
        self._outdated: dict[int, tuple[str, float]] = {}
        """Versions of slices, "" for none, that the view may still show although there is a newer one, and
        until when: the same may be true again, for a Lease that was made and deleted meanwhile.
        """
        self._missing: dict[str, tuple[float, float]] = {}
        """When Leases that do not exist were first and last looked for."""
        self._clearing: set[str] = set()
        self._failed: dict[str, str] = {}
        """Leases that could not be read or written, with the version that the view showed then."""
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._wake = asyncio.Event()
        view.changed = self._wake.set
        owned = monitoring.slices.labels(settings.lease_name)
        owned.set_function(lambda: sum(held.is_owned for held in self._held.values()))

    def find_owner(self, number: int) -> str:
        """Return the identity of the owner of a slice as far as is known, "" for none."""
        held, seen = self._held.get(number), self._view.find_slice(number)
        if held is not None and held.is_owned:
            return self._settings.identity
        members = {member.record.holder for member in self._view.members()}
        return seen.record.holder if seen is not None and seen.record.holder in members else ""

    async def run(self, work: Work) -> NoReturn:
        """Own slices until cancelled; then end their work and release them."""

        async def serve(fence: LeaseFence) -> NoReturn:
            async with asyncio.TaskGroup() as group:
                await self._serve(group, work, fence)

        await self._wait_for_leader()
        while not self._view.cache.synced:  # its share would stay free
            self._wake.clear()
            await self._wake.wait()
        if self._prepare is not None and self._has_others():
            self._wants(())
            await self._wait_prepared(self._prepare())
        await self._membership.run(serve)

    def _has_others(self) -> bool:
        now = self._clock.monotonic()
        return any(member.expires > now for member in self._view.members())

    async def _wait_prepared(self, prepare: Awaitable[None]) -> None:
        """Wait until this scaler is prepared, or no other is left that could own its share meanwhile."""
        preparing = asyncio.ensure_future(prepare)
        try:
            while not preparing.done() and self._has_others():
                await asyncio.wait({preparing}, timeout=_RETRY)
        finally:
            preparing.cancel()
            await asyncio.wait({preparing})
        if not preparing.cancelled():
            preparing.result()

    async def _wait_for_leader(self) -> None:
        """Wait for the leader of a version without slices, whose Lease has the common name.

        It ends when no other candidate has followed it for as long as one may take.
        """
        leases, settings = self._leases(self._settings.lease_name), self._settings
        seen, since = None, 0.0
        while True:
            wait = settings.retry_period
            with self._attempt(settings.lease_name):
                try:
                    lease, now = await leases.fetch(settings.attempt), self._clock.monotonic()
                except errors.KubernetesError as error:
                    if error.status == 403:
                        return  # it never was this scaler's Lease
                    raise
                if lease is not None and lease.record != seen:
                    seen, since = lease.record, now
                if seen is None:
                    return
                held = seen.duration if seen.holder else 0
                left = since + held + wait * (1 + _JITTER) - now
                if left <= 0:
                    if lease is not None and lease.record.holder:
                        await self._clear(leases, lease)
                    return
                wait = min(wait, left)
            await asyncio.sleep(wait)

    # -- a membership ----------------------------------------------------------------------------------------

    async def _serve(self, group: asyncio.TaskGroup, work: Work, fence: LeaseFence) -> NoReturn:
        """Take and give up slices until cancelled. The end of the membership frees those that are held."""
        self._outdated.clear()
        while True:
            self._wake.clear()
            members = {member.record.holder: member for member in self._view.members()}
            self._end_problems()
            wait = self._clear_late(group, members)
            self._tidy(group)
            for number in self._plan(members):
                held = self._held[number] = _Held()
                group.create_task(self._hold(number, held, work, fence), name=f"slice {number}")
            self._wants(self._held.keys())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _plan(self, members: Collection[str]) -> list[int]:
        """Mark the slices to be given up, and return those to be taken."""
        me = self._settings.identity
        for number, taken in self._held.items():
            if self._is_lost(number, taken):
                taken.surplus.set()
        others = {*members, *(seen.record.holder for seen in self._view.slices())} - {"", me}
        owners = [self._owner_in_plan(number, members, others) for number in range(slices.COUNT)]
        todo = slices.plan(me, {*members, me}, owners)
        for number in todo.release:
            if (held := self._held.get(number)) is not None:
                held.surplus.set()
        again = [number for number, owner in enumerate(owners) if owner == me and number not in self._held]
        return [*todo.take, *again]

    def _is_lost(self, number: int, held: _Held) -> bool:
        """Return whether the Lease of an owned slice was deleted, or changed by another program."""
        seen = self._view.find_slice(number)
        if seen is not None and seen.record == held.record:
            held.is_shown = True
            return False
        is_overdue = self._clock.monotonic() - held.since > self._settings.lease_duration / 2
        return held.record is not None and (held.is_shown or is_overdue)

    def _owner_in_plan(self, number: int, members: Collection[str], others: Collection[str]) -> str:
        """Return whose slice this is, "" for a free one. Where `others` have been seen, one may own it."""
        me, name = self._settings.identity, slices.name_of(self._settings.lease_name, number)
        seen = self._view.find_slice(number)
        if seen is not None:
            self._missing.pop(name, None)
        if (held := self._held.get(number)) is not None:
            return _LEAVING if held.surplus.is_set() else me
        version, until = self._outdated.get(number, ("", 0.0))
        if version == _read_version(seen) and self._clock.monotonic() < until:
            return _LEAVING
        self._outdated.pop(number, None)
        if seen is None:
            return _LEAVING if others and not self._is_gone(name, self._settings.lease_duration) else ""
        holder = seen.record.holder
        lease = self._member_lease(holder)
        if holder and self._view.cache.find(self._namespace, lease) is None:
            is_gone = self._is_gone(lease, seen.record.duration)
        else:
            self._missing.pop(lease, None)
            is_gone = True
        if holder in members:
            return holder
        return "" if is_gone else _LEAVING

    async def _hold(self, number: int, held: _Held, work: Work, fence: LeaseFence) -> None:
        """Take a slice, do its work until it is given up, and release it."""
        name = slices.name_of(self._settings.lease_name, number)
        leases, lease = self._leases(name), None
        try:
            with self._attempt(name):
                async with self._room:
                    lease = await self._take(number, leases)
            if lease is not None:
                held.is_owned, held.record, held.since = True, lease.record, self._clock.monotonic()
                await self._work(number, held, work, SliceFence(fence))
                self._note_outdated(number, lease.version)
                await self._release(name, leases, lease)
            elif number not in self._outdated:
                await asyncio.sleep(_RETRY)
        finally:
            del self._held[number]
            self._wake.set()

    async def _work(self, number: int, held: _Held, work: Work, fence: SliceFence) -> None:
        """Work until the slice is given up. An error of the work ends the membership, and the process."""
        working = asyncio.ensure_future(work(number, fence))
        leaving = asyncio.create_task(held.surplus.wait(), name="surplus")
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.wait({working, leaving})
            fence.close()
            held.is_owned = False
        if not working.cancelled():
            working.result()

    async def _take(self, number: int, leases: KubernetesLeases) -> Lease | None:
        """Take a slice in the version that the view shows; None if it has another one, or is not free."""
        settings, version = self._settings, _read_version(self._view.find_slice(number))
        lease = await leases.fetch(settings.attempt)
        if version != _read_version(lease):
            if lease is not None and not leases.has_labels(lease):  # the view does not show it
                await leases.replace(lease, lease.record, settings.attempt)
            self._note_outdated(number, version)
            return None
        if lease is not None and not await self._is_free(lease.record):
            return None
        record = next_record(None if lease is None else lease.record, settings, self._clock.wall())
        try:
            if lease is None:
                return await leases.create(record, settings.attempt)
            return await leases.replace(lease, record, settings.attempt)
        except errors.KubernetesError as error:
            if error.status == 409 or (error.status == 404 and lease is not None):
                self._note_outdated(number, version)
                return None
            raise

    def _note_outdated(self, number: int, version: str) -> None:
        self._outdated[number] = version, self._clock.monotonic() + self._settings.lease_duration / 2

    async def _is_free(self, record: LeaseRecord) -> bool:
        """Return whether the membership has ended in which a slice was taken."""
        if record.holder in {"", self._settings.identity}:
            return True
        name = self._member_lease(record.holder)
        lease = await self._leases(name).fetch(self._settings.attempt)
        if lease is None:
            return self._is_gone(name, record.duration)
        self._missing.pop(name, None)
        return lease.record.holder != record.holder

    def _is_gone(self, name: str, duration: float) -> bool:
        """Return whether a Lease that does not exist did not at any look of the last `duration` seconds."""
        now = self._clock.monotonic()
        since, looked = self._missing.get(name, (now, now))
        if now - looked > duration / 2:
            since = now
        self._missing[name] = since, now
        return now - max(since, self._view.removed.get(name, since)) >= duration

    # -- Leases ----------------------------------------------------------------------------------------------

    def _clear_late(self, group: asyncio.TaskGroup, members: Mapping[str, Member]) -> float | None:
        """Clear the Leases of members that are late; return the seconds to the next look, None for none."""
        now, wait = self._clock.monotonic(), None
        for member in members.values():
            left = member.expires - now
            if member.record.holder == self._settings.identity:
                continue
            if left <= 0:
                left = _RETRY
                if member.lease not in self._clearing:
                    self._clearing.add(member.lease)
                    group.create_task(self._clear_member(member), name=f"clear {member.lease}")
            wait = left if wait is None else min(wait, left)
        return wait

    async def _clear_member(self, member: Member) -> None:
        """Clear the Lease of a member that is late, or learn that it is not."""
        leases = self._leases(member.lease)
        try:
            with self._attempt(member.lease):
                lease = await leases.fetch(self._settings.attempt)
                if lease is not None and lease.record == member.record:
                    lease = await self._clear(leases, lease)
                if lease is not None:
                    self._view.learn(member.lease, lease.record)
                    self._wake.set()
            await asyncio.sleep(_RETRY)
        finally:
            self._clearing.discard(member.lease)
            self._wake.set()

    def _tidy(self, group: asyncio.TaskGroup) -> None:
        """Delete the Leases of memberships that have ended long ago."""
        for lease in self._view.ended(_TIDY_AFTER):
            group.create_task(self._delete(lease), name=f"delete {lease.name}")

    async def _delete(self, lease: WatchedLease) -> None:
        with self._attempt(lease.name):
            await self._leases(lease.name).delete(lease.version, self._settings.attempt)

    async def _release(self, name: str, leases: KubernetesLeases, lease: Lease) -> None:
        while True:
            with self._attempt(name):
                async with self._room:
                    await self._clear(leases, lease)
            if name not in self._failed:
                return
            await asyncio.sleep(_RETRY)

    async def _clear(self, leases: KubernetesLeases, lease: Lease) -> Lease:
        """Remove the holder of a Lease in the version that was read."""
        record = released(lease.record, self._clock.wall())
        return await leases.replace(lease, record, self._settings.attempt)

    def _member_lease(self, identity: str) -> str:
        """Return the name of the Lease of a member, which no other process has."""
        return f"{self._settings.lease_name}-member-{identity.rpartition('_')[2]}"

    def _leases(self, name: str) -> KubernetesLeases:
        return KubernetesLeases(self._client, self._namespace, name, {LABEL: self._settings.lease_name})

    # -- problems --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        """Report an error of the block as a problem of a Lease, but no conflict; end the block."""
        try:
            yield
        except errors.KubernetesError as error:
            if error.status not in {404, 409}:
                self._failed[name] = self._show_version(name)
                message = "a Lease could not be read or written"
                self._problems.report(FAULT, message, str(error), subject=name)
                return
        self._end_problem(name)

    def _end_problems(self) -> None:
        """End the problems of Leases that have changed: what could not be done may be done by another."""
        for name, version in list(self._failed.items()):
            if self._show_version(name) != version:
                self._end_problem(name)

    def _end_problem(self, name: str) -> None:
        self._failed.pop(name, None)
        self._problems.resolve(FAULT, subject=name)

    def _show_version(self, name: str) -> str:
        return _read_version(self._view.cache.find(self._namespace, name))


def _read_version(lease: Lease | WatchedLease | None) -> str:
    return "" if lease is None else lease.version
