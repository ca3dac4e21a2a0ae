"""The trace of a decision: its steps with their numbers, and the text of each.

A step is cheap to create and becomes text only when it is shown, because a scaler makes thousands of
decisions for each that is read. Every number that influenced the result is in a step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Facts = Mapping[str, Any]

_UNDECIDED = frozenset({"selector", "blocked", "failed", "withheld"})
"""The steps that can end a decision without a count."""


class Step(NamedTuple):
    """One step: its name, a key of `_TEXTS`, and its numbers."""

    name: str
    facts: Facts

    def text(self) -> str:
        """Return the step as a sentence without a full stop."""
        text = _TEXTS[self.name]
        return text.format_map(self.facts) if isinstance(text, str) else text(self.facts)


def undecided(steps: Sequence[Step]) -> str:
    """Return why no count was decided, "" if no step says it."""
    return next((step.text() for step in reversed(steps) if step.name in _UNDECIDED), "")


def number(value: float) -> str:
    """Return a number with at most four digits after the point, without trailing zeros."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    return f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else f"{value:.6g}"


def milli(thousandths: int) -> str:
    """Return thousandths as a plain number."""
    whole, rest = divmod(abs(thousandths), 1000)
    sign = "-" if thousandths < 0 else ""
    return f"{sign}{whole}.{rest:03d}".rstrip("0").rstrip(".") if rest else f"{sign}{whole}"


def binary(thousandths: int) -> str:
    """Return thousandths of bytes in powers of 1024, rounded to a tenth: ``47.7Mi``."""
    size = thousandths / 1000
    for unit in ("", "Ki", "Mi", "Gi"):
        if abs(size) < 1024:
            return f"{number(round(size, 1))}{unit}"
        size /= 1024
    return f"{number(round(size, 1))}Ti"


def _start(facts: Facts) -> str:
    counts = f"spec.replicas {facts['replicas']}, status.replicas {facts['statusReplicas']}"
    return f"{facts['target']}: {counts}, allowed {facts['min']} to {facts['max']}"


def _schedule(facts: Facts) -> str:
    forecast, allowed = facts.get("forecast"), f"{facts['min']} to {facts['max']}"
    if not facts["windows"]:
        return f"a forecast of {forecast} allows {allowed}"
    also = f" and a forecast of {forecast}" if forecast else ""
    return f"schedules{also} allow {allowed}: {facts['windows']}"


_GROUPS = {
    "unready": "unready",
    "missing": "missing (no sample)",
    "ignored": "ignored (terminating or failed)",
}


def _pods(facts: Facts) -> str:
    groups = [_pods_count(facts["ready"]) + " ready"]
    groups += [f"{facts[name]} {words}" for name, words in _GROUPS.items() if facts[name]]
    return f"{facts['metric']}: {', '.join(groups)}"


def _left_out(facts: Facts) -> str:
    return f"{_pods_count(facts['pods'])} left out: ready after the oldest sample"


def _other_cut(facts: Facts) -> str:
    return f"{_pods_count(facts['pods'])} left out: not of one cut with the others"


def _utilization(facts: Facts) -> str:
    shares = f"average {facts['measured']} % of requests, target {facts['target']} %"
    return f"{shares}: ratio {number(facts['ratio'])}"


def _average(facts: Facts) -> str:
    shown = binary if facts["bytes"] else milli
    return (
        f"average {shown(facts['measured'])}, target {shown(facts['target'])}: ratio {number(facts['ratio'])}"
    )


def _value(facts: Facts) -> str:
    measured, target = milli(facts["measured"]), milli(facts["target"])
    each = "" if facts["replicas"] is None else f" for each of {_count(facts['replicas'])}"
    return f"{_called(facts['metric'])}: {measured}, target {target}{each}: ratio {number(facts['ratio'])}"


def _repair(facts: Facts) -> str:
    parts = []
    if facts["missing"]:
        parts.append(f"{_pods_count(facts['missing'])} without a sample counted {facts['missingAs']}")
    if facts["unready"]:
        parts.append(f"{_pods_count(facts['unready'])} not ready counted as 0")
    added = " and ".join(parts) or "nothing to add"
    return f"{added}: ratio {number(facts['ratio'])} over {_pods_count(facts['pods'])}"


def _tolerated(facts: Facts) -> str:
    low, high = number(facts["low"]), number(facts["high"])
    stays = "uses status.replicas," if facts["exist"] else "stays"
    return f"ratio {number(facts['ratio'])} is within {low} to {high}: {stays} {facts['replicas']}"


def _turned(facts: Facts) -> str:
    return f"the ratio goes from {number(facts['first'])} to {number(facts['ratio'])}, {_stays_for(facts)}"


def _crowded(facts: Facts) -> str:
    return f"{_pods_count(facts['pods'])} would give {facts['proposed']}, {_stays_for(facts)}"


def _stays_for(facts: Facts) -> str:
    return f"which would reverse the direction: stays {facts['replicas']}"


def _proposal(facts: Facts) -> str:
    return f"{_pods_count(facts['base'])} x {number(facts['ratio'])} = {_rounded(facts)}"


