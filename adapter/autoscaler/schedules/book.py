"""Which schedules are for which autoscaler, and when their bounds change.

A boundary is no event of the cluster. So each answer says until when it holds, and the loop decides the
autoscaler again at that instant, which is a time of day.

A tenant chooses how many schedules there are and how often their windows begin. So their spans are computed
in steps of some milliseconds, and the steps take turns by namespace as those of scrapes do: until the bounds
of an autoscaler are known it is not decided, and others are. The work for one autoscaler is limited:
`MOST_WINDOWS` and `MOST_BEGINS` say how much of its schedules counts.
"""

import asyncio
import bisect
import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.interfaces import Key
from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import ScheduleDocument, ScheduleTarget
from adapter.bounds.timeline import NO_BOUNDS, Bounds, BoundsTimeline, Lead, SpansOfDay
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.schedules import ScheduleCache
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from adapter.model.timestamps import SECOND
from adapter.scrape.schedule import FairTurns, ScrapeJob
from adapter.telemetry.problems import Defects, ProblemLog

MOST_WINDOWS = 500
"""The most windows of all schedules for one autoscaler: each of its boundaries looks at all of them."""

MOST_BEGINS = 5000
"""How often the windows of all schedules for one autoscaler may begin on a day."""

PROBLEM = "schedule"

UNEXPECTED = "unexpected error while computing the spans of schedules"


@dataclass(slots=True, eq=False)
class _ScheduleEntry:
    """A schedule that can be used, and what it costs."""

    targets: Sequence[Key]
    document: ScheduleDocument
    spans: SpansOfDay
    windows: int
    begins: int


@dataclass(slots=True)
class _Target:
    """The schedules for one autoscaler, by name and in the order of names, and their bounds."""

    entries: dict[str, _ScheduleEntry] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    windows: int = 0
    begins: int = 0
    timeline: BoundsTimeline | None = None
    """None after a change."""

    def put(self, name: str, entry: _ScheduleEntry) -> None:
        bisect.insort(self.names, name)
        self.entries[name] = entry
        self._count(entry, 1)

    def remove(self, name: str) -> None:
        del self.names[bisect.bisect_left(self.names, name)]
        self._count(self.entries.pop(name), -1)

    def _count(self, entry: _ScheduleEntry, by: int) -> None:
        self.windows += by * entry.windows
        self.begins += by * entry.begins
        self.timeline = None

    def bounds(self) -> BoundsTimeline:
        """Return the bounds of the schedules that count: the first by name, as many as are allowed."""
        if self.timeline is None:
            excess, most_windows, most_begins = "", MOST_WINDOWS, MOST_BEGINS
            parts = []
            for name in self.names:
                entry = self.entries[name]
                most_windows, most_begins = most_windows - entry.windows, most_begins - entry.begins
                if most_windows < 0 or most_begins < 0:
                    excess = (
                        f"{len(self.names)} FastPathSchedules with {self.windows} windows that begin "
                        f"{self.begins} times a day select it: expected at most {MOST_WINDOWS} windows that "
                        f"begin at most {MOST_BEGINS} times; by name, {name} and those after it do not "
                        "count, and it is not scaled down"
                    )
                    break
                parts.append(entry.spans)
            self.timeline = BoundsTimeline((), parts, excess)
        return self.timeline


_MOST_AHEAD = 32
"""How many changes of bounds are looked up ahead."""


