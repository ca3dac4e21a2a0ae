"""Polls the metrics of autoscalers: when each feed is due, and which is next under the query budget.

Each feed has a period: half the interval of its samples, as their timestamps show it, and until that is known
the shortest `syncPeriod` of its autoscalers. After its period a feed is due and waits for the query budget,
which all feeds share (`--prometheus-max-queries-per-second`). Most polls send two queries, one for the values
and one for the age of their samples; cpu and memory by our own rules send four.

The budget is shared fairly (`model.fairness`): round-robin over the namespaces that have a due feed, then
over the autoscalers of the namespace; of an autoscaler's feeds the one goes first whose wait is the longest
part of its period. So under overload each namespace gets an equal share, and one that needs less than its
share is polled in time. Within a share all periods are stretched alike. The wait of a feed is subtracted from
its next period, down to half of it, so that a namespace within its share does not lose a round each time.

A feed with several autoscalers is paid for by the one whose turn comes first; it then waits for the others no
more. Likewise one query may answer several feeds of a group (one metric of the pods of many workloads): they
are polled together in one turn. They are so only after an answer has shown that the group's queries merge,
because a feed that does not merge has to be paid for by itself.

Turns share an answer that is young enough, so one scaler asks for a metric of many namespaces every 0.4 s at
most. Each of several scalers asks for that of its own autoscalers. So their turns share an answer for as many
times as long, up to half of a period, and together they ask as often as one (`_accepted_age`). The first poll
of a feed takes no older answers than with one scaler.

A feed that waits keeps its answer. Once late it may scale up but not down. It is judged by its age when the
feed was due, and dropped after `HELD` seconds: else an overload would make every metric absent, and nothing
could scale up when it must. After a long wait the interval of the samples is learned only if it cannot be
that of the waiting.

An unexpected exception in one poll is counted and logged, and delays that feed. It never stops the others.

A tenant chooses how many autoscalers and metrics there are, and many may be due at once. So no pass over them
runs for more than `STEP` before other tasks may run.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Self

from adapter.autoscaler.inputs.feed import DELAYED, LATE, Feed, FeedSource
from adapter.autoscaler.interfaces import Key
from adapter.errors import SourceError, StatusError
from adapter.model.clock import Clock
from adapter.model.fairness import Turns
from adapter.model.timestamps import SECOND
from adapter.runtime.waits import wait_for
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects, ProblemLog

PATIENCE = 10.0
"""The time limit of a poll; sources have shorter limits of their own."""

DEFECT_PAUSE = 30.0
"""The pause of a feed after an unexpected error."""

CALM = 60.0
"""A problem is resolved when no feed of the namespace has been delayed for so many seconds."""

REPORT_AGAIN = 600.0
"""An autoscaler whose feeds stay delayed gets an event every so many seconds."""

PROBLEM = "query-budget"
_MESSAGE = "queries wait for --prometheus-max-queries-per-second; late values may scale up, not down"

_LEAST_WAIT = 0.001
_REPORT_PERIOD = 1.0

STEP = 0.002
"""For how long, in seconds, feeds are looked at in a row before other tasks may run."""

_numbers = itertools.count()  # of entries in a calendar, so that no two feeds are compared

_MOST_AT_ONCE = 500
"""So many autoscalers are notified of an answer in a row."""


@dataclass(slots=True, eq=False)
class _FeedGroup:
    """Feeds that the same queries may answer. `merges` and `crosses` are those of the last `PollResult`."""

    feeds: dict[Hashable, Feed] = field(default_factory=dict)
    waiting: dict[Hashable, Feed] = field(default_factory=dict)
    merges: bool = False
    crosses: bool = False


class QueryBudget:
    """A token bucket: `rate` queries a second, and a burst of one second's worth."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._tokens = max(rate, 1.0)
        self._counted: float | None = None

    def take(self, cost: float) -> float:
        """Take the cost of a poll; return how many seconds to wait before the next one."""
        now = self._clock.monotonic()
        since = now if self._counted is None else self._counted
        self._tokens = min(max(self.rate, 1.0), self._tokens + (now - since) * self.rate)
        self._counted = now
        self._tokens -= cost
        return max(0.0, -self._tokens / self.rate)


