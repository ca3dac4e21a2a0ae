"""What a reflector reports: its state, its self-metrics, and the objects that cannot be read.

An unreadable object is reported once, and no more than some by name: one client can create very many.
"""

from typing import NamedTuple

from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

MAX_REASONS = 40
"""Upper bound on distinct `reason` label values of one reflector; the API server has fewer reasons.
Further ones count as Other.
"""

MOST_NAMED = 50
"""Limit of unreadable objects that are reported by name."""

_PROBLEM = "object"
_UNREADABLE = "an object cannot be read; its last state counts"


class ReflectorStatus(NamedTuple):
    """The state of a reflector.

    `age` is the time in seconds since the API server last sent a list, an event or a bookmark (None: never),
    `stale` whether that is too long. `last_error` is "" while list and watch succeed.
    """

    age: float | None
    stale: bool
    last_error: str


class ReflectorReports:
    """The reports of one reflector; `name` is its label in metrics."""

    def __init__(self, monitoring: Monitoring, problems: ProblemLog, name: str) -> None:
        self.name = name
        self._problems = problems
        self._errors = monitoring.informer_errors
        self._reasons: set[str] = set()
        self._unreadable: set[tuple[str, str]] = set()
        self._has_more = False
        self.objects = monitoring.informer_objects.labels(name)
        self.last_event = monitoring.informer_event.labels(name)
        self.synced = monitoring.informer_synced.labels(name)
        self.relists = monitoring.informer_relists.labels(name)
        self.events = monitoring.informer_events.labels(name)

    def count_error(self, reason: str) -> None:
        if reason not in self._reasons:
            if len(self._reasons) >= MAX_REASONS:
                reason = "Other"
            self._reasons.add(reason)
        self._errors.labels(self.name, reason).inc()

    def report_unreadable(self, namespace: str, name: str, reason: str) -> bool:
        """Report an object; tell whether it is reported by name for the first time."""
        self.count_error("Unreadable")
        key = namespace, name
        is_new = key not in self._unreadable
        if not is_new or len(self._unreadable) < MOST_NAMED:
            self._unreadable.add(key)
            self._problems.report(_PROBLEM, _UNREADABLE, reason, subject=self._subject(key))
            return is_new
        self._has_more = True
        more = f"more than {MOST_NAMED} objects cannot be read"
        self._problems.report(_PROBLEM, _UNREADABLE, more, subject=self.name)
        return False

    def resolve_unreadable(self, namespace: str, name: str) -> None:
        """Note that an object could be read, or is gone."""
        key = namespace, name
        if key in self._unreadable:
            self._unreadable.discard(key)
            self._problems.resolve(_PROBLEM, subject=self._subject(key))
            if self._has_more and not self._unreadable:
                self._has_more = False
                self._problems.resolve(_PROBLEM, subject=self.name)

    def close(self) -> None:
        """Resolve what was reported, because the kind is no longer watched."""
        for problem in ("informer", "watch"):
            self._problems.resolve(problem, subject=self.name)
        for key in tuple(self._unreadable):
            self.resolve_unreadable(*key)

    def _subject(self, key: tuple[str, str]) -> str:
        return f"{self.name} {'/'.join(filter(None, key))}"
