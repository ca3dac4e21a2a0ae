"""Scale events on their way through a status: what policies still count when another process goes on.

Changes carry the time of the leader that made them. Its clock may have been ahead, so that a change lies in
the future of the next leader, or seems to be younger than it is; nothing in the status tells by how much.
So two rules hold for what comes back, whatever the skew:

- A time in the future counts as now. Otherwise a raise would block all raises until that time has come,
  hours maybe.
- Changes only limit. A raise counts against further raises, for one period from now at most, and does not
  allow a deeper shrink; a shrink counts against further shrinks, and does not allow a higher raise.

So after a change of leader nothing grows faster and nothing shrinks sooner than if all clocks had agreed.
The price is that for one period a change does not make room for its opposite, which it would not do after a
restart of the native controller either. A clock that was behind makes changes look older than they are;
they are then forgotten sooner, by as much as it was behind.
"""

from collections.abc import Iterable

from adapter.autoscaler.decide.history import Events, ScaleEvent
from adapter.model.autoscaling.fastpath_autoscaler import PastChange
from adapter.model.timestamps import SECOND, FineInstant

LONGEST_PERIOD = 1800 * SECOND
"""Of any policy there can be."""


MOST = 64
"""How many changes travel in a status."""


def changes_of(
    ups: Events, downs: Events, now: int, longest_period: int = LONGEST_PERIOD
) -> tuple[PastChange, ...]:
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


def events_of(changes: Iterable[PastChange] | None, now: int) -> tuple[Events, Events]:
    """Return the events upwards and those downwards, as inherited at `now` nanoseconds."""
    listed = [(each.change, min(int(each.time), now)) for each in changes or ()]
    ups = tuple(ScaleEvent(change, at, inherited=True) for change, at in listed if change > 0)
    downs = tuple(ScaleEvent(-change, at, inherited=True) for change, at in listed if change < 0)
    return ups, downs
