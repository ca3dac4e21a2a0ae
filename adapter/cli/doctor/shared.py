"""The hops that all metrics of an autoscaler share.

Boosting, the autoscaler itself, how fast it may grow, how long pods start. Pure: `facts` in, `hop` values
out.
"""

import msgspec

from adapter.autoscaler.decide import behavior, history, prepared_spec
from adapter.autoscaler.decide.behavior import Rules
from adapter.autoscaler.decide.observation import Settings
from adapter.cli.doctor.facts import BoostFacts, Facts, Leader, MetricFacts, Unread
from adapter.cli.doctor.stage import NOTHING, Hop, Improvement, State, Took, seconds
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.boost import EXTERNAL, METRIC, OBJECT
from adapter.model.autoscaling.defaults import with_defaults
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST, KIND
from adapter.model.autoscaling.hpa import Condition
from adapter.model.timestamps import SECOND, write_instant

BOOSTING, FLOOR = "boost", "floor"
"""The name of the hop about boosting; a floor that cannot be read concerns the HPA itself."""

_LATE = 60.0
"""A Lease that was to be renewed so many seconds ago has no holder; clocks differ by less."""

_LONGEST_GROWTH = 3600

_REQUEST = "missing request for"
"""Of the controller's message, where utilization is of a request that is not there."""

_REMOVE = "take the handshake out with fastpath boost --remove"


def is_boosted(facts: Facts) -> bool:
    """Tell whether Fastpath raises an autoscaler at the moment, as far as can be seen."""
    hop = boost_hop(facts)
    if hop is None or facts.mode != BOOST or facts.rivals or facts.fast_rivals or _is_ambiguous(facts):
        return False
    return hop.state in {State.OK, State.UNKNOWN}


def _is_ambiguous(facts: Facts) -> bool:
    status = facts.hpa.status
    return any(
        each.reason == "AmbiguousSelector"
        for each in (status.conditions if status is not None else None) or ()
    )


# -- boosting ------------------------------------------------------------------------------------------------
# -----------------


def boost_hop(facts: Facts) -> Hop | None:
    """Return how it stands with annotation, handshake and floor.

    None for an autoscaler without any of them.
    """
    boost = facts.boost
    if boost is None:
        return None
    if fault := _floor_fault(facts, boost):
        return fault
    wishes = boost.wishes
    if wishes.faults:
        return _hop(State.FAULT, wishes.faults[0], Improvement("fix the annotation"))
    if not wishes.mode:
        text = f"spec.metrics has {METRIC} and no annotation asks for boosting: its floor is always 0"
        return _hop(
            State.WARNING, text, Improvement(f"annotate it with fastpath.io/mode: boost, or {_REMOVE}", 0.0)
        )
    if wishes.mode == BOOST and boost.owner:
        apart = Improvement(f"boost and its owner exclude each other: {_REMOVE}, or {boost.owner}")
        return _hop(State.FAULT, f"it is only advised: {model.owned_by(boost.owner)}", apart)
    if wishes.mode == BOOST and not boost.handshake.holds:
        again = Improvement("write annotation and handshake again: fastpath boost HPA.yaml")
        return _hop(State.FAULT, f"it is only advised: {boost.handshake.fault}", again)
    if isinstance(boost.leaders, Unread):
        return _hop(State.UNKNOWN, f"whether a scaler leads is not known: {boost.leaders.why}")
    meta = facts.hpa.metadata
    if vacant := vacancy(meta.namespace, meta.name, boost.leaders):
        text = f"nothing decides for it: {vacant}"
        return _hop(State.FAULT, text, Improvement("run Fastpath with --scaler (or fastpath scale)"))
    return _held(facts, boost)


def _hop(state: State, text: str, change: Improvement | None = None) -> Hop:
    return Hop(BOOSTING, state, text, change=change, timed=False)


def _floor_fault(facts: Facts, boost: BoostFacts) -> Hop | None:
    """Return what it means that the floor cannot be read: the controller keeps what there is."""
    floor = boost.floor
    if floor is None or isinstance(floor.answer, Unread) or (not floor.answer.error and floor.answer.number):
        return None
    answer, serving = floor.answer, floor.serving
    why = answer.error or "it answers without a value"
    if answer.status == 403 and facts.has_value(floor.spec) is False:
        return _stopped(facts, "the HPA has no value of it")
    if isinstance(serving, Unread):
        if answer.status == 403:
            return None
    elif serving.owner and not serving.ours:
        text = (
            f"{serving.group} is served by {serving.owner}, not by Fastpath, so {METRIC} has no value there"
        )
        way = EXTERNAL if floor.spec.type == "Object" else OBJECT
        other = Improvement(f"take the other handshake: fastpath boost --handshake {way} HPA.yaml")
        return _hop(State.FAULT, f"{text}: {_stuck(facts)}", other)._replace(name=FLOOR)
    elif answer.status == 403 and serving.owner and not serving.fault:
        return None
    else:
        why = (serving.fault or why) if serving.owner else f"no APIService is registered for {serving.group}"
    return _stopped(facts, why)


