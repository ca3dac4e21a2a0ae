"""Who owns each slice, by the Leases as a scaler sees them, and when a slice is certainly free.

- A slice is free if its Lease has no holder, or one that does not hold its own Lease by now. Both Leases are
  read at the API server, in this order, because what the view shows may be old. A member whose Lease has not
  changed for its duration stays one until another scaler has cleared that Lease, in the version that has not
  changed. By then its fence is closed, and it cannot renew what was cleared.
- To make the Lease of a slice takes nothing: it has no holder at first. The watch shows all changes in their
  order. So one that has seen a Lease deleted knows whose slice it was, and one that has seen no scaler before
  knows that it has no owner. These take it at once, others when it has not changed for its duration.
- The Lease of a member that was deleted is made again by its owner. It counts as gone when it was missing for
  its duration.
"""

from collections.abc import Collection

from adapter.kubernetes.ownership.lease import RELEASED
from adapter.kubernetes.ownership.lease_view import WatchedLease
from adapter.kubernetes.ownership.scaler_leases import ScalerLeases, read_version

UNSETTLED = "?"
"""In a plan, the owner of a slice that is neither free nor kept."""


class SliceOwners:
    """The owners of all slices, as one scaler sees them."""

    def __init__(self, leases: ScalerLeases) -> None:
        self._leases = leases
        self._view = leases.view
        self._clock = leases.clock
        self._settings = leases.settings
        self.outdated: dict[int, tuple[str, float]] = {}
        """Versions of slices, "" for none, that the view may still show although there is a newer one, and
        until when: the same may be true again, for a Lease that was made and deleted meanwhile.
        """
        self._looks: dict[str, tuple[str, float, float]] = {}
        """The versions of Leases without a holder, "" for none, and when these were first and last read."""

    def note_outdated(self, number: int, version: str) -> None:
        self.outdated[number] = version, self._clock.monotonic() + self._settings.lease_duration / 2

    def find(self, number: int, members: Collection[str]) -> str:
        """Return whose slice this is, "" for one that is free, or whose Lease is to be made."""
        me, seen = self._settings.identity, self._view.find_slice(number)
        version, until = self.outdated.get(number, ("", 0.0))
        if version == read_version(seen) and self._clock.monotonic() < until:
            return UNSETTLED
        self.outdated.pop(number, None)
        if seen is None:
            return ""
        record, former = seen.record, self._view.find_former(seen)
        if former in {"", me}:
            # of one that was made, others may not know it: any that does takes it
            return me if record.duration > RELEASED else ""
        if not record.holder and self._lasts(seen.name, seen.version, record.duration):
            return ""
        if former is None:
            return UNSETTLED
        lease = self._leases.member_name(former)
        if self._view.find(lease) is None:
            is_gone = self._lasts(lease, "", record.duration)
        else:
            self._looks.pop(lease, None)
            is_gone = True
        if former in members:
            return former
        return "" if is_gone else UNSETTLED

    async def is_free(self, seen: WatchedLease) -> bool:
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
