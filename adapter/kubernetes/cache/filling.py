"""How a reflector fills a store: a list names all objects that there are, and an event changes one.

Objects that a list does not name are removed after it, so a list that breaks off removes nothing. One object
that cannot be read, or whose change the store fails on, fails neither list nor watch: that is reported, and
the store decides what counts in its place. Objects of slices that the scaler does not keep are dropped here,
so a store never sees one.

An unreadable object is reported once, and no more than some by name: one client can create very many.
"""

import abc
import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from adapter.kubernetes.cache.scope import Coverage
from adapter.kubernetes.codec import Unreadable, WatchEvent, describe
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

MAX_REASONS = 40
"""Upper bound on distinct `reason` label values of one reflector; the API server has fewer reasons.
Further ones count as Other.
"""

MOST_NAMED = 50
"""Limit of unreadable objects that are reported by name."""

_SWEEP_STEP = 2_000
_PROBLEM = "object"
_UNREADABLE = "an object cannot be read; its last state counts"


class NamedObject(Protocol):
    """An object of any kind. `namespace` is "" for cluster-scoped objects."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedObject)


class ObjectStore(abc.ABC, Generic[T]):
    """The objects of one kind in memory: those of the slices that `coverage` keeps.

    Where an argument `namespace` is "", all are meant.
    """

    def __init__(self, coverage: Coverage, reports: "ReflectorReports") -> None:
        self._coverage = coverage
        self._reports = reports

    # -- what each kind does ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def put(self, obj: T) -> None:
        """Add an object or replace it."""

    def lose(self, lost: Unreadable) -> None:
        """Note that an object cannot be read. It is never removed for that."""

    @abc.abstractmethod
    def remove(self, namespace: str, name: str) -> None:
        """Remove an object; an unknown one is ignored."""

    @abc.abstractmethod
    def count(self) -> int: ...

    @abc.abstractmethod
    def listing(self, namespace: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each namespace with the names in it. The store may change meanwhile."""

    def end_batch(self) -> None:
        """End a batch of events: changes may be reported now."""

    def listed(self, namespace: str) -> Iterator[None]:  # noqa: ARG002 - for stores of several lists
        """End a list: report the changes, and yield wherever other work may run."""
        return iter(())

    # -- lists and events ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def replacing(self, namespace: str) -> AsyncIterator[Callable[[T | Unreadable], None]]:
        """Put objects of a namespace within, by the yielded function; remove the others at the end."""
        listed: dict[str, set[str]] | None = {} if self.count() else None

        def put(obj: T | Unreadable) -> None:
            self._put(obj)
            if listed is not None:
                listed.setdefault(obj.namespace, set()).add(obj.name)

        yield put
        if listed is not None:
            await self._sweep(namespace, listed)

    async def clear(self, namespace: str) -> None:
        await self._sweep(namespace, {})

    async def _sweep(self, within: str, listed: dict[str, set[str]]) -> None:
        for namespace, names in self.listing(within):
            current = listed.get(namespace, set())
            for count, name in enumerate(names, 1):
                if name not in current:
                    self._remove(namespace, name)
                if count % _SWEEP_STEP == 0:
                    await asyncio.sleep(0)

    def apply(self, event: WatchEvent[T]) -> None:
        changed = event.object
        if changed is None or self._coverage.is_listed(changed.namespace, event.version):
            return
        if event.type == "DELETED":
            self._remove(changed.namespace, changed.name)
        else:
            self._put(changed)

    def _put(self, obj: T | Unreadable) -> None:
        """Put an object. Neither it nor what follows from it keeps the reflector from the others."""
        if not (self._coverage.is_whole or self._coverage.keeps(obj.namespace)):
            return  # its namespace could not be read without decoding it
        try:
            if isinstance(obj, Unreadable):
                self.lose(obj)
                self._reports.report_unreadable(obj.namespace, obj.name, obj.reason)
            else:
                self.put(obj)
                self._reports.resolve_unreadable(obj.namespace, obj.name)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_defect(obj.namespace, obj.name, error)

    def _remove(self, namespace: str, name: str) -> None:
        try:
            self.remove(namespace, name)
            self._reports.resolve_unreadable(namespace, name)
        except Exception as error:  # noqa: BLE001 - as in _put
            self._report_defect(namespace, name, error)

    def _report_defect(self, namespace: str, name: str, error: Exception) -> None:
        if self._reports.report_unreadable(namespace, name, describe(error)):
            details = facts(resource=self._reports.name)
            _log.error("unexpected error about one object", extra=details, exc_info=error)


class ReflectorReports:
    """What a reflector reports: its self-metrics and unreadable objects. `name` is its label in metrics."""

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
