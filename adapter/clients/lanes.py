"""What is known about the questions of one metric query: those that wait, and those that will come again.

Not here: sending (`querycache`), and how a query is written (`rules.plan`).
"""

import asyncio
from collections import OrderedDict

from adapter.clients.answers import Freshness, ObjectAnswer
from adapter.rules import plan
from adapter.rules.plan import Objects
from adapter.rules.query import MetricQuery

STANDING = 30.0
"""How long, in seconds, a question counts as one that will be asked again: two periods of a HorizontalPodAutoscaler."""

SWEEP_LIMIT = 20_000
"""A sweep whose answer had so many objects is not repeated: it would cost more than it saves."""

STANDING_QUESTIONS = 10_000
"""How many questions a lane remembers at most."""


class Lane:
    """The questions of one `MetricQuery`. `expected` is about how many objects have the metric.

    `used` is when it was last asked, and `used_before` when it was asked before that.
    """

    def __init__(self, query: MetricQuery, expected: int) -> None:
        self.query = query
        self.waiting: dict[Objects, asyncio.Future[ObjectAnswer]] = {}
        self.departing: dict[Objects, asyncio.Future[ObjectAnswer]] = {}
        self.draining = False
        self.used = float("-inf")
        self.used_before = float("-inf")
        self.freshness = Freshness(0.0, 0.0)
        self.standing: OrderedDict[Objects, float] = OrderedDict()  # by the time last asked, oldest first
        self.named = 0  # objects that the standing questions name together
        self.objects_seen = expected

    def note(self, objects: Objects, now: float) -> None:
        """Remember that a question was asked."""
        self.used_before, self.used = self.used, now
        if objects not in self.standing:
            self.named += len(objects.names)
        self.standing[objects] = now
        self.standing.move_to_end(objects)
        while len(self.standing) > STANDING_QUESTIONS or now - next(iter(self.standing.values())) > STANDING:
            forgotten, _ = self.standing.popitem(last=False)
            self.named -= len(forgotten.names)

    def worth_sweeping(self) -> bool:
        """Whether the standing questions name over half of the objects last seen, and those are not too many.

        A name counts as often as it is asked for: telling them apart would cost more than a sweep too early.
        """
        if not 0 < self.objects_seen < SWEEP_LIMIT or not plan.may_sweep(self.query):
            return False
        return self.named * 2 > self.objects_seen
