"""Which forecast is worked on next, and how soon one may have a verdict again.

All namespaces share one process, so jobs come in turns of namespaces, and one with many autoscalers delays
another by a job at most. Plans come before verdicts, since a plan has to be ready when its hour begins, but
after some plans a verdict has its turn.

A verdict takes seconds of CPU, and a change of the spec asks for a new one. So verdicts of an autoscaler are
some time apart, also after it was changed, or deleted and made again. Only a job that cost next to nothing,
such as one for a metric without a query, is repeated at once after a change.
"""

from typing import Final

from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast.job import ForecastAnswer
from adapter.model.fairness import Turns

PLANS_IN_A_ROW: Final = 3
"""After so many plans comes a verdict that waits."""

RETRY: Final = 300
"""Seconds to the next try of a job that failed."""

PAUSE: Final = 1800
"""The least seconds from a verdict of an autoscaler to its next."""

MOST_PAUSES: Final = 10_000
"""Of so many autoscalers it is known when they had a verdict."""


class JobQueue:
    """The jobs that are due, one an autoscaler."""

    def __init__(self) -> None:
        self._plans: Turns[Key] = Turns()
        self._verdicts: Turns[Key] = Turns()
        self._in_a_row = 0

    def add(self, key: Key, *, judges: bool) -> None:
        """Add a job that is due; it keeps its place if it is there already."""
        kind, other = (self._verdicts, self._plans) if judges else (self._plans, self._verdicts)
        other.discard(key.namespace, key, key)
        kind.add(key.namespace, key, key)

    def discard(self, key: Key) -> None:
        for each in (self._plans, self._verdicts):
            each.discard(key.namespace, key, key)

    def take(self) -> Key | None:
        """Remove the job whose turn it is and return its autoscaler, None if no job is due."""
        if self._plans and (self._in_a_row < PLANS_IN_A_ROW or not self._verdicts):
            kind, self._in_a_row = self._plans, self._in_a_row + 1 if self._verdicts else 0
        elif self._verdicts:
            kind, self._in_a_row = self._verdicts, 0
        else:
            return None
        _, _, key = kind.next()
        self.discard(key)
        return key


class Pauses:
    """Until when an autoscaler has to wait for its next verdict, in seconds of the decision clock."""

    def __init__(self, most: int = MOST_PAUSES) -> None:
        self._most = most
        self._ends: dict[Key, int] = {}

    def begin(self, key: Key, now: int, seconds: int) -> None:
        if not seconds:
            return
        if len(self._ends) >= self._most:
            self._ends = {each: end for each, end in self._ends.items() if end > now}
        self._ends.pop(key, None)
        while len(self._ends) >= self._most:
            del self._ends[next(iter(self._ends))]
        self._ends[key] = now + seconds

    def end_of(self, key: Key, now: int) -> int:
        """Return when an autoscaler may have a verdict, `now` if it may have one at once."""
        end = self._ends.get(key, now)
        # The clock may have been set back: then a pause that is far away says nothing.
        return end if now < end <= now + PAUSE else now


def pause_after(answer: ForecastAnswer) -> int:
    """Return how many seconds after a job for a verdict its autoscaler may have the next one."""
    if answer.verdict is not None:
        return RETRY if answer.verdict.missing else PAUSE
    if answer.reason in jobs.COMPUTED:
        return PAUSE
    return RETRY if answer.reason in jobs.READ else 0
