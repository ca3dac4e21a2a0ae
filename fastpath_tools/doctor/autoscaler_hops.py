"""The hops that all metrics of an autoscaler share: boost, the autoscaler itself, its behavior, its pods.

Pure: facts in, hops out.
"""

from functools import partial

from adapter.autoscaler.decide import behavior, history
from adapter.autoscaler.decide.behavior import Rules
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.boost import EXTERNAL, METRIC, OBJECT
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST, KIND
from adapter.model.autoscaling.hpa import Condition, MetricSpec
from adapter.model.ready_times import ReadyTimes
from adapter.model.timestamps import SECOND, write_instant
from adapter.model.visible import counted
from fastpath_tools.doctor.hops import (
    NOTHING,
    BoostFacts,
    Facts,
    Hop,
    Improvement,
    State,
    Took,
    describe_condition,
    seconds,
)
from fastpath_tools.live import impossible
from fastpath_tools.live.facts import (
    KEEP_ONE,
    AnswerFacts,
    Leader,
    Leaders,
    MetricFacts,
    Probe,
    Serving,
    Starts,
    Unread,
    overlap,
)

BOOSTING, FLOOR, BEHAVIOR, SCALERS = "boost", "floor", "behavior", "scalers"
"""The names of hops; a floor that cannot be read concerns the HPA itself."""

_hop, own_hop = partial(Hop.untimed, BOOSTING), partial(Hop.untimed, "autoscaler")

UNCONDITIONED = "the HPA controller has not set conditions yet"

_LATE = 60.0
"""A Lease has no holder if its renewal is overdue by so many seconds; clocks differ by less."""

_LONGEST_GROWTH = 3600

_REQUEST = "missing request for"
"""Part of the controller's message if utilization is of a request that is not there."""

_REMOVE = "remove the handshake with fastpath boost --remove"

_SCALER = "install components/scaler first (docs/guides/deploy.md#the-scaler)"

# -- boosting ------------------------------------------------------------------------------------------------


def boosting(facts: Facts) -> str:
    """Return how to boost an autoscaler: a command, or what is missing; "" for one that must not be boosted.

    A boosted HPA whose floor no server has cannot scale down any more. What is not known is no reason.
    """
    meta, offer = facts.hpa.metadata, facts.offer
    if offer.owner or facts.rivals or facts.fast_rivals:
        return ""
    if vacant := lacks_scaler(meta.namespace, offer.leaders):
        is_gone = isinstance(offer.leaders, Leaders) and offer.leaders.found
        return f"{'have the scaler run first' if is_gone else _SCALER}: {vacant}"
    way = next((floor for floor in offer.floors if may_serve(floor)), None)
    if way is None and offer.floors:
        return f"{_SCALER}: no Fastpath serves floors here"
    flag = f"--handshake {OBJECT} " if way is not None and way.spec.type == "Object" else ""
    read = f"kubectl -n {meta.namespace} get hpa {meta.name} -o yaml"
    return f"{read} | fastpath boost {flag}- | kubectl apply -f -"


def lacks_scaler(namespace: str, leaders: Leaders | Unread) -> str:
    """Return why no scaler decides a namespace, "" if one does or that is not known."""
    return "" if isinstance(leaders, Unread) or leaders.unread else vacancy(namespace, leaders)


def may_serve(floor: MetricFacts) -> bool:
    """Tell whether the server of a handshake has floors, or may have them, as far as can be seen."""
    if not isinstance(floor.serving, Unread) and not floor.serving.ours:
        return False
    answer = floor.answer
    return isinstance(answer, Unread) or answer.status == 403 or bool(answer.number)


def is_boosted(facts: Facts) -> bool:
    """Tell whether Fastpath raises an autoscaler at the moment, as far as can be seen."""
    hop = boost_hop(facts)
    if hop is None or facts.mode != BOOST or facts.rivals or facts.fast_rivals:
        return False
    is_ambiguous = any(condition.reason == "AmbiguousSelector" for condition in facts.conditions)
    return not is_ambiguous and hop.state in {State.OK, State.UNKNOWN}


