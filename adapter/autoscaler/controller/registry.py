"""Which autoscalers there are: all of them, and those of the slices that this process owns.

Autoscalers of all slices are in the `AutoscalerRegistry`. The `Controller` holds the states of those whose
slices this process owns, and its `loop` decides them. There is one of each in a process. A slice is a set of
namespaces: when it is taken its autoscalers are put, and when it is given up they are dropped.
"""

from collections.abc import Callable, Iterator, Mapping

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.controller.floor_keeper import FloorKeeper, Floors
from adapter.autoscaler.controller.loop import UNEXPECTED, DecisionLoop
from adapter.autoscaler.controller.reconcile import Reconciler
from adapter.autoscaler.controller.reporter import Journal, Reporter
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.inputs.scrape_subscriptions import ScrapeSubscriptions
from adapter.autoscaler.inputs.snapshot import AutoscalerContext
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.autoscalers import ScaleConflicts, TargetKey
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, HPA_KIND, FastPathAutoscaler
from adapter.model.autoscaling.floor import Floor
from adapter.model.ready_times import ReadyLedger
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects

MOST_RIVALS = 20
"""The most autoscalers of a target that are decided at once when another one comes or goes."""

_METRICS_DELAYED = Event(
    "Warning",
    "MetricsDelayed",
    "metrics are queried less often than their period: the queries of this namespace exceed its share of "
    "--prometheus-max-queries-per-second; a late value may scale up but not down",
)


class OwnedSlice:
    """A slice that this process owns: its autoscalers, and what its previous owner has left."""

    def __init__(self, floors: Floors) -> None:
        self.floors = floors
        self.is_ending = False
        """Whether it is being given up: nothing is decided any more, and what was is still written."""
        self.states: dict[Key, AutoscalerState] = {}
        self.inherited: dict[str, ReadyLedger] = {}
        """The ready-time ledgers of the previous owner, by the uid of an autoscaler that is not here yet."""

    def inherit(self, ledgers: Mapping[str, ReadyLedger]) -> None:
        """Take the ready-time ledgers of the previous owner, by the uid of the autoscaler."""
        self.inherited = dict(ledgers)
        for state in self.states.values():
            if (ledger := self.inherited.pop(state.spec.object.metadata.uid, None)) is not None:
                state.inherit(ledger)

    def ledgers(self) -> Iterator[tuple[str, ReadyLedger]]:
        """Yield the ledgers for the next owner that are not empty, each with the uid of its autoscaler."""
        for state in self.states.values():
            # that of the previous owner while the target is not known yet
            ledger = state.target.inherited or state.target.ledger
            if not ledger.is_empty:
                yield state.spec.object.metadata.uid, ledger


