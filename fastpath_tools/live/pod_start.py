"""The hop from a created pod to a Ready one: how long it takes, what it consists of, and what a probe adds.

Pure: facts in, a hop out. The times are those of the scaler's ledger where it has one, else those of the
pods that are Ready now.

A readiness probe makes a pod wait in two ways. Before its first attempt it waits for ``initialDelaySeconds``:
if pods pass that attempt, they may have been ready for longer. After a failed attempt it waits for
``periodSeconds``, of which a pod that is ready in between wastes half on average. With a startup probe it is
that one that delays a pod, because the readiness probe begins after it.
"""

import re
import statistics
from collections.abc import Collection, Iterable, Sequence

from adapter.model.autoscaling.hpa import Condition
from adapter.model.ready_times import MOST_PODS, PodStart, PodTimes, ReadyTimes, measure, summarize
from adapter.model.timestamps import parse_go_duration
from fastpath_tools.doctor.model import (
    Facts,
    Hop,
    Improvement,
    Probe,
    Pulls,
    Starts,
    State,
    Took,
    Unread,
    seconds,
)
from fastpath_tools.live.api_objects import ContainerDocument, ContainerStatus, PodDocument, PodEvent

_NAME = "pod start"

_PULLED = re.compile(
    r'Successfully pulled image ".{1,1000}?" in (?P<took>[0-9][0-9.a-zµ]{0,30}s)'
    r"(?: \((?P<waited>[0-9][0-9.a-zµ]{0,30}s) including waiting\))?(?:\..*)?",
    re.DOTALL,
)
"""The kubelet's event Pulled. An image that is there already has another message."""

_SHORTEST = 2.0
"""The shortest delay or period that is worth a word, in seconds; the times of the API are whole seconds."""

_GOOD_PERIOD = 1.0
"""The period that is advised: the shortest that a probe can have."""


def pods_hop(facts: Facts) -> Hop:
    """Return how long pods take until they are Ready."""
    if isinstance(facts.target, Unread):
        return Hop(_NAME, State.UNKNOWN, f"the pods are not known: {facts.target.why}")
    starts = facts.target.starts
    if starts is None:
        return Hop(_NAME, State.UNKNOWN, "no ready pod without a restart to measure")
    times = starts.times
    text = f"from creation to ready, {_count(times)}{_describe_parts(starts)}"
    return Hop(_NAME, State.OK, text, Took(*times.total), advise(times, starts.probe))


def describe(starts: Starts) -> str:
    """Return how long pods take, in words."""
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


def pulls_of(events: Iterable[PodEvent], pods: Collection[str]) -> Pulls | None:
    """Return how long the images of pods took to be pulled; None without an event that says so."""
    sums: dict[str, float] = {}
    for each in events:
        found = _PULLED.fullmatch(each.message)
        name = each.involved_object.name
        if found is None or name not in pods:
            continue
        try:
            took = parse_go_duration(found["waited"] or found["took"])
        except ValueError:
            continue
        sums[name] = sums.get(name, 0.0) + took
    return Pulls(statistics.median(sums.values()), len(sums)) if sums else None


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


def probe_of(containers: Sequence[ContainerDocument]) -> Probe | None:
    """Return the probe that can delay a pod most, None without probes."""
    found = []
    for each in containers:
        kind, written = "startup", each.startup_probe
        if written is None:
            kind, written = "readiness", each.readiness_probe
        if written is not None:
            title = f"{kind} probe of container {each.name}"
            found.append(Probe(title, float(written.initial_delay_seconds), float(written.period_seconds)))
    return max(found, key=lambda each: each.delay + each.period, default=None)


def starts_of(pods: Sequence[PodDocument]) -> Starts | None:
    """Return how long Ready pods took, of those that never restarted; None without one."""
    oldest_first = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or 0)
    measured = [measure(_times_of(pod)) for pod in oldest_first]
    starts = [each for each in measured if isinstance(each, PodStart)][-MOST_PODS:]
    if not starts:
        return None
    return Starts(summarize(starts), probe_of(oldest_first[-1].spec.containers))


def _times_of(pod: PodDocument) -> PodTimes:
    status = pod.status
    conditions = {each.type: each for each in reversed(status.conditions or ())}
    statuses = status.container_statuses or ()
    return PodTimes(
        pod.metadata.creation_timestamp,
        _true_since(conditions.get("PodScheduled")),
        _true_since(conditions.get("Initialized")),
        _last_started(statuses),
        _true_since(conditions.get("Ready")),
        sum(each.restart_count for each in statuses),
    )


def _true_since(condition: Condition | None) -> int | None:
    return None if condition is None or condition.status != "True" else condition.last_transition_time


def _last_started(statuses: Sequence[ContainerStatus]) -> int | None:
    started = [each.started_at for each in statuses]
    known = [each for each in started if each is not None]
    return max(known, default=None) if len(known) == len(started) else None
