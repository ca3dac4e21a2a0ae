"""What is known about the questions of one metric query: those that wait, and those that will come again.

Not here: sending (`querycache`), and how a query is written (`rules.plan.plan`).
"""

import asyncio
from collections import OrderedDict

from adapter.prometheus.answers import Freshness, ObjectAnswer
from adapter.rules.plan import plan
from adapter.rules.plan.plan import Objects
from adapter.rules.query import MetricQuery
from adapter.telemetry.metrics import Monitoring

STANDING = 30.0
"""How long, in seconds, a question counts as one that will be asked again: two periods of a HorizontalPodAutoscaler."""

SWEEP_LIMIT = 20_000
"""A sweep whose answer had so many objects is not repeated: it would cost more than it saves."""

STANDING_QUESTIONS = 10_000
"""How many questions a lane remembers at most."""

LANE_BYTES = 32 * 1024 * 1024
"""How much memory the questions of one lane take at most: each may name thousands of objects."""

LANES = 10_000
"""How many lanes are remembered at most."""

LANES_BYTES = 64 * 1024 * 1024
"""How much memory all lanes take at most."""

_LANE_BYTES = 1024


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
        self.weight = _LANE_BYTES + query.weight  # about how many bytes it takes
        self.objects_seen = expected

    def note(self, objects: Objects, now: float) -> None:
        """Remember that a question was asked."""
        self.used_before, self.used = self.used, now
        if objects not in self.standing:
            self.named += len(objects.names)
            self.weight += objects.weight
        self.standing[objects] = now
        self.standing.move_to_end(objects)
        while self._has_too_many() or now - next(iter(self.standing.values())) > STANDING:
            forgotten, _ = self.standing.popitem(last=False)
            self.named -= len(forgotten.names)
            self.weight -= forgotten.weight

    def _has_too_many(self) -> bool:
        return len(self.standing) > STANDING_QUESTIONS or (
            self.weight > LANE_BYTES and len(self.standing) > 1
        )

    def worth_sweeping(self) -> bool:
        """Whether the standing questions name over half of the objects last seen, and those are not too many.

        A name counts as often as it is asked for: telling them apart would cost more than a sweep too early.
        """
        if not 0 < self.objects_seen < SWEEP_LIMIT or not plan.may_sweep(self.query):
            return False
        return self.named * 2 > self.objects_seen


class Lanes:
    """The lanes in use, within a bound of memory: those that nobody has used for longest are forgotten.

    One that is forgotten on its way keeps itself until it has landed; who asks next begins another.
    """

    def __init__(self, monitoring: Monitoring, *, most: int = LANES, room: int = LANES_BYTES) -> None:
        self.maxsize = float(room)
        self.currsize = 0.0
        self._most = most
        self._lanes: OrderedDict[tuple[MetricQuery, str | None], Lane] = (
            OrderedDict()
        )  # by the time last used
        self._evictions = monitoring.watch_cache("lanes", self)

    def __len__(self) -> int:
        return len(self._lanes)

    def note(self, query: MetricQuery, objects: Objects, expected: int, now: float) -> Lane:
        """Return the lane of a question, which it remembers."""
        key = (query, None if plan.may_sweep(query) else objects.namespace)
        lane = self._lanes.get(key)
        if lane is None:
            self._forget_unused(now)
            lane = self._lanes[key] = Lane(query, expected)
            self.currsize += lane.weight
        self._lanes.move_to_end(key)
        before = lane.weight
        lane.note(objects, now)
        self.currsize += lane.weight - before
        while len(self._lanes) > self._most or (self.currsize > self.maxsize and len(self._lanes) > 1):
            self._evictions.inc()
            self._forget_oldest()
        return lane

    def _forget_unused(self, now: float) -> None:
        """Forget two lanes for each that comes, as far as nobody has used them for long."""
        for _ in range(2):
            if self._lanes and now - next(iter(self._lanes.values())).used > STANDING:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, lane = self._lanes.popitem(last=False)
        self.currsize -= lane.weight
