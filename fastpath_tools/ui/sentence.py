"""Why the count of an autoscaler is what it is, and what comes next: the first sentence of its page.

The cause comes first, in the field's words and with its numbers. What stops the autoscaler comes before what
limits it, and both before a count that follows its metrics. Pure: documents in, text out.
"""

import math
from typing import NamedTuple

from adapter.autoscaler.decide.guards import conflicts
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.decide.trace import number
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, BOOST, HPA_KIND, KIND
from adapter.model.autoscaling.hpa import with_defaults
from adapter.model.autoscaling.view import AutoscalerView, MetricView
from adapter.model.quantity import parse_quantity
from adapter.model.timestamps import read_nanoseconds
from adapter.model.visible import counted
from fastpath_tools.doctor import autoscaler_hops, diagnosis, target_hops
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Hop, State, plain, seconds

ROUNDED = 2
"""To how many digits a product of replicas and ratio is rounded: values are in thousandths."""

UNKNOWN = "<unknown>"
"""What a metric has as current without a value."""

_BINARY = (("", 1.0), (" KiB", 2.0**10), (" MiB", 2.0**20), (" GiB", 2.0**30), (" TiB", 2.0**40))


class Sentence(NamedTuple):
    """How many replicas there are, why, what to change, and what comes next; `advice` is "" for nothing."""

    state: State
    replicas: str
    cause: str
    advice: str
    then: str

    @staticmethod
    def written(part: str) -> str:
        """Return a part with a capital, but not where it begins with a name or a command."""
        first = part.split(" ", 1)[0].rstrip(",:")
        is_word = first.isalpha() and first not in {"fastpath", "kubectl"}
        return f"{part[:1].upper() if is_word else part[:1]}{part[1:]}."


class _CountCause(NamedTuple):
    state: State
    text: str
    advice: str = ""


def describe(view: AutoscalerView, examination: Examination | None) -> Sentence:
    """Return the sentence in its parts."""
    hop = _hop(examination, diagnosis.SPEC, target_hops.PODS)
    at_objects = None if hop is None else _CountCause(hop.state, hop.text, _advice(hop))
    cause = at_objects or _fault(view, examination) or _limit(view, examination)
    then = _then(view, cause.state, may_step=_forbidden(view, examination) is None)
    return Sentence(cause.state, _count(view), cause.text, cause.advice, then)


def _count(view: AutoscalerView) -> str:
    replicas, ready = view.target.replicas, view.target.ready
    if replicas is None:
        return "The count is not known"
    some = ""
    if ready is not None and ready != replicas:
        some = f", {ready} of them ready" if ready < replicas else f", {counted(ready, 'pod', 'pods')} ready"
    return f"{counted(replicas, 'replica', 'replicas')}{some}"


def limiting(view: AutoscalerView) -> Restraint | None:
    """Return what keeps the count where it is, None if no decision says it."""
    text = "" if view.last is None else view.last.limited_by
    return next((restraint for restraint in Restraint if restraint.value == text), None)


def strongest(view: AutoscalerView) -> MetricView | None:
    """Return the metric that asks for the most replicas, None without a value."""
    known = [metric for metric in view.metrics if metric.ratio is not None]
    return max(known, key=lambda metric: metric.ratio or 0.0, default=None)


def short(metric: MetricView) -> str:
    """Return the name of a metric without its selector, and without a type that each reader knows."""
    name = metric.name.partition("(")[0].strip()
    return name.removeprefix("pods metric ").removeprefix("external metric ")


def values(metric: MetricView) -> tuple[str, str]:
    """Return current value and target in one unit: 9.06 and 10, 1.2 GiB and 2 GiB, 63% and 70%."""
    try:
        target = parse_quantity(metric.target).approximate()
    except ValueError:  # a share of requests
        return metric.current, metric.target
    units = _BINARY if metric.target.endswith("i") else _BINARY[:1]
    unit, size = [unit for unit in units if unit[1] <= max(target, 1.0)][-1]
    current = metric.current
    if current not in {"", UNKNOWN}:
        current = _figure(parse_quantity(current).approximate() / size, unit)
    return current, _figure(target / size, unit)


def _figure(value: float, unit: str) -> str:
    """Return a value with three digits, or as many as its whole part has."""
    return (f"{value:,.0f}" if abs(value) >= 100 else number(float(f"{value:.3g}"))) + unit


def demand(view: AutoscalerView) -> int | None:
    """Return how many replicas the metrics ask for before all limits, None if that is not known."""
    if view.last is not None and view.last.demand is not None:
        return view.last.demand
    metric, replicas = strongest(view), view.target.replicas
    share = None if metric is None else metric.ratio
    return None if share is None or not replicas else whole_pods(share * replicas)


def whole_pods(product: float) -> int:
    """Return the pods for a product of replicas and ratio, at least one for a value above 0."""
    return max(math.ceil(round(product, ROUNDED)), int(product > 0))


