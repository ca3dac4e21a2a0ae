"""How long the pods of a target took to start, from the pods that are Ready now and the events about them."""

import re
import statistics
from collections.abc import Collection, Iterable, Sequence

from adapter.model.autoscaling.hpa import Condition
from adapter.model.ready_times import MOST_PODS, PodStart, PodTimes, measure, summarize
from adapter.model.timestamps import parse_go_duration
from fastpath_tools.live.api_objects import ContainerDocument, ContainerStatus, PodDocument, PodEvent
from fastpath_tools.live.facts import Probe, Pulls, Starts

_PULLED = re.compile(
    r'Successfully pulled image ".{1,1000}?" in (?P<took>[0-9][0-9.a-zµ]{0,30}s)'
    r"(?: \((?P<waited>[0-9][0-9.a-zµ]{0,30}s) including waiting\))?(?:\..*)?",
    re.DOTALL,
)
"""The kubelet's event Pulled. An image that is there already has another message."""


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
