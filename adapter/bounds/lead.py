"""How long before its window a minimum begins, so that all of its pods are Ready when the window begins."""

import math
import sys
from typing import NamedTuple

from adapter.model.start_ups import StartUps

MOST_LEAD = 600
"""The longest lead, in seconds."""


class Lead(NamedTuple):
    """What the lead of a minimum follows from.

    `start_ups` are those of the pods, None if none is known. `lowest` and `highest` are minReplicas and
    maxReplicas. `delay` is the seconds from a raise to the pods that are created for it.
    """

    start_ups: StartUps | None = None
    lowest: int = 0
    highest: int = sys.maxsize
    delay: int = 0

    def of_raise(self, before: int, after: int) -> int:
        """Return the lead in seconds of a minimum that rises from `before` to `after`.

        There are at most so many new pods: where metrics ask for more than `before`, they are fewer.
        """
        if self.start_ups is None:
            return 0
        pods = min(after, self.highest) - max(before, self.lowest)
        seconds = math.ceil(self.start_ups.until_last(max(pods, 1), MOST_LEAD))
        return min(seconds + self.delay, MOST_LEAD)


NO_LEAD = Lead()
