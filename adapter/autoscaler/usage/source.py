"""CPU as the pods themselves expose it, beside the usage of their containers.

The usage of containers is 15 to 60 s old when it arrives. What a pod exposes about its own process is a
second old, but it is not the same: `calibration` says whether it counts, and by which factor. The reading has
both. The decision takes the one that asks for more replicas, so the pods' own values raise the count at once,
and lower it only when the containers' usage agrees.

What a pod shows is bounded:

- by the limit of its container;
- by the highest of the pods that have been compared lately, for one that has not been;
- by its container's usage, for one that differs from the others (`Calibration.apart`).

A difference that chance explains (`noise`) does not count either: the containers' usage is steadier.
"""

import math
import zlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from adapter.autoscaler.decide.observation import OptionState, PodsReading, Reading, Ways, sum_usage
from adapter.autoscaler.inputs.feed import ASSUMED_WINDOW, SourceAnswer
from adapter.autoscaler.inputs.sources import MetricSource, PolledSource, ReadContext
from adapter.autoscaler.usage import calibration as calibrations
from adapter.autoscaler.usage import comparing, containers
from adapter.autoscaler.usage.calibration import CalibrationVerdict
from adapter.autoscaler.usage.comparing import ComparedPods
from adapter.autoscaler.usage.noise import Noise
from adapter.model.autoscaling.hpa import PodMetrics
from adapter.model.learned_usage import GREATEST_RATIO, MOST_LEARNED, LearnedUsage
from adapter.model.timestamps import SECOND, span_of, write_instant
from adapter.rules.compile import UsageEntry
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.readings import ScrapedValue

LEAST = 20
"""The least usage of a container that shows a ratio, in thousandths: below it, the rest of the pod weighs."""

_MOST = 2.0**62
"""A usage beyond it, in thousandths, is not one."""

_COUNTS = "the usage that the pods expose may raise the count"
NO_MORE = "the own usage of pods exceeds that of their containers by no more than chance explains"

NOT_SCRAPED = CalibrationVerdict(None, "NotScraped")
"""No rule scrapes CPU from pods."""


