"""What kept the count of a decision where it is: one word for a line of a table, a ribbon or a column."""

import enum


class Restraint(enum.Enum):
    """What kept the count where it was; the value is the text for it."""

    FOLLOWS = "follows the metrics"
    TOLERATED = "within tolerance"
    HELD = "held by stabilization"
    FLOOR = "held by a floor"
    LIMITED = "limited by a policy"
    LOWEST = "held by minReplicas"
    HIGHEST = "limited by maxReplicas"
    SCHEDULED = "held by a schedule"
    FORECAST = "held by a forecast"
    ABSENT = "a metric has no value"
    DRAINING = "waits for idle pods"
    WITHHELD = "not written"
    DISABLED = "scaled to zero"
    FAILED = "cannot be scaled"


FOLLOWS, TOLERATED, HELD = Restraint.FOLLOWS, Restraint.TOLERATED, Restraint.HELD
LIMITED, LOWEST, HIGHEST = Restraint.LIMITED, Restraint.LOWEST, Restraint.HIGHEST
"""Those of most decisions: Python 3.11 takes a while to find a member of an enum."""
