"""Workloads whose pods share a total load that jumps from one pod's to ten pods', and how they were scaled.

Half of them have a boosted HorizontalPodAutoscaler, half a FastPathAutoscaler. The pods become ready one
after the other and are scraped once a second, so samples are from before and after the load has moved.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter.model.autoscaling import boost
from tests.support.scalewrites import BOOSTER, Audit
from tests.world.workloads import BEHAVIOR, UNIT, Workload, step

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
    load = step(UNIT, NEEDED * UNIT)
    return [
        Workload(
            f"{('boosted', 'fast')[number % 2]}-{number:02}",
            _KIND,
            load,
            "" if number % 2 else boost.EXTERNAL,
            _SPEC,
            replicas=1,
            own=bool(number % 2),
        )
        for number in range(count)
    ]


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