def boost_hop(facts: Facts) -> Hop | None:
    """Return the state of annotation, handshake and floor, None for an autoscaler without any of them."""
    boost = facts.boost
    if boost is None:
        return None
    if fault := _floor_fault(facts, boost):
        return fault
    wishes = boost.wishes
    if wishes.faults:
        return _hop(State.FAULT, wishes.faults[0], "fix the annotation")
    if not wishes.mode:
        text = f"spec.metrics has {METRIC} without the annotation fastpath.io/mode: its value is always 0"
        annotate = Improvement(f"annotate it with fastpath.io/mode: boost, or {_REMOVE}", 0.0)
        return _hop(State.WARNING, text)._replace(change=annotate)
    owner, leaders = facts.offer.owner, facts.offer.leaders
    if wishes.mode == BOOST and owner:
        text = f"advice only, not boosted: {model.owned_by(owner)}"
        change = f"boost and its owner exclude each other: {_REMOVE}, or {owner}"
        return _hop(State.FAULT, text, change)
    if wishes.mode == BOOST and not boost.handshake.holds:
        text = f"advice only, not boosted: {boost.handshake.fault}"
        return _hop(State.FAULT, text, "write annotation and handshake again: fastpath boost HPA.yaml")
    if isinstance(leaders, Unread):
        return _hop(State.UNKNOWN, f"whether a scaler leads is not known: {leaders.why}")
    if (vacant := vacancy(facts.hpa.metadata.namespace, leaders)) and leaders.unread:
        return _hop(State.UNKNOWN, f"whether a scaler leads is not known: {vacant}")
    if vacant:
        text = f"no scaler runs for it: {vacant}"
        return _hop(State.FAULT, text, "run Fastpath with --scaler (or fastpath scale)")
    return _working(facts, boost)


def scalers_hop(leaders: Leaders | Unread) -> Hop | None:
    """Return the fault where scalers that do not share slices have Leases, else None."""
    seen = overlap(leaders)
    return Hop.untimed(SCALERS, State.FAULT, seen, KEEP_ONE) if seen else None


def _floor_fault(facts: Facts, boost: BoostFacts) -> Hop | None:
    """Return the fault if the floor cannot be read: the HPA controller keeps the replicas there are."""
    floor = boost.floor
    if floor is None or isinstance(floor.answer, Unread) or (not floor.answer.error and floor.answer.number):
        return None
    answer, serving = floor.answer, floor.serving
    forbidden = answer.status == 403
    why, change = answer.error or "it answers without a value", "start Fastpath or make it reachable again"
    if forbidden and facts.has_value(floor.spec) is False:
        why = "the HPA has no value for it"
    elif isinstance(serving, Unread):
        if forbidden:  # neither the HPA nor the registration says that anything is wrong
            return None
    elif unserved := _unserved(facts, floor.spec, serving, answer):
        text, change = unserved
        return Hop.untimed(FLOOR, State.FAULT, f"{text}: {_stuck(facts)}", change)
    elif serving.fault:
        why, change = serving.fault, serving.remedy or change
    elif forbidden:
        return None
    text = f"Fastpath is stopped or unreachable: {_stuck(facts)} ({why})"
    return Hop.untimed(FLOOR, State.FAULT, text, f"{change}, or {_REMOVE}")


def _unserved(
    facts: Facts, spec: MetricSpec, serving: Serving, answer: AnswerFacts
) -> tuple[str, str] | None:
    """Return why no server that is there has the floor, and what to do; None if one should have it."""
    if not serving.owner:
        text = f"no APIService is registered for {serving.group}, so {METRIC} has no value"
        return text, f"register Fastpath for {serving.group}, or {_REMOVE}"
    if not serving.ours:
        text = (
            f"{serving.group} is served by {serving.owner}, not by Fastpath, so {METRIC} has no value there"
        )
        floors = facts.offer.floors
        if floors and not any(floor.spec.type != spec.type and may_serve(floor) for floor in floors):
            return text, _REMOVE
        way = EXTERNAL if spec.type == "Object" else OBJECT
        return text, f"use the other handshake: fastpath boost --handshake {way} HPA.yaml"
    if answer.status in {200, 404} and not serving.fault:
        return "this Fastpath serves no floors", f"{_SCALER}, or {_REMOVE}"
    return None


