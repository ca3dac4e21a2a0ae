"""What an autoscaler remembers from one sync to the next: recommendations and scale events.

Upstream keeps a list of recommendations, in which the last stale entry is overwritten. For decisions once a
second there are two monotonic queues here. They give the same results while windows do not change, and keep
only entries that can still be the highest or the lowest of a window, for an hour, which no window exceeds.

Recent scale events also travel in the status (`recent_changes`, `inherited_events`), so that a new owner
exceeds no policy. They carry the time of the owner that made them, whose clock may have been ahead by an
unknown amount. Two rules keep this safe whatever the skew:

- A time in the future counts as now. Else a raise would block all raises until that time, maybe for hours.
- Inherited changes only limit. A raise counts against further raises, for one period from now at most, and
  does not allow a deeper scale-down; a scale-down does not allow a higher raise.

So after a change of owner nothing grows faster, and nothing shrinks sooner, than with clocks that agree. The
price is that for one period a change makes no room for its opposite; neither does it after a restart of the
HPA controller. A clock that was behind makes changes look older, so they are forgotten sooner by as much.
"""

import operator
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.guards.lost_values import ReportingPods
from adapter.autoscaler.decide.guards.pending import PendingState
from adapter.autoscaler.decide.numbers import w32
from adapter.model.autoscaling.fastpath_autoscaler import PastChange
from adapter.model.timestamps import SECOND, FineInstant

KEPT = 3600 * SECOND
"""The longest window."""


class Recommendation(NamedTuple):
    """A replica count that was wanted, before windows and limits, and when."""

    replicas: int
    at: int


_time = operator.itemgetter(1)


