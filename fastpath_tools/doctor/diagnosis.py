"""What the user reads first about an autoscaler: its state, one line of diagnosis, and one change.

What stops the autoscaler comes before what slows it. Of the changes that make it faster the one that saves
most is advised, and none that saves less than a second. The hops of a FastPathAutoscaler are not followed:
the scaler records its decisions, and `fastpath explain` shows them.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.bounds.forecast.verdict import REFUSED
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST, FastPathAutoscaler
from adapter.model.autoscaling.status import FORECAST_READY
from fastpath_tools.doctor import autoscaler_hops, metric_hops, target_hops, usage_hops
from fastpath_tools.doctor.hops import Facts, Hop, Improvement, MetricChain, State, Total, seconds, total
from fastpath_tools.live import impossible
from fastpath_tools.live.facts import Unread, unlisted

_WORTH = 1.0
"""The fewest seconds that an advised change saves."""


class Examination(NamedTuple):
    """An autoscaler examined: hops before and after the metrics', and a chain for each metric.

    A FastPathAutoscaler, `fpa`, has no chains. `before` is then what is wrong with it, or else all that is
    known of it.
    """

    facts: Facts
    before: tuple[Hop, ...]
    chains: tuple[MetricChain, ...] = ()
    after: tuple[Hop, ...] = ()
    diagnosis: str = ""
    change: str = ""
    fpa: FastPathAutoscaler | None = None

    @property
    def key(self) -> str:
        return f"{self.facts.hpa.metadata.namespace}/{self.facts.hpa.metadata.name}"

    @property
    def mode(self) -> str:
        """The mode that the autoscaler asks for, an HPA by its annotation; "" for none."""
        return self.facts.mode if self.fpa is None else self.fpa.spec.mode

    @property
    def explain(self) -> str:
        return f"fastpath explain {self.key}"

    @property
    def state(self) -> State:
        order = list(State)
        return max((hop.state for hop in self.hops()), key=order.index)

    def hops(self) -> tuple[Hop, ...]:
        return (*self.before, *(hop for chain in self.chains for hop in chain.hops), *self.after)

    def total(self, chain: MetricChain) -> Total:
        return total((*self.before, *chain.hops, *self.after))

    @property
    def slowest(self) -> Total:
        totals = [self.total(chain) for chain in self.chains]
        return (
            max(totals, key=lambda total: total.took.usual) if totals else total((*self.before, *self.after))
        )


SPEC = "spec"


def examine(facts: Facts) -> Examination:
    boost = autoscaler_hops.boost_hop(facts)
    boosted = autoscaler_hops.is_boosted(facts)
    scalers = autoscaler_hops.scalers_hop(facts.offer.leaders) if facts.mode == BOOST else None
    unknown = autoscaler_hops.unknown_hop(facts)
    hops = (scalers, *_at_objects(facts), boost, autoscaler_hops.autoscaler_hop(facts), unknown)
    before = tuple(hop for hop in hops if hop is not None)
    chains = tuple(metric_hops.chain(facts, metric, boosted=boosted) for metric in facts.metrics)
    after = [autoscaler_hops.behavior_hop(facts), autoscaler_hops.pods_hop(facts)]
    if facts.scale_down is not None:
        how = autoscaler_hops.boosting(facts)
        after.append(target_hops.scale_down_hop(facts.scale_down, how))
    examined = Examination(facts, before, chains, tuple(after))
    every = examined.hops()
    # scalers that overwrite each other and pods that cannot start come first, however short that is; causes
    # that were found here come before what the controller makes of them, and both before what boosting lacks
    first = {autoscaler_hops.SCALERS, SPEC, target_hops.PODS}
    faults = [hop for hop in every if hop.state is State.FAULT or hop.name in first]
    faults.sort(
        key=lambda hop: (hop.name not in first, hop.name == autoscaler_hops.BOOSTING, hop.change is None)
    )
    if faults:
        change = faults[0].change
        return examined._replace(diagnosis=faults[0].text, change=change.text if change is not None else "")
    changes = [hop.change for hop in every if hop.change is not None]
    return examined._replace(diagnosis=_slowest_hop(examined, every), change=_best_change(changes))


def _at_objects(facts: Facts) -> tuple[Hop | None, Hop | None, Hop | None]:
    """Return what can never be, what is wrong with the target, and which scrape of it fails.

    These come before what bounds a count.
    """
    cause = impossible.find(facts.hpa, facts.target)
    unanswered = (metric.answer for metric in facts.metrics if isinstance(metric.answer, Unread))
    answer = next((answer for answer in unanswered if answer.change), None)
    if cause is None and answer is not None:
        cause = impossible.Impossible(answer.why, answer.change)
    spec = None
    if cause is not None:
        spec = Hop.untimed(SPEC, State.FAULT, cause.text, cause.change)
    status, reference = facts.hpa.status, facts.hpa.spec.scale_target_ref
    scaled = None if status is None else status.last_scale_time
    scrape = None
    if facts.scrape_fault:
        change = "correct the port in scrape of its rule, or what listens there"
        scrape = Hop.untimed("scrape", State.FAULT, facts.scrape_fault, change)
    return spec, target_hops.target_hop(facts.target, reference, scaled), scrape


def boost_gain(examined: Examination) -> float:
    """Return the seconds that boosting takes off the slowest chain, 0 for one that Fastpath decides."""
    facts = examined.facts
    if examined.fpa is not None or facts.mode == BOOST:
        return 0.0
    chains = tuple(metric_hops.chain(facts, metric, boosted=True) for metric in facts.metrics)
    return max(examined.slowest.took.usual - examined._replace(chains=chains).slowest.took.usual, 0.0)


def _slowest_hop(examined: Examination, hops: tuple[Hop, ...]) -> str:
    for hop in hops:
        if hop.change is not None and math.isinf(hop.change.saves):
            return hop.text
    took, longest = max(
        ((hop.took.usual, hop) for hop in hops if hop.took is not None), key=lambda timed: timed[0]
    )
    unread = dict.fromkeys(hop.name for hop in hops if hop.state is State.UNKNOWN and hop.timed)
    rest = f"; not known: {', '.join(unread)}" if unread else ""
    whole = seconds(examined.slowest.took.usual)
    return f"most of {whole} is {longest.name}, {seconds(took)}: {longest.text}{rest}"


def _best_change(changes: Sequence[Improvement]) -> str:
    best = max(changes, key=lambda change: change.saves, default=None)
    if best is None or best.saves < _WORTH:
        return ""
    return best.text if math.isinf(best.saves) else f"{best.text} (saves {seconds(best.saves)})"


def examine_fast(fpa: FastPathAutoscaler, facts: Facts) -> Examination:
    """Return the diagnosis of a FastPathAutoscaler: two scalers, two autoscalers, no owner, or a condition.

    Without these it is what its pods expose of their usage, how long they take to be Ready, and whether idle
    scale-down has an effect, as far as that is known. The facts are those of `native`; their `rivals` are the
    other autoscalers of its target as ``Kind name``.
    """
    problem = _problem(fpa, facts)
    hops = tuple(_known(facts)) if problem is None else (problem,)
    changes = [hop.change for hop in hops if hop.change is not None]
    diagnosis = "; ".join(hop.text for hop in hops)
    return Examination(facts, hops, diagnosis=diagnosis, change=_best_change(changes), fpa=fpa)


def _problem(fpa: FastPathAutoscaler, facts: Facts) -> Hop | None:
    """Return what is wrong with a FastPathAutoscaler, None for nothing."""
    reference, leaders = fpa.spec.scale_target_ref, facts.offer.leaders
    # what keeps the scaler from deciding comes first: its conditions may then be old
    if fpa.spec.mode == AUTO and (hop := autoscaler_hops.scalers_hop(leaders)) is not None:
        return hop
    if facts.rivals:
        target = f"{reference.kind} {reference.name}"
        text = f"{target} is also scaled by {', '.join(facts.rivals)}, so Fastpath does not scale it"
        return autoscaler_hops.own_hop(State.FAULT, text, f"keep only one autoscaler for {target}")
    vacant = "" if isinstance(leaders, Unread) else autoscaler_hops.vacancy(fpa.metadata.namespace, leaders)
    if vacant and not unlisted(leaders):
        advice = "run Fastpath with --scaler (or fastpath scale)"
        return autoscaler_hops.own_hop(State.FAULT, f"no scaler runs for it: {vacant}", advice)
    cause, shown, scrape = _at_objects(facts)
    if cause is not None:
        return cause
    if shown is not None and (shown.state is State.FAULT or shown.name == target_hops.PODS):
        return shown
    if scrape is not None:
        return scrape
    if not facts.conditions:
        text = f"the scaler has not set conditions yet{': ' if vacant else ''}{vacant}"
        return autoscaler_hops.own_hop(State.WARNING, text)
    problem = autoscaler_hops.condition_hop(facts)
    if problem is not None and problem.state is State.FAULT:
        return _lost_metric(facts) or problem
    # what the target shows explains a limit that has no advice of its own
    return shown or problem


def _lost_metric(facts: Facts) -> Hop | None:
    """Return where the value of a metric is lost, None if that is not known."""
    lost = (metric for metric in facts.metrics if facts.has_value(metric.spec) is False)
    hops = (hop for metric in lost for hop in metric_hops.chain(facts, metric, boosted=True).hops)
    return next((hop for hop in hops if hop.state is State.FAULT and hop.change is not None), None)


def _known(facts: Facts) -> Iterator[Hop]:
    """Yield what is known of a FastPathAutoscaler whose conditions report no problem."""
    yield autoscaler_hops.own_hop(State.OK, "its conditions report no problem")
    for metric in facts.metrics:
        if metric.usage is not None:
            state, text = usage_hops.describe(metric.usage)
            took = total(metric_hops.without_rule(metric)).took.usual + metric_hops.ASKED_EVERY / 2
            change = usage_hops.improvement(metric.usage, took, metric_hops.TICK, "")
            yield Hop("scrape", state, f"{metric.label}: {text}", change=change, timed=False)
        if metric.resize:
            yield Hop.untimed("requests", State.WARNING, f"{metric.label}: {metric.resize}")
    starts = None if isinstance(facts.target, Unread) else facts.target.starts
    if starts is not None:
        change = autoscaler_hops.advise(starts.times, starts.probe)
        yield Hop("pod start", State.OK, f"pods take {autoscaler_hops.describe(starts)}", change=change)
    if facts.scale_down is not None:
        yield target_hops.scale_down_hop(facts.scale_down)
    for condition in facts.conditions:
        if (condition.type, condition.reason) == (FORECAST_READY, REFUSED):
            # It names the change that is better than a forecast.
            yield autoscaler_hops.own_hop(State.OK, condition.message)
