"""Scale events on their way through a status: what policies still count when another process goes on.

Here: events to changes and back. Not here: who writes them. Law: what comes back counts as it did before; what no policy can count any
more is left out.
"""

from collections.abc import Iterable

from adapter.model.fastpathautoscaler import PastChange
from adapter.model.instants import SECOND, FineInstant
from adapter.scaling.history import Events, ScaleEvent

LONGEST_PERIOD = 1800 * SECOND
"""Of any policy there can be."""


MOST = 64
"""How many changes travel in a status."""


def changes_of(ups: Events, downs: Events, now: int, longest_period: int = LONGEST_PERIOD) -> tuple[PastChange, ...]:
    """Return the events of both directions that a policy may count at `now` nanoseconds or later, oldest first.

    Of more than `MOST` the oldest become one in each direction, as late as the last of them: policies count them for longer, not shorter.
    """
    after = now - longest_period
    found = [(up.at, up.change) for up in ups if up.at > after and not up.assumed]
    found += [(down.at, -down.change) for down in downs if down.at > after]
    found.sort()
    if len(found) > MOST:
        old, kept = found[: 2 - MOST], found[2 - MOST :]
        raised, lowered = (sum(change for _, change in old if (change > 0) is up) for up in (True, False))
        found = [(old[-1][0], change) for change in (lowered, raised) if change] + kept
    return tuple(PastChange(change, FineInstant(at)) for at, change in found)


def events_of(changes: Iterable[PastChange] | None) -> tuple[Events, Events]:
    """Return the events upwards and those downwards."""
    listed = [(each.change, int(each.time)) for each in changes or ()]
    ups = tuple(ScaleEvent(change, at) for change, at in listed if change > 0)
    downs = tuple(ScaleEvent(-change, at) for change, at in listed if change < 0)
    return ups, downs