def _stuck(facts: Facts) -> str:
    if facts.metrics and all(_fails(facts, metric) for metric in facts.metrics):
        return "no metric has a value, so the HPA does not scale"
    return "the HPA scales up but not down"


def _fails(facts: Facts, metric: MetricFacts) -> bool:
    answer = metric.answer
    if isinstance(answer, Unread) or answer.status == 403:
        return facts.has_value(metric.spec) is False
    return bool(answer.error)


def vacancy(namespace: str, leaders: Leaders) -> str:
    """Return why no scaler decides an autoscaler, "" if the Lease of its slice has a holder.

    With Leases that cannot be listed it is only why none is seen.
    """
    own = [_unheld(leader) for leader in leaders.found if leader.owns(namespace)]
    if "" in own:
        return ""
    strange = next((leader.lease for leader in leaders.found if not leader.is_trusted), "")
    why = own[0] if own else "its slice has no Lease" if leaders.found else "no scaler has a Lease"
    if strange and not own:
        return f"the Lease {strange} is not in the namespace of Fastpath, which --namespace gives"
    where = "" if own else f" {leaders.where}"
    others = f", and those of other namespaces cannot be listed: {leaders.unread}" if leaders.unread else ""
    return f"{why}{where}{others}"


def _unheld(leader: Leader) -> str:
    """Return why a Lease has no holder, "" if it has."""
    if not leader.holder:
        return f"the Lease {leader.lease} has no holder"
    if leader.renewed is not None and leader.renewed > leader.duration + _LATE:
        ago = seconds(leader.renewed)
        return f"{leader.holder} last renewed the Lease {leader.lease} {ago} ago"
    return ""


def _working(facts: Facts, boost: BoostFacts) -> Hop:
    """Return the hop of an autoscaler with which nothing is wrong."""
    entry = boost.entry
    if facts.mode == ADVISE:
        return _hop(State.OK, "advise mode: Fastpath reports what it would do and writes nothing")
    demoted = None if entry is None or isinstance(entry, Unread) else entry.demoted
    if demoted and demoted.until > facts.now:
        until = write_instant(demoted.until)
        text = f"advice only until {until}: {demoted.by or 'another writer'} reverted raises"
        return _hop(State.WARNING, text, "make sure that nothing else writes the replicas of the target")
    floor = boost.floor
    if floor is None or isinstance(floor.answer, Unread) or floor.answer.error:
        return _hop(State.UNKNOWN, "the handshake is correct; you may not read the floor")
    held = f"the floor is {floor.answer.total:g}" if floor.answer.total else "no floor is set"
    return _hop(State.OK, f"the handshake works; {held}")


# -- the autoscaler itself -----------------------------------------------------------------------------------


def autoscaler_hop(facts: Facts) -> Hop:
    """Return what the HPA controller says of the autoscaler, and what else scales the target."""
    meta, spec = facts.hpa.metadata, facts.hpa.spec
    target = f"{spec.scale_target_ref.kind} {spec.scale_target_ref.name}"
    # what only an edit of the objects ends comes before what the controller says of the metrics
    if facts.fast_rivals:
        named = ", ".join(f"{KIND} {rival}" for rival in facts.fast_rivals)
        text = f"{target} also has {named}, which does not scale while this HPA exists"
        others = f"kubectl -n {meta.namespace} delete fpa {' '.join(facts.fast_rivals)}"
        change = f"delete one of them: kubectl -n {meta.namespace} delete hpa {meta.name}, or {others}"
        return own_hop(State.FAULT, text, change)
    if facts.rivals:
        text = f"{target} is also scaled by {', '.join(facts.rivals)}"
        return own_hop(State.FAULT, text, f"keep only one autoscaler for {target}")
    if not facts.conditions:
        return own_hop(State.WARNING, UNCONDITIONED)
    owner = f"; {facts.owner} owns it and reverts edits" if facts.owner else ""
    problem = condition_hop(facts)
    if problem is None:
        return own_hop(State.OK, f"the HPA controller reports no problem{owner}")
    return problem if problem.state is State.FAULT else problem._replace(text=f"{problem.text}{owner}")


