"""The controller's environment for tests: an API server's scales, pods, readings, and a clock, set by hand.

Scales behave as an API server's: a write against an old version is a conflict, and what the caches show is
what the test has told them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.controller.registry import Controller, OwnedSlice
from adapter.autoscaler.controller.reporter import Journal
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.observation import ExternalReading, Reading, Settings, Unavailable
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.explain import debug
from adapter.autoscaler.inputs.follower import TargetFollowers
from adapter.autoscaler.inputs.snapshot import AutoscalerContext
from adapter.autoscaler.inputs.sources import MetricSource, ReadContext, Subscriber
from adapter.autoscaler.interfaces import UNKNOWN_FORECAST, ForecastBound, Forecasts, Key
from adapter.autoscaler.schedules.book import ScheduleBook
from adapter.errors import KubernetesError
from adapter.kubernetes.cache.pod_selections import Follower
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.model.autoscaling import hpa, slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, PastChange
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.clock import DecisionClock
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.pods import PodFacts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.scaling import NOW, external_metric, pods, read_spec
from tests.support.writing import open_outbox

LIVE = Settings(scale_to_zero=True, strict=True)
QUEUE = [external_metric(averageValue="1")]


def wanted(count: int) -> ExternalReading:
    """Return the reading of QUEUE that asks for a count."""
    return ExternalReading([count * 1000])


class HandClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.skew = NOW / 1e9 - 1000.0

    def wall(self) -> float:
        return self.seconds + self.skew

    def monotonic(self) -> float:
        return self.seconds


class HandServer:
    """Scales as an API server has them, and as the caches show them."""

    def __init__(self) -> None:
        self.scales: dict[str, ScaleTarget] = {}
        self.cached: dict[str, ScaleTarget | Unfound] = {}
        self.writes: list[tuple[str, int]] = []
        self.statuses: list[tuple[str, hpa.HorizontalPodAutoscalerStatus, tuple[PastChange, ...]]] = []
        self.events: list[Event] = []
        self.log: list[str] = []
        """What was written and told, in this order."""
        self.fail = ""
        self.lose = False
        self.refusal: Exception | None = None
        self.given_back = 0
        self.turn: asyncio.Event | None = None
        """What a write waits for before its turn; `gate` is what its answer waits for."""
        self.gate: asyncio.Event | None = None
        self._version = 100

    def set(
        self, name: str, replicas: int, manager: str = "kubectl", *, told: bool = True, uid: str = ""
    ) -> None:
        """Set a scale as another writer. `told`: the caches have seen it; `uid`: that of a new object."""
        self._version += 1
        selector = f"app={name}"
        before = self.scales.get(name)
        is_new = before is None or before.replicas != replicas or (uid and uid != before.uid)
        owner = manager if is_new or before is None else before.manager
        path = f"/apis/apps/v1/namespaces/default/deployments/{name}/scale"
        uid = uid or (before.uid if before is not None else "uid-of-target")
        self.scales[name] = ScaleTarget(replicas, replicas, selector, str(self._version), owner, path, uid)
        if told:
            self.tell(name)

    def tell(self, name: str) -> None:
        """Let the caches see a scale, when its pods are there."""
        self.scales[name] = self.scales[name]._replace(status_replicas=self.scales[name].replicas)
        self.cached[name] = self.scales[name]

    # Targets

    def follow(
        self, namespace: str, reference: hpa.CrossVersionObjectReference, changed: Callable[[], None]
    ) -> "HandFollowed":
        return HandFollowed(self, reference.name)

    # Actuator

    async def acquire(self, target: ScaleTarget) -> None:
        if self.turn is not None:
            await self.turn.wait()

    def give_back(self, target: ScaleTarget) -> None:
        self.given_back += 1

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        name = target.path.split("/")[-2]
        if self.gate is not None:
            await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        if self.fail:
            raise KubernetesError(403, "Forbidden", self.fail)
        now = self.scales[name]
        if target.resource_version != now.resource_version:
            raise KubernetesError(409, "Conflict", "conflict")
        self._version += 1
        self.scales[name] = now._replace(
            replicas=replicas, resource_version=str(self._version), manager="fastpath"
        )
        self.writes.append((name, replicas))
        self.log.append(f"{name} is written {replicas}")
        if self.lose:
            raise KubernetesError(0, "Timeout", "no answer")
        return str(self._version)

    async def get_scale(self, target: ScaleTarget) -> ScaleTarget:
        """Return a scale, which does not name the writer of its count."""
        return self.scales[target.path.split("/")[-2]]._replace(manager="", since="")

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: hpa.HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
        credited: tuple[BacklogCredit, ...] = (),
        limited_by: str = "",
    ) -> None:
        self.credited, self.limited_by = credited, limited_by
        self.statuses.append((autoscaler.metadata.name, status, changes))

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None:
        self.events.append(event)
        said = "" if event.reason == "SuccessfulRescale" else f": {event.message}"
        self.log.append(f"{event.type} {event.reason}{said}")

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        """Forget an autoscaler."""


class WatchedServer(HandServer):
    """Has each write looked at when it is sent, and when it has landed, with an answer or without."""

    def __init__(
        self, sent: Callable[[ScaleTarget, int], None], landed: Callable[[int], None] = lambda _: None
    ) -> None:
        super().__init__()
        self._sent, self._landed = sent, landed

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        self._sent(target, replicas)
        before = len(self.writes)
        try:
            return await super().put_scale(target, replicas)
        finally:
            if len(self.writes) > before:
                self._landed(replicas)


class HandFollowed:
    """One scale as the caches show it."""

    def __init__(self, server: HandServer, name: str) -> None:
        self._server = server
        self._name = name

    def find(self) -> ScaleTarget | Unfound:
        return self._server.cached.get(self._name, Unfound("deployments is not listed yet", known=False))

    def close(self) -> None:
        """Stop following."""


class HandFollowing:
    """The pods of one selector, set by hand."""

    def __init__(self, owner: "HandPods", name: str, follower: Follower) -> None:
        self._owner = owner
        self._name = name
        self.started = follower.started
        self.closed = False

    @property
    def pods(self) -> Sequence[PodFacts]:
        return self._owner.pods.get(self._name, ())

    @property
    def starting(self) -> StartingPods:
        return self._owner.starting

    @property
    def selected_by(self) -> Sequence[str]:
        return self._owner.selected_by

    @property
    def became_ready(self) -> Mapping[str, float]:
        return self._owner.became_ready

    def min_ready(self, age: int) -> int | None:
        return self._owner.ready(age)

    def max_ready(self, age: int) -> int:
        return self._owner.most(age)

    def leave(self, _: Follower) -> None:
        self.closed = True


class HandPods:
    """Pods by selector, set by hand."""

    def __init__(self) -> None:
        self.pods: dict[str, Sequence[PodFacts]] = {}
        self.selected_by: Sequence[str] = ()
        self.ready: Callable[[int], int | None] = lambda _: None
        self.became_ready: dict[str, float] = {}
        self.most: Callable[[int], int] = lambda _: 0
        self.starting = StartingPods()
        self.why_stale = ""
        self.followings: list[HandFollowing] = []

    def follow(self, namespace: str, selector: LabelSelector, follower: Follower) -> HandFollowing:
        following = HandFollowing(self, str(selector), follower)
        self.followings.append(following)
        return following

    def stale(self) -> str:
        """Return why they may be out of date."""
        return self.why_stale


class HandSource(MetricSource):
    """A metric whose reading is set by hand."""

    def __init__(self, metric: str, subscriber: Subscriber) -> None:
        super().__init__()
        self.metric, self.subscriber = metric, subscriber
        self.reading: Reading = Unavailable("NotAnswered", "no answer yet")
        self.closed = False
        self.reads = 0

    def read(self, _: ReadContext) -> Reading:
        self.reads += 1
        return self.reading

    def close(self) -> None:
        self.closed = True


class HandSources:
    """Sources by the name of the metric; `readings` is what a new one says at first."""

    def __init__(self) -> None:
        self.opened: list[HandSource] = []
        self.readings: dict[str, Reading] = {}

    def open(self, metric: hpa.MetricSpec, subscriber: Subscriber) -> HandSource:
        named = metric.pods or metric.object or metric.external
        name = named.metric.name if named is not None else "resource"
        source = HandSource(name, subscriber)
        source.reading = self.readings.get(name, source.reading)
        self.opened.append(source)
        return source


class HandRivals:
    """Other autoscalers, set by hand."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] | None = ()

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...] | None:
        return self.names


