"""Questions of autoscalers and their latest answers: when each is asked again, and who is told when it was answered.

Here: one task for each group of questions that leave together, the limit on how many leave in a second, how often a source has anything
new to say. Not here: how a question is answered (`sources`), what an answer is worth (`readings`). Law: no question waits for another's
answer; a source is asked no more often than half the interval at which it has anything new.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from adapter.controller.readings import Answer, Interval
from adapter.errors import FastpathError, SourceError, StatusError
from adapter.model.clock import Clock
from adapter.model.instants import SECOND
from adapter.monitoring import facts

_log = logging.getLogger(__name__)

LATE = 2.0
"""An answer is late when the next has been due for longer than its period and so many seconds."""

_LEAST_WAIT = 0.001

PATIENCE = 10.0
"""A question that is not answered after so many seconds has no answer; sources have limits of their own below that."""

SHARED = 0.25
"""An answer to another's question is taken where it is not older, in seconds: an older one may be from before the newest sample."""

FORGOTTEN = 30.0
"""After so many seconds an answer counts no more."""

RESIGNED, SELDOM = 10, 15.0
"""What has never had a value in so many answers is asked for every so many seconds: what is not there must delay nobody else."""


class Asked(NamedTuple):
    """An answer, and after how many seconds at least its source wants to be asked again; 0 leaves that to what is seen."""

    answer: Answer | None
    pause: float = 0.0
    error: str = ""
    """Why there is no answer, where the source keeps its pace all the same."""
    merges: bool = True
    """Whether the question shared its queries with others of its group, where those of the group do."""


Ask = Callable[[float], Awaitable[Asked]]
"""Ask the source; the argument is how many seconds old an answer may be. Raises FastpathError."""