@dataclass(slots=True, eq=False)
class OwnUsageSource(MetricSource):
    """The usage of CPU by pods, or by one container in each (`container`).

    `sampled` and `span` are those of the pods' own values if these count.
    """

    slow: PolledSource
    scraped: ScrapedValues
    container: str
    verdict: CalibrationVerdict = NOT_SCRAPED
    """Whether the pods' own values count, and why not."""
    why: str = ""
    """Why there is no faster reading, "" if there is one or no rule scrapes CPU."""
    pods: ComparedPods = field(init=False, default_factory=lambda: ComparedPods(LEAST))
    _noise: Noise | None = None
    _entry: UsageEntry | None = None
    _usages: tuple[SourceAnswer | None, Mapping[str, PodMetrics]] = (None, {})
    """The last answer about containers, and its usages by pod."""

    @property
    def condition(self) -> OptionState | None:
        """Whether the pods' own values count; None if no rule scrapes CPU."""
        ratio, reason, why = self.verdict
        if reason == NOT_SCRAPED.reason:
            return None
        return OptionState(ratio is not None, reason, why or _COUNTS)

    def close(self) -> None:
        self.slow.close()

    def read(self, context: ReadContext) -> Reading:
        reading = self.slow.read(context)
        self.sampled, self.span = self.slow.sampled, self.slow.span
        self.scraped.follow()  # the rules may have changed
        entry = self.scraped.find_usage()
        if entry != self._entry:  # a rule that reads the same is the same after a reload
            self._entry, self._usages, self._noise = entry, (None, {}), None
            self.pods.clear()
        if entry is None:
            self.verdict, self.why = NOT_SCRAPED, ""
            return reading
        self._adopt(entry, context)
        own, fault = self._read_own(entry, context)
        self._compare(entry, context)
        self.verdict = self._judge(entry, own, fault, context)
        self.why = self.verdict.why
        if self.verdict.ratio is None:
            return reading
        faster = self._faster(entry, own, self.verdict.ratio, reading, context)
        self.why = self._why_not(faster, reading)
        if self.why:
            return reading
        self.sampled = span_of(min(value.time for value in own.values()))
        self.span = self.scraped.span_of(entry)
        return Ways.beside(reading, faster)

    # -- the pods' own usage ---------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        return f"cpu/{self.container}"

    def _adopt(self, entry: UsageEntry, context: ReadContext) -> None:
        """Go on with what a source before this one has learned, if it still counts."""
        if self.pods.calibration.ratios or context.learned is None:
            return
        learned = context.learned.get(self._key)
        if learned is None:
            return
        if learned.counts(_identify(entry), context.now / SECOND):
            self.pods.adopt(learned)
            self._noise = Noise(max(self.scraped.covered_seconds(entry), 1.0), learned.share)
        else:
            del context.learned[self._key]

    def _window(self) -> float:
        """Return the seconds that the usage of a container covers."""
        answer = self.slow.feed.answer
        return (ASSUMED_WINDOW if answer is None or not answer.lookback else answer.lookback) / SECOND

    def _read_own(self, entry: UsageEntry, context: ReadContext) -> tuple[dict[str, ScrapedValue], str]:
        """Return the own usage of each pod in thousandths, and add it to its history.

        The text says why the scrape of a pod fails, which is no fault of the rule.
        """
        started, window = {pod.name: pod.started for pod in context.pods}, self._window()
        look = self.scraped.read(entry, self.slow.key.namespace, started, ())
        own: dict[str, ScrapedValue] = {}
        self.pods.keep(started.keys())
        for name, value in look.values.items():
            milli = value.value * 1000.0
            # A pod that is scraped less often has longer windows than are known here. No NaN passes.
            if 0.0 <= milli <= _MOST and name not in look.slowed:
                own[name] = value._replace(value=milli)
                wall = context.now / SECOND
                self.pods.add(name, started[name], own[name], window, context.monotonic, wall)
        if self._noise is None:
            self._noise = Noise(max(self.scraped.covered_seconds(entry), 1.0))
        if known := [value for name, value in own.items() if not self.pods.is_apart(name)]:
            mean = sum(value.value for value in known) / len(known)
            self._noise.add(min(value.time for value in known), mean)
        return own, look.fault

    def _compare(self, entry: UsageEntry, context: ReadContext) -> None:
        """Take the samples of a new answer, and compare those whose windows are known."""
        answer = self.slow.feed.answer
        if answer is not self._usages[0]:
            items = {} if answer is None else {item.metadata.name: item for item in answer.items}
            self._usages = answer, items
            usages = (
                (pod.name, sum_usage(item, "cpu", containers.find_container(pod, entry)))
                for pod in context.pods
                if (item := items.get(pod.name)) is not None
            )
            self.pods.sample(usages, {} if answer is None else answer.times)
        lag, now = self.scraped.covered_seconds(entry) / 2, context.monotonic
        has_compared = self.pods.compare(self._window(), lag, now)
        if has_compared and context.learned is not None:
            self._note_learned(entry, context.learned, context)

    def _note_learned(
        self, entry: UsageEntry, learned: MutableMapping[str, LearnedUsage], context: ReadContext
    ) -> None:
        """Note what the next source may go on with; what is no longer known is forgotten."""
        learned.pop(self._key, None)
        ratios = tuple(round(ratio, 4) for ratio in self.pods.calibration.ratios)
        if not ratios or min(ratios) <= 0 or max(ratios) > GREATEST_RATIO:
            return
        if len(learned) == MOST_LEARNED:
            del learned[next(iter(learned))]
        wall, share = context.now / SECOND, None if self._noise is None else self._noise.share
        pods = self.pods.agreeing(context.monotonic, wall)
        learned[self._key] = LearnedUsage(_identify(entry), wall, ratios, share, pods)

    def _judge(
        self, entry: UsageEntry, own: Mapping[str, ScrapedValue], fault: str, context: ReadContext
    ) -> CalibrationVerdict:
        """Return whether the pods' own values count."""
        path, scrape = entry.rule.path, entry.rule.config.scrape
        assert scrape is not None, "usages are scraped"
        if self.container:
            named = {containers.find_container(pod, entry) for pod in context.pods}
            if others := sorted(named - {self.container}):
                what = f"container {others[0]}" if others[0] else "a container that is not known"
                return CalibrationVerdict(None, "OtherContainer", f"{path} is of {what}")
        if self._window() > comparing.LONGEST_WINDOW:
            why = f"the usage of containers is a mean over {self._window():g} s: {path} is compared up to "
            return CalibrationVerdict(None, "WindowTooLong", f"{why}{comparing.LONGEST_WINDOW:g} s")
        if not own:
            why = f"no pod exposes the series of {path} at port {scrape.access.port}"
            return CalibrationVerdict(None, "NotExposed", f"{why}: {fault}" if fault else why)
        verdict = calibrations.judge(self.pods.calibration, path)
        due = self.pods.first_due(self._window())
        if not self.pods.calibration.ratios and context.now / SECOND < due < math.inf:
            why = f"{verdict.why}; the first comparison is due at {write_instant(span_of(due))}"
            return verdict._replace(why=why)
        if verdict.ratio is not None and not any(self.pods.agrees(name, context.monotonic) for name in own):
            why = f"{path} of no pod that runs now has been compared with its container's usage lately"
            return CalibrationVerdict(None, "NotCompared", why)
        return verdict

    # -- the reading -----------------------------------------------------------------------------------------

    def _faster(
        self,
        entry: UsageEntry,
        own: Mapping[str, ScrapedValue],
        ratio: float,
        slow: Reading,
        context: ReadContext,
    ) -> PodsReading:
        """Return the reading of the pods' own usages, with that of the container for a pod without one."""
        before = slow if isinstance(slow, PodsReading) else PodsReading({})
        # A pod that was not compared lately counts as one of those that were, at most.
        agrees, now = self.pods.agrees, context.monotonic
        most = ratio * max(value.value for name, value in own.items() if agrees(name, now))
        window = span_of(self.scraped.covered_seconds(entry))
        others = containers.usage_of_others(self._usages[1], context.pods, entry)
        values: dict[str, int] = {}
        samples: dict[str, tuple[int, int]] = {}
        overdue = ""
        late: list[str] = []
        for pod in context.pods:
            name, value = pod.name, own.get(pod.name)
            rest = 0 if self.container or containers.is_alone(pod) else others.get(name, others.get(""))
            if value is None or self.pods.is_apart(name) or rest is None:
                if name in before.values:
                    values[name] = before.values[name]
                    samples[name] = before.samples.get(name, (0, 0))
                    if before.overdue:
                        overdue = before.overdue
                        late.append(name)
                continue
            limit = containers.find_limit(pod, containers.find_container(pod, entry))
            values[name] = math.ceil(min(ratio * value.value, most, limit)) + rest
            samples[name] = (span_of(value.time), window)
            if value.overdue:
                overdue = f"the scrape of {name} is overdue"
                late.append(name)
        return PodsReading(values, samples, overdue, overdue_pods=tuple(late))

    def _why_not(self, faster: PodsReading, slow: Reading) -> str:
        """Return why a reading of the own usages does not count, "" if it does."""
        share = None if self._noise is None else self._noise.share
        if share is None:
            return "how much the own usage of pods varies by chance is not known yet"
        if not isinstance(slow, PodsReading):
            return ""
        both = faster.values.keys() & slow.values.keys()
        now, before = (sum(reading.values[name] for name in both) for reading in (faster, slow))
        return "" if not both or now - before > share * before else NO_MORE


def _identify(entry: UsageEntry) -> str:
    """Return a text that is equal in all processes for rules that read the same of a pod."""
    config, scrape = entry.rule.config, entry.rule.config.scrape
    assert scrape is not None, "usages are scraped"
    access = scrape.access
    read = (config.series_query, config.metrics_query, entry.series, entry.container, scrape.window)
    return f"{zlib.crc32(repr((*read, access.scheme, access.port, access.path)).encode()):08x}"
