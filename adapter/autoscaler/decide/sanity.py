"""What a live decision does not believe, though upstream's arithmetic takes it: a value that cannot be, and one that may be out of date.

Law: absent is never zero, and what cannot be trusted is absent. A value below zero and a number that overflows are refused as a whole
(settings `strict`); a value that is overdue may raise and keep, but where it asks for fewer it counts as not there.
"""

from adapter.autoscaler.decide import readiness as podgroups
from adapter.autoscaler.decide.autoscaler import PreparedMetric
from adapter.autoscaler.decide.calculator import Proposal, Situation
from adapter.autoscaler.decide.numbers import INT32_MAX, INT64_MAX
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Unavailable

_NEGATIVE = "a value below zero is not acted on"
_OVERFLOW = "a number beyond 64 or 32 bits is not acted on"

Values = PodsReading | ObjectReading | ExternalReading


def compute(metric: PreparedMetric, reading: Values, situation: Situation) -> Proposal | Unavailable:
    """Return the proposal of a metric, or why what was read is not acted on."""
    strict = situation.settings.strict
    if strict and (refusal := _refuse(reading)):
        return Unavailable("Unusable", metric.fetching + refusal)
    outcome = metric.compute(reading, situation)
    if isinstance(outcome, Unavailable):
        return outcome
    if strict and (outcome.overflowed or not 0 <= outcome.replicas < INT32_MAX):
        return Unavailable("Unusable", metric.fetching + _OVERFLOW)
    if strict and _is_without_base(reading, outcome, situation):
        return Unavailable(
            "NoReadyPods", f"{metric.fetching}no pod is ready: nothing is known of what they can do"
        )
    if reading.overdue and outcome.replicas < situation.replicas:
        return Unavailable("Overdue", f"{metric.fetching}{reading.overdue}: it may raise, not shrink")
    return outcome


def _is_without_base(reading: Values, outcome: Proposal, situation: Situation) -> bool:
    """Tell whether a value was multiplied by no pods at all: what comes of that, none, says nothing of the load."""
    if isinstance(reading, PodsReading) or not outcome.value or not situation.replicas:
        return False
    return outcome.replicas < situation.replicas and not podgroups.count_ready(situation.pods)


def _refuse(reading: Values) -> str:
    """Return why the values are none, "" where they are."""
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