class NoForecasts:
    """Forecasts of nothing."""

    def changed(self, key: Key) -> None:
        """Follow nothing."""

    def clock_set(self) -> None:
        """Follow nothing."""

    def bound_of(self, key: Key) -> ForecastBound:
        return UNKNOWN_FORECAST

    def document_of(self, key: Key) -> dict[str, Any] | None:
        return None


class Bench:
    """A controller on all that, stepped by hand."""

    forecasting: Forecasts = NoForecasts()
    schedules: ScheduleBook | None = None
    floors: Any = None
    doubt = ""
    writer: Any = None
    """Sends deletion costs."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.server = HandServer()
        self.pods = HandPods()
        self.sources = HandSources()
        self.rivals = HandRivals()
        self.monitoring = Monitoring()
        self.journal = Journal()
        self.changes = Changes()
        self.controller = self.start()

    def start(self) -> Controller:
        """Return a controller as after a start."""
        context = AutoscalerContext(
            TargetFollowers(self.server, self.pods),  # type: ignore[arg-type]  # these three are set by hand
            self.rivals,  # type: ignore[arg-type]
            self.sources,  # type: ignore[arg-type]
            LIVE,
            DecisionClock(self.clock),
            self.changes,
            self.forecasting,
            self.schedules,
            doubt=lambda: self.doubt,
        )
        actuator = cast("Actuator", self.server)  # all that a controller calls
        self.outbox = open_outbox(self.writer, ProblemLog(self.monitoring, self.clock), self.clock)
        costs = CostKeeper(self.outbox, actuator)
        self.controller = Controller(
            context, actuator, self.monitoring, self.journal, random=lambda: 0.0, costs=costs
        )
        for number in range(slices.COUNT):
            self.controller.begin(number, self.floors)
        return self.controller

    def close(self) -> None:
        """Give up all slices."""
        for number in list(self.controller.slices):
            self.controller.drop(number)

    @property
    def owned(self) -> OwnedSlice:
        """The slice of the namespace `default`."""
        return self.controller.slices[slices.slice_of("default")]

    def put(self, autoscaler: FastPathAutoscaler, replicas: int | None = None) -> None:
        """Put an autoscaler, and its target with so many ready pods."""
        name = autoscaler.spec.scale_target_ref.name
        if replicas is not None:
            self.server.set(name, replicas)
            self.pods.pods[f"app={name}"] = pods(replicas)
        self.controller.put(autoscaler)

    def want(self, replicas: int | None) -> None:
        """Have QUEUE ask for so many replicas, None for no value."""
        self.show("queue", Unavailable("NoMetrics", "none") if replicas is None else wanted(replicas))

    def show(self, metric: str, reading: Reading) -> None:
        """Have a metric show this, also where it is read already."""
        self.sources.readings[metric] = reading
        for source in self.sources.opened:
            if source.metric == metric:
                source.reading = reading

    async def begin_with(self, replicas_wanted: int, *, replicas: int = 4, **spec: Any) -> None:
        """Put an autoscaler whose queue asks for so many replicas, and decide it."""
        self.want(replicas_wanted)
        self.put(fpa(QUEUE, **spec), replicas)
        await self.step()

    async def step(self, seconds: float = 0.0) -> None:
        """Let time pass, decide what is due, and let writes end."""
        self.clock.seconds += seconds
        await self.controller.loop.tick()
        for _ in range(5):
            await asyncio.sleep(0)

    async def steps(self, count: int, seconds: float = 1) -> None:
        for _ in range(count):
            await self.step(seconds)

    @property
    def state(self) -> AutoscalerState:
        """The first autoscaler."""
        state = self.controller.find(next(iter(self.controller.names())))
        assert state is not None
        return state

    def last(self) -> Any:
        """Return its last decision."""
        assert self.state.last is not None
        return self.state.last.decision


def fpa(
    metrics: Sequence[dict[str, Any]] = (), name: str = "web", uid: str = "uid-1", **spec: Any
) -> FastPathAutoscaler:
    """Return an autoscaler of the Deployment of the same name."""
    meta = {"name": name, "namespace": "default", "uid": uid}
    return read_spec(FastPathAutoscaler, metrics, meta, **{"maxReplicas": 20} | spec)


def shown_document(controller: Controller, name: str = "web") -> dict[str, Any]:
    """Return what the debug endpoint shows of an autoscaler."""
    answer = debug.show(controller, "default", name, "")
    assert answer.status == 200
    document: dict[str, Any] = msgspec.json.decode(answer.body)
    return document
