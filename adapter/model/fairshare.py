"""Max-min fairness: a room is divided so that small demands are met before a large one gets more."""

import math
from collections.abc import Collection


def level(demands: Collection[float], room: float) -> float:
    """Return the greatest share to which demands can be cut so that all of them fit the room.

    The result is infinite if the demands fit as they are. Demands are not negative, and the room is above
    zero.
    """
    if sum(demands) <= room:
        return math.inf
    rest, left = room, len(demands)
    for demand in sorted(demands):
        share = rest / left
        if demand >= share:
            return share
        rest -= demand
        left -= 1
    return math.inf  # only rounding errors lead here
