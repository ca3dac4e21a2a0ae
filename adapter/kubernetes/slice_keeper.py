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
- To make the Lease of a slice takes nothing: it has no holder at first. The watch shows all changes in their
  order. So one that has seen a Lease deleted knows whose slice it was, and one that has seen no scaler before
  knows that it has no owner. These take it at once, others when it has not changed for its duration.
- An owner that does not see that a Lease was deleted cannot write. The fence of a slice is open as long as
  the watch shows the renewals of its owner's own Lease, and so all that was before them. A scaler that sees
  none for the renew deadline leaves, and joins again when it sees.
- The Lease of a member that was deleted is made again by its owner. It counts as gone when it was missing for
  its duration.

A slice is wanted as soon as the plan gives it to this scaler, so its objects are there when it is free. A
scaler joins when it has those of its share. One that ends says so first. Slices move a few at once, and for
equal shares alone only while the members stay the same: in a rolling update a slice moves once, from the pod
that leaves to the one that has come.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import NoReturn

from adapter import errors
from adapter.kubernetes.cache.leases import LeaseView, Member, WatchedLease
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.lease import (
    RELEASED,
    Fence,
    KubernetesLeases,
    Lease,
    LeaseFence,
    LeaseRecord,
    SliceFence,
)
from adapter.kubernetes.membership import MemberSettings, Membership, next_record, unowned
from adapter.kubernetes.scaler_leases import ScalerLeases, read_version
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

_AT_ONCE = 16
"""The number of Leases of slices that are written at once."""

_MOVING = 2
"""The number of slices that a scaler hands over at once: each has an owner again before the next has none."""

_NOTICE = 1.0
"""For how many seconds a scaler that ends in order goes on after it has said so: the others prepare."""

_RETRY = 0.5
"""Seconds until a write that failed is repeated, and until a Lease is looked at again."""

_LEAVING = "?"
"""In a plan, the owner of a slice that is neither free nor kept."""

Work = Callable[[int, Fence], Awaitable[None]]
"""What the owner of a slice does, cancelled when the slice is given up. It must leave no write in flight."""


