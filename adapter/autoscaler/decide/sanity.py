"""Rejects values that upstream's arithmetic would accept, but that are impossible or may be out of date.

With the setting `strict`, values below zero and numbers that overflow count as unavailable. An overdue value
may scale up or keep the replicas; if it asks for fewer, it counts as unavailable.
"""

from adapter.autoscaler.decide import readiness as podgroups
from adapter.autoscaler.decide.autoscaler import PreparedMetric
from adapter.autoscaler.decide.calculator import Proposal, Situation
from adapter.autoscaler.decide.numbers import INT32_MAX, INT64_MAX
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Unavailable

_NEGATIVE = "negative values are not used"
_OVERFLOW = "a number exceeds 64 or 32 bits"

Values = PodsReading | ObjectReading | ExternalReading


def compute(metric: PreparedMetric, reading: Values, situation: Situation) -> Proposal | Unavailable:
    """Return the proposal of a metric, or why its reading is not used."""
    strict = situation.settings.strict
    if strict and (refusal := _refuse(reading)):
        return Unavailable("Unusable", metric.fetching + refusal)
    outcome = metric.compute(reading, situation)
    if isinstance(outcome, Unavailable):
        return outcome
    if strict and (outcome.overflowed or not 0 <= outcome.replicas < INT32_MAX):
        return Unavailable("Unusable", metric.fetching + _OVERFLOW)
    if strict and _is_without_base(reading, outcome, situation):
        return Unavailable("NoReadyPods", f"{metric.fetching}no pod is ready, so the load per pod is unknown")
    if reading.overdue and outcome.replicas < situation.replicas:
        return Unavailable("Overdue", f"{metric.fetching}{reading.overdue}: it may raise, not shrink")
    return outcome


def _is_without_base(reading: Values, outcome: Proposal, situation: Situation) -> bool:
    """Tell whether a value was multiplied by zero ready pods: the result says nothing about the load."""
    if isinstance(reading, PodsReading) or not outcome.value or not situation.replicas:
        return False
    return outcome.replicas < situation.replicas and not podgroups.count_ready(situation.pods)


def _refuse(reading: Values) -> str:
    """Return why values are rejected, "" if they are not."""
    if isinstance(reading, PodsReading):
        values = reading.values.values()
        if values and min(values) < 0:
            return _NEGATIVE
    elif isinstance(reading, ObjectReading):
        if reading.value < 0:
            return _NEGATIVE
    elif reading.values:
        if min(reading.values) < 0:
            return _NEGATIVE
        if sum(reading.values) > INT64_MAX:
            return _OVERFLOW
    return ""