def _stopped(facts: Facts, why: str) -> Hop:
    text = f"Fastpath is stopped or unreachable: {_stuck(facts)} ({why})"
    again = Improvement(f"have Fastpath run and answer again, or {_REMOVE}")
    return _hop(State.FAULT, text, again)._replace(name=FLOOR)


def _stuck(facts: Facts) -> str:
    if facts.metrics and all(_fails(facts, each) for each in facts.metrics):
        return "no metric answers, so the HPA neither grows nor shrinks"
    return "the HPA grows but cannot shrink"


def _fails(facts: Facts, metric: MetricFacts) -> bool:
    answer = metric.answer
    if isinstance(answer, Unread) or answer.status == 403:
        return facts.has_value(metric.spec) is False
    return bool(answer.error)


def vacancy(namespace: str, name: str, leaders: tuple[Leader, ...]) -> str:
    """Return why no scaler decides an autoscaler, "" where a Lease of its shard is held.

    Leases of another number of shards may have stayed behind.
    """
    found = [_unheld(each) for each in leaders if each.shard.owns(namespace, name)]
    if not found:
        return "there is no Lease of its shard" if leaders else "there is no Lease of a scaler"
    return "" if "" in found else found[0]


def _unheld(leader: Leader) -> str:
    """Return why a Lease has no holder, "" where it has."""
    if not leader.holder:
        return f"the Lease {leader.lease} has no holder"
    if leader.renewed is not None and leader.renewed > leader.duration + _LATE:
        return (
            f"{leader.holder} renewed the Lease {leader.lease} {seconds(leader.renewed)} ago for the last "
            "time"
        )
    return ""


def _held(facts: Facts, boost: BoostFacts) -> Hop:
    entry = boost.entry
    if facts.mode == ADVISE:
        return _hop(State.OK, "advised: Fastpath says what it would do and writes nothing")
    if (
        entry is not None
        and not isinstance(entry, Unread)
        and entry.demoted
        and entry.demoted.until > facts.now
    ):
        until = write_instant(entry.demoted.until)
        text = f"only advised until {until}: {entry.demoted.by or 'another writer'} took raises back"
        return _hop(
            State.WARNING, text, Improvement("see that nothing else writes the replicas of the target")
        )
    floor = boost.floor
    if floor is None or isinstance(floor.answer, Unread) or floor.answer.error:
        return _hop(State.UNKNOWN, "the handshake is right; you may not read the floor")
    held = f"{floor.answer.total:g} replicas held" if floor.answer.total else "no raise is held"
    return _hop(State.OK, f"the handshake is right and answers; {held}")


# -- the autoscaler itself
# ----------------------------------------------------------------------------------------------------


def autoscaler_hop(facts: Facts) -> Hop:
    """Return what the controller says of the autoscaler, and who else scales the target."""
    status, spec = facts.hpa.status, facts.hpa.spec
    if facts.fast_rivals:
        return _contested(facts)
    if facts.rivals:
        target = f"{spec.scale_target_ref.kind} {spec.scale_target_ref.name}"
        text = f"{', '.join(facts.rivals)} scales {target} too"
        return _said(State.FAULT, text, Improvement(f"leave one autoscaler on {target}"))
    found = {each.type: each for each in (status.conditions if status is not None else None) or ()}
    if not found:
        return _said(State.WARNING, "the HPA controller has not looked at it yet")
    active, able = found.get("ScalingActive", _NONE), found.get("AbleToScale", _NONE)
    limited = found.get("ScalingLimited", _NONE)
    if active.reason == "ScalingDisabled":
        text = "the target is scaled to zero, and so the HPA is off"
        return _said(State.FAULT, text, Improvement("give the target at least one replica"))
    for each in (able, active):
        if each.status == "False":
            request = (
                Improvement("give the containers of the pods a request for it")
                if _REQUEST in each.message
                else None
            )
            return _said(State.FAULT, f"{each.type} is False ({each.reason}): {each.message}", request)
    owner = f"; {facts.owner} owns it and takes edits back" if facts.owner else ""
    if limited.status == "True" and limited.reason == "TooManyReplicas":
        text = f"it wants more than its maximum of {spec.max_replicas}{owner}"
        return _said(State.WARNING, text, Improvement(f"raise spec.maxReplicas, now {spec.max_replicas}"))
    if limited.status == "True" and limited.reason == "ScaleUpLimit":
        return _said(State.WARNING, f"its policies hold it back now: {limited.message}{owner}")
    return _said(State.OK, f"the HPA controller is content with it{owner}")


