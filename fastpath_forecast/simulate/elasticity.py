"""The elasticity figures of the SPEC Research Group, which papers on autoscalers report.

The demand d of a second is the fewest whole pods that serve its load, the supply s are the ready pods. Over
the T seconds with a known load, in per cent:

    under-provisioning accuracy   theta U = 100 / T * sum of max(d - s, 0) / d
    over-provisioning accuracy    theta O = 100 / T * sum of max(s - d, 0) / d
    under-provisioning time share     T U = 100 / T * the seconds with d > s
    over-provisioning time share      T O = 100 / T * the seconds with s > d

The elastic speed-up eta of a policy against a baseline is the geometric mean of the four quotients, each
figure of the baseline divided by that of the policy. Above 1 the policy is better.

N. Herbst et al., "Ready for Rain? A View from SPEC Research on the Future of Cloud Metrics", SPEC-RG-2016-01,
arXiv 1604.03470. A second without demand is divided by one pod, where the definition divides by zero.
"""

import math
from collections.abc import Sequence


def demand(need: float) -> int:
    """Return the fewest whole pods for a need; a quotient of binary fractions may be just above a whole."""
    return math.ceil(need - 1e-9)


def speedup(baseline: Sequence[float], figures: Sequence[float]) -> float | None:
    """Return the elastic speed-up; None where a figure is 0, and a quotient therefore 0 or infinite."""
    if not all((*baseline, *figures)):
        return None
    quotients = (before / after for before, after in zip(baseline, figures, strict=True))
    return math.prod(quotients) ** (1 / len(figures))
