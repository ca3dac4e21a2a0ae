"""Lost values: a Ready pod that had a value has load, although nothing tells how much.

When scaling down, Kubernetes counts a pod without a value as at its target. That is wrong if a shard of
Prometheus fails, or if overloaded pods miss their scrapes: the high values vanish, and the low ones that are
left ask for fewer replicas. So a metric of which a Ready pod has lost its value is overdue
(`PodsReading.overdue`): it may scale up, not down.

- A pod has lost its value from the first reading without it. A metric without a reading, or with one that is
  overdue anyway, proves nothing: after an outage the pods come back one after the other.
- That ends when the pod has a value again, or after `LATELY`, because a pod may never report again. Then
  Kubernetes' formula holds.
- A pod that is gone, is being deleted or has ended is forgotten. While the cache has fewer pods than the
  target, those that it lacks are not gone. A pod that is not Ready does not block.
- A pod without a value since the start of this process counts as one that never had a value.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.observation import Observation, PodsReading, Reading, Ways, is_active
from adapter.model.timestamps import SECOND, write_instant

LATELY = 300 * SECOND
"""How long a lost value blocks a scale-down: the default stabilization window."""


class Reporting(NamedTuple):
    """The pods that have a value of a metric, and when the others lost theirs, by name."""

    pods: tuple[str, ...] = ()
    lost: Mapping[str, int] = {}


ReportingPods = Mapping[str, Reporting]
"""What is remembered of each metric, by what it reads of pods (`PreparedMetric.source`)."""


def follow(
    before: ReportingPods,
    sources: Sequence[str],
    observation: Observation,
    readings: Sequence[Reading],
    now: int,
) -> tuple[Sequence[Reading], ReportingPods, bool]:
    """Return the readings with metrics that lost values as overdue, what is remembered, and if any did.

    `sources` are those of the metrics, "" for a metric of no pods.
    """
    checked: list[Reading] = []
    after: dict[str, Reporting] = {}
    blocks = False
    for source, reading in zip(sources, readings, strict=True):
        seen = reading
        if source:
            known = before.get(source) or Reporting()
            ways = reading.ways if isinstance(reading, Ways) else (reading,)
            usual = ways[0]
            if isinstance(usual, PodsReading):
                known = _note(known, usual, observation, now)
                if known.lost and (why := _why(known.lost, observation)):
                    blocks = True
                    seen = msgspec.structs.replace(usual, overdue=usual.overdue or why)
                    seen = Ways((seen, *ways[1:])) if len(ways) > 1 else seen
            after[source] = known
        checked.append(seen)
    return checked, before if after == before else after, blocks


def _note(before: Reporting, reading: PodsReading, observation: Observation, now: int) -> Reporting:
    values: Mapping[str, int] = reading.values
    if reading.left_out:
        values = {**values, **reading.left_out}
    # Nearly always the same pods have values; this runs for each metric of each decision.
    if not before.lost and len(before.pods) == len(values) and all(map(values.__contains__, before.pods)):
        return before
    had = frozenset(before.pods)
    recent = {name: since for name, since in before.lost.items() if now - since < LATELY}
    have: list[str] = []
    lost: dict[str, int] = {}
    for pod in observation.pods:
        name = pod.name
        if name in values:
            have.append(name)
        elif not is_active(pod):
            continue
        elif name in had:
            # A late answer says nothing of the pods that it lacks.
            if reading.overdue:
                have.append(name)
            else:
                lost[name] = now
        elif name in recent:
            lost[name] = recent[name]
    # The cache of pods is behind the target. Pods that it lacks may exist and have lost their values; if
    # they were forgotten here, the metric could scale down as soon as they appear.
    if unknown := max(0, observation.status_replicas - len(observation.pods)):
        known = {pod.name for pod in observation.pods}
        have += [name for name in before.pods if name not in known][:unknown]
        lost |= {name: recent[name] for name in [name for name in recent if name not in known][:unknown]}
    return Reporting(tuple(have), lost)


def _why(lost: Mapping[str, int], observation: Observation) -> str:
    """Return why a metric may not scale down, "" if no Ready pod has lost its value."""
    ready = [pod.name for pod in observation.pods if pod.running_and_ready and not pod.deleting]
    times = [lost[name] for name in ready if name in lost]
    if not times:
        return ""
    # A time rather than an age: the text must not change from decision to decision.
    until = write_instant(observation.time_of_day(min(times)))
    return f"{len(times)} of {len(ready)} Ready pods lack a value that they had until {until}"