def _contested(facts: Facts) -> Hop:
    """Return the hop for an HPA whose target FastPathAutoscalers scale as well: only the HPA scales it."""
    meta, reference = facts.hpa.metadata, facts.hpa.spec.scale_target_ref
    named = ", ".join(f"{KIND} {each}" for each in facts.fast_rivals)
    text = f"{named} scales {reference.kind} {reference.name} too, and does nothing because of this HPA"
    fast = " ".join(facts.fast_rivals)
    return _said(
        State.FAULT,
        text,
        Improvement(
            f"delete one of them: kubectl -n {meta.namespace} delete hpa {meta.name}, "
            f"or kubectl -n {meta.namespace} delete fpa {fast}"
        ),
    )


_NONE = Condition()


def _said(state: State, text: str, change: Improvement | None = None) -> Hop:
    return Hop("autoscaler", state, text, change=change, timed=False)


# -- from a count to pods
# -----------------------------------------------------------------------------------------------------


def behavior_hop(facts: Facts) -> Hop:
    """Return how long stabilization and policies hold up a doubling."""
    spec = msgspec.structs.replace(with_defaults(facts.hpa.spec), metrics=())
    ready = prepared_spec.prepare(msgspec.structs.replace(facts.hpa, spec=spec), Settings())
    rules = ready.up
    if rules is None:
        return Hop("behavior", State.OK, "may double at once", NOTHING)
    if rules.select == "Disabled":
        text = "spec.behavior.scaleUp.selectPolicy is Disabled: it never grows"
        return Hop(
            "behavior", State.FAULT, text, change=Improvement("take selectPolicy: Disabled out of scaleUp")
        )
    current = 1 if isinstance(facts.target, Unread) else max(facts.target.replicas, 1)
    goal = max(min(2 * current, spec.max_replicas), current)
    window, growth = rules.window / SECOND, growth_seconds(rules, current, goal)
    if growth is None:
        text = f"from {current} to {goal} replicas takes more than an hour"
        policies = Improvement("allow more in spec.behavior.scaleUp.policies", float(_LONGEST_GROWTH))
        return Hop("behavior", State.WARNING, text, Took(_LONGEST_GROWTH, _LONGEST_GROWTH), policies)
    took = Took(window + growth, window + growth)
    if window >= growth and window:
        change = Improvement("take scaleUp.stabilizationWindowSeconds out of spec.behavior", window)
        text = f"growth waits for {seconds(window)} of agreement (scaleUp.stabilizationWindowSeconds)"
        return Hop("behavior", State.WARNING, text, took, change)
    if growth:
        change = Improvement(
            "allow more in spec.behavior.scaleUp.policies: Percent 100 doubles at once", growth
        )
        text = f"its policies let it go from {current} to {goal} in {seconds(growth)}"
        return Hop("behavior", State.WARNING, text, took, change)
    return Hop("behavior", State.OK, "may double at once", took)


def growth_seconds(rules: Rules, current: int, goal: int) -> int | None:
    """Return how many seconds the policies take for a growth, None for more than an hour."""
    ups: history.Events = ()
    for second in range(_LONGEST_GROWTH):
        now = second * SECOND
        limit, _ = behavior.raise_limit(current, rules, ups, (), now)
        if limit > current:
            step = min(limit, goal) - current
            ups, current = history.with_event(ups, step, now, rules.longest_period), current + step
        if current >= goal:
            return second
    return None


def pods_hop(facts: Facts) -> Hop:
    """Return how long pods take until they are ready."""
    if isinstance(facts.target, Unread):
        return Hop("pod start", State.UNKNOWN, f"the pods are not known: {facts.target.why}")
    starts = facts.target.starts
    if starts is None:
        return Hop("pod start", State.UNKNOWN, "no ready pod without a restart to tell it by")
    counted = f"{starts.number} pod" if starts.number == 1 else f"{starts.number} pods"
    return Hop(
        "pod start", State.OK, f"from creation to ready, {counted}", Took(starts.median, starts.longest)
    )