class ScheduleBook:
    """The schedules by the autoscalers that they are for, while the tasks of `cache` run."""

    def __init__(self, watching: ReflectorContext, problems: ProblemLog, changes: Changes) -> None:
        self.cache = ScheduleCache(watching, self._changed)
        self._changes = changes
        self._problems = problems
        self._known: dict[str, _ScheduleEntry] = {}
        self._targets: dict[Key, _Target] = {}
        self.turns = FairTurns(watching.clock)
        """The turns of namespaces for all that is computed about schedules."""
        self._renewals: dict[SpansOfDay, ScrapeJob] = {}

    @property
    def synced(self) -> bool:
        """Whether all schedules are known."""
        return self.cache.synced

    def applied(self, key: Key) -> tuple[ScheduleDocument, ...]:
        """Return the schedules that count for an autoscaler."""
        target = self._targets.get(key)
        if target is None:
            return ()
        counted = target.names[: len(target.bounds().parts)]
        return tuple(target.entries[name].document for name in counted)

    def bounds_of(self, key: Key, now: int, lead: Lead) -> tuple[Bounds, int | None]:
        """Return the bounds of an autoscaler at `now`, and until when they hold (ns; None: no end).

        A HorizontalPodAutoscaler has no maximum. `lead` is that of minimums that begin early, if their
        schedule asks for that. NotSyncedError while the bounds are being computed; the autoscaler is touched
        when they are known.
        """
        if not self.cache.synced:
            raise NotSyncedError("the first list of schedules is not complete")
        target = self._targets.get(key)
        if target is None:
            return NO_BOUNDS, None
        timeline, instant = target.bounds(), now // SECOND
        if not timeline.keeps(instant, lead):
            for part in timeline.parts:  # those that are not known, or will not be soon
                if part.is_ending(instant) and part not in self._renewals:
                    name, steps = part.schedule.name, self._renew(part, instant)
                    namespace, defects = name.partition("/")[0], self._problems.defects
                    self._renewals[part] = start(self.turns, namespace, steps, defects, name)
            if not all(part.covers(instant) for part in timeline.parts):
                raise NotSyncedError("the bounds of its schedules are being computed")
        bounds, until = timeline.at(instant, lead), timeline.next_change(instant, lead) * SECOND
        return bounds.without_max() if key.is_native else bounds, until

    def bounds_ahead(self, key: Key, now: int, until: int, lead: Lead) -> Sequence[tuple[int, Bounds]]:
        """Return the bounds that follow, as far as they are computed, and when they begin; at most 32.

        It computes nothing: looking ahead delays no decision.
        """
        target = self._targets.get(key)
        if target is None:
            return ()
        changes = itertools.islice(target.bounds().changes(now // SECOND, until // SECOND, lead), _MOST_AHEAD)
        return [(at * SECOND, bounds.without_max() if key.is_native else bounds) for at, bounds in changes]

    def _renew(self, part: SpansOfDay, instant: int) -> Generator[None, None, None]:
        is_known = part.covers(instant)
        try:
            yield from part.renew(instant)
        finally:
            self._renewals.pop(part, None)
        entry = self._known.get(part.schedule.name)
        if entry is not None and entry.spans is part and not is_known:
            self._changes.note(entry.targets)

    def _changed(self, namespace: str, name: str) -> None:
        """Follow a change of a schedule. One that cannot be used stays as it was."""
        watched, subject = self.cache.find(namespace, name), f"{namespace}/{name}"
        if watched is not None and watched.schedule is None:
            message = "a FastPathSchedule cannot be used; the last valid one counts"
            self._problems.report(PROBLEM, message, "; ".join(map(str, watched.faults)), subject=subject)
            return
        entry = None
        if watched is not None and watched.schedule is not None:
            plain = watched.schedule.schedule
            keys = [key_of(namespace, target) for target in watched.schedule.targets]
            document, begins = watched.schedule.document, windows.begins_a_day(plain)
            entry = _ScheduleEntry(keys, document, SpansOfDay(plain), len(plain.windows), begins)
        self._problems.resolve(PROBLEM, subject=subject)
        touched: dict[Key, None] = {}
        before = self._known.pop(subject, None)
        if before is not None:
            self._forget(subject, before)
            touched |= dict.fromkeys(before.targets)
        if entry is not None:
            self._known[subject] = entry
            for key in entry.targets:
                self._targets.setdefault(key, _Target()).put(subject, entry)
            touched |= dict.fromkeys(entry.targets)
        self._changes.note_namespace(namespace)
        self._changes.note(touched)

    def _forget(self, subject: str, entry: _ScheduleEntry) -> None:
        job = self._renewals.pop(entry.spans, None)
        if job is not None:
            self.turns.abort(job)
        for key in entry.targets:
            target = self._targets[key]
            target.remove(subject)
            if not target.names:
                del self._targets[key]


def start(
    turns: FairTurns, namespace: str, steps: Generator[None, None, None], defects: Defects, subject: str = ""
) -> ScrapeJob:
    """Start a job for which nothing waits; a defect in it is noted."""

    def note_defect(done: asyncio.Future[None]) -> None:
        with defects.contain(UNEXPECTED, subject):
            done.result()

    job = turns.start(namespace, steps)
    job.done.add_done_callback(note_defect)
    return job


def key_of(namespace: str, target: ScheduleTarget) -> Key:
    return Key(namespace, target.name, is_native=target.kind == HPA_KIND)
