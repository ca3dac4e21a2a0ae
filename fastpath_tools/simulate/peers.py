"""Other autoscalers that a simulation compares with: `kpa`, that of Knative, and `persistence`.

`persistence` takes the last value times a factor. Both see the whole load over their windows, and decide on
whole pods, without a tolerance or a behavior.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fastpath_forecast.simulate import elasticity
from fastpath_forecast.simulate.chain import Signal
from fastpath_forecast.simulate.engine import AnyChain
from fastpath_forecast.simulate.policies import BOUNDS, OTHER_PACE, Given, PolicyKind, SimulatedPolicy
from fastpath_forecast.simulate.workload import Workload

PERSISTENCE, KPA = "persistence", "kpa"


class Persistence(NamedTuple):
    """Each `sync` seconds it decides on the mean load of the last `window` seconds, times `x`."""

    x: float = 1.0
    window: int = 60
    sync: int = 60

    def begin(self, phase: float) -> int:  # noqa: ARG002 - it decides when the time of a value ends
        return self.sync - 1

    def build_chain(
        self, loads: Sequence[float], capacities: Sequence[float], bounds: tuple[int, int], phase: float
    ) -> AnyChain:
        timing = self.sync, self.begin(phase)
        windows = [[Signal(*timing, self.window, load, is_total=True) for load in loads]]
        return PeerChain(LastValue(self.x), windows, capacities, bounds, *timing)


class Knative(NamedTuple):
    """What `config-autoscaler` of Knative sets, with its defaults; ratios are shares, times are seconds."""

    window: int = 60
    panic_window: int = 6
    panic_threshold: float = 2.0
    max_scale_up: float = 1000.0
    max_scale_down: float = 2.0
    scale_down_delay: int = 0
    tick: int = 2

    def begin(self, phase: float) -> int:
        return int(phase * self.tick)

    def build_chain(
        self, loads: Sequence[float], capacities: Sequence[float], bounds: tuple[int, int], phase: float
    ) -> AnyChain:
        timing = self.tick, self.begin(phase)
        windows = [
            [Signal(*timing, window, load, is_total=True) for load in loads]
            for window in (self.window, self.panic_window)
        ]
        return PeerChain(KnativeScaler(self), windows, capacities, bounds, *timing)


class PeerScaler(Protocol):
    """Decides on a count from the need in pods over each of its windows; None for no decision."""

    @property
    def reason(self) -> str:
        """Why the last decision asked for its count."""

    @property
    def is_steady(self) -> bool:
        """Whether the same needs and pods give the same count at any later time."""

    def decide(self, needs: Sequence[float], ready: int, second: int) -> int | None: ...


class LastValue:
    """Policy `persistence`: no model at all, which is what a model has to beat."""

    reason, is_steady = "the last value", True

    def __init__(self, x: float) -> None:
        self._x = x

    def decide(self, needs: Sequence[float], ready: int, second: int) -> int | None:  # noqa: ARG002
        return elasticity.demand(self._x * needs[0])


class KnativeScaler:
    """Mirrors `Scale` in pkg/autoscaler/scaling/autoscaler.go of Knative Serving.

    The needs are those of the stable and of the panic window. What the activator does is left out, and so is
    the panic in which an autoscaler of more than one pod starts: it has known its load for long.
    """

    def __init__(self, settings: Knative) -> None:
        self._settings = settings
        self._panic: int | None = None
        """The second at which the threshold was last exceeded, None outside of a panic."""
        self._most = 0
        self._delayed: deque[tuple[int, int]] = deque()

    @property
    def is_steady(self) -> bool:
        return self._panic is None and not self._settings.scale_down_delay

    @property
    def reason(self) -> str:
        return "stable window" if self._panic is None else "panic window"

    def decide(self, needs: Sequence[float], ready: int, second: int) -> int:
        settings, ready = self._settings, max(1, ready)
        stable, panic = map(elasticity.demand, needs)
        highest = math.ceil(settings.max_scale_up * ready)
        lowest = math.floor(ready / settings.max_scale_down)
        wanted = min(max(stable, lowest), highest)
        if panic / ready >= settings.panic_threshold:
            self._panic = second
        elif self._panic is not None and second > self._panic + settings.window:
            self._panic, self._most = None, 0
        if self._panic is not None:
            # no scale-down in a panic; the stable window may ask for more than that of the panic
            self._most = wanted = max(self._most, wanted, min(max(panic, lowest), highest))
        return self._delay(wanted, second)

    def _delay(self, wanted: int, second: int) -> int:
        """Return the most that was wanted within the delay of scale-downs."""
        if not self._settings.scale_down_delay:
            return wanted
        self._delayed.append((second, wanted))
        while self._delayed[0][0] <= second - self._settings.scale_down_delay:
            self._delayed.popleft()
        return max(count for _, count in self._delayed)


@dataclass(slots=True, eq=False)
class PeerChain:
    """A peer that looks at its windows every `period` seconds, the first time at `due`.

    `windows` has for each window the signals of all metrics, and `capacities` are what a pod serves of these.
    """

    peer: PeerScaler
    windows: Sequence[Sequence[Signal]]
    capacities: Sequence[float]
    bounds: tuple[int, int]
    period: int
    due: int
    decisions: int = 0
    decider: None = None
    """A peer has no trace of its decisions that an observer could read."""
    _last: object = None

    @property
    def reason(self) -> str:
        return self.peer.reason

    def observe(self, count: int, second: int) -> None:
        """Do nothing: a peer has no other chain beside it."""

    def catch_up(self, workload: Workload) -> None:
        """Do nothing: a decision that is skipped leaves no trace."""

    def measure(self, second: int, loads: Sequence[float], ready: int) -> None:
        for signals in self.windows:
            for load, signal in zip(loads, signals, strict=True):
                signal.record(second, load)
                if signal.due == second:
                    signal.scrape(second, ready)

    def decide(self, second: int, workload: Workload) -> int | None:
        self.due = second + self.period
        self.decisions += 1
        needs = self._needs()
        self._last = (needs, workload.ready, workload.replicas)
        if any(map(math.isnan, needs)):
            return None
        count = self.peer.decide(needs, workload.ready, second)
        least, most = self.bounds
        return None if count is None else min(max(count, least), most)

    def _needs(self) -> list[float]:
        """Return the pods that serve the load of each window; NaN if a metric has no value."""
        return [
            max(
                (signal.value / capacity for signal, capacity in zip(signals, self.capacities, strict=True)),
                key=lambda need: (math.isnan(need), need),
            )
            for signals in self.windows
        ]

    def idle_until(self, second: int, workload: Workload) -> float:  # noqa: ARG002 - of the signature
        """Return the next second with a decision that matters if nothing changes until then."""
        settled = all(signal.is_settled(0) for signals in self.windows for signal in signals)
        same = self._last == (self._needs(), workload.ready, workload.replicas)
        return math.inf if settled and same and self.peer.is_steady else self.due

    def skip(self, second: int) -> None:
        """Do everything before a second at once; `idle_until` is not before it."""
        for signals in self.windows:
            for signal in signals:
                signal.skip(second)
        if self.due < second:
            self.due += -(-(second - self.due) // self.period) * self.period


def _read_persistence(name: str, given: Given) -> SimulatedPolicy:
    default = Persistence()
    peer = Persistence(
        given.number("x", default.x, (0.01, 100)),
        given.seconds("window", default.window, OTHER_PACE),
        given.seconds("sync", default.sync),
    )
    return SimulatedPolicy(given.text, name, peer=peer)


def _read_knative(name: str, given: Given) -> SimulatedPolicy:
    default = Knative()
    window = given.seconds("window", default.window, (6, 3600))
    # Knative has the panic window as a share of the stable one
    panic_window = max(1, round(window * default.panic_window / default.window))
    peer = Knative(
        window,
        given.seconds("panicWindow", panic_window, (1, window)),
        given.number("panicThreshold", 100 * default.panic_threshold, (110, 1000)) / 100,
        given.number("maxScaleUp", default.max_scale_up, (1.01, 1_000_000)),
        given.number("maxScaleDown", default.max_scale_down, (1.01, 1_000_000)),
        given.seconds("scaleDownDelay", default.scale_down_delay, (0, 3600)),
        given.seconds("tick", default.tick),
    )
    return SimulatedPolicy(given.text, name, peer=peer)


_KEYS_OF_KNATIVE = {
    "window",
    "panicWindow",
    "panicThreshold",
    "maxScaleUp",
    "maxScaleDown",
    "scaleDownDelay",
    "tick",
}

KINDS: Mapping[str, PolicyKind] = MappingProxyType(
    {
        PERSISTENCE: PolicyKind(BOUNDS | {"x", "window", "sync"}, _read_persistence),
        KPA: PolicyKind(BOUNDS | _KEYS_OF_KNATIVE, _read_knative),
    }
)
