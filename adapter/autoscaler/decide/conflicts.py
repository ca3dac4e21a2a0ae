"""Who writes the count of a target beside us, and when we stand back: a state machine over what was seen and what was written.

Law: a value goes in, a value comes out. Any other writer is decided from anew, as the native autoscaler would, and its changes count
in the policies. A change of theirs that takes back a raise of ours is a reversal; a raise never is one. Two reversals within five
minutes and we write nothing for five minutes, then twice as long each time, up to an hour, until the spec changes. Zero that anybody
else set is a pause: only what we scaled to zero ourselves may leave it again.
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


class Written(NamedTuple):
    """A count that we wrote, and the one before it."""

    before: int
    after: int


class Writers(msgspec.Struct, frozen=True):
    """What is known of those who write a target.

    `known` is the count as last seen or written, None before the first look. `ours` is our own write if nobody has written since.
    `reversals` are the instants of the latest ones. `pause` is how long the last pause was, 0 before the first; it ends at
    `paused_until`, and `paused_by` caused it. `own_zero` says whether a count of zero is ours.
    """

    known: int | None = None
    ours: Written | None = None
    reversals: tuple[int, ...] = ()
    pause: int = 0
    paused_until: int = 0
    paused_by: str = ""
    own_zero: bool = False

    def is_paused(self, now: int) -> bool:
        """Tell whether we write nothing now."""
        return now < self.paused_until


class Change(NamedTuple):
    """A change of the count that was seen and that our decisions did not make: by how many replicas, and who made it.

    `reverses` says that it takes back a raise of ours, `starts_pause` that from now on we write nothing for a while.
    """

    replicas: int
    by: str
    reverses: bool = False
    starts_pause: bool = False


class Seen(NamedTuple):
    """The state after a look, and the change that it showed, None where there was none."""

    writers: Writers
    change: Change | None


def seen(writers: Writers, replicas: int, manager: str, now: int) -> Seen:
    """Return what a look at the count shows; `manager` is the field manager that owns it, "" where that is not known.

    A count that carries our own name, though no answer told us that it was written, is ours all the same.
    """
    known = writers.known
    if known is None:
        own_zero = replicas == 0 and (writers.own_zero if not manager else manager == OWN)
        return Seen(msgspec.structs.replace(writers, known=replicas, own_zero=own_zero), None)
    if replicas == known:
        # it may have gone and come back between two looks: a zero is whose name it carries
        if replicas == 0 and manager and writers.own_zero != (manager == OWN):
            return Seen(msgspec.structs.replace(writers, ours=None, own_zero=manager == OWN), None)
        return Seen(writers, None)
    delta = replicas - known
    if manager == OWN:
        after = msgspec.structs.replace(
            writers, known=replicas, ours=Written(known, replicas), own_zero=replicas == 0
        )
        return Seen(after, Change(delta, OWN))
    by = manager or UNNAMED
    reverses = delta < 0 and writers.ours is not None and writers.ours.after > writers.ours.before
    after = msgspec.structs.replace(writers, known=replicas, ours=None, own_zero=False)
    if not reverses:
        return Seen(after, Change(delta, by))
    reversals = (*(at for at in writers.reversals if at > now - REVERSALS_WITHIN), now)
    if len(reversals) < 2:
        return Seen(msgspec.structs.replace(after, reversals=reversals), Change(delta, by, reverses=True))
    pause = min(writers.pause * 2, LONGEST_PAUSE) or FIRST_PAUSE
    after = msgspec.structs.replace(after, reversals=(), pause=pause, paused_until=now + pause, paused_by=by)
    return Seen(after, Change(delta, by, reverses=True, starts_pause=True))


def wrote(writers: Writers, before: int, after: int) -> Writers:
    """Return the state after a write of ours that the API server has accepted."""
    return msgspec.structs.replace(writers, known=after, ours=Written(before, after), own_zero=after == 0)


def spec_changed(writers: Writers) -> Writers:
    """Return the state after a change of the spec: whoever changed it has looked at it, so pauses begin anew."""
    return msgspec.structs.replace(writers, reversals=(), pause=0, paused_until=0, paused_by="")


def shifted(writers: Writers, by: int) -> Writers:
    """Return the state on a clock that was set forward by so many nanoseconds (back where negative)."""
    return msgspec.structs.replace(
        writers, reversals=tuple(at + by for at in writers.reversals), paused_until=writers.paused_until + by
    )