class DelayReporter:
    """Collects delays, and reports them each time `report` is called.

    There are three audiences. The gauge shows by how much the longest delay stretches a period. The problem
    names the namespaces, for the operator of Fastpath, who can raise the rate. `delayed` gets the
    autoscalers, each of which has an event, for their owners.
    """

    def __init__(self, monitoring: Monitoring, problems: ProblemLog, delayed: Callable[[Key], None]) -> None:
        """`delayed` gets the autoscalers with delayed feeds, each at most once in `REPORT_AGAIN` seconds."""
        self._stretch = monitoring.query_period_stretch
        self._stretch.set(1.0)
        self.due = 0.0
        """When the next report is due, in monotonic seconds."""
        self._problems = problems
        self._delayed = delayed
        self._ratio = 1.0
        self._keys: set[Key] = set()
        self._reported: dict[Key, float] = {}
        self._namespaces: dict[str, float] = {}

    def note(self, key: Key, period: float, waited: float, now: float) -> None:
        """Note that a feed that is due every `period` seconds has waited for `waited` seconds."""
        self._ratio = max(self._ratio, (period + waited) / period)
        if waited >= DELAYED:
            self._keys.add(key)
            self._namespaces[key.namespace] = now

    def report(self, now: float) -> Iterator[None]:
        """Report what was noted since the last report; yield where other work may run."""
        self.due = now + _REPORT_PERIOD
        self._stretch.set(self._ratio)
        self._ratio = 1.0
        keys, self._keys = self._keys, set()
        for namespace, last in [*self._namespaces.items()]:
            if last == now:
                reason = "the rate is too low for the metrics of the autoscalers"
                self._problems.report(PROBLEM, _MESSAGE, reason, subject=namespace)
            elif now - last > CALM:
                del self._namespaces[namespace]
                self._problems.resolve(PROBLEM, subject=namespace)
            yield
        self._reported = {key: at for key, at in self._reported.items() if now - at < REPORT_AGAIN}
        for key in keys:
            if key not in self._reported:
                self._reported[key] = now
                self._delayed(key)
            yield

    def close(self) -> None:
        """Resolve all problems: nothing is polled any more."""
        self._stretch.set(1.0)
        for namespace in self._namespaces:
            self._problems.resolve(PROBLEM, subject=namespace)
        self._namespaces.clear()


