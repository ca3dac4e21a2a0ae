"""One polled metric: its answer, when it is polled next, and what a decision may read from it.

A `Feed` is state; `polling` polls it. An answer becomes *late* when the next one is overdue: it may still
scale up, but not down. After `FORGOTTEN` seconds it is dropped.

Three rules keep a decision safe: a value of unknown age, or one that stands in for a better one, may scale up
but not down; a value that is too old counts as missing; and a value that lags behind the pods is multiplied
by the pods of its own time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from adapter.autoscaler.interfaces import Key
from adapter.model.autoscaling.hpa import PodMetrics
from adapter.model.timestamps import SECOND
from adapter.provider.reader import SHARED

SLACK = 10 * SECOND
"""How much older than two sample intervals a sample may be: scrapes and rule evaluations take time."""

OLDEST = 300 * SECOND
"""How old a sample may be if its interval is unknown: the lookback of an instant query."""

ASSUMED_WINDOW = 60 * SECOND
"""The window of a value without one: upstream's default for custom metrics."""

ASSUMED_INTERVAL = 60 * SECOND
"""The sample interval before it is known."""

_INTERVALS = 5
_SETTLED = 1.5
"""After so many intervals all series of a metric that was absent count as back: one interval until the last
of them has two samples, and half of one because the interval is estimated."""

UNKNOWN_AGE = "the age of its samples is not known"
UNKNOWN_INTERVAL = "its sample interval is not known yet"

LeastReady = Callable[[int], int | None]
"""Returns the smallest number of ready pods since an instant, None if unknown."""


class SourceAnswer(NamedTuple):
    """The answer of a source: values in thousandths by name or in order, and the times of their samples.

    `times` are those of the oldest samples; a value of unknown time has none. `lookback` is the window of the
    values before that time, None if unknown. `oldest` is the rule's bound on the age of a sample, None
    without one. `items` are usages of pods, which several metrics read differently. `overdue` says why the
    values may be out of date or incomplete, "" if they are not.
    """

    values: Mapping[str, int]
    times: Mapping[str, int]
    series: tuple[int, ...] = ()
    lookback: int | None = None
    oldest: int | None = None
    items: tuple[PodMetrics, ...] = ()
    trusted: bool = False
    """Whether the times can be trusted as they are: a metrics API stamps its samples, and has no visible
    interval."""
    overdue: str = ""

    @property
    def has_value(self) -> bool:
        return bool(self.values or self.series or self.items)


@dataclass(slots=True, eq=False)
class SampleInterval:
    """The sample interval of a metric, estimated from the times of its samples.

    The time of an answer is that of the oldest of many series, which are sampled one after the other. So it
    moves in small steps, and its age before a step tells the interval of each series.
    """

    returning: bool = False
    """Whether the metric was absent lately, so that some of its series may still be missing."""
    newest: int = 0
    """The time of the newest sample ever seen. If the clock is earlier, it was set back."""
    _name: str | None = None
    _last: int = 0
    _age: int = 0
    _steps: tuple[int, ...] = ()
    _ages: tuple[int, ...] = ()
    _back: int | None = None

    @property
    def known(self) -> int | None:
        """The usual time between two samples; None before two were seen."""
        return round(median(self._steps)) if self._steps else None

    @property
    def lasts(self) -> int | None:
        """How long a sample of the slowest series is usually the newest; None before two were seen."""
        return round(median(self._ages)) if self._ages else None

    def see(self, times: Mapping[str, int], now: int, *, sparse: bool = False) -> None:
        """Learn from the times of an answer at `now`. The newest series is followed while it exists.

        `sparse` says that the poll was late, so samples may have been missed and a step may be the interval
        of the polls. Such a step counts only if the former sample was at least half as old as the step when
        it was last seen: then at most one sample was missed.
        """
        if not times:
            self.lose()
            return
        self.newest = max(self.newest, *times.values())
        if self._name is None or self._name not in times:
            self._name = max(times, key=times.__getitem__)
            self._last = times[self._name]
            self._back = self._last if self._back is None else self._back
        step = times[self._name] - self._last
        if step > 0 and not (sparse and 2 * self._age < step):
            self._steps = (*self._steps[1 - _INTERVALS :], step)
            self._ages = (*self._ages[1 - _INTERVALS :], max(step, self._age))
        if step > 0:
            self._last = times[self._name]
            if self._back is not None and self._last - self._back >= _SETTLED * (self.lasts or 0):
                self.returning = False
        self._age = now - self._last

    def lose(self) -> None:
        """Note a missing answer: the time between the samples before and after it is no interval."""
        self._name = self._back = None
        self.returning = bool(self._last)


class FreshValues(NamedTuple):
    """The values that are not too old, the time of their oldest sample, and why they may be out of date."""

    values: Mapping[str, int]
    time: int | None
    overdue: str


def fresh_values(answer: SourceAnswer, interval: int | None, now: int) -> FreshValues:
    """Return the values of an answer that are not too old at `now`."""
    bound = answer.oldest
    if bound is None:
        bound = OLDEST if interval is None or answer.trusted else 2 * interval + SLACK
    times = answer.times
    if not times:
        if answer.oldest is not None:
            return FreshValues({}, None, "")  # the rule bounds the age, and it is unknown
        return FreshValues(answer.values, None, UNKNOWN_AGE)
    limit = now - bound
    values = {name: value for name, value in answer.values.items() if times.get(name, limit - 1) >= limit}
    kept = [times[name] for name in values]
    overdue = UNKNOWN_INTERVAL if interval is None and answer.oldest is None and not answer.trusted else ""
    return FreshValues(values, min(kept) if kept else None, overdue)


