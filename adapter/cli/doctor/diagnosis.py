"""From the hops of an autoscaler to what the user reads first: one line of diagnosis, one change.

What stops the autoscaler comes before what slows it. Of the changes that make it faster the one that saves
most is advised, and none that saves less than a second.
"""

from typing import NamedTuple

from adapter.cli.doctor import metric, shared
from adapter.cli.doctor.facts import Facts
from adapter.cli.doctor.stage import Chain, Hop, Improvement, State, Total, seconds, total

_WORTH = 1.0


class Examination(NamedTuple):
    """An autoscaler examined.

    The hops before and after the metrics', a chain for each metric, the diagnosis and the change.
    """

    facts: Facts
    before: tuple[Hop, ...]
    chains: tuple[Chain, ...]
    after: tuple[Hop, ...]
    diagnosis: str
    change: str

    @property
    def state(self) -> State:
        """Return the worst of all hops; what is not known is better than a warning."""
        order = list(State)
        return max((each.state for each in self.hops()), key=order.index)

    def hops(self) -> tuple[Hop, ...]:
        """Return all hops in their order."""
        return (*self.before, *(hop for chain in self.chains for hop in chain.hops), *self.after)

    def total(self, chain: Chain) -> Total:
        """Return what the way through one metric takes in all."""
        return total((*self.before, *chain.hops, *self.after))

    @property
    def slowest(self) -> Total:
        """Return the total of the slowest metric."""
        totals = [self.total(chain) for chain in self.chains]
        return max(totals, key=lambda each: each.took.usual) if totals else total((*self.before, *self.after))


def examine(facts: Facts) -> Examination:
    """Return what there is to say about an autoscaler."""
    boost = shared.boost_hop(facts)
    boosted = shared.is_boosted(facts)
    before = (*(() if boost is None else (boost,)), shared.autoscaler_hop(facts))
    chains = tuple(metric.chain(facts, each, boosted=boosted) for each in facts.metrics)
    after = (shared.behavior_hop(facts), shared.pods_hop(facts))
    plain = Examination(facts, before, chains, after, "", "")
    hops = plain.hops()
    return plain._replace(diagnosis=_diagnose(plain, hops), change=_advise(hops))


def _first_fault(hops: tuple[Hop, ...]) -> Hop | None:
    """Return the fault to tell.

    Causes that were found here come before what the controller makes of them, and both before what only
    boosting lacks.
    """
    faults = [each for each in hops if each.state is State.FAULT]
    return min(faults, key=lambda each: (each.name == shared.BOOSTING, each.change is None), default=None)


def _diagnose(found: Examination, hops: tuple[Hop, ...]) -> str:
    if fault := _first_fault(hops):
        return fault.text
    blocked = next(
        (each for each in hops if each.change is not None and each.change.saves == float("inf")), None
    )
    if blocked is not None:
        return blocked.text
    timed = [each for each in hops if each.took is not None]
    longest = max(timed, key=lambda each: each.took.usual if each.took else 0.0)
    unread = [each for each in hops if each.state is State.UNKNOWN and each.timed]
    rest = f"; not known: {', '.join(dict.fromkeys(each.name for each in unread))}" if unread else ""
    assert longest.took is not None
    whole = found.slowest.took.usual
    return f"most of {seconds(whole)} is {longest.name}, {seconds(longest.took.usual)}: {longest.text}{rest}"


def _advise(hops: tuple[Hop, ...]) -> str:
    fault = _first_fault(hops)
    if fault is not None:
        return fault.change.text if fault.change is not None else ""
    changes = [each.change for each in hops if each.change is not None]
    best: Improvement | None = max(changes, key=lambda each: each.saves, default=None)
    if best is None or best.saves < _WORTH:
        return ""
    return best.text if best.saves == float("inf") else f"{best.text} (saves {seconds(best.saves)})"
