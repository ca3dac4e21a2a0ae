"""The Lease of the installation that scales: of several one owns slices, and the others stand back.

It names an installation, as namespace and name of its Leases. Any member renews it, so members never wait for
each other here. Another installation takes it when it has seen no renewal for `HOLD` by its own clock, or at
once without a holder. A write names the version that was read, so one of two gets a conflict.

It must not be a new way to stop all scaling: two installations that write name the version of what they read,
and none that writes is an outage. Where the API server refuses this Lease, as with the role of an older
version, an installation that knows no holder scales at once. Without an answer the holder goes on, and the
others scale after `HOLD`. That time counts while the API server answers for the Leases of the members.
"""

import asyncio
import math
from collections.abc import Callable
from typing import NoReturn

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.ownership.lease import KubernetesLeases, Lease, next_record
from adapter.kubernetes.ownership.term import Unchanged

NAMESPACE, NAME = "kube-system", "fastpath-scaler"

STANDS_BACK, UNREAD = FAULTS = "installation", "installation-lock"
"""The faults of one that stands back, and of a Lease that cannot be read or written."""

HOLD = 60.0
"""For how many seconds the Lease does not change until another installation takes it.

A member renews it after a sixth of that, and looks twice as often.
"""

_RETRY = 1.0
"""Seconds until the next look where the API server has not answered."""

_ATTEMPT = 5.0
"""How many seconds a request may take."""

_UNANSWERED = frozenset({401, 408, 409, 429})
"""Statuses below 500 that do not refuse this Lease: they are about the caller, or that moment."""


class InstallationLock:
    """What a member knows of the Lease while `run` runs. `changed` is called when `allowed` has changed."""

    def __init__(self, watching: ReflectorContext, installation: str) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.allowed = False
        """Whether this installation scales."""
        self.holder = ""
        """Which installation holds the Lease, "" for none or if that is not known."""
        self._me = installation
        self._store = KubernetesLeases(watching.client, NAMESPACE, NAME)
        self._clock = watching.clock
        self._problems = watching.problems
        self._seen = Unchanged(watching.clock)
        """The record of the Lease, None if it does not exist."""
        self._looked = -math.inf
        """When a look has succeeded last."""
        self._failing: float | None = None
        """Since when no look has succeeded, None if the last one has."""
        self._refused = False
        """Whether the API server has refused one of the looks since then."""

    async def decide(self) -> None:
        """Look until it is known which installation scales, before a membership: others deal slices to it."""
        self._seen, self._failing, self._refused = Unchanged(self._clock), None, False
        self._looked = -math.inf
        self.begin()
        await self._attempt()
        while not (self.allowed or self.holder):
            await asyncio.sleep(_RETRY)
            await self._attempt()

    def begin(self) -> None:
        """Begin a membership: what was seen longer ago may be wrong by now, and does not count."""
        if self._clock.monotonic() - self._looked >= HOLD / 2:
            self.allowed = False
            if self.holder == self._me:
                self.holder = ""

    async def run(self) -> NoReturn:
        while True:
            await self._attempt()
            is_answered = self._refused or (self._failing is None and self.holder != "")
            await asyncio.sleep(HOLD / 12 if is_answered else _RETRY)

    async def release(self) -> None:
        """Clear the holder if it is this installation, so that another one takes the Lease at once."""
        if self.holder != self._me:
            return
        try:
            lease = await self._store.fetch(_ATTEMPT)
            if lease is not None and lease.record.holder == self._me:
                await self._store.clear(lease, self._clock.wall(), _ATTEMPT)
        except errors.KubernetesError as error:
            self._note_failure(error)

    # -- one look --------------------------------------------------------------------------------------------

    async def _attempt(self) -> None:
        try:
            await self._look()
        except errors.KubernetesError as error:
            self._note_failure(error)
        else:
            self._looked = self._clock.monotonic()
            self._failing, self._refused = None, False
            self._problems.resolve(UNREAD)
        self._judge()

    async def _look(self) -> None:
        """Read the Lease, and write it if that is due; after a conflict once more."""
        for is_last in (False, True):
            lease = await self._store.fetch(_ATTEMPT)
            # one that begins renews it at once: another installation may have seen no renewal for long
            if not self._is_due(lease, begins=not is_last):
                return
            record = next_record(lease, self._me, HOLD, self._clock.wall())
            try:
                self._is_due(await self._store.write(lease, record, _ATTEMPT))
            except errors.KubernetesError as error:
                if is_last or error.status != 409:
                    raise
            else:
                return

    def _is_due(self, lease: Lease | None, *, begins: bool = False) -> bool:
        """Note the Lease as it is, None if it does not exist; return whether to write it.

        Where another installation held one that was deleted, that one makes it again first.
        """
        lasts = self._seen.see(None if lease is None else lease.record)
        if lease is not None:
            self.holder = lease.record.holder
        if self.holder == self._me:
            return lease is None or lasts >= HOLD / 6 or (begins and not self.allowed)
        if lasts >= HOLD:
            self.holder = ""
        return not self.holder

    def _note_failure(self, error: errors.KubernetesError) -> None:
        if self._failing is None:
            self._failing = self._clock.monotonic()
        self._refused |= 400 <= error.status < 500 and error.status not in _UNANSWERED
        message = "the Lease of the installation that scales could not be read or written"
        self._problems.report(UNREAD, message, str(error))

    def _judge(self) -> None:
        """Decide whether this installation scales, and say so if it does not."""
        before, self.allowed = self.allowed, self.holder == self._me
        if not self.allowed and self._failing is not None:
            is_unknown = self._refused and not self.holder
            self.allowed = is_unknown or self._clock.monotonic() - self._failing >= HOLD
        if self.holder and not self.allowed:
            text = f"the Lease {NAMESPACE}/{NAME} is held by {self.holder}: {self._me} stands back"
            self._problems.report(STANDS_BACK, "another installation scales", text)
        else:
            self._problems.resolve(STANDS_BACK)
        if before != self.allowed:
            self.changed()