def ready_then(
    time: int | None, lookback: int | None, interval: int | None, now: int, least_ready: LeastReady
) -> int | None:
    """Return the smallest number of ready pods over the time that a value covers; None if unknown.

    If that time is unknown and pods became ready within the usual one, return 0, with which nothing is scaled
    up.
    """
    pause = ASSUMED_INTERVAL if interval is None else interval
    if lookback is not None:
        taken = now - pause if time is None else min(time, now)
        return least_ready(taken - lookback)
    lowest, current = least_ready(now - ASSUMED_WINDOW - pause), least_ready(now)
    if lowest is None or current is None:
        return lowest
    return 0 if lowest < current else lowest


LATE = 2.0
"""An answer is late when the next one is overdue by its period and so many seconds."""

FORGOTTEN = 30.0
"""An answer is dropped after so many seconds, unless the feed waits for the query budget."""

HELD = 300.0
"""An answer is dropped after so many seconds even then: the lookback of an instant query."""

RESIGNED, SELDOM = 10, 15.0
"""After so many answers without a value a feed is polled every so many seconds: a metric that does not exist
must not delay the others."""

LATE_IN_TURN = "its answer is late: its query waits for --prometheus-max-queries-per-second"
RETURNING = "it had no value until recently, and some of its series may still be missing"
NEVER_IN_TURN = "no answer yet: its query waits for --prometheus-max-queries-per-second"


class PollResult(NamedTuple):
    """An answer; `pause` is the least seconds to the next poll, 0 if the samples' interval decides."""

    answer: SourceAnswer | None
    pause: float = 0.0
    error: str = ""
    """Why there is no answer, if the pause applies all the same."""
    merges: bool | None = True
    """Whether feeds of its group share their queries; None if this poll could not tell."""
    crosses: bool = True
    """Whether feeds of different namespaces share them too."""


QUERIES = 2
"""The queries of most polls: one for the values, one for the age of the samples."""

Poll = Callable[[float], Awaitable[PollResult]]
"""Polls the source; the argument is how many seconds old an answer may be. Raises FastpathError."""


class FeedSource(NamedTuple):
    """What a feed polls. Sources of one `group` may be answered by the same queries; one alone has its key.

    `queries` is how many queries a poll sends, and `shared` how old an answer may be with one scaler.
    """

    key: Hashable
    group: Hashable
    poll: Poll
    queries: int = QUERIES
    shared: float = SHARED


@dataclass(slots=True, eq=False)
class Feed:
    """One polled metric."""

    source: FeedSource
    due: float = 0.0
    """When it is to be polled next, in monotonic seconds."""
    listeners: dict[Key, float] = field(default_factory=dict)
    """The autoscalers that use the metric, each with the period that it wants, in seconds. `listen` and
    `leave` change them."""
    answer: SourceAnswer | None = None
    error: str = ""
    polled: float | None = None
    """When the last poll started, in monotonic seconds."""
    pause: float = 0.0
    interval: SampleInterval = field(default_factory=SampleInterval)
    task: asyncio.Task[None] | None = None
    """The poll in progress."""
    queued: float | None = None
    """Since when it waits for the query budget, in monotonic seconds, until it is answered; None before it is
    due."""
    empty: int = 0
    """The number of answers in a row without a value."""
    _wished: float | None = field(default=None, init=False)
    """The shortest period of its listeners, None if it is to be looked for."""

    def listen(self, key: Key, period: float) -> None:
        former = self.listeners.get(key)
        self.listeners[key] = period
        if former is not None and former != period:
            self._wished = None
        elif self._wished is not None:
            self._wished = min(self._wished, period)

    def leave(self, key: Key) -> None:
        """Remove an autoscaler; an unknown one is ignored."""
        if self.listeners.pop(key, None) == self._wished:
            self._wished = None

    @property
    def key(self) -> Hashable:
        return self.source.key

    @property
    def namespace(self) -> str:
        return next((key.namespace for key in self.listeners), "")

    @property
    def period(self) -> float:
        """The time between two polls, in seconds: half the interval of the samples once that is known."""
        if self._wished is None:
            self._wished = min(self.listeners.values(), default=1.0)
        wished = self._wished
        known = self.interval.known
        if self.pause:
            return max(self.pause, wished)
        if known is None:
            return wished if self.empty < RESIGNED else max(SELDOM, wished)
        return max(known / SECOND / 2, wished / 2)

    def waited(self, now: float) -> float:
        return 0.0 if self.queued is None else max(0.0, now - self.queued)

    def overdue(self, now: float) -> float:
        """Return how many seconds ago it was due, 0 if it is not."""
        return max(0.0, now - self.due)

    def state(self, now: float) -> tuple[SourceAnswer | None, str, str]:
        """Return the answer if it counts, why it is late ("" if it is not), and why it is missing.

        The last is "" before the first answer.
        """
        waits = self.queued is not None and self.task is None
        if self.error:
            return None, "", self.error
        if self.answer is None or self.polled is None:
            return None, "", NEVER_IN_TURN if waits and self.waited(now) >= DELAYED else ""
        lasts = FORGOTTEN if self.queued is None else HELD
        if now > max(self.polled + lasts, self.due + self.period):
            return None, "", NEVER_IN_TURN if waits else ""
        if now <= self.due + self.period + LATE:
            returns = self.interval.returning and self.answer.times
            return self.answer, RETURNING if returns else "", ""
        return self.answer, LATE_IN_TURN if waits else "its answer is late", ""


DELAYED = 5.0
"""A feed that waits for the query budget for so many seconds is delayed. Less is normal when several are due
at once."""