def _asks(view: AutoscalerView, *, why: bool = False) -> str:
    """Return which metric asks for how many replicas, as words, and `why`; "" without a value."""
    metric, wanted = strongest(view), demand(view)
    if metric is None or wanted is None:
        return ""
    value = ", {} at a target of {},".format(*values(metric)) if why else ""
    return f"{short(metric)}{value} asks for {wanted}"


# -- what stops it -------------------------------------------------------------------------------------------


def _fault(view: AutoscalerView, examination: Examination | None) -> _CountCause | None:
    writers, target = view.writers, view.target
    if target.error:
        return _CountCause(State.FAULT, f"{target.kind} {target.name} cannot be read: {target.error}")
    if writers.paused_until:
        text = f"{writers.paused_by or 'another writer'} reverts the count, so scaling is suspended"
        return _CountCause(State.FAULT, f"{text} until {clock(writers.paused_until)}", _only_writer(view))
    if examination is not None and _stops(examination):
        return _CountCause(State.FAULT, examination.diagnosis, examination.change)
    for metric in view.metrics:
        if metric.fault:
            return _CountCause(State.FAULT, f"{short(metric)} has no value: {plain(metric.fault)}")
    if view.last is not None and view.last.error:
        return _CountCause(State.FAULT, plain(view.last.error))
    for metric in view.metrics:
        if metric.overdue:
            age = "too old" if metric.age is None else f"{seconds(metric.age)} old"
            text = f"the value of {short(metric)} is {age}: {metric.overdue}"
            return _CountCause(State.FAULT, text, "check why its targets have no newer sample")
    if reversals := _recent(view):
        manager = "another writer" if target.manager in {"", conflicts.OWN} else target.manager
        times = f"{len(reversals)} times, the last" if len(reversals) > 1 else ""
        text = " ".join(filter(None, (manager, "reverted the count", times, f"at {clock(reversals[-1])}")))
        return _CountCause(State.WARNING, text, _only_writer(view))
    hop = _hop(examination, target_hops.TARGET)
    return None if hop is None else _CountCause(State.WARNING, hop.text, _advice(hop))


def _recent(view: AutoscalerView) -> list[str]:
    """Return the reversals of the last minutes; older ones do not count for the scaler either."""
    since = read_nanoseconds(view.time) - conflicts.REVERSALS_WITHIN
    return [at for at in view.writers.reversals if read_nanoseconds(at) > since]


def _stops(examination: Examination) -> bool:
    """Tell whether doctor reports a fault of the count, and not only of what boost would add to it.

    A behavior that never scales up counts only where the count waits for it.
    """
    faults = [hop for hop in examination.hops() if hop.state is State.FAULT]
    return any(hop.name not in {autoscaler_hops.BOOSTING, autoscaler_hops.BEHAVIOR} for hop in faults)


def _only_writer(view: AutoscalerView) -> str:
    return f"remove replicas from what else is applied to {view.target.kind} {view.target.name}"


def target_hop(examination: Examination | None) -> tuple[str, str] | None:
    """Return what doctor reports of the target, and its advice."""
    hop = _hop(examination, target_hops.TARGET)
    return None if hop is None else (hop.text, _advice(hop))


def _hop(examination: Examination | None, *names: str) -> Hop | None:
    """Return the first hop of a name, of those before the metrics'."""
    hops = () if examination is None else examination.before
    return next((hop for hop in hops if hop.name in names), None)


def _advice(hop: Hop) -> str:
    return "" if hop.change is None else hop.change.text


# -- what limits it ------------------------------------------------------------------------------------------


_HOLDS = {
    Restraint.HIGHEST: "maxReplicas is reached",
    Restraint.LOWEST: "minReplicas, {limits.min}, holds the count",
    Restraint.SCHEDULED: "{windows} allows {limits.min} to {limits.max}",
    Restraint.FORECAST: "a forecast of {limits.forecast} holds the count",
    Restraint.FLOOR: "a floor of {limits.floor} holds the count",
    Restraint.HELD: "the stabilization window holds the count",
    Restraint.LIMITED: "a scaling policy limits the step",
    Restraint.DRAINING: "the scale-down waits for idle pods",
    Restraint.WITHHELD: "mode {mode} writes nothing",
    Restraint.FOLLOWS: "the count follows the metrics",
}
"""What gives the count; what the metrics ask for follows."""


