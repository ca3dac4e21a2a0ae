"""Names a namespace that is too large for one process, in an event on one of its autoscalers.

The decisions of a process wait for each other. Other processes take namespaces from it, but never a part of
one.
"""

import asyncio
import logging
from collections import Counter

from adapter.autoscaler.controller.registry import AutoscalerRegistry
from adapter.autoscaler.decide.sync import Event
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

_PERIOD = 600.0
"""Seconds from one look to the next. A process that starts or takes slices is late for less than that."""

_LEAST = 500
"""A process with this many autoscalers or fewer is late for another reason."""

_log = logging.getLogger(__name__)


class LargeNamespaces:
    """Looks at the autoscalers of a process while `run` runs."""

    def __init__(self, registry: AutoscalerRegistry, monitoring: Monitoring) -> None:
        self._registry = registry
        self._lag = monitoring.scaler_lag
        self._decided = self._in_time = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            self.look()

    def look(self) -> None:
        """Record the event if decisions were late since the last look, and are mostly of one namespace."""
        if not self._were_late():
            return
        counts = Counter(key.namespace for key in self._registry.names())
        for namespace, count in counts.most_common(1):
            if counts.total() <= _LEAST or count * 2 <= counts.total():
                return
            values = facts(namespace=namespace, autoscalers=count, of=counts.total())
            _log.warning("a namespace is too large for one scaler", extra=values)
            text = (
                f"decisions are late: {count} of the {counts.total()} autoscalers of one scaler are in this "
                "namespace, and more scalers cannot divide it"
            )
            key = next(key for key in self._registry.names() if key.namespace == namespace)
            self._registry.changes.note_event(key, Event("Warning", "NamespaceTooLarge", text))

    def _were_late(self) -> bool:
        """Return whether one in a hundred decisions was a second late since the last call."""
        (family,) = self._lag.collect()
        counts = {sample.labels.get("le"): sample.value for sample in family.samples}
        decided, in_time = counts["+Inf"] - self._decided, counts["1.0"] - self._in_time
        self._decided, self._in_time = counts["+Inf"], counts["1.0"]
        return (decided - in_time) * 100 > decided
