"""The figures of one run: how far the ready pods were from what the load needed, and what they cost."""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Figures:
    """Sums over the seconds of a run; pod seconds are replicas times seconds.

    `need` is the load in pods, not rounded. Pods that are starting are in `pod_seconds` and not in the ready
    ones, which `shortage` and `excess` compare with the need. `gap_seconds` are seconds without a known load,
    which count in `pod_seconds` alone.
    """

    shortage: float = 0.0
    excess: float = 0.0
    pod_seconds: float = 0.0
    need: float = 0.0
    short_seconds: int = 0
    changes: int = 0
    max_replicas: int = 0
    seconds_at_max: int = 0
    backlog_max: float = 0.0
    gap_seconds: int = 0

    def add(self, seconds: int, need: float, ready: int, replicas: int, most: int) -> None:
        """Count seconds in which nothing changes; `most` is maxReplicas."""
        self.pod_seconds += seconds * replicas
        self.max_replicas = max(self.max_replicas, replicas)
        if replicas >= most:
            self.seconds_at_max += seconds
        if math.isnan(need):
            self.gap_seconds += seconds
            return
        self.need += seconds * need
        if need > ready:
            self.shortage += seconds * (need - ready)
            self.short_seconds += seconds
        else:
            self.excess += seconds * (ready - need)