class Recommendations(msgspec.Struct, frozen=True, tag="RecommendationQueues"):
    """Two queues in the order of time: counts fall in `high` and rise in `low`. `now` must not go back.

    An instant `after` is exclusive: an entry at that nanosecond does not count.
    """

    high: tuple[Recommendation, ...] = ()
    low: tuple[Recommendation, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.high

    def highest(self, wanted: int, after: int) -> int:
        """Return the highest of `wanted` and of the entries after an instant."""
        place = bisect_right(self.high, after, key=_time)
        return max(wanted, self.high[place].replicas) if place < len(self.high) else wanted

    def lowest(self, wanted: int, after: int) -> int:
        """Return the lowest of `wanted` and of the entries after an instant."""
        place = bisect_right(self.low, after, key=_time)
        return min(wanted, self.low[place].replicas) if place < len(self.low) else wanted

    def recorded(self, replicas: int, now: int) -> "Recommendations":
        """Return the queues with one more entry, without those that it replaces or that are an hour old."""
        entry = Recommendation(replicas, now)
        high, low = len(self.high), len(self.low)
        while high and self.high[high - 1].replicas <= replicas:
            high -= 1
        while low and self.low[low - 1].replicas >= replicas:
            low -= 1
        oldest = now - KEPT - 1
        return Recommendations(
            (*self.high[bisect_right(self.high, oldest, hi=high, key=_time) : high], entry)
            if high
            else (entry,),
            (*self.low[bisect_right(self.low, oldest, hi=low, key=_time) : low], entry) if low else (entry,),
        )


def queued(entries: Iterable[Recommendation]) -> Recommendations:
    """Return the queues of recommendations in any order and of any age."""
    high: list[Recommendation] = []
    low: list[Recommendation] = []
    for entry in sorted(entries, key=_time):
        while high and high[-1].replicas <= entry.replicas:
            high.pop()
        while low and low[-1].replicas >= entry.replicas:
            low.pop()
        high.append(entry)
        low.append(entry)
    return Recommendations(tuple(high), tuple(low))


class ScaleEvent(NamedTuple):
    """A written change: how many replicas, always positive, and when; `outdated` once no policy counts it.

    Policies count a change in both directions: it limits further changes of its own direction, and allows
    more of the other. An `assumed` or `inherited` one only limits, because its time is uncertain: an assumed
    one was inferred at the first observation, an inherited one was recorded by the clock of a former owner.
    """

    change: int
    at: int
    outdated: bool = False
    assumed: bool = False
    inherited: bool = False

    @property
    def only_limits(self) -> bool:
        """Whether it does not count for the other direction."""
        return self.assumed or self.inherited


Events = tuple[ScaleEvent, ...]


def changed_within(events: Sequence[ScaleEvent], after: int) -> int:
    """Return the sum of the changes after an instant as int32, outdated ones included."""
    total = 0
    for event in events:
        if event.at > after:
            total += event.change
    return w32(total)


def with_event(
    events: Events, change: int, now: int, longest_period: int, *, assumed: bool = False
) -> Events:
    """Return the events of one direction with one more: in place of the last outdated one, else at the end.

    As upstream, an event is outdated after the longest period of its own direction, even if the other has a
    longer one.
    """
    kept = [
        event if event.outdated or event.at >= now - longest_period else event._replace(outdated=True)
        for event in events
    ]
    place = max((index for index, event in enumerate(kept) if event.outdated), default=len(kept))
    kept[place : place + 1] = [ScaleEvent(change, now, assumed=assumed)]
    return tuple(kept)


class History(msgspec.Struct, frozen=True):
    """Recommendations, scale events, pending capacity, None without that option, and the pods with values.

    A change of the spec resets nothing.
    """

    recommendations: Recommendations = Recommendations()
    ups: Events = ()
    downs: Events = ()
    pending: PendingState | None = None
    reporting: ReportingPods = {}


def without_recommendations(history: History) -> History:
    """Return the history of an autoscaler that looks at no metric, which ends pending capacity as well."""
    return History(ups=history.ups, downs=history.downs, reporting=history.reporting)


def growth(history: History, after: int) -> int:
    """Return by how many replicas the count has grown since an instant, 0 if it has not."""
    return max(0, changed_within(history.ups, after) - changed_within(history.downs, after))


def with_change(
    history: History, change: int, now: int, periods: tuple[int, int], *, assumed: bool = False
) -> History:
    """Return the history after a change by any client; 0 changes nothing.

    `periods` are the longest periods of the policies up and down.
    """
    if change > 0:
        return msgspec.structs.replace(
            history, ups=with_event(history.ups, change, now, periods[0], assumed=assumed)
        )
    if change < 0:
        return msgspec.structs.replace(history, downs=with_event(history.downs, -change, now, periods[1]))
    return history


MOST = 64
"""The largest number of changes in a status."""


def recent_changes(
    ups: Events, downs: Events, now: int, longest_period: int, set_by: int = 0
) -> tuple[PastChange, ...]:
    """Return the events that a policy may count at `now` or later, oldest first, with times of day.

    Of more than `MOST` events the oldest become one in each direction at the time of the last of them, so
    that policies count them for longer, not shorter.
    """
    after = now - longest_period
    changes = [(up.at, up.change) for up in ups if up.at > after and not up.assumed]
    changes += [(down.at, -down.change) for down in downs if down.at > after]
    changes.sort()
    if len(changes) > MOST:
        old, kept = changes[: 2 - MOST], changes[2 - MOST :]
        raised, lowered = (sum(change for _, change in old if (change > 0) is up) for up in (True, False))
        changes = [(old[-1][0], change) for change in (lowered, raised) if change] + kept
    return tuple(PastChange(change, FineInstant(at + set_by)) for at, change in changes)


def inherited_events(
    changes: Iterable[PastChange] | None, now: int, set_by: int = 0
) -> tuple[Events, Events]:
    """Return the inherited events up and down at `now` nanoseconds."""
    listed = [(past.change, min(int(past.time) - set_by, now)) for past in changes or ()]
    ups = tuple(ScaleEvent(change, at, inherited=True) for change, at in listed if change > 0)
    downs = tuple(ScaleEvent(-change, at, inherited=True) for change, at in listed if change < 0)
    return ups, downs
