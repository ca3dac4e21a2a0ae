"""From what sources answered to readings: how old a value may be, what it may do, how many pods were ready at its time.

Values in, values out; nothing is asked here. Law: a value whose age is not known, or that stands in for a better one, may raise and not
shrink; one that is too old is none; one that lags behind the pods is multiplied by those that were there.
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Unavailable
from adapter.model.autoscaling.metric_lists import PodMetrics
from adapter.model.timestamps import SECOND, span_of

SLACK = 10 * SECOND
"""How much later than two sample intervals a sample may be: scraping and evaluating rules take their time."""

OLDEST = 300 * SECOND
"""How old a sample may be where its interval is not known: how far an instant query looks back."""

ASSUMED_WINDOW = 60 * SECOND
"""The window of a value that does not say its own: upstream's default for custom metrics."""

ASSUMED_INTERVAL = 60 * SECOND
"""The sample interval where it is not known yet."""

_INTERVALS = 5
_SETTLED = 1.5
"""For so many intervals a metric that was absent has to be sampled before all of its series are taken to be back: one interval until the
last of them has two samples, and half of one because intervals are estimated from what is seen of them."""

UNKNOWN_AGE = "the age of its samples is not known"
UNKNOWN_INTERVAL = "how often it is sampled is not known yet"

LeastReady = Callable[[int], int | None]
"""The smallest number of ready pods since an instant, None where that is not known."""


class Answer(NamedTuple):
    """What a source said: values in thousandths by name, or in the order of the answer; instants of the oldest samples behind them.

    `times` has no entry for what has no known time. `lookback` is how far before that time the values speak, None where that is not
    known. `oldest` is the bound on the age of a sample, None where the rule has none. `items` are usages, which several metrics read
    differently. `overdue` says why the values may be out of date or lack a part, "" where they are not.
    """

    values: Mapping[str, int]
    times: Mapping[str, int]
    series: tuple[int, ...] = ()
    lookback: int | None = None
    oldest: int | None = None
    window: int = 0
    items: tuple[PodMetrics, ...] = ()
    trusted: bool = False
    """Whether the times are all there is to know: a metrics API stamps its own samples, and has no interval that we could see."""
    overdue: str = ""

    @property
    def has_value(self) -> bool:
        """Whether there is any value in it."""
        return bool(self.values or self.series or self.items)


class Interval:
    """How often a metric is sampled, as seen from the times of its samples.

    A time is that of the oldest of what may be many series, and those are sampled one after the other: the time moves in small steps
    then, and how old it was before it moved says how often each is sampled.
    """

    __slots__ = ("_age", "_ages", "_back", "_last", "_name", "_steps", "newest", "returning")

    def __init__(self) -> None:
        self._name: str | None = None
        self._last = 0
        self._age = 0
        self._steps: tuple[int, ...] = ()
        self._ages: tuple[int, ...] = ()
        self.returning = False
        """Whether there was no answer lately, so that some of its series may not be back yet."""
        self._back: int | None = None
        self.newest = 0
        """The time of the newest sample ever seen. Where the clock is before it, the clock was set back."""

    @property
    def known(self) -> int | None:
        """The usual time between two samples; None before two were seen."""
        return round(median(self._steps)) if self._steps else None

    @property
    def lasts(self) -> int | None:
        """The usual time for which a sample is the newest of its series, of the slowest series; None before two were seen."""
        return round(median(self._ages)) if self._ages else None

    def see(self, times: Mapping[str, int], now: int, *, sparse: bool = False) -> None:
        """Look at the times of an answer that is of `now`. One series is followed for as long as it is there.

        `sparse` says that it was asked for late, so that samples may have been missed and a step may be the
        interval of asking. It counts only if the sample before was at least half as old as the step is long
        when it was last seen: then no more than one was missed.
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
        """Note that there was no answer: what lies between the samples before and after that is no interval."""
        self._name = self._back = None
        self.returning = bool(self._last)


class Aged(NamedTuple):
    """Values that are not too old, the time of the oldest sample behind them, and why they may be out of date, "" where they are not."""

    values: Mapping[str, int]
    time: int | None
    overdue: str


def age(answer: Answer, interval: int | None, now: int) -> Aged:
    """Return what of an answer is still a value at `now`."""
    bound = answer.oldest
    if bound is None:
        bound = OLDEST if interval is None or answer.trusted else 2 * interval + SLACK
    times = answer.times
    if not times:
        if answer.oldest is not None:
            return Aged({}, None, "")  # what cannot be shown to be fresh is too old where a rule says how old
        return Aged(answer.values, None, UNKNOWN_AGE)
    limit = now - bound
    values = {name: value for name, value in answer.values.items() if times.get(name, limit - 1) >= limit}
    kept = [times[name] for name in values]
    overdue = UNKNOWN_INTERVAL if interval is None and answer.oldest is None and not answer.trusted else ""
    return Aged(values, min(kept) if kept else None, overdue)


def of_pods(
    answer: Answer, interval: int | None, now: int, late: str, source: str
) -> PodsReading | Unavailable:
    """Return the reading of a metric of pods; `late` says why the answer as a whole is late, `source` which API would have it."""
    found = age(answer, interval, now)
    if not found.values:
        return _nothing(answer, source)
    samples = {name: (answer.times[name], answer.window) for name in found.values if name in answer.times}
    return PodsReading(
        found.values, samples if answer.window else {}, late or answer.overdue or found.overdue
    )


def of_object(
    answer: Answer, interval: int | None, now: int, late: str, least_ready: LeastReady
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
    answer: Answer, interval: int | None, now: int, late: str, least_ready: LeastReady
) -> ExternalReading | Unavailable:
    """Return the reading of an external metric. Its series have one age together: of a sum without a part nobody knows the rest."""
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
    """Return how many pods were ready at least over the time that a value speaks of; None where nobody knows.

    Where that time is not known, a change of the ready count within the usual one is waited out: with 0 nothing is raised.
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
    """Return epoch seconds as an instant."""
    return span_of(seconds)


def _nothing(answer: Answer, source: str) -> Unavailable:
    if answer.values or answer.series:
        return stale(source)
    return Unavailable("NoMetrics", f"no metrics returned from {source} metrics API")


def stale(source: str) -> Unavailable:
    """Return why there is no reading where every sample is too old."""
    return Unavailable("Stale", f"no metrics returned from {source} metrics API: all samples are too old")
