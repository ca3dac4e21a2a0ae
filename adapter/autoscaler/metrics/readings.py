"""From answers to readings: how old a value may be, what it may do, and how many pods were ready at its time.

All functions are pure. Three rules keep a decision safe: a value of unknown age, or one that stands in for a
better one, may scale up but not down; a value that is too old counts as missing; and a value that lags behind
the pods is multiplied by the pods of its own time.
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Unavailable
from adapter.model.autoscaling.hpa import PodMetrics
from adapter.model.timestamps import SECOND, span_of

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
UNKNOWN_INTERVAL = "how often it is sampled is not known yet"

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
    window: int = 0
    items: tuple[PodMetrics, ...] = ()
    trusted: bool = False
    """Whether the times can be trusted as they are: a metrics API stamps its samples, and has no visible
    interval."""
    overdue: str = ""

    @property
    def has_value(self) -> bool:
        """Whether it has any value."""
        return bool(self.values or self.series or self.items)


class SampleInterval:
    """The sample interval of a metric, estimated from the times of its samples.

    The time of an answer is that of the oldest of many series, which are sampled one after the other. So it
    moves in small steps, and its age before a step tells the interval of each series.
    """

    __slots__ = ("_age", "_ages", "_back", "_last", "_name", "_steps", "newest", "returning")

    def __init__(self) -> None:
        self._name: str | None = None
        self._last = 0
        self._age = 0
        self._steps: tuple[int, ...] = ()
        self._ages: tuple[int, ...] = ()
        self.returning = False
        """Whether the metric was absent lately, so that some of its series may still be missing."""
        self._back: int | None = None
        self.newest = 0
        """The time of the newest sample ever seen. If the clock is earlier, it was set back."""

    @property
    def known(self) -> int | None:
        """The usual time between two samples; None before two were seen."""
        return round(median(self._steps)) if self._steps else None

    @property
    def lasts(self) -> int | None:
        """How long a sample of the slowest series is usually the newest; None before two were seen."""
        return round(median(self._ages)) if self._ages else None

    def see(self, times: Mapping[str, int], now: int, *, sparse: bool = False) -> None:
        """Learn from the times of an answer at `now`. One series is followed while it exists.

        `sparse` says that the poll was late, so samples may have been missed and a step may be the interval
        of the polls. Such a step counts only if the former sample was at least half as old as the step when
        it was last seen: then at most one sample was missed.
        """
        if not times:
            self.lose()
            return
        self.newest = max(self.newest, *times.values())
        if self._name is None or self._name not in times:
            self._name = min(times)
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


def age(answer: SourceAnswer, interval: int | None, now: int) -> FreshValues:
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


def of_pods(
    answer: SourceAnswer, interval: int | None, now: int, late: str, source: str
) -> PodsReading | Unavailable:
    """Return the reading of a metric of pods; `late` says why the answer is late, `source` names the API."""
    found = age(answer, interval, now)
    if not found.values:
        return _nothing(answer, source)
    samples = {name: (answer.times[name], answer.window) for name in found.values if name in answer.times}
    return PodsReading(
        found.values, samples if answer.window else {}, late or answer.overdue or found.overdue
    )


def of_object(
    answer: SourceAnswer, interval: int | None, now: int, late: str, least_ready: LeastReady
) -> ObjectReading | Unavailable:
    """Return the reading of a metric of one object."""
    found = age(answer, interval, now)
    if len(found.values) != 1:
        return _nothing(answer, "custom")
    (value,) = found.values.values()
    return ObjectReading(
        value,
        ready_then(found.time, answer.lookback, interval, now, least_ready),
        late or answer.overdue or found.overdue,
    )


def of_series(
    answer: SourceAnswer, interval: int | None, now: int, late: str, least_ready: LeastReady
) -> ExternalReading | Unavailable:
    """Return the reading of an external metric; if one series is too old, the sum would lack a part."""
    if not answer.series:
        return _nothing(answer, "external")
    found = age(answer._replace(values=dict.fromkeys(answer.times, 0)), interval, now)
    if answer.times and len(found.values) < len(answer.times):
        return stale("external")
    if not answer.times and answer.oldest is not None:
        return stale("external")
    then = ready_then(found.time, answer.lookback, interval, now, least_ready)
    return ExternalReading(answer.series, then, late or answer.overdue or found.overdue)


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


def nanoseconds(seconds: float) -> int:
    """Return epoch seconds in nanoseconds."""
    return span_of(seconds)


def _nothing(answer: SourceAnswer, source: str) -> Unavailable:
    if answer.values or answer.series:
        return stale(source)
    return Unavailable("NoMetrics", f"no metrics returned from {source} metrics API")


def stale(source: str) -> Unavailable:
    """Return the reading of a metric whose samples are all too old."""
    return Unavailable("Stale", f"no metrics returned from {source} metrics API: all samples are too old")