BY_WISH = frozenset({"AdviseOnly", "ScalingPaused"})
"""Reasons of a False condition that say only what spec.mode asks for."""


def condition_hop(facts: Facts) -> Hop | None:
    """Return what the conditions report, of either kind of autoscaler; None for no problem."""
    spec = facts.hpa.spec
    conditions = {condition.type: condition for condition in facts.conditions}
    able, active, limited = (
        conditions.get(kind, Condition()) for kind in ("AbleToScale", "ScalingActive", "ScalingLimited")
    )
    if active.reason == "ScalingDisabled":
        text = "the target is scaled to zero, which disables the autoscaler"
        return own_hop(State.FAULT, text, "give the target at least one replica")
    for condition in (able, active):
        if condition.status == "False":
            state = State.WARNING if condition.reason in BY_WISH else State.FAULT
            change = "set the resource request on the containers" if _REQUEST in condition.message else ""
            return own_hop(state, describe_condition(condition), change)
    if limited.status == "True" and limited.reason == "TooManyReplicas":
        text = f"it recommends more than maxReplicas, {spec.max_replicas}"
        is_stuck = not isinstance(facts.target, Unread) and facts.target.unready is not None
        change = "" if is_stuck else f"raise spec.maxReplicas, now {spec.max_replicas}"
        return own_hop(State.WARNING, text, change)
    if limited.status == "True" and limited.reason == "ScaleUpLimit":
        return own_hop(State.WARNING, f"its scaling policies limit it now: {limited.message}")
    return None


def unknown_hop(facts: Facts) -> Hop | None:
    """Return which word of the spec this version does not know, None if it knows all."""
    if not (text := impossible.find_unknown(facts.hpa)):
        return None
    return Hop.untimed("field", State.WARNING, text, "correct it, or update Fastpath if Kubernetes knows it")


# -- from a number of replicas to ready pods -----------------------------------------------------------------


def behavior_hop(facts: Facts) -> Hop:
    """Return how long stabilization and policies delay a doubling."""
    if unknown := impossible.find_unknown(facts.hpa, "spec.behavior.scaleUp"):
        return Hop(BEHAVIOR, State.UNKNOWN, unknown)
    spec, rules = facts.hpa.spec, impossible.prepare(facts.hpa).up
    current = 1 if isinstance(facts.target, Unread) else max(facts.target.replicas, 1)
    if rules is None:  # without spec.behavior the controller has this limit at each sync
        text = _describe_step(current, max(2 * current, 4), spec.max_replicas, facts.period.seconds)
        return Hop(BEHAVIOR, State.OK, text, NOTHING)
    if rules.select == "Disabled":
        text = "spec.behavior.scaleUp.selectPolicy is Disabled: it never scales up"
        change = Improvement("remove selectPolicy: Disabled from scaleUp")
        return Hop(BEHAVIOR, State.FAULT, text, change=change)
    goal = max(min(2 * current, spec.max_replicas), current)
    window, growth = rules.window / SECOND, growth_seconds(rules, current, goal)
    if growth is None:
        text = f"from {current} to {goal} replicas takes more than an hour"
        policies = Improvement(_more_raises(facts), float(_LONGEST_GROWTH))
        return Hop(BEHAVIOR, State.WARNING, text, Took(_LONGEST_GROWTH, _LONGEST_GROWTH), policies)
    took = Took(window + growth, window + growth)
    if window >= growth and window:
        change = Improvement("remove scaleUp.stabilizationWindowSeconds from spec.behavior", window)
        text = f"scale-up waits for {seconds(window)} of stabilization (scaleUp.stabilizationWindowSeconds)"
        return Hop(BEHAVIOR, State.WARNING, text, took, change)
    if growth:
        text = f"its policies allow a scale-up from {current} to {goal} in {seconds(growth)}"
        return Hop(BEHAVIOR, State.WARNING, text, took, Improvement(_more_raises(facts), growth))
    limit, _ = behavior.raise_limit(current, rules, (), (), 0)
    text = _describe_step(current, limit, spec.max_replicas, rules.longest_period / SECOND)
    return Hop(BEHAVIOR, State.OK, text, took)