@dataclass(slots=True, eq=False)
class _Held:
    """A slice that is being taken, owned or released; it is given up once `surplus` is set.

    `moved` is set when the view shows another owner.
    """

    fence: SliceFence
    surplus: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    is_owned: bool = False
    record: LeaseRecord | None = None
    """What was written when the slice was taken, or its Lease made."""
    since: float = 0.0
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the view has shown that."""


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
        """`wants` is called with the slices that are owned, or will be soon, when they may change.

        If there are other members, `prepare` returns when this one can do the work for these.
        """
        self._leases = ScalerLeases(client, namespace, settings, view, clock, problems)
        self._settings = settings
        self._view = view
        self._clock = clock
        self._wants = wants
        self._prepare = prepare
        own = self._leases.lease(self._leases.member_name(settings.identity))
        self._membership = Membership(own, settings, clock, monitoring, problems)
        self._held: dict[int, _Held] = {}
        self._wanted: frozenset[int] = frozenset()
        self._is_leaving = self._is_ending = False
        """Whether it takes no more slices, and whether it gives up all."""
        self._members: tuple[frozenset[str], float] = frozenset(), 0.0
        """Who shares the slices, and since when."""
        self._outdated: dict[int, tuple[str, float]] = {}
        """Versions of slices, "" for none, that the view may still show although there is a newer one, and
        until when: the same may be true again, for a Lease that was made and deleted meanwhile.
        """
        self._looks: dict[str, tuple[str, float, float]] = {}
        """The versions of Leases without a holder, "" for none, and when these were first and last read."""
        self._clearing: set[str] = set()
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        """Set when the last slice was given up."""
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

        async def serve(fence: LeaseFence) -> None:
            async with asyncio.TaskGroup() as group:
                await self._serve(group, work, fence)
                for held in self._held.values():
                    held.surplus.set()

        await self._leases.wait_for_leader()
        while not self._view.cache.synced:  # its share would stay free
            self._wake.clear()
            await self._wake.wait()
        await self._membership.run(serve, self._prepare_to_join, self._leave)

    def _has_others(self) -> bool:
        """Return whether there is another member that stays."""
        now, me = self._clock.monotonic(), self._settings.identity
        members = self._view.members()
        return any(one.expires > now and not one.leaves and one.record.holder != me for one in members)

    async def _prepare_to_join(self) -> None:
        """Get what the work for the own share needs, while others own it.

        After a membership that others have ended, what is kept may be outdated: it is read again.
        """
        if await self._is_still_member() or self._prepare is None:
            return
        if self._wanted:
            await self._wait_prepared(self._prepare, frozenset)
        await self._wait_prepared(self._prepare, self._find_share)

    async def _is_still_member(self) -> bool:
        """Return whether the own Lease is held, else when the view shows that it is not."""
        lease = self._leases.member_name(self._settings.identity)
        while True:
            with self._leases.attempt(lease):
                read = await self._leases.lease(lease).fetch(self._settings.attempt)
                if read is not None and read.record.holder == self._settings.identity:
                    return True
                if self._leases.show_version(lease) in {"", read_version(read)}:
                    return False
            await asyncio.sleep(_RETRY)

    async def _wait_prepared(
        self, prepare: Callable[[], Awaitable[None]], find_wanted: Callable[[], Collection[int]]
    ) -> None:
        """Wait until this scaler is prepared, or no other is left that could own its share meanwhile."""
        preparing = asyncio.ensure_future(prepare())
        try:
            while not preparing.done() and self._has_others():
                self._want(find_wanted())
                await asyncio.wait({preparing}, timeout=_RETRY)
        finally:
            preparing.cancel()
            await asyncio.wait({preparing})
        if not preparing.cancelled():
            preparing.result()

    async def _leave(self) -> None:
        """Hand the slices over to others, if there are any, before the membership ends."""
        self._is_leaving = True
        if self._has_others() and await self._membership.announce_end():
            await asyncio.sleep(_NOTICE)
            self._is_ending = True
            self._wake.set()
            self._emptied.clear()
            if self._held:
                await self._emptied.wait()

    # -- a membership ----------------------------------------------------------------------------------------

    async def _serve(self, group: asyncio.TaskGroup, work: Work, fence: LeaseFence) -> None:
        """Take and give up slices until the view is old. The end of the membership frees what is held."""
        settings = self._settings
        sight = LeaseFence(
            self._clock, fence.sent, hold=settings.renew_deadline, tolerance=settings.tolerance
        )
        own = self._leases.member_name(settings.identity)
        self._outdated.clear()
        while True:
            self._wake.clear()
            self._leases.end_problems()
            self._leases.tidy(group)
            todo = self._plan()
            for number in todo.take:
                held = self._held[number] = _Held(SliceFence(fence, sight))
                group.create_task(self._hold(number, held, work), name=f"slice {number}")
            self._want({*self._held, *todo.expect})
            wait = min(self._clear_late(group), self._give_up(todo.release))
            self._membership.note_shown(self._view.find(own), sight)
            if (left := sight.due) <= 0:
                _log.warning("the watch of Leases is late", extra=facts(lease=settings.lease_name))
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, left)):
                    await self._wake.wait()

    def _want(self, numbers: Collection[int]) -> None:
        """Have the objects of slices kept, those of slices that are given up until all of them are."""
        if any(held.surplus.is_set() for held in self._held.values()):
            numbers = self._wanted.union(numbers)
        self._wanted = frozenset(numbers)
        self._wants(self._wanted)

    def _find_share(self) -> Collection[int]:
        """Return the slices that this scaler gets when it joins."""
        todo = self._plan()
        return {*todo.take, *todo.expect}

    def _plan(self) -> slices.SlicePlan:
        """Plan what to do. What is lost is given up."""
        me = self._settings.identity
        for number, held in self._held.items():
            if self._is_lost(number, held):
                held.fence.close()  # before the view counts as newer
                held.surplus.set()
        members = {member.record.holder: member.leaves for member in self._view.members()}
        owners = [self._owner_in_plan(number, members) for number in range(slices.COUNT)]
        staying = frozenset({me, *(member for member, leaves in members.items() if not leaves)})
        if staying != self._members[0]:
            self._members = staying, self._clock.monotonic()
        todo = slices.plan(me, staying, owners)
        if self._is_leaving:
            return slices.SlicePlan((), list(self._held) if self._is_ending else (), ())
        again = [number for number, owner in enumerate(owners) if owner == me and number not in self._held]
        return todo._replace(take=[*todo.take, *again])

    def _give_up(self, numbers: Collection[int]) -> float:
        """Give up slices, some at once, when the members have settled; return the seconds until then."""
        given_up = [held.surplus for number in numbers if (held := self._held.get(number)) is not None]
        left = self._members[1] + self._settings.settling - self._clock.monotonic()
        if given_up and left > 0 and not self._is_ending:
            return left
        moving = sum(held.surplus.is_set() for held in self._held.values())
        for surplus in [event for event in given_up if not event.is_set()][: max(0, _MOVING - moving)]:
            surplus.set()
        return math.inf

    def _is_lost(self, number: int, held: _Held) -> bool:
        """Return whether the Lease of an owned slice was deleted, or changed by another program."""
        seen = self._view.find_slice(number)
        if seen is not None and seen.record.holder not in {"", self._settings.identity}:
            held.moved.set()
        if seen is not None and (seen.record == held.record or not held.is_owned):
            held.shown.set()
            return False
        is_overdue = self._clock.monotonic() - held.since > self._settings.lease_duration / 2
        return held.is_owned and (held.shown.is_set() or is_overdue)

    def _owner_in_plan(self, number: int, members: Collection[str]) -> str:
        """Return whose slice this is, "" for one that is free, or whose Lease is to be made."""
        me, seen = self._settings.identity, self._view.find_slice(number)
        if (held := self._held.get(number)) is not None:
            return _LEAVING if held.surplus.is_set() else me
        version, until = self._outdated.get(number, ("", 0.0))
        if version == read_version(seen) and self._clock.monotonic() < until:
            return _LEAVING
        self._outdated.pop(number, None)
        if seen is None:
            return ""
        record, former = seen.record, self._view.find_former(seen)
        if former in {"", me}:
            # of one that was made, others may not know it: any that does takes it
            return me if record.duration > RELEASED else ""
        if not record.holder and self._lasts(seen.name, seen.version, record.duration):
            return ""
        if former is None:
            return _LEAVING
        lease = self._leases.member_name(former)
        if self._view.find(lease) is None:
            is_gone = self._lasts(lease, "", record.duration)
        else:
            self._looks.pop(lease, None)
            is_gone = True
        if former in members:
            return former
        return "" if is_gone else _LEAVING

    async def _hold(self, number: int, held: _Held, work: Work) -> None:
        """Take a slice, do its work until it is given up, and release it."""
        name = slices.name_of(self._settings.lease_name, number)
        leases, lease = self._leases.lease(name), None
        try:
            with self._leases.attempt(name):
                async with self._room:
                    lease = await self._take(number, held, leases)
            if lease is not None:
                held.is_owned, held.record, held.since = True, lease.record, self._clock.monotonic()
                held.shown.clear()
                await self._work(number, held, work)
                self._note_outdated(number, lease.version)
                is_free = await self._release(name, leases, lease)
                if is_free and held.surplus.is_set() and self._has_others():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_RETRY):
                            await held.moved.wait()
            elif number not in self._outdated:
                await asyncio.sleep(_RETRY)
        finally:
            del self._held[number]
            self._wake.set()
            if not self._held:
                self._emptied.set()

    async def _work(self, number: int, held: _Held, work: Work) -> None:
        """Work until the slice is given up. An error of the work ends the membership, and the process."""
        working = asyncio.ensure_future(work(number, held.fence))
        leaving = asyncio.create_task(held.surplus.wait(), name="surplus")
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.wait({working, leaving})
            held.fence.close()
            held.is_owned = False
        if not working.cancelled():
            working.result()

    async def _take(self, number: int, held: _Held, leases: KubernetesLeases) -> Lease | None:
        """Take a slice in the version that the view shows; None if it has another one, or is not free."""
        settings, version = self._settings, read_version(self._view.find_slice(number))
        lease = await leases.fetch(settings.attempt)
        if version != read_version(lease):
            if lease is not None and not leases.has_labels(lease):  # the view does not show it
                await leases.replace(lease, lease.record, settings.attempt)
            self._note_outdated(number, version)
            return None
        try:
            if lease is None:
                lease = await leases.create(unowned(settings, self._clock.wall()), settings.attempt)
                await self._wait_shown(held, lease)
            seen = self._view.find_slice(number)
            if seen is None or seen.version != lease.version:
                self._note_outdated(number, version)
                return None
            version = lease.version
            if not await self._is_free(seen):
                return None
            record = next_record(lease.record, settings, self._clock.wall())
            return await leases.replace(lease, record, settings.attempt)
        except errors.KubernetesError as error:
            if error.status in {404, 409}:
                self._note_outdated(number, version)
                return None
            raise

    async def _wait_shown(self, held: _Held, lease: Lease) -> None:
        """Wait for a time until the view has shown a Lease that was made, and what was before."""
        held.record = lease.record
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.attempt):
                await held.shown.wait()

    def _note_outdated(self, number: int, version: str) -> None:
        self._outdated[number] = version, self._clock.monotonic() + self._settings.lease_duration / 2

    async def _is_free(self, seen: WatchedLease) -> bool:
        """Return whether the membership has ended in which a slice was taken."""
        record, former = seen.record, self._view.find_former(seen)
        is_old = not record.holder and self._lasts(seen.name, seen.version, record.duration)
        if is_old or former in {None, "", self._settings.identity}:
            return is_old or former is not None
        name = self._leases.member_name(former or "")
        lease = await self._leases.lease(name).fetch(self._settings.attempt)
        if lease is None:
            return self._lasts(name, "", record.duration)
        self._looks.pop(name, None)
        return lease.record.holder != former

    def _lasts(self, name: str, version: str, duration: float) -> bool:
        """Return whether a Lease had this version, "" for none, at all looks of so many seconds."""
        now = self._clock.monotonic()
        before, since, looked = self._looks.get(name, (version, now, now))
        if before != version or now - looked > duration / 2:
            since = now
        self._looks[name] = version, since, now
        return now - max(since, self._view.removed.get(name, since)) >= duration

    # -- Leases ----------------------------------------------------------------------------------------------

    def _clear_late(self, group: asyncio.TaskGroup) -> float:
        """Clear the Leases of members that are late; return the seconds to the next look."""
        now, wait = self._clock.monotonic(), math.inf
        for member in list(self._view.members()):
            left = member.expires - now
            if member.record.holder == self._settings.identity:
                continue
            if left <= 0:
                left = _RETRY
                if member.lease not in self._clearing:
                    self._clearing.add(member.lease)
                    group.create_task(self._clear_member(member), name=f"clear {member.lease}")
            wait = min(wait, left)
        return wait

    async def _clear_member(self, member: Member) -> None:
        """Clear the Lease of a member that is late, or learn that it is not."""
        leases = self._leases.lease(member.lease)
        try:
            with self._leases.attempt(member.lease):
                lease = await leases.fetch(self._settings.attempt)
                if lease is not None and lease.record == member.record:
                    lease = await self._leases.clear(leases, lease)
                if lease is not None:
                    self._view.learn(member.lease, lease.record)
                    self._wake.set()
            await asyncio.sleep(_RETRY)
        finally:
            self._clearing.discard(member.lease)
            self._wake.set()

    async def _release(self, name: str, leases: KubernetesLeases, lease: Lease) -> bool:
        """Release a slice; return whether it had the version in which it was taken."""
        cleared: Lease | None = None
        while True:
            with self._leases.attempt(name):
                async with self._room:
                    cleared = await self._leases.clear(leases, lease)
            if name not in self._leases.failed:
                return cleared is not None
            await asyncio.sleep(_RETRY)
