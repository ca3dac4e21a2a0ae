"""The Leases that the scalers with a common name have: access to them, and the problems of each.

A problem of a Lease ends when an attempt succeeds, or when the Lease has changed: another scaler may have
done what this one could not.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from adapter import errors
from adapter.kubernetes.cache.leases import LABEL, LeaseView, WatchedLease
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.lease import KubernetesLeases, Lease
from adapter.kubernetes.membership import MemberSettings, released
from adapter.model.clock import Clock
from adapter.telemetry.problems import ProblemLog

FAULT = "slices"

_JITTER = 1.2
"""A candidate of a version without slices waits for one to 2.2 retry periods."""

_TIDY_AFTER = 600.0
"""Seconds after the end of a membership, until its Lease is deleted: its slices have other owners by then."""


class ScalerLeases:
    """Reads and writes the Leases of a group of scalers, as one of them."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        settings: MemberSettings,
        view: LeaseView,
        clock: Clock,
        problems: ProblemLog,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._settings = settings
        self._view = view
        self._clock = clock
        self._problems = problems
        self.failed: dict[str, str] = {}
        """Leases that could not be read or written, with the version that the view showed then."""

    async def wait_for_leader(self) -> None:
        """Wait for the leader of a version without slices, whose Lease has the common name.

        It ends when no other candidate has followed it for as long as one may take.
        """
        settings = self._settings
        leases = self.lease(settings.lease_name)
        seen, since = None, 0.0
        while True:
            wait = settings.retry_period
            with self.attempt(settings.lease_name):
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
                        await self.clear(leases, lease)
                    return
                wait = min(wait, left)
            await asyncio.sleep(wait)

    def tidy(self, group: asyncio.TaskGroup) -> None:
        """Delete the Leases of memberships that have ended long ago."""
        for lease in self._view.ended(_TIDY_AFTER):
            group.create_task(self._delete(lease), name=f"delete {lease.name}")

    async def _delete(self, lease: WatchedLease) -> None:
        with self.attempt(lease.name):
            await self.lease(lease.name).delete(lease.version, self._settings.attempt)

    async def clear(self, leases: KubernetesLeases, lease: Lease) -> Lease:
        """Remove the holder of a Lease in the version that was read."""
        record = released(lease.record, self._clock.wall())
        return await leases.replace(lease, record, self._settings.attempt)

    def member_name(self, identity: str) -> str:
        """Return the name of the Lease of a member, which no other process has."""
        return f"{self._settings.lease_name}-member-{identity.rpartition('_')[2]}"

    def lease(self, name: str) -> KubernetesLeases:
        return KubernetesLeases(self._client, self._namespace, name, {LABEL: self._settings.lease_name})

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
        return read_version(self._view.find(name))


def read_version(lease: Lease | WatchedLease | None) -> str:
    return "" if lease is None else lease.version
