"""Questions of autoscalers and their latest answers: when each question is asked again, and whose turn it is.

Each question has a period: half the interval of its samples, as their times show it, and the shortest
`syncPeriod` of its autoscalers until that is known. When its period has passed it is due and waits for its
turn. All questions together may send so many queries a second (`--prometheus-max-queries-per-second`); an
External question sends two, one for the values and one for the age of their samples, and one for cpu and
memory sends four.

Turns are fair (`model.fairness`): round-robin over the namespaces that have a due question, then over the
autoscalers of the namespace, and of an autoscaler's questions the one whose wait is the longest part of its
period. So when more is asked for than the rate allows, each namespace still gets an equal share, and one
that asks for less than that is asked about in time, whatever others ask for. Within a share all periods are
stretched alike. A question keeps its rhythm: what it waited for its turn is taken off its next period, down
to half of it, else a namespace within its share would lose one round of turns each time.

Who pays for a question that several autoscalers ask: the one whose turn comes first. The question then
waits for the others no more, so none of them gets less than it would alone. Likewise a query that answers
several questions of a group at once (one metric of the pods of many workloads) is sent in one turn: the
other due questions of the group ride along. They do so only after an answer has shown that the group's
questions merge, because a question that does not merge has to be paid for by itself.

A question that waits for its turn keeps its answer. Once that is late it may raise and not shrink, as any
late value; it is judged by the age that it had when the question was due, and it is given up after `HELD`
seconds. Otherwise an overload would make every metric absent, and nothing could grow when it has to. Across
a long wait the interval of samples is learned only where it cannot be that of the waiting.

A defect in one question (an unexpected exception) is counted, logged, and costs this question a pause. It
never stops the others.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Self

from adapter.autoscaler.delays import Delays
from adapter.autoscaler.feed import LATE, QUERIES, Ask, Asked, Feed, namespace_of
from adapter.errors import SourceError, StatusError
from adapter.model.clock import Clock
from adapter.model.fairness import Turns
from adapter.model.timestamps import SECOND
from adapter.telemetry.logs import facts

__all__ = ["QUERIES", "Ask", "Asked", "Budget", "Feed", "Feeds"]

_log = logging.getLogger(__name__)

PATIENCE = 10.0
"""A question that is not answered after so many seconds has no answer; sources have limits of their own below that."""

SHARED = 0.25
"""An answer to another's question is taken where it is not older, in seconds: an older one may be from before the newest sample."""

DEFECT_PAUSE = 30.0
"""After an unexpected error a question is not asked again for so many seconds."""


_LEAST_WAIT = 0.001
_REPORT_PERIOD = 1.0


@dataclass(slots=True, eq=False)
class _Group:
    """Questions that may be answered by the same queries.

    `merges` and `crosses` are as in `Asked`, as far as an answer has shown.
    """

    feeds: dict[Hashable, Feed] = field(default_factory=dict)
    waiting: dict[Hashable, Feed] = field(default_factory=dict)
    merges: bool = False
    crosses: bool = False


