"""Answers of Prometheus that are kept, and the questions on their way to it.

Not here: when a question leaves and with which others (`querycache`). The law: bounded by the memory that is kept, questions included,
since these may be much larger than what answers them; an answer is forgotten when nobody may use it any more.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult, Sample
from adapter.rules.plan.plan import Objects
from adapter.rules.query import MetricQuery
from adapter.telemetry.caching import ExpiringCache
from adapter.telemetry.metrics import Monitoring

KEPT_BYTES = 128 * 1024 * 1024
"""Bound on the answers kept about objects; of each answer it is estimated, from above, what it takes."""

KEPT_TEXTS_BYTES = KEPT_SWEEPS_BYTES = 64 * 1024 * 1024
"""Bounds on the answers kept to queries of external metrics, and to sweeps."""

FLIGHT_BYTES = 2048
"""About what a question takes while it waits, beside its own text."""

OBJECT_BYTES = 150
"""What an object takes in an answer beside its samples."""

_ANSWER_BYTES = 1024
_SAMPLE_BYTES = 350
_LABEL_BYTES = 60
_WEIGHED = 3


def weigh_samples(samples: Sequence[Sample]) -> int:
    """Return about how many bytes samples take: those of one answer are much alike, so only some of them are looked at."""
    if not samples:
        return 0
    looked_at = samples if len(samples) <= _WEIGHED else (samples[0], samples[len(samples) // 2], samples[-1])
    text = sum(_LABEL_BYTES + len(value) for sample in looked_at for value in sample.labels.values())
    return len(samples) * (_SAMPLE_BYTES + text // len(looked_at))


def weigh_question(question: tuple[MetricQuery, Objects]) -> int:
    """Return about how many bytes a question about objects takes."""
    query, objects = question
    return query.weight + objects.weight


_AHEAD, _MOST_AHEAD = 0.1, 0.25


class Freshness(NamedTuple):
    """How long an answer is used again without waiting for another, and how old it may be when asking fails; seconds.

    Who asks in the last `ahead` seconds of `ttl` gets the answer there is, and has it asked anew for those who come after.
    """

    ttl: float
    max_age: float
    ahead: float = 0.0

    def lasts(self, took: float) -> float:
        """Return for how many seconds after the asking an answer is used that took `took` seconds to come.

        Longer than `ttl` if it took over half of that: then for as long after its arrival as it took, within `max_age`. An
        answer slower than its TTL would else be out of date on arrival, and Prometheus would be asked without a pause.
        """
        return max(self.ttl, min(2 * took, self.max_age)) if self.ttl else 0.0

    @property
    def young(self) -> float:
        """Return how old an answer may be that is not asked anew yet."""
        return self.ttl - self.ahead


def renewed(ttl: float, max_age: float) -> Freshness:
    """Return the freshness of answers that are asked anew in the last tenth of their `ttl`, and the last quarter of a second at most.

    That is enough for a query to come back; who comes once in a long `ttl` would have his answers asked anew for nobody.
    """
    return Freshness(ttl, max_age, min(ttl * _AHEAD, _MOST_AHEAD))


class Text(NamedTuple):
    """A query asked as text. `accepts_warnings` says that an answer with warnings counts as whole."""

    promql: str
    accepts_warnings: bool = False


class TextAnswer(NamedTuple):
    """The answer to a query asked as text. `asked` is monotonic; `failure` is why an older answer stands in, None where none does.

    `partial` says that the answer came with a warning and may lack a part of the data; such an answer is
    never kept.
    """

    result: QueryResult
    asked: float
    failure: PrometheusError | None = None
    partial: PrometheusError | None = None

    @property
    def size(self) -> int:
        """Return how much room it takes."""
        return weigh_samples(self.result.samples)


class ObjectAnswer(NamedTuple):
    """The samples of the objects asked for, by name, each object's in the order received; objects without one are absent.

    `asked` is monotonic. `fallbacks` are the objects whose samples only stand in for those that were to be
    had; `scraped` says that some of the objects are scraped, so that other samples may be there at any
    moment. `partial` is as in `TextAnswer`.
    """

    samples: Mapping[str, tuple[Sample, ...]]
    asked: float
    failure: PrometheusError | None = None
    fallbacks: frozenset[str] = frozenset()
    scraped: bool = False
    partial: PrometheusError | None = None

    @property
    def size(self) -> int:
        """Return how much room it takes."""
        return weigh_groups(self.samples)


class SweepAnswer(NamedTuple):
    """The samples of every object of a metric, by namespace ("" for kinds without one) and name.

    `asked` is monotonic; `size` is about how many bytes it takes. `partial` is as in `TextAnswer`.
    """

    samples: Mapping[str, Mapping[str, tuple[Sample, ...]]]
    asked: float
    size: int
    partial: PrometheusError | None = None

    def pick(self, namespace: str, names: tuple[str, ...]) -> ObjectAnswer:
        """Return the answer for some objects."""
        found = self.samples.get(namespace, {})
        return ObjectAnswer(
            {name: found[name] for name in names if name in found}, self.asked, partial=self.partial
        )


def weigh_groups(samples: Mapping[str, Sequence[Sample]]) -> int:
    """Return about how many bytes samples take that stand by the names of their objects."""
    if not samples:
        return 0
    first = next(iter(samples.values()))
    return OBJECT_BYTES * len(samples) + sum(map(len, samples.values())) * weigh_samples(first[:1])


Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer", TextAnswer, ObjectAnswer, SweepAnswer)


class Kept(NamedTuple, Generic[Answer]):
    """An answer, about how many bytes it takes, and how many seconds it took to come."""

    answer: Answer
    weight: int
    took: float


class Answers(Generic[Key, Answer]):
    """Answers kept, and questions on their way, by key."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        monitoring: Monitoring,
        weigh: Callable[[Key], int],
        room: int = KEPT_BYTES,
    ) -> None:
        """`name` is that of the cache in the self-metrics, `weigh` says how many bytes a key takes, `room` how many are kept."""
        self.flights: dict[Key, asyncio.Future[Answer]] = {}
        self.flying = 0
        """How many bytes the questions on their way take."""
        self._weigh = weigh
        self._kept: ExpiringCache[Key, Kept[Answer]] = ExpiringCache(
            name, monitoring, room, lambda kept: kept[0].weight, clock.monotonic
        )

    @property
    def kept_bytes(self) -> float:
        """Return how much of the room is taken."""
        return self._kept.currsize

    def get(self, key: Key) -> Answer | None:
        """Return the last answer while anybody may still use it."""
        kept = self.find(key)
        return kept.answer if kept else None

    def find(self, key: Key) -> Kept[Answer] | None:
        """Return as `get`, with what is known of the answer."""
        kept = self._kept.get(key)
        return kept[0] if kept else None

    def keep(self, key: Key, answer: Answer, seconds: float, took: float = 0.0) -> None:
        """Keep an answer until `seconds` after it was asked for, or until the one it replaces would have ended.

        So one who takes nothing old leaves to others what may stand in for them. An answer larger than the whole room is not kept.
        A question counts twice: of those that were dropped or asked anew the cache remembers as many as it has, to know when they end.
        """
        weight = _ANSWER_BYTES + answer.size + 2 * self._weigh(key)
        if weight <= self._kept.maxsize:
            _, end = self._kept.get(key) or (None, -math.inf)
            self._kept[key] = (Kept(answer, weight, took), max(answer.asked + seconds, end))

    def open(self, key: Key) -> asyncio.Future[Answer]:
        """Return a new flight, forgotten when it lands. What nobody may use any more is forgotten on the way."""
        self._kept.expire()
        flight: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        weight = FLIGHT_BYTES + self._weigh(key)
        self.flights[key] = flight
        self.flying += weight
        flight.add_done_callback(lambda landed: self._land(key, weight, landed))
        return flight

    def expire(self) -> None:
        """Forget what nobody may use any more."""
        self._kept.expire()

    def _land(self, key: Key, weight: int, flight: asyncio.Future[Answer]) -> None:
        del self.flights[key]
        self.flying -= weight
        flight.exception()  # read here: every caller may have gone away