@dataclass(slots=True, eq=False)
class Feed:
    """One question and what is known of its answer.

    `group` says which leave together, `shares` whether those of a group share their queries, each of which has a companion for ages.
    """

    key: Hashable
    group: Hashable
    ask: Ask
    shares: bool = False
    alone: bool = False
    """Whether its last answer came of queries of its own all the same."""
    listeners: dict[Hashable, float] = field(default_factory=dict)
    """Who is told of answers, each with the period it wishes for, in seconds."""
    answer: Answer | None = None
    error: str = ""
    asked: float | None = None
    """When the answer was asked for, in monotonic seconds."""
    pause: float = 0.0
    interval: Interval = field(default_factory=Interval)
    flight: asyncio.Task[None] | None = None
    due: float = 0.0
    """When it is to be asked again, in monotonic seconds."""
    empty: int = 0
    """How many answers in a row had no value."""

    @property
    def period(self) -> float:
        """Return how many seconds lie between two questions."""
        wished = min(self.listeners.values(), default=1.0)
        known = self.interval.known
        if self.pause:
            return max(self.pause, wished)
        if known is None:
            return wished if self.empty < RESIGNED else max(SELDOM, wished)
        return max(known / SECOND / 2, wished / 2)

    def state(self, now: float) -> tuple[Answer | None, str, str]:
        """Return the answer if it counts, why it is late ("" if it is not), and what the last question failed with."""
        if self.error:
            return None, "", self.error
        if self.answer is None or self.asked is None or now > max(self.asked + FORGOTTEN, self.due + self.period):
            return None, "", ""
        late = now > self.due + self.period + LATE
        return self.answer, "its answer is late" if late else "", ""


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

    def __init__(self, clock: Clock, *, per_second: float, answered: Callable[[Iterable[Hashable]], None]) -> None:
        """`answered` is told whose question was answered, or could not be."""
        self._clock = clock
        self._budget = Budget(per_second, clock)
        self._answered = answered
        self._feeds: dict[Hashable, Feed] = {}
        self._groups: dict[Hashable, dict[Hashable, Feed]] = {}
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._wakes: dict[Hashable, asyncio.Event] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        flights = [feed.flight for feed in self._feeds.values() if feed.flight is not None]
        tasks = [*self._tasks.values(), *flights]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._feeds)

    def want(self, listener: Hashable, period: float, key: Hashable, make: Callable[[], Feed]) -> Feed:
        """Return the feed of a question that `listener` wants asked about every `period` seconds; `make` makes it if it is new."""
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = make()
            self._groups.setdefault(feed.group, {})[key] = feed
        feed.listeners[listener] = period
        if feed.group not in self._tasks:
            self._wakes[feed.group] = asyncio.Event()
            self._tasks[feed.group] = asyncio.create_task(self._run(feed.group), name=f"questions {feed.group}"[:80])
        if feed.asked is None:
            self._wakes[feed.group].set()
        elif feed.asked + feed.period < feed.due:  # somebody who does not wait for as long as the others
            feed.due = max(self._clock.monotonic(), feed.asked + feed.period)
            self._wakes[feed.group].set()
        return feed

    def drop(self, listener: Hashable, feed: Feed) -> None:
        """Note that `listener` has no more use for a question; one that nobody wants is not asked any more."""
        feed.listeners.pop(listener, None)
        if feed.listeners or self._feeds.get(feed.key) is not feed:
            return
        del self._feeds[feed.key]
        group = self._groups[feed.group]
        del group[feed.key]
        if feed.flight is not None:
            feed.flight.cancel()
        if not group:
            del self._groups[feed.group]
            self._tasks.pop(feed.group).cancel()
            del self._wakes[feed.group]

    async def _run(self, group: Hashable) -> None:
        """Ask the questions of a group when they are due, for as long as there are any."""
        wake = self._wakes[group]
        while True:
            wake.clear()
            now = self._clock.monotonic()
            due = [feed for feed in self._groups[group].values() if feed.flight is None and feed.due <= now]
            if due:
                # of a group that shares its queries the first leaves alone, and the others together
                await asyncio.sleep(self._budget.take(_cost(due)))
            for feed in due:
                if feed.listeners and feed.flight is None:
                    feed.flight = asyncio.create_task(self._ask(feed, wake), name="question")
            now = self._clock.monotonic()
            waits = [feed.due - now for feed in self._groups[group].values() if feed.flight is None]
            await _wait(wake, min(waits, default=None))

    async def _ask(self, feed: Feed, wake: asyncio.Event) -> None:
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                asked = await feed.ask(min(SHARED, feed.period / 2))
        except TimeoutError:
            feed.error = "no answer in time"
        except StatusError as error:
            feed.error = error.message
        except SourceError as error:
            feed.error = str(error)
        except Exception as error:  # noqa: BLE001 - a defect in one question must not end those of all others
            feed.error = "unexpected error"
            _log.exception("unexpected error while a question was asked", extra=facts(question=str(feed.key)[:200]))
            if not isinstance(error, FastpathError):  # a defect: said, and the metric is without a value
                feed.pause = FORGOTTEN
        else:
            feed.error, feed.pause, feed.alone = asked.error, asked.pause, not asked.merges
            if asked.answer is not None:
                feed.answer = asked.answer
                feed.empty = 0 if asked.answer.has_value else feed.empty + 1
                feed.interval.see(asked.answer.times, round(self._clock.wall() * SECOND))
        finally:
            feed.flight = None
        if feed.error:
            feed.interval.lose()
        feed.asked = started
        feed.due = started + feed.period
        wake.set()
        self._answered(tuple(feed.listeners))


def _cost(due: list[Feed]) -> int:
    """Return how many queries questions of one group send at most: of those that share, one leaves alone and the rest together."""
    sharing = sum(feed.shares and not feed.alone for feed in due)
    return 2 * (min(sharing, 2) + len(due) - sharing)


async def _wait(wake: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(None if seconds is None else max(_LEAST_WAIT, seconds)):
            await wake.wait()
    except TimeoutError:
        pass
