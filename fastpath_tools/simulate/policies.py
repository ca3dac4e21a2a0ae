"""The policies that `fastpath simulate` knows: Fastpath's, and those of the autoscalers it is compared with.

`keda` is an HPA whose metrics KEDA polls; `peers` has those that decide in another way.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import ExternalMetricSource, MetricSpec, MetricTarget
from fastpath_forecast.simulate import policies as ours
from fastpath_forecast.simulate.chain import Signal
from fastpath_forecast.simulate.policies import COMMON, Given, Pace, PolicyKind, SimulatedPolicy
from fastpath_tools.simulate import peers

KEDA = "keda"


class PolledSignal(Signal):
    """A total that is polled every `interval` seconds, as of the last of scrapes `step` seconds apart."""

    def __init__(
        self, interval: int, phase: int, window: int, first: float, scrapes: tuple[int, int]
    ) -> None:
        """`scrapes` are their step and the second of the first."""
        self._step, self._start = scrapes
        super().__init__(interval, phase, window, first, is_total=True, lag=self._step)

    def scrape(self, second: int, ready: int) -> None:
        super().scrape(second - (second - self._start) % self._step, ready)
        self.due = second + self.interval


class Keda(NamedTuple):
    """KEDA, which asks each trigger every `poll` seconds, and serves what it was told until then."""

    poll: int = 30

    def begin(self, phase: float) -> int:
        return int(phase * self.poll)

    def rewrite(self, autoscaler: FastPathAutoscaler) -> FastPathAutoscaler:
        """Return the autoscaler as KEDA writes it: it asks KEDA for all but CPU and memory, as averages."""
        metrics = tuple(map(_polled, autoscaler.spec.metrics or ()))
        return replace(autoscaler, spec=replace(autoscaler.spec, metrics=metrics))

    def build_signal(self, pace: Pace, load: float, start: int, phase: float) -> Signal:
        return PolledSignal(self.poll, self.begin(phase), pace.window, load, (pace.scrape, start))


def _polled(metric: MetricSpec) -> MetricSpec:
    source = metric.pods or metric.object or metric.external
    if source is None:
        return metric
    target = MetricTarget(
        type="AverageValue", average_value=source.target.average_value or source.target.value
    )
    return MetricSpec(type="External", external=ExternalMetricSource(source.metric, target))


def _read_keda(name: str, given: Given) -> SimulatedPolicy:
    pace, poller = ours.read_native_pace(given), Keda(given.seconds("poll", Keda().poll))
    return SimulatedPolicy(given.text, name, native=pace, poller=poller)


KINDS: Mapping[str, PolicyKind] = MappingProxyType(
    {**ours.KINDS, **peers.KINDS, KEDA: PolicyKind(COMMON | {"scrape", "window", "poll", "sync"}, _read_keda)}
)


def read_policy(text: str) -> SimulatedPolicy:
    """Return the policy of `NAME[:key=value,...]`, also of another autoscaler. Raises InputError."""
    return ours.read_policy(text, KINDS)
