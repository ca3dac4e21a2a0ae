"""One question of autoscalers: what is known of its answer, and how long that counts.

A value; `feeds` asks the questions. The constants here say when an answer is late, which means that it may
raise and not shrink, and when it is given up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.autoscaler.delays import DELAYED
from adapter.autoscaler.readings import Answer, Interval
from adapter.model.timestamps import SECOND

LATE = 2.0
"""An answer is late when the next has been due for longer than its period and so many seconds."""

FORGOTTEN = 30.0
"""After so many seconds an answer counts no more, unless its question waits for its turn."""

HELD = 300.0
"""After so many seconds the answer to a question that waits for its turn counts no more: how far back an instant query looks."""

RESIGNED, SELDOM = 10, 15.0
"""What has never had a value in so many answers is asked for every so many seconds: what is not there must not delay other questions."""

LATE_IN_TURN = "its answer is late, it waits for its turn (--prometheus-max-queries-per-second)"
RETURNING = "it was absent, and not all of its series may be back"
NEVER_IN_TURN = "no answer yet, it waits for its turn (--prometheus-max-queries-per-second)"


class Asked(NamedTuple):
    """An answer, and after how many seconds at least its source wants to be asked again; 0 leaves that to what is seen."""

    answer: Answer | None
    pause: float = 0.0
    error: str = ""
    """Why there is no answer, where the source keeps its pace all the same."""
    merges: bool | None = True
    """Whether questions of its group share their queries; None where nothing was asked that could tell."""
    crosses: bool = True
    """Whether questions of several namespaces do."""


QUERIES = 2
"""How many queries most questions send: one for the values, one for the age of their samples."""

Ask = Callable[[float], Awaitable[Asked]]
"""Ask the source; the argument is how many seconds old an answer may be. Raises FastpathError."""


@dataclass(slots=True, eq=False)
class Feed:
    """One question and what is known of its answer.

    `group` says which questions may be answered by the same queries, `shares` whether there can be others
    in its group. `queries` is how many queries the question sends.
    """

    key: Hashable
    group: Hashable
    ask: Ask
    shares: bool = False
    queries: int = QUERIES
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
    queued: float | None = None
    """Since when it waits for its turn, in monotonic seconds, until it is answered; None before it is due."""
    empty: int = 0
    """How many answers in a row had no value."""
    defect: str = ""
    """The last unexpected error, which is logged once."""

    @property
    def namespace(self) -> str:
        """Return the namespace of its first listener."""
        return next(map(namespace_of, self.listeners), "")

    @property
    def period(self) -> float:
        """Return how many seconds should lie between two questions."""
        wished = min(self.listeners.values(), default=1.0)
        known = self.interval.known
        if self.pause:
            return max(self.pause, wished)
        if known is None:
            return wished if self.empty < RESIGNED else max(SELDOM, wished)
        return max(known / SECOND / 2, wished / 2)

    def waited(self, now: float) -> float:
        """Return for how many seconds it has waited for its turn."""
        return 0.0 if self.queued is None else max(0.0, now - self.queued)

    def overdue(self, now: float) -> float:
        """Return how many seconds ago it was due, 0 if it is not."""
        return max(0.0, now - self.due)

    def state(self, now: float) -> tuple[Answer | None, str, str]:
        """Return the answer if it counts, why it is late ("" if it is not), and why there is none.

        The last is "" as long as the first answer is awaited.
        """
        waits = self.queued is not None and self.flight is None
        if self.error:
            return None, "", self.error
        if self.answer is None or self.asked is None:
            return None, "", NEVER_IN_TURN if waits and self.waited(now) >= DELAYED else ""
        lasts = FORGOTTEN if self.queued is None else HELD
        if now > max(self.asked + lasts, self.due + self.period):
            return None, "", NEVER_IN_TURN if waits else ""
        if now <= self.due + self.period + LATE:
            returns = self.interval.returning and self.answer.times
            return self.answer, RETURNING if returns else "", ""
        return self.answer, LATE_IN_TURN if waits else "its answer is late", ""


def namespace_of(listener: Hashable) -> str:
    """Return the namespace of a listener, which is named ``namespace/name``."""
    return str(listener).partition("/")[0]
