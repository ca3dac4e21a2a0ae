"""A simulation: an autoscaler, its loads, and the figures of each policy over several phases.

In a cluster, scrapes and decisions have phases that depend on when programs started. So each policy runs at
several phases, drawn with the seed, and its figures are means. All policies run at the same phases, and with
the same start-up times in the same order.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from adapter.autoscaler.decide import prepared_spec
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.bounds.schedule.windows import Schedule
from adapter.bounds.timeline import Lead
from adapter.errors import Fault, InputError
from adapter.model import quantity
from adapter.model.autoscaling import boost, fastpath_autoscaler, scale_down
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior, MetricSpec, MetricTarget
from adapter.model.autoscaling.scale_down import ScaleDown
from adapter.model.quantity import Quantity
from adapter.model.start_ups import StartUps
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate.chain import Chain, Signal
from fastpath_forecast.simulate.deciders import BoostDecider, Decider, NativeDecider, ScalerDecider
from fastpath_forecast.simulate.engine import EPOCH, AnyChain, CountChange, Demand, Figures, Observer, Run
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.metrics import SimulatedMetric, pod_requests, simulated_metrics
from fastpath_forecast.simulate.policies import BOOST, FAST, FIXED, Pace, SimulatedPolicy
from fastpath_forecast.simulate.ranking import Ranking
from fastpath_forecast.simulate.schedules import NO_SCHEDULE, ForecastMinimums, SimulatedSchedule
from fastpath_forecast.simulate.workload import Workload

MOST_HORIZON = 3600
"""The longest time that a forecast looks ahead, in seconds."""

SCALER = Settings(scale_to_zero=True, strict=True)
"""The settings of the fast-scaler; the HPA controller has its defaults."""


@dataclass(frozen=True)
class Scenario:
    """What all policies have in common.

    `loads` are by the name of the metric. `start_ups` are the seconds from a written count to a Ready pod, to
    be drawn from. `capacity_ratio` is how much of its target a pod can serve. `schedules` are those of the
    autoscaler, `epoch` is second 0 in nanoseconds, and `forecast` are the minimums of one. `spread` is the
    standard deviation of what pods take of the load, as a multiple of the mean. `idle` says whether the
    idlest pods go first, None if the autoscaler does.
    """

    autoscaler: FastPathAutoscaler
    loads: Mapping[str, Load]
    start_ups: Sequence[int]
    request: Quantity | None = None
    capacity_ratio: float = 1.0
    carries: bool = True
    phases: int = 8
    seed: int = 0
    schedules: Sequence[Schedule] = ()
    epoch: int = EPOCH
    forecast: ForecastMinimums | None = None
    spread: float = 0.0
    idle: bool | None = None


class PolicyResult(NamedTuple):
    """The figures of a policy at each phase, and the changes of the first."""

    policy: SimulatedPolicy
    runs: Sequence[Figures]
    changes: Sequence[CountChange]
    decisions: int


def simulate(
    scenario: Scenario,
    policy: SimulatedPolicy,
    behavior: HorizontalPodAutoscalerBehavior | None = None,
    *,
    observer: Observer | None = None,
) -> PolicyResult:
    """Run one policy at all phases. `behavior` is the one that it overrides that of the autoscaler with.

    The `observer` sees the first phase. Raises InputError for an autoscaler that cannot be simulated.
    """
    generator = random.Random(scenario.seed)  # noqa: S311 - phases, not secrets
    polls = random.Random(f"{scenario.seed} polls")  # noqa: S311
    phases = [Phase(generator.random(), generator.random(), polls.random()) for _ in range(scenario.phases)]
    is_drawn = len(set(scenario.start_ups)) > 1 or scenario.spread > 0
    known: dict[object, Run] = {}
    runs = []
    for place, phase in enumerate(phases):
        key = (_starts(scenario, policy, phase), place if is_drawn else 0)
        if key not in known:
            watching = None if known else observer
            known[key] = _prepare(scenario, policy, phase, place, behavior, watching)
            known[key].run()
        runs.append(known[key].figures)
    first = known[_starts(scenario, policy, phases[0]), 0]
    return PolicyResult(policy, runs, first.changes, sum(run.decisions for run in known.values()))


class Phase(NamedTuple):
    """When scrapes, decisions and polls begin, as a share of the time between two of them."""

    scrape: float
    decide: float
    poll: float

    def first(self, pace: Pace) -> tuple[int, int]:
        """Return the seconds of the first scrape and of the first decision."""
        return int(self.scrape * pace.scrape), int(self.decide * pace.decide)


def _starts(scenario: Scenario, policy: SimulatedPolicy, phase: Phase) -> tuple[int, ...]:
    """Return the first seconds of what a policy does: phases with the same ones give the same run."""
    has_usage = any(metric.resource is not None for metric in scenario.autoscaler.spec.metrics or ())
    paces = (policy.native, policy.fast, policy.usage if has_usage else None)
    starts = [start for pace in paces if pace is not None for start in phase.first(pace)]
    if policy.poller is not None:
        starts.append(policy.poller.begin(phase.poll))
    if policy.peer is not None:
        starts.append(policy.peer.begin(phase.decide))
    return tuple(starts)


def _prepare(
    scenario: Scenario,
    policy: SimulatedPolicy,
    phase: Phase,
    place: int,
    behavior: HorizontalPodAutoscalerBehavior | None,
    observer: Observer | None,
) -> Run:
    autoscaler = _decided_by(scenario, policy, behavior)
    base = simulated_metrics(scenario.autoscaler.spec.metrics or (), scenario.request)
    metrics = simulated_metrics(autoscaler.spec.metrics or (), scenario.request)
    loads = [scenario.loads[metric.name] for metric in metrics]
    capacities = [metric.capacity * scenario.capacity_ratio for metric in base]
    demand = Demand(loads, capacities, carries=scenario.carries)
    draws = random.Random(f"{scenario.seed} {place}")  # noqa: S311 - start-up times, not secrets

    def start_up() -> int:
        return draws.choice(scenario.start_ups)

    native = prepared_spec.prepare(fastpath_autoscaler.native(autoscaler), Settings())
    fast = prepared_spec.prepare(fastpath_autoscaler.with_defaults(autoscaler), SCALER)
    least, most = native.limits
    epoch, schedule = scenario.epoch, build_schedule(scenario, policy)
    bounds = schedule.limits(least, most, epoch)
    # All policies begin at the count that the load needs, or the comparison would show how they start.
    first = policy.replicas if policy.name == FIXED else first_count(demand.loads, metrics, *bounds)
    within = learned_start_up(scenario.start_ups) * SECOND
    workload = Workload(
        first, start_up, epoch, pod_requests(metrics, scenario.request), partial(_share, scenario, place)
    )

    def signal(place: int, pace: Pace) -> Signal:
        is_total, load, (start, _) = metrics[place].is_total, demand.loads[place], phase.first(pace)
        if policy.poller is not None and is_total:
            return policy.poller.build_signal(pace, load, start, phase.poll)
        return Signal(pace.scrape, start, pace.window, load, first, is_total=is_total)

    def chain(decider: Decider, pace: Pace, usage: Pace | None = None) -> Chain:
        """Return a chain; with `usage` CPU and memory have a signal of that pace, and CPU has both."""
        two = {place: usage for place, metric in enumerate(metrics) if usage is not None and metric.is_usage}
        signals = [signal(place, two.get(place, pace)) for place in range(len(metrics))]
        faster = {place: signal(place, pace) for place in two if metrics[place].is_cpu}
        _, at = phase.first(pace)
        if isinstance(decider, ScalerDecider):
            decider.ranking = _rank(autoscaler.spec, metrics, signals, faster)
        return Chain(decider, metrics, signals, pace.decide, at, epoch, faster=faster)

    chains: list[AnyChain] = []
    if policy.name == BOOST:
        assert policy.native is not None
        assert policy.fast is not None
        hpa = NativeDecider(native, _with_floor(autoscaler))
        assert policy.usage is not None
        paces = [policy.usage if metric.is_usage else policy.fast for metric in metrics]
        spans = [(pace.window + pace.scrape) * SECOND for pace in paces]
        hold = boost.read_annotations(autoscaler.metadata.annotations).hold
        options = Boost(fastpath_autoscaler.BOOST, hold=hold, period=policy.native.decide * SECOND)
        raising = BoostDecider(fast, hpa, options, spans, first, within, schedule)
        chains = [chain(hpa, policy.native), chain(raising, policy.fast, policy.usage)]
    elif policy.peer is not None:
        own = [metric.capacity for metric in metrics]
        bounds = native.limits.lowest, native.limits.highest
        chains = [policy.peer.build_chain(demand.loads, own, bounds, phase.decide)]
    elif policy.native is not None:
        chains = [chain(NativeDecider(native), policy.native)]
    elif policy.fast is not None:
        constraints = replace(Constraints.of(autoscaler.spec), mode=AUTO)  # also for mode Advise
        scaler = ScalerDecider(fast, constraints, first, within, schedule)
        chains = [chain(scaler, policy.fast, policy.usage)]
    return Run(demand, workload, chains, most, epoch=epoch, schedule=schedule, observer=observer)


def _decided_by(
    scenario: Scenario, policy: SimulatedPolicy, behavior: HorizontalPodAutoscalerBehavior | None
) -> FastPathAutoscaler:
    autoscaler = overridden(scenario.autoscaler, policy, behavior)
    if policy.name == BOOST:
        autoscaler = boost.with_options(autoscaler, boost.read_annotations(autoscaler.metadata.annotations))
    option = autoscaler.spec.removal_order
    if scenario.idle is not None:
        option = (option or ScaleDown(scale_down.IDLE)) if scenario.idle else None
        autoscaler = replace(autoscaler, spec=replace(autoscaler.spec, removal_order=option))
    return autoscaler if policy.poller is None else policy.poller.rewrite(autoscaler)


def prefers_idle(scenario: Scenario, policy: SimulatedPolicy) -> bool:
    """Tell whether a policy that can have the option removes the idlest pods first."""
    return _decided_by(scenario, policy, None).spec.removal_order is not None


def build_schedule(scenario: Scenario, policy: SimulatedPolicy) -> SimulatedSchedule:
    """Return the schedule that a policy has: an HPA alone has none, and a boosted one no maximums."""
    if policy.name not in (FAST, BOOST):
        return NO_SCHEDULE
    lead = learned_lead(overridden(scenario.autoscaler, policy, None), scenario.start_ups)
    return SimulatedSchedule(
        scenario.schedules, lead, has_max=policy.name == FAST, forecast=scenario.forecast
    )


def _share(scenario: Scenario, place: int, pod: str) -> float:
    """Return what a pod takes of the load, the same with each policy: log-normal, so that few take most."""
    if not scenario.spread:
        return 1.0
    draws = random.Random(f"{scenario.seed} {place} {pod}")  # noqa: S311 - shares, not secrets
    return draws.lognormvariate(0, math.sqrt(math.log1p(scenario.spread**2)))


def _rank(
    spec: FastPathAutoscalerSpec,
    metrics: Sequence[SimulatedMetric],
    signals: Sequence[Signal],
    faster: Mapping[int, Signal],
) -> Ranking | None:
    """Return what ranks pods: the metric of the option, or the first one if that has no load here.

    Raises InputError if a scale-down waits for values of a metric that has none.
    """
    if (option := spec.removal_order) is None:
        return None
    wanted = scale_down.find_metric(option, [metric.spec for metric in metrics])
    places = [place for place, metric in enumerate(metrics) if metric.spec == wanted]
    if option.drain is not None and not places:
        expected = "expected a metric of spec.metrics: drain waits for its values, and its load is not given"
        raise InputError([Fault(f"{scale_down.PATH}.metric", option.metric or "", expected)])
    place = places[0] if places else 0
    idle = None if option.drain is None else option.drain.value.milli
    heeds_costs = spec.scale_target_ref.kind != "StatefulSet"
    return Ranking(faster.get(place, signals[place]).samples, idle, heeds_costs=heeds_costs)


def first_count(loads: Sequence[float], metrics: Sequence[SimulatedMetric], least: int, most: int) -> int:
    """Return the replicas that the first sample needs, within the bounds; the least of them in a gap."""
    needs = [
        -(-quantity.milli_from_float(load) // quantity.milli_from_float(metric.capacity))
        for load, metric in zip(loads, metrics, strict=True)
        if not math.isnan(load)
    ]
    return min(max(least, *needs), most) if needs else least


def learned_start_up(start_ups: Sequence[int]) -> int:
    """Return the start-up time that the scaler would have learned: the 95th percentile, at least a second."""
    return max(1, math.ceil(StartUps.of(start_ups).p95))


def learned_horizon(start_ups: Sequence[int]) -> int:
    """Return how many seconds ahead the minimums of a forecast look, as long as one pod takes.

    A forecast has a minimum for each minute, and raises by few pods at a time. The time of the last of more
    pods was measured to remove no more of the shortage, for more pods.
    """
    return max(1, math.ceil(StartUps.of(start_ups).until_last(1, MOST_HORIZON)))


def learned_lead(autoscaler: FastPathAutoscaler, start_ups: Sequence[int]) -> Lead:
    """Return the lead of minimums that the scaler would have learned."""
    lowest, highest = autoscaler.spec.min_replicas, autoscaler.spec.max_replicas
    return Lead(StartUps.of(start_ups), 1 if lowest is None else lowest, highest)


def _with_floor(autoscaler: FastPathAutoscaler) -> PreparedSpec:
    hpa = fastpath_autoscaler.native(autoscaler)
    floor = boost.handshake(autoscaler.metadata.name, boost.EXTERNAL)
    spec = replace(hpa.spec, metrics=(*(hpa.spec.metrics or ()), floor))
    return prepared_spec.prepare(replace(hpa, spec=spec), Settings())


def overridden(
    autoscaler: FastPathAutoscaler, policy: SimulatedPolicy, behavior: HorizontalPodAutoscalerBehavior | None
) -> FastPathAutoscaler:
    """Return the autoscaler with what a policy changes, and without the metric of boost."""
    spec = autoscaler.spec
    metrics = tuple(metric for metric in spec.metrics or () if not boost.is_handshake(metric))
    if (target := policy.target) is not None:
        metrics = tuple(retargeted(metric, target) for metric in metrics)
    if (share := policy.target_share) != 1.0:
        metrics = tuple(retargeted(metric, scaled_target(target_of(metric), share)) for metric in metrics)
    spec = replace(
        spec,
        metrics=metrics,
        min_replicas=spec.min_replicas if policy.min_replicas is None else policy.min_replicas,
        max_replicas=spec.max_replicas if policy.max_replicas is None else policy.max_replicas,
        behavior=spec.behavior if behavior is None else behavior,
    )
    return replace(autoscaler, spec=spec)


def target_of(metric: MetricSpec) -> MetricTarget:
    """Return the target of a metric that can be simulated."""
    sources = (metric.pods, metric.object, metric.external, metric.resource)
    return next(source.target for source in sources if source is not None)


def scaled_target(target: MetricTarget, share: float) -> Quantity:
    """Return a share of a target, as `retargeted` takes it: at least a thousandth, or 1 %."""
    if target.average_utilization is not None:
        return Quantity(max(1, round(target.average_utilization * share)))
    before = target.average_value or target.value
    assert before is not None
    return quantity.from_milli(max(1, round(before.milli * share)), before.form)


def retargeted(metric: MetricSpec, target: Quantity) -> MetricSpec:
    """Return a metric with another target of the same type; that of a utilization is in per cent."""
    name = {"Pods": "pods", "Object": "object", "External": "external", "Resource": "resource"}[metric.type]
    source, before = getattr(metric, name), target_of(metric)
    if before.average_utilization is not None:
        after = replace(before, average_utilization=target.milli // 1000)
    elif before.average_value is not None:
        after = replace(before, average_value=target)
    else:
        after = replace(before, value=target)
    return replace(metric, **{name: replace(source, target=after)})
