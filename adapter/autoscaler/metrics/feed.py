"""One metric that is polled: its latest answer, when it is polled next, and how late it is.

A feed is state without behavior; `polling` polls it. An answer becomes *late* when the next one is overdue:
it may still scale up, but not down. After `FORGOTTEN` seconds it is dropped. `DelayReporter` reports polls
that are late because the query budget is used up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.metrics.readings import SampleInterval, SourceAnswer
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

LATE = 2.0
"""An answer is late when the next one is overdue by its period and so many seconds."""

FORGOTTEN = 30.0
"""An answer is dropped after so many seconds, unless the feed waits for the query budget."""

HELD = 300.0
"""An answer is dropped after so many seconds even then: the lookback of an instant query."""

RESIGNED, SELDOM = 10, 15.0
"""After so many answers without a value a feed is polled every so many seconds: a metric that does not exist
must not delay the others."""

LATE_IN_TURN = "its answer is late, it waits for its turn (--prometheus-max-queries-per-second)"
RETURNING = "it was absent, and not all of its series may be back"
NEVER_IN_TURN = "no answer yet, it waits for its turn (--prometheus-max-queries-per-second)"


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


@dataclass(slots=True, eq=False)
class Feed:
    """One polled metric.

    Feeds of one `group` may be answered by the same queries; `shares` says whether a group can have several.
    `queries` is how many queries a poll sends.
    """

    key: Hashable
    group: Hashable
    poll: Poll
    shares: bool = False
    queries: int = QUERIES
    listeners: dict[Key, float] = field(default_factory=dict)
    """The autoscalers that use the metric, each with the period that it wants, in seconds."""
    answer: SourceAnswer | None = None
    error: str = ""
    polled: float | None = None
    """When the last poll started, in monotonic seconds."""
    pause: float = 0.0
    interval: SampleInterval = field(default_factory=SampleInterval)
    task: asyncio.Task[None] | None = None
    """The poll in progress."""
    due: float = 0.0
    """When it is to be polled next, in monotonic seconds."""
    queued: float | None = None
    """Since when it waits for the query budget, in monotonic seconds, until it is answered; None before it is
    due."""
    empty: int = 0
    """The number of answers in a row without a value."""
    defect: str = ""
    """The last unexpected error, which is logged only once."""

    @property
    def namespace(self) -> str:
        """The namespace of its first listener."""
        return next((key.namespace for key in self.listeners), "")

    @property
    def period(self) -> float:
        """The time between two polls, in seconds: half the interval of the samples once that is known."""
        wished = min(self.listeners.values(), default=1.0)
        known = self.interval.known
        if self.pause:
            return max(self.pause, wished)
        if known is None:
            return wished if self.empty < RESIGNED else max(SELDOM, wished)
        return max(known / SECOND / 2, wished / 2)

    def waited(self, now: float) -> float:
        """Return for how many seconds it has waited for the query budget."""
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

CALM = 60.0
"""A problem is resolved when no feed of the namespace has been delayed for so many seconds."""

REPORT_AGAIN = 600.0
"""An autoscaler whose feeds stay delayed gets an event every so many seconds."""

PROBLEM = "query-budget"
_MESSAGE = "queries wait for --prometheus-max-queries-per-second; late values may scale up, not down"


class DelayReporter:
    """Collects delays, and reports them each time `report` is called.

    There are three audiences. The gauge shows by how much the longest delay stretches a period. The problem
    names the namespaces, for the operator of Fastpath, who can raise the rate. `delayed` gets the
    autoscalers, each of which has an event, for their owners.
    """

    def __init__(
        self, monitoring: Monitoring, problems: ProblemLog, delayed: Callable[[Iterable[Key]], None]
    ) -> None:
        """`delayed` gets the autoscalers with delayed feeds, each at most once in `REPORT_AGAIN` seconds."""
        self._stretch = monitoring.scaler_question_stretch
        self._stretch.set(1.0)
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

    def report(self, now: float) -> None:
        """Report what was noted since the last report."""
        self._stretch.set(self._ratio)
        self._ratio = 1.0
        for namespace, last in [*self._namespaces.items()]:
            if last == now:
                reason = "the rate is too low for the metrics of the autoscalers"
                self._problems.report(PROBLEM, _MESSAGE, reason, subject=namespace)
            elif now - last > CALM:
                del self._namespaces[namespace]
                self._problems.resolve(PROBLEM, subject=namespace)
        self._reported = {key: at for key, at in self._reported.items() if now - at < REPORT_AGAIN}
        news = tuple(key for key in self._keys if key not in self._reported)
        self._keys.clear()
        self._reported |= dict.fromkeys(news, now)
        if news:
            self._delayed(news)

    def close(self) -> None:
        """Resolve all problems: nothing is polled any more."""
        self._stretch.set(1.0)
        for namespace in self._namespaces:
            self._problems.resolve(PROBLEM, subject=namespace)
        self._namespaces.clear()
