"""Max-min fairness: a room is divided so that small demands are met before a large one gets more."""

import itertools
import math
from collections.abc import Collection


def level(demands: Collection[float], room: float) -> float:
    """Return the greatest share to which demands can be cut so that all of them fit the room.

    The result is infinite if the demands fit as they are. Demands are not negative, and the room is above
    zero.
    """
    if sum(demands) <= room:
        return math.inf
    # Where the smallest demands are met, the others share the rest evenly; meeting one demand too many lowers the level.
    met = itertools.accumulate(sorted(demands)[:-1], initial=0.0)
    return max((room - demand) / (len(demands) - count) for count, demand in enumerate(met))
