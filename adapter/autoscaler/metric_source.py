"""One metric of one autoscaler, as it is read at a decision: from the answer of a feed, or from scrapes and what stands in for them.

Here: what of an answer is a reading now. Not here: which source a metric has (`sources`), when it is asked (`feeds`), how old a value may
be (`readings`). Law: what has not been answered is not yet known, and never nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from adapter.autoscaler import readings
from adapter.autoscaler.decide import readings as answers
from adapter.autoscaler.decide.observation import NOT_YET, PodsReading, Reading, Unavailable
from adapter.autoscaler.feed import Feed
from adapter.autoscaler.polling import Feeds
from adapter.autoscaler.readings import Answer, LeastReady
from adapter.config.rules_file import OnNaN
from adapter.model.pods import PodFacts
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.model.timestamps import SECOND
from adapter.rules import matchers
from adapter.rules.query import Dropped, milli_of
from adapter.rules.registry import CustomEntry
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.targets import ScrapedAnswer

_NOT_YET = "no answer yet"
_FETCHING = "unable to fetch metrics from custom metrics API"
_TOO_LARGE = "beyond 9.2e15, which no quantity holds"


@dataclass(frozen=True, slots=True)
class Site:
    """Whose metric: the autoscaler, its period in seconds, the selector of its pods, and a way to their names as they are then."""

    owner: str
    namespace: str
    period: float
    selector: LabelSelector
    names: Callable[[], tuple[str, ...]]


class View(NamedTuple):
    """What a reading is made beside: the pods, how many were ready, and both clocks (nanoseconds of the day, monotonic seconds)."""

    pods: Sequence[PodFacts]
    least_ready: LeastReady
    now: int
    monotonic: float


class Source(Protocol):
    """One metric of one autoscaler."""

    @property
    def sampled(self) -> int | None:
        """The time of the oldest sample behind the last reading; None where that is not known."""
        ...

    @property
    def span(self) -> int | None:
        """How many nanoseconds one sample speaks of: until the next one, and back over its window; None where that is not known."""
        ...

    def read(self, view: View) -> Reading:
        """Return its reading now."""
        ...

    def close(self) -> None:
        """Ask no more."""
        ...


@dataclass(slots=True, eq=False)
class _Fed:
    """What all sources with a feed have in common; `api` is which API an answer would come from."""

    api: ClassVar[str]

    feed: Feed
    feeds: Feeds
    owner: str

    @property
    def sampled(self) -> int | None:
        """The time of the oldest sample behind the answer."""
        answer = self.feed.answer
        return min(answer.times.values()) if answer is not None and answer.times else None

    @property
    def span(self) -> int | None:
        """How many nanoseconds one sample speaks of."""
        answer, interval = self.feed.answer, self.feed.interval.known
        if answer is None or interval is None or answer.lookback is None:
            return None
        return interval + answer.lookback

    def close(self) -> None:
        """Ask no more."""
        self.feeds.drop(self.owner, self.feed)

    def read(self, view: View) -> Reading:
        """Return its reading now."""
        answer, late, error = self.feed.state(view.monotonic)
        if answer is None:
            reason = NOT_YET if self.feed.asked is None and not error else "NotAnswered"
            return Unavailable(
                reason, f"unable to fetch metrics from {self.api} metrics API: {error or _NOT_YET}"
            )
        if late:
            # a late answer is not used to shrink; that no other was asked for is no reason to take its samples for too old
            view = view._replace(now=view.now - round(self.feed.overdue(view.monotonic) * SECOND))
        if not answer.trusted:
            # Prometheus is asked for the time of our clock: set back, it brings old samples as new ones
            view = view._replace(now=max(view.now, self.feed.interval.newest))
        return self.read_answer(answer, late, view)

    def read_answer(self, answer: Answer, late: str, view: View) -> Reading:
        """Return the reading of an answer; `late` says why it may be out of date, "" where it is not."""
        raise NotImplementedError


class FedPods(_Fed):
    """A metric of pods."""

    __slots__ = ()
    api: ClassVar[str] = "custom"

    def read_answer(self, answer: Answer, late: str, view: View) -> Reading:
        """Return what the pods were measured at."""
        return readings.of_pods(answer, self.feed.interval.lasts, view.now, late, self.api)


class FedObject(_Fed):
    """A metric of one object."""

    __slots__ = ()
    api: ClassVar[str] = "custom"

    def read_answer(self, answer: Answer, late: str, view: View) -> Reading:
        """Return what the object was measured at."""
        return readings.of_object(answer, self.feed.interval.lasts, view.now, late, view.least_ready)


class FedSeries(_Fed):
    """An external metric."""

    __slots__ = ()
    api: ClassVar[str] = "external"

    def read_answer(self, answer: Answer, late: str, view: View) -> Reading:
        """Return what the series were measured at."""
        return readings.of_series(answer, self.feed.interval.lasts, view.now, late, view.least_ready)


@dataclass(slots=True, eq=False)
class FedUsage(_Fed):
    """Cpu, memory or the like of pods, or of one container in each."""

    resource: str
    container: str

    api: ClassVar[str] = "resource"

    def read_answer(self, answer: Answer, late: str, view: View) -> Reading:
        """Return what the pods that there are use."""
        names = {pod.name for pod in view.pods}
        overdue = late or answer.overdue
        if not answer.trusted:
            usages = answer._replace(values={item.metadata.name: 0 for item in answer.items})
            found = readings.age(usages, self.feed.interval.lasts, view.now)
            if usages.values and not found.values:
                return readings.stale(self.api)
            names &= found.values.keys()
            overdue = overdue or found.overdue
        oldest = view.now - readings.OLDEST
        recent = [
            item
            for item in answer.items
            if item.metadata.name in names and (item.timestamp is None or item.timestamp >= oldest)
        ]
        reading = answers.read_usage(recent, self.resource, self.container)
        if isinstance(reading, PodsReading) and overdue:
            return PodsReading(reading.values, reading.samples, overdue)
        return reading


@dataclass(slots=True, eq=False)
class Nothing:
    """A metric whose selector is wrong, of which `decide` knows without asking."""

    why: Unavailable
    sampled: int | None = None
    span: int | None = None

    def read(self, _: View) -> Reading:
        """Return why there is none."""
        return self.why

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(slots=True, eq=False)
class ScrapedPods:
    """Values of scraped pods; where a pod has none, Prometheus' if that is newer, and where nothing is scraped, Prometheus' alone."""

    scraped: ScrapedValues
    metric: str
    narrowed: LabelSelector
    site: Site
    open_feed: Callable[[], FedPods]
    beside: FedPods | None = None
    sampled: int | None = None

    @property
    def span(self) -> int | None:
        """How many nanoseconds one scrape speaks of."""
        window = self.scraped.window_of(self.metric)
        entry = self.scraped.entry_of(self.metric)
        if window is None or entry is None or entry.rule.config.scrape is None:
            return None
        return round((window + entry.rule.config.scrape.access.interval) * SECOND)

    def read(self, view: View) -> Reading:
        """Return what was scraped, and what stands in for that."""
        self.scraped.follow()  # what is scraped may be so by rules or series that are new
        entry = self.scraped.entry_of(self.metric)
        if entry is None:
            return self._beside().read(view)
        parts = matchers.from_selector(self.narrowed)
        look = self.scraped.read(entry, self.site.namespace, [pod.name for pod in view.pods], parts)
        read = self._read_values(entry, look)
        if isinstance(read, Unavailable):
            return read
        values, overdue = read
        times = [time for _, time, _ in look.values.values()]
        self.sampled = readings.nanoseconds(min(times)) if times else None
        if missing := [
            pod.name
            for pod in view.pods
            if pod.name not in look.values and pod.phase == "Running" and not pod.deleting
        ]:
            found, late = self._fill(missing, look.absent, view)
            values |= found
            # a pod that is no target of scrapes has no better value than Prometheus'
            unseen = next((name for name in found if name in look.unseen), None)
            if unseen is not None:
                late = f"{unseen} is not scraped now: Prometheus stands in{self._why(entry, unseen)}"
            overdue = overdue or late
        elif self.beside is not None:
            self.beside.close()
            self.beside = None
        if not values:
            if self.beside is not None and self.beside.feed.asked is None:
                return self.beside.read(view)  # not scraped yet, not answered yet
            unseen = next((name for name in missing if name in look.unseen and self._why(entry, name)), None)
            why = "" if unseen is None else f"; {unseen} is not scraped now{self._why(entry, unseen)}"
            return Unavailable("NoMetrics", f"no metrics returned from custom metrics API{why}")
        return PodsReading(values, {}, overdue)

    def _read_values(
        self, entry: CustomEntry, look: ScrapedAnswer
    ) -> tuple[dict[str, int], str] | Unavailable:
        """Return the scraped values in thousandths by pod, and why one may be out of date, "" where none is."""
        values: dict[str, int] = {}
        overdue = ""
        nan_is_zero = entry.rule.config.on_nan is OnNaN.ZERO
        for name, (value, _, is_overdue) in look.values.items():
            try:
                milli = milli_of(value, nan_is_zero=nan_is_zero)
            except OverflowError:
                # An error as from the API and through Prometheus: the metric scales neither up nor down.
                which = f"the value of {entry.rule.config.path} for {name}"
                return Unavailable("InvalidValue", f"{_FETCHING}: {which} is {_TOO_LARGE}")
            if not isinstance(milli, Dropped):
                values[name] = milli
                if is_overdue:
                    overdue = f"the scrape of {name} is overdue{self._why(entry, name)}"
        return values, overdue

    def _why(self, entry: CustomEntry, name: str) -> str:
        """Return why a pod is not scraped, as the end of a sentence, "" where that is not known."""
        reason = self.scraped.reason_of(entry, self.site.namespace, name)
        return f": {reason}" if reason else ""

    def _fill(
        self, missing: Sequence[str], absent: Mapping[str, float], view: View
    ) -> tuple[dict[str, int], str]:
        """Return what Prometheus has for pods without a scraped value, where that was sampled later than they were last scraped.

        Beside it stands why that itself may be out of date, "" where it is not.
        """
        beside = self._beside()
        reading = beside.read(view)
        answer = beside.feed.answer
        if not isinstance(reading, PodsReading) or answer is None:
            return {}, ""
        found = {
            name: reading.values[name]
            for name in missing
            if name in reading.values
            and (name not in absent or answer.times.get(name, 0) > absent[name] * SECOND)
        }
        return found, reading.overdue if found else ""

    def _beside(self) -> FedPods:
        if self.beside is None:
            self.beside = self.open_feed()
        return self.beside

    def close(self) -> None:
        """Ask no more; who is scraped is the owner's affair."""
        if self.beside is not None:
            self.beside.close()
            self.beside = None
