"""Detects that another client scales the same target, and pauses scaling when it keeps reverting our changes.

The detector is a state machine over the replica counts that were observed and the ones that we wrote. Any
client may scale the target: its change counts in the scaling policies, and the next decision starts from the
new count. A change that lowers the count right after we raised it is a *reversal*; a raise never is. Two
reversals within five minutes pause scaling for five minutes. Each further pause is twice as long, up to an
hour, until the spec changes.

A count of zero that another client set disables scaling, as in Kubernetes: only a zero that we wrote may be
left again. The field manager in ``metadata.managedFields`` names the writer of the count.
"""

from typing import NamedTuple

import msgspec

from adapter.model.timestamps import SECOND

OWN = "fastpath"
"""The field manager of our writes."""

REVERSALS_WITHIN = 300 * SECOND
FIRST_PAUSE = 300 * SECOND
LONGEST_PAUSE = 3600 * SECOND
UNNAMED = "an unnamed writer"


class ScaleObservation(NamedTuple):
    """An observed replica count, its field manager, and the time of day at which that wrote it.

    Both are "" if unknown. `set_by` is that of the clock of decisions.
    """

    replicas: int
    manager: str = ""
    since: str = ""
    set_by: int = 0


class OwnWrite(NamedTuple):
    """A count that we wrote, and the one before it."""

    before: int
    after: int


class ConflictState(msgspec.Struct, frozen=True):
    """What is known of the clients that scale a target.

    `known` is the count as last observed or written, None before the first observation. `ours` is our last
    write if no client has changed the count since. `reversals` are the instants of the latest reversals.
    `pause` is the length of the last pause, 0 before the first; it ends at `paused_until`, and `paused_by`
    caused it. `own_zero` says whether a count of zero is ours.
    """

    known: int | None = None
    ours: OwnWrite | None = None
    reversals: tuple[int, ...] = ()
    pause: int = 0
    paused_until: int = 0
    paused_by: str = ""
    own_zero: bool = False

    def is_paused(self, now: int) -> bool:
        return now < self.paused_until

    @property
    def why_paused(self) -> str:
        """The last pause as text."""
        seconds = self.pause // SECOND
        return f"scaling suspended for {seconds}s: field manager {self.paused_by} reverted our change"


class ForeignChange(NamedTuple):
    """A change of the count that our decisions did not make, and the field manager that made it.

    `reverses` says that it reverts a raise of ours, `starts_pause` that it starts a pause. `by` is `OWN`
    where the change carries our name although no response confirmed the write.
    """

    replicas: int
    by: str
    reverses: bool = False
    starts_pause: bool = False


def observe(
    state: ConflictState, replicas: int, manager: str, now: int
) -> tuple[ConflictState, ForeignChange | None]:
    """Return what an observed count shows; `manager` is the field manager that owns it, "" if unknown."""
    known = state.known
    own_zero = replicas == 0 and (state.own_zero if not manager else manager == OWN)
    if known is None:
        return msgspec.structs.replace(state, known=replicas, own_zero=own_zero), None
    if replicas == known:
        # The count may have gone and come back between two observations: the manager tells whose zero it is.
        if own_zero != state.own_zero:
            return msgspec.structs.replace(state, ours=None, own_zero=own_zero), None
        return state, None
    delta = replicas - known
    if manager == OWN:
        ours = OwnWrite(known, replicas)
        after = msgspec.structs.replace(state, known=replicas, ours=ours, own_zero=own_zero)
        return after, ForeignChange(delta, OWN)
    by = manager or UNNAMED
    # Only a lower count after our own raise is a reversal. Others may raise, and lower their own counts.
    reverses = delta < 0 and state.ours is not None and state.ours.after > state.ours.before
    after = msgspec.structs.replace(state, known=replicas, ours=None, own_zero=False)
    if reverses:
        after = _reversed(after, by, now)
    return after, ForeignChange(delta, by, reverses, starts_pause=reverses and not after.reversals)


def _reversed(state: ConflictState, by: str, now: int) -> ConflictState:
    """Return the state after a reversal."""
    reversals = (*(at for at in state.reversals if at > now - REVERSALS_WITHIN), now)
    # One reversal may be a person. Two within five minutes are a program that would go on.
    if len(reversals) < 2:
        return msgspec.structs.replace(state, reversals=reversals)
    pause = min(state.pause * 2, LONGEST_PAUSE) or FIRST_PAUSE
    return msgspec.structs.replace(state, reversals=(), pause=pause, paused_until=now + pause, paused_by=by)


def commit(state: ConflictState, before: int, after: int) -> ConflictState:
    """Return the state after a write of ours that the API server has accepted."""
    return msgspec.structs.replace(state, known=after, ours=OwnWrite(before, after), own_zero=after == 0)


def spec_changed(state: ConflictState) -> ConflictState:
    """Return the state after a change of the spec, which ends a pause and resets its length."""
    return msgspec.structs.replace(state, reversals=(), pause=0, paused_until=0, paused_by="")