def _held(view: AutoscalerView, restraint: Restraint) -> _CountCause:
    """Return the cause of a decision; a bound that is below what the metrics ask for is a warning."""
    metric, target = strongest(view), f"{view.target.kind} {view.target.name}"
    if restraint is Restraint.TOLERATED:
        return _tolerated(view)
    if restraint is Restraint.DISABLED:
        text = f"{target} is scaled to zero, which disables the autoscaler"
        return _CountCause(State.WARNING, text, f"give {target} at least one replica")
    if restraint is Restraint.ABSENT:
        return _CountCause(State.FAULT, "a metric has no value, so the count is kept")
    if restraint is Restraint.FAILED:
        steps = () if view.last is None else view.last.trace
        return _CountCause(State.FAULT, steps[-1] if steps else "the target cannot be scaled")
    windows = ", ".join(view.limits.windows) or "a schedule"
    text = _HOLDS[restraint].format(limits=view.limits, windows=windows, mode=view.mode)
    if restraint is Restraint.WITHHELD and view.mode in {AUTO, BOOST}:
        text = "the count is not written"
    asks = _asks(view, why=restraint is Restraint.LOWEST)
    text += f"; {asks}" if asks else ""
    if restraint is Restraint.HIGHEST:
        advice = f"raise maxReplicas, now {view.limits.max}"
        if metric is not None and short(metric).endswith("_total"):
            advice = f"use a rate of {short(metric)}, which is a counter by its name and only grows"
        return _CountCause(State.WARNING, text, advice)
    is_bound = restraint not in {Restraint.WITHHELD, Restraint.FOLLOWS}
    return _CountCause(State.WARNING if is_bound and _way(view) == "up" else State.OK, text)


def _tolerated(view: AutoscalerView) -> _CountCause:
    metric = strongest(view)
    share = None if metric is None else metric.ratio
    if metric is None or share is None:
        return _CountCause(State.OK, "the metrics are within tolerance of their targets")
    value = "{} is {} at a target of {}".format(short(metric), *values(metric))
    replicas, ready = view.target.replicas, view.target.ready
    if replicas and ready is not None and 0 < ready < replicas and share > 1:
        pods = counted(replicas - ready, "pod that is", "pods that are")
        value = f"{value} in {counted(ready, 'Ready pod', 'Ready pods')}, {pods} not Ready counted as 0"
        share *= ready / replicas
    return _CountCause(State.OK, f"within tolerance: {value}, ratio {number(round(share, 2))}")


def _limit(view: AutoscalerView, examination: Examination | None) -> _CountCause:
    restraint = limiting(view)
    if restraint in {Restraint.LIMITED, Restraint.HELD} and (forbidden := _forbidden(view, examination)):
        return forbidden
    if restraint is not None:
        return _held(view, restraint)
    if examination is not None and examination.fpa is None:
        return _CountCause(State.WARNING, autoscaler_hops.UNCONDITIONED)
    if examination is not None and examination.state is State.WARNING:
        return _CountCause(State.WARNING, examination.diagnosis, examination.change)
    return _CountCause(State.UNKNOWN, "no decision was made yet")


def _forbidden(view: AutoscalerView, examination: Examination | None) -> _CountCause | None:
    """Return that an HPA never scales in the direction that its metrics ask for, None if it may."""
    if examination is None:
        return None
    behavior, way = with_defaults(examination.facts.hpa.spec).behavior, _way(view)
    rules = None if behavior is None or not way else getattr(behavior, f"scale_{way}")
    if rules is None or rules.select_policy != "Disabled":
        return None
    field = f"spec.behavior.scale{way.title()}.selectPolicy"
    text = f"{field} is Disabled: it never scales {way}; {_asks(view)}"
    return _CountCause(State.WARNING, text, f"remove {field}")


def _way(view: AutoscalerView) -> str:
    """Return the direction that the metrics ask for, "" for none."""
    wanted, replicas = demand(view), view.target.replicas
    if wanted is None or replicas is None or wanted == replicas:
        return ""
    return "up" if wanted > replicas else "down"


# -- what comes next -----------------------------------------------------------------------------------------


_ENDS = {Restraint.HELD: "when the window ends", Restraint.LIMITED: "as soon as the policy allows"}


def _then(view: AutoscalerView, state: State, *, may_step: bool) -> str:
    """Return the next change of the count; without one that it stays, "" where a fault keeps it.

    Of an HPA that no scaler decides it is not always known when a limit ends, only that it does.
    """
    change = view.next
    if change is not None:
        return f"{counted(change.replicas, 'replica', 'replicas')} at {clock(change.at)} if the load stays"
    restraint = limiting(view)
    if state is State.FAULT or restraint is None:
        return ""
    end = _ENDS.get(restraint, "") if view.kind == HPA_KIND and view.decided_since is None else ""
    if end and may_step and _way(view):
        return f"{'more' if _way(view) == 'up' else 'fewer'} replicas {end}, if the load stays"
    if view.kind == KIND and view.mode != AUTO and restraint is not Restraint.WITHHELD:
        return f"mode {view.mode} writes nothing"
    return "the count stays if the load stays"


def clock(at: str) -> str:
    """Return the time of day of an RFC 3339 instant in UTC."""
    return f"{at[11:19]} UTC"
