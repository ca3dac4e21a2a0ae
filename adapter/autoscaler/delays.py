"""Reports of questions that are asked later than due because the query budget is used up.

Three audiences: the gauge shows by how much the longest delay stretches a period, the fault names the
namespaces (for the operator of Fastpath, who can raise the rate), and `delayed` gets the autoscalers, each
of which has an event about it (for their owners). A delay of less than `DELAYED` seconds is normal when
several questions are due at the same moment, so only the gauge shows it.
"""

from collections.abc import Callable, Hashable, Iterable

from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

DELAYED = 5.0
"""A question that waits for its turn for so many seconds is delayed."""

CALM = 60.0
"""A fault ends when none of the namespace's questions has been delayed for so many seconds."""

REPORT_AGAIN = 600.0
"""After so many seconds an autoscaler whose questions are still delayed, or are again, gets another event."""

FAULT = "query-budget"
_MESSAGE = "questions wait for --prometheus-max-queries-per-second; late values may raise, not shrink"


class Delays:
    """Collects delays as they are noted, and reports them each time `report` is called."""

    def __init__(
        self, monitoring: Monitoring, faults: ProblemLog, delayed: Callable[[Iterable[Hashable]], None]
    ) -> None:
        """`delayed` gets the owners of questions that are delayed, each at most once in `REPORT_AGAIN` seconds."""
        self._stretch = monitoring.scaler_question_stretch
        self._stretch.set(1.0)
        self._faults = faults
        self._delayed = delayed
        self._ratio = 1.0
        self._owners: set[Hashable] = set()
        self._reported: dict[Hashable, float] = {}
        self._namespaces: dict[str, float] = {}

    def note(self, namespace: str, owner: Hashable, period: float, waited: float, now: float) -> None:
        """Note that a question that should be asked every `period` seconds has waited for its turn for `waited`."""
        self._ratio = max(self._ratio, (period + waited) / period)
        if waited >= DELAYED:
            self._owners.add(owner)
            self._namespaces[namespace] = now

    def report(self, now: float) -> None:
        """Report what was noted since the last report."""
        self._stretch.set(self._ratio)
        self._ratio = 1.0
        for namespace, last in [*self._namespaces.items()]:
            if last == now:
                self._faults.report(
                    FAULT, _MESSAGE, "the rate is too low for what is asked", subject=namespace
                )
            elif now - last > CALM:
                del self._namespaces[namespace]
                self._faults.resolve(FAULT, subject=namespace)
        self._reported = {owner: at for owner, at in self._reported.items() if now - at < REPORT_AGAIN}
        news = tuple(owner for owner in self._owners if owner not in self._reported)
        self._owners.clear()
        self._reported |= dict.fromkeys(news, now)
        if news:
            self._delayed(news)

    def close(self) -> None:
        """End all faults: nothing is asked any more."""
        self._stretch.set(1.0)
        for namespace in self._namespaces:
            self._faults.resolve(FAULT, subject=namespace)
        self._namespaces.clear()
