"""Normalizes a desired count: stabilization windows, scaling policies, minReplicas and maxReplicas.

There are two algorithms, and a spec without `behavior` uses the legacy one: the highest recent
recommendation, at most twice the replicas or four in one sync, and down at once. With `behavior` the count
moves only as far as all recent recommendations agree, and no faster than the policies allow. Both mirror
``horizontal.go`` of Kubernetes 1.36.
"""

from typing import NamedTuple

import msgspec
from msgspec import UNSET

from adapter.autoscaler.decide import numbers
from adapter.autoscaler.decide.history import Events, History, Recommendations, changed_within
from adapter.autoscaler.decide.numbers import w32
from adapter.autoscaler.decide.restraint import HELD, HIGHEST, LIMITED, LOWEST, Restraint
from adapter.autoscaler.decide.trace import Step
from adapter.model.timestamps import SECOND


class Policy(NamedTuple):
    """At most `value` pods, or per cent if `percent`, within `period` nanoseconds."""

    percent: bool
    value: int
    period: int

    def __str__(self) -> str:
        """Return it as text: ``Percent 20 per 60 s``."""
        return f"{'Percent' if self.percent else 'Pods'} {self.value} per {self.period // SECOND} s"


class Rules(msgspec.Struct, frozen=True, weakref=True):
    """The rules of one direction: the window in nanoseconds, selectPolicy, and at least one policy."""

    window: int
    select: str
    policies: tuple[Policy, ...]

    @property
    def longest_period(self) -> int:
        """The longest period of a policy: how long a scale event of this direction counts."""
        return max(policy.period for policy in self.policies)


class ReplicaLimits(NamedTuple):
    lowest: int
    highest: int


class Normalized(msgspec.Struct, frozen=True, gc=False):
    """The count that is allowed now.

    `stabilized` is the reason of the condition AbleToScale, `limited` that of ScalingLimited, which is True
    if `is_limited`: a policy or a bound changed the stabilized count. `restraint` says what of all that
    applies, None for nothing.
    """

    replicas: int
    stabilized: str
    limited: str
    is_limited: bool
    restraint: Restraint | None
    steps: tuple[Step, ...]


def _restraint(wanted: int, stable: int, replicas: int, limit: Restraint | None) -> Restraint | None:
    """Return what applies; `limit` is what changed the stable count, None if nothing did."""
    # Past recommendations may ask for more than is allowed, when the metrics no longer do.
    if stable != wanted and (limit is None or wanted <= replicas < stable):
        return HELD
    return limit


# -- without behavior ----------------------------------------------------------------------------------------


_LEGACY_LIMITS = {
    "ScaleUpLimit": ("twice the replicas, at least 4, in one sync", LIMITED),
    "TooManyReplicas": ("the maximum", HIGHEST),
    "TooFewReplicas": ("the minimum", LOWEST),
}


def normalize_legacy(
    wanted: int, current: int, limits: ReplicaLimits, window: int, recommendations: Recommendations, now: int
) -> Normalized:
    """Apply the legacy algorithm; `window` is in nanoseconds, and an entry of exactly that age counts.

    The highest recommendation may be above `current`, and then scales up although less is wanted.
    """
    cutoff = now - window
    # Recommendations are at least some microseconds old upstream, so an empty window contains none.
    stable = recommendations.highest(wanted, cutoff - 1 if window else now)
    cap = numbers.trunc32(max(2.0 * current, 4.0))
    reason = "ScaleUpLimit" if limits.highest > cap else "TooManyReplicas"
    cap = min(cap, limits.highest)
    if stable < limits.lowest:
        replicas, reason = limits.lowest, "TooFewReplicas"
    elif stable > cap:
        replicas = cap
    else:
        replicas, reason = stable, "DesiredWithinRange"
    values = wanted, stable, UNSET, stable, UNSET, window / SECOND
    steps: tuple[Step, ...] = (Step("stabilized", values),)
    limit = None
    if replicas != stable:
        by, limit = _LEGACY_LIMITS[reason]
        steps += (Step("limited", (stable, replicas, by)),)
    return Normalized(
        replicas,
        "ReadyForNewScale" if stable == wanted else "ScaleDownStabilized",
        reason,
        replicas != stable,
        None if replicas == wanted == stable else _restraint(wanted, stable, replicas, limit),
        steps,
    )


