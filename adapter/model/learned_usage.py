"""What was learned of the usage that pods expose themselves, for the next source that reads the same metric.

It belongs to one scale target and is stored with its ready times. It says nothing about another resource,
container or rule, nor after a while: the program in the pods may have changed.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from adapter.model.objects.api_objects import Struct

MOST_RATIOS, MOST_PODS, MOST_LEARNED = 32, 5, 4
"""Bounds on what is stored of one metric, and on the metrics of an autoscaler."""

OLDEST_SECONDS = 600.0
"""How old the last comparison may be when another source takes over what is known."""

GREATEST_RATIO = 1e6
"""A counter of another unit than the usage shows a ratio beyond it, or one that rounds to 0."""

_Share = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
_Ratio = Annotated[float, msgspec.Meta(gt=0, le=GREATEST_RATIO)]


class AgreeingPod(Struct, frozen=True, array_like=True):
    """A pod by its start, and until when its last comparison counts, in epoch seconds."""

    started: int | None
    until: float


class LearnedUsage(Struct, frozen=True):
    """`rule` identifies the rule, `at` is when it was last compared (epoch seconds).

    `ratios` are the last comparisons, oldest first, `share` is the noise, None if not known, and `pods` are
    some that agreed with their containers.
    """

    rule: str
    at: float
    ratios: Annotated[tuple[_Ratio, ...], msgspec.Meta(min_length=1, max_length=MOST_RATIOS)]
    share: _Share | None = None
    pods: Annotated[Mapping[str, AgreeingPod], msgspec.Meta(max_length=MOST_PODS)] = {}

    def counts(self, rule: str, now: float) -> bool:
        """Tell whether a source that reads this rule may go on with it now (epoch seconds)."""
        return self.rule == rule and 0.0 <= now - self.at <= OLDEST_SECONDS
