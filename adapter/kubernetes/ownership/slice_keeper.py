"""The slices that this scaler owns: it joins the others, takes its fair share, and gives up what is above it.

A member holds a Lease of its own and renews it (`membership`). The Lease of a slice is written when the
owner changes, and holds for as long as that of its owner. So a scaler costs the API server as many writes as
one owner, however many slices it owns.

Two members never own a slice at once:

- Others clear the Lease of a member only when that one cannot write any more (`term`).
- A slice is taken only if it is certainly free (`scaler_leases`), and in the version in which it was read
  (`held_slice`).
- A membership begins without slices. A scaler that was frozen for long takes them again, each in the version
  that it sees, or learns that another one has.
- An owner that does not see that a Lease was deleted cannot write. The term of a slice is open as long as
  the watch shows the renewals of its owner's own Lease, and so all that was before them. A scaler that sees
  none for the renew deadline leaves, and joins again when it sees.

A slice is wanted as soon as the plan gives it to this scaler, so its objects are there when it is free. A
scaler joins when it has those of its share. One that ends says so first. Slices move a few at once, and for
equal shares alone only while the members stay the same: in a rolling update a slice moves once, from the pod
that leaves to the one that has come.
"""

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.ownership.held_slice import HeldSlice
from adapter.kubernetes.ownership.installation_lock import InstallationLock
from adapter.kubernetes.ownership.lease_view import POD
from adapter.kubernetes.ownership.membership import MemberSettings, Membership
from adapter.kubernetes.ownership.scaler_leases import RETRY, UNSETTLED, ScalerLeases, read_version
from adapter.kubernetes.ownership.term import LeaseFence, Unchanged, Work
from adapter.model.autoscaling import slices
from adapter.runtime.waits import wait_for
from adapter.telemetry.logs import facts

_log = logging.getLogger(__name__)

_MOVING = 2
"""The number of slices that a scaler hands over at once: each has an owner again before the next has none."""

_NOTICE = 1.0
"""For how many seconds a scaler that ends in order goes on after it has said so: the others prepare."""


