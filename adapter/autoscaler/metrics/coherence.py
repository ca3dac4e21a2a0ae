"""Which values of pods may be added up: those of one cut through time.

Pods are sampled one after the other, and load moves between samples. A new pod takes over load as soon as it
is ready. If its first sample is added to samples of the other pods from before that moment, the load that
moved is counted twice: 10 pods were needed and 12 were asked for. So the value of a pod counts only if every
pod that was ready before it has been sampled since. Until then the pod counts as missing, as upstream treats
a pod without a value: as zero in a scale-up, as the target in a scale-down. The other samples still show the
whole load, so the first reaction is no later.
"""

from collections.abc import Mapping

_ALWAYS = float("-inf")


def incoherent_pods(sampled: Mapping[str, float], became_ready: Mapping[str, float]) -> frozenset[str]:
    """Return the pods whose values must be left out of a sum.

    `sampled` has the time of each pod's sample, `became_ready` when a pod became ready if that is recent;
    both on the same clock. A pod that is not in `became_ready` has been ready for long. A pod whose own
    sample is from before it was ready is left out too: the load that it has taken over since is in no sample.
    """
    recent = sorted((became_ready[name], name) for name in sampled if name in became_ready)
    if not recent:
        return frozenset()
    oldest = min((time for name, time in sampled.items() if name not in became_ready), default=float("inf"))
    left_out = set()
    for ready, name in recent:
        if ready > oldest or sampled[name] < ready:
            left_out.add(name)
        oldest = min(oldest, sampled[name])
    return frozenset(left_out)