@dataclass(eq=False)
class Poller:
    """All feeds. Use it as an async context manager, which owns the polling tasks.

    `answered` gets the autoscalers of a feed after each poll; `scalers` share all autoscalers.
    """

    clock: Clock
    per_second: InitVar[float]
    answered: Callable[[Iterable[Key]], None]
    defects: Defects
    delays: DelayReporter | None = None
    scalers: Callable[[], int] = lambda: 1
    _budget: QueryBudget = field(init=False)
    _groups: dict[Hashable, _FeedGroup] = field(default_factory=dict, init=False)
    _turns: Turns[Feed] = field(default_factory=Turns, init=False)
    _calendar: list[tuple[float, int, Feed]] = field(default_factory=list, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _resumed: float = field(default=-math.inf, init=False)

    def __post_init__(self, per_second: float) -> None:
        self._budget = QueryBudget(per_second, self.clock)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="polling")
        return self

    async def __aexit__(self, *_: object) -> None:
        polls = [feed.task for feed in self.feeds() if feed.task is not None]
        tasks = [*polls, *([self._task] if self._task is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.delays is not None:
            self.delays.close()

    def __len__(self) -> int:
        return sum(len(group.feeds) for group in self._groups.values())

    def feeds(self) -> Iterator[Feed]:
        for group in self._groups.values():
            yield from group.feeds.values()

    def _has(self, feed: Feed) -> bool:
        """Tell whether a feed still has a listener."""
        group = self._groups.get(feed.source.group)
        return group is not None and group.feeds.get(feed.key) is feed

    def want(self, key: Key, period: float, source: FeedSource) -> Feed:
        """Return the feed of a source that an autoscaler wants polled every `period` seconds."""
        now = self.clock.monotonic()
        group = self._groups.setdefault(source.group, _FeedGroup())
        feed = group.feeds.get(source.key)
        if feed is None:
            feed = group.feeds[source.key] = Feed(source, now)
            feed.listen(key, period)
            self._plan(feed)
            return feed
        feed.listen(key, period)
        if feed.queued is not None and feed.task is None:
            self._turns.add(key.namespace, key, feed)
        elif feed.polled is not None and feed.polled + feed.period < feed.due:
            # The new listener does not wait for as long as the others.
            feed.due = max(now, feed.polled + feed.period)
            self._plan(feed)
        return feed

    def drop(self, key: Key, feed: Feed) -> None:
        """Note that an autoscaler does not use a feed any more; a feed without listeners is not polled."""
        feed.leave(key)
        self._turns.discard(key.namespace, key, feed)
        if feed.listeners or not self._has(feed):
            return
        group = self._groups[feed.source.group]
        del group.feeds[feed.key]
        group.waiting.pop(feed.key, None)
        if feed.task is not None:
            feed.task.cancel()
        if not group.feeds:
            del self._groups[feed.source.group]

    # -- when ------------------------------------------------------------------------------------------------

    def _plan(self, feed: Feed) -> None:
        """Make a feed wait for the query budget from its `due` on."""
        heapq.heappush(self._calendar, (feed.due, next(_numbers), feed))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                pause = await self._step()
            except Exception as error:  # noqa: BLE001 - a defect must not stop all polling
                self.defects.note("unexpected error while polling metrics", error)
                self._replan()
                pause = _REPORT_PERIOD
            await wait_for(self._wake, None if pause is None else max(_LEAST_WAIT, pause))

    def _replan(self) -> None:
        """Plan all feeds that are not being polled, whatever state a defect has left them in."""
        self._turns, self._calendar = Turns(), []
        for group in self._groups.values():
            group.waiting.clear()
        for feed in self.feeds():
            if feed.task is None:
                feed.queued = None
                self._plan(feed)
        self._wake.clear()

    async def _step(self) -> float | None:
        """Start the polls that the budget allows; return the seconds to the next call, None for no limit."""
        self._resumed = now = self.clock.monotonic()
        while self._calendar and self._calendar[0][0] <= now:
            due, _, feed = heapq.heappop(self._calendar)
            if feed.due == due and feed.queued is None and self._has(feed):
                await self._enqueue(feed, now)
            await self._rest()
        while self._turns and not self._budget.take(0):
            await self._take_turn(now)
        if self.delays is not None and now >= self.delays.due:
            await self._report(self.delays, now)
        now = self.clock.monotonic()
        pauses = [self._calendar[0][0] - now] if self._calendar else []
        if self._turns:
            pauses.append(self._budget.take(0))
        if self.delays is not None:
            pauses.append(self.delays.due - now)
        return min(pauses, default=None)

    async def _rest(self) -> None:
        """Let other tasks run if this one has run for a step."""
        if self.clock.monotonic() - self._resumed > STEP:
            await asyncio.sleep(0)
            self._resumed = self.clock.monotonic()

    async def _enqueue(self, feed: Feed, now: float) -> None:
        feed.queued = now
        self._groups[feed.source.group].waiting[feed.key] = feed
        for key in tuple(feed.listeners):
            if key in feed.listeners:
                self._turns.add(key.namespace, key, feed)
            await self._rest()

    async def _take_turn(self, now: float) -> None:
        """Poll the next feed, and with it those of its group that the same queries answer."""
        chosen = self._turns.take(lambda feed: feed.waited(now) / feed.period)
        group, namespace = self._groups[chosen.source.group], chosen.namespace
        # The first poll of a group has queries of its own; those that come meanwhile share theirs.
        self._budget.take(chosen.source.queries)
        await self._start(chosen, group, now)
        if chosen.source.group == chosen.key or not group.merges:
            return
        shares = False
        for feed in tuple(group.waiting.values()):
            if group.waiting.get(feed.key) is feed and (group.crosses or feed.namespace == namespace):
                if not shares:
                    self._budget.take(chosen.source.queries)
                    shares = True
                await self._start(feed, group, now)
            await self._rest()

    async def _start(self, feed: Feed, group: _FeedGroup, now: float) -> None:
        """Start the poll of a feed, which then waits no more."""
        del group.waiting[feed.key]
        waited, period = feed.waited(now), feed.period
        feed.task = asyncio.create_task(self._poll(feed), name="poll")
        for key in tuple(feed.listeners):
            self._turns.discard(key.namespace, key, feed)
            if self.delays is not None:
                self.delays.note(key, period, waited, now)
            await self._rest()

    async def _report(self, delays: DelayReporter, now: float) -> None:
        for group in tuple(self._groups.values()):
            for feed in tuple(group.waiting.values()):
                waited, period = feed.waited(now), feed.period
                for key in tuple(feed.listeners):
                    delays.note(key, period, waited, now)
                    await self._rest()
            await self._rest()
        for _ in delays.report(now):
            await self._rest()

    # -- polling ---------------------------------------------------------------------------------------------

    async def _poll(self, feed: Feed) -> None:
        started = self.clock.monotonic()
        try:
            await self._fetch(feed, feed.waited(started))
        finally:
            feed.task = feed.queued = None
        if feed.error:
            feed.interval.lose()
        feed.polled = started
        feed.due = max(feed.due + feed.period, started + feed.period / 2)
        if self._has(feed):
            self._plan(feed)
        keys = tuple(feed.listeners)
        for first in range(0, len(keys), _MOST_AT_ONCE):
            with self.defects.contain("unexpected error after polling a metric", feed.key):
                self.answered(keys[first : first + _MOST_AT_ONCE])
            if first + _MOST_AT_ONCE < len(keys):
                await asyncio.sleep(0)

    def _accepted_age(self, feed: Feed) -> float:
        """Return how old an answer may be, in seconds, so that all scalers ask as often as one would.

        One asks at the first turn for which the answer is too old. A turn is paid for the first poll, and for
        those that share the next query.
        """
        turn = 2 * feed.source.queries / self._budget.rate
        pace = turn * (feed.source.shared // turn + 1)
        others = 0 if feed.polled is None else max(0, self.scalers() - 1)
        return min(feed.source.shared + others * pace, feed.period / 2)

    async def _fetch(self, feed: Feed, waited: float) -> None:
        """Take the answer of a source, or note why it is missing."""
        try:
            async with asyncio.timeout(PATIENCE):
                result = await feed.source.poll(self._accepted_age(feed))
            feed.error, feed.pause = result.error, result.pause
            if result.merges is not None:
                group = self._groups[feed.source.group]
                group.merges, group.crosses = result.merges, result.crosses
            if result.answer is not None:
                now = round(self.clock.wall() * SECOND)
                feed.interval.see(result.answer.times, now, sparse=waited > LATE)
                feed.answer = result.answer
                feed.empty = 0 if result.answer.has_value else feed.empty + 1
        except TimeoutError:
            feed.error = "no answer in time"
        except StatusError as error:
            feed.error = error.message
        except SourceError as error:
            feed.error = str(error)
        except Exception as error:  # noqa: BLE001 - a defect in one feed must not stop the others
            feed.error, feed.pause = "unexpected error", DEFECT_PAUSE
            self.defects.note("unexpected error while polling a metric", error, feed.key)