def _quotient(facts: Facts) -> str:
    return f"{milli(facts['measured'])} / {milli(facts['target'])} = {_rounded(facts)}"


def _rounded(facts: Facts) -> str:
    """Return a product, and what it is rounded to if that differs."""
    product, replicas = facts["product"], facts["replicas"]
    if product == replicas:
        return str(replicas)
    if math.isfinite(product) and math.ceil(product) == replicas:
        return f"{number(product)}, rounded up to {replicas}"
    return f"{number(product)}, outside int32: {replicas}"


def _lagging(facts: Facts) -> str:
    if not facts["readyThen"]:
        late = "pods became ready recently, and the value may be older"
        return f"{late}: no scale-up until it covers all {facts['ready']}"
    then = f"the value is from when {_pods_count(facts['readyThen'])} were ready"
    return f"{then}: counted with these, not with {facts['ready']}"


def _unavailable(facts: Facts) -> str:
    return f"{_called(facts['metric'])}: no value: {facts['message']}"


def _overdue(facts: Facts) -> str:
    return f"{_called(facts['metric'])}: the value is not used: {facts['message']}"


def _choice(facts: Facts) -> str:
    left_out = f" ({facts['failed']} of {facts['metrics']} metrics have no value)" if facts["failed"] else ""
    return f"highest proposal: {facts['replicas']}, from {_called(facts['metric'])}{left_out}"


def _blocked(facts: Facts) -> str:
    if facts["failed"] == facts["metrics"]:
        return "no metric has a value that may scale down" if facts["overdue"] else "no metric has a value"
    usable = "no value that may scale down" if facts["overdue"] else "no value"
    return (
        f"{facts['failed']} of {facts['metrics']} metrics have {usable} and the others propose "
        f"{facts['replicas']}, fewer than {facts['current']}: no scale-down"
    )


def _pending(facts: Facts) -> str:
    value, credit, rest = (milli(facts[name]) for name in ("value", "credit", "rest"))
    now = "unknown" if facts["pods"] is None else facts["pods"] or "none"
    less = f"{value} less {credit} that pending pods would have worked off ({now} pending now) is {rest}"
    instead = f" instead of {facts['exact']}" if facts["exact"] != facts["replicas"] else ""
    return f"{facts['metric']}: {less}: {_count(facts['replicas'])}{instead}"


def _stabilized(facts: Facts) -> str:
    wanted, replicas = facts["desired"], facts["replicas"]
    if replicas == wanted:
        return f"stabilization does not change {wanted}"
    if replicas > wanted:
        extreme, value, way, seconds = "highest", facts["highest"], "down", facts["downSeconds"]
    else:
        extreme, value, way, seconds = "lowest", facts["lowest"], "up", facts["upSeconds"]
    within = f"the {extreme} recommendation in {number(seconds)} s was {value}"
    return f"{wanted} becomes {replicas} (scale-{way} stabilization): {within}"


def _result(facts: Facts) -> str:
    if facts["replicas"] == facts["current"]:
        return f"stays {facts['current']}"
    return f"from {facts['current']} to {facts['replicas']}{': ' if facts['reason'] else ''}{facts['reason']}"


def _withheld(facts: Facts) -> str:
    if facts["replicas"] == facts["current"]:
        return f"nothing is written: {facts['message']}"
    return f"{facts['replicas']} is not written: {facts['message']}"


def _called(metric: str) -> str:
    """Return a metric's name without Kubernetes' text for a missing selector."""
    return metric.removesuffix("(nil)")


def _count(replicas: int) -> str:
    return f"{replicas} replica" if replicas == 1 else f"{replicas} replicas"


def _pods_count(pods: int) -> str:
    return f"{pods} pod" if pods == 1 else f"{pods} pods"


_TEXTS: dict[str, str | Callable[[Facts], str]] = {
    "start": _start,
    "schedule": _schedule,
    "first": "no earlier recommendation: {replicas} is recorded as the first",
    "bounds": "{current} is {side} {bound}, the {what}: metrics are not evaluated",
    "disabled": "the target is scaled to zero{why}: scaling is disabled",
    "selector": "the pods cannot be found: {message}",
    "pods": _pods,
    "leftOut": _left_out,
    "otherCut": _other_cut,
    "utilization": _utilization,
    "average": _average,
    "value": _value,
    "lagging": _lagging,
    "repair": _repair,
    "tolerated": _tolerated,
    "turned": _turned,
    "crowded": _crowded,
    "proposal": _proposal,
    "quotient": _quotient,
    "pending": _pending,
    "pendingUnknown": "{metric}: {message}",
    "unavailable": _unavailable,
    "overdue": _overdue,
    "choice": _choice,
    "blocked": _blocked,
    "stabilized": _stabilized,
    "limited": "{from} limited to {replicas} by {by}",
    "raised": "scaling from zero: raised to the minimum of {replicas}",
    "result": _result,
    "fallback": "metrics are absent: the fallback proposes {replicas}",
    "failed": "the scale could not be {done}: {message}",
    "withheld": _withheld,
}