class Controller:
    """The autoscalers of the slices that this process owns. It decides them while its `loop` runs."""

    def __init__(
        self,
        context: AutoscalerContext,
        actuator: Actuator,
        monitoring: Monitoring,
        journal: Journal,
        *,
        random: Callable[[], float],
        costs: CostKeeper,
    ) -> None:
        """`random` returns numbers in [0, 1), which spread the decisions over a period."""
        self.context = context
        self.actuator = actuator
        self.journal = journal
        self.slices: dict[int, OwnedSlice] = {}
        self._monitoring = monitoring
        self._defects = Defects(monitoring)
        self._random = random
        self._floors = FloorKeeper(lambda namespace: self.slices[slices.slice_of(namespace)].floors)
        self._costs = costs
        self._reporter = Reporter(actuator, monitoring, journal)
        reconciler = Reconciler(actuator, self._floors, costs, self._reporter, context.clock)
        self.loop = DecisionLoop(
            self.find, self.names, reconciler, context.forecasts, context.changes, context.clock, monitoring
        )

    def begin(self, number: int, floors: Floors) -> OwnedSlice:
        """Begin with a slice, which has no autoscalers yet."""
        owned = self.slices[number] = OwnedSlice(floors)
        return owned

    async def end(self, number: int) -> None:
        """Decide no autoscaler of a slice any more, and let its writes in progress end."""
        owned = self.slices[number]
        owned.is_ending = True
        await self.loop.end(owned.states.values())

    def drop(self, number: int) -> None:
        """Forget the autoscalers of a slice, and remove their metrics; nothing is written about them."""
        owned = self.slices.pop(number)
        for key, state in owned.states.items():
            with self._defects.contain(UNEXPECTED, key):
                state.close()
                self.loop.remove(key)
                self._costs.drop(key)
                self._reporter.hide(key)
                self.context.forecasts.changed(key)
        self._monitoring.scaler_autoscalers.dec(len(owned.states))

    def find_slice(self, namespace: str) -> OwnedSlice | None:
        """Return the slice of a namespace; None if this process does not own it, or gives it up."""
        owned = self.slices.get(slices.slice_of(namespace))
        return None if owned is None or owned.is_ending else owned

    def put(
        self, autoscaler: FastPathAutoscaler, boost: Boost | None = None, published: Floor | None = None
    ) -> None:
        """Add or update an autoscaler of a slice that this process owns.

        `boost` is for HorizontalPodAutoscalers; `published` is the floor of a new one from the previous
        owner of the slice.
        """
        key = Key.of(autoscaler)
        events: tuple[Events, Events] | None = None
        owned = self.find_slice(key.namespace)
        if owned is None:
            return
        state = owned.states.get(key)
        if state is not None and state.spec.object.metadata.uid != autoscaler.metadata.uid:
            # A new object of the same name starts without a past, but the policies still count recent
            # changes of the same target.
            if state.spec.object.spec.scale_target_ref == autoscaler.spec.scale_target_ref:
                events = state.memory.history.ups, state.memory.history.downs
            self.remove(key)
            state = None
        if state is None:
            clock = self.context.clock
            state = AutoscalerState(autoscaler, self.context, events)
            state.inherit(owned.inherited.pop(autoscaler.metadata.uid, None))
            key = state.key  # one for all that keep it
            owned.states[key] = state
            self._monitoring.scaler_autoscalers.inc()
            self.loop.begin(key, (1 - self._random()) * state.spec.period)
            # Before the first decision: without the floor our own raise would look like that of another.
            if published is not None:
                state.published = published
                state.set_boosting(boosting.adopt(published, clock.now(), clock.set_by))
            self.context.forecasts.changed(key)
        elif state.adopt(autoscaler):
            self.context.forecasts.changed(key)
            self.loop.touch(key)
        if boost is not None:
            before = state.spec.boost
            state.allow(boost)
            is_known = before is not None and (before.mode, before.fault) == (boost.mode, boost.fault)
            if boost.mode == BOOST and boost.fault and not is_known:
                self.actuator.event(autoscaler, Event("Warning", boosting.NOT_BOOSTED, boost.fault))
            if before is not None and before.shown != boost.shown:
                self.loop.touch(key)  # the status may show the floor

    def remove(self, key: Key) -> None:
        owned = self.find_slice(key.namespace)
        state = None if owned is None else owned.states.pop(key, None)
        if state is None:
            return
        self.loop.remove(key)
        state.close()
        self._floors.forget(state)
        self._costs.forget(state)
        self.actuator.forget(state.spec.object)
        self._reporter.forget(key)
        self.context.forecasts.changed(key)
        self._monitoring.scaler_autoscalers.dec()

    def find(self, key: Key) -> AutoscalerState | None:
        """Return the state of an autoscaler that this process decides."""
        owned = self.slices.get(slices.slice_of(key.namespace))
        return None if owned is None or owned.is_ending else owned.states.get(key)

    def names(self) -> Iterator[Key]:
        """Yield the autoscalers that this process decides."""
        for owned in list(self.slices.values()):
            if not owned.is_ending:
                yield from owned.states

    def last_chain(self, key: Key) -> float | None:
        """Return the seconds from the load to the last write, None before the first."""
        return self._monitoring.last_scale_duration.values.get(key.labels)


class AutoscalerRegistry:
    """All autoscalers. Those that this process decides are given to its controller."""

    def __init__(self, rivals: ScaleConflicts, scrapes: ScrapeSubscriptions, changes: Changes) -> None:
        self.changes = changes
        self._rivals = rivals
        self._scrapes = scrapes
        self.controller: Controller | None = None
        """None before this process begins to scale."""

    def find_controller(self, namespace: str) -> Controller | None:
        """Return the controller if this process owns the slice of a namespace, else None."""
        controller = self.controller
        return None if controller is None or controller.find_slice(namespace) is None else controller

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        self.note(autoscaler)
        if self.controller is not None:
            self.controller.put(autoscaler)

    def note(self, autoscaler: FastPathAutoscaler) -> None:
        """Register an autoscaler without deciding it."""
        key = Key.of(autoscaler)
        if not key.is_native:
            self._rivals.put(autoscaler)
        # Scrape what others decide too: this process may serve the values, and may own the slice later.
        self._scrapes.put(autoscaler)
        self.changes.note_namespace(key.namespace)

    def remove(self, key: Key) -> None:
        if not key.is_native:
            self._rivals.remove(key.namespace, key.name)
        self._scrapes.remove(key)
        if self.controller is not None:
            self.controller.remove(key)

    def rivals_changed(self, target: TargetKey) -> None:
        owners = self._rivals.owners(target)
        # where there are many, each has others with and without this change, and sees it at its next decision
        if len(owners) <= MOST_RIVALS:
            self.changes.note([Key(namespace, name, kind == HPA_KIND) for kind, namespace, name in owners])

    def delayed(self, key: Key) -> None:
        """Note that metrics of an autoscaler wait for the query budget."""
        self.changes.note_event(key, _METRICS_DELAYED)