class SliceKeeper:
    """Owns slices of the scalers with a common name while `run` runs, and its `view` is kept."""

    def __init__(
        self,
        watching: ReflectorContext,
        namespace: str,
        settings: MemberSettings,
        wants: Callable[[Collection[int]], None] = lambda _: None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`wants` is called with the slices that are owned, or will be soon, when they may change.

        If there are other members, `prepare` returns when this one can do the work for these.
        """
        self._leases = ScalerLeases(watching, namespace, settings)
        self.view = self._leases.view
        self._settings = settings
        self._clock = watching.clock
        self._wants = wants
        self._prepare = prepare
        self._own = self._leases.member_name(settings.identity)
        lease = self._leases.lease(self._own)
        if settings.pod:
            lease.labels[POD] = settings.pod
        self._membership = Membership(lease, settings, watching)
        self._lock = InstallationLock(watching, f"{namespace}/{settings.lease_name}")
        self._held: dict[int, HeldSlice] = {}
        self._wanted: frozenset[int] = frozenset()
        self._is_leaving = self._is_ending = False
        """Whether it takes no more slices, and whether it gives up all."""
        self._staying = Unchanged(watching.clock)
        """Who shares the slices."""
        self._settled = 0.0
        """For how many seconds they have been the same."""
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        """Set when the last slice was given up."""
        self.view.changed = self._lock.changed = self._wake.set
        owned = watching.monitoring.slices.labels(settings.lease_name)
        owned.set_function(lambda: sum(held.term is not None for held in self._held.values()))

    def find_owner(self, number: int) -> str:
        """Return the identity of the owner of a slice as far as is known, "" for none."""
        held, seen = self._held.get(number), self.view.find_slice(number)
        if held is not None and held.term is not None:
            return self._settings.identity
        members = {member.record.holder for member in self.view.members()}
        return seen.record.holder if seen is not None and seen.record.holder in members else ""

    async def run(self, work: Work) -> NoReturn:
        """Own slices until cancelled; then end their work and release them."""
        while not self.view.cache.synced:  # its share would stay free
            self._wake.clear()
            await self._wake.wait()
        try:
            await self._membership.run(
                functools.partial(self._serve, work), self._prepare_to_join, self._leave
            )
        finally:
            # Released last: another installation takes it at once, and all work of this one has ended by now.
            if not self._leases.has_others(staying=False):
                await self._lock.release()

    async def _prepare_to_join(self) -> None:
        """Get what the work for the own share needs, while others own it.

        After a membership that others have ended, what is kept may be outdated: it is read again.
        """
        if not await self._is_still_member() and self._prepare is not None:
            if self._wanted:
                await self._wait_prepared(self._prepare, frozenset)
            await self._wait_prepared(self._prepare, self._find_share)
        # Before it joins: others deal slices to a member, which stay free if its installation does not scale.
        await self._lock.decide()

    async def _is_still_member(self) -> bool:
        """Return whether the own Lease is held, else when the view shows that it is not."""
        while True:
            with self._leases.attempt(self._own):
                read = await self._leases.lease(self._own).fetch(self._settings.attempt)
                if read is not None and read.record.holder == self._settings.identity:
                    return True
                if self._leases.show_version(self._own) in {"", read_version(read)}:
                    return False
            await asyncio.sleep(RETRY)

    async def _wait_prepared(
        self, prepare: Callable[[], Awaitable[None]], find_wanted: Callable[[], Collection[int]]
    ) -> None:
        """Wait until this scaler is prepared, or no other is left that could own its share meanwhile."""
        preparing = asyncio.ensure_future(prepare())
        try:
            while not preparing.done() and self._leases.has_others():
                self._want(find_wanted())
                await asyncio.wait({preparing}, timeout=RETRY)
        finally:
            preparing.cancel()
            await asyncio.wait({preparing})
        if not preparing.cancelled():
            preparing.result()

    async def _leave(self) -> None:
        """Hand the slices over to others, if there are any, before the membership ends."""
        self._is_leaving = True
        if self._leases.has_others() and await self._membership.announce_end():
            await asyncio.sleep(_NOTICE)
            self._is_ending = True
            self._wake.set()
            self._emptied.clear()
            if self._held:
                await self._emptied.wait()

    # -- a membership ----------------------------------------------------------------------------------------

    async def _serve(self, work: Work, fence: LeaseFence) -> None:
        """Take and give up slices until the view is old. The end of the membership frees what is held."""
        hold, tolerance = self._settings.renew_deadline, self._settings.tolerance
        sight = LeaseFence(self._clock, fence.sent, hold=hold, tolerance=tolerance)
        self._leases.outdated.clear()
        self._lock.begin()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._lock.run(), name="installation lock")
            while True:
                self._wake.clear()  # first: what changes from now on is looked at again
                # No await may come between these two: a write that was checked there would rely on a view
                # that is new, and not yet on what it shows.
                self._membership.note_shown(self.view.settled.get(self._own), sight)
                for held in self._held.values():
                    held.follow()
                if (left := sight.due) <= 0:
                    _log.warning("the watch of Leases is late", extra=facts(lease=self._settings.lease_name))
                    break
                self._leases.end_problems()
                self._leases.tidy(group)
                todo = self._plan() if self._lock.allowed else self._stand_back()
                for number in todo.take:
                    held = self._held[number] = HeldSlice(number, fence, sight, self._leases)
                    group.create_task(self._hold(held, work), name=f"slice {number}")
                self._want({*self._held, *todo.expect})
                wait = min(self._leases.clear_late(group), self._give_up(todo.release))
                await wait_for(self._wake, min(wait, left))
            self._give_up_all()
            looking.cancel()

    def _want(self, numbers: Collection[int]) -> None:
        """Have the objects of slices kept, those of slices that are given up until all of them are."""
        if any(held.surplus.is_set() for held in self._held.values()):
            numbers = self._wanted.union(numbers)
        self._wanted = frozenset(numbers)
        self._wants(self._wanted)

    def _stand_back(self) -> slices.SlicePlan:
        """Give up all slices; prepare for the own share until it is known which installation scales."""
        self._give_up_all()
        return slices.SlicePlan((), (), () if self._lock.holder else tuple(self._find_share()))

    def _give_up_all(self) -> None:
        for held in self._held.values():
            held.surplus.set()

    def _find_share(self) -> Collection[int]:
        """Return the slices that this scaler gets when it joins."""
        todo = self._plan()
        return {*todo.take, *todo.expect}

    def _plan(self) -> slices.SlicePlan:
        me = self._settings.identity
        members = {member.record.holder: member.leaves for member in self.view.members()}
        owners = [self._owner_in_plan(number, members) for number in range(slices.COUNT)]
        staying = frozenset({me, *(member for member, leaves in members.items() if not leaves)})
        self._settled = self._staying.see(staying)
        todo = slices.plan(me, staying, owners)
        if self._is_leaving:
            return slices.SlicePlan((), list(self._held) if self._is_ending else (), ())
        again = [number for number, owner in enumerate(owners) if owner == me and number not in self._held]
        return todo._replace(take=[*todo.take, *again])

    def _give_up(self, numbers: Collection[int]) -> float:
        """Give up slices, some at once, when the members have settled; return the seconds until then."""
        given_up = [held.surplus for number in numbers if (held := self._held.get(number)) is not None]
        left = self._settings.settling - self._settled
        if given_up and left > 0 and not self._is_ending:
            return left
        moving = sum(held.surplus.is_set() for held in self._held.values())
        for surplus in [event for event in given_up if not event.is_set()][: max(0, _MOVING - moving)]:
            surplus.set()
        return math.inf

    def _owner_in_plan(self, number: int, members: Collection[str]) -> str:
        if (held := self._held.get(number)) is not None:
            return UNSETTLED if held.surplus.is_set() else self._settings.identity
        return self._leases.find_owner(number, members)

    async def _hold(self, held: HeldSlice, work: Work) -> None:
        try:
            await held.run(work)
        finally:
            del self._held[held.number]
            self._wake.set()
            if not self._held:
                self._emptied.set()
