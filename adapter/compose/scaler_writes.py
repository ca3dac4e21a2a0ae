"""What leaves a scaler: the outbox with its outlets, and the actuator."""

from collections.abc import Callable
from typing import Any

from adapter.autoscaler.actuator import Actuator
from adapter.autoscaler.cost_keeper import CostKeeper
from adapter.autoscaler.decide.decision import Event
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.schedules.reporter import ScheduleReporter
from adapter.boost.publisher import FloorWriter
from adapter.compose.providers import Runtime
from adapter.compose.scaler_caches import ScalerCaches
from adapter.kubernetes.ownership.term import Term
from adapter.kubernetes.write.config_map import ConfigMapOutlet, StoreSlot
from adapter.kubernetes.write.events import EventOutlet
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.status import StatusOutlet
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter


class ScalerWrites:
    """Writes `rate` times a second at most."""

    def __init__(
        self, runtime: Runtime, caches: ScalerCaches, rate: float, random: Callable[[], float]
    ) -> None:
        clock, monitoring, problems = runtime.clock, runtime.monitoring, runtime.problems
        self._runtime = runtime
        self._autoscalers = caches.autoscalers
        self._limiter = WriteRateLimiter(rate, clock, monitoring)
        self.outbox = outbox = Outbox(self._limiter, clock, monitoring, problems.defects)
        statuses = StatusOutlet(outbox, clock, problems, self._status_refused)
        events = EventOutlet(outbox, clock, random, monitoring, problems)
        self.actuator = Actuator(outbox, statuses, events)
        self.costs = CostKeeper(outbox, self.actuator, clock)
        self._floors = ConfigMapOutlet(outbox, WriteKind.FLOOR, "unexpected error while publishing floors")
        self._stores = ConfigMapOutlet(
            outbox, WriteKind.STATUS, "unexpected error while storing for the next owner"
        )
        self.schedules = ScheduleReporter(
            outbox, caches.schedules, problems, clock, caches.rivals.hpas.find, caches.autoscalers.find
        )

    def begin(self, term: Term) -> tuple[FloorWriter, StoreSlot]:
        """Begin to write for a slice. Return what publishes its floors, and where its term stores."""
        runtime, number = self._runtime, term.number
        clock, monitoring, problems = runtime.clock, runtime.monitoring, runtime.problems
        writer = Writer(runtime.client, term, self._limiter, clock, monitoring, runtime.source_problems)
        self.outbox.begin(number, writer)
        common = writer, runtime.namespace, number, clock, problems
        return FloorWriter(StoreSlot(self._floors, *common)), StoreSlot(self._stores, *common)

    def _status_refused(self, update: Any, error: Exception) -> None:
        """Record the event that the HPA controller records if a status cannot be updated."""
        autoscaler = self._autoscalers.find(Key(update.namespace, update.name))
        if autoscaler is not None:
            self.actuator.event(autoscaler, Event("Warning", "FailedUpdateStatus", str(error)))