# -- with behavior -------------------------------------------------------------------------------------------


def normalize(
    wanted: int, current: int, limits: ReplicaLimits, up: Rules, down: Rules, history: History, now: int
) -> Normalized:
    """Apply the behavior algorithm: first the windows, then the policies of the resulting direction."""
    recommendations = history.recommendations
    up_cut, down_cut = now - up.window, now - down.window
    lowest = recommendations.lowest(wanted, up_cut)
    highest = recommendations.highest(wanted, down_cut)
    stable = min(max(current, lowest), highest)
    if stable == wanted:
        stabilized = "ReadyForNewScale"
    else:
        stabilized = "ScaleUpStabilized" if wanted >= current else "ScaleDownStabilized"
    values = wanted, stable, lowest, highest, up.window / SECOND, down.window / SECOND
    steps: tuple[Step, ...] = (Step("stabilized", values),)
    replicas, reason = stable, "DesiredWithinRange"
    by: Policy | str = ""
    limited_by = None
    if stable > current:
        limit, policy = raise_limit(current, up, history.ups, history.downs, now)
        limit = max(limit, current)
        cap = min(limits.highest, limit)
        if stable > cap:
            replicas, reason, by, limited_by = cap, "ScaleUpLimit", policy, LIMITED
            if limits.highest <= limit:
                reason, by, limited_by = "TooManyReplicas", "the maximum", HIGHEST
    elif stable < current:
        limit, policy = lower_limit(current, down, history.ups, history.downs, now)
        limit = min(limit, current)
        floor = max(limits.lowest, limit)
        if stable < floor:
            replicas, reason, by, limited_by = floor, "ScaleDownLimit", policy, LIMITED
            if limits.lowest >= limit:
                reason, by, limited_by = "TooFewReplicas", "the minimum", LOWEST
    if by:
        steps += (Step("limited", (stable, replicas, str(by))),)
    restraint = None if replicas == wanted == stable else _restraint(wanted, stable, replicas, limited_by)
    return Normalized(replicas, stabilized, reason, replicas != stable, restraint, steps)


_DISABLED = "a policy that is disabled"


def raise_limit(current: int, rules: Rules, ups: Events, downs: Events, now: int) -> tuple[int, Policy | str]:
    """Return the most replicas that the policies allow, maybe below `current`, and the deciding policy."""
    if rules.select == "Disabled":
        return current, _DISABLED
    downs = downs and tuple(event for event in downs if not event.only_limits)
    allowed = []
    for policy in rules.policies:
        base = _base(policy, current, ups, downs, now)
        if policy.percent:
            allowed.append(numbers.ceil32(float(base) * (1 + float(policy.value) / 100)))
        else:
            allowed.append(w32(base + policy.value))
    limit = min(allowed) if rules.select == "Min" else max(allowed)
    return limit, rules.policies[allowed.index(limit)]


def lower_limit(current: int, rules: Rules, ups: Events, downs: Events, now: int) -> tuple[int, Policy | str]:
    """Return the fewest replicas that the policies allow, maybe negative, and the deciding policy."""
    if rules.select == "Disabled":
        return current, _DISABLED
    ups = ups and tuple(event for event in ups if not event.only_limits)
    allowed = []
    for policy in rules.policies:
        base = _base(policy, current, ups, downs, now)
        if policy.percent:
            allowed.append(numbers.trunc32(float(base) * (1 - float(policy.value) / 100)))
        else:
            allowed.append(w32(base - policy.value))
    limit = max(allowed) if rules.select == "Min" else min(allowed)
    return limit, rules.policies[allowed.index(limit)]


def _base(policy: Policy, current: int, ups: Events, downs: Events, now: int) -> int:
    """Return the replicas at the start of a policy's period, by undoing the changes since."""
    after = now - policy.period
    raised = changed_within(ups, after) if ups else 0
    return w32(current - raised + (changed_within(downs, after) if downs else 0))