def _more_raises(facts: Facts) -> str:
    how = "fastpath boost --scale-up fast" if facts.mode == BOOST else "Percent 100 doubles at once"
    return f"allow more in spec.behavior.scaleUp.policies: {how}"


def _describe_step(current: int, limit: int, most: int, later: float) -> str:
    """Return how far a scale-up may go at once, and when it goes further."""
    if limit >= most:
        return "may go to maxReplicas at once"
    return f"may go from {current} to {limit} at once, and further {seconds(later)} later"


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


# -- from a created pod to a Ready one -----------------------------------------------------------------------
#
# A readiness probe makes a pod wait in two ways. Before its first attempt it waits for initialDelaySeconds:
# if pods pass that attempt, they may have been ready for longer. After a failed attempt it waits for
# periodSeconds, of which a pod that is ready in between wastes half on average. With a startup probe it is
# that one that delays a pod, because the readiness probe begins after it.

_START = "pod start"

_SHORTEST = 2.0
"""The shortest delay or period that is worth a word, in seconds; the times of the API are whole seconds."""

_GOOD_PERIOD = 1.0
"""The period that is advised: the shortest that a probe can have."""


def pods_hop(facts: Facts) -> Hop:
    if isinstance(facts.target, Unread):
        return Hop(_START, State.UNKNOWN, f"the pods are not known: {facts.target.why}")
    if facts.target.unread:
        return Hop(_START, State.UNKNOWN, f"the pods are not known: {facts.target.unread}")
    starts = facts.target.starts
    if starts is None:
        return Hop(_START, State.UNKNOWN, "no ready pod without a restart to measure")
    times = starts.times
    text = f"from creation to ready, {counted(times.count, 'pod', 'pods')}{_describe_parts(starts)}"
    return Hop(_START, State.OK, text, Took(*times.total), advise(times, starts.probe))


def describe(starts: Starts) -> str:
    usual, most = map(seconds, starts.times.total)
    count = counted(starts.times.count, "pod", "pods")
    return f"p50 {usual}, p95 {most} to Ready ({count}{_describe_parts(starts)})"


def _describe_parts(starts: Starts) -> str:
    """Return the medians of the parts, and why pods had to wait."""
    times, pulls = starts.times, starts.pulls
    parts = [
        (times.scheduled, "until scheduled"),
        (times.started, "until containers run"),
        (times.ready, "until Ready"),
    ]
    words = [f"{seconds(part.p50)} {what}" for part, what in parts if part is not None]
    whys = [(times.unschedulable, "no node fitted at first"), (times.pull_failed, "an image pull failed")]
    words += [f"{what} for {count}" for count, what in whys if count]
    if pulls is not None:
        words.append(f"image pulls took {seconds(pulls.median)} in {pulls.pods} of the pods")
    return f": {', '.join(words)}" if words else ""


def may_pull(times: ReadyTimes) -> bool:
    """Tell whether containers take so long to run that image pulls are worth a look."""
    return times.started is not None and times.started.p95 >= _SHORTEST


def advise(times: ReadyTimes, probe: Probe | None) -> Improvement | None:
    """Return what to change in a probe; None where the times do not show that it delays pods."""
    if times.ready is None or probe is None:
        return None
    waited, total = times.ready.p50, seconds(times.total.p50)
    after = waited - probe.delay
    if 0 <= after < min(_SHORTEST, probe.period) and probe.delay >= _SHORTEST:
        text = f"lower initialDelaySeconds of the {probe.title}: pods pass its first attempt, "
        return Improvement(f"{text}so it may be up to {seconds(probe.delay)} of {total}", probe.delay / 2)
    if after >= probe.period >= _SHORTEST:
        text = f"lower periodSeconds of the {probe.title}: up to {seconds(probe.period)} of {total} are"
        return Improvement(f"{text} its period", (probe.period - _GOOD_PERIOD) / 2)
    return None
