"""Failures of sources as requests meet them: said once, ended when a request meets the source well again.

Shared by all that answer questions, so that one Prometheus is away once, whoever asked it. Not here: what callers are told beyond
the one sentence for a query without an answer.
"""

import asyncio

from adapter.errors import InternalError, PrometheusError, StatusError, TooManyRequestsError
from adapter.model.clock import Clock
from adapter.telemetry.monitoring import FaultLog

UNFETCHED = "unable to fetch metrics"
UNLISTED = "unable to list matching resources"

# Failures that say something about one query, not about the server.
_OF_THE_QUERY = frozenset({"query", "type", "decode", "size", "timeout", "partial"})
# A fault of one rule or kind is over when nobody has met it for so long: others may do well meanwhile; seconds.
_QUIET = 60.0
_QUIET_LOOK = 5.0
# The faults that are known by a rule's path.
_OF_A_RULE = ("render", "query", "value")


class SourceFaults:
    """The faults that requests meet, on top of the log that says them."""

    def __init__(self, clock: Clock, faults: FaultLog) -> None:
        self._clock = clock
        self._faults = faults
        self._last_met: dict[tuple[str, str], float] = {}

    def met(
        self, fault: str, message: str, text: str, subject: str = "", *, told: str = "", **details: object
    ) -> None:
        """Note a fault; arguments as `FaultLog.met`."""
        self._last_met[fault, subject] = self._clock.monotonic()
        self._faults.met(fault, message, text, subject=subject, told=told, **details)

    def quiet(self, fault: str, subject: str, after: float = _QUIET) -> None:
        """End a fault that nobody has met for longer than `after` seconds."""
        met = self._last_met.get((fault, subject))
        if met is not None and self._clock.monotonic() - met > after:
            del self._last_met[fault, subject]
            self._faults.ended(fault, subject=subject)

    async def run(self) -> None:
        """End, for ever, the faults of rules and kinds that nobody has met lately: who met them may not ask again."""
        while True:
            await asyncio.sleep(_QUIET_LOOK)
            for fault, subject in list(self._last_met):
                if fault != "prometheus":  # over when it answers
                    self.quiet(fault, subject)

    def answered(self, path: str, asked: float, failure: PrometheusError | None = None) -> None:
        """Note an answer to a rule's query: Prometheus is there if it was asked (monotonic) after the last failure.

        `failure` is why an older answer stands in; then nothing is well.
        """
        if failure is not None:
            self.fails(failure, path)
            return
        failed = self._last_met.get(("prometheus", ""))
        if failed is not None and asked > failed:
            del self._last_met["prometheus", ""]
            self._faults.ended("prometheus")
        for fault in _OF_A_RULE:
            self.quiet(fault, path)

    def unfetched(self, error: PrometheusError, path: str) -> StatusError:
        """Say once that a rule's query has no answer; return what the caller is told, without query or address."""
        if error.kind == "busy":  # nobody's fault but that of those who ask
            return TooManyRequestsError("queries")
        self.fails(error, path)
        return InternalError(UNFETCHED)

    def fails(self, error: PrometheusError, path: str) -> None:
        """Say once that a rule's query has no answer; nothing where Prometheus was not asked."""
        if error.kind == "busy":
            return
        if error.kind in _OF_THE_QUERY:
            self.met("query", "query failed", str(error), path, told=error.message, kind=error.kind)
        else:
            self.met(
                "prometheus", "Prometheus does not answer", str(error), told=error.message, kind=error.kind
            )
