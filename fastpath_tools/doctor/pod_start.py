"""The hop from a created pod to a Ready one: how long it takes, what it consists of, and what a probe adds.

A readiness probe makes a pod wait in two ways. Before its first attempt it waits for ``initialDelaySeconds``:
if pods pass that attempt, they may have been ready for longer. After a failed attempt it waits for
``periodSeconds``, of which a pod that is ready in between wastes half on average. With a startup probe it is
that one that delays a pod, because the readiness probe begins after it.
"""

from adapter.model.ready_times import ReadyTimes
from fastpath_tools.doctor.hops import Facts, Hop, Improvement, State, Took, seconds
from fastpath_tools.live.facts import Probe, Starts, Unread

_NAME = "pod start"


_SHORTEST = 2.0
"""The shortest delay or period that is worth a word, in seconds; the times of the API are whole seconds."""


_GOOD_PERIOD = 1.0
"""The period that is advised: the shortest that a probe can have."""


def pods_hop(facts: Facts) -> Hop:
    if isinstance(facts.target, Unread):
        return Hop(_NAME, State.UNKNOWN, f"the pods are not known: {facts.target.why}")
    starts = facts.target.starts
    if starts is None:
        return Hop(_NAME, State.UNKNOWN, "no ready pod without a restart to measure")
    times = starts.times
    text = f"from creation to ready, {_count(times)}{_describe_parts(starts)}"
    return Hop(_NAME, State.OK, text, Took(*times.total), advise(times, starts.probe))


def describe(starts: Starts) -> str:
    usual, most = map(seconds, starts.times.total)
    return f"p50 {usual}, p95 {most} to Ready ({_count(starts.times)}{_describe_parts(starts)})"


def _count(times: ReadyTimes) -> str:
    return f"{times.count} pod" if times.count == 1 else f"{times.count} pods"


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
