"""The trace of a decision: its steps with their numbers, and the text of each.

A step is cheap to create and becomes text only when it is shown, because a scaler makes thousands of
decisions for each that is read. Every number that influenced the result is in a step. A template names the
facts, and how they are written: ``{ratio:number}``. A step has their values alone, in the order of `_STEPS`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from adapter.autoscaler.decide.numbers import INT64_MAX

Facts = Mapping[str, Any]

_REVERSES = "which would reverse the direction: stays {replicas}"


class Step(msgspec.Struct, frozen=True, gc=False):
    """One step: its name, a key of `_STEPS`, and its numbers."""

    name: str
    values: tuple[Any, ...]

    @property
    def facts(self) -> Facts:
        """The numbers by name, without those that are UNSET."""
        named = zip(_STEPS[self.name][0].split(), self.values, strict=True)
        return {name: value for name, value in named if value is not UNSET}

    def text(self) -> str:
        """Return the step as a sentence without a full stop."""
        template, facts = _STEPS[self.name][1], self.facts
        if not isinstance(template, str):
            template = template(facts)
        return template.format_map({name: _Fact(value) for name, value in facts.items()})


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


def measured(thousandths: int) -> str:
    """Return it as `milli` does, but for what upstream makes of a sum that exceeds 64 bits or is negative."""
    return milli(thousandths) if thousandths < INT64_MAX else "the largest number"


def binary(thousandths: int) -> str:
    """Return thousandths of bytes in powers of 1024, rounded to a tenth: ``47.7Mi``."""
    size = thousandths / 1000
    for unit in ("", "Ki", "Mi", "Gi"):
        if abs(size) < 1024:
            return f"{number(round(size, 1))}{unit}"
        size /= 1024
    return f"{number(round(size, 1))}Ti"


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "": str,
    "number": number,
    "milli": milli,
    "measured": measured,
    "binary": binary,
    "pods": lambda pods: f"{pods} pod" if pods == 1 else f"{pods} pods",
    "replicas": lambda replicas: f"{replicas} replica" if replicas == 1 else f"{replicas} replicas",
    "metric": lambda metric: metric.removesuffix("(nil)"),  # Kubernetes' text for a missing selector
}


class _Fact(NamedTuple):
    value: Any

    def __format__(self, form: str) -> str:
        return _FORMATS[form](self.value)


# -- the templates that depend on the facts ------------------------------------------------------------------


def _schedule(facts: Facts) -> str:
    has_forecast = bool(facts.get("forecast"))
    if has_forecast and not facts["windows"]:
        return "a forecast of {forecast} allows {min} to {max}"
    also = " and a forecast of {forecast}" if has_forecast else ""
    windows = ": {windows}" if facts["windows"] else ""
    return f"schedules{also} allow {{min}} to {{max}}{windows}"


def _pods(facts: Facts) -> str:
    groups = {
        "unready": ", {unready} unready",
        "missing": ", {missing} missing (no sample)",
        "ignored": ", {ignored} ignored (terminating or failed)",
    }
    return "{metric}: {ready:pods} ready" + "".join(text for name, text in groups.items() if facts[name])


def _average(facts: Facts) -> str:
    form = "binary" if facts["bytes"] else "milli"
    return f"average {{measured:{form}}}, target {{target:{form}}}: ratio {{ratio:number}}"


def _value(facts: Facts) -> str:
    share = "" if facts["replicas"] is None else " for each of {replicas:replicas}"
    return f"{{metric:metric}}: {{measured:measured}}, target {{target:milli}}{share}: ratio {{ratio:number}}"


def _repair(facts: Facts) -> str:
    parts = []
    if facts["missing"]:
        parts.append("{missing:pods} without a sample counted {missingAs}")
    if facts["unready"]:
        parts.append("{unready:pods} not ready counted as 0")
    return f"{' and '.join(parts) or 'nothing to add'}: ratio {{ratio:number}} over {{pods:pods}}"


def _tolerated(facts: Facts) -> str:
    stays = "uses status.replicas," if facts["exist"] else "stays"
    return f"ratio {{ratio:number}} is within {{low:number}} to {{high:number}}: {stays} {{replicas}}"


def _rounded(facts: Facts) -> str:
    """Return a product, and what it is rounded to if that differs."""
    product, replicas = facts["product"], facts["replicas"]
    if product == replicas:
        return "{replicas}"
    if math.isfinite(product) and math.ceil(product) == replicas:
        return "{product:number}, rounded up to {replicas}"
    return "{product:number}, outside int32: {replicas}"


def _lagging(facts: Facts) -> str:
    if facts["readyThen"]:
        return "the value is from when {readyThen:pods} were ready: counted with these, not with {ready}"
    late = "pods became ready recently, and the value may be older"
    return f"{late}: no scale-up until it covers all {{ready}}"


def _choice(facts: Facts) -> str:
    failed = " ({failed} of {metrics} metrics have no value)" if facts["failed"] else ""
    return f"highest proposal: {{replicas}}, from {{metric:metric}}{failed}"


def _blocked(facts: Facts) -> str:
    usable = " that may scale down" if facts["overdue"] else ""
    if facts["failed"] == facts["metrics"]:
        return f"no metric has a value{usable}"
    lower = "the others propose {replicas}, fewer than {current}: no scale-down"
    return f"{{failed}} of {{metrics}} metrics have no value{usable} and {lower}"


def _pending(facts: Facts) -> str:
    pods = {None: "unknown", 0: "none"}.get(facts["pods"], "{pods}")
    less = (
        f"{{value:milli}} less {{credit:milli}} that pending pods would have worked off ({pods} pending now)"
    )
    instead = " instead of {exact}" if facts["exact"] != facts["replicas"] else ""
    return f"{{metric}}: {less} is {{rest:milli}}: {{replicas:replicas}}{instead}"


def _stabilized(facts: Facts) -> str:
    if facts["replicas"] == facts["desired"]:
        return "stabilization does not change {desired}"
    within = "(scale-up stabilization): the lowest recommendation in {upSeconds:number} s was {lowest}"
    if facts["replicas"] > facts["desired"]:
        within = (
            "(scale-down stabilization): the highest recommendation in {downSeconds:number} s was {highest}"
        )
    return f"{{desired}} becomes {{replicas}} {within}"


def _result(facts: Facts) -> str:
    if facts["replicas"] == facts["current"]:
        return "stays {current}"
    return f"from {{current}} to {{replicas}}{': {reason}' if facts['reason'] else ''}"


def _withheld(facts: Facts) -> str:
    subject = "nothing is" if facts["replicas"] == facts["current"] else "{replicas} is not"
    return f"{subject} written: {{message}}"


_STEPS: Mapping[str, tuple[str, str | Callable[[Facts], str]]] = {
    "start": (
        "target replicas statusReplicas min max",
        "{target}: spec.replicas {replicas}, status.replicas {statusReplicas}, allowed {min} to {max}",
    ),
    "schedule": ("windows min max forecast", _schedule),
    "first": ("replicas", "no earlier recommendation: {replicas} is recorded as the first"),
    "bounds": (
        "current side bound what",
        "{current} is {side} {bound}, the {what}: metrics are not evaluated",
    ),
    "disabled": ("why", "the target is scaled to zero{why}: scaling is disabled"),
    "selector": ("message", "the pods cannot be found: {message}"),
    "pods": ("metric ready unready missing ignored", _pods),
    "leftOut": ("pods", "{pods:pods} left out: ready after the oldest sample"),
    "otherCut": ("pods", "{pods:pods} left out: not of one cut with the others"),
    "utilization": (
        "measured target ratio",
        "average {measured} % of requests, target {target} %: ratio {ratio:number}",
    ),
    "average": ("measured target ratio bytes", _average),
    "value": ("metric measured target replicas ratio", _value),
    "negative": (
        "metric sample",
        "{metric:metric}: the sample {sample:milli} is below zero; Kubernetes counts with it",
    ),
    "settling": ("replicas", "pods of the target come or go: stays {replicas} until all are known"),
    "lagging": ("readyThen ready", _lagging),
    "repair": ("missing missingAs unready ratio pods", _repair),
    "tolerated": ("ratio low high replicas exist", _tolerated),
    "turned": ("first ratio replicas", "the ratio goes from {first:number} to {ratio:number}, " + _REVERSES),
    "crowded": ("pods proposed replicas", "{pods:pods} would give {proposed}, " + _REVERSES),
    "proposal": (
        "base ratio product replicas",
        lambda facts: "{base:pods} x {ratio:number} = " + _rounded(facts),
    ),
    "quotient": (
        "measured target product replicas",
        lambda facts: "{measured:measured} / {target:milli} = " + _rounded(facts),
    ),
    "pending": ("metric value credit rest pods replicas exact", _pending),
    "pendingUnknown": ("metric message", "{metric}: {message}"),
    "unavailable": ("metric message", "{metric:metric}: no value: {message}"),
    "overdue": ("metric message", "{metric:metric}: the value is not used: {message}"),
    "choice": ("failed overdue metrics replicas metric", _choice),
    "blocked": ("failed overdue metrics replicas current", _blocked),
    "stabilized": ("desired replicas lowest highest upSeconds downSeconds", _stabilized),
    "limited": ("from replicas by", "{from} limited to {replicas} by {by}"),
    "raised": ("replicas", "scaling from zero: raised to the minimum of {replicas}"),
    "result": ("current replicas reason", _result),
    "fallback": ("replicas", "metrics are absent: the fallback proposes {replicas}"),
    "draining": ("replicas pods", "{pods:pods} are not idle yet: {replicas:replicas} until then"),
    "failed": ("done message", "the scale could not be {done}: {message}"),
    "withheld": ("replicas current message", _withheld),
}
"""The names of the facts of each step, and its template, or what makes that of the facts."""
