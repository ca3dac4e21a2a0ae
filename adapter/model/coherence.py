"""Which values of pods may be added up: those of one cut through time.

Pods are sampled one after the other, and load moves between the samples. A new pod takes over load as soon as
it is ready. Added to samples of the other pods from before that moment, its first sample counts the load that
moved twice: 10 pods were needed, and 12 were asked for. So a pod's value counts only if every pod that was
ready before it has been sampled since. Until then the pod counts as missing, as upstream treats a pod without
a value: as zero in a scale-up, and at least as the target in a scale-down. The other samples still show the
load that it takes over, so the first reaction is no later.

The values that remain were all sampled while all of their pods were ready. If the pods share the load evenly,
their sum is at most the largest load in that time.

There are other cuts. A pod may be added to all others that were ready at some moment and have been sampled
since, and each moment has its cut. If one old pod lags behind, the cut above keeps it in place of all new
pods, and the load of these is in no sum until it is sampled again. So there is a second cut, that with the
largest sum. It serves raises only, and its sum is no more than the largest load either.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate

_NOTHING: frozenset[str] = frozenset()


def incoherent_pods(sampled: Mapping[str, float], became_ready: Mapping[str, float]) -> frozenset[str]:
    """Return the pods whose values are left out.

    `sampled` has the time of each pod's sample, `became_ready` the time at which a pod became ready if that
    is recent, both in seconds of one clock. A pod that is not in `became_ready` has been ready for long.

    A pod whose own sample is from before it was ready is left out too, because the load that it has taken
    over is in no sample of its own. If no value would remain, none is left out: without an older sample
    nothing is counted twice.
    """
    recent = sorted((became_ready[name], name) for name in sampled if name in became_ready)
    if not recent:
        return _NOTHING
    oldest = min((time for name, time in sampled.items() if name not in became_ready), default=float("inf"))
    left_out = set()
    for ready, name in recent:
        if ready > oldest or sampled[name] < ready:
            left_out.add(name)
        else:
            oldest = min(oldest, sampled[name])
    return frozenset(left_out) if len(left_out) < len(sampled) else _NOTHING


def heavier_cut(
    values: Mapping[str, float],
    sampled: Mapping[str, float],
    became_ready: Mapping[str, float],
    left_out: frozenset[str],
) -> frozenset[str]:
    """Return the pods that the cut with the largest sum leaves out; empty if its sum is no larger.

    Its sum is compared with that of all pods but `left_out`.
    """
    ready = {name: became_ready.get(name, -math.inf) for name in sampled}
    usable = [name for name, since in ready.items() if since <= sampled[name]]
    by_ready, by_sample = sorted(usable, key=ready.__getitem__), sorted(usable, key=sampled.__getitem__)
    starts, ends = [ready[name] for name in by_ready], [sampled[name] for name in by_sample]
    started, ended = ([0, *accumulate(map(values.__getitem__, names))] for names in (by_ready, by_sample))

    def total(moment: float) -> float:
        return started[bisect_right(starts, moment)] - ended[bisect_left(ends, moment)]

    # Between two samples pods only join, so the end of such a time has the largest cut.
    best = max(ends, key=total, default=math.inf)
    kept = [name for name in usable if ready[name] <= best <= sampled[name]]
    before = sum(values[name] for name in sampled if name not in left_out)
    return frozenset(sampled.keys() - kept) if sum(values[name] for name in kept) > before else _NOTHING


def unserved_pods(
    values: Mapping[str, float], sampled: Mapping[str, float], became_ready: Mapping[str, float]
) -> frozenset[str]:
    """Return the pods whose values the metrics API leaves out, of the second cut where that is safe.

    An HPA scales down by a mean below its target, and counts a pod without a value as the target. So while no
    value above the mean is left out, it scales down no further than with all values, whatever its target is.
    """
    newer = incoherent_pods(sampled, became_ready)
    if not newer:
        return newer
    left_out = sorted(newer, key=values.__getitem__)
    served = sum(values[name] for name in sampled if name not in newer)
    # The largest comes first, because each moves the mean. The sum is at most the load at the sample of one
    # of these pods: all of them share that load, and its own value is no smaller than their mean.
    while left_out and values[left_out[-1]] * (len(sampled) - len(left_out)) >= served:
        served += values[left_out.pop()]
    first = frozenset(left_out)
    other = heavier_cut(values, sampled, became_ready, first)
    rest = [values[name] for name in sampled if name not in other]
    is_safe = other and max(map(values.__getitem__, other)) * len(rest) <= sum(rest)
    return other if is_safe else first
