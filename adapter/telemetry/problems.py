"""Problems: conditions that the log reports when they begin and end, and that metrics count every time.

A problem has a `fault`, one of few words and the label of its metrics, and a `subject`: the rule, selector or
kind it concerns. A failure that repeats a thousand times a second must neither flood the log nor disappear
from it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cachetools import FIFOCache

from adapter.errors import InternalError, PrometheusError, StatusError, TooManyRequestsError
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND, write_instant
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

log = logging.getLogger("adapter.faults")

UNFETCHED = "unable to fetch metrics"
UNLISTED = "unable to list matching resources"

REMEMBERED = 10_000
"""Of so many errors it is known that they were logged."""

_SUBJECT_LENGTH = 200

_TEXTS_REMEMBERED = 16

# Failures that concern one query rather than the server.
_OF_THE_QUERY = frozenset({"query", "type", "decode", "size", "timeout", "partial"})
# Failures of a list of series that Prometheus itself has: its address, or who answers there.
_SILENT = frozenset({"unreachable", "status"})
# A problem of one rule or kind ends after this many seconds without a report, because other rules may work
# meanwhile.
_EXPIRY = 60.0
# The problem of Prometheus ends when it answers, and without a report only after this time: a process that
# gets no more requests, because they go to another replica, sends no query that could succeed. Files for pods
# are checked at scrapes, which may be more than a minute apart.
_LONG_EXPIRY = 300.0
_SLOWLY_REPORTED = frozenset({"prometheus", "credentials"})
EXPIRY_CHECK = 5.0


class Defects:
    """Unexpected errors: what is wrong about one object stays with that object.

    A loop over the objects of many tenants contains the work on each of them: an exception that no code
    expects is counted, logged with its traceback, and the loop goes on with the next object. The log has it
    once for each object and type of exception, since a loop meets the same object again a second later.
    """

    def __init__(self, monitoring: Monitoring) -> None:
        self._count = monitoring.scaler_defects
        self._logged: FIFOCache[int, None] = FIFOCache(REMEMBERED)

    def note(self, message: str, error: Exception, subject: object = "") -> None:
        """Count an error, and log it unless it repeats. `message` is constant, `subject` names the object."""
        self._count.inc()
        text = str(subject)[:_SUBJECT_LENGTH]
        seen = hash((message, text, type(error)))
        if seen in self._logged:
            return
        self._logged[seen] = None
        log.error(message, exc_info=error, extra=facts(**({"subject": text} if text else {})))

    @contextlib.contextmanager
    def contain(self, message: str, subject: object = "") -> Iterator[None]:
        """Note an error of the block, which ends there, in place of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the work on other objects goes on whatever it is
            self.note(message, error, subject)


@dataclass(slots=True)
class _Active:
    since: float
    message: str
    latest: str
    count: int = 0
    texts: set[str] = field(default_factory=set)


class ProblemLog:
    """The active problems of a process.

    A problem is logged when it begins, when its text is new for it, and when it ends. At most 16 texts of a
    problem are logged, so that a text with a changing part cannot flood the log.
    """

    def __init__(self, monitoring: Monitoring, clock: Clock) -> None:
        self._monitoring = monitoring
        self._clock = clock
        self.defects = Defects(monitoring)
        self._active: dict[tuple[str, str], _Active] = {}

    def report(
        self,
        fault: str,
        message: str,
        text: str,
        *,
        subject: str = "",
        public: str = "",
        cause: str = "",
        **details: object,
    ) -> None:
        """Report that a problem exists: `message` is constant, a new `text` is logged, `details` are facts.

        The health checks show `public` in place of `text`, where `text` contains an address. Of texts with
        one `cause`, the first is logged.
        """
        self._monitoring.faults.labels(fault).inc()
        key = (fault, subject)
        active = self._active.get(key)
        if active is None:
            active = self._active[key] = _Active(self._clock.monotonic(), message, text)
            self._monitoring.faults_active.labels(fault).inc()
        active.count += 1
        active.latest = public or text
        cause = cause or text
        if cause in active.texts or len(active.texts) >= _TEXTS_REMEMBERED:
            return
        active.texts.add(cause)
        log.warning(message, extra=facts(fault=fault, **_subject(subject), error=text, **details))

    def follow(self, fault: str, message: str, text: str, **details: Any) -> None:
        """Report a problem without a subject, or end it if there is no text."""
        if text:
            self.report(fault, message, text, **details)
        else:
            self.resolve(fault)

    def since(self, fault: str) -> str:
        """Return since when a problem without a subject is active, in UTC, "" if it is not."""
        active = self._active.get((fault, ""))
        if active is None:
            return ""
        begun = self._clock.wall() - self._clock.monotonic() + active.since
        return write_instant(round(begun) * SECOND)

    def resolve(self, fault: str, *, subject: str = "") -> None:
        """End a problem if it is active; the log gets its duration and how often it was reported."""
        active = self._active.pop((fault, subject), None)
        if active is None:
            return
        self._monitoring.faults_active.labels(fault).dec()
        seconds = round(self._clock.monotonic() - active.since, 3)
        values = facts(
            fault=fault, **_subject(subject), was=active.message, seconds=seconds, times=active.count
        )
        log.info("fault ended", extra=values)

    def active(self) -> dict[tuple[str, str], str]:
        """Return the latest text of every active problem by fault and subject, oldest first."""
        return {key: active.latest for key, active in self._active.items()}


