"""Discovery over time: fetches the lists of series and builds the registry that requests read.

A list that fails affects only the refresh of its own rules, and a failure removes no metric that is known.
Readiness waits for the first attempt and not for success, so a Prometheus that is down does not take the
APIService down with it.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from cachetools import TTLCache

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import SeriesInfo
from adapter.model.visible import counted, listed
from adapter.prometheus.series import SeriesLister
from adapter.rules import registry
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.matchers import show_series
from adapter.rules.registry import Registry, SeriesMemory
from adapter.runtime.steps import run_steps
from adapter.runtime.waits import wait_for
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems

_log = logging.getLogger(__name__)

# Seconds between two look-ups of unknown metrics, of any name and of the same name.
LOOKUP_GAP = 15.0
_SAME_NAME_GAP = 60.0
# A look-up fetches the series of the last seconds only, which Prometheus finds without its disk.
_LOOKUP_WINDOW = 300.0
# Seconds that a request waits at most for a look-up or for the first discovery.
_LOOKUP_WAIT = 8.0
_NAMES_REMEMBERED = 10_000
# Lists that failed are fetched again after so many seconds, then after twice as long, up to `_EMPTY_AGAIN`.
RETRY = 2.0
# Lists without any series are fetched again after so many seconds, all in one pass.
_EMPTY_AGAIN = 30.0

Lists = Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]


class Relister:
    """Owns the registry. `run` is its only task; `adopt` replaces the rules."""

    def __init__(
        self,
        lister: SeriesLister,
        clock: Clock,
        monitoring: Monitoring,
        problems: ProblemLog,
        sources: SourceProblems | None = None,
        *,
        interval: float,
        max_age: float,
        reserved: frozenset[str] = frozenset(),
    ) -> None:
        """`interval`: seconds from the end of a relist to the next; `max_age`: seconds that it looks back.

        `reserved` are names that no metric of a rule may have.
        """
        self._lister = lister
        self._clock = clock
        self._monitoring = monitoring
        self._problems = problems
        self._sources = SourceProblems(clock, problems) if sources is None else sources
        self._interval = interval
        self._max_age = max_age
        self._reserved = reserved
        self.ruleset = Ruleset()
        self._memory: SeriesMemory = {}
        self._wake = asyncio.Event()
        self._listing = asyncio.Lock()
        self._building = asyncio.Lock()
        self._looking_up: dict[object, asyncio.Event] = {}
        self._asked_names: TTLCache[object, bool] = TTLCache(
            _NAMES_REMEMBERED, _SAME_NAME_GAP, timer=clock.monotonic
        )
        self._looked_up = -math.inf
        self._asked, self._limited = map(monitoring.lookups.labels, ("sent", "limited"))
        self._failing: frozenset[str] = frozenset()
        self._without_series: frozenset[str] = frozenset()  # selectors, as reported
        self._empty_due = 0.0  # when these are listed next, by the time of the event loop
        self._reported: dict[str, frozenset[str]] = {}  # rules by fault
        self._counts: dict[str, int] = {}
        self.registry: Registry = registry.EMPTY
        self._listeners: list[Callable[[], None]] = []
        self.attempted = asyncio.Event()
        """Set when the first relist of the first rules has ended, with or without success."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the registry. It must be quick and must not raise."""
        self._listeners.append(changed)

    async def adopt(self, ruleset: Ruleset) -> None:
        """Replace the rules. On return the known series of their selectors are in force; `run` lists more."""
        self.ruleset = ruleset
        selectors = frozenset(ruleset.selectors())
        self._memory = {selector: known for selector, known in self._memory.items() if selector in selectors}
        self._asked_names.clear()
        await self._rebuild()
        self._wake.set()

    async def run(self) -> None:
        """Relist until cancelled: after new rules, after each interval, and sooner for lists that failed."""
        await self._wake.wait()
        while True:
            self._wake.clear()
            await self._relist(self.ruleset.selectors(), self._max_age, whole=True)
            self.attempted.set()
            await self._rest()

    async def _rest(self) -> None:
        """Wait for new rules or the end of the interval.

        In between, list again what failed, with backoff, and what has no series, in one pass if both are due.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._interval
        pause = RETRY
        self._empty_due = min(end, loop.time() + _EMPTY_AGAIN)
        while (left := end - loop.time()) > 0:
            retry = min(pause, _EMPTY_AGAIN) if self._failing else math.inf
            empty_in = self._empty_due - loop.time() if self._empty() else math.inf
            again = min(left, retry, empty_in)
            if await wait_for(self._wake, again):
                return
            wanted = self._failing | self._empty() if empty_in <= again else self._failing
            if wanted and again < left:
                await self._relist(sorted(wanted), self._max_age, whole=True)
            if empty_in <= again:
                self._empty_due = min(end, loop.time() + _EMPTY_AGAIN)
            pause *= 2

    def _empty(self) -> frozenset[str]:
        """Return the selectors that have no series: a metric of theirs may appear at any time."""
        selectors = self.ruleset.selectors()
        return frozenset(name for name in selectors if not self._memory.get(name)) - self._failing

    async def look_up(self, name: str, rules: Sequence[Rule]) -> bool:
        """List the series of an unknown metric now; return whether the registry may have it since.

        Rate-limited, and bounded in time. Only the selectors of rules that can give the name are listed.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOKUP_WAIT):
                if self.attempted.is_set():
                    return await self._look_up(name, rules)
                return await self.attempted.wait()
        return False

    async def _look_up(self, name: str, rules: Sequence[Rule]) -> bool:
        queries = (rule.config.series_query for rule in rules if rule.namer.may_give(name))
        selectors = tuple(dict.fromkeys(queries))
        key = (name, selectors)
        under_way = self._looking_up.get(key)
        if under_way is not None:
            await under_way.wait()
            return True
        now = self._clock.monotonic()
        if not selectors:
            return False
        if key in self._asked_names or now - self._looked_up < LOOKUP_GAP:
            self._limited.inc()
            return False
        self._asked.inc()
        self._asked_names[key] = True
        self._looked_up = now
        done = self._looking_up[key] = asyncio.Event()
        try:
            await self._relist(selectors, min(_LOOKUP_WINDOW, self._max_age), whole=False)
        except asyncio.CancelledError:
            self._asked_names.pop(key, None)  # not known yet; the gap between look-ups is limit enough
            raise
        finally:
            del self._looking_up[key]
            done.set()
        return True

    async def _relist(self, selectors: Sequence[str], age: float, *, whole: bool) -> None:
        """Fetch the lists, one run at a time, and build the next snapshot."""
        async with self._listing:
            begun = self._clock.monotonic()
            wall = self._clock.wall()
            lists = await self._lister.series(selectors, wall - age) if selectors else {}
            if lists:
                self._sources.listed(lists.values(), begun)
            memory = dict(self._memory)
            for selector, answer in lists.items():
                if not isinstance(answer, PrometheusError):
                    memory = await run_steps(registry.remembering(memory, selector, answer, whole=whole))
            current = frozenset(self.ruleset.selectors())  # the rules may have changed in between
            self._memory = {selector: known for selector, known in memory.items() if selector in current}
            await self._rebuild()
            if whole:
                self._report(lists, self._clock.monotonic() - begun, wall)
            self._report_without_series(lists if whole else ())

    async def _rebuild(self) -> None:
        """Build the next snapshot; the last of several calls builds from what is then in force."""
        async with self._building:
            old = self.registry
            new = await run_steps(
                registry.building(self.ruleset, self._memory, old.generation + 1, self._reserved)
            )
            reserved = {
                rule: f"{rule} gives the name {metric}, which is Fastpath's own: its values are not served"
                for rule, metric in new.refused
            }
            unwritable = {
                rule: f"{rule} leaves out {counted(names, 'series name', 'series names')} that "
                f"PromQL cannot write without quotes, such as {show_series(example)}"
                for rule, names, example in new.unwritable
            }
            self._report_rules("metric-name", "metric left out", reserved)
            self._report_rules("series-name", "series left out", unwritable)
            if old.generation and await run_steps(registry.same(new, old)):
                return
            for collision in new.collisions:
                if collision not in old.collisions:
                    _log.warning("two sources for one metric", extra=facts(metric=collision))
            self.registry = new
            for changed in self._listeners:
                changed()

    def _report_rules(self, fault: str, message: str, texts: Mapping[str, str]) -> None:
        """Report a problem of rules, with a text for each, once when it begins; end it for all others."""
        known = self._reported.get(fault, frozenset())
        for rule, text in texts.items():
            if rule not in known:
                self._problems.report(fault, message, text, subject=rule)
        for rule in known - texts.keys():
            self._problems.resolve(fault, subject=rule)
        self._reported[fault] = frozenset(texts)

    def _report(self, lists: Lists, seconds: float, wall: float) -> None:
        """Count the series of a relist and report once which selectors fail."""
        metrics = self._monitoring
        metrics.discovery_attempt.set(wall)
        metrics.discovery_duration.set(seconds)
        failed: set[str] = set()
        self._counts = {selector: self._counts.get(selector, 0) for selector in self.ruleset.selectors()}
        for selector, answer in lists.items():
            if not isinstance(answer, PrometheusError):
                self._counts[selector] = sum(info.count for info in answer)
                continue
            self._counts[selector] = 0
            failed.add(selector)
            metrics.discovery_failures.labels(reason=answer.kind).inc()
            details = {"public": answer.message, "rules": ", ".join(self._paths({selector}))}
            self._problems.report("discovery", "series list failed", str(answer), subject=selector, **details)
        metrics.discovery_series.set(sum(self._counts.values()))
        metrics.rules_stale.set(sum(rule.config.series_query in failed for rule in self._rules()))
        if not failed:
            metrics.discovery_success.set(wall)
        for selector in self._failing - failed:
            self._problems.resolve("discovery", subject=selector)
        self._failing = frozenset(failed)

    def _report_without_series(self, wholly_listed: Iterable[str]) -> None:
        """Report once which selectors have no series; end it for those that have some, or no rule any more.

        A look-up lists a shorter time, so it can only end the problem. A list that fails leaves it as it is.
        Rules whose endpoints are scraped need no series in Prometheus.
        """
        needed = {rule.config.series_query for rule in self._rules() if not rule.named_series}
        empty = self._empty() & needed
        for selector in self._without_series - empty - self._failing:
            self._problems.resolve("no-series", subject=selector)
        self._without_series &= empty | self._failing
        again = min(_EMPTY_AGAIN, self._interval)
        text = f"Prometheus has none that match it yet; they are listed again within {again:g} s"
        for selector in wholly_listed:
            if selector in empty and selector not in self._without_series:
                rules = ", ".join(self._paths({selector}))
                self._problems.report("no-series", "rule has no series", text, subject=selector, rules=rules)
                self._without_series |= {selector}

    def _rules(self) -> tuple[Rule, ...]:
        return (*self.ruleset.custom, *self.ruleset.external)

    def _paths(self, selectors: AbstractSet[str]) -> list[str]:
        return [rule.config.path for rule in self._rules() if rule.config.series_query in selectors]

    def find_rules_without_series(self) -> str | None:
        """Return how many rules have no series yet, and when series are listed next; None without one."""
        paths = self._paths(self._without_series)
        if not paths:
            return None
        rules = counted(len(paths), "rule has", "rules have")
        seconds = math.ceil(self._empty_due - asyncio.get_running_loop().time())
        again = f"listed again in {seconds} s" if seconds > 0 else "being listed"
        return f"{rules} no series yet: {listed(paths)}; series are {again}"
