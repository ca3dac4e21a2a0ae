"""Workloads whose pods share a total load that jumps from one pod's to ten pods', and how they were scaled.

Half of them have a boosted HorizontalPodAutoscaler, half a FastPathAutoscaler. The pods become ready one
after the other and are scraped once a second, so samples are from before and after the load has moved.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adapter.model.autoscaling.fastpath_autoscaler import GROUP, KIND
from tests.support import boosting
from tests.support.boosting import BEHAVIOR, UNIT, Workload
from tests.support.scalewrites import BOOSTER, Audit

NEEDED = 10
STARTUP = (0.5, 3.0)
"""The least and the most seconds until a pod is ready."""

_KIND = "pods-scraped"
_SPEC = {"minReplicas": 1, "maxReplicas": 13, "behavior": BEHAVIOR}


def random_startup(seed: int) -> Callable[[], float]:
    generator = random.Random(seed)
    return lambda: generator.uniform(*STARTUP)


def workloads(count: int) -> list[Workload]:
    """Return workloads of one pod, boosted and scaled by the fast-scaler in turns."""
    load = boosting.step(UNIT, NEEDED * UNIT)
    return [
        Workload(
            f"{('boosted', 'fast')[number % 2]}-{number:02}",
            _KIND,
            load,
            boosting.fleet(1)[0].way if number % 2 == 0 else "",
            _SPEC,
            replicas=1,
        )
        for number in range(count)
    ]


def objects(workload: Workload, namespace: str) -> list[dict[str, Any]]:
    """Return the objects of a workload with its autoscaler."""
    found = workload.objects(namespace)
    if not workload.way:
        autoscaler = found[-1]
        autoscaler |= {"apiVersion": f"{GROUP}/v1alpha1", "kind": KIND}
    return found


class Scaling(NamedTuple):
    """The most replicas that Fastpath asked for, and when the needed count was asked for, in seconds."""

    name: str
    most: int
    full: float


def judge(audit: Audit, names: Sequence[str], start: float) -> list[Scaling]:
    """Return how workloads were scaled since the load jumped; all have reached the needed count."""
    return [
        Scaling(
            name,
            max((write.after for write in audit.of(name, BOOSTER, start)), default=0),
            next(write.time for write in audit.of(name, since=start) if write.after >= NEEDED) - start,
        )
        for name in names
    ]