class SourceProblems:
    """The problems of Prometheus, of rules and of kinds, as requests meet them.

    All providers share one, so that an outage of Prometheus is one problem.
    """

    def __init__(self, clock: Clock, problems: ProblemLog) -> None:
        self._clock = clock
        self._problems = problems
        self.reported: dict[tuple[str, str], float] = {}
        """When each fault of a subject was last reported (monotonic seconds)."""

    def report(self, fault: str, message: str, text: str, subject: str = "", **details: Any) -> None:
        """Report a problem; the arguments are those of `ProblemLog.report`."""
        self.reported[fault, subject] = self._clock.monotonic()
        self._problems.report(fault, message, text, subject=subject, **details)

    def expire(self, fault: str, subject: str, after: float = _EXPIRY) -> None:
        """End a problem that was last reported more than `after` seconds ago."""
        reported = self.reported.get((fault, subject))
        if reported is not None and self._clock.monotonic() - reported > after:
            self.resolve(fault, subject=subject)

    def resolve(self, fault: str, *, subject: str = "") -> None:
        if self.reported.pop((fault, subject), None) is not None:
            self._problems.resolve(fault, subject=subject)

    async def run(self) -> None:
        """Expire problems until cancelled: the clients that met them may not return."""
        while True:
            await asyncio.sleep(EXPIRY_CHECK)
            for fault, subject in list(self.reported):
                self.expire(fault, subject, _LONG_EXPIRY if fault in _SLOWLY_REPORTED else _EXPIRY)

    def answered(self, path: str, sent: float, failure: PrometheusError | None = None) -> None:
        """Note an answer to the query of a rule that was sent at `sent` (monotonic seconds).

        Prometheus has recovered if the query was sent after its last failure. With `failure` the answer is an
        older one that stands in for a failed query.
        """
        if failure is not None:
            self.failed(failure, path)
            return
        if not self.reported:
            return
        failed = self.reported.get(("prometheus", ""))
        if failed is not None and sent > failed:
            self.resolve("prometheus")

    def listed(self, answers: Iterable[object], sent: float) -> None:
        """Note lists of series that were asked for at `sent`: a server that is silent is silent for all."""
        failures = [answer for answer in answers if isinstance(answer, PrometheusError)]
        if silent := [failure for failure in failures if failure.kind in _SILENT]:
            self.failed(silent[0], "")
        elif not failures:
            self.answered("", sent)

    def unfetched(self, error: PrometheusError, path: str) -> StatusError:
        """Report a failed query; return the error for the caller, without query and address."""
        if error.kind == "busy":  # too much load is not a problem of the source
            return TooManyRequestsError("queries")
        self.failed(error, path)
        return InternalError(UNFETCHED) if error.kind in _OF_THE_QUERY else self.unanswered()

    def silence(self) -> str:
        """Return since when Prometheus does not answer, "" if it does. A time keeps the text the same."""
        since = self._problems.since("prometheus")
        return f"Prometheus does not answer since {since}" if since else ""

    def unanswered(self) -> InternalError:
        """Return the error for callers without an answer. The address is only logged."""
        return InternalError(": ".join(filter(None, (UNFETCHED, self.silence()))))

    def failed(self, error: PrometheusError, path: str) -> None:
        """Report the failed query of a rule, unless Prometheus was not asked."""
        if error.kind == "busy":
            return
        if error.kind in _OF_THE_QUERY:
            self.report("query", "query failed", str(error), path, public=error.message, kind=error.kind)
        else:
            self.report(
                "prometheus", "Prometheus does not answer", str(error), public=error.message, kind=error.kind
            )


def _subject(subject: str) -> dict[str, object]:
    return {"subject": subject} if subject else {}
