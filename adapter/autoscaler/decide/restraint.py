"""What kept the count of a decision where it is: one word for a line of a table, a ribbon or a column."""

import enum
from collections.abc import Mapping
from typing import Any

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.decision import Decision


class Restraint(enum.Enum):
    """What kept the count where it was; the value is the text for it."""

    FOLLOWS = "follows the metrics"
    TOLERATED = "within tolerance"
    HELD = "held by stabilization"
    FLOOR = "held by a floor"
    LIMITED = "limited by a policy"
    LOWEST = "held by minReplicas"
    HIGHEST = "limited by maxReplicas"
    SCHEDULED = "held by a schedule"
    FORECAST = "held by a forecast"
    ABSENT = "a metric has no value"
    DRAINING = "waits for idle pods"
    WITHHELD = "not written"
    DISABLED = "scaled to zero"
    FAILED = "cannot be scaled"


_BOUNDS = {"the maximum": Restraint.HIGHEST, "the minimum": Restraint.LOWEST}

_ENDS = {
    "failed": Restraint.FAILED,
    "selector": Restraint.FAILED,
    "disabled": Restraint.DISABLED,
    "draining": Restraint.DRAINING,
}
"""The steps that decide alone what kept the count."""


def restraint_of(decision: Decision, own: ReplicaLimits) -> Restraint:
    """Return what kept the count of a decision where it is; `own` are the limits of the spec."""
    facts = {step.name: step.facts for step in decision.trace}
    if "withheld" in facts:
        return Restraint.WITHHELD
    for name, restraint in _ENDS.items():
        if name in facts:
            return restraint
    limit = _limit_within(decision, facts, own)
    if limit is Restraint.FOLLOWS and "tolerated" in facts and not decision.rescale:
        return Restraint.TOLERATED
    return limit


def find_limit(decision: Decision, own: ReplicaLimits) -> Restraint:
    """Return which limit applied to the count, whether it is written or not."""
    return _limit_within(decision, {step.name: step.facts for step in decision.trace}, own)


def _limit_within(
    decision: Decision, facts: Mapping[str, Mapping[str, Any]], own: ReplicaLimits
) -> Restraint:
    limit, bounds = _first_limit(decision, facts), facts.get("schedule")
    if bounds is not None and limit is Restraint.LOWEST and bounds["min"] > own.lowest:
        return Restraint.FORECAST if bounds.get("forecast") == bounds["min"] else Restraint.SCHEDULED
    if bounds is not None and limit is Restraint.HIGHEST and bounds["max"] < own.highest:
        return Restraint.SCHEDULED
    return limit


def _first_limit(decision: Decision, facts: Mapping[str, Mapping[str, Any]]) -> Restraint:
    if "bounds" in facts:
        return _BOUNDS[f"the {facts['bounds']['what']}"]
    stabilized, limited = facts.get("stabilized"), facts.get("limited")
    is_held = stabilized is not None and stabilized["replicas"] != stabilized["desired"]
    if limited is not None:
        # Past recommendations may ask for more than is allowed, when the metrics no longer do.
        if (
            is_held
            and stabilized is not None
            and stabilized["desired"] <= decision.replicas < limited["from"]
        ):
            return Restraint.HELD
        return _BOUNDS.get(limited["by"], Restraint.LIMITED)
    if decision.absent:
        return Restraint.ABSENT
    return Restraint.HELD if is_held else Restraint.FOLLOWS