class Budget:
    """So many queries a second, a second's worth at once."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = max(rate, 1.0)
        self._counted: float | None = None

    def take(self, cost: float) -> float:
        """Take what a question costs; return how many seconds to wait before it may leave."""
        now = self._clock.monotonic()
        since = now if self._counted is None else self._counted
        self._tokens = min(max(self._rate, 1.0), self._tokens + (now - since) * self._rate)
        self._counted = now
        self._tokens -= cost
        return max(0.0, -self._tokens / self._rate)


class Feeds:
    """All questions. Use as an async context manager: it owns the tasks that ask."""

    def __init__(
        self,
        clock: Clock,
        *,
        per_second: float,
        answered: Callable[[Iterable[Hashable]], None],
        delays: Delays | None = None,
        defect: Callable[[], None] = lambda: None,
    ) -> None:
        """`answered` is told whose question was answered, or could not be.

        `delays` is told how long questions wait, and `defect` is called for each unexpected error.
        """
        self._clock = clock
        self._budget = Budget(per_second, clock)
        self._answered = answered
        self._delays = delays
        self._count_defect = defect
        self._feeds: dict[Hashable, Feed] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._turns: Turns[Feed] = Turns()
        self._calendar: list[tuple[float, int, Feed]] = []
        self._numbers = itertools.count()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._report_due = 0.0
        self._defect = ""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="questions")
        return self

    async def __aexit__(self, *_: object) -> None:
        flights = [feed.flight for feed in self._feeds.values() if feed.flight is not None]
        tasks = [*flights, *([self._task] if self._task is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._delays is not None:
            self._delays.close()

    def __len__(self) -> int:
        return len(self._feeds)

    def want(self, listener: Hashable, period: float, key: Hashable, make: Callable[[], Feed]) -> Feed:
        """Return the feed of a question that `listener` wants asked about every `period` seconds.

        `make` makes the feed of a new question. A listener is named ``namespace/name``: turns are divided by both.
        """
        now = self._clock.monotonic()
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = make()
            self._groups.setdefault(feed.group, _Group()).feeds[key] = feed
            feed.due = now
            feed.listeners[listener] = period
            self._plan(feed)
            return feed
        feed.listeners[listener] = period
        if feed.queued is not None and feed.flight is None:
            self._turns.add(namespace_of(listener), listener, feed)
        elif feed.asked is not None and feed.asked + feed.period < feed.due:
            feed.due = max(
                now, feed.asked + feed.period
            )  # the new listener does not wait for as long as the others
            self._plan(feed)
        return feed

    def drop(self, listener: Hashable, feed: Feed) -> None:
        """Note that `listener` has no more use for a question; a question without listeners is not asked any more."""
        feed.listeners.pop(listener, None)
        self._turns.discard(namespace_of(listener), listener, feed)
        if feed.listeners or self._feeds.get(feed.key) is not feed:
            return
        del self._feeds[feed.key]
        group = self._groups[feed.group]
        del group.feeds[feed.key]
        group.waiting.pop(feed.key, None)
        if feed.flight is not None:
            feed.flight.cancel()
        if not group.feeds:
            del self._groups[feed.group]

    # -- when --------------------------------------------------------------------------------------------------------------

    def _plan(self, feed: Feed) -> None:
        """Have a question wait for its turn from `feed.due` on."""
        heapq.heappush(self._calendar, (feed.due, next(self._numbers), feed))
        self._wake.set()

    async def _run(self) -> None:
        """Ask the questions that are due, until cancelled."""
        while True:
            self._wake.clear()
            try:
                pause = self._step()
                self._defect = ""
            except Exception as error:  # noqa: BLE001 - a defect met by one question must not stop all others
                if self._defect != repr(error):
                    _log.exception("unexpected error while questions were asked")
                self._defect = repr(error)
                self._count_defect()
                self._replan()
                pause = _REPORT_PERIOD
            await _wait(self._wake, pause)

    def _replan(self) -> None:
        """Plan all questions that are not under way: wherever a defect has left them, they are asked again."""
        self._turns, self._calendar = Turns(), []
        for group in self._groups.values():
            group.waiting.clear()
        for feed in self._feeds.values():
            if feed.flight is None:
                feed.queued = None
                self._plan(feed)
        self._wake.clear()

    def _step(self) -> float | None:
        """Ask what may be asked now; return after how many seconds there is more to do.

        None says that there is nothing to do until something changes.
        """
        now = self._clock.monotonic()
        while self._calendar and self._calendar[0][0] <= now:
            due, _, feed = heapq.heappop(self._calendar)
            if feed.due == due and feed.queued is None and self._feeds.get(feed.key) is feed:
                self._enqueue(feed, now)
        pauses = [self._calendar[0][0] - now] if self._calendar else []
        while self._turns:
            if pause := self._budget.take(0):
                pauses.append(pause)
                break
            self._take_turn(now)
        if self._delays is not None:
            pauses.append(self._report(self._delays, now))
        return min(pauses, default=None)

    def _enqueue(self, feed: Feed, now: float) -> None:
        feed.queued = now
        self._groups[feed.group].waiting[feed.key] = feed
        for listener in feed.listeners:
            self._turns.add(namespace_of(listener), listener, feed)

    def _take_turn(self, now: float) -> None:
        """Ask the next question, and with it those of its group that the same queries answer."""
        _, _, chosen = self._turns.next(lambda each: each.waited(now) / each.period)
        group = self._groups[chosen.group]
        leaving = [chosen]
        if chosen.shares and group.merges:
            leaving += [
                each
                for each in group.waiting.values()
                if each is not chosen and (group.crosses or each.namespace == chosen.namespace)
            ]
        # the first of a group leaves alone, and what comes while its query is under way leaves together
        self._budget.take(chosen.queries * min(len(leaving), 2))
        for feed in leaving:
            del group.waiting[feed.key]
            waited = feed.waited(now)
            for listener in feed.listeners:
                self._turns.discard(namespace_of(listener), listener, feed)
                if self._delays is not None:
                    self._delays.note(namespace_of(listener), listener, feed.period, waited, now)
            feed.flight = asyncio.create_task(self._ask(feed), name="question")

    def _report(self, delays: Delays, now: float) -> float:
        """Report delays once a second; return after how many seconds the next report is due."""
        if now >= self._report_due:
            self._report_due = now + _REPORT_PERIOD
            for namespace, owner, feed in self._turns:
                delays.note(namespace, owner, feed.period, feed.waited(now), now)
            delays.report(now)
        return self._report_due - now

    # -- asking --------------------------------------------------------------------------------------------------------------

    async def _ask(self, feed: Feed) -> None:
        started = self._clock.monotonic()
        try:
            await self._try_to_ask(feed, feed.waited(started))
        finally:
            feed.flight = feed.queued = None
        if feed.error:
            feed.interval.lose()
        feed.asked = started
        feed.due = max(feed.due + feed.period, started + feed.period / 2)
        if self._feeds.get(feed.key) is feed:
            self._plan(feed)
        try:
            self._answered(tuple(feed.listeners))
        except Exception as error:  # noqa: BLE001 - the question is asked again all the same
            self._note_defect(feed, error)
        else:
            feed.defect = feed.defect if feed.error else ""

    async def _try_to_ask(self, feed: Feed, waited: float) -> None:
        """Take the answer to a question, or note why there is none."""
        try:
            async with asyncio.timeout(PATIENCE):
                asked = await feed.ask(min(SHARED, feed.period / 2))
            feed.error, feed.pause = asked.error, asked.pause
            if asked.merges is not None:
                group = self._groups[feed.group]
                group.merges, group.crosses = asked.merges, asked.crosses
            if asked.answer is not None:
                now = round(self._clock.wall() * SECOND)
                feed.interval.see(asked.answer.times, now, sparse=waited > LATE)
                feed.answer = asked.answer
                feed.empty = 0 if asked.answer.has_value else feed.empty + 1
        except TimeoutError:
            feed.error = "no answer in time"
        except StatusError as error:
            feed.error = error.message
        except SourceError as error:
            feed.error = str(error)
        except Exception as error:  # noqa: BLE001 - a defect in one question must not end those of all others
            feed.error, feed.pause = "unexpected error", DEFECT_PAUSE
            self._note_defect(feed, error)

    def _note_defect(self, feed: Feed, error: Exception) -> None:
        """Count a defect, and log it unless the same was the last one of its question."""
        self._count_defect()
        if feed.defect != repr(error):
            feed.defect = repr(error)
            told = facts(question=str(feed.key)[:200])
            _log.error("unexpected error while a question was asked", exc_info=error, extra=told)


async def _wait(wake: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(None if seconds is None else max(_LEAST_WAIT, seconds)):
            await wake.wait()
    except TimeoutError:
        pass
