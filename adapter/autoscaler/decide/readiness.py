"""Which pods count: the groups that upstream sorts them into before it averages, and the ready ones that a single value is for.

The law is ``groupPods`` of 1.36. Readiness is looked at for cpu alone; the age of a sample never.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.autoscaler.decide.observation import PodsReading
from adapter.autoscaler.decide.settings import Settings
from adapter.model.pods import PodFacts
from adapter.model.timestamps import NEVER

_NO_SAMPLE = (int(NEVER), 0)


class Groups(NamedTuple):
    """The number of pods that count, and the names of those that do not count as they are.

    `unready` have no say on the way down and count as 0 on the way up; `missing` have no sample; `ignored` are on their way out.
    """

    ready: int
    unready: list[str]
    missing: list[str]
    ignored: list[str]


def group_pods(
    pods: Sequence[PodFacts], reading: PodsReading, settings: Settings, now: int, *, cpu: bool
) -> Groups:
    """Sort pods into groups; for each the first rule that fits decides. Completed pods are not left out: they are missing."""
    ready = 0
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    values, samples = reading.values, reading.samples
    for pod in pods:
        if pod.deleting or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif pod.name not in values:
            missing.append(pod.name)
        elif cpu and _starting_or_unready(pod, samples.get(pod.name, _NO_SAMPLE), settings, now):
            unready.append(pod.name)
        else:
            ready += 1
    return Groups(ready, unready, missing, ignored)


def _starting_or_unready(pod: PodFacts, sample: tuple[int, int], settings: Settings, now: int) -> bool:
    """Tell whether the cpu of a pod says nothing yet.

    A young pod has to be ready (or not known to be unready) for a whole sample's window; an old one may be unready, if it was ever
    ready.
    """
    if pod.ready is None or pod.started is None:
        return True
    if pod.started + settings.cpu_initialization_period > now:
        taken, window = sample
        return pod.ready == "False" or taken < pod.ready_since + window
    return pod.ready == "False" and pod.started + settings.initial_readiness_delay > pod.ready_since


def count_ready(pods: Sequence[PodFacts]) -> int:
    """Return how many pods run and are ready, terminating ones included."""
    return sum(pod.running_and_ready for pod in pods)
